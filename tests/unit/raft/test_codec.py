"""Frames of peer messages: what is packed comes back, and nothing else gets through."""

from __future__ import annotations

import struct
import typing
import zlib
from enum import IntEnum
from typing import Any, NamedTuple

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.errors import ProtocolError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Append, Heartbeat, SnapshotChunk, TimeoutNow, VoteReply
from quorum.raft.peers.codec import CODEC_VERSION, LENGTH_BYTES, RAFT_MESSAGE_TYPES, Codec


class Colour(IntEnum):
    RED = 1
    BLUE = 5


class Extra(NamedTuple):
    """Every kind of field that messages may have."""

    term: int
    sender: int
    receiver: int
    session_ids: tuple[int, ...]
    text: str
    number: int | None
    colour: Colour
    payload: bytes


TYPES = {**RAFT_MESSAGE_TYPES, 40: Extra}


def strategy_for(hint: Any) -> st.SearchStrategy[Any]:
    arguments = typing.get_args(hint)
    if hint is int:
        return st.integers(0, 2**64 - 1)
    if hint is bool:
        return st.booleans()
    if hint is float:
        return st.floats(allow_nan=False, allow_infinity=False)
    if hint is bytes:
        return st.binary(max_size=200)
    if hint is str:
        return st.text(max_size=50)
    if typing.get_origin(hint) is tuple:
        item = st.integers(-(2**63), 2**64 - 1) if arguments[0] is int else strategy_for(arguments[0])
        return st.lists(item, max_size=4).map(tuple)
    if arguments:
        return st.none() | strategy_for(arguments[0])
    if issubclass(hint, IntEnum):
        return st.sampled_from(list(hint))
    return strategy_of(hint)


def strategy_of(record_type: type[Any]) -> st.SearchStrategy[Any]:
    hints = typing.get_type_hints(record_type)
    return st.builds(record_type, **{name: strategy_for(hints[name]) for name in record_type._fields})


MESSAGES = st.one_of([strategy_of(message_type) for message_type in TYPES.values()])


def joined(parts: tuple[bytes, ...]) -> bytes:
    return b"".join(parts)


def frame_of(body: bytes) -> bytes:
    """A well-formed frame around any body, without its length field."""
    return struct.pack(">BI", CODEC_VERSION, zlib.crc32(body)) + body


def fields_of(message: Any, codec: Codec) -> list[Any]:
    frame = joined(codec.encode(message))
    fields: list[Any] = msgpack.unpackb(frame[9:])
    return fields


@pytest.fixture
def codec() -> Codec:
    return Codec(TYPES)


APPEND = Append(
    term=3,
    sender=1,
    receiver=2,
    prev_index=6,
    prev_term=2,
    commit_index=5,
    probe=False,
    entries=(Entry(7, 3, EntryKind.BATCH, 1_700_000_000_000, b"seven"), Entry(8, 3, EntryKind.NOOP, 5, b"")),
)


@given(MESSAGES)
def test_a_message_comes_back_equal_and_of_equal_types(message: Any) -> None:
    codec = Codec(TYPES)
    frame = joined(codec.encode(message))
    assert codec.frame_bytes(frame, 0) == len(frame) - LENGTH_BYTES
    decoded: Any = codec.decode(memoryview(frame)[LENGTH_BYTES:])
    assert decoded == message
    assert type(decoded) is type(message)
    assert [type(value) for value in decoded] == [type(value) for value in message]


@given(MESSAGES, st.data())
def test_a_damaged_frame_is_refused(message: Any, data: st.DataObject) -> None:
    codec = Codec(TYPES)
    frame = bytearray(joined(codec.encode(message))[LENGTH_BYTES:])
    place = data.draw(st.integers(0, len(frame) - 1))
    frame[place] ^= data.draw(st.integers(1, 255))
    with pytest.raises(ProtocolError):
        codec.decode(frame)


@given(MESSAGES, st.data())
def test_a_cut_frame_is_refused(message: Any, data: st.DataObject) -> None:
    codec = Codec(TYPES)
    frame = joined(codec.encode(message))[LENGTH_BYTES:]
    with pytest.raises(ProtocolError):
        codec.decode(frame[: data.draw(st.integers(0, len(frame) - 1))])


@given(st.binary(max_size=300))
def test_any_body_is_a_message_or_a_protocol_error(body: bytes) -> None:
    codec = Codec(TYPES)
    try:
        decoded = codec.decode(frame_of(body))
    except ProtocolError:
        return
    assert codec.decode(joined(codec.encode(decoded))[LENGTH_BYTES:]) == decoded


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary() | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.integers(0, 99), inner, max_size=2),
    max_leaves=12,
)


@given(st.sampled_from(sorted(TYPES)), st.lists(PLAIN, max_size=9))
def test_any_values_behind_a_tag_are_a_message_or_a_protocol_error(tag: int, values: list[Any]) -> None:
    codec = Codec(TYPES)
    body = msgpack.packb([tag, *values], use_bin_type=True)
    try:
        decoded = codec.decode(frame_of(body))
    except ProtocolError:
        return
    assert type(decoded) is TYPES[tag]


def test_followers_share_the_packed_entries_within_a_turn(codec: Codec) -> None:
    other = APPEND._replace(receiver=3, prev_term=1)
    first, second = codec.encode(APPEND), codec.encode(other)
    assert any(part is theirs and b"seven" in part for part in first for theirs in second)
    assert codec.decode(joined(second)[LENGTH_BYTES:]) == other
    codec.end_turn()
    assert not any(part is theirs and b"seven" in part for part in first for theirs in codec.encode(other))


def test_equal_entries_of_another_tuple_are_packed_for_themselves(codec: Codec) -> None:
    changed = APPEND._replace(entries=(APPEND.entries[0]._replace(payload=b"other"),))
    codec.encode(APPEND)
    assert codec.decode(joined(codec.encode(changed))[LENGTH_BYTES:]) == changed


def test_what_is_decoded_does_not_refer_to_the_buffer(codec: Codec) -> None:
    buffer = bytearray(joined(codec.encode(APPEND))[LENGTH_BYTES:])
    decoded = codec.decode(memoryview(buffer))
    buffer[:] = bytes(len(buffer))
    assert decoded == APPEND


def test_an_integer_in_a_float_field_travels_as_a_float(codec: Codec) -> None:
    sent = Heartbeat(term=1, sender=1, receiver=2, commit_index=0, sent_ms=12)
    decoded = codec.decode(joined(codec.encode(sent))[LENGTH_BYTES:])
    assert isinstance(decoded, Heartbeat)
    assert type(decoded.sent_ms) is float
    assert decoded == sent


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (1, -1, "Heartbeat.term is -1"),
        (1, True, "Heartbeat.term is True"),
        (1, "1", "Heartbeat.term is '1'"),
        (1, 1.0, "Heartbeat.term is 1.0"),
        (4, None, "Heartbeat.commit_index is None"),
        (5, "7", "Heartbeat.sent_ms is '7'"),
        (5, float("nan"), "Heartbeat.sent_ms is nan"),
        (5, float("inf"), "Heartbeat.sent_ms is inf"),
        (0, 99, r"x98c' is no list with a known message tag"),
        (0, "3", r"is no list with a known message tag"),
    ],
)
def test_a_wrong_value_is_named(codec: Codec, place: int, value: object, named: str) -> None:
    message = Heartbeat(term=1, sender=1, receiver=2, commit_index=0, sent_ms=1.0)
    fields = fields_of(message, codec)
    fields[place] = value
    with pytest.raises(ProtocolError, match=named.replace(".", r"\.")):
        codec.decode(frame_of(msgpack.packb(fields)))


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        ([7, 3, 99, 5, b""], r"Append\.entries\[1\]\.kind is 99"),
        ([7, 3, 0, -5, b""], r"Append\.entries\[1\]\.stamp_ms is -5: Expected `int` >= 0"),
        ([7, 3, True, 5, b""], r"Append\.entries\[1\]\.kind is True"),
        ([7, 3, 0, 5, "text"], r"Append\.entries\[1\]\.payload is 'text': Expected `bytes`, got `str`"),
        ([7, 3, 0, 5], r"Append\.entries\[1\] is \(7, 3, 0, 5\): Expected `array` of length 5"),
        (None, r"Append\.entries\[1\] is None"),
    ],
)
def test_a_wrong_entry_is_named(codec: Codec, entry: object, named: str) -> None:
    fields = fields_of(APPEND, codec)
    fields[1] = [fields[1][0], entry]
    with pytest.raises(ProtocolError, match=named):
        codec.decode(frame_of(msgpack.packb(fields)))


@pytest.mark.parametrize("count", [0, 6, 8])
def test_wrong_arity_is_named(codec: Codec, count: int) -> None:
    with pytest.raises(ProtocolError, match=f"Heartbeat has {count} fields instead of 7"):
        codec.decode(frame_of(msgpack.packb([3, *range(count)])))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x90",
        b"\xc0",
        msgpack.packb({1: 2}),
        msgpack.packb([{}]),
        msgpack.packb([9, 1, 1, 2]) + b"\x00",
        msgpack.packb([msgpack.ExtType(5, b"x")]),
        b"\x91" * 600 + b"\x01",
        b"\xdd\xff\xff\xff\xff" + b"\x01" * 100,
        b"\xc6\xff\xff\xff\xff",
    ],
    ids=["nothing", "empty list", "nil", "map", "map as tag", "more", "extension", "deep", "many", "long"],
)
def test_what_is_not_one_list_is_refused(codec: Codec, body: bytes) -> None:
    with pytest.raises(ProtocolError):
        codec.decode(frame_of(body))


def test_another_frame_version_is_refused(codec: Codec) -> None:
    frame = bytearray(joined(codec.encode(APPEND))[LENGTH_BYTES:])
    frame[0] = CODEC_VERSION + 1
    with pytest.raises(ProtocolError, match="frame version is 2, this node speaks 1"):
        codec.decode(frame)


def test_frames_beyond_the_limit_are_neither_packed_nor_announced() -> None:
    message = SnapshotChunk(
        term=1,
        sender=1,
        receiver=2,
        transfer=1,
        snapshot_index=1,
        snapshot_term=1,
        offset=0,
        total_bytes=9,
        data=bytes(1000),
    )
    size = len(joined(Codec().encode(message))) - LENGTH_BYTES
    exact = Codec(frame_bytes_max=size)
    assert exact.decode(joined(exact.encode(message))[LENGTH_BYTES:]) == message
    short = Codec(frame_bytes_max=size - 1)
    with pytest.raises(ValueError, match=f"SnapshotChunk packs to {size} bytes"):
        short.encode(message)
    with pytest.raises(ProtocolError, match=f"frame length {size} is not within 6..{size - 1}"):
        short.frame_bytes(struct.pack(">I", size), 0)
    with pytest.raises(ProtocolError):
        short.frame_bytes(struct.pack(">I", 5), 0)


def test_messages_with_payloads_are_bulk(codec: Codec) -> None:
    bulk = {message_type.__name__ for message_type in TYPES.values() if message_type in codec.bulk_types}
    assert bulk == {"Append", "SnapshotChunk", "Extra"}


def some(message_type: type[Any]) -> Any:
    return message_type(*([0] * len(message_type._fields)))


def test_unregistered_and_unfit_classes_are_refused() -> None:
    class NoRoute(NamedTuple):
        sender: int

    class Mapped(NamedTuple):
        term: int
        sender: int
        receiver: int
        table: dict[str, int]

    with pytest.raises(TypeError, match="VoteReply is not a registered"):
        Codec({1: TimeoutNow}).encode(some(VoteReply))
    with pytest.raises(TypeError, match="does not begin with term, sender, receiver"):
        Codec({1: NoRoute})
    with pytest.raises(TypeError, match="two tags"):
        Codec({1: TimeoutNow, 2: TimeoutNow})
    with pytest.raises((TypeError, NameError)):
        Codec({1: Mapped})
