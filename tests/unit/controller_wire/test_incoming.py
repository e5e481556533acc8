"""Frames come out of the pieces that came in, whatever the pieces were."""

from __future__ import annotations

from itertools import pairwise
from struct import pack

from hypothesis import given
from hypothesis import strategies as st

from controller.wire.incoming import PIECE_BYTES, FrameBuffer


def frame(api_key: int, body: bytes) -> bytes:
    content = pack(">hhi", api_key, 1, 7) + body
    return pack(">i", len(content)) + content


def take_all(incoming: FrameBuffer) -> list[bytes]:
    taken = []
    while (length := incoming.length()) is not None and incoming.has_whole(length):
        taken.append(bytes(incoming.take(length)))
    incoming.let_go()
    return taken


@given(bodies=st.lists(st.binary(max_size=40), max_size=8), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_frames_are_the_same_however_they_were_cut(bodies: list[bytes], cuts: list[int]) -> None:
    frames = [frame(number, body) for number, body in enumerate(bodies)]
    content = b"".join(frames)
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    incoming, taken = FrameBuffer(), []
    for begin, end in pairwise(places):
        incoming.add(content[begin:end])
        if incoming.is_ready:
            taken += take_all(incoming)
    assert taken == [each[4:] for each in frames]
    assert incoming.size_bytes == 0


def test_the_key_of_a_long_frame_is_known_before_the_frame_has_arrived() -> None:
    incoming = FrameBuffer()
    content = frame(3, bytes(100))
    seen = []
    for number in range(len(content)):
        incoming.add(content[number : number + 1])
        if incoming.is_ready:
            length = incoming.length()
            assert length == 108
            seen.append((number + 1, incoming.api_key(), incoming.has_whole(length)))
    assert seen == [(4, None, False), (12, 3, False), (112, 3, True)]
    assert take_all(incoming) == [content[4:]]


def test_pieces_cost_more_than_their_bytes_until_they_are_taken_or_forgotten() -> None:
    incoming = FrameBuffer()
    for _ in range(3):
        incoming.add(b"\0")
    assert incoming.size_bytes == 3 + 3 * PIECE_BYTES
    incoming.clear()
    assert incoming.size_bytes == 0
