"""The load generator's gRPC connection against a server that plays grpc-go, byte by byte over loopback.

The server's side is written by hand, so that frames come cut, mixed and late as no polite server sends them.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import hpack
import pytest

from tests.support.grpc_wire import GrpcConnection, GrpcError, http2_frame
from tests.support.wire_load import LoadError

DATA, HEADERS, RESET, SETTINGS, PING, GO_AWAY, WINDOW = 0, 1, 3, 4, 6, 7, 8
METHOD = "/test.Test/Call"


class Played:
    """One accepted connection of a played server."""

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted
        self.unread = b""
        self._encoder = hpack.Encoder()
        self._encoder.header_table_size = 0
        self.decoder = hpack.Decoder()
        assert self._exactly(24).startswith(b"PRI * HTTP/2.0")

    def _exactly(self, count: int) -> bytes:
        while len(self.unread) < count:
            chunk = self.socket.recv(65536)
            if not chunk:
                raise ConnectionResetError
            self.unread += chunk
        found, self.unread = self.unread[:count], self.unread[count:]
        return found

    def frame(self) -> tuple[int, int, int, bytes]:
        """(type, flags, stream, payload) of the next frame."""
        high, low, kind, flags, stream_id = struct.unpack(">HBBBI", self._exactly(9))
        return kind, flags, stream_id, self._exactly(high << 8 | low)

    def next_of(self, kind: int) -> tuple[int, int, bytes]:
        """(flags, stream, payload) of the next frame of a type."""
        while True:
            found, flags, stream_id, payload = self.frame()
            if found == kind:
                return flags, stream_id, payload

    def expect_silence(self) -> None:
        """See that the client has sent nothing that was not read."""
        assert not self.unread
        self.socket.setblocking(False)
        with pytest.raises(BlockingIOError):
            self.socket.recv(1)
        self.socket.setblocking(True)

    def block(self, *headers: tuple[str, str]) -> bytes:
        return self._encoder.encode(headers)

    def reply(self, stream_id: int, message: bytes, status: int = 0, words: str = "") -> bytes:
        head = http2_frame(HEADERS, 4, stream_id, self.block((":status", "200")))
        body = http2_frame(DATA, 0, stream_id, struct.pack(">?I", False, len(message)) + message)
        trailers = self.block(("grpc-status", str(status)), ("grpc-message", words))
        return head + body + http2_frame(HEADERS, 5, stream_id, trailers)


@contextlib.contextmanager
def played(story: Callable[[Played], None]) -> Iterator[GrpcConnection]:
    """A connection to a server that plays a story; a failure of the story fails the test."""
    failures: list[BaseException] = []

    def serve() -> None:
        accepted, _ = listener.accept()
        with accepted:
            try:
                story(Played(accepted))
            except BaseException as error:
                failures.append(error)
                raise

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve)
        server.start()
        try:
            with GrpcConnection(f"127.0.0.1:{listener.getsockname()[1]}", timeout_s=10.0) as connection:
                yield connection
        finally:
            server.join(10.0)
    assert not failures
    assert not server.is_alive()


def test_the_request_is_a_grpc_call_and_the_servers_controls_are_answered() -> None:
    seen: list[tuple[str, str]] = []

    def story(server: Played) -> None:
        server.socket.sendall(http2_frame(SETTINGS, 0, 0, b"") + http2_frame(PING, 0, 0, b"12345678"))
        _, stream_id, block = server.next_of(HEADERS)
        seen.extend((str(name), str(value)) for name, value in server.decoder.decode(block))
        flags, _, payload = server.next_of(DATA)
        assert flags == 1, "the client has said all"
        assert payload == b"\x00\x00\x00\x00\x03abc"
        server.socket.sendall(server.reply(stream_id, b"answer"))
        assert server.next_of(SETTINGS)[0] == 1
        assert server.next_of(PING)[::2] == (1, b"12345678")

    with played(story) as connection:
        assert connection.call(METHOD, b"abc") == b"answer"
    assert (":path", METHOD) in seen
    assert ("content-type", "application/grpc") in seen


def test_replies_may_come_in_pieces_and_in_another_order() -> None:
    def story(server: Played) -> None:
        streams = [server.next_of(HEADERS)[1] for _ in range(3)]
        assert streams == [1, 3, 5]
        data = b"".join(server.reply(stream_id, b"%d" % stream_id) for stream_id in reversed(streams))
        for position in range(len(data)):
            server.socket.sendall(data[position : position + 1])

    answers: dict[int, bytes] = {}
    with played(story) as connection:
        requests = [connection.encode(METHOD, b"%d" % number) for number in range(3)]
        connection.pipelined(requests, 3, answers.__setitem__)
    assert answers == {0: b"1", 1: b"3", 2: b"5"}


def test_no_more_than_the_window_is_in_flight() -> None:
    def story(server: Played) -> None:
        for first in range(0, 6, 2):
            streams = [server.next_of(HEADERS)[1] for _ in range(2)]
            assert streams == [2 * first + 1, 2 * first + 3]
            server.next_of(DATA)
            server.expect_silence()
            server.socket.sendall(b"".join(server.reply(stream_id, b"") for stream_id in streams))

    with played(story) as connection:
        connection.pipelined([connection.encode(METHOD, b"") for _ in range(6)], 2)


def test_it_sends_no_more_than_the_server_has_granted() -> None:
    sizes: list[int] = []

    def story(server: Played) -> None:
        taken = 0
        for stream_id in (1, 3, 5):
            while True:
                flags, found, payload = server.next_of(DATA)
                assert found == stream_id
                taken += len(payload)
                if flags & 1:
                    break
            sizes.append(taken)
            answer = server.reply(stream_id, b"")
            if stream_id == 1:
                server.expect_silence()
                # the second call fits only with what is granted here
                answer += http2_frame(WINDOW, 0, 0, struct.pack(">I", 200_000))
            server.socket.sendall(answer)

    with played(story) as connection:
        requests = [connection.encode(METHOD, bytes(40_000)) for _ in range(3)]
        connection.pipelined(requests, 3)
    assert sizes == [40_005, 80_010, 120_015]


def test_a_status_other_than_0_is_an_error_with_the_servers_words() -> None:
    def story(server: Played) -> None:
        stream_id = server.next_of(HEADERS)[1]
        trailers = server.block((":status", "200"), ("grpc-status", "14"), ("grpc-message", "no leader"))
        server.socket.sendall(http2_frame(HEADERS, 5, stream_id, trailers))

    with played(story) as connection, pytest.raises(GrpcError, match="status 14: no leader"):
        connection.call(METHOD, b"")


def test_a_call_that_is_given_up_disturbs_no_later_ones() -> None:
    given_up = threading.Event()
    answers: dict[int, bytes] = {}

    def story(server: Played) -> None:
        first = server.next_of(HEADERS)[1]
        assert given_up.wait(10.0)
        second, third = (server.next_of(HEADERS)[1] for _ in range(2))
        server.socket.sendall(server.reply(first, b"late") + server.reply(second, b"in time"))
        server.socket.sendall(server.reply(third, b"as well"))

    with played(story) as connection:
        with pytest.raises(TimeoutError):
            connection.call(METHOD, b"", timeout_s=0.05)
        given_up.set()
        connection.pipelined([connection.encode(METHOD, b"") for _ in range(2)], 2, answers.__setitem__)
    assert answers == {0: b"in time", 1: b"as well"}


def test_a_late_reply_is_not_taken_for_that_of_the_next_call() -> None:
    given_up = threading.Event()

    def story(server: Played) -> None:
        first = server.next_of(HEADERS)[1]
        assert given_up.wait(10.0)
        second = server.next_of(HEADERS)[1]
        server.socket.sendall(server.reply(first, b"late") + server.reply(second, b"in time"))

    with played(story) as connection:
        with pytest.raises(TimeoutError):
            connection.call(METHOD, b"", timeout_s=0.05)
        given_up.set()
        assert connection.call(METHOD, b"") == b"in time"


def test_messages_of_an_open_stream_are_cut_out_of_its_data() -> None:
    def story(server: Played) -> None:
        _, stream_id, _ = server.next_of(HEADERS)
        assert server.next_of(DATA)[0] == 0, "the stream stays open"
        data = b"\x00\x00\x00\x00\x02ab\x00\x00\x00\x00\x01c\x00\x00\x00\x00\x03d"
        server.socket.sendall(http2_frame(HEADERS, 4, stream_id, server.block((":status", "200"))))
        server.socket.sendall(http2_frame(DATA, 0, stream_id, data))
        server.socket.sendall(http2_frame(DATA, 0, stream_id, b"ef"))
        server.socket.sendall(
            http2_frame(HEADERS, 5, stream_id, server.block(("grpc-status", "0"), ("grpc-message", "")))
        )

    with played(story) as connection:
        connection.open_stream(METHOD, b"")
        assert [connection.next_message() for _ in range(3)] == [b"ab", b"c", b"def"]
        with pytest.raises(LoadError, match="a stream ended"):
            connection.next_message()


def test_a_reset_without_an_error_after_the_reply_means_nothing() -> None:
    def story(server: Played) -> None:
        for _ in range(2):
            stream_id = server.next_of(HEADERS)[1]
            server.socket.sendall(
                server.reply(stream_id, b"whole") + http2_frame(RESET, 0, stream_id, bytes(4))
            )

    with played(story) as connection:
        assert [connection.call(METHOD, b"") for _ in range(2)] == [b"whole", b"whole"]


@pytest.mark.parametrize("kind", [RESET, GO_AWAY])
def test_a_reset_or_a_farewell_ends_the_load(kind: int) -> None:
    def story(server: Played) -> None:
        server.next_of(HEADERS)
        reason = struct.pack(">I", 2) if kind == RESET else bytes(8)
        server.socket.sendall(http2_frame(kind, 0, 1 if kind == RESET else 0, reason))

    with played(story) as connection, pytest.raises(LoadError, match="ended a stream or the connection"):
        connection.call(METHOD, b"")


def test_a_message_beyond_the_first_window_of_a_stream_is_refused() -> None:
    with played(lambda _server: None) as connection, pytest.raises(ValueError, match="at most 65530"):
        connection.encode(METHOD, bytes(65531))
