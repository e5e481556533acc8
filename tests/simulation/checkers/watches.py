"""I14 and I15: one event for each one-shot watch, for a change after its registration, in the order of zxids.

The stream of each connection is replayed in the order in which its client received it. A watch is armed by
the reply that registered it, from that reply's zxid on. Then

- an event without an armed watch, before its registration or with a zxid whose transaction is known and did
  something else is a violation; so is a second event of one watch;
- the event must be that of the first change behind the registration as far as changes are known; and as soon
  as anything with that change's zxid or a later one is shown on the connection, the event must have come
  (none lost while connected, never after data of a later zxid);
- after a reconnect (I15) setWatches yields an event for every watch whose node is known to have changed, and
  none for one that nobody can have changed. What its events and silences say about nodes becomes facts
  for their registers; creation and deletion while away are no change for an exists watch.

Cost: a bisection per registration and a heap step per watch.
Source: docs/internals/simulation.md, "What is checked"; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heappop, heappush
from typing import NamedTuple

from tests.simulation.checkers.evidence import (
    CHILDREN_CHANGED,
    CREATED,
    DATA_CHANGED,
    DELETED,
    NO_NODE,
    Evidence,
    Violation,
    creates_ephemerals,
    parent_of,
)
from tests.simulation.checkers.facts import Fact
from tests.simulation.history import History, Operation, Outcome, SessionEvent, SessionStep, WatchEvent

_FIRES = {
    CREATED: ("data", "exist"),
    DATA_CHANGED: ("data", "exist"),
    DELETED: ("data", "exist", "child"),
    CHILDREN_CHANGED: ("child",),
}
_KINDS = {CREATED: "create", DELETED: "delete", DATA_CHANGED: "set"}
_ARMED_BY = {"get": "data", "exists": "data", "children": "child"}

#: (which watch, path)
Key = tuple[str, str]


class Watches(NamedTuple):
    """What was found."""

    violations: list[Violation]
    #: {path: what setWatches said about it}
    facts: dict[str, list[Fact]]


def check_watches(evidence: Evidence) -> Watches:
    """Replay every connection."""
    found = Watches([], {})
    changed = _Changes(evidence)
    for process in evidence.history.processes:
        unanswered = [
            each
            for each in process.operations
            if each.kind == "set_watches" and each.outcome is Outcome.UNKNOWN
        ]
        stream = _Stream(evidence, changed, found, unanswered)
        for record in process.received:
            stream.take(record)
    return found


class _Changes:
    """When what a watch waits for is known to have happened."""

    def __init__(self, evidence: Evidence) -> None:
        self._nodes = {
            path: [change.zxid for change in changes] for path, changes in evidence.changes.items()
        }
        self._children: dict[str, list[int]] = {}
        for path in {**evidence.child_changes, **evidence.changes}:
            deletions = [each.zxid for each in evidence.changes.get(path, ()) if each.kind == "delete"]
            self._children[path] = sorted([*evidence.child_changes.get(path, ()), *deletions])
        self._doubtful = _doubtful_paths(evidence)

    def first_after(self, key: Key, zxid: int) -> int | None:
        """Return the zxid of the first known change behind one."""
        which, path = key
        known = (self._children if which == "child" else self._nodes).get(path, [])
        place = bisect_right(known, zxid)
        return known[place] if place < len(known) else None

    def may_have_changed(self, key: Key) -> bool:
        """Tell whether changes may have happened that are not known."""
        return key in self._doubtful


def _doubtful_paths(evidence: Evidence) -> dict[Key, None]:
    """Return what operations of unknown outcome, and sessions at their end, may have changed."""
    doubtful: dict[Key, None] = {}

    def doubt(path: str) -> None:
        for key in (("data", path), ("child", path), ("child", parent_of(path))):
            doubtful[key] = None

    for path in evidence.unknown:
        # A sequential creation stands under what it asked for, below the same parent.
        doubt(path)
    for path, changes in evidence.changes.items():
        for change in changes:
            if change.operation is None or creates_ephemerals(change.operation):
                doubt(path)
                break
    return doubtful


class _Stream:
    """What one process received, connection after connection."""

    def __init__(
        self, evidence: Evidence, changed: _Changes, found: Watches, unanswered: list[Operation]
    ) -> None:
        self._evidence = evidence
        self._changed = changed
        self._found = found
        #: setWatches without a reply
        self._unanswered = unanswered
        #: {watch: number of the setWatches that was answered for it last}
        self._judged: dict[Key, int] = {}
        self._begin(0)

    def _begin(self, connection: int) -> None:
        self._connection = connection
        #: {watch: zxid from which it is armed}
        self._armed: dict[Key, int] = {}
        #: (zxid of the change that it must have told by then, watch, zxid from which it is armed)
        self._due: list[tuple[int, Key, int]] = []
        self._last_reply = 0
        self._last_event = 0
        #: what setWatches is finding out
        self._missed: list[WatchEvent] = []

    def take(self, record: Operation | WatchEvent | SessionEvent) -> None:
        """Go on to the next record."""
        if isinstance(record, SessionEvent):
            if record.step in (SessionStep.OPENED, SessionStep.RESUMED):
                self._begin(record.connection)
            elif record.step is SessionStep.LOST and record.connection == self._connection:
                self._begin(0)
        elif record.connection != self._connection:
            self._violate("I14", f"received on another connection than {self._connection}: {record}")
        elif isinstance(record, WatchEvent):
            self._take_event(record)
        else:
            self._take_reply(record)

    def _violate(self, invariant: str, story: str) -> None:
        self._found.violations.append(Violation(invariant, story))

    def _arm(self, which: str, path: str, zxid: int) -> None:
        key = (which, path)
        if key in self._armed:
            return
        self._armed[key] = zxid
        due = self._changed.first_after(key, zxid)
        if due is not None:
            heappush(self._due, (due, key, zxid))

    def _take_reply(self, operation: Operation) -> None:
        zxid = operation.zxid
        while self._due and self._due[0][0] <= zxid:
            due, key, since = heappop(self._due)
            if self._armed.get(key) == since:
                del self._armed[key]
                self._violate(
                    "I14",
                    f"the {key[0]} watch on {key[1]} from zxid {since} did not tell of the change with zxid "
                    f"{due} before {operation}",
                )
        self._last_reply = max(self._last_reply, zxid)
        if operation.kind == "set_watches":
            self._take_set_watches(operation)
        elif operation.kind in _ARMED_BY and operation.argument is True:
            if operation.outcome is Outcome.OK:
                self._arm(_ARMED_BY[operation.kind], operation.path, zxid)
            elif operation.err == NO_NODE and operation.kind == "exists":
                self._arm("exist", operation.path, zxid)

    def _take_event(self, event: WatchEvent) -> None:
        if event.zxid <= 0:
            self._missed.append(event)
            return
        if event.zxid <= self._last_reply:
            self._violate("I14", f"zxid {self._last_reply} had been shown before {event}")
        if event.zxid < self._last_event:
            self._violate("I14", f"an event with zxid {self._last_event} came before {event}")
        self._last_event = event.zxid
        fired = [(which, event.path) for which in _FIRES.get(event.event_type, ())]
        armed = [key for key in fired if key in self._armed]
        if not armed:
            self._violate("I14", f"no watch was armed for {event}")
        for key in armed:
            since = self._armed.pop(key)
            first = self._changed.first_after(key, since)
            if since >= event.zxid:
                self._violate("I14", f"the {key[0]} watch was registered with zxid {since}, behind {event}")
            elif first is not None and first < event.zxid:
                self._violate("I14", f"the change with zxid {first} was not told, but {event}")
        self._check_cause(event)

    def _check_cause(self, event: WatchEvent) -> None:
        """Compare an event with its transaction, if that is known."""
        cause = self._evidence.transactions.get(event.zxid)
        if cause is None or cause.kind == "close":
            return
        effects = [(kind, path) for kind, path, _ in self._evidence.effects(cause)]
        if event.event_type == CHILDREN_CHANGED:
            fits = any(kind != "set" and parent_of(path) == event.path for kind, path in effects)
        else:
            fits = (_KINDS.get(event.event_type), event.path) in effects
        # A multi of unknown outcome does not say which paths its sequential creations got.
        if cause.outcome is Outcome.ERROR or (not fits and cause.outcome is Outcome.OK):
            self._violate("I14", f"{event} does not tell what its transaction did: {cause}")

    # --- setWatches

    def _take_set_watches(self, operation: Operation) -> None:
        missed, self._missed = self._missed, []
        relative, *lists = operation.argument
        told: dict[tuple[int, str], int] = {}
        for event in missed:
            key = (event.event_type, event.path)
            told[key] = told.get(key, 0) + 1
        for which, paths in zip(("data", "exist", "child"), lists, strict=True):
            for path in paths:
                event_type = self._told_of(which, path, told)
                self._judge(which, path, event_type, relative, operation)
                if event_type is None:
                    self._arm(which, path, operation.zxid)
        for event_type, path in told:
            self._violate("I15", f"event {event_type} of {path} answers no watch of {operation}")

    @staticmethod
    def _told_of(which: str, path: str, told: dict[tuple[int, str], int]) -> int | None:
        """Take the event that answers a watch out of what was told."""
        wanted = {"data": (DATA_CHANGED, DELETED), "exist": (CREATED,), "child": (CHILDREN_CHANGED, DELETED)}
        for event_type in wanted[which]:
            count = told.get((event_type, path), 0)
            if count:
                told[event_type, path] = count - 1
                if count == 1:
                    del told[event_type, path]
                return event_type
        return None

    def _judge(self, which: str, path: str, event_type: int | None, relative: int, by: Operation) -> None:
        key = (which, path)
        zxid = by.zxid
        present = event_type != DELETED if which != "exist" else event_type is not None
        fact = Fact(zxid, 1, present=present, who=by)
        self._found.facts.setdefault(path, []).append(fact)
        first = self._changed.first_after(key, relative)
        known = first is not None and first <= zxid
        if which == "exist":
            # Whether it is there is for its register to judge.
            return
        if event_type is None and known:
            self._violate("I15", f"the {which} watch on {path} was not told of zxid {first}: {by}")
        told_from = self._told_from(which, path, relative, by)
        self._judged[key] = by.number
        changed = self._changed.first_after(key, told_from)
        known = changed is not None and changed <= zxid
        if event_type is not None and not known and not self._changed.may_have_changed(key):
            self._violate(
                "I15", f"the {which} watch on {path} was told {event_type}, nobody changed it: {by}"
            )

    def _told_from(self, which: str, path: str, relative: int, by: Operation) -> int:
        """Return the zxid up to which a watch is known to have told everything.

        A client arms its watches in parts. Where a part is answered and the connection ends before the next
        one is, the client has seen more than the watches of that one have told.
        """
        place = ("data", "exist", "child").index(which) + 1
        since = self._judged.get((which, path), -1)
        parts = [each for each in self._unanswered if since < each.number < by.number]
        relatives: list[int] = [each.argument[0] for each in parts if path in each.argument[place]]
        return min([relative, *relatives])


def registered_watches(history: History) -> int:
    """Count the watches that were asked for, for a summary of the workload."""
    return sum(each.kind in _ARMED_BY and each.argument is True for each in history.operations)
