"""Settings that change while a broker runs, as they reach its replicas.

Source: KIP-226; Kafka's throttled rates of replicas; KIP-890.
"""

from __future__ import annotations

import logging

from broker.core.replica_inputs import SettingsChanged
from broker.replication.parts import ReplicaParts
from broker.replication.registry import Registry
from quorum.metadata.broker_settings import BrokerSettings

_log = logging.getLogger(__name__)


def apply_topic_settings(registry: Registry, topic: str) -> None:
    """Apply a topic's new settings to its replicas."""
    settings = registry.settings_of(topic)
    for key, replica in registry.replicas.items():
        if key.topic == topic:
            replica.log.configure(settings)
            replica.step(SettingsChanged(settings.min_insync_replicas))


def apply_broker_settings(replicas: ReplicaParts, settings: BrokerSettings) -> None:
    """Limit the copying of throttled replicas, and verify transactions or not, from now on."""
    registry = replicas.registry
    _log.info("broker %d runs with %s", registry.broker_id, settings)
    registry.leader_throttle.set_rate(settings.leader_throttled_rate)
    registry.follower_throttle.set_rate(settings.follower_throttled_rate)
    replicas.verifier.is_on = settings.verifies_transactions
