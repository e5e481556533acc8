"""Access lists decide as a naive reading of Kafka's rules does, after any history of changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.core.access.lists import ANONYMOUS, AccessLists, Principal
from quorum.metadata.acl_records import (
    AclEntry,
    AclRecord,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

SUPER = "User:root"
IMPLY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}

names = st.text("ab*", min_size=1, max_size=3)
types = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
hosts = st.sampled_from(["10.0.0.1", "10.0.0.2"])
users = st.sampled_from(["User:a", "User:b", ANONYMOUS])
operations = st.sampled_from(
    [Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS]
)
patterns = st.builds(Pattern, types, st.sampled_from(PatternType), names)
entries = st.builds(
    AclEntry,
    users | st.just("User:*"),
    hosts | st.just("*"),
    operations | st.just(Operation.ALL),
    st.sampled_from(Permission),
)
changes = st.lists(st.tuples(patterns, st.frozensets(entries, max_size=3)), max_size=8)
asked = st.tuples(st.builds(Principal, users | st.just(SUPER), hosts), operations, types, names)


def is_about(pattern: Pattern, name: str) -> bool:
    if pattern.pattern_type is PatternType.PREFIXED:
        return name.startswith(pattern.name)
    return pattern.name in (name, "*")


def counts(entry: AclEntry, principal: Principal, wanted: set[Operation]) -> bool:
    return (
        entry.principal in ("User:*", principal.name)
        and entry.host in ("*", principal.host)
        and bool(wanted & {entry.operation} or entry.operation is Operation.ALL)
    )


def naively(
    lists: dict[Pattern, frozenset[AclEntry]],
    everyone: bool,
    principal: Principal,
    operation: Operation,
    resource_type: ResourceType,
    name: str,
) -> bool:
    about = [
        entry
        for pattern, found in lists.items()
        for entry in found
        if pattern.resource_type is resource_type and is_about(pattern, name)
    ]
    if principal.name == SUPER:
        return True
    if not about:
        return everyone
    denials = [entry for entry in about if entry.permission is Permission.DENY]
    grants = [entry for entry in about if entry.permission is Permission.ALLOW]
    if any(counts(entry, principal, {operation}) for entry in denials):
        return False
    return any(counts(entry, principal, {operation} | IMPLY.get(operation, set())) for entry in grants)


@given(changes, st.booleans(), st.lists(asked, min_size=1, max_size=6))
def test_decisions_are_those_of_the_rules(
    changed: list[tuple[Pattern, frozenset[AclEntry]]],
    everyone: bool,
    questions: list[tuple[Principal, Operation, ResourceType, str]],
) -> None:
    lists, model = AccessLists([SUPER], everyone_if_none=everyone), dict[Pattern, frozenset[AclEntry]]()
    for pattern, found in changed:
        lists.replace(pattern, found)
        model[pattern] = found
        # Asked after each change: a decision from before must not stay.
        for question in questions:
            assert lists.allows(*question) == naively(model, everyone, *question)


@given(changes, st.booleans(), asked)
def test_some_resource_is_allowed_as_single_ones_are(
    changed: list[tuple[Pattern, frozenset[AclEntry]]],
    everyone: bool,
    question: tuple[Principal, Operation, ResourceType, str],
) -> None:
    lists = AccessLists([SUPER], everyone_if_none=everyone)
    for pattern, found in changed:
        lists.replace(pattern, found)
    principal, _, resource_type, name = question
    # A right to write is not implied by another: whoever may write to one name may write to some.
    if lists.allows(principal, Operation.WRITE, resource_type, name):
        assert lists.allows_some(principal, Operation.WRITE, resource_type)


@given(patterns.filter(lambda pattern: "/" not in pattern.name), st.frozensets(entries, max_size=5))
def test_a_znode_is_read_as_it_was_written(pattern: Pattern, found: frozenset[AclEntry]) -> None:
    assert Pattern.at(pattern.path) == pattern
    assert AclRecord.decode(pattern.path, AclRecord(found).encode()).entries == found
