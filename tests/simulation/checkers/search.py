"""Who can have done what nobody was told: the search for one explanation of all facts about a path.

The walk of registers.py is quick, but it settles early which incarnation of a node a fact belongs to: whose
ephemeral it was, and between which two facts something unseen must have happened. Where it finds no
explanation, the search decides. It runs through all orders in which operations of unknown outcome, each at
most once and within real time and its connection's fence, and ends of sessions can have changed the path
between what is known. Only what none of them explains is a violation.

Does not know other paths: the parts of an unknown multi are judged one by one, and within one gap any order
is allowed. Both only make it more lenient.

Cost: exponential in the unknown operations of one path at worst; of those that differ in nothing but their
bounds only the one whose fence comes first is tried (earliest deadline first), and `STATES_MAX` bounds the
rest.
Source: docs/internals/simulation.md, "What is checked"; Wing & Gong, "Testing and Verifying Concurrent
Objects".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from tests.simulation.checkers.evidence import (
    EPHEMERAL,
    SESSION_EXPIRED,
    Change,
    Evidence,
    fits_creation,
)
from tests.simulation.checkers.facts import ENDLESS, Fact, expected_by, owner_of
from tests.simulation.checkers.order import Floors
from tests.simulation.history import Operation, Outcome

#: states after which the search gives up and the walk's finding stands
STATES_MAX = 30_000

#: what a field of a node is that nobody can have seen: the zxid of a change that is in no Stat
_UNSEEN = -2


class Candidate(NamedTuple):
    """One single write of an operation of unknown outcome, and where its zxid must lie."""

    operation: Operation
    part: int
    #: the zxid lies above it
    floor: int
    #: and not above this
    ceiling: int


#: {session: (first, last) zxid with which it can have ended}
Ends = Mapping[int, tuple[int, int]]
_ANY_END = (1, ENDLESS)


def ceilings_of(evidence: Evidence) -> dict[tuple[int, int], int]:
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


def ends_of(evidence: Evidence) -> dict[int, tuple[int, int]]:
    """Return when each session that was heard of can have ended, by its close and its signs of life."""
    ends: dict[int, tuple[int, int]] = {}

    def lives(session_id: int, zxid: int) -> None:
        first, last = ends.get(session_id, _ANY_END)
        ends[session_id] = max(first, zxid), last

    for operation in evidence.history.operations:
        if operation.outcome is not Outcome.UNKNOWN and operation.err != SESSION_EXPIRED:
            # A reply with the very zxid may have left before the session ended with it.
            lives(operation.session_id, operation.zxid)
    for sightings in evidence.sightings.values():
        for sighting in sightings:
            lives(sighting.stat.ephemeral_owner, sighting.zxid + 1)
    for final in evidence.finals:
        for session_id in final.sessions:
            lives(session_id, final.zxid + 1)
    for operation in evidence.history.operations:
        if operation.kind == "close" and operation.outcome is Outcome.OK:
            ends[operation.session_id] = operation.zxid, operation.zxid
    return ends


def candidates_of(
    evidence: Evidence, path: str, floors: Floors, ceilings: Mapping[tuple[int, int], int]
) -> list[Candidate]:
    """Return which writes of unknown outcome, or with an unknown path, may have changed a path."""
    asked = [path]
    # A sequential creation stands under what it asked for; the digits before its suffix are its own.
    asked += [path[:cut] for cut in range(len(path.rstrip("0123456789")), len(path) - 9)]
    candidates: list[Candidate] = []
    for each in asked:
        for operation in evidence.unknown.get(each, ()):
            floor = floors[operation]
            ceiling = ceilings[operation.session_id, operation.connection]
            located = evidence.located.get(operation)
            if located is not None:
                floor, ceiling = located - 1, located
            candidates += [
                Candidate(operation, part, floor, ceiling)
                for part, (_, wanted, _) in enumerate(operation.parts)
                if wanted == each and (located is None or evidence.is_unplaced(operation, part))
            ]
    return candidates


class _Node(NamedTuple):
    """What a path holds; -1 stands for what is not known."""

    present: bool
    czxid: int = -1
    mzxid: int = -1
    version: int = -1
    owner: int = -1


_ABSENT = _Node(present=False)

#: the next moment to explain, what the path holds, which candidates are used
_State = tuple[int, _Node, frozenset[int]]


class Search:
    """All that is known of one path."""

    def __init__(
        self,
        evidence: Evidence,
        path: str,
        facts: Iterable[Fact],
        candidates: Sequence[Candidate],
        ends: Ends,
    ) -> None:
        """Prepare it.

        Args:
            evidence: has the known changes.
            path: of the node.
            facts: what else is known of it, with or without those of the changes.
            candidates: from candidates_of.
            ends: from ends_of.
        """
        self._path = path
        self._transactions = evidence.transactions
        self._candidates = candidates
        self._ends = ends
        #: what happened and what was seen, by zxid; several changes of one transaction: what it left is open
        self._moments: list[tuple[int, int, Change | Fact | None]] = []
        changes: dict[int, list[Change]] = {}
        for change in evidence.changes.get(path, ()):
            changes.setdefault(change.zxid, []).append(change)
        for zxid, same in changes.items():
            self._moments.append((zxid, 0, same[0] if len(same) == 1 else None))
        self._moments += [(fact.zxid, 1, fact) for fact in facts if fact.who is not None and fact.after]
        self._moments.sort(key=_place)

    def explains(self, *, immortal: int = 0, low: int = 0, high: int = 0) -> bool:
        """Tell whether something explains all that is known.

        Args:
            immortal: a session that does not end with a zxid above `low` and not above `high`.
            low: see there.
            high: see there.

        Returns:
            False also if it was given up.
        """
        self._spared = (immortal, low, high)
        first: _State = (0, _ABSENT, frozenset())
        queue: list[tuple[int, int, int, _State]] = [(0, 0, 0, first)]
        seen = {first: None}
        while queue and len(seen) < STATES_MAX:
            state = heappop(queue)[-1]
            if state[0] == len(self._moments):
                return True
            for following in self._from(state):
                if following not in seen:
                    seen[following] = None
                    # What came farthest first, and what needs the fewest unknown operations.
                    heappush(queue, (-following[0], len(following[2]), len(seen), following))
        return False

    def _from(self, state: _State) -> Iterator[_State]:
        """Return what can come next: the next known moment, or something unseen before it."""
        position, node, used = state
        zxid, is_fact, moment = self._moments[position]
        low = self._moments[position - 1][0] if position else 0
        if moment is None:
            yield position + 1, _ABSENT, used
            yield position + 1, _Node(present=True), used
            return
        if isinstance(moment, Fact):
            after = _seen_as(node, moment)
            if after is not None and not self._must_be_over(after, zxid):
                yield position + 1, after, used
        elif not self._must_be_over(node, zxid - 1):
            for after, number in self._known_change(node, used, moment):
                yield position + 1, after, used if number is None else used | {number}
        high = zxid if is_fact else zxid - 1
        if low < high:
            for after, number in self._unseen(node, used, low, high):
                yield position, after, used if number is None else used | {number}

    def _must_be_over(self, node: _Node, zxid: int) -> bool:
        return node.owner > 0 and self._ends.get(node.owner, _ANY_END)[1] <= zxid

    def _may_end(self, session_id: int, low: int, high: int) -> bool:
        """Tell whether a session can have ended with a zxid above `low` and not above `high`."""
        first, last = self._ends.get(session_id, _ANY_END)
        first, last = max(first, low + 1), min(last, high)
        spared, spared_low, spared_high = self._spared
        if session_id == spared and spared_low < first and last <= spared_high:
            return False
        return first <= last

    def _known_change(
        self, node: _Node, used: frozenset[int], change: Change
    ) -> Iterator[tuple[_Node, int | None]]:
        """Return what a transaction left whose zxid is known."""
        zxid, kind, path, operation, stat = change
        if node.present == (kind == "create"):
            return
        if operation is None:
            for number in self._able(kind, node, used, zxid - 1, zxid):
                yield self._done(number, node, zxid), number
            cause = self._transactions.get(zxid)
            may_end = node.owner > 0 and self._may_end(node.owner, zxid - 1, zxid)
            ends = cause is None or (cause.kind == "close" and node.owner in (-1, cause.session_id))
            if kind == "delete" and ends and (may_end or node.owner < 0):
                yield _ABSENT, None
            return
        if kind == "create":
            yield _Node(True, zxid, zxid, 0, owner_of(operation, path)), None
            return
        expected = expected_by(operation, kind, path)
        if expected >= 0 and node.version not in (-1, expected):
            return
        if kind == "delete":
            yield _ABSENT, None
            return
        version = node.version + 1 if node.version >= 0 else -1
        after = node._replace(mzxid=zxid, version=version)
        if stat is not None:
            seen = _seen_as(after, Fact(zxid, 1, True, stat.czxid, stat.mzxid, stat.version))
            if seen is None:
                return
            after = seen
        yield after, None

    def _unseen(
        self, node: _Node, used: frozenset[int], low: int, high: int
    ) -> Iterator[tuple[_Node, int | None]]:
        """Return what something between two known moments can have left."""
        if node.owner > 0 and self._may_end(node.owner, low, high):
            yield _ABSENT, None
        if node.present and node.owner < 0:
            yield _ABSENT, None
        for kind in ("set", "delete") if node.present else ("create",):
            for number in self._able(kind, node, used, low, high):
                yield self._done(number, node, _UNSEEN), number

    def _able(self, wanted: str, node: _Node, used: frozenset[int], low: int, high: int) -> Iterator[int]:
        """Return who can do something to a node with a zxid above `low` and not above `high`.

        Of those that do the same only the one that could not do it later than the others.
        """
        cause = self._transactions.get(high) if low + 1 == high else None
        best: dict[tuple[int, int], int] = {}
        for number, (operation, part, floor, ceiling) in enumerate(self._candidates):
            kind, asked, argument = operation.parts[part]
            if kind != wanted or number in used or max(low, floor) >= min(high, ceiling):
                continue
            if cause is not None and cause is not operation:
                continue
            if kind == "create":
                if not fits_creation(self._path, asked, argument[1]):
                    continue
                does = (0, operation.session_id if argument[1] & EPHEMERAL else 0)
            else:
                expected = argument if kind == "delete" else argument[1]
                if asked != self._path or (expected >= 0 and node.version not in (-1, expected)):
                    continue
                does = (expected, 0)
            other = best.setdefault(does, number)
            if ceiling < self._candidates[other].ceiling:
                best[does] = number
        yield from best.values()

    def _done(self, number: int, node: _Node, zxid: int) -> _Node:
        """Return what a candidate leaves."""
        operation, part, _, _ = self._candidates[number]
        kind, _, argument = operation.parts[part]
        if kind == "create":
            return _Node(True, zxid, zxid, 0, operation.session_id if argument[1] & EPHEMERAL else 0)
        if kind == "delete":
            return _ABSENT
        return node._replace(mzxid=zxid, version=node.version + 1 if node.version >= 0 else -1)


def _place(moment: tuple[int, int, Change | Fact | None]) -> tuple[int, int]:
    return moment[:2]


def _seen_as(node: _Node, fact: Fact) -> _Node | None:
    """Return what is known of a node once it was seen; None if it cannot have been seen like that."""
    if node.present != fact.present:
        return None
    if not node.present:
        return node
    known = (node.czxid, node.mzxid, node.version, node.owner)
    shown = (fact.czxid, fact.mzxid, fact.version, fact.owner)
    if any(-1 not in (old, new) and old != new for old, new in zip(known, shown, strict=True)):
        return None
    if fact.not_version >= 0 and node.version == fact.not_version:
        return None
    return _Node(True, *(new if new != -1 else old for old, new in zip(known, shown, strict=True)))
