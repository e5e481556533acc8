"""Which entries a request of DescribeAcls or DeleteAcls asks for.

Pure. Source: Kafka's ResourcePatternFilter and AccessControlEntryFilter (Kafka 3.9); KIP-290.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from quorum.metadata.acl_records import (
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)

#: Kafka's number in a filter: whatever it is
ANY: Final = 1
#: Kafka's number of a pattern type in a filter: every pattern that matches the name
MATCH: Final = 2


class AclFilter(NamedTuple):
    """Asks for entries; None: whatever it is."""

    resource_type: ResourceType | None = None
    name: str | None = None
    #: one type; None: any type, with exactly this name
    pattern_type: PatternType | None = None
    #: whether patterns count that match the name, in place of those that have it
    matching: bool = False
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def wants(self, binding: AclBinding) -> bool:
        """Say whether an entry is asked for."""
        return self._wants_pattern(binding.pattern) and self._wants_entry(binding.entry)

    def _wants_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (None, pattern.resource_type):
            return False
        if self.pattern_type not in (None, pattern.pattern_type):
            return False
        if self.name is None or self.name == pattern.name:
            return True
        if not self.matching:
            return False
        if pattern.pattern_type is PatternType.LITERAL:
            return pattern.name == WILDCARD
        return self.name.startswith(pattern.name)

    def _wants_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (None, entry.operation)
            and self.permission in (None, entry.permission)
        )
