"""The sections of broker.toml that say how a broker works: their keys, what each takes, and the defaults.

What a key does is decided where it is used. Security, listeners and SASL have modules of their own.
Source: the names are Kafka's with `_` for `.`; deploy/broker.toml shows all.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorum.config.address import Address, parse_member_address
from quorum.config.settings import BOOLEAN, OPTIONAL_PATH, PATH, ValueKind, integer, setting, text
from quorum.metadata.topic_setting_rows import TOPIC_SETTINGS, Value, text_of
from quorum.metadata.topic_settings import SEGMENT_BYTES_MIN, TopicSettings

BROKER_ID_MAX = 2**31 - 1
_MIB = 1024 * 1024
_HOUR_MS = 3_600_000


def _hosts(value: object, _folder: Path) -> tuple[Address, ...]:
    if not isinstance(value, list) or not value:
        raise ValueError("is not a list of host:port")
    return tuple(parse_member_address(each if isinstance(each, str) else "") for each in value)


_HOSTS = ValueKind('a list of host:port, as ["127.0.0.1:2181"]', _hosts, listed=True)


@dataclass(frozen=True, slots=True)
class BrokerSection:
    """The broker's identity, and how it takes part in the cluster."""

    id: int = setting(integer(0, BROKER_ID_MAX))
    data_dir: Path = setting(PATH)
    rack: str = setting(text(r"[^\x00-\x1f]{0,249}", "a name of at most 249 characters"), "")
    session_timeout_ms: int = setting(integer(100, _HOUR_MS), 6000)
    replica_lag_time_max_ms: int = setting(integer(100, _HOUR_MS), 30_000)
    control_request_timeout_ms: int = setting(integer(100, _HOUR_MS), 30_000)
    #: how the controller's requests reach brokers; the setting of the broker that is elected counts
    channel: str = setting(text("direct|queue", "direct or queue"), "direct")
    #: how often a broker that stops asks again that others lead what it leads; 0: it asks once
    controlled_shutdown_max_retries: int = setting(integer(0, 100), 3)
    controlled_shutdown_retry_backoff_ms: int = setting(integer(1, _HOUR_MS), 5_000)
    #: whether the controller gives leaderships back to preferred replicas by itself
    auto_leader_rebalance_enable: bool = setting(BOOLEAN, True)
    leader_imbalance_check_interval_ms: int = setting(integer(10, 24 * _HOUR_MS), 300_000)
    #: leaderships that a broker may lack, in percent of those that are preferably its
    leader_imbalance_per_broker_percentage: int = setting(integer(0, 100), 10)
    auto_create_topics: bool = setting(BOOLEAN, False)
    num_partitions: int = setting(integer(1, 100_000), 1)
    default_replication_factor: int = setting(integer(1, 1000), 1)
    #: where the steps of the controller's and the replicas' machines are recorded, for reports of faults
    record_dir: Path | None = setting(OPTIONAL_PATH, None)


@dataclass(frozen=True, slots=True)
class QuorumSection:
    """The metadata quorum."""

    hosts: tuple[Address, ...] = setting(_HOSTS, (Address("127.0.0.1", 2181),))
    #: dial them by TLS, [tls.quorum]
    ssl: bool = setting(BOOLEAN, False)
    #: prove this name by SASL DIGEST-MD5 there; its password is in the file
    sasl_username: str = setting(text(".*", "a name"), "")
    sasl_password_file: Path | None = setting(OPTIONAL_PATH, None)


@dataclass(frozen=True, slots=True)
class GroupsSection:
    """Consumer groups; the names are Kafka's where it has such a setting."""

    group_min_session_timeout_ms: int = setting(integer(1, 2**31 - 1), 1_000)
    group_max_session_timeout_ms: int = setting(integer(1, 2**31 - 1), 1_800_000)
    #: how long the first members of an empty group wait for others
    group_initial_rebalance_delay_ms: int = setting(integer(0, _HOUR_MS), 3_000)
    #: members of a group
    group_max_size: int = setting(integer(1, 100_000), 1_000)
    #: what the members of a group send to each other, in bytes as it is stored
    group_bytes_max: int = setting(integer(1024, 16 * _MIB), 8 * _MIB)
    groups_max: int = setting(integer(1, 1_000_000), 10_000)
    #: what all groups hold in the memory of each node of the quorum, offsets included, roughly
    groups_bytes_max: int = setting(integer(_MIB, 1024 * 1024 * _MIB), 128 * _MIB)
    #: how often a write of a group is repeated whose outcome is unknown, or whose ground has moved
    rebalance_retries_max: int = setting(integer(0, 100), 7)
    #: of groups whose coordinator assigns: a member that is silent for so long is dead
    group_consumer_session_timeout_ms: int = setting(integer(100, _HOUR_MS), 45_000)
    #: how often such a member shall be heard
    group_consumer_heartbeat_interval_ms: int = setting(integer(10, _HOUR_MS), 5_000)
    #: assignments of such a group are at least so far apart
    group_consumer_assignment_interval_ms: int = setting(integer(0, _HOUR_MS), 1_000)
    #: whether a group with members may go over to the other protocol: to KIP-848, back, both, or not at all
    group_consumer_migration_policy: str = setting(
        text("bidirectional|upgrade|downgrade|disabled", "bidirectional, upgrade, downgrade or disabled"),
        "bidirectional",
    )
    #: of one committed offset
    offset_metadata_max_bytes: int = setting(integer(0, 64 * 1024), 4_096)
    #: offsets of a group that has been empty for so long are removed
    offsets_retention_minutes: int = setting(integer(1, 2**31 - 1), 10_080)


@dataclass(frozen=True, slots=True)
class TransactionsSection:
    """Transactions, under Kafka's names."""

    #: a producer that asks for a longer time-out is refused
    transaction_max_timeout_ms: int = setting(integer(1, 2**31 - 1), 900_000)
    #: an id that nobody has used for so long is removed, and its producer fenced
    transactional_id_expiration_ms: int = setting(integer(1, 2**31 - 1), 604_800_000)
    #: a leader asks the coordinator before it appends the first record of a transaction
    transaction_partition_verification_enable: bool = setting(BOOLEAN, True)


@dataclass(frozen=True, slots=True)
class BrokerLimitsSection:
    """What clients may ask for."""

    #: of one listener; above it the connection goes that is idle the longest
    connections_max: int = setting(integer(1, 1_000_000), 10_000)
    #: of one address, on all listeners of clients together; 0: no limit
    connections_per_address_max: int = setting(integer(0, 2**31 - 1), 0)
    #: a connection that waits for nothing and was silent for so long is closed, other brokers' apart
    connections_max_idle_ms: int = setting(integer(100, 2**31 - 1), 600_000)
    #: largest Produce request, in bytes; others have bounds of their own (controller/wire/apis.py)
    frame_bytes_max: int = setting(integer(1024, 1024 * _MIB), 100 * _MIB)
    #: requests of one connection that wait for their responses; reading pauses there
    requests_in_flight_max: int = setting(integer(1, 100_000), 100)
    #: what the connections of one listener hold together: of requests that are not answered yet
    received_bytes_total_max: int = setting(integer(1024, 1024 * 1024 * _MIB), 512 * _MIB)
    #: and of answers that nobody reads; above these the connection goes that holds the most
    unread_bytes_total_max: int = setting(integer(1024, 1024 * 1024 * _MIB), 256 * _MIB)
    #: incremental fetch sessions of followers and clients; 0: none are given
    max_incremental_fetch_session_cache_slots: int = setting(integer(0, 1_000_000), 1_000)
    #: log files that are open at once
    open_files_max: int = setting(integer(16, 1_000_000), 1024)
    #: the smallest segment.bytes that a topic may have: a segment costs files, fsyncs and a roll
    segment_bytes_min: int = setting(integer(4096, 1024 * _MIB), SEGMENT_BYTES_MIN)
    #: of all topics together; above it clients create none. What the controller's broker says counts
    partitions_max: int = setting(integer(1, 10_000_000), 200_000)


@dataclass(frozen=True, slots=True)
class CleanerSection:
    """Compaction; the names are Kafka's."""

    #: between two looks at which logs are to be compacted
    log_cleaner_backoff_ms: int = setting(integer(1, _HOUR_MS), 15_000)
    #: what the keys of one round take in memory; keys that do not fit are for the next round
    log_cleaner_dedupe_buffer_size: int = setting(integer(_MIB, 1024 * 1024 * _MIB), 128 * _MIB)
    #: what is read and written for compaction in a second
    log_cleaner_io_max_bytes_per_second: int = setting(integer(1024, 2**63 - 1), 2**63 - 1)


def _topic_setting(name: str) -> Any:
    """Declare the default of a topic setting, read as the setting itself is."""
    row = TOPIC_SETTINGS[name]

    def read(value: Any, _folder: Path) -> Value:
        try:
            return row.read(text_of(value))
        except ValueError as error:
            raise ValueError(f"is not {row.wanted}") from error

    return setting(ValueKind(row.wanted, read), getattr(TopicSettings(), row.field))


@dataclass(frozen=True, slots=True)
class TopicsSection:
    """The default of every topic setting that is not about single replicas."""

    retention_ms: int = _topic_setting("retention.ms")
    retention_bytes: int = _topic_setting("retention.bytes")
    segment_bytes: int = _topic_setting("segment.bytes")
    segment_ms: int = _topic_setting("segment.ms")
    cleanup_policy: str = _topic_setting("cleanup.policy")
    min_cleanable_dirty_ratio: float = _topic_setting("min.cleanable.dirty.ratio")
    min_compaction_lag_ms: int = _topic_setting("min.compaction.lag.ms")
    max_compaction_lag_ms: int = _topic_setting("max.compaction.lag.ms")
    delete_retention_ms: int = _topic_setting("delete.retention.ms")
    max_message_bytes: int = _topic_setting("max.message.bytes")
    min_insync_replicas: int = _topic_setting("min.insync.replicas")
    unclean_leader_election_enable: bool = _topic_setting("unclean.leader.election.enable")
    message_timestamp_type: str = _topic_setting("message.timestamp.type")
    message_timestamp_before_max_ms: int = _topic_setting("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = _topic_setting("message.timestamp.after.max.ms")
