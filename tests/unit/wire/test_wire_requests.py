"""Requests: exact bytes, both directions, and nothing but WireError for whatever else arrives."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.wire.errors import WireError
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode
from quorum.wire.requests import (
    OPEN_ACL,
    PING_FRAME,
    ConnectRequest,
    Reconfig,
    SetWatches,
    decode_auth,
    decode_connect,
    decode_read,
    decode_reconfig,
    decode_set_watches,
    encode_auth,
    encode_command,
    encode_connect,
    encode_read,
    encode_set_watches,
)
from tests.support.zookeeper_frames import decode_command, encode_reconfig

HEAD_BYTES = 12

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
paths = texts.map(lambda text: "/" + text)
datas = st.none() | st.binary(max_size=30)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
acls = st.none() | st.lists(st.tuples(ints, texts, texts).map(list), max_size=3).filter(
    lambda acl: acl != OPEN_ACL
)
#: a create with the flags of a container (4) becomes another command in a multi
flags = ints.filter(lambda number: number != 4)
creations = st.builds(lambda op, *rest: [op, *rest], st.sampled_from([1, 15, 19]), paths, datas, acls, flags)
parts = st.one_of(
    creations,
    st.builds(lambda *rest: [21, *rest], paths, datas, acls, st.integers(5, 9), longs),
    st.builds(lambda *rest: [2, *rest], paths, ints),
    st.builds(lambda *rest: [5, *rest], paths, datas, ints),
    st.builds(lambda *rest: [13, *rest], paths, ints),
)
commands = st.one_of(
    parts.filter(lambda part: part[0] != 13),
    st.builds(lambda path: [9, path], paths),
    st.builds(lambda *rest: [7, *rest], paths, acls, ints),
    st.builds(lambda inner: [14, inner], st.lists(parts, max_size=4)),
)

WRITES = sorted(op for op, row in OPERATIONS.items() if row.treatment is Treatment.WRITE)


def jute(text: str) -> bytes:
    raw = text.encode()
    return struct.pack(">i", len(raw)) + raw


def decoded(frame: bytes) -> list[Any]:
    """Decode a whole frame that stands alone."""
    length, _, op = struct.unpack_from(">iii", frame)
    assert length == len(frame) - 4
    return decode_command(op, frame, HEAD_BYTES, len(frame))


def test_a_set_data_has_the_bytes_that_zookeeper_expects() -> None:
    body = jute("/a") + struct.pack(">i", 3) + b"xyz" + struct.pack(">i", 7)
    frame = struct.pack(">iii", 8 + len(body), 4711, 5) + body
    assert encode_command(4711, [5, "/a", b"xyz", 7]) == frame
    assert decoded(frame) == [5, "/a", b"xyz", 7]


def test_a_create_has_the_bytes_that_zookeeper_expects() -> None:
    acl = struct.pack(">ii", 1, 31) + jute("world") + jute("anyone")
    body = jute("/a") + struct.pack(">i", -1) + acl + struct.pack(">i", 3)
    frame = struct.pack(">iii", 8 + len(body), 1, 15) + body
    assert encode_command(1, [15, "/a", None, None, 3]) == frame
    assert decoded(frame) == [15, "/a", None, None, 3]


def test_the_id_of_an_access_list_entry_may_be_null() -> None:
    acl = struct.pack(">ii", 1, 31) + jute("auth") + struct.pack(">i", -1)
    body = jute("/a") + struct.pack(">i", -1) + acl + struct.pack(">i", 0)
    frame = struct.pack(">iii", 8 + len(body), 1, 1) + body
    assert decoded(frame) == [1, "/a", None, [[31, "auth", ""]], 0]


def test_a_null_scheme_in_an_access_list_is_read_as_an_empty_one() -> None:
    acl = struct.pack(">iii", 1, 31, -1) + jute("anyone")
    body = jute("/a") + struct.pack(">i", -1) + acl + struct.pack(">i", 0)
    frame = struct.pack(">iii", 8 + len(body), 1, 1) + body
    assert decoded(frame) == [1, "/a", None, [[31, "", "anyone"]], 0]


def test_a_multi_has_the_bytes_that_zookeeper_expects() -> None:
    def header(op: int, *, done: bool) -> bytes:
        return struct.pack(">i?i", op, done, -1)

    body = (
        header(13, done=False)
        + jute("/e")
        + struct.pack(">i", 4)
        + header(2, done=False)
        + jute("/x")
        + struct.pack(">i", -1)
        + header(-1, done=True)
    )
    frame = struct.pack(">iii", 8 + len(body), 2, 14) + body
    assert encode_command(2, [14, [[13, "/e", 4], [2, "/x", -1]]]) == frame
    assert decoded(frame) == [14, [[13, "/e", 4], [2, "/x", -1]]]


def test_a_ping_is_twelve_bytes() -> None:
    assert struct.pack(">iii", 8, -2, 11) == PING_FRAME


@given(commands, ints)
def test_a_command_survives_the_wire(command: list[Any], xid: int) -> None:
    assert decoded(encode_command(xid, command)) == command


@given(commands)
def test_a_command_is_found_in_the_middle_of_a_chunk(command: list[Any]) -> None:
    frame = encode_command(1, command)
    chunk = b"\x00\x00\x00\x07" + frame + b"\xff" * 9
    assert decode_command(command[0], chunk, 4 + HEAD_BYTES, 4 + len(frame)) == command
    view = memoryview(chunk)
    assert decode_command(command[0], view, 4 + HEAD_BYTES, 4 + len(frame)) == command


@given(commands, st.binary(min_size=1, max_size=9))
def test_what_stands_behind_a_record_is_ignored(command: list[Any], rest: bytes) -> None:
    frame = encode_command(1, command) + rest
    assert decode_command(command[0], frame, HEAD_BYTES, len(frame)) == command


@given(commands)
def test_every_truncation_is_refused_even_if_more_bytes_follow_in_the_chunk(command: list[Any]) -> None:
    frame = encode_command(1, command)
    for end in range(HEAD_BYTES, len(frame)):
        for chunk in (frame[:end], frame):
            with pytest.raises(WireError):
                decode_command(command[0], chunk, HEAD_BYTES, end)


@given(st.sampled_from(WRITES), st.binary(max_size=60))
def test_noise_is_decoded_or_refused_and_never_anything_else(op: int, noise: bytes) -> None:
    try:
        decode_command(op, noise, 0, len(noise))
    except WireError:
        pass


@pytest.mark.parametrize(
    ("command", "offset", "length", "field"),
    [
        ([5, "/a", b"x", 0], HEAD_BYTES, -2, "setData.path"),
        ([5, "/a", b"x", 0], HEAD_BYTES, 2**31 - 1, "setData.path"),
        ([5, "/a", b"x", 0], HEAD_BYTES + 6, -2, "setData.data"),
        ([5, "/a", b"x", 0], HEAD_BYTES + 6, 6, "setData.data"),
        ([1, "/a", b"", None, 0], HEAD_BYTES + 10, 2**31 - 1, "create.acl"),
        ([1, "/a", b"", None, 0], HEAD_BYTES + 10, -2, "create.acl"),
        ([2, "/a", 0], HEAD_BYTES, -1, "delete.path"),
        ([9, "/a"], HEAD_BYTES, 3, "sync.path"),
    ],
)
def test_a_length_that_cannot_be_is_refused_by_name(
    command: list[Any], offset: int, length: int, field: str
) -> None:
    frame = bytearray(encode_command(1, command))
    struct.pack_into(">i", frame, offset, length)
    with pytest.raises(WireError) as caught:
        decode_command(command[0], bytes(frame), HEAD_BYTES, len(frame))
    assert caught.value.field == field


def test_an_operation_that_cannot_stand_in_a_multi_is_refused() -> None:
    body = struct.pack(">i?i", 9, False, -1) + jute("/a") + struct.pack(">i?i", -1, True, -1)
    with pytest.raises(WireError, match=r"multi\.type = 9"):
        decode_command(14, body, 0, len(body))


def test_an_open_access_list_is_none_and_an_empty_or_null_one_is_not() -> None:
    spelled_out = encode_command(1, [1, "/a", b"", [[31, "world", "anyone"]], 0])
    assert spelled_out == encode_command(1, [1, "/a", b"", None, 0])
    assert decoded(encode_command(1, [1, "/a", b"", [], 0])) == [1, "/a", b"", [], 0]
    null = jute("/a") + struct.pack(">iii", 0, -1, 0)
    assert decode_command(1, null, 0, len(null)) == [1, "/a", b"", [], 0]


def test_bytes_that_are_no_utf8_become_what_no_path_may_hold() -> None:
    frame = encode_command(1, [2, "/ab", 0]).replace(b"/ab", b"/\xff\xfe")
    assert decoded(frame) == [2, "/��", 0]


def test_a_path_that_has_no_bytes_is_refused_when_it_is_sent() -> None:
    with pytest.raises(WireError):
        encode_command(1, [2, "/\ud800", 0])


@given(st.sampled_from([3, 4, 8, 12]), paths, st.booleans())
def test_a_read_survives_the_wire(op: int, path: str, watch: bool) -> None:
    frame = encode_read(6, op, path, watch)
    assert struct.unpack_from(">iii", frame) == (len(frame) - 4, 6, op)
    assert decode_read(frame, HEAD_BYTES, len(frame)) == (path, watch)
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_read(frame, HEAD_BYTES, end)


@given(st.binary(max_size=20))
def test_a_noisy_read_is_decoded_or_refused(noise: bytes) -> None:
    try:
        decode_read(noise, 0, len(noise))
    except WireError:
        pass


@given(longs, st.lists(paths, max_size=3), st.lists(paths, max_size=3), st.lists(paths, max_size=3))
def test_set_watches_survives_the_wire(
    zxid: int, data: list[str], exist: list[str], child: list[str]
) -> None:
    request = SetWatches(zxid, data, exist, child)
    frame = encode_set_watches(request)
    assert struct.unpack_from(">iii", frame) == (len(frame) - 4, -8, 101)
    assert decode_set_watches(frame, HEAD_BYTES, len(frame)) == request
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_set_watches(frame, HEAD_BYTES, end)


def test_a_vector_longer_than_its_frame_is_refused_before_it_is_read() -> None:
    body = struct.pack(">qi", 0, 2**31 - 1)
    with pytest.raises(WireError, match="dataWatches"):
        decode_set_watches(body, 0, len(body))


@given(longs, ints, longs, st.binary(max_size=20), st.none() | st.booleans())
def test_a_handshake_survives_the_wire(
    zxid: int, timeout_ms: int, session_id: int, password: bytes, read_only: bool | None
) -> None:
    request = ConnectRequest(0, zxid, timeout_ms, session_id, password, read_only)
    frame = encode_connect(request)
    assert decode_connect(frame, 4, len(frame)) == request
    for end in range(4, len(frame) - (read_only is not None)):
        with pytest.raises(WireError):
            decode_connect(frame, 4, end)


@given(st.none() | texts, st.none() | texts, st.none() | texts, longs)
def test_a_reconfig_survives_the_wire_and_null_is_not_empty(
    joining: str | None, leaving: str | None, new_members: str | None, version: int
) -> None:
    request = Reconfig(joining, leaving, new_members, version)
    frame = encode_reconfig(7, request)
    assert struct.unpack_from(">iii", frame) == (len(frame) - 4, 7, 16)
    assert decode_reconfig(frame, HEAD_BYTES, len(frame)) == request
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_reconfig(frame, HEAD_BYTES, end)


@given(texts, st.binary(max_size=30))
def test_an_auth_packet_survives_the_wire(scheme: str, credentials: bytes) -> None:
    frame = encode_auth(scheme, credentials)
    assert struct.unpack_from(">iii", frame) == (len(frame) - 4, -4, 100)
    assert decode_auth(frame, HEAD_BYTES, len(frame)) == (scheme, credentials)
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_auth(frame, HEAD_BYTES, end)


def test_the_handshake_of_a_usual_client_has_44_or_45_bytes() -> None:
    assert len(encode_connect(ConnectRequest(0, 0, 4000, 0, bytes(16), None))) == 4 + 44
    assert len(encode_connect(ConnectRequest(0, 0, 4000, 0, bytes(16), True))) == 4 + 45


def test_every_operation_has_a_row_and_every_write_a_decoder() -> None:
    expected = set(OpCode) - {OpCode.NOTIFICATION, OpCode.ERROR}
    assert set(OPERATIONS) == {int(op) for op in expected}
    assert all(OPERATIONS[op].decode for op in WRITES)


@pytest.mark.parametrize("command", [[5, None, b"x", 3], [7, None, None, -1], [9, None]])
def test_the_path_of_some_writes_may_be_null_and_survives_the_wire(command: list[object]) -> None:
    frame = encode_command(1, command)
    assert decode_command(int.from_bytes(frame[8:12]), frame, 12, len(frame)) == command


def test_no_path_within_a_multi_is_null() -> None:
    frame = encode_command(1, [14, [[5, None, b"x", 3]]])
    with pytest.raises(WireError, match="path"):
        decode_command(14, frame, 12, len(frame))
