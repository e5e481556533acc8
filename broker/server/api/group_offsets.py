"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete: what groups have read.

Decides whether a partition exists and whether a commit's metadata is too large; the rest is decided by
the coordinator.
Source: Kafka's protocol guide; KIP-709 (several groups in one OffsetFetch), KIP-496 (OffsetDelete), KIP-848
(topics by their ids).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.inputs import CheckCommit, CommitOffsets, RemoveOffsets
from broker.core.groups.model import NO_GENERATION_ID, GroupState
from broker.core.transactions.inputs import Producer, StoreOffsets
from broker.groups.errors import GroupRefusedError
from broker.server.api.groups import code_of, term_of
from broker.server.api.partitions import topic_id
from broker.server.api.transactions import fenced_code
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from controller.wire.codes import ErrorCode
from quorum.metadata.acl_records import Operation, ResourceType
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey

#: The first OffsetCommit and OffsetFetch that name topics by their ids.
_IDS_VERSION: Final = 10
#: A topic as a request names it: by its name, or by its id.
_Asked = str | uuid.UUID | None
#: Where nothing is committed.
_NO_OFFSET: Final = OffsetRecord(-1, -1, "", 0)
#: Who commits, where a request does not say it.
_NOBODY: Final = ("", None, NO_GENERATION_ID)
#: No TxnOffsetCommit knows PRODUCER_FENCED.
_NEVER: Final = 2**15
_NO_RIGHT: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
#: The first OffsetFetch that names several groups.
_MANY_GROUPS_VERSION: Final = 8
#: The first OffsetFetch with an error of the whole.
_GROUP_ERROR_VERSION: Final = 2


async def offset_commit(services: BrokerServices, call: Call) -> Answer:
    """Commit offsets; the answer comes when they are in the quorum."""
    body = call.body
    codes, offsets = _committed(services, call)
    generation_id = GenerationId(
        body.generation_id_or_member_epoch
        if hasattr(body, "generation_id_or_member_epoch")
        else body.generation_id
    )
    instance_id = getattr(body, "group_instance_id", None)
    request = CommitOffsets(body.group_id, body.member_id, instance_id, generation_id, offsets)
    code = await code_of(services, request)
    if code is not ErrorCode.NONE:
        codes = dict.fromkeys(codes, code)
    return {"topics": _rows_by_topic(codes.items())}


async def txn_offset_commit(services: BrokerServices, call: Call) -> Answer:
    """Keep offsets until a transaction ends; the answer comes when they are in the quorum."""
    body = call.body
    codes, offsets = _committed(services, call)
    generation_id = GenerationId(getattr(body, "generation_id", NO_GENERATION_ID))
    whose = getattr(body, "member_id", ""), getattr(body, "group_instance_id", None), generation_id
    producer = Producer(body.producer_id, body.producer_epoch)
    request = StoreOffsets(body.transactional_id, producer, body.group_id, offsets)
    # Older producers do not say who commits.
    check = None if whose == _NOBODY else CheckCommit(body.group_id, *whose)
    try:
        outcome = await (await term_of(services)).store_offsets(check, request)
    except GroupRefusedError as error:
        outcome = error.error_code
    if outcome is not ErrorCode.NONE:
        # That code is as old as the request.
        code = fenced_code(outcome, call, _NEVER)
        codes = dict.fromkeys(codes, code)
    return {"topics": _rows_by_topic(codes.items())}


def _committed(
    services: BrokerServices, call: Call
) -> tuple[dict[tuple[_Asked, int], ErrorCode], dict[PartitionKey, OffsetRecord]]:
    """Return the code of each partition of a commit, and the offsets that can be committed."""
    now_ms = time.time_ns() // 1_000_000
    metadata_max = services.config.groups.offset_metadata_max_bytes
    codes: dict[tuple[_Asked, int], ErrorCode] = {}
    offsets: dict[PartitionKey, OffsetRecord] = {}
    for topic in call.body.topics:
        asked = _asked(topic)
        name = _name(services, asked)
        for each in topic.partitions:
            row = asked, each.partition_index
            key = PartitionKey(name or "", each.partition_index)
            metadata = each.committed_metadata or ""
            codes[row] = ErrorCode.NONE
            if name is None:
                codes[row] = ErrorCode.UNKNOWN_TOPIC_ID
            elif services.view.partition(*key) is None:
                codes[row] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(metadata.encode("utf-8", "surrogatepass")) > metadata_max:
                codes[row] = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                # Also one below 0, by which clients reset a group: consumers then go where their policy says.
                leader_epoch = max(getattr(each, "committed_leader_epoch", -1), -1)
                offsets[key] = OffsetRecord(each.committed_offset, leader_epoch, metadata, now_ms)
    return codes, offsets


def _asked(topic: Any) -> _Asked:
    asked: _Asked = topic.topic_id if hasattr(topic, "topic_id") else topic.name
    return asked


def _name(services: BrokerServices, asked: _Asked) -> str | None:
    """Return a topic's name; None: it is asked for by an id that no topic has."""
    return asked if isinstance(asked, str) else services.view.topic_name(asked)


def _topic_row(asked: _Asked, rows: Iterable[Values]) -> Values:
    return {"name" if isinstance(asked, str) else "topic_id": asked, "partitions": rows}


def _rows_by_topic(codes: Iterable[tuple[tuple[_Asked, int], ErrorCode]]) -> list[Values]:
    topics: dict[_Asked, list[Values]] = {}
    for (asked, partition), code in codes:
        topics.setdefault(asked, []).append({"partition_index": partition, "error_code": code})
    return [_topic_row(asked, rows) for asked, rows in topics.items()]


async def offset_fetch(services: BrokerServices, call: Call) -> Answer:
    """Answer with committed offsets: of named partitions, or of all that have one."""
    body = call.body
    if call.request.api_version >= _MANY_GROUPS_VERSION:
        groups = []
        for each in {each.group_id: each for each in body.groups}.values():
            topics, code = await _fetched(services, call, each, body.require_stable)
            groups.append({"group_id": each.group_id, "topics": topics, "error_code": code})
        return {"groups": groups}
    topics, code = await _fetched(services, call, body, getattr(body, "require_stable", False))
    if call.request.api_version < _GROUP_ERROR_VERSION and code is not ErrorCode.NONE:
        wanted = _named_once(body.topics)
        topics = (_fetched_topic(name, str(name), each, {}, code) for name, each in wanted.items())
    return {"topics": topics, "error_code": code}


def _named_once(topics: Iterable[Any]) -> dict[_Asked, dict[int, None]]:
    wanted: dict[_Asked, dict[int, None]] = {}
    for topic in topics:
        wanted.setdefault(_asked(topic), {}).update(dict.fromkeys(topic.partition_indexes))
    return wanted


async def _fetched(
    services: BrokerServices, call: Call, group: Any, require_stable: bool
) -> tuple[Iterable[Values], ErrorCode]:
    """Return the rows of one group of a request, which names its topics or wants all."""
    try:
        term = await term_of(services)
        slot = term.group(group.group_id)
    except GroupRefusedError as error:
        return [], error.error_code
    machine = None if slot is None else slot.machine
    member_id, member_epoch = getattr(group, "member_id", None), getattr(group, "member_epoch", -1)
    if member_id is not None and member_epoch >= 0 and isinstance(machine, ConsumerGroup):
        # A member that names its epoch gets offsets only if it is up to date.
        code = machine.check_commit(member_id, None, member_epoch, 0)
        if code is not ErrorCode.NONE:
            return [], code
    held: Mapping[PartitionKey, OffsetRecord] = {} if slot is None else slot.stored.offsets
    unstable = term.transactions.machine.unstable(group.group_id) if require_stable else ()
    if group.topics is not None:
        wanted = _named_once(group.topics)
    else:
        wanted = {}
        for key in dict.fromkeys((*held, *unstable)):
            # A topic that is gone has no id any more.
            asked = (
                topic_id(services.view, key.topic) if call.request.api_version >= _IDS_VERSION else key.topic
            )
            if asked is not None and _may_describe(call, key.topic):
                wanted.setdefault(asked, {})[key.partition] = None

    names = {asked: _name(services, asked) for asked in wanted}
    codes = {
        asked: ErrorCode.NONE
        if name is None or call.access.permits(Operation.DESCRIBE, ResourceType.TOPIC, name)
        else _NO_RIGHT
        for asked, name in names.items()
    }
    rows = (
        _fetched_topic(asked, names[asked], partitions, held, codes[asked], unstable)
        for asked, partitions in wanted.items()
    )
    return rows, ErrorCode.NONE


def _may_describe(call: Call, topic: str) -> bool:
    return call.access.allows(Operation.DESCRIBE, ResourceType.TOPIC, topic)


def _fetched_topic(
    asked: _Asked,
    name: str | None,
    partitions: Iterable[int],
    held: Mapping[PartitionKey, OffsetRecord],
    code: ErrorCode = ErrorCode.NONE,
    unstable: Collection[PartitionKey] = (),
) -> Values:
    if name is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID

    def row(partition: int) -> Values:
        key = PartitionKey(name or "", partition)
        is_stable = key not in unstable or code is _NO_RIGHT
        found = held.get(key, _NO_OFFSET) if is_stable and code is not _NO_RIGHT else _NO_OFFSET
        return {
            "partition_index": partition,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
            "error_code": code if is_stable else ErrorCode.UNSTABLE_OFFSET_COMMIT,
        }

    return _topic_row(asked, (row(partition) for partition in partitions))


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
            await term.ask(RemoveOffsets(slot.group_id, removed), ErrorCode)
    except GroupRefusedError as error:
        return {"error_code": error.error_code, "topics": ()}
    return {"error_code": ErrorCode.NONE, "topics": _rows_by_topic(codes.items())}
