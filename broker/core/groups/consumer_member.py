"""A member of a group whose coordinator assigns: what it owns, gives up and shall own, and its deadlines.

Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from broker.core.groups.model import JOIN_EPOCH, GroupLimits, HeartbeatRequest
from quorum.metadata.group_records import (
    GROUP_BYTES,
    TOPIC_BYTES,
    Assignment,
    ConsumerMemberRecord,
    TopicId,
    member_bytes,
)

Owned = tuple[TopicId, int]


@dataclass(slots=True, eq=False)
class ConsumerMember:
    """A member: its record, with sets in place of lists, and its deadlines."""

    record: ConsumerMemberRecord
    session_deadline_ms: int = 0
    #: When it must have given up what it shall not own; None: nothing to give up.
    revoke_deadline_ms: int | None = None
    assigned: frozenset[Owned] = frozenset()
    revoking: frozenset[Owned] = frozenset()
    target: frozenset[Owned] = frozenset()
    _measured: tuple[tuple[object, ...], int] | None = None

    @property
    def deadline_ms(self) -> int:
        """When it is found dead, or too slow."""
        revoke = self.revoke_deadline_ms
        return self.session_deadline_ms if revoke is None else min(revoke, self.session_deadline_ms)

    @property
    def size(self) -> int:
        """Bytes that it takes of the group's record; measured once for what it holds."""
        held = (self.record, self.assigned, self.revoking, self.target)
        if self._measured is None or any(a is not b for a, b in zip(held, self._measured[0], strict=True)):
            self._measured = held, member_bytes(self.full_record())
        return self._measured[1]

    def session_timeout_ms(self, limits: GroupLimits) -> int:
        """How long it may be silent."""
        classic = self.record.classic
        return limits.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms

    def full_record(self) -> ConsumerMemberRecord:
        """Return its hard state."""
        return replace(
            self.record,
            assigned=assignment_of(self.assigned),
            revoking=assignment_of(self.revoking),
            target=assignment_of(self.target),
        )


def blank_record(request: HeartbeatRequest) -> ConsumerMemberRecord:
    """Return the record of a member that is new, before what it says of itself."""
    return ConsumerMemberRecord(
        request.member_id,
        request.instance_id,
        *(request.rack, request.client_id, request.client_host, request.rebalance_timeout_ms),
        *((), None, None),
        *(JOIN_EPOCH, JOIN_EPOCH, {}),
    )


def group_size(members: Iterable[ConsumerMember], topics: Mapping[str, object]) -> int:
    """Return the bytes of a group's record, roughly."""
    topics_bytes = sum(len(name) + TOPIC_BYTES for name in topics)
    return GROUP_BYTES + topics_bytes + sum(each.size for each in members)


def growth_of(before: ConsumerMemberRecord | None, request: HeartbeatRequest) -> int:
    """Return how many bytes a member takes more with what it says of itself; None: it is new."""
    if request.member_epoch < JOIN_EPOCH or (before is None and request.member_epoch > JOIN_EPOCH):
        return 0
    after = merged(before or blank_record(request), request)
    if after == before:
        return 0
    return member_bytes(after) - (0 if before is None else member_bytes(before))


def merged(before: ConsumerMemberRecord, request: HeartbeatRequest) -> ConsumerMemberRecord:
    """Return a member's record with what a request says of it."""
    timeout_ms = request.rebalance_timeout_ms
    pattern = request.topic_pattern
    return replace(
        before,
        rack=before.rack if request.rack is None else request.rack,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=before.rebalance_timeout_ms if timeout_ms < 0 else timeout_ms,
        topics=before.topics if request.topics is None else tuple(sorted(set(request.topics))),
        topic_pattern=before.topic_pattern if pattern is None else pattern or None,
        assignor=before.assignor if request.assignor is None else request.assignor,
        classic=request.classic,
    )


def owned_of(assignment: Assignment) -> frozenset[Owned]:
    """Return an assignment as a set."""
    return frozenset((topic_id, index) for topic_id, indexes in assignment.items() for index in indexes)


def assignment_of(owned: Iterable[Owned]) -> dict[TopicId, tuple[int, ...]]:
    """Return a set of partitions as an assignment."""
    found: dict[TopicId, list[int]] = {}
    for topic_id, index in sorted(owned):
        found.setdefault(topic_id, []).append(index)
    return {topic_id: tuple(indexes) for topic_id, indexes in found.items()}
