"""Quotas on three nodes of which one enforces hard limits: their states stay equal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from quorum.client import Client, ServerError
from quorum.node.node import QuorumNode
from tests.support.node_configs import loopback_configs

LIMITS = "/zookeeper/quota/a/zookeeper_limits"
STATS = "/zookeeper/quota/a/zookeeper_stats"
DEADLINE_S = 20.0
#: of the status of a node
STATE = ("applied_index", "zxid", "state_digest")


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not holds():  # noqa: ASYNC110 - a node's own view changes without an event
            await asyncio.sleep(0)


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[QuorumNode]]:
    """Three nodes; the first enforces."""
    configs = loopback_configs(tmp_path, 3)
    configs[0] = replace(configs[0], limits=replace(configs[0].limits, enforce_quota=True))
    started = [QuorumNode(config, bootstrap=True) for config in configs]
    await asyncio.gather(*(node.start() for node in started))
    try:
        await until(lambda: all(node.view.readiness()[0] for node in started))
        yield started
    finally:
        await asyncio.gather(*(node.stop() for node in started))


def client_of(node: QuorumNode) -> Client:
    return Client(str(node.config.listen.client))


async def code_of(client: Client, path: str) -> int | None:
    try:
        await client.create(path, b"1")
    except ServerError as error:
        return error.server_code
    return 0


async def test_nodes_with_different_settings_have_the_same_state(nodes: list[QuorumNode]) -> None:
    async with client_of(nodes[0]) as strict, client_of(nodes[1]) as lax:
        for path in ("/a", "/zookeeper/quota/a"):
            await lax.create(path)
        await lax.create(LIMITS, b"count=3,bytes=-1=;countHardLimit=2")
        await lax.create(STATS, b"count=0,bytes=0")
        await strict.sync("/")
        assert [await code_of(strict, f"/a/s{number}") for number in range(3)] == [0, -125, -125]
        assert [await code_of(lax, f"/a/l{number}") for number in range(3)] == [0, 0, 0]
        await strict.sync("/")
        assert await code_of(strict, "/a/s3") == -125
        assert (await strict.get(STATS))[0] == b"count=5,bytes=4"

    def states() -> set[tuple[object, ...]]:
        shown = [node.view.status() for node in nodes]
        return {tuple(each[name] for name in STATE) for each in shown}

    await until(lambda: len(states()) == 1)
    assert not any(node.failure for node in nodes)
    for node in nodes:
        shown = {each.name: each.samples[0].value for each in node.view.metrics() if "quota" in each.name}
        assert shown == {
            "quorate_quotas": 1.0,
            "quorate_quotas_above_soft_limit": 1.0,
            "quorate_quota_refusals": 3.0,
        }
