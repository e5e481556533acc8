"""I5, I6, I8 and I9 of single nodes: each path is a register with versions and compare-and-set.

All facts about a path are laid along the zxids: what acknowledged writes did and found, what reads, failed
writes and the final states saw. Then one walk decides whether a single register can have shown all of it.
Where two neighbouring facts differ, something in between must have changed the path: an operation of unknown
outcome that fits (path, kind, expected version, real time, order of its session), each at most once, or the
end of the session that owned the node. What nothing can explain is a violation: an acknowledged write that
vanished (I5), a change that nobody asked for or that counts twice (I6), a state that contradicts another one
(I8), a version that does not rise by one (I9).

That is Wing & Gong's linearizability check with zxids and versions as the witnesses of the order: what is
left is a matching of operations of unknown outcome within one path. What the matching cannot explain, a full
search judges (search.py): it is a violation only if no order of the unknown operations explains it.

Cost: linear in the facts after sorting; the matching is quadratic in the unknown operations of one path.
Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from tests.simulation.checkers.evidence import (
    EPHEMERAL,
    Evidence,
    Violation,
    fits_creation,
)
from tests.simulation.checkers.facts import ENDLESS, Fact, collect_facts, facts_of_changes
from tests.simulation.checkers.order import Floors
from tests.simulation.checkers.search import Candidate, Search, candidates_of, ceilings_of, ends_of
from tests.simulation.history import Outcome


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
    facts = collect_facts(evidence)
    for path, more in (extra or {}).items():
        facts.setdefault(path, []).extend(more)
    closes = {
        each.session_id: each.zxid
        for each in evidence.history.operations
        if each.kind == "close" and each.outcome is Outcome.OK
    }
    ceilings = ceilings_of(evidence)
    ends = ends_of(evidence)
    found.violations.extend(_check_fenced(evidence, ceilings))
    for path in {**evidence.changes, **facts}:
        changes = evidence.changes.get(path, [])
        mine = Registers([], [])
        walk = _Walk(path, closes, mine.violations)
        for fact in sorted([*facts_of_changes(changes), *facts.get(path, ())], key=_place):
            walk.step(fact)
        if not walk.needs and not mine.violations:
            continue
        candidates = candidates_of(evidence, path, floors, ceilings)
        _explain(path, walk.needs, _Matching(path, candidates), mine)
        if mine.violations or mine.vanished:
            search = Search(evidence, path, facts.get(path, ()), candidates, ends)
            found.vanished.extend(each for each in mine.vanished if not _stays(search, each))
            if mine.violations and not search.explains():
                found.violations.extend(mine.violations)
    return found


def _stays(search: Search, vanished: Vanished) -> bool:
    """Tell whether all can be explained although the session did not end there."""
    return search.explains(immortal=vanished.session_id, low=vanished.low, high=vanished.high)


def _place(fact: Fact) -> tuple[int, int]:
    return fact.zxid, fact.after


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


def _check_fenced(evidence: Evidence, ceilings: Mapping[tuple[int, int], int]) -> Iterator[Violation]:
    """I13: what a connection sent takes no effect once its session is attached elsewhere, or over."""
    for operation, zxid in evidence.located.items():
        ceiling = ceilings[operation.session_id, operation.connection]
        if zxid > ceiling:
            story = f"took effect with zxid {zxid}; its connection was fenced by zxid {ceiling}: {operation}"
            yield Violation("I13", story)


class _Matching:
    """Who can have done what must have happened on one path: every operation at most once."""

    def __init__(self, path: str, candidates: Sequence[Candidate]):
        self._path = path
        self._candidates = candidates
        self._taken: dict[Candidate, Need] = {}
        self._options: dict[Need, list[Candidate]] = {}

    @property
    def has_candidates(self) -> bool:
        """Whether any operation of unknown outcome may have changed the path."""
        return bool(self._candidates)

    @property
    def may_be_ephemeral(self) -> bool:
        """Whether the node may have been created as an ephemeral."""
        parts = [each.operation.parts[each.part] for each in self._candidates]
        return any(kind == "create" and argument[1] & EPHEMERAL for kind, _, argument in parts)

    def options(self, need: Need) -> list[Candidate]:
        """Return who can have done it."""
        known = self._options.get(need)
        if known is None:
            known = self._options[need] = [
                candidate
                for candidate in self._candidates
                if max(need.low, candidate.floor) < min(need.high, candidate.ceiling)
                and _can_do(candidate, self._path, need)
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


def _can_do(candidate: Candidate, path: str, need: Need) -> bool:
    kind, asked, argument = candidate.operation.parts[candidate.part]
    if need.kind not in (kind, "any"):
        return False
    if kind == "create":
        return fits_creation(path, asked, argument[1])
    return asked == path and (kind != "set" or need.version < 0 or argument[1] in (-1, need.version - 1))
