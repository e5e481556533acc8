"""Metadata and DescribeCluster: brokers, topics, and who leads what.

Decides nothing about the cluster: the answer is the view that the controller's requests made. Topics that are
missing are created where the broker is configured so and the client allows it; the answer then waits for the
controller, within bounds.
Source: KIP-4, KIP-516; KafkaApis.handleTopicMetadataRequest (3.9).
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from broker.core.cluster_view import NO_LEADER, ClusterView, PartitionView
from broker.server.api.partitions import client_endpoints, why_no_topic
from broker.server.audit import note_created
from broker.server.auto_topics import create_missing_topics
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from broker.wire.packing import PartitionRow, pack_topic_row, with_operations
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType

#: Name and id of a topic that is asked for, as far as they are known.
_Wanted = tuple[str | None, uuid.UUID | None]
#: Versions in which a topic's row is kept; clients of one cluster speak few.
ROW_VERSIONS_MAX: Final = 4
#: endpoint_type of DescribeCluster.
_BROKERS: Final = 1
_CONTROLLERS: Final = 2
_MISMATCHED: Final = (
    "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER"
)


async def metadata(services: BrokerServices, call: Call) -> Answer:
    """Answer with brokers and topics, or create topics that are missing first."""
    wanted = _wanted(services.view, call)
    if services.config.broker.auto_create_topics and services.view.received:
        allowed = call.request.api_version < 4 or call.body.allow_auto_topic_creation
        missing = [
            name
            for name, _ in wanted or ()
            if name is not None
            and name not in services.view.topics
            and _may_describe(call, name)
            and why_no_topic(services.view, name)[0] is not ErrorCode.INVALID_TOPIC_EXCEPTION
        ]
        if allowed and missing:
            refused = {
                name: ErrorCode.TOPIC_AUTHORIZATION_FAILED for name in missing if not _may_create(call, name)
            }
            created = [name for name in missing if name not in refused]
            if created:
                failed = await create_missing_topics(services, created)
                if services.audit is not None:
                    note_created(services.audit, call.request, created, failed)
                refused |= failed
            return _answer(services, call, wanted, refused)
    return _answer(services, call, wanted, {})


def _may_describe(call: Call, name: str) -> bool:
    return call.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)


def _may_create(call: Call, name: str) -> bool:
    access = call.access
    return access.allows(Operation.CREATE, ResourceType.CLUSTER) or access.permits(
        Operation.CREATE, ResourceType.TOPIC, name
    )


def _wanted(view: ClusterView, call: Call) -> list[_Wanted] | None:
    """Return (name, id) of each topic that is asked for; None for all."""
    topics = call.body.topics
    if topics is None or (call.request.api_version == 0 and not topics):
        return None
    # Repeats, also of a topic by its name and by its id, are answered once.
    wanted: dict[str | uuid.UUID | None, _Wanted] = {}
    for topic in topics:
        found = topic.topic_id if call.request.api_version >= 10 else None
        # Java's admin client sends an empty name beside an id.
        name = topic.name if found is None else view.topic_name(found)
        wanted.setdefault(found if name is None else name, (name, found))
    return list(wanted.values())


def _answer(
    services: BrokerServices, call: Call, wanted: list[_Wanted] | None, refused: Mapping[str, ErrorCode]
) -> Values:
    view, version = services.view, call.request.api_version
    # The rows are made while they are written, but with the brokers of now: a leader must be among them.
    brokers, rows = view.brokers, view.rows
    if any(call.listener not in each.listeners for each in brokers.values()):
        # Clients of this listener are not sent where it is not; the kept rows are of those that reach all.
        brokers = {key: each for key, each in brokers.items() if call.listener in each.listeners}
        rows = {}
    gives_operations = version >= 8 and call.body.include_topic_authorized_operations
    # Before version 12 a name cannot be null.
    unnamed = None if version >= 12 else ""

    def row(name: str | None, found: uuid.UUID | None) -> Values | bytes:
        if name is None:
            return no_topic(unnamed, found, ErrorCode.UNKNOWN_TOPIC_ID)
        if not call.access.permits(Operation.DESCRIBE, ResourceType.TOPIC, name):
            # An id is no secret.
            return no_topic(name if found is None else unnamed, found, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if name not in view.topics:
            return no_topic(name, None, refused[name] if name in refused else why_no_topic(view, name)[0])
        topic = _topic(view, brokers, rows, name, version)
        if not gives_operations:
            return topic
        return with_operations(version, topic, call.access.operations(ResourceType.TOPIC, name))

    topics: Iterator[Values | bytes]
    if wanted is None:
        is_limited = call.access.lists is not None
        names = (
            [name for name in view.topics if _may_describe(call, name)] if is_limited else list(view.topics)
        )
        topics = (
            row(name, None) if gives_operations else _topic(view, brokers, rows, name, version)
            for name in names
            if name in view.topics
        )
    else:
        topics = (row(name, found) for name, found in wanted)
    return {
        **_operations(call),
        "brokers": [each._asdict() for each in client_endpoints(view, brokers, call.listener)],
        "cluster_id": services.cluster_id,
        "controller_id": view.controller_id if view.controller_id in brokers else -1,
        "topics": topics,
    }


def _operations(call: Call) -> Values:
    if not getattr(call.body, "include_cluster_authorized_operations", False):
        return {}
    return {"cluster_authorized_operations": call.access.operations(ResourceType.CLUSTER)}


def no_topic(name: str | None, topic_id: uuid.UUID | None, error_code: ErrorCode) -> Values:
    """Return the row of a topic that there is not."""
    return {"error_code": error_code, "name": name, "topic_id": topic_id, "partitions": ()}


def _topic(
    view: ClusterView, brokers: Collection[int], rows: dict[str, dict[int, bytes]], name: str, version: int
) -> bytes:
    """Return the row of a topic that there is; with the brokers and the kept rows of one moment."""
    kept = rows.setdefault(name, {})
    if version in kept:
        return kept[version]
    if len(kept) >= ROW_VERSIONS_MAX:
        kept.clear()
    topic = view.topics[name]
    partitions = (
        partition_row(brokers, index, partition) for index, partition in sorted(topic.partitions.items())
    )
    row = kept[version] = pack_topic_row(version, name, topic.topic_id, partitions)
    return row


def partition_row(brokers: Collection[int], index: int, partition: PartitionView) -> PartitionRow:
    """Return a partition as clients see it, with the live brokers."""
    led = partition.leader in brokers
    return PartitionRow(
        ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        index,
        partition.leader if led else NO_LEADER,
        partition.leader_epoch,
        partition.replicas,
        partition.isr,
        [replica for replica in partition.replicas if replica not in brokers],
    )


def describe_cluster(services: BrokerServices, call: Call) -> Answer:
    """Answer with the brokers and the controller."""
    view = services.view
    asked = call.body.endpoint_type if call.request.api_version >= 1 else _BROKERS
    if asked != _BROKERS:
        error_code, message = ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {asked}"
        if asked == _CONTROLLERS:
            error_code, message = ErrorCode.MISMATCHED_ENDPOINT_TYPE, _MISMATCHED
        return {
            "error_code": error_code,
            "error_message": message,
            "cluster_id": services.cluster_id,
            "brokers": (),
        }
    return {
        **_operations(call),
        "error_code": ErrorCode.NONE,
        "cluster_id": services.cluster_id,
        "controller_id": view.controller_id if view.controller_id in view.brokers else -1,
        "brokers": [
            {"broker_id": each.node_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in client_endpoints(view, view.brokers, call.listener)
        ],
    }
