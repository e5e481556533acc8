"""Every invariant notices a violation that is planted in a running world, and a world left alone has none."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from quorum.core.tree import Directory
from quorum.node.member import QuorumMember
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import (
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    SnapshotChunkReply,
    Vote,
    VoteReply,
)
from quorum.raft.core.node import Node
from quorum.raft.core.roles import Leader
from quorum.raft.datadir.identity import Start
from quorum.raft.journal.format import SEGMENT_SUFFIX
from quorum.raft.peers.peers import PeerNode
from quorum.raft.requests.origins import RegisterOrigin
from quorum.raft.requests.payloads import CONTROL_FORMAT
from tests.simulation.history import Outcome
from tests.simulation.invariants import InvariantBroken, Platter
from tests.simulation.sim_node import SimNode
from tests.simulation.world import World
from tests.support.memory_disk import Cut

LOADED_MS = 4_000.0


class Run:
    """A small world under load, without faults."""

    def __init__(self, seed: int = 1) -> None:
        self.world = World(seed, "calm", 3)
        for node in self.world.nodes.values():
            node.start(Start.BOOTSTRAP)
        self.world.fleet.start()
        self.go_on(LOADED_MS)

    def go_on(self, ms: float) -> None:
        """Let time pass."""
        self.world.scheduler.run(self.world.scheduler.now_ms + ms)

    @property
    def leader(self) -> SimNode:
        """The node that leads."""
        leader = self.world.leader()
        assert leader is not None
        return leader

    @property
    def followers(self) -> list[SimNode]:
        """The others."""
        return [node for node in self.world.nodes.values() if node is not self.leader]

    def look(self, node: SimNode) -> None:
        """Have the checks made that follow an event of this node."""
        self.world.invariants.after_event(node.node_id)


def member_of(node: SimNode) -> QuorumMember:
    assert node.member is not None
    return node.member


def raft_of(node: SimNode) -> Node:
    return member_of(node).core._node


def newest_segment(node: SimNode) -> str:
    return max(path for path in node.disk._names if path.endswith(SEGMENT_SUFFIX))


def send(node: SimNode, message: Any) -> None:
    assert node.transport is not None
    node.transport.send(PeerNode(message.receiver), message)


def record_of_a_leaf(node: SimNode) -> tuple[Directory, str, bytes]:
    """Return a register's place in the tree."""
    root = member_of(node).replica.machine.tree.root
    name, record = next(
        (name, child) for name, child in sorted(root.children.items()) if isinstance(child, bytes)
    )
    return root, name, record


Plant = Callable[[Run], None]
PLANTS: list[tuple[str, Plant]] = []


def plant(invariant: str) -> Callable[[Plant], Plant]:
    def register(planted: Plant) -> Plant:
        PLANTS.append((invariant, planted))
        return planted

    return register


# --- I1


@plant("I1")
def two_lead_one_term(run: Run) -> None:
    node = run.followers[0]
    raft_of(node).role = Leader(node.node_id, 1, 0.0)
    run.look(node)


@plant("I1")
def a_term_goes_back(run: Run) -> None:
    node = run.followers[0]
    raft_of(node).term -= 1
    run.look(node)


@plant("I1")
def a_vote_changes(run: Run) -> None:
    node = run.followers[0]
    raft = raft_of(node)
    raft.voted_for = 1
    run.look(node)
    raft.voted_for = 2
    run.look(node)


@plant("I1")
def a_vote_is_given_before_it_is_durable(run: Run) -> None:
    node = run.followers[0]
    term = raft_of(node).term + 1
    other = run.leader.node_id
    reply = VoteReply(
        term=term, sender=node.node_id, receiver=other, pre=False, granted=True, asked_term=term
    )
    send(node, reply)
    run.look(node)


@plant("I1")
def a_leader_speaks_for_a_term_that_is_not_durable(run: Run) -> None:
    node = run.leader
    heartbeat = Heartbeat(raft_of(node).term + 1, node.node_id, run.followers[0].node_id, 0, 0.0)
    send(node, heartbeat)
    run.look(node)


# --- I2


@plant("I2")
def a_node_applies_another_entry(run: Run) -> None:
    node = run.followers[0]
    entries = run.world.invariants.entries
    other: Entry = entries[member_of(node).engine.applied_index]._replace(payload=b"other")
    member_of(node).replica.when_applied[0](other)
    run.look(node)


@plant("I2")
def a_committed_entry_changes_in_a_log(run: Run) -> None:
    node = run.followers[0]
    for _ in range(40):  # logs are sampled, and the memory tail is short
        entries = raft_of(node).log._entries
        entries[-5] = entries[-5]._replace(payload=b"other")
        run.go_on(50.0)


@plant("I2")
def logs_meet_above_a_difference(run: Run) -> None:
    node = run.followers[0]
    for _ in range(40):
        entries = raft_of(node).log._entries
        entries[-5] = entries[-5]._replace(term=entries[-5].term + 7)
        run.go_on(50.0)


# --- I3


@plant("I3")
def a_commit_index_goes_back(run: Run) -> None:
    raft_of(run.followers[0]).commit_index -= 1
    run.look(run.followers[0])


@plant("I3")
def an_applied_index_goes_back(run: Run) -> None:
    member_of(run.followers[0]).engine.applied_index -= 1
    run.look(run.followers[0])


@plant("I3")
def an_entry_is_applied_that_is_not_committed(run: Run) -> None:
    member = member_of(run.followers[0])
    member.engine.applied_index = raft_of(run.followers[0]).commit_index + 1
    run.look(run.followers[0])


# --- I4


@plant("I4")
def states_differ_after_the_same_entry(run: Run) -> None:
    member_of(run.followers[0]).replica.machine.state_digest = bytes(16)
    run.go_on(2_000.0)


@plant("I4")
def results_differ_after_the_same_entry(run: Run) -> None:
    member_of(run.followers[0]).replica.machine.apply_digest = bytes(16)
    run.go_on(2_000.0)


# --- durability


@plant("I5")
def a_disk_does_not_keep_what_it_synced(run: Run) -> None:
    disk: Any = run.followers[0].disk
    disk.bring_to_platter = lambda _node: None
    run.go_on(2_000.0)


@plant("I5")
def a_follower_acknowledges_what_it_does_not_hold(run: Run) -> None:
    node, leader = run.followers[0], run.leader
    raft = raft_of(node)
    send(
        node, AppendReply(raft.term, node.node_id, leader.node_id, False, 0, raft.log.last_index + 1000, 0, 0)
    )
    run.look(node)


@plant("I5")
def a_heartbeat_is_answered_with_what_it_does_not_hold(run: Run) -> None:
    node, leader = run.followers[0], run.leader
    raft = raft_of(node)
    send(node, HeartbeatReply(raft.term, node.node_id, leader.node_id, 0.0, raft.log.last_index + 1000))
    run.look(node)


@plant("I5")
def a_snapshot_is_acknowledged_that_is_not_there(run: Run) -> None:
    node, leader = run.followers[0], run.leader
    reply = SnapshotChunkReply(raft_of(node).term, node.node_id, leader.node_id, 1, 0, True, False, 1_000_000)
    send(node, reply)
    run.look(node)


@plant("I5")
def a_leader_commits_without_a_majority(run: Run) -> None:
    leader = run.leader
    run.world.network.part([leader.node_id], [node.node_id for node in run.followers])
    assert leader.member is not None
    assert leader.runtime is not None
    leader.runtime.enter(leader.member.engine.propose, EntryKind.CONTROL, msgpack.packb([CONTROL_FORMAT, []]))
    run.go_on(150.0)
    raft = raft_of(leader)
    raft.commit_to(raft.log.last_index)
    run.look(leader)


@plant("I5")
def a_disk_is_an_older_one(run: Run) -> None:
    node = run.followers[0]
    older = node.disk.copy(random.Random(1))
    run.go_on(1_000.0)
    node.kill()
    node.disk = older
    node.disk.kill()
    node.start()
    run.look(node)


@plant("I5")
def a_copy_of_the_disk_cannot_be_recovered(run: Run) -> None:
    node = run.followers[0]
    platter = node.disk._names[newest_segment(node)].platter
    written = len(bytes(platter).rstrip(b"\0"))
    platter[written // 2 : written // 2 + 64] = bytes(64)
    # The next acknowledgement may be another node's.
    for _ in range(100):
        run.world.invariants._until_recovery = 1
        run.go_on(5.0)


@plant("I5")
def a_start_counts_what_only_the_page_cache_holds(run: Run) -> None:
    node = run.followers[0]
    node.kill()
    node.disk._names[newest_segment(node)].platter[:8] = bytes(8)
    node.start()
    run.look(node)


@plant("I5")
def a_start_finds_a_later_term_that_nobody_wrote(run: Run) -> None:
    node = run.followers[0]
    platter = tear_a_group(run, node, Cut.NOTHING)
    platter.last_term -= 1
    node.start()
    run.look(node)


@plant("I5")
def a_start_lacks_what_a_torn_group_would_have_superseded(run: Run) -> None:
    node = run.followers[0]
    supersede(tear_a_group(run, node, Cut.NOTHING))
    node.start()
    run.look(node)


def tear_a_group(run: Run, node: SimNode, cut: Cut) -> Platter:
    """Cut a node's power while it writes a group of entries; return what its disk is known to hold."""
    node.crash_at("fdatasync", SEGMENT_SUFFIX, power=True, cut=cut)
    platter = run.world.invariants._lives[node.node_id].platter
    run.go_on(1_000.0)
    assert not node.running
    assert (platter.last_index + 1, platter.last_term) in platter.staged
    return platter


def supersede(platter: Platter) -> None:
    """Have the group that was torn take back an entry of a later term than its own, as a leader's may."""
    platter.last_index += 1
    platter.last_term += 1


# --- elections and forwarding


@plant("elections")
def a_leader_was_elected_by_disks_that_have_no_vote(run: Run) -> None:
    node, leader = run.followers[0], run.leader
    term = raft_of(node).term + 1
    manners = run.world.invariants._lives[node.node_id].manners
    for other in (leader, run.followers[1]):
        reply = VoteReply(term, other.node_id, node.node_id, False, True, term)
        manners.received(PeerNode(other.node_id, "", "another one"), reply)
    manners.sent(Heartbeat(term, node.node_id, leader.node_id, 0, 0.0))
    run.look(node)


@plant("elections")
def a_disk_that_was_retired_gets_a_vote(run: Run) -> None:
    node, other = run.followers
    raft = raft_of(node)
    term = raft.term + 1
    manners = run.world.invariants._lives[node.node_id].manners
    # No leader is heard, so that this alone keeps it from being voted for.
    manners.lost(PeerNode(run.leader.node_id))
    raft.history._items[-1] = raft.history._items[-1][0], retiring(raft, "another one")
    raft.history._look()
    vote = Vote(term, other.node_id, node.node_id, False, False, 10**9, term)
    manners.received(PeerNode(other.node_id, "", "another one"), vote)
    manners.sent(VoteReply(term, node.node_id, other.node_id, False, True, term))
    run.look(node)


def retiring(raft: Node, incarnation: str) -> Configuration:
    latest = raft.history.latest
    assert latest is not None
    return latest._replace(retired=(incarnation,))


@plant("elections")
def a_configuration_counts_whose_entry_is_gone(run: Run) -> None:
    node = run.followers[0]
    raft = raft_of(node)
    while raft.log._cache_first > raft.log.last_index:
        run.go_on(0.1)
    raft.history.append(raft.log.last_index, retiring(raft, "another one"))
    manners = run.world.invariants._lives[node.node_id].manners
    manners.sent(VoteReply(raft.term, node.node_id, run.leader.node_id, False, False, raft.term))
    run.look(node)


@plant("elections")
def a_configuration_counts_behind_the_log(run: Run) -> None:
    node = run.followers[0]
    raft = raft_of(node)
    raft.history.append(raft.log.last_index + 10**6, retiring(raft, "another one"))
    manners = run.world.invariants._lives[node.node_id].manners
    manners.sent(VoteReply(raft.term, node.node_id, run.leader.node_id, False, False, raft.term))
    run.look(node)


@plant("forwarding")
def a_batch_takes_effect_that_was_not_the_next(run: Run) -> None:
    origins = member_of(run.leader).replica.machine.origins
    origins[9] = 1, 1
    run.go_on(500.0)


@plant("I11")
def a_session_ends_that_wrote_since_it_was_judged(run: Run) -> None:
    leader = run.leader
    assert leader.runtime is not None
    engine, machine = member_of(leader).engine, member_of(leader).replica.machine
    origins = run.world.invariants._origins
    session_id, session = next(iter(machine.sessions.items()))
    proposal = ["expire", session_id, session.nonce, machine.applied_index]
    attached = session_id, session.node_id, session.nonce
    # As if it had written in the entry that comes next; the state knows nothing of that.
    origins._wrote[attached] = machine.applied_index + 1
    session.last_index = 0
    leader.runtime.enter(engine.propose, EntryKind.CONTROL, msgpack.packb([CONTROL_FORMAT, [proposal]]))
    while session_id in machine.sessions:
        origins._wrote[attached] = machine.applied_index + 1
        session.last_index = 0
        run.go_on(0.1)
    run.look(leader)


@plant("I13")
def a_connection_is_served_whose_session_went_to_another_node(run: Run) -> None:
    for node in run.world.nodes.values():
        member = member_of(node)
        for session_id in member.frontend._by_session:
            member.replica.machine.sessions[session_id].node_id = 9
    run.go_on(500.0)


@plant("forwarding")
def an_origin_incarnation_is_used_again(run: Run) -> None:
    node, leader = run.followers[0], run.leader
    run.world.invariants._origins.used(node.node_id, 99, node.lives - 1)
    send(node, RegisterOrigin(raft_of(node).term, node.node_id, leader.node_id, 99))
    run.look(node)


# --- I7, I9


@plant("I7")
def a_broken_file_has_a_snapshots_name(run: Run) -> None:
    node = run.followers[0]
    for _ in range(2):
        member_of(node).snapshotter.take()
        run.go_on(1_500.0)
    node.kill()
    path = max(each for each in node.disk._names if each.endswith(".snapshot"))
    for content in (node.disk._names[path].seen, node.disk._names[path].platter):
        content[len(content) // 2] ^= 1
    node.start()
    run.look(node)


@plant("I7")
def a_snapshot_is_not_the_replay_of_its_prefix(run: Run) -> None:
    node = run.followers[0]
    root, name, record = record_of_a_leaf(node)
    root.children[name] = record[:-1] + b"?"
    member_of(node).snapshotter.take()
    run.go_on(500.0)


@plant("I7")
def a_state_is_not_the_replay_in_the_end(run: Run) -> None:
    settle(run)
    root, name, record = record_of_a_leaf(run.followers[0])
    root.children[name] = record[:-1] + b"?"
    run.world.invariants.at_end()


@plant("I9")
def a_tree_contradicts_itself_in_the_end(run: Run) -> None:
    settle(run)
    member_of(run.followers[0]).replica.machine.tree.node_count += 1
    run.world.invariants.at_end()


@plant("I6")
def a_history_has_a_failed_write_that_appeared(run: Run) -> None:
    settle(run)
    history = run.world.fleet.history()
    final = record_of_a_leaf(run.leader)[2][72:].decode()
    for operation in history.operations:
        if any(kind in ("create", "set") and final == argument[0] for kind, _, argument in operation.parts):
            operation.outcome, operation.err, operation.zxid = Outcome.ERROR, -103, operation.zxid
    run.world.invariants.at_end(history)


def settle(run: Run) -> None:
    """Let the clients come to an end, and all nodes apply the same."""
    run.world.fleet.stop()
    while not (run.world.fleet.quiet and run.world._is_level()):
        run.go_on(50.0)


@pytest.mark.parametrize(("invariant", "planted"), PLANTS, ids=[each.__name__ for _, each in PLANTS])
def test_a_planted_violation_is_noticed(invariant: str, planted: Plant) -> None:
    run = Run()
    with pytest.raises(InvariantBroken) as noticed:
        planted(run)
    assert noticed.value.invariant == invariant, noticed.value


def test_a_group_that_the_cut_left_whole_may_have_superseded_what_was_durable() -> None:
    run = Run()
    node = run.followers[0]
    supersede(tear_a_group(run, node, Cut.EVERYTHING))
    node.start()
    run.look(node)
    assert node.running


def test_a_bit_of_a_lost_disk_that_is_back_may_be_turned_around_too() -> None:
    """The disk that came for it was another one, and nobody turned around a bit of that."""
    run = Run()
    node = run.followers[0]
    for _ in range(2):
        member_of(node).snapshotter.take()
        run.go_on(1_500.0)
    node.kill()
    lost = node.disk
    node.wipe()
    node.start()
    run.look(node)
    node.kill()
    node.disk.restore(lost)
    node.start()
    run.look(node)
    node.kill()
    path = max(each for each in node.disk._names if each.endswith(".snapshot"))
    node.disk.flip_bit(path, 18)
    node.start()
    run.look(node)
    assert f"{path}.damaged" in node.disk._names
    assert run.world.invariants._last_platters[node.node_id].was_flipped


def test_a_world_left_alone_breaks_nothing_and_everything_was_looked_at() -> None:
    run = Run()
    run.world.invariants._until_recovery = 1
    run.leader.kill()
    run.go_on(2_000.0)
    for node in run.world.nodes.values():
        if not node.running:
            node.start()
    run.go_on(1_000.0)
    settle(run)
    run.world.invariants.at_end(run.world.fleet.history())
    assert all(run.world.invariants.counts.values()), run.world.invariants.counts
