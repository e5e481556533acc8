"""What is done to a cluster while it is founded: scripts like those of faults.py, begun before any node.

An opening keeps founders from starting until it lets them. Whatever it does, one founder that holds all that
was committed keeps its disk.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator

from quorum.raft.core.founding import may_found
from tests.simulation.nemesis import Script, World
from tests.simulation.sim_node import SimNode

#: a founding that takes longer has met other faults
FOUNDS_WITHIN_MS = 5000.0
#: between two looks at whether the founders know of each other; far shorter than they wait to campaign
WATCH_MS = 0.25
#: by then the leader has the answers that were under way
ANSWERED_WITHIN_MS = 50.0


def bootstrap_again(world: World, rng: random.Random) -> Script:
    """Most founders lose their disks and are bootstrapped again; the others may be down or out of reach.

    Some founders go as soon as all know of each other, so that the others found, and commit, all together:
    whichever of these is left has lost nothing. The ones with empty disks must not found a second cluster.
    """
    operators = world.operators
    ids = sorted(world.nodes)
    gone = [world.nodes[node_id] for node_id in sorted(rng.sample(ids, (len(ids) - 1) // 2))]
    early = [world.nodes[node_id] for node_id in ids if world.nodes[node_id] not in gone]
    if not (yield from _leave_before_the_founding(world, gone, early)):
        return False
    world.timeline.note(0, f"founders that left: {sorted(node.node_id for node in gone)}")
    lost = (yield from _lose_founder(world, early)) if rng.random() < 0.4 else None
    if lost is None:
        yield rng.uniform(800.0, 5000.0)
        lost = rng.choice(early)
    away = [node for node in early if node is not lost]
    empty = rng.sample([lost, *gone], 1 + len(gone))
    tempted = any(_holds_founding(node) for node in away)
    try:
        operators.held_back.update(node.node_id for node in empty)
        _hide(world, rng, away, empty)
        for node in empty:
            yield rng.choice([0.0, rng.uniform(0.0, 800.0)])
            operators.held_back.discard(node.node_id)
            operators.bootstrap_again(node)
        for _ in range(rng.randrange(4)):
            yield rng.uniform(300.0, 1500.0)
            node = rng.choice(empty)
            if node.running:
                node.kill()
        yield rng.uniform(1000.0, 4000.0)
        _show(world, away)
        yield rng.uniform(500.0, 2000.0)
    finally:
        _show(world, away)
        operators.force(rng.choice(away))
    return tempted


def _leave_before_the_founding(
    world: World, gone: list[SimNode], early: list[SimNode]
) -> Generator[float, None, bool]:
    """Stop those that go once the others may found without them; whether nobody did before."""
    for _ in range(int(FOUNDS_WITHIN_MS / WATCH_MS)):
        if all(_may_found(node) for node in early):
            for node in gone:
                _stop(world, node)
            return all(_is_empty(node) for node in world.nodes.values())
        yield WATCH_MS
    return False


def _lose_founder(world: World, early: list[SimNode]) -> Generator[float, None, SimNode | None]:
    """Let the founding commit at its leader only, and choose that one: the others just hold the entry."""
    for _ in range(int(FOUNDS_WITHIN_MS / WATCH_MS)):
        leader = world.leader()
        holders = [node for node in early if node is not leader]
        if leader is not None and all(_holds_founding(node) for node in holders):
            for node in holders:
                world.network.cut(leader.node_id, node.node_id)
            yield ANSWERED_WITHIN_MS
            for node in holders:
                _stop(world, node)
                world.network.heal(leader.node_id, node.node_id)
            world.timeline.note(leader.node_id, "was the only one that knew of the founding's commit")
            return leader
        yield WATCH_MS
    return None


def _may_found(node: SimNode) -> bool:
    return node.running and node.member is not None and may_found(node.member.core._node)


def _is_empty(node: SimNode) -> bool:
    return node.member is None or node.member.core.status().last_index == 0


def _holds_founding(node: SimNode) -> bool:
    return node.member is not None and node.member.core.status().durable_index > 0


def _hide(world: World, rng: random.Random, away: list[SimNode], empty: list[SimNode]) -> None:
    """Let some of the founders that have their disks be down, or out of reach of some that have not."""
    for one in away:
        if rng.random() < 0.5:
            _stop(world, one)
        for other in empty:
            if rng.random() < 0.5:
                ways = [(one.node_id, other.node_id), (other.node_id, one.node_id)]
                for way in rng.choice([ways, ways[:1], ways[1:]]):
                    world.network.cut(*way)


def _show(world: World, away: list[SimNode]) -> None:
    """Let everybody reach everybody."""
    for one in world.nodes:
        for other in world.nodes:
            if one != other:
                world.network.heal(one, other)
    for node in away:
        world.operators.let_go(node)


def _stop(world: World, node: SimNode) -> None:
    """End a process that nobody starts again for now."""
    world.operators.held_back.add(node.node_id)
    if node.running:
        node.kill()


#: {profile: what its worlds open with}
OPENINGS: dict[str, Callable[[World, random.Random], Script]] = {"founders": bootstrap_again}
