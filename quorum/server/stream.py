"""The bytes of a client connection: received pieces put together, queued frames written, both within bounds.

Knows lengths and buffers, nothing of requests. What is queued leaves in one write per turn of the event
loop; `Turn` keeps what a turn leaves to be done. A peer that does not read its replies is not read either;
one that lets more than outbound_bytes_max pile up is dropped, never skipped. What all connections hold
together is bounded by shedding.py. Soft state only.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Final, Protocol, cast

from quorum.platform.budgets import UNREAD_NOTED_BYTES_MIN, Budgets
from quorum.platform.tls import peer_subject
from quorum.server.counters import Counters
from quorum.server.options import ServerOptions
from quorum.server.phases import Phase

log = logging.getLogger("quorate.server")

#: unsent bytes above which a peer is not read, and below which it is read again
WRITE_HIGH_WATER_BYTES: Final = 1024 * 1024
WRITE_LOW_WATER_BYTES: Final = 256 * 1024
_FINISHED: Final = Phase.FINISHED
_CLOSED: Final = Phase.CLOSED


class Owner(Protocol):
    """The connection that the bytes belong to."""

    phase: Phase

    def opened(self) -> bool:
        """Begin; false if it must not."""

    def took_bytes(self) -> None:
        """The peer is there, although its requests and pings are not read."""

    def proceed(self) -> None:
        """Read on, if that is allowed again."""

    def finish(self) -> None:
        """Close when what is queued has left."""

    def lost(self) -> None:
        """Nothing that is awaited can be answered."""


class Turn:
    """The turn that is under way."""

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        call_later: Callable[[float, Callable[[], None]], object],
        now_ms: Callable[[], float],
    ) -> None:
        """Begin with nothing to do; functions run in a later turn, or after so many milliseconds."""
        #: with something queued
        self.dirty: dict[ClientStream, None] = {}
        #: to be closed at the end of the turn
        self.closing: dict[ClientStream, None] = {}
        #: connections that may read on at the end of the turn
        self.resuming: dict[Owner, None] = {}
        #: connections that wait until the node is no longer saturated
        self.held: dict[Owner, None] = {}
        self._proceeding: set[Owner] = set()
        #: {connection with a long answer: what makes it, or its next piece}, the next one first
        self._long: dict[Owner, Callable[[], None]] = {}
        self._answers_later = False
        #: until when others have the loop
        self._rests_until_ms = 0.0
        #: the connection that makes a long answer right now
        self.answering: Owner | None = None
        self.call_soon = call_soon
        self._call_later = call_later
        self._now_ms = now_ms
        self._began_ms: float | None = None

    def waiting(self) -> Iterator[Owner]:
        """Yield the connections that are not read until the node has time or room for them."""
        return chain(self.held, self._long)

    def ms(self) -> float:
        """The clock at the first outcome of this turn."""
        if self._began_ms is None:
            self._began_ms = self._now_ms()
        return self._began_ms

    def proceed_soon(self, connection: Owner) -> None:
        """Let a connection read on in a later turn, once however often this was asked for until then."""
        if connection not in self._proceeding:
            self._proceeding.add(connection)
            self.call_soon(partial(self._proceed, connection))

    def _proceed(self, connection: Owner) -> None:
        self._proceeding.discard(connection)
        connection.proceed()

    def answer_long(self, connection: Owner, answer: Callable[[], None]) -> None:
        """Let a connection make a long answer, or a piece of it: one at a time, in the order of asking.

        After each the others have the loop for as long as it took.
        """
        self._long.setdefault(connection, answer)
        if not self._answers_later:
            self._answer_later()

    def _answer_later(self) -> None:
        self._answers_later = True
        rest_ms = self._rests_until_ms - self._now_ms()
        if rest_ms > 0:
            self._call_later(rest_ms, self._answer_next)
        else:
            self.call_soon(self._answer_next)

    def _answer_next(self) -> None:
        if self._long:
            began_ms = self._now_ms()
            self.answering = connection = next(iter(self._long))
            self._long.pop(connection)()
            self.answering = None
            now_ms = self._now_ms()
            self._rests_until_ms = now_ms + (now_ms - began_ms)
        self._answers_later = False
        if self._long:
            self._answer_later()

    def end(self, saturated: Callable[[], bool]) -> None:
        """Read on where that is possible again, write what is queued, close what is finished."""
        self._began_ms = None
        if self.held and not saturated():
            self.resuming.update(self.held)
            self.held.clear()
        if self.resuming:
            resuming = list(self.resuming)
            self.resuming.clear()
            for connection in resuming:
                connection.proceed()
        for stream in self.dirty:
            stream.flush()
        self.dirty.clear()
        if self.closing:
            # A reply that leaves may cost others their connections.
            closing = list(self.closing)
            self.closing.clear()
            for stream in closing:
                stream.close()

    def forget(self, connection: Owner, stream: ClientStream) -> None:
        """A connection is gone."""
        for waiting in (self.resuming, self.held, self._long):
            waiting.pop(connection, None)
        for written in (self.dirty, self.closing):
            written.pop(stream, None)


class StreamHost(Protocol):
    """What all connections of a node share, as the byte side of one sees it."""

    options: ServerOptions
    counters: Counters
    turn: Turn
    #: {byte side whose peer does not keep up with what it is sent: bytes that waited when last looked at}
    blocked: dict[ClientStream, int]

    @property
    def shedder(self) -> Budgets[ClientStream]:
        """The bounds of all connections together."""


class ClientStream(asyncio.Protocol):
    """The bytes of a client connection."""

    #: reads what came; what cannot be read yet is handed back to `keep`
    reader: Callable[[bytes], None]

    def __init__(self, host: StreamHost, owner: Owner) -> None:
        self._host = host
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        #: host:port of the peer, for logs and words
        self.address = "?"
        #: its host alone, by which connections are counted
        self.host_name = "?"
        #: of its certificate, as RFC 2253 writes it; "": it showed none
        self.subject = ""
        self.packets_sent = 0
        #: the beginning of a frame, or whole frames while stalled
        self._received = bytearray()
        #: bytes that `_received` must hold before there is something to do
        self._needed = 0
        #: whole frames that wait for a change of members
        self.held_back = bytearray()
        #: queued frames
        self.out: list[bytes] = []
        #: bytes of the replies to reads and of the events in `out`
        self.out_bytes = 0
        #: true while whole frames may lie in `_received`: too much is outstanding, or this turn wrote enough
        self.stalled = False
        #: true while the peer does not read
        self.blocked = False
        self._paused = False

    @property
    def reading(self) -> bool:
        """Whether the peer's bytes are taken now."""
        return not self._paused

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
        self.subject = peer_subject(transport) or ""
        bare = transport.get_extra_info("socket")
        if bare is not None and bare.family in (socket.AF_INET, socket.AF_INET6):
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(WRITE_HIGH_WATER_BYTES, WRITE_LOW_WATER_BYTES)
        if not self._owner.opened():
            transport.abort()

    def data_received(self, data: bytes) -> None:
        """Take bytes (called by the event loop)."""
        received = self._received
        if received or self.stalled:
            received += data
            if len(received) < self._needed or self.stalled:
                # A long frame is put together once, not again with each piece.
                self._note_received()
                self._host.shedder.settle()
                return
            data = bytes(received)
            received.clear()
            self._note_received()
        self.reader(data)
        self.settle()

    def eof_received(self) -> bool:
        """Tell whether the connection stays open for an answer: netcat says a word, ends its side and reads
        (called by the event loop)."""
        return self._owner.phase is Phase.SPEAKING

    def pause_writing(self) -> None:
        """The peer does not read: do not let it ask for more (called by the event loop)."""
        self.blocked = True
        self._host.blocked[self] = 0
        self.update_reading()

    def resume_writing(self) -> None:
        """The peer has read (called by the event loop)."""
        self.blocked = False
        self._host.blocked.pop(self, None)
        self._owner.took_bytes()
        self.update_reading()
        self._host.turn.proceed_soon(self._owner)

    def look_at_unsent(self) -> None:
        """See whether a peer that is not read for now has taken some of what waits since the last look."""
        if self._transport is not None:
            waiting = self._transport.get_write_buffer_size()
            if waiting < self._host.blocked[self]:
                self._owner.took_bytes()
            self._host.blocked[self] = waiting

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- why it ended changes nothing
        """Forget everything (called by the event loop)."""
        self._received = bytearray()
        self.out.clear()
        self._owner.lost()

    # -- reading --

    def keep(self, data: bytes, position: int, needed: int) -> None:
        """Keep what cannot be read yet.

        Args:
            data: as it was taken. position: first byte that was not read. needed: bytes from there on
            without which reading again makes no sense; must be more than there are,
                unless the connection is stalled.
        """
        self._received += data[position:]
        self._needed = needed
        self._note_received()
        self.update_reading()

    def stall(self, data: bytes, position: int) -> None:
        """Keep what is not read for now, and read no more until `take_kept`."""
        self.stalled = True
        self.keep(data, position, 0)

    def take_kept(self) -> bytes:
        """Take what was kept while stalled."""
        self.stalled = False
        data = bytes(self._received)
        self._received.clear()
        self._note_received()
        return data

    def end_change(self) -> None:
        """Put what waited for a change of members before what came after it, to be taken by `take_kept`."""
        self._received[:0] = self.held_back
        self.held_back.clear()
        self._note_received()
        self.stalled = True

    def _note_received(self) -> None:
        self._host.shedder.received.note(self, len(self._received) + len(self.held_back))

    def update_reading(self) -> None:
        """Pause or resume the transport as this connection's state asks."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        wanted = not self.stalled and not self.blocked
        if wanted and self._paused:
            self._paused = False
            transport.resume_reading()
        elif not wanted and not self._paused:
            self._paused = True
            transport.pause_reading()

    # -- writing --

    def queue(self, frame: bytes) -> None:
        """Queue the reply to a read, which may be large, or an event; it leaves at the end of the turn."""
        if not self.out:
            self._host.turn.dirty[self] = None
        self.out.append(frame)
        self.out_bytes += len(frame)
        if self.out_bytes > self._host.options.outbound_bytes_max:
            self._overflow(self.out_bytes)

    def flush(self) -> None:
        """Write everything that is queued."""
        out = self.out
        if not out:
            return
        transport = self._transport
        if self.out_bytes > WRITE_HIGH_WATER_BYTES and not self._host.shedder.may_write(self, self.out_bytes):
            return
        if transport is not None and not transport.is_closing():
            count = len(out)
            self.packets_sent += count
            self._host.counters.packets_sent += count
            transport.write(out[0] if count == 1 else b"".join(out))
            waiting = transport.get_write_buffer_size()
            if waiting > UNREAD_NOTED_BYTES_MIN:
                self._host.shedder.unread.note(self, waiting)
                if self.blocked and waiting > self._host.options.outbound_bytes_max:
                    self._overflow(waiting)
        out.clear()
        self.out_bytes = 0

    def settle(self) -> None:
        """End a turn that belonged to this connection alone."""
        self._host.turn.dirty.pop(self, None)
        self.flush()
        self._host.shedder.settle()
        if self._owner.phase is _FINISHED:
            self.close()

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
        if transport is None or self._owner.phase is _CLOSED:
            return 0
        # Also of a connection that closes: what it was sent stays until its peer has read or the time is up.
        waiting = transport.get_write_buffer_size()
        return waiting if waiting > UNREAD_NOTED_BYTES_MIN else 0

    def drop(self) -> None:
        """End the connection at once, with all that it has not sent and not read."""
        self.out.clear()
        self.out_bytes = 0
        self._received.clear()
        self.held_back.clear()
        self._owner.finish()
        self.abort()

    def _overflow(self, waiting_bytes: int) -> None:
        """Drop a peer that does not read: it must not cost memory without end, and may not miss a frame."""
        if self._owner.phase is _CLOSED or self._transport is None or self._transport.is_closing():
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
