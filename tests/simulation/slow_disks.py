"""Disks that raise no error: slow ones, and one whose fsyncs never come back.

Decides nothing but what is done; what a node must do meanwhile is judged where the script ends, or by the
world. Source: docs/concepts/guarantees.md, "Reads"; docs/internals/simulation.md, "Faults".
"""

from __future__ import annotations

import random

from tests.simulation.nemesis import ELECTION_TIMEOUT_MS, SESSION_TIMEOUT_MS, Script, World, some_node
from tests.simulation.sim_node import DiskSpeed

#: writes go to the journal's thread, or, where each fsync but the last was quick, hold up the loop itself
SLOW_DISKS = (DiskSpeed(5.0, 40.0, 0.1, 400.0), DiskSpeed(0.05, 0.4, 0.05, 1000.0))


def slow_disk(world: World, rng: random.Random) -> Script:
    """Each fsync of a machine takes long, or one in twenty, up to a second."""
    node = some_node(world, rng)
    if node is None:
        return False
    before, quick = node.syncs, node.speed
    node.speed = rng.choice(SLOW_DISKS)
    world.timeline.note(node.node_id, "slow disk")
    yield rng.uniform(500.0, 6000.0)
    node.speed = quick
    world.timeline.note(node.node_id, "quick disk")
    return node.syncs > before


def hang_disk(world: World, rng: random.Random) -> Script:
    """The fsyncs of a machine do not come back any more, without an error, until somebody kills its process.

    It is slow before, so that the journal's thread hangs and not the loop.
    """
    node = some_node(world, rng)
    if node is None:
        return False
    life, quick, told = node.lives, node.speed, node.told_stuck
    node.speed = SLOW_DISKS[0]
    try:
        yield rng.uniform(200.0, 800.0)
        if node.lives != life or not node.running:
            return False
        node.hang()
        yield rng.uniform(1.0, 6.0) * SESSION_TIMEOUT_MS + 2 * ELECTION_TIMEOUT_MS
        if node.told_stuck > told:
            story = f"node {node.node_id} answered {node.told_stuck - told} times while its disk hung"
            world.break_off("staleness", story)
        return node.lives == life and node.stuck_ms is not None
    finally:
        node.speed = quick
        if node.lives == life and node.running:
            node.kill()
