"""Decisions about partition states: lists and dicts in, records out."""

from __future__ import annotations

from dataclasses import replace

from controller.core.elections import Decisions, ElectionKind, Situation, decide
from controller.core.model import ClusterModel, Doubt, KnownState, KnownTopic
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERED,
    RECOVERING,
    LogEnd,
    PartitionStateRecord,
    TopicRecord,
)

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
    unclean: tuple[str, ...] = (),
    generations: dict[int, int] | None = None,
) -> Situation:
    given = {each: BrokerGeneration(number) for each, number in (generations or {}).items()}
    return Situation(EPOCH, live, unclean_topics=unclean, generations=given)


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
    model = cluster(((1, 2), 1, (1, 2)), ((2, 1), 2, (1, 2)))
    model.doubts = {1: {"t": None}, 2: {"other": None}}
    decisions = decide(model, situation(1, 2))
    assert decided(decisions) == (2, (2,), 5, RECOVERED)
    assert decided(decisions, PartitionKey("t", 1)) == (2, (2,), 5, RECOVERED)


def test_an_outcast_that_was_the_only_member_leaves_an_empty_isr() -> None:
    model = cluster(((1, 2), 1, (1,)))
    model.doubts = {1: {"t": None}}
    decisions = decide(model, situation(1, 2))
    assert decided(decisions) == (NO_LEADER, (), 5, RECOVERED)


def test_with_an_empty_isr_nobody_is_elected_cleanly() -> None:
    model = cluster(((1, 2), NO_LEADER, ()))
    assert not decide(model, situation(1, 2))
    assert decided(decide(model, situation(1, 2, unclean=("t",)))) == (1, (1,), 5, RECOVERING)


# -- shortened logs ------------------------------------------------------------------------------------------


class Shortening:
    """One partition whose brokers come back one after the other, each decision written before the next."""

    def __init__(self, replicas: tuple[int, ...], leader: int, isr: tuple[int, ...]) -> None:
        self.model = cluster((replicas, leader, isr))
        self.live: list[int] = []
        self.unclean = 0

    @property
    def state(self) -> PartitionStateRecord:
        return self.model.states[T0].state

    def decide(self, **given: object) -> tuple[int, tuple[int, ...]]:
        decisions = decide(self.model, replace(situation(*self.live), **given))  # type: ignore[arg-type]
        for state, version in decisions.updates.values():
            self.model.states[T0] = KnownState(state, version, None)
        self.unclean += len(decisions.unclean)
        return self.state.leader, self.state.isr

    def arrive(self, broker: int, *end: int) -> tuple[int, tuple[int, ...]]:
        """A broker registers, with the end of its log if that is shortened; it is judged, then admitted."""
        self.live.append(broker)
        return self.judge(broker, {"t": {0: LogEnd(*end)}} if end else {})

    def judge(self, broker: int, doubt: Doubt) -> tuple[int, tuple[int, ...]]:
        self.model.doubts = {broker: {"t": doubt}}
        self.decide()
        assert self.model.is_judged(broker, "t")
        self.model.doubts = {}
        return self.decide()


def test_a_shortened_log_leaves_its_isr_and_another_member_leads() -> None:
    each = Shortening((1, 2, 3), 1, (1, 2, 3))
    each.live = [2, 3]
    assert each.arrive(1, 4, 10) == (2, (2, 3))
    assert (each.state.leader_recovery_state, each.unclean) == (RECOVERED, 0)
    # Whether broker 2 lives indeed shows when it changes the ISR; until then broker 1 may be needed.
    assert each.state.shortened == {1: (4, 10)}
    each.live = [1]
    assert each.decide() == (NO_LEADER, (2, 3))
    each.arrive(3, 4, 12)
    assert each.arrive(2, 4, 11) == (3, (3,))


def test_a_shortened_log_that_comes_first_waits_for_a_whole_one() -> None:
    each = Shortening((1, 2, 3), 1, (1, 2, 3))
    assert each.arrive(1, 4, 10) == (NO_LEADER, (2, 3))
    assert each.state.shortened == {1: (4, 10)}
    assert each.arrive(2, 4, 11) == (NO_LEADER, (3,))
    assert each.arrive(3) == (3, (3,))
    assert (each.state.leader_recovery_state, each.unclean) == (RECOVERED, 0)


def test_where_all_are_shortened_the_highest_leads_when_all_are_back() -> None:
    for ends in (((4, 10), (4, 12), (4, 11)), ((3, 90), (4, 12), (4, 12)), ((3, 90), (4, 1), (-1, 0))):
        each = Shortening((1, 2, 3), 1, (1, 2, 3))
        assert each.arrive(1, *ends[0]) == (NO_LEADER, (2, 3))
        assert each.arrive(3, *ends[2]) == (NO_LEADER, (2,))
        assert each.decide() == (NO_LEADER, (2,))
        assert each.arrive(2, *ends[1]) == (2, (2,))
        assert (each.state.leader_recovery_state, each.unclean) == (RECOVERING, 1)
        assert each.state.shortened == {}


def test_a_shortened_one_that_goes_again_is_waited_for() -> None:
    each = Shortening((1, 2), 1, (1, 2))
    each.arrive(1, 4, 12)
    each.live.remove(1)
    assert each.arrive(2, 4, 10) == (NO_LEADER, ())
    assert each.state.shortened == {1: (4, 12), 2: (4, 10)}
    # In its next life it does not say so again: its log is as it was.
    assert each.arrive(1) == (1, (1,))
    assert each.unclean == 1


def test_a_shortened_one_that_is_shorter_when_it_comes_again_counts_as_it_is() -> None:
    each = Shortening((1, 2), 1, (1, 2))
    each.arrive(1, 4, 12)
    each.live.remove(1)
    each.arrive(2, 4, 10)
    assert each.arrive(1, 4, 9) == (2, (2,))


def test_a_partition_with_one_replica_is_led_again_and_marked() -> None:
    each = Shortening((1,), 1, (1,))
    assert each.arrive(1, 4, 10) == (1, (1,))
    assert (each.state.leader_recovery_state, each.unclean) == (RECOVERING, 1)


def test_members_that_are_dead_without_anybody_knowing_yet_do_not_hide_the_others() -> None:
    """A power cut of the site: the sessions of brokers 2 and 3 go on for a while when broker 1 is back."""
    each = Shortening((1, 2, 3), 1, (1, 2, 3))
    each.live = [2, 3]
    assert each.arrive(1, 4, 10) == (2, (2, 3))
    each.live.remove(3)
    assert each.decide() == (2, (2, 3))
    each.live.remove(2)
    assert each.decide() == (NO_LEADER, (2, 3))
    assert each.arrive(2, 4, 11) == (NO_LEADER, (3,))
    assert each.arrive(3, 4, 12) == (3, (3,))
    assert (dict(each.state.shortened), each.unclean) == ({}, 1)


def test_a_shortened_log_outside_of_the_isr_changes_nothing() -> None:
    each = Shortening((1, 2, 3), 1, (1, 2))
    each.live = [1, 2]
    assert each.arrive(3, 4, 10) == (1, (1, 2))
    assert each.state.leader_epoch == 4


def test_a_shortened_one_that_comes_with_an_empty_disk_is_not_waited_for() -> None:
    each = Shortening((1, 2), 1, (1, 2))
    each.arrive(1, 4, 12)
    each.live.remove(1)
    each.arrive(2, 4, 10)
    each.live.append(1)
    assert each.judge(1, None) == (2, (2,))


def test_an_unclean_election_takes_the_best_of_the_shortened_ones_that_live() -> None:
    each = Shortening((4, 1, 2, 3), 1, (1, 2, 3))
    each.arrive(4)
    each.arrive(1, 4, 10)
    each.arrive(2, 4, 12)
    assert each.decide() == (NO_LEADER, (3,))
    assert each.decide(kind=ElectionKind.UNCLEAN) == (2, (2,))
    assert (each.state.leader_recovery_state, each.unclean) == (RECOVERING, 1)


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
    model.doubts = {1: {"t": None}}
    assert not decide(model, situation(2))
    assert not model.reopened() and not model.is_judged(1, "t")
    model.left_alone.clear()
    assert model.reopened() and not model.is_judged(1, "t")
    model.deleting["t"] = None
    assert not decide(model, situation(2))
    model.drop_topic("t")
    assert model.reopened() and model.is_judged(1, "t")


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
