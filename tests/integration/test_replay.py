"""Nodes that start with a long log: while they apply it they keep time, hear each other and answer.

The work of each entry is made long, so that a short log takes as long as a long one. Nothing is timed: what
counts is how much of the log lies between two ticks. Elections are not counted: a busy machine or a slow disk
may cause one at any time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import msgpack
import pytest

from quorum.core.machine import StateMachine
from quorum.node.node import QuorumNode
from quorum.raft.core.entry import EntryKind
from quorum.raft.engine.engine import Engine
from quorum.raft.requests.payloads import CONTROL_FORMAT
from tests.support.node_configs import loopback_configs

DEADLINE_S = 60.0
ENTRIES = 100
#: what an entry takes; with a busy machine a turn applies one
ENTRY_S = 0.004
NOTHING = msgpack.packb([CONTROL_FORMAT, []])


@asynccontextmanager
async def running(nodes: list[QuorumNode]) -> AsyncIterator[None]:
    try:
        for node in nodes:
            await node.start()
        yield
    finally:
        for node in nodes:
            await node.stop()


async def until(predicate: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_S):
        while not predicate():  # noqa: ASYNC110 - a node's own view changes without an event
            await asyncio.sleep(0)


def is_ready(node: QuorumNode, reasons: set[str]) -> bool:
    """Whether the node serves clients; why or why not goes to the reasons."""
    ready, reason = node.view.readiness()
    reasons.add(reason)
    return ready


async def all_ready(nodes: list[QuorumNode]) -> None:
    await until(lambda: all(node.view.readiness()[0] for node in nodes))


@pytest.mark.parametrize("count", [1, 3])
async def test_a_long_log_is_applied_between_ticks(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = loopback_configs(tmp_path, count, {"raft": {"election_timeout_ms": [1500, 3000]}})
    nodes = [QuorumNode(config, bootstrap=True) for config in configs]
    async with running(nodes):
        await all_ready(nodes)
        leader = next(node for node in nodes if node.view.engine.leads)
        for _ in range(ENTRIES):
            last_index = leader.view.engine.propose(EntryKind.CONTROL, NOTHING)
        await until(lambda: all(node.view.engine.applied_index >= last_index for node in nodes))

    #: what the nodes had applied at each tick
    ticks: dict[int, list[int]] = {config.node.id: [0] for config in configs}
    apply_control, tick = StateMachine.apply_control, Engine.tick

    def slowly(machine: StateMachine, *entry: object) -> object:
        until_s = time.monotonic() + ENTRY_S
        while time.monotonic() < until_s:
            pass
        return apply_control(machine, *entry)  # type: ignore[arg-type]

    def noted(engine: Engine) -> None:
        ticks[engine.node_id].append(engine.applied_index)
        tick(engine)

    monkeypatch.setattr(StateMachine, "apply_control", slowly)
    monkeypatch.setattr(Engine, "tick", noted)
    again = [QuorumNode(config) for config in configs]
    async with running(again):
        await until(lambda: any("committed entries" in str(node.view.status()["problem"]) for node in again))
        reasons: set[str] = set()
        await until(lambda: sum(is_ready(node, reasons) for node in again) == count)
        assert all("committed entries" in reason for reason in reasons if "registered" in reason)
    for applied in ticks.values():
        assert max(after - before for before, after in pairwise(applied)) < ENTRIES / 4
