"""What a group answers to a request of a member or an administrator.

Passes each request to the machine of its group. Does not know when the answer leaves.
Source: ARCHITECTURE.md, "Life of a consumer group"; KIP-848; docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from broker.core.groups import bridge, inputs
from broker.core.groups.bytes_held import GroupBytes
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import (
    JOIN_EPOCH,
    Catalog,
    GroupOptions,
    GroupRefusal,
    GroupState,
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from broker.core.groups.slot import GroupSlot, Machine
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import GROUP_BYTES_MAX, PartitionKey

#: What a commit in a transaction is answered instead: its clients know no other code.
_IN_TRANSACTION: Final = {
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorCode.NONE,
    ErrorCode.STALE_MEMBER_EPOCH: ErrorCode.ILLEGAL_GENERATION,
}


@dataclass(slots=True)
class GroupGround:
    """What requests are judged on, besides their group."""

    options: GroupOptions
    catalog: Catalog
    bytes: GroupBytes


def topics_of(slot: GroupSlot | None, request: inputs.GroupRequest) -> tuple[Collection[str], str | None]:
    """Return the topics, and the pattern, that a catalog has to know before a request is answered."""
    machine = None if slot is None else slot.machine
    if isinstance(request, inputs.ConsumerHeartbeat):
        asked = request.request
        joins = asked.member_epoch == JOIN_EPOCH
        if machine is None and not joins:
            return (), None
        held = machine.subscribed_topics() if joins and isinstance(machine, ClassicGroup) else None
        return {*(asked.topics or ()), *(held or ())}, asked.topic_pattern
    if isinstance(request, inputs.JoinGroup) and isinstance(machine, ConsumerGroup) and not machine.is_empty:
        return bridge.subscription_topics(request.request) or (), None
    return (), None


def answer_of_nobody(request: inputs.GroupRequest) -> object | None:
    """Return what is answered where there is no such group; None: the request begins one."""
    match request:
        case inputs.JoinGroup(request=asked) if asked.member_id:
            return Joined(ErrorCode.UNKNOWN_MEMBER_ID, asked.member_id)
        case inputs.ConsumerHeartbeat(request=heartbeat) if heartbeat.member_epoch != JOIN_EPOCH:
            return HeartbeatAnswer(ErrorCode.UNKNOWN_MEMBER_ID, heartbeat.member_id)
        case inputs.CommitOffsets() if request.generation_id >= 0:
            return ErrorCode.ILLEGAL_GENERATION
        case inputs.SyncGroup():
            return SyncAnswer(ErrorCode.UNKNOWN_MEMBER_ID)
        case inputs.ClassicHeartbeat():
            return ErrorCode.UNKNOWN_MEMBER_ID
        case inputs.LeaveGroup():
            return [(ErrorCode.UNKNOWN_MEMBER_ID, member_id) for member_id, _ in request.members]
        case inputs.RemoveOffsets():
            return ErrorCode.GROUP_ID_NOT_FOUND
        case inputs.CheckCommit():
            return ErrorCode.UNKNOWN_MEMBER_ID
        case _:
            return None


def answer(
    slot: GroupSlot, ticket: Ticket, request: inputs.GroupRequest, ground: GroupGround, now_ms: int
) -> object | None:
    """Let a group decide on a request; returns what is answered, None: the group answers later."""
    machine = slot.machine
    match request:
        case inputs.ClassicHeartbeat():
            whose = request.member_id, request.instance_id, request.generation_id
            if isinstance(machine, ConsumerGroup):
                return bridge.heartbeat(machine, *whose, now_ms)
            return machine.heartbeat(*whose, now_ms)
        case inputs.CheckCommit():
            whose = request.member_id, request.instance_id, request.generation_id
            return _IN_TRANSACTION.get(code := machine.check_commit(*whose, now_ms), code)
        case inputs.CommitOffsets():
            whose = request.member_id, request.instance_id, request.generation_id
            code = machine.check_commit(*whose, now_ms)
            return code or _put_offsets(slot, request.offsets, ground)
        case inputs.RemoveOffsets():
            return _put_offsets(slot, dict.fromkeys(request.keys), ground)
        case inputs.JoinGroup():
            return _join(slot, ticket, request, ground, now_ms)
        case inputs.SyncGroup():
            return _sync(slot, ticket, request.request, ground, now_ms)
        case inputs.LeaveGroup():
            if isinstance(machine, ConsumerGroup):
                return [bridge.leave(machine, *each, now_ms) for each in request.members]
            return [machine.leave(*each, now_ms) for each in request.members]
        case inputs.ConsumerHeartbeat():
            return _consumer_heartbeat(slot, request.request, ground, now_ms)
        case _:
            raise AssertionError(request)


def _put_offsets(
    slot: GroupSlot, offsets: Mapping[PartitionKey, OffsetRecord | None], ground: GroupGround
) -> ErrorCode | GroupRefusal:
    """Let the next write of a group carry offsets; None: removed."""
    growth = slot.growth(offsets)
    refusal = ground.bytes.refusal(slot.group_id, growth)
    if refusal is not None:
        return refusal
    if offsets:
        ground.bytes.put(slot, offsets, growth)
        # Who commits knows the topic: it may have come again since it was looked for.
        slot.known_topics = slot.known_topics.difference(key.topic for key in offsets)
        if slot.stored.record is None and (slot.flying is None or slot.flying.record is None):
            slot.machine.unsaved = True
    return ErrorCode.NONE


def _join(
    slot: GroupSlot, ticket: Ticket, request: inputs.JoinGroup, ground: GroupGround, now_ms: int
) -> Joined | GroupRefusal | None:
    """Take in a member of the classic protocol; None: it is answered when the generation begins."""
    _, asked, new_member_id = request
    machine = slot.machine
    if isinstance(machine, ConsumerGroup) and not machine.is_empty:
        _update_catalog(machine, ground.catalog, now_ms)
        said = bridge.heartbeat_of(machine, asked, new_member_id)
        refusal = None if said is None else _no_room(slot, machine, machine.growth(said), ground)
        return refusal or bridge.join(machine, asked, new_member_id, now_ms)
    if isinstance(machine, ConsumerGroup):
        machine = slot.machine = ClassicGroup(slot.group_id, ground.options.limits)
    refusal = _no_room(slot, machine, machine.growth(asked), ground)
    if refusal is None:
        machine.join(ticket, asked, new_member_id, now_ms)
    return refusal


def _sync(
    slot: GroupSlot, ticket: Ticket, asked: SyncRequest, ground: GroupGround, now_ms: int
) -> SyncAnswer | GroupRefusal | None:
    """Return a member's assignment; None: it is answered when there is one."""
    machine = slot.machine
    if isinstance(machine, ConsumerGroup):
        return bridge.sync(machine, asked)
    if asked.assignments and asked.member_id == machine.leader:
        refusal = _no_room(slot, machine, machine.growth(asked.assignments), ground)
        if refusal is not None:
            return refusal
    machine.sync(ticket, asked, now_ms)
    return None


def _consumer_heartbeat(
    slot: GroupSlot, asked: HeartbeatRequest, ground: GroupGround, now_ms: int
) -> HeartbeatAnswer | GroupRefusal:
    """Take in what a member of KIP-848 says; returns what it may own."""
    before = slot.machine
    machine = before if isinstance(before, ConsumerGroup) else _upgraded(before, asked, ground, now_ms)
    if isinstance(machine, GroupRefusal):
        return machine
    _update_catalog(machine, ground.catalog, now_ms)
    refusal = _no_room(slot, machine, machine.growth(asked), ground)
    if refusal is not None:
        return refusal
    answer = machine.heartbeat(asked, now_ms)
    if before is machine or answer.error_code is ErrorCode.NONE:
        slot.machine = machine
    return answer


def _upgraded(
    machine: ClassicGroup, request: HeartbeatRequest, ground: GroupGround, now_ms: int
) -> ConsumerGroup | GroupRefusal:
    """Return a classic group as one whose coordinator assigns, or why it cannot go over."""
    if request.member_epoch != JOIN_EPOCH:
        return GroupRefusal(ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group")
    limits = ground.options.limits
    if machine.is_empty:
        return ConsumerGroup(machine.group_id, limits)
    problem, remedy = "the members of this group assign among themselves", "use another group"
    readable = machine.protocol_type == bridge.CONSUMERS and machine.subscribed_topics() is not None
    if not (ground.options.may_upgrade and readable):
        return GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, problem, remedy)
    if machine.state is not GroupState.STABLE:
        return GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"{problem}, right now")
    found = bridge.upgraded(machine, limits, ground.catalog, now_ms)
    return found or GroupRefusal(ErrorCode.GROUP_ID_NOT_FOUND, f"{problem} by an unknown rule", remedy)


def _update_catalog(machine: ConsumerGroup, catalog: Catalog, now_ms: int) -> None:
    if machine.catalog is not catalog:
        machine.update_catalog(catalog, now_ms)


def _no_room(slot: GroupSlot, machine: Machine, growth: int, ground: GroupGround) -> GroupRefusal | None:
    """Say why a group's record cannot become larger by what a request brings; None: it can."""
    # A rebalance keeps the room that the record had.
    grown = machine.size + growth - slot.record_bytes if growth > 0 else 0
    return ground.bytes.refusal(slot.group_id, grown)


# -- why there is no group, or no more of it -----------------------------------------------------------------


def why_none(group_id: str, record_problem: str | None, is_ending: bool) -> GroupRefusal | None:
    """Say why there can be no group of a name at present; None: there is just none."""
    if not group_id or len(group_id.encode("utf-8", "surrogatepass")) > GROUP_BYTES_MAX:
        remedy = f"give a name of 1 to {GROUP_BYTES_MAX} bytes"
        return GroupRefusal(ErrorCode.INVALID_GROUP_ID, f"group {group_id[:64]!r} has no name", remedy)
    if record_problem is not None:
        problem = f"the record of group {group_id!r} is malformed: {record_problem}"
        return GroupRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, problem, "correct or delete its znode")
    if is_ending:
        return GroupRefusal(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, f"group {group_id!r} is being deleted")
    return None


def too_many(count: int) -> GroupRefusal:
    """Say that there are as many groups as there may be."""
    problem = f"there are {count} groups, as many as groups.groups_max allows"
    return GroupRefusal(ErrorCode.POLICY_VIOLATION, problem, "delete groups, or raise the limit")


def too_large(group_id: str, size: int, bytes_max: int) -> GroupRefusal:
    """Say that the record of a group would be larger than it may be."""
    problem = f"group {group_id!r} would take {size} bytes, and may take {bytes_max}"
    remedy = "use several groups, or raise groups.group_bytes_max"
    return GroupRefusal(ErrorCode.GROUP_MAX_SIZE_REACHED, problem, remedy)
