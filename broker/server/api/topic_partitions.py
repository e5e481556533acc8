"""DescribeTopicPartitions: topics in the order of their names, page by page.

A page ends behind a number of partitions, and its cursor names the one with which the next page begins. The
request is about what the brokers know of the cluster, as Metadata is.
Source: KIP-966; Kafka's DescribeTopicPartitionsRequestHandler (3.9).
"""

from __future__ import annotations

from typing import Final

from broker.core.cluster_view import PartitionView, TopicView
from broker.server.api.metadata import no_topic, partition_row
from broker.server.api.partitions import why_no_topic
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType

#: Kafka's max.request.partition.size.limit.
PAGE_PARTITIONS_MAX: Final = 2000


def describe_topic_partitions(services: BrokerServices, call: Call) -> Answer:
    """Answer with one page."""
    request, topics = call.body, services.view.topics
    cursor = request.cursor
    # That others are left out of a list of all is no denial.
    may = call.access.permits if request.topics else call.access.allows
    allowed = {
        name
        for name in {each.name for each in request.topics} or topics
        if may(Operation.DESCRIBE, ResourceType.TOPIC, name)
    }
    names = {each.name for each in request.topics} or allowed
    first_name, first_partition = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
    if first_partition < 0 or (cursor is not None and request.topics and first_name not in names):
        refused = ErrorCode.INVALID_REQUEST
        return {"topics": [no_topic(name, None, refused) for name in sorted(names) if request.topics]}
    left = max(min(request.response_partition_limit, PAGE_PARTITIONS_MAX), 1)
    rows: list[Values] = []
    for name in sorted(each for each in names if each >= first_name):
        if not left:
            return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": 0}}
        topic = topics.get(name)
        if name not in allowed:
            rows.append(no_topic(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if topic is None:
            rows.append(no_topic(name, None, why_no_topic(services.view, name)[0]))
            continue
        numbers = sorted(topic.partitions)
        if name == first_name:
            numbers = [each for each in numbers if each >= first_partition]
        row = _topic(services, name, topic, numbers[:left])
        rows.append({**row, "topic_authorized_operations": call.access.operations(ResourceType.TOPIC, name)})
        if len(numbers) > left:
            return {"topics": rows, "next_cursor": {"topic_name": name, "partition_index": numbers[left]}}
        left -= len(numbers)
    return {"topics": rows, "next_cursor": None}


def _topic(services: BrokerServices, name: str, topic: TopicView, numbers: list[int]) -> Values:
    return {
        "error_code": ErrorCode.NONE,
        "name": name,
        "topic_id": topic.topic_id,
        "partitions": [_partition(services, number, topic.partitions[number]) for number in numbers],
    }


def _partition(services: BrokerServices, number: int, partition: PartitionView) -> Values:
    row = partition_row(services.view.brokers, number, partition)
    # There are no such replicas: only members of the ISR are elected.
    return {
        **row._asdict(),
        "error_code": ErrorCode.NONE,
        "eligible_leader_replicas": (),
        "last_known_elr": (),
    }
