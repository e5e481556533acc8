"""One TCP connection of a client: whole frames in, whole frames out, and a peer that must stay alive.

Knows frames and times, nothing of sessions, requests or watches; its owner decides. All requests of one turn
of the event loop leave in one write. A link pings when it sent nothing for a third of the session timeout,
and gives its peer up when it heard nothing for two thirds of it, so that a third is left to move the session
elsewhere. Soft state only. Source: ZooKeeper programmer's guide (sessions, heartbeats).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from quorum.errors import ProtocolError

#: Largest reply that is accepted: a getChildren of a million children fits.
REPLY_BYTES_MAX: Final = 64 * 1024 * 1024

_LENGTH_BYTES: Final = 4


class ServerLink(asyncio.Protocol):
    """One connection to one server."""

    def __init__(
        self,
        take_frame: Callable[[ServerLink, memoryview], None],
        closed: Callable[[ServerLink, str], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """Make a link that is not connected yet.

        Args:
            take_frame: takes one whole frame, without its length; may raise ProtocolError.
            closed: takes the reason why the link is gone, once if it was connected.
            loop: calls both, in order.
        """
        self._take_frame = take_frame
        self._closed = closed
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        #: Bytes that _received must hold before a frame can be whole.
        self._needed = _LENGTH_BYTES
        self._outgoing: list[bytes] = []
        self._heard_at_s = loop.time()
        self._sent_at_s = loop.time()
        self._ping: bytes = b""
        self._third_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._check_due_s = 0.0
        self._reason = "the server closed the connection"
        self._open = False

    @property
    def is_open(self) -> bool:
        """Say whether frames can still be sent."""
        return self._open

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin (called by the event loop)."""
        # uvloop's transports have the methods and not the type.
        self._transport = cast("asyncio.Transport", transport)
        self._open = True

    def send(self, frame: bytes) -> None:
        """Queue a frame, with its length; it leaves at the end of this turn of the event loop."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing.append(frame)

    def keep_alive(self, session_timeout_ms: int, ping: bytes) -> None:
        """Start to ping and to watch over the peer.

        Args:
            session_timeout_ms: what the server granted.
            ping: the frame that is sent when nothing else was, with its length.
        """
        self._third_s = session_timeout_ms / 3000
        self._ping = ping
        self._check_due_s = self._loop.time()
        self._check_liveness()

    def abort(self, reason: str) -> None:
        """Drop the connection at once, with what has not left yet; the owner hears the reason.

        To let it leave first would leave the connection to a peer that does not read, for ever.
        """
        if self._open:
            self._reason = reason
            self._open = False
            assert self._transport is not None
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Cut frames out of the stream (called by the event loop)."""
        self._heard_at_s = self._loop.time()
        if self._received:
            self._received += data
            if len(self._received) < self._needed:
                # A long reply is put together once, not again with each piece.
                return
            data = bytes(self._received)
            self._received.clear()
        position, end = 0, len(data)
        self._needed = _LENGTH_BYTES
        view = memoryview(data)
        while end - position >= _LENGTH_BYTES and self._open:
            length = int.from_bytes(view[position : position + _LENGTH_BYTES], "big", signed=True)
            if not 0 < length <= REPLY_BYTES_MAX:
                self.abort(
                    f"the server sent a frame of {length} bytes; from 1 to {REPLY_BYTES_MAX} are allowed"
                )
                return
            if end - position - _LENGTH_BYTES < length:
                self._needed = _LENGTH_BYTES + length
                break
            position += _LENGTH_BYTES
            try:
                self._take_frame(self, view[position : position + length])
            except ProtocolError as error:
                self.abort(f"the server sent a malformed reply: {error.message}")
                return
            position += length
        self._received += view[position:]

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner (called by the event loop)."""
        self._open = False
        if self._timer is not None:
            self._timer.cancel()
        self._outgoing.clear()
        self._closed(self, self._reason if exc is None else f"{self._reason}: {exc}")

    def _flush(self) -> None:
        if self._outgoing and self._open:
            assert self._transport is not None
            self._transport.write(b"".join(self._outgoing))
            self._outgoing.clear()
            self._sent_at_s = self._loop.time()

    def _check_liveness(self) -> None:
        if not self._open:
            return
        now_s = self._loop.time()
        # A stall of our own loop is not silence of the server: it may not even have been asked yet.
        self._heard_at_s = min(now_s, self._heard_at_s + max(0.0, now_s - self._check_due_s))
        dead_at_s = self._heard_at_s + 2 * self._third_s
        if now_s >= dead_at_s:
            self.abort(f"the server was silent for {(now_s - self._heard_at_s) * 1000:.0f} ms")
            return
        if now_s >= self._sent_at_s + self._third_s:
            self._sent_at_s = now_s
            self.send(self._ping)
        self._check_due_s = min(dead_at_s, self._sent_at_s + self._third_s)
        self._timer = self._loop.call_at(self._check_due_s, self._check_liveness)
