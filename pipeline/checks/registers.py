"""Linearizability of registers with compare-and-set: the search of Wing and Gong, with versions as witness.

A register is absent, or has a version and a value. `create` makes version 0; `write` replaces the value,
`cas` does so only at an expected version, and both raise the version by one and return it; `read` returns
version and value. An operation that failed for certain has no effect, but a `cas` that was refused as
`bad version` proves that the version was another one. An operation with an unknown outcome takes effect at
any time after its invocation, or never.

The search looks for an order of all operations that agrees with their results and with real time. Versions
make it short: a version that somebody claims for its own write is nobody else's, a value that was read under
a version names its writer, and no version comes back.
Source: Wing and Gong 1993; Lowe 2017 (remembering configurations); docs/internals/simulation.md, "What is
checked".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pipeline.checks.history import FAIL, NEVER_NS, OK, UNKNOWN, Operation, by_key
from pipeline.checks.verdicts import UNKNOWN as UNDECIDED
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "linearizable registers"
BAD_VERSION: Final = "bad version"
STEPS_MAX: Final = 2_000_000
#: How much a counter-example shows.
SHOWN_MAX: Final = 12


class RegisterState(NamedTuple):
    """A state of the model; version -1: absent."""

    version: int
    value: Any


ABSENT: Final = RegisterState(-1, None)


def check_registers(
    operations: Iterable[Operation], steps_max: int = STEPS_MAX, *, check: str = CHECK
) -> Verdict:
    """Look at every key on its own: linearizability is a property of each object."""
    judged = 0
    undecided: list[str] = []
    for key, history in by_key(operations).items():
        relevant = [each for each in history if _matters(each)]
        judged += len(relevant)
        found = linearizable(relevant, steps_max)
        if found is None:
            undecided.append(f"{key}: no order was found or excluded in {steps_max} steps")
        elif not found:
            shown = shortest(relevant, steps_max)
            return judge(check, judged, [f"{key}: no order of these agrees with their results"], shown)
    if undecided:
        return Verdict(check, UNDECIDED, judged, tuple(undecided))
    return judge(check, judged, [])


def _matters(operation: Operation) -> bool:
    if operation.outcome == FAIL:
        return operation.operation == "cas" and bool(operation.result == BAD_VERSION)
    return operation.outcome == OK or operation.operation != "read"


def apply(state: RegisterState, operation: Operation) -> RegisterState | None:
    """Return the state after an operation, or None where its result contradicts the state."""
    kind, argument, result = operation.operation, operation.argument, operation.result
    known = operation.outcome != UNKNOWN
    if kind == "read":
        return state if result == [state.version, state.value] else None
    if kind == "create":
        return RegisterState(0, argument) if state == ABSENT else None
    if state == ABSENT:
        return None
    after = RegisterState(state.version + 1, argument)
    if kind == "cas":
        expected, value = argument
        if operation.outcome == FAIL:
            return None if state.version == expected else state
        if state.version != expected:
            return None
        after = RegisterState(state.version + 1, value)
    return None if known and result != after.version else after


class _Search:
    """One search over one key."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        reads = [each.result for each in operations if each.operation == "read"]
        refused = [each.argument[0] + 1 for each in operations if each.outcome == FAIL]
        #: versions that an operation with a known outcome made
        self.claimed = {each.result for each in operations if each.outcome == OK and each.operation != "read"}
        #: {version: value} as read
        self.seen: dict[int, Any] = dict(reads)
        #: {version: how many reads of it are not placed yet}
        self.reads_left = Counter(version for version, _ in reads)
        #: No version above this has left a trace.
        self.version_max = max([*self.claimed, *self.seen, *refused], default=-1)
        written = Counter(_written(each) for each in operations if each.operation != "read")
        #: {value that only one operation writes: the version under which it was read}
        self.home = {value: version for version, value in reads if written[value] == 1}
        #: writes with unknown outcomes and values that nobody read, by time: one is as good as another
        self.nameless = [
            index
            for index, each in enumerate(operations)
            if each.outcome == UNKNOWN and each.operation == "write" and each.argument not in self.home
        ]
        self._link()

    def _link(self) -> None:
        # Events by time: calls are 0…n-1, returns n…2n-1. A linked list lets each be taken out and back.
        count = len(self.operations)
        times = [(each.invoked_ns, 0, index) for index, each in enumerate(self.operations)]
        times += [(each.completed_ns, 1, index + count) for index, each in enumerate(self.operations)]
        # A call at the instant of a return counts as before it: the two may have overlapped.
        order = [event for _, _, event in sorted(times, key=lambda item: (item[0], item[1]))]
        self.head = 2 * count
        around = [self.head, *order, self.head]
        self.after = [0] * (2 * count + 1)
        self.before = [0] * (2 * count + 1)
        for left, right in pairwise(around):
            self.after[left], self.before[right] = right, left

    def may_follow(self, state: RegisterState, index: int, done: int) -> RegisterState | None:
        """Return the state after an operation as apply does, without what a witness excludes."""
        operation = self.operations[index]
        after = apply(state, operation)
        if after is None or after == state:
            return after
        if self.reads_left[state.version]:
            return None  # a version never comes back, so its reads come first
        if operation.outcome != UNKNOWN:
            return after
        if after.version in self.claimed or after.version > self.version_max:
            return None
        if self.seen.get(after.version, after.value) != after.value:
            return None
        if self.home.get(after.value, after.version) != after.version:
            return None
        if operation.operation == "write" and after.value not in self.home:
            return after if index == next(each for each in self.nameless if not done >> each & 1) else None
        return after

    def take(self, index: int) -> None:
        """Take an operation out of the list."""
        operation = self.operations[index]
        if operation.operation == "read":
            self.reads_left[operation.result[0]] -= 1
        for event in (index, index + len(self.operations)):
            self.after[self.before[event]] = self.after[event]
            self.before[self.after[event]] = self.before[event]

    def put_back(self, index: int) -> None:
        """Undo take, in reverse order."""
        operation = self.operations[index]
        if operation.operation == "read":
            self.reads_left[operation.result[0]] += 1
        for event in (index + len(self.operations), index):
            self.after[self.before[event]] = event
            self.before[self.after[event]] = event


def _written(operation: Operation) -> Any:
    return operation.argument[1] if operation.operation == "cas" else operation.argument


def linearizable(operations: Sequence[Operation], steps_max: int = STEPS_MAX) -> bool | None:
    """Say whether the operations of one key have an order; None if steps_max did not suffice."""
    search = _Search(operations)
    count = len(operations)
    owed = sum(each.outcome != UNKNOWN for each in operations)
    state, done = ABSENT, 0
    #: (operation that was placed, the state before it)
    stack: list[tuple[int, RegisterState]] = []
    visited: set[tuple[int, RegisterState]] = set()
    event = search.after[search.head]
    for _ in range(steps_max):
        if not owed:
            return True
        if event < count:
            after = search.may_follow(state, event, done)
            if after is None or (after != state and (done | 1 << event, after) in visited):
                event = search.after[event]
                continue
            done |= 1 << event
            if after != state:
                visited.add((done, after))
            stack.append((event, state))
            state = after
            owed -= operations[event].outcome != UNKNOWN
            search.take(event)
            event = search.after[search.head]
            continue
        # A return: what it belongs to had to be placed before. The last choice was wrong, which is the last
        # change of the state: what fits a state without changing it may always be placed at once.
        before = state
        while before == state:
            if not stack:
                return False
            event, before = stack.pop()
            done &= ~(1 << event)
            owed += operations[event].outcome != UNKNOWN
            search.put_back(event)
        state = before
        event = search.after[event]
    return None


def shortest(operations: Sequence[Operation], steps_max: int = STEPS_MAX) -> list[Operation]:
    """Return a short history that has no order: the shortest prefix in time, without reads that do not
    matter, and of that the end."""
    ends = sorted(each.completed_ns for each in operations if each.completed_ns != NEVER_NS)
    low, high = 0, len(ends) - 1
    while low < high:
        middle = (low + high) // 2
        if linearizable(until(operations, ends[middle]), steps_max) is False:
            high = middle
        else:
            low = middle + 1
    kept = until(operations, ends[high])
    for each in [each for each in kept if each.operation == "read" or each.outcome == UNKNOWN][:500]:
        fewer = [other for other in kept if other is not each]
        if linearizable(fewer, steps_max) is False:
            kept = fewer
    return kept[-SHOWN_MAX:]


def until(operations: Sequence[Operation], time_ns: int) -> list[Operation]:
    """Return the history as it stood at a time: what had not completed is unknown."""
    found = [
        each
        if each.completed_ns <= time_ns
        else replace(each, outcome=UNKNOWN, result=None, completed_ns=NEVER_NS)
        for each in operations
        if each.invoked_ns <= time_ns
    ]
    return [each for each in found if _matters(each)]
