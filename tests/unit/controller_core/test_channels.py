"""What leaves for which broker, in which order, and what its answers change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.core.channels import ENTRY_PARTITIONS_MAX, PAUSE_MAX_MS, PAUSE_MIN_MS, Channels
from controller.core.effects import CloseChannel, Effect, Level, OpenChannel, Resign, Send, Trace
from controller.core.inputs import Answered, NoAnswer
from controller.core.model import ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.options import Counters
from controller.core.outbox import Batch, LeadershipBatch, MetadataBatch, StopBatch
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord

A, B, GONE = PartitionKey("a", 0), PartitionKey("a", 1), PartitionKey("gone", 0)
STATE = PartitionStateRecord(ControllerEpoch(1), 1, LeaderEpoch(0), (1, 2))
DIRECT = BrokerRecord(None, -1, (), {}, timestamp_ms=0)
BY_QUEUE = replace(DIRECT, reads_queue=True)
ALL_BROKERS = MetadataBatch(())


def known(leader_epoch: int) -> KnownState:
    state = replace(STATE, leader_epoch=LeaderEpoch(leader_epoch))
    return KnownState(state, PartitionVersion(leader_epoch), None)


class World:
    """Channels on two partitions of brokers 1 and 2, and what they want done."""

    def __init__(self, *, by_queue: bool = False) -> None:
        self.model = ClusterModel()
        self.model.topics["a"] = KnownTopic(TopicRecord(None, {0: (1, 2), 1: (2, 1)}), 0)
        self.model.states = {A: known(0), B: known(0)}
        self.counters = Counters()
        self.effects: list[Effect] = []
        self.record = BY_QUEUE if by_queue else DIRECT
        self.channels = Channels(self.model, self.counters, self.effects.append, by_queue=by_queue)

    def open(self, broker_id: int, generation: int = 10) -> None:
        self.channels.open(broker_id, LiveBroker(BrokerGeneration(generation), self.record))

    def taken(self) -> list[Effect]:
        """What was wanted since the last look."""
        taken = list(self.effects)
        self.effects.clear()
        return taken

    def sent(self, now_ms: int = 0) -> Batch | None:
        """The one request that leaves now, whoever gets it."""
        self.channels.flush(now_ms)
        sends = [each for each in self.taken() if isinstance(each, Send)]
        assert len(sends) <= 1
        return sends[0].batch if sends else None

    def answer(
        self,
        errors: Mapping[PartitionKey, int] | None = None,
        code: int = 0,
        *,
        broker_id: int = 1,
        generation: int = 10,
        now_ms: int = 0,
    ) -> Resign | None:
        answer = Answered(broker_id, BrokerGeneration(generation), code, errors or {})
        return self.channels.answered(answer, now_ms)

    def no_answer(self, now_ms: int = 0, problem: str = "it is silent") -> None:
        self.channels.no_answer(NoAnswer(1, BrokerGeneration(10), problem), now_ms)

    def introduced(self) -> World:
        """Broker 1 has a channel and has answered all that it was owed."""
        self.open(1)
        while self.sent() is not None:
            self.answer()
        return self


def test_a_new_broker_gets_all_metadata_then_its_roles_one_request_at_a_time() -> None:
    world = World()
    world.open(1)
    broker = LiveBroker(BrokerGeneration(10), DIRECT)
    assert world.taken() == [OpenChannel(1, broker)]
    world.channels.flush(0)
    world.channels.flush(0)
    assert world.taken() == [Send(1, BrokerGeneration(10), MetadataBatch((A, B)))]
    world.answer()
    assert world.sent() == LeadershipBatch({A: False, B: False})
    assert world.channels.pending_topics() == {"a"}
    world.answer()
    assert world.sent() is None
    assert world.channels.pending_topics() == set()


def test_a_new_broker_gets_stops_in_topics_that_are_being_deleted() -> None:
    world = World()
    world.model.deleting["a"] = None
    world.open(1)
    assert world.sent() == MetadataBatch((A, B))
    world.answer()
    assert world.sent() == StopBatch({A: True, B: True})


def test_stops_go_before_roles_and_roles_before_metadata() -> None:
    world = World().introduced()
    world.channels.owe_leadership(A, is_new=True)
    world.channels.owe_stops([B])
    assert world.sent() == StopBatch({B: True})
    world.answer()
    assert world.sent() == LeadershipBatch({A: True})
    world.answer()
    assert world.sent() == MetadataBatch((A,))


def test_each_broker_has_a_request_of_its_own_under_way() -> None:
    world = World()
    world.open(1)
    world.open(2, 20)
    world.channels.flush(0)
    sends = [each for each in world.taken() if isinstance(each, Send)]
    assert [(each.broker_id, each.generation) for each in sends] == [(1, 10), (2, 20)]
    world.answer(broker_id=2, generation=20)
    world.channels.flush(0)
    assert [type(each) for each in world.taken()] == [Send]


def test_what_is_owed_during_a_request_leaves_with_the_next_one_once() -> None:
    world = World().introduced()
    world.channels.owe_brokers()
    assert world.sent() == ALL_BROKERS
    for _ in range(3):
        world.channels.owe_leadership(A, is_new=False)
    assert world.sent() is None
    world.answer()
    assert world.sent() == LeadershipBatch({A: False})


def test_without_an_answer_the_newest_is_sent_after_a_pause() -> None:
    world = World().introduced()
    world.channels.owe_leadership(A, is_new=False)
    assert world.sent() == LeadershipBatch({A: False})
    world.no_answer(1_000)
    world.channels.owe_leadership(B, is_new=False)
    assert world.sent(1_000 + PAUSE_MIN_MS - 1) is None
    assert world.channels.wake_ms == 1_000 + PAUSE_MIN_MS
    assert world.sent(1_000 + PAUSE_MIN_MS) == LeadershipBatch({B: False, A: False})
    assert not world.channels.wake_ms
    assert world.counters.requests_repeated == 1


def test_pauses_double_up_to_a_limit_and_begin_again_after_an_answer() -> None:
    world = World().introduced()
    world.channels.owe_brokers()
    now_ms, pauses = 0, []
    for _ in range(8):
        assert world.sent(now_ms) == ALL_BROKERS
        world.no_answer(now_ms)
        wake_ms = world.channels.wake_ms
        assert wake_ms is not None
        pauses.append(wake_ms - now_ms)
        now_ms = wake_ms
    assert pauses == [50, 100, 200, 400, 800, 1_600, PAUSE_MAX_MS, PAUSE_MAX_MS]
    assert world.sent(now_ms) == ALL_BROKERS
    world.answer()
    world.channels.owe_brokers()
    assert world.sent(now_ms) == ALL_BROKERS
    world.no_answer(now_ms)
    assert world.channels.wake_ms == now_ms + PAUSE_MIN_MS


def test_wake_is_the_earliest_end_of_a_pause_and_not_one_of_a_closed_channel() -> None:
    world = World().introduced()
    world.open(2, 20)
    world.channels.owe_brokers()
    world.channels.flush(0)
    world.no_answer(100)
    world.channels.no_answer(NoAnswer(2, BrokerGeneration(20), "it is silent"), 60)
    assert world.channels.wake_ms == 60 + PAUSE_MIN_MS
    world.channels.close([2])
    assert world.channels.wake_ms == 100 + PAUSE_MIN_MS


def test_a_code_that_no_broker_answers_counts_as_no_answer() -> None:
    world = World().introduced()
    world.channels.owe_brokers()
    assert world.sent() == ALL_BROKERS
    assert world.answer(code=ErrorCode.UNKNOWN_SERVER_ERROR) is None
    assert world.taken() == [
        Trace(Level.WARNING, "broker 1: no answer, sending again: it answered UNKNOWN_SERVER_ERROR")
    ]
    assert world.sent(PAUSE_MIN_MS) == ALL_BROKERS


def test_a_complaint_is_logged_once_until_all_is_well() -> None:
    world = World().introduced()
    world.channels.owe_brokers()
    now_ms, lines = 0, 0
    for _ in range(3):
        world.channels.flush(now_ms)
        world.no_answer(now_ms)
        lines += sum(isinstance(each, Trace) for each in world.taken())
        now_ms += PAUSE_MAX_MS
    assert lines == 1
    assert world.sent(now_ms) == ALL_BROKERS
    world.answer()
    world.channels.owe_brokers()
    assert world.sent(now_ms) == ALL_BROKERS
    world.no_answer(now_ms)
    assert [type(each) for each in world.taken()] == [Trace]


def test_a_stale_generation_ends_its_channel_and_stays_unanswered() -> None:
    world = World()
    world.open(1)
    assert world.sent() == MetadataBatch((A, B))
    assert world.answer(code=ErrorCode.STALE_BROKER_EPOCH) is None
    assert world.taken() == [
        Trace(Level.INFO, "broker 1: no more requests, generation 10 of it is over"),
        CloseChannel(1, BrokerGeneration(10)),
    ]
    world.channels.owe_brokers()
    assert world.sent(10_000) is None
    world.answer()
    assert world.sent(10_000) is None
    assert world.channels.pending_topics() == {"a"}
    assert world.counters.stale_generations == 1
    world.channels.close([1])
    assert world.taken() == []
    assert world.channels.pending_topics() == set()


def test_a_later_controller_ends_the_term() -> None:
    world = World().introduced()
    world.channels.owe_brokers()
    assert world.sent() == ALL_BROKERS
    resign = world.answer(code=ErrorCode.STALE_CONTROLLER_EPOCH)
    assert resign == Resign("a broker knows a later controller")
    assert world.taken() == [
        Trace(Level.WARNING, "broker 1: it knows a later controller than this one"),
        CloseChannel(1, BrokerGeneration(10)),
    ]
    assert world.sent(10_000) is None


def test_answers_of_a_former_life_change_nothing() -> None:
    world = World().introduced()
    world.channels.close([1])
    assert world.taken() == [CloseChannel(1, BrokerGeneration(10))]
    world.answer()
    world.open(1, 11)
    assert world.sent() == MetadataBatch((A, B))
    world.answer()
    assert world.answer(code=ErrorCode.STALE_CONTROLLER_EPOCH) is None
    world.no_answer()
    assert world.taken() == []
    assert world.sent() is None
    world.answer(generation=11)
    assert world.sent() == LeadershipBatch({A: False, B: False})


def test_stops_that_a_broker_refuses_are_sent_again() -> None:
    world = World().introduced()
    world.channels.owe_stops([A, B])
    assert not world.channels.stopped(A, (1, 2))
    assert world.sent() == StopBatch({A: True, B: True})
    world.answer({A: ErrorCode.KAFKA_STORAGE_ERROR, B: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
    assert world.taken() == [
        Trace(
            Level.WARNING,
            "broker 1: StopReplica: 2 partitions refused, the first with KAFKA_STORAGE_ERROR",
        )
    ]
    # The broker does not have B: it is stopped.
    assert world.channels.stopped(B, (1,))
    assert world.sent(PAUSE_MIN_MS - 1) is None
    assert world.sent(PAUSE_MIN_MS) == StopBatch({A: True})
    assert not world.channels.stopped(A, (1,))
    world.answer()
    assert world.channels.stopped(A, (1,))


def test_pauses_of_refused_stops_double_and_hold_up_no_other_role() -> None:
    world = World().introduced()
    world.channels.owe_stops([A])
    now_ms, pauses = 0, []
    for _ in range(7):
        assert world.sent(now_ms) == StopBatch({A: True})
        world.answer({A: ErrorCode.KAFKA_STORAGE_ERROR}, now_ms=now_ms)
        # A topic of the same name comes, but its replica waits until the former one is gone.
        world.channels.owe_roles(1, ["a"])
        assert world.sent(now_ms) == LeadershipBatch({B: False})
        world.answer(now_ms=now_ms)
        wake_ms = world.channels.wake_ms
        assert wake_ms is not None
        assert world.sent(wake_ms - 1) is None
        pauses.append(wake_ms - now_ms)
        now_ms = wake_ms
    assert pauses == [50, 100, 200, 400, 800, 1_600, PAUSE_MAX_MS]
    assert world.sent(now_ms) == StopBatch({A: True})
    world.answer(now_ms=now_ms)
    assert world.sent(now_ms) == LeadershipBatch({A: False})
    world.answer(now_ms=now_ms)
    assert world.channels.wake_ms is None
    world.channels.owe_stops([B])
    assert world.sent(now_ms) == StopBatch({B: True})
    world.answer({B: ErrorCode.KAFKA_STORAGE_ERROR}, now_ms=now_ms)
    assert world.channels.wake_ms == now_ms + PAUSE_MIN_MS


def test_a_refused_role_is_logged_and_not_sent_again() -> None:
    world = World().introduced()
    world.channels.owe_roles(1, ["a"])
    assert world.sent() == LeadershipBatch({A: False, B: False})
    world.answer({B: ErrorCode.KAFKA_STORAGE_ERROR})
    assert [type(each) for each in world.taken()] == [Trace]
    assert world.sent() is None


def test_a_broker_in_doubt_gets_no_role_until_it_is_judged() -> None:
    world = World()
    world.model.doubts[1] = {"a": None}
    world.open(1)
    assert world.sent() == MetadataBatch((A, B))
    world.answer()
    assert world.sent() is None
    del world.model.doubts[1]
    world.channels.owe_roles(1, ["a"])
    assert world.sent() == LeadershipBatch({A: False, B: False})


def test_a_judged_broker_gets_roles_of_its_replicas_only() -> None:
    world = World().introduced()
    world.model.topics["a"] = KnownTopic(TopicRecord(None, {0: (1, 2), 1: (2, 3)}), 0)
    world.channels.owe_roles(1, ["a", "gone"])
    assert world.sent() == LeadershipBatch({A: False})


def test_a_reassignment_stops_who_leaves_and_tells_who_comes_that_it_is_new() -> None:
    world = World().introduced()
    adding = TopicRecord(None, {0: (1, 2), 1: (1, 2)}, {1: (1,)}, {0: (1,)})
    world.model.topics["a"] = KnownTopic(adding, 1)
    world.model.announced = {A: (2,), B: (1, 2)}
    world.channels.owe_leadership(A, is_new=False)
    world.channels.owe_leadership(B, is_new=False)
    assert world.sent() == StopBatch({A: True})
    world.answer()
    assert world.sent() == LeadershipBatch({B: True})


def test_a_leaver_stops_what_it_is_in_no_isr_of_and_keeps_its_log() -> None:
    world = World().introduced()
    world.model.leaving[1] = None
    world.model.states[A] = KnownState(replace(STATE, leader=2, isr=(2,)), PartitionVersion(1), None)
    world.channels.owe_stops_of_leaver(1, [A, B, GONE])
    assert world.sent() == StopBatch({A: False})
    world.answer()
    # It stays in the ISR of B: there it is another's turn first.
    assert world.sent() is None


@pytest.mark.parametrize("ask", ["owe_roles", "owe_stops_of_leaver"])
def test_a_broker_without_a_channel_is_owed_nothing(ask: str) -> None:
    world = World()
    getattr(world.channels, ask)(3, ["a"] if ask == "owe_roles" else [A])
    world.channels.owe_stops([A])
    assert world.channels.stopped(A, (1, 2, 3))
    assert world.sent() is None


# -- queues --------------------------------------------------------------------------------------------------


def test_an_entry_has_at_most_a_thousand_partitions() -> None:
    world = World(by_queue=True)
    world.model.states = {PartitionKey("a", each): known(0) for each in range(ENTRY_PARTITIONS_MAX + 1)}
    world.open(1)
    batch = world.sent()
    assert isinstance(batch, MetadataBatch)
    assert len(batch.keys) == ENTRY_PARTITIONS_MAX


def test_all_channels_close_at_the_end_of_a_term() -> None:
    world = World().introduced()
    world.open(2, 20)
    world.taken()
    world.channels.close_all()
    assert world.taken() == [CloseChannel(1, BrokerGeneration(10)), CloseChannel(2, BrokerGeneration(20))]
    assert world.channels.wake_ms is None
