"""The settings of a topic: what holds for it, and what somebody may give for it. Pure.

Decides what a value may be; the reader of a setting decides what it does. The table of settings is
topic_setting_rows.py. Settings travel as texts, in /config/topics/T and on Kafka's wire.
Source: Kafka's topic configuration (3.9); ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import Final

from quorum.metadata.errors import (
    ConflictingTopicSettingsError,
    InvalidTopicSettingError,
    NullTopicSettingError,
    UnknownTopicSettingError,
)
from quorum.metadata.topic_setting_rows import (
    COMPACT,
    CREATE_TIME,
    DAY_MS,
    DELETE,
    INT64_MAX,
    LOG_APPEND_TIME,
    SEGMENT_BYTES,
    TOPIC_SETTINGS,
    Setting,
    Value,
    text_of,
)

#: Bytes of the text of one setting, of a topic or a broker: all settings together must fit one write.
SETTING_BYTES_MAX: Final = 32 * 1024
#: The smallest segment.bytes, unless an operator allows less: each segment costs files, fsyncs and a roll.
SEGMENT_BYTES_MIN: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The effective settings of one topic."""

    #: Milliseconds that a closed segment is kept after its newest record; -1: for ever.
    retention_ms: int = 7 * DAY_MS
    #: Bytes of a partition's log above which its oldest segments go; -1: no limit.
    retention_bytes: int = -1
    #: Bytes at which a segment is closed and the next one begins.
    segment_bytes: int = 1024 * 1024 * 1024
    #: Milliseconds after which a segment is closed.
    segment_ms: int = 7 * DAY_MS
    #: Records after which a log is fsynced, and milliseconds; INT64_MAX: no limit.
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    #: Largest record batch, in bytes as it is stored.
    max_message_bytes: int = 1_048_588
    #: In-sync replicas that an acknowledgement with acks=all needs.
    min_insync_replicas: int = 1
    #: Whether a replica outside the ISR may be elected when no other is left. Records can be lost by that.
    unclean_leader_election_enable: bool = False
    #: What happens to old records: a list of "delete" and "compact", in any order.
    cleanup_policy: str = DELETE
    #: The share of a compacted log that is not compacted yet, above which it is.
    min_cleanable_dirty_ratio: float = 0.5
    #: How long a record stays uncompacted at least, and at most; and how long a tombstone stays afterwards.
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = DAY_MS
    #: Nothing obeys it: batches are stored as producers send them.
    compression_type: str = "producer"
    #: Whether a batch carries the time of its producer, CreateTime, or of its leader, LogAppendTime.
    message_timestamp_type: str = CREATE_TIME
    #: How much older, and how much newer, than the leader's time a record may be, in milliseconds.
    message_timestamp_before_max_ms: int = INT64_MAX
    message_timestamp_after_max_ms: int = INT64_MAX
    #: Deprecated: both, where they have their defaults.
    message_timestamp_difference_max_ms: int = INT64_MAX
    #: Replicas whose copying the rates of their brokers limit, at the leader and at the follower:
    #: "partition:broker,…", or "*" for all.
    leader_replication_throttled_replicas: str = ""
    follower_replication_throttled_replicas: str = ""

    @property
    def compacts(self) -> bool:
        """Whether the last record of each key stays, and every record must have one."""
        return COMPACT in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        """Whether segments go by retention.ms and retention.bytes."""
        return DELETE in self.cleanup_policy

    @property
    def has_append_time(self) -> bool:
        """Whether batches get the time at which they are appended."""
        return self.message_timestamp_type == LOG_APPEND_TIME

    @property
    def timestamp_before_max_ms(self) -> int:
        """How much older than the leader's time a record may be; INT64_MAX: no limit."""
        return self._limit(self.message_timestamp_before_max_ms)

    @property
    def timestamp_after_max_ms(self) -> int:
        """How much newer than the leader's time a record may be; INT64_MAX: no limit."""
        return self._limit(self.message_timestamp_after_max_ms)

    def _limit(self, own: int) -> int:
        return self.message_timestamp_difference_max_ms if own == INT64_MAX else own


#: What is wrong with a text that is too long, and the remedy.
TOO_LONG: Final = ("is too long", f"give at most {SETTING_BYTES_MAX} bytes")

_FIELDS: Final = frozenset(each.name for each in fields(TopicSettings))


def is_too_long(value: str) -> bool:
    """Say whether the text of a setting has more than SETTING_BYTES_MAX bytes."""
    return len(value.encode("utf-8", "surrogatepass")) > SETTING_BYTES_MAX


def near_miss(name: str) -> str:
    """Return a question after the setting that a wrong name is near to; empty if there is none."""
    near = difflib.get_close_matches(name, TOPIC_SETTINGS, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def given_settings(
    settings: Mapping[str, str | None], *, segment_bytes_min: int = SEGMENT_BYTES_MIN
) -> dict[str, str]:
    """Return settings that a client gave for a new topic; raises InvalidTopicSettingError.

    Args:
        settings: {Kafka's name: text, or None, which no setting may be}.
        segment_bytes_min: what the operator allows for segment.bytes.
    """
    nulls = [name for name, value in settings.items() if value is None]
    if nulls:
        raise NullTopicSettingError(",".join(nulls), "", "", "leave them out")
    given = {name: value for name, value in settings.items() if value is not None}
    check_topic_settings(given, segment_bytes_min=segment_bytes_min)
    return given


def check_topic_settings(
    overrides: Mapping[str, str],
    *,
    segment_bytes_min: int = SEGMENT_BYTES_MIN,
    after: Mapping[str, str] | None = None,
) -> None:
    """Check settings that somebody gave for a topic.

    Args:
        overrides: {Kafka's name: text}.
        segment_bytes_min: what the operator allows for segment.bytes.
        after: all that is given for the topic afterwards; None: these alone.

    Raises:
        InvalidTopicSettingError: names the first setting that is unknown or has a value that it cannot have.
    """
    for name, value in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None:
            remedy = f"leave it out{near_miss(name)}, or use a known one"
            raise UnknownTopicSettingError(name, value, "", remedy)
        if is_too_long(value):
            raise InvalidTopicSettingError(name, value, *TOO_LONG)
        try:
            setting.read(value)
        except ValueError as error:
            raise InvalidTopicSettingError(
                name, value, "is not a valid value", f"give {setting.wanted}"
            ) from error
        if name == SEGMENT_BYTES and int(value) < segment_bytes_min:
            raise InvalidTopicSettingError(
                name,
                value,
                f"is below {segment_bytes_min}",
                f"give at least {segment_bytes_min}, or lower limits.segment_bytes_min of the brokers",
            )
    whole = effective(TopicSettings(), overrides if after is None else after)
    shortest_ms, longest_ms = whole.min_compaction_lag_ms, whole.max_compaction_lag_ms
    if shortest_ms > longest_ms:
        raise ConflictingTopicSettingsError(
            "min.compaction.lag.ms",
            str(shortest_ms),
            f"min.compaction.lag.ms ({shortest_ms}) > max.compaction.lag.ms ({longest_ms})",
            "lower the first one, or raise the second",
        )


def effective(defaults: TopicSettings, overrides: Mapping[str, str]) -> TopicSettings:
    """Return the settings of a topic: what is given for it, and the defaults for the rest.

    A stored override that is unknown or malformed counts as not given: another program may have written it.
    """
    values: dict[str, Value] = {}
    for name, value in overrides.items():
        setting = TOPIC_SETTINGS.get(name)
        if setting is None or setting.field not in _FIELDS:
            continue
        try:
            values[setting.field] = setting.read(value)
        except ValueError:
            continue
    return replace(defaults, **values)  # type: ignore[arg-type]  # each value was read by its field's own reader


def shown_value(setting: Setting, defaults: TopicSettings, override: str | None) -> str:
    """Return the text of one setting of a topic.

    Args:
        setting: which one.
        defaults: the broker's.
        override: what is given for the topic; a malformed one counts as not given.
    """
    value: Value = getattr(defaults, setting.field, setting.default)
    if override is not None:
        with suppress(ValueError):
            value = setting.read(override)
    return text_of(value)


assert {row.field for row in TOPIC_SETTINGS.values() if not row.no_effect} <= _FIELDS
assert all(getattr(TopicSettings(), row.field, row.default) == row.default for row in TOPIC_SETTINGS.values())
