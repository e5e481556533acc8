"""Snapshots by request, over HTTP and by the command line: of the node that was asked, durable when told.

Most of it with real processes. Where the disk must stand still at the right moment, the node runs in the
test's own process and its snapshot's file waits for the test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from kazoo.client import KazooClient

from quorum.client import Client
from quorum.node import snapshot_requests
from quorum.node.node import QuorumNode
from quorum.platform.runtime import File
from quorum.raft.snapshots.snapshots import SnapshotStore
from tests.support.full_node import fill, make_room
from tests.support.node_configs import loopback_configs
from tests.support.nodes import QuorateNodes, eventually

DEADLINE_S = 30.0
AT_ONCE = 8


@pytest.fixture(scope="module")
def nodes() -> Iterator[QuorateNodes]:
    with QuorateNodes() as running:
        yield running


def quorate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run one command of the command line."""
    command = [sys.executable, "-m", "quorum", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def write(hosts: str, *paths: str) -> None:
    """Create znodes; all of it is committed on return, the end of the session included."""

    async def create() -> None:
        async with Client(hosts) as client:
            for path in paths:
                await client.create(path, path.encode())

    asyncio.run(create())


def read(hosts: str, path: str) -> bytes | None:
    async def get() -> bytes | None:
        async with Client(hosts) as client:
            return (await client.get(path))[0]

    return asyncio.run(get())


def take(nodes: QuorateNodes, node_id: int) -> dict[str, Any]:
    code, answer = nodes.change(node_id, "POST", "/v1/snapshot")
    assert code == 200, answer
    return answer


def snapshot_files(nodes: QuorateNodes, node_id: int) -> list[Path]:
    return sorted((nodes.nodes[node_id].data_dir / "snapshots").iterdir())


def taken_count(nodes: QuorateNodes, node_id: int) -> int:
    found = re.search(rb"\nquorate_snapshots_taken_total (\S+)\n", nodes.get(node_id, "/metrics")[1])
    assert found
    return int(float(found[1]))


def inspected(path: str) -> dict[str, Any]:
    """What `quorate snapshot inspect` finds in a good snapshot."""
    ended = quorate("snapshot", "inspect", path)
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_the_node_that_is_asked_has_a_good_snapshot_of_all_that_it_applied(nodes: QuorateNodes) -> None:
    write(nodes.host(1), "/first", "/second")
    nodes.one_digest()
    others = [snapshot_files(nodes, node_id) for node_id in (1, 3)]
    answer = take(nodes, 2)
    path = Path(answer["path"])
    assert set(answer) == {"log_index", "term", "size_bytes", "path"}
    assert answer["log_index"] == nodes.status(2)["applied_index"]
    assert (path.parent, path.stat().st_size) == (
        nodes.nodes[2].data_dir / "snapshots",
        answer["size_bytes"],
    )
    found = inspected(answer["path"])
    assert (found["log_index"], found["term"]) == (answer["log_index"], answer["term"])
    assert [snapshot_files(nodes, node_id) for node_id in (1, 3)] == others, "nobody else was asked"
    before = taken_count(nodes, 2)
    assert take(nodes, 2) == answer
    assert taken_count(nodes, 2) == before, "nothing was applied since"
    assert snapshot_files(nodes, 2)[-1] == path


def test_the_command_line_takes_one_and_a_restart_has_its_state(nodes: QuorateNodes) -> None:
    admin = ("--admin", nodes.admin_url(3))
    write(nodes.host(3), "/third", *(f"/{'many' * 50}-{number}" for number in range(20)))
    nodes.one_digest()
    ended = quorate("snapshot", "take", *admin)
    assert (ended.returncode, ended.stderr) == (0, "")
    told = re.fullmatch(r"the snapshot of index (\d+) is durable: ([\d,]+) bytes in (/.+)\n", ended.stdout)
    assert told, ended.stdout
    index, path = int(told[1]), told[3]
    assert index == nodes.status(3)["applied_index"]
    size = Path(path).stat().st_size
    assert told[2] == f"{size // 1000},{size % 1000:03}"
    assert inspected(path)["log_index"] == index
    again = quorate("snapshot", "take", "--json", *admin)
    answer = json.loads(again.stdout)
    assert (answer["log_index"], answer["size_bytes"], answer["path"]) == (index, size, path)
    write(nodes.host(3), "/behind-it")
    nodes.restart(3)
    nodes.one_digest()
    assert Path(path) in snapshot_files(nodes, 3)
    for name in ("/third", "/behind-it"):
        assert read(nodes.host(3), name) == name.encode()


def test_requests_at_the_same_time_share_one(nodes: QuorateNodes) -> None:
    write(nodes.host(1), "/shared")
    nodes.one_digest()
    applied_index, before = nodes.status(1)["applied_index"], taken_count(nodes, 1)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = list(pool.map(lambda _: take(nodes, 1), range(AT_ONCE)))
    assert len(answers) == AT_ONCE
    indexes = {answer["log_index"] for answer in answers}
    assert min(indexes) >= applied_index
    assert taken_count(nodes, 1) - before == len(indexes), "one for each state, however many asked"


@pytest.mark.parametrize("body", [b'{"node_id": 1}', b"[]", b"take one"])
def test_a_request_that_is_not_well_formed_is_refused_and_writes_nothing(
    body: bytes, nodes: QuorateNodes
) -> None:
    write(nodes.host(1), f"/refused-{len(body)}")
    nodes.one_digest()
    before = snapshot_files(nodes, 1), taken_count(nodes, 1)
    code, content = nodes.request(1, "POST", "/v1/snapshot", body)
    answer = json.loads(content)
    assert (code, answer["remedy"]) == (400, "send no body, or {}")
    assert (snapshot_files(nodes, 1), taken_count(nodes, 1)) == before
    code, content = nodes.request(1, "POST", "/v1/snapshot", b"{}")
    assert code == 200, content


def test_a_node_without_any_state_says_so() -> None:
    ensemble = QuorateNodes(nodes=3)
    try:
        ensemble.start_node(1)
        eventually(lambda: ensemble.get(1, "/livez")[0] == 200, DEADLINE_S, "it answers")
        code, answer = ensemble.change(1, "POST", "/v1/snapshot")
        assert (code, answer["definite"], answer["retriable"]) == (409, True, False)
        assert "nothing was applied yet" in answer["error"]
        ended = quorate("snapshot", "take", "--admin", ensemble.admin_url(1))
        assert ended.returncode == 1
        assert ended.stderr.splitlines() == [f"error: {answer['error']}", f"remedy: {answer['remedy']}"]
        assert not snapshot_files(ensemble, 1)
    finally:
        ensemble.close()


def test_a_full_disk_takes_none_and_one_with_room_does() -> None:
    with QuorateNodes(nodes=1, arguments=("-m", "tests.support.full_node", "serve")) as lone:
        write(lone.host(1), "/kept")
        fill(lone.nodes[1].folder)
        code, answer = lone.change(1, "POST", "/v1/snapshot")
        assert (code, answer["definite"], answer["retriable"]) == (503, True, True)
        assert "No space left on device" in answer["error"]
        assert answer["remedy"] == "free space on that disk"
        ended = quorate("snapshot", "take", "--admin", lone.admin_url(1))
        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr.splitlines()[1:] == ["remedy: free space on that disk"]
        assert not snapshot_files(lone, 1)
        make_room(lone.nodes[1].folder)
        assert inspected(take(lone, 1)["path"])["log_index"] == lone.status(1)["applied_index"]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what a node knows of itself changes without an event
            await asyncio.sleep(0)


class SlowFile:
    """Has every snapshot of this process wait at its beginning until the test lets it go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached = threading.Event()
        self.go_on = threading.Event()
        create = SnapshotStore.create_partial

        def slow(store: SnapshotStore, log_index: int, term: int, origin: str) -> tuple[File, str]:
            self.reached.set()
            assert self.go_on.wait(DEADLINE_S)
            return create(store, log_index, term, origin)

        monkeypatch.setattr(SnapshotStore, "create_partial", slow)


@contextlib.asynccontextmanager
async def node_in_process(folder: Path) -> AsyncIterator[tuple[QuorumNode, aiohttp.ClientSession]]:
    """A node that is ready, and a client of its admin port."""
    (config,) = loopback_configs(folder)
    node = QuorumNode(config, bootstrap=True)
    await node.start()
    try:
        await until(lambda: node.view.readiness()[0])
        timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
        async with aiohttp.ClientSession(f"http://{config.listen.admin}", timeout=timeout) as client:
            yield node, client
    finally:
        await node.stop()
    assert node.failure is None


async def post(client: aiohttp.ClientSession) -> tuple[int, dict[str, Any]]:
    async with client.post("/v1/snapshot", json={}) as response:
        answer: dict[str, Any] = await response.json()
        return response.status, answer


async def test_a_node_that_stops_answers_who_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = SlowFile(monkeypatch)
    async with node_in_process(tmp_path) as (node, client):
        waiting = asyncio.create_task(post(client))
        await until(slow.reached.is_set)
        stopping = asyncio.create_task(node.stop())
        try:
            code, answer = await waiting
        finally:
            slow.go_on.set()
            await stopping
    assert (code, answer["definite"], answer["retriable"]) == (503, True, True)
    assert "the node stops" in answer["error"]


async def test_one_that_takes_too_long_is_told_as_under_way_and_may_be_asked_for_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_requests, "REQUEST_DEADLINE_MS", 20.0)
    slow = SlowFile(monkeypatch)
    async with node_in_process(tmp_path) as (node, client):
        try:
            code, answer = await post(client)
        finally:
            slow.go_on.set()
        assert (code, answer["definite"], answer["retriable"]) == (504, False, True)
        assert "still under way after 0.02 s" in answer["error"]
        monkeypatch.undo()
        code, answer = await post(client)
        assert code == 200, answer
        assert answer["log_index"] == node.view.status()["applied_index"]


def test_a_node_goes_on_from_a_snapshot_that_was_sent_and_resumes_no_session() -> None:
    with QuorateNodes() as nodes:
        nodes.wait_ready()
        node_id = nodes.leader()
        write(nodes.host(node_id), "/kept")
        client = KazooClient(hosts=nodes.host(node_id))
        client.start(timeout=DEADLINE_S)
        session = client.client_id
        status, taken = nodes.change(node_id, "POST", "/v1/snapshots", {})
        assert status == 200
        file = Path(taken["path"])
        status, sent = nodes.get(node_id, f"/v1/snapshots/{file.name}")
        assert status == 200
        for each in nodes.node_ids:
            nodes.kill(each)
        assert file.read_bytes() != sent
        file.write_bytes(sent)
        nodes.start_node(node_id, "--force-new-cluster")
        nodes.wait_ready(node_id)
        assert read(nodes.host(node_id), "/kept") == b"/kept"
        again = KazooClient(hosts=nodes.host(node_id), client_id=session)
        again.start(timeout=DEADLINE_S)
        assert session is not None
        assert again.client_id is not None
        assert again.client_id[0] != session[0]
        for each in (client, again):
            each.stop()
            each.close()
