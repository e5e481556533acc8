"""Locks with fencing tokens: what a lock protects is never written under a token that was overtaken.

`acquire` returns the token of a lock that its process holds; `write` has the token as argument, and the zxid
under which the protected thing was written. A process whose session ended may still believe that it holds the
lock: that is allowed, its writes are not.
Source: Kleppmann, "How to do distributed locking" (fencing tokens); docs/internals/simulation.md, "What is
checked".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from pipeline.checks.history import OK, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "fencing tokens"


def check_fencing(operations: Sequence[Operation]) -> Verdict:
    """Judge every lock on its own."""
    known = [each for each in operations if each.outcome == OK]
    problems = [
        f"{key}: {problem}" for key, history in by_key(known).items() for problem in _problems(history)
    ]
    return judge(CHECK, len(known), problems)


def _problems(history: Sequence[Operation]) -> Iterator[str]:
    owners: dict[int, Operation] = {}
    for each in history:
        if each.operation == "acquire":
            first = owners.setdefault(each.result, each)
            if first.process != each.process:
                yield f"token {each.result} was given to {first.process} and to {each.process}"
    writes = sorted((each for each in history if each.operation == "write"), key=lambda each: each.zxid)
    for each in writes:
        owner = owners.get(each.argument)
        if owner is None or owner.process != each.process:
            yield f"{each.process} wrote with token {each.argument}, which it never had"
    for before, after in pairwise(writes):
        if after.argument < before.argument:
            yield (
                f"{after.process} wrote with token {after.argument} at zxid {after.zxid}, after token "
                f"{before.argument} at {before.zxid}"
            )
