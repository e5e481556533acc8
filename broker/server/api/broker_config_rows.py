"""What a broker runs with, as rows of a DescribeConfigs response, under Kafka's names.

What broker.toml says is read-only, but for the verification of transactions and the connections of one
address: those and the rates of throttled replication change while the broker runs.
Source: Kafka's broker configuration (3.9); deploy/broker.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config.broker import BrokerConfig
from broker.config.listeners import LISTENER_PROTOCOLS
from broker.config.sections import CleanerSection, GroupsSection
from broker.server.api.fetch import FETCH_BYTES_MAX
from broker.server.api.topic_config_rows import ConfigSource, SettingRow, config_row
from controller.core.brokers import BROKER_LISTENER, CLIENT_LISTENER
from quorum.metadata.broker_settings import (
    BROKER_SETTINGS,
    CONNECTIONS_MAX,
    CONNECTIONS_PER_ADDRESS,
    RATE_MAX,
    THROTTLED_RATES,
    VERIFICATION,
)
from quorum.metadata.topic_setting_rows import Kind, text_of
from quorum.metadata.topic_settings import TopicSettings

#: The release whose requests, settings and words these are.
KAFKA_VERSION: Final = "3.9"
_BOOLEAN, _STRING, _INT, _LONG, _LIST = Kind.BOOLEAN, Kind.STRING, Kind.INT, Kind.LONG, Kind.LIST

#: Kafka's name, value, type
_Named = tuple[str, object, Kind]


def broker_config_rows(config: BrokerConfig, overrides: Mapping[str, str]) -> list[SettingRow]:
    """Return the settings of a broker.

    Args:
        config: what it was started with.
        overrides: {Kafka's name: text} of what was set while it ran.
    """
    rows = (
        *_own_rows(config),
        *_group_rows(config.groups),
        *_cleaner_rows(config.cleaner),
        *_topic_rows(config.topics),
    )
    fixed = [_row(name, value, kind) for name, value, kind in rows]
    rates = [
        _changing_row(name, _LONG, (str(RATE_MAX), ConfigSource.DEFAULT), overrides)
        for name in THROTTLED_RATES
    ]
    verifies = text_of(config.transactions.transaction_partition_verification_enable)
    connections = text_of(config.limits.connections_per_address_max or CONNECTIONS_MAX)
    return [
        *fixed,
        *rates,
        _changing_row(VERIFICATION, _BOOLEAN, (verifies, ConfigSource.STATIC_BROKER), overrides),
        _changing_row(CONNECTIONS_PER_ADDRESS, _INT, (connections, ConfigSource.STATIC_BROKER), overrides),
    ]


def _own_rows(config: BrokerConfig) -> list[_Named]:
    broker, limits = config.broker, config.limits
    clients = {CLIENT_LISTENER: config.listen.client, **dict(config.listen.listeners)}
    listened = {**clients, BROKER_LISTENER: config.listen.broker}
    listeners = ",".join(f"{name}://{address}" for name, address in listened.items() if address)
    named = {**config.advertised_clients(), BROKER_LISTENER: config.advertised_broker()}
    advertised = ",".join(f"{name}://{address}" for name, address in named.items())
    spoken = {name: LISTENER_PROTOCOLS.get(name, name) for name in named}
    if config.security.inter_broker_protocol == "ssl":
        spoken[BROKER_LISTENER] = "SASL_SSL"
    protocols = ",".join(f"{name}:{protocol}" for name, protocol in spoken.items())
    # Kafka counts in seconds.
    check_s = -(-broker.leader_imbalance_check_interval_ms // 1000)
    return [
        ("inter.broker.protocol.version", KAFKA_VERSION, _STRING),
        ("zookeeper.connect", ",".join(str(host) for host in config.quorum.hosts), _STRING),
        ("zookeeper.session.timeout.ms", broker.session_timeout_ms, _INT),
        ("zookeeper.set.acl", config.security.protect_znodes, _BOOLEAN),
        ("broker.id", broker.id, _INT),
        ("node.id", broker.id, _INT),
        ("broker.rack", broker.rack or None, _STRING),
        ("log.dirs", broker.data_dir, _STRING),
        ("listeners", listeners, _STRING),
        ("advertised.listeners", advertised, _STRING),
        ("listener.security.protocol.map", protocols, _STRING),
        ("inter.broker.listener.name", "BROKER", _STRING),
        ("replica.lag.time.max.ms", broker.replica_lag_time_max_ms, _LONG),
        ("controller.socket.timeout.ms", broker.control_request_timeout_ms, _INT),
        ("controlled.shutdown.enable", True, _BOOLEAN),
        ("controlled.shutdown.max.retries", broker.controlled_shutdown_max_retries, _INT),
        ("controlled.shutdown.retry.backoff.ms", broker.controlled_shutdown_retry_backoff_ms, _LONG),
        ("auto.leader.rebalance.enable", broker.auto_leader_rebalance_enable, _BOOLEAN),
        ("leader.imbalance.check.interval.seconds", check_s, _LONG),
        ("leader.imbalance.per.broker.percentage", broker.leader_imbalance_per_broker_percentage, _INT),
        ("auto.create.topics.enable", broker.auto_create_topics, _BOOLEAN),
        ("delete.topic.enable", True, _BOOLEAN),
        ("num.partitions", broker.num_partitions, _INT),
        ("default.replication.factor", broker.default_replication_factor, _INT),
        ("max.connections", limits.connections_max, _INT),
        ("connections.max.idle.ms", limits.connections_max_idle_ms, _LONG),
        ("socket.request.max.bytes", limits.frame_bytes_max, _INT),
        ("fetch.max.bytes", FETCH_BYTES_MAX, _INT),
        ("transaction.max.timeout.ms", config.transactions.transaction_max_timeout_ms, _INT),
        ("transactional.id.expiration.ms", config.transactions.transactional_id_expiration_ms, _INT),
    ]


def _group_rows(groups: GroupsSection) -> list[_Named]:
    return [
        ("group.min.session.timeout.ms", groups.group_min_session_timeout_ms, _INT),
        ("group.max.session.timeout.ms", groups.group_max_session_timeout_ms, _INT),
        ("group.initial.rebalance.delay.ms", groups.group_initial_rebalance_delay_ms, _INT),
        ("group.max.size", groups.group_max_size, _INT),
        ("group.coordinator.rebalance.protocols", "classic,consumer", _LIST),
        ("group.consumer.max.size", groups.group_max_size, _INT),
        ("group.consumer.session.timeout.ms", groups.group_consumer_session_timeout_ms, _INT),
        ("group.consumer.heartbeat.interval.ms", groups.group_consumer_heartbeat_interval_ms, _INT),
        ("group.consumer.migration.policy", groups.group_consumer_migration_policy, _STRING),
        ("offset.metadata.max.bytes", groups.offset_metadata_max_bytes, _INT),
        ("offsets.retention.minutes", groups.offsets_retention_minutes, _INT),
    ]


def _cleaner_rows(cleaner: CleanerSection) -> list[_Named]:
    return [
        ("log.cleaner.enable", True, _BOOLEAN),
        ("log.cleaner.backoff.ms", cleaner.log_cleaner_backoff_ms, _LONG),
        ("log.cleaner.dedupe.buffer.size", cleaner.log_cleaner_dedupe_buffer_size, _LONG),
        (
            "log.cleaner.io.max.bytes.per.second",
            float(cleaner.log_cleaner_io_max_bytes_per_second),
            Kind.DOUBLE,
        ),
    ]


def _topic_rows(topics: TopicSettings) -> list[_Named]:
    return [
        ("log.retention.ms", topics.retention_ms, _LONG),
        ("log.retention.bytes", topics.retention_bytes, _LONG),
        ("log.segment.bytes", topics.segment_bytes, _INT),
        ("log.roll.ms", topics.segment_ms, _LONG),
        ("message.max.bytes", topics.max_message_bytes, _INT),
        ("min.insync.replicas", topics.min_insync_replicas, _INT),
        ("unclean.leader.election.enable", topics.unclean_leader_election_enable, _BOOLEAN),
        ("log.cleanup.policy", topics.cleanup_policy, _LIST),
        ("log.cleaner.min.cleanable.ratio", topics.min_cleanable_dirty_ratio, Kind.DOUBLE),
        ("log.cleaner.min.compaction.lag.ms", topics.min_compaction_lag_ms, _LONG),
        ("log.cleaner.max.compaction.lag.ms", topics.max_compaction_lag_ms, _LONG),
        ("log.cleaner.delete.retention.ms", topics.delete_retention_ms, _LONG),
        ("compression.type", topics.compression_type, _STRING),
        ("log.message.timestamp.type", topics.message_timestamp_type, _STRING),
        ("log.message.timestamp.before.max.ms", topics.message_timestamp_before_max_ms, _LONG),
        ("log.message.timestamp.after.max.ms", topics.message_timestamp_after_max_ms, _LONG),
    ]


def _changing_row(
    name: str, kind: Kind, default: tuple[str, ConfigSource], overrides: Mapping[str, str]
) -> SettingRow:
    values = [default]
    if name in overrides:
        values.insert(0, (overrides[name], ConfigSource.DYNAMIC_BROKER))
    return config_row(name, kind, values, BROKER_SETTINGS[name])


def _row(name: str, value: object, kind: Kind) -> SettingRow:
    text = None if value is None else text_of(value)
    return config_row(name, kind, [(text, ConfigSource.STATIC_BROKER)], None, read_only=True)
