"""DeleteRecords, DescribeLogDirs, AlterReplicaLogDirs, DescribeProducers: about the logs of this broker.

Only translates. A broker has one log directory, so a replica can be moved to no other one.
Source: KIP-107, KIP-113, KIP-664, KIP-827; KafkaApis and ReplicaManager (3.9).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from broker.server.api.partitions import named_once, partition_error
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values, milliseconds
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.paths import PartitionKey


async def delete_records(services: BrokerServices, call: Call) -> Answer:
    """Delete the records below offsets."""
    asked = named_once(call.body.topics, "name", "partition_index")
    outcomes = await services.replicas.deleting.delete_records(
        {
            PartitionKey(name, number): row.offset
            for name, rows in asked.items()
            for number, row in rows.items()
        },
        timeout_ms=milliseconds(call.body.timeout),
    )
    topics = []
    for name, rows in asked.items():
        found = [(number, outcomes[PartitionKey(name, number)]) for number in rows]
        partitions = [
            {
                "partition_index": number,
                "low_watermark": outcome.low_watermark,
                "error_code": partition_error(services.view, outcome.error_code),
            }
            for number, outcome in found
        ]
        topics.append({"name": name, "partitions": partitions})
    return {"topics": topics}


async def describe_log_dirs(services: BrokerServices, call: Call) -> Answer:
    """Say what the log directory holds; what it does not hold is left out."""
    logs = services.replicas.logs
    topics = call.body.topics
    keys: Iterable[PartitionKey] = logs.keys()
    if topics is not None:
        held = set(keys)
        keys = {PartitionKey(each.topic, number) for each in topics for number in each.partitions} & held
    space = await logs.disk_space()
    result: Values
    if isinstance(space, ErrorCode):
        result = {"error_code": space, "log_dir": log_dir(services), "topics": ()}
    else:
        result = {
            "error_code": ErrorCode.NONE,
            "log_dir": log_dir(services),
            "topics": _log_rows(services, sorted(keys)),
            "total_bytes": space[0],
            "usable_bytes": space[1],
        }
    return {"error_code": ErrorCode.NONE, "results": [result]}


def _log_rows(services: BrokerServices, keys: list[PartitionKey]) -> Iterator[Values]:
    for name, of_topic in groupby(keys, lambda key: key.topic):
        partitions = (
            {
                "partition_index": key.partition,
                "partition_size": size[0],
                "offset_lag": size[1],
                "is_future_key": False,
            }
            for key in of_topic
            # Rows are made while they are written: a log may be gone by then.
            if (size := services.replicas.logs.size(key)) is not None
        )
        yield {"name": name, "partitions": partitions}


def log_dir(services: BrokerServices) -> str:
    """Return the absolute path of this broker's log directory."""
    return str(Path(services.config.broker.data_dir).absolute())


def alter_replica_log_dirs(services: BrokerServices, call: Call) -> Answer:
    """Refuse every other directory; where a log is already, it stays."""
    found: dict[str, dict[int, ErrorCode]] = {}
    refusal = call.access.refusal(Operation.ALTER, ResourceType.CLUSTER)
    for each in call.body.dirs:
        is_ours = each.path == log_dir(services)
        for topic in each.topics:
            rows = found.setdefault(topic.name, {})
            for number in topic.partitions:
                error_code = refusal or (
                    _why_not_here(services, PartitionKey(topic.name, number))
                    if is_ours
                    else ErrorCode.LOG_DIR_NOT_FOUND
                )
                rows.setdefault(number, error_code)
    return {
        "results": [
            {
                "topic_name": name,
                "partitions": [
                    {"partition_index": number, "error_code": error_code}
                    for number, error_code in rows.items()
                ],
            }
            for name, rows in found.items()
        ]
    }


def _why_not_here(services: BrokerServices, key: PartitionKey) -> ErrorCode:
    if services.replicas.logs.size(key) is not None:
        return ErrorCode.NONE
    if services.view.partition(*key) is not None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return partition_error(services.view, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def describe_producers(services: BrokerServices, call: Call) -> Answer:
    """Say which producers have written to partitions whose logs are here, and what they have open."""
    asked: dict[str, dict[int, None]] = {}
    for each in call.body.topics:
        asked.setdefault(each.name, {}).update(dict.fromkeys(each.partition_indexes))
    return {
        "topics": [
            {"name": name, "partitions": _producer_rows(services, name, list(numbers))}
            for name, numbers in asked.items()
        ]
    }


def _producer_rows(services: BrokerServices, name: str, numbers: list[int]) -> Iterator[Values]:
    for number in numbers:
        found = services.replicas.logs.active_producers(PartitionKey(name, number))
        error_code, producers = (found, ()) if isinstance(found, ErrorCode) else (ErrorCode.NONE, found)
        yield {
            "partition_index": number,
            "error_code": partition_error(services.view, error_code),
            "active_producers": [each._asdict() for each in producers],
        }
