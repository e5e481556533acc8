"""Which outcomes of which operations a run has seen: every operation × every error it can return.

The table holds what ZooKeeper can answer to a client of a healthy ensemble. What is counted is the oracle's
answer, so that the table measures the streams, not the system under test.
Source: PrepRequestProcessor and FinalRequestProcessor of ZooKeeper 3.9.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from tests.conformance.differential.player import Note, Transcript
from tests.conformance.differential.steps import Pending, Reconnect, Stream
from tests.conformance.differential.wire import Connected, Event, Op, Reply

#: how often every cell must be reached in the run that closes the comparison, and how often for each of these
#: a session must come back with writes pending
GOAL: Final = 100
PENDING_PER_GOAL: Final = 10
#: how many demands that are not met are named
_NAMED_MAX: Final = 20
_PENDING: Final = "reconnects with pending writes"

ERRORS: Final = {
    0: "OK",
    -2: "RuntimeInconsistency",
    -5: "MarshallingError",
    -6: "Unimplemented",
    -8: "BadArguments",
    -101: "NoNode",
    -102: "NoAuth",
    -103: "BadVersion",
    -108: "NoChildrenForEphemerals",
    -110: "NodeExists",
    -111: "NotEmpty",
    -112: "SessionExpired",
    -114: "InvalidACL",
    -115: "AuthFailed",
    -121: "NoWatcher",
}
_CREATES: Final = (0, -8, -101, -102, -108, -110, -114)
_READS: Final = (0, -5, -101, -102)

#: {operation: what it can answer}
CELLS: Final[dict[Op, tuple[int, ...]]] = {
    Op.CREATE: _CREATES,
    Op.CREATE2: _CREATES,
    Op.CREATE_CONTAINER: _CREATES,
    Op.CREATE_TTL: _CREATES,
    Op.DELETE: (0, -8, -101, -102, -103, -111),
    Op.SET_DATA: (0, -8, -101, -102, -103),
    Op.EXISTS: (*_READS, -8),
    Op.GET_DATA: _READS,
    Op.GET_CHILDREN: _READS,
    Op.GET_CHILDREN2: _READS,
    Op.GET_ACL: _READS,
    Op.SET_ACL: (0, -8, -101, -102, -103, -114),
    Op.MULTI: (0, -5, -8, -101, -102, -103, -108, -110, -111, -114),
    Op.MULTI_READ: (0, -5, -101, -102),
    Op.CHECK: (0, -6, -8, -101, -102, -103),
    Op.SYNC: (0, -5),
    Op.PING: (0,),
    Op.ADD_WATCH: (0, -5),
    Op.REMOVE_WATCHES: (0, -5, -121),
    Op.CHECK_WATCHES: (0, -5, -121),
    Op.SET_WATCHES: (0, -5),
    Op.SET_WATCHES2: (0, -5),
    Op.GET_EPHEMERALS: (0, -5),
    Op.GET_ALL_CHILDREN_NUMBER: _READS,
    Op.WHO_AM_I: (0,),
    Op.AUTH: (0, -115),
    Op.RECONFIG: (-5, -8, -102, -103),
    Op.CLOSE_SESSION: (0,),
    Op.UNKNOWN: (-6,),
    Op.DELETE_CONTAINER: (-8,),
}


@dataclass
class Coverage:
    """What a run has reached."""

    #: {(operation, error): how often}
    cells: Counter[tuple[int, int]] = field(default_factory=Counter)
    #: {what else happened: how often}
    other: Counter[str] = field(default_factory=Counter)

    def count(self, stream: Stream, theirs: Transcript) -> None:
        """Count one stream by what the oracle answered."""
        self.other["streams"] += 1
        for step in stream.steps:
            if isinstance(step, Pending):
                self.other[_PENDING] += 1
                self.other[f"… {'all in effect, unread' if step.settled else 'outcome open'}"] += 1
            elif isinstance(step, Reconnect):
                self.other["reconnects"] += 1
        for notes in theirs.notes:
            for note in notes:
                self._count_note(note)

    def _count_note(self, note: Note) -> None:
        what = note.what
        if isinstance(what, Reply):
            self.other["replies"] += 1
            for cell in outcomes(note, what):
                self.cells[cell] += 1
        elif isinstance(what, Event):
            self.other["events"] += 1
        elif isinstance(what, Connected):
            self.other["handshakes answered" if what.session_id else "handshakes refused"] += 1

    def unmet(self, goal: int) -> list[str]:
        """Name the demands that are not met, the farthest from it first.

        Args:
            goal: how often every cell is to be reached.
        """
        demands = {
            f"{op.name.lower()} × {ERRORS[err]}": (self.cells[op, err], goal)
            for op, errors in CELLS.items()
            for err in errors
        }
        demands[_PENDING] = (self.other[_PENDING], goal * PENDING_PER_GOAL)
        missed = sorted((count / wanted, name) for name, (count, wanted) in demands.items() if count < wanted)
        return [f"{name} {demands[name][0]} of {demands[name][1]}" for _, name in missed]

    def demands(self, goal: int) -> str:
        """Say whether every demand is met, and name those that are not."""
        unmet = self.unmet(goal)
        pending = f"{_PENDING} {goal * PENDING_PER_GOAL} times"
        said = f"demanded: every cell {goal} times, {pending}: "
        more = ", …" if len(unmet) > _NAMED_MAX else ""
        return said + (f"{len(unmet)} not met: {', '.join(unmet[:_NAMED_MAX])}{more}" if unmet else "met")

    def table(self) -> str:
        """Write the counts as text: a line per operation, what is below the goal marked."""
        lines = [f"coverage: operation × answer of the oracle (below {GOAL}: *)"]
        for op, errors in CELLS.items():
            seen = {err for cell_op, err in self.cells if cell_op == op}
            shown = []
            for err in sorted({*errors, *seen}, reverse=True):
                count = self.cells[op, err]
                mark = "*" if count < GOAL else ""
                extra = "" if err in errors else " (not in the table)"
                shown.append(f"{ERRORS.get(err, err)} {count}{mark}{extra}")
            lines.append(f"  {op.name.lower():24} {', '.join(shown)}")
        lines += [f"  {what}: {count}" for what, count in sorted(self.other.items())]
        return "\n".join(lines)


def outcomes(note: Note, reply: Reply) -> Iterator[tuple[int, int]]:
    """Yield the cells of a reply: of a failed multi its first error, and the check that failed it."""
    items = reply.body
    if note.op not in (Op.MULTI, Op.MULTI_READ) or reply.err or not isinstance(items, tuple) or not items:
        yield (note.op, reply.err)
        return
    errors = [body if kind == -1 else 0 for kind, _, body in (item for item in items if item[0] != "end")]
    if note.op == Op.MULTI_READ:
        yield from ((note.op, err) for err in errors)
        return
    failed = next((place for place, err in enumerate(errors) if err), None)
    yield (note.op, 0 if failed is None else errors[failed])
    if failed is None:
        yield from ((Op.CHECK, 0) for op in note.parts if op == Op.CHECK)
    elif note.parts[failed] == Op.CHECK:
        yield (Op.CHECK, errors[failed])
