"""Membership: who may be added, replaced and removed, when that counts, and who votes meanwhile."""

from __future__ import annotations

import pytest

from quorum.raft.core.configuration import MEMBERS_MAX, Configuration, Member, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import MembershipBusyError, MembershipError, NotLeaderError
from quorum.raft.core.membership import (
    NODE_ID_MAX,
    AddMember,
    MembershipChange,
    RemoveMember,
    ReplaceMember,
)
from quorum.raft.core.messages import (
    Append,
    Heartbeat,
    HeartbeatReply,
    PeerDown,
    PeerUp,
    Role,
    SnapshotChunk,
    SnapshotInstalled,
    Tick,
    TimeoutNow,
    Transfer,
    Vote,
    VoteReply,
)
from tests.unit.raft_core.disk import CLUSTER_ID, incarnation_of
from tests.unit.raft_core.members import (
    ADD_4,
    OTHER,
    TIMEOUT_MAX_MS,
    TIMEOUT_MIN_MS,
    ack,
    acked,
    appends,
    beat,
    change,
    latest,
    leader,
    peer_of,
)
from tests.unit.raft_core.solo import Solo

# --- a node joins


def test_a_new_member_is_a_learner_that_counts_nowhere() -> None:
    solo = leader()
    sent = change(solo, ADD_4)
    assert latest(solo).learners == {4: Member("h:4", "")}
    assert sorted(latest(solo).voters) == [1, 2, 3]
    (entry,) = appends(sent, 2)[0].entries
    assert (entry.index, entry.kind) == (3, EntryKind.MEMBERS)
    assert parse_configuration(entry.payload) == latest(solo)
    solo.sync()
    solo.hear(ack(4, 3))
    assert solo.raft.status().commit_index == 2
    acked(solo, 2)
    assert solo.raft.status().commit_index == 3


def test_a_configuration_is_stamped_with_the_clock_of_the_last_tick() -> None:
    """Else `/zookeeper/config` would have changed when somebody last wrote, hours ago perhaps."""
    solo = leader()
    solo.step(Tick(5000))
    sent = change(solo, ADD_4)
    (entry,) = appends(sent, 2)[0].entries
    assert entry.stamp_ms == 5000
    acked(solo, 2, 3)
    solo.raft.propose(EntryKind.BATCH, b"", 9000)
    solo.drain()
    solo.step(Tick(8000))
    acked(solo, 2, 3)
    change(solo, RemoveMember(4))
    acked(solo, 2, 3)
    assert [entry.stamp_ms for entry in solo.committed[2:]] == [5000, 9000, 9000], "stamps never fall"


def test_who_was_not_heard_yet_gets_heartbeats_only() -> None:
    solo = leader()
    change(solo, ADD_4)
    sent = solo.step(PeerUp(4)) + solo.tick(100)
    assert {type(message) for message in sent if message.receiver == 4} == {Heartbeat}
    (append,) = appends(solo.hear(HeartbeatReply(2, 4, 1, solo.now_ms, 0)), 4)
    assert append.probe


def joined(match_index: int = 3) -> Solo:
    """Node 4 is a learner by entry 3, which is committed, and holds ``match_index``."""
    solo = leader()
    change(solo, ADD_4)
    acked(solo, 2, 3)
    beat(solo, 4, 0)
    assert solo.raft.status().commit_index == 3
    solo.hear(ack(4, match_index))
    assert solo.raft.status().last_index == 3
    return solo


def test_a_learner_is_promoted_once_it_holds_what_was_committed_one_heartbeat_ago() -> None:
    solo = joined(match_index=2)
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    acked(solo, 2, 3)
    beat(solo, 4, 2)
    beat(solo, 4, 3)  # entry 4 was committed at the answer before
    assert solo.raft.status().last_index == 4
    beat(solo, 4, 4)
    assert solo.raft.status().last_index == 5
    assert latest(solo).voters[4] == Member("h:4", incarnation_of(4))
    assert not latest(solo).learners
    assert (peer_of(solo, 4).voter, peer_of(solo, 4).counts, peer_of(solo, 4).match_index) == (True, True, 4)


def test_a_promotion_counts_the_promoted_and_needs_the_larger_majority() -> None:
    solo = joined()
    beat(solo, 4, 3)
    assert solo.raft.status().last_index == 4
    acked(solo, 2)
    assert solo.raft.status().commit_index == 3
    solo.hear(ack(4, 4))
    status = solo.raft.status()
    assert (status.commit_index, status.last_index) == (4, 4)
    assert (status.voters, status.learners, status.configuration_committed) == ((1, 2, 3, 4), (), True)


def test_a_learner_whose_connection_closed_has_to_answer_twice_again() -> None:
    solo = joined(match_index=2)
    beat(solo, 4, 2)
    solo.step(PeerDown(4))
    beat(solo, 4, 3)
    assert solo.raft.status().last_index == 3
    beat(solo, 4, 3)
    assert sorted(latest(solo).voters) == [1, 2, 3, 4]


def test_a_learner_is_not_promoted_before_it_holds_its_own_record() -> None:
    solo = leader()
    change(solo, ADD_4)
    beat(solo, 4, 2)
    beat(solo, 4, 2)
    acked(solo, 2, 3)
    assert (solo.raft.status().commit_index, solo.raft.status().last_index) == (3, 3)
    beat(solo, 4, 3)
    assert solo.raft.status().last_index == 4


def test_what_a_learner_held_long_ago_does_not_promote_it() -> None:
    solo = joined()
    solo.step(Transfer(2))
    beat(solo, 4, 3)
    beat(solo, 4, 3)  # it would be promoted now
    assert solo.raft.status().last_index == 3
    for _ in range(13):
        solo.tick(50)
        beat(solo, 2)
        beat(solo, 3)
    status = solo.raft.status()
    assert (status.transfer_target, status.last_index) == (0, 3)
    beat(solo, 4, 3)
    assert sorted(latest(solo).voters) == [1, 2, 3, 4]


def test_one_change_at_a_time_and_promotions_too() -> None:
    solo = joined()
    change(solo, AddMember(5, "h:5"))
    beat(solo, 4)
    beat(solo, 4)
    assert solo.raft.status().last_index == 4
    acked(solo, 2, 3)
    assert solo.raft.status().last_index == 5
    for _ in range(3):
        beat(solo, 5)
    assert solo.raft.status().last_index == 5
    acked(solo, 2, 3, 4)
    acked(solo, 2, 3, 4)
    assert solo.raft.status().voters == (1, 2, 3, 4, 5)
    assert solo.raft.status().commit_index == solo.raft.status().last_index == 6


def test_a_repeated_addition_changes_nothing_and_proves_that_this_node_still_leads() -> None:
    solo = leader()
    change(solo, ADD_4)
    wanted = latest(solo)
    change(solo, ADD_4)  # also while it is under way
    acked(solo, 2, 3)
    assert solo.raft.status().commit_index == 4
    change(solo, ADD_4)
    (entry,) = appends(change(solo, AddMember(2, "127.0.0.1:7002")), 2)[0].entries
    assert (entry.index, entry.kind) == (6, EntryKind.NOOP)
    assert solo.raft.status().commit_index == 4, "without a majority it is not known to be so"
    assert latest(solo) == wanted


#: what is so already is answered with a no-op
THERE = AddMember(1, "127.0.0.1:7001")


def test_only_a_leader_that_stays_confirms_what_it_believes() -> None:
    with pytest.raises(NotLeaderError):
        Solo([1]).raft.change_members(THERE)
    solo = leader()
    index = solo.raft.change_members(THERE)
    solo.drain()
    assert solo.raft.status().commit_index == index - 1
    acked(solo, 2)
    assert solo.raft.status().commit_index == index
    solo.step(Transfer(2))
    with pytest.raises(MembershipBusyError, match="handed over to node 2"):
        solo.raft.change_members(THERE)


# --- what is refused


@pytest.mark.parametrize(
    ("wanted", "story"),
    [
        (AddMember(0, "h:4"), "node id 0 is out of range; use one from 1 to 255"),
        (AddMember(NODE_ID_MAX + 1, "h:4"), "256 is out of range"),
        (RemoveMember(-1), "-1 is out of range"),
        (AddMember(4, ""), "node 4 cannot be added with the address ''.*give host:port"),
        (AddMember(4, "h" * 301), "of 301 characters"),
        (AddMember(2, "h:4"), "node 2 is a member with the address 127.0.0.1:7002, not h:4; remove it first"),
        (AddMember(4, "127.0.0.1:7002"), "node 2 has it; remove or replace node 2 instead"),
        (RemoveMember(4), r"node 4 cannot be removed: it is not a member; members are \[1, 2, 3\]"),
        (ReplaceMember(4), "node 4 cannot be replaced: it is not a member"),
        (ReplaceMember(1), r"node 1 cannot be replaced: it leads; .*POST /v1/leader"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused_with_the_remedy(
    wanted: MembershipChange, story: str
) -> None:
    solo = leader()
    before = solo.raft.status()
    with pytest.raises(MembershipError, match=story) as caught:
        solo.raft.change_members(wanted)
    assert not isinstance(caught.value, MembershipBusyError)
    assert solo.raft.status() == before


@pytest.mark.parametrize("wanted", [RemoveMember(1), ReplaceMember(1)])
def test_the_only_voter_stays(wanted: MembershipChange) -> None:
    solo = Solo([1], nodes=1)
    solo.tick(100)
    solo.sync()
    solo.sync()
    with pytest.raises(MembershipError, match=r"only voter|it leads"):
        solo.raft.change_members(wanted)


def test_there_is_a_bound_on_members() -> None:
    solo = leader()
    for node_id in range(4, MEMBERS_MAX + 1):
        change(solo, AddMember(node_id, f"h:{node_id}"))
        acked(solo, 2, 3)
    with pytest.raises(MembershipError, match=f"there are {MEMBERS_MAX} members"):
        solo.raft.change_members(AddMember(MEMBERS_MAX + 1, "h:4000"))


@pytest.mark.parametrize(
    "wanted", [RemoveMember(2), ReplaceMember(2, incarnation_of(2), force=True), RemoveMember(1)]
)
@pytest.mark.parametrize("how", ["connection closed", "silent", "another incarnation"])
def test_a_change_that_would_leave_no_majority_in_contact_is_refused(
    wanted: MembershipChange, how: str
) -> None:
    solo = leader()
    if how == "connection closed":
        solo.step(PeerDown(3))
    elif how == "silent":
        for _ in range(13):
            solo.tick(50)
            beat(solo, 2)
    elif how == "another incarnation":
        solo.step(PeerDown(3))
        beat(solo, 3, incarnation=OTHER)
    with pytest.raises(MembershipError, match=r"only \[.\] are in contact and 2 are needed"):
        solo.raft.change_members(wanted)
    assert solo.raft.status().last_index == 2
    change(solo, RemoveMember(3))
    acked(solo, 2)
    assert solo.raft.status().voters == (1, 2)


def test_the_remedy_names_only_what_can_be_done_with_those_in_contact() -> None:
    solo = leader()
    solo.step(PeerDown(3))
    with pytest.raises(MembershipError, match="or remove what is gone for good"):
        solo.raft.change_members(RemoveMember(2))
    solo.step(PeerDown(2))
    for gone in (2, 3):
        with pytest.raises(MembershipError, match=r"--force-new-cluster.* if a majority is gone"):
            solo.raft.change_members(RemoveMember(gone))


def test_who_was_not_heard_yet_by_a_new_leader_is_waited_for() -> None:
    solo = leader(silent=(3,))
    with pytest.raises(MembershipBusyError, match=r"cannot remove node 2 yet: .* heard only \[1\] since"):
        solo.raft.change_members(RemoveMember(2))
    solo.hear(ack(3, 2))
    change(solo, RemoveMember(2))


def test_a_follower_changes_nothing() -> None:
    solo = Solo([1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0))
    with pytest.raises(NotLeaderError) as caught:
        solo.raft.change_members(ADD_4)
    assert caught.value.leader_id == 2


def test_no_change_before_the_no_op_of_the_term_is_committed() -> None:
    """Else two leaders could each change one configuration, and their majorities be disjoint."""
    solo = Solo([1, 1])
    solo.hear(Append(1, 2, 1, 2, 1, 2, True, ()))  # all of the old log is known to be committed
    assert solo.raft.status().commit_index == 2
    solo.lead()
    solo.sync()
    solo.hear(ack(3, 2))
    for wanted in (ADD_4, RemoveMember(3), ReplaceMember(3)):
        with pytest.raises(MembershipBusyError, match="first entry of term 2"):
            solo.raft.change_members(wanted)
    assert solo.raft.status().last_index == 3
    solo.hear(ack(3, 3))
    change(solo, ADD_4)


def test_no_promotion_before_the_no_op_of_the_term_is_committed() -> None:
    solo = Solo([1])
    base = latest(solo)
    learning = base.with_learner(4, "h:4")
    entry = Entry(2, 1, EntryKind.MEMBERS, 0, learning.to_payload())
    solo.hear(Append(1, 2, 1, 1, 1, 2, False, (entry,)))
    solo.sync()
    solo.lead()
    solo.sync()
    beat(solo, 4, 2)
    beat(solo, 4, 3)
    beat(solo, 4, 3)
    assert solo.raft.status().last_index == 3
    solo.hear(ack(2, 3))
    assert sorted(latest(solo).voters) == [1, 2, 3, 4]


def test_no_change_while_another_one_is_not_committed() -> None:
    solo = leader()
    change(solo, ADD_4)
    for wanted in (AddMember(5, "h:5"), RemoveMember(3), ReplaceMember(3), RemoveMember(4)):
        with pytest.raises(MembershipBusyError, match="change of index 3 is not committed yet"):
            solo.raft.change_members(wanted)
    acked(solo, 2)
    change(solo, RemoveMember(4))
    assert not latest(solo).learners


def test_no_change_while_leadership_is_handed_over() -> None:
    solo = leader()
    solo.step(Transfer(2))
    for wanted in (ADD_4, AddMember(3, "127.0.0.1:7003")):
        with pytest.raises(MembershipBusyError, match="handed over to node 2"):
            solo.raft.change_members(wanted)


# --- who leaves


def test_who_leaves_is_told_once_that_is_committed_and_not_before() -> None:
    solo = leader()
    beat(solo, 3)
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    acked(solo, 2, 3)
    sent = change(solo, RemoveMember(3)) + solo.tick(100)
    assert [message for message in sent if message.receiver == 3] == []
    assert solo.raft.status().peers == (peer_of(solo, 2),)
    assert solo.raft.linked_members() == {2: "127.0.0.1:7002", 3: "127.0.0.1:7003"}
    sent = acked(solo, 2)
    (append,) = appends(sent, 3)
    assert ([entry.index for entry in append.entries], append.commit_index) == ([4], 4)
    # The connection is kept until that is on its way.
    assert 3 in solo.raft.linked_members()
    for _ in range(7):
        assert [message for message in solo.tick(50) if message.receiver == 3] == []
        beat(solo, 2)
    assert solo.raft.linked_members() == {2: "127.0.0.1:7002"}


def test_a_member_that_leaves_far_behind_is_not_brought_up() -> None:
    solo = leader()
    solo.step(PeerDown(3))
    for _ in range(13):
        solo.tick(50)
        beat(solo, 2)
    change(solo, RemoveMember(3))
    assert [message for message in acked(solo, 2) if message.receiver == 3] == []


def test_a_removed_voter_counts_no_more_from_the_append_on() -> None:
    solo = leader(nodes=4)
    change(solo, RemoveMember(4))
    solo.sync()
    solo.hear(ack(4, 3))
    assert solo.raft.status().commit_index == 2
    solo.hear(ack(3, 3))
    assert solo.raft.status().commit_index == 3


def test_a_leader_that_removes_itself_does_not_count_itself() -> None:
    solo = leader()
    change(solo, RemoveMember(1))
    status = solo.raft.status()
    assert (status.role, status.member, status.voters) == (Role.LEADER, False, (2, 3))
    solo.sync()
    solo.hear(ack(2, 3))
    assert solo.raft.status().commit_index == 2
    solo.hear(ack(3, 3))
    assert solo.raft.status().commit_index == 3


def test_a_leader_that_is_no_voter_needs_contact_to_a_majority_of_the_others() -> None:
    solo = leader()
    change(solo, RemoveMember(1))
    for _ in range(6):
        solo.tick(50)
        beat(solo, 2, 2)
    assert solo.role() is Role.LEADER
    for _ in range(2):
        solo.tick(50)
        beat(solo, 2, 2)
    assert solo.role() is Role.FOLLOWER


def test_answers_of_learners_keep_no_leader() -> None:
    solo = joined()
    for _ in range(8):
        solo.tick(50)
        beat(solo, 4, 2)
    assert solo.role() is Role.FOLLOWER


def test_a_removed_leader_hands_over_to_the_furthest_and_steps_down() -> None:
    solo = leader()
    change(solo, RemoveMember(1))
    solo.raft.propose(EntryKind.BATCH, b"accepted before", 0)
    solo.drain()
    solo.sync()
    solo.hear(ack(3, 3))
    sent = solo.hear(ack(2, 3))
    assert (solo.raft.status().commit_index, solo.raft.status().transfer_target) == (3, 2)
    assert [message for message in sent if isinstance(message, TimeoutNow)] == []
    with pytest.raises(NotLeaderError, match="handed over"):
        solo.raft.propose(EntryKind.BATCH, b"refused", 0)
    # All of its proposals are committed before it goes.
    sent = solo.hear(ack(2, 4))
    assert [message for message in sent if isinstance(message, TimeoutNow)] == []
    sent = solo.hear(ack(3, 4))
    assert [message for message in sent if isinstance(message, TimeoutNow)] == [TimeoutNow(2, 1, 2)]
    # The commit is told on the way out, and applied here too.
    assert [append.commit_index for append in appends(sent, 2)] == [4]
    assert solo.committed[-1].payload == b"accepted before"
    status = solo.raft.status()
    assert (status.role, status.term, status.leader_id) == (Role.FOLLOWER, 2, 0)
    assert solo.tick(5000) == []  # it never campaigns


def test_a_hand_over_of_a_removed_leader_that_fails_goes_to_another_one() -> None:
    solo = leader(nodes=4)
    change(solo, RemoveMember(1))
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    solo.drain()
    solo.sync()
    for peer in (2, 3, 4):
        solo.hear(ack(peer, 3))
    assert solo.raft.status().transfer_target == 2
    for _ in range(int(TIMEOUT_MAX_MS / 50)):
        solo.tick(50)
        beat(solo, 3, 4)
        beat(solo, 4, 3)
    assert solo.raft.status().transfer_target == 3
    solo.step(PeerDown(3))
    assert solo.raft.status().transfer_target == 4


def test_a_removed_leader_that_nobody_can_follow_hands_over_once_somebody_is_back() -> None:
    solo = leader()
    change(solo, RemoveMember(1))
    solo.raft.propose(EntryKind.BATCH, b"x", 0)
    acked(solo)
    for peer in (2, 3):
        solo.hear(ack(peer, 3))
    for peer in (2, 3):
        solo.step(PeerDown(peer))
    assert solo.raft.status().transfer_target == 0
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 3))
    solo.tick(10)
    assert solo.raft.status().transfer_target == 3


# --- votes while a configuration is not known to be committed


def follower(configuration: Configuration, commit_index: int = 0, node_id: int = 1) -> Solo:
    """Holds founders 1, 2 and 3 in entry 1, and this configuration in entry 2."""
    solo = Solo([1], node_id=node_id)
    entry = Entry(2, 1, EntryKind.MEMBERS, 0, configuration.to_payload())
    solo.hear(Append(1, 2 if node_id != 2 else 3, node_id, 1, 1, commit_index, True, (entry,)))
    solo.sync()
    return solo


def configuration(voters: tuple[int, ...], learner: int = 0, retired: tuple[str, ...] = ()) -> Configuration:
    return Configuration(
        CLUSTER_ID,
        {node_id: Member(f"127.0.0.1:{7000 + node_id}", incarnation_of(node_id)) for node_id in voters},
        {learner: Member(f"h:{learner}", "")} if learner else {},
        retired,
    )


def votes(solo: Solo) -> bool:
    solo.tick(TIMEOUT_MIN_MS + 20)
    granted = []
    for pre in (True, False):
        vote = Vote(7, 2, solo.node_id, pre, True, 9, 6)
        replies = solo.hear(vote) + solo.sync()
        granted += [reply.granted for reply in replies if isinstance(reply, VoteReply)]
    assert granted in ([True, True], [False, False])
    return granted[0]


@pytest.mark.parametrize("commit_index", [1, 2])
def test_a_learner_votes_but_never_campaigns(commit_index: int) -> None:
    """It may be a voter by an entry that it does not have, and needed; who asks decides whether it counts."""
    solo = follower(configuration((2, 3), 1), commit_index)
    assert [message for message in solo.tick(3000) if isinstance(message, Vote)] == []
    assert votes(solo)


def test_a_learner_whose_disk_is_retired_does_not_vote() -> None:
    solo = follower(configuration((2, 3), 1, (incarnation_of(1),)))
    assert [message for message in solo.tick(3000) if isinstance(message, Vote)] == []
    assert not votes(solo)


def test_a_voter_whose_removal_is_not_known_to_be_committed_still_votes_and_campaigns() -> None:
    assert votes(follower(configuration((2, 3)), 1))
    solo = follower(configuration((2, 3)), 1)
    asked = solo.campaign()
    assert sorted(vote.receiver for vote in asked if isinstance(vote, Vote)) == [2, 3]
    # It needs a majority of the others, without a vote of its own.
    solo.hear(VoteReply(1, 2, 1, True, True, 2))
    assert solo.role() is Role.PRE_CANDIDATE
    solo.hear(VoteReply(1, 3, 1, True, True, 2))
    solo.sync()
    solo.hear(VoteReply(2, 2, 1, False, True, 2))
    assert solo.role() is Role.CANDIDATE
    solo.hear(VoteReply(2, 3, 1, False, True, 2))
    assert solo.role() is Role.LEADER
    acked(solo, 2, 3)
    assert (solo.role(), solo.raft.status().commit_index) == (Role.FOLLOWER, 3)


def test_a_node_that_knows_that_it_is_removed_neither_votes_nor_campaigns() -> None:
    solo = follower(configuration((2, 3)), 2)
    assert solo.raft.status().member is False
    assert [message for message in solo.tick(3000) if isinstance(message, Vote)] == []
    assert not votes(solo)


def test_a_vote_counts_by_the_configuration_of_who_asked() -> None:
    """A pre-vote of a removed voter, of a learner and of an old incarnation elects nobody."""
    solo = follower(configuration((1, 2, 5), 3), 2)
    solo.campaign()
    solo.hear(VoteReply(1, 3, 1, True, True, 2))
    solo.hear(VoteReply(1, 4, 1, True, True, 2))
    solo.hear(VoteReply(1, 5, 1, True, True, 2), OTHER)
    assert solo.role() is Role.PRE_CANDIDATE
    solo.hear(VoteReply(1, 5, 1, True, True, 2))
    assert solo.role() is Role.CANDIDATE


# --- configurations that fall


def test_an_uncommitted_change_of_a_deposed_leader_falls_with_its_entry() -> None:
    solo = leader()
    change(solo, RemoveMember(3))
    assert latest(solo).quorum_size == 2
    noop = Entry(3, 3, EntryKind.NOOP, 0, b"")
    solo.hear(Append(3, 2, 1, 2, 2, 3, True, (noop,)))
    solo.sync()
    status = solo.raft.status()
    assert (status.voters, status.configuration_index, status.commit_index) == ((1, 2, 3), 1, 3)
    assert solo.raft.linked_members() == {2: "127.0.0.1:7002", 3: "127.0.0.1:7003"}
    # Leading again, it knows of all three and nothing of the change.
    solo.step(PeerDown(2))
    solo.campaign()
    solo.hear(VoteReply(3, 3, 1, True, True, 4))
    solo.sync()
    sent = solo.hear(VoteReply(4, 3, 1, False, True, 4))
    assert sorted({message.receiver for message in sent if isinstance(message, Append)}) == [2, 3]
    acked(solo, 3, term=4)
    assert solo.raft.status().commit_index == 4


def test_a_deposed_leader_that_removed_itself_is_a_voter_again() -> None:
    solo = leader()
    change(solo, RemoveMember(1))
    solo.hear(Append(3, 2, 1, 2, 2, 3, True, (Entry(3, 3, EntryKind.NOOP, 0, b""),)))
    solo.sync()
    assert solo.raft.status().member
    solo.step(PeerDown(2))
    assert solo.campaign()


def test_the_configuration_of_an_installed_snapshot_counts_from_there() -> None:
    solo = follower(configuration((1, 2, 3, 4)), 1)
    solo.hear(SnapshotChunk(1, 2, 1, 1, 9, 1, 0, 1, b"x"))
    solo.step(SnapshotInstalled(1, 9, 1, 0, configuration((1, 2, 5))))
    status = solo.raft.status()
    assert (status.voters, status.configuration_index, status.configuration_committed) == ((1, 2, 5), 9, True)
    assert sorted(solo.raft.linked_members()) == [2, 5]
    assert sorted(vote.receiver for vote in solo.campaign() if isinstance(vote, Vote)) == [2, 5]


def test_links_reach_who_counts_before_and_after_a_change_that_may_fall() -> None:
    solo = follower(configuration((1, 2, 5)), 1)
    assert sorted(solo.raft.linked_members()) == [2, 3, 5]
    solo.hear(Append(1, 2, 1, 2, 1, 2, True, ()))
    assert sorted(solo.raft.linked_members()) == [2, 5]


def test_the_leader_stays_linked_as_long_as_it_leads() -> None:
    """A removed leader has to collect the acknowledgements of what it proposed."""
    solo = follower(configuration((1, 3)), 2)
    assert solo.raft.status().leader_id == 2
    assert solo.raft.linked_members() == {2: "", 3: "127.0.0.1:7003"}
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0))
    assert solo.raft.linked_members() == {3: "127.0.0.1:7003"}
