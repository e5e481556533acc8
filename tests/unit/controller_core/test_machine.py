"""The controller's machine, stepped: passes, what breaks them off, and what ends a term."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from controller.core.effects import (
    Answer,
    Check,
    CloseChannel,
    Effect,
    OpenChannel,
    ReadChildren,
    ReadNodes,
    Resign,
    Send,
    SetData,
    Write,
)
from controller.core.inputs import (
    Answered,
    ChildrenRead,
    CreateTopics,
    DeleteTopics,
    Ended,
    Input,
    MultiDone,
    NodesRead,
    PathsChanged,
    ReadFailed,
    Reconnected,
    Rejected,
    Requested,
    ShutDown,
    Unknown,
    Unreadable,
    Why,
    Withdrawn,
)
from controller.core.machine import COMMANDS_MAX
from controller.core.options import ControllerOptions
from controller.core.outbox import LeadershipBatch, MetadataBatch, StopBatch
from controller.core.outcomes import RequestFailed, ShutdownOutcome
from controller.core.requests import NewTopic
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER, PartitionStateRecord, TopicConfigRecord, TopicRecord
from tests.support.stepped_controller import (
    ELECTED,
    EPOCH_VERSION,
    SteppedController,
    of_kind,
    resigned,
    sent,
    traced,
)

KEY = PartitionKey("orders", 0)
FENCE = Check(paths.CONTROLLER_EPOCH, EPOCH_VERSION)


def cluster(*broker_ids: int, **options: object) -> SteppedController:
    """A controller in office, with brokers and one topic that all of them hold."""
    stepped = SteppedController(**options)
    for each in broker_ids:
        stepped.register(each)
    stepped.create(KEY.topic, {0: broker_ids})
    stepped.elect()
    return stepped


def answer_all(stepped: SteppedController, effects: list[Effect]) -> list[Effect]:
    """Have the brokers carry out what they are sent, until nothing is owed."""
    found: list[Effect] = []
    ids = {each.broker_id for each in effects if isinstance(each, OpenChannel)} or {1, 2, 3}
    while any(sends := [send for each in ids for send in sent(effects, each)]):
        effects = stepped.settle(*(Answered(each.broker_id, each.generation, 0, {}) for each in sends))
        found += effects
    return found


def test_a_new_controller_gives_first_states_and_owes_them_to_the_brokers() -> None:
    stepped = SteppedController()
    for each in (1, 2):
        stepped.register(each)
    stepped.create(KEY.topic, {0: (2, 1)})
    effects = stepped.elect()
    assert stepped.state(KEY) == PartitionStateRecord(ControllerEpoch(5), 2, LeaderEpoch(0), (2, 1))
    assert [each.broker_id for each in of_kind(effects, OpenChannel)] == [1, 2]
    assert all(each.operations[0] == FENCE for each in of_kind(effects, Write))
    later = answer_all(stepped, effects)
    assert [type(each.batch) for each in sent(later, 2)] == [
        LeadershipBatch,
        *[type(sent(effects, 2)[0].batch)],
    ]
    assert stepped.machine.step_under_way is None
    assert stepped.machine.parts.channels.pending_topics() == set()


def test_a_dead_broker_leads_nothing_any_more() -> None:
    stepped = cluster(2, 1)
    stepped.tree.remove(paths.broker_id_path(2))
    effects = stepped.settle()
    assert stepped.state(KEY) == PartitionStateRecord(ControllerEpoch(5), 1, LeaderEpoch(1), (1,))
    assert [each.broker_id for each in of_kind(effects, CloseChannel)] == [2]
    assert "broker 2 is gone" in traced(effects)


def test_changes_of_isrs_are_collected_before_they_are_read() -> None:
    stepped = cluster(1, 2)
    stepped.wait(1_000)
    state = stepped.state(KEY)
    path = paths.partition_state_path(KEY)
    stepped.tree.put(path, PartitionStateRecord(ControllerEpoch(5), 1, state.leader_epoch, (1,)).encode())
    assert of_kind(stepped.settle(), ReadNodes) == []
    assert stepped.machine.wake_ms == stepped.now_ms + 100
    (read,) = of_kind(stepped.wait(100), ReadNodes)
    assert read.paths == (path,)
    assert stepped.machine.model.states[KEY].state.isr == (1,)


def test_a_state_that_its_leader_changed_meanwhile_is_read_and_decided_again() -> None:
    stepped = cluster(1, 2, 3)
    path = paths.partition_state_path(KEY)
    shrunk: list[Effect] = []

    def shrink(effect: Effect) -> None:
        if isinstance(effect, Write) and isinstance(effect.operations[-1], SetData) and not shrunk:
            shrunk.append(effect)
            now = stepped.state(KEY)
            stepped.tree.put(
                path, PartitionStateRecord(now.controller_epoch, 1, now.leader_epoch, (1, 2)).encode()
            )

    stepped.before = shrink
    stepped.tree.remove(paths.broker_id_path(1))
    stepped.settle()
    assert shrunk
    assert stepped.state(KEY) == PartitionStateRecord(ControllerEpoch(5), 2, LeaderEpoch(1), (2,))
    assert stepped.counters.rounds_repeated == 1


def test_after_an_unknown_outcome_the_partition_is_read_first() -> None:
    stepped = cluster(1, 2)
    lost: list[int] = []

    def lose(effect: Effect) -> Input | None:
        if isinstance(effect, Write) and isinstance(effect.operations[-1], SetData) and not lost:
            lost.append(effect.id)
            stepped.tree.multi(effect.operations)
            return MultiDone(effect.id, Unknown("the connection broke"))
        return None

    stepped.before = lose
    stepped.tree.remove(paths.broker_id_path(1))
    effects = stepped.settle()
    assert stepped.state(KEY).leader_epoch == 1
    index = effects.index(next(each for each in effects if isinstance(each, Write) and each.id == lost[0]))
    assert any(
        isinstance(each, ReadNodes) and paths.partition_state_path(KEY) in each.paths
        for each in effects[index:]
    )
    assert stepped.machine.model.states[KEY].state == stepped.state(KEY)


def test_the_fence_ends_the_term() -> None:
    stepped = cluster(1, 2)
    stepped.tree.put(paths.CONTROLLER_EPOCH, b"6")
    before = stepped.state(KEY)
    stepped.tree.remove(paths.broker_id_path(1))
    resign = resigned(stepped.settle())
    assert resign is not None
    assert resign.is_fenced
    assert stepped.state(KEY) == before
    assert stepped.machine.is_over
    assert stepped.machine.step(Reconnected(), stepped.now_ms) == []


def test_a_lost_connection_breaks_the_pass_off_and_all_is_read_again_after_a_pause() -> None:
    stepped = cluster(1, 2)
    failed: list[int] = []

    def fail(effect: Effect) -> Input | None:
        if isinstance(effect, ReadNodes) and len(failed) < 2:
            failed.append(effect.id)
            return ReadFailed(effect.id, "no server")
        return None

    stepped.before = fail
    stepped.tree.remove(paths.broker_id_path(1))
    effects = stepped.settle()
    assert traced(effects) == ["the controller reads everything again: no server"]
    assert stepped.machine.wake_ms == stepped.now_ms + 50
    stepped.wait(50)
    assert stepped.machine.wake_ms == stepped.now_ms + 100
    stepped.wait(99)
    assert stepped.state(KEY).leader == 1
    stepped.wait(1)
    assert stepped.state(KEY).leader == 2


def test_a_request_is_carried_out_and_answered_once_its_topic_is_decided_about() -> None:
    stepped = cluster(1, 2)
    outcome = stepped.ask(CreateTopics((NewTopic("new", 3, 2), NewTopic(KEY.topic)), validate_only=False))
    assert isinstance(outcome, dict)
    assert [each.error_code for each in outcome.values()] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]
    assert [stepped.state(PartitionKey("new", each)).leader != NO_LEADER for each in range(3)] == [True] * 3


def test_a_creation_whose_reply_was_lost_is_found_to_be_its_own() -> None:
    stepped = cluster(1)
    lost: list[int] = []

    def lose(effect: Effect) -> Input | None:
        if isinstance(effect, Write) and effect.operations[-1].path == paths.topic_path("new") and not lost:
            lost.append(effect.id)
            stepped.tree.multi(effect.operations)
            return MultiDone(effect.id, Unknown("the connection broke"))
        return None

    stepped.before = lose
    outcome = stepped.ask(CreateTopics((NewTopic("new"),), validate_only=False))
    assert isinstance(outcome, dict)
    assert (outcome["new"].error_code, bool(lost)) == (ErrorCode.NONE, True)


def test_a_deleted_topic_goes_once_its_brokers_have_answered() -> None:
    stepped = cluster(1, 2)
    answer_all(stepped, stepped.effects)
    before = len(stepped.effects)
    outcome = stepped.ask(DeleteTopics((KEY.topic,)))
    assert isinstance(outcome, dict)
    assert outcome[KEY.topic].error_code == ErrorCode.NONE
    assert KEY.topic in stepped.machine.model.deleting
    answer_all(stepped, stepped.effects[before:])
    assert stepped.tree.children(paths.BROKER_TOPICS) == ()
    assert stepped.tree.children(paths.DELETE_TOPICS) == ()
    assert stepped.machine.model.topics == {}


def test_a_broker_that_shuts_down_gives_its_leaderships_away() -> None:
    stepped = cluster(1, 2)
    generation = stepped.machine.model.brokers[1].generation
    assert stepped.ask(ShutDown(1, generation)) == ShutdownOutcome(ErrorCode.NONE)
    assert stepped.state(KEY) == PartitionStateRecord(ControllerEpoch(5), 2, LeaderEpoch(1), (2,))
    former = ShutDown(1, type(generation)(generation - 1))
    assert stepped.ask(former) == ShutdownOutcome(ErrorCode.STALE_BROKER_EPOCH)


def test_what_waits_when_the_term_ends_is_answered() -> None:
    stepped = cluster(1)
    machine = stepped.machine
    request = CreateTopics((NewTopic("new"),), validate_only=False)
    (read,) = machine.step(Requested(1, request), 0)
    machine.step(Requested(2, request), 0)
    effects = machine.step(Ended("the session is over", is_fenced=True), 0)
    failed = {each.id: each.outcome for each in of_kind(effects, Answer)}
    assert {number: type(outcome) for number, outcome in failed.items()} == {
        1: RequestFailed,
        2: RequestFailed,
    }
    assert resigned(effects) is not None
    assert isinstance(read, ReadNodes)
    assert machine.step(NodesRead(read.id, (None, None)), 0) == []


def test_requests_that_wait_are_bounded() -> None:
    stepped = SteppedController()
    stepped.machine.step(ELECTED, 0)
    request = DeleteTopics(())
    for number in range(COMMANDS_MAX):
        assert stepped.machine.step(Requested(number, request), 0) == []
    (answer,) = stepped.machine.step(Requested(COMMANDS_MAX, request), 0)
    assert isinstance(answer, Answer)
    assert isinstance(answer.outcome, RequestFailed)
    assert answer.outcome.error_code == ErrorCode.REQUEST_TIMED_OUT


def test_an_answer_to_what_was_never_asked_for_is_a_bug() -> None:
    stepped = cluster(1)
    with pytest.raises(ValueError, match="never asked for"):
        stepped.machine.step(NodesRead(999, ()), 0)


def test_the_same_inputs_give_the_same_effects() -> None:
    def run() -> list[Effect]:
        stepped = cluster(1, 2, 3)
        stepped.ask(CreateTopics((NewTopic("new", 5, 2),), validate_only=False))
        stepped.tree.remove(paths.broker_id_path(1))
        stepped.settle()
        stepped.wait(10_000)
        return stepped.effects

    assert run() == run()


def test_of_a_dead_broker_the_others_hear_in_one_request() -> None:
    stepped = cluster(3, 1)
    answer_all(stepped, stepped.effects)

    def answer(effect: Effect) -> Input | None:
        return Answered(effect.broker_id, effect.generation, 0, {}) if isinstance(effect, Send) else None

    stepped.before = answer
    stepped.register(2)
    stepped.create("apart", {0: (1, 3)})
    apart = PartitionKey("apart", 0)
    stepped.settle()
    # Broker 3 holds it, and no ISR names it any more.
    shrunk = replace(stepped.state(apart), isr=(1,))
    stepped.tree.put(paths.partition_state_path(apart), shrunk.encode())
    stepped.settle()
    stepped.wait(ControllerOptions().isr_coalesce_ms)
    stepped.tree.remove(paths.broker_id_path(3))
    effects = stepped.settle()
    for survivor, kinds in ((1, [LeadershipBatch, MetadataBatch]), (2, [MetadataBatch])):
        batches = [each.batch for each in sent(effects, survivor)]
        assert [type(each) for each in batches] == kinds
        assert isinstance(batches[-1], MetadataBatch)
        assert set(batches[-1].keys) == {KEY, apart}


def test_nobody_counts_as_dead_because_the_list_of_brokers_is_missing() -> None:
    stepped = cluster(1, 2)
    ids = stepped.tree.nodes.pop(paths.BROKER_IDS)
    effects = stepped.settle(PathsChanged([paths.BROKER_IDS]))
    assert traced(effects) == ["the controller reads everything again: /brokers/ids does not exist"]
    assert sorted(stepped.machine.model.brokers) == [1, 2]
    stepped.tree.nodes[paths.BROKER_IDS] = ids
    stepped.wait(10_000)
    assert sorted(stepped.machine.model.brokers) == [1, 2]
    assert stepped.state(KEY).leader == 1


def test_a_partition_that_changes_in_every_round_is_written_alone() -> None:
    stepped = cluster(1, 2, 3)
    stepped.create("other", {0: (1, 2)})
    stepped.settle()
    path = paths.partition_state_path(KEY)
    writes: list[int] = []

    def interfere(effect: Effect) -> None:
        if isinstance(effect, Write) and any(each.path == path for each in effect.operations):
            writes.append(len(effect.operations))
            now = stepped.state(KEY)
            stepped.tree.put(path, now.encode())

    stepped.before = interfere
    stepped.tree.remove(paths.broker_id_path(1))
    stepped.settle()
    # Five rounds with the other one, or alone once that is written; then one by one; the fence counts.
    assert writes == [3, 2, 2, 2, 2, 2] or writes[-1] == 2
    assert stepped.state(PartitionKey("other", 0)).leader == 2
    stepped.before = lambda _effect: None
    stepped.wait(10_000)
    assert stepped.state(KEY).leader == 2


def test_a_topic_whose_state_the_quorum_does_not_take_is_left_alone() -> None:
    stepped = cluster(1, 2)
    stepped.create("other", {0: (1, 2)})
    stepped.settle()
    path = paths.partition_state_path(KEY)

    def refuse(effect: Effect) -> Input | None:
        paths_written = [each.path for each in effect.operations] if isinstance(effect, Write) else []
        if path not in paths_written:
            return None
        assert isinstance(effect, Write)
        index = paths_written.index(path)
        return MultiDone(effect.id, Rejected(index, Why.OTHER, "no access", ErrorCode.UNKNOWN_SERVER_ERROR))

    stepped.before = refuse
    stepped.tree.remove(paths.broker_id_path(1))
    effects = stepped.settle()
    assert "topic orders is left alone: partition 0: no access" in traced(effects)
    assert stepped.machine.model.left_alone == {KEY.topic: "partition 0: no access"}
    assert stepped.state(PartitionKey("other", 0)).leader == 2


def test_an_unclean_election_asks_for_the_topics_setting() -> None:
    stepped = cluster(1, 2)
    now = stepped.state(KEY)
    alone = PartitionStateRecord(now.controller_epoch, 1, now.leader_epoch, (1,))
    stepped.tree.put(paths.partition_state_path(KEY), alone.encode())
    stepped.wait(100)
    stepped.wait(100)
    stepped.tree.remove(paths.broker_id_path(1))
    stepped.settle()
    assert stepped.state(KEY).leader == NO_LEADER
    value = TopicConfigRecord({"unclean.leader.election.enable": "true"}).encode()
    stepped.tree.put(paths.config_topic_path(KEY.topic), value)
    effects = stepped.settle()
    assert (stepped.state(KEY).leader, stepped.counters.unclean_elections) == (2, 1)
    assert "unclean election of orders-0: broker 2 leads, records may be lost" in traced(effects)


def test_a_request_that_nobody_waits_for_any_more_is_not_carried_out() -> None:
    stepped = cluster(1)
    request = CreateTopics((NewTopic("new"),), validate_only=False)
    held = [*stepped.machine.step(Requested(1, request), 0)]
    stepped.machine.step(Requested(2, CreateTopics((NewTopic("late"),), validate_only=False)), 0)
    stepped.machine.step(Withdrawn(2), 0)
    assert not stepped.machine._passes.requests
    (read,) = held
    assert isinstance(read, ReadNodes)
    stepped.settle(NodesRead(read.id, (None, None)))
    assert stepped.tree.children(paths.BROKER_TOPICS) == ("new", KEY.topic)


def test_a_term_that_is_to_end_ends_with_its_pass() -> None:
    stepped = cluster(1, 2)
    stepped.tree.remove(paths.broker_id_path(1))
    stepped.tree.changed.clear()
    (reading,) = stepped.machine.step(PathsChanged([paths.BROKER_IDS]), 0)
    assert stepped.machine.step(Ended("the broker stops", is_fenced=False), 0) == []
    assert isinstance(reading, ReadChildren)
    effects = stepped.settle(ChildrenRead(reading.id, ("2",)))
    assert resigned(effects) == Resign("the broker stops")
    assert stepped.state(KEY).leader == 2


def test_a_node_that_the_work_cannot_go_on_without_ends_the_term_as_broken() -> None:
    stepped = cluster(1)

    def refuse(effect: Effect) -> Input | None:
        if isinstance(effect, ReadNodes) and effect.paths == (paths.REASSIGN_PARTITIONS,):
            return NodesRead(effect.id, (Unreadable("no access"),))
        return None

    stepped.before = refuse
    assert resigned(stepped.settle(PathsChanged([paths.REASSIGN_PARTITIONS]))) == Resign(
        "no access", is_broken=True
    )


def test_the_balance_is_checked_when_its_time_has_come() -> None:
    stepped = cluster(1, 2, leader_imbalance_check_interval_ms=5_000)
    now = stepped.state(KEY)
    led = PartitionStateRecord(now.controller_epoch, 2, LeaderEpoch(now.leader_epoch + 1), (1, 2))
    stepped.tree.put(paths.partition_state_path(KEY), led.encode())
    stepped.wait(100)
    stepped.wait(1_000)
    assert stepped.state(KEY).leader == 2
    stepped.wait(5_000)
    assert (stepped.state(KEY).leader, stepped.counters.leaders_rebalanced) == (1, 1)
    assert stepped.machine.wake_ms == stepped.now_ms + 5_000


def test_a_topic_of_the_same_name_begins_after_the_former_one_was_stopped() -> None:
    stepped = cluster(1, 2)
    answer_all(stepped, stepped.effects)
    topic_path = paths.topic_path(KEY.topic)
    for path in [each for each in stepped.tree.nodes if each.startswith(topic_path)]:
        del stepped.tree.nodes[path]
    stepped.tree.put(topic_path, TopicRecord(uuid.UUID(int=99), {0: (1, 2)}).encode())
    before = len(stepped.effects)
    answer_all(stepped, stepped.settle())
    batches = [each.batch for each in sent(stepped.effects[before:], 1)]
    kinds = [type(each) for each in batches]
    assert kinds.index(StopBatch) < kinds.index(LeadershipBatch)
    assert StopBatch({KEY: True}) in batches
    assert stepped.state(KEY).leader_epoch == 0
