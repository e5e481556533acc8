"""Leadership that is handed over: what goes wrong on the way, and who answers to the word to campaign."""

from __future__ import annotations

import pytest

from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import NotLeaderError, TransferBusyError, TransferError
from quorum.raft.core.messages import (
    AppendReply,
    Halt,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerDown,
    PeerUp,
    Role,
    SnapshotChunk,
    Tick,
    TimeoutNow,
    Transfer,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo

OPTIONS = Options()


def ack(sender: int, match_index: int) -> AppendReply:
    return AppendReply(2, sender, 1, False, 0, match_index, 0, 0)


def leader(behind: bool = False) -> Solo:
    """Leads term 2; everybody has its no-op (entry 2), and nobody entry 3 if ``behind``."""
    solo = Solo([1])
    solo.lead()
    solo.sync()
    for peer in (2, 3):
        solo.hear(ack(peer, 2))
    if behind:
        solo.raft.propose(EntryKind.BATCH, b"late", 0)
        solo.drain()
    return solo


def told(messages: list[Message]) -> list[int]:
    return [message.receiver for message in messages if isinstance(message, TimeoutNow)]


# --- a leader whose disk hangs


def test_a_leader_whose_disk_makes_nothing_durable_hands_over() -> None:
    solo = leader()
    assert told(solo.step(Tick(0, OPTIONS.undurable_ms_max - 1))) == []
    assert told(solo.step(Tick(0, OPTIONS.undurable_ms_max))) == [2]


def test_it_goes_on_while_nobody_could_take_over_and_hands_over_once_somebody_can() -> None:
    solo = leader(behind=True)
    solo.step(PeerDown(2))
    solo.step(PeerDown(3))
    assert told(solo.step(Tick(0, OPTIONS.undurable_ms_max))) == []
    assert solo.raft.status().role is Role.LEADER
    solo.step(PeerUp(3))
    solo.hear(ack(3, 3))
    assert told(solo.step(Tick(0, OPTIONS.undurable_ms_max))) == [3]


def test_a_hand_over_that_came_to_nothing_is_begun_again_while_the_disk_hangs() -> None:
    solo = leader(behind=True)
    # Node 2 is in contact, lacks what is on its way, and never takes it.
    solo.step(Tick(0, OPTIONS.undurable_ms_max))
    assert solo.raft.status().transfer_target
    solo.now_ms += OPTIONS.election_timeout_max_ms
    for peer in (2, 3):
        solo.hear(ack(peer, 2))
    solo.step(Tick(0, OPTIONS.undurable_ms_max))
    assert solo.raft.status().transfer_target, "begun anew"
    solo.now_ms += OPTIONS.election_timeout_max_ms
    for peer in (2, 3):
        solo.hear(ack(peer, 2))
    solo.step(Tick(0, 0.0))
    assert not solo.raft.status().transfer_target, "the disk is back"


# --- whom it goes to


def test_a_follower_whose_connection_closed_is_not_chosen() -> None:
    solo = leader(behind=True)
    solo.hear(ack(3, 3))
    solo.step(PeerDown(3))
    with pytest.raises(TransferError, match=r"node 3: .* its connection closed; .*could lead now: 2"):
        solo.step(Transfer(3))
    solo.step(Transfer(None))
    assert solo.raft.status().transfer_target == 2


def test_it_is_chosen_again_once_it_is_heard_on_a_new_one() -> None:
    solo = leader()
    solo.step(PeerDown(3))
    solo.step(PeerUp(3))
    with pytest.raises(TransferError):
        solo.step(Transfer(3))
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2))
    assert told(solo.step(Transfer(3))) == [3]


def test_a_follower_that_is_silent_is_not_chosen() -> None:
    solo = leader()
    for _ in range(7):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 2))
    with pytest.raises(TransferError, match=r"node 3: .*silent for 350 ms; .*could lead now: 2"):
        solo.step(Transfer(3))


def test_another_incarnation_is_not_chosen() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2), "f" * 32)
    with pytest.raises(TransferError, match="node 3"):
        solo.step(Transfer(3))


def test_who_was_never_heard_by_this_leader_is_not_chosen() -> None:
    """It may be dead: a new leader's first heartbeats go out to everybody alike."""
    solo = Solo([1])
    solo.lead()
    solo.sync()
    solo.hear(ack(2, 2))
    with pytest.raises(TransferBusyError, match=r"node 3: it was not heard since term 2 began"):
        solo.step(Transfer(3))
    for _ in range(7):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 2))
    with pytest.raises(TransferError, match=r"node 3: it was not heard since") as caught:
        solo.step(Transfer(3))
    assert type(caught.value) is TransferError, "a retry is of no use once it is silent for so long"
    assert solo.raft.status().transfer_target == 0
    solo.raft.propose(EntryKind.BATCH, b"goes on", 0)
    solo.hear(ack(3, 2))
    solo.step(Transfer(3))


def test_who_lacks_more_than_what_is_on_its_way_is_not_chosen() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    solo.drain()
    solo.sync()
    solo.hear(ack(2, 3))
    solo.step(Transfer(3))  # entry 3 was sent to it
    solo = leader()
    solo.step(PeerDown(3))
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    solo.drain()
    solo.sync()
    solo.hear(ack(2, 3))
    solo.step(PeerUp(3))
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2))
    with pytest.raises(TransferError, match="node 3: it holds the log up to 2, and 3 is committed"):
        solo.step(Transfer(3))
    solo.hear(ack(3, 3))
    solo.step(Transfer(3))


@pytest.mark.parametrize("target", [1, 4])
def test_only_another_voter_is_chosen(target: int) -> None:
    problem = f"node {target}: it is not one of the other voters; name a voter that could lead now: 2, 3"
    with pytest.raises(TransferError, match=problem):
        leader().step(Transfer(target))


def test_a_later_request_names_another_target() -> None:
    solo = leader(behind=True)
    solo.step(Transfer(2))
    solo.step(Transfer(3))
    assert told(solo.hear(ack(2, 3))) == []
    assert told(solo.hear(ack(3, 3))) == [3]
    assert told(solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 3))) == []  # once


# --- what goes wrong


def test_a_target_that_goes_before_it_was_told_frees_the_leader_at_once() -> None:
    solo = leader(behind=True)
    solo.step(Transfer(3))
    with pytest.raises(NotLeaderError):
        solo.raft.propose(EntryKind.BATCH, b"", 0)
    solo.step(PeerDown(2))
    assert solo.raft.status().transfer_target == 3
    solo.step(PeerDown(3))
    assert solo.raft.status().transfer_target == 0
    solo.raft.propose(EntryKind.BATCH, b"", 0)


def test_a_target_that_was_told_is_waited_for() -> None:
    """It may have the word: what would be proposed now could be lost with the term."""
    solo = leader()
    assert told(solo.step(Transfer(3))) == [3]
    solo.step(PeerDown(3))
    assert solo.raft.status().transfer_target == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_target_that_dies_leaves_the_cluster_working(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    target = next(node_id for node_id in world.ids if node_id != old)
    world.step(old, world.processes[old], Transfer(target))
    world.run_for(world.rng.uniform(0, 5))
    world.crash(target)
    world.await_(lambda: world.propose(world.leader() or old), within_ms=2000)
    world.start(target)
    world.await_(world.stable)
    world.check_logs()


@pytest.mark.parametrize("seed", range(4))
def test_a_word_that_is_lost_costs_an_election_timeout_and_no_leader(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    world.filter = lambda message: not isinstance(message, TimeoutNow)
    world.step(old, world.processes[old], Transfer(None))
    assert not world.propose(old)
    world.await_(lambda: world.propose(old), within_ms=OPTIONS.election_timeout_max_ms + 20)
    assert len(world.leaders) == 1


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_that_stops_right_after_its_word_was_taken_is_not_missed(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    target = next(node_id for node_id in world.ids if node_id != old)
    world.propose(old, 5)
    world.step(old, world.processes[old], Transfer(target))
    world.await_(lambda: world.processes[target].raft.status().role is Role.CANDIDATE, within_ms=50)
    world.crash(old)
    world.await_(lambda: world.leader() == target and world.propose(target), within_ms=50)


# --- the word to campaign


def follower() -> Solo:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    return solo


def campaigns(solo: Solo, word: TimeoutNow) -> bool:
    sent = solo.hear(word) + solo.sync()
    return any(isinstance(message, Vote) for message in sent)


def test_only_the_leader_of_this_very_term_may_say_it() -> None:
    assert not campaigns(follower(), TimeoutNow(0, 2, 1))
    assert not campaigns(follower(), TimeoutNow(2, 2, 1))
    assert not campaigns(follower(), TimeoutNow(1, 3, 1))
    assert campaigns(follower(), TimeoutNow(1, 2, 1))


def test_nobody_is_hurried_twice() -> None:
    solo = follower()
    assert campaigns(solo, TimeoutNow(1, 2, 1))
    assert not campaigns(solo, TimeoutNow(1, 2, 1))
    assert solo.raft.status().term == 2


def test_a_node_with_a_full_disk_does_not_campaign() -> None:
    solo = follower()
    solo.step(Halt("no space"))
    assert not campaigns(solo, TimeoutNow(1, 2, 1))


def test_a_node_that_loads_a_snapshot_does_not_campaign() -> None:
    solo = follower()
    solo.hear(SnapshotChunk(1, 2, 1, 1, 9, 1, 0, 1, b"x"))
    assert solo.raft.status().installing
    assert not campaigns(solo, TimeoutNow(1, 2, 1))


def test_who_lost_its_leader_does_not_take_its_late_word() -> None:
    solo = follower()
    solo.step(PeerDown(2))
    assert not campaigns(solo, TimeoutNow(1, 2, 1))


def test_a_hand_over_passes_the_refusal_of_those_who_hear_the_leader_but_not_the_log() -> None:
    solo = Solo([1, 1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    for term, last_index, granted in ((2, 1, False), (3, 2, True)):
        sent = solo.hear(Vote(term, 3, 1, False, True, last_index, 1)) + solo.sync()
        assert [reply.granted for reply in sent if isinstance(reply, VoteReply)] == [granted]


# --- prompt elections


def test_a_candidate_that_meets_a_leader_of_its_term_follows_it() -> None:
    solo = Solo([1])
    solo.campaign()
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    solo.sync()
    assert solo.role() is Role.CANDIDATE
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0))
    status = solo.raft.status()
    assert (status.role, status.term, status.leader_id) == (Role.FOLLOWER, 2, 3)


def test_a_pre_candidate_gives_its_vote_to_one_that_goes_ahead() -> None:
    solo = Solo([1])
    solo.campaign()
    (reply,) = solo.hear(Vote(2, 3, 1, False, False, 1, 1)) + solo.sync()
    assert isinstance(reply, VoteReply)
    assert reply.granted
    assert solo.role() is Role.FOLLOWER


def test_a_closed_connection_to_somebody_else_starts_nothing() -> None:
    solo = follower()
    solo.step(PeerDown(3))
    assert [m for m in solo.tick(OPTIONS.election_timeout_min_ms - 20) if isinstance(m, Vote)] == []


def test_votes_of_a_minority_elect_nobody() -> None:
    solo = Solo([1], nodes=5)
    solo.campaign()
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    solo.hear(VoteReply(1, 2, 1, True, True, 2))  # the same voter again
    assert solo.role() is Role.PRE_CANDIDATE
    solo.hear(VoteReply(1, 3, 1, True, True, 2))
    assert solo.role() is Role.CANDIDATE
    assert solo.hear(VoteReply(2, 4, 1, False, True, 2)) == []
    solo.hear(VoteReply(2, 5, 1, False, True, 2))
    assert solo.role() is Role.CANDIDATE  # its own vote is not durable yet
    solo.sync()
    assert solo.role() is Role.LEADER


@pytest.mark.parametrize("seed", range(4))
def test_a_leader_cut_off_one_way_steps_down_and_another_one_serves(seed: int) -> None:
    """It sends but hears nobody: its heartbeats must not keep the others from electing."""
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    world.cut = {(node_id, old) for node_id in world.ids if node_id != old}
    world.await_(
        lambda: (world.leader() or old) != old and world.propose(world.leader() or 0),
        within_ms=2 * OPTIONS.election_timeout_max_ms + OPTIONS.election_timeout_min_ms,
    )
    assert world.processes[old].raft.status().role is not Role.LEADER
