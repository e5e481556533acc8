"""A group with members of the classic protocol and of KIP-848: the way from one to the other, and back.

When a member of KIP-848 joins a classic group of consumers, the group becomes one whose coordinator assigns.
Its old members go on as they are: what they ask in the classic protocol is answered here from what the
coordinator assigns. A member that shall own something else is asked to join again, gives up partitions, and
gets its own. When the last member of KIP-848 is gone, the group is a classic one again.

Decides only on what the two machines hold; keeps nothing itself.
Source: KIP-848, "Online migration"; GroupMetadataManager (Kafka 4.0).
"""

from __future__ import annotations

from typing import Final

from broker.core.groups import group_fences
from broker.core.groups.assignors import DEFAULT_ASSIGNOR
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.consumer_member import ConsumerMember, assignment_of
from broker.core.groups.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    Catalog,
    GroupLimits,
    GroupState,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from controller.wire.codes import ErrorCode
from controller.wire.consumer_protocol import (
    Partitions,
    read_assignment,
    read_subscription,
    write_assignment,
)
from quorum.metadata.group_records import (
    Assignment,
    ClassicGroupRecord,
    ClassicSupport,
    ConsumerGroupRecord,
    ConsumerMemberRecord,
    MemberRecord,
    TopicId,
)
from quorum.metadata.numbers import GenerationId

#: What members of the classic protocol call themselves that can go over.
CONSUMERS: Final = "consumer"


# -- from one kind of group to the other ---------------------------------------------------------------------


def upgraded(group: ClassicGroup, limits: GroupLimits, catalog: Catalog, now_ms: int) -> ConsumerGroup | None:
    """Return a stable classic group as one whose coordinator assigns; None if its members cannot go over.

    Args:
        group: stays as it is.
        limits: of the coordinator.
        catalog: knows the topics of the members.
        now_ms: monotonic.
    """
    if group.state is not GroupState.STABLE or group.protocol_type != CONSUMERS or group.protocol is None:
        return None
    before = group.record()
    members: list[ConsumerMemberRecord] = []
    taken: set[tuple[TopicId, int]] = set()
    for each in before.members:
        subscription = read_subscription(dict(each.protocols).get(group.protocol, b""))
        assigned = read_assignment(each.assignment)
        if subscription is None or assigned is None:
            return None
        owned = _by_id(assigned, catalog)
        keys = {(topic_id, index) for topic_id, indexes in owned.items() for index in indexes}
        if keys & taken:
            return None
        taken |= keys
        members.append(
            ConsumerMemberRecord(
                *(each.member_id, each.instance_id, None, each.client_id, each.client_host),
                *(each.rebalance_timeout_ms, tuple(sorted(set(subscription.topics))), None, None),
                *(group.generation_id, group.generation_id),
                assigned=owned,
                target=owned,
                classic=ClassicSupport(each.session_timeout_ms, each.protocols),
            )
        )
    names = {name for each in members for name in each.topics}
    topics = {name: catalog.topics[name] for name in sorted(names) if name in catalog.topics}
    record = ConsumerGroupRecord(
        group.generation_id,
        group.generation_id,
        DEFAULT_ASSIGNOR,
        before.state_timestamp_ms,
        topics,
        tuple(members),
    )
    machine = ConsumerGroup.load(group.group_id, limits, record)
    machine.resume(now_ms)
    machine.update_catalog(catalog, now_ms)
    machine.unsaved, machine.reason = True, "a member of KIP-848 joins"
    return machine


def downgraded(group: ConsumerGroup, now_ms: int) -> ClassicGroup | None:
    """Return a group of classic members as a classic one that rebalances; None if that cannot be.

    Args:
        group: all its members speak the classic protocol; stays as it is.
        now_ms: monotonic.
    """
    members = [
        MemberRecord(
            *(each.member_id, each.instance_id, each.client_id, each.client_host),
            *(each.classic.session_timeout_ms, each.rebalance_timeout_ms, each.classic.protocols),
            write_assignment(_by_name(group, each.assigned)),
        )
        for each in group.members
        if each.classic is not None
    ]
    common = set.intersection(*({name for name, _ in each.protocols} for each in members))
    protocol = next((name for name, _ in members[0].protocols if name in common), None)
    if protocol is None:
        return None
    record = ClassicGroupRecord(
        group.generation_id,
        CONSUMERS,
        protocol,
        leader=members[0].member_id,
        assigned=True,
        state_timestamp_ms=group.state_timestamp_ms,
        members=tuple(members),
    )
    machine = ClassicGroup(group.group_id, group.limits, record)
    machine.resume(now_ms)
    machine.maybe_prepare(now_ms, "the last member of KIP-848 is gone")
    machine.unsaved = True
    return machine


# -- what a classic member asks of a group whose coordinator assigns -----------------------------------------


def subscription_topics(request: JoinRequest) -> tuple[str, ...] | None:
    """Return the topics of a member that joins; None if it speaks another protocol than the consumers'."""
    if request.protocol_type != CONSUMERS or not request.protocols:
        return None
    found = read_subscription(request.protocols[0][1])
    return None if found is None else found.topics


def heartbeat_of(group: ConsumerGroup, request: JoinRequest, new_member_id: str) -> HeartbeatRequest | None:
    """Return what a member of the classic protocol says; None if it does not speak the consumers' one."""
    subscription = read_subscription(request.protocols[0][1]) if request.protocols else None
    owned = None if subscription is None else subscription.owned
    if request.protocol_type != CONSUMERS or subscription is None or owned is None:
        return None
    member_id = request.member_id or new_member_id
    known = group.member(member_id)
    epoch = JOIN_EPOCH if known is None else max(JOIN_EPOCH, known.record.member_epoch)
    return HeartbeatRequest(
        member_id,
        epoch,
        request.instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=subscription.topics,
        topic_pattern="",
        owned=_by_id(owned, group.catalog or Catalog()) if epoch else {},
        classic=ClassicSupport(request.session_timeout_ms, request.protocols),
    )


def join(group: ConsumerGroup, request: JoinRequest, new_member_id: str, now_ms: int) -> Joined:
    """Take a member in, or move one on; the answer names the epoch that it has reached as its generation."""
    limits = group.limits
    if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
        return Joined(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id)
    asked = heartbeat_of(group, request, new_member_id)
    if asked is None:
        return Joined(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id)
    if not request.member_id and request.needs_member_id and request.instance_id is None:
        return Joined(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)
    answer = group.heartbeat(asked, now_ms)
    if answer.error_code is not ErrorCode.NONE:
        return Joined(answer.error_code, asked.member_id)
    protocol = request.protocols[0][0]
    return Joined(ErrorCode.NONE, asked.member_id, GenerationId(answer.member_epoch), CONSUMERS, protocol)


def sync(group: ConsumerGroup, request: SyncRequest) -> SyncAnswer:
    """Return what the coordinator has assigned to a member."""
    member, error = _member(group, request.member_id, request.instance_id, request.generation_id)
    if member is None or member.record.classic is None:
        return SyncAnswer(error)
    assignment = write_assignment(_by_name(group, assignment_of(member.assigned)))
    return SyncAnswer(ErrorCode.NONE, CONSUMERS, member.record.classic.protocols[0][0], assignment)


def heartbeat(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: GenerationId, now_ms: int
) -> ErrorCode:
    """Keep a member alive; says whether it has to join again."""
    member, error = _member(group, member_id, instance_id, generation_id)
    if member is None:
        return error
    return ErrorCode.REBALANCE_IN_PROGRESS if group.must_join(member, now_ms) else ErrorCode.NONE


def leave(
    group: ConsumerGroup, member_id: str, instance_id: str | None, now_ms: int
) -> tuple[ErrorCode, str]:
    """Remove a member, by its id or by its instance id; returns the error and the id of who has left."""
    member = group.member(member_id, instance_id)
    if member is None or member.record.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID, member_id
    member_id = member.record.member_id
    answer = group.heartbeat(HeartbeatRequest(member_id, LEAVE_EPOCH, instance_id), now_ms)
    return answer.error_code, member_id


def _member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: GenerationId
) -> tuple[ConsumerMember | None, ErrorCode]:
    """Return a classic member of this generation, or why there is none."""
    holder = group.member("", instance_id)
    if holder is not None and holder.record.member_id != member_id:
        return None, ErrorCode.FENCED_INSTANCE_ID
    member = group.member(member_id)
    if member is None or member.record.classic is None:
        return None, ErrorCode.UNKNOWN_MEMBER_ID
    if not group_fences.is_of_member_epoch(generation_id, member.record.member_epoch):
        return None, ErrorCode.ILLEGAL_GENERATION
    return member, ErrorCode.NONE


def _by_id(partitions: Partitions, catalog: Catalog) -> Assignment:
    return {
        catalog.topics[topic][0]: indexes for topic, indexes in partitions.items() if topic in catalog.topics
    }


def _by_name(group: ConsumerGroup, assignment: Assignment) -> Partitions:
    names = {topic_id: name for name, (topic_id, _) in group.topics.items()}
    return {names[each]: tuple(indexes) for each, indexes in assignment.items() if each in names}
