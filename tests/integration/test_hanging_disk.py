"""A disk that hangs for good, without an error: its node says so and answers nobody, and all others go on.

The fault is an fsync of the journal's thread that never comes back (tests/support/stalling_node.py); before
it comes a short one, behind which the node writes in that thread. A follower's clients lose their connections
instead of reading what is no longer true, new ones find nobody, and a leader leaves the lead. The admin port
answers all the while; once the process is killed and started again, the node is as good as before.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.leader_changes import SteadyWriter
from tests.support.nodes import QuorateNodes, eventually
from tests.support.stalling_node import ANY, LANE, ask_stall, stalled_in
from tests.support.wire_load import GET_DATA, SET_DATA, Connection, LoadError, read_body, set_body

pytestmark = pytest.mark.alone

DEADLINE_S = 30.0
#: as STALL_MS of that node's disk and a little: from then on it writes in a thread of its own
FIRST_STALL_S = 0.6
FOR_GOOD_S = 3600.0
SESSION_TIMEOUT_MS = 6000


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes(arguments=("-m", "tests.support.stalling_node", "serve")) as running:
        yield running


class Client:
    """A client of one node that writes a path and reads it again."""

    def __init__(self, host: str, path: str) -> None:
        self.path = path
        self._host = host
        self._connection = Connection(host, session_timeout_ms=SESSION_TIMEOUT_MS, timeout_s=DEADLINE_S)
        self._connection.ensure(path)

    def write(self) -> None:
        """Set the path without waiting for the outcome, so that the node has something to make durable."""
        self._connection.socket.sendall(_frame(SET_DATA, set_body(self.path, b"x")))

    def is_refused_a_read(self) -> bool:
        """Ask for the path; tell whether the connection ends, and nothing was told on it."""
        try:
            self._connection.socket.sendall(_frame(GET_DATA, read_body(self.path)))
            told = self._connection.socket.recv(1)
        except ConnectionError:
            return True
        return told == b""

    def close(self) -> None:
        """End it."""
        self._connection.close()


def _frame(opcode: int, body: bytes) -> bytes:
    return (8 + len(body)).to_bytes(4) + (1).to_bytes(4) + opcode.to_bytes(4) + body


def finds_nobody(host: str) -> bool:
    """Tell whether a new client gets no session."""
    with contextlib.suppress(OSError, LoadError):
        Connection(host, session_timeout_ms=SESSION_TIMEOUT_MS, timeout_s=DEADLINE_S).close()
        return False
    return True


def use_the_lane(nodes: QuorateNodes, node_id: int) -> Path:
    """Have a node write in its journal's thread from now on."""
    folder = nodes.nodes[node_id].folder
    with Connection(nodes.host(node_id)) as connection:
        connection.ensure("/first")
        ask_stall(folder, ANY, FIRST_STALL_S)
        connection.call(SET_DATA, set_body("/first", b"x"))
    stalled_in(folder)
    nodes.wait_ready()
    return folder


def why_not_ready(nodes: QuorateNodes, node_id: int) -> str:
    """Return the reason that /readyz gives with 503; empty if it says 200."""
    code, answer = nodes.get(node_id, "/readyz")
    return str(json.loads(answer)["reason"]) if code == 503 else ""


def says_that_its_disk_hangs(nodes: QuorateNodes, node_id: int) -> None:
    eventually(
        lambda: "made nothing durable" in why_not_ready(nodes, node_id),
        DEADLINE_S,
        f"node {node_id} says that its disk hangs",
    )


def put_right(nodes: QuorateNodes, node_id: int) -> None:
    """Kill a node that hangs, and start it again."""
    nodes.kill(node_id)
    (nodes.nodes[node_id].folder / "stall.json").unlink(missing_ok=True)
    nodes.start_node(node_id)
    nodes.wait_ready()


def test_a_follower_whose_disk_hangs_answers_nobody_and_says_why(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    follower = next(each for each in nodes.node_ids if each != nodes.leader())
    folder = use_the_lane(nodes, follower)
    follower = follower if nodes.leader() != follower else 0
    assert follower, "the short stall of a follower costs no leadership"
    others = [each for each in nodes.node_ids if each != follower]
    client = Client(nodes.host(follower), "/of-the-follower")
    writers = [SteadyWriter(nodes.host(each), f"/beside-{each}") for each in others]
    leader, term = nodes.leader(), nodes.status(nodes.leader())["term"]
    ask_stall(folder, LANE, FOR_GOOD_S)
    client.write()
    says_that_its_disk_hangs(nodes, follower)
    frozen = nodes.status(follower)["applied_index"]
    assert client.is_refused_a_read()
    assert finds_nobody(nodes.host(follower))
    _go_on(writers)
    assert (nodes.leader(), nodes.status(leader)["term"]) == (leader, term)
    assert nodes.status(follower)["applied_index"] == frozen
    says_that_its_disk_hangs(nodes, follower)
    _end(nodes, writers)
    put_right(nodes, follower)


def test_a_leader_whose_disk_hangs_leaves_the_lead(nodes: QuorateNodes) -> None:
    nodes.wait_ready()
    leader = nodes.leader()
    folder = use_the_lane(nodes, leader)
    if nodes.leader() != leader:
        code, answer = nodes.change(nodes.leader(), "POST", "/v1/leader", {"node_id": leader})
        assert code == 200, answer
        nodes.wait_ready()
    others = [each for each in nodes.node_ids if each != leader]
    client = Client(nodes.host(leader), "/of-the-leader")
    writers = [SteadyWriter(nodes.host(each), f"/besides-{each}") for each in others]
    term = int(nodes.status(leader)["term"])
    ask_stall(folder, LANE, FOR_GOOD_S)
    client.write()
    eventually(lambda: nodes.leader_now() in others, DEADLINE_S, "another node leads")
    assert int(nodes.status(nodes.leader())["term"]) > term
    says_that_its_disk_hangs(nodes, leader)
    assert client.is_refused_a_read()
    assert finds_nobody(nodes.host(leader))
    _go_on(writers)
    assert nodes.leader() in others
    _end(nodes, writers)
    put_right(nodes, leader)


def _go_on(writers: list[SteadyWriter]) -> None:
    """Wait until every writer got many more replies, or met an error."""
    before = [writer.acknowledged for writer in writers]
    eventually(
        lambda: all(
            writer.error or writer.acknowledged > past + 50
            for writer, past in zip(writers, before, strict=True)
        ),
        DEADLINE_S,
        "the others go on",
    )
    assert [writer.error for writer in writers if writer.error] == []


def _end(nodes: QuorateNodes, writers: list[SteadyWriter]) -> None:
    """Stop the writers, and see that nothing of them is lost."""
    for writer in writers:
        writer.stop()
    for writer in writers:
        writer.check(nodes.host(nodes.leader()))
