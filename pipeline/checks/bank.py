"""Transfers between accounts, each one multi: nobody sees half of one, and no money comes or goes.

`read` returns `{account: [balance, version]}` as of one state; `transfer` has `[from, to, amount]` as
argument. Final state: one line with the same as a read. Every transfer raises two versions by one.
Source: docs/internals/simulation.md, "What is checked"; Jepsen's bank test (the idea).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from pipeline.checks.history import OK, UNKNOWN, Line, Operation
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "bank"

Accounts = Mapping[str, Sequence[int]]


def check_bank(operations: Sequence[Operation], final: Iterable[Line], total: int) -> Verdict:
    """Judge all reads, and the number of transfers that took effect."""
    reads = [each for each in operations if each.operation == "read" and each.outcome == OK]
    done = sum(each.operation == "transfer" and each.outcome == OK for each in operations)
    unknown = sum(each.operation == "transfer" and each.outcome == UNKNOWN for each in operations)
    culprits: list[Operation] = []

    def problems() -> Iterator[str]:
        for each in reads:
            for problem in _wrong(each.result, total):
                culprits.append(each)
                yield f"{each.process}: {problem}"
        for line in final:
            yield from (f"at the end: {problem}" for problem in _wrong(line["accounts"], total))
            moved = sum(version for _, version in line["accounts"].values())
            if moved % 2 or not done <= moved // 2 <= done + unknown:
                yield f"at the end: {moved} writes, for {done} transfers and {unknown} unknown ones"

    found = list(problems())
    return judge(CHECK, len(operations), found, culprits[:1])


def _wrong(accounts: Accounts, total: int) -> Iterator[str]:
    found = sum(balance for balance, _ in accounts.values())
    if found != total:
        yield f"all accounts hold {found} instead of {total}: {accounts}"
    for account, (balance, _) in accounts.items():
        if balance < 0:
            yield f"{account} holds {balance}"
