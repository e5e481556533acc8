"""A group's record in the quorum: in the group's znode, or in chunks where one request does not hold it.

A chunk is a child of the group's znode. A coordinator first writes all chunks of a record, to which nothing
refers yet, each behind the checks of its epoch and of the group's version; then one multi writes their names
into the group's znode and deletes the chunks of the record before. So the znode always names chunks that are
there. A coordinator that dies in between leaves chunks that have no reader: the next one removes them when it
loads the group.
Hard state: the znodes. What is written is decided elsewhere.
Source: control-plane design, "Coordinator".
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from typing import Final, NamedTuple

from broker.groups.fence import Fence
from controller.core.chunks import OPERATION_OVERHEAD_BYTES
from quorum.client import Client, ServerError, Transaction
from quorum.metadata import paths
from quorum.metadata.errors import MetadataDecodeError
from quorum.metadata.group_records import GroupRecord, chunk_names, decode_group, encode_chunk_names
from quorum.metadata.numbers import GroupVersion
from quorum.metadata.reading import NodeView

#: What one znode holds of a group's record; a larger record is cut.
CHUNK_BYTES: Final = 512 * 1024


class Content(NamedTuple):
    """What a write makes of a group's znode."""

    record: GroupRecord
    #: Of the group's znode.
    value: bytes
    #: Names of the chunks that hold the record, in order; none: the value is the record.
    chunks: tuple[str, ...] = ()

    def add_to(self, transaction: Transaction, group_id: str, former: Collection[str]) -> None:
        """Append what else the multi has that writes the value; former: chunks of the record before."""
        for name in self.chunks:
            # An earlier attempt whose reply was lost may come late, after its chunks were removed.
            transaction.check(paths.group_chunk_path(group_id, name), 0)
        for name in former:
            transaction.delete(paths.group_chunk_path(group_id, name))

    def multi_bytes(self, group_id: str, former: Collection[str]) -> int:
        """Return what all that takes of a multi."""
        path_bytes = len(paths.group_path(group_id)) + 64 + OPERATION_OVERHEAD_BYTES
        return len(self.value) + (len(self.chunks) + len(former)) * path_bytes


class Found(NamedTuple):
    """What the quorum holds of a group, but for offsets."""

    record: GroupRecord
    #: Those that the znode names.
    chunks: tuple[str, ...] = ()
    #: Those that it does not.
    strays: tuple[str, ...] = ()


class Contents:
    """The records of groups, in the name of one mandate."""

    def __init__(self, client: Client, fence: Fence) -> None:
        """Read through a client, write through a fence."""
        self._client = client
        self._fence = fence

    async def read(self, group_id: str, node: NodeView) -> Found:
        """Return the record that a group's znode holds or names.

        Raises:
            MetadataDecodeError: a value is malformed, or a chunk is not there.
            ClientError: the quorum cannot be asked.
        """
        # The offsets are one child.
        if node.stat.children_count <= 1:
            return Found(decode_group(group_id, node.data))
        children = await self._client.get_children(paths.group_path(group_id))
        chunks = chunk_names(group_id, node.data)
        strays = {each for each in children if each.startswith(paths.GROUP_CHUNK)}.difference(chunks)
        data = node.data
        if chunks:
            wanted = [paths.group_chunk_path(group_id, name) for name in chunks]
            parts: list[bytes] = []
            for path, outcome in zip(wanted, await self._client.read_all(wanted), strict=True):
                if isinstance(outcome, ServerError):
                    raise MetadataDecodeError(path, "", "nothing", "a part of the group's record")
                parts.append(outcome[0] or b"")
            data = b"".join(parts)
        return Found(decode_group(group_id, data), chunks, tuple(sorted(strays)))

    async def remove(self, group_id: str, version: GroupVersion, names: Collection[str]) -> None:
        """Delete chunks that the group's znode of a version does not name.

        Raises:
            CoordinatorFencedError, GroupChangedError, ContendedError, ClientError: see Fence.carry_out.
        """
        transaction = self._fence.transaction().check(paths.group_path(group_id), version)
        witness = ""
        for name in names:
            witness = paths.group_chunk_path(group_id, name)
            transaction.delete(witness)
        if witness:
            await self._fence.carry_out(group_id, transaction, witness, made=False)

    async def cut(self, group_id: str, version: GroupVersion, whole: Content) -> Content:
        """Write a record in chunks, and return the content that names them.

        Args:
            group_id: the group, which has a znode.
            version: of the znode.
            whole: the record in one value.

        Raises:
            CoordinatorFencedError, GroupChangedError, ContendedError, ClientError: see Fence.carry_out;
                chunks may be left, to which nothing refers.
        """
        names: list[str] = []
        for start in range(0, len(whole.value), CHUNK_BYTES):
            # Never used before: a chunk of this name is this one, also after a lost reply.
            name = f"{paths.GROUP_CHUNK}{uuid.uuid4().hex}"
            path = paths.group_chunk_path(group_id, name)
            transaction = self._fence.transaction().check(paths.group_path(group_id), version)
            transaction.create(path, whole.value[start : start + CHUNK_BYTES])
            await self._fence.carry_out(group_id, transaction, path, made=True)
            names.append(name)
        return Content(whole.record, encode_chunk_names(names), tuple(names))
