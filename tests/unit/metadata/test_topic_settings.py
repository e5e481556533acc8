"""Settings of topics: what is refused, by name, and what a topic then has."""

from __future__ import annotations

import pytest

from quorum.metadata.broker_settings import (
    FOLLOWER_THROTTLED_RATE,
    LEADER_THROTTLED_RATE,
    RATE_MAX,
    VERIFICATION,
    BrokerSettings,
    check_broker_changes,
    effective_broker_settings,
)
from quorum.metadata.errors import (
    InvalidBrokerSettingError,
    InvalidTopicSettingError,
    UnknownTopicSettingError,
)
from quorum.metadata.records import (
    BrokerConfigRecord,
    IncarnationRecord,
    ProducerIdBlockRecord,
    TopicConfigRecord,
)
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_setting_rows import INT64_MAX, TOPIC_SETTINGS
from quorum.metadata.topic_settings import (
    SETTING_BYTES_MAX,
    TopicSettings,
    check_topic_settings,
    effective,
    shown_value,
)


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("retention.ms", "-2", "a whole number from -1"),
        ("retention.ms", "soon", "a whole number"),
        ("segment.bytes", "1", "from the brokers' limits.segment_bytes_min"),
        ("min.insync.replicas", "0", "from 1"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("cleanup.policy", "compacted", "delete, compact, or both"),
        ("cleanup.policy", "compact;delete", "delete, compact, or both"),
        ("compression.type", "brotli", "one of uncompressed, zstd"),
        ("compression.gzip.level", "0", "from 1 to 9, or -1"),
        ("message.timestamp.type", "LogTime", "one of CreateTime, LogAppendTime"),
        ("message.format.version", "latest", "a version of Kafka"),
        ("min.cleanable.dirty.ratio", "nan", "a number from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "a number from 0 to 1"),
        ("remote.storage.enable", "true", "tiered storage is not offered"),
        ("remote.log.copy.disable", "true", "tiered storage is not offered"),
        ("leader.replication.throttled.replicas", "0:1,1", "a list partition:broker"),
        ("retention.mss", "1", "retention.ms"),
        ("leader.replication.throttled.replicas", "0:1," * 10_000 + "0:1", "at most 32768 bytes"),
        ("retention.ms", " " * 40_000 + "1", "at most 32768 bytes"),
    ],
)
def test_a_wrong_setting_is_refused_by_name_with_a_remedy(name: str, value: str, part: str) -> None:
    with pytest.raises(InvalidTopicSettingError) as caught:
        check_topic_settings({"retention.bytes": "5", name: value})
    assert name in caught.value.message
    assert value[:100] in caught.value.message or isinstance(caught.value, UnknownTopicSettingError)
    assert len(caught.value.message) < 500
    assert part in caught.value.message + caught.value.remedy


def test_an_operator_decides_how_small_a_segment_may_be() -> None:
    with pytest.raises(InvalidTopicSettingError, match="is below 1048576") as caught:
        check_topic_settings({"segment.bytes": "1048575"})
    assert "limits.segment_bytes_min" in caught.value.remedy
    check_topic_settings({"segment.bytes": "1048576"})
    check_topic_settings({"segment.bytes": "4096"}, segment_bytes_min=4096)


def test_a_lag_has_its_least_below_its_most() -> None:
    conflict = r"^conflict topic config setting min.compaction.lag.ms \(6\) > max.compaction.lag.ms \(5\)"
    given = {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"}
    with pytest.raises(InvalidTopicSettingError, match=conflict):
        check_topic_settings(given)
    for name, value in given.items():
        with pytest.raises(InvalidTopicSettingError, match=conflict):
            check_topic_settings({name: value}, after=given)
        check_topic_settings({name: value})
    check_topic_settings({**given, "min.compaction.lag.ms": "5"})


def test_overrides_go_over_defaults_and_foreign_ones_count_as_not_given() -> None:
    defaults = TopicSettings(retention_ms=5, min_insync_replicas=2)
    found = effective(
        defaults,
        {"retention.ms": "-1", "unclean.leader.election.enable": "TRUE", "odd": "1", "segment.bytes": "x"},
    )
    assert found == TopicSettings(retention_ms=-1, min_insync_replicas=2, unclean_leader_election_enable=True)


@pytest.mark.parametrize(
    ("value", "compacts", "deletes"),
    [
        ("compact", True, False),
        ("delete", False, True),
        ("compact,delete", True, True),
        (" delete , compact", True, True),
        ("", False, False),
    ],
)
def test_a_cleanup_policy_is_a_list_in_any_order(value: str, compacts: bool, deletes: bool) -> None:
    check_topic_settings({"cleanup.policy": value})
    found = effective(TopicSettings(), {"cleanup.policy": value})
    assert (found.compacts, found.deletes) == (compacts, deletes)


def test_a_setting_of_a_broker_has_a_bounded_text_too() -> None:
    check_broker_changes(SettingChanges({FOLLOWER_THROTTLED_RATE: "1".rjust(SETTING_BYTES_MAX)}))
    with pytest.raises(InvalidBrokerSettingError, match="at most 32768 bytes"):
        check_broker_changes(SettingChanges({FOLLOWER_THROTTLED_RATE: "1".rjust(SETTING_BYTES_MAX + 1)}))


def test_every_default_passes_its_own_check() -> None:
    defaults = TopicSettings()
    texts = {name: shown_value(setting, defaults, None) for name, setting in TOPIC_SETTINGS.items()}
    check_topic_settings(texts)
    assert effective(TopicSettings(retention_ms=1, segment_bytes=5000), texts) == defaults


def test_a_setting_that_nothing_obeys_is_taken_and_shown_as_it_was_given() -> None:
    given = {
        "compression.type": "zstd",
        "segment.index.bytes": "+10",
        "preallocate": "TRUE",
        "message.format.version": "2.8.1",
        "remote.storage.enable": "FALSE",
        "follower.replication.throttled.replicas": "0:1, 1:2",
    }
    check_topic_settings(given)
    shown = {name: shown_value(TOPIC_SETTINGS[name], TopicSettings(), value) for name, value in given.items()}
    assert list(shown.values()) == ["zstd", "10", "true", "2.8.1", "false", "0:1,1:2"]
    obeyed = TopicSettings(compression_type="zstd", follower_replication_throttled_replicas="0:1,1:2")
    assert effective(TopicSettings(), given) == obeyed
    assert [TOPIC_SETTINGS[name].no_effect != "" for name in given] == [True] * 5 + [False]


@pytest.mark.parametrize(
    ("given", "before", "after"),
    [
        ({}, INT64_MAX, INT64_MAX),
        ({"difference": "5"}, 5, 5),
        ({"difference": "5", "before": "7"}, 7, 5),
        ({"difference": "5", "after": "0"}, 5, 0),
        ({"difference": "5", "before": str(INT64_MAX)}, 5, 5),
    ],
)
def test_the_old_limit_of_times_holds_where_the_new_ones_have_their_defaults(
    given: dict[str, str], before: int, after: int
) -> None:
    found = effective(
        TopicSettings(), {f"message.timestamp.{key}.max.ms": text for key, text in given.items()}
    )
    assert (found.timestamp_before_max_ms, found.timestamp_after_max_ms) == (before, after)


def test_records_of_settings_incarnations_and_producer_ids_are_read_back() -> None:
    config = TopicConfigRecord({"retention.ms": "7"})
    assert TopicConfigRecord.decode("t", config.encode()) == config
    assert config.encode() == b'{"version":1,"config":{"retention.ms":"7"}}'
    block = ProducerIdBlockRecord(1, 1000, 1999)
    assert ProducerIdBlockRecord.decode(block.encode()) == block
    assert block.encode() == b'{"version":1,"broker":1,"block_start":"1000","block_end":"1999"}'
    assert IncarnationRecord.decode(1, IncarnationRecord("a" * 32).encode()).incarnation == "a" * 32


def test_settings_of_a_broker_are_read_back_and_malformed_ones_count_as_not_given() -> None:
    record = BrokerConfigRecord({LEADER_THROTTLED_RATE: "1000"})
    assert record.encode() == b'{"version":1,"config":{"leader.replication.throttled.rate":"1000"}}'
    assert BrokerConfigRecord.decode(1, record.encode()) == record
    defaults = BrokerSettings(verifies_transactions=False)
    assert effective_broker_settings(defaults, record.settings) == BrokerSettings(1000, RATE_MAX, False)
    odd = {FOLLOWER_THROTTLED_RATE: "fast", VERIFICATION: "yes", "odd": "1"}
    assert effective_broker_settings(defaults, odd) == defaults
