"""What is done to a cluster while it is founded: scripts like those of faults.py, begun before any node.

An opening keeps some founders from starting until it lets them.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.simulation.nemesis import Script, World
from tests.simulation.sim_node import SimNode


def bootstrap_again(world: World, rng: random.Random) -> Script:
    """A founder loses its disk and is bootstrapped again, while others have never run or are away.

    The cluster is founded without a minority of late founders. With the others away, the empty founder and
    the late ones are a majority of those that `[members]` names: they must not found a second cluster.
    """
    operators = world.operators
    ids = sorted(world.nodes)
    late = [world.nodes[node_id] for node_id in sorted(rng.sample(ids, (len(ids) - 1) // 2))]
    operators.held_back.update(node.node_id for node in late)
    world.timeline.note(0, f"late founders: {sorted(operators.held_back)}")
    yield rng.uniform(800.0, 5000.0)
    for _ in range(50):
        if world.leader() is not None:
            break
        yield 100.0
    else:
        for node in late:
            operators.let_go(node)
        return False
    early = [world.nodes[node_id] for node_id in ids if world.nodes[node_id] not in late]
    if not all(node.running for node in early):
        yield 3000.0
    lost = rng.choice(early)
    away = [node for node in early if node is not lost]
    cut = rng.random() < 0.5
    for node in away:
        if cut:
            world.network.part([node.node_id], [each for each in ids if each != node.node_id])
        else:
            operators.held_back.add(node.node_id)
            if node.running:
                node.kill()
    yield rng.uniform(0.0, 800.0)
    operators.bootstrap_again(lost)
    try:
        yield from _tempt(world, rng, late, away)
    finally:
        # Every commit needed all early founders, so that whichever is left has lost nothing.
        operators.force(rng.choice(away))
    return True


def _tempt(world: World, rng: random.Random, late: list[SimNode], away: list[SimNode]) -> Script:
    """Let the late founders meet the empty one first, and those that know of a cluster afterwards."""
    operators = world.operators
    yield rng.uniform(0.0, 1500.0)
    for node in late:
        operators.let_go(node)
    yield rng.uniform(1000.0, 6000.0)
    for node in away:
        operators.let_go(node)
        for other in world.nodes:
            world.network.heal(node.node_id, other)
            world.network.heal(other, node.node_id)
    world.timeline.note(0, "the early founders are back")
    yield rng.uniform(500.0, 2000.0)
    return True


#: {profile: what its worlds open with}
OPENINGS: dict[str, Callable[[World, random.Random], Script]] = {"founders": bootstrap_again}
