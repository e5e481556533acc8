"""The client port in memory: connections over transports that only remember, turns that the test ends itself.

No sockets, no event loop and no clock: `MemoryNode.turn` runs what was asked to run later, as a loop would.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from quorum.server.frontend import Frontend
from quorum.server.options import ServerOptions
from quorum.wire.replies import (
    REPLY_HEADER_BYTES,
    ConnectResponse,
    decode_connect_response,
    decode_header,
    decode_watch_event,
)
from quorum.wire.requests import ConnectRequest, encode_connect
from tests.support.solo_replica import SoloReplica

GREETING = ConnectRequest(0, 0, 10_000, 0, bytes(16), False)


class Reply(NamedTuple):
    """One frame that a client got."""

    xid: int
    zxid: int
    err: int
    body: bytes

    @property
    def event(self) -> tuple[int, str]:
        """(type, path) of a watch event."""
        assert self.xid == -1
        event = decode_watch_event(bytes(REPLY_HEADER_BYTES) + self.body)
        return event.event_type, event.path


class MemoryTransport(asyncio.Transport):
    """What a connection writes to."""

    def __init__(self, host: str, certificate: bytes = b"") -> None:
        super().__init__()
        self._certificate = certificate
        self.writes: list[bytes] = []
        self.paused = False
        self.closed = False
        self.aborted = False
        #: what get_write_buffer_size says
        self.unsent_bytes = 0
        self._host = host

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        known: dict[str, Any] = {"peername": (self._host, 50_000)}
        if self._certificate:
            known |= {"peercert": {"version": 3}, "ssl_object": self}
        return known.get(name, default)

    def getpeercert(self, _binary: bool) -> bytes:
        return self._certificate

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None
        assert low is not None
        assert low < high

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def write(self, data: Any) -> None:
        assert not self.is_closing()
        self.writes.append(bytes(data))

    def pause_reading(self) -> None:
        assert not self.paused
        self.paused = True

    def resume_reading(self) -> None:
        assert self.paused
        self.paused = False

    def is_closing(self) -> bool:
        return self.closed or self.aborted

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.aborted = True


class MemoryClient:
    """The other end of a connection."""

    def __init__(self, node: MemoryNode, host: str, certificate: bytes = b"") -> None:
        self._node = node
        self.transport = MemoryTransport(host, certificate)
        self.connection = node.frontend.new_connection()
        self.stream = self.connection.stream
        self.stream.connection_made(self.transport)
        self._unread = b""

    def has_ended(self) -> bool:
        """Whether the server closed or dropped the connection."""
        return self.transport.is_closing()

    def was_dropped(self) -> bool:
        """Whether the server dropped the connection with what it had not sent."""
        return self.transport.aborted

    def is_paused(self) -> bool:
        """Whether the server does not read."""
        return self.transport.paused

    def send(self, *frames: bytes, turn: bool = True) -> None:
        """Let frames arrive in one piece, and end the turn."""
        self.stream.data_received(b"".join(frames))
        if turn:
            self._node.turn()

    def vanish(self) -> None:
        """Let the connection break."""
        self.stream.connection_lost(None)

    def received(self) -> bytes:
        """Take everything that arrived since the last time, as bytes."""
        taken = b"".join(self.transport.writes)
        self.transport.writes.clear()
        return taken

    def replies(self) -> list[Reply]:
        """Take everything that arrived since the last time, as frames; all of it must be whole."""
        data = self.received()
        replies = []
        position = 0
        while position < len(data):
            (length,) = struct.unpack_from(">i", data, position)
            frame = data[position + 4 : position + 4 + length]
            assert len(frame) == length
            replies.append(Reply(*decode_header(frame), frame[REPLY_HEADER_BYTES:]))
            position += 4 + length
        return replies

    def greet(self, request: ConnectRequest = GREETING) -> ConnectResponse:
        """Shake hands and take the answer."""
        self.send(encode_connect(request))
        return self.greeted()

    def greeted(self) -> ConnectResponse:
        """Take the answer to a handshake."""
        data = self.received()
        (length,) = struct.unpack_from(">i", data)
        assert len(data) == 4 + length
        return decode_connect_response(data[4:])


def _carry_out(work: Callable[[], int], done: Callable[[int | None, BaseException | None], object]) -> None:
    try:
        result = work()
    except OSError as error:
        done(None, error)
    else:
        done(result, None)


class MemoryNode:
    """A node whose clients live in the test."""

    def __init__(self, **limits: Any) -> None:
        self.time_ms = 1_000_000.0
        #: what is done beside the loop; while the disk is slow until the test calls it
        self.beside: deque[Callable[[], None]] = deque()
        self.slow_disk = False
        self._later: deque[Callable[[], None]] = deque()
        self.replica = SoloReplica(self._later.append)
        self.frontend = Frontend(
            ServerOptions(**limits),
            lambda: self.time_ms,
            self._later.append,
            lambda _ms, later: self._later.append(later),
            self._beside,
        )
        self.replica.frontend = self.frontend
        self.frontend.attach(self.replica)

    def _beside(
        self, work: Callable[[], int], done: Callable[[int | None, BaseException | None], object]
    ) -> None:
        """Do what a node does in a thread: at the end of this turn."""
        self.beside.append(partial(_carry_out, work, done))
        self._later.append(self._end_work)

    def _end_work(self) -> None:
        if self.beside and not self.slow_disk:
            self.beside.popleft()()

    def client(self, host: str = "10.0.0.1", certificate: bytes = b"") -> MemoryClient:
        """Let a client connect, perhaps with a certificate, DER."""
        return MemoryClient(self, host, certificate)

    def greeted(self, host: str = "10.0.0.1") -> MemoryClient:
        """Let a client connect and open a session."""
        client = self.client(host)
        assert client.greet().session_id
        return client

    def step(self) -> bool:
        """Run the first of what was asked to run later; False if there is nothing."""
        if self._later:
            self._later.popleft()()
            return True
        return False

    def turn(self) -> None:
        """Run what was asked to run later, until nothing is left."""
        while self._later:
            self._later.popleft()()

    def advance(self, elapsed_ms: float) -> None:
        """Let time pass, and time limits be judged."""
        self.time_ms += elapsed_ms
        self.frontend.tick(self.time_ms)
        self.turn()
