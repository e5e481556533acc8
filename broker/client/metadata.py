"""What a broker says of its cluster.

Source: Kafka's Metadata response.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey


class BrokerAddress(NamedTuple):
    """A live broker."""

    broker_id: int
    host: str
    port: int
    rack: str | None


class PartitionMetadata(NamedTuple):
    """One partition."""

    error_code: int
    #: Broker id, or -1.
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicMetadata(NamedTuple):
    """One topic, or why there is none."""

    error_code: int
    topic_id: uuid.UUID | None
    partitions: Mapping[int, PartitionMetadata]


class ClusterMetadata(NamedTuple):
    """Brokers and topics as one broker knows them."""

    cluster_id: str | None
    #: Broker id, or -1.
    controller_id: int
    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMetadata]

    def leader_of(self, key: PartitionKey) -> int | None:
        """Return the broker that leads a partition, or None."""
        topic = self.topics.get(key.topic)
        partition = None if topic is None else topic.partitions.get(key.partition)
        return partition.leader if partition is not None and partition.leader in self.brokers else None

    def error_of(self, key: PartitionKey) -> ErrorCode:
        """Return why a partition has no leader to go to."""
        topic = self.topics.get(key.topic)
        if topic is None or (topic.error_code == ErrorCode.NONE and key.partition not in topic.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode(topic.error_code) if topic.error_code else ErrorCode.LEADER_NOT_AVAILABLE


def read_metadata(response: Any) -> ClusterMetadata:
    """Return the content of a Metadata response of version 10 or above."""
    return ClusterMetadata(
        response.cluster_id,
        response.controller_id,
        {
            each.node_id: BrokerAddress(each.node_id, each.host, each.port, each.rack)
            for each in response.brokers
        },
        {
            topic.name: TopicMetadata(
                int(topic.error_code),
                topic.topic_id,
                {
                    each.partition_index: PartitionMetadata(
                        int(each.error_code),
                        each.leader_id,
                        each.leader_epoch,
                        each.replica_nodes,
                        each.isr_nodes,
                        each.offline_replicas,
                    )
                    for each in topic.partitions
                },
            )
            for topic in response.topics
            if topic.name is not None
        },
    )
