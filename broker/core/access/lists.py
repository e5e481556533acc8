"""Whether a principal may do something to a resource, as Kafka's AclAuthorizer decides.

Pure. An entry of a wildcard, of the name or of a prefix of it counts. A denial wins over every grant. The
right to read, write, delete or alter includes the right to describe, and that to alter settings includes the
right to see them; a denial includes nothing. Decisions are kept until an access list changes. Soft state: the
znodes below /kafka-acl and /kafka-acl-extended hold it.
Source: kafka.security.authorizer.AclAuthorizer (Kafka 3.9); KIP-290, KIP-679.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

from quorum.metadata.acl_records import (
    EVERYBODY,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

#: Decisions that are kept; more begin anew.
DECISIONS_MAX: Final = 10_000
ANONYMOUS: Final = "User:ANONYMOUS"

#: {what is done: the grants that include it}
_GRANTED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.ALL,
        }
    ),
    Operation.DESCRIBE_CONFIGS: frozenset(
        {Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}
    ),
}


class Principal(NamedTuple):
    """A proved identity and the address that it comes from."""

    #: "User:alice"; one that has proved nothing is "User:ANONYMOUS"
    name: str
    host: str


class AccessLists:
    """All access lists, and the decisions that follow from them."""

    def __init__(self, super_users: Collection[str] = (), *, everyone_if_none: bool = False) -> None:
        """Hold no list.

        Args:
            super_users: principals that may do everything.
            everyone_if_none: whether everybody may use a resource that no list is about.
        """
        self._super_users = frozenset(super_users)
        self._everyone_if_none = everyone_if_none
        #: without empty ones
        self._lists: dict[Pattern, frozenset[AclEntry]] = {}
        #: bounded by DECISIONS_MAX
        self._decided: dict[tuple[Principal, Operation, ResourceType, str], bool] = {}

    def replace(self, pattern: Pattern, entries: frozenset[AclEntry]) -> None:
        """Take the list of a pattern; an empty one takes it away."""
        if entries:
            self._lists[pattern] = entries
        else:
            self._lists.pop(pattern, None)
        self._decided.clear()

    def patterns(self) -> Collection[Pattern]:
        """Return the patterns that have a list."""
        return self._lists.keys()

    def bindings(self) -> Iterator[AclBinding]:
        """Return every entry of every pattern, in an order that does not depend on history."""
        for pattern in sorted(self._lists):
            for entry in sorted(self._lists[pattern]):
                yield AclBinding(pattern, entry)

    def allows(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Say whether a principal may do something to the resource of a name."""
        key = (principal, operation, resource_type, name)
        decision = self._decided.get(key)
        if decision is None:
            if len(self._decided) >= DECISIONS_MAX:
                self._decided.clear()
            decision = self._decided[key] = self._decide(*key)
        return decision

    def allows_some(self, principal: Principal, operation: Operation, resource_type: ResourceType) -> bool:
        """Say whether a principal may do something to any resource of a type, whatever its name.

        As in Kafka a grant counts unless a denial covers all its names; a grant of nothing but denied names
        may count if several denials cover it together.
        """
        if principal.name in self._super_users:
            return True
        if self._everyone_if_none:
            return not self._denied(
                Pattern(resource_type, PatternType.LITERAL, WILDCARD), principal, operation
            )
        granted = frozenset({operation, Operation.ALL})
        return any(
            not any(self._denied(wider, principal, operation) for wider in _covering(pattern))
            for pattern, entries in self._lists.items()
            if pattern.resource_type is resource_type
            and any(_matches(entry, principal, Permission.ALLOW, granted) for entry in entries)
        )

    def _decide(
        self, principal: Principal, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal.name in self._super_users:
            return True
        lists = [entries for pattern in _about(resource_type, name) if (entries := self._lists.get(pattern))]
        if not lists:
            return self._everyone_if_none
        denied = frozenset({operation, Operation.ALL})
        granted = _GRANTED_BY.get(operation, denied)
        found = [entry for entries in lists for entry in entries]
        return not any(_matches(entry, principal, Permission.DENY, denied) for entry in found) and any(
            _matches(entry, principal, Permission.ALLOW, granted) for entry in found
        )

    def _denied(self, pattern: Pattern, principal: Principal, operation: Operation) -> bool:
        operations = frozenset({operation, Operation.ALL})
        entries = self._lists.get(pattern, frozenset())
        return any(_matches(entry, principal, Permission.DENY, operations) for entry in entries)


def _about(resource_type: ResourceType, name: str) -> Iterator[Pattern]:
    """Return the patterns that match a name."""
    for literal in dict.fromkeys((WILDCARD, name)):
        yield Pattern(resource_type, PatternType.LITERAL, literal)
    for length in range(1, len(name) + 1):
        yield Pattern(resource_type, PatternType.PREFIXED, name[:length])


def _covering(pattern: Pattern) -> Iterator[Pattern]:
    """Return the patterns that match every name that a pattern matches, itself among them."""
    everything = Pattern(pattern.resource_type, PatternType.LITERAL, WILDCARD)
    if pattern == everything:
        yield everything
        return
    for wider in _about(pattern.resource_type, pattern.name):
        if wider == everything or wider.pattern_type >= pattern.pattern_type:
            yield wider


def _matches(
    entry: AclEntry, principal: Principal, permission: Permission, operations: Collection[Operation]
) -> bool:
    return (
        entry.permission is permission
        and entry.operation in operations
        and entry.principal in (principal.name, EVERYBODY)
        and entry.host in (principal.host, WILDCARD)
    )
