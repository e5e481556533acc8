"""Sessions that are resumed, abandoned or lost, and the ephemerals that say whether they are alive.

An owner makes two ephemerals in one transaction, reads one of them now and then, drops its connection and
resumes the session at any node, and in the end closes it or lets it expire. Observers read the names of all
ephemerals after a sync. Judged for I10, I11 and I12. Sessions are as short as the shipped defaults allow.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final

from pipeline.checks.ephemerals import ALL
from quorum.client import Client, ClientClosedError, CreateMode, SessionExpiredError, Transaction
from quorum.client.errors import NoServerError
from tests.chaos.recorder import Process
from tests.chaos.secured import way
from tests.chaos.workloads.base import (
    CONNECT_PATIENCE_MS,
    Answer,
    QuorumWorkload,
    connected,
    pause,
    record,
)

ROOT: Final = "/chaos-sessions"
PREFIX: Final = "session-"
TIMEOUT_MS: Final = 4000
OBSERVERS: Final = 2
LOOK_S: Final = 0.2
#: How often an owner reads before it does something else to its session.
READS_MAX: Final = 20
FINAL_DEADLINE_S: Final = 60.0


class Sessions(QuorumWorkload):
    """Six owners and two observers."""

    name: ClassVar[str] = "sessions"
    description: ClassVar[str] = "sessions that are resumed, abandoned or lost, and their ephemerals"
    session_timeout_ms: ClassVar[int] = TIMEOUT_MS

    async def set_up(self) -> None:
        """Create the parent of the ephemerals."""
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session before anything was wrong"
            await client.create(ROOT)

    async def run(self, stop: asyncio.Event) -> None:
        """Run owners and observers until stop is set."""
        async with asyncio.TaskGroup() as group:
            group.create_task(super().run(stop))
            for number in range(1, OBSERVERS + 1):
                process = self.recorder.process(f"observer-{number}")
                group.create_task(self._observe(process, random.Random(self.rng.random()), stop))

    async def _observe(self, process: Process, rng: random.Random, stop: asyncio.Event) -> None:
        while not stop.is_set():
            async with connected(self.cluster.hosts, rng) as client:
                try:
                    while client is not None and not stop.is_set():
                        await record(process.invoke("look", ALL, None), partial(_names, client), "")
                        await pause(stop, rng.uniform(0, 2 * LOOK_S))
                except (SessionExpiredError, ClientClosedError):
                    continue

    async def session(
        self, process: Process, client: Client, node: str, rng: random.Random, stop: asyncio.Event
    ) -> None:
        """Make ephemerals, read them, and resume the session again and again."""
        key = f"{PREFIX}{client.session_id:x}"
        names = [f"{key}-a", f"{key}-b"]
        call = process.invoke("create", key, [names, client.session_timeout_ms])
        if await record(call, lambda: _create(client, names), node) is None:
            return
        held = client
        try:
            while not stop.is_set():
                for _ in range(rng.randrange(1, READS_MAX)):
                    await record(process.invoke("own", key, None), partial(_is_there, held, names[0]), node)
                    await pause(stop, rng.uniform(0, 2 * self.pace_s))
                if rng.random() < 0.2:
                    # abandoned half of the time: it expires then
                    await _let_go(held, keep_session=rng.random() < 0.5)
                    return
                await held.close(keep_session=True)
                await pause(stop, rng.uniform(0, 1.5 * TIMEOUT_MS / 1000) if rng.random() < 0.2 else 0)
                resumed = await self._resume(process, key, held, rng)
                if resumed is None:
                    return
                held = resumed
        except SessionExpiredError:
            process.invoke("expired", key, None).ok(None)
        finally:
            await _let_go(held, keep_session=not stop.is_set())

    async def _resume(self, process: Process, key: str, left: Client, rng: random.Random) -> Client | None:
        """Take the session over, sometimes with a wrong password first; None if no server was found.

        Raises:
            SessionExpiredError: it is over.
        """
        token = left.session_token
        wrong = token._replace(password=bytes(len(token.password)))
        for operation, with_token in [("intrude", wrong)] * (rng.random() < 0.2) + [("resume", token)]:
            hosts, tls = way(self.cluster.hosts)
            client = Client(
                hosts,
                tls=tls,
                session_timeout_ms=TIMEOUT_MS,
                rng=random.Random(rng.random()),
                resume=with_token,
            )
            call = process.invoke(operation, key, None)
            try:
                await client.start(CONNECT_PATIENCE_MS)
            except NoServerError:
                call.unknown("no server")
                await client.close(keep_session=True)
                return None
            except SessionExpiredError:
                call.fail("expired")
                await client.close(keep_session=True)
                if operation == "resume":
                    raise
            else:
                call.ok(None)
                if operation == "resume":
                    return client
                await client.close(keep_session=True)
        return None

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """What ephemerals are left once all sessions must be over."""
        deadline = time.monotonic() + FINAL_DEADLINE_S
        left: list[str] = []
        async with connected(self.cluster.hosts, self.rng) as client:
            assert client is not None, "no node gave a session after everything was healed"
            while time.monotonic() < deadline:
                left = (await _names(client))[0]
                if not left:
                    break
                await pause(asyncio.Event(), LOOK_S)
        return [{"key": ALL, "left": left}]


async def _let_go(client: Client, *, keep_session: bool) -> None:
    # A server that does not answer does not hold the run up.
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_PATIENCE_MS / 1000):
            await client.close(keep_session=keep_session)


async def _create(client: Client, names: list[str]) -> Answer:
    transaction = Transaction()
    for each in names:
        transaction.create2(f"{ROOT}/{each}", mode=CreateMode.EPHEMERAL)
    results = await client.multi(transaction)
    return True, results[0].written_stat.czxid


async def _is_there(client: Client, name: str) -> Answer:
    path = f"{ROOT}/{name}"
    _, stat = await asyncio.gather(client.sync(path), client.exists(path))
    return stat is not None, 0 if stat is None else stat.czxid


async def _names(client: Client) -> Answer:
    _, (names, stat) = await asyncio.gather(client.sync(ROOT), client.get_children2(ROOT))
    return names, stat.pzxid
