"""I10 to I13: what sessions may own, when they may end, and that nothing of them comes after their end.

- I10: an ephemeral is there only while its session lives; all of a session's ephemerals vanish with one zxid.
- I11: a session that keeps talking is never expired. It talks with every request that is answered; its
  longest silence is counted from when one answered request left to when the answer to the next one came, so
  the real one is shorter. A session that was refused although no silence reached `TALK_SHARE` of its timeout
  was expired while it talked: a node that hears no leader closes its connections after a third of the
  timeout, and what it heard needs a moment to reach the leader. An expired session never lives again.
  What went through the log counts for whoever leads: from when it was asked a session has its full timeout.
- I12: to resume succeeds only with the right password and before the end, and is refused only after it.
- I13: nothing of a session takes effect, or is answered, behind its close.

Cost: linear, but for sorting each session's requests. Source: docs/internals/simulation.md, "What is
checked"; docs/concepts/guarantees.md, "Sessions and watches".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tests.simulation.checkers.evidence import SESSION_EXPIRED, Evidence, Violation
from tests.simulation.checkers.facts import ENDLESS
from tests.simulation.checkers.registers import Vanished
from tests.simulation.history import WRITES, Operation, Outcome, SessionEvent, SessionStep

SESSION_MOVED = -118
#: how far the clocks of nodes are from virtual time
CLOCK_MS = 5.0
#: the share of its timeout for which a session may be silent and still must not be expired
TALK_SHARE = 0.5


class Life:
    """What is known of one session."""

    def __init__(self, session_id: int) -> None:
        self.session_id = session_id
        self.timeout_ms = 0
        self.operations: list[Operation] = []
        self.steps: list[SessionEvent] = []

    def add_step(self, step: SessionEvent) -> None:
        """Take a step of its life."""
        self.steps.append(step)
        if step.step in (SessionStep.OPENED, SessionStep.RESUMED):
            self.timeout_ms = step.timeout_ms

    @property
    def close(self) -> Operation | None:
        """The close that was acknowledged, if any."""
        closes = (each for each in self.operations if each.kind == "close" and each.outcome is Outcome.OK)
        return next(closes, None)

    @property
    def refused(self) -> SessionEvent | None:
        """The first time that it was refused with the right password."""
        return next((each for each in self.steps if _is_end(each)), None)

    def answered(self) -> Iterator[tuple[float, float]]:
        """Return (left, answer came) of every exchange that proves that a node heard it."""
        for operation in self.operations:
            if operation.outcome is not Outcome.UNKNOWN and operation.err != SESSION_EXPIRED:
                yield operation.invoked_ms, operation.completed_ms
        for step in self.steps:
            if step.step in (SessionStep.OPENED, SessionStep.RESUMED):
                yield step.asked_ms, step.ms

    def logged_ms(self) -> float:
        """Return when the last request left that went through the log and was answered."""
        asked = [
            operation.invoked_ms
            for operation in self.operations
            if operation.kind in WRITES
            and operation.outcome is not Outcome.UNKNOWN
            and operation.err not in (SESSION_EXPIRED, SESSION_MOVED)
        ]
        bound = (SessionStep.OPENED, SessionStep.RESUMED)
        return max(asked + [step.asked_ms for step in self.steps if step.step in bound], default=0.0)

    def last_sign(self) -> tuple[int, object]:
        """Return the highest zxid with which a request of it was answered, and that request."""
        best: tuple[int, object] = (0, None)
        for operation in self.operations:
            heard = operation.outcome is not Outcome.UNKNOWN and operation.err != SESSION_EXPIRED
            if heard and operation.zxid > best[0]:
                best = (operation.zxid, operation)
        return best


def _is_end(step: SessionEvent) -> bool:
    return step.step is SessionStep.REFUSED and step.password_right


def lives_of(evidence: Evidence) -> dict[int, Life]:
    """Return {session id: what is known of it}."""
    lives: dict[int, Life] = {}
    for process in evidence.history.processes:
        for operation in process.operations:
            lives.setdefault(operation.session_id, Life(operation.session_id)).operations.append(operation)
        for record in process.received:
            if isinstance(record, SessionEvent) and record.session_id:
                lives.setdefault(record.session_id, Life(record.session_id)).add_step(record)
    return lives


def check_sessions(evidence: Evidence, vanished: Iterable[Vanished]) -> list[Violation]:
    """Check all sessions.

    Args:
        evidence: what is known.
        vanished: ephemerals that only the end of their session can have removed, from registers.py.
    """
    lives = lives_of(evidence)
    violations: list[Violation] = []
    for life in lives.values():
        violations += _check_resumes(life)
        violations += _check_after_end(evidence, life)
        violations += _check_talk(life)
    violations += _check_vanished(evidence, lives, vanished)
    violations += _check_owners(evidence, lives)
    return violations


def _check_resumes(life: Life) -> Iterator[Violation]:
    """I12: resumed if and only if alive and the password is right."""
    name = f"session {life.session_id:#x}"
    close = life.close
    for step in life.steps:
        if step.step is SessionStep.RESUMED:
            if not step.password_right:
                yield Violation("I12", f"{name} was resumed with a wrong password: {step}")
            if close is not None and step.asked_ms > close.completed_ms:
                yield Violation("I12", f"{name} was resumed after its close {close}: {step}")


def _check_after_end(evidence: Evidence, life: Life) -> Iterator[Violation]:
    """I11, I13: after it was refused or closed nothing of a session succeeds or takes effect."""
    name = f"session {life.session_id:#x}"
    refused, close = life.refused, life.close
    if refused is not None:
        for step in life.steps:
            if step.step is SessionStep.RESUMED and step.asked_ms > refused.ms:
                yield Violation("I11", f"{name} lives again after {refused}: {step}")
    for operation in life.operations:
        zxid = evidence.located.get(operation, operation.zxid)
        heard = operation.outcome is not Outcome.UNKNOWN and operation.err != SESSION_EXPIRED
        if refused is not None and heard and operation.invoked_ms > refused.ms:
            yield Violation("I11", f"{name} was answered after {refused}: {operation}")
        if close is not None and zxid > close.zxid and (heard or operation in evidence.located):
            yield Violation("I13", f"{name} was closed with zxid {close.zxid}, before {operation}")
    for final in evidence.finals:
        ends = (refused, close)
        if life.session_id in final.sessions and any(ends):
            yield Violation(
                "I13", f"{name} lives on node {final.node_id} in the end, after {refused or close}"
            )


def _check_talk(life: Life) -> Iterator[Violation]:
    """I11, I12: a session that was refused must have been closed, or silent."""
    refused = life.refused
    if refused is None or not life.timeout_ms:
        return
    if any(each.kind == "close" and each.invoked_ms < refused.ms for each in life.operations):
        return
    silence_ms, last_ms = 0.0, float("-inf")
    for left_ms, came_ms in sorted(life.answered()):
        if last_ms > float("-inf"):
            silence_ms = max(silence_ms, came_ms - last_ms)
        last_ms = left_ms
    silence_ms = max(silence_ms, refused.ms - last_ms)
    logged_ms = life.logged_ms()
    if refused.ms < logged_ms + life.timeout_ms - CLOCK_MS:
        yield Violation(
            "I11",
            f"session {life.session_id:#x} was expired {refused.ms - logged_ms:.0f} ms after a request that "
            f"went through the log; its timeout is {life.timeout_ms} ms: {refused}",
        )
    if silence_ms < TALK_SHARE * life.timeout_ms:
        yield Violation(
            "I11",
            f"session {life.session_id:#x} was expired while it talked: it was never silent for more than "
            f"{silence_ms:.0f} of {life.timeout_ms} ms: {refused}",
        )


def _check_vanished(
    evidence: Evidence, lives: dict[int, Life], vanished: Iterable[Vanished]
) -> Iterator[Violation]:
    """I10: all ephemerals of a session vanish with one zxid, and nothing of the session comes behind it."""
    windows: dict[int, list[Vanished]] = {}
    for each in vanished:
        windows.setdefault(each.session_id, []).append(each)
    seen: dict[int, tuple[int, object]] = {}
    for sightings in evidence.sightings.values():
        for sighting in sightings:
            owner = sighting.stat.ephemeral_owner
            if owner in windows and sighting.zxid > seen.get(owner, (0, None))[0]:
                seen[owner] = (sighting.zxid, sighting.who)
    for session_id, mine in windows.items():
        name = f"session {session_id:#x}"
        first = min(mine, key=lambda each: each.high)
        last = max(mine, key=lambda each: each.low)
        if last.low >= first.high:
            yield Violation(
                "I10",
                f"{name} did not lose its ephemerals with one zxid: {first.path} by {first.high}, "
                f"{last.path} behind {last.low}: {first.who}, {last.who}",
            )
        signs = [seen.get(session_id, (0, None))]
        if session_id in lives:
            signs.append(lives[session_id].last_sign())
        for zxid, who in signs:
            # A reply with the very zxid may have left before the session ended with it.
            if zxid > first.high:
                yield Violation("I10", f"{name} lost {first.path} by zxid {first.high} and lives on: {who}")
        for final in evidence.finals:
            if session_id in final.sessions:
                yield Violation("I10", f"{name} lives in the end, but lost {first.path}: {first.who}")
                break


def _check_owners(evidence: Evidence, lives: dict[int, Life]) -> Iterator[Violation]:
    """I10: who owns something lives."""
    for final in evidence.finals:
        for path, node in final.nodes.items():
            owner = node.stat.ephemeral_owner
            if owner and owner not in final.sessions:
                yield Violation(
                    "I10",
                    f"{path} on node {final.node_id} in the end belongs to session {owner:#x}, which is over",
                )
    ends: dict[int, int] = {}
    for life in lives.values():
        close = life.close
        if close is not None:
            ends[life.session_id] = close.zxid
    for path, sightings in evidence.sightings.items():
        for sighting in sightings:
            end = ends.get(sighting.stat.ephemeral_owner, ENDLESS)
            if sighting.zxid >= end:
                yield Violation(
                    "I10", f"{path} was seen behind zxid {end}, which closed its session: {sighting.who}"
                )
