"""Peer transports on real sockets for tests: members, raw connections that play a member, and log lines.

Decides nothing about what is expected; every wait has a deadline and ends with an event, not with a sleep.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import random
import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

import pytest
import uvloop

from quorum.platform.os_runtime import AsyncioRuntime
from quorum.raft.core.messages import Heartbeat
from quorum.raft.peers.codec import LENGTH_BYTES, Codec
from quorum.raft.peers.hello import NONCE_BYTES, Callee, Dialler, PeerIdentity
from quorum.raft.peers.peers import PeerNode, TransportOptions, split_address
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES, FrameSeal
from quorum.raft.peers.transport import PeerTransport

SECRET = b"a secret of the cluster"
CLUSTER_ID = "c" * 32
DEADLINE_S = 10.0


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Changes:
    """Lets a test wait for a condition that callbacks and log lines may have made true."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def note(self) -> None:
        self._event.set()

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                self._event.clear()
                await self._event.wait()


class LogLines(logging.Handler):
    """Keeps the transport's log lines."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._changes = changes

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        self._changes.note()

    def having(self, *parts: str) -> list[str]:
        return [line for line in self.lines if all(part in line for part in parts)]


class Member:
    """One transport and what it reported."""

    def __init__(self, changes: Changes, transport: PeerTransport, identity: PeerIdentity) -> None:
        self.transport = transport
        self.identity = identity
        self.events: list[tuple[str, int, str]] = []
        self.received: list[Any] = []
        self._changes = changes
        transport.setOnNodeConnectedCallback(lambda node: self._note("up", node))
        transport.setOnNodeDisconnectedCallback(lambda node: self._note("down", node))
        transport.setOnMessageReceivedCallback(self._keep)

    @property
    def node_id(self) -> int:
        return self.identity.node_id

    @property
    def address(self) -> str:
        host, port = self.transport.address
        return f"{host}:{port}"

    def up(self, *node_ids: int) -> bool:
        """Whether connections in both directions stand with all of these."""
        links = self.transport.links()
        return all(links[node_id].outbound and links[node_id].inbound for node_id in node_ids)

    def heartbeat(self, receiver: int, term: int = 1) -> bool:
        return self.send(
            Heartbeat(term=term, sender=self.node_id, receiver=receiver, commit_index=0, sent_ms=1.0)
        )

    def send(self, message: Any) -> bool:
        sent: bool = self.transport.send(PeerNode(message.receiver), message)
        asyncio.get_running_loop().call_soon(self.transport.flush)
        return sent

    def _note(self, what: str, node: PeerNode) -> None:
        self.events.append((what, node.node_id, node.incarnation))
        self._changes.note()

    def _keep(self, node: PeerNode, message: Any) -> None:
        self.received.append((node.node_id, node.incarnation, message))
        self._changes.note()


class Network:
    """Members, raw connections and proxies of one test; all are closed at its end."""

    def __init__(self) -> None:
        self.changes = Changes()
        self.log = LogLines(self.changes)
        self.sockets: dict[int, socket.socket] = {}
        self.addresses: dict[int, str] = {}
        self._closers: list[Callable[[], Awaitable[None]]] = []

    def reserve(self, *node_ids: int) -> None:
        for node_id in node_ids:
            self.sockets[node_id] = bound = socket.create_server(("127.0.0.1", 0))
            self.addresses[node_id] = f"127.0.0.1:{bound.getsockname()[1]}"

    async def start(self, node_id: int, **changed: Any) -> Member:
        """Start a member; `changed` overrides fields of its identity and arguments of its transport."""
        fields = {name: changed.pop(name) for name in PeerIdentity._fields if name in changed}
        plain = PeerIdentity("local", CLUSTER_ID, node_id, f"{node_id:x}" * 32)
        identity = plain._replace(**fields)
        arguments: dict[str, Any] = {
            "secrets": [SECRET.decode()],
            "codec": Codec(),
            "listen": self.sockets.pop(node_id, ("127.0.0.1", 0)),
            "members": dict(self.addresses),
            "options": TransportOptions(handshake_timeout_ms=20_000),
        }
        arguments.update(changed)
        runtime = arguments.pop("runtime", None)
        runtime = runtime or AsyncioRuntime(asyncio.get_running_loop(), random.Random())
        secrets = arguments.pop("secrets")
        member = Member(
            self.changes, PeerTransport(runtime, lambda: identity, secrets, **arguments), identity
        )
        self._closers.append(member.transport.stop)
        await member.transport.start()
        return member

    async def until(self, condition: Callable[[], object]) -> None:
        await self.changes.until(condition)

    async def connect(self, address: str) -> Streams:
        host, port = split_address(address)
        reader, writer = await asyncio.open_connection(host, port)
        self._closers.append(lambda: self._close(writer))
        return reader, writer

    async def dial_as(
        self, identity: PeerIdentity, target: Member
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, FrameSeal]:
        """Open a connection and say a proper hello on it; the seal is of the frames that follow."""
        reader, writer = await self.connect(target.address)
        hello = Dialler(identity, target.node_id, SECRET, random.randbytes(NONCE_BYTES))
        await greet(hello, reader, writer)
        return reader, writer, FrameSeal(hello.frame_key)

    async def listen_as(self, node_id: int) -> asyncio.Queue[Streams]:
        """Play a member that says hello to whoever calls, and reads no further by itself."""
        identity = PeerIdentity("local", CLUSTER_ID, node_id, f"{node_id:x}" * 32)
        greeted: asyncio.Queue[Streams] = asyncio.Queue()

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._closers.append(lambda: self._close(writer))
            await greet(
                Callee(identity, {1, 2, 3} - {node_id}, [SECRET], random.randbytes(NONCE_BYTES)),
                reader,
                writer,
            )
            greeted.put_nowait((reader, writer))

        listener = self.sockets.pop(node_id)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        server = await asyncio.start_server(accept, sock=listener, limit=4096)
        self._closers.append(lambda: self._close_server(server))
        return greeted

    async def close(self) -> None:
        for close in reversed(self._closers):
            await close()
        for bound in self.sockets.values():
            bound.close()

    @staticmethod
    async def _close(writer: asyncio.StreamWriter) -> None:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    @staticmethod
    async def _close_server(server: asyncio.Server) -> None:
        server.close()


async def greet(hello: Dialler | Callee, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Say one side of the hello; it must succeed."""
    if isinstance(hello, Dialler):
        writer.write(hello.begin())
    async with asyncio.timeout(DEADLINE_S):
        while not hello.done:
            # Byte by byte, so that nothing behind the hello is taken.
            writer.write(hello.feed(await reader.readexactly(1)))


async def read_frame(reader: asyncio.StreamReader) -> Any:
    """Read a sealed frame; the seal is not looked at."""
    async with asyncio.timeout(DEADLINE_S):
        head = await reader.readexactly(CHECK_BYTES + LENGTH_BYTES)
        size = struct.unpack_from(">I", head, CHECK_BYTES)[0]
        message = Codec().decode(await reader.readexactly(size))
        await reader.readexactly(TAG_BYTES)
        return message


async def ended(reader: asyncio.StreamReader) -> bytes:
    """Wait for the other side to end the connection; return what it said before."""
    async with asyncio.timeout(DEADLINE_S):
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


@contextlib.asynccontextmanager
async def open_network() -> AsyncIterator[Network]:
    network = Network()
    logger = logging.getLogger("quorate.transport")
    level = logger.level
    logger.addHandler(network.log)
    logger.setLevel(logging.INFO)
    try:
        yield network
    finally:
        await network.close()
        logger.removeHandler(network.log)
        logger.setLevel(level)


def on_both_loops(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a story about a network once on asyncio's loop and once on uvloop's."""

    def run(loop_factory: Callable[[], asyncio.AbstractEventLoop], **arguments: Any) -> None:
        async def tell() -> None:
            async with open_network() as network:
                await story(network, **arguments)

        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(tell())

    others = list(inspect.signature(story).parameters.values())[1:]
    loop_factory = inspect.Parameter("loop_factory", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__name__ = story.__name__
    run.__doc__ = story.__doc__
    run.__signature__ = inspect.Signature([loop_factory, *others])  # type: ignore[attr-defined]
    loops = pytest.mark.parametrize(
        "loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
    )
    decorated: Callable[..., None] = loops(run)
    return decorated
