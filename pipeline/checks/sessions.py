"""The order of a connection: of the writes that it sent, those that reached the log are a prefix, in order.

A key is a connection, an argument the number of the write on it, from 0 in the order of sending. Final state:
one line for every write that is in the log, `{key, argument, zxid}`. A server that loses a write of a
connection in the middle, or lets a later one overtake, is found; so is one that lets writes of a connection
take effect after a gap. Writes that failed for certain, each on its own, make no gap.
Source: ZooKeeper programmer's guide (sequential consistency); docs/internals/simulation.md, "What is
checked".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final

from pipeline.checks.history import FAIL, Line, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "session order"


def check_session_order(operations: Sequence[Operation], final: Iterable[Line]) -> Verdict:
    """Look at every connection on its own."""
    reached: dict[str, dict[int, int]] = {}
    for line in final:
        reached.setdefault(line["key"], {})[line["argument"]] = line["zxid"]
    sent = by_key(operations)
    problems = [
        problem for key, history in sent.items() for problem in _problems(key, history, reached.get(key, {}))
    ]
    culprits: list[Operation] = []
    if problems:
        culprits = sent[problems[0].split(": ")[0]][:12]
    return judge(CHECK, len(operations), problems, culprits)


def _problems(key: str, history: Sequence[Operation], reached: dict[int, int]) -> Iterator[str]:
    numbers = sorted(each.argument for each in history if each.outcome != FAIL)
    missing = next((number for number in numbers if number not in reached), None)
    if missing is not None:
        beyond = [number for number in reached if number > missing]
        if beyond:
            yield f"{key}: write {missing} never reached the log, write {min(beyond)} did"
    for before, after in pairwise(sorted(reached)):
        if reached[before] >= reached[after]:
            zxids = f"{reached[before]} and {reached[after]}"
            yield f"{key}: writes {before} and {after} have the zxids {zxids}"
