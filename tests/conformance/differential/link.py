"""A connection of the checker's own, and a system's nodes as it sees them.

A link hands out received frames one by one and knows when the server has closed; it judges nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import cast

from tests.conformance.differential.wire import (
    XID_PING,
    Connected,
    Op,
    Reply,
    Request,
    connect_frame,
    decode_connected,
    decode_reply,
    request_frame,
)

#: a reply that takes longer counts as missing
REPLY_DEADLINE_S = 90.0
SESSION_TIMEOUT_MS = 30_000
OBSERVER_TIMEOUT_MS = 600_000


class LostError(RuntimeError):
    """A system does not do what the checker itself needs of it."""


class Link(asyncio.Protocol):
    """One connection, frame by frame."""

    def __init__(self) -> None:
        self.closed = False
        self._frames: deque[bytes] = deque()
        self._buffer = b""
        self._waiter: asyncio.Future[None] | None = None
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Cut what came into frames."""
        buffer = self._buffer + data if self._buffer else data
        at = 0
        while len(buffer) - at >= 4:
            end = at + 4 + int.from_bytes(buffer[at : at + 4], "big")
            if end > len(buffer):
                break
            self._frames.append(buffer[at + 4 : end])
            at = end
        self._buffer = buffer[at:]
        if self._frames:
            self._wake()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's interface
        """Note that nothing more will come."""
        self.closed = True
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def send(self, data: bytes) -> None:
        """Send bytes; to a closed connection nothing is sent."""
        if self._transport is not None and not self.closed:
            self._transport.write(data)

    def drop(self) -> None:
        """Close without another word."""
        if self._transport is not None:
            self._transport.abort()
        self.closed = True

    def waiting(self) -> bytes | None:
        """Return the next received frame, if there is one."""
        return self._frames.popleft() if self._frames else None

    async def next(self) -> bytes | None:
        """Wait for the next frame; None when the server has closed.

        Raises:
            TimeoutError: neither happened in time.
        """
        while not self._frames:
            if self.closed:
                return None
            self._waiter = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(REPLY_DEADLINE_S):
                await self._waiter
        return self._frames.popleft()


async def open_link(port: int) -> Link:
    """Connect to a port of this machine."""
    _, link = await asyncio.get_running_loop().create_connection(Link, "127.0.0.1", port)
    return link


class Observer:
    """A session of the checker's own on one node: it waits for transactions and looks at nodes.

    Several streams ask at once: requests go out as they come, and each asker takes its own replies when those
    of the one before have been taken.
    """

    def __init__(self, link: Link, name: str, session_id: int) -> None:
        self.session_id = session_id
        self._link = link
        self._name = name
        #: set when all replies before have been taken
        self._before = asyncio.Event()
        self._before.set()
        #: the newest transaction that the node is known to have applied
        self._zxid = 0

    @classmethod
    async def open(cls, port: int, name: str) -> Observer:
        """Open a session that lasts as long as the run."""
        link = await open_link(port)
        link.send(connect_frame(0, OBSERVER_TIMEOUT_MS, 0, bytes(16)))
        first = await link.next()
        session_id = decode_connected(first).session_id if first is not None else 0
        if not session_id:
            raise LostError(f"{name} opens no session")
        return cls(link, name, session_id)

    async def ask(self, *requests: Request) -> list[Reply]:
        """Send requests in one packet and return their replies."""
        xids = [XID_PING if request.op == Op.PING else 1 for request in requests]
        self._link.send(b"".join(map(request_frame, xids, requests)))
        before, self._before = self._before, asyncio.Event()
        taken = self._before
        try:
            await before.wait()
            return [await self._reply(request) for request in requests]
        finally:
            taken.set()

    async def _reply(self, request: Request) -> Reply:
        data = await self._link.next()
        if data is None:
            raise LostError(f"{self._name} closed the connection of the checker's own session")
        reply = decode_reply(data, request.op)
        self._zxid = max(self._zxid, reply.zxid)
        return reply

    async def reach(self, zxid: int) -> None:
        """Wait until the node has applied a transaction: every reply names the last one.

        Raises:
            LostError: it did not do so in time.
        """
        deadline_s = time.monotonic() + REPLY_DEADLINE_S
        while self._zxid < zxid:
            await self.ask(Request(Op.PING))
            if time.monotonic() > deadline_s:
                raise LostError(f"{self._name} does not reach zxid {zxid:#x}; it is at {self._zxid:#x}")

    async def close(self) -> None:
        """End the session."""
        await self.ask(Request(Op.CLOSE_SESSION))
        self._link.drop()


class Side:
    """One of the two systems: the client ports of its nodes, the leader's first."""

    def __init__(self, name: str, ports: Sequence[int], kill: Callable[[int], None]) -> None:
        self.name = name
        self.ports = tuple(ports)
        #: ends a node for good
        self.kill = kill
        self.observers: list[Observer] = []

    async def open(self) -> None:
        """Open the sessions of the checker's own."""
        for node, port in enumerate(self.ports):
            name = f"node {node} of {self.name} (port {port})"
            self.observers.append(await Observer.open(port, name))

    async def close(self) -> None:
        """End them."""
        for observer in self.observers:
            await observer.close()
        self.observers.clear()


def refused(connected: Connected) -> bool:
    """Whether a handshake's answer says that there is no such session."""
    return connected.session_id == 0 or connected.timeout_ms <= 0
