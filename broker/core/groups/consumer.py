"""A group whose coordinator assigns: KIP-848, as the seed wanted it.

Decides which partitions each member shall own (its target), and moves members there: a member first gives up
what it shall no longer own, and gets what others have given up. A rebalance happens only if the new targets
differ from the old ones. It does not know where topics are looked up: they come in as a `Catalog`.

Hard state is `record`: members with their epochs, what they own, what they must give up, their targets. Soft
state: deadlines, and that targets are to be computed.
Source: KIP-848; CurrentAssignmentBuilder (Kafka 3.9); docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from broker.core.groups import group_fences
from broker.core.groups.assignors import ASSIGNORS, DEFAULT_ASSIGNOR, select_assignor, targets_of
from broker.core.groups.consumer_member import (
    ConsumerMember,
    Owned,
    assignment_of,
    blank_record,
    group_size,
    growth_of,
    merged,
    owned_of,
)
from broker.core.groups.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_FOR_A_WHILE_EPOCH,
    WHOLE_GROUP,
    Catalog,
    GroupLimits,
    GroupState,
    HeartbeatAnswer,
    HeartbeatRequest,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import Assignment, ConsumerGroupRecord, ConsumerMemberRecord, TopicId
from quorum.metadata.numbers import GenerationId

_EPOCH_MAX: Final = 2**31 - 1


@dataclass(slots=True)
class ConsumerGroup:
    """One group. `take_timers` and `unsaved` say what a call has led to.

    Invariant: no partition is owned, or being given up, by two members (`check_invariants`).
    """

    group_id: str
    limits: GroupLimits
    #: Rises with each rebalance.
    group_epoch: int = 0
    assignor: str = DEFAULT_ASSIGNOR
    state_timestamp_ms: int = 0
    unsaved: bool = False
    reason: str = ""
    #: {topic: (topic id, partitions)} that the targets were computed for
    topics: Mapping[str, tuple[TopicId, int]] = field(default_factory=dict)
    #: What it knows of topics; None: nothing yet, so nothing is assigned.
    catalog: Catalog | None = None
    _members: dict[str, ConsumerMember] = field(default_factory=dict)
    #: {instance id: member id}
    _instances: dict[str, str] = field(default_factory=dict)
    #: {partition: who owns it or has not given it up yet}
    _owners: dict[Owned, str] = field(default_factory=dict)
    #: When the targets are computed; None: they are good.
    _assign_ms: int | None = None
    _assigned_ms: int | None = None
    _timers: dict[str, None] = field(default_factory=dict)

    @classmethod
    def load(cls, group_id: str, limits: GroupLimits, record: ConsumerGroupRecord) -> ConsumerGroup:
        """Return the group that a record describes; then `resume` starts the clocks of its members."""
        group = cls(group_id, limits, record.group_epoch, record.assignor, record.state_timestamp_ms)
        group.topics = dict(record.topics)
        for each in record.members:
            member = ConsumerMember(each, target=owned_of(each.target))
            group._take_in(member)
            group._set_owned(member, owned_of(each.assigned), owned_of(each.revoking))
        return group

    def resume(self, now_ms: int) -> None:
        """Give every member a full session, and a full rebalance timeout where it gives something up.

        What was about to be assigned is not in the record: the targets are computed once more, and a
        rebalance begins only if they differ.
        """
        for member in self._members.values():
            self._keep_alive(member, now_ms)
            if member.revoking:
                member.revoke_deadline_ms = now_ms + member.record.rebalance_timeout_ms
        if self._members:
            self._want_assignment("another coordinator is elected")

    def put_off_assignment(self, now_ms: int) -> None:
        """Compute the targets an interval from now at the earliest; called before `resume`."""
        self._assigned_ms = now_ms

    # -- what calls have led to ------------------------------------------------------------------------------

    @property
    def state(self) -> GroupState:
        """What the group is doing."""
        if not self._members:
            return GroupState.EMPTY
        if self._assign_ms is not None:
            return GroupState.ASSIGNING
        settled = all(each.assigned == each.target and not each.revoking for each in self._members.values())
        return GroupState.STABLE if settled else GroupState.RECONCILING

    @property
    def members(self) -> list[ConsumerMemberRecord]:
        """The members."""
        return [each.full_record() for each in self._members.values()]

    def member(self, member_id: str, instance_id: str | None = None) -> ConsumerMember | None:
        """Return a member, by its id or, where that is "", by its instance id."""
        return self._members.get(member_id or self._instances.get(instance_id or "", ""))

    @property
    def is_all_classic(self) -> bool:
        """Whether there are members, and all speak the classic protocol."""
        members = self._members.values()
        return bool(members) and all(each.record.classic is not None for each in members)

    @property
    def size(self) -> int:
        """Bytes of its record."""
        return group_size(self._members.values(), self.topics)

    def growth(self, request: HeartbeatRequest) -> int:
        """Return how many bytes the record takes more with what a member says of itself."""
        holder = self._instances.get(request.instance_id or "", request.member_id)
        known = self._members.get(request.member_id) or self._members.get(holder)
        return growth_of(None if known is None else known.record, request)

    @property
    def member_count(self) -> int:
        """How many members there are."""
        return len(self._members)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no member."""
        return not self._members

    @property
    def generation_id(self) -> GenerationId:
        """The group's epoch, for people."""
        return GenerationId(self.group_epoch)

    @property
    def protocol(self) -> str:
        """The assignor, for people."""
        return self.assignor

    @property
    def patterns(self) -> set[str]:
        """The patterns that members subscribe to."""
        return {each.record.topic_pattern for each in self._members.values() if each.record.topic_pattern}

    @property
    def protocol_type(self) -> str:
        """What the members are, for people."""
        return "consumer"

    def subscribed_topics(self) -> set[str]:
        """Return the topics that exist and that members subscribe to."""
        return set(self._subscribed_topics())

    @property
    def topic_names(self) -> set[str]:
        """The topics that members name."""
        return {topic for each in self._members.values() for topic in each.record.topics}

    def take_timers(self) -> list[tuple[str, int]]:
        """Return (member id or WHOLE_GROUP, deadline) of deadlines that are new or may have come nearer."""
        timers = [(key, self.deadline_ms(key)) for key in self._timers]
        self._timers.clear()
        return [(key, deadline) for key, deadline in timers if deadline is not None]

    def deadline_ms(self, key: str) -> int | None:
        """Return the deadline of a member, or when the targets are to be computed."""
        if key == WHOLE_GROUP:
            return self._assign_ms
        member = self._members.get(key)
        return None if member is None else member.deadline_ms

    def record(self) -> ConsumerGroupRecord:
        """Return the hard state."""
        return ConsumerGroupRecord(
            self.group_epoch,
            self.group_epoch,
            self.assignor,
            self.state_timestamp_ms,
            self.topics,
            tuple(self.members),
        )

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        held = [each for member in self._members.values() for each in (*member.assigned, *member.revoking)]
        assert len(held) == len(set(held)) == len(self._owners)
        assert all(self._owners[each] in self._members for each in held)
        targets = [each for member in self._members.values() for each in member.target]
        assert len(targets) == len(set(targets))
        for member in self._members.values():
            assert (member.revoke_deadline_ms is not None) == bool(member.revoking)
            assert 0 <= member.record.member_epoch <= self.group_epoch or (
                member.record.member_epoch == LEAVE_FOR_A_WHILE_EPOCH
            )

    # -- heartbeats ------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatAnswer:
        """Take in what a member says, and move it towards its target."""
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_FOR_A_WHILE_EPOCH):
            return self._leave(request, now_ms)
        joins = request.member_epoch == JOIN_EPOCH
        refusal = self._refusal_of_join(request) if joins else self._refusal(request)
        refusal = refusal or self._refusal_of_size(request)
        if refusal is not None:
            return refusal
        member = self._member_of(request) if joins else self._members[request.member_id]
        before = member.assigned
        self._update(member, request)
        self._keep_alive(member, now_ms)
        self._maybe_assign(now_ms)
        self._reconcile(member, request.owned, now_ms)
        has_news = joins or request.is_full or member.assigned != before
        given = assignment_of(member.assigned) if has_news else None
        return HeartbeatAnswer(ErrorCode.NONE, request.member_id, member.record.member_epoch, given)

    def _refusal_of_join(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        if request.topics is None and request.topic_pattern is None:
            return _refused(request, ErrorCode.INVALID_REQUEST, "a member that joins names its topics")
        if request.rebalance_timeout_ms < 0:
            return _refused(request, ErrorCode.INVALID_REQUEST, "a member that joins has a rebalance timeout")
        if request.owned:
            return _refused(request, ErrorCode.INVALID_REQUEST, "a member that joins owns nothing")
        if request.assignor is not None and request.assignor not in ASSIGNORS:
            known = ", ".join(sorted(ASSIGNORS))
            problem = f"assignor {request.assignor!r} is not known; there are {known}"
            return _refused(request, ErrorCode.UNSUPPORTED_ASSIGNOR, problem)
        holder = self._instances.get(request.instance_id or "")
        if holder is not None and holder != request.member_id:
            former = self._members[holder].record
            # A static member of the classic protocol does not say that it leaves.
            away = former.member_epoch == LEAVE_FOR_A_WHILE_EPOCH or former.classic is not None
            problem = f"instance {request.instance_id!r} has a member that has not left"
            return None if away else _refused(request, ErrorCode.UNRELEASED_INSTANCE_ID, problem)
        if request.member_id not in self._members and len(self._members) >= self.limits.members_max:
            problem = f"the group has {len(self._members)} members, as many as it may"
            return _refused(request, ErrorCode.GROUP_MAX_SIZE_REACHED, problem)
        return None

    def _refusal_of_size(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        growth, bytes_max = self.growth(request), self.limits.group_bytes_max
        if growth <= 0 or self.size + growth <= bytes_max:
            return None
        problem = f"the group would have {self.size + growth} bytes, and may have {bytes_max}"
        return _refused(request, ErrorCode.GROUP_MAX_SIZE_REACHED, problem)

    def _refusal(self, request: HeartbeatRequest) -> HeartbeatAnswer | None:
        member = self._present(request)
        if isinstance(member, HeartbeatAnswer):
            return member
        record = member.record
        if group_fences.is_of_member_epoch(request.member_epoch, record.member_epoch):
            return None
        # The answer that told of the present epoch was lost.
        again = request.member_epoch == record.previous_member_epoch and request.owned is not None
        if again and owned_of(request.owned or {}) <= member.assigned:
            return None
        problem = f"the member's epoch is {record.member_epoch}, not {request.member_epoch}"
        return _refused(request, ErrorCode.FENCED_MEMBER_EPOCH, problem)

    def _present(self, request: HeartbeatRequest) -> ConsumerMember | HeartbeatAnswer:
        """Return who asks, if nobody has taken its place, or why it is nobody."""
        holder = None if request.instance_id is None else self._instances.get(request.instance_id)
        if holder not in (None, request.member_id):
            problem = f"instance {request.instance_id!r} has a newer member"
            return _refused(request, ErrorCode.FENCED_INSTANCE_ID, problem)
        unknown = _refused(request, ErrorCode.UNKNOWN_MEMBER_ID, "not a member of this group")
        return self._members.get(request.member_id) or unknown

    def _member_of(self, request: HeartbeatRequest) -> ConsumerMember:
        """Return the member that joins: a new one, one that returns, or in place of a static one."""
        known = self._members.get(request.member_id)
        if known is not None:
            return known
        member = ConsumerMember(blank_record(request))
        holder = self._instances.get(request.instance_id or "")
        if holder is not None:
            # It takes over what its former life owned; a client that returns owns nothing yet.
            former = self._members[holder]
            member.target, was, owned = former.target, former.record, former.assigned
            member.record = replace(member.record, topics=was.topics, assignor=was.assignor)
            member.record = replace(member.record, topic_pattern=was.topic_pattern)
            self._remove(former)
            self._take_in(member)
            self._set_owned(member, owned, frozenset())
        else:
            self._take_in(member)
            self._want_assignment(f"{request.member_id} is new")
        self.unsaved = True
        return member

    def _update(self, member: ConsumerMember, request: HeartbeatRequest) -> None:
        """Take over what the member says of itself."""
        before = member.record
        changed = merged(before, request)
        if changed == before:
            return
        member.record = changed
        self.unsaved = True
        subscribed = (before.topics, before.topic_pattern, before.assignor)
        if (changed.topics, changed.topic_pattern, changed.assignor) != subscribed:
            self._want_assignment(f"{before.member_id} subscribes to something else")

    def _leave(self, request: HeartbeatRequest, now_ms: int) -> HeartbeatAnswer:
        member = self._present(request)
        if isinstance(member, HeartbeatAnswer):
            return member
        if request.member_epoch == LEAVE_FOR_A_WHILE_EPOCH and member.record.instance_id is not None:
            # Its partitions wait for it; what it had to give up, it has given up.
            member.record = replace(member.record, member_epoch=LEAVE_FOR_A_WHILE_EPOCH)
            self._set_owned(member, member.assigned, frozenset())
            member.revoke_deadline_ms = None
            self._keep_alive(member, now_ms)
            self.unsaved = True
        else:
            self._evict(member, f"{request.member_id} leaves")
        return HeartbeatAnswer(ErrorCode.NONE, request.member_id, request.member_epoch)

    # -- targets ---------------------------------------------------------------------------------------------

    def update_catalog(self, catalog: Catalog, now_ms: int) -> None:
        """Learn which topics exist; a change of those that members subscribe to asks for new targets."""
        self.catalog = catalog
        if self._members and self._subscribed_topics() != self.topics:
            self._want_assignment("topics have changed")
        self._maybe_assign(now_ms)

    def _subscription(self, member: ConsumerMember) -> set[str]:
        pattern, catalog = member.record.topic_pattern, self.catalog or Catalog()
        names = (*member.record.topics, *(catalog.matched.get(pattern, ()) if pattern else ()))
        return {name for name in names if name in catalog.topics}

    def _subscribed_topics(self) -> dict[str, tuple[TopicId, int]]:
        catalog = self.catalog or Catalog()
        names = set[str]().union(*(self._subscription(each) for each in self._members.values()))
        return {name: catalog.topics[name] for name in sorted(names)}

    def _want_assignment(self, reason: str) -> None:
        """Compute the targets soon; what happens until then is part of the same change."""
        if self._assign_ms is None:
            last = self._assigned_ms
            self._assign_ms = 0 if last is None else last + self.limits.assignment_interval_ms
            self._timers[WHOLE_GROUP] = None
            self.reason = reason

    def _maybe_assign(self, now_ms: int) -> None:
        """Compute the targets if it is time for that and the topics are known."""
        if self._assign_ms is None or self._assign_ms > now_ms or self.catalog is None:
            return
        self._assign_ms = None
        if self._members:
            self._assign(now_ms)

    def _assign(self, now_ms: int) -> None:
        """Compute the targets; a rebalance begins only if they differ from those before."""
        self._assigned_ms = now_ms
        self.assignor = select_assignor(each.record.assignor for each in self._members.values())
        topics = self._subscribed_topics()
        subscriptions = {member_id: self._subscription(each) for member_id, each in self._members.items()}
        before = {member_id: each.target for member_id, each in self._members.items()}
        targets = targets_of(self.assignor, topics, subscriptions, before)
        differs = any(each.target != targets[member_id] for member_id, each in self._members.items())
        self.unsaved = self.unsaved or differs or topics != self.topics
        self.topics = topics
        if differs or self.group_epoch == 0:
            self.group_epoch = self.group_epoch + 1 if self.group_epoch < _EPOCH_MAX else 1
            for member_id, member in self._members.items():
                member.target = targets[member_id]

    # -- reconciliation --------------------------------------------------------------------------------------

    def _reconcile(self, member: ConsumerMember, owned: Assignment | None, now_ms: int) -> None:
        """Move a member as far towards its target as it and the others have given up partitions."""
        if member.revoking:
            if owned is None or owned_of(owned) & member.revoking:
                return
            self._set_owned(member, member.assigned, frozenset())
            member.revoke_deadline_ms = None
        kept = member.assigned & member.target
        leaving = member.assigned - kept
        if leaving and not (owned is not None and not owned_of(owned) & leaving):
            self._set_owned(member, kept, leaving)
            member.revoke_deadline_ms = now_ms + member.record.rebalance_timeout_ms
            self._timers[member.record.member_id] = None
            self.unsaved = True
            return
        free = frozenset(each for each in member.target - kept if self._is_free(each, member))
        if kept | free != member.assigned:
            self._set_owned(member, kept | free, frozenset())
            self.unsaved = True
        epoch = member.record.member_epoch
        if epoch != self.group_epoch:
            previous = epoch if epoch > 0 else JOIN_EPOCH
            member.record = replace(
                member.record, member_epoch=self.group_epoch, previous_member_epoch=previous
            )
            self.unsaved = True

    def must_join(self, member: ConsumerMember, now_ms: int) -> bool:
        """Keep a member of the classic protocol alive; says whether it has to join again.

        From now on it has its rebalance timeout to give up what it shall not own.
        """
        self._keep_alive(member, now_ms)
        self._maybe_assign(now_ms)
        if member.assigned - member.target and not member.revoking:
            self._reconcile(member, None, now_ms)
        gains = any(self._is_free(each, member) for each in member.target - member.assigned)
        return bool(member.revoking) or gains or member.record.member_epoch != self.group_epoch

    def _is_free(self, each: Owned, member: ConsumerMember) -> bool:
        return self._owners.get(each, member.record.member_id) == member.record.member_id

    def _set_owned(
        self, member: ConsumerMember, assigned: frozenset[Owned], revoking: frozenset[Owned]
    ) -> None:
        for each in (*member.assigned, *member.revoking):
            self._owners.pop(each, None)
        member.assigned, member.revoking = assigned, revoking
        for each in (*assigned, *revoking):
            self._owners[each] = member.record.member_id

    # -- members ---------------------------------------------------------------------------------------------

    def check_commit(
        self, member_id: str, _instance_id: str | None, member_epoch: int, _now_ms: int
    ) -> ErrorCode:
        """Say whether somebody may commit or fetch offsets; anybody may in an empty group."""
        if member_epoch < 0 and not member_id:
            return ErrorCode.NONE if self.is_empty else ErrorCode.UNKNOWN_MEMBER_ID
        member = self._members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if group_fences.is_of_member_epoch(member_epoch, member.record.member_epoch):
            return ErrorCode.NONE
        classic = member.record.classic is not None
        return ErrorCode.ILLEGAL_GENERATION if classic else ErrorCode.STALE_MEMBER_EPOCH

    def expire(self, key: str, now_ms: int) -> None:
        """Act on a deadline that has passed."""
        if key == WHOLE_GROUP:
            self._maybe_assign(now_ms)
        elif key in self._members:
            slow = self._members[key].revoke_deadline_ms
            silent = slow is None or slow > now_ms
            told = "was not heard of" if silent else "did not give up its partitions in time"
            self._evict(self._members[key], f"{key} {told}")

    def _evict(self, member: ConsumerMember, reason: str) -> None:
        self._remove(member)
        self.topics = self.topics if self._members else {}
        self._want_assignment(reason)
        self.unsaved = True

    def _take_in(self, member: ConsumerMember) -> None:
        self._members[member.record.member_id] = member
        if member.record.instance_id is not None:
            self._instances[member.record.instance_id] = member.record.member_id

    def _remove(self, member: ConsumerMember) -> None:
        self._set_owned(member, frozenset(), frozenset())
        del self._members[member.record.member_id]
        if member.record.instance_id is not None:
            self._instances.pop(member.record.instance_id, None)

    def _keep_alive(self, member: ConsumerMember, now_ms: int) -> None:
        member.session_deadline_ms = now_ms + member.session_timeout_ms(self.limits)
        self._timers[member.record.member_id] = None


def _refused(request: HeartbeatRequest, error_code: ErrorCode, problem: str) -> HeartbeatAnswer:
    return HeartbeatAnswer(error_code, request.member_id, message=problem)
