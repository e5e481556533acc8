"""Reassignments: what a topic's record says of them, and which decisions they cause."""

from __future__ import annotations

import uuid

import pytest

from controller.core.elections import Decisions, ElectionKind, Situation, decide
from controller.core.model import ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.reassignment import Move, move_of, wanted_replicas, with_targets, without_moves
from controller.core.requests import NewPartitions
from controller.core.topics import Refused, Spread, check_move, plan_partitions
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord

T0 = PartitionKey("t", 0)
ID = uuid.UUID(int=1)
PLAIN = TopicRecord(ID, {0: (1, 2)})


def model_of(record: TopicRecord, leader: int, isr: tuple[int, ...], live: tuple[int, ...]) -> ClusterModel:
    model = ClusterModel()
    model.topics["t"] = KnownTopic(record, 0)
    state = PartitionStateRecord(ControllerEpoch(6), leader, LeaderEpoch(4), isr)
    model.states[T0] = KnownState(state, PartitionVersion(9), 50)
    for each in live:
        model.brokers[each] = LiveBroker(BrokerGeneration(each), BrokerRecord(None, -1, (), {}, 0))
    return model


def decide_for(model: ClusterModel, **changes: object) -> Decisions:
    situation = Situation(ControllerEpoch(7), tuple(model.brokers), **changes)  # type: ignore[arg-type]
    return decide(model, situation)


def wished(decisions: Decisions) -> tuple[int, tuple[int, ...], int]:
    state, _ = decisions.updates[T0]
    return state.leader, state.isr, state.leader_epoch


# -- the record ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("targets", "replicas", "adding", "removing"),
    [
        ([(1, 3)], (1, 3, 2), (3,), (2,)),
        ([(3, 4)], (3, 4, 1, 2), (3, 4), (1, 2)),
        ([(1,)], (1, 2), (), (2,)),
        ([(2, 1, 3)], (2, 1, 3), (3,), ()),
        ([(2, 1)], (2, 1), (), ()),
        # Another target meanwhile: what was to be added stays known, and goes.
        ([(1, 3), (1, 4)], (1, 4, 2, 3), (4, 3), (2, 3)),
        # Cancelled: the same as a target that is the origin.
        ([(3, 4), (1, 2)], (1, 2, 3, 4), (3, 4), (3, 4)),
    ],
)
def test_the_record_names_who_comes_and_who_goes(
    targets: list[tuple[int, ...]],
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    removing: tuple[int, ...],
) -> None:
    record = PLAIN
    for target in targets:
        record = with_targets(record, {0: target})
    assert record.partitions[0] == replicas
    assert record.adding_replicas.get(0, ()) == adding
    assert record.removing_replicas.get(0, ()) == removing
    move = move_of(record, 0)
    if adding or removing:
        assert move is not None
        assert (sorted(move.origin), move.target) == ([1, 2], targets[-1])
    else:
        assert move is None
    over = without_moves(record, [0])
    assert (over.partitions[0], over.adding_replicas, over.removing_replicas) == (targets[-1], {}, {})


def test_a_partition_beside_it_keeps_its_reassignment() -> None:
    record = with_targets(TopicRecord(ID, {0: (1,), 1: (1,)}), {0: (2,), 1: (3,)})
    over = without_moves(record, [0])
    assert over.partitions == {0: (2,), 1: (3, 1)}
    assert move_of(over, 1) == Move((3, 1), (1,), (3,))


@pytest.mark.parametrize(
    ("move", "in_sync", "announced", "wanted"),
    [
        (Move((3, 4, 1, 2), (1, 2), (3, 4)), (1, 2, 3), None, (3, 4, 1, 2)),
        (Move((3, 4, 1, 2), (1, 2), (3, 4)), (1, 3, 4), None, (3, 4)),
        # Once the target was announced, there is no way back.
        (Move((3, 4, 1, 2), (1, 2), (3, 4)), (3,), (3, 4), (3, 4)),
        # Nothing is added, but what is taken away might be the better copy.
        (Move((1, 2), (1, 2), (1,)), (2,), None, (1, 2)),
        # A cancelled one waits for nothing but a leader.
        (Move((1, 2, 3), (1, 2), (1, 2)), (1, 3), None, (1, 2)),
        (Move((1, 2, 3), (1, 2), (1, 2)), (3,), None, (1, 2, 3)),
    ],
)
def test_the_target_alone_holds_a_partition_once_it_is_in_sync(
    move: Move, in_sync: tuple[int, ...], announced: tuple[int, ...] | None, wanted: tuple[int, ...]
) -> None:
    assert wanted_replicas(move, in_sync, announced) == wanted


# -- decisions -----------------------------------------------------------------------------------------------


def test_each_step_raises_the_leader_epoch_by_one_and_then_rests() -> None:
    model = model_of(with_targets(PLAIN, {0: (3, 4)}), 1, (1, 2), (1, 2, 3, 4))
    first = decide_for(model)
    assert wished(first) == (1, (1, 2), 5)
    assert first.announced == {T0: (3, 4, 1, 2)}
    model.announced.update(first.announced)
    assert not decide_for(model)
    known = model.states[T0]
    model.states[T0] = known._replace(
        state=PartitionStateRecord(ControllerEpoch(7), 1, LeaderEpoch(5), (1, 2, 3, 4))
    )
    second = decide_for(model)
    assert wished(second) == (3, (3, 4), 6)
    assert second.announced == {T0: (3, 4)}


def test_a_replica_that_goes_is_taken_out_again_if_it_comes_back() -> None:
    model = model_of(with_targets(PLAIN, {0: (1, 3)}), 1, (1, 3, 2), (1, 2, 3))
    model.announced[T0] = (1, 3)
    assert wished(decide_for(model)) == (1, (1, 3), 5)


def test_a_new_controller_announces_every_reassignment_once_more() -> None:
    model = model_of(with_targets(PLAIN, {0: (1, 3)}), 1, (1, 2), (1, 2, 3))
    assert wished(decide_for(model)) == (1, (1, 2), 5)


def test_a_replica_that_is_to_come_is_no_lack() -> None:
    model = model_of(with_targets(PLAIN, {0: (1, 3)}), 1, (1, 2), (1, 2, 3))
    assert model.under_replicated() == []
    assert model_of(with_targets(PLAIN, {0: (1, 3)}), 1, (1,), (1, 2, 3)).under_replicated() == [T0]


def test_a_broker_that_shuts_down_is_replaced_where_another_member_lives() -> None:
    model = model_of(TopicRecord(ID, {0: (1, 2, 3)}), 1, (1, 2), (1, 2, 3))
    assert wished(decide_for(model, leaving=(1,))) == (2, (2,), 5)
    assert wished(decide_for(model, leaving=(2,))) == (1, (1,), 5)
    assert not decide_for(model, leaving=(1, 2))
    del model.states[T0]
    first = decide_for(model, leaving=(1,)).creations[T0]
    assert (first.leader, first.isr) == (2, (2, 3))


def test_preferred_leaders_are_elected_only_where_they_are_in_sync() -> None:
    model = model_of(TopicRecord(ID, {0: (1, 2, 3)}), 2, (2, 1), (1, 2, 3))
    assert wished(decide_for(model, kind=ElectionKind.PREFERRED)) == (1, (2, 1), 5)
    assert not decide_for(model)
    behind = model_of(TopicRecord(ID, {0: (1, 2, 3)}), 2, (2, 3), (1, 2, 3))
    assert not decide_for(behind, kind=ElectionKind.PREFERRED)


def test_an_unclean_election_on_request_needs_no_setting_and_is_marked() -> None:
    model = model_of(TopicRecord(ID, {0: (1, 2)}), -1, (1,), (2,))
    assert not decide_for(model)
    decisions = decide_for(model, kind=ElectionKind.UNCLEAN)
    assert wished(decisions) == (2, (2,), 5)
    assert decisions.unclean == [T0]
    assert decisions.updates[T0][0].leader_recovery_state == 1


# -- refusals ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "target", "code"),
    [
        (PartitionKey("t", 1), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (PartitionKey("none", 0), (1,), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (T0, None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS),
        (T0, (), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (-1,), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (T0, (1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_what_cannot_be_is_refused(
    key: PartitionKey, target: tuple[int, ...] | None, code: ErrorCode
) -> None:
    found = check_move(model_of(PLAIN, 1, (1, 2), (1, 2, 3)), key, target)
    assert isinstance(found, Refused)
    assert found.error_code is code


def test_a_dead_broker_that_has_the_partition_may_stay() -> None:
    assert check_move(model_of(PLAIN, 1, (1,), (1, 3)), T0, (2, 3)) == (2, 3)


def test_a_topic_that_is_reassigned_gets_no_partitions() -> None:
    model = model_of(with_targets(PLAIN, {0: (1, 3)}), 1, (1, 2), (1, 2, 3))
    found = plan_partitions(model, NewPartitions("t", 3), Spread(0, 0))
    assert isinstance(found, Refused)
    assert found.error_code is ErrorCode.REASSIGNMENT_IN_PROGRESS
