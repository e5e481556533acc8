"""Decisions about partition states: lists and dicts in, records out."""

from __future__ import annotations

from controller.core.elections import Decisions, Situation, decide
from controller.core.model import ClusterModel, KnownState, KnownTopic
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionStateRecord, TopicRecord

T0 = PartitionKey("t", 0)
EPOCH = ControllerEpoch(7)


def cluster(*states: tuple[tuple[int, ...], int, tuple[int, ...]], leader_epoch: int = 4) -> ClusterModel:
    """A topic t whose partitions have (replicas, leader, isr), each with version 9, by transaction 50."""
    model = ClusterModel()
    replicas = {number: row[0] for number, row in enumerate(states)}
    model.topics["t"] = KnownTopic(TopicRecord(None, replicas), 0)
    for number, (_, leader, isr) in enumerate(states):
        record = PartitionStateRecord(ControllerEpoch(6), leader, LeaderEpoch(leader_epoch), isr)
        model.states[PartitionKey("t", number)] = KnownState(record, PartitionVersion(9), 50)
    return model


def situation(
    *live: int,
    outcasts: tuple[int, ...] = (),
    unclean: tuple[str, ...] = (),
    generations: dict[int, int] | None = None,
) -> Situation:
    given = {each: BrokerGeneration(number) for each, number in (generations or {}).items()}
    return Situation(EPOCH, live, outcasts, unclean, given)


def decided(decisions: Decisions, key: PartitionKey = T0) -> tuple[int, tuple[int, ...], int, int]:
    """Leader, ISR, leader epoch and recovery state of an update, which stands on version 9."""
    state, version = decisions.updates[key]
    assert version == 9
    assert state.controller_epoch == EPOCH
    return state.leader, state.isr, state.leader_epoch, state.leader_recovery_state


def test_a_partition_with_all_replicas_live_stays_as_it_is() -> None:
    assert not decide(cluster(((1, 2, 3), 1, (1, 2, 3))), situation(1, 2, 3))


def test_the_first_live_isr_member_in_assignment_order_leads() -> None:
    decisions = decide(cluster(((1, 3, 2), 1, (1, 2, 3))), situation(2, 3))
    assert decided(decisions) == (3, (2, 3), 5, RECOVERED)
    assert decisions.unclean == []


def test_a_live_replica_outside_the_isr_is_not_elected() -> None:
    decisions = decide(cluster(((1, 2, 3), 1, (1, 3))), situation(2, 3))
    assert decided(decisions) == (3, (3,), 5, RECOVERED)


def test_a_dead_follower_leaves_the_isr_at_once_and_the_leader_stays() -> None:
    assert decided(decide(cluster(((1, 2, 3), 2, (1, 2, 3))), situation(2, 3))) == (2, (2, 3), 5, RECOVERED)


def test_without_a_live_member_the_partition_is_offline_and_keeps_its_isr() -> None:
    decisions = decide(cluster(((1, 2, 3), 1, (1, 2))), situation(3))
    assert decided(decisions) == (NO_LEADER, (1, 2), 5, RECOVERED)
    assert list(decisions.undecided_topics) == ["t"]


def test_an_offline_partition_is_decided_once() -> None:
    decisions = decide(cluster(((1, 2), NO_LEADER, (1, 2))), situation(3))
    assert not decisions
    # No replica lives, so no setting could help.
    assert not decisions.undecided_topics


def test_an_offline_partition_gets_a_leader_when_a_member_returns() -> None:
    assert decided(decide(cluster(((1, 2), NO_LEADER, (2,))), situation(1, 2))) == (2, (2,), 5, RECOVERED)


def test_an_unclean_election_takes_the_first_live_replica_and_marks_it() -> None:
    decisions = decide(cluster(((1, 3, 2), 1, (1,))), situation(2, 3, unclean=("t",)))
    assert decided(decisions) == (3, (3,), 5, RECOVERING)
    assert decisions.unclean == [T0]


def test_where_a_member_lives_nothing_unclean_happens() -> None:
    decisions = decide(cluster(((1, 2, 3), 1, (1, 3))), situation(2, 3, unclean=("t",)))
    assert decided(decisions) == (3, (3,), 5, RECOVERED)
    assert decisions.unclean == []


def test_an_outcast_leaves_every_isr_and_leads_nothing() -> None:
    decisions = decide(cluster(((1, 2), 1, (1, 2)), ((2, 1), 2, (1, 2))), situation(2, outcasts=(1,)))
    assert decided(decisions) == (2, (2,), 5, RECOVERED)
    assert decided(decisions, PartitionKey("t", 1)) == (2, (2,), 5, RECOVERED)


def test_an_outcast_that_was_the_only_member_leaves_an_empty_isr() -> None:
    decisions = decide(cluster(((1, 2), 1, (1,))), situation(2, outcasts=(1,)))
    assert decided(decisions) == (NO_LEADER, (), 5, RECOVERED)


def test_with_an_empty_isr_nobody_is_elected_cleanly() -> None:
    model = cluster(((1, 2), NO_LEADER, ()))
    assert not decide(model, situation(1, 2))
    assert decided(decide(model, situation(1, 2, unclean=("t",)))) == (1, (1,), 5, RECOVERING)


def test_a_leader_that_registered_after_its_state_was_written_gets_a_new_epoch() -> None:
    model = cluster(((1, 2), 1, (1, 2)))
    assert decided(decide(model, situation(1, 2, generations={1: 51, 2: 40}))) == (1, (1, 2), 5, RECOVERED)
    assert not decide(model, situation(1, 2, generations={1: 49, 2: 60}))


def test_a_state_of_this_controllers_own_is_not_taken_for_an_unseen_bounce() -> None:
    model = cluster(((1, 2), 1, (1, 2)))
    model.states[T0] = model.states[T0]._replace(mzxid=None)
    assert not decide(model, situation(1, 2, generations={1: 51}))


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    model = cluster(((1, 2, 3), 1, (1, 2, 3)))
    del model.states[T0]
    decisions = decide(model, situation(2, 3))
    assert decisions.creations == {T0: PartitionStateRecord(EPOCH, 2, LeaderEpoch(0), (2, 3))}


def test_a_new_partition_waits_for_a_live_replica() -> None:
    model = cluster(((1, 2), 1, (1, 2)))
    del model.states[T0]
    assert not decide(model, situation(3))


def test_topics_left_alone_or_being_deleted_are_not_decided() -> None:
    model = cluster(((1, 2), 1, (1, 2)))
    model.left_alone["t"] = "malformed"
    assert not decide(model, situation(2))
    model.left_alone.clear()
    model.deleting["t"] = None
    assert not decide(model, situation(2))


def test_only_the_named_partitions_are_decided() -> None:
    model = cluster(((1, 2), 1, (1, 2)), ((1, 2), 1, (1, 2)))
    decisions = decide(model, situation(2), [PartitionKey("t", 1), PartitionKey("gone", 0)])
    assert list(decisions.updates) == [PartitionKey("t", 1)]


def test_a_clean_decision_ends_the_recovery_of_an_unclean_leader() -> None:
    model = cluster(((1, 2), 2, (2,)))
    known = model.states[T0]
    recovering = PartitionStateRecord(EPOCH, 2, LeaderEpoch(4), (1, 2), RECOVERING)
    model.states[T0] = known._replace(state=recovering)
    assert decided(decide(model, situation(2))) == (2, (2,), 5, RECOVERED)
    # An offline partition may still have lost records; nobody has led it cleanly since.
    assert decided(decide(model, situation(3))) == (NO_LEADER, (1, 2), 5, RECOVERING)
