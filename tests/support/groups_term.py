"""A coordinator's term as tests ask it: one method for each request."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence

from broker.core.groups import inputs
from broker.core.groups.model import (
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.term import GroupsTerm
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey


class AskedTerm(GroupsTerm):
    """A term with a method for each request."""

    async def join(self, group_id: str, request: JoinRequest) -> Joined:
        new_member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        return await self.ask(inputs.JoinGroup(group_id, request, new_member_id), Joined)

    async def sync(self, group_id: str, request: SyncRequest) -> SyncAnswer:
        return await self.ask(inputs.SyncGroup(group_id, request), SyncAnswer)

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[tuple[ErrorCode, str]]:
        return await self.ask(inputs.LeaveGroup(group_id, members), list)

    async def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        return await self.ask(inputs.ConsumerHeartbeat(group_id, request), HeartbeatAnswer)

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: GenerationId,
        offsets: Mapping[PartitionKey, OffsetRecord],
    ) -> ErrorCode:
        request = inputs.CommitOffsets(group_id, member_id, instance_id, generation_id, offsets)
        return await self.ask(request, ErrorCode)

    async def remove_offsets(self, group_id: str, keys: Sequence[PartitionKey]) -> ErrorCode:
        return await self.ask(inputs.RemoveOffsets(group_id, keys), ErrorCode)

    async def delete(self, group_id: str) -> ErrorCode:
        return await self.ask(inputs.DeleteGroup(group_id), ErrorCode)
