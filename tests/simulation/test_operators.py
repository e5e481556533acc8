"""What the people beside the machines do, and what they take for the product's fault."""

from __future__ import annotations

import random

import pytest

from quorum.raft.datadir.identity import Start
from tests.simulation.nemesis import take_snapshot
from tests.simulation.sim_node import SimNode
from tests.simulation.world import World


def test_a_forced_node_that_gets_an_empty_disk_is_not_forced_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its start script said so of the disk that is gone: it would leave a cluster that lacks nothing."""
    modes: list[Start] = []
    start = SimNode.start

    def recorded(self: SimNode, mode: Start = Start.PLAIN) -> bool:
        modes.extend([mode] * (self.node_id == 1))
        return start(self, mode)

    world = World(1, "calm")
    operators, node = world.operators, world.nodes[1]

    def settle(*, runs: bool = True) -> None:
        until_ms = world.scheduler.now_ms + 30_000.0
        while operators.change is not None or operators.outcasts or node.running is not runs:
            assert world.scheduler.now_ms < until_ms
            world.scheduler.run(world.scheduler.now_ms + 100.0)

    monkeypatch.setattr(SimNode, "start", recorded)
    world.idle(1.0)
    operators.force(node)
    settle()
    assert operators.add() is not None
    settle()
    monkeypatch.setattr(operators, "_rng", random.Random(1))
    monkeypatch.setattr(operators._rng, "choice", lambda ids: 1 if 1 in ids else ids[0])
    assert operators.remove() is not None
    settle(runs=False)
    assert operators.add() is not None
    settle()
    node.kill()
    settle()
    assert Start.FORCE_NEW_CLUSTER in modes
    assert modes[-2:] == [Start.JOIN, Start.PLAIN]


def test_an_outcast_that_was_taken_for_removed_is_started_when_it_is_added_again() -> None:
    """A removal that was begun by the members from before the forced start finds the node gone already."""
    world = World(1, "calm")
    operators = world.operators
    world.idle(1.0)
    operators.force(world.nodes[1])
    operators.removed.add(3)
    until_ms = world.scheduler.now_ms + 30_000.0
    while operators.change is not None or operators.outcasts:
        assert world.scheduler.now_ms < until_ms
        world.scheduler.run(world.scheduler.now_ms + 100.0)
    assert world.nodes[3].running


@pytest.mark.parametrize("damaged", [1, 2])
def test_both_snapshots_may_be_damaged_one_after_the_other(
    monkeypatch: pytest.MonkeyPatch, damaged: int
) -> None:
    stories: list[str] = []
    world = World(1, "calm")
    operators, node = world.operators, world.nodes[2]
    monkeypatch.setattr(world, "break_off", lambda *told: stories.append(str(told)))
    world.idle(1.0)
    for _ in range(2):
        take_snapshot(node)
        assert operators.add() is not None
        world.scheduler.run(world.scheduler.now_ms + 5_000.0)
    snapshots = [path for path in node.disk.listdir("/data/snapshots") if path.endswith(".snapshot")]
    assert len(snapshots) == 2
    for name in snapshots[-damaged:]:
        node.kill()
        operators.damage(node, f"/data/snapshots/{name}", 300)
        world.scheduler.run(world.scheduler.now_ms + 12_000.0)
    assert node.running
    assert stories == []
    aside = [path for path in node.disk.listdir("/data/snapshots") if path.endswith(".damaged")]
    assert len(aside) == 2 - damaged, "the second time the disk was repaired"
