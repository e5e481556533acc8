"""One replica of a partition, stepped: an input and a view of the log in, effects out.

All that changes a role or ends a wait goes through `step`. What happens for each batch (`may_append`,
`appended`, `note_fetch`, `copied`) decides by the same rules, makes no values and changes no role.
Hard state: none. Soft state: the role, and what an effect that was asked for is still to bring.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas", "Consumers"; KIP-101, KIP-279, KIP-320,
KIP-392, KIP-497, KIP-516, KIP-903; Kafka's Partition.scala.
"""

from __future__ import annotations

from typing import Final

from broker.core import fences, reading
from broker.core.epochs import EpochEndOffset, truncation_offset
from broker.core.fetched import FetchPosition
from broker.core.partition import FollowerState, IdleState, LeaderState, ProposeIsr, ReplicaState
from broker.core.read_replica import NO_PREFERENCE
from broker.core.replica_effects import (
    AnswerProduces,
    BackOff,
    Close,
    Follow,
    IsrChanged,
    LookAtDeletions,
    RaiseStart,
    ReadElsewhere,
    RefuseWith,
    ReplicaEffect,
    SetAside,
    StartAt,
    TakeRecords,
    TruncateTo,
    Unfollow,
    WakeFetches,
    WriteIsr,
)
from broker.core.replica_inputs import (
    ConsumerFetch,
    Copied,
    DamageFound,
    FollowerFetch,
    IsrFound,
    IsrRefused,
    IsrWritten,
    LagTick,
    LeaderAndIsr,
    LeaderAnswer,
    LogGrew,
    LogStartMoved,
    LogView,
    Opened,
    ReplicaInput,
    SessionBegun,
    SessionLost,
    SettingsChanged,
    StopReplica,
    Truncated,
    WriteFailed,
)
from broker.core.replica_moves import MOVES, IllegalMoveError
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, LeaderEpoch
from quorum.metadata.records import NO_LEADER

NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
#: Inputs that an error carries, the offending one last; ticks without an effect are not kept.
INPUTS_KEPT: Final = 16


class ReplicaMachine:
    """One replica's role and decisions."""

    __slots__ = ("_awaited", "_inputs", "_writes", "broker_id", "min_insync_replicas", "role")

    def __init__(self, broker_id: int, min_insync_replicas: int) -> None:
        """Be idle, with nothing committed, until Opened.

        Args:
            broker_id: this broker.
            min_insync_replicas: the topic's setting.
        """
        self.broker_id = broker_id
        self.min_insync_replicas = min_insync_replicas
        self.role: ReplicaState = IdleState(0, NO_LEADER_EPOCH)
        #: The change of the log that is under way.
        self._awaited: TruncateTo | StartAt | None = None
        #: Number of the last WriteIsr.
        self._writes = 0
        self._inputs: list[ReplicaInput] = []

    # -- questions: they change nothing ----------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self.role.high_watermark

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Of the last decision that was applied, or read at the start."""
        return self.role.leader_epoch

    @property
    def leader(self) -> LeaderState | None:
        """The leader's state, if this replica leads."""
        role = self.role
        return role if isinstance(role, LeaderState) else None

    @property
    def follower(self) -> FollowerState | None:
        """The follower's state, if this replica follows a leader."""
        role = self.role
        return role if isinstance(role, FollowerState) else None

    def awaits_write(self, number: int) -> bool:
        """Whether the outcome of this change of the ISR still matters."""
        leader = self.leader
        return leader is not None and leader.pending is not None and number == self._writes

    def awaits_cut(self, asked: TruncateTo | StartAt) -> bool:
        """Whether the log is to be changed so."""
        return self._awaited is asked

    def may_append(self, acks_all: bool) -> ErrorCode:
        """Judge a produce, in the turn of its append."""
        role = self.role
        if not isinstance(role, LeaderState):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if acks_all and not role.has_enough_in_sync(self.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return ErrorCode.NONE

    def code_of_committed(self) -> ErrorCode:
        """Return what a produce with acks=all is answered once the high watermark has passed it."""
        role = self.role
        if isinstance(role, LeaderState) and not role.has_enough_in_sync(self.min_insync_replicas):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def is_in_sync(self, replica_id: int) -> bool:
        """Whether this replica leads and that one is in its ISR: producers wait for it then."""
        role = self.role
        return isinstance(role, LeaderState) and replica_id in role.isr

    # -- each batch: no role changes, nothing is made --------------------------------------------------------

    def appended(self, log_end_offset: int) -> bool:
        """Note that the leader's log has grown; True if the high watermark rose: it is alone in its ISR."""
        role = self.role
        return isinstance(role, LeaderState) and role.advance_high_watermark(log_end_offset)

    def note_fetch(
        self,
        replica_id: int,
        generation: BrokerGeneration,
        position: FetchPosition,
        log: LogView,
        now_ms: int,
    ) -> bool:
        """Note what a follower has, if its position counts; True if the high watermark rose."""
        role = self.role
        return (
            isinstance(role, LeaderState)
            and self._counts(role, replica_id, generation, position, log, now_ms)
            and role.advance_high_watermark(log.log_end_offset)
        )

    def kept_up(self, replica_id: int, generation: BrokerGeneration, until_ms: int) -> None:
        """Note that a follower had everything when its session fetched last, at until_ms; it has no more."""
        role = self.role
        if isinstance(role, LeaderState):
            role.follower_kept_up(replica_id, generation, until_ms)

    def _counts(
        self,
        leader: LeaderState,
        replica_id: int,
        generation: BrokerGeneration,
        position: FetchPosition,
        log: LogView,
        now_ms: int,
    ) -> bool:
        log_end_offset = log.log_end_offset
        return (
            fences.is_position_of_epoch(position.current_leader_epoch, leader.leader_epoch)
            and log.log_start_offset <= position.offset <= log_end_offset
            and not fences.is_of_another_topic(position.topic_id, log.topic_id)
            and reading.diverging(leader, position, log) is None
            and leader.follower_fetched(
                replica_id,
                generation,
                position.offset,
                position.log_start_offset,
                log_end_offset=log_end_offset,
                now_ms=now_ms,
            )
        )

    def copied(self, high_watermark: int, log_end_offset: int) -> bool:
        """Note what a leader's answer said, once its records are in the log; True if the own one rose."""
        role = self.role
        return isinstance(role, FollowerState) and role.leader_said(high_watermark, log_end_offset)

    def start_to_keep(self, leader_start_offset: int) -> int:
        """Return where a follower's log may begin: the leader has deleted what is before."""
        return min(leader_start_offset, self.role.high_watermark)

    # -- what changes a role or ends a wait ------------------------------------------------------------------

    def step(self, happened: ReplicaInput, log: LogView, now_ms: int) -> list[ReplicaEffect]:
        """Take one input; returns what is to be done, in this order.

        Args:
            happened: the input.
            log: this replica's, as it is now.
            now_ms: monotonic.
        """
        inputs = self._inputs
        inputs.append(happened)
        may_follow = MOVES.get((type(self.role), type(happened)))
        if may_follow is None:
            raise IllegalMoveError(self.role, inputs)
        effects = self._take(happened, log, now_ms)
        if type(self.role) not in may_follow:
            raise IllegalMoveError(self.role, inputs)
        if isinstance(happened, LagTick) and not effects:
            inputs.pop()
        else:
            del inputs[: 1 - INPUTS_KEPT]
        return effects

    def _take(self, happened: ReplicaInput, log: LogView, now_ms: int) -> list[ReplicaEffect]:
        match happened:
            case Opened() | LeaderAndIsr() | StopReplica() | SessionLost() | DamageFound():
                return self._change_role(happened, log, now_ms)
            case FollowerFetch() | ConsumerFetch():
                return self._fetched(happened, log, now_ms)
            case LeaderAnswer() | Copied() | WriteFailed() | Truncated():
                return self._following(happened, log, now_ms)
            case IsrWritten() | IsrRefused() | IsrFound():
                return self._isr_outcome(happened, log, now_ms)
            case SettingsChanged(min_insync_replicas):
                self.min_insync_replicas = min_insync_replicas
                return []
            case SessionBegun() | LogGrew() | LogStartMoved() | LagTick():
                leader = self.leader
                return [] if leader is None else self._leading(leader, happened, log, now_ms)

    # -- roles -----------------------------------------------------------------------------------------------

    def _change_role(
        self,
        happened: Opened | LeaderAndIsr | StopReplica | SessionLost | DamageFound,
        log: LogView,
        now_ms: int,
    ) -> list[ReplicaEffect]:
        match happened:
            case Opened(high_watermark, leader_epoch):
                bounded = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
                self.role = IdleState(bounded, leader_epoch)
                return []
            case LeaderAndIsr():
                return self._decided(happened, log, now_ms)
            case StopReplica(leader_epoch):
                if fences.is_stale_stop(leader_epoch, self.leader_epoch):
                    return [RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)]
                return [*self._close(), Close()]
            case SessionLost(generation):
                leader = self.leader
                keeps = leader is None or fences.may_lead_on(leader.decided_in, generation)
                return [] if keeps else self._step_down()
            case DamageFound():
                return self._damaged()

    def _decided(self, decision: LeaderAndIsr, log: LogView, now_ms: int) -> list[ReplicaEffect]:
        refused = refusal_of(self.broker_id, decision)
        if refused is not ErrorCode.NONE:
            return [RefuseWith(refused)]
        state, known = decision.state, self.leader_epoch
        is_decided = fences.is_decided_in(self.role.decided_in, decision.generation)
        if fences.is_of_another_topic(decision.topic_id, log.topic_id):
            # Else the topic was deleted and created again while this broker was away.
            return (
                [RefuseWith(ErrorCode.INCONSISTENT_TOPIC_ID)] if is_decided else [*self._close(), SetAside()]
            )
        if is_decided and fences.is_repeated_decision(state.leader_epoch, known):
            return []
        if is_decided and fences.is_stale_decision(state.leader_epoch, known):
            return [RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)]
        if state.leader == self.broker_id:
            return self._lead(decision, log, now_ms)
        if state.leader == NO_LEADER:
            return self._take_role(IdleState(self.high_watermark, state.leader_epoch, decision.generation))
        role = FollowerState(state.leader, state.leader_epoch, self.high_watermark, decision.generation)
        return [*self._take_role(role), Follow(state.leader, state.leader_epoch)]

    def _lead(self, decision: LeaderAndIsr, log: LogView, now_ms: int) -> list[ReplicaEffect]:
        role = LeaderState.elected(
            self.broker_id,
            decision.state,
            decision.partition_version,
            decision.replicas,
            log_end_offset=log.log_end_offset,
            high_watermark=self.high_watermark,
            now_ms=now_ms,
            decided_in=decision.generation,
        )
        return [*self._take_role(role), *self._risen()]

    def _take_role(self, role: ReplicaState) -> list[ReplicaEffect]:
        """Change the role. A produce of a former leadership fails; who fetches reads again."""
        before, self.role, self._awaited = self.role, role, None
        effects: list[ReplicaEffect] = []
        if isinstance(before, FollowerState) and not isinstance(role, FollowerState):
            effects.append(Unfollow())
        if isinstance(before, LeaderState) and not isinstance(role, LeaderState):
            effects.append(AnswerProduces(None, ErrorCode.NOT_LEADER_OR_FOLLOWER))
        return [*effects, WakeFetches(of_followers=True, of_consumers=True), LookAtDeletions()]

    def _step_down(self) -> list[ReplicaEffect]:
        """Lead or follow no longer; what comes next is for the controller to say."""
        return self._take_role(IdleState(self.high_watermark, self.leader_epoch, self.role.decided_in))

    def _close(self) -> list[ReplicaEffect]:
        return self._take_role(IdleState(self.high_watermark, self.leader_epoch))

    def _damaged(self) -> list[ReplicaEffect]:
        """Keep serving what nobody else has; else let the replica go, so that it is copied anew."""
        leader = self.leader
        if leader is not None and len(leader.isr) == 1:
            return [RefuseWith(ErrorCode.CORRUPT_MESSAGE)]
        # Every client looks for another leader then.
        return [*self._close(), Close(), RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)]

    # -- the leader ------------------------------------------------------------------------------------------

    def _risen(self) -> list[ReplicaEffect]:
        effects: list[ReplicaEffect] = []
        if self.leader is not None:
            effects.append(AnswerProduces(self.high_watermark, self.code_of_committed()))
        return [*effects, WakeFetches(of_followers=False, of_consumers=True)]

    def _leading(
        self,
        leader: LeaderState,
        happened: SessionBegun | LogGrew | LogStartMoved | LagTick,
        log: LogView,
        now_ms: int,
    ) -> list[ReplicaEffect]:
        match happened:
            case SessionBegun():
                return [] if leader.pending is None else [WriteIsr(self._writes, leader.pending)]
            case LogGrew():
                woken = WakeFetches(of_followers=True, of_consumers=False)
                return [woken, *(self._risen() if self.appended(log.log_end_offset) else ())]
            case LogStartMoved():
                return [WakeFetches(of_followers=True, of_consumers=False, is_news=True)]
            case LagTick(lag_max_ms):
                return self._propose(leader.maybe_shrink(log.log_end_offset, now_ms, lag_max_ms))

    def _fetched(
        self, fetch: FollowerFetch | ConsumerFetch, log: LogView, now_ms: int
    ) -> list[ReplicaEffect]:
        if isinstance(fetch, ConsumerFetch):
            nearer = NO_PREFERENCE
            if fetch.rack and fetch.racks is not None:
                nearer = reading.nearer_replica(self.role, fetch.racks, fetch.rack, fetch.position, log)
            if nearer != NO_PREFERENCE:
                return [ReadElsewhere(nearer)]
            return [reading.answer(self.role, -1, fetch.position, log)]
        effects: list[ReplicaEffect] = []
        leader, replica_id = self.leader, fetch.replica_id
        if leader is not None and self._counts(
            leader, replica_id, fetch.generation, fetch.position, log, now_ms
        ):
            if leader.advance_high_watermark(log.log_end_offset):
                effects += self._risen()
            effects.append(LookAtDeletions())
            effects += self._propose(leader.maybe_expand(replica_id, now_ms))
        return [*effects, reading.answer(self.role, replica_id, fetch.position, log)]

    def _propose(self, change: ProposeIsr | None) -> list[ReplicaEffect]:
        if change is None:
            return []
        self._writes += 1
        return [WriteIsr(self._writes, change)]

    def _isr_outcome(
        self, outcome: IsrWritten | IsrRefused | IsrFound, log: LogView, now_ms: int
    ) -> list[ReplicaEffect]:
        if not 1 <= outcome.number <= self._writes:
            raise IllegalMoveError(self.role, self._inputs)
        leader = self.leader
        change = None if leader is None else leader.pending
        if leader is None or change is None or outcome.number != self._writes:
            # Of a leadership that is over, or a repeated word.
            return []
        effects: list[ReplicaEffect] = []
        has_changed = True
        match outcome:
            case IsrWritten(_, version):
                leader.isr_written(version)
            case IsrRefused():
                leader.isr_refused(now_ms)
                has_changed = False
            case IsrFound(_, state, version):
                if version == change.partition_version:
                    # Not written yet.
                    return [WriteIsr(outcome.number, change)]
                if not leader.isr_read_again(state, version, now_ms):
                    return self._step_down()
                has_changed = state == change.state
        if has_changed:
            effects.append(IsrChanged(change.state.isr, bool(change.joining)))
        if leader.advance_high_watermark(log.log_end_offset):
            effects += self._risen()
        return effects

    # -- the follower ----------------------------------------------------------------------------------------

    def _following(
        self, happened: LeaderAnswer | Copied | WriteFailed | Truncated, log: LogView, now_ms: int
    ) -> list[ReplicaEffect]:
        follower = self.follower
        match happened:
            case LeaderAnswer():
                self._awaited = None
                return [] if follower is None else self._answered(follower, happened, log, now_ms)
            case Copied(high_watermark, log_start_offset):
                risen = self._risen() if self.copied(high_watermark, log.log_end_offset) else ()
                return [*risen, RaiseStart(self.start_to_keep(log_start_offset))]
            case WriteFailed():
                return [BackOff(now_ms)]
            case Truncated():
                asked, self._awaited = self._awaited, None
                if asked is None or follower is None:
                    raise IllegalMoveError(self.role, self._inputs)
                if isinstance(asked, StartAt):
                    follower.high_watermark = asked.offset
                else:
                    follower.truncated(log.log_end_offset)
                return []

    def _answered(
        self, follower: FollowerState, answer: LeaderAnswer, log: LogView, now_ms: int
    ) -> list[ReplicaEffect]:
        """Append, truncate, start over or pause, if the answer still counts."""
        if not fences.is_current_answer(
            answer.leader_epoch, follower.leader_epoch, answer.fetch_offset, log.log_end_offset
        ):
            return []
        if answer.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            has_records = log.log_start_offset < log.log_end_offset
            if has_records and log.log_end_offset >= answer.log_start_offset:
                return [BackOff(now_ms)]
            self._awaited = StartAt(answer.log_start_offset)
            return [self._awaited]
        if answer.error_code is not ErrorCode.NONE:
            return [BackOff(now_ms)]
        if answer.diverging_epoch is not None:
            leader_end = EpochEndOffset(*answer.diverging_epoch)
            own_end = EpochEndOffset(*log.end_offset_for_epoch(leader_end.leader_epoch))
            self._awaited = TruncateTo(truncation_offset(leader_end, own_end, log.log_end_offset))
            return [self._awaited]
        if answer.has_records:
            return [TakeRecords()]
        return self._following(Copied(answer.high_watermark, answer.log_start_offset), log, now_ms)


def refusal_of(broker_id: int, decision: LeaderAndIsr) -> ErrorCode:
    """Return what a broker answers that is to hold no replica; NONE: it is to hold one."""
    is_assigned = broker_id in decision.replicas
    return ErrorCode.NONE if is_assigned else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
