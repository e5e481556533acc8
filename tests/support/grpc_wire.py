"""A cheap client connection for gRPC servers, so that a load on etcd costs as little as one on ZooKeeper.

One blocking socket, one HTTP/2 connection, requests encoded before the clock starts, and of the replies only
what is asked for: a general gRPC client in Python takes longer for a call than the server that is measured.
Does what unary calls and streams of a grpc-go server need: header blocks through hpack, flow control of what
is sent, SETTINGS, PING, WINDOW_UPDATE. The server is told to keep no header table, so equal blocks mean the
same and are decoded once. Knows no messages; TLS, compression and retries are left out.
Source: RFC 9113 (HTTP/2), RFC 7541 (HPACK), gRPC over HTTP/2.
"""

from __future__ import annotations

import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, Self

import hpack

from tests.support.wire_load import LoadError, LoadInterruptedError

RECEIVE_BYTES = 1 << 18
#: what a server that says nothing else takes in one frame, and of one stream before it grants more
FRAME_BYTES_MAX = 16384
MESSAGE_BYTES_MAX = 65535 - 5
WINDOW_BYTES = (1 << 31) - 1
INITIAL_WINDOW_BYTES = 65535

_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _ACK, _END_HEADERS, _PADDED, _PRIORITY = 1, 1, 4, 8, 32
_NO_ERROR = bytes(4)
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">HBBBI")  # length in two parts, type, flags, stream
_MESSAGE_HEAD = struct.Struct(">?I")  # compressed, length


class GrpcError(LoadInterruptedError):
    """A call that ended with a status other than 0."""


class Request(NamedTuple):
    """One encoded call; the encoder's table makes the order of sending the order of encoding."""

    stream_id: int
    frames: bytes
    #: what it takes of the connection's send window
    data_bytes: int


class Reply(NamedTuple):
    """The end of a call: its message, or the server's words if the status is not 0."""

    stream_id: int
    grpc_status: int
    body: bytes


def http2_frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One HTTP/2 frame."""
    return _HEAD.pack(len(payload) >> 8, len(payload) & 255, kind, flags, stream_id) + payload


class GrpcConnection:
    """One blocking connection; calls are numbered by their streams 1, 3, 5, …"""

    def __init__(self, host: str, *, timeout_s: float = 30.0) -> None:
        """Connect and exchange prefaces.

        Args:
            host: "address:port".
            timeout_s: how long any reply may take.

        Raises:
            OSError: nobody listens, or the connection broke.
        """
        self.host = host
        address, _, port = host.rpartition(":")
        self.timeout_s = timeout_s
        self.socket = socket.create_connection((address, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        #: messages of streams that stay open, (stream id, message), in order
        self.messages: deque[tuple[int, bytes]] = deque()
        self._encoder = hpack.Encoder()
        self._decoder = hpack.Decoder()
        self._decoder.max_allowed_table_size = 0
        self._decoder.header_table_size = 0
        #: {header block at the end of a call: (status, words)}
        self._endings: dict[bytes, tuple[int, bytes]] = {}
        self._next_stream_id = 1
        self._credit_bytes = INITIAL_WINDOW_BYTES
        self._buffered = b""
        #: {stream id: what of its reply has arrived}
        self._bodies: dict[int, bytes] = {}
        self._streams: set[int] = set()
        #: streams that ended, while messages of theirs may still be waiting
        self._ended: list[Reply] = []
        settings = struct.pack(">HIHIHI", 1, 0, 2, 0, 4, WINDOW_BYTES)
        update = struct.pack(">I", WINDOW_BYTES - INITIAL_WINDOW_BYTES)
        self.socket.sendall(
            _PREFACE + http2_frame(_SETTINGS, 0, 0, settings) + http2_frame(_WINDOW, 0, 0, update)
        )

    def encode(self, method: str, message: bytes, *, end: bool = True) -> Request:
        """Encode a call on the next stream; whoever encodes must send, and in the same order.

        Args:
            method: "/package.Service/Method".
            message: the encoded message.
            end: whether the client has nothing more to say on the stream.

        Raises:
            ValueError: the message is larger than what one stream may send without being granted more.
        """
        if len(message) > MESSAGE_BYTES_MAX:
            raise ValueError(f"{method}: a message of {len(message)} bytes; at most {MESSAGE_BYTES_MAX}")
        stream_id = self._next_stream_id
        self._next_stream_id += 2
        headers = (
            *((":method", "POST"), (":scheme", "http"), (":path", method), (":authority", self.host)),
            *(("content-type", "application/grpc"), ("te", "trailers")),
        )
        parts = [http2_frame(_HEADERS, _END_HEADERS, stream_id, self._encoder.encode(headers))]
        payload = _MESSAGE_HEAD.pack(False, len(message)) + message
        for start in range(0, len(payload), FRAME_BYTES_MAX):
            piece = payload[start : start + FRAME_BYTES_MAX]
            last = end and start + FRAME_BYTES_MAX >= len(payload)
            parts.append(http2_frame(_DATA, _END_STREAM if last else 0, stream_id, piece))
        return Request(stream_id, b"".join(parts), len(payload))

    def call(self, method: str, message: bytes, timeout_s: float | None = None) -> bytes:
        """Make one call and wait for its reply; replies to calls that were given up are dropped.

        Raises:
            GrpcError: the status is not 0.
            TimeoutError: no reply in time; the connection can be used further.
        """
        deadline_s = time.monotonic() + (self.timeout_s if timeout_s is None else timeout_s)
        stream_id = self._next_stream_id
        self._send(self.encode(method, message))
        try:
            while True:
                self.socket.settimeout(max(0.001, deadline_s - time.monotonic()))
                for reply in self.receive():
                    if reply.stream_id == stream_id:
                        return self._message_of(reply)
        finally:
            self.socket.settimeout(self.timeout_s)

    def open_stream(self, method: str, message: bytes) -> int:
        """Begin a stream with one message and keep it open; its messages go to `messages`."""
        stream_id = self._next_stream_id
        self._streams.add(stream_id)
        self._send(self.encode(method, message, end=False))
        return stream_id

    def next_message(self) -> bytes:
        """Wait for the next message of a stream.

        Raises:
            LoadError: a stream ended.
        """
        while not self.messages:
            if self._ended:
                raise LoadError(f"{self.host}: a stream ended: {self._ended}")
            self._ended += self.receive()
        return self.messages.popleft()[1]

    def pipelined(
        self,
        requests: Sequence[Request],
        window: int,
        on_reply: Callable[[int, bytes], None] | None = None,
    ) -> float:
        """Send encoded calls with at most window unanswered; return the seconds it took.

        Args:
            requests: calls that this connection encoded one after the other.
            window: most calls in flight.
            on_reply: called with (index of the call, message), in the order of the replies.

        Raises:
            GrpcError: a call ended with a status other than 0.
        """
        total, sent, received = len(requests), 0, 0
        first = requests[0].stream_id if requests else 0
        started = time.perf_counter()
        while received < total:
            begin, credit = sent, self._credit_bytes
            while sent < total and sent - received < window and credit >= requests[sent].data_bytes:
                credit -= requests[sent].data_bytes
                sent += 1
            if sent > begin:
                self._credit_bytes = credit
                self.socket.sendall(b"".join(request.frames for request in requests[begin:sent]))
            for reply in self.receive():
                if reply.stream_id >= first:
                    received += 1
                    message = self._message_of(reply)
                    if on_reply is not None:
                        on_reply((reply.stream_id - first) // 2, message)
        return time.perf_counter() - started

    def receive(self) -> list[Reply]:
        """Wait until something arrives; returns the calls that it ended.

        Raises:
            ConnectionResetError: the server ended the connection.
            LoadError: the server ended a stream, or did what no grpc-go server does.
        """
        chunk = self.socket.recv(RECEIVE_BYTES)
        if not chunk:
            raise ConnectionResetError(f"{self.host} closed the connection")
        data = self._buffered + chunk
        replies: list[Reply] = []
        position, size = 0, len(data)
        while size - position >= 9:
            high, low, kind, flags, stream_id = _HEAD.unpack_from(data, position)
            end = position + 9 + (high << 8 | low)
            if end > size:
                break
            payload_at, position = position + 9, end
            if kind == _DATA:
                self._bodies[stream_id] = self._bodies.get(stream_id, b"") + data[payload_at:end]
                if stream_id in self._streams:
                    self._cut_messages(stream_id)
            elif kind == _HEADERS:
                if flags & (_END_HEADERS | _PADDED | _PRIORITY) != _END_HEADERS:
                    raise LoadError(f"{self.host}: HEADERS with flags {flags:#x}")
                if flags & _END_STREAM:
                    block = data[payload_at:end]
                    status, words = self._endings.get(block) or self._ending(block)
                    body = self._bodies.pop(stream_id, b"")
                    replies.append(Reply(stream_id, status, words if status else body))
            else:
                self._control(kind, flags, stream_id, data[payload_at:end])
        self._buffered = data[position:]
        return replies

    def close(self) -> None:
        """End the connection."""
        self.socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _send(self, request: Request) -> None:
        while self._credit_bytes < request.data_bytes:
            self.receive()
        self._credit_bytes -= request.data_bytes
        self.socket.sendall(request.frames)

    def _control(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        if kind == _WINDOW:
            # Nothing is sent on a stream beyond its first window, so only the connection's counts.
            if stream_id == 0:
                self._credit_bytes += int.from_bytes(payload)
        elif kind == _SETTINGS and not flags & _ACK:
            self.socket.sendall(http2_frame(_SETTINGS, _ACK, 0, b""))
        elif kind == _PING and not flags & _ACK:
            self.socket.sendall(http2_frame(_PING, _ACK, 0, payload))
        elif kind == _GO_AWAY or (kind == _RESET and payload != _NO_ERROR):
            # grpc-go may reset a stream after its whole reply, without an error, if it was quicker with the
            # reply than with noticing that the client had said all.
            raise LoadError(f"{self.host}: the server ended a stream or the connection: {payload!r}")

    def _cut_messages(self, stream_id: int) -> None:
        data = self._bodies[stream_id]
        while len(data) >= 5:
            _, length = _MESSAGE_HEAD.unpack_from(data)
            if len(data) < 5 + length:
                break
            self.messages.append((stream_id, data[5 : 5 + length]))
            data = data[5 + length :]
        self._bodies[stream_id] = data

    def _ending(self, block: bytes) -> tuple[int, bytes]:
        """Decode the header block that ended a call, and remember it."""
        found = {str(name): str(value) for name, value in self._decoder.decode(block)}
        if "grpc-status" not in found:
            raise LoadError(f"{self.host}: a call ended without a status: {found}")
        ending = int(found["grpc-status"]), found.get("grpc-message", "").encode()
        self._endings[block] = ending
        return ending

    def _message_of(self, reply: Reply) -> bytes:
        if reply.grpc_status:
            raise GrpcError(f"{self.host}: status {reply.grpc_status}: {reply.body.decode()}")
        compressed, length = _MESSAGE_HEAD.unpack_from(reply.body)
        if compressed or len(reply.body) != 5 + length:
            raise LoadError(f"{self.host}: a reply of {len(reply.body)} bytes is not one plain message")
        return reply.body[5:]
