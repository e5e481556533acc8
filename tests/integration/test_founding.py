"""A cluster is founded once: founders that come back without their data found no second one.

Real processes. What the cluster acknowledged must still be there, the node that holds it goes on, and the one
that lost it says what to do. Source: raft.md (Identity and membership).
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.support.nodes import LIVE, QuorateNodes, eventually
from tests.support.wire_load import CREATE, GET_DATA, Connection, create_body, decode_get, read_body

DEADLINE_S = 30.0


@pytest.fixture
def nodes() -> Iterator[QuorateNodes]:
    """Three configured founders, none of which was ever started."""
    cluster = QuorateNodes()
    LIVE.append(cluster)
    yield cluster
    cluster.close()


def reason(nodes: QuorateNodes, node_id: int) -> str:
    return str(json.loads(nodes.get(node_id, "/readyz")[1])["reason"])


def found_by_two(nodes: QuorateNodes) -> str:
    """Found with nodes 1 and 2, write /acked, and return the cluster id."""
    for node_id in (1, 2):
        nodes.start_node(node_id, "--bootstrap")
    nodes.wait_ready(1, 2)
    with Connection(nodes.host(1)) as connection:
        assert connection.call(CREATE, create_body("/acked", b"kept"))[0] == 0
    return str(nodes.status(1)["cluster_id"])


def acked(nodes: QuorateNodes, node_id: int) -> bytes:
    with Connection(nodes.host(node_id)) as connection:
        connection.sync()
        error, _, body = connection.call(GET_DATA, read_body("/acked"))
        assert error == 0
        return decode_get(body)[0]


def lose_disk(nodes: QuorateNodes, node_id: int) -> None:
    nodes.kill(node_id)
    nodes.nodes[node_id].data_dir.rename(nodes.nodes[node_id].folder / "lost")


def met_cluster_id(nodes: QuorateNodes, node_id: int) -> str:
    path = nodes.nodes[node_id].data_dir / "identity.json"
    return str(json.loads(path.read_text())["met_cluster_id"]) if path.exists() else ""


def put_back(nodes: QuorateNodes, node_id: int) -> None:
    nodes.stop(node_id)
    shutil.rmtree(nodes.nodes[node_id].data_dir)
    (nodes.nodes[node_id].folder / "lost").rename(nodes.nodes[node_id].data_dir)


def test_an_empty_founder_and_one_that_never_ran_found_no_second_cluster(nodes: QuorateNodes) -> None:
    cluster_id = found_by_two(nodes)
    lose_disk(nodes, 2)
    for node_id in (2, 3):
        nodes.start_node(node_id, "--bootstrap")
    for node_id in (2, 3):
        eventually(lambda: met_cluster_id(nodes, node_id) == cluster_id, DEADLINE_S)  # noqa: B023
        said = reason(nodes, node_id)
        assert f"the cluster {cluster_id} exists already" in said
        assert f"quorate members replace {node_id}" in said
        assert "exists already" in nodes.nodes[node_id].output_path.read_text()
        assert "exists already" in str(nodes.status(node_id)["problem"])
    eventually(lambda: "another disk" in reason(nodes, 2), DEADLINE_S, "node 1 says why it refuses node 2")

    # Also while nobody of the cluster is there: what was met is on the disks.
    nodes.kill(1)
    for node_id in (2, 3):
        nodes.kill(node_id)
        nodes.start_node(node_id, "--bootstrap")
    eventually(lambda: nodes.status(2)["members"][2]["role"] == "follower", DEADLINE_S, "2 and 3 are linked")
    nodes.start_node(1)
    eventually(lambda: 1 in nodes.status(2)["refused_by"], DEADLINE_S)
    for node_id in (2, 3):
        assert nodes.status(node_id)["term"] == 0
        assert nodes.status(node_id)["cluster_id"] is None
    assert nodes.status(1)["cluster_id"] == cluster_id

    put_back(nodes, 2)
    nodes.start_node(2)
    nodes.wait_ready(1, 2, 3)
    assert [acked(nodes, node_id) for node_id in (1, 2, 3)] == [b"kept"] * 3
    assert {nodes.status(node_id)["cluster_id"] for node_id in (1, 2, 3)} == {cluster_id}
    assert met_cluster_id(nodes, 3) == ""


def test_a_founder_that_bootstraps_again_under_a_living_cluster_is_refused(nodes: QuorateNodes) -> None:
    cluster_id = found_by_two(nodes)
    nodes.start_node(3, "--bootstrap")
    nodes.wait_ready(1, 2, 3)
    lose_disk(nodes, 3)
    nodes.start_node(3, "--bootstrap")
    eventually(lambda: set(nodes.status(3)["refused_by"]) == {1, 2}, DEADLINE_S)
    assert "quorate members replace 3" in reason(nodes, 3)
    assert nodes.status(3)["term"] == 0
    incarnation = json.loads((nodes.nodes[3].data_dir / "identity.json").read_text())["incarnation"]
    for asked in (1, 2):
        rows = {row["node_id"]: row for row in nodes.status(asked)["members"]}
        assert (rows[3]["refused"], rows[3]["role"]) == (incarnation, "refused")
        assert f"incarnation: {incarnation} there" in rows[3]["refusal"]
        assert "quorate members replace 3" in rows[3]["refusal"]
        command = [sys.executable, "-m", "quorum", "members", "list", "--admin", nodes.admin_url(asked)]
        listed = subprocess.run(
            command, capture_output=True, text=True, timeout=DEADLINE_S, check=True
        ).stdout
        assert f"\nnode 3 is refused: {rows[3]['refusal']}\n" in listed

    def replaced() -> bool:
        return nodes.change(1, "POST", "/v1/members", {"node_id": 3, "replace": True})[0] == 200

    eventually(replaced, DEADLINE_S)
    nodes.wait_ready(3)
    assert nodes.status(3)["cluster_id"] == cluster_id
    assert acked(nodes, 3) == b"kept"


def test_a_restarted_node_without_a_majority_knows_its_cluster(nodes: QuorateNodes) -> None:
    cluster_id = found_by_two(nodes)
    nodes.stop(2)
    nodes.kill(1)
    nodes.start_node(1)
    assert eventually(lambda: nodes.status(1), DEADLINE_S)["cluster_id"] == cluster_id
    assert f"the cluster {cluster_id} waits for a majority" in reason(nodes, 1)
