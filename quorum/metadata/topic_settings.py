"""The settings of a topic: their names, defaults and checks. Pure.

Decides what a value may be; the reader of a setting decides what it does. The names and defaults are Kafka's.
Only settings that something obeys are known: an unknown one is refused by name, so that nobody trusts a limit
that has no effect. Settings travel as texts, in /config/topics/T and on Kafka's wire.
Source: Kafka's topic configuration (3.9); control-plane design, "Log".
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final, NamedTuple

from quorum.metadata.errors import InvalidTopicSettingError, UnknownTopicSettingError

#: Bytes of the text of one setting, of a topic or a broker: all settings together must fit one write.
SETTING_BYTES_MAX: Final = 32 * 1024
LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
#: The smallest segment.bytes, unless an operator allows less: each segment costs files, fsyncs and a roll.
SEGMENT_BYTES_MIN: Final = 1024 * 1024
_SEGMENT_BYTES: Final = "segment.bytes"
_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
_DAY_MS: Final = 86_400_000


class Setting(NamedTuple):
    """One setting of a topic.

    Attributes:
        name: Kafka's name.
        field: its field of TopicSettings.
        kind: type as DescribeConfigs gives it: 1 boolean, 2 string, 3 int, 5 long, 7 list.
        wanted: the words for "expected …".
        read: text → value; raises ValueError.
        documentation: one sentence.
    """

    name: str
    field: str
    kind: int
    wanted: str
    read: Callable[[str], int | bool | str]
    documentation: str


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The effective settings of one topic."""

    #: Milliseconds that a closed segment is kept after its newest record; -1: for ever.
    retention_ms: int = 7 * _DAY_MS
    #: Bytes of a partition's log above which its oldest segments go; -1: no limit.
    retention_bytes: int = -1
    #: Bytes at which a segment is closed and the next one begins.
    segment_bytes: int = 1024 * 1024 * 1024
    #: Largest record batch, in bytes as it is stored.
    max_message_bytes: int = 1_048_588
    #: In-sync replicas that an acknowledgement with acks=all needs.
    min_insync_replicas: int = 1
    #: Whether a replica outside the ISR may be elected when no other is left. Records can be lost by that.
    unclean_leader_election_enable: bool = False
    cleanup_policy: str = "delete"
    compression_type: str = "producer"
    message_timestamp_type: str = "CreateTime"
    #: Replicas whose copying the rates of their brokers limit, at the leader and at the follower:
    #: "partition:broker,…", or "*" for all.
    leader_replication_throttled_replicas: str = ""
    follower_replication_throttled_replicas: str = ""

    def text_of(self, setting: Setting) -> str:
        """Return the value of a setting as Kafka writes it."""
        value: object = getattr(self, setting.field)
        return str(value).lower() if isinstance(value, bool) else str(value)


def _whole(low: int, high: int) -> Callable[[str], int]:
    def read(value: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,19}", value.strip()) or not low <= int(value) <= high:
            raise ValueError(value)
        return int(value)

    return read


def _boolean(value: str) -> bool:
    lowered = value.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError(value)
    return lowered == "true"


def _only(known: str) -> Callable[[str], str]:
    def read(value: str) -> str:
        if value.strip() != known:
            raise ValueError(value)
        return known

    return read


def _replica_list(value: str) -> str:
    if not re.fullmatch(r"\*|([0-9]{1,10}:[0-9]{1,10}(,[0-9]{1,10}:[0-9]{1,10})*)?", value.strip()):
        raise ValueError(value)
    return value.strip()


def _throttled(role: str, name: str) -> Setting:
    return Setting(
        name,
        name.replace(".", "_"),
        7,
        "'*', or a list partition:broker,partition:broker,…",
        _replica_list,
        f"Replicas whose copying the {role}'s {role}.replication.throttled.rate limits.",
    )


def _number(name: str, kind: int, low: int, high: int, documentation: str) -> Setting:
    return Setting(
        name,
        name.replace(".", "_"),
        kind,
        f"a whole number from {low} to {high}",
        _whole(low, high),
        documentation,
    )


def _fixed(name: str, kind: int, known: str, why: str, documentation: str) -> Setting:
    return Setting(name, name.replace(".", "_"), kind, f"{known!r} ({why})", _only(known), documentation)


_ROWS: Final = (
    _number("retention.ms", 5, -1, _INT64_MAX, "How long closed segments are kept, in milliseconds."),
    _number("retention.bytes", 5, -1, _INT64_MAX, "How many bytes of a partition are kept."),
    _number(_SEGMENT_BYTES, 3, 4096, _INT32_MAX, "The size at which a segment is closed."),
    _number("max.message.bytes", 3, 1, 128 * 1024 * 1024, "The largest record batch."),
    _number("min.insync.replicas", 3, 1, 32767, "In-sync replicas that acks=all needs."),
    Setting(
        "unclean.leader.election.enable",
        "unclean_leader_election_enable",
        1,
        "true or false",
        _boolean,
        "Whether a replica outside the ISR may lead when no other is left; records can be lost.",
    ),
    _fixed("cleanup.policy", 7, "delete", "compaction is not offered", "What happens to old segments."),
    _fixed(
        "compression.type",
        2,
        "producer",
        "brokers store what producers send",
        "The compression of stored batches.",
    ),
    _fixed(
        "message.timestamp.type",
        2,
        "CreateTime",
        "LogAppendTime is not offered yet",
        "Which time a record carries.",
    ),
    _throttled("leader", LEADER_THROTTLED_REPLICAS),
    _throttled("follower", FOLLOWER_THROTTLED_REPLICAS),
)

#: What is wrong with a text that is too long, and the remedy.
TOO_LONG: Final = ("is too long", f"give at most {SETTING_BYTES_MAX} bytes")

#: Every known setting, by Kafka's name.
TOPIC_SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS}


def is_too_long(value: str) -> bool:
    """Say whether the text of a setting has more than SETTING_BYTES_MAX bytes."""
    return len(value.encode("utf-8", "surrogatepass")) > SETTING_BYTES_MAX


def check_topic_settings(overrides: Mapping[str, str], *, segment_bytes_min: int = SEGMENT_BYTES_MIN) -> None:
    """Check settings that somebody gave for a topic.

    Args:
        overrides: {Kafka's name: text}.
        segment_bytes_min: what the operator allows for segment.bytes.

    Raises:
        InvalidTopicSettingError: names the first setting that is unknown or has a value that it cannot have.
    """
    for name, value in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            near = difflib.get_close_matches(name, TOPIC_SETTINGS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise UnknownTopicSettingError(name, value, f"leave it out{hint}, or use a known one")
        if is_too_long(value):
            raise InvalidTopicSettingError(name, value, *TOO_LONG)
        try:
            setting.read(value)
        except ValueError as error:
            raise InvalidTopicSettingError(
                name, value, "is not a valid value", f"give {setting.wanted}"
            ) from error
        if name == _SEGMENT_BYTES and int(value) < segment_bytes_min:
            raise InvalidTopicSettingError(
                name,
                value,
                f"is below {segment_bytes_min}",
                f"give at least {segment_bytes_min}, or lower limits.segment_bytes_min of the brokers",
            )


def effective(defaults: TopicSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """Return the settings of a topic: what is given for it, and the defaults for the rest.

    A stored override that is unknown or malformed counts as not given: another program may have written it.
    """
    values: dict[str, int | bool | str] = {}
    for name, value in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            continue
        try:
            values[setting.field] = setting.read(value)
        except ValueError:
            continue
    return replace(defaults, **values)  # type: ignore[arg-type]  # each value was read by its field's own reader


assert {row.field for row in _ROWS} == {each.name for each in fields(TopicSettings)}
