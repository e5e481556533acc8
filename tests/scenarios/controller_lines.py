"""How transcripts write what the controller's machine wants done: one line each.

A partition's state is written ``t-0: 2 leads epoch 1, isr 2 3``. Of a write only what it changes is shown:
its fence and the nodes that are empty are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from controller.core.effects import Check, CreateNode, DeleteNode, Operation, SetData
from controller.core.model import ClusterModel
from controller.core.outbox import Batch, LeadershipBatch, MetadataBatch, StopBatch
from controller.core.outcomes import RequestFailed, ShutdownOutcome
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER, RECOVERING, PartitionStateRecord, TopicRecord


def key_of(text: str) -> PartitionKey:
    """Read a partition's name."""
    topic, _, partition = text.rpartition("-")
    return PartitionKey(topic, int(partition))


def name_of(key: PartitionKey) -> str:
    """Write a partition's name."""
    return f"{key.topic}-{key.partition}"


def numbers(several: Iterable[int]) -> str:
    """Write numbers in a row."""
    return " ".join(map(str, several)) or "empty"


def state(found: PartitionStateRecord) -> str:
    """Write a partition's leader and ISR."""
    leader = "nobody leads" if found.leader == NO_LEADER else f"{found.leader} leads"
    recovering = ", recovering" if found.leader_recovery_state == RECOVERING else ""
    ends = [f"{each} at {end.offset} of epoch {end.leader_epoch}" for each, end in found.shortened.items()]
    shortened = f", shortened {', '.join(ends)}" if ends else ""
    return f"{leader} epoch {found.leader_epoch}, isr {numbers(found.isr)}{recovering}{shortened}"


def topic(record: TopicRecord) -> str:
    """Write which brokers hold a topic's partitions."""
    rows = []
    for partition, replicas in record.partitions.items():
        adding, removing = record.adding_replicas.get(partition), record.removing_replicas.get(partition)
        row = f"{partition} on {numbers(replicas)}"
        row += f", adding {numbers(adding)}" if adding else ""
        row += f", removing {numbers(removing)}" if removing else ""
        rows.append(row)
    return "; ".join(rows)


def operations(several: Iterable[Operation]) -> list[str]:
    """Write what a multi changes."""
    return [line for each in several if (line := _operation(each))]


def _operation(operation: Operation) -> str:
    match operation:
        case Check():
            return ""
        case DeleteNode(path):
            is_below_topic = path.startswith(f"{paths.BROKER_TOPICS}/") and path.count("/") > 3
            return "" if is_below_topic else f"delete {path}"
        case CreateNode(path, value) | SetData(path, value):
            if path.startswith(f"{paths.BROKER_TOPICS}/"):
                return _below_topics(path, value)
            return f"set {path}" if value else f"create {path}"


def _below_topics(path: str, value: bytes) -> str:
    name, *rest = path.removeprefix(f"{paths.BROKER_TOPICS}/").split("/")
    if not rest:
        return f"{name}: {topic(TopicRecord.decode(name, value))}"
    if rest[-1] != "state":
        return ""
    key = PartitionKey(name, int(rest[1]))
    return f"{name_of(key)}: {state(PartitionStateRecord.decode(key, value))}"


def request(model: ClusterModel, batch: Batch) -> str:
    """Write a control request with the states that it carries when it leaves."""
    match batch:
        case MetadataBatch(keys):
            live = f"UpdateMetadata, live {numbers(sorted(model.brokers))}"
            return "; ".join([live, *(_held(model, key) for key in keys)])
        case LeadershipBatch(new):
            return "; ".join(["LeaderAndIsr", *(_held(model, key) for key in new)])
        case StopBatch(stops):
            rows = [name_of(key) + (" and delete" if deletes else "") for key, deletes in stops.items()]
            return "; ".join(["StopReplica", *rows])


def _held(model: ClusterModel, key: PartitionKey) -> str:
    if key.topic in model.deleting or key not in model.states:
        return f"{name_of(key)}: deleted"
    return f"{name_of(key)}: {state(model.states[key].state)}"


def outcome(found: object) -> str:
    """Write what a client is answered."""
    match found:
        case RequestFailed(code, message):
            return f"{code.name}: {message}"
        case ShutdownOutcome(code, remaining):
            left = f", {' '.join(map(name_of, remaining))} remain" if remaining else ""
            return f"{code.name}{left}"
        case Mapping():
            rows = []
            for key, each in found.items():
                name = name_of(key) if isinstance(key, PartitionKey) else key
                rows.append(f"{name} {each.error_code.name}")
            return ", ".join(rows)
    raise ValueError(found)
