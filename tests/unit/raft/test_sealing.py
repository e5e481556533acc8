"""The seal of frames between peers: what passes, and what is told from what a peer sealed."""

from __future__ import annotations

import hmac
import struct
from hashlib import blake2b

import pytest

from quorum.errors import ProtocolError
from quorum.raft.peers.sealing import CHECK_BYTES, TAG_BYTES, FrameSeal, frame_key

KEY = bytes(range(32))


def frame(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body


def split(sealed: bytes) -> tuple[memoryview, memoryview, memoryview]:
    """Return the check, what the tag is of, and the tag."""
    view = memoryview(sealed)
    return view[:CHECK_BYTES], view[:-TAG_BYTES], view[-TAG_BYTES:]


def opened(seal: FrameSeal, sealed: bytes) -> None:
    check, content, tag = split(sealed)
    seal.check_length(check, content[CHECK_BYTES : CHECK_BYTES + 4])
    seal.open(content, tag)


@pytest.fixture
def sealed() -> list[bytes]:
    seal = FrameSeal(KEY)
    return [b"".join(seal.seal([frame(body)])) for body in (b"one", b"two", b"three")]


def test_frames_open_in_their_order(sealed: list[bytes]) -> None:
    seal = FrameSeal(KEY)
    for number, each in enumerate(sealed):
        assert seal.number == number
        opened(seal, each)
    # However a frame is cut into parts.
    parts = FrameSeal(KEY).seal([frame(b"one")[:5], b"n", b"e"])
    assert b"".join(parts) == sealed[0]


def test_every_changed_bit_is_seen(sealed: list[bytes]) -> None:
    for bit in range(8 * len(sealed[0])):
        changed = bytearray(sealed[0])
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(ProtocolError, match="the MAC of frame 0 is not what the peer sealed"):
            FrameSeal(KEY).open(*split(bytes(changed))[1:])
        if bit < 8 * (CHECK_BYTES + 4):
            with pytest.raises(ProtocolError, match="the length of frame 0 is not what the peer sealed"):
                opened(FrameSeal(KEY), bytes(changed))


@pytest.mark.parametrize(
    ("order", "at"),
    [([0, 0], 1), ([0, 2], 1), ([1, 0], 0), ([0, 1, 0], 2)],
    ids=["twice", "lost", "swapped", "old"],
)
def test_a_frame_in_another_place_is_seen(sealed: list[bytes], order: list[int], at: int) -> None:
    seal = FrameSeal(KEY)
    for number in order[:at]:
        opened(seal, sealed[number])
    _, content, tag = split(sealed[order[at]])
    with pytest.raises(ProtocolError, match=f"the MAC of frame {at} is not what the peer sealed"):
        seal.open(content, tag)


def test_a_frame_of_another_connection_is_seen(sealed: list[bytes]) -> None:
    with pytest.raises(ProtocolError, match="the length of frame 0"):
        opened(FrameSeal(bytes(32)), sealed[0])


def test_the_bytes_are_those_that_the_module_says(sealed: list[bytes]) -> None:
    number, whole = struct.pack(">Q", 0), frame(b"one")
    check = blake2b(number + whole[:4], key=KEY, digest_size=4, person=b"length").digest()
    tag = blake2b(number + check + whole, key=KEY, digest_size=16, person=b"frame").digest()
    assert sealed[0] == check + whole + tag


def test_the_key_follows_from_secret_and_nonces() -> None:
    first, second = b"1" * 32, b"2" * 32
    extracted = hmac.digest(first + second, b"secret", "sha256")
    info = b"Quorate peer frames, dialler to acceptor"
    assert frame_key(b"secret", first, second) == hmac.digest(extracted, info + b"\x01", "sha256")
    keys = {frame_key(*each) for each in ((b"secret", second, first), (b"other", first, second))}
    assert len(keys | {frame_key(b"secret", first, second)}) == 3
