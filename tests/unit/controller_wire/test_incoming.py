"""Frames come out of the pieces that came in, whatever the pieces were."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from controller.wire.incoming import SCRATCH_BYTES, FrameBuffer, scratch

#: What connections of one loop share.
SHARED = scratch()


def frame(api_key: int, body: bytes) -> bytes:
    content = pack(">hhi", api_key, 1, 7) + body
    return pack(">i", len(content)) + content


def receive(incoming: FrameBuffer, content: bytes, *, take: bool = True) -> list[memoryview]:
    """Receive bytes as a transport does, as many at once as there is room for; returns whole frames."""
    taken = []
    while content:
        room = incoming.room()
        size_bytes = min(len(room), len(content))
        room[:size_bytes] = content[:size_bytes]
        content = content[size_bytes:]
        incoming.received(size_bytes)
        while take and (length := incoming.length()) is not None and incoming.has_whole(length):
            taken.append(incoming.take(length))
        incoming.let_go()
        # The next connection receives into the same memory.
        SHARED[:] = bytes(SCRATCH_BYTES)
    return taken


SIZES = st.one_of(st.integers(0, 40), st.integers(4000, 4200), st.integers(60_000, 200_000))


@given(sizes=st.lists(SIZES, max_size=6), cuts=st.lists(st.integers(0, 400_000), max_size=12))
def test_frames_are_the_same_however_they_were_cut(sizes: list[int], cuts: list[int]) -> None:
    frames = [frame(number, bytes([number + 1]) * size) for number, size in enumerate(sizes)]
    content = b"".join(frames)
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    incoming, taken = FrameBuffer(SHARED), []
    for begin, end in pairwise(places):
        taken += receive(incoming, content[begin:end])
    assert taken == [each[4:] for each in frames]
    assert incoming.size_bytes == 0


def test_the_key_of_a_long_frame_is_known_before_the_frame() -> None:
    incoming = FrameBuffer(SHARED)
    content = frame(3, bytes(100))
    seen = []
    for number in range(len(content) - 1):
        assert receive(incoming, content[number : number + 1]) == []
        length = incoming.length()
        seen.append((length, incoming.api_key(), length is not None and incoming.has_whole(length)))
    assert seen == [(None, None, False)] * 3 + [(108, None, False)] * 8 + [(108, 3, False)] * 100
    assert receive(incoming, content[-1:]) == [content[4:]]


def test_a_long_frame_is_taken_from_where_it_was_received() -> None:
    incoming = FrameBuffer(SHARED)
    content = frame(3, bytes(SCRATCH_BYTES))
    assert receive(incoming, content[:SCRATCH_BYTES]) == []
    received = incoming.room().obj
    (taken,) = receive(incoming, content[SCRATCH_BYTES:])
    assert taken.obj is received
    assert taken.readonly


def test_room_grows_with_what_has_come_and_not_with_the_length() -> None:
    incoming = FrameBuffer(SHARED)
    receive(incoming, pack(">i", 2**31 - 1))
    assert incoming.size_bytes == 4096
    came = 4
    for size_bytes in (10_000, 100_000, 1_000_000):
        receive(incoming, bytes(size_bytes))
        came += size_bytes
        assert came <= incoming.size_bytes <= 16 * came
    incoming.clear()
    assert incoming.size_bytes == 0


def test_frames_that_wait_stay_whole_while_more_comes() -> None:
    incoming = FrameBuffer(SHARED)
    frames = [frame(number, bytes([number]) * 3000) for number in range(8)]
    for each in frames:
        receive(incoming, each, take=False)
    taken = []
    while (length := incoming.length()) is not None:
        taken.append(incoming.take(length))
        incoming.let_go()
    assert taken == [each[4:] for each in frames]
