"""A group whose members assign partitions among themselves: the classic protocol.

Decides who is a member, when a generation begins, and what a member is answered. The generation rises exactly
when a join phase ends. It does not know what is assigned: metadata and assignments are bytes of the clients.

Hard state is what `record` returns at the end of a join phase, of an assignment, of a static member's return:
a coordinator that starts from it goes on with the same generation. Soft state: who waits for an answer, the
deadlines, and a join phase that has not ended; members that wait in it ask the next coordinator again.
Source: GroupCoordinator (Kafka 3.9); KIP-62, KIP-345, KIP-394, KIP-814; docs/internals/requirements.md,
[4.x].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from broker.core.groups import group_fences
from broker.core.groups.model import (
    WHOLE_GROUP,
    ClassicAnswer,
    GroupLimits,
    GroupState,
    Joined,
    JoinedMember,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from broker.core.groups.roster import ClassicMember, Roster, said_by
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import ClassicGroupRecord, MemberRecord
from quorum.metadata.numbers import GenerationId

_GENERATION_MAX: Final = 2**31 - 1


class ClassicGroup:
    """One group. `take_answers`, `take_timers` and `unsaved` say what a call has led to.

    Invariants: an empty group has no members; the leader is a member (`check_invariants`).
    """

    def __init__(self, group_id: str, limits: GroupLimits, record: ClassicGroupRecord | None = None) -> None:
        """Begin empty, or with what a record says; then `resume` starts the clocks of its members."""
        self.group_id = group_id
        self._limits = limits
        self.generation_id = GenerationId(0)
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader: str | None = None
        self.state = GroupState.EMPTY
        #: Wall clock since when the group is empty or not.
        self.state_timestamp_ms = 0
        #: Whether `record` is to be written.
        self.unsaved = False
        #: Why the last join phase began, in words.
        self.reason = ""
        self._roster = Roster()
        #: When the join phase, or the wait for the assignment, ends.
        self._phase_deadline_ms: int | None = None
        #: Until when a first join phase may be prolonged; None in other phases.
        self._initial_until_ms: int | None = None
        self._answers: list[tuple[Ticket, ClassicAnswer]] = []
        self._timers: dict[str, None] = {}
        if record is not None:
            self._load(record)

    def _load(self, record: ClassicGroupRecord) -> None:
        self.generation_id = record.generation_id
        self.protocol_type, self.protocol, self.leader = record.protocol_type, record.protocol, record.leader
        self.state_timestamp_ms = record.state_timestamp_ms
        for each in record.members:
            said = replace(each, assignment=b"")
            self._roster.add(ClassicMember(said, each.assignment, synced=record.assigned))
        if self._roster:
            self.state = GroupState.STABLE if record.assigned else GroupState.COMPLETING

    def resume(self, now_ms: int) -> None:
        """Give every member a full session, and an unfinished assignment a full rebalance timeout."""
        for member in self._roster:
            self._keep_alive(member, now_ms)
        if self.state is GroupState.COMPLETING:
            self._set_phase_deadline(now_ms + self._roster.rebalance_timeout_ms())

    # -- what calls have led to ------------------------------------------------------------------------------

    def take_answers(self) -> list[tuple[Ticket, ClassicAnswer]]:
        """Return the answers that have become due."""
        answers, self._answers = self._answers, []
        return answers

    def waiting(self) -> list[Ticket]:
        """Return the requests that have no answer yet."""
        return [
            ticket for each in self._roster for ticket in (each.joining, each.syncing) if ticket is not None
        ]

    def take_timers(self) -> list[tuple[str, int]]:
        """Return (member id or WHOLE_GROUP, deadline) of deadlines that are new or may have come nearer."""
        timers = [(key, self.deadline_ms(key)) for key in self._timers]
        self._timers.clear()
        return [(key, deadline) for key, deadline in timers if deadline is not None]

    def deadline_ms(self, key: str) -> int | None:
        """Return the deadline of a member, of a member id that was given out, or of the whole group."""
        if key == WHOLE_GROUP:
            return self._phase_deadline_ms
        member = self._roster.get(key)
        return self._roster.pending.get(key) if member is None else member.deadline_ms

    def record(self) -> ClassicGroupRecord:
        """Return the hard state."""
        return ClassicGroupRecord(
            self.generation_id,
            self.protocol_type,
            self.protocol,
            self.leader,
            self.state is GroupState.STABLE,
            self.state_timestamp_ms,
            tuple(member.record() for member in self._roster),
        )

    @property
    def members(self) -> list[MemberRecord]:
        """The members, for people."""
        return [member.record() for member in self._roster]

    def subscribed_topics(self) -> set[str] | None:
        """Return the topics of all members; None if what one has sent cannot be read."""
        return self._roster.subscribed_topics()

    @property
    def size(self) -> int:
        """Bytes of its record."""
        return self._roster.size()

    def growth(self, asked: JoinRequest | Mapping[str, bytes]) -> int:
        """Return how many bytes the record takes more with a member that joins, or with assignments."""
        return self._roster.growth(asked)

    @property
    def member_count(self) -> int:
        """How many members there are."""
        return len(self._roster)

    @property
    def is_empty(self) -> bool:
        """Whether the group has no member and expects none."""
        return not self._roster and not self._roster.pending

    def check_invariants(self) -> None:
        """Raise AssertionError if an invariant is broken."""
        assert self.leader is None or self.leader in self._roster
        assert self.state is not GroupState.EMPTY or not self._roster
        self._roster.check_invariants()
        if self.state in (GroupState.COMPLETING, GroupState.STABLE):
            assert self.leader is not None and self.protocol is not None

    # -- joining ---------------------------------------------------------------------------------------------

    def join(self, ticket: Ticket, request: JoinRequest, new_member_id: str, now_ms: int) -> None:
        """Take a member into the next generation; the answer comes when that begins, or is an error.

        Args:
            ticket: names the request.
            request: what the member wants.
            new_member_id: the id that a new member gets.
            now_ms: monotonic.
        """
        error = self._refusal_of_join(request)
        if error is not ErrorCode.NONE:
            self._answers.append((ticket, Joined(error, request.member_id)))
        elif request.member_id:
            self._join_known(ticket, request, now_ms)
        else:
            self._join_new(ticket, request, new_member_id, now_ms)

    def _refusal_of_join(self, request: JoinRequest) -> ErrorCode:
        limits = self._limits
        if not limits.session_timeout_min_ms <= request.session_timeout_ms <= limits.session_timeout_max_ms:
            return ErrorCode.INVALID_SESSION_TIMEOUT
        if not request.protocol_type or not request.protocols:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if self._roster:
            offered = {name for name, _ in request.protocols}
            common = self._roster.common_protocols(without=request.member_id)
            if request.protocol_type != self.protocol_type or (common is not None and not offered & common):
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        growth = self.growth(request)
        too_large = growth > 0 and self.size + growth > limits.group_bytes_max
        return ErrorCode.GROUP_MAX_SIZE_REACHED if too_large else ErrorCode.NONE

    def _join_new(self, ticket: Ticket, request: JoinRequest, new_member_id: str, now_ms: int) -> None:
        known = self._roster.of_instance(request.instance_id)
        if known is not None:
            self._join_again_static(ticket, request, known, new_member_id, now_ms)
        elif len(self._roster) + len(self._roster.pending) >= self._limits.members_max:
            self._answers.append((ticket, Joined(ErrorCode.GROUP_MAX_SIZE_REACHED, "")))
        elif request.needs_member_id and request.instance_id is None:
            self._roster.pending[new_member_id] = now_ms + request.session_timeout_ms
            self._timers[new_member_id] = None
            self._answers.append((ticket, Joined(ErrorCode.MEMBER_ID_REQUIRED, new_member_id)))
        else:
            self._add(ticket, request, new_member_id, now_ms)

    def _join_known(self, ticket: Ticket, request: JoinRequest, now_ms: int) -> None:
        if request.member_id in self._roster.pending and request.instance_id is None:
            del self._roster.pending[request.member_id]
            self._add(ticket, request, request.member_id, now_ms)
            return
        error = self._roster.refusal(request.member_id, request.instance_id)
        if error is not ErrorCode.NONE:
            self._answers.append((ticket, Joined(error, request.member_id)))
            return
        member = self._roster[request.member_id]
        same = member.said.protocols == request.protocols
        if (self.state is GroupState.COMPLETING and same) or (
            # A leader that joins again wants a new generation: what it assigns has changed.
            self.state is GroupState.STABLE and same and member.member_id != self.leader
        ):
            self._supersede(member)
            self._keep_alive(member, now_ms)
            self._answers.append((ticket, self._joined(member)))
            return
        self._supersede(member)
        member.update(request)
        self._await_generation(member, ticket)
        self.maybe_prepare(now_ms, f"{member.member_id} joins again")

    def _join_again_static(
        self, ticket: Ticket, request: JoinRequest, before: ClassicMember, new_member_id: str, now_ms: int
    ) -> None:
        """Let a static member return under another member id, without a rebalance where that is possible."""
        if before.joining is not None:
            self._answers.append((before.joining, Joined(ErrorCode.FENCED_INSTANCE_ID, before.member_id)))
        if before.syncing is not None:
            self._answers.append((before.syncing, SyncAnswer(ErrorCode.FENCED_INSTANCE_ID)))
        member = ClassicMember(said_by(new_member_id, request), before.assignment, synced=before.synced)
        self._roster.replace(before, member)
        led = self.leader
        if led == before.member_id:
            self.leader = new_member_id
        if self.state is GroupState.STABLE and self._roster.select_protocol() == self.protocol:
            self._keep_alive(member, now_ms)
            self.unsaved = True
            joined = self._joined(member, skip_assignment=request.may_skip_assignment)
            if not request.may_skip_assignment and led is not None:
                # Named as the leader it would assign, in a generation that has its assignment.
                joined = replace(joined, leader=led, members=())
            self._answers.append((ticket, joined))
            return
        self._await_generation(member, ticket)
        self.maybe_prepare(now_ms, f"{member.member_id} has returned")

    def _add(self, ticket: Ticket, request: JoinRequest, member_id: str, now_ms: int) -> None:
        if not self._roster:
            self.protocol_type = request.protocol_type
        member = ClassicMember(said_by(member_id, request))
        self._roster.add(member)
        if self.leader is None:
            self.leader = member_id
        self._await_generation(member, ticket)
        if self._initial_until_ms is not None:
            delay = now_ms + self._limits.initial_rebalance_delay_ms
            self._set_phase_deadline(min(delay, self._initial_until_ms))
        self.maybe_prepare(now_ms, f"{member_id} is new")

    def _await_generation(self, member: ClassicMember, ticket: Ticket) -> None:
        member.joining = ticket
        member.deadline_ms = None

    def _supersede(self, member: ClassicMember) -> None:
        """Answer an earlier request of a member that has sent another: its connection is gone."""
        if member.joining is not None:
            self._answers.append((member.joining, Joined(ErrorCode.UNKNOWN_MEMBER_ID, member.member_id)))
            member.joining = None
        if member.syncing is not None:
            self._answers.append((member.syncing, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS)))
            member.syncing = None

    # -- the join phase --------------------------------------------------------------------------------------

    def maybe_prepare(self, now_ms: int, reason: str) -> None:
        """Begin a join phase if none runs, and end it if all have joined."""
        if self.state is not GroupState.PREPARING:
            self.reason = reason
            was_empty = self.state is GroupState.EMPTY
            for member in self._roster:
                self._answer_sync(member, SyncAnswer(ErrorCode.REBALANCE_IN_PROGRESS), now_ms)
            self.state = GroupState.PREPARING
            timeout_ms = self._roster.rebalance_timeout_ms()
            delay_ms = self._limits.initial_rebalance_delay_ms
            waits = was_empty and delay_ms > 0
            self._initial_until_ms = now_ms + max(timeout_ms, delay_ms) if waits else None
            self._set_phase_deadline(now_ms + (delay_ms if waits else timeout_ms))
        self._maybe_begin_generation(now_ms)

    def _maybe_begin_generation(self, now_ms: int) -> None:
        all_joined = all(each.joining is not None for each in self._roster) and not self._roster.pending
        if self.state is GroupState.PREPARING and all_joined and self._initial_until_ms is None:
            self._begin_generation(now_ms)

    def _end_join_phase(self, now_ms: int) -> None:
        """Begin the generation without those that have not come; static members keep their place."""
        self._initial_until_ms = None
        for member in self._roster:
            if member.joining is None and member.instance_id is None:
                self._remove(member)
        if self._roster and not any(each.joining is not None for each in self._roster):
            # Only static members, and none has come yet.
            self._set_phase_deadline(now_ms + self._roster.rebalance_timeout_ms())
            return
        self._begin_generation(now_ms)

    def _begin_generation(self, now_ms: int) -> None:
        self._phase_deadline_ms = self._initial_until_ms = None
        if self.leader is not None and self._roster[self.leader].joining is None:
            self.leader = next(each.member_id for each in self._roster if each.joining is not None)
        before = self.generation_id
        self.generation_id = GenerationId(before + 1 if before < _GENERATION_MAX else 1)
        self.unsaved = True
        if not self._roster:
            self.state, self.protocol, self.leader = GroupState.EMPTY, None, None
            return
        self.state = GroupState.COMPLETING
        self.protocol = self._roster.select_protocol()
        self._set_phase_deadline(now_ms + self._roster.rebalance_timeout_ms())
        for member in self._roster:
            member.assignment = b""
            # A static member that has not come is not waited for.
            member.synced = member.joining is None
            if member.joining is not None:
                self._answers.append((member.joining, self._joined(member)))
                member.joining = None
                self._keep_alive(member, now_ms)

    def _joined(self, member: ClassicMember, *, skip_assignment: bool = False) -> Joined:
        assert self.leader is not None and self.protocol is not None
        leads = member.member_id == self.leader
        protocol = self.protocol
        members = tuple(
            JoinedMember(each.member_id, each.instance_id, each.metadata(protocol))
            for each in self._roster
            if leads
        )
        generation = self.generation_id, self.protocol_type, protocol, self.leader
        return Joined(ErrorCode.NONE, member.member_id, *generation, skip_assignment and leads, members)

    # -- the assignment --------------------------------------------------------------------------------------

    def sync(self, ticket: Ticket, request: SyncRequest, now_ms: int) -> None:
        """Answer with the member's assignment, once the leader has brought it."""
        error = self._refusal_of_sync(request)
        if error is not ErrorCode.NONE:
            self._answers.append((ticket, SyncAnswer(error)))
            return
        member = self._roster[request.member_id]
        self._supersede(member)
        member.synced = True
        if self.state is GroupState.STABLE:
            self._keep_alive(member, now_ms)
            self._answers.append((ticket, self._synced(member)))
            self._maybe_end_sync_phase()
            return
        member.syncing = ticket
        member.deadline_ms = None
        if request.member_id == self.leader:
            self._assign(request.assignments, now_ms)

    def _refusal_of_sync(self, request: SyncRequest) -> ErrorCode:
        error = self.refusal_of_generation(request.member_id, request.instance_id, request.generation_id)
        if error is not ErrorCode.NONE:
            return error
        for given, own in ((request.protocol_type, self.protocol_type), (request.protocol, self.protocol)):
            if given is not None and given != own:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def _assign(self, assignments: dict[str, bytes], now_ms: int) -> None:
        if self.size + self.growth(assignments) > self._limits.group_bytes_max:
            for member in self._roster:
                self._answer_sync(member, SyncAnswer(ErrorCode.GROUP_MAX_SIZE_REACHED), now_ms)
            self.maybe_prepare(now_ms, "the assignment is too large")
            return
        self.state = GroupState.STABLE
        self.unsaved = True
        for member in self._roster:
            member.assignment = assignments.get(member.member_id, b"")
            self._answer_sync(member, self._synced(member), now_ms)
        self._maybe_end_sync_phase()

    def _maybe_end_sync_phase(self) -> None:
        if all(each.synced for each in self._roster):
            self._phase_deadline_ms = None

    def _answer_sync(self, member: ClassicMember, synced: SyncAnswer, now_ms: int) -> None:
        if member.syncing is not None:
            self._answers.append((member.syncing, synced))
            member.syncing = None
            self._keep_alive(member, now_ms)

    def _synced(self, member: ClassicMember) -> SyncAnswer:
        return SyncAnswer(ErrorCode.NONE, self.protocol_type, self.protocol, member.assignment)

    # -- members ---------------------------------------------------------------------------------------------

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation_id: GenerationId, now_ms: int
    ) -> ErrorCode:
        """Keep a member alive; says whether it has to join again."""
        error = self.refusal_of_generation(member_id, instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        member = self._roster[member_id]
        if member.deadline_ms is not None:
            member.deadline_ms = now_ms + member.said.session_timeout_ms
        return ErrorCode.REBALANCE_IN_PROGRESS if self.state is GroupState.PREPARING else ErrorCode.NONE

    def leave(self, member_id: str, instance_id: str | None, now_ms: int) -> tuple[ErrorCode, str]:
        """Remove a member, by its id or by its instance id; returns the error and the id of who has left."""
        if instance_id is not None and not member_id:
            static = self._roster.of_instance(instance_id)
            member_id = "" if static is None else static.member_id
        elif member_id in self._roster.pending and instance_id is None:
            del self._roster.pending[member_id]
            self._maybe_begin_generation(now_ms)
            return ErrorCode.NONE, member_id
        error = self._roster.refusal(member_id, instance_id)
        if error is ErrorCode.NONE:
            self._remove(self._roster[member_id])
            self.maybe_prepare(now_ms, f"{member_id} leaves")
        return error, member_id

    def check_commit(
        self, member_id: str, instance_id: str | None, generation_id: GenerationId, now_ms: int
    ) -> ErrorCode:
        """Say whether offsets may be committed; counts as a heartbeat."""
        if generation_id < 0 and self.state is GroupState.EMPTY:
            return ErrorCode.NONE
        if generation_id < 0 and not member_id and instance_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        error = self.refusal_of_generation(member_id, instance_id, generation_id)
        if error is not ErrorCode.NONE:
            return error
        self.heartbeat(member_id, instance_id, generation_id, now_ms)
        completing = self.state is GroupState.COMPLETING
        return ErrorCode.REBALANCE_IN_PROGRESS if completing else ErrorCode.NONE

    def refusal_of_generation(
        self, member_id: str, instance_id: str | None, generation_id: GenerationId
    ) -> ErrorCode:
        """Fence requests that do not come from a member of this generation."""
        error = self._roster.refusal(member_id, instance_id)
        if error is ErrorCode.NONE and not group_fences.is_of_generation(generation_id, self.generation_id):
            return ErrorCode.ILLEGAL_GENERATION
        return error

    def _remove(self, member: ClassicMember) -> None:
        self._supersede(member)
        self._roster.remove(member)
        if self.leader == member.member_id:
            self.leader = next((each.member_id for each in self._roster), None)

    # -- time ------------------------------------------------------------------------------------------------

    def expire(self, key: str, now_ms: int) -> None:
        """Act on a deadline that has passed: of a member, of an id that was given out, of a phase."""
        if key == WHOLE_GROUP:
            self._expire_phase(now_ms)
        elif key in self._roster.pending:
            del self._roster.pending[key]
            self._maybe_begin_generation(now_ms)
        elif key in self._roster:
            self._remove(self._roster[key])
            self.maybe_prepare(now_ms, f"{key} was not heard of")

    def _expire_phase(self, now_ms: int) -> None:
        self._phase_deadline_ms = None
        if self.state is GroupState.PREPARING:
            self._end_join_phase(now_ms)
            return
        late = [each for each in self._roster if not each.synced]
        if late and self.state in (GroupState.COMPLETING, GroupState.STABLE):
            for member in late:
                self._remove(member)
            self.maybe_prepare(now_ms, f"{late[0].member_id} did not ask for its assignment")

    def _keep_alive(self, member: ClassicMember, now_ms: int) -> None:
        member.deadline_ms = now_ms + member.said.session_timeout_ms
        self._timers[member.member_id] = None

    def _set_phase_deadline(self, deadline_ms: int) -> None:
        self._phase_deadline_ms = deadline_ms
        self._timers[WHOLE_GROUP] = None
