"""A cluster is founded once: founders that come back without their data found no second one.

Real processes. What the cluster acknowledged must still be there, the node that holds it goes on, and the one
that lost it says what to do. Source: docs/internals/consensus.md, "Membership".
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


def found(nodes: QuorateNodes) -> str:
    """Found with all three, write /acked, and return the cluster id."""
    for node_id in (1, 2, 3):
        nodes.start_node(node_id, "--bootstrap")
    nodes.wait_ready(1, 2, 3)
    with Connection(nodes.host(1)) as connection:
        assert connection.call(CREATE, create_body("/acked", b"kept"))[0] == 0
    for node_id in (1, 2, 3):
        assert acked(nodes, node_id) == b"kept"
    return str(nodes.status(1)["cluster_id"])


def acked(nodes: QuorateNodes, node_id: int) -> bytes:
    with Connection(nodes.host(node_id)) as connection:
        connection.sync()
        error, _, body = connection.call(GET_DATA, read_body("/acked"))
        assert error == 0
        return decode_get(body)[0]


def lose_disk(nodes: QuorateNodes, node_id: int) -> None:
    nodes.nodes[node_id].data_dir.rename(nodes.nodes[node_id].folder / "lost")


def put_back(nodes: QuorateNodes, node_id: int) -> None:
    nodes.stop(node_id)
    shutil.rmtree(nodes.nodes[node_id].data_dir)
    (nodes.nodes[node_id].folder / "lost").rename(nodes.nodes[node_id].data_dir)


def test_a_founder_waits_for_all_others_and_says_so(nodes: QuorateNodes) -> None:
    for node_id in (1, 2):
        nodes.start_node(node_id, "--bootstrap")
    eventually(lambda: nodes.status(1)["members"][1]["role"] == "follower", DEADLINE_S, "1 and 2 are linked")
    for node_id in (1, 2):
        eventually(lambda: "has not heard from node 3 that it founds" in reason(nodes, node_id), DEADLINE_S)  # noqa: B023
        assert "start every one of them once" in str(nodes.status(node_id)["problem"])
        assert (nodes.status(node_id)["term"], nodes.status(node_id)["cluster_id"]) == (0, None)
    nodes.start_node(3, "--bootstrap")
    nodes.wait_ready(1, 2, 3)


def test_emptied_founders_found_nothing_beside_an_absent_one(nodes: QuorateNodes) -> None:
    """Also where they are the majority; `--bootstrap` stands in their start scripts."""
    cluster_id = found(nodes)
    for node_id in (1, 2, 3):
        nodes.kill(node_id)
    for node_id in (2, 3):
        lose_disk(nodes, node_id)
        nodes.start_node(node_id, "--bootstrap")
    eventually(lambda: nodes.status(2)["members"][2]["role"] == "follower", DEADLINE_S, "2 and 3 are linked")
    for node_id in (2, 3):
        eventually(lambda: "has not heard from node 1 that" in reason(nodes, node_id), DEADLINE_S)  # noqa: B023

    nodes.start_node(1, "--bootstrap")
    for node_id in (2, 3):
        eventually(lambda: f"to the cluster {cluster_id} already" in reason(nodes, node_id), DEADLINE_S)  # noqa: B023
        assert f"quorate members replace {node_id}" in str(nodes.status(node_id)["problem"])
        assert f"to the cluster {cluster_id} already" in nodes.nodes[node_id].output_path.read_text()
        assert (nodes.status(node_id)["term"], nodes.status(node_id)["cluster_id"]) == (0, None)

    put_back(nodes, 2)
    nodes.start_node(2, "--bootstrap")
    nodes.wait_ready(1, 2)
    assert [acked(nodes, node_id) for node_id in (1, 2)] == [b"kept"] * 2
    assert {nodes.status(node_id)["cluster_id"] for node_id in (1, 2)} == {cluster_id}


def test_a_founder_that_bootstraps_again_under_a_living_cluster_is_refused(nodes: QuorateNodes) -> None:
    cluster_id = found(nodes)
    nodes.kill(3)
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


def test_a_new_node_that_starts_as_a_founder_is_added(nodes: QuorateNodes) -> None:
    """As a StatefulSet starts one more: every pod has the same command line."""
    cluster_id = found(nodes)
    nodes.new_node(4)
    nodes.start_node(4, "--bootstrap")
    eventually(lambda: "quorate members add" in reason(nodes, 4), DEADLINE_S)
    body = {"node_id": 4, "address": nodes.peer_address(4)}
    assert nodes.change(1, "POST", "/v1/members", body)[0] == 200
    nodes.wait_ready(4)
    assert nodes.status(4)["cluster_id"] == cluster_id
    assert acked(nodes, 4) == b"kept"
    eventually(lambda: nodes.status(4)["role"] == "follower", DEADLINE_S)


def test_a_restarted_node_without_a_majority_knows_its_cluster(nodes: QuorateNodes) -> None:
    cluster_id = found(nodes)
    nodes.kill(2)
    nodes.kill(3)
    nodes.kill(1)
    nodes.start_node(1)
    assert eventually(lambda: nodes.status(1), DEADLINE_S)["cluster_id"] == cluster_id
    assert f"the cluster {cluster_id} waits for a majority" in reason(nodes, 1)
