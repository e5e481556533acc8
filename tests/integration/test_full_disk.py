"""A start on a full disk ends with its error, and works once there is room."""

from __future__ import annotations

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


def refused(nodes: QuorateNodes, node_id: int) -> str:
    """Start a node and wait until its start has ended; returns its last two lines."""
    nodes.start_node(node_id)
    process, output = nodes.nodes[node_id].process, nodes.nodes[node_id].output_path
    assert process is not None
    assert process.wait(DEADLINE_S) == 1
    assert "Traceback" not in output.read_text()
    return "\n".join(output.read_text().splitlines()[-2:])


def test_a_restart_on_a_full_disk_ends_with_its_error(nodes: QuorateNodes) -> None:
    writer = SteadyWriter(nodes.host(1), "/written", window=16)
    eventually(lambda: writer.acknowledged > 100, DEADLINE_S)
    nodes.kill(3)
    use_up(nodes.nodes[3])
    before = max((nodes.nodes[3].data_dir / "journal").glob("*.segment")).read_bytes()
    said = refused(nodes, 3)
    assert f"error: data directory {nodes.nodes[3].data_dir}" in said
    assert "No space left on device" in said
    assert "free space on it" in said
    assert max((nodes.nodes[3].data_dir / "journal").glob("*.segment")).read_bytes() == before
    make_room(nodes.nodes[3].folder)
    nodes.start_node(3)
    nodes.wait_ready(3)
    writer.stop()
    assert not writer.error
    writer.check(nodes.host(3))
    nodes.one_digest()


def test_a_first_start_on_a_full_disk_can_be_repeated(tmp_path: Path) -> None:
    arguments = ("-m", "tests.support.full_node", "serve")
    ensemble = QuorateNodes(nodes=1, folder=tmp_path, arguments=arguments)
    try:
        fill(ensemble.nodes[1].folder)
        assert "No space left on device" in refused(ensemble, 1)
        make_room(ensemble.nodes[1].folder)
        ensemble.start_node(1, "--bootstrap")
        ensemble.wait_ready(1)
    finally:
        ensemble.close()
