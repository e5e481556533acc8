"""One-shot watches on nodes that change all the time: clients arm them, peek, and wait for the event."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from quorum.client import Client, EventType, WatchEvent
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, pause, record

ROOT: Final = "/chaos-watched"
KEYS: Final = ("watched-1", "watched-2")
WRITERS: Final = 2


class Watches(QuorumWorkload):
    """Two writers and four watchers of two nodes."""

    name: ClassVar[str] = "watches"
    description: ClassVar[str] = "one-shot watches on nodes that change all the time"
    pace_s: ClassVar[float] = 0.1

    async def set_up(self) -> None:
        """Create the nodes."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)
            for key in KEYS:
                await client.create(f"{ROOT}/{key}")

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Write, or watch one node."""
        number = int(process.name.rpartition("-")[2])
        key = KEYS[number % len(KEYS)]
        if number <= WRITERS:
            await self._write(process, client, node, rng, stop, key)
            return
        try:
            await self._watch(process, client, node, rng, stop, key)
        finally:
            if not stop.is_set():
                process.invoke("gone", key, None).ok(None)

    async def _write(
        self,
        process: Process,
        client: Client,
        node: str,
        rng: random.Random,
        stop: asyncio.Event,
        key: str,
    ) -> None:
        while not stop.is_set():

            async def change() -> Answer:
                stat = await client.set(f"{ROOT}/{key}", process.name.encode())
                return stat.version, stat.mzxid

            await record(process.invoke("change", key, None), change, node)
            await pause(stop, rng.uniform(0, 2 * self.pace_s))

    async def _watch(
        self,
        process: Process,
        client: Client,
        node: str,
        rng: random.Random,
        stop: asyncio.Event,
        key: str,
    ) -> None:
        fired = asyncio.Event()

        def see(event: WatchEvent) -> None:
            # In its turn: a reply before it in the same packet wakes its caller first, and is recorded first.
            asyncio.get_running_loop().call_soon(note, event)

        def note(event: WatchEvent) -> None:
            if event.event_type is not EventType.NONE:
                process.invoke("event", key, None).ok(
                    event.event_type.name, zxid=max(0, event.zxid), node=node
                )
            fired.set()

        async def read(watch: bool) -> Answer:
            _, stat = await client.get(f"{ROOT}/{key}", see if watch else None)
            return stat.version, stat.mzxid

        while not stop.is_set():
            fired.clear()
            # Not given up after a time: a reply that comes later would arm a watch that nobody knows of.
            armed = await record(process.invoke("arm", key, None), lambda: read(True), node, 600.0)
            if armed is None:
                return
            while not fired.is_set() and not stop.is_set():
                await record(process.invoke("peek", key, None), lambda: read(False), node, 600.0)
                await pause(fired, rng.uniform(0, 2 * self.pace_s))

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """The last change of each node."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session after all was healed"
            await client.sync(ROOT)
            stats = {key: await client.exists(f"{ROOT}/{key}") for key in KEYS}
            return [{"key": key, "zxid": stat.mzxid} for key, stat in stats.items() if stat is not None]
