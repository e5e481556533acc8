"""A member of a group whose coordinator assigns: what it owns, gives up and shall own, and its deadlines.

Source: KIP-848.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from broker.core.groups.model import GroupLimits, HeartbeatRequest
from quorum.metadata.group_records import Assignment, ConsumerMemberRecord, TopicId

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

    @property
    def deadline_ms(self) -> int:
        """When it is found dead, or too slow."""
        revoke = self.revoke_deadline_ms
        return self.session_deadline_ms if revoke is None else min(revoke, self.session_deadline_ms)

    @property
    def size(self) -> int:
        """Bytes that it takes of the group's limit, roughly."""
        record = self.record
        names = len(record.member_id) + len(record.client_id) + sum(map(len, record.topics))
        partitions = len(self.assigned) + len(self.revoking) + len(self.target)
        return names + len(record.topic_pattern or "") + 8 * partitions

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
