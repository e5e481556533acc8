"""Snapshots by request, over HTTP and by the command line, of the node that was asked."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient

from quorum.client import Client
from tests.support.full_node import fill, make_room
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


def snapshot_files(nodes: QuorateNodes, node_id: int) -> list[Path]:
    return sorted((nodes.nodes[node_id].data_dir / "snapshots").iterdir())


def taken_count(nodes: QuorateNodes, node_id: int) -> int:
    found = re.search(rb"\nquorate_snapshots_taken_total (\S+)\n", nodes.get(node_id, "/metrics")[1])
    assert found
    return int(float(found[1]))


def wait_for_taken(nodes: QuorateNodes, node_id: int, count: int) -> None:
    """Wait until a node has counted so many: a file is listed a moment before."""
    eventually(lambda: taken_count(nodes, node_id) >= count, DEADLINE_S, "the snapshot is counted")


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
    before = taken_count(nodes, 2)
    answer = nodes.take_snapshot(2)
    path = Path(answer["path"])
    assert set(answer) == {"name", "log_index", "term", "size_bytes", "path"}
    assert answer["log_index"] == nodes.status(2)["applied_index"]
    assert (path.parent, path.stat().st_size) == (
        nodes.nodes[2].data_dir / "snapshots",
        answer["size_bytes"],
    )
    found = inspected(answer["path"])
    assert (found["log_index"], found["term"]) == (answer["log_index"], answer["term"])
    assert [snapshot_files(nodes, node_id) for node_id in (1, 3)] == others, "nobody else was asked"
    wait_for_taken(nodes, 2, before + 1)
    assert nodes.take_snapshot(2) == answer
    assert taken_count(nodes, 2) == before + 1, "nothing was applied since"
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
        answers = list(pool.map(lambda _: nodes.take_snapshot(1), range(AT_ONCE)))
    assert len(answers) == AT_ONCE
    indexes = {answer["log_index"] for answer in answers}
    assert min(indexes) >= applied_index
    wait_for_taken(nodes, 1, before + len(indexes))
    assert taken_count(nodes, 1) - before == len(indexes), "one for each state, however many asked"


@pytest.mark.parametrize("body", [b'{"node_id": 1}', b"[]", b"take one"])
def test_a_request_that_is_not_well_formed_is_refused_and_writes_nothing(
    body: bytes, nodes: QuorateNodes
) -> None:
    write(nodes.host(1), f"/refused-{len(body)}")
    nodes.one_digest()
    files, taken = snapshot_files(nodes, 1), taken_count(nodes, 1)
    code, content = nodes.request(1, "POST", "/v1/snapshots", body)
    answer = json.loads(content)
    assert (code, answer["remedy"]) == (400, "send no body, or {}")
    # Those of earlier requests may still go.
    assert set(snapshot_files(nodes, 1)) <= set(files)
    assert taken_count(nodes, 1) == taken
    code, content = nodes.request(1, "POST", "/v1/snapshots", b"{}")
    assert code == 202, content
    # Nothing is under way when the next request is counted.
    wait_for_taken(nodes, 1, taken + 1)


def test_a_node_without_any_state_says_so() -> None:
    ensemble = QuorateNodes(nodes=3)
    try:
        ensemble.start_node(1)
        eventually(lambda: ensemble.get(1, "/livez")[0] == 200, DEADLINE_S, "it answers")
        code, answer = ensemble.change(1, "POST", "/v1/snapshots")
        assert (code, answer["definite"], answer["retriable"]) == (503, True, True)
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
        assert lone.change(1, "POST", "/v1/snapshots")[0] == 202

        def problem() -> str:
            return str(json.loads(lone.get(1, "/v1/snapshots")[1])["problem"])

        assert "No space left on device" in eventually(problem, DEADLINE_S, "it says why there is none")
        ended = quorate("snapshot", "take", "--admin", lone.admin_url(1))
        assert (ended.returncode, ended.stdout) == (1, "")
        assert "No space left on device" in ended.stderr
        assert not snapshot_files(lone, 1)
        make_room(lone.nodes[1].folder)
        assert inspected(lone.take_snapshot(1)["path"])["log_index"] == lone.status(1)["applied_index"]


def test_a_node_goes_on_from_a_snapshot_that_was_sent_and_resumes_no_session() -> None:
    with QuorateNodes() as nodes:
        nodes.wait_ready()
        node_id = nodes.leader()
        write(nodes.host(node_id), "/kept")
        client = KazooClient(hosts=nodes.host(node_id))
        client.start(timeout=DEADLINE_S)
        session = client.client_id
        file = Path(nodes.take_snapshot(node_id)["path"])
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
