"""A node that starts on a full disk waits for room, says so, and goes on by itself."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from quorum.raft.journal.format import TRAILER_BYTES, TRAILER_MAGIC
from tests.support.full_node import fill, make_room
from tests.support.leader_changes import SteadyWriter
from tests.support.nodes import Node, QuorateNodes, eventually

DEADLINE_S = 30.0


@pytest.fixture
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes(arguments=("-m", "tests.support.full_node", "serve")) as running:
        yield running


def use_up(node: Node) -> None:
    """Leave nothing of the space that a node wrote ahead, and let its disk have no more."""
    newest = max((node.data_dir / "journal").glob("*.segment"))
    # A trailer may end with zeros of its own, as the space behind it does.
    os.truncate(newest, newest.read_bytes().rindex(TRAILER_MAGIC) + TRAILER_BYTES)
    fill(node.folder)


def waiting_for_room(nodes: QuorateNodes, node_id: int) -> str:
    """Wait until a node says that it waits for room; returns the reason."""

    def reason() -> str:
        code, body = nodes.get(node_id, "/readyz")
        told = str(json.loads(body)["reason"])
        return told if code == 503 and "waits for room on the disk" in told else ""

    return eventually(reason, DEADLINE_S, f"node {node_id} waits for room")


def test_a_restart_waits_for_room_and_goes_on_by_itself(nodes: QuorateNodes) -> None:
    writer = SteadyWriter(nodes.host(1), "/written", window=16)
    eventually(lambda: writer.acknowledged > 100, DEADLINE_S)
    nodes.kill(3)
    use_up(nodes.nodes[3])
    before = max((nodes.nodes[3].data_dir / "journal").glob("*.segment")).read_bytes()
    nodes.start_node(3)
    reason = waiting_for_room(nodes, 3)
    assert str(nodes.nodes[3].data_dir) in reason
    assert "goes on by itself" in reason
    status = nodes.status(3)
    assert (status["node_id"], status["role"], status["problem"]) == (3, "starting", reason)
    assert nodes.get(3, "/livez")[0] == 200
    assert b"quorate_ready 0.0" in nodes.get(3, "/metrics")[1]
    code, answer = nodes.change(3, "DELETE", "/v1/members?node_id=2")
    assert (code, answer["definite"], answer["retriable"]) == (503, True, True)
    code, answer = nodes.change(3, "POST", "/v1/snapshot")
    assert (code, answer["definite"], answer["retriable"]) == (503, True, True)
    assert "node 3 has not started yet" in answer["error"]
    assert "free space" in answer["remedy"]
    assert max((nodes.nodes[3].data_dir / "journal").glob("*.segment")).read_bytes() == before
    make_room(nodes.nodes[3].folder)
    nodes.wait_ready(3)
    writer.stop()
    assert not writer.error
    writer.check(nodes.host(3))
    nodes.one_digest()
    assert "Traceback" not in nodes.nodes[3].output_path.read_text()


def test_a_node_that_waits_for_room_can_be_stopped(nodes: QuorateNodes) -> None:
    nodes.stop(2)
    use_up(nodes.nodes[2])
    nodes.start_node(2)
    waiting_for_room(nodes, 2)
    process = nodes.nodes[2].process
    nodes.stop(2)
    assert process is not None
    assert process.returncode == 0
    make_room(nodes.nodes[2].folder)
    nodes.start_node(2)
    nodes.wait_ready(2)


def test_a_first_start_waits_for_room(tmp_path: Path) -> None:
    arguments = ("-m", "tests.support.full_node", "serve")
    ensemble = QuorateNodes(nodes=1, folder=tmp_path, arguments=arguments)
    try:
        fill(ensemble.nodes[1].folder)
        ensemble.start_node(1)
        waiting_for_room(ensemble, 1)
        make_room(ensemble.nodes[1].folder)
        ensemble.wait_ready(1)
    finally:
        ensemble.close()
