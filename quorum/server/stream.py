"""The byte side of a client connection: received pieces put together, queued frames written, both within
bounds.

Knows lengths and buffers, nothing of requests. What is queued leaves in one write per turn of the event
loop. A peer that does not read its replies is not read either; one that lets more than outbound_bytes_max
pile up is dropped, never skipped. What all connections hold together is bounded by shedding.py. Soft state
only.

Each layer of a connection (this one, speaking.py, greeting.py) names what it needs of the part that all share
as a protocol of its own: so it knows neither the listener nor the layers above it.

Life: GREETING (nothing yet) → BINDING (the handshake is in the log) → OPEN → LEAVING (the last request was
read) → FINISHED (what is queued still leaves) → CLOSED; any may be followed by FINISHED or CLOSED.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from abc import ABC, abstractmethod
from enum import Enum
from typing import Final, Protocol, cast

from quorum.platform.budgets import UNREAD_NOTED_BYTES_MIN
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.shedding import ClientShedder

log = logging.getLogger("quorate.server")

#: unsent bytes above which a peer is not read, and below which it is read again
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
WRITE_LOW_WATER_BYTES: Final = 256 * 1024


class Phase(Enum):
    """Where a connection is in its life."""

    GREETING = "greeting"
    BINDING = "binding"
    OPEN = "open"
    LEAVING = "leaving"
    FINISHED = "finished"
    CLOSED = "closed"


# Members of an enum cost a look-up each; these stand on the path of every request.
OPEN: Final = Phase.OPEN
_FINISHED: Final = Phase.FINISHED
_CLOSED: Final = Phase.CLOSED


class StreamHost(Protocol):
    """What all connections of a node share, as the byte side of one sees it."""

    options: ServerOptions
    counters: Counters
    #: the bounds of all connections together
    shedder: ClientShedder
    #: connections with something queued
    dirty: dict[ClientStream, None]
    #: {connection whose peer does not keep up with what it is sent: bytes that waited when last looked at}
    blocked: dict[ClientStream, int]

    def proceed_soon(self, stream: ClientStream) -> None:
        """Call `stream.proceed` in a later turn, once however often this was asked for until then."""

    def opened(self, stream: ClientStream) -> bool:
        """Register a connection; false if its address has too many."""

    def finishing(self, stream: ClientStream) -> None:
        """Learn that a connection is to be closed at the end of the turn."""

    def closed(self, stream: ClientStream) -> None:
        """Learn that a connection is gone."""


class ClientStream(asyncio.Protocol, ABC):
    """A client connection without its requests."""

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._transport: asyncio.Transport | None = None
        self.phase = Phase.GREETING
        #: host:port of the peer, for logs and words
        self.address = "?"
        #: its host alone, by which connections are counted
        self.host_name = "?"
        self.packets_sent = 0
        #: when it was last heard
        self.last_read_ms = 0.0
        #: the beginning of a frame, or whole frames while stalled
        self._received = bytearray()
        #: bytes that `_received` must hold before there is something to do
        self._needed = 0
        self._out: list[bytes] = []
        #: bytes of the replies to reads in `_out`
        self._out_bytes = 0
        #: true while whole frames may lie in `_received`: too much is outstanding, or this turn wrote enough
        self._stalled = False
        #: true while the peer does not read
        self._blocked = False
        self._paused = False

    @property
    def reading(self) -> bool:
        """Whether the peer's bytes are taken now."""
        return not self._paused

    # -- the owner's part --

    @abstractmethod
    def take(self, data: bytes) -> None:
        """Read what came; what cannot be read yet is handed back to `_keep`."""

    @abstractmethod
    def forget(self) -> None:
        """The connection is gone: nothing that is awaited can be answered."""

    @abstractmethod
    def has_session(self) -> bool:
        """Tell whether the client has a session."""

    # -- the transport's calls --

    def connection_made(self, base: asyncio.BaseTransport) -> None:
        """Begin (called by the event loop)."""
        # Not checked with isinstance: uvloop's transports are no subclass of asyncio.Transport.
        transport = self._transport = cast("asyncio.Transport", base)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            # A listener on [::] sees callers by IPv4 so; access lists name them without.
            self.host_name = str(peer[0]).removeprefix("::ffff:")
            host = f"[{self.host_name}]" if ":" in self.host_name else self.host_name
            self.address = f"{host}:{peer[1]}"
        bare = transport.get_extra_info("socket")
        if bare is not None and bare.family in (socket.AF_INET, socket.AF_INET6):
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        if not self._host.opened(self):
            self.phase = _FINISHED
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes (called by the event loop)."""
        received = self._received
        if received or self._stalled:
            received += data
            if len(received) < self._needed or self._stalled:
                # A long frame is put together once, not again with each piece.
                self._note_received()
                self._host.shedder.settle()
                return
            data = bytes(received)
            received.clear()
            self._note_received()
        self.take(data)
        self.settle()

    def eof_received(self) -> bool:
        """The peer will send no more, and so nobody is left to answer (called by the event loop)."""
        return False

    def pause_writing(self) -> None:
        """The peer does not read: do not let it ask for more (called by the event loop)."""
        self._blocked = True
        self._host.blocked[self] = 0
        self._update_reading()

    def resume_writing(self) -> None:
        """The peer has read (called by the event loop)."""
        self._blocked = False
        self._host.blocked.pop(self, None)
        self._took_bytes()
        self._update_reading()
        if self._stalled:
            self._host.proceed_soon(self)

    def look_at_unsent(self) -> None:
        """See whether a peer that is not read for now has taken some of what waits since the last look."""
        if self._transport is not None:
            waiting = self._transport.get_write_buffer_size()
            if waiting < self._host.blocked[self]:
                self._took_bytes()
            self._host.blocked[self] = waiting

    def _took_bytes(self) -> None:
        """The peer is there, although its requests and pings are not read."""

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- why it ended changes nothing
        """Forget everything (called by the event loop)."""
        self.phase = _CLOSED
        self._received = bytearray()
        self._out.clear()
        self.forget()
        self._host.closed(self)

    # -- reading --

    def _keep(self, data: bytes, position: int, needed: int) -> None:
        """Keep what cannot be read yet.

        Args:
            data: as it was taken. position: first byte that was not read. needed: bytes from there on
            without which reading again makes no sense; must be more than there are,
                unless the connection is stalled.
        """
        self._received += data[position:]
        self._needed = needed
        self._note_received()

    def _note_received(self) -> None:
        self._host.shedder.received.note(self, self._received_bytes())

    def _received_bytes(self) -> int:
        """Return how many bytes wait to be taken apart."""
        return len(self._received)

    def proceed(self) -> None:
        """Read on, if that is allowed again."""
        if self.phase is OPEN and self._stalled and not self._blocked:
            self._stalled = False
            data = bytes(self._received)
            self._received.clear()
            self._note_received()
            self.take(data)
            self._update_reading()
            self.settle()

    def _update_reading(self) -> None:
        """Pause or resume the transport as this connection's state asks."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = self.phase is not Phase.BINDING and not self._stalled and not self._blocked
        if wanted and self._paused:
            self._paused = False
            transport.resume_reading()
        elif not wanted and not self._paused:
            self._paused = True
            transport.pause_reading()

    # -- writing --

    def enqueue(self, frame: bytes) -> None:
        """Queue a frame; it leaves at the end of the turn."""
        if not self._out:
            self._host.dirty[self] = None
        self._out.append(frame)

    def _queue(self, frame: bytes) -> None:
        """Queue the reply to a read, which may be large."""
        if not self._out:
            self._host.dirty[self] = None
        self._out.append(frame)
        self._out_bytes += len(frame)
        if self._out_bytes > self._host.options.outbound_bytes_max:
            self._overflow(self._out_bytes)

    def flush(self) -> None:
        """Write everything that is queued."""
        out = self._out
        if not out:
            return
        transport = self._transport
        if self._out_bytes > WRITE_HIGH_WATER_BYTES and not self._host.shedder.may_write(
            self, self._out_bytes
        ):
            return
        if transport is not None and not transport.is_closing():
            count = len(out)
            self.packets_sent += count
            self._host.counters.packets_sent += count
            transport.write(out[0] if count == 1 else b"".join(out))
            waiting = transport.get_write_buffer_size()
            if waiting > UNREAD_NOTED_BYTES_MIN:
                self._host.shedder.unread.note(self, waiting)
                if self._blocked and waiting > self._host.options.outbound_bytes_max:
                    self._overflow(waiting)
        out.clear()
        self._out_bytes = 0

    def settle(self) -> None:
        """End a turn that belonged to this connection alone."""
        self._host.dirty.pop(self, None)
        self.flush()
        self._host.shedder.settle()
        if self.phase is _FINISHED:
            self.close()

    def finish(self) -> None:
        """Take no more requests, and close when what is queued has left: at the end of the turn."""
        if self.phase is not _FINISHED and self.phase is not _CLOSED:
            self.phase = _FINISHED
            self._host.finishing(self)

    def close(self) -> None:
        """Close the transport after what is queued."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection with everything that it has not sent."""
        if self._transport is not None:
            self._transport.abort()

    def unsent_bytes(self) -> int:
        """Return what the peer has not taken, if that is worth counting."""
        transport = self._transport
        if transport is None or self.phase is _CLOSED:
            return 0
        # Also of a connection that closes: what it was sent stays until its peer has read or the time is up.
        waiting = transport.get_write_buffer_size()
        return waiting if waiting > UNREAD_NOTED_BYTES_MIN else 0

    def drop(self) -> None:
        """End the connection at once, with all that it has not sent and not read."""
        self._out.clear()
        self._out_bytes = 0
        self._received.clear()
        self.finish()
        self.abort()

    def _overflow(self, waiting_bytes: int) -> None:
        """Drop a peer that does not read: it must not cost memory without end, and may not miss a frame."""
        if self.phase is _CLOSED or self._transport is None or self._transport.is_closing():
            return
        host = self._host
        host.counters.overflows += 1
        log.info(
            "dropped the connection of %s: its replies are not read, %d bytes wait, at most %d may",
            self.address,
            waiting_bytes,
            host.options.outbound_bytes_max,
        )
        self.drop()
