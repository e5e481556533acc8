"""Groups written and read through a client as a coordinator does it, one write at a time."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from typing import Any

from broker.core.groups.writing import GroupWrite, StoredGroup
from broker.groups.store import GroupStore
from controller.core.effects import Check, Write
from controller.core.inputs import Rejected
from controller.runtime import carrying
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.group_records import GroupRecord, OffsetRecord
from quorum.metadata.paths import PartitionKey


class FencedOutError(Exception):
    """Another coordinator has been elected."""


class GivenUpError(Exception):
    """The write is given up, and why."""


class GroupWriter:
    """Writes in the name of one mandate."""

    def __init__(self, client: Client | Any, mandate: Any, retries_max: int = 7) -> None:
        self._client = client
        self._store = GroupStore(client)
        self.mandate = mandate
        self._rounds_max = 1 + retries_max
        nonce = uuid.uuid4().hex
        self._names = (f"{paths.GROUP_CHUNK}{nonce}-{number}" for number in itertools.count())

    async def load(self) -> tuple[dict[str, StoredGroup], Mapping[str, str]]:
        """Read all groups and what is wrong with others, and remove what a former coordinator left."""
        loaded = await self._store.load()
        for stored in loaded.groups:
            await self._carry_out(stored, GroupWrite())
        return {each.group_id: each for each in loaded.groups}, loaded.problems

    async def load_group(self, group_id: str) -> StoredGroup | None:
        """Read one group, and remove what an earlier write left."""
        found = await self._store.read(group_id)
        if found is not None:
            await self._carry_out(found[0], GroupWrite())
        return None if found is None else found[0]

    async def write(
        self,
        stored: StoredGroup,
        record: GroupRecord | None,
        offsets: Mapping[PartitionKey, OffsetRecord | None],
    ) -> None:
        """Write a record, None: it stays, and offsets, None: removed; `stored` follows."""
        write = GroupWrite(record, dict(offsets))
        write.begin(self._names)
        await self._carry_out(stored, write)

    async def delete(self, stored: StoredGroup) -> None:
        """Remove a group and its offsets."""
        await self._carry_out(stored, GroupWrite(is_deletion=True))

    async def _carry_out(self, stored: StoredGroup, write: GroupWrite) -> None:
        fence = Check(paths.COORDINATOR_EPOCH, self.mandate.epoch_version)
        while (multi := write.next_multi(stored)) is not None:
            asked = Write(0, (fence, *multi.operations))
            outcome = (await carrying.write(self._client, asked)).outcome
            if isinstance(outcome, Rejected) and outcome.failed_index == 0:
                raise FencedOutError(outcome.problem)
            if write.take_outcome(outcome, stored):
                continue
            found, value = await self._store.read(stored.group_id) or (None, None)
            problem = write.judge(stored, found, value, self._rounds_max)
            if problem:
                raise GivenUpError(problem)
            for name in StoredGroup.__slots__:
                setattr(stored, name, getattr(found or StoredGroup(stored.group_id), name))
