"""What the admin port refuses: names that are not its own, changes that a page could send, and disks in use.

The guard in front of the endpoints, over a real socket; then real nodes, of which no disk that is in use, and
not the last but one that votes, is retired without force.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from collections.abc import AsyncIterator, Iterator

import aiohttp
import pytest

from quorum.admin.app import AdminPort, base_app
from quorum.admin.server import AdminServer
from quorum.cli.main import main
from tests.integration.test_admin_http import Node, build_app
from tests.support.nodes import QuorateNodes

DEADLINE_S = 30.0
JSON = {"Content-Type": "application/json"}
CHANGES = [
    ("POST", "/v1/leader", b'{"node_id": 2}'),
    ("POST", "/v1/members", b'{"node_id": 4, "replace": true}'),
    ("DELETE", "/v1/members?node_id=4", None),
    ("POST", "/v1/snapshots", None),
]


@contextlib.asynccontextmanager
async def serve(node: Node, *hosts: str, brokers: bool = False) -> AsyncIterator[aiohttp.ClientSession]:
    app = base_app(node, port=AdminPort(hosts)) if brokers else build_app(node, hosts=hosts)
    admin = AdminServer(app, ("127.0.0.1", 0))
    await admin.start()
    host, port = admin.address
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    try:
        async with aiohttp.ClientSession(f"http://{host}:{port}", timeout=timeout) as client:
            yield client
    finally:
        await admin.stop()


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.0.0.1:8181", "10.0.0.3:80", "[::1]:8181", "[::1]", "[2001:db8::1]:8181"),
        *("node-1.example", "node-1.example:8181", "NODE-1.Example.:8181", "localhost", "localhost:8181"),
    ],
)
async def test_literal_addresses_and_configured_names_are_answered(host: str) -> None:
    async with serve(Node(), "localhost", "Node-1.example") as client:
        for path in ("/livez", "/readyz", "/metrics", "/v1/status"):
            async with client.get(path, headers={"Host": host}) as response:
                assert response.status == 200, path


@pytest.mark.parametrize(
    "host",
    [
        *(
            "rebound.example",
            "rebound.example:8181",
            "127.0.0.1.rebound.example",
            "localhost.rebound.example",
        ),
        *("", ":8181", "0x7f.1", "2130706433", "127.0.0.1:8181.rebound.example", "[::1].rebound.example"),
        "node-1.example",
    ],
)
@pytest.mark.parametrize("brokers", [False, True])
async def test_another_name_reads_nothing_and_changes_nothing(host: str, brokers: bool) -> None:
    node = Node()
    async with serve(node, "localhost", brokers=brokers) as client:
        for path in ("/livez", "/readyz", "/metrics", "/v1/status", "/nowhere"):
            async with client.get(path, headers={"Host": host}) as response:
                assert response.status == 421, path
                assert "security.admin_hosts" in (await response.json())["remedy"]
        for method, path, body in CHANGES:
            async with client.request(method, path, data=body, headers={"Host": host, **JSON}) as response:
                assert response.status == 421, path
    assert node.asked == []


@pytest.mark.parametrize("brokers", [False, True])
async def test_what_another_sites_page_asks_for_is_not_read(brokers: bool) -> None:
    async with serve(Node(), brokers=brokers) as client:
        for site in ("cross-site", "same-site", "none, cross-site", "other"):
            for path in ("/livez", "/metrics", "/v1/status", "/nowhere"):
                async with client.get(path, headers={"Sec-Fetch-Site": site}) as response:
                    assert response.status == 403, (site, path)
        for site in ("none", "same-origin"):
            async with client.get("/v1/status", headers={"Sec-Fetch-Site": site}) as response:
                assert response.status == 200


@pytest.mark.parametrize(("method", "path", "body"), CHANGES)
@pytest.mark.parametrize(
    "content_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", None],
)
async def test_a_change_needs_the_content_type_of_json(
    method: str, path: str, body: bytes | None, content_type: str | None
) -> None:
    node = Node()
    headers = {} if content_type is None else {"Content-Type": content_type}
    async with serve(node) as client:
        skipped = ["Content-Type"] if content_type is None else []
        async with client.request(
            method, path, data=body, headers=headers, skip_auto_headers=skipped
        ) as response:
            assert response.status == 415
            assert "Content-Type: application/json" in (await response.json())["remedy"]
        assert node.asked == []
        charset = {"Content-Type": "application/json; charset=utf-8"}
        async with client.request(method, path, data=body, headers=charset) as response:
            assert response.status in (200, 202)
    assert len(node.asked) == 1


async def test_force_is_true_or_false_and_belongs_to_a_replacement() -> None:
    node = Node()
    bad = [
        ({"node_id": 4, "replace": True, "force": 1}, "force = 1"),
        ({"node_id": 4, "replace": True, "force": "true"}, "force = 'true'"),
        ({"node_id": 4, "address": "h:1", "force": True}, "force is given without replace"),
    ]
    async with serve(node) as client:
        for fields, told in bad:
            async with client.post("/v1/members", json=fields) as response:
                assert response.status == 400
                assert told in (await response.json())["error"]
    assert node.asked == []


# --- real nodes


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes() as running:
        running.wait_ready()
        yield running


def replace(nodes: QuorateNodes, node_id: int, **fields: object) -> tuple[int, str]:
    """Ask the leader to replace a node: (status code, error)."""
    body = {"node_id": node_id, "replace": True, **fields}
    code, answer = nodes.change(nodes.leader(), "POST", "/v1/members", body)
    return code, str(answer.get("error", "")) + str(answer.get("remedy", ""))


def incarnation(nodes: QuorateNodes, node_id: int) -> str:
    members = nodes.status(nodes.leader())["members"]
    return str(next(member["incarnation"] for member in members if member["node_id"] == node_id))


def test_a_name_that_was_made_to_lead_to_a_node_reads_nothing(nodes: QuorateNodes) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", nodes.nodes[1].admin_port, timeout=DEADLINE_S)
    with contextlib.closing(connection):
        connection.request("GET", "/v1/status", headers={"Host": "rebound.example"})
        response = connection.getresponse()
        assert response.status == 421
        assert "rebound.example" in json.loads(response.read())["error"]


def test_a_command_that_asks_by_another_name_is_told_what_to_do(
    nodes: QuorateNodes, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    port = nodes.nodes[1].admin_port
    assert main(["status", "--admin", f"http://localhost:{port}"]) == 0
    # Wherever the name leads: the connection goes to this machine.
    connect = socket.create_connection
    monkeypatch.setattr(socket, "create_connection", lambda at, *rest: connect(("127.0.0.1", at[1]), *rest))
    assert main(["status", "--admin", f"http://node-1.example:{port}"]) == 1
    told = capsys.readouterr().err
    assert "node-1.example" in told
    assert "security.admin_hosts" in told


def test_disks_in_use_and_the_last_but_one_voter_are_retired_by_force_alone(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    first, second = (each for each in nodes.node_ids if each != leader)
    disk = incarnation(nodes, first)
    for fields in ({}, {"incarnation": disk}, {"force": True}):
        code, told = replace(nodes, first, **fields)
        assert code == 409, told
        assert "is in use" in told
        assert disk in told
    assert incarnation(nodes, first) == disk
    code, told = replace(nodes, first, incarnation=disk, force=True)
    assert code == 200, told
    other = incarnation(nodes, second)
    code, told = replace(nodes, second, incarnation=other)
    assert code == 409, told
    assert "a single one would be left" in told
    assert incarnation(nodes, second) == other
