"""Reading and writing groups through a client: everything at the begin of a term, then what changes.

A write is cut into multis by bytes, for the quorum takes none that is too large. Every multi checks
/consumers/coordinator_epoch at the version of the mandate and the group's znode at the version that this
coordinator wrote or read, so a former coordinator changes nothing, and no commit passes the generation that
it belongs to. A lost reply is looked up: only this coordinator writes the znode, so its
version and value tell what became of a write. A record that one multi does not hold is written in chunks
first (content.py).
Hard state: the znodes. What is written is decided elsewhere.
Source: control-plane design, "Coordinator"; seed [4.x].
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.groups.content import CHUNK_BYTES, Content, Contents
from broker.groups.errors import CoordinatorFencedError, GroupChangedError
from broker.groups.fence import Fence
from controller.core.chunks import chunk_by_size
from controller.election.plans import Mandate
from quorum.client import (
    BadVersionError,
    Client,
    ConnectionLossError,
    MultiFailedError,
    NoAuthError,
    NodeExistsError,
    NoNodeError,
    ServerError,
    Transaction,
)
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, MetadataDecodeError
from quorum.metadata.group_records import OFFSET_BYTES, ClassicGroupRecord, GroupRecord, OffsetRecord
from quorum.metadata.numbers import CoordinatorEpoch, GenerationId, GroupVersion, next_version
from quorum.metadata.paths import PartitionKey
from quorum.metadata.reading import read_node

#: Offsets that one multi writes.
OFFSETS_MAX: Final = 1_000
#: Offsets whose values are held at a time, before they are records.
READ_CHUNK: Final = 8_000
#: Groups that are read at a time.
LOAD_CHUNK: Final = 500
NO_NODE: Final = GroupVersion(-1)
#: Stands for a group whose first record is on its way in chunks.
_NOT_BEGUN: Final = ClassicGroupRecord(GenerationId(0), None, None, None, False, 0)


@dataclass(slots=True)
class StoredGroup:
    """A group as the quorum holds it."""

    group_id: str
    #: None: there is no znode.
    record: GroupRecord | None = None
    version: GroupVersion = NO_NODE
    offsets: dict[PartitionKey, OffsetRecord] = field(default_factory=dict)
    #: {topic: partitions}: which nodes exist below offsets/.
    nodes: dict[str, set[int]] = field(default_factory=dict)
    #: Children of its znode that hold the record; none: the znode does.
    chunks: tuple[str, ...] = ()


class Loaded(NamedTuple):
    """All groups."""

    groups: Mapping[str, StoredGroup]
    #: {group: what is wrong with its record}
    problems: Mapping[str, str]


class GroupStore:
    """Groups in the name of one mandate."""

    def __init__(self, client: Client, mandate: Mandate[CoordinatorEpoch], *, retries_max: int) -> None:
        """Write through a client, as long as the mandate holds.

        Args:
            client: a session of the quorum.
            mandate: of the coordinator.
            retries_max: how often a write is repeated whose outcome is unknown, or whose ground has moved.
        """
        self._client = client
        self._fence = Fence(client, mandate, 1 + retries_max)
        self._contents = Contents(client, self._fence)

    # -- reading ---------------------------------------------------------------------------------------------

    async def load(self) -> Loaded:
        """Read every group and every offset.

        Raises:
            ClientError: the quorum cannot be asked.
        """
        # This server may lag behind the election.
        await self._client.sync(paths.GROUPS)
        groups: dict[str, StoredGroup] = {}
        problems: dict[str, str] = {}
        names = sorted(await self._client.get_children(paths.GROUPS))
        for start in range(0, len(names), LOAD_CHUNK):
            chunk = names[start : start + LOAD_CHUNK]
            found = await asyncio.gather(*(self._load_named(name) for name in chunk))
            for name, each in zip(chunk, found, strict=True):
                if isinstance(each, str):
                    problems[paths.group_id_of(name) or name] = each
                elif each is not None:
                    groups[each.group_id] = each
        return Loaded(groups, problems)

    async def _load_named(self, name: str) -> StoredGroup | str | None:
        group_id = paths.group_id_of(name)
        if group_id is None:
            return f"{paths.GROUPS}/{name} is the path of no group"
        try:
            return await self.load_group(group_id)
        except (MetadataDecodeError, NoAuthError) as error:
            return error.message

    async def load_group(self, group_id: str) -> StoredGroup | None:
        """Read one group, and remove what a coordinator left that did not end a write; None if there is none.

        Raises:
            MetadataDecodeError: a value is malformed.
            CoordinatorFencedError, GroupChangedError, ContendedError, ClientError: see write.
        """
        stored, strays = await self._read_group(group_id)
        if stored is not None:
            await self._contents.remove(group_id, stored.version, strays)
        return stored

    async def _read_group(self, group_id: str) -> tuple[StoredGroup | None, Sequence[str]]:
        """Read one group, and the chunks to which its record does not refer."""
        node = await read_node(self._client, paths.group_path(group_id))
        if node is None:
            return None, ()
        found = await self._contents.read(group_id, node)
        version = GroupVersion(node.stat.version)
        stored = StoredGroup(group_id, found.record, version, chunks=found.chunks)
        await self._load_offsets(stored)
        return stored, found.strays

    async def _load_offsets(self, stored: StoredGroup) -> None:
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
        async for key, data in self._values(group_id, keys):
            stored.offsets[key] = OffsetRecord.decode(group_id, key, data)

    async def _children(self, path: str) -> list[str]:
        try:
            return sorted(await self._client.get_children(path))
        except NoNodeError:
            return []

    async def _values(
        self, group_id: str, keys: Sequence[PartitionKey]
    ) -> AsyncIterator[tuple[PartitionKey, bytes | None]]:
        for start in range(0, len(keys), READ_CHUNK):
            chunk = keys[start : start + READ_CHUNK]
            found = await self._client.read_all([paths.group_offset_path(group_id, key) for key in chunk])
            for key, outcome in zip(chunk, found, strict=True):
                if not isinstance(outcome, ServerError):
                    yield key, outcome[0]

    # -- writing ---------------------------------------------------------------------------------------------

    async def write(
        self,
        stored: StoredGroup,
        record: GroupRecord | None,
        offsets: Mapping[PartitionKey, OffsetRecord | None],
    ) -> None:
        """Write a group's record, and offsets (None: removed); `stored` then says what the quorum holds.

        The record comes first. What is more than one multi holds takes several, each behind the same checks.

        Args:
            stored: the group.
            record: the new record; None: it stays.
            offsets: what is committed.

        Raises:
            CoordinatorFencedError: another coordinator has been elected; definite.
            GroupChangedError: somebody else has written the znode; definite.
            ContendedError: the outcome stayed unknown, or the nodes kept changing, in every round.
            ClientError: the session is over, or a request is too large.
        """
        content = None if record is None else Content(record, record.encode())
        if content is not None and len(content.value) > CHUNK_BYTES:
            if stored.version == NO_NODE:
                # Chunks are children. Should this coordinator die now, the group has not begun.
                await self._write_part(stored, Content(_NOT_BEGUN, _NOT_BEGUN.encode()), ())
            content = await self._contents.cut(stored.group_id, stored.version, content)
        rest = 0 if content is None else content.multi_bytes(stored.group_id, stored.chunks)
        for part in self._parts(stored.group_id, offsets, rest):
            await self._write_part(stored, content, part)
            content = None

    def _parts(
        self, group_id: str, offsets: Mapping[PartitionKey, OffsetRecord | None], record_bytes: int
    ) -> Iterator[list[tuple[PartitionKey, OffsetRecord | None]]]:
        """Cut a write into what fits into one multi each; the first one also has room for the record."""
        group_bytes = len(paths.group_path(group_id))
        sized: list[tuple[tuple[PartitionKey, OffsetRecord | None] | None, int]] = [(None, record_bytes)]
        for key, offset in offsets.items():
            value_bytes = OFFSET_BYTES if offset is None else offset.stored_bytes
            # The first offset of a topic has a parent to be made.
            sized.append(((key, offset), value_bytes + 2 * (group_bytes + len(key.topic))))
        for part in chunk_by_size(sized, OFFSETS_MAX):
            yield [item for item in part if item is not None]

    async def _write_part(
        self,
        stored: StoredGroup,
        content: Content | None,
        offsets: Sequence[tuple[PartitionKey, OffsetRecord | None]],
    ) -> None:
        unknown = False
        for _ in range(self._fence.rounds_max):
            transaction, version = self._transaction(stored, content, offsets)
            try:
                await self._client.multi(transaction)
            except ConnectionLossError as error:
                unknown = unknown or not error.definite
            except MultiFailedError as error:
                if not (unknown and error.index == 1):
                    await self._judge(stored, error)
            else:
                self._took_effect(stored, content, version, offsets)
                return
            if unknown and await self._look_up(stored, content, version, offsets):
                return
        raise ContendedError(f"the write of group {stored.group_id!r}", self._fence.rounds_max)

    def _transaction(
        self,
        stored: StoredGroup,
        content: Content | None,
        offsets: Sequence[tuple[PartitionKey, OffsetRecord | None]],
    ) -> tuple[Transaction, GroupVersion]:
        """Return the multi, and the version that the group's znode has after it."""
        group_id = stored.group_id
        path = paths.group_path(group_id)
        transaction = self._fence.transaction()
        version = stored.version
        if version == NO_NODE:
            assert content is not None, "a group's first write has its record"
            transaction.create(path, content.value)
            transaction.create(paths.group_offsets_path(group_id), b"")
            version = GroupVersion(0)
        elif content is not None:
            transaction.set(path, content.value, version)
            content.add_to(transaction, group_id, stored.chunks)
            version = GroupVersion(next_version(version))
        else:
            transaction.check(path, version)
        new_topics: set[str] = set()
        for key, offset in offsets:
            there = key.partition in stored.nodes.get(key.topic, ())
            if key.topic not in stored.nodes and key.topic not in new_topics and offset is not None:
                new_topics.add(key.topic)
                transaction.create(paths.group_topic_path(group_id, key.topic), b"")
            node = paths.group_offset_path(group_id, key)
            if offset is None:
                if there:
                    transaction.delete(node)
            elif there:
                transaction.set(node, offset.encode())
            else:
                transaction.create(node, offset.encode())
        return transaction, version

    def _took_effect(
        self,
        stored: StoredGroup,
        content: Content | None,
        version: GroupVersion,
        offsets: Sequence[tuple[PartitionKey, OffsetRecord | None]],
    ) -> None:
        stored.version = version
        if content is not None:
            stored.record, stored.chunks = content.record, content.chunks
        for key, offset in offsets:
            if offset is None:
                stored.offsets.pop(key, None)
                stored.nodes.get(key.topic, set()).discard(key.partition)
            else:
                stored.offsets[key] = offset
                stored.nodes.setdefault(key.topic, set()).add(key.partition)

    async def _look_up(
        self,
        stored: StoredGroup,
        content: Content | None,
        version: GroupVersion,
        offsets: Sequence[tuple[PartitionKey, OffsetRecord | None]],
    ) -> bool:
        """Say whether a write whose reply was lost took effect.

        Raises:
            GroupChangedError: the znode is neither as before the write nor as after it.
        """
        try:
            await self._client.sync(paths.GROUPS)
            node = await read_node(self._client, paths.group_path(stored.group_id))
            if content is None and node is not None:
                # Only which nodes exist matters: setting the same offsets again is harmless.
                stored.nodes = ((await self._read_group(stored.group_id))[0] or stored).nodes
        except ConnectionLossError:
            return False
        found = NO_NODE if node is None else node.stat.version
        if content is not None and node is not None and (found, node.data) == (version, content.value):
            self._took_effect(stored, content, version, offsets)
            return True
        if found != stored.version:
            raise GroupChangedError(stored.group_id, "its znode has changed")
        return False

    async def _judge(self, stored: StoredGroup, error: MultiFailedError) -> None:
        """Return if the write may be tried again, on what exists by now.

        Raises:
            CoordinatorFencedError, GroupChangedError: see write.
        """
        if error.index == 0:
            raise CoordinatorFencedError(self._fence.mandate.epoch) from error
        if error.index == 1 or not isinstance(error.cause, NoNodeError | NodeExistsError | BadVersionError):
            raise GroupChangedError(stored.group_id, error.cause.message) from error
        # A node below offsets/ came or went, by an earlier attempt of ours or by an operator's hand.
        found, _ = await self._read_group(stored.group_id)
        if found is None or found.version != stored.version:
            raise GroupChangedError(stored.group_id, "its znode has changed") from error
        stored.nodes, stored.offsets = found.nodes, found.offsets

    async def delete(self, stored: StoredGroup) -> None:
        """Remove a group and its offsets.

        Raises:
            CoordinatorFencedError, GroupChangedError, ContendedError, ClientError: see write.
        """
        if stored.version == NO_NODE:
            return
        keys = [PartitionKey(topic, each) for topic, held in stored.nodes.items() for each in sorted(held)]
        await self.write(stored, None, dict.fromkeys(keys))
        path = paths.group_path(stored.group_id)
        parents = [paths.group_topic_path(stored.group_id, topic) for topic in stored.nodes]
        for chunk in chunk_by_size(((each, len(each) + OFFSET_BYTES) for each in parents), OFFSETS_MAX):
            transaction = self._fence.transaction().check(path, stored.version)
            for each in chunk:
                transaction.delete(each)
            await self._fence.carry_out(stored.group_id, transaction, chunk[-1], made=False)
        transaction = self._fence.transaction().delete(paths.group_offsets_path(stored.group_id))
        for name in stored.chunks:
            transaction.delete(paths.group_chunk_path(stored.group_id, name))
        transaction.delete(path, stored.version)
        await self._fence.carry_out(stored.group_id, transaction, path, made=False)
