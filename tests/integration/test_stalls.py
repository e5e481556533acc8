"""Nodes that stand still for a while, and clients that see a pause and no error.

A disk that stalls in the middle of an fsync, processes that are stopped and run on, a majority that is away
for two seconds: every client keeps its connection and gets every reply, those of the node that stood still
included, because no stall comes near a third of a session's timeout of silence, or, on the node that stood
still, near two thirds. Nothing is timed. The last test shows that the fault bites: a node that stood still
for longer than a session closes its connections.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import pytest

from tests.support.leader_changes import SteadyWriter
from tests.support.nodes import QuorateNodes, eventually
from tests.support.stalling_node import ANY, LANE, LOOP, ask_stall, stalled_in

pytestmark = pytest.mark.alone

DEADLINE_S = 30.0
SESSION_TIMEOUT_MS = 10_000
#: longer than the longest election timeout (0.6 s)
DISK_STALL_S = 0.8
#: longer than twice that, after which a node answers nobody; shorter than a third of the session timeout
STOP_S = 2.0
WINDOWS = (1, 64)


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes(arguments=("-m", "tests.support.stalling_node", "serve")) as running:
        yield running


class Writers:
    """Two clients on each node."""

    def __init__(self, nodes: QuorateNodes, name: str, session_timeout_ms: int = SESSION_TIMEOUT_MS) -> None:
        self._nodes = nodes
        self.all = {
            (node_id, window): SteadyWriter(
                nodes.host(node_id),
                f"/{name}-{node_id}-{window}",
                window=window,
                session_timeout_ms=session_timeout_ms,
            )
            for node_id in nodes.node_ids
            for window in WINDOWS
        }
        self.go_on()

    def errors(self) -> dict[str, str]:
        """{path: why its client ended}."""
        return {writer.path: writer.error for writer in self.all.values() if writer.error}

    def go_on(self) -> None:
        """Wait until every client got more replies, or met an error."""
        before = {key: writer.acknowledged for key, writer in self.all.items()}
        eventually(
            lambda: all(
                writer.error or writer.acknowledged > before[key] for key, writer in self.all.items()
            ),
            DEADLINE_S,
            "every client goes on",
        )

    def end(self) -> None:
        """Check that nobody met an error and that every write took effect once, in order."""
        self.go_on()
        errors = self.errors()
        for writer in self.all.values():
            writer.stop()
        assert not (errors or self.errors()), f"clients met errors: {errors or self.errors()}"
        for writer in self.all.values():
            writer.check(self._nodes.host(1))


def stop_for(nodes: QuorateNodes, node_ids: Sequence[int], seconds: float) -> None:
    """Let processes stand still for so long."""
    until_s = time.monotonic() + seconds
    for node_id in node_ids:
        nodes.pause(node_id)
    eventually(lambda: time.monotonic() >= until_s, seconds + DEADLINE_S)
    for node_id in node_ids:
        nodes.resume(node_id)


def test_a_disk_that_stalls_costs_one_leadership_at_most_and_a_second_time_none(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    writers = Writers(nodes, "disk")
    leader = nodes.leader()
    folder = nodes.nodes[leader].folder
    term = int(nodes.status(leader)["term"])
    ask_stall(folder, LOOP, DISK_STALL_S)
    assert stalled_in(folder) == LOOP
    writers.go_on()
    nodes.wait_ready()
    assert int(nodes.status(nodes.leader())["term"]) <= term + 1
    assert not writers.errors()
    if nodes.leader() != leader:
        code, answer = nodes.change(nodes.leader(), "POST", "/v1/leader", {"node_id": leader})
        assert code == 200, answer
    term = int(nodes.status(leader)["term"])
    ask_stall(folder, ANY, DISK_STALL_S)
    assert stalled_in(folder) == LANE
    writers.go_on()
    assert (nodes.leader(), int(nodes.status(leader)["term"])) == (leader, term)
    writers.end()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_clients_of_a_node_that_stood_still_see_a_pause(nodes: QuorateNodes, role: str) -> None:
    nodes.wait_ready()
    writers = Writers(nodes, f"stopped-{role}")
    leader = nodes.leader()
    stopped = leader if role == "leader" else next(each for each in nodes.node_ids if each != leader)
    stop_for(nodes, [stopped], STOP_S)
    writers.end()


def test_a_majority_that_is_away_for_a_while_is_a_pause(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    writers = Writers(nodes, "majority")
    leader = nodes.leader()
    stop_for(nodes, [each for each in nodes.node_ids if each != leader], STOP_S)
    writers.end()


def test_a_node_alone_says_how_long_it_heard_nobody(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    alone, *others = sorted(nodes.node_ids, key=nodes.leader().__ne__)
    for each in others:
        nodes.pause(each)

    def says_both() -> bool:
        heard = re.findall(r"; node (\d) was heard (\d+) ms ago", nodes.get(alone, "/readyz")[1].decode())
        return sorted(int(node_id) for node_id, age in heard if int(age) > 1000) == sorted(others)

    eventually(says_both, DEADLINE_S, "both are named, with the time for which they were silent")
    for each in others:
        nodes.resume(each)


def test_a_node_that_stood_still_for_longer_than_a_session_ends_its_connections(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    writers = Writers(nodes, "long", session_timeout_ms=3000)
    stopped = next(each for each in nodes.node_ids if each != nodes.leader())
    stop_for(nodes, [stopped], 3.0)
    for window in WINDOWS:
        ended = writers.all[stopped, window]
        eventually(lambda writer=ended: writer.error, DEADLINE_S, "its connection ended")  # type: ignore[misc]
    for writer in writers.all.values():
        writer.stop()
