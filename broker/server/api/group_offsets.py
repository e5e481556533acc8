"""OffsetCommit, OffsetFetch and OffsetDelete: what groups have read.

Decides whether a partition exists and whether a commit's metadata is too large; the rest is decided by
the coordinator.
Source: Kafka's protocol guide; KIP-709 (several groups in one OffsetFetch), KIP-496 (OffsetDelete).
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import GroupState
from broker.groups.errors import GroupRefusedError
from broker.groups.slot import GroupSlot
from broker.server.api.groups import term_of
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.messages.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey

#: The first OffsetFetch that names several groups.
_MANY_GROUPS_VERSION: Final = 8
#: The first OffsetFetch with an error of the whole.
_GROUP_ERROR_VERSION: Final = 2


async def offset_commit(services: BrokerServices, call: Call) -> Answer:
    """Commit offsets; the answer comes when they are in the quorum."""
    body = call.body
    now_ms = time.time_ns() // 1_000_000
    metadata_max = services.config.groups.offset_metadata_max_bytes
    codes: dict[PartitionKey, ErrorCode] = {}
    offsets: dict[PartitionKey, OffsetRecord] = {}
    for topic in body.topics:
        for each in topic.partitions:
            key = PartitionKey(topic.name, each.partition_index)
            metadata = each.committed_metadata or ""
            codes[key] = ErrorCode.NONE
            if services.view.partition(*key) is None:
                codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode("utf-8", "surrogatepass")) > metadata_max:
                codes[key] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                # Also one below 0, by which clients reset a group: consumers then go where their policy says.
                leader_epoch = max(getattr(each, "committed_leader_epoch", -1), -1)
                offsets[key] = OffsetRecord(each.committed_offset, leader_epoch, metadata, now_ms)
    generation_id = GenerationId(
        body.generation_id_or_member_epoch
        if hasattr(body, "generation_id_or_member_epoch")
        else body.generation_id
    )
    instance_id = getattr(body, "group_instance_id", None)
    try:
        term = await term_of(services)
        code = await term.commit(body.group_id, body.member_id, instance_id, generation_id, offsets)
    except GroupRefusedError as error:
        code = error.error_code
    if code is not ErrorCode.NONE:
        codes = dict.fromkeys(codes, code)
    return {"topics": _rows_by_topic(codes)}


def _rows_by_topic(codes: dict[PartitionKey, ErrorCode]) -> list[Values]:
    topics: dict[str, list[Values]] = {}
    for key, code in codes.items():
        topics.setdefault(key.topic, []).append({"partition_index": key.partition, "error_code": code})
    return [{"name": name, "partitions": rows} for name, rows in topics.items()]


async def offset_fetch(services: BrokerServices, call: Call) -> Answer:
    """Answer with committed offsets: of named partitions, or of all that have one."""
    body = call.body
    if call.api_version >= _MANY_GROUPS_VERSION:
        groups = []
        for each in {each.group_id: each for each in body.groups}.values():
            member_id, member_epoch = getattr(each, "member_id", None), getattr(each, "member_epoch", -1)
            topics, code = await _fetched(services, each.group_id, each.topics, member_id, member_epoch)
            groups.append({"group_id": each.group_id, "topics": topics, "error_code": code})
        return {"groups": groups}
    topics, code = await _fetched(services, body.group_id, body.topics)
    if call.api_version < _GROUP_ERROR_VERSION and code is not ErrorCode.NONE:
        wanted = _named_once(body.topics)
        topics = (_fetched_topic(name, numbers, None, code) for name, numbers in wanted.items())
    return {"topics": topics, "error_code": code}


def _named_once(topics: Iterable[Any]) -> dict[str, dict[int, None]]:
    wanted: dict[str, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _fetched(
    services: BrokerServices,
    group_id: str,
    asked: Iterable[Any] | None,
    member_id: str | None = None,
    member_epoch: int = -1,
) -> tuple[Iterable[Values], ErrorCode]:
    try:
        slot = (await term_of(services)).group(group_id)
    except GroupRefusedError as error:
        return [], error.error_code
    machine = None if slot is None else slot.machine
    if member_id is not None and member_epoch >= 0 and isinstance(machine, ConsumerGroup):
        # A member that names its epoch gets offsets only if it is up to date.
        code = machine.check_commit(member_id, None, member_epoch, 0)
        if code is not ErrorCode.NONE:
            return [], code
    if asked is not None:
        wanted = _named_once(asked)
    else:
        wanted = {}
        for key in slot.stored.offsets if slot is not None else ():
            wanted.setdefault(key.topic, {})[key.partition] = None
    rows = (_fetched_topic(topic, partitions, slot) for topic, partitions in wanted.items())
    return rows, ErrorCode.NONE


def _fetched_topic(
    topic: str, partitions: Iterable[int], slot: GroupSlot | None, code: ErrorCode = ErrorCode.NONE
) -> Values:
    def row(partition: int) -> Values:
        found = None if slot is None else slot.stored.offsets.get(PartitionKey(topic, partition))
        return {
            "partition_index": partition,
            "committed_offset": -1 if found is None else found.offset,
            "committed_leader_epoch": -1 if found is None else found.leader_epoch,
            "metadata": "" if found is None else found.metadata,
            "error_code": code,
        }

    return {"name": topic, "partitions": (row(partition) for partition in partitions)}


async def offset_delete(services: BrokerServices, call: Call) -> Answer:
    """Remove committed offsets of topics that no member of the group subscribes to."""
    body = call.body
    try:
        term = await term_of(services)
        slot = term.group(body.group_id)
        if slot is None:
            return {"error_code": ErrorCode.GROUP_ID_NOT_FOUND, "topics": ()}
        machine = slot.machine
        if machine.state is not GroupState.EMPTY and machine.protocol_type != "consumer":
            return {"error_code": ErrorCode.NON_EMPTY_GROUP, "topics": ()}
        held = machine.subscribed_topics()
        codes: dict[PartitionKey, ErrorCode] = {}
        for topic in body.topics:
            for each in topic.partitions:
                key = PartitionKey(topic.name, each.partition_index)
                if held is None or topic.name in held:
                    codes[key] = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                elif key not in slot.stored.offsets and services.view.partition(*key) is None:
                    codes[key] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                else:
                    codes[key] = ErrorCode.NONE
        removed = [
            key for key, code in codes.items() if code is ErrorCode.NONE and key in slot.stored.offsets
        ]
        if removed:
            await term.remove_offsets(slot, removed)
    except GroupRefusedError as error:
        return {"error_code": error.error_code, "topics": ()}
    return {"error_code": ErrorCode.NONE, "topics": _rows_by_topic(codes)}
