"""Founding, incarnations and configurations of the log: who counts, and from when on."""

from __future__ import annotations

import itertools
import json
import random

import pytest

from quorum.raft.core.configuration import Configuration, Member, parse_configuration
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, EntryKind
from quorum.raft.core.errors import InvariantError
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Compacted,
    DurableLog,
    HardState,
    HeartbeatReply,
    Message,
    PeerDown,
    Persisted,
    Receive,
    Role,
    SnapshotChunk,
    SnapshotInstalled,
    SnapshotMark,
    Tick,
    Transfer,
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


def test_entry_1_names_the_first_leader_and_those_who_elected_it() -> None:
    solo = Solo()
    solo.lead(elector=2)
    (entry,) = solo.unsynced[-1].entries
    assert (entry.index, entry.kind) == (1, EntryKind.FOUND)
    plain = json.loads(entry.payload)
    assert (plain["cluster_id"], plain["session_key"]) == (CLUSTER_ID, SESSION_KEY)
    assert recorded(entry.payload) == {1: incarnation_of(1), 2: incarnation_of(2), 3: ""}


def test_only_an_empty_log_counts_votes_of_unrecorded_incarnations() -> None:
    empty = Solo()
    empty.campaign()
    empty.hear(VoteReply(0, 3, 1, True, True, 1), OTHER)
    assert empty.role() is Role.CANDIDATE
    for unrecorded, incarnation in (((3,), OTHER), ((), OTHER)):
        solo = Solo([1], unrecorded=unrecorded)
        solo.campaign()
        solo.hear(VoteReply(1, 3, 1, True, True, 2), incarnation)
        assert solo.role() is Role.PRE_CANDIDATE
        assert solo.raft.status().refused == ((3, OTHER),)


def test_whoever_is_refused_is_forgotten_once_it_is_no_member() -> None:
    solo = Solo([1])
    solo.campaign()
    solo.hear(VoteReply(1, 3, 1, True, True, 2), OTHER)
    assert solo.raft.status().refused == ((3, OTHER),)
    for index, node_id in enumerate((4, 5, 6), 2):
        members = {each: Member(f"h:{each}", incarnation_of(each)) for each in (1, 2, node_id)}
        payload = Configuration(CLUSTER_ID, members, {}, ()).to_payload()
        term = solo.raft.status().term + 1
        entry = Entry(index, term, EntryKind.MEMBERS, 0, payload)
        previous = solo.log()[-1]
        solo.hear(Append(term, 2, 1, *previous, 0, False, (entry,)))
        solo.sync()
        solo.campaign()
        solo.hear(VoteReply(term, node_id, 1, True, True, term + 1), OTHER)
        assert solo.raft.status().refused == ((node_id, OTHER),)


def test_a_node_whose_own_incarnation_the_log_does_not_name_never_campaigns() -> None:
    assert Solo([1], unrecorded=(1,)).tick(3000) == []


@pytest.mark.parametrize(("named", "granted"), [("", True), (incarnation_of(1), True), (OTHER, False)])
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
            cluster_id=CLUSTER_ID, voters={2: Member("h:2", "")}
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


def test_an_uncommitted_founding_gives_way_to_another() -> None:
    solo = Solo()
    solo.lead(elector=2)
    solo.sync()
    assert voters_of(solo, 1)[3] == ""
    members = {peer: Member(f"h:{peer}", incarnation_of(peer) if peer != 1 else "") for peer in (1, 2, 3)}
    payload = Configuration("d" * 32, members, {}, ()).to_payload()
    solo.hear(Append(2, 3, 1, 0, 0, 1, True, (Entry(1, 2, EntryKind.FOUND, 0, payload),)))
    solo.sync()
    assert voters_of(solo, 1) == {1: "", 2: incarnation_of(2), 3: incarnation_of(3)}
    assert solo.committed[0].payload == payload


# --- a late founder


def leader_with_a_late_founder() -> Solo:
    """Leads term 2 with entries 1 (names 1 and 2) and 2 (its no-op); node 3 was not heard yet."""
    solo = Solo([1], unrecorded=(3,))
    solo.lead(elector=2)
    solo.sync()
    return solo


def test_a_late_founder_is_recorded_after_the_no_op_and_counts_once_that_is_committed() -> None:
    solo = leader_with_a_late_founder()
    solo.hear(ack(2, 3, 2))
    assert solo.raft.status().last_index == 2
    assert solo.raft.status().commit_index == 0
    solo.hear(ack(2, 2, 2))
    status = solo.raft.status()
    assert (status.commit_index, status.last_index) == (2, 3)
    assert voters_of(solo, 3)[3] == incarnation_of(3)
    # The entry that names node 3 is not committed by node 3 ...
    solo.sync()
    solo.hear(ack(2, 3, 3))
    assert solo.raft.status().commit_index == 2
    solo.hear(ack(2, 2, 3))
    assert solo.raft.status().commit_index == 3
    # ... but the next one is, which repeats it as a proof for restarts.
    solo.sync()
    solo.hear(ack(2, 3, 4))
    status = solo.raft.status()
    assert (status.commit_index, status.last_index) == (4, 4)
    assert [entry.kind for entry in solo.committed[2:]] == [EntryKind.INCARNATION] * 2
    assert solo.committed[2].payload == solo.committed[3].payload


def test_nobody_is_recorded_before_the_no_op_of_the_term_is_committed() -> None:
    solo = Solo([1], unrecorded=(3,))
    solo.hear(Append(1, 2, 1, 1, 1, 1, True, ()))
    assert solo.raft.status().commit_index == 1
    solo.lead(elector=2)
    solo.hear(ack(2, 3, 0))
    assert solo.raft.status().last_index == 2


def test_founders_are_recorded_one_at_a_time() -> None:
    solo = Solo([1], nodes=5, unrecorded=(4, 5))
    solo.campaign()
    for peer in (2, 3):
        solo.hear(VoteReply(1, peer, 1, True, True, 2))
    solo.sync()
    for peer in (2, 3):
        solo.hear(VoteReply(2, peer, 1, False, True, 2))
    solo.sync()
    for peer in (4, 2, 3, 5):
        solo.hear(ack(2, peer, 2))
    assert solo.raft.status().last_index == 3
    assert [peer for peer, incarnation in voters_of(solo, 3).items() if not incarnation] == [5]
    for index in (3, 4):
        solo.sync()
        for peer in (2, 3):
            solo.hear(ack(2, peer, index))
    assert voters_of(solo, 4)[5] == incarnation_of(5)


def test_nothing_is_recorded_while_leadership_is_handed_over() -> None:
    solo = leader_with_a_late_founder()
    solo.hear(ack(2, 2, 2))
    solo.step(Transfer(2))
    solo.hear(ack(2, 3, 2))
    assert solo.raft.status().last_index == 2
    for _ in range(13):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 2, 1, 0.0, 2))
    assert solo.raft.status().last_index == 3


def test_progress_belongs_to_an_incarnation() -> None:
    solo = leader_with_a_late_founder()
    solo.hear(ack(2, 3, 2))
    assert [peer.match_index for peer in solo.raft.status().peers] == [0, 2]
    solo.hear(HeartbeatReply(2, 3, 1, 0.0, 0), OTHER)
    (peer,) = [peer for peer in solo.raft.status().peers if peer.node_id == 3]
    assert (peer.incarnation, peer.match_index, peer.counts) == (OTHER, 0, False)


def test_another_incarnation_of_a_recorded_voter_is_refused_and_reported() -> None:
    solo = Solo([1])
    solo.lead(elector=2)
    solo.sync()
    solo.hear(ack(2, 3, 2), OTHER)
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2), OTHER)
    status = solo.raft.status()
    assert (status.commit_index, status.refused) == (0, ((3, OTHER),))
    assert [peer.match_index for peer in status.peers] == [0, 0]
    for _ in range(10):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 2), OTHER)
    assert solo.role() is Role.FOLLOWER  # it keeps nobody in office either


@pytest.mark.parametrize("late", [1, 2, 3])
def test_a_founder_that_starts_late_is_recorded_and_proven(late: int) -> None:
    world = World(late, start=[node_id for node_id in (1, 2, 3) if node_id != late])
    world.await_(world.stable)
    world.run_for(500)
    assert kinds(world) == [EntryKind.FOUND]
    world.start(late)
    world.await_(world.stable)
    world.run_for(100)
    assert kinds(world) == [EntryKind.FOUND, EntryKind.INCARNATION, EntryKind.INCARNATION]
    assert "" not in recorded(bytes.fromhex(world.committed[3][3])).values()


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
    solo = Solo([1], unrecorded=(3,))
    before = solo.raft.configuration_at(1)
    assert before is not None
    named = before.with_incarnation(3, incarnation_of(3))
    entry = Entry(2, 2, EntryKind.INCARNATION, 0, named.to_payload())
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


def test_a_restarted_node_has_the_configuration_of_its_log() -> None:
    world = World(2, start=[1, 2])
    world.await_(world.stable)
    world.start(3)
    world.await_(world.stable)
    world.run_for(100)
    world.crash(1)
    assert [entry.kind for entry in world.disks[1].entries if entry.kind in CONFIGURATION_KINDS][1:] == [
        EntryKind.INCARNATION
    ] * 2
    process = world.start(1)
    configuration = process.raft.configuration_at(3)
    assert configuration is not None
    assert configuration.voters[3].incarnation == incarnation_of(3)
    first = process.raft.configuration_at(1)
    assert first is not None
    assert first.voters[3].incarnation == ""


def stuck_majority(repeats: int) -> Solo:
    """Node 3 leads term 2, and node 2 has all of its log; node 1 is gone. Entry 2 records node 3."""
    base = Solo([1], unrecorded=(3,)).raft.configuration_at(1)
    assert base is not None
    payload = base.with_incarnation(3, incarnation_of(3)).to_payload()
    solo = Solo([1], node_id=3, unrecorded=(3,))
    entries = tuple(Entry(2 + each, 1, EntryKind.INCARNATION, 0, payload) for each in range(1 + repeats))
    solo.hear(Append(1, 1, 3, 1, 1, 0, False, entries))
    solo.sync()
    solo.step(PeerDown(1))
    solo.lead()
    solo.sync()
    solo.hear(ack(2, 2, solo.raft.status().last_index, 3))
    return solo


def test_a_restarted_majority_that_needs_a_late_founder_needs_the_proof() -> None:
    """Why the record is repeated: who holds but the record cannot count by it."""
    assert stuck_majority(0).raft.status().commit_index == 0
    assert stuck_majority(1).raft.status().commit_index == 4


def incarnation_entries(solo: Solo) -> list[int]:
    entries = [entry for persist in solo.unsynced for entry in persist.entries]
    return [entry.index for entry in entries if entry.kind is EntryKind.INCARNATION]


@pytest.mark.parametrize("how", ["restarted from it", "installed it"])
def test_a_leader_whose_configuration_came_by_a_snapshot_repeats_it_once(how: str) -> None:
    """It cannot tell whether the others hold the proof, or just the entry that names a late founder."""
    base = Solo([1]).raft.configuration_at(1)
    assert base is not None
    mark = SnapshotMark(4, 1, 0, base)
    if how == "restarted from it":
        solo = Solo([1, 1, 1, 1], snapshot=mark)
    else:
        solo = Solo([1])
        solo.hear(SnapshotChunk(1, 2, 1, 1, 4, 1, 0, 1, b"x"))
        solo.step(SnapshotInstalled(1, 4, 1, 0, base))
        solo.step(PeerDown(2))
    solo.lead()
    assert incarnation_entries(solo) == []
    solo.sync()
    solo.hear(ack(2, 2, 5))
    assert (incarnation_entries(solo), solo.raft.status().commit_index) == ([6], 5)
    solo.sync()
    solo.hear(ack(2, 2, 6))
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 6))
    solo.raft.propose(EntryKind.BATCH, b"", 0)
    solo.drain()
    solo.sync()
    solo.hear(ack(2, 2, 7))
    solo.step(Compacted(8))
    solo.raft.propose(EntryKind.BATCH, b"", 0)
    solo.drain()
    solo.sync()
    solo.hear(ack(2, 2, 8))
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 8))
    status = solo.raft.status()
    assert (status.commit_index, status.last_index) == (8, 8), "what is compacted stays proven"


def test_compaction_keeps_in_mind_that_a_proof_is_missing() -> None:
    """Leadership is handed over just then, so the proof has to wait; the snapshot must not swallow it."""
    solo = Solo([1], unrecorded=(3,))
    solo.lead()
    solo.sync()
    solo.hear(ack(2, 2, 2))
    solo.hear(HeartbeatReply(2, 3, 1, solo.now_ms, 0))  # entry 3 records it
    solo.sync()
    solo.step(Transfer(2))
    solo.hear(ack(2, 2, 3))
    assert (solo.raft.status().commit_index, solo.raft.status().last_index) == (3, 3)
    solo.step(Compacted(4))
    for _ in range(13):
        solo.tick(50)
        solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 3))
    assert solo.raft.status().transfer_target == 0
    assert (solo.role(), incarnation_entries(solo)) == (Role.LEADER, [4])


def test_learners_are_replicated_to_and_do_not_count() -> None:
    solo = Solo([1])
    base = solo.raft.configuration_at(1)
    assert base is not None
    learning = base._replace(learners={4: Member("h:4", incarnation_of(4))})
    solo.hear(Append(1, 2, 1, 1, 1, 0, False, (Entry(2, 1, EntryKind.MEMBERS, 0, learning.to_payload()),)))
    solo.sync()
    sent: list[Message] = solo.lead()
    assert [message.receiver for message in sent if isinstance(message, Append)] == [2, 3, 4]
    solo.sync()
    solo.hear(ack(2, 4, 3))
    assert solo.raft.status().commit_index == 0
    (learner,) = [peer for peer in solo.raft.status().peers if peer.node_id == 4]
    assert (learner.voter, learner.counts, learner.match_index) == (False, False, 3)
    solo.hear(ack(2, 2, 3))
    assert solo.raft.status().commit_index == 3
