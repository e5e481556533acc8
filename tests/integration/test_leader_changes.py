"""Leaders are killed, stopped, terminated and asked to hand over, one after the other, while clients write.

On every node a synchronous and a pipelined client write to a path of their own. Whatever ends a leadership,
the clients of the other nodes (after a hand-over also those of the old leader) see a pause and no error, and
each session's writes take effect once, in order, none lost. Nothing is timed. A failing run prints its seed;
LEADER_CHANGES_SEED=<seed> repeats the same choices.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Iterator

import pytest

from tests.support.leader_changes import ENDINGS, SteadyWriter, bring_back, change_leader
from tests.support.nodes import QuorateNodes

#: of a run of `make test` and of `make test-long`; each has every ending once
ROUNDS = [1, pytest.param(4, marks=pytest.mark.long)]
WINDOWS = (1, 64)


class Clients:
    """Two writers on each node, replaced when their node took them down; all are checked in the end."""

    def __init__(self, nodes: QuorateNodes) -> None:
        self._nodes = nodes
        self._at: dict[int, list[SteadyWriter]] = {node_id: [] for node_id in nodes.node_ids}
        self.all: list[SteadyWriter] = []
        for node_id in nodes.node_ids:
            self.replace(node_id)

    def replace(self, node_id: int) -> None:
        """Give a node two new writers."""
        self.stop(node_id)
        self._at[node_id] = [
            SteadyWriter(self._nodes.host(node_id), f"/writer-{len(self.all) + place}", window=window)
            for place, window in enumerate(WINDOWS)
        ]
        self.all += self._at[node_id]

    def on(self, node_ids: list[int]) -> list[SteadyWriter]:
        """Writers of these nodes."""
        return [writer for node_id in node_ids for writer in self._at[node_id]]

    def stop(self, *node_ids: int) -> None:
        """Let the writers of these nodes finish."""
        for writer in self.on(list(node_ids)):
            writer.stop()


@pytest.fixture(scope="module")
def quorate() -> Iterator[QuorateNodes]:
    with QuorateNodes() as nodes:
        yield nodes


@pytest.fixture
def seed() -> int:
    chosen = int(os.environ.get("LEADER_CHANGES_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 31)
    sys.stdout.write(f"repeat with LEADER_CHANGES_SEED={chosen}\n")
    return chosen


@pytest.mark.parametrize("rounds", ROUNDS)
def test_clients_of_the_other_nodes_see_a_pause_and_no_error(
    quorate: QuorateNodes, seed: int, rounds: int
) -> None:
    nodes, choose = quorate, random.Random(seed)
    clients = Clients(nodes)
    endings = [ending for _ in range(rounds) for ending in choose.sample(list(ENDINGS), len(ENDINGS))]
    for number, ending in enumerate(endings, start=1):
        leader = nodes.leader()
        sys.stdout.write(f"round {number}: node {leader} is {ending}\n")
        others = [node_id for node_id in nodes.node_ids if node_id != leader]
        spared = clients.on([*nodes.node_ids] if ending == "transferred" else others)
        change_leader(nodes, ending, leader, spared)
        errors = {writer.path: writer.error for writer in spared if writer.error}
        assert not errors, f"round {number}, node {leader} was {ending}: clients met errors: {errors}"
        bring_back(nodes, ending, leader)
        if ending != "transferred":
            clients.replace(leader)
    clients.stop(*nodes.node_ids)
    assert not [writer.error for writer in clients.on(list(nodes.node_ids)) if writer.error]
    nodes.one_digest()
    for writer in clients.all:
        for node_id in nodes.node_ids:
            writer.check(nodes.host(node_id))
