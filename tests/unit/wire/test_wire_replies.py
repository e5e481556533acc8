"""Replies and events: exact bytes, both directions, strict decoding."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.wire.errors import WireError
from quorum.wire.jute import Stat
from quorum.wire.protocol import SYNC_CONNECTED, EventType
from quorum.wire.replies import (
    REFUSED_SESSION,
    ConnectResponse,
    MultiResult,
    ReplyHeader,
    WatcherEvent,
    decode_children,
    decode_children_stat,
    decode_connect_response,
    decode_data,
    decode_header,
    decode_multi,
    decode_path,
    decode_path_stat,
    decode_stat,
    decode_watch_event,
    encode_children,
    encode_connect_response,
    encode_data,
    encode_header,
    encode_multi,
    encode_path,
    encode_path_stat,
    encode_stat,
    encode_watch_event,
)
from tests.support.zookeeper_frames import unpack_stat

PACKED = struct.pack(">qqqqiiiqiiq", 1, 2, 1_700_000_000_000, 1_700_000_000_001, 6, 7, 8, 9, 10, 11, 3)
STAT = Stat(
    czxid=1,
    mzxid=2,
    ctime_ms=1_700_000_000_000,
    mtime_ms=1_700_000_000_001,
    version=6,
    cversion=7,
    aversion=8,
    ephemeral_owner=9,
    data_length=10,
    children_count=11,
    pzxid=3,
)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)


def body_of(frame: bytes) -> bytes:
    """Check the length of a frame and take it off."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return frame[4:]


def test_a_stat_stands_in_the_order_of_the_wire() -> None:
    assert unpack_stat(PACKED) == STAT
    with pytest.raises(WireError):
        unpack_stat(PACKED[:-1])


@given(ints, longs, ints)
def test_a_header_survives_the_wire(xid: int, zxid: int, err: int) -> None:
    assert decode_header(body_of(encode_header(xid, zxid, err))) == ReplyHeader(xid, zxid, err)


def test_a_get_data_reply_has_the_bytes_that_clients_expect() -> None:
    frame = encode_data(3, 77, b"abc", PACKED)
    assert frame == struct.pack(">iiqii", 16 + 4 + 3 + 68, 3, 77, 0, 3) + b"abc" + PACKED
    assert encode_data(3, 77, None, PACKED) == struct.pack(">iiqii", 16 + 4 + 68, 3, 77, 0, -1) + PACKED


@given(texts, st.none() | st.binary(max_size=30), st.lists(texts, max_size=4))
def test_replies_survive_the_wire(text: str, data: bytes | None, names: list[str]) -> None:
    assert decode_path(body_of(encode_path(1, 2, text))) == text
    assert decode_path_stat(body_of(encode_path_stat(1, 2, text, PACKED))) == (text, STAT)
    assert decode_stat(body_of(encode_stat(1, 2, PACKED))) == STAT
    assert decode_data(body_of(encode_data(1, 2, data, PACKED))) == (data, STAT)
    assert decode_children(body_of(encode_children(1, 2, names))) == names
    assert decode_children_stat(body_of(encode_children(1, 2, names, PACKED))) == (names, STAT)
    event = decode_watch_event(body_of(encode_watch_event(9, EventType.NODE_DELETED, text)))
    assert event == WatcherEvent(2, SYNC_CONNECTED, text)


def test_a_watch_event_has_the_bytes_that_clients_expect() -> None:
    frame = encode_watch_event(9, 3, "/a")
    assert frame == struct.pack(">iiqiiii", 16 + 14, -1, 9, 0, 3, 3, 2) + b"/a"


@pytest.mark.parametrize(
    ("frame", "decode"),
    [
        (encode_header(1, 2, 3), decode_header),
        (encode_path(1, 2, "/a"), decode_path),
        (encode_path_stat(1, 2, "/a", PACKED), decode_path_stat),
        (encode_stat(1, 2, PACKED), decode_stat),
        (encode_data(1, 2, b"abc", PACKED), decode_data),
        (encode_children(1, 2, ["a", "bc"]), decode_children),
        (encode_children(1, 2, ["a", "bc"], PACKED), decode_children_stat),
        (encode_multi(1, 2, [(1, 0, "/a"), (5, 0, PACKED), (2, 0, None)]), decode_multi),
        (encode_watch_event(1, 2, "/a"), decode_watch_event),
        (encode_connect_response(ConnectResponse(0, 1, 2, bytes(16), None)), decode_connect_response),
    ],
)
def test_every_truncation_is_refused(frame: bytes, decode: Callable[[bytes], Any]) -> None:
    body = body_of(frame)
    decode(body)
    for end in range(len(body)):
        with pytest.raises(WireError):
            decode(body[:end])


def test_the_result_of_a_multi_survives_the_wire() -> None:
    frame = encode_multi(
        4, 99, [(13, 0, None), (1, 0, "/a"), (15, 0, ("/b", PACKED)), (5, 0, PACKED), (2, 0, None)]
    )
    assert decode_header(body_of(frame)) == ReplyHeader(4, 99, 0)
    assert decode_multi(body_of(frame)) == [
        MultiResult(13, 0, None, None),
        MultiResult(1, 0, "/a", None),
        MultiResult(15, 0, "/b", STAT),
        MultiResult(5, 0, None, STAT),
        MultiResult(2, 0, None, None),
    ]


def test_a_failed_multi_repeats_each_code_behind_a_header_of_type_minus_one() -> None:
    frame = encode_multi(4, 99, [(-1, 0, None), (-1, -101, None), (-1, -2, None)])
    expected = b"".join(struct.pack(">i?ii", -1, False, err, err) for err in (0, -101, -2))
    assert body_of(frame)[16:] == expected + struct.pack(">i?i", -1, True, -1)
    assert [result.err for result in decode_multi(body_of(frame))] == [0, -101, -2]
    assert {result.op for result in decode_multi(body_of(frame))} == {-1}


def test_an_empty_multi_is_a_lone_end() -> None:
    frame = encode_multi(4, 99, [])
    assert body_of(frame)[16:] == struct.pack(">i?i", -1, True, -1)
    assert decode_multi(body_of(frame)) == []


def test_an_unknown_result_of_a_multi_is_refused() -> None:
    body = encode_header(1, 2, 0)[4:] + struct.pack(">i?i", 77, False, 0)
    with pytest.raises(WireError, match=r"multi reply\.type = 77"):
        decode_multi(body)


@given(st.binary(max_size=50))
def test_noise_is_decoded_or_refused_and_never_anything_else(noise: bytes) -> None:
    for decode in (
        decode_header,
        decode_path,
        decode_path_stat,
        decode_data,
        decode_children_stat,
        decode_multi,
        decode_watch_event,
        decode_connect_response,
    ):
        try:
            decode(noise)
        except WireError:
            pass


@pytest.mark.parametrize("read_only", [None, True, False])
def test_the_answer_to_a_handshake_survives_the_wire(read_only: bool | None) -> None:
    response = ConnectResponse(0, 4000, 77, bytes(range(16)), read_only)
    frame = encode_connect_response(response)
    assert len(frame) == 4 + (36 if read_only is None else 37)
    assert decode_connect_response(body_of(frame)) == response


def test_a_refused_session_is_all_zeros() -> None:
    assert body_of(encode_connect_response(REFUSED_SESSION)) == bytes(16) + struct.pack(">i", 16) + bytes(16)
