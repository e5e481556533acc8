"""Registers with compare-and-set: reads after a sync, writes, and writes at an expected version.

Every value is written once, so that a read names its writer. Judged for linearizability, key by key (I6, I8,
I9): an acknowledged write that is lost, a stale read or a version check that was skipped is found.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
from typing import Any, ClassVar, Final

from quorum.client import Client
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, in_threads, record
from tests.chaos.workloads.kazoo_registers import KazooRegisters

ROOT: Final = "/chaos-registers"
KAZOO_CLIENTS: Final = 2
KEYS: Final = tuple(f"register-{number}" for number in range(1, 6))


class Registers(QuorumWorkload):
    """Five registers, six clients of ours, two of kazoo."""

    name: ClassVar[str] = "registers"
    description: ClassVar[str] = "reads, writes and compare-and-set of five registers"
    _numbers = itertools.count(1)

    async def set_up(self) -> None:
        """Create the registers, as a part of the history."""
        process = self.recorder.process("registers-setup")
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)
            for key in KEYS:
                call = process.invoke("create", key, "first")
                _, stat = await client.create2(f"{ROOT}/{key}", json.dumps("first").encode())
                call.ok(stat.version, zxid=stat.czxid)

    async def run(self, stop: asyncio.Event) -> None:
        """Run our clients and those of kazoo until stop is set."""
        paths = {key: f"{ROOT}/{key}" for key in KEYS}
        kazoo = [
            KazooRegisters(self.recorder.process(f"kazoo-{number}"), self.cluster.hosts, paths, self._numbers)
            for number in range(1, KAZOO_CLIENTS + 1)
        ]
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(stop))
            group.create_task(in_threads(stop, [each.run for each in kazoo]))

    async def step(self, process: Process, client: Client, node: str, rng: random.Random) -> None:
        """Read, write, or read and then write at the version that was read."""
        key = rng.choice(KEYS)
        path = f"{ROOT}/{key}"
        kind = rng.choices(["read", "write", "cas"], [5, 2, 3])[0]
        seen = None
        if kind != "write":
            call = process.invoke("read", key, None)
            seen = await record(call, lambda: self._read(client, path), node)
        if kind == "read" or (kind == "cas" and seen is None):
            return
        value = f"{process.name}/{next(self._numbers)}"
        expected = -1 if seen is None else seen[0]
        argument: Any = value if kind == "write" else [expected, value]
        call = process.invoke(kind, key, argument)
        await record(call, lambda: self._write(client, path, value, expected), node)

    @staticmethod
    async def _read(client: Client, path: str) -> Answer:
        _, (data, stat) = await asyncio.gather(client.sync(path), client.get(path))
        return [stat.version, json.loads(data or b"null")], stat.mzxid

    @staticmethod
    async def _write(client: Client, path: str, value: str, expected: int) -> Answer:
        stat = await client.set(path, json.dumps(value).encode(), expected)
        return stat.version, stat.mzxid
