"""Founding, incarnations and configurations of the log: who counts, and from when on."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from quorum.raft.core.configuration import Configuration, Member, parse_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    DurableLog,
    HardState,
    HeartbeatReply,
    Message,
    Persisted,
    Receive,
    Role,
    Tick,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from tests.unit.raft_core.disk import CLUSTER_ID, SESSION_KEY, Disk, incarnation_of
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo

OTHER = "f" * 32


def kinds(world: World) -> list[EntryKind]:
    return [EntryKind(row[2]) for _, row in sorted(world.committed.items())]


def recorded(payload: bytes) -> dict[int, str]:
    return {node_id: member.incarnation for node_id, member in parse_configuration(payload).voters.items()}


def voters_of(solo: Solo, index: int) -> dict[int, str]:
    configuration = solo.raft.configuration_at(index)
    assert configuration is not None
    return {node_id: member.incarnation for node_id, member in configuration.voters.items()}


def ack(term: int, sender: int, match_index: int, receiver: int = 1) -> AppendReply:
    return AppendReply(term, sender, receiver, False, 0, match_index, 0, 0)


# --- founding


def test_entry_1_names_all_founders_and_their_disks() -> None:
    solo = Solo()
    solo.lead(elector=2)
    (entry,) = solo.unsynced[-1].entries
    assert (entry.index, entry.kind) == (1, EntryKind.FOUND)
    plain = json.loads(entry.payload)
    assert (plain["cluster_id"], plain["session_key"]) == (CLUSTER_ID, SESSION_KEY)
    assert recorded(entry.payload) == {node_id: incarnation_of(node_id) for node_id in (1, 2, 3)}


def test_votes_of_disks_that_are_not_named_do_not_count() -> None:
    for solo, term in ((Solo(), 0), (Solo([1]), 1)):
        solo.campaign()
        solo.hear(VoteReply(term, 3, 1, True, True, term + 1), OTHER)
        assert solo.role() is Role.PRE_CANDIDATE


@pytest.mark.parametrize(("named", "granted"), [(incarnation_of(1), True), (OTHER, False)])
def test_a_node_that_the_log_names_by_another_incarnation_does_not_vote(named: str, granted: bool) -> None:
    solo = Solo()
    members = {
        1: Member("h:1", named),
        2: Member("h:2", incarnation_of(2)),
        3: Member("h:3", incarnation_of(3)),
    }
    payload = Configuration(CLUSTER_ID, members, {}, ()).to_payload()
    solo.hear(Append(1, 2, 1, 0, 0, 0, False, (Entry(1, 1, EntryKind.FOUND, 0, payload),)))
    solo.sync()
    replies = solo.hear(Vote(2, 3, 1, False, True, 1, 1)) + solo.sync()
    assert [reply.granted for reply in replies if isinstance(reply, VoteReply)] == [granted]


def test_a_founding_payload_that_says_something_else_stops_the_node() -> None:
    disk = Disk()
    raft = Raft(
        options=Options(),
        node_id=1,
        incarnation=incarnation_of(1),
        hard_state=HardState(0, 0),
        log=DurableLog(1, 0, (), (), (), 0),
        snapshot=None,
        founders={1: "h:1"},
        found=lambda configuration: configuration._replace(
            cluster_id=CLUSTER_ID, voters={2: Member("h:2", OTHER)}
        ).to_payload(),
        reader=disk,
        rng=random.Random(1),
        now_ms=0.0,
    )
    for now_ms in (0.0, 25.0, 50.0):
        raft.step(Tick(), now_ms)
    raft.ready()
    with pytest.raises(InvariantError, match="founding payload"):
        raft.step(Persisted(1), 60.0)


# --- a late founder


def test_another_incarnation_of_a_recorded_voter_does_not_count() -> None:
    solo = Solo([1])
    solo.lead(elector=2)
    solo.sync()
    solo.hear(ack(2, 3, 2), OTHER)
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2), OTHER)
    status = solo.raft.status()
    assert status.commit_index == 0
    assert [peer.match_index for peer in status.peers] == [0, 0]
    for _ in range(10):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2), OTHER)
    assert solo.role() is Role.FOLLOWER  # it keeps nobody in office either


@pytest.mark.parametrize(("seed", "pair"), list(enumerate(itertools.combinations((1, 2, 3), 2))))
def test_any_two_nodes_carry_on_after_all_were_killed(seed: int, pair: tuple[int, int]) -> None:
    world = World(seed)
    world.await_(world.stable)
    world.run_for(100)
    assert world.propose(world.leader() or 0, 3)
    world.await_(world.stable)
    for node_id in world.ids:
        world.crash(node_id)
    for node_id in pair:
        world.start(node_id)
    world.await_(lambda: world.leader() is not None and world.propose(world.leader() or 0))
    world.await_(world.stable)


@pytest.mark.parametrize("seed", range(5))
def test_a_voter_that_lost_its_disk_does_not_count(seed: int) -> None:
    world = World(seed)
    world.await_(world.stable)
    world.run_for(100)
    victims = [node_id for node_id in world.ids if node_id != world.leader()]
    world.crash(victims[0])
    world.wipe(victims[0])
    world.start(victims[0])
    world.crash(victims[1])
    leader = world.leader()
    assert leader is not None
    world.propose(leader, 3)
    committed = len(world.committed)
    world.run_for(5000)
    assert len(world.committed) == committed
    assert world.leader() is None
    world.start(victims[1])
    world.await_(lambda: world.leader() is not None and world.propose(world.leader() or 0))
    world.await_(lambda: len(world.committed) > committed)
    world.check_logs()


# --- configurations count from their append and fall with their truncation


def test_a_configuration_counts_from_its_append_and_falls_with_its_truncation() -> None:
    solo = Solo([1])
    before = solo.raft.configuration_at(1)
    assert before is not None
    named = before.with_learner(4, "h:4").with_voter(4, incarnation_of(4))
    entry = Entry(2, 2, EntryKind.MEMBERS, 0, named.to_payload())
    solo.raft.step(Receive(Append(2, 2, 1, 1, 1, 0, False, (entry,)), incarnation_of(2)), solo.now_ms)
    ready = solo.raft.ready()
    assert ready is not None
    assert ready.configuration == named
    assert solo.raft.status().configuration_index == 2
    other = Entry(2, 3, EntryKind.BATCH, 0, b"x")
    solo.raft.step(Receive(Append(3, 3, 1, 1, 1, 0, False, (other,)), incarnation_of(3)), solo.now_ms)
    ready = solo.raft.ready()
    assert ready is not None
    assert ready.configuration == before
    assert solo.raft.status().configuration_index == 1


def test_learners_are_replicated_to_and_do_not_count() -> None:
    solo = Solo([1])
    base = solo.raft.configuration_at(1)
    assert base is not None
    learning = base.with_learner(4, "h:4")
    solo.hear(Append(1, 2, 1, 1, 1, 0, False, (Entry(2, 1, EntryKind.MEMBERS, 0, learning.to_payload()),)))
    solo.sync()
    sent: list[Message] = solo.lead()
    assert [message.receiver for message in sent if isinstance(message, Append)] == [2, 3]
    sent = solo.hear(HeartbeatReply(2, 4, 1, 0.0, 0))
    assert [message.receiver for message in sent if isinstance(message, Append)] == [4]
    solo.sync()
    solo.hear(ack(2, 4, 3))
    assert solo.raft.status().commit_index == 0
    (learner,) = [peer for peer in solo.raft.status().peers if peer.node_id == 4]
    assert (learner.voter, learner.counts, learner.match_index) == (False, False, 3)
    solo.hear(ack(2, 2, 3))
    assert solo.raft.status().commit_index == 3
