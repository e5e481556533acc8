"""Endpoints that show the metadata of the control plane: controller, brokers and topics, typed.

Decides names, filters and pages. The records are decoded from this node's own state at the moment of the
question; a znode whose value no reader understands is shown with its problem. No state.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aiohttp import web

from quorum.admin.endpoint import BOOLEAN, INTEGER, STRING, Schema, fields, list_of, nullable, page_of
from quorum.admin.parameters import Parameter, read_query
from quorum.admin.state import AFTER_ID, AFTER_NAME, LIMIT, STATE, StateView, page
from quorum.admin.view import json_answer, part
from quorum.client import Stat
from quorum.metadata import paths, records, trust
from quorum.metadata.decode import JsonFields
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.paths import PartitionKey

#: partitions that a page of topics shows at most, unless its first topic has more
PARTITIONS_MAX: Final = 5000
PREFIX: Final = Parameter("prefix", str, "names that begin so", "", most=300)
UNDER_REPLICATED: Final = Parameter(
    "under_replicated", bool, "only partitions whose ISR lacks a replica", False
)
CLUSTER: Final = fields(
    cluster_id=nullable("string"),
    controller_id=nullable("integer"),
    controller_epoch=nullable("integer"),
    brokers=INTEGER,
    topics=INTEGER,
    zxid=INTEGER,
    problem=nullable("string"),
)
BROKER: Final[Schema] = {
    **fields(broker_id=INTEGER, generation=INTEGER, problem=nullable("string")),
    "properties": {
        "broker_id": INTEGER,
        #: czxid of the registration
        "generation": INTEGER,
        "session_id": INTEGER,
        "endpoints": list_of(STRING),
        "rack": nullable("string"),
        "incarnation": nullable("string"),
        "admin": nullable("string"),
        "registered_ms": INTEGER,
        #: whether it carries a MAC by a peer secret; whether that one is right only brokers can tell
        "signed": BOOLEAN,
        "problem": nullable("string"),
    },
}
PARTITION: Final = fields(
    partition=INTEGER,
    replicas=list_of(INTEGER),
    leader=nullable("integer"),
    leader_epoch=nullable("integer"),
    isr=list_of(INTEGER),
    controller_epoch=nullable("integer"),
    version=nullable("integer"),
    problem=nullable("string"),
)
TOPIC: Final = fields(
    name=STRING, topic_id=nullable("string"), partitions=list_of(PARTITION), problem=nullable("string")
)
BROKERS: Final = page_of(BROKER)
TOPICS: Final = page_of(TOPIC)


def _data(state: StateView, path: str) -> tuple[bytes | None, Stat] | None:
    """Return data and Stat of a node that is there and may be read."""
    found = state.znode(path)
    return None if isinstance(found, int) else found[:2]


def _names(state: StateView, path: str) -> Sequence[str]:
    found = state.znode(path)
    return () if isinstance(found, int) else found[2]


async def get_cluster(request: web.Request) -> web.Response:
    """Show the controller, its epoch, and how many brokers and topics there are."""
    read_query(request, ())
    state = part(request, STATE)
    answer: dict[str, object] = dict.fromkeys(("cluster_id", "controller_id", "controller_epoch", "problem"))
    try:
        if found := _data(state, paths.CLUSTER_ID):
            answer["cluster_id"] = records.decode_cluster_id(found[0])
        if found := _data(state, paths.CONTROLLER_EPOCH):
            answer["controller_epoch"] = records.decode_controller_epoch(found[0])
        if found := _data(state, paths.CONTROLLER):
            answer["controller_id"] = records.ControllerRecord.decode(found[0]).broker_id
    except MetadataDecodeError as error:
        answer["problem"] = error.message
    answer["brokers"] = len(_names(state, paths.BROKER_IDS))
    answer["topics"] = len(_names(state, paths.BROKER_TOPICS))
    return json_answer({**answer, "zxid": state.zxid})


async def get_brokers(request: web.Request) -> web.Response:
    """List the brokers that are registered, with their generations."""
    query = read_query(request, (LIMIT, AFTER_ID))
    state, limit, after = part(request, STATE), int(query["limit"]), int(query["after"])
    names = _names(state, paths.BROKER_IDS)
    ids = sorted(int(name) for name in names if name.isascii() and name.isdigit() and len(name) <= 10)
    behind = [broker_id for broker_id in ids if broker_id > after][: limit + 1]
    return page([each for broker_id in behind for each in _broker(state, broker_id)], "broker_id", limit)


def _broker(state: StateView, broker_id: int) -> Iterator[Mapping[str, object]]:
    path = paths.broker_id_path(broker_id)
    found = _data(state, path)
    if found is None:
        return
    data, stat = found
    answer: dict[str, object] = {
        "broker_id": broker_id,
        "generation": stat.czxid,
        "session_id": stat.ephemeral_owner,
        "problem": None,
    }
    try:
        record = records.BrokerRecord.decode(broker_id, data)
    except MetadataDecodeError as error:
        yield {**answer, "problem": error.message}
        return
    yield {
        **answer,
        "endpoints": list(record.endpoints),
        "rack": record.rack,
        "incarnation": record.incarnation,
        "admin": record.admin,
        "registered_ms": record.timestamp_ms,
        "signed": JsonFields.parse(path, data).has(trust.FIELD),
    }


async def get_topics(request: web.Request) -> web.Response:
    """List topics with their partitions: leader, ISR, replicas, epochs, versions."""
    query = read_query(request, (LIMIT, AFTER_NAME, PREFIX, UNDER_REPLICATED))
    state, limit = part(request, STATE), int(query["limit"])
    prefix, after, lacking = str(query["prefix"]), str(query["after"]), bool(query["under_replicated"])
    items: list[Mapping[str, object]] = []
    partitions = 0
    names = sorted(
        name for name in _names(state, paths.BROKER_TOPICS) if name.startswith(prefix) and name > after
    )
    last: str | None = None
    for name in names:
        if len(items) == limit or partitions >= PARTITIONS_MAX:
            return json_answer({"items": items, "next_after": last})
        last = name
        topic, looked_at = _topic(state, name, lacking=lacking)
        partitions += looked_at
        if topic is not None:
            items.append(topic)
    return json_answer({"items": items, "next_after": None})


def _topic(state: StateView, name: str, *, lacking: bool) -> tuple[Mapping[str, object] | None, int]:
    """Return a topic, None if the filter leaves nothing of it, and how many partitions were looked at."""
    found = _data(state, paths.topic_path(name))
    if found is None:
        return None, 1
    answer: dict[str, object] = {"name": name, "topic_id": None, "partitions": [], "problem": None}
    try:
        record = records.TopicRecord.decode(name, found[0])
    except MetadataDecodeError as error:
        return {**answer, "problem": error.message}, 1
    if record.topic_id is not None:
        answer["topic_id"] = records.encode_topic_id(record.topic_id)
    rows: list[Mapping[str, object]] = []
    for partition, replicas in sorted(record.partitions.items()):
        isr, row = _partition(state, PartitionKey(name, partition), replicas)
        if not lacking or set(isr) < set(replicas):
            rows.append(row)
    answer["partitions"] = rows
    return (answer if rows or not lacking else None), len(record.partitions) or 1


def _partition(
    state: StateView, key: PartitionKey, replicas: Sequence[int]
) -> tuple[Sequence[int], Mapping[str, object]]:
    """Return a partition's ISR, empty if it is not known, and its row."""
    isr: Sequence[int] = ()
    row: dict[str, object] = dict.fromkeys(
        ("leader", "leader_epoch", "controller_epoch", "version", "problem")
    )
    row |= {"partition": key.partition, "replicas": list(replicas)}
    found = _data(state, paths.partition_state_path(key))
    if found is not None:
        row["version"] = found[1].version
        try:
            record = records.PartitionStateRecord.decode(key, found[0])
        except MetadataDecodeError as error:
            row["problem"] = error.message
        else:
            isr = record.isr
            row |= {
                "leader": record.leader,
                "leader_epoch": record.leader_epoch,
                "controller_epoch": record.controller_epoch,
            }
    return isr, {**row, "isr": list(isr)}
