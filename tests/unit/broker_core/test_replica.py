"""The machine of one replica, stepped: its roles, its fences, and that MOVES says what it does."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, get_args

import pytest

from broker.core import reading
from broker.core.epochs import EpochEndOffset
from broker.core.fetched import FetchPosition
from broker.core.partition import FollowerState, IdleState, LeaderState
from broker.core.replica import INPUTS_KEPT, ReplicaMachine
from broker.core.replica_effects import (
    AnswerProduces,
    BackOff,
    Close,
    Diverge,
    Follow,
    IsrChanged,
    LookAtDeletions,
    RaiseStart,
    ReadElsewhere,
    ReadUpTo,
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
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.records import NO_LEADER, PartitionStateRecord

SELF, OTHER, THIRD = 1, 2, 3
GENERATION = BrokerGeneration(40)
TOPIC_ID = "a topic id"
LAG_MAX_MS = 100
WAKE_ALL = WakeFetches(of_followers=True, of_consumers=True)
WAKE_CONSUMERS = WakeFetches(of_followers=False, of_consumers=True)
WAKE_FOLLOWERS = WakeFetches(of_followers=True, of_consumers=False)
FAIL_PRODUCES = AnswerProduces(None, ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass
class SomeLog:
    """A log as {epoch: its end}."""

    log_start_offset: int = 0
    log_end_offset: int = 10
    topic_id: str | None = TOPIC_ID
    ends: dict[int, int] = field(default_factory=lambda: {3: 6, 4: 10})

    @property
    def latest_epoch(self) -> int:
        return max(self.ends, default=-1)

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """No transaction is here."""
        return high_watermark

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        if leader_epoch >= self.latest_epoch:
            return (leader_epoch, self.log_end_offset) if leader_epoch == self.latest_epoch else (-1, -1)
        known = max((each for each in self.ends if each <= leader_epoch), default=-1)
        return (known, self.ends[known]) if known >= 0 else (leader_epoch, self.log_start_offset)


def at(offset: int, epoch: int = -1, last: int = -1, topic_id: uuid.UUID | None = None) -> FetchPosition:
    """A reader's position."""
    return FetchPosition(offset, 1, epoch, last, 0, topic_id)


@dataclass
class Stepped:
    """A machine, its log and its clock."""

    log: SomeLog = field(default_factory=SomeLog)
    machine: ReplicaMachine = field(default_factory=lambda: ReplicaMachine(SELF, 2))
    now_ms: int = 1000

    def step(self, happened: ReplicaInput) -> list[ReplicaEffect]:
        return self.machine.step(happened, self.log, self.now_ms)

    @property
    def leader(self) -> LeaderState:
        assert self.machine.leader is not None
        return self.machine.leader


def state_of(leader: int, leader_epoch: int = 5, isr: tuple[int, ...] = (1, 2, 3)) -> PartitionStateRecord:
    return PartitionStateRecord(ControllerEpoch(1), leader, LeaderEpoch(leader_epoch), isr)


def decision(
    leader: int,
    leader_epoch: int = 5,
    isr: tuple[int, ...] = (1, 2, 3),
    *,
    generation: int = GENERATION,
    topic_id: str = TOPIC_ID,
    replicas: tuple[int, ...] = (1, 2, 3),
) -> LeaderAndIsr:
    return LeaderAndIsr(
        BrokerGeneration(generation),
        topic_id,
        state_of(leader, leader_epoch, isr),
        PartitionVersion(7),
        replicas,
    )


def idle() -> Stepped:
    stepped = Stepped()
    assert stepped.step(Opened(4, LeaderEpoch(4))) == []
    return stepped


def following() -> Stepped:
    stepped = idle()
    assert stepped.step(decision(OTHER)) == [WAKE_ALL, LookAtDeletions(), Follow(OTHER, LeaderEpoch(5))]
    return stepped


def leading(isr: tuple[int, ...] = (1, 2, 3)) -> Stepped:
    stepped = idle()
    stepped.step(decision(SELF, isr=isr))
    assert stepped.machine.leader is not None
    return stepped


def from_follower(
    offset: int, replica_id: int = THIRD, *, epoch: int = 5, last: int = 4, generation: int = 9
) -> FollowerFetch:
    return FollowerFetch(replica_id, BrokerGeneration(generation), at(offset, epoch, last))


# -- roles -----------------------------------------------------------------------------------------------


def test_opened_replica_is_idle_within_its_log() -> None:
    stepped = Stepped(SomeLog(log_start_offset=3))
    stepped.step(Opened(99, LeaderEpoch(4)))
    assert stepped.machine.role == IdleState(10, LeaderEpoch(4))
    stepped.step(Opened(0))
    assert stepped.machine.high_watermark == 3


def test_leader_begins_where_its_log_ends() -> None:
    stepped = idle()
    assert stepped.step(decision(SELF)) == [
        WAKE_ALL,
        LookAtDeletions(),
        AnswerProduces(4, ErrorCode.NONE),
        WAKE_CONSUMERS,
    ]
    assert (stepped.leader.epoch_start_offset, stepped.leader.decided_in) == (10, GENERATION)


def test_repeated_decision_changes_nothing_and_an_older_one_is_refused() -> None:
    stepped = leading()
    role = stepped.machine.role
    assert stepped.step(decision(SELF)) == []
    assert stepped.step(decision(OTHER, 4)) == [RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)]
    assert stepped.machine.role is role


def test_decision_of_another_generation_counts_whatever_its_epoch() -> None:
    stepped = following()
    stepped.step(decision(SELF, 2, generation=GENERATION + 1))
    assert (stepped.leader.leader_epoch, stepped.leader.decided_in) == (2, GENERATION + 1)


def test_broker_that_is_no_replica_refuses() -> None:
    refused = [RefuseWith(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert idle().step(decision(OTHER, replicas=(2, 3))) == refused


def test_log_of_another_topic_is_set_aside_only_before_a_decision_of_this_generation() -> None:
    assert idle().step(decision(SELF, topic_id="another")) == [WAKE_ALL, LookAtDeletions(), SetAside()]
    refused = [RefuseWith(ErrorCode.INCONSISTENT_TOPIC_ID)]
    assert leading().step(decision(OTHER, 9, topic_id="another")) == refused


def test_leader_that_follows_fails_its_produces() -> None:
    stepped = leading()
    assert stepped.step(decision(OTHER, 6)) == [
        FAIL_PRODUCES,
        WAKE_ALL,
        LookAtDeletions(),
        Follow(OTHER, LeaderEpoch(6)),
    ]


def test_partition_without_a_leader_is_fetched_no_longer() -> None:
    stepped = following()
    assert stepped.step(decision(NO_LEADER, 6)) == [Unfollow(), WAKE_ALL, LookAtDeletions()]
    assert stepped.machine.role == IdleState(4, LeaderEpoch(6), GENERATION)


def test_stop_of_an_older_epoch_is_refused_unless_the_topic_is_deleted() -> None:
    assert leading().step(StopReplica(4)) == [RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)]
    for epoch in (-2, -1, 5):
        assert leading().step(StopReplica(epoch)) == [FAIL_PRODUCES, WAKE_ALL, LookAtDeletions(), Close()]


def test_leader_steps_down_with_its_session_and_a_follower_goes_on() -> None:
    stepped = leading()
    assert stepped.step(SessionLost(GENERATION)) == []
    assert stepped.step(SessionLost()) == [FAIL_PRODUCES, WAKE_ALL, LookAtDeletions()]
    assert stepped.step(decision(SELF)) == []  # the same generation has decided that already
    followed = following()
    assert followed.step(SessionLost()) == []
    assert followed.machine.follower is not None


def test_damage_closes_a_replica_unless_it_is_alone_in_the_isr() -> None:
    assert leading((1,)).step(DamageFound()) == [RefuseWith(ErrorCode.CORRUPT_MESSAGE)]
    refused = RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert leading().step(DamageFound()) == [FAIL_PRODUCES, WAKE_ALL, LookAtDeletions(), Close(), refused]


# -- what a leader answers -------------------------------------------------------------------------------


def test_produce_is_judged_by_role_and_isr() -> None:
    assert following().machine.may_append(False) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    stepped = leading((1,))
    assert stepped.machine.may_append(False) is ErrorCode.NONE
    assert stepped.machine.may_append(True) is ErrorCode.NOT_ENOUGH_REPLICAS
    stepped.step(SettingsChanged(1))
    assert stepped.machine.may_append(True) is ErrorCode.NONE


def test_leader_alone_in_its_isr_commits_at_once() -> None:
    stepped = leading((1,))
    stepped.log.log_end_offset = 12
    few = ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert stepped.step(LogGrew()) == [WAKE_FOLLOWERS, AnswerProduces(12, few), WAKE_CONSUMERS]
    assert leading().step(LogGrew()) == [WAKE_FOLLOWERS]


def test_fetches_of_the_isr_raise_the_high_watermark() -> None:
    stepped = leading()
    assert stepped.step(from_follower(10, OTHER)) == [LookAtDeletions(), ReadUpTo(10)]
    risen = [AnswerProduces(8, ErrorCode.NONE), WAKE_CONSUMERS, LookAtDeletions()]
    assert stepped.step(from_follower(8)) == [*risen, ReadUpTo(10)]
    position = at(9, 5, 4)
    assert stepped.machine.note_fetch(THIRD, BrokerGeneration(9), position, stepped.log, 0)
    assert not stepped.machine.note_fetch(THIRD, BrokerGeneration(9), position, stepped.log, 0)
    assert stepped.machine.high_watermark == 9


@pytest.mark.parametrize(
    ("fetch", "answer"),
    [
        (from_follower(9, epoch=4), RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)),
        (from_follower(9, epoch=6), RefuseWith(ErrorCode.UNKNOWN_LEADER_EPOCH)),
        (from_follower(9, epoch=-1), ReadUpTo(10)),
        (from_follower(11, last=-1), RefuseWith(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (from_follower(9, last=3), Diverge(3, 6)),
        (from_follower(9, last=8), RefuseWith(ErrorCode.OFFSET_OUT_OF_RANGE)),
        (from_follower(9, 7), RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)),
        (
            FollowerFetch(THIRD, BrokerGeneration(9), at(9, 5, 4, topic_id=uuid.UUID(int=9))),
            RefuseWith(ErrorCode.INCONSISTENT_TOPIC_ID),
        ),
    ],
)
def test_position_that_does_not_fit_counts_for_nothing(fetch: FollowerFetch, answer: ReplicaEffect) -> None:
    stepped = leading((1, 3))
    assert stepped.step(fetch) == [answer]
    assert stepped.machine.high_watermark == 4


def test_consumer_sees_what_is_committed() -> None:
    assert leading().step(ConsumerFetch(at(2))) == [ReadUpTo(4)]
    assert following().step(ConsumerFetch(at(2, 5))) == [ReadUpTo(4)]
    assert following().step(ConsumerFetch(at(20))) == [RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert following().step(from_follower(2)) == [RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    assert idle().step(ConsumerFetch(at(2))) == [RefuseWith(ErrorCode.NOT_LEADER_OR_FOLLOWER)]


def test_consumer_is_sent_to_its_rack() -> None:
    stepped = leading()
    stepped.step(from_follower(9, OTHER))
    racks = {1: "a", 2: "b"}
    assert stepped.step(ConsumerFetch(at(2), "b", racks)) == [ReadElsewhere(2)]
    assert stepped.step(ConsumerFetch(at(2), "a", racks)) == [ReadUpTo(4)]
    assert stepped.step(ConsumerFetch(at(2, 4), "b", racks)) == [RefuseWith(ErrorCode.FENCED_LEADER_EPOCH)]


def test_epoch_ends_are_those_of_the_leader() -> None:
    stepped = leading()
    assert reading.epoch_end(stepped.leader, 5, stepped.log) == EpochEndOffset(5, 10)
    assert reading.epoch_end(stepped.leader, 3, stepped.log) == EpochEndOffset(3, 6)
    assert reading.judge_question(stepped.leader, 4) is ErrorCode.FENCED_LEADER_EPOCH
    assert reading.judge_question(following().machine.role, 5) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_only_committed_records_are_deleted() -> None:
    role = leading().leader
    assert reading.judge_deletion(role, 4) is ErrorCode.NONE
    assert reading.judge_deletion(role, 5) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert reading.judge_deletion(following().machine.role, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    news = WakeFetches(of_followers=True, of_consumers=False, is_news=True)
    assert leading().step(LogStartMoved()) == [news]


# -- the ISR ---------------------------------------------------------------------------------------------


def joining() -> tuple[Stepped, WriteIsr]:
    stepped = leading((1, 2))
    written = stepped.step(from_follower(10))[1]
    assert isinstance(written, WriteIsr)
    assert written.proposal.state.isr == (1, 2, 3)
    return stepped, written


def test_joining_follower_gates_until_it_is_refused() -> None:
    stepped, written = joining()
    stepped.log.log_end_offset = 12
    assert stepped.step(from_follower(12, OTHER))[-1] == ReadUpTo(12)
    assert stepped.machine.high_watermark == 10
    answered = [AnswerProduces(12, ErrorCode.NONE), WAKE_CONSUMERS]
    assert stepped.step(IsrRefused(written.number)) == answered
    assert stepped.leader.isr == (1, 2)


def test_written_change_is_the_isr() -> None:
    stepped, written = joining()
    changed = IsrChanged((1, 2, 3), has_joined=True)
    assert stepped.step(IsrWritten(written.number, PartitionVersion(8))) == [changed]
    assert (stepped.leader.isr, stepped.leader.partition_version) == ((1, 2, 3), 8)
    assert stepped.step(IsrWritten(written.number, PartitionVersion(8))) == []


def test_change_that_was_not_written_is_written_again() -> None:
    stepped, written = joining()
    assert stepped.step(SessionBegun()) == [written]
    assert stepped.step(IsrFound(written.number, state_of(SELF, 5, (1, 2)), PartitionVersion(7))) == [written]
    assert stepped.machine.awaits_write(written.number)


def test_leader_adopts_its_own_change_and_yields_to_another_leader() -> None:
    stepped, written = joining()
    found = IsrFound(written.number, written.proposal.state, PartitionVersion(8))
    assert stepped.step(found) == [IsrChanged((1, 2, 3), has_joined=True)]
    stepped, written = joining()
    found = IsrFound(written.number, state_of(OTHER, 6), PartitionVersion(9))
    assert stepped.step(found) == [FAIL_PRODUCES, WAKE_ALL, LookAtDeletions()]
    assert isinstance(stepped.machine.role, IdleState)


def test_outcome_of_a_former_leadership_changes_nothing() -> None:
    stepped, written = joining()
    stepped.step(decision(SELF, 6, (1, 2)))
    role = stepped.leader
    assert stepped.step(IsrWritten(written.number, PartitionVersion(8))) == []
    assert (role.isr, role.partition_version) == ((1, 2), 7)
    assert not stepped.machine.awaits_write(written.number)


def test_follower_that_lags_leaves() -> None:
    stepped = leading()
    assert stepped.step(LagTick(LAG_MAX_MS)) == []
    stepped.now_ms += LAG_MAX_MS + 1
    (written,) = stepped.step(LagTick(LAG_MAX_MS))
    assert isinstance(written, WriteIsr)
    assert written.proposal.state.isr == (1,)
    assert stepped.step(LagTick(LAG_MAX_MS)) == []  # while one is pending no other is proposed


# -- what a follower does --------------------------------------------------------------------------------


def answer(error_code: ErrorCode = ErrorCode.NONE, **more: Any) -> LeaderAnswer:
    return LeaderAnswer(more.pop("leader_epoch", 5), more.pop("fetch_offset", 10), error_code, **more)


def test_answer_to_a_question_of_the_past_is_dropped() -> None:
    stepped = following()
    for late in (answer(leader_epoch=4, has_records=True), answer(fetch_offset=9, diverging_epoch=(3, 6))):
        assert stepped.step(late) == []


def test_follower_copies_and_takes_the_high_watermark_over() -> None:
    stepped = following()
    assert stepped.step(answer(high_watermark=14, log_start_offset=2, has_records=True)) == [TakeRecords()]
    stepped.log.log_end_offset = 12
    assert stepped.step(Copied(14, 2)) == [WAKE_CONSUMERS, RaiseStart(2)]
    assert stepped.machine.high_watermark == 12
    nothing_new = answer(fetch_offset=12, high_watermark=12, log_start_offset=13)
    assert stepped.step(nothing_new) == [RaiseStart(12)]  # never above what is committed


def test_follower_pauses_after_an_error() -> None:
    stepped = following()
    assert stepped.step(answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)) == [BackOff(1000)]
    assert stepped.step(WriteFailed()) == [BackOff(1000)]


def test_follower_truncates_where_the_logs_diverge() -> None:
    stepped = following()
    (cut,) = stepped.step(answer(diverging_epoch=(3, 3)))
    assert cut == TruncateTo(3)
    assert isinstance(cut, TruncateTo)
    assert stepped.machine.awaits_cut(cut)
    stepped.log.log_end_offset = 3
    assert stepped.step(Truncated()) == []
    assert stepped.machine.high_watermark == 3  # only after an unclean election


def test_new_role_awaits_no_cut() -> None:
    stepped = following()
    (cut,) = stepped.step(answer(diverging_epoch=(3, 3)))
    assert isinstance(cut, TruncateTo)
    stepped.step(decision(THIRD, 6))
    assert not stepped.machine.awaits_cut(cut)
    with pytest.raises(IllegalMoveError):
        stepped.step(Truncated())


def test_follower_starts_over_only_behind_the_leaders_start() -> None:
    stepped = following()
    out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
    assert stepped.step(answer(out_of_range, log_start_offset=10)) == [BackOff(1000)]
    assert stepped.step(answer(out_of_range, log_start_offset=20)) == [StartAt(20)]
    stepped.log.log_start_offset = stepped.log.log_end_offset = 20
    assert stepped.step(Truncated()) == []
    assert stepped.machine.high_watermark == 20


# -- the table of moves ----------------------------------------------------------------------------------

ROLES = {IdleState: idle, FollowerState: following, LeaderState: leading}


def variants(kind: type) -> Iterator[ReplicaInput]:
    """Every input of a kind with values that decide differently."""
    if kind is LeaderAndIsr:
        for leader, epoch, generation, topic_id in product(
            (SELF, OTHER, THIRD, NO_LEADER), (4, 5, 6), (GENERATION, GENERATION + 1), (TOPIC_ID, "another")
        ):
            yield decision(leader, epoch, generation=generation, topic_id=topic_id)
        yield decision(OTHER, replicas=(2, 3))
    elif kind is FollowerFetch:
        for offset, replica_id, epoch, last in product((0, 8, 10, 11), (2, 3, 7), (-1, 4, 5, 6), (-1, 3, 8)):
            yield from_follower(offset, replica_id, epoch=epoch, last=last)
    elif kind is LeaderAnswer:
        codes = (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        for code, epoch, offset, diverging, has_records in product(
            codes, (4, 5), (9, 10), (None, (3, 3)), (True, False)
        ):
            yield LeaderAnswer(epoch, offset, code, 9, 1, diverging, has_records)
    elif kind is IsrFound:
        for leader, epoch, version, number in product((SELF, OTHER), (5, 6), (7, 8), (0, 1, 2)):
            yield IsrFound(number, state_of(leader, epoch), PartitionVersion(version))
    else:
        plain: dict[type, list[ReplicaInput]] = {
            Opened: [Opened(3), Opened(99, LeaderEpoch(8))],
            StopReplica: [StopReplica(epoch) for epoch in (-2, -1, 4, 5, 6)],
            SessionLost: [SessionLost(), SessionLost(GENERATION), SessionLost(BrokerGeneration(41))],
            ConsumerFetch: [ConsumerFetch(at(each, epoch)) for each in (0, 11) for epoch in (-1, 4, 5, 6)],
            Copied: [Copied(20, 0), Copied(0, 20)],
            IsrWritten: [IsrWritten(each, PartitionVersion(8)) for each in (0, 1, 2)],
            IsrRefused: [IsrRefused(each) for each in (0, 1, 2)],
            SettingsChanged: [SettingsChanged(3)],
            LagTick: [LagTick(0), LagTick(10**6)],
        }
        yield from plain.get(kind) or [kind()]


def asking(role: type) -> Stepped:
    """A replica in a role, with a cut or a change of the ISR asked for, be it by a former leadership."""
    stepped = leading()
    stepped.now_ms += 10**6
    assert stepped.step(LagTick(LAG_MAX_MS)) != []
    if role is IdleState:
        stepped.step(SessionLost())
    if role is FollowerState:
        stepped.step(decision(OTHER, 5, generation=GENERATION + 1))
        assert stepped.step(answer(diverging_epoch=(3, 3))) == [TruncateTo(3)]
    return stepped


def prepared(role: type) -> list[Stepped]:
    return [ROLES[role](), asking(role), *([leading((1,))] if role is LeaderState else [])]


@pytest.mark.parametrize("kind", get_args(ReplicaInput), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
def test_every_input_leads_only_to_the_roles_that_the_table_names(role: type, kind: type) -> None:
    reached = set()
    for happened in variants(kind):
        for stepped in prepared(role):
            # Illegal in a role that may take it is only the outcome of an effect that was not asked for.
            with contextlib.suppress(IllegalMoveError):
                stepped.step(happened)
                reached.add(type(stepped.machine.role))
    assert reached == MOVES.get((role, kind), set())


@pytest.mark.parametrize("kind", [IsrWritten, IsrRefused, IsrFound])
@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.__name__)
def test_outcome_of_a_change_that_was_never_proposed_is_illegal(role: type, kind: type) -> None:
    for happened in variants(kind):
        with pytest.raises(IllegalMoveError):
            ROLES[role]().step(happened)


@pytest.mark.parametrize("happened", [Truncated(), LogGrew(), Copied(9, 0), WriteFailed(), Opened(3)])
def test_completion_that_nobody_asked_for_raises_with_the_last_inputs(happened: ReplicaInput) -> None:
    stepped = leading() if not isinstance(happened, LogGrew) else following()
    for count in range(20):
        stepped.step(SettingsChanged(count))
        stepped.step(LagTick(10**6))
    with pytest.raises(IllegalMoveError, match=type(happened).__name__) as caught:
        stepped.step(happened)
    last = [SettingsChanged(count) for count in range(20)][1 - INPUTS_KEPT :]
    assert list(caught.value.inputs) == [*last, happened]
