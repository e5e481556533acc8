"""What every nemesis works with: the world as a script may touch it, and the nodes that it draws.

Source: docs/internals/simulation.md, "Faults".
"""

from __future__ import annotations

import random
from collections.abc import Generator
from typing import Protocol

from tests.simulation.network import Network
from tests.simulation.operators import Operators
from tests.simulation.sim_node import SimNode
from tests.simulation.timeline import Timeline

#: yields how many milliseconds to wait; returns whether it bit
Script = Generator[float, None, bool]

ELECTION_TIMEOUT_MS = 600.0
SESSION_TIMEOUT_MS = 1000.0


class World(Protocol):
    """What the scripts may touch."""

    nodes: dict[int, SimNode]
    network: Network
    timeline: Timeline
    operators: Operators

    def leader(self) -> SimNode | None:
        """Return the running leader of the highest term."""

    def running(self) -> list[SimNode]:
        """Return the nodes that run and are not stopped, ascending."""

    def break_off(self, invariant: str, story: str, error: BaseException | None = None) -> None:
        """End the run: a promise was broken."""

    def whole(self) -> list[SimNode]:
        """Return the members whose disks hold everything that was ever committed, ascending."""


def leader_term(world: World) -> int:
    leader = world.leader()
    return 0 if leader is None or leader.member is None else leader.member.engine.term


def take_snapshot(node: SimNode | None) -> None:
    """Let a node take a snapshot soon, as the admin port does on request."""
    if node is not None and node.member is not None and node.runtime is not None:
        node.runtime.enter(node.member.snapshotter.take)


def some_node(world: World, rng: random.Random) -> SimNode | None:
    """Draw a running node; every second time the leader."""
    running = world.running()
    leader = world.leader()
    if leader is not None and rng.random() < 0.5:
        return leader
    return rng.choice(running) if running else None


def two_nodes(world: World, rng: random.Random) -> list[int]:
    """Draw two nodes; mostly the leader is one of them."""
    ids = [node.node_id for node in world.running()]
    leader = world.leader()
    if leader is None or len(ids) < 2 or rng.random() < 0.3:
        return rng.sample(sorted(world.nodes), 2)
    two = [leader.node_id, rng.choice([each for each in ids if each != leader.node_id])]
    rng.shuffle(two)
    return two
