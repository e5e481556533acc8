"""The endpoint that shows consumer groups: members, state and offsets, as the quorum's records hold them.

What a coordinator has only in memory (waiting members, a join phase that has not ended) is not here: `quorate
groups` asks the coordinator itself. Decides names and pages. No state.

Source: quorum.metadata.group_records.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, TypeAlias

from aiohttp import web

from quorum.admin.endpoint import Answer, Endpoints, answer, blank, page_of
from quorum.admin.state import MACHINE, PageByPrefix, names_below, read_znode
from quorum.client import Stat
from quorum.core.machine import StateMachine
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import (
    ClassicGroupRecord,
    GroupRecord,
    OffsetRecord,
    chunk_names,
    decode_group,
)
from quorum.metadata.paths import PartitionKey

#: members and offsets that a page shows at most, unless its first group has more
ROWS_MAX: Final = 5000
ENDPOINTS: Final = Endpoints()


GroupMemberRow: TypeAlias = Annotated[
    Answer, answer(member_id=str, instance_id=str | None, client_id=str, client_host=str)
]
GroupOffsetRow: TypeAlias = Annotated[
    Answer,
    answer(
        topic=str,
        partition=int,
        offset=int | None,
        leader_epoch=int | None,
        metadata=str | None,
        commit_timestamp_ms=int | None,
        problem=str | None,
    ),
]
GroupRow: TypeAlias = Annotated[
    Answer,
    answer(
        group_id=str,
        version=int,
        size_bytes=int,
        type=str | None,
        state=str | None,
        generation_id=int | None,
        protocol=str | None,
        members=list[GroupMemberRow],
        offsets=list[GroupOffsetRow],
        problem=str | None,
    ),
]


@ENDPOINTS.add("GET", "/v1/groups")
async def _get_groups(request: web.Request, query: PageByPrefix) -> Annotated[Answer, page_of(GroupRow)]:
    """Consumer groups, their members and offsets."""
    machine, (limit, after, prefix) = request.app[MACHINE](), query
    named = (paths.group_id_of(name) for name in names_below(machine, paths.GROUPS))
    names = sorted(name for name in named if name is not None and name.startswith(prefix) and name > after)
    items: list[Answer] = []
    rows = 0
    for name in names:
        if len(items) == limit or rows >= ROWS_MAX:
            return {"items": items, "next_after": items[-1]["group_id"]}
        found = read_znode(machine, paths.group_path(name))
        if not isinstance(found, int):
            data, stat, _ = found
            group, member_count = _group(machine, name, data, stat)
            offsets = list(_offsets(machine, name))
            rows += member_count + len(offsets)
            items.append({**group, "offsets": offsets})
    return {"items": items, "next_after": None}


def _record_data(machine: StateMachine, name: str, data: bytes | None, stat: Stat) -> bytes | None:
    """Return the record's bytes: the znode's value, or what the chunks hold that this names."""
    # The offsets are one child.
    chunks = chunk_names(name, data) if stat.children_count > 1 else ()
    parts = [read_znode(machine, paths.group_chunk_path(name, each)) for each in chunks]
    return b"".join((part[0] or b"") for part in parts if not isinstance(part, int)) if chunks else data


def _group(machine: StateMachine, name: str, data: bytes | None, stat: Stat) -> tuple[dict[str, object], int]:
    row = {**blank(GroupRow), "group_id": name, "version": stat.version, "size_bytes": stat.data_length}
    row["members"] = []
    try:
        data = _record_data(machine, name, data, stat)
        record = decode_group(name, data)
    except MetadataDecodeError as error:
        row["problem"] = error.message
        return row, 0
    row["size_bytes"], row["state"] = len(data or b""), _state(record)
    if isinstance(record, ClassicGroupRecord):
        row["type"], row["protocol"] = "classic", record.protocol
        row["generation_id"] = record.generation_id
    else:
        row["type"], row["protocol"] = "consumer", record.assignor
        row["generation_id"] = record.group_epoch
    row["members"] = [
        {
            "member_id": each.member_id,
            "instance_id": each.instance_id,
            "client_id": each.client_id,
            "client_host": each.client_host,
        }
        for each in record.members
    ]
    return row, len(record.members)


def _state(record: GroupRecord) -> str:
    """Return the group's state in Kafka's words, as far as the record tells."""
    if not record.members:
        return "Empty"
    if isinstance(record, ClassicGroupRecord):
        return "Stable" if record.assigned else "CompletingRebalance"
    settled = all(each.assigned == each.target and not each.revoking for each in record.members)
    return "Stable" if settled else "Reconciling"


def _offsets(machine: StateMachine, group_id: str) -> Iterator[Answer]:
    for topic in names_below(machine, paths.group_offsets_path(group_id)):
        names = names_below(machine, paths.group_topic_path(group_id, topic))
        for partition in sorted(int(name) for name in names if name.isascii() and name.isdecimal()):
            key = PartitionKey(topic, partition)
            found = read_znode(machine, paths.group_offset_path(group_id, key))
            if not isinstance(found, int):
                yield _offset(group_id, key, found[0])


def _offset(group_id: str, key: PartitionKey, data: bytes | None) -> Answer:
    row = {**blank(GroupOffsetRow), "topic": key.topic, "partition": key.partition}
    try:
        record = OffsetRecord.decode(group_id, key, data)
    except MetadataDecodeError as error:
        row["problem"] = error.message
        return row
    row["offset"], row["leader_epoch"] = record.offset, record.leader_epoch
    row["metadata"], row["commit_timestamp_ms"] = record.metadata, record.commit_timestamp_ms
    return row
