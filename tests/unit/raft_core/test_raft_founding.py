"""Founders with empty logs: when they may found a cluster, and that they never found a second one."""

from __future__ import annotations

import itertools
import json

import pytest

from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Claim,
    ClusterMet,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerUp,
    Role,
    Tick,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.rivals import ELECTOR_DIGITS
from tests.unit.raft_core.disk import CLUSTER_ID, TICK_MS, incarnation_of
from tests.unit.raft_core.solo import Solo

EXISTING = "e" * 32
PATIENCE_MS = Options().election_timeout_max_ms
PROMPT_MS = Options().prompt_delay_max_ms


def votes(messages: list[Message]) -> list[Vote]:
    return [message for message in messages if isinstance(message, Vote)]


def granted(solo: Solo, sender: int, *, pre: bool, last_index: int, last_term: int) -> bool:
    """Ask for a vote in the next term and return the answer."""
    term = solo.raft.status().term + 1
    messages = solo.hear(Vote(term, sender, solo.node_id, pre, False, last_index, last_term))
    messages += solo.sync()
    (reply,) = [message for message in messages if isinstance(message, VoteReply)]
    return reply.granted


def founding_of(node_id: int) -> Entry:
    """Return the first entry of a cluster with the id CLUSTER_ID."""
    donor = Solo(node_id=node_id)
    donor.lead(elector=2 if node_id != 2 else 1)
    (founding,) = donor.unsynced[-1].entries if donor.unsynced else donor.disk.entries
    assert founding.kind is EntryKind.FOUND
    return founding


def test_a_founder_hears_of_every_other_one_before_it_campaigns() -> None:
    solo = Solo()
    solo.step(PeerUp(2))
    assert solo.tick(PATIENCE_MS / 2) == []
    solo.step(PeerUp(3))
    assert {vote.receiver for vote in votes(solo.tick(PROMPT_MS + TICK_MS))} == {2, 3}


@pytest.mark.parametrize("pre", [True, False])
def test_a_founder_hears_of_every_other_one_before_it_votes(pre: bool) -> None:
    solo = Solo()
    solo.step(PeerUp(2))
    assert not granted(solo, 2, pre=pre, last_index=0, last_term=0)
    solo.step(PeerUp(3))
    assert granted(solo, 2, pre=pre, last_index=0, last_term=0)


def test_a_founder_votes_when_it_has_waited_long_enough_for_the_others() -> None:
    solo = Solo()
    solo.step(PeerUp(2))
    solo.tick(PATIENCE_MS)
    assert granted(solo, 2, pre=True, last_index=0, last_term=0)


def test_a_founder_that_nobody_answers_does_not_wait_for_ever() -> None:
    solo = Solo()
    solo.step(PeerUp(2))
    assert solo.tick(PATIENCE_MS - 2 * TICK_MS) == []
    assert votes(solo.tick(3 * TICK_MS))


def test_an_empty_founder_that_met_a_cluster_never_campaigns() -> None:
    solo = Solo()
    solo.step(ClusterMet(2, EXISTING))
    for peer in (2, 3):
        solo.step(PeerUp(peer))
    assert solo.tick(10_000) == []
    assert solo.role() is Role.FOLLOWER


def test_what_an_earlier_life_met_counts_as_well() -> None:
    solo = Solo()
    solo.step(ClusterMet(0, EXISTING))
    for peer in (2, 3):
        solo.step(PeerUp(peer))
    assert solo.tick(10_000) == []
    assert not granted(solo, 3, pre=True, last_index=0, last_term=0)


@pytest.mark.parametrize("pre", [True, False])
def test_it_votes_for_nobody_outside_that_cluster(pre: bool) -> None:
    """Node 3 is empty too, or holds a founding of its own that nobody may have seen."""
    for last_index, last_term in ((0, 0), (1, 1)):
        solo = Solo()
        solo.step(ClusterMet(2, EXISTING))
        assert not granted(solo, 3, pre=pre, last_index=last_index, last_term=last_term)


@pytest.mark.parametrize("pre", [True, False])
def test_it_votes_for_a_member_of_that_cluster(pre: bool) -> None:
    """It may be recorded there without having received anything yet, and be needed."""
    solo = Solo()
    solo.step(ClusterMet(2, EXISTING))
    assert granted(solo, 2, pre=pre, last_index=4, last_term=1)


def test_an_election_under_way_ends_when_a_cluster_is_met() -> None:
    solo = Solo()
    solo.campaign()
    solo.step(ClusterMet(2, EXISTING))
    assert solo.role() is Role.FOLLOWER
    solo.hear(VoteReply(0, 3, 1, True, True, 1))
    assert solo.role() is Role.FOLLOWER


def test_a_founding_that_is_not_committed_is_given_up() -> None:
    solo = Solo()
    solo.lead(elector=3)
    assert solo.role() is Role.LEADER
    solo.step(ClusterMet(2, EXISTING))
    assert solo.role() is Role.FOLLOWER
    assert votes(solo.tick(10_000)) == []


@pytest.mark.parametrize("met_first", [True, False])
def test_a_founding_beside_the_cluster_that_was_met_is_not_acknowledged(met_first: bool) -> None:
    """It voted before it met that cluster, and learns of it on the way of the entry, or of its fsync."""
    solo = Solo()
    rival = Append(1, 3, 1, 0, 0, 0, True, (founding_of(3),))
    met = ClusterMet(2, EXISTING)
    if met_first:
        sent = solo.step(met) + solo.hear(rival, incarnation_of(3))
    else:
        sent = solo.hear(rival, incarnation_of(3)) + solo.step(met)
    sent += solo.sync()
    sent += solo.hear(Heartbeat(1, 3, 1, 0, 0.0), incarnation_of(3))
    assert sent == []


def test_a_founding_that_was_met_is_acknowledged_to_a_leader_that_knew_of_none_when_it_was_linked() -> None:
    solo = Solo()
    solo.step(PeerUp(3))
    solo.step(ClusterMet(2, CLUSTER_ID))
    sent = solo.hear(Append(1, 3, 1, 0, 0, 0, True, (founding_of(3),)), incarnation_of(3)) + solo.sync()
    assert [reply.match_index for reply in sent if isinstance(reply, AppendReply)] == [1]


def electors(*node_ids: int) -> str:
    return "".join(incarnation_of(node_id)[-ELECTOR_DIGITS:] for node_id in node_ids)


def claim_of(node_id: int, *elected_by: int, cluster_id: str = EXISTING) -> ClusterMet:
    """Return what a hello says of a log whose founding is not known to be committed."""
    return ClusterMet(node_id, "", cluster_id, electors(*elected_by))


def linked(solo: Solo, *told: ClusterMet) -> Solo:
    for each in told:
        solo.step(each)
    for peer in (2, 3):
        solo.step(PeerUp(peer))
    return solo


def asked(solo: Solo, sender: int, *, cluster_id: str = "", elected_by: tuple[int, ...] = ()) -> bool:
    """Ask for a pre-vote with a log that names a cluster, or an empty one."""
    last = (4, 1) if cluster_id else (0, 0)
    vote = Vote(9, sender, solo.node_id, True, False, *last, cluster_id, electors(*elected_by))
    (reply,) = [each for each in solo.hear(vote) if isinstance(each, VoteReply)]
    return reply.granted


def test_an_empty_founder_founds_nothing_beside_a_founding_in_a_log() -> None:
    """Node 2 may be the last one that holds what the cluster acknowledged, and not know that it committed."""
    solo = linked(Solo(), claim_of(2, 2, 9))
    assert solo.tick(10_000) == []
    assert not asked(solo, 3)
    assert asked(solo, 2, cluster_id=EXISTING, elected_by=(2, 9))
    assert not asked(solo, 3, cluster_id=CLUSTER_ID, elected_by=(3, 8))
    assert not asked(solo, 2, cluster_id=EXISTING, elected_by=(2, 9)), "either may have acknowledged writes"


def test_what_no_elector_can_refute_holds_up_every_founding() -> None:
    solo = linked(Solo(), ClusterMet(2, "", EXISTING))
    assert solo.tick(10_000) == []
    assert not asked(solo, 3)


def test_an_elector_with_an_empty_log_refutes_a_founding() -> None:
    """It never held the entry, and without it nothing committed: its founder may be gone for good."""
    elector = linked(Solo(), claim_of(2, 1, 2))
    assert {vote.receiver for vote in votes(elector.tick(PROMPT_MS + TICK_MS))} == {2, 3}
    other = linked(Solo(), claim_of(2, 2, 3))
    assert other.tick(10_000) == []
    assert asked(other, 3), "node 3 asks with an empty log, and is an elector"


def test_a_founding_that_shares_an_elector_refutes_the_one_before() -> None:
    solo = linked(Solo(), claim_of(2, 2, 9))
    assert asked(solo, 3, cluster_id=CLUSTER_ID, elected_by=(3, 9))


@pytest.mark.parametrize("by_answer", [True, False])
def test_a_founding_is_told_in_elections_too(by_answer: bool) -> None:
    """The hello is older than the entry."""
    solo = linked(Solo())
    solo.campaign()
    if by_answer:
        solo.hear(VoteReply(0, 2, 1, True, False, 2, EXISTING, electors(2, 9)))
    else:
        asked(solo, 2, cluster_id=EXISTING, elected_by=(2, 9))
    assert solo.role() is Role.FOLLOWER
    assert votes(solo.tick(10_000)) == []
    assert not asked(solo, 3)


def test_requests_and_answers_say_what_the_own_log_holds() -> None:
    solo = Solo([1], unrecorded=[3])
    (vote, *_) = votes(solo.tick(2 * PATIENCE_MS))
    assert (vote.cluster_id, vote.electors) == (CLUSTER_ID, electors(1, 2))
    (reply,) = [each for each in solo.hear(Vote(9, 3, 1, True, False, 0, 0)) if isinstance(each, VoteReply)]
    assert (reply.cluster_id, reply.electors) == (CLUSTER_ID, electors(1, 2))
    solo.hear(Append(1, 2, 1, 1, 1, 1, False, ()))
    assert solo.raft.claim == Claim(CLUSTER_ID, ""), "it is committed, and nobody refutes it"
    assert Solo().raft.claim is None


def test_an_election_under_way_ends_when_a_log_with_a_founding_is_met() -> None:
    solo = Solo()
    solo.campaign()
    solo.step(claim_of(2, 2, 9))
    assert solo.role() is Role.FOLLOWER


def test_a_founding_in_a_log_that_is_gone_holds_up_nobody() -> None:
    solo = linked(Solo(), claim_of(2, 2, 9), ClusterMet(2, ""))
    assert votes(solo.tick(PROMPT_MS + TICK_MS))


@pytest.mark.parametrize(("elected_by", "acknowledged"), [((2, 9), True), ((8, 9), False)])
def test_a_founding_beside_another_is_acknowledged_if_they_share_an_elector(
    elected_by: tuple[int, ...], acknowledged: bool
) -> None:
    """It had voted for node 3 before it heard of the other one; nodes 2 and 3 elected node 3."""
    solo = linked(Solo(), claim_of(2, *elected_by))
    sent = solo.hear(Heartbeat(1, 3, 1, 0, 0.0, -1.0, CLUSTER_ID, CLUSTER_ID), incarnation_of(3))
    sent += solo.hear(Append(1, 3, 1, 0, 0, 0, True, (founding_of(3),)), incarnation_of(3)) + solo.sync()
    matches = [reply.match_index for reply in sent if isinstance(reply, AppendReply)]
    assert matches == ([1] if acknowledged else [])


def test_a_heartbeat_names_the_cluster_that_the_hello_did_not_know_yet() -> None:
    """Node 1 was linked before it knew its cluster, which this founder has met through node 2 since."""
    solo = Solo(node_id=3)
    solo.step(PeerUp(1))
    solo.step(ClusterMet(2, CLUSTER_ID))
    assert solo.hear(Heartbeat(1, 1, 3, 0, 7.0), incarnation_of(1)) == [], "which one it leads is not known"
    solo.sync()
    (reply,) = solo.hear(Heartbeat(1, 1, 3, 0, 8.0, -1.0, CLUSTER_ID), incarnation_of(1))
    assert isinstance(reply, HeartbeatReply)
    assert reply.sent_ms == 8.0
    assert solo.hear(Heartbeat(1, 1, 3, 0, 9.0, -1.0, EXISTING), incarnation_of(1)) == [], "another one"


def test_a_heartbeat_alone_holds_up_no_founding() -> None:
    """What only a leader holds is not acknowledged: this one may be gone for good."""
    solo = linked(Solo())
    solo.hear(Heartbeat(1, 3, 1, 0, 0.0, -1.0, EXISTING, EXISTING), incarnation_of(3))
    solo.sync()
    assert votes(solo.tick(3 * PATIENCE_MS))


def test_a_leader_names_the_cluster_of_its_log_in_heartbeats() -> None:
    solo = Solo()
    sent = solo.lead(elector=2) + solo.sync() + solo.tick(10 * TICK_MS)
    named = {(each.cluster_id, each.founding_id) for each in sent if isinstance(each, Heartbeat)}
    assert named == {(CLUSTER_ID, CLUSTER_ID)}


def rival(*recorded: str) -> Entry:
    """Return another cluster's founding by nodes 1..3 with these incarnations."""
    voters = {node_id: Member(f"127.0.0.1:{node_id}", each) for node_id, each in enumerate(recorded, 1)}
    plain = Configuration(EXISTING, voters, {}, ()).to_plain()
    return Entry(1, 2, EntryKind.FOUND, 1, json.dumps({**plain, "session_key": "5" * 64}).encode())


@pytest.mark.parametrize("recorded", [("", 2, 3), (7, 2, "")])
def test_a_founding_gives_way_to_another_one_that_shares_an_elector(recorded: tuple[int | str, ...]) -> None:
    """Nodes 1 and 2 elected the first founder."""
    solo = Solo([1], unrecorded=[3])
    named = (each if isinstance(each, str) else incarnation_of(each) for each in recorded)
    solo.hear(Append(2, 3, 1, 0, 0, 0, True, (rival(*named),)), incarnation_of(3))
    assert solo.raft.configuration_at(1) is not None
    assert solo.raft.claim is not None
    assert solo.raft.claim.cluster_id == EXISTING


@pytest.mark.parametrize("term", [1, 2])
def test_a_founding_does_not_give_way_to_one_that_another_disk_made(term: int) -> None:
    """Node 2 voted in the first; its disk was lost, and it founded another with node 3, even in one term."""
    solo = Solo([1], unrecorded=[3])
    founding = rival("", "9" * 32, incarnation_of(3))._replace(term=term)
    with pytest.raises(InvariantError, match="after a disk of the first one's founders was lost"):
        solo.hear(Append(2, 3, 1, 0, 0, 0, True, (founding,)), incarnation_of(3))


def test_equal_term_and_index_prove_nothing_to_a_log_of_another_founding() -> None:
    solo = Solo([1, 1], unrecorded=[3])
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0, -1.0, EXISTING, EXISTING), incarnation_of(3))
    solo.sync()
    (reply,) = solo.hear(Append(2, 3, 1, 2, 1, 0, True, ()), incarnation_of(3))
    assert isinstance(reply, AppendReply)
    assert (reply.rejected, reply.hint_index) == (True, 0)


@pytest.mark.parametrize(
    ("named", "founding"), [("", ""), (CLUSTER_ID, CLUSTER_ID), (EXISTING, CLUSTER_ID), (EXISTING, "")]
)
def test_equal_term_and_index_are_a_match_within_a_cluster(named: str, founding: str) -> None:
    """A forced start gives it another name; a log that is compacted does not tell its founding any more."""
    solo = Solo([1, 1], unrecorded=[3])
    solo.hear(Heartbeat(2, 3, 1, 0, 0.0, -1.0, named, founding), incarnation_of(3))
    solo.sync()
    (reply,) = solo.hear(Append(2, 3, 1, 2, 1, 0, True, ()), incarnation_of(3))
    assert isinstance(reply, AppendReply)
    assert (reply.rejected, reply.match_index) == (False, 2)


def test_a_cluster_that_was_founded_is_not_in_doubt() -> None:
    solo = Solo([1])
    solo.hear(Append(1, 2, 1, 1, 1, 1, False, ()))
    assert solo.raft.status().commit_index == 1
    solo.step(ClusterMet(3, EXISTING))
    assert votes(solo.tick(2 * PATIENCE_MS))


def test_a_restarted_founder_knows_its_own_cluster_when_it_meets_it() -> None:
    solo = Solo([1])
    solo.step(ClusterMet(2, CLUSTER_ID))
    assert votes(solo.tick(2 * PATIENCE_MS))


def test_a_late_founder_follows_the_cluster_that_it_met() -> None:
    late = Solo(node_id=3)
    late.step(ClusterMet(1, CLUSTER_ID))
    late.hear(Append(1, 1, 3, 0, 0, 1, True, (founding_of(1),)), incarnation_of(1))
    late.sync()
    assert late.raft.status().commit_index == 1


def test_a_node_that_is_refused_again_and_again_slows_down_to_the_election_timeout() -> None:
    """As one that was removed while it was down: nobody tells it."""
    solo = Solo([1])
    asked_ms: list[float] = []
    while len(asked_ms) < 16:
        if votes(solo.step(Tick(), TICK_MS)):
            asked_ms.append(solo.now_ms)
            for peer in (2, 3):
                solo.hear(VoteReply(1, peer, 1, True, False, 2))
    pauses = [later - earlier for earlier, later in itertools.pairwise(asked_ms)]
    assert max(pauses[:3]) <= Options().retry_delay_max_ms + TICK_MS, (
        "at once as long as it may be an accident"
    )
    assert min(pauses[-4:]) >= Options().election_timeout_min_ms

    # A leader that is heard and lost again is a fresh reason.
    solo.hear(Append(1, 2, 1, 1, 1, 0, False, ()))
    again_ms: list[float] = []
    while len(again_ms) < 3:
        if votes(solo.step(Tick(), TICK_MS)):
            again_ms.append(solo.now_ms)
            solo.hear(VoteReply(1, 2, 1, True, False, 2))
    assert again_ms[2] - again_ms[1] <= Options().retry_delay_max_ms + TICK_MS
