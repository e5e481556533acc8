"""Decisions about one partition: high watermark, who is in sync, and the outcome of a change of the ISR."""

from __future__ import annotations

import pytest

from broker.core.partition import ISR_PAUSE_MS, FollowerState, LeaderState
from broker.core.read_replica import NO_PREFERENCE, preferred_read_replica
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.records import PartitionStateRecord

LAG_MAX_MS = 1000


def record(isr: tuple[int, ...], leader: int = 1, leader_epoch: int = 5) -> PartitionStateRecord:
    return PartitionStateRecord(ControllerEpoch(3), leader, LeaderEpoch(leader_epoch), isr)


def leading(
    isr: tuple[int, ...] = (1, 2, 3), *, log_end_offset: int = 10, high_watermark: int = 4
) -> LeaderState:
    return LeaderState.elected(
        1,
        record(isr),
        PartitionVersion(7),
        (1, 2, 3),
        log_end_offset=log_end_offset,
        high_watermark=high_watermark,
        now_ms=0,
    )


def fetched(
    leader: LeaderState,
    replica: int,
    offset: int,
    *,
    log_end_offset: int = 10,
    now_ms: int = 0,
    generation: int = 1,
) -> bool:
    return leader.follower_fetched(
        replica, BrokerGeneration(generation), offset, 0, log_end_offset=log_end_offset, now_ms=now_ms
    )


def test_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    leader = leading()
    assert not leader.advance_high_watermark(10)
    fetched(leader, 2, 8)
    assert not leader.advance_high_watermark(10)  # follower 3 has not fetched in this epoch
    fetched(leader, 3, 6)
    assert leader.advance_high_watermark(10)
    assert leader.high_watermark == 6
    fetched(leader, 3, 5)
    assert not leader.advance_high_watermark(10)
    assert leader.high_watermark == 6


def test_leader_alone_in_its_isr_commits_at_once() -> None:
    leader = leading((1,), log_end_offset=10, high_watermark=4)
    assert leader.high_watermark == 10
    assert leader.advance_high_watermark(12)


def test_high_watermark_is_cut_to_the_log() -> None:
    assert leading(log_end_offset=3, high_watermark=9).high_watermark == 3


def test_follower_joins_at_the_high_watermark_and_epoch_start() -> None:
    leader = leading((1, 2), log_end_offset=10)
    fetched(leader, 2, 12, log_end_offset=12)
    leader.advance_high_watermark(12)
    assert leader.high_watermark == 12
    fetched(leader, 3, 11, log_end_offset=12)
    assert leader.maybe_expand(3, 0) is None
    fetched(leader, 3, 12, log_end_offset=12)
    change = leader.maybe_expand(3, 0)
    assert change is not None
    assert change.state == record((1, 2, 3))
    assert change.joining == {3: 1}
    assert change.partition_version == 7


def test_follower_below_the_epoch_start_does_not_join() -> None:
    leader = leading((1, 2), log_end_offset=10, high_watermark=4)
    fetched(leader, 3, 9)
    assert leader.maybe_expand(3, 0) is None
    fetched(leader, 3, 10)
    assert leader.maybe_expand(3, 0) is not None


def test_follower_without_a_generation_does_not_join() -> None:
    leader = leading((1,))
    fetched(leader, 3, 10, generation=-1)
    assert leader.maybe_expand(3, 0) is None


def test_joining_follower_gates_the_high_watermark_before_the_write() -> None:
    leader = leading((1,), log_end_offset=10)
    fetched(leader, 3, 10)
    assert leader.maybe_expand(3, 0) is not None
    assert leader.maximal_isr == (1, 3)
    assert not leader.advance_high_watermark(20)
    leader.isr_refused(0)
    assert leader.advance_high_watermark(20)


def test_leaving_follower_gates_the_high_watermark_until_written() -> None:
    leader = leading((1, 2))
    change = leader.maybe_shrink(10, LAG_MAX_MS + 1, LAG_MAX_MS)
    assert change is not None
    assert change.state.isr == (1,)
    assert change.joining == {}
    assert not leader.advance_high_watermark(10)
    leader.isr_written(PartitionVersion(8))
    assert leader.advance_high_watermark(10)
    assert (leader.isr, leader.partition_version) == ((1,), 8)


def test_one_change_at_a_time() -> None:
    leader = leading((1, 2))
    assert leader.maybe_shrink(10, LAG_MAX_MS + 1, LAG_MAX_MS) is not None
    fetched(leader, 3, 10)
    assert leader.maybe_expand(3, LAG_MAX_MS + 1) is None


def test_refused_change_pauses_proposals() -> None:
    leader = leading((1,))
    fetched(leader, 3, 10)
    assert leader.maybe_expand(3, 50) is not None
    leader.isr_refused(50)
    assert leader.maybe_expand(3, 50 + ISR_PAUSE_MS - 1) is None
    assert leader.maybe_expand(3, 50 + ISR_PAUSE_MS) is not None


def test_follower_that_keeps_up_with_a_growing_log_stays() -> None:
    leader = leading((1, 2))
    for step in range(1, 20):
        # It always has what the log held at its fetch before.
        fetched(leader, 2, 10 * step, log_end_offset=10 * (step + 1), now_ms=500 * step)
        assert leader.maybe_shrink(10 * (step + 1), 500 * step, LAG_MAX_MS) is None


def test_follower_that_fetches_but_lags_leaves() -> None:
    leader = leading((1, 2))
    for step in range(1, 4):
        fetched(leader, 2, step, log_end_offset=100 * step, now_ms=500 * step)
    change = leader.maybe_shrink(300, 1500, LAG_MAX_MS)
    assert change is not None
    assert change.state.isr == (1,)


def test_silent_follower_with_the_whole_log_stays() -> None:
    leader = leading((1, 2))
    fetched(leader, 2, 10)
    assert leader.maybe_shrink(10, 100 * LAG_MAX_MS, LAG_MAX_MS) is None


def test_fetch_of_a_former_life_counts_for_nothing() -> None:
    leader = leading((1, 2))
    assert fetched(leader, 2, 3, generation=9)
    assert not fetched(leader, 2, 10, generation=8)
    assert leader.followers[2].log_end_offset == 3
    assert not fetched(leader, 4, 10)


def test_conflict_with_another_leader_ends_the_leadership() -> None:
    leader = leading((1, 2))
    leader.maybe_shrink(10, 5000, LAG_MAX_MS)
    assert not leader.isr_read_again(record((2,), leader=2, leader_epoch=6), PartitionVersion(8), 5000)


def test_conflict_within_the_epoch_adopts_what_was_read() -> None:
    leader = leading((1, 2))
    leader.maybe_shrink(10, 5000, LAG_MAX_MS)
    assert leader.isr_read_again(record((1,)), PartitionVersion(8), 5000)
    assert (leader.isr, leader.partition_version, leader.pending) == ((1,), 8, None)


def test_newer_epoch_of_the_same_leader_keeps_the_change_pending() -> None:
    leader = leading((1, 2))
    fetched(leader, 3, 10)
    assert leader.maybe_expand(3, 0) is not None
    assert leader.isr_read_again(record((1, 3), leader_epoch=6), PartitionVersion(9), 0)
    assert leader.maximal_isr == (1, 2, 3)
    assert leader.partition_version == 7
    assert leader.maybe_shrink(10, 9000, LAG_MAX_MS) is None


@pytest.mark.parametrize(("minimum", "enough"), [(1, True), (2, True), (3, False)])
def test_minimum_of_replicas_in_sync(minimum: int, enough: bool) -> None:
    assert leading((1, 2)).has_enough_in_sync(minimum) is enough


def test_joining_follower_does_not_count_as_in_sync_yet() -> None:
    leader = leading((1,))
    fetched(leader, 3, 10)
    leader.maybe_expand(3, 0)
    assert not leader.has_enough_in_sync(2)


def test_new_leader_knows_what_is_committed_at_its_epoch_start() -> None:
    leader = leading((1, 2), log_end_offset=10, high_watermark=4)
    assert not leader.knows_what_is_committed()
    fetched(leader, 2, 10)
    leader.advance_high_watermark(12)
    assert leader.knows_what_is_committed()


def test_follower_takes_the_leaders_high_watermark_as_far_as_its_log() -> None:
    follower = FollowerState(2, LeaderEpoch(5), 3)
    assert follower.leader_said(9, 6)
    assert follower.high_watermark == 6
    assert not follower.leader_said(4, 6)
    assert follower.high_watermark == 6
    follower.truncated(5)
    assert follower.high_watermark == 5


def test_consumer_is_sent_to_its_own_rack() -> None:
    leader = leading((1, 2, 3))
    fetched(leader, 2, 8)
    fetched(leader, 3, 9)
    racks = {1: "a", 2: "b", 3: "b"}
    assert preferred_read_replica(leader, racks, "b", 5, 10) == 3
    assert preferred_read_replica(leader, racks, "b", 10, 10) == NO_PREFERENCE
    assert preferred_read_replica(leader, racks, "a", 5, 10) == NO_PREFERENCE
    assert preferred_read_replica(leader, racks, "c", 5, 10) == NO_PREFERENCE
    assert preferred_read_replica(leader, racks, "", 5, 10) == NO_PREFERENCE
    leader.isr = (1, 2)
    assert preferred_read_replica(leader, racks, "b", 5, 10) == 2
