"""Snapshots of live nodes: a restart from one, also when the newest is broken, and a node that is too far
behind is brought up by one, also when the first one that it is sent is broken."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

import pytest

from quorum.client import Client, CreateMode
from quorum.config.node import NodeConfig
from quorum.node.node import QuorumNode
from quorum.raft.snapshots.snapshots import SnapshotStore
from tests.support.node_configs import SMALL_SEGMENTS, loopback_configs

DEADLINE_S = 30.0


async def until(condition: Callable[[], bool], what: str) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - what a node knows of itself changes without an event
            await asyncio.sleep(0)
    assert condition(), what


async def start(config: NodeConfig, *, bootstrap: bool = False) -> QuorumNode:
    node = QuorumNode(config, bootstrap=bootstrap)
    await node.start()
    return node


def applied(node: QuorumNode) -> tuple[int, str]:
    status = node.view.status()
    return int(str(status["applied_index"])), str(status["state_digest"])


async def write_much(hosts: str, rounds: int, first: int) -> None:
    async with Client(hosts) as client:
        for number in range(first, first + rounds):
            await client.create(f"/n{number}", secrets.token_bytes(4000))
            if number % 3 == 0:
                await client.delete(f"/n{number}")


def snapshot_files(config: NodeConfig, suffix: str = "snapshot") -> list[Path]:
    """A node's snapshots (or those that were set aside: "damaged"), oldest first."""
    return sorted(Path(config.node.data_dir).glob(f"snapshots/*.{suffix}"))


async def take_snapshots(configs: Sequence[NodeConfig], nodes: Sequence[QuorumNode]) -> None:
    """Take a snapshot of each node, and wait until the disk has none but the two that are kept."""
    await asyncio.gather(*(node.take_snapshot() for node in nodes))
    await until(lambda: all(len(snapshot_files(config)) <= 2 for config in configs), "two are kept")


async def lose_the_log(configs: Sequence[NodeConfig], nodes: Sequence[QuorumNode], last_index: int) -> None:
    """Write and take snapshots until none of these nodes has the entry behind the one that is given."""
    hosts = ",".join(str(config.listen.client) for config in configs)
    for part in range(3):
        await write_much(hosts, 60, 1000 + 60 * part)
        await take_snapshots(configs, nodes)
    await until(
        lambda: min(node.view.first_index for node in nodes) > last_index + 1,
        "the log that another node lacks is gone: the test bites",
    )


def flip_a_bit(path: Path) -> None:
    """Damage a file in its middle, keeping its size."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


async def leave_behind(founding: list[NodeConfig], nodes: list[QuorumNode]) -> int:
    """Stop a follower and let the others write until the log that it lacks is gone; returns its place."""
    behind = next(place for place, node in enumerate(nodes) if node.view.status()["role"] == "follower")
    await nodes[behind].stop()
    others = [place for place in range(3) if place != behind]
    has = applied(nodes[behind])[0]
    await lose_the_log([founding[place] for place in others], [nodes[place] for place in others], has)
    return behind


async def test_a_node_that_is_too_far_behind_is_brought_up_by_a_snapshot(tmp_path: Path) -> None:
    founding = loopback_configs(tmp_path, 3, SMALL_SEGMENTS)
    nodes = [await start(config, bootstrap=True) for config in founding]
    try:
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three nodes are ready")
        await nodes[2].stop()
        hosts = ",".join(str(config.listen.client) for config in founding[:2])
        await lose_the_log(founding[:2], nodes[:2], applied(nodes[2])[0])
        nodes[2] = await start(founding[2])
        await until(lambda: len({applied(node) for node in nodes}) == 1, "all nodes have one state")
        assert nodes[2].view.snapshots_installed == 1
        await write_much(hosts, 10, 2000)
        await until(lambda: len({applied(node) for node in nodes}) == 1, "and go on together")
        # What was installed survives, with the log behind it.
        await nodes[2].stop()
        nodes[2] = await start(founding[2])
        await until(lambda: len({applied(node) for node in nodes}) == 1, "also after a restart")
        assert nodes[2].view.snapshots_installed == 0
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
    assert [node.failure for node in nodes] == [None, None, None]


async def test_all_nodes_restart_from_their_snapshots_with_sessions_and_ephemerals(tmp_path: Path) -> None:
    founding = loopback_configs(tmp_path, 3, SMALL_SEGMENTS)
    nodes = [await start(config, bootstrap=True) for config in founding]
    hosts = ",".join(str(config.listen.client) for config in founding)
    try:
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three nodes are ready")
        client = Client(hosts, session_timeout_ms=20_000)
        await client.start()
        try:
            await client.create("/mine", b"ephemeral", CreateMode.EPHEMERAL)
            await write_much(hosts, 40, 0)
            await asyncio.gather(*(node.take_snapshot() for node in nodes))
            await write_much(hosts, 40, 100)
            session_id = client.session_id
            before = await client.exists("/mine")
            await asyncio.gather(*(node.stop() for node in nodes))
            nodes[:] = [await start(config) for config in founding]
            await until(lambda: all(node.view.readiness()[0] for node in nodes), "three are ready again")
            assert await client.exists("/mine") == before
            assert client.session_id == session_id
            assert (await client.get("/n101"))[1].data_length == 4000
        finally:
            await client.close()
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
    assert [node.failure for node in nodes] == [None, None, None]


async def test_a_broken_newest_snapshot_falls_back_to_the_one_before_and_the_log(tmp_path: Path) -> None:
    founding = loopback_configs(tmp_path, 3, SMALL_SEGMENTS)
    nodes = [await start(config, bootstrap=True) for config in founding]
    hosts = ",".join(str(config.listen.client) for config in founding)
    try:
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three nodes are ready")
        for part in range(3):
            await write_much(hosts, 40, 40 * part)
            await take_snapshots(founding, nodes)
        await write_much(hosts, 10, 1000)
        assert [len(snapshot_files(config)) for config in founding] == [2, 2, 2]
        await until(lambda: len({applied(node) for node in nodes}) == 1, "all nodes have one state")
        before = applied(nodes[0])
        await asyncio.gather(*(node.stop() for node in nodes))
        for config in founding:
            flip_a_bit(snapshot_files(config)[-1])
        # No node can learn from another one what it lacks: all have lost the same snapshot.
        nodes = [await start(config) for config in founding]
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three are ready again")
        async with Client(hosts) as client:
            assert (await client.get("/n1001"))[1].data_length == 4000
            assert sorted(await client.get_children("/")) == sorted(
                ["zookeeper", *(f"n{number}" for number in [*range(120), *range(1000, 1010)] if number % 3)]
            )
        await until(lambda: len({applied(node) for node in nodes}) == 1, "and have one state")
        assert applied(nodes[0])[0] > before[0]
        assert [node.view.snapshots_installed for node in nodes] == [0, 0, 0]
        assert [len(snapshot_files(config, "damaged")) for config in founding] == [1, 1, 1]
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
    assert [node.failure for node in nodes] == [None, None, None]


async def test_a_damaged_snapshot_is_never_sent_and_another_one_takes_its_place(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    founding = loopback_configs(tmp_path, 3, SMALL_SEGMENTS)
    nodes = [await start(config, bootstrap=True) for config in founding]
    try:
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three nodes are ready")
        behind = await leave_behind(founding, nodes)
        others = [place for place in range(3) if place != behind]
        for place in others:  # whoever of them leads
            for path in snapshot_files(founding[place]):
                flip_a_bit(path)
        nodes[behind] = await start(founding[behind])
        await until(lambda: len({applied(node) for node in nodes}) == 1, "all nodes have one state")
        assert nodes[behind].view.snapshots_installed == 1
        assert any(record.message.startswith("is not sent any more") for record in caplog.records)
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
    assert [node.failure for node in nodes] == [None, None, None]


async def test_a_broken_snapshot_is_refused_and_the_node_stays_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    founding = loopback_configs(tmp_path, 3, SMALL_SEGMENTS)
    nodes = [await start(config, bootstrap=True) for config in founding]
    read_range = SnapshotStore.read_range

    def damaged(store: SnapshotStore, log_index: int, offset: int, size: int) -> bytes:
        data = bytearray(read_range(store, log_index, offset, size))
        data[len(data) // 2] ^= 1
        return bytes(data)

    try:
        await until(lambda: all(node.view.readiness()[0] for node in nodes), "three nodes are ready")
        behind = await leave_behind(founding, nodes)
        others = [place for place in range(3) if place != behind]
        first_kept = min(nodes[place].view.first_index for place in others)
        with monkeypatch.context() as patched:
            patched.setattr(SnapshotStore, "read_range", damaged)
            nodes[behind] = await start(founding[behind])

            def refusals() -> int:
                return sum(record.message.startswith("refused the snapshot") for record in caplog.records)

            await until(lambda: refusals() >= 2, "it is refused, and again when it is sent again")
            assert applied(nodes[behind])[0] < first_kept, "nothing of it became state"
            assert nodes[behind].view.snapshots_installed == 0
            assert not nodes[behind].view.readiness()[0]
            for place in others:
                rows = cast("list[dict[str, int | None]]", nodes[place].view.status()["members"])
                matches = {row["node_id"]: row["match_index"] for row in rows}
                assert (matches[behind + 1] or 0) < first_kept, "nothing of it was acknowledged"
        # What is sent whole is taken.
        await until(lambda: len({applied(node) for node in nodes}) == 1, "all nodes have one state")
        assert nodes[behind].view.snapshots_installed == 1
    finally:
        await asyncio.gather(*(node.stop() for node in nodes))
    assert [node.failure for node in nodes] == [None, None, None]
