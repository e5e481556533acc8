"""I8, the order: zxids agree with real time and never go back for a session.

- A write that was invoked after any reply with zxid z was received is a later transaction than z; a sync
  that was invoked then sees at least z. So writes and syncs are linearizable, whatever their keys.
- What one session is told never goes back: zxids of its replies rise in the order of receipt, over all its
  connections; a write's own zxid rises strictly. So a read sees the session's own writes, and a read behind
  a sync sees everything that the sync saw. Events never carry a smaller zxid than those before them (I14).
- No zxid lies beyond what can have happened: the gaps between known transactions are at most as many as
  there are operations and sessions of unknown outcome (I6, at most once).

Cost: one sort of all invocations and completions by time. Source: docs/internals/simulation.md, "What is
checked"; docs/concepts/guarantees.md, "Reads".
"""

from __future__ import annotations

from tests.simulation.checkers.evidence import Evidence, Violation, has_zxid, is_indefinite
from tests.simulation.history import WRITES, Operation, Outcome, SessionEvent, SessionStep, WatchEvent

#: {operation: the highest zxid that anybody had been told when it was invoked}
Floors = dict[Operation, int]


def floors_of(evidence: Evidence) -> Floors:
    """Return below which zxid no effect of an operation can lie: real time as a bound."""
    moments: list[tuple[float, int, int, Operation | None]] = []
    for number, operation in enumerate(evidence.history.operations):
        # At the same instant nothing follows from the order: invocations come first.
        moments.append((operation.invoked_ms, 0, number, operation))
        if operation.outcome is not Outcome.UNKNOWN and operation.zxid > 0:
            moments.append((operation.completed_ms, 1, operation.zxid, None))
    for process in evidence.history.processes:
        moments += [
            (each.ms, 1, each.zxid, None)
            for each in process.received
            if isinstance(each, WatchEvent) and each.zxid > 0
        ]
    moments.sort(key=_moment)
    floors: Floors = {}
    floor = 0
    for _, is_completion, zxid, invoked in moments:
        if is_completion:
            floor = max(floor, zxid)
        elif invoked is not None:
            floors[invoked] = floor
    return floors


def _moment(moment: tuple[float, int, int, Operation | None]) -> tuple[float, int, int]:
    return moment[:3]


def check_real_time(evidence: Evidence, floors: Floors) -> list[Violation]:
    """Compare every write and sync with what was known when it was invoked."""
    violations = []
    for operation, floor in floors.items():
        zxid = evidence.located.get(operation, operation.zxid)
        if has_zxid(operation) or operation in evidence.located:
            late = zxid <= floor
        elif operation.kind == "sync" and operation.outcome is Outcome.OK:
            late = zxid < floor
        else:
            continue
        if late:
            violations.append(
                Violation(
                    "I8", f"zxid {floor} had been shown before this was invoked with zxid {zxid}: {operation}"
                )
            )
    return violations


def check_sessions_see_order(evidence: Evidence) -> list[Violation]:
    """Check that nothing goes back for a session; how events stand to replies is I14's."""
    violations = []
    for process in evidence.history.processes:
        session_id, replied, shown = 0, 0, 0
        for record in process.received:
            if record.session_id != session_id:
                session_id, replied, shown = record.session_id, 0, 0
            if isinstance(record, WatchEvent):
                shown = max(shown, record.zxid)
            elif isinstance(record, Operation):
                zxid = record.zxid
                if zxid < max(replied, shown) or (zxid == replied and has_zxid(record)):
                    violations.append(
                        Violation(
                            "I8",
                            f"session {session_id:#x} had seen zxid {max(replied, shown)} before {record}",
                        )
                    )
                replied = max(replied, zxid)
    return violations


def check_density(evidence: Evidence, *, others_max: int = 0) -> list[Violation]:
    """Check that no more transactions happened than were asked for.

    Args:
        evidence: what is known.
        others_max: transactions that no client asked for, such as changes of the members.
    """
    operations = list(evidence.history.operations)
    known = len(evidence.transactions)
    unknown = sum(
        is_indefinite(each) and each.kind in WRITES and each not in evidence.located for each in operations
    )
    handshakes = sum(
        isinstance(record, SessionEvent)
        and (
            record.step is SessionStep.OPENED
            or (record.step is SessionStep.DROPPED and not record.session_id)
        )
        for process in evidence.history.processes
        for record in process.received
    )
    closed = sum(each.kind == "close" and (has_zxid(each) or is_indefinite(each)) for each in operations)
    # A session is created once and expires at most once, unless its client closed it.
    most = known + unknown + 2 * handshakes - min(closed, handshakes) + others_max
    if evidence.last_zxid > most:
        return [
            Violation(
                "I6",
                f"the last zxid is {evidence.last_zxid}, but at most {most} transactions were asked for: "
                f"{known} known, {unknown} unknown, {handshakes} sessions of which {closed} were closed, "
                f"{others_max} others",
            )
        ]
    return []
