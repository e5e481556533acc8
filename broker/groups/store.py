"""Reading groups through a client: all of them at the begin of a term, one where a write went wrong.

Decides nothing: what a lost reply or a refusal means is the machine's affair.
Hard state: the znodes.
Source: ARCHITECTURE.md, "Life of a consumer group"; docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

import asyncio
from typing import Final

from broker.core.groups.inputs import GroupsLoaded
from broker.core.groups.writing import StoredGroup
from quorum.client import Client, NoAuthError, NoNodeError, ServerError
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import OffsetRecord, chunk_names, decode_group
from quorum.metadata.numbers import GroupVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import NodeView, read_node

#: Offsets whose values are held at a time, before they are records.
READ_CHUNK: Final = 8_000
#: Groups that are read at a time.
LOAD_CHUNK: Final = 500
#: A group as it was read, and the value of its znode.
FoundGroup = tuple[StoredGroup, bytes | None]


class GroupStore:
    """The groups in a quorum."""

    def __init__(self, client: Client) -> None:
        """Read through a client."""
        self._client = client

    async def load(self) -> GroupsLoaded:
        """Read every group and every offset."""
        # This server may lag behind the election.
        await self._client.sync(paths.GROUPS)
        groups: list[StoredGroup] = []
        problems: dict[str, str] = {}
        names = sorted(await self._client.get_children(paths.GROUPS))
        for start in range(0, len(names), LOAD_CHUNK):
            chunk = names[start : start + LOAD_CHUNK]
            for name, each in zip(chunk, await asyncio.gather(*map(self._load, chunk)), strict=True):
                if isinstance(each, str):
                    problems[paths.group_id_of(name) or name] = each
                elif each is not None:
                    groups.append(each[0])
        return GroupsLoaded(groups, problems)

    async def _load(self, name: str) -> FoundGroup | str | None:
        group_id = paths.group_id_of(name)
        if group_id is None:
            return f"{paths.GROUPS}/{name} is the path of no group"
        try:
            return await self._read(group_id)
        except (MetadataDecodeError, NoAuthError) as error:
            return error.message

    async def read(self, group_id: str) -> FoundGroup | None:
        """Read one group, behind all that this session has written; None: there is none."""
        await self._client.sync(paths.GROUPS)
        return await self._read(group_id)

    async def _read(self, group_id: str) -> FoundGroup | None:
        node = await read_node(self._client, paths.group_path(group_id))
        if node is None:
            return None
        stored = StoredGroup(group_id, version=GroupVersion(node.stat.version))
        await self._read_record(stored, node)
        await self._read_offsets(stored)
        return stored, node.data

    async def _read_record(self, stored: StoredGroup, node: NodeView) -> None:
        group_id, data = stored.group_id, node.data
        # The offsets are one child.
        if node.stat.children_count > 1:
            children = await self._children(paths.group_path(group_id))
            stored.chunks = chunk_names(group_id, data)
            chunks = {each for each in children if each.startswith(paths.GROUP_CHUNK)}
            stored.strays = tuple(sorted(chunks.difference(stored.chunks)))
        if stored.chunks:
            wanted = [paths.group_chunk_path(group_id, name) for name in stored.chunks]
            parts: list[bytes] = []
            for path, outcome in zip(wanted, await self._client.read_all(wanted), strict=True):
                if isinstance(outcome, ServerError):
                    raise MetadataDecodeError(path, "", "nothing", "a part of the group's record")
                parts.append(outcome[0] or b"")
            data = b"".join(parts)
        stored.record = decode_group(group_id, data)

    async def _read_offsets(self, stored: StoredGroup) -> None:
        group_id = stored.group_id
        topics = await self._children(paths.group_offsets_path(group_id))
        listed = await asyncio.gather(
            *(self._children(paths.group_topic_path(group_id, topic)) for topic in topics)
        )
        stored.nodes = {
            topic: {int(name) for name in names if name.isascii() and name.isdecimal()}
            for topic, names in zip(topics, listed, strict=True)
        }
        keys = [PartitionKey(topic, each) for topic in topics for each in sorted(stored.nodes[topic])]
        for start in range(0, len(keys), READ_CHUNK):
            chunk = keys[start : start + READ_CHUNK]
            found = await self._client.read_all([paths.group_offset_path(group_id, key) for key in chunk])
            for key, outcome in zip(chunk, found, strict=True):
                if not isinstance(outcome, ServerError):
                    stored.offsets[key] = OffsetRecord.decode(group_id, key, outcome[0])

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self._client.get_children(path))
        except NoNodeError:
            return []
