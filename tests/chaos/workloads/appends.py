"""Unique appends in bursts: each client sends many creations over one connection without waiting.

A key is a connection, an argument the creation's number on it. Judged as a set (acknowledged appends are
there, failed ones are not, none twice) and for the order of a session: what reached the log of what a
connection sent is a prefix, in its order (I5, I6, I13).
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterable
from typing import Any, ClassVar, Final

from quorum.client import Client, ClientState
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, pause, record

ROOT: Final = "/chaos-appends"
PREFIX: Final = "append/"
BURST_MAX: Final = 20


class Appends(QuorumWorkload):
    """Six clients that append to one set."""

    name: ClassVar[str] = "appends"
    description: ClassVar[str] = "bursts of unique creations, many in flight on a connection"
    pace_s: ClassVar[float] = 0.4
    _connections = itertools.count(1)

    async def set_up(self) -> None:
        """Create the parent."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Send bursts; the numbers begin again with each connection."""
        #: how many creations were sent on the connection, and its number in the run
        sent = [0, next(self._connections)]

        def see(state: ClientState) -> None:
            if state is ClientState.CONNECTED:
                sent[:] = [0, next(self._connections)]

        client.add_listener(see)
        while not stop.is_set():
            burst = [self._append(process, client, node, sent) for _ in range(rng.randrange(1, BURST_MAX))]
            outcomes = await asyncio.gather(*burst, return_exceptions=True)
            for outcome in outcomes:
                if isinstance(outcome, BaseException):
                    raise outcome
            await pause(stop, rng.uniform(0, 2 * self.pace_s))

    async def _append(self, process: Process, client: Client, node: str, sent: list[int]) -> None:
        # Up to the first await this is one step: number and connection are those of the request.
        if client.state is not ClientState.CONNECTED:
            return
        number, connection = sent
        sent[0] += 1
        name = f"{process.name}.{connection}.{number}"
        call = process.invoke("append", f"{PREFIX}{process.name}.{connection}", number)

        async def create() -> Answer:
            _, stat = await client.create2(f"{ROOT}/{name}")
            return number, stat.czxid

        await record(call, create, node)

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Every append that is there, with the transaction that made it."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session after all was healed"
            await client.sync(ROOT)
            names = sorted(await client.get_children(ROOT))
            lines = []
            for begin in range(0, len(names), 500):
                chunk = names[begin : begin + 500]
                stats = await asyncio.gather(*(client.exists(f"{ROOT}/{name}") for name in chunk))
                for name, stat in zip(chunk, stats, strict=True):
                    assert stat is not None
                    connection, _, number = name.rpartition(".")
                    lines.append({"key": PREFIX + connection, "argument": int(number), "zxid": stat.czxid})
            return lines
