"""The term of an elected coordinator: what members and administrators ask of it.

Carries each request to the machine of its group; when the answer leaves is the engine's affair.
Source: control-plane design, "Coordinator"; KIP-848; seed [4.x].
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Collection, Mapping, Sequence

from broker.core.groups import bridge
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import (
    JOIN_EPOCH,
    GroupState,
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    Synced,
    SyncRequest,
)
from broker.groups.engine import GroupEngine, clock_ms
from broker.groups.errors import GroupRefusedError, GroupTooLargeError, NotCoordinatorError
from broker.groups.slot import GroupSlot, Machine
from controller.wire.codes import ErrorCode
from quorum.client import ClientError
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey


class Term(GroupEngine):
    """One term; `ready` returns when requests are served."""

    async def join(self, group_id: str, request: JoinRequest) -> Joined:
        """Take a member into the next generation; returns when that begins.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            if request.member_id:
                return Joined(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            slot = self._group_or_new(group_id)
        new_member_id = f"{request.instance_id or request.client_id}-{uuid.uuid4()}"
        if isinstance(slot.machine, ConsumerGroup) and not slot.machine.is_empty:
            return await self._join_among_others(slot.group_id, request, new_member_id)
        machine = slot.machine
        if isinstance(machine, ConsumerGroup):
            machine = slot.machine = ClassicGroup(group_id, self._options.limits)
        self._check_room(slot, machine, machine.growth(request))
        ticket, future = self._ticket()
        machine.join(ticket, request, new_member_id, clock_ms())
        self._settle(slot)
        joined: Joined = await future
        return joined

    async def _join_among_others(self, group_id: str, request: JoinRequest, new_member_id: str) -> Joined:
        """Take a member of the classic protocol into a group whose coordinator assigns."""
        await self._learn_topics(bridge.subscription_topics(request) or (), None)
        slot = self.group(group_id)
        if slot is None or not isinstance(slot.machine, ConsumerGroup):
            raise GroupRefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "the group has just changed")
        now_ms = clock_ms()
        self._update_catalog(slot.machine, now_ms)
        asked = bridge.heartbeat_of(slot.machine, request, new_member_id)
        if asked is not None:
            self._check_room(slot, slot.machine, slot.machine.growth(asked))
        joined = bridge.join(slot.machine, request, new_member_id, now_ms)
        self._settle(slot)
        return await self._after_records(slot, joined)

    async def sync(self, group_id: str, request: SyncRequest) -> Synced:
        """Return a member's assignment, once there is one.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            return Synced(ErrorCode.UNKNOWN_MEMBER_ID)
        if isinstance(slot.machine, ConsumerGroup):
            return await self._after_records(slot, bridge.sync(slot.machine, request))
        if request.assignments and request.member_id == slot.machine.leader:
            self._check_room(slot, slot.machine, slot.machine.growth(request.assignments))
        ticket, future = self._ticket()
        slot.machine.sync(ticket, request, clock_ms())
        self._settle(slot)
        synced: Synced = await future
        return synced

    async def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation_id: GenerationId
    ) -> ErrorCode:
        """Keep a member alive.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if isinstance(slot.machine, ConsumerGroup):
            code = bridge.heartbeat(slot.machine, member_id, instance_id, generation_id, clock_ms())
            self._settle(slot)
            return await self._after_records(slot, code)
        code = slot.machine.heartbeat(member_id, instance_id, generation_id, clock_ms())
        return await self._after_records(slot, code)

    async def leave(
        self, group_id: str, members: Sequence[tuple[str, str | None]]
    ) -> list[tuple[ErrorCode, str]]:
        """Remove members: (member id or "", instance id); returns the error and the member id of each.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            return [(ErrorCode.UNKNOWN_MEMBER_ID, member_id) for member_id, _ in members]
        now_ms, machine = clock_ms(), slot.machine
        if isinstance(machine, ConsumerGroup):
            left = [
                bridge.leave(machine, member_id, instance_id, now_ms) for member_id, instance_id in members
            ]
        else:
            left = [machine.leave(*each, now_ms) for each in members]
        self._settle(slot)
        return await self._after_records(slot, left)

    async def consumer_heartbeat(self, group_id: str, request: HeartbeatRequest) -> HeartbeatAnswer:
        """Take in what a member of a group says whose coordinator assigns; returns what it may own.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is not None or request.member_epoch == JOIN_EPOCH:
            await self._learn_topics(request.topics or (), request.topic_pattern)
            slot = self.group(group_id)
        if slot is not None and request.member_epoch == JOIN_EPOCH and isinstance(slot.machine, ClassicGroup):
            await self._learn_topics(slot.machine.subscribed_topics() or (), None)
            slot = self.group(group_id)
        if slot is None:
            if request.member_epoch != JOIN_EPOCH:
                return HeartbeatAnswer(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id)
            slot = self._group_or_new(group_id)
        now_ms = clock_ms()
        before = slot.machine
        machine = before if isinstance(before, ConsumerGroup) else self._upgraded(before, request, now_ms)
        self._update_catalog(machine, now_ms)
        self._check_room(slot, machine, machine.growth(request))
        answer = machine.heartbeat(request, now_ms)
        if before is machine or answer.error_code is ErrorCode.NONE:
            slot.machine = machine
        self._settle(slot)
        try:
            return await self._after_records(slot, answer)
        except NotCoordinatorError as error:
            cause = error.__cause__
            if request.member_epoch != JOIN_EPOCH or not isinstance(cause, GroupTooLargeError):
                raise
            # With this member there is more to assign than a group may hold; the others go on as before.
            code = ErrorCode.GROUP_MAX_SIZE_REACHED
            raise GroupRefusedError(code, cause.message, cause.remedy) from error

    def _upgraded(self, machine: ClassicGroup, request: HeartbeatRequest, now_ms: int) -> ConsumerGroup:
        """Return a classic group as one whose coordinator assigns.

        Raises:
            GroupRefusedError: it is none that can go over, or not at this moment.
        """
        if request.member_epoch != JOIN_EPOCH:
            raise GroupRefusedError(ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group")
        if machine.is_empty:
            return ConsumerGroup(machine.group_id, self._options.limits)
        problem, remedy = "the members of this group assign among themselves", "use another group"
        readable = machine.protocol_type == bridge.CONSUMERS and machine.subscribed_topics() is not None
        if not (self._options.may_upgrade and readable):
            raise GroupRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, problem, remedy)
        if machine.state is not GroupState.STABLE:
            raise GroupRefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{problem}, right now")
        found = bridge.upgraded(machine, self._options.limits, self._topics.catalog, now_ms)
        if found is None:
            raise GroupRefusedError(ErrorCode.GROUP_ID_NOT_FOUND, f"{problem} by an unknown rule", remedy)
        return found

    async def _learn_topics(self, names: Collection[str], pattern: str | None) -> None:
        """See that the catalog has some topics.

        Raises:
            GroupRefusedError: they cannot be looked up now, or the pattern is malformed.
        """
        if not self._topics.lacks(names, pattern):
            return
        try:
            await self._topics.look_up(names, pattern)
        except ClientError as error:
            self._topics.forget()
            problem = f"topics could not be looked up: {error.message}"
            raise GroupRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem) from error

    def _update_catalog(self, machine: ConsumerGroup, now_ms: int) -> None:
        if machine.catalog is not self._topics.catalog:
            machine.update_catalog(self._topics.catalog, now_ms)

    async def commit(
        self,
        group_id: str,
        member_id: str,
        instance_id: str | None,
        generation_id: GenerationId,
        offsets: Mapping[PartitionKey, OffsetRecord],
    ) -> ErrorCode:
        """Commit offsets in the name of a member, or of nobody to an empty group.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            if generation_id >= 0:
                return ErrorCode.ILLEGAL_GENERATION
            slot = self._group_or_new(group_id)
        code = slot.machine.check_commit(member_id, instance_id, generation_id, clock_ms())
        if code is not ErrorCode.NONE or not offsets:
            return await self._after_records(slot, code)
        return await self._write_offsets(slot, offsets, code)

    async def remove_offsets(self, slot: GroupSlot, keys: Sequence[PartitionKey]) -> ErrorCode:
        """Remove committed offsets.

        Raises:
            GroupRefusedError: the term is over.
        """
        return await self._write_offsets(slot, dict.fromkeys(keys), ErrorCode.NONE)

    def _check_room(self, slot: GroupSlot, machine: Machine, growth: int) -> None:
        """See that a group's record can become larger by what a request brings.

        Raises:
            GroupRefusedError: there is no room.
        """
        if growth > 0:
            # A rebalance keeps the room that the record had.
            self._see_to_room(slot, machine.size + growth - slot.record_bytes)

    def _see_to_room(self, slot: GroupSlot, growth: int) -> None:
        try:
            self._room.check(slot.group_id, growth)
        except GroupRefusedError:
            # A group that is new goes again.
            self._settle(slot)
            raise

    async def _write_offsets(
        self, slot: GroupSlot, offsets: Mapping[PartitionKey, OffsetRecord | None], code: ErrorCode
    ) -> ErrorCode:
        self._see_to_room(slot, slot.growth(offsets))
        self._room.put(slot, offsets)
        batch = slot.next_batch()
        if slot.stored.record is None and not (slot.flying is not None and slot.flying.saves):
            slot.machine.unsaved = True
        future: asyncio.Future[ErrorCode] = asyncio.get_running_loop().create_future()
        batch.answers.append((future, code))
        self._settle(slot)
        return await future
