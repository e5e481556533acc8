"""What a history proves to have happened, in the order of zxids; every checker stands on it.

Decides which transaction wrote what, from four witnesses: replies to writes, values that someone read
(a value names its write, so an operation of unknown outcome is *located* where its value was seen), the zxids
in Stats, and watch events. It finds on the way what no order of transactions can explain: a value that nobody
wrote or whose write failed (I6), a write that took effect twice (I6) or elsewhere than its reply said (I5), a
zxid that was given twice (I8). Knows only the history and the final states.

Cost: linear in the number of records, plus a sort of what is known of each path.
Source: docs/internals/simulation.md, "What is checked"; Wing & Gong's search becomes a walk because zxids
and versions are witnesses of the order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from quorum.errors import describe_code
from tests.simulation.history import WRITES, Final, History, Operation, Outcome, Stat, WatchEvent

NO_NODE, BAD_VERSION, NODE_EXISTS, NOT_EMPTY = -101, -103, -110, -111
NO_CHILDREN_FOR_EPHEMERALS = -108
SESSION_EXPIRED = -112
CREATED, DELETED, DATA_CHANGED, CHILDREN_CHANGED = 1, 2, 3, 4
EPHEMERAL, SEQUENTIAL = 1, 2

#: errors of requests that were fenced before they became a transaction: their zxid is that of the last one
_WITHOUT_ZXID = frozenset((SESSION_EXPIRED, -118, -6))
_SEQUENCE_DIGITS_MIN = 10
_EVENT_KINDS = {CREATED: "create", DELETED: "delete", DATA_CHANGED: "set"}


class Violation(NamedTuple):
    """A promise that was broken, and how one sees it."""

    invariant: str
    story: str


class Sighting(NamedTuple):
    """A Stat that somebody saw."""

    #: the state is that after this transaction
    zxid: int
    path: str
    stat: Stat
    #: None where only the Stat was shown
    value: str | None
    #: when it was known at the latest
    ms: float
    who: object
    #: False: in the midst of a multi, so that later operations of it may have changed the counters
    whole: bool = True


class Change(NamedTuple):
    """A transaction that changed a path."""

    zxid: int
    kind: str
    path: str
    #: None: only its effect is known
    operation: Operation | None
    stat: Stat | None


def parent_of(path: str) -> str:
    """Return the path above."""
    return path.rpartition("/")[0] or "/"


def is_indefinite(operation: Operation) -> bool:
    """Tell whether an operation may have taken effect although no success was reported."""
    if operation.outcome is Outcome.ERROR:
        return not describe_code(operation.err).definite
    return operation.outcome is Outcome.UNKNOWN


def has_zxid(operation: Operation) -> bool:
    """Tell whether the zxid of the reply is the operation's own."""
    if operation.kind not in WRITES or operation.outcome is Outcome.UNKNOWN:
        return False
    return operation.err not in _WITHOUT_ZXID and not is_indefinite(operation)


def creates_ephemerals(operation: Operation) -> bool:
    """Tell whether a success of it makes nodes that go with its session."""
    return any(kind == "create" and argument[1] & EPHEMERAL for kind, _, argument in operation.parts)


def fits_creation(path: str, asked: str, flags: int) -> bool:
    """Tell whether a create that asked for one path can have made another."""
    if not flags & SEQUENTIAL:
        return path == asked
    suffix = path[len(asked) :]
    return path.startswith(asked) and len(suffix) >= _SEQUENCE_DIGITS_MIN and suffix.isdigit()


class Evidence:
    """All that is known, in order.

    Attributes:
        violations: what was found while it was put together.
        changes: {path: its known changes by zxid}.
        child_changes: {path: zxids at which its list of children is known to have changed, ascending}.
        sightings: {path: Stats that were seen of it}.
        transactions: {zxid: the operation that it is}.
        located: {operation of unknown outcome: the zxid at which it took effect}.
        unknown: {path: operations that may have changed it and were not located}; sequential creations stand
            under what they asked for, also those of a located operation as long as nobody saw their value.
        last_zxid: the highest that anybody saw.
    """

    def __init__(self, history: History, finals: Sequence[Final] = ()) -> None:
        """Put it together.

        Args:
            history: of all processes.
            finals: what the members hold in the end.
        """
        self.history = history
        self.finals = list(finals)
        self.violations: list[Violation] = []
        self.sightings: dict[str, list[Sighting]] = {}
        self.transactions: dict[int, Operation] = {}
        self.located: dict[Operation, int] = {}
        self.unknown: dict[str, list[Operation]] = {}
        self.last_zxid = 0
        #: {(operation, number of its part): the path at which the value of its creation was seen}
        self._placed: dict[tuple[Operation, int], str] = {}
        self._writers: dict[str, tuple[Operation, int]] = {}
        self._known: dict[str, dict[tuple[int, str], Change]] = {}
        self._child_zxids: dict[str, dict[int, None]] = {}
        for operation in history.operations:
            self._enter_operation(operation)
        for sighting in list(self._all_sightings()):
            self._enter_sighting(sighting)
        for operation, zxid in self.located.items():
            self._enter_effects(operation, zxid)
        for process in history.processes:
            for record in process.received:
                if isinstance(record, WatchEvent) and record.zxid > 0:
                    self._enter_event(record)
        self._enter_unknown()
        self.changes: dict[str, list[Change]] = {
            path: sorted(known.values(), key=_by_zxid) for path, known in self._known.items()
        }
        self.child_changes: dict[str, list[int]] = {
            path: sorted(zxids) for path, zxids in self._child_zxids.items()
        }

    def violate(self, invariant: str, story: str) -> None:
        """Note a violation."""
        self.violations.append(Violation(invariant, story))

    def effects(self, operation: Operation) -> Iterator[tuple[str, str, Stat | None]]:
        """Return (kind, path, Stat if it was shown) of each change that an operation makes if it succeeds.

        The path of a sequential creation is known from its reply only.
        """
        for place, (kind, asked, argument) in enumerate(operation.parts):
            if kind not in ("create", "set", "delete"):
                continue
            path: str | None = asked
            stat = None
            if operation.outcome is Outcome.OK:
                result = operation.result
                if operation.kind == "multi":
                    made, stat = result[place]
                    path = made if kind == "create" else asked
                elif kind == "create":
                    path, stat = result
                elif kind == "set":
                    stat = result
            elif kind == "create" and argument[1] & SEQUENTIAL:
                path = None
            if path is not None:
                yield kind, path, stat

    def is_unplaced(self, operation: Operation, place: int) -> bool:
        """Tell whether nobody saw the value of a creation, and so its path."""
        return (operation, place) not in self._placed

    # --- putting it together

    def _enter_operation(self, operation: Operation) -> None:
        for place, (kind, _, argument) in enumerate(operation.parts):
            if kind in ("create", "set"):
                self._writers[argument[0]] = (operation, place)
        if operation.outcome is Outcome.UNKNOWN:
            return
        self.last_zxid = max(self.last_zxid, operation.zxid)
        if not has_zxid(operation):
            return
        other = self.transactions.setdefault(operation.zxid, operation)
        if other is not operation:
            self.violate("I8", f"zxid {operation.zxid} was given twice: {other} and {operation}")
        elif operation.outcome is Outcome.OK:
            self._enter_effects(operation, operation.zxid)

    def _enter_effects(self, operation: Operation, zxid: int) -> None:
        for kind, path, stat in self.effects(operation):
            self._enter_change(Change(zxid, kind, path, operation, stat))

    def _enter_change(self, change: Change) -> None:
        known = self._known.setdefault(change.path, {})
        key = (change.zxid, change.kind)
        old = known.get(key)
        if old is None or old.operation is None or (old.stat is None and change.stat is not None):
            known[key] = change if old is None else change._replace(stat=change.stat or old.stat)
        if change.kind != "set":
            self._child_zxids.setdefault(parent_of(change.path), {})[change.zxid] = None

    def _all_sightings(self) -> Iterator[Sighting]:
        for operation in self.history.operations:
            if operation.outcome is Outcome.OK:
                yield from self._shown_by(operation)
        for final in self.finals:
            self.last_zxid = max(self.last_zxid, final.zxid)
            for path, node in final.nodes.items():
                who = f"node {final.node_id} in the end"
                yield Sighting(final.zxid, path, node.stat, node.value, float("inf"), who)

    @staticmethod
    def _shown_by(operation: Operation) -> Iterator[Sighting]:
        """Return the Stats in a reply."""
        kind, path, result = operation.kind, operation.path, operation.result
        zxid, ms = operation.zxid, operation.completed_ms
        if kind == "get":
            yield Sighting(zxid, path, result[1], result[0], ms, operation)
        elif kind == "exists":
            yield Sighting(zxid, path, result, None, ms, operation)
        elif kind == "children":
            yield Sighting(zxid, path, result[1], None, ms, operation)
        elif kind == "set":
            yield Sighting(zxid, path, result, operation.argument[0], ms, operation)
        elif kind == "create" and result[1] is not None:
            yield Sighting(zxid, result[0], result[1], operation.argument[0], ms, operation)
        elif kind == "multi":
            paths = [asked for _, asked, _ in operation.argument]
            for (part, asked, argument), (made, stat) in zip(operation.argument, result, strict=True):
                if stat is not None and paths.count(asked) == 1:
                    shown = made if part == "create" else asked
                    yield Sighting(zxid, shown, stat, argument[0], ms, operation, whole=False)

    def _enter_sighting(self, sighting: Sighting) -> None:
        zxid, path, stat, value, ms, who, _ = sighting
        if path == "/":
            return
        self.sightings.setdefault(path, []).append(sighting)
        if not stat.czxid <= stat.mzxid <= zxid or not stat.czxid <= stat.pzxid <= zxid:
            self.violate("I9", f"{path}: {stat} does not fit zxid {zxid}: {who}")
        created = stat.mzxid == stat.czxid
        if created != (stat.version == 0):
            self.violate("I9", f"{path}: version {stat.version} with {stat}: {who}")
        writer = None if value is None else self._writer_of(sighting, value)
        self._enter_change(Change(stat.czxid, "create", path, writer if created else None, None))
        if not created:
            self._enter_change(Change(stat.mzxid, "set", path, writer, stat))
        if stat.pzxid > stat.czxid:
            self._child_zxids.setdefault(path, {})[stat.pzxid] = None
        if writer is not None and ms < writer.invoked_ms:
            self.violate("I8", f"{path}: seen at {ms} ms, before it was written: {who} saw {writer}")

    def _writer_of(self, sighting: Sighting, value: str) -> Operation | None:
        """Return who wrote a value that was seen; note what cannot be."""
        path, stat, who = sighting.path, sighting.stat, sighting.who
        found = self._writers.get(value)
        if found is None:
            self.violate("I6", f"{path} holds {value!r}, which nobody wrote: {who}")
            return None
        writer, place = found
        kind, asked, argument = writer.parts[place]
        fits = fits_creation(path, asked, argument[1]) if kind == "create" else path == asked
        if not fits:
            self.violate("I5", f"{path} holds {value!r}, which was written elsewhere: {who} saw {writer}")
            return None
        if writer.outcome is Outcome.ERROR and not is_indefinite(writer):
            self.violate("I6", f"{path} holds the value of an operation that failed: {who} saw {writer}")
            return None
        if kind == "create" and self._placed.setdefault(found, path) != path:
            self.violate("I6", f"{path} and {self._placed[found]} are of one creation: {who} saw {writer}")
            return None
        if (kind == "create") != (stat.version == 0):
            self.violate("I9", f"{path}: version {stat.version} by a {kind}: {who} saw {writer}")
        if kind == "set" and argument[1] not in (-1, stat.version - 1):
            self.violate("I8", f"{path}: version {stat.version} by a compare-and-set: {who} saw {writer}")
        if writer.outcome is Outcome.OK:
            if stat.mzxid != writer.zxid:
                self.violate("I5", f"{path} was written with zxid {stat.mzxid}: {who} saw {writer}")
                return None
            return writer
        known = self.located.setdefault(writer, stat.mzxid)
        if known != stat.mzxid:
            self.violate("I6", f"took effect with zxid {known} and again with {stat.mzxid}: {writer}")
            return None
        other = self.transactions.setdefault(known, writer)
        if other is not writer:
            self.violate("I8", f"zxid {known} was given twice: {other} and {writer}")
        return writer

    def _enter_event(self, event: WatchEvent) -> None:
        kind = _EVENT_KINDS.get(event.event_type)
        if kind is not None:
            self._enter_change(Change(event.zxid, kind, event.path, None, None))
        elif event.event_type == CHILDREN_CHANGED:
            self._child_zxids.setdefault(event.path, {})[event.zxid] = None

    def _enter_unknown(self) -> None:
        for operation in self.history.operations:
            if not is_indefinite(operation):
                continue
            located = operation in self.located
            for place, (kind, path, argument) in enumerate(operation.parts):
                # Where a multi is located, its sequential creations still have paths that nobody was told.
                hidden = kind == "create" and argument[1] & SEQUENTIAL and self.is_unplaced(operation, place)
                if hidden if located else kind in ("create", "set", "delete"):
                    known = self.unknown.setdefault(path, [])
                    if not known or known[-1] is not operation:
                        known.append(operation)


def _by_zxid(change: Change) -> int:
    return change.zxid
