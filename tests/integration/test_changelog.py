"""The change log over real processes: gapless over kills, equal on all nodes, and equal to the tree."""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgpack
import pytest

from quorum.client import Client, CreateMode, Transaction
from tests.support.node_configs import SMALL_SEGMENTS
from tests.support.nodes import QUICK_SESSIONS, QuorateNodes, eventually

DEADLINE_S = 30.0
WRITES = 5000
IN_FLIGHT = 100
PATHS = 200
MODES = (CreateMode.PERSISTENT, CreateMode.PERSISTENT, CreateMode.EPHEMERAL)
SETTINGS = {
    "limits": {**QUICK_SESSIONS["limits"], **SMALL_SEGMENTS["limits"]},
    "raft": SMALL_SEGMENTS["raft"],
}


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes(settings=SETTINGS) as running:
        yield running


def ask(nodes: QuorateNodes, node_id: int, query: str, accept: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", nodes.nodes[node_id].admin_port, timeout=DEADLINE_S)
    try:
        connection.request("GET", f"/v1/changelog?{query}", headers={"Accept": accept} if accept else {})
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def first_retained(nodes: QuorateNodes, node_id: int) -> int:
    code, body = ask(nodes, node_id, "from_zxid=0")
    if code == 200:
        return 0
    assert code == 410, body
    first: int = json.loads(body)["first_retained_zxid"]
    return first


def history(nodes: QuorateNodes, node_id: int, from_zxid: int) -> dict[int, bytes]:
    """All records of a node from a zxid on, as it gave them, by zxid; read in pages of 100,000 bytes."""
    records: dict[int, bytes] = {}
    while True:
        code, body = ask(nodes, node_id, f"from_zxid={from_zxid}&bytes_max=100000", "application/msgpack")
        assert code == 200, body
        if not body:
            return records
        unpacker = msgpack.Unpacker(raw=False)
        unpacker.feed(body)
        begin = 0
        for row in unpacker:
            records[row["zxid"]] = body[begin : unpacker.tell()]
            begin = unpacker.tell()
        from_zxid = max(records) + 1


def whole_history(nodes: QuorateNodes, node_id: int) -> dict[int, bytes]:
    """All that a node retains, up to the cluster's last zxid."""
    last = max(nodes.status(each)["zxid"] for each in nodes.node_ids if nodes.running(each))

    def read() -> dict[int, bytes]:
        records = history(nodes, node_id, first_retained(nodes, node_id))
        return records if records and max(records) >= last else {}

    return eventually(read, DEADLINE_S, f"node {node_id} has zxid {last}")


def check_gapless(records: dict[int, bytes]) -> None:
    assert list(records) == list(range(min(records), max(records) + 1))


def replayed(records: dict[int, bytes]) -> dict[str, tuple[bytes | None, int]]:
    """Path to data and version, as the changes say; each image before is what the changes left there."""
    tree: dict[str, tuple[bytes | None, int]] = {}
    for zxid in sorted(records):
        for change in msgpack.unpackb(records[zxid], raw=False)["changes"]:
            path = change["path"]
            assert tree.get(path, (None, 0))[0] == change["before"], (zxid, change)
            if change["op"] == "d":
                del tree[path]
            else:
                assert (change["op"] == "c") == (path not in tree), (zxid, change)
                tree[path] = (change["after"], change["version"])
    return tree


async def read_tree(hosts: str) -> dict[str, tuple[bytes | None, int]]:
    async with Client(hosts) as client:
        await client.sync("/")
        tree: dict[str, tuple[bytes | None, int]] = {}
        left = ["/zookeeper", *(f"/{name}" for name in await client.get_children("/") if name != "zookeeper")]
        while left:
            path = left.pop()
            data, stat = await client.get(path)
            tree[path] = (data, stat.version)
            left += [f"{path}/{name}" for name in await client.get_children(path)]
        return tree


async def write(hosts: str, count: int, seed: int) -> None:
    """Creates, updates, deletes and ephemerals on few paths; about a third of the writes fail."""
    draw = random.Random(seed)
    async with Client(hosts) as client:
        for begin in range(0, count, IN_FLIGHT):
            writes = [one_write(client, draw, begin + number) for number in range(IN_FLIGHT)]
            await asyncio.gather(*writes, return_exceptions=True)


async def one_write(client: Client, draw: random.Random, number: int) -> None:
    path = f"/p{draw.randrange(PATHS)}"
    kind = draw.randrange(4)
    if kind == 0:
        await client.create(path, b"%d" % number, mode=draw.choice(MODES))
    elif kind == 1:
        await client.delete(path)
    else:
        await client.set(path, b"%d" % number * 100)


def test_logs_are_equal_after_kills_and_a_snapshot_and_replay_gives_the_tree(nodes: QuorateNodes) -> None:
    leader = nodes.leader()
    killed, brought_up = (each for each in nodes.node_ids if each != leader)
    share = WRITES // 5

    def write_on(seed: int) -> None:
        asyncio.run(write(nodes.host(leader), share, seed))

    write_on(1)
    nodes.kill(brought_up)
    for seed in (2, 3):
        write_on(seed)
        for node_id in (leader, killed):
            nodes.take_snapshot(node_id)
    with ThreadPoolExecutor() as pool:
        writing = pool.submit(write_on, 4)
        nodes.start_node(brought_up)
        nodes.wait_ready(brought_up)
        writing.result()
        writing = pool.submit(write_on, 5)
        nodes.kill(killed)
        writing.result()
    nodes.start_node(killed)
    nodes.wait_ready()
    before = {node_id: whole_history(nodes, node_id) for node_id in nodes.node_ids}
    check_equal(before)
    assert min(before[leader]) == min(before[killed]) == 0
    assert min(before[brought_up]) > share, "it was not brought up by a snapshot"
    assert max(before[leader]) > WRITES
    # Killing all of them: what each makes of its journal again is what it had.
    for node_id in nodes.node_ids:
        nodes.kill(node_id)
    for node_id in nodes.node_ids:
        nodes.start_node(node_id)
    nodes.wait_ready()
    after = {node_id: whole_history(nodes, node_id) for node_id in nodes.node_ids}
    check_equal(after)
    for node_id, records in before.items():
        assert records.items() <= after[node_id].items()
    tree = asyncio.run(read_tree(nodes.hosts))
    records = whole_history(nodes, leader)
    assert replayed(records) == tree


def check_equal(histories: dict[int, dict[int, bytes]]) -> None:
    for records in histories.values():
        check_gapless(records)
    for one in histories.values():
        for other in histories.values():
            common = one.keys() & other.keys()
            assert {zxid: one[zxid] for zxid in common} == {zxid: other[zxid] for zxid in common}
            assert max(one) == max(other)


def test_a_poll_waits_for_the_next_transaction(nodes: QuorateNodes) -> None:
    node_id = nodes.leader()
    following = nodes.status(node_id)["zxid"] + 1
    assert ask(nodes, node_id, f"from_zxid={following}") == (200, b"")
    with ThreadPoolExecutor() as pool:
        polling = pool.submit(ask, nodes, node_id, f"from_zxid={following}&wait_ms=20000")
        asyncio.run(write(nodes.host(node_id), IN_FLIGHT, 6))
        code, body = polling.result()
    assert code == 200
    assert json.loads(body.splitlines()[0])["zxid"] == following


def test_a_multi_is_one_record_and_epoch_session_and_node_are_told(nodes: QuorateNodes) -> None:
    node_id = next(each for each in nodes.node_ids if each != nodes.leader())
    from_zxid = nodes.status(node_id)["zxid"] + 1

    async def work() -> int:
        async with Client(nodes.host(node_id)) as client:
            await client.create("/controller_epoch", b"41")
            transaction = Transaction()
            transaction.set("/controller_epoch", b"42")
            transaction.create("/m", b"\xff\x00")
            transaction.delete("/m")
            await client.multi(transaction)
            return client.session_id

    session_id = asyncio.run(work())

    def read() -> list[dict[str, Any]]:
        _, body = ask(nodes, node_id, f"from_zxid={from_zxid}")
        rows = [json.loads(line) for line in body.splitlines()]
        return rows if any(len(row["changes"]) == 3 for row in rows) else []

    rows = eventually(read, DEADLINE_S)
    (multi,) = (row for row in rows if len(row["changes"]) == 3)
    assert multi["controller_epoch"] == 42
    assert (multi["session_id"], multi["node_id"]) == (session_id, node_id)
    data = base64.b64encode(b"\xff\x00").decode()
    assert [(change["op"], change["before"], change["after"]) for change in multi["changes"]] == [
        ("u", base64.b64encode(b"41").decode(), base64.b64encode(b"42").decode()),
        ("c", None, data),
        ("d", data, None),
    ]
    (created,) = (row for row in rows if row["zxid"] == multi["zxid"] - 1)
    assert created["controller_epoch"] == 41


@pytest.mark.parametrize(
    "query",
    [
        "",
        "from_zxid=-1",
        "from_zxid=x",
        "from_zxid=1&from_zxid=2",
        "from_zxid=1&bytes_max=0",
        "from_zxid=1&of=2",
    ],
)
def test_a_malformed_query_is_refused(nodes: QuorateNodes, query: str) -> None:
    code, body = ask(nodes, 1, query)
    assert code == 400
    assert json.loads(body)["remedy"]


def test_the_command_line_dumps_what_is_retained(nodes: QuorateNodes) -> None:
    first = max(first_retained(nodes, node_id) for node_id in nodes.node_ids)
    for node_id in nodes.node_ids:
        command = [sys.executable, "-m", "quorum", "changelog", "dump", "--admin", nodes.admin_url(node_id)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert ended.returncode == 0, ended.stderr
        when = r"\d{4}-\d\d-\d\dT[\d:.]{12}Z"
        assert re.search(rf"zxid {first}  term \d+  {when}  session 0x", ended.stdout)
        refused = subprocess.run(
            [*command, "--json", "--from", "0"], capture_output=True, text=True, timeout=60, check=False
        )
        if first_retained(nodes, node_id):
            assert refused.returncode == 1
            assert "remedy: ask the other nodes" in refused.stderr
        else:
            assert json.loads(refused.stdout.splitlines()[0])["zxid"] == 0
