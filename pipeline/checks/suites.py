"""Which checkers judge which workload of a chaos run, and which operations each of them needs to see.

A part of a suite is known by the keys that it looks at. Where every key can be judged on its own, a history
may be split by key, so that many processes judge it.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pipeline.checks.appends import check_appends
from pipeline.checks.bank import check_bank
from pipeline.checks.compacted import check_compacted
from pipeline.checks.ephemerals import check_ephemerals
from pipeline.checks.epochs import check_epochs, check_states
from pipeline.checks.fencing import check_fencing
from pipeline.checks.groups import check_groups
from pipeline.checks.history import OK, Line, Operation
from pipeline.checks.records import check_records
from pipeline.checks.registers import check_registers
from pipeline.checks.sessions import check_session_order
from pipeline.checks.transactions import check_transactions
from pipeline.checks.verdicts import Verdict
from pipeline.checks.watches import check_watches

#: What all accounts of the bank hold.
BANK_TOTAL: Final = 500
#: The replicas of each partition of `epochs`; the first one leads at the beginning.
EPOCHS_REPLICAS: Final = (1, 2, 3, 4, 5, 6)
#: The replicas of each partition of `states`.
STATES_REPLICAS: Final = (1, 2, 3)

Judge = Callable[[Sequence[Operation], Sequence[Line]], list[Verdict]]


@dataclass(frozen=True)
class Part:
    """Checkers that look at the same keys."""

    workload: str
    #: regular expression of the whole key
    keys: str
    #: from operations and final lines of these keys to verdicts
    judge: Judge
    #: whether all keys must be seen together
    together: bool = False

    def verdicts(self, operations: Iterable[Operation], final: Iterable[Line]) -> list[Verdict]:
        """Judge its part of a history."""
        is_mine = re.compile(self.keys).fullmatch
        return self.judge(
            [each for each in operations if is_mine(each.key)],
            [line for line in final if is_mine(str(line["key"]))],
        )


def _judge_appends(operations: Sequence[Operation], final: Sequence[Line]) -> list[Verdict]:
    return [check_appends(operations, final), check_session_order(operations, final)]


def _judge_watches(operations: Sequence[Operation], final: Sequence[Line]) -> list[Verdict]:
    # What the writers did is only for the timeline.
    return [check_watches([each for each in operations if each.operation != "change"], final)]


def _states(replicas: Sequence[int], operations: Sequence[Operation]) -> Verdict:
    return check_states(operations, {each.key: list(replicas) for each in operations})


def _judge_epochs(operations: Sequence[Operation], _final: Sequence[Line]) -> list[Verdict]:
    """Judge the states of each partition, and each state as a register."""
    first = str([0, EPOCHS_REPLICAS[0], 0, list(EPOCHS_REPLICAS)])
    keys = dict.fromkeys(each.key for each in operations)
    registers = [
        *(Operation("setup", "create", key, first, OK, 0, 0, "", 0, 0) for key in keys),
        *(_as_register(each) for each in operations),
    ]
    return [
        _states(EPOCHS_REPLICAS, operations),
        check_registers(registers, check="linearizable states"),
    ]


def _as_register(operation: Operation) -> Operation:
    if operation.operation == "state":
        result = operation.result and [operation.result[0], str(operation.result[1])]
        return replace(operation, operation="read", result=result)
    version, state = operation.argument
    return replace(operation, operation="cas", argument=[version, str(state)])


def _only(check: Callable[[Sequence[Operation]], Verdict]) -> Judge:
    """Make a judge of a checker that needs no final state."""
    return lambda operations, _final: [check(operations)]


PARTS: Final = (
    Part("registers", r"register-\d+", _only(check_registers)),
    Part("appends", r"append/.*", _judge_appends),
    Part("bank", r"bank", lambda operations, final: [check_bank(operations, final, BANK_TOTAL)]),
    Part("locks", r"lock", _only(check_fencing)),
    Part(
        *("sessions", r"sessions|session-[0-9a-f]+"),
        lambda operations, final: [check_ephemerals(operations, final)],
        together=True,
    ),
    Part("watches", r"watched-\d+", _judge_watches),
    Part("epochs", r"controller|state-\d+", _only(check_epochs), together=True),
    Part("epochs", r"state-\d+", _judge_epochs),
    Part("records", r"chaos-\d+", check_records),
    Part("groups", r"group-\w+-\d+", check_groups),
    Part("transactions", r"transactions", check_transactions),
    # Together: what is gone of a single key may be nothing.
    Part("compacted", r"compacted-(kept|quick)-\d+", check_compacted, together=True),
    Part("states", r"published-\d+", _only(partial(_states, STATES_REPLICAS))),
)


def judge_workload(workload: str, operations: Sequence[Operation], final: Sequence[Line]) -> list[Verdict]:
    """Judge a workload's part of a history."""
    return [
        verdict for part in PARTS if part.workload == workload for verdict in part.verdicts(operations, final)
    ]
