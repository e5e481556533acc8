"""Endpoints that show the metadata of the control plane: controller, brokers and topics, typed.

Decides names, filters and pages. The records are decoded from this node's own state at the moment of the
question; a znode whose value no reader understands is shown with its problem. No state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Final, NamedTuple, TypeAlias

from aiohttp import web

from quorum.admin.endpoint import Answer, Endpoints, answer, blank, page_of
from quorum.admin.reading import Says
from quorum.admin.state import MACHINE, AfterName, Limit, PageById, Prefix, names_below, page, read_znode
from quorum.client import Stat
from quorum.core.machine import StateMachine
from quorum.metadata import paths, records, trust
from quorum.metadata.decode import JsonFields
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey

#: partitions that a page of topics shows at most, unless its first topic has more
PARTITIONS_MAX: Final = 5000
ENDPOINTS: Final = Endpoints()


ClusterRow: TypeAlias = Annotated[
    Answer,
    answer(
        cluster_id=str | None,
        controller_id=int | None,
        controller_epoch=int | None,
        brokers=int,
        topics=int,
        zxid=int,
        problem=str | None,
    ),
]
#: `generation` is the czxid of the registration; `signed`: whether it carries a MAC by a peer secret (whether
#: that one is right only brokers can tell)
BrokerRow: TypeAlias = Annotated[
    Answer,
    answer(
        ("session_id", "endpoints", "rack", "incarnation", "admin", "registered_ms", "signed"),
        broker_id=int,
        generation=int,
        session_id=int,
        endpoints=list[str],
        rack=str | None,
        incarnation=str | None,
        admin=str | None,
        registered_ms=int,
        signed=bool,
        problem=str | None,
    ),
]
PartitionRow: TypeAlias = Annotated[
    Answer,
    answer(
        partition=int,
        replicas=list[int],
        leader=int | None,
        leader_epoch=int | None,
        isr=list[int],
        controller_epoch=int | None,
        version=int | None,
        problem=str | None,
    ),
]
TopicRow: TypeAlias = Annotated[
    Answer, answer(name=str, topic_id=str | None, partitions=list[PartitionRow], problem=str | None)
]


class TopicsQuery(NamedTuple):
    """Which topics are wanted."""

    limit: Limit = 100
    after: AfterName = ""
    prefix: Prefix = ""
    under_replicated: Annotated[bool, Says("only partitions whose ISR lacks a replica")] = False


def _data(machine: StateMachine, path: str) -> tuple[bytes | None, Stat] | None:
    """Return data and Stat of a node that is there and may be read."""
    found = read_znode(machine, path)
    return None if isinstance(found, int) else found[:2]


@ENDPOINTS.add("GET", "/v1/cluster")
async def _get_cluster(request: web.Request) -> ClusterRow:
    """Controller and totals."""
    machine = request.app[MACHINE]()
    found_out = {
        **blank(ClusterRow),
        "brokers": len(names_below(machine, paths.BROKER_IDS)),
        "topics": len(names_below(machine, paths.BROKER_TOPICS)),
        "zxid": machine.zxid,
    }
    try:
        if found := _data(machine, paths.CLUSTER_ID):
            found_out["cluster_id"] = records.decode_cluster_id(found[0])
        if found := _data(machine, paths.CONTROLLER_EPOCH):
            found_out["controller_epoch"] = records.decode_controller_epoch(found[0])
        if found := _data(machine, paths.CONTROLLER):
            found_out["controller_id"] = records.ControllerRecord.decode(found[0]).broker_id
    except MetadataDecodeError as error:
        found_out["problem"] = error.message
    return found_out


@ENDPOINTS.add("GET", "/v1/brokers")
async def _get_brokers(request: web.Request, query: PageById) -> Annotated[Answer, page_of(BrokerRow)]:
    """Brokers and their generations."""
    machine, (limit, after) = request.app[MACHINE](), query
    names = names_below(machine, paths.BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= 10)
    later = [broker_id for broker_id in ids if broker_id > after][: limit + 1]
    return page([each for broker_id in later for each in _broker(machine, broker_id)], "broker_id", limit)


def _broker(machine: StateMachine, broker_id: int) -> Iterator[Answer]:
    path = paths.broker_id_path(broker_id)
    found = _data(machine, path)
    if found is None:
        return
    data, stat = found
    row: Answer = {
        "broker_id": broker_id,
        "generation": stat.czxid,
        "session_id": stat.ephemeral_owner,
        "problem": None,
    }
    try:
        record = records.BrokerRecord.decode(broker_id, data)
    except MetadataDecodeError as error:
        yield {**row, "problem": error.message}
        return
    yield {
        **row,
        "endpoints": list(record.endpoints),
        "rack": record.rack,
        "incarnation": record.incarnation,
        "admin": record.admin,
        "registered_ms": record.timestamp_ms,
        "signed": JsonFields.parse(path, data).has(trust.FIELD),
    }


@ENDPOINTS.add("GET", "/v1/topics")
async def _get_topics(request: web.Request, query: TopicsQuery) -> Annotated[Answer, page_of(TopicRow)]:
    """Topics and their partitions."""
    machine, (limit, after, prefix, lacking) = request.app[MACHINE](), query
    items: list[Answer] = []
    partitions = 0
    found = names_below(machine, paths.BROKER_TOPICS)
    names = [name for name in found if name.startswith(prefix) and name > after]
    last: str | None = None
    for name in names:
        if len(items) == limit or partitions >= PARTITIONS_MAX:
            return {"items": items, "next_after": last}
        last = name
        topic, looked_at = _topic(machine, name, lacking=lacking)
        partitions += looked_at
        if topic is not None:
            items.append(topic)
    return {"items": items, "next_after": None}


def _topic(machine: StateMachine, name: str, *, lacking: bool) -> tuple[Answer | None, int]:
    """Return a topic, None if the filter leaves nothing of it, and how many partitions were looked at."""
    found = _data(machine, paths.topic_path(name))
    if found is None:
        return None, 1
    row: Answer = {"name": name, "topic_id": None, "partitions": [], "problem": None}
    try:
        record = records.TopicRecord.decode(name, found[0])
    except MetadataDecodeError as error:
        return {**row, "problem": error.message}, 1
    rows: list[Answer] = []
    for partition, replicas in sorted(record.partitions.items()):
        isr, state = _partition(machine, PartitionKey(name, partition), replicas)
        if not lacking or set(isr) < set(replicas):
            rows.append(state)
    topic_id = None if record.topic_id is None else records.encode_topic_id(record.topic_id)
    topic = {**row, "topic_id": topic_id, "partitions": rows}
    return (topic if rows or not lacking else None), len(record.partitions) or 1


def _partition(
    machine: StateMachine, key: PartitionKey, replicas: Sequence[int]
) -> tuple[Sequence[int], Answer]:
    """Return a partition's ISR, empty if it is not known, and its row."""
    row = {**blank(PartitionRow), "partition": key.partition, "replicas": list(replicas), "isr": []}
    isr: Sequence[int] = ()
    found = _data(machine, paths.partition_state_path(key))
    if found is not None:
        row["version"] = found[1].version
        try:
            record = records.PartitionStateRecord.decode(key, found[0])
        except MetadataDecodeError as error:
            row["problem"] = error.message
        else:
            isr = row["isr"] = list(record.isr)
            row["leader"], row["leader_epoch"] = record.leader, record.leader_epoch
            row["controller_epoch"] = record.controller_epoch
    return isr, row
