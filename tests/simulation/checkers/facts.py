"""What is known of single paths: facts about one moment, which registers.py lays along the zxids.

They come from acknowledged writes, from what failed writes and reads found, and from the final states.
Decides nothing about what lies between them. Cost: linear. Source: docs/internals/simulation.md, "What is
checked".
"""

from __future__ import annotations

from typing import NamedTuple

from tests.simulation.checkers.evidence import (
    BAD_VERSION,
    EPHEMERAL,
    NO_CHILDREN_FOR_EPHEMERALS,
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
from tests.simulation.history import Operation, Outcome

ENDLESS = 1 << 62
#: {write: how it can fail for what it finds}. Source: ZooKeeper 3.9 PrepRequestProcessor.
_FAILURES = {
    "create": {NO_NODE, NODE_EXISTS, NO_CHILDREN_FOR_EPHEMERALS},
    "set": {NO_NODE, BAD_VERSION},
    "delete": {NO_NODE, BAD_VERSION, NOT_EMPTY},
    "check": {NO_NODE, BAD_VERSION},
}


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


def facts_of_changes(changes: list[Change]) -> list[Fact]:
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
            owner = -1 if operation is None else owner_of(operation, path)
            facts.append(Fact(zxid, 0, present=False, who=who))
            facts.append(Fact(zxid, 1, True, zxid, zxid, 0, owner=owner, who=who, witnessed=witnessed))
        elif kind == "delete":
            version = -1 if operation is None else expected_by(operation, "delete", path)
            facts.append(Fact(zxid, 0, True, version=version, who=who))
            facts.append(Fact(zxid, 1, present=False, who=who, witnessed=witnessed))
        else:
            czxid, version = (-1, -1) if stat is None else (stat.czxid, stat.version)
            if stat is None and operation is not None:
                expected = expected_by(operation, "set", path)
                version = expected + 1 if expected >= 0 else -1
            before = version - 1 if version > 0 else -1
            facts.append(Fact(zxid, 0, True, czxid, version=before, who=who))
            facts.append(Fact(zxid, 1, True, czxid, zxid, version, who=who, witnessed=witnessed))
    return facts


def owner_of(operation: Operation, path: str) -> int:
    """Return the session that owns what a creation made, 0 for none, -1 if it made another path."""
    for kind, asked, argument in operation.parts:
        if kind == "create" and fits_creation(path, asked, argument[1]):
            return operation.session_id if argument[1] & EPHEMERAL else 0
    return -1


def expected_by(operation: Operation, wanted: str, path: str) -> int:
    """Return the version that a write of one path asked for, -1 for any."""
    for kind, asked, argument in operation.parts:
        if kind == wanted and asked == path:
            return argument if kind == "delete" else int(argument[1])
    return -1


# --- what replies and final states say


def collect_facts(evidence: Evidence) -> dict[str, list[Fact]]:
    """Return {path: what Stats, failures and the final states say about it}."""
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
    if not _can_fail(operation):
        return []
    failing = _failing(operation)
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


def _failing(operation: Operation) -> int:
    """Return which part of a failed write failed."""
    return next((place for place, err in enumerate(operation.result or ()) if err), 0)


def _can_fail(operation: Operation) -> bool:
    """Return whether there is such a failure of such a write; an empty multi has none."""
    parts = operation.parts
    return bool(parts) and operation.err in _FAILURES.get(parts[_failing(operation)][0], ())


def check_failures(evidence: Evidence) -> list[Violation]:
    """Check that every write failed for a reason that there is for such a write."""
    return [
        Violation("I6", f"it cannot fail with {operation.err}: {operation}")
        for operation in evidence.history.operations
        if operation.outcome is Outcome.ERROR and has_zxid(operation) and not _can_fail(operation)
    ]
