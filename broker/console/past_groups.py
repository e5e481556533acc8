"""Consumer groups as they were after a transaction, from the node's history.

Decides nothing: rows are those of GET /v1/groups, as far as the records say them. Where logs ended then is in
no znode. No state.

Source: quorum.metadata.group_records.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from broker.console.kafka import Group, LogsSeen
from broker.console.topics import past_znodes
from quorum.console.extension import PageCall
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import ClassicGroupRecord, OffsetRecord, chunk_names, decode_group
from quorum.metadata.paths import PartitionKey


async def past_groups(call: PageCall, as_of: int) -> LogsSeen:
    """Return the groups; how far they were behind is not known."""
    below: dict[str, dict[str, bytes | None]] = defaultdict(dict)
    async for path, data in past_znodes(call, paths.GROUPS, as_of):
        segment, _, rest = path.removeprefix(f"{paths.GROUPS}/").partition("/")
        below[segment][rest] = data
    named = ((paths.group_id_of(segment), found) for segment, found in sorted(below.items()))
    groups = {name: _group(name, found) for name, found in named if name is not None and "" in found}
    return LogsSeen(groups=groups, problem="where logs ended then is in no znode")


def _group(group_id: str, found: dict[str, bytes | None]) -> Group:
    committed: dict[PartitionKey, int] = {}
    for path, data in found.items():
        parts = path.split("/")
        if len(parts) == 3 and parts[0] == "offsets" and parts[2].isdecimal():
            key = PartitionKey(parts[1], int(parts[2]))
            try:
                offset = OffsetRecord.decode(group_id, key, data).offset
            except MetadataDecodeError:
                continue
            if offset >= 0:
                committed[key] = offset
    return Group(group_id, committed, _row(group_id, found))


def _row(group_id: str, found: dict[str, bytes | None]) -> dict[str, Any]:
    row: dict[str, Any] = {"state": None, "type": None, "protocol": None, "members": []}
    try:
        chunks = chunk_names(group_id, found[""])
        data = b"".join(found.get(each) or b"" for each in chunks) if chunks else found[""]
        record = decode_group(group_id, data)
    except MetadataDecodeError:
        return row
    is_classic = isinstance(record, ClassicGroupRecord)
    row["type"] = "classic" if is_classic else "consumer"
    row["protocol"] = record.protocol if isinstance(record, ClassicGroupRecord) else record.assignor
    row["state"] = "Empty" if not record.members else "Stable"
    row["members"] = [
        {
            "member_id": each.member_id,
            "instance_id": each.instance_id,
            "client_id": each.client_id,
            "client_host": each.client_host,
        }
        for each in record.members
    ]
    return row
