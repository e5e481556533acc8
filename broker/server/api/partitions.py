"""What handlers of partitions have in common: keys, topic ids, and the codes before the first UpdateMetadata.

A broker that has not yet received the state of the cluster knows no topic. It must not say that a topic does
not exist: librdkafka then fails its whole queue at once. It says that no leader is available.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable
from typing import Any, Final

from broker.core.cluster_view import ClusterView
from broker.wire.packing import NodeEndpoint
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey, check_topic, missing_topic

#: As an isolation level.
READ_COMMITTED: Final = 1


def named_once(topics: Iterable[Any], topic: str, partition: str) -> dict[Any, dict[int, Any]]:
    """Return what a request asks of partitions; of one that is named again, what was asked first.

    Args:
        topics: rows with `partitions`.
        topic: the field of a topic's name or id.
        partition: the field of a partition's number.

    Returns:
        {name or id of a topic: {partition: its row}}
    """
    found: dict[Any, dict[int, Any]] = {}
    for each in topics:
        rows = found.setdefault(getattr(each, topic), {})
        for row in each.partitions:
            rows.setdefault(getattr(row, partition), row)
    return found


def partition_error(view: ClusterView, error_code: ErrorCode) -> ErrorCode:
    """Return the code that a client may see of one partition or topic."""
    if error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not view.received:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return error_code


def why_no_topic(view: ClusterView, name: str) -> tuple[ErrorCode, str]:
    """Return why there is no topic of a name: the code, and Kafka's words."""
    try:
        check_topic(name)
    except ValueError as error:
        return ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)
    return partition_error(view, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), missing_topic(name)


def topic_id(view: ClusterView, topic: str) -> uuid.UUID | None:
    """Return the id of a topic, if it is known and has one."""
    found = view.topics.get(topic)
    return None if found is None else found.topic_id


def current_leader(view: ClusterView, key: PartitionKey, error_code: int) -> tuple[int, int] | None:
    """Return (broker id, leader epoch) to go on with after a wrong leader was asked (KIP-951), if known."""
    if error_code not in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH):
        return None
    partition = view.partition(*key)
    if partition is None or partition.leader not in view.brokers:
        return None
    return partition.leader, partition.leader_epoch


def client_endpoints(view: ClusterView, broker_ids: Collection[int], listener: str) -> list[NodeEndpoint]:
    """Return where clients reach those of these brokers that have their listener, in the order of the ids."""
    found = []
    for broker_id in sorted(broker_ids):
        address = view.endpoint(broker_id, listener)
        if address is not None:
            found.append(NodeEndpoint(broker_id, *address, view.brokers[broker_id].rack))
    return found
