"""Kafka's settings of topics: one row each, with name, type, default, check, and what it does here. Pure.

Knows the whole of Kafka's table; a test compares names, types and defaults with Kafka's own. One that nothing
obeys is taken and says why it has no effect, unless records would be lost because nothing obeys it: of such a
one only the value is taken that loses none.
Source: Kafka's topic configuration (3.9.1, LogConfig).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
SEGMENT_BYTES: Final = "segment.bytes"
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
#: the items of cleanup.policy
COMPACT: Final = "compact"
DELETE: Final = "delete"
_INT32_MAX: Final = 2**31 - 1
#: Where a limit of time is this, there is none.
INT64_MAX: Final = 2**63 - 1
DAY_MS: Final = 86_400_000

Value = int | float | bool | str


class Kind(IntEnum):
    """The type of a setting, as DescribeConfigs gives it."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Setting(NamedTuple):
    """One setting of a topic.

    Attributes:
        name: Kafka's name.
        kind: its type.
        default: where nobody gives it, not even broker.toml.
        wanted: the words for "expected …".
        read: text → value; raises ValueError.
        documentation: one sentence.
        no_effect: why nothing obeys it; "": something does.
    """

    name: str
    kind: Kind
    default: Value
    wanted: str
    read: Callable[[str], Value]
    documentation: str
    no_effect: str = ""

    @property
    def field(self) -> str:
        """Its field of TopicSettings, if something obeys it."""
        return self.name.replace(".", "_")


def text_of(value: object) -> str:
    """Return the value of a setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def items_of(value: str) -> list[str]:
    """Return the items of a list as a text has them, in order."""
    return [each.strip() for each in value.split(",")] if value.strip() else []


# -- readers -------------------------------------------------------------------------------------------------


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,19}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(value)
        return int(value)

    return read


def _share(value: str) -> float:
    found = float(value)
    # nan is on neither side.
    if not 0 <= found <= 1:
        raise ValueError(value)
    return found


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(value)
    return lowered == "true"


def _false(value: str) -> bool:
    if _boolean(value):
        raise ValueError(value)
    return False


def _one_of(known: Sequence[str]) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.strip() not in known:
            raise ValueError(value)
        return value.strip()

    return read


#: Kafka's releases until 3.9
_LINES: Final = r"(0\.(8|9|10|11)\.[0-2]|1\.[01]|2\.[0-8]|3\.[0-9]|4\.0)"


def _format_version(value: str) -> str:
    """Read a version of Kafka; nothing depends on which one."""
    if not re.fullmatch(rf"{_LINES}(\.[0-9]+)*(-IV[0-9])?", value.strip()):
        raise ValueError(value)
    return value.strip()


def _cleanup_policy(value: str) -> str:
    found = items_of(value)
    if not set(found) <= {COMPACT, DELETE}:
        raise ValueError(value)
    return ",".join(found)


def _gzip_level(value: str) -> int:
    found = _whole(-1, 9)(value)
    if not found:
        raise ValueError(value)
    return found


def _replica_list(value: str) -> str:
    found = items_of(value)
    if found != ["*"] and not all(re.fullmatch(r"[0-9]{1,10}:[0-9]{1,10}", each) for each in found):
        raise ValueError(value)
    return ",".join(found)


# -- rows ----------------------------------------------------------------------------------------------------

_INT: Final = Kind.INT
_LONG: Final = Kind.LONG


def _number(
    name: str, kind: Kind, low: int, high: int, default: int, documentation: str, no_effect: str = ""
) -> Setting:
    wanted = f"a whole number from {low} to {high}"
    return Setting(name, kind, default, wanted, _whole(low, high), documentation, no_effect)


def _length_of_time(name: str, low: int, default: int, documentation: str, no_effect: str = "") -> Setting:
    return _number(name, _LONG, low, INT64_MAX, default, documentation, no_effect)


def _switch(name: str, default: bool, documentation: str, no_effect: str = "") -> Setting:
    return Setting(name, Kind.BOOLEAN, default, "true or false", _boolean, documentation, no_effect)


def _choice(
    name: str, known: Sequence[str], default: str, documentation: str, no_effect: str = ""
) -> Setting:
    wanted = f"one of {', '.join(known)}"
    return Setting(name, Kind.STRING, default, wanted, _one_of(known), documentation, no_effect)


def _throttled(role: str, name: str) -> Setting:
    wanted = "'*', or a list partition:broker,partition:broker,…"
    documentation = f"Replicas whose copying the {role}'s {role}.replication.throttled.rate limits."
    return Setting(name, Kind.LIST, "", wanted, _replica_list, documentation)


def _tiered(name: str, documentation: str) -> Setting:
    wanted = "false: tiered storage is not offered, and records would be in no other place"
    return Setting(name, Kind.BOOLEAN, False, wanted, _false, documentation, _NOT_TIERED)


_AS_SENT: Final = "batches are stored as producers send them"
_NOT_TIERED: Final = "tiered storage is not offered"
_ONE_FORMAT: Final = "records are stored and sent in format 2 alone"
_OWN_INDEXES: Final = "an index has an entry every 4096 bytes, and grows with its segment"

_ROWS: Final = (
    Setting(
        "cleanup.policy",
        Kind.LIST,
        DELETE,
        f"{DELETE}, {COMPACT}, or both",
        _cleanup_policy,
        "What happens to old records: they are deleted, the last one of each key stays, or both.",
    ),
    Setting(
        "compression.gzip.level",
        _INT,
        -1,
        "a whole number from 1 to 9, or -1",
        _gzip_level,
        "The level of gzip; -1: its default.",
        _AS_SENT,
    ),
    _number("compression.lz4.level", _INT, 1, 17, 9, "The level of lz4.", _AS_SENT),
    _choice(
        "compression.type",
        ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        "producer",
        "The compression of stored batches.",
        _AS_SENT,
    ),
    _number("compression.zstd.level", _INT, -131_072, 22, 3, "The level of zstd.", _AS_SENT),
    _length_of_time("delete.retention.ms", 0, DAY_MS, "How long a compacted log keeps tombstones."),
    _length_of_time(
        "file.delete.delay.ms", 0, 60_000, "How long files wait to be deleted.", "they are deleted at once"
    ),
    _number("flush.messages", _LONG, 1, INT64_MAX, INT64_MAX, "Records between two fsyncs."),
    _length_of_time("flush.ms", 0, INT64_MAX, "Milliseconds between two fsyncs."),
    _throttled("follower", FOLLOWER_THROTTLED_REPLICAS),
    _number(
        "index.interval.bytes", _INT, 0, _INT32_MAX, 4096, "Bytes between two index entries.", _OWN_INDEXES
    ),
    _throttled("leader", LEADER_THROTTLED_REPLICAS),
    _number(
        "local.retention.bytes", _LONG, -2, INT64_MAX, -2, "Bytes that brokers keep themselves.", _NOT_TIERED
    ),
    _length_of_time("local.retention.ms", -2, -2, "How long brokers keep records themselves.", _NOT_TIERED),
    _length_of_time("max.compaction.lag.ms", 1, INT64_MAX, "The longest that a record stays uncompacted."),
    _number("max.message.bytes", _INT, 0, _INT32_MAX, 1_048_588, "The largest record batch, as stored."),
    _switch(
        "message.downconversion.enable",
        True,
        "Whether old consumers get records in old formats.",
        _ONE_FORMAT,
    ),
    Setting(
        "message.format.version",
        Kind.STRING,
        "3.0-IV1",
        "a version of Kafka, as 3.0 or 3.0-IV1",
        _format_version,
        "Deprecated. The format of stored records.",
        _ONE_FORMAT,
    ),
    _length_of_time(
        "message.timestamp.after.max.ms",
        0,
        INT64_MAX,
        "How much newer than its leader's clock a record may be, where it has its producer's time.",
    ),
    _length_of_time(
        "message.timestamp.before.max.ms",
        0,
        INT64_MAX,
        "How much older than its leader's clock a record may be, where it has its producer's time.",
    ),
    _length_of_time(
        "message.timestamp.difference.max.ms",
        0,
        INT64_MAX,
        "Deprecated. Of message.timestamp.before.max.ms and .after.max.ms those that are not set.",
    ),
    _choice(
        "message.timestamp.type",
        (CREATE_TIME, LOG_APPEND_TIME),
        CREATE_TIME,
        "Which time a record has: its producer's, or when its leader appended it.",
    ),
    Setting(
        "min.cleanable.dirty.ratio",
        Kind.DOUBLE,
        0.5,
        "a number from 0 to 1",
        _share,
        "The uncompacted share of a log at which it is compacted.",
    ),
    _length_of_time("min.compaction.lag.ms", 0, 0, "How long a record stays uncompacted."),
    _number("min.insync.replicas", _INT, 1, _INT32_MAX, 1, "In-sync replicas that acks=all needs."),
    _switch(
        "preallocate", False, "Whether a segment's file has its size at once.", "files grow with records"
    ),
    _tiered("remote.log.copy.disable", "Whether no more is copied to tiered storage."),
    _tiered("remote.log.delete.on.disable", "Whether tiered records go when tiered storage ends."),
    _tiered("remote.storage.enable", "Whether records are copied to tiered storage."),
    _number(
        "retention.bytes", _LONG, -INT64_MAX - 1, INT64_MAX, -1, "How many bytes of a partition are kept."
    ),
    _length_of_time("retention.ms", -1, 7 * DAY_MS, "How long closed segments are kept, in milliseconds."),
    Setting(
        *(SEGMENT_BYTES, _INT, 1024**3),
        f"a whole number from the brokers' limits.segment_bytes_min (1048576 by default) to {_INT32_MAX}",
        _whole(4096, _INT32_MAX),
        "The size at which a segment is closed.",
    ),
    _number("segment.index.bytes", _INT, 4, _INT32_MAX, 10 * 1024**2, "The size of an index.", _OWN_INDEXES),
    _length_of_time(
        "segment.jitter.ms", 0, 0, "By how much segments close earlier.", "they close when segment.ms says"
    ),
    _length_of_time("segment.ms", 1, 7 * DAY_MS, "How long a segment is written to, in milliseconds."),
    _switch(
        "unclean.leader.election.enable",
        False,
        "Whether a replica outside the ISR may lead when no other is left; records can be lost.",
    ),
)

#: Every setting, by Kafka's name.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS}
#: {every setting: its default if it is a list, else None}
TOPIC_LISTS: Final[Mapping[str, str | None]] = {
    row.name: text_of(row.default) if row.kind is Kind.LIST else None for row in _ROWS
}
