"""Who may do what to which of Kafka's resources, as one znode for each pattern of names.

Pure. A literal pattern lives at /kafka-acl/TYPE/NAME, a prefixed one at
/kafka-acl-extended/prefixed/TYPE/NAME. The literal name "*" stands for every name. The numbers are those of
Kafka's requests.
Source: kafka.zk.ZkAclStore, kafka.security.authorizer.AclEntry (Kafka 3.9); KIP-290.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple, TypeVar

from quorum.metadata.decode import JsonFields
from quorum.metadata.paths import KAFKA_ACL, KAFKA_ACL_EXTENDED, KAFKA_ACL_PREFIXED

WILDCARD: Final = "*"
EVERYBODY: Final = "User:*"


class ResourceType(IntEnum):
    """What an entry is about."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a pattern matches names."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a principal does."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """Whether an entry refuses or grants."""

    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """Names of one type."""

    resource_type: ResourceType
    pattern_type: PatternType
    #: a name or "*" if it is literal, else the beginning of names
    name: str

    @property
    def path(self) -> str:
        """The znode of its entries."""
        folder = KAFKA_ACL if self.pattern_type is PatternType.LITERAL else KAFKA_ACL_PREFIXED
        return f"{folder}/{_word(self.resource_type)}/{self.name}"

    @classmethod
    def at(cls, path: str) -> Pattern | None:
        """Return the pattern whose entries a znode holds; None: it is another znode."""
        for folder, pattern_type in (
            (KAFKA_ACL, PatternType.LITERAL),
            (KAFKA_ACL_PREFIXED, PatternType.PREFIXED),
        ):
            below = path.removeprefix(f"{folder}/")
            word, _, name = below.partition("/")
            if below != path and name and "/" not in name and word in _RESOURCE_TYPES:
                return cls(_RESOURCE_TYPES[word], pattern_type, name)
        return None


class AclEntry(NamedTuple):
    """What one principal may, or may not, do from one host."""

    #: "User:alice"; "User:*": everybody
    principal: str
    #: an address; "*": every one
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One entry of one pattern."""

    pattern: Pattern
    entry: AclEntry


class AclRecord(NamedTuple):
    """The value of a pattern's znode, version 1."""

    entries: frozenset[AclEntry]

    def encode(self) -> bytes:
        """Return the JSON value."""
        rows = [
            {
                "principal": entry.principal,
                "permissionType": _word(entry.permission),
                "operation": _word(entry.operation),
                "host": entry.host,
            }
            for entry in sorted(self.entries)
        ]
        return json.dumps({"version": 1, "acls": rows}, separators=(",", ":")).encode("ascii")

    @classmethod
    def decode(cls, path: str, data: bytes | None) -> AclRecord:
        """Read the value at a path.

        Raises:
            MetadataDecodeError: the value is malformed.
        """
        fields = JsonFields.parse(path, data)
        fields.integer("version", 1, 1)
        return cls(frozenset(_entry(row) for row in fields.objects("acls")))


N = TypeVar("N", bound=IntEnum)


def folders() -> Iterator[str]:
    """Name the folders of all patterns, parents first."""
    yield KAFKA_ACL_EXTENDED
    for root in (KAFKA_ACL, KAFKA_ACL_PREFIXED):
        yield root
        for resource_type in ResourceType:
            yield f"{root}/{_word(resource_type)}"


def _entry(row: JsonFields) -> AclEntry:
    return AclEntry(
        row.string("principal"),
        row.string("host"),
        _number(row, "operation", _OPERATIONS),
        _number(row, "permissionType", _PERMISSIONS),
    )


def _number(row: JsonFields, name: str, words: Mapping[str, N]) -> N:
    # Kafka's readers take the words in any capitals.
    found = {word.lower(): number for word, number in words.items()}.get(row.string(name).lower())
    if found is None:
        row.refuse(name, f"one of {', '.join(words)}")
    return found


def _word(number: IntEnum) -> str:
    return "".join(part.capitalize() for part in number.name.split("_"))


def _words(numbers: Iterable[N]) -> Mapping[str, N]:
    return MappingProxyType({_word(number): number for number in numbers})


_RESOURCE_TYPES: Final = _words(ResourceType)
_OPERATIONS: Final = _words(Operation)
_PERMISSIONS: Final = _words(Permission)
