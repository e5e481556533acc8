"""Controllers and partition states: one controller an epoch, epochs rise, a fenced one changes nothing.

`elect` returns the epoch that its process won. `lead` (by a controller) and `isr` (by a leader) write a
partition's state `[controller_epoch, leader, leader_epoch, isr]` at an expected version and return the new
version, with the zxid; `state` reads `[version, state]`. All states of a partition are put in the order of
their versions and compared with each other.
Source: docs/internals/simulation.md, "What is checked"; docs/concepts/guarantees.md, "Leaders and in-sync
replicas".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pipeline.checks.history import OK, UNKNOWN, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK_EPOCHS: Final = "controller epochs"
CHECK_STATES: Final = "partition states"


def check_epochs(operations: Sequence[Operation]) -> Verdict:
    """Judge elections, and whether writes in the name of an epoch come from its controller and in order."""
    won = [each for each in operations if each.operation == "elect" and each.outcome == OK]
    writes = [each for each in operations if each.operation == "lead" and each.outcome == OK]
    problems = [*_elections(won), *_fence(operations, won, writes)]
    return judge(CHECK_EPOCHS, len(won) + len(writes), problems)


def _elections(won: Sequence[Operation]) -> Iterator[str]:
    holders: dict[int, str] = {}
    for each in won:
        holder = holders.setdefault(each.result, each.process)
        if holder != each.process:
            yield f"epoch {each.result} was won by {holder} and by {each.process}"
    for before, after in _apart(won):
        if after.result < before.result or (
            after.result == before.result and after.process != before.process
        ):
            yield f"{after.process} won epoch {after.result} after {before.process} had won {before.result}"


def _apart(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Operation]]:
    """Pairs where the second began after the first had ended; for each the highest result before."""
    ends = sorted(operations, key=lambda each: each.completed_ns)
    highest: Operation | None = None
    position = 0
    for each in sorted(operations, key=lambda each: each.invoked_ns):
        while position < len(ends) and ends[position].completed_ns < each.invoked_ns:
            if highest is None or ends[position].result > highest.result:
                highest = ends[position]
            position += 1
        if highest is not None:
            yield highest, each


def _fence(
    operations: Sequence[Operation], won: Sequence[Operation], writes: Sequence[Operation]
) -> Iterator[str]:
    holders = {each.result: each.process for each in won}
    maybe = {each.process for each in operations if each.operation == "elect" and each.outcome == UNKNOWN}
    ordered = sorted(writes, key=lambda each: each.zxid)
    for before, after in pairwise(ordered):
        if _epoch(after) < _epoch(before):
            later = f"epoch {_epoch(before)} at zxid {before.zxid}"
            yield f"{after.process} wrote in epoch {_epoch(after)} at zxid {after.zxid}, after {later}"
    for each in writes:
        holder = holders.get(_epoch(each))
        if holder != each.process and not (holder is None and each.process in maybe):
            yield f"{each.process} wrote in epoch {_epoch(each)}, which {holder or 'nobody'} won"


def _epoch(write: Operation) -> int:
    return int(write.argument[1][0])


class _State(NamedTuple):
    """One state of a partition."""

    version: int
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    #: "lead", "isr" or "state"
    source: str


def check_states(operations: Sequence[Operation], replicas: dict[str, list[int]]) -> Verdict:
    """Judge the states of partitions, written or read.

    Args:
        operations: with a partition as key.
        replicas: {partition: its replicas}.
    """
    problems: list[str] = []
    judged = 0
    for key, history in by_key(operations).items():
        found = [state for each in history if (state := _state_of(each)) is not None]
        judged += len(found)
        problems += [f"{key}: {problem}" for problem in _chain(found, replicas.get(key, []))]
    return judge(CHECK_STATES, judged, problems)


def _state_of(operation: Operation) -> _State | None:
    if operation.outcome != OK or operation.operation not in ("lead", "isr", "state"):
        return None
    version: int
    state: Any
    if operation.operation == "state":
        version, state = operation.result
    else:
        version, state = operation.result, operation.argument[1]
    controller_epoch, leader, leader_epoch, isr = state
    return _State(version, controller_epoch, leader, leader_epoch, tuple(isr), operation.operation)


def _chain(found: Sequence[_State], replicas: Sequence[int]) -> Iterator[str]:
    by_version: dict[int, _State] = {}
    for each in found:
        known = by_version.setdefault(each.version, each)
        if known[:5] != each[:5]:
            yield f"version {each.version} is {known[1:5]} and {each[1:5]}"
        if known.source == "state":
            by_version[each.version] = each
    for version, state in by_version.items():
        if state.leader != -1 and state.leader not in state.isr:
            yield f"version {version}: the leader {state.leader} is not in the ISR {list(state.isr)}"
        if replicas and not {*state.isr} <= {*replicas}:
            yield f"version {version}: the ISR {list(state.isr)} has others than the replicas {replicas}"
    for (before_version, before), (version, after) in pairwise(sorted(by_version.items())):
        yield from _step(before_version, before, version, after)


def _step(before_version: int, before: _State, version: int, after: _State) -> Iterator[str]:
    place = f"versions {before_version} and {version}"
    if after.controller_epoch < before.controller_epoch:
        yield f"{place}: the controller epoch fell from {before.controller_epoch} to {after.controller_epoch}"
    if after.leader_epoch < before.leader_epoch:
        yield f"{place}: the leader epoch fell from {before.leader_epoch} to {after.leader_epoch}"
    if after.leader != before.leader and after.leader_epoch == before.leader_epoch:
        yield f"{place}: the leader changed in leader epoch {after.leader_epoch}"
    if version == before_version + 1:
        rise = after.leader_epoch - before.leader_epoch
        if after.source == "lead" and rise != 1:
            yield f"{place}: a controller raised the leader epoch by {rise}"
        if after.source == "isr" and rise:
            yield f"{place}: a leader's write of its ISR raised the leader epoch by {rise}"
