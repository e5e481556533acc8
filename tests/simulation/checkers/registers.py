"""I5, I6, I8 and I9 of single nodes: each path is a register with versions and compare-and-set.

All facts about a path are laid along the zxids: what acknowledged writes did and found, what reads, failed
writes and the final states saw. Then one walk decides whether a single register can have shown all of it.
Where two neighbouring facts differ, something in between must have changed the path: an operation of unknown
outcome that fits (path, kind, expected version, real time, order of its session), each at most once, or the
end of the session that owned the node. What nothing can explain is a violation: an acknowledged write that
vanished (I5), a change that nobody asked for or that counts twice (I6), a state that contradicts another one
(I8), a version that does not rise by one (I9).

That is Wing & Gong's linearizability check with zxids and versions as the witnesses of the order: the search
is left only for operations of unknown outcome, as a matching within one path.

Cost: linear in the facts after sorting; the matching is quadratic in the unknown operations of one path.
Source: testing (I5, I6, I8, I9, Histories).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tests.simulation.checkers.evidence import (
    BAD_VERSION,
    EPHEMERAL,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    SEQUENTIAL,
    Change,
    Evidence,
    Violation,
    fits_creation,
    has_zxid,
    is_indefinite,
    parent_of,
)
from tests.simulation.checkers.order import Floors
from tests.simulation.history import Operation, Outcome

ENDLESS = 1 << 62


class Fact(NamedTuple):
    """Something that is known about a path at one moment; -1 stands for what is not."""

    zxid: int
    #: 0: before the transaction of that zxid, 1: after it
    after: int
    present: bool
    czxid: int = -1
    mzxid: int = -1
    version: int = -1
    not_version: int = -1
    #: session that owns it, 0 for none
    owner: int = -1
    who: object = ""
    #: kind of the change before this fact if nobody knows whose it was
    witnessed: str = ""


class Need(NamedTuple):
    """A change that must have happened, by an operation whose outcome nobody was told."""

    path: str
    kind: str
    #: the zxid lies above `low` and not above `high`
    low: int
    high: int
    #: version that it left, if known
    version: int
    #: session that owned what was deleted, 0: none, -1: not known
    owner: int
    who: object


class Vanished(NamedTuple):
    """An ephemeral that nobody can have deleted: its session must have ended within these zxids."""

    session_id: int
    path: str
    low: int
    high: int
    who: object


class Registers(NamedTuple):
    """What the walk found."""

    violations: list[Violation]
    vanished: list[Vanished]


def check_registers(
    evidence: Evidence, floors: Floors, extra: Mapping[str, Iterable[Fact]] | None = None
) -> Registers:
    """Walk along every path.

    Args:
        evidence: what is known.
        floors: from order.floors_of.
        extra: more facts by path, from lists of children.
    """
    found = Registers([], [])
    facts = _collect_facts(evidence)
    for path, more in (extra or {}).items():
        facts.setdefault(path, []).extend(more)
    closes = {
        each.session_id: each.zxid
        for each in evidence.history.operations
        if each.kind == "close" and each.outcome is Outcome.OK
    }
    ceilings = _ceilings(evidence)
    found.violations.extend(_check_fenced(evidence, ceilings))
    for path in {**evidence.changes, **facts}:
        changes = evidence.changes.get(path, [])
        walk = _Walk(path, closes, found.violations)
        for fact in sorted([*_facts_of(changes), *facts.get(path, ())], key=_place):
            walk.step(fact)
        if walk.needs:
            _explain(path, walk.needs, _Matching(evidence, path, floors, ceilings), found)
    return found


def _place(fact: Fact) -> tuple[int, int]:
    return fact.zxid, fact.after


def _facts_of(changes: list[Change]) -> list[Fact]:
    """Return what the known changes of a path say about the moments before and after them."""
    facts: list[Fact] = []
    position = 0
    while position < len(changes):
        zxid = changes[position].zxid
        same = [change for change in changes[position : position + 4] if change.zxid == zxid]
        position += len(same)
        if len(same) > 1:
            # Several operations of one multi on one path: what it was in between nobody saw.
            facts.append(Fact(zxid, 1, present=True, who=None))
            continue
        _, kind, path, operation, stat = same[0]
        who = operation or f"a {kind} with zxid {zxid} of which somebody saw the effect"
        witnessed = "" if operation else kind
        if kind == "create":
            owner = -1 if operation is None else _owner_of(operation, path)
            facts.append(Fact(zxid, 0, present=False, who=who))
            facts.append(Fact(zxid, 1, True, zxid, zxid, 0, owner=owner, who=who, witnessed=witnessed))
        elif kind == "delete":
            version = -1 if operation is None else _expected(operation, "delete", path)
            facts.append(Fact(zxid, 0, True, version=version, who=who))
            facts.append(Fact(zxid, 1, present=False, who=who, witnessed=witnessed))
        else:
            czxid, version = (-1, -1) if stat is None else (stat.czxid, stat.version)
            if stat is None and operation is not None:
                expected = _expected(operation, "set", path)
                version = expected + 1 if expected >= 0 else -1
            before = version - 1 if version > 0 else -1
            facts.append(Fact(zxid, 0, True, czxid, version=before, who=who))
            facts.append(Fact(zxid, 1, True, czxid, zxid, version, who=who, witnessed=witnessed))
    return facts


def _owner_of(operation: Operation, path: str) -> int:
    for kind, asked, argument in operation.parts:
        if kind == "create" and fits_creation(path, asked, argument[1]):
            return operation.session_id if argument[1] & EPHEMERAL else 0
    return -1


def _expected(operation: Operation, wanted: str, path: str) -> int:
    for kind, asked, argument in operation.parts:
        if kind == wanted and asked == path:
            return argument if kind == "delete" else int(argument[1])
    return -1


# --- what replies and final states say


def _collect_facts(evidence: Evidence) -> dict[str, list[Fact]]:
    facts: dict[str, list[Fact]] = {}
    for path, sightings in evidence.sightings.items():
        facts[path] = [
            Fact(zxid, 1, True, stat.czxid, stat.mzxid, stat.version, owner=stat.ephemeral_owner, who=who)
            for zxid, _, stat, _, _, who, _ in sightings
        ]
    for operation in evidence.history.operations:
        if operation.outcome is Outcome.UNKNOWN or is_indefinite(operation):
            continue
        if operation.kind in ("get", "exists", "children"):
            if operation.err == NO_NODE:
                absent = Fact(operation.zxid, 1, present=False, who=operation)
                facts.setdefault(operation.path, []).append(absent)
        elif has_zxid(operation):
            for path, fact in _judged(operation):
                facts.setdefault(path, []).append(fact)
    for final in evidence.finals:
        who = f"node {final.node_id} in the end"
        for path in {**evidence.changes, **facts}:
            if path not in final.nodes and path != "/":
                facts.setdefault(path, []).append(Fact(final.zxid, 1, present=False, who=who))
    return facts


def _judged(operation: Operation) -> list[tuple[str, Fact]]:
    """Return what a write's checks found: why it failed, or which versions the checks of a multi saw."""
    parts = operation.parts
    zxid = operation.zxid
    paths = [path for _, path, _ in parts]
    facts: list[tuple[str, Fact]] = []
    if operation.outcome is Outcome.OK:
        for kind, path, argument in parts:
            if kind == "check" and paths.count(path) == 1:
                facts.append((path, Fact(zxid, 1, True, version=argument, who=operation)))
        return facts
    failing = next((place for place, err in enumerate(operation.result or ()) if err), 0)
    kind, path, argument = parts[failing]
    subject = parent_of(path) if kind == "create" and operation.err == NO_NODE else path
    if subject == "/" or any(subject in (each, parent_of(each)) for each in paths[:failing]):
        return []
    if operation.err == NO_NODE:
        facts.append((subject, Fact(zxid, 1, present=False, who=operation)))
    elif operation.err == BAD_VERSION:
        expected = argument[1] if kind == "set" else argument
        facts.append((path, Fact(zxid, 1, True, not_version=expected, who=operation)))
    elif operation.err == NOT_EMPTY or (operation.err == NODE_EXISTS and not argument[1] & SEQUENTIAL):
        facts.append((path, Fact(zxid, 1, present=True, who=operation)))
    return facts


# --- the walk


class _Walk:
    """One path from its first fact to its last."""

    def __init__(self, path: str, closes: Mapping[int, int], violations: list[Violation]) -> None:
        self.path = path
        self.needs: list[Need] = []
        self._closes = closes
        self._violations = violations
        #: what is known now; None: nothing
        self._known: Fact | None = Fact(0, 1, present=False, who="the beginning")
        #: the last fact that said which version it is; what came behind it only said that it is there
        self._versioned: Fact | None = None
        #: whether changes came behind that fact whose version nobody saw: it is at least the known one
        self._at_least = False

    def step(self, fact: Fact) -> None:
        """Go on to the next fact."""
        if fact.who is None:
            self._known = None
            return
        known = self._known
        if known is None:
            self._known = fact
            return
        end = self._closes.get(known.owner, ENDLESS)
        if known.present and known.owner > 0 and end <= fact.zxid - (not fact.after):
            known = Fact(max(end, known.zxid), 1, present=False, who=f"the end of session {known.owner:#x}")
        if fact.witnessed and (known.present or fact.present):
            self.needs.append(
                Need(self.path, fact.witnessed, fact.zxid - 1, fact.zxid, fact.version, known.owner, fact.who)
            )
        if fact.present:
            self._known = self._to_present(known, fact)
            if fact.version >= 0 or self._known.version < 0:
                self._versioned = fact
                self._at_least = False
        else:
            if known.present and not self._is_known_change(known, fact):
                self._need(known, fact, "delete", owner=known.owner)
            self._known = fact

    @staticmethod
    def _is_known_change(known: Fact, fact: Fact) -> bool:
        """Tell whether the two facts are the two sides of one transaction."""
        return (known.zxid, known.after, fact.after) == (fact.zxid, 0, 1)

    def _to_present(self, known: Fact, fact: Fact) -> Fact:
        if self._is_known_change(known, fact):
            version = fact.version
            if version < 0 and known.version >= 0:
                version = known.version + 1
                self._at_least = True
            czxid = fact.czxid if fact.czxid >= 0 else known.czxid
            owner = fact.owner if fact.owner >= 0 or not known.present else known.owner
            return fact._replace(version=version, czxid=czxid, owner=owner)
        if not known.present:
            self._need(known, fact, "create")
            for version in range(1, fact.version + 1):
                self._need(known, fact, "set", version=version)
            return fact
        if -1 < fact.czxid < known.czxid or (fact.czxid > known.czxid >= 0 and fact.czxid <= known.zxid):
            self._contradiction(known, fact)
        if known.czxid >= 0 and fact.czxid >= 0 and known.czxid != fact.czxid:
            return fact
        return self._same_life(known, fact)

    def _same_life(self, known: Fact, fact: Fact) -> Fact:
        """Go on within one incarnation of the node; or, where czxids are not known, what may be one."""
        version, mzxid = fact.version, fact.mzxid
        versioned = self._versioned or known
        if known.version >= 0 and version >= 0:
            if version < known.version:
                if known.czxid >= 0 and fact.czxid >= 0:
                    self._contradiction(known, fact)
                else:
                    self._need(versioned, fact, "delete", owner=known.owner)
                    self._need(versioned, fact, "create")
                    return fact
            for between in range(known.version + 1, version + 1):
                self._need(versioned, fact, "set", version=-1 if self._at_least else between)
            if mzxid >= 0 and known.mzxid >= 0 and version == known.version and mzxid != known.mzxid:
                self._contradiction(known, fact)
        elif fact.not_version >= 0 and fact.not_version == known.version and not self._at_least:
            self._need(versioned, fact, "any", owner=known.owner)
            return fact
        return Fact(
            fact.zxid,
            fact.after,
            True,
            max(fact.czxid, known.czxid),
            mzxid if mzxid >= 0 else known.mzxid,
            version if version >= 0 else known.version,
            owner=fact.owner if fact.owner >= 0 else known.owner,
            who=fact.who,
        )

    def _need(self, known: Fact, fact: Fact, kind: str, *, version: int = -1, owner: int = -1) -> None:
        high = fact.zxid - (not fact.after)
        low = known.zxid - (not known.after)
        self.needs.append(
            Need(self.path, kind, low, high, version, owner, f"between [{known.who}] and [{fact.who}]")
        )

    def _contradiction(self, known: Fact, fact: Fact) -> None:
        self._violations.append(
            Violation("I8", f"{self.path}: no register shows both [{known.who}] and [{fact.who}]")
        )


# --- who can have done what nobody was told

#: an operation of unknown outcome, and the number of one of its single writes
Candidate = tuple[Operation, int]


def _ceilings(evidence: Evidence) -> dict[tuple[int, int], int]:
    """Return {(session, connection): zxid above which its late requests cannot take effect}.

    A session that was attached elsewhere is fenced where it was: the first reply on a later connection is
    behind the attach. Nor does anything take effect behind the session's close.
    """
    firsts: dict[int, dict[int, int]] = {}
    closes: dict[int, int] = {}
    for operation in evidence.history.operations:
        session = firsts.setdefault(operation.session_id, {})
        zxid = operation.zxid if operation.zxid > 0 else ENDLESS
        session[operation.connection] = min(zxid, session.get(operation.connection, ENDLESS))
        if operation.kind == "close" and operation.outcome is Outcome.OK:
            closes[operation.session_id] = operation.zxid
    ceilings: dict[tuple[int, int], int] = {}
    for session_id, session in firsts.items():
        ceiling = closes.get(session_id, ENDLESS)
        for connection in sorted(session, reverse=True):
            ceilings[session_id, connection] = ceiling
            ceiling = min(ceiling, session[connection])
    return ceilings


def _check_fenced(evidence: Evidence, ceilings: Mapping[tuple[int, int], int]) -> Iterator[Violation]:
    """I13: what a connection sent takes no effect once its session is attached elsewhere, or over."""
    for operation, zxid in evidence.located.items():
        ceiling = ceilings[operation.session_id, operation.connection]
        if zxid > ceiling:
            story = f"took effect with zxid {zxid}; its connection was fenced by zxid {ceiling}: {operation}"
            yield Violation("I13", story)


class _Matching:
    """Who can have done what must have happened on one path: every operation at most once."""

    def __init__(
        self, evidence: Evidence, path: str, floors: Floors, ceilings: Mapping[tuple[int, int], int]
    ):
        self._path = path
        self._candidates = _candidates(evidence, path)
        self._bounds = [
            (floors[operation], ceilings[operation.session_id, operation.connection])
            for operation, _ in self._candidates
        ]
        self._taken: dict[Candidate, Need] = {}
        self._options: dict[Need, list[Candidate]] = {}

    @property
    def has_candidates(self) -> bool:
        """Whether any operation of unknown outcome may have changed the path."""
        return bool(self._candidates)

    @property
    def may_be_ephemeral(self) -> bool:
        """Whether the node may have been created as an ephemeral."""
        parts = [operation.parts[part] for operation, part in self._candidates]
        return any(kind == "create" and argument[1] & EPHEMERAL for kind, _, argument in parts)

    def options(self, need: Need) -> list[Candidate]:
        """Return who can have done it."""
        known = self._options.get(need)
        if known is None:
            known = self._options[need] = [
                candidate
                for candidate, (floor, ceiling) in zip(self._candidates, self._bounds, strict=True)
                if max(need.low, floor) < min(need.high, ceiling) and _can_do(candidate, self._path, need)
            ]
        return known

    def find(self, need: Need, tried: dict[Candidate, None] | None = None) -> bool:
        """Give a need one operation, moving others' if that makes room (Kuhn's algorithm)."""
        tried = {} if tried is None else tried
        for candidate in self.options(need):
            if candidate in tried:
                continue
            tried[candidate] = None
            if candidate not in self._taken or self.find(self._taken[candidate], tried):
                self._taken[candidate] = need
                return True
        return False


def _explain(path: str, needs: list[Need], matching: _Matching, found: Registers) -> None:
    """Match every need with an operation of unknown outcome, or with the end of a session."""
    for need in needs:
        possible = need.low < need.high
        if possible and matching.find(need):
            continue
        by_session = need.owner > 0 or (need.owner < 0 and matching.may_be_ephemeral)
        if not possible or need.kind not in ("delete", "any") or not by_session:
            invariant = "I5" if need.kind == "delete" else "I6"
            if need.kind == "set" and not matching.has_candidates:
                invariant = "I9"
            zxids = f"zxids {need.low + 1}..{need.high}"
            story = f"{path}: a {need.kind} in {zxids} that nobody can have done: {need.who}"
            found.violations.append(Violation(invariant, story))
        elif need.owner > 0 and need.kind == "delete" and not matching.options(need):
            found.vanished.append(Vanished(need.owner, path, need.low, need.high, need.who))


def _candidates(evidence: Evidence, path: str) -> list[Candidate]:
    asked = [path]
    # A sequential creation stands under what it asked for; the digits before its suffix are its own.
    asked += [path[:cut] for cut in range(len(path.rstrip("0123456789")), len(path) - 9)]
    return [
        (operation, part)
        for each in asked
        for operation in evidence.unknown.get(each, ())
        for part, (_, wanted, _) in enumerate(operation.parts)
        if wanted == each
    ]


def _can_do(candidate: Candidate, path: str, need: Need) -> bool:
    operation, part = candidate
    kind, asked, argument = operation.parts[part]
    if need.kind not in (kind, "any"):
        return False
    if kind == "create":
        return fits_creation(path, asked, argument[1])
    return asked == path and (kind != "set" or need.version < 0 or argument[1] in (-1, need.version - 1))
