"""Random membership changes under random faults: no promise breaks, and the cluster works again afterwards.

Nodes join, are replaced with lost disks or with the old one that comes back, and leave, the leader included,
while entries flow, messages are lost, nodes crash, pause, are cut off and hand leadership over. Links of who
left stay open, which is worse than what the shell does. The harness checks the promises after every event:
one leader per term, elected by a majority of the recorded voters of its configuration; commits durable on
such a majority; what is committed never changes; complete leaders; matching logs.
A failure names its seed; ``run(seed)`` repeats it exactly.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest

from quorum.raft.core.errors import MembershipError, NotLeaderError
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.core.messages import Role
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.test_raft_safety import disturb, random_options

SEEDS_PER_CASE = 22
CASES = 4
SPARES = 3
STEPS = (20, 60)


def address(node_id: int) -> str:
    return f"127.0.0.1:{7000 + node_id}"


def leaders(world: World) -> list[int]:
    """Everybody who believes to lead, deposed ones included."""
    return [
        node_id
        for node_id, process in sorted(world.processes.items())
        if process.raft.status().role is Role.LEADER and not world.is_paused(node_id)
    ]


def draw_change(world: World, rng: random.Random, leader: int) -> MembershipChange:
    status = world.processes[leader].raft.status()
    members = [*status.voters, *status.learners]
    others = [node_id for node_id in world.ids if node_id not in members]
    # Between three and five, as an operator does it; sometimes beyond.
    growing = len(members) <= 3 or (len(members) < 5 and rng.random() < 0.5)
    kind = rng.random()
    if kind < 0.2 and len(members) > 1:
        chosen = rng.choice([node_id for node_id in members if node_id != leader])
        configuration = world.processes[leader].configuration
        member = configuration.member(chosen) if configuration is not None else None
        return ReplaceMember(chosen, member.incarnation if member is not None else "")
    if others and (growing or kind < 0.4):
        return AddMember(chosen := rng.choice(others), address(chosen))
    return RemoveMember(leader if rng.random() < 0.3 else rng.choice(members))


def change(world: World, rng: random.Random, done: Counter[str]) -> None:
    for leader in leaders(world):
        wanted = draw_change(world, rng, leader)
        try:
            world.change(leader, wanted)
        except (MembershipError, NotLeaderError) as error:
            done[type(error).__name__] += 1
            continue
        own = isinstance(wanted, RemoveMember) and wanted.node_id == leader
        done[f"{type(wanted).__name__}{' of the leader' if own else ''}"] += 1


def new_disk(world: World, node_id: int) -> None:
    if node_id in world.processes:
        world.crash(node_id)
    world.wipe(node_id)
    world.joined.add(node_id)  # a founder is bootstrapped once only
    world.start(node_id)


def renew(world: World, rng: random.Random) -> None:
    """Give who was replaced a new disk; until then its retired incarnation stays around."""
    leader = world.leader()
    if leader is None or not world.processes[leader].raft.status().configuration_committed:
        return
    for node_id in lost(world, leader):
        configuration = world.processes[leader].configuration
        member = configuration.member(node_id) if configuration is not None else None
        if member is not None and not member.incarnation and rng.random() < 0.5:
            new_disk(world, node_id)


def lost(world: World, leader: int) -> list[int]:
    """Members whose node there is of another incarnation than the leader's configuration names or wants."""
    configuration = world.processes[leader].configuration
    assert configuration is not None
    members = {**configuration.voters, **configuration.learners}
    return [
        node_id
        for node_id, member in members.items()
        if member.incarnation not in ("", world.incarnations[node_id])
        or (not member.incarnation and world.incarnations[node_id] in configuration.retired)
    ]


def lose_disk(world: World, rng: random.Random, done: Counter[str]) -> None:
    """Lose one disk for good; never one of a majority that is needed: before a lost one is replaced, or while
    founders are missing."""
    leader = world.leader()
    if leader is None or world.is_paused(leader) or not world.stable() or lost(world, leader):
        return
    configuration = world.processes[leader].configuration
    assert configuration is not None
    recorded = [
        node_id
        for node_id, member in configuration.voters.items()
        if member.incarnation and node_id in world.processes
    ]
    if world.voters() and len(recorded) > configuration.quorum_size:
        victim = rng.choice([node_id for node_id in recorded if node_id != leader])
        # The leader must know: removing another voter in this very moment would be a lost majority too.
        world.silenced.add(world.incarnations[victim])
        new_disk(world, victim)
        world.run_for(10)
        done["lost disk"] += 1


def repair(world: World) -> None:
    """What an operator does at the end: replace who lost its disk, give who was replaced a new one."""
    leader = world.leader()
    if leader is None:
        return
    for node_id in lost(world, leader):
        configuration = world.processes[leader].configuration
        member = configuration.member(node_id) if configuration is not None else None
        if member is not None and not member.incarnation:
            new_disk(world, node_id)
            continue
        try:
            world.change(leader, ReplaceMember(node_id, member.incarnation if member is not None else ""))
        except (MembershipError, NotLeaderError):
            return


def settle(world: World) -> None:
    """End all faults and demand that all members work, whoever else is around."""
    world.end_faults()
    for node_id in world.ids:
        if node_id not in world.processes:
            world.start(node_id)
    end_ms = world.now_ms + 30_000
    while world.now_ms < end_ms:
        world.run_for(100)
        repair(world)
        leader = world.leader()
        if leader is None or lost(world, leader) or not world.voters():
            continue
        if world.propose(leader) and world.run_until(world.now_ms + 2000, world.stable):
            break
    else:
        raise AssertionError(f"the cluster does not work again: {world.describe()}")
    world.check_logs()


def run(seed: int) -> tuple[World, Counter[str]]:
    rng = random.Random(seed ^ 0x3E3BE5)
    nodes = rng.choice([1, 3, 3, 3, 4, 5])
    world = World(
        seed, nodes, random_options(rng), start=rng.sample(range(1, nodes + 1), rng.randint(1, nodes))
    )
    for node_id in range(nodes + 1, nodes + 1 + SPARES):
        world.join(node_id)
    world.loss = rng.choice([0.0, 0.0, 0.01, 0.1])
    world.repeat = rng.choice([0.0, 0.05])
    world.slow = rng.choice([0.0, 0.0, 0.02])
    world.delay_ms = rng.choice([(0.1, 1.0), (0.1, 5.0), (1.0, 30.0)])
    world.sync_ms = rng.choice([(0.1, 1.0), (0.1, 10.0), (1.0, 100.0)])
    done: Counter[str] = Counter()
    fault_rate = rng.choice([0.2, 0.5, 0.8])
    for _ in range(rng.randint(*STEPS)):
        world.run_for(rng.choice([1, 5, 50, 200, 500]))
        if rng.random() < fault_rate:
            done[disturb(world, rng)] += 1
        if rng.random() < 0.7:
            change(world, rng, done)
        renew(world, rng)
        if rng.random() < 0.3:
            lose_disk(world, rng, done)
        for node_id in leaders(world):
            if rng.random() < 0.8:
                world.propose(node_id, rng.randint(1, 5), rng.choice([0, 50]))
    settle(world)
    return world, done


@pytest.mark.parametrize("case", range(CASES))
def test_random_changes_break_no_promise_and_the_cluster_recovers(case: int) -> None:
    done: Counter[str] = Counter()
    elections = installs = 0
    for seed in range(case * SEEDS_PER_CASE, (case + 1) * SEEDS_PER_CASE):
        try:
            world, faults = run(seed)
        except Exception as error:
            error.add_note(f"seed {seed}; repeat: python -c 'import {run.__module__} as t; t.run({seed})'")
            raise
        done += faults
        elections += world.elections
        installs += world.installs
    # A run in which nothing happened would prove nothing.
    assert elections > SEEDS_PER_CASE
    assert installs > 0
    changes = ("AddMember", "ReplaceMember", "RemoveMember", "RemoveMember of the leader")
    faults_needed = ("crash", "isolate", "pause", "halt", "transfer", "snapshot", "lost disk")
    assert min(done[name] for name in (*changes, *faults_needed)) > 0, done
