"""What tests of the asyncio client share: both systems as fixtures, and waiting for states with a deadline.

The same tests run against real ZooKeeper servers, which prove the client, and against those of Quorate, which
must not differ.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Iterator
from typing import Self

import pytest

from quorum.client import Client, ClientState, CreateMode, WatchStream
from quorum.client.hosts import HostRotation, parse_hosts
from tests.support.nodes import QuorateNodes, System, ZooKeeperNodes

DEADLINE_S = 20.0
SESSION_TIMEOUT_MS = 3000

_roots = itertools.count(1)


@pytest.fixture(scope="module", params=["zookeeper", "quorate"])
def system(request: pytest.FixtureRequest) -> Iterator[System]:
    """Three servers of either system, for all tests of a module."""
    running = ZooKeeperNodes() if request.param == "zookeeper" else QuorateNodes()
    try:
        running.start()
        yield running
    finally:
        running.close()


@pytest.fixture
def hosts(system: System) -> str:
    """Connect string of three running, ready servers; a test may stop any of them."""
    for node_id in system.node_ids:
        if not system.running(node_id):
            system.start_node(node_id)
    system.wait_ready()
    return system.hosts_from(system.node_ids[0])


@pytest.fixture
def root() -> str:
    """A path that no other test uses; the test creates the node."""
    return f"/test-{next(_roots)}"


class States:
    """Every state that a client went through since it was followed."""

    def __init__(self, client: Client) -> None:
        self.seen: list[ClientState] = []
        self._changed = asyncio.Event()
        client.add_listener(self._note)

    def _note(self, state: ClientState) -> None:
        self.seen.append(state)
        self._changed.set()

    async def wait_for(self, *states: ClientState, deadline_s: float = DEADLINE_S) -> None:
        """Wait until the states have been gone through in this order, others between them allowed."""
        async with asyncio.timeout(deadline_s):
            while not self._contains(states):
                self._changed.clear()
                await self._changed.wait()

    def _contains(self, states: tuple[ClientState, ...]) -> bool:
        seen = iter(self.seen)
        return all(state in seen for state in states)


def starting_at(hosts: str, first: str) -> random.Random:
    """Find a source of randomness with which a client tries the given server of hosts first."""
    wanted = parse_hosts(first)[0]
    for seed in itertools.count():
        if HostRotation(parse_hosts(hosts), random.Random(seed)).next_host() == wanted:
            return random.Random(seed)
    raise AssertionError("unreachable")


def first_of(hosts: str) -> str:
    """Connect string of the first server alone."""
    return hosts.partition(",")[0]


class CuttingProxy:
    """A TCP proxy in front of one server that can swallow replies: a request arrives, its answer does not."""

    def __init__(self, target: str) -> None:
        self._target = parse_hosts(target)[0]
        self._listener: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._swallowed = asyncio.Event()
        self._swallowing = False
        self._blocking = False

    @property
    def hosts(self) -> str:
        """Where the proxy listens."""
        assert self._listener is not None
        return f"127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"

    def swallow_replies(self) -> None:
        """From now on let requests through, and no replies."""
        self._swallowing = True

    def block(self) -> None:
        """Cut all connections and refuse new ones."""
        self._blocking = True
        self._cut()

    def unblock(self) -> None:
        """Take new connections again."""
        self._blocking = False

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    async def cut_after_reply(self) -> None:
        """Wait until a reply was swallowed, close all connections, and let replies through again."""
        async with asyncio.timeout(DEADLINE_S):
            await self._swallowed.wait()
        self._swallowing = False
        self._swallowed.clear()
        self._cut()

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_exc: object) -> None:
        assert self._listener is not None
        self._listener.close()
        self._cut()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=DEADLINE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        if self._blocking:
            writer.transport.abort()
            return
        try:
            upstream, downstream = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            writer.close()
            return
        self._writers += [writer, downstream]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pump(reader, downstream, replies=False))
            tasks.create_task(self._pump(upstream, writer, replies=True))

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        try:
            while part := await reader.read(65536):
                if replies and self._swallowing:
                    self._swallowed.set()
                    continue
                writer.write(part)
        except ConnectionError:
            pass
        finally:
            writer.close()


async def outlive_session(lost: Client, proxy: CuttingProxy, hosts: str, path: str) -> None:
    """Keep a client behind a proxy away for so long that its session expires, then let it learn of that."""
    states = States(lost)
    await lost.create(path, b"", CreateMode.EPHEMERAL)
    async with Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS) as other:
        gone = WatchStream()
        await other.sync(path)
        assert await other.exists(path, watch=gone) is not None
        proxy.block()
        async with asyncio.timeout(DEADLINE_S):
            await anext(gone)
    proxy.unblock()
    await states.wait_for(ClientState.SUSPENDED, ClientState.LOST)


async def wipe(client: Client) -> None:
    """Delete every node but the system's own, whoever made it."""
    paths = ["/" + name for name in await client.get_children("/") if name != "zookeeper"]
    for path in paths:
        paths.extend(f"{path}/{name}" for name in await client.get_children(path))
    await asyncio.gather(*(client.delete(path) for path in reversed(paths)))
