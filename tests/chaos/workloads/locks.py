"""Locks with fencing tokens: ephemeral leases in a queue, the first of which may write the protected node.

A token is the czxid of a lease. A write checks its lease in the same multi, so a client whose session ended
writes nothing more, whatever it believes. Sessions are as short as the shipped defaults allow.
"""

from __future__ import annotations

import asyncio
import random
from functools import partial
from typing import ClassVar, Final

from quorum.client import Client, ClientError, CreateMode, Transaction, WatchEvent
from tests.chaos.recorder import Process
from tests.chaos.workloads.base import Answer, QuorumWorkload, connected, pause, record

ROOT: Final = "/chaos-lock"
RESOURCE: Final = "/chaos-resource"
KEY: Final = "lock"
WRITES_MAX: Final = 8


def _note(changed: asyncio.Event, _event: WatchEvent) -> None:
    changed.set()


class Locks(QuorumWorkload):
    """Six clients and one lock."""

    name: ClassVar[str] = "locks"
    description: ClassVar[str] = "a lock of ephemeral leases; its holder writes with a fencing token"
    session_timeout_ms: ClassVar[int] = 4000

    async def set_up(self) -> None:
        """Create the queue and the protected node."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)
            await client.create(RESOURCE)

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Queue, wait, write a few times, give the lease back."""
        while not stop.is_set():
            try:
                lease, stat = await client.create2(f"{ROOT}/lease-", mode=CreateMode.EPHEMERAL_SEQUENTIAL)
            except ClientError as error:
                if error.definite:
                    raise
                return  # A lease may have been left: only the end of the session takes it away.
            call = process.invoke("acquire", KEY, lease, asks=False)
            if not await self._first(client, lease, stop):
                call.fail("not the first")
                return
            call.ok(stat.czxid, zxid=stat.czxid, node=node)
            token = stat.czxid
            for _ in range(rng.randrange(1, WRITES_MAX)):
                call = process.invoke("write", KEY, token)
                await record(call, partial(self._write, client, lease, token), node)
                await pause(stop, rng.uniform(0, 2 * self.pace_s))
            try:
                await client.delete(lease)
            except ClientError:
                return

    @staticmethod
    async def _first(client: Client, lease: str, stop: asyncio.Event) -> bool:
        """Wait until the lease is the first in the queue; False if the run or the wait ends before."""
        while not stop.is_set():
            changed = asyncio.Event()
            try:
                names = sorted(await client.get_children(ROOT, partial(_note, changed)))
            except ClientError:
                return False
            if not names or lease.rpartition("/")[2] not in names:
                return False
            if lease.endswith(names[0]):
                return True
            await pause(changed, 1.0)
        return False

    @staticmethod
    async def _write(client: Client, lease: str, token: int) -> Answer:
        transaction = Transaction()
        transaction.check(lease, 0)
        transaction.set(RESOURCE, b"%d" % token)
        results = await client.multi(transaction)
        stat = results[-1].written_stat
        return stat.version, stat.mzxid
