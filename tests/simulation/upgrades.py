"""Nodes are updated to the next build, one after the other, as an operator does it or a few only.

A build is what it supports: NEXT_LEVEL is one above this build's. Nothing goes back, because a node whose
cluster has risen meanwhile would rightly refuse; tests/unit/test_feature_levels.py has that.

Source: docs/operate/upgrade.md.
"""

from __future__ import annotations

import random

from quorum.core.feature_levels import FEATURE_LEVEL
from tests.simulation.nemesis import Script, World
from tests.simulation.sim_node import SimNode

NEXT_LEVEL = FEATURE_LEVEL + 1


def update(world: World, rng: random.Random) -> Script:
    """Some of the nodes, or all, get the next build and are started again, by a kill or a power cut."""
    old = [node for node in world.running() if node.feature_level < NEXT_LEVEL]
    rng.shuffle(old)
    updated = 0
    for node in old[: rng.randint(1, max(1, len(old)))]:
        if not node.running:
            continue
        node.feature_level = NEXT_LEVEL
        world.timeline.note(node.node_id, f"gets a build of feature level {NEXT_LEVEL}")
        updated += 1
        if rng.random() < 0.8:
            node.kill()
        else:
            node.power_cut()
        yield rng.choice([0.0, rng.uniform(100.0, 1500.0)])
    return bool(updated)


def level_problem(nodes: list[SimNode]) -> str:
    """Return what is wrong with the level of a healed cluster, "" if nothing: it is what all of them support.

    Args:
        nodes: the members.
    """
    wanted = min(node.feature_level for node in nodes)
    levels = {
        node.node_id: node.member.replica.machine.feature_level for node in nodes if node.member is not None
    }
    return (
        "" if set(levels.values()) == {wanted} else f"all support feature level {wanted}, and have {levels}"
    )
