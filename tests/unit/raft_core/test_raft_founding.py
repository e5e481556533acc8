"""Founders with empty logs: when they may found a cluster, and that they never found a second one."""

from __future__ import annotations

import itertools

import pytest

from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import MessageError
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    HardState,
    Message,
    PeerUp,
    Role,
    SnapshotMark,
    Tick,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from tests.unit.raft_core.disk import TICK_MS, incarnation_of
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo

EXISTING = "e" * 32
OTHER = "f" * 32
PROMPT_MS = Options().prompt_delay_max_ms
FOUNDERS = tuple(incarnation_of(node_id) for node_id in (1, 2, 3))


def votes(messages: list[Message]) -> list[Vote]:
    return [message for message in messages if isinstance(message, Vote)]


def granted(
    solo: Solo, *, pre: bool, founders: tuple[str, ...] = FOUNDERS, last: tuple[int, int] = (0, 0)
) -> bool:
    """Have node 2 ask for a vote in the next term and return the answer."""
    term = solo.raft.status().term + 1
    messages = solo.hear(Vote(term, 2, solo.node_id, pre, False, *last, founders))
    messages += solo.sync()
    (reply,) = [message for message in messages if isinstance(message, VoteReply)]
    return reply.granted


def founding_of(node_id: int) -> Entry:
    """Return the first entry of a cluster that all founders made."""
    donor = Solo(node_id=node_id)
    donor.lead(elector=2 if node_id != 2 else 1)
    (founding,) = donor.unsynced[-1].entries
    assert founding.kind is EntryKind.FOUND
    return founding


def test_a_founder_hears_of_every_other_one_before_it_campaigns() -> None:
    solo = Solo(met=False)
    for stimulus in (PeerUp(2), PeerUp(3)):
        solo.step(stimulus)
    solo.meet(2)
    assert solo.raft.founding_obstacles == ({}, (3,))
    assert solo.tick(10_000) == []
    solo.meet(3)
    asked = votes(solo.tick(PROMPT_MS + TICK_MS))
    assert [(vote.receiver, vote.founders) for vote in asked] == [(2, FOUNDERS), (3, FOUNDERS)]


@pytest.mark.parametrize("pre", [True, False])
def test_a_founder_hears_of_every_other_one_before_it_votes(pre: bool) -> None:
    solo = Solo(met=False)
    solo.meet(2)
    assert not granted(solo, pre=pre)
    solo.meet(3)
    assert granted(solo, pre=pre)


@pytest.mark.parametrize("pre", [True, False])
def test_two_founders_mean_the_same_disks_or_found_nothing(pre: bool) -> None:
    solo = Solo()
    assert not granted(solo, pre=pre, founders=(*FOUNDERS[:2], OTHER))
    assert not granted(solo, pre=pre, founders=FOUNDERS[:2])
    assert not granted(solo, pre=pre, founders=())
    solo.meet(3, OTHER)
    assert not granted(solo, pre=pre)
    assert granted(solo, pre=pre, founders=(*FOUNDERS[:2], OTHER))


@pytest.mark.parametrize("pre", [True, False])
def test_beside_a_founder_that_holds_a_log_nobody_founds(pre: bool) -> None:
    solo = Solo()
    solo.meet(3, founding_term=None)
    assert not granted(solo, pre=pre)
    assert solo.tick(10_000) == []
    solo.meet(3)
    assert granted(solo, pre=pre), "it lost what nobody acknowledged"


@pytest.mark.parametrize("peer", [3, 9])
def test_beside_a_cluster_nobody_founds(peer: int) -> None:
    """Also if who belongs to it is none of the founders."""
    solo = Solo()
    solo.meet(peer, founding_term=None, cluster_id=EXISTING)
    assert solo.raft.founding_obstacles[0] == {peer: EXISTING}
    assert solo.tick(10_000) == []
    assert not granted(solo, pre=True)


def test_an_election_ends_when_a_founder_has_another_disk() -> None:
    """Those who voted meant the one before."""
    for incarnation, founding_term in ((OTHER, 0), (incarnation_of(3), None)):
        solo = Solo()
        solo.campaign()
        solo.hear(VoteReply(0, 2, 1, True, True, 1))
        assert solo.role() is Role.CANDIDATE
        solo.meet(3, incarnation, founding_term)
        assert solo.role() is Role.FOLLOWER
        solo.sync()
        solo.hear(VoteReply(1, 2, 1, False, True, 1))
        assert solo.role() is Role.FOLLOWER


def test_a_founder_votes_in_no_term_of_an_earlier_disk() -> None:
    """Node 2 campaigns in term 4 and may hold the vote of the disk that node 1 had before."""
    solo = Solo(met=False)
    solo.meet(2, founding_term=4)
    solo.meet(3)
    assert solo.raft.status().term == 5
    solo = Solo(hard_state=HardState(4, 2))
    solo.meet(3, OTHER, founding_term=4)
    assert solo.raft.status().term == 4, "this disk has voted itself"


def test_a_founder_votes_for_who_has_a_log() -> None:
    """That log may name this very disk, and need its vote."""
    assert granted(Solo(met=False), pre=True, founders=(), last=(4, 1))


def test_who_joins_votes_and_campaigns_only_once_it_is_named() -> None:
    solo = Solo(founders={})
    assert solo.raft.founding_term is None
    assert not granted(solo, pre=True, founders=())
    assert not granted(solo, pre=True, founders=(), last=(4, 1))
    assert solo.tick(10_000) == []


def test_a_founder_with_an_empty_log_follows_who_founded() -> None:
    solo = Solo(met=False)
    sent = solo.hear(Append(1, 3, 1, 0, 0, 1, True, (founding_of(3),))) + solo.sync()
    assert [reply.match_index for reply in sent if isinstance(reply, AppendReply)] == [1]
    assert solo.raft.status().commit_index == 1
    assert solo.raft.founding_term is None


def test_a_founding_that_did_not_commit_gives_way() -> None:
    """The others founded without its disk's knowledge, with the same disks."""
    solo = Solo()
    solo.lead(elector=2)
    solo.sync()
    founding = founding_of(3)._replace(term=2)
    solo.hear(Append(2, 3, 1, 0, 0, 1, True, (founding,)))
    solo.sync()
    assert solo.committed == [founding]


def test_nobody_founds_before_the_last_founder_came() -> None:
    world = World(3, start=[1, 2])
    world.run_for(20_000)
    assert world.committed == {}
    world.start(3)
    world.await_(world.stable)
    founding = world.processes[1].raft.configuration_at(1)
    assert founding is not None
    assert {node_id: member.incarnation for node_id, member in founding.voters.items()} == world.incarnations


@pytest.mark.parametrize("lost", [(1,), (1, 2), (2, 3)])
def test_founders_with_lost_disks_never_found_beside_an_absent_one(lost: tuple[int, ...]) -> None:
    world = World(7)
    world.await_(world.stable)
    for node_id in world.ids:
        world.crash(node_id)
    for node_id in lost:
        world.wipe(node_id)
        world.start(node_id)
    world.run_for(20_000)
    assert all(world.disks[node_id].last_index == 0 for node_id in lost)


def test_founders_start_again_until_they_founded() -> None:
    world = World(5, start=[1, 2])
    world.run_for(1000)
    world.crash(2)
    world.wipe(2)
    world.start(3)
    world.run_for(1000)
    world.start(2)
    world.await_(world.stable)


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


# -- founders with a restored state ------------------------------------------------------------------------


def obstacles(solo: Solo) -> tuple[dict[int, str], tuple[int, ...]]:
    clusters, missing = solo.raft.founding_obstacles
    return dict(clusters), missing


def restored(*, met: bool = True) -> Solo:
    """Node 1 with a state of entry 5 and term 2, which is the cluster EXISTING from its founding on."""
    mark = SnapshotMark(5, 2, 0, None)
    solo = Solo(met=False, snapshot=mark, hard_state=HardState(2, 0), cluster_id=EXISTING)
    for peer in (2, 3) if met else ():
        solo.meet(peer, founding_term=2, cluster_id=EXISTING)
    solo.sync()
    return solo


def test_restored_founders_found_behind_their_state() -> None:
    solo = restored()
    solo.lead()
    (founding,) = solo.unsynced[-1].entries
    assert (founding.index, founding.kind) == (6, EntryKind.FOUND)
    assert solo.raft.founding_term is None


@pytest.mark.parametrize("pre", [True, False])
def test_a_restored_founder_votes_for_another_one_that_means_the_same(pre: bool) -> None:
    assert granted(restored(), pre=pre, last=(5, 2))
    assert not granted(restored(), pre=pre, last=(5, 2), founders=(*FOUNDERS[:2], OTHER))
    assert not granted(restored(met=False), pre=pre, last=(5, 2))


def test_a_restored_founder_waits_for_one_without_its_state() -> None:
    solo = restored()
    solo.meet(3)
    assert obstacles(solo) == ({}, (3,))
    solo.meet(3, founding_term=2, cluster_id=OTHER)
    assert obstacles(solo) == ({3: OTHER}, (3,))
    solo.meet(3, founding_term=2, cluster_id=EXISTING)
    assert obstacles(solo) == ({}, ())
    # One that has founded with others meanwhile.
    solo.meet(3, founding_term=None, cluster_id=EXISTING)
    assert obstacles(solo) == ({3: EXISTING}, (3,))


def test_an_empty_founder_does_not_found_with_a_restored_one() -> None:
    solo = Solo(met=False)
    solo.meet(2)
    solo.meet(3, founding_term=2, cluster_id=EXISTING)
    assert obstacles(solo) == ({3: EXISTING}, (3,))
    assert solo.tick(10_000) == []


def test_a_founding_behind_a_restored_state_is_taken_once() -> None:
    solo = restored()
    first, second = (founding_of(2)._replace(index=index, term=3) for index in (6, 7))
    solo.hear(Append(3, 2, 1, 5, 2, 5, False, (first,)))
    assert solo.raft.configuration is not None
    with pytest.raises(MessageError, match="the first entry founds the cluster, and no other one does"):
        solo.hear(Append(3, 2, 1, 6, 3, 5, False, (second,)))
