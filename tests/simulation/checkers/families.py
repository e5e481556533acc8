"""I9 of directories: lists of children, numChildren, cversion and pzxid fit what happened below a node.

- A list of names is compared with the children that are known to be there at its zxid. A difference becomes
  a fact about that child, which its register must explain (registers.py).
- Between two sightings of one incarnation of a node: cversion rises by at least the known creations and
  deletions below it, and in all by no more than the unknown ones can add; pzxid moves exactly when cversion
  does, to a later transaction than the earlier sighting; cversion + numChildren is even.
- In the end every node has its parent, ephemerals have no children, numChildren counts them, and all members
  hold the same.

Cost: linear in the sightings and in the length of the lists, after sorting each directory by zxid.
Source: docs/internals/simulation.md, "What is checked"; DIVERGENCES.md, "From ZooKeeper".
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from tests.simulation.checkers.evidence import (
    Change,
    Evidence,
    Sighting,
    Violation,
    creates_ephemerals,
    parent_of,
)
from tests.simulation.checkers.facts import Fact
from tests.simulation.history import Final, Operation, Outcome


def facts_of_lists(evidence: Evidence) -> dict[str, list[Fact]]:
    """Return what lists of children say about single nodes, as far as it is not known already."""
    reads: dict[str, list[Operation]] = {}
    for operation in evidence.history.operations:
        if operation.kind == "children" and operation.outcome is Outcome.OK:
            reads.setdefault(operation.path, []).append(operation)
    below = _changes_below(evidence)
    facts: dict[str, list[Fact]] = {}
    for directory, lists in reads.items():
        prefix = directory.rstrip("/") + "/"
        changes = iter(below.get(directory, ()))
        change = next(changes, None)
        # dicts instead of sets: the order of what is found must be the same in every process
        alive: dict[str, None] = {}
        for operation in sorted(lists, key=_zxid):
            while change is not None and change.zxid <= operation.zxid:
                if change.kind == "create":
                    alive[change.path] = None
                else:
                    alive.pop(change.path, None)
                change = next(changes, None)
            shown = {prefix + name: None for name in operation.result[0]}
            for path in [each for each in {**alive, **shown} if (each in alive) != (each in shown)]:
                fact = Fact(operation.zxid, 1, present=path in shown, who=operation)
                facts.setdefault(path, []).append(fact)
            alive = shown
    return facts


def _zxid(record: Operation | Sighting | Change) -> int:
    return record.zxid


def _changes_below(evidence: Evidence) -> dict[str, list[Change]]:
    below: dict[str, list[Change]] = {}
    for path, changes in evidence.changes.items():
        mine = below.setdefault(parent_of(path), [])
        mine += [change for change in changes if change.kind != "set"]
    for known in below.values():
        known.sort(key=_zxid)
    return below


def check_counters(evidence: Evidence) -> list[Violation]:
    """Compare the child counters of every directory that was seen more than once."""
    violations: list[Violation] = []
    below = _changes_below(evidence)
    slack = _slack(evidence)
    for path, sightings in evidence.sightings.items():
        lives: dict[int, list[Sighting]] = {}
        for sighting in sightings:
            if sighting.whole:
                lives.setdefault(sighting.stat.czxid, []).append(sighting)
        for life in lives.values():
            life.sort(key=_zxid)
            violations += _check_life(path, life, below.get(path, []), slack.get(path, 0))
    return violations


def _slack(evidence: Evidence) -> dict[str, int]:
    """Return {path: how many changes of its children may have happened that are not known}."""
    slack: dict[str, int] = {}
    for path, operations in evidence.unknown.items():
        parent = parent_of(path)
        for operation in operations:
            for kind, asked, _ in operation.parts:
                if asked == path and kind in ("create", "delete"):
                    # an unknown ephemeral goes again with its session
                    slack[parent] = slack.get(parent, 0) + 2
    for path, changes in evidence.changes.items():
        for _, kind, _, creator, _ in changes:
            if kind == "create" and (creator is None or creates_ephemerals(creator)):
                slack[parent_of(path)] = slack.get(parent_of(path), 0) + 1
    return slack


def _check_life(path: str, life: list[Sighting], below: list[Change], slack: int) -> Iterable[Violation]:
    hidden = 0
    place = 0
    for first in life[:1]:
        while place < len(below) and below[place].zxid <= first.zxid:
            place += 1
    for sighting in life:
        stat = sighting.stat
        if (stat.cversion + stat.children_count) % 2:
            yield Violation("I9", f"{path}: cversion and numChildren do not fit: {stat}: {sighting.who}")
    for before, after in pairwise(life):
        known = 0
        while place < len(below) and below[place].zxid <= after.zxid:
            place += 1
            known += 1
        risen = after.stat.cversion - before.stat.cversion
        hidden += risen - known
        moved = after.stat.pzxid != before.stat.pzxid
        problem = ""
        if risen < known:
            problem = f"cversion rose by {risen}, but its children changed {known} times"
        elif hidden > slack:
            problem = f"cversion rose by {risen}: {hidden} changes of its children nobody asked for"
        elif moved != (risen > 0) or (moved and after.stat.pzxid <= before.zxid):
            problem = "pzxid does not move with cversion"
        elif known and after.stat.pzxid < below[place - 1].zxid:
            problem = f"pzxid is older than the change with zxid {below[place - 1].zxid}"
        if problem:
            yield Violation("I9", f"{path}: {problem}: between [{before.who}] and [{after.who}]")


def check_lists(evidence: Evidence) -> list[Violation]:
    """Check that the Stat beside a list counts its names."""
    return [
        Violation("I9", f"{operation.path}: numChildren does not count the names: {operation}")
        for operation in evidence.history.operations
        if operation.kind == "children"
        and operation.outcome is Outcome.OK
        and operation.result[1].children_count != len(operation.result[0])
    ]


def check_finals(finals: list[Final]) -> list[Violation]:
    """Compare the members' final states with each other, and each with itself."""
    violations: list[Violation] = []
    for final in finals:
        first = finals[0]
        if (final.zxid, final.nodes, final.sessions) != (first.zxid, first.nodes, first.sessions):
            different = [
                path
                for path in {**first.nodes, **final.nodes}
                if first.nodes.get(path) != final.nodes.get(path)
            ]
            violations.append(
                Violation(
                    "I4",
                    f"nodes {first.node_id} and {final.node_id} differ in the end: zxid {first.zxid} and "
                    f"{final.zxid}, {len(different)} paths such as {different[:3]}, sessions "
                    f"{list(first.sessions)} and {list(final.sessions)}",
                )
            )
        counts: dict[str, int] = {}
        for path in final.nodes:
            counts[parent_of(path)] = counts.get(parent_of(path), 0) + 1
        for path, node in final.nodes.items():
            problem = ""
            parent = parent_of(path)
            if parent != "/" and parent not in final.nodes:
                problem = "its parent does not exist"
            elif node.stat.children_count != counts.get(path, 0):
                problem = f"numChildren is {node.stat.children_count}, it has {counts.get(path, 0)} children"
            elif node.stat.ephemeral_owner and counts.get(path, 0):
                problem = "an ephemeral has children"
            if problem:
                violations.append(Violation("I9", f"{path} on node {final.node_id} in the end: {problem}"))
    return violations
