"""Who leads: pre-votes, votes, refusals, prompt elections, check-quorum, pauses and hand-over."""

from __future__ import annotations

import pytest

from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import (
    InvariantError,
    MessageError,
    NotLeaderError,
    TransferError,
    TransitionError,
)
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Halt,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerDown,
    PeerUp,
    Receive,
    Resume,
    Role,
    SnapshotChunk,
    SnapshotChunkReply,
    Tick,
    TimeoutNow,
    Transfer,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.roles import ROLE_MOVES, check_role_move
from tests.unit.raft_core.disk import BrokenPromiseError
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo

OPTIONS = Options()
TIMEOUT_MIN_MS = OPTIONS.election_timeout_min_ms
TIMEOUT_MAX_MS = OPTIONS.election_timeout_max_ms


def only_votes(messages: list[Message]) -> list[Vote]:
    votes = [message for message in messages if isinstance(message, Vote)]
    assert len(votes) == len(messages)
    return votes


# --- first elections


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("nodes", "delay_ms", "sync_ms", "timeout_ms"),
    [
        (3, (60.0, 90.0), (0.5, 2.0), (300.0, 600.0)),
        (5, (60.0, 90.0), (0.5, 2.0), (300.0, 600.0)),
        (5, (38.0, 42.0), (0.5, 2.0), (300.0, 600.0)),
        (5, (0.2, 0.6), (100.0, 150.0), (300.0, 600.0)),
        (3, (100.0, 105.0), (0.5, 2.0), (1500.0, 3000.0)),
    ],
)
def test_rivals_let_each_other_win_also_where_a_vote_takes_longer_than_the_short_delays(
    seed: int,
    nodes: int,
    delay_ms: tuple[float, float],
    sync_ms: tuple[float, float],
    timeout_ms: tuple[float, float],
) -> None:
    low, high = timeout_ms
    world = World(seed, nodes, Options(election_timeout_min_ms=low, election_timeout_max_ms=high))
    world.delay_ms, world.sync_ms = delay_ms, sync_ms
    world.await_(world.stable, within_ms=10 * high)
    leader = world.leader()
    assert leader is not None
    world.crash(leader)
    world.await_(lambda: world.leader() is not None, within_ms=10 * high)


@pytest.mark.parametrize("seed", range(5))
def test_a_new_cluster_has_a_leader_at_once(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable, within_ms=250)
    assert world.committed[1][2] == EntryKind.FOUND


def test_a_node_alone_leads_as_soon_as_its_vote_is_durable() -> None:
    solo = Solo(nodes=1)
    assert solo.tick(100) == []
    assert solo.role() is Role.CANDIDATE
    solo.sync()
    assert solo.role() is Role.LEADER
    assert solo.committed == []
    solo.sync()
    assert [entry.kind for entry in solo.committed] == [EntryKind.FOUND]


def test_an_older_fsync_does_not_count_the_own_vote() -> None:
    solo = Solo([1], nodes=1)
    solo.tick(100)
    solo.sync()
    assert solo.role() is Role.LEADER
    solo.step(Halt("no space left"))
    solo.step(Resume())
    for _ in range(100):
        solo.step(Tick(), 10.0)
        if solo.role() is Role.CANDIDATE:
            break
    assert [persist.hard_state for persist in solo.unsynced] == [None, HardState(3, 1)]
    solo.sync(1)
    assert solo.role() is Role.CANDIDATE
    solo.sync(1)
    assert solo.role() is Role.LEADER


def test_a_node_that_joins_neither_campaigns_nor_votes() -> None:
    solo = Solo(founders={})
    assert solo.tick(3000) == []
    for pre in (True, False):
        (reply,) = solo.hear(Vote(1, 2, 1, pre, False, 0, 0)) + solo.sync()
        assert isinstance(reply, VoteReply)
        assert not reply.granted


def test_the_pre_vote_changes_no_term_and_is_repeated_soon_when_refused() -> None:
    solo = Solo([1, 1])
    votes = only_votes(solo.campaign())
    assert [(vote.receiver, vote.term, vote.pre) for vote in votes] == [(2, 2, True), (3, 2, True)]
    assert (votes[0].last_index, votes[0].last_term) == (2, 1)
    assert solo.unsynced == []
    asked_ms = solo.now_ms
    assert solo.hear(VoteReply(1, 2, 1, True, False, 2)) == []
    again = solo.campaign()
    assert only_votes(again)[0].pre
    assert 20 <= solo.now_ms - asked_ms <= 40 + 10
    assert solo.raft.status().term == 1


def test_an_unanswered_pre_vote_waits_for_an_election_timeout_or_a_connection() -> None:
    solo = Solo([1])
    solo.campaign()
    asked_ms = solo.now_ms
    solo.campaign()
    assert TIMEOUT_MIN_MS <= solo.now_ms - asked_ms <= TIMEOUT_MAX_MS + 10
    asked_ms = solo.now_ms
    solo.step(PeerUp(2))
    solo.campaign()
    assert solo.now_ms - asked_ms <= 50 + 10


def test_requests_of_a_new_term_and_the_own_vote_wait_for_the_disk() -> None:
    solo = Solo([1])
    solo.campaign()
    assert solo.hear(VoteReply(1, 2, 1, True, True, 2)) == []
    assert [persist.hard_state for persist in solo.unsynced] == [HardState(2, 1)]
    votes = only_votes(solo.sync())
    assert [(vote.receiver, vote.term, vote.pre) for vote in votes] == [(2, 2, False), (3, 2, False)]
    assert solo.role() is Role.CANDIDATE


def test_a_lost_election_is_tried_again_soon_and_asks_first() -> None:
    solo = Solo([1])
    solo.campaign()
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    solo.sync()
    for peer in (2, 3):
        solo.hear(VoteReply(2, peer, 1, False, False, 2))
    lost_ms = solo.now_ms
    assert solo.role() is Role.FOLLOWER
    assert only_votes(solo.campaign())[0].pre
    assert solo.now_ms - lost_ms <= 40 + 10


@pytest.mark.parametrize(
    "reply",
    [
        VoteReply(2, 2, 1, True, True, 2),  # an answer to the pre-vote
        VoteReply(1, 2, 1, False, True, 1),  # an answer to an older election
        VoteReply(2, 1, 1, False, True, 2)._replace(sender=4),  # not a voter
    ],
)
def test_late_and_foreign_answers_elect_nobody(reply: VoteReply) -> None:
    solo = Solo([1])
    solo.campaign()
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    solo.sync()
    solo.hear(reply)
    assert solo.role() is Role.CANDIDATE


# --- votes


def grant(solo: Solo, vote: Vote) -> bool:
    replies = solo.hear(vote) + solo.sync()
    (reply,) = [reply for reply in replies if isinstance(reply, VoteReply)]
    assert (reply.receiver, reply.pre, reply.asked_term) == (vote.sender, vote.pre, vote.term)
    return reply.granted


@pytest.mark.parametrize("pre", [True, False])
@pytest.mark.parametrize(
    ("last_index", "last_term", "granted"),
    [(3, 2, True), (4, 2, True), (2, 3, True), (2, 2, False), (9, 1, False), (0, 0, False)],
)
def test_a_vote_needs_a_log_at_least_as_good(
    pre: bool, last_index: int, last_term: int, granted: bool
) -> None:
    solo = Solo([1, 1, 2])
    assert grant(solo, Vote(3, 2, 1, pre, False, last_index, last_term)) is granted


def test_who_refuses_an_older_log_campaigns_itself_soon() -> None:
    solo = Solo([1, 1, 2])
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0))
    assert not grant(solo, Vote(3, 2, 1, False, True, 2, 1))
    refused_ms = solo.now_ms
    assert only_votes(solo.campaign())
    assert solo.now_ms - refused_ms <= 50 + 10


def test_one_vote_per_term_also_after_a_restart() -> None:
    solo = Solo([1])
    assert grant(solo, Vote(2, 2, 1, False, False, 1, 1))
    assert not grant(solo, Vote(2, 3, 1, False, False, 1, 1))
    assert grant(solo, Vote(2, 2, 1, False, False, 1, 1))
    again = Solo([1], hard_state=solo.disk.hard_state)
    assert not grant(again, Vote(2, 3, 1, False, False, 1, 1))
    assert grant(again, Vote(3, 3, 1, False, False, 1, 1))


def test_a_vote_leaves_only_when_it_is_durable() -> None:
    solo = Solo([1])
    assert solo.hear(Vote(2, 2, 1, False, False, 1, 1)) == []
    assert solo.unsynced[0].hard_state == HardState(2, 2)
    (reply,) = solo.sync()
    assert reply[:6] == VoteReply(2, 1, 2, False, True, 2)[:6]


def test_a_refusal_of_an_old_term_names_the_new_one() -> None:
    solo = Solo([1], hard_state=HardState(5, 0))
    (reply,) = solo.hear(Vote(4, 2, 1, False, False, 9, 4))
    assert reply[:6] == VoteReply(5, 1, 2, False, False, 4)[:6]


def test_no_vote_while_a_leader_is_heard_and_the_term_stays() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    solo.tick(TIMEOUT_MIN_MS - 20)
    for pre in (True, False):
        assert not grant(solo, Vote(7, 3, 1, pre, False, 9, 6))
    assert solo.raft.status().term == 1
    solo.tick(30)
    assert grant(solo, Vote(7, 3, 1, True, False, 9, 6))
    assert solo.raft.status().term == 1
    assert grant(solo, Vote(7, 3, 1, False, False, 9, 6))


def test_a_vote_for_a_hand_over_ignores_the_heard_leader() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    assert grant(solo, Vote(2, 3, 1, False, True, 1, 1))


def test_a_leader_refuses_votes_and_stays() -> None:
    solo = Solo([1])
    solo.lead()
    for pre in (True, False):
        assert not grant(solo, Vote(9, 3, 1, pre, False, 9, 8))
    assert solo.role() is Role.LEADER


def test_a_closed_connection_makes_the_follower_forget_its_leader() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    solo.step(PeerDown(3))
    assert solo.raft.status().leader_id == 2
    solo.step(PeerDown(2))
    assert solo.raft.status().leader_id == 0
    assert grant(solo, Vote(2, 3, 1, True, False, 1, 1))
    closed_ms = solo.now_ms
    solo.campaign()
    assert solo.now_ms - closed_ms <= 50 + 10


def test_a_cut_off_node_comes_back_without_deposing_the_leader() -> None:
    world = World(3)
    world.await_(world.stable)
    leader = world.leader()
    assert leader is not None
    term = world.processes[leader].raft.status().term
    lonely = next(node_id for node_id in world.ids if node_id != leader)
    world.isolate(lonely)
    world.run_for(5000)
    assert world.processes[lonely].raft.status().term == term
    world.heal()
    world.await_(world.stable)
    world.run_for(2000)
    assert (world.leader(), world.processes[leader].raft.status().term) == (leader, term)


# --- terms


STALE: list[Message] = [
    Append(4, 2, 1, 1, 1, 0, False, ()),
    Heartbeat(4, 2, 1, 0, 5.0),
    SnapshotChunk(4, 2, 1, 1, 9, 3, 0, 10, b"x"),
]


@pytest.mark.parametrize("message", STALE, ids=lambda message: type(message).__name__)
def test_a_stale_leader_is_told_the_higher_term(message: Message) -> None:
    solo = Solo([1], hard_state=HardState(5, 0))
    (answer,) = solo.hear(message)
    assert (answer.term, answer.receiver) == (5, 2)
    assert getattr(answer, "match_index", 0) == 0
    assert solo.raft.status().leader_id == 0


ANSWERS: list[Message] = [
    AppendReply(9, 3, 1, True, 1, 0, 0, 0),
    HeartbeatReply(9, 3, 1, 0.0, 0),
    SnapshotChunkReply(9, 3, 1, 1, 0, False, False, 0),
    VoteReply(9, 3, 1, True, False, 2),
]


@pytest.mark.parametrize("message", ANSWERS, ids=lambda message: type(message).__name__)
def test_a_higher_term_in_an_answer_deposes_a_leader(message: Message) -> None:
    solo = Solo([1])
    solo.lead()
    solo.hear(message)
    status = solo.raft.status()
    assert (status.role, status.term, status.leader_id) == (Role.FOLLOWER, 9, 0)
    assert solo.unsynced[-1].hard_state == HardState(9, 0)


def test_answers_of_an_older_term_are_ignored() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    solo.hear(AppendReply(1, 2, 1, False, 0, 2, 0, 0))
    assert solo.raft.status().commit_index == 0
    solo.hear(AppendReply(2, 2, 1, False, 0, 2, 0, 0))
    assert solo.raft.status().commit_index == 2


def test_two_leaders_of_one_term_stop_the_node() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    with pytest.raises(InvariantError, match="both lead term 1"):
        solo.hear(Heartbeat(1, 3, 1, 0, 0.0))
    leader = Solo([1])
    leader.lead()
    with pytest.raises(InvariantError, match="nodes 1 and 3 both lead term 2"):
        leader.hear(Heartbeat(2, 3, 1, 0, 0.0))


def test_a_message_for_somebody_else_is_refused() -> None:
    solo = Solo([1])
    with pytest.raises(MessageError, match="reached node 1"):
        solo.hear(Heartbeat(1, 2, 3, 0, 0.0))


def test_every_role_move_outside_the_table_tells_its_story() -> None:
    assert set(ROLE_MOVES) == set(Role)
    for old in Role:
        for new in Role:
            if new in ROLE_MOVES[old]:
                check_role_move(old, new, "allowed")
            else:
                with pytest.raises(TransitionError, match=rf"a {old.value} cannot become a {new.value}: why"):
                    check_role_move(old, new, "why")


# --- check-quorum and pauses


def test_a_leader_without_a_majority_steps_down_within_an_election_timeout() -> None:
    solo = Solo([1])
    solo.lead()
    solo.tick(TIMEOUT_MIN_MS - 10)
    assert solo.role() is Role.LEADER
    solo.tick(30)
    assert solo.role() is Role.FOLLOWER
    assert solo.raft.status().term == 2


def test_answers_of_a_majority_keep_a_leader() -> None:
    solo = Solo([1])
    solo.lead()
    for _ in range(40):
        heartbeats = [message for message in solo.tick(50) if isinstance(message, Heartbeat)]
        assert sorted(message.receiver for message in heartbeats) == [2, 3]
        solo.hear(HeartbeatReply(2, 3, 1, heartbeats[0].sent_ms, 0))
    assert solo.role() is Role.LEADER


def test_only_a_follower_that_waits_rests_at_a_tick() -> None:
    solo = Solo([1])
    solo.step(Tick(0))
    assert solo.rests()
    solo.step(PeerUp(2))
    assert not solo.rests()
    solo.tick(TIMEOUT_MAX_MS)
    assert solo.role() is Role.PRE_CANDIDATE
    solo.step(Tick(0))
    assert not solo.rests()


def test_a_leader_that_steps_down_at_a_tick_does_not_rest() -> None:
    solo = Solo([1])
    solo.lead()
    solo.tick(TIMEOUT_MIN_MS - 10)
    solo.step(Tick(0), after_ms=30)
    assert solo.role() is Role.FOLLOWER
    assert not solo.rests()


def test_a_leader_that_was_paused_asks_its_voters_before_it_steps_down() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    asked = solo.step(Tick(), after_ms=1000)
    assert [type(message) for message in asked] == [Heartbeat, Heartbeat]
    solo.tick(TIMEOUT_MIN_MS - 10)
    assert solo.role() is Role.LEADER
    solo.tick(30)
    assert solo.role() is Role.FOLLOWER
    with pytest.raises(NotLeaderError):
        solo.raft.propose(EntryKind.BATCH, b"", 0)


def test_answers_to_what_left_after_the_pause_keep_a_leader() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    solo.step(Tick(), after_ms=1000)
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 0))
    solo.tick(TIMEOUT_MIN_MS - 10)
    assert solo.role() is Role.LEADER
    solo.tick(30)
    assert solo.role() is Role.FOLLOWER


def test_answers_from_before_the_pause_do_not_keep_a_leader() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    sent_ms = solo.now_ms
    solo.step(Receive(HeartbeatReply(2, 2, 1, sent_ms, 0), f"{2:032x}"), after_ms=1000)
    for _ in range(int(TIMEOUT_MIN_MS) // 10 + 1):
        solo.hear(HeartbeatReply(2, 3, 1, sent_ms, 0))
        solo.tick(10)
    assert solo.role() is Role.FOLLOWER


def test_one_pause_after_the_other_is_forgiven_once() -> None:
    solo = Solo([1])
    solo.lead()
    solo.sync()
    solo.step(Tick(), after_ms=TIMEOUT_MIN_MS + 100)
    solo.step(Tick(), after_ms=TIMEOUT_MIN_MS - 100)
    assert solo.role() is Role.LEADER
    solo.step(Tick(), after_ms=TIMEOUT_MIN_MS - 100)
    assert solo.role() is Role.FOLLOWER


def test_a_follower_that_was_paused_listens_before_it_campaigns() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    assert solo.step(Tick(), after_ms=5000) == []
    assert solo.tick(30) == []
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    assert [message for message in solo.tick(TIMEOUT_MIN_MS - 10) if isinstance(message, Vote)] == []


def test_a_follower_that_is_always_late_campaigns_in_the_end() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    sent: list[Message] = []
    for _ in range(12):
        sent += solo.step(Tick(), after_ms=100)
    assert only_votes(sent)


def test_a_tick_at_the_deadline_is_enough() -> None:
    solo = Solo([1])
    for _ in range(3):
        messages = solo.step(Tick(), solo.raft.deadline_ms - solo.now_ms)
        messages += solo.step(Tick(), max(0.0, solo.raft.deadline_ms - solo.now_ms)) if not messages else []
        assert only_votes(messages)
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    solo.sync()
    solo.hear(VoteReply(2, 2, 1, False, True, 2))
    for _ in range(3):
        sent = solo.step(Tick(), solo.raft.deadline_ms - solo.now_ms)
        assert {type(message) for message in sent} == {Heartbeat}
        solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 0))


def test_a_clock_that_goes_back_stands_still() -> None:
    solo = Solo([1])
    solo.lead()
    solo.now_ms -= 500
    solo.step(Tick())
    assert solo.role() is Role.LEADER


# --- hand-over


def followed_leader() -> Solo:
    """A leader of term 2 whose no-op (entry 2) is committed and replicated everywhere."""
    solo = Solo([1])
    solo.lead()
    solo.sync()
    for peer in (2, 3):
        solo.hear(AppendReply(2, peer, 1, False, 0, 2, 0, 0))
    return solo


def test_a_hand_over_waits_until_the_target_has_everything() -> None:
    solo = followed_leader()
    solo.raft.propose(EntryKind.BATCH, b"late", 0)
    solo.drain()
    assert solo.step(Transfer(3)) == []
    with pytest.raises(NotLeaderError, match="handed over to node 3"):
        solo.raft.propose(EntryKind.BATCH, b"refused", 0)
    assert solo.raft.status().last_index == 3
    assert [m for m in solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0)) if isinstance(m, TimeoutNow)] == []
    sent = solo.hear(AppendReply(2, 3, 1, False, 0, 3, 0, 0))
    assert [message for message in sent if isinstance(message, TimeoutNow)] == [TimeoutNow(2, 1, 3)]


def test_a_hand_over_is_given_up_after_an_election_timeout() -> None:
    solo = followed_leader()
    solo.raft.propose(EntryKind.BATCH, b"late", 0)
    solo.step(Transfer(3))
    for _ in range(int(TIMEOUT_MAX_MS / 50)):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 2, 1, 0.0, 2))
    assert solo.raft.status().transfer_target == 0
    solo.raft.propose(EntryKind.BATCH, b"again", 0)


def test_a_hand_over_without_a_target_goes_to_the_one_that_is_furthest() -> None:
    solo = followed_leader()
    solo.raft.propose(EntryKind.BATCH, b"late", 0)
    solo.drain()
    solo.hear(AppendReply(2, 3, 1, False, 0, 3, 0, 0))
    assert [m for m in solo.step(Transfer(None)) if isinstance(m, TimeoutNow)] == [TimeoutNow(2, 1, 3)]


@pytest.mark.parametrize("target", [1, 4])
def test_a_hand_over_to_nobody_is_refused(target: int) -> None:
    solo = followed_leader()
    with pytest.raises(TransferError, match=f"node {target}"):
        solo.step(Transfer(target))
    solo.raft.propose(EntryKind.BATCH, b"", 0)


def test_a_follower_cannot_hand_over() -> None:
    with pytest.raises(TransferError, match="does not lead"):
        Solo([1]).step(Transfer(2))


def test_the_target_campaigns_at_once_without_a_pre_vote() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    assert solo.hear(TimeoutNow(1, 3, 1)) == []
    assert solo.role() is Role.FOLLOWER
    assert solo.hear(TimeoutNow(1, 2, 1)) == []
    votes = only_votes(solo.sync())
    assert [(vote.term, vote.pre, vote.transfer) for vote in votes] == [(2, False, True)] * 2


@pytest.mark.parametrize("seed", range(3))
def test_leadership_moves_within_a_heartbeat(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    target = next(node_id for node_id in world.ids if node_id != old)
    world.step(old, world.processes[old], Transfer(target))
    world.await_(lambda: world.leader() == target and world.propose(target), within_ms=50)
    world.await_(world.stable)


@pytest.mark.parametrize("seed", range(5))
def test_a_killed_leader_is_replaced_within_a_few_round_trips(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    old = world.leader()
    assert old is not None
    world.crash(old)
    world.await_(lambda: (world.leader() or old) != old and world.propose(world.leader() or 0), within_ms=150)


def test_the_harness_notices_a_second_leader_of_a_term() -> None:
    world = World(1)
    world.await_(world.stable)
    leader = world.leader()
    assert leader is not None
    world.leaders[world.processes[leader].raft.status().term] = leader % 3 + 1
    with pytest.raises(BrokenPromiseError, match="lead term"):
        world.run_for(20)


def test_an_answer_is_contact_of_when_its_heartbeat_left() -> None:
    solo = Solo([1])
    solo.lead()
    sent_ms = solo.now_ms
    # The leader stood still, and then finds an old answer in its socket.
    solo.now_ms += 2000
    solo.hear(HeartbeatReply(2, 2, 1, sent_ms + 30, 0))
    assert (solo.role(), solo.raft.contact_ms) == (Role.LEADER, sent_ms + 30)
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 0))
    assert solo.raft.contact_ms == solo.now_ms
    solo.hear(HeartbeatReply(2, 3, 1, sent_ms, 0))
    assert solo.raft.contact_ms == solo.now_ms


def test_a_heartbeat_is_contact_of_the_time_that_it_echoes() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    found_ms = solo.now_ms
    solo.now_ms += 2000
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0, found_ms + 30))
    assert solo.raft.contact_ms == found_ms + 30
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0, found_ms + 30))
    assert solo.raft.contact_ms == solo.now_ms, "a new leader counts as heard"
