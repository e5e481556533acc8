"""A set of unique appends: what was acknowledged is there, what failed for certain is not.

Final state: one line for every element, `{key, argument, zxid}`. An append with an unknown outcome may be
there, once, or not. Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import FAIL, OK, Line, Operation
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "set of appends"


def check_appends(operations: Sequence[Operation], final: Iterable[Line]) -> Verdict:
    """Compare what clients learned with what is there."""
    found = Counter((line["key"], json.dumps(line["argument"])) for line in final)
    zxids = {(line["key"], json.dumps(line["argument"])): line["zxid"] for line in final}
    culprits: list[Operation] = []

    def problems() -> Iterator[str]:
        asked: set[tuple[str, str]] = set()
        for each in operations:
            name = (each.key, json.dumps(each.argument))
            asked.add(name)
            problem = ""
            if each.outcome == OK and not found[name]:
                problem = "was acknowledged and is lost"
            elif each.outcome == FAIL and found[name]:
                problem = "failed for certain and is there"
            elif found[name] > 1:
                problem = f"is there {found[name]} times"
            elif each.outcome == OK and each.zxid != zxids[name]:
                problem = f"was acknowledged with zxid {each.zxid} and has {zxids[name]}"
            if problem:
                culprits.append(each)
                yield f"{each.key} {each.argument} {problem}"
        for key, argument in found:
            if (key, argument) not in asked:
                yield f"{key} {argument} is there and nobody appended it"

    found_problems = list(problems())
    return judge(CHECK, len(operations), found_problems, culprits[:1])
