"""Frames out of a stream, whatever its pieces; one write per turn; a peer that is too silent is given up."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.client.link import REPLY_BYTES_MAX, ServerLink
from quorum.errors import ProtocolError


class Owner:
    """Keeps what a link tells; refuses frames that begin with "bad"."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.reasons: list[str] = []

    def link_frame(self, _link: ServerLink, frame: memoryview) -> None:
        if bytes(frame).startswith(b"bad"):
            raise ProtocolError("begins with bad")
        self.frames.append(bytes(frame))

    def link_closed(self, _link: ServerLink, reason: str) -> None:
        self.reasons.append(reason)


class Wire(asyncio.Transport):
    """A transport that keeps what is written and closes at once."""

    def __init__(self, link: ServerLink) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self._link = link

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written.append(bytes(data))

    def abort(self) -> None:
        self._link.connection_lost(None)

    def close(self) -> None:
        self._link.connection_lost(None)


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when told."""

    now_s = 1000.0

    def time(self) -> float:
        return self.now_s

    def pass_to(self, now_s: float) -> None:
        """Move the time and run what is due."""
        self.now_s = now_s
        for _ in range(3):
            self.call_soon(self.stop)
            self.run_forever()


@pytest.fixture
def loop() -> Iterator[Clock]:
    clock = Clock()
    yield clock
    clock.close()


def connected(loop: asyncio.AbstractEventLoop) -> tuple[ServerLink, Owner, Wire]:
    owner = Owner()
    link = ServerLink(owner.link_frame, owner.link_closed, loop)
    wire = Wire(link)
    link.connection_made(wire)
    return link, owner, wire


def framed(*frames: bytes) -> bytes:
    return b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames)


@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_frames_come_out_whole_whatever_the_pieces(contents: list[bytes], draw: st.DataObject) -> None:
    frames = [b"f" + content for content in contents]
    stream = framed(*frames)
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    with closing(Clock()) as loop:
        link, owner, _ = connected(loop)
        for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
            link.data_received(stream[start:end])
        assert owner.frames == frames
        assert owner.reasons == []


def test_nothing_behind_a_bad_frame_is_taken(loop: Clock) -> None:
    for bad in (framed(b"bad"), bytes(4), b"\xff\xff\xff\xff", (REPLY_BYTES_MAX + 1).to_bytes(4, "big")):
        link, owner, _ = connected(loop)
        link.data_received(framed(b"good") + bad + framed(b"late"))
        assert owner.frames == [b"good"]
        assert len(owner.reasons) == 1
        assert "the server sent" in owner.reasons[0]
        assert not link.is_open


def test_all_frames_of_a_turn_leave_in_one_write(loop: Clock) -> None:
    link, _, wire = connected(loop)
    link.send(b"1")
    link.send(b"2")
    assert wire.written == []
    loop.pass_to(loop.now_s)
    link.send(b"3")
    loop.pass_to(loop.now_s)
    assert wire.written == [b"12", b"3"]


def test_a_link_ends_once_and_sends_nothing_after_it(loop: Clock) -> None:
    link, owner, wire = connected(loop)
    link.send(b"1")
    link.abort("done")
    link.send(b"2")
    link.abort("again")
    loop.pass_to(loop.now_s)
    assert wire.written == []
    assert owner.reasons == ["done"]


def test_a_ping_leaves_after_a_third_without_sending_and_not_before(loop: Clock) -> None:
    link, owner, wire = connected(loop)
    start_s = loop.now_s
    link.keep_alive(3000, b"ping")
    loop.pass_to(start_s + 0.9)
    link.send(b"x")
    loop.pass_to(start_s + 0.9)
    link.data_received(framed(b"answer"))
    loop.pass_to(start_s + 1.0)
    loop.pass_to(start_s + 1.8)
    assert wire.written == [b"x"]
    loop.pass_to(start_s + 1.9)
    assert wire.written == [b"x", b"ping"]
    assert owner.reasons == []
    link.abort("")


def test_two_thirds_of_silence_end_the_link(loop: Clock) -> None:
    link, owner, _ = connected(loop)
    start_s = loop.now_s
    link.keep_alive(3000, b"ping")
    for step in range(1, 20):
        loop.pass_to(start_s + step / 10)
    assert owner.reasons == []
    loop.pass_to(start_s + 2.0)
    assert owner.reasons == ["the server was silent for 2000 ms"]
    assert not link.is_open


def test_a_stall_of_our_own_is_no_silence_of_the_server(loop: Clock) -> None:
    link, owner, _ = connected(loop)
    start_s = loop.now_s
    link.keep_alive(3000, b"ping")
    loop.pass_to(start_s + 1.0)
    loop.pass_to(start_s + 1.5)
    link.data_received(framed(b"answer"))
    # The process slept: the ping due at 2 s was never sent, so its answer cannot have come.
    loop.pass_to(start_s + 30.0)
    assert owner.reasons == []
    for step in range(1, 15):
        loop.pass_to(start_s + 30.0 + step / 10)
    assert owner.reasons == []
    # Of two seconds of silence half a second had passed when the stall began.
    loop.pass_to(start_s + 31.5)
    assert len(owner.reasons) == 1
