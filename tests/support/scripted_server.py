"""A server that follows a script, over real sockets: what a client meets when a server misbehaves on purpose.

Each accepted connection runs one scene, in order of arrival; a scene that fails, or never runs, fails the
test.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from quorum.client import Client
from quorum.wire import replies
from quorum.wire.protocol import OpCode
from quorum.wire.requests import ConnectRequest, decode_connect
from tests.support.clients import DEADLINE_S

SESSION_ID = 0x1234
PASSWORD = b"p" * 16
TIMEOUT_MS = 600


class Peer:
    """The server's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    async def frame(self) -> bytes:
        async with asyncio.timeout(DEADLINE_S):
            length = int.from_bytes(await self._reader.readexactly(4), "big")
            return await self._reader.readexactly(length)

    async def handshake(self, session_id: int = SESSION_ID, timeout_ms: int = TIMEOUT_MS) -> ConnectRequest:
        frame = await self.frame()
        response = replies.ConnectResponse(0, timeout_ms, session_id, PASSWORD, read_only=False)
        self.writer.write(replies.encode_connect_response(response))
        return decode_connect(frame, 0, len(frame))

    async def request(self) -> tuple[int, int, bytes]:
        """(xid, operation, body) of the next request that is no ping; pings are answered."""
        while True:
            frame = await self.frame()
            xid = int.from_bytes(frame[:4], "big", signed=True)
            op = int.from_bytes(frame[4:8], "big", signed=True)
            if op != OpCode.PING:
                return xid, op, frame[8:]
            self.writer.write(replies.encode_header(xid, 0, 0))

    async def answer_closing(self) -> None:
        xid, op, _ = await self.request()
        assert op == OpCode.CLOSE_SESSION
        self.writer.write(replies.encode_header(xid, 99, 0))

    async def gone(self) -> None:
        """Wait until the client has closed the connection, answering nothing."""
        await self.rest_count()

    async def rest_count(self) -> int:
        """Bytes that come until the client has closed the connection, all of them unanswered."""
        count = 0
        async with asyncio.timeout(DEADLINE_S):
            while piece := await self._reader.read(65536):
                count += len(piece)
        return count


Scene = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def server(*scenes: Scene) -> AsyncIterator[str]:
    """Run the scenes, one per connection; yields the connect string. Fails if a scene failed or never ran."""
    waiting = list(scenes)
    failures: list[BaseException] = []
    running: list[asyncio.Task[None]] = []

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.append(task)
        try:
            if waiting:
                await waiting.pop(0)(Peer(reader, writer))
        except ConnectionError:
            pass
        except (AssertionError, TimeoutError, asyncio.IncompleteReadError) as error:
            failures.append(error)
        finally:
            writer.close()

    listener = await asyncio.start_server(play, "127.0.0.1", 0)
    async with listener:
        yield f"127.0.0.1:{listener.sockets[0].getsockname()[1]}"
        if running:
            await asyncio.wait(running, timeout=DEADLINE_S)
    assert failures == []
    assert waiting == []


def make_client(hosts: str) -> Client:
    return Client(hosts, session_timeout_ms=TIMEOUT_MS, rng=random.Random(1))


async def serve_until_closed(peer: Peer) -> None:
    await peer.handshake()
    await peer.answer_closing()
