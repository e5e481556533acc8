"""A node whose state differs from that of the majority stops and says why; clients of the others go on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.diverging_node import HEALTHY, VICTIM, marker
from tests.support.nodes import STOP_DEADLINE_S, QuorateNodes, eventually, tail
from tests.support.wire_load import SET_DATA, Connection, set_body

COUNT_OF_WRITES = 50
DEADLINE_S = 20.0


def diverging(count: int) -> Iterator[QuorateNodes]:
    with QuorateNodes(nodes=count, arguments=("-m", "tests.support.diverging_node", "serve")) as nodes:
        with Connection(nodes.host(nodes.leader())) as connection:
            connection.ensure(f"/{VICTIM}")
            write(connection)
        yield nodes


@pytest.fixture
def three() -> Iterator[QuorateNodes]:
    yield from diverging(3)


@pytest.fixture
def two() -> Iterator[QuorateNodes]:
    yield from diverging(2)


def write(connection: Connection) -> None:
    error, _, _ = connection.call(SET_DATA, set_body(f"/{VICTIM}", b"value"))
    assert error == 0


def corrupt(nodes: QuorateNodes, node_id: int) -> None:
    """Make one node's state go wrong, and have the wrong znode written."""
    with Connection(nodes.host(nodes.leader())) as connection:
        connection.ensure(marker(node_id))
        # The odd one may be the node that this connection is with.
        error, _, _ = connection.call(SET_DATA, set_body(f"/{VICTIM}", b"value"))
        assert error == 0


def exit_code(nodes: QuorateNodes, node_id: int) -> int:
    """Wait until a node ended by itself."""
    process = nodes.nodes[node_id].process
    assert process is not None
    return process.wait(STOP_DEADLINE_S)


def story(nodes: QuorateNodes, node_id: int) -> str:
    return tail(nodes.nodes[node_id].output_path)


def compared(nodes: QuorateNodes, node_id: int) -> float:
    """How many digests of others a node compared, as its metrics say."""
    code, page = nodes.get(node_id, "/metrics")
    assert code == 200
    (line,) = (row for row in page.decode().splitlines() if row.startswith("quorate_digests_compared_total "))
    return float(line.split()[1])


def test_an_odd_follower_stops_again_only_if_wrong_again_and_clients_go_on(three: QuorateNodes) -> None:
    leader = three.leader()
    odd, other = (node_id for node_id in three.node_ids if node_id != leader)
    nodes_with_the_same_state_go_on(three, leader)
    with Connection(three.host(other)) as client:
        corrupt(three, odd)
        assert exit_code(three, odd) == 1
        for _ in range(COUNT_OF_WRITES):
            write(client)
    assert three.leader() == leader
    said = story(three, odd)
    assert f"error: node {odd} stopped itself: at log index" in said
    assert f"differs from that of node {leader}, which leads" in said
    assert "state_digest" in said
    assert f"members replace {odd}" in said
    assert f"the state of node {odd} differs from this leader's" in story(three, leader)
    assert three.one_digest()

    # The launcher goes wrong again where it replays the marker: as a damaged snapshot or a defect would.
    three.start_node(odd)
    assert exit_code(three, odd) == 1
    three.environment[HEALTHY] = "1"
    three.start_node(odd)
    three.wait_ready(odd)
    with Connection(three.host(odd)) as client:
        for _ in range(COUNT_OF_WRITES):
            write(client)
    assert three.one_digest()
    assert three.running(odd)


def nodes_with_the_same_state_go_on(three: QuorateNodes, leader: int) -> None:
    with Connection(three.host(leader)) as connection:
        for _ in range(COUNT_OF_WRITES):
            write(connection)
        assert three.one_digest()
    followers = [node_id for node_id in three.node_ids if node_id != leader]
    eventually(lambda: all(compared(three, each) for each in followers), DEADLINE_S, "followers compare")
    assert all(three.running(node_id) for node_id in three.node_ids)


def test_the_others_elect_when_an_odd_leader_stops(three: QuorateNodes) -> None:
    odd = three.leader()
    others = [node_id for node_id in three.node_ids if node_id != odd]
    with Connection(three.host(others[0])) as client:
        corrupt(three, odd)
        assert exit_code(three, odd) == 1
        for _ in range(COUNT_OF_WRITES):
            write(client)
    assert three.leader() in others
    said = story(three, odd)
    assert f"differs from that of nodes {others[0]}, {others[1]} (2 of 3 voters)" in said
    assert f"members replace {odd}" in said
    assert three.one_digest()


def test_a_voter_that_is_down_is_not_awaited(three: QuorateNodes) -> None:
    leader = three.leader()
    odd, down = (node_id for node_id in three.node_ids if node_id != leader)
    three.stop(down)
    corrupt(three, odd)
    assert exit_code(three, odd) == 1
    assert "no majority of the voters differs from it in the same way" in story(three, odd)
    three.environment[HEALTHY] = "1"
    for node_id in (odd, down):
        three.start_node(node_id)
    three.wait_ready()
    assert three.one_digest()


def test_of_two_nodes_the_follower_stops_and_says_why(two: QuorateNodes) -> None:
    leader = two.leader()
    follower = 3 - leader
    corrupt(two, leader)
    assert exit_code(two, follower) == 1
    assert two.running(leader)
    assert "no majority of the voters differs from it in the same way" in story(two, follower)
    eventually(lambda: not two.ready(leader), DEADLINE_S, "one of two voters serves nobody")
