"""What a broker runs with, as rows of a DescribeConfigs response, under Kafka's names.

What broker.toml says is read-only; the rates of throttled replication change while the broker runs.
Source: Kafka's broker configuration (3.9); deploy/broker.toml.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.config.broker import BrokerConfig
from broker.server.api.topic_config_rows import ConfigSource
from quorum.metadata.broker_settings import BROKER_SETTINGS, RATE_MAX

_BOOLEAN: Final = 1
_STRING: Final = 2
_INT: Final = 3
_LONG: Final = 5
_LIST: Final = 7


def broker_config_rows(config: BrokerConfig, overrides: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the settings of a broker.

    Args:
        config: what it was started with.
        overrides: {Kafka's name: text} of what was set while it ran.
    """
    broker, limits, topics = config.broker, config.limits, config.topics
    listeners = f"CLIENT://{config.listen.client},BROKER://{config.listen.broker}"
    advertised = f"CLIENT://{config.advertised_client()},BROKER://{config.advertised_broker()}"
    rows: list[tuple[str, object, int]] = [
        ("zookeeper.connect", ",".join(str(host) for host in config.quorum.hosts), _STRING),
        ("zookeeper.session.timeout.ms", broker.session_timeout_ms, _INT),
        ("broker.id", broker.id, _INT),
        ("broker.rack", broker.rack or None, _STRING),
        ("log.dirs", broker.data_dir, _STRING),
        ("listeners", listeners, _LIST),
        ("advertised.listeners", advertised, _LIST),
        ("replica.lag.time.max.ms", broker.replica_lag_time_max_ms, _LONG),
        ("auto.create.topics.enable", broker.auto_create_topics, _BOOLEAN),
        ("num.partitions", broker.num_partitions, _INT),
        ("default.replication.factor", broker.default_replication_factor, _INT),
        ("max.connections", limits.connections_max, _INT),
        ("connections.max.idle.ms", limits.connections_max_idle_ms, _LONG),
        ("socket.request.max.bytes", limits.frame_bytes_max, _INT),
        ("log.retention.ms", topics.retention_ms, _LONG),
        ("log.retention.bytes", topics.retention_bytes, _LONG),
        ("log.segment.bytes", topics.segment_bytes, _INT),
        ("log.roll.ms", topics.segment_ms, _LONG),
        ("message.max.bytes", topics.max_message_bytes, _INT),
        ("min.insync.replicas", topics.min_insync_replicas, _INT),
        ("unclean.leader.election.enable", topics.unclean_leader_election_enable, _BOOLEAN),
        ("log.cleanup.policy", topics.cleanup_policy, _LIST),
        ("compression.type", topics.compression_type, _STRING),
        ("log.message.timestamp.type", topics.message_timestamp_type, _STRING),
    ]
    fixed = [_row(name, value, kind) for name, value, kind in rows]
    return fixed + [_changing_row(name, overrides) for name in BROKER_SETTINGS]


def _changing_row(name: str, overrides: Mapping[str, str]) -> dict[str, Any]:
    synonyms = [{"name": name, "value": str(RATE_MAX), "source": ConfigSource.DEFAULT}]
    if name in overrides:
        synonyms.insert(0, {"name": name, "value": overrides[name], "source": ConfigSource.DYNAMIC_BROKER})
    return {
        "name": name,
        "value": synonyms[0]["value"],
        "read_only": False,
        "config_source": synonyms[0]["source"],
        "is_sensitive": False,
        "synonyms": synonyms,
        "config_type": _LONG,
        "documentation": BROKER_SETTINGS[name],
    }


def _row(name: str, value: object, kind: int) -> dict[str, Any]:
    text = None if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return {
        "name": name,
        "value": text,
        "read_only": True,
        "config_source": ConfigSource.STATIC_BROKER,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": text, "source": ConfigSource.STATIC_BROKER}],
        "config_type": kind,
        "documentation": None,
    }
