"""Membership in whole clusters: growing and shrinking while entries flow, lost disks, removed nodes."""

from __future__ import annotations

import pytest

from quorum.raft.core.entry import EntryKind
from quorum.raft.core.errors import MembershipBusyError, MembershipError, TransferError
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.core.messages import Append, Role, TimeoutNow, Transfer
from tests.unit.raft_core.disk import BrokenPromiseError
from tests.unit.raft_core.harness import World

WITHIN_MS = 3000.0


def address(node_id: int) -> str:
    return f"127.0.0.1:{7000 + node_id}"


def cluster(seed: int, nodes: int = 3) -> World:
    """A cluster whose founders are all recorded."""
    world = World(seed, nodes)
    world.await_(world.stable)
    world.run_for(200)
    return world


def leader(world: World) -> int:
    node_id = world.leader()
    assert node_id is not None
    return node_id


def others(world: World) -> list[int]:
    return [node_id for node_id in world.voters() if node_id != world.leader()]


def flow(world: World, duration_ms: float) -> None:
    """Let clients write to whoever leads."""
    end_ms = world.now_ms + duration_ms
    while world.now_ms < end_ms:
        node_id = world.leader()
        if node_id is not None:
            world.propose(node_id, 3)
        world.run_for(5)


def make(world: World, change: MembershipChange, voters: list[int]) -> None:
    """Ask the leader until it takes the change, and write until it is through."""
    end_ms = world.now_ms + WITHIN_MS
    taken = False
    while world.voters() != voters or not taken:
        node_id = world.leader()
        if not taken and node_id is not None:
            try:
                world.change(node_id, change)
                taken = True
            except MembershipBusyError:
                pass
        flow(world, 10)
        assert world.now_ms < end_ms, f"{change} is not through: {world.describe()}"


def await_another(world: World, old: int, within_ms: float = WITHIN_MS) -> None:
    """Wait until another node than the old leader leads and takes writes."""
    world.await_(lambda: (world.leader() or old) != old and world.propose(leader(world)), within_ms)


def cut_between(world: World, near: list[int], far: list[int]) -> None:
    for one in near:
        for two in far:
            world.cut |= {(one, two), (two, one)}


def acknowledged(world: World) -> int:
    return sum(row[2] == EntryKind.BATCH for row in world.committed.values())


@pytest.mark.parametrize("seed", range(5))
def test_three_to_five_to_three_while_entries_flow(seed: int) -> None:
    world = cluster(seed)
    term = world.processes[leader(world)].raft.status().term
    for node_id in (4, 5):
        world.join(node_id)
        make(world, AddMember(node_id, address(node_id)), list(range(1, node_id + 1)))
    world.await_(world.stable)
    assert world.processes[leader(world)].raft.status().term == term
    written = acknowledged(world)
    first = leader(world)
    make(world, RemoveMember(first), [node_id for node_id in range(1, 6) if node_id != first])
    second = leader(world)
    assert second != first
    gone = others(world)[0]
    left = [node_id for node_id in world.voters() if node_id != gone]
    make(world, RemoveMember(gone), left)
    flow(world, 100)
    world.await_(world.stable)
    assert acknowledged(world) > written
    assert leader(world) in left
    for node_id in (first, gone):
        status = world.processes[node_id].raft.status()
        assert (status.role, status.member) == (Role.FOLLOWER, False)
    world.check_logs()


@pytest.mark.parametrize("seed", range(3))
def test_leadership_moves_at_once_when_the_leader_removes_itself(seed: int) -> None:
    world = cluster(seed)
    old = leader(world)
    world.change(old, RemoveMember(old))
    await_another(world, old, within_ms=60)
    world.await_(lambda: world.processes[old].raft.status().role is Role.FOLLOWER, within_ms=60)


def test_the_leader_of_two_removes_itself_and_restarts_before_the_other_heard_of_it() -> None:
    """Only the removed node holds the entry: the other one needs its vote and does not get it."""
    world = cluster(1, nodes=2)
    old = leader(world)
    world.filter = lambda message: not isinstance(message, Append)
    world.change(old, RemoveMember(old))
    world.run_for(20)
    world.crash(old)
    world.filter = lambda _: True
    world.start(old)
    world.await_(lambda: world.voters() == [3 - old] and world.leader() == 3 - old, WITHIN_MS)
    world.await_(world.stable)


def test_a_learner_that_was_promoted_without_hearing_of_it_gives_the_vote_that_is_needed() -> None:
    world = cluster(1)
    dead, second = others(world)
    old = leader(world)
    world.join(4)
    world.change(old, AddMember(4, address(4)))
    process = world.processes[old]
    world.await_(lambda: 4 in process.raft.status().learners)
    world.filter = lambda message: (
        not (isinstance(message, Append) and message.receiver == 4 and 4 in process.raft.status().voters)
    )
    world.await_(lambda: world.processes[second].raft.status().voters == (1, 2, 3, 4), WITHIN_MS)
    assert 4 in world.processes[4].raft.status().learners
    world.crash(dead)
    world.crash(old)
    world.start(old)
    world.filter = lambda _: True
    world.await_(lambda: world.leader() is not None and world.propose(leader(world)), WITHIN_MS)
    world.await_(world.stable)


@pytest.mark.parametrize("seed", range(3))
def test_a_node_joins_through_a_snapshot(seed: int) -> None:
    world = cluster(seed)
    flow(world, 200)
    world.await_(world.stable)
    for node_id in world.voters():
        world.snapshot(node_id)
    world.join(4)
    make(world, AddMember(4, address(4)), [1, 2, 3, 4])
    assert world.installs >= 1
    world.await_(world.stable)
    # It carries on from what it installed, configuration included.
    world.crash(4)
    process = world.start(4)
    assert process.raft.status().configuration_index > 0
    world.await_(world.stable)


def lose_disk(world: World, node_id: int) -> None:
    if node_id in world.processes:
        world.crash(node_id)
    world.wipe(node_id)
    world.joined.add(node_id)
    world.start(node_id)


@pytest.mark.parametrize("seed", range(4))
def test_a_lost_disk_is_replaced_and_the_new_one_counts(seed: int) -> None:
    world = cluster(seed)
    victim, other = others(world)
    lose_disk(world, victim)
    flow(world, 1100)
    assert world.processes[victim].raft.status().last_index == 0
    make(world, ReplaceMember(victim), [1, 2, 3])
    world.await_(world.stable)
    world.crash(other)
    committed = len(world.committed)
    world.await_(lambda: world.leader() is not None and world.propose(leader(world)), WITHIN_MS)
    world.await_(lambda: len(world.committed) > committed, WITHIN_MS)


@pytest.mark.parametrize("seed", range(4))
def test_a_replaced_node_that_comes_back_with_its_old_disk_stays_outside(seed: int) -> None:
    world = cluster(seed)
    victim = others(world)[0]
    world.crash(victim)
    flow(world, 1100)
    old_disk, old = world.disks[victim], world.incarnations[victim]
    world.change(leader(world), ReplaceMember(victim))
    world.await_(lambda: world.processes[leader(world)].raft.status().configuration_committed)
    world.start(victim)
    flow(world, 2000)
    status = world.processes[leader(world)].raft.status()
    assert status.learners == (victim,)
    assert world.processes[victim].raft.status().commit_index < status.commit_index
    lose_disk(world, victim)
    world.await_(lambda: world.voters() == [1, 2, 3], WITHIN_MS)
    world.await_(world.stable)
    # And so it stays once there is a new one.
    world.crash(victim)
    new_disk, new = world.disks[victim], world.incarnations[victim]
    world.disks[victim], world.incarnations[victim] = old_disk, old
    term = world.processes[leader(world)].raft.status().term
    world.start(victim)
    flow(world, 2000)
    status = world.processes[leader(world)].raft.status()
    assert status.term == term
    world.crash(victim)
    world.disks[victim], world.incarnations[victim] = new_disk, new
    world.start(victim)
    world.await_(world.stable)


@pytest.mark.parametrize("told", [True, False])
def test_a_removed_node_deposes_nobody(told: bool) -> None:
    world = cluster(2)
    gone = others(world)[0]
    if not told:
        world.isolate(gone)
        world.run_for(50)
    world.change(leader(world), RemoveMember(gone))
    world.await_(lambda: len(world.voters()) == 2)
    world.heal()
    flow(world, 3000)
    top = world.processes[leader(world)].raft.status()
    status = world.processes[gone].raft.status()
    assert status.member is not told
    assert (top.role, top.term) == (Role.LEADER, status.term)
    assert len(world.leaders) == 1
    # Not even when it starts again, and what it was told is not known to be committed.
    world.crash(gone)
    world.start(gone)
    flow(world, 3000)
    assert len(world.leaders) == 1


def test_a_removed_node_can_come_back_with_its_disk() -> None:
    world = cluster(3)
    gone = others(world)[0]
    make(world, RemoveMember(gone), [node_id for node_id in (1, 2, 3) if node_id != gone])
    flow(world, 300)
    make(world, AddMember(gone, address(gone)), [1, 2, 3])
    world.await_(world.stable)


def test_a_change_that_only_a_cut_off_leader_holds_is_taken_back() -> None:
    world = cluster(4)
    old = leader(world)
    world.join(4)
    world.isolate(old)
    world.change(old, AddMember(4, address(4)))
    assert world.processes[old].raft.status().learners == (4,)
    await_another(world, old)
    flow(world, 100)
    world.heal()
    world.await_(world.stable)
    status = world.processes[old].raft.status()
    assert (status.voters, status.learners) == ((1, 2, 3), ())


def test_two_leaders_cannot_both_change_one_configuration() -> None:
    """The known defect of single-server changes, step by step. Of four, one leader promotes a fifth and
    reaches nobody but it; the next leader removes the first with one friend; then the first one comes back
    with the other two. Without the wait for the no-op both changes commit, by disjoint majorities."""
    world = cluster(5, nodes=4)
    one = leader(world)
    rest = others(world)
    world.join(5)
    world.change(one, AddMember(5, address(5)))
    process = world.processes[one]
    world.await_(lambda: 5 in process.raft.status().voters)
    cut_between(world, rest, [one, 5])
    assert not process.raft.status().configuration_committed
    world.await_(lambda: process.raft.status().role is Role.FOLLOWER)
    world.await_(lambda: world.leader() is not None)
    two = leader(world)
    three, four = (node_id for node_id in rest if node_id != two)
    cut_between(world, [two], [four])
    refused = 0
    for _ in range(25):
        try:
            world.change(two, RemoveMember(one))
        except MembershipBusyError:
            refused += 1
            world.run_for(10)
        else:
            world.run_for(100)
            break
    assert refused == 25
    world.cut.clear()
    cut_between(world, [two, three], [one, four, 5])
    world.await_(lambda: world.leader() in (one, four, 5) and world.propose(leader(world)), WITHIN_MS)
    world.await_(lambda: world.voters() == [1, 2, 3, 4, 5])
    world.heal()
    world.await_(world.stable)
    world.check_logs()


def test_a_removal_is_refused_while_another_voter_is_down_and_made_once_it_is_back() -> None:
    world = cluster(6)
    down, other = others(world)
    world.crash(down)
    world.run_for(20)
    with pytest.raises(MembershipError, match=rf"only \[{leader(world)}\] are in contact and 2 are needed"):
        world.change(leader(world), RemoveMember(other))
    world.start(down)
    world.await_(world.stable)
    world.run_for(20)
    make(world, RemoveMember(other), sorted((leader(world), down)))


# --- transfer and changes


@pytest.mark.parametrize("seed", range(3))
def test_a_hand_over_while_a_node_joins(seed: int) -> None:
    world = cluster(seed)
    old = leader(world)
    target = others(world)[0]
    world.join(4)
    world.change(old, AddMember(4, address(4)))
    world.run_for(world.rng.uniform(0, 150))
    world.step(old, world.processes[old], Transfer(target))
    world.await_(lambda: world.leader() == target)
    world.await_(lambda: world.voters() == [1, 2, 3, 4], WITHIN_MS)
    world.await_(world.stable)


def test_a_learner_and_who_was_removed_cannot_be_handed_leadership() -> None:
    world = cluster(1)
    old = leader(world)
    gone = others(world)[0]
    world.join(4)
    world.change(old, AddMember(4, address(4)))
    world.run_for(20)
    with pytest.raises(TransferError, match="node 4"):
        world.step(old, world.processes[old], Transfer(4))
    world.await_(lambda: world.voters() == [1, 2, 3, 4], WITHIN_MS)
    world.change(old, RemoveMember(gone))
    with pytest.raises(TransferError, match=f"node {gone}"):
        world.step(old, world.processes[old], Transfer(gone))


def test_a_learner_ignores_the_word_to_campaign() -> None:
    world = cluster(1)
    old = leader(world)
    world.join(4)
    world.change(old, AddMember(4, address(4)))
    world.await_(lambda: world.processes[4].raft.status().learners == (4,))
    term = world.processes[old].raft.status().term
    world._deliver(TimeoutNow(term, old, 4), world.incarnations[old])
    assert world.processes[4].raft.status().role is Role.FOLLOWER
    assert world.processes[4].raft.status().term == term


def test_the_harness_notices_a_commit_by_too_few_voters() -> None:
    world = cluster(1)
    old = leader(world)
    configuration = world.processes[old].configuration
    assert configuration is not None
    seven = {node_id: configuration.voters[min(node_id, 3)] for node_id in range(1, 8)}
    for node_id in range(4, 8):
        world.join(node_id)
    world.processes[old].configuration = configuration._replace(voters=seven)
    world.propose(old)
    with pytest.raises(BrokenPromiseError, match="durable on"):
        world.run_for(50)
