"""One TCP connection between two members: the hello first, then frames in one direction only.

The side that dialled sends (OutboundLink), the side that was called receives (InboundLink), so that a
proxy or a fault can sit on each directed link. Frames are sealed (sealing.py), unless TLS protects them. A
link decides when bytes leave: small frames overtake bulk, one write per turn of the loop, and no more is
handed to the socket than it takes, so that a heartbeat never waits for megabytes. It does not decide which
node is dialled when, and knows nothing of Raft.
Soft state only.

Source: the transport contract of pysyncobj; TCP_NOTSENT_LOWAT and TCP_USER_TIMEOUT of tcp(7).
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import Final, NamedTuple, Protocol, cast

from quorum.errors import ProtocolError
from quorum.platform.runtime import Runtime, TimerHandle
from quorum.raft.peers.codec import LENGTH_BYTES, Codec, PeerMessage
from quorum.raft.peers.hello import Callee, Dialler, HelloRefusedError, PeerIdentity
from quorum.raft.peers.peers import TransportOptions
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES, FrameSeal

#: Bytes of the receive buffer before the hello is done; two records fit.
HELLO_BUFFER_BYTES: Final = 16 * 1024
#: Bytes of the receive buffer of an open link; it grows for a larger frame only.
RECEIVE_BUFFER_BYTES: Final = 256 * 1024
#: A receive buffer that grew beyond this is given back once it is empty.
RECEIVE_BUFFER_KEPT_BYTES_MAX: Final = 1024 * 1024
#: Unsent bytes that the kernel takes for a connection.
_KERNEL_UNSENT_BYTES: Final = 128 * 1024


class LinkOwner(Protocol):
    """What a link tells the transport; every call comes from the event loop."""

    def link_opened(self, link: InboundLink | OutboundLink) -> None:
        """The hello is done; `link.identity` is proven."""

    def link_chunk(self) -> None:
        """All messages of a received chunk were handed on."""

    def link_message(self, link: InboundLink, message: PeerMessage) -> None:
        """A message arrived on an open link; may raise ProtocolError."""

    def link_closed(self, link: InboundLink | OutboundLink, reason: str, error: ProtocolError | None) -> None:
        """The link is gone; once for every link but those that `finish` ends.

        `error` is set if one of the sides broke the protocol or refused the other.
        """


class LinkContext(NamedTuple):
    """What all links of one transport share."""

    owner: LinkOwner
    runtime: Runtime
    codec: Codec
    options: TransportOptions
    #: links on which something waits for the end of this turn
    due: list[OutboundLink]


class SendQueue:
    """Frames that wait for one connection, in order within their lane; the urgent lane leaves first."""

    __slots__ = ("bulk", "size_bytes", "urgent")

    def __init__(self) -> None:
        #: [(parts of the frame, bytes)]
        self.urgent: deque[tuple[tuple[bytes, ...], int]] = deque()
        self.bulk: deque[tuple[tuple[bytes, ...], int]] = deque()
        self.size_bytes = 0

    def take(self, bytes_max: int, seal: FrameSeal | None) -> list[bytes]:
        """Remove frames until they reach `bytes_max`, at least one; return their parts in sending order.

        Args:
            seal: of the connection, whose frames are numbered as they leave; None: they stay as they are.
        """
        taken: list[bytes] = []
        taken_bytes = 0
        while taken_bytes < bytes_max and (lane := self.urgent or self.bulk):
            frame, frame_bytes = lane.popleft()
            taken += frame if seal is None else seal.seal(frame)
            taken_bytes += frame_bytes
        self.size_bytes -= taken_bytes
        return taken


class PeerLink(asyncio.BufferedProtocol):
    """The hello and the end of a connection, the same in both directions."""

    def __init__(self, context: LinkContext, hello: Callee | Dialler, address: str, node_id: int) -> None:
        """Make a link that is not connected yet.

        Args:
            context: what all links of the transport share.
            hello: this side of the hello.
            address: the other side, for messages; "" takes it from the connection.
            node_id: the member that is dialled; 0 takes it from the hello.
        """
        self._context = context
        self._hello: Callee | Dialler | None = hello
        self._timer: TimerHandle | None = None
        self._closed = False
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] | None = None
        self._buffer = memoryview(bytearray(HELLO_BUFFER_BYTES))
        self._end = 0  #: bytes of the buffer that are filled
        self.address = address
        self.node_id = node_id
        self.opened_at_ms = 0.0
        self.identity: PeerIdentity | None = None
        #: of the frames; None before the hello is done, and where TLS protects them
        self._seal: FrameSeal | None = None

    @property
    def proven(self) -> PeerIdentity | None:
        """The identity that the other side proved, also if one side refused the other; None before that."""
        return self._hello.proven if self._hello is not None else self.identity

    @property
    def is_open(self) -> bool:
        """Whether the hello is done and the link not closed."""
        return self.identity is not None and not self._closed

    def close(self, reason: str, error: ProtocolError | None = None) -> None:
        """End the connection now; what was not sent is lost. A second close does nothing."""
        if self._closed:
            return
        self._closed = True
        self._stop_timer()
        if self._transport is not None:
            self._transport.abort()
        self._context.owner.link_closed(self._as_link(), reason, error)

    # --- called by the event loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        # uvloop's transports are no subclasses of asyncio's.
        self._transport = stream = cast("asyncio.Transport", transport)
        if self._closed:
            stream.abort()
            return
        peername = transport.get_extra_info("peername")
        if not self.address:
            self.address = (
                f"{peername[0]}:{peername[1]}" if isinstance(peername, tuple) else "unknown address"
            )
        self._set_options(transport.get_extra_info("socket"))
        stream.set_write_buffer_limits(high=self._context.options.write_bytes_max)
        self._timer = self._context.runtime.call_later(
            self._context.options.handshake_timeout_ms, self.close, "the hello took too long"
        )
        if isinstance(self._hello, Dialler):
            stream.write(self._hello.begin())

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the buffer has its own size
        """Return where received bytes go."""
        return self._buffer[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Take received bytes."""
        if self._closed:
            return
        self._end += nbytes
        try:
            if self._hello is not None:
                self._shake(self._hello)
            if self._end and self.identity is not None and not self._closed:
                try:
                    self._take()
                finally:
                    self._context.owner.link_chunk()
        except HelloRefusedError as error:
            self._refuse(error)
        except ProtocolError as error:
            self.close(str(error), error)

    def connection_lost(self, exc: Exception | None) -> None:
        """Learn that the connection ended."""
        self._transport = None
        self._stop_timer()
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)
        if not self._closed:
            self._closed = True
            reason = str(exc) if exc is not None else "the other side closed the connection"
            self._context.owner.link_closed(self._as_link(), reason, None)

    # --- for the two directions ---------------------------------------------------------------------------

    def _as_link(self) -> InboundLink | OutboundLink:
        assert isinstance(self, InboundLink | OutboundLink)
        return self

    def _opened(self) -> None:
        raise NotImplementedError

    def _take(self) -> None:
        raise NotImplementedError

    def _shake(self, hello: Callee | Dialler) -> None:
        received = bytes(self._buffer[: self._end])
        self._end = 0
        answer = hello.feed(received)
        if answer:
            self._write(answer)
        if hello.peer is None:
            return
        self._hello = None
        self._stop_timer()
        self.identity = hello.peer
        if self._transport is not None and self._transport.get_extra_info("ssl_object") is None:
            self._seal = FrameSeal(hello.frame_key)
        self.node_id = hello.peer.node_id
        self.opened_at_ms = self._context.runtime.monotonic_ms()
        self._end = len(hello.rest)
        self._buffer[: self._end] = hello.rest
        self._opened()
        self._context.owner.link_opened(self._as_link())

    def _refuse(self, error: HelloRefusedError) -> None:
        """Say why, and end the connection once that has left, or when the time for a hello is over."""
        self._stop_timer()
        assert self._transport is not None
        self._transport.write(error.reply)
        self._transport.close()
        self._closed = True
        self._timer = self._context.runtime.call_later(
            self._context.options.handshake_timeout_ms, self._transport.abort
        )
        self._context.owner.link_closed(self._as_link(), str(error), error)

    def _write(self, *parts: bytes) -> None:
        assert self._transport is not None
        self._transport.writelines(parts)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_options(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        timeout_ms = self._context.options.unacknowledged_timeout_ms
        seconds = max(1, timeout_ms // 1000)
        # Elsewhere than on Linux some of these do not exist; a dead peer is then noticed later.
        for name, value in (
            ("TCP_USER_TIMEOUT", timeout_ms),
            ("TCP_KEEPIDLE", seconds),
            ("TCP_KEEPINTVL", max(1, seconds // 3)),
            ("TCP_KEEPCNT", 3),
            ("TCP_NOTSENT_LOWAT", _KERNEL_UNSENT_BYTES),
        ):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class OutboundLink(PeerLink):
    """A connection that this node dialled; frames leave on it."""

    def __init__(self, context: LinkContext, hello: Dialler, address: str, node_id: int) -> None:
        """Make a link that is not connected yet to the member `node_id`."""
        super().__init__(context, hello, address, node_id)
        self.queue = SendQueue()
        self._flush_due = False
        self._paused = False

    def send(self, frame: tuple[bytes, ...], frame_bytes: int, *, bulk: bool) -> None:
        """Queue a frame; it leaves with `flush` or when the socket takes more."""
        queue = self.queue
        (queue.bulk if bulk else queue.urgent).append((frame, frame_bytes))
        queue.size_bytes += frame_bytes
        if not self._flush_due and not self._paused:
            self._flush_due = True
            self._context.due.append(self)

    def finish(self) -> asyncio.Future[None]:
        """Hand an open link's queue to the socket and close; the future waits for the connection's end."""
        if self._gone is None:
            self._gone = asyncio.get_running_loop().create_future()
            if self._closed or self._transport is None:
                self._gone.set_result(None)
            else:
                self._closed = True
                self._stop_timer()
                if self.queue.size_bytes:
                    self._write(*self.queue.take(self.queue.size_bytes, self._seal))
                self._transport.close()
                self._timer = self._context.runtime.call_later(
                    self._context.options.handshake_timeout_ms, self._transport.abort
                )
        return self._gone

    def abort(self) -> None:
        """Give up what `finish` could not get rid of."""
        if self._transport is not None:
            self._transport.abort()

    def pause_writing(self) -> None:
        """The socket takes no more (called by the event loop)."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes more (called by the event loop)."""
        self._paused = False
        if not self._closed:
            self.flush()

    def flush(self) -> None:
        """Hand what is queued to the socket: as much as leaves at once, the next piece in a later turn."""
        self._flush_due = False
        if self._closed or self._paused or not self.queue.size_bytes or self._transport is None:
            return
        self._transport.writelines(self.queue.take(self._context.options.write_bytes_max, self._seal))
        if self.queue.size_bytes and not self._paused:
            self._flush_due = True
            self._context.runtime.call_soon(self.flush)

    def _opened(self) -> None:
        """Nothing is received on this link any more; the small buffer stays."""

    def _take(self) -> None:
        raise ProtocolError(f"{self._end} bytes arrived on a link that this node only sends on")


class InboundLink(PeerLink):
    """A connection that a peer dialled; frames arrive on it."""

    def __init__(self, context: LinkContext, hello: Callee) -> None:
        """Make a link that is not connected yet."""
        super().__init__(context, hello, "", 0)
        self._start = 0  #: first byte of the buffer that is not decoded
        self.heard_ms = 0.0  #: when bytes came last, monotonic; once it is open

    def _opened(self) -> None:
        self.heard_ms = self.opened_at_ms
        self._move_to(RECEIVE_BUFFER_BYTES)

    def _take(self) -> None:
        codec, owner = self._context.codec, self._context.owner
        self.heard_ms = self._context.runtime.monotonic_ms()
        seal, buffer = self._seal, self._buffer
        before, behind = (0, 0) if seal is None else (CHECK_BYTES, TAG_BYTES)
        missing_from = head_bytes = before + LENGTH_BYTES
        while self._end - self._start >= head_bytes:
            frame = self._start + before
            body = frame + LENGTH_BYTES
            end = body + codec.frame_bytes(buffer, frame)
            stop = end + behind
            missing_from = stop - self._start
            if stop > self._end:
                if seal is not None:
                    seal.check_length(buffer[self._start : frame], buffer[frame:body])
                break
            if seal is not None:
                seal.open(buffer[self._start : end], buffer[end:stop])
            message = codec.decode(buffer[body:end])
            self._start = stop
            missing_from = head_bytes
            owner.link_message(self, message)
            if self._closed:
                return
        if self._start == self._end and len(self._buffer) <= RECEIVE_BUFFER_KEPT_BYTES_MAX:
            self._start = self._end = 0
        else:
            self._make_room(missing_from)

    def _make_room(self, frame_bytes: int) -> None:
        """See to it that the frame that began at `_start` fits the buffer from there on."""
        size = len(self._buffer)
        if self._start == self._end:
            self._start = self._end = 0
            self._buffer = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        elif frame_bytes > size:
            self._move_to(frame_bytes)
        elif self._start + frame_bytes > size or self._end == size:
            rest = self._end - self._start
            self._buffer[:rest] = self._buffer[self._start : self._end]
            self._start, self._end = 0, rest

    def _move_to(self, size: int) -> None:
        rest = self._end - self._start
        buffer = memoryview(bytearray(size))
        buffer[:rest] = self._buffer[self._start : self._end]
        self._buffer = buffer
        self._start, self._end = 0, rest
