"""The endpoint that shows consumer groups: members, state and offsets, as the quorum's records hold them.

What a coordinator has only in memory (who waits, a join phase that has not ended) is not here: `quorate
groups` asks the coordinator itself. Decides names and pages. No state.

Source: quorum.metadata.group_records.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from aiohttp import web

from quorum.admin.endpoint import INTEGER, STRING, fields, list_of, nullable, page_of
from quorum.admin.parameters import read_query
from quorum.admin.state import AFTER_NAME, LIMIT, STATE, StateView
from quorum.admin.typed import PREFIX
from quorum.admin.view import json_answer, part
from quorum.client import Stat
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
MEMBER: Final = fields(member_id=STRING, instance_id=nullable("string"), client_id=STRING, client_host=STRING)
OFFSET: Final = fields(
    topic=STRING,
    partition=INTEGER,
    offset=nullable("integer"),
    leader_epoch=nullable("integer"),
    metadata=nullable("string"),
    commit_timestamp_ms=nullable("integer"),
    problem=nullable("string"),
)
GROUP: Final = fields(
    group_id=STRING,
    version=INTEGER,
    size_bytes=INTEGER,
    type=nullable("string"),
    state=nullable("string"),
    generation_id=nullable("integer"),
    protocol=nullable("string"),
    members=list_of(MEMBER),
    offsets=list_of(OFFSET),
    problem=nullable("string"),
)
GROUPS: Final = page_of(GROUP)

Row = Mapping[str, object]


async def get_groups(request: web.Request) -> web.Response:
    """List the consumer groups."""
    query = read_query(request, (LIMIT, AFTER_NAME, PREFIX))
    state, limit = part(request, STATE), int(query["limit"])
    prefix, after = str(query["prefix"]), str(query["after"])
    named = (paths.group_id_of(name) for name in _names(state, paths.GROUPS))
    names = sorted(name for name in named if name is not None and name.startswith(prefix) and name > after)
    items: list[Row] = []
    rows = 0
    for name in names:
        if len(items) == limit or rows >= ROWS_MAX:
            return json_answer({"items": items, "next_after": items[-1]["group_id"]})
        found = state.znode(paths.group_path(name))
        if not isinstance(found, int):
            data, stat, _ = found
            offsets = list(_offsets(state, name))
            group = _group(state, name, data, stat)
            members = group["members"]
            assert isinstance(members, list)
            rows += len(members) + len(offsets)
            items.append({**group, "offsets": offsets})
    return json_answer({"items": items, "next_after": None})


def _names(state: StateView, path: str) -> list[str]:
    found = state.znode(path)
    return [] if isinstance(found, int) else sorted(found[2])


def _record_data(state: StateView, name: str, data: bytes | None, stat: Stat) -> bytes | None:
    """Return the record's bytes: the znode's value, or what the chunks hold that this names."""
    # The offsets are one child.
    chunks = chunk_names(name, data) if stat.children_count > 1 else ()
    parts = [state.znode(paths.group_chunk_path(name, each)) for each in chunks]
    return b"".join((part[0] or b"") for part in parts if not isinstance(part, int)) if chunks else data


def _group(state: StateView, name: str, data: bytes | None, stat: Stat) -> Row:
    answer: dict[str, object] = dict.fromkeys(("type", "state", "generation_id", "protocol", "problem"))
    answer |= {"group_id": name, "version": stat.version, "size_bytes": stat.data_length, "members": []}
    try:
        data = _record_data(state, name, data, stat)
        record = decode_group(name, data)
    except MetadataDecodeError as error:
        return {**answer, "problem": error.message}
    answer["size_bytes"] = len(data or b"")
    if isinstance(record, ClassicGroupRecord):
        answer |= {"type": "classic", "generation_id": record.generation_id, "protocol": record.protocol}
    else:
        answer |= {"type": "consumer", "generation_id": record.group_epoch, "protocol": record.assignor}
    return {
        **answer,
        "state": _state(record),
        "members": [
            {
                "member_id": each.member_id,
                "instance_id": each.instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
            }
            for each in record.members
        ],
    }


def _state(record: GroupRecord) -> str:
    """Return the group's state in Kafka's words, as far as the record tells."""
    if not record.members:
        return "Empty"
    if isinstance(record, ClassicGroupRecord):
        return "Stable" if record.assigned else "CompletingRebalance"
    settled = all(each.assigned == each.target and not each.revoking for each in record.members)
    return "Stable" if settled else "Reconciling"


def _offsets(state: StateView, group_id: str) -> Iterator[Row]:
    for topic in _names(state, paths.group_offsets_path(group_id)):
        names = _names(state, paths.group_topic_path(group_id, topic))
        for partition in sorted(int(name) for name in names if name.isascii() and name.isdecimal()):
            key = PartitionKey(topic, partition)
            found = state.znode(paths.group_offset_path(group_id, key))
            if not isinstance(found, int):
                yield _offset(group_id, key, found[0])


def _offset(group_id: str, key: PartitionKey, data: bytes | None) -> Row:
    row: dict[str, object] = dict.fromkeys(
        ("offset", "leader_epoch", "metadata", "commit_timestamp_ms", "problem")
    )
    row |= {"topic": key.topic, "partition": key.partition}
    try:
        record = OffsetRecord.decode(group_id, key, data)
    except MetadataDecodeError as error:
        return {**row, "problem": error.message}
    return {
        **row,
        "offset": record.offset,
        "leader_epoch": record.leader_epoch,
        "metadata": record.metadata,
        "commit_timestamp_ms": record.commit_timestamp_ms,
    }
