"""Lookups on the wire: both directions, exact bytes of the odd ones, and nothing but WireError else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.wire.errors import WireError
from quorum.wire.lookups import (
    WatchRequest,
    decode_looked_at,
    decode_multi_read,
    decode_prefix,
    decode_watch_request,
    encode_looked_at,
    encode_multi_read,
    encode_watch_request,
    encode_who_am_i,
)
from quorum.wire.protocol import OpCode
from quorum.wire.requests import SetWatches, decode_set_watches2, encode_command, encode_set_watches2
from tests.support.zookeeper_frames import decode_command

HEAD_BYTES = 12
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
ints = st.integers(-(2**31), 2**31 - 1)
lists = st.lists(texts, max_size=3)


@given(texts, ints)
def test_paths_prefixes_and_watch_requests_survive_the_wire(path: str, code: int) -> None:
    frame = encode_looked_at(3, OpCode.GET_ACL, path)
    assert decode_looked_at(frame, HEAD_BYTES, len(frame)) == path
    assert decode_prefix(frame, HEAD_BYTES, len(frame)) == path
    frame = encode_watch_request(3, OpCode.ADD_WATCH, path, code)
    assert decode_watch_request(frame, HEAD_BYTES, len(frame)) == WatchRequest(path, code)
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_watch_request(frame, HEAD_BYTES, end)


def test_a_null_prefix_is_an_empty_one_and_who_am_i_has_no_body() -> None:
    assert decode_prefix(b"\xff\xff\xff\xff", 0, 4) == ""
    assert encode_who_am_i(7) == b"\0\0\0\x08\0\0\0\x07\0\0\0\x6b"


@given(st.integers(-(2**63), 2**63 - 1), st.tuples(lists, lists, lists, lists, lists))
def test_set_watches2_survives_the_wire(zxid: int, paths: tuple[list[str], ...]) -> None:
    request = SetWatches(zxid, *paths)
    frame = encode_set_watches2(request)
    assert frame[4:12] == b"\xff\xff\xff\xf8\0\0\0\x69"
    assert decode_set_watches2(frame, HEAD_BYTES, len(frame)) == request
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_set_watches2(frame, HEAD_BYTES, end)


@given(st.lists(st.tuples(st.sampled_from([4, 8]), texts), max_size=4), st.sampled_from([1, 3, 12, 13]))
def test_a_multi_read_survives_the_wire_and_holds_two_kinds_of_reads(
    reads: list[tuple[int, str]], other: int
) -> None:
    frame = encode_multi_read(3, reads)
    assert decode_multi_read(frame, HEAD_BYTES, len(frame)) == reads
    for end in range(HEAD_BYTES, len(frame)):
        with pytest.raises(WireError):
            decode_multi_read(frame, HEAD_BYTES, end)
    frame = encode_multi_read(3, [*reads, (other, "/x")])
    assert decode_multi_read(frame, HEAD_BYTES, len(frame)) is None


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        ([1, "/a", b"", None, 4], [19, "/a", b"", None, 4]),
        ([15, "/a", b"", None, 4], [19, "/a", b"", None, 4]),
        ([19, "/a", b"", None, 0], [19, "/a", b"", None, 0]),
        ([21, "/a", b"", None, 0, 9], [1, "/a", b"", None, 0]),
        ([21, "/a", b"", None, 3, 9], [1, "/a", b"", None, 3]),
        ([21, "/a", b"", None, 4, 9], [19, "/a", b"", None, 4]),
        ([21, "/a", b"", None, 5, 9], [21, "/a", b"", None, 5, 9]),
        ([21, "/a", b"", None, 9, 9], [21, "/a", b"", None, 9, 9]),
    ],
)
def test_in_a_multi_the_flags_decide_what_is_created_as_in_zookeeper(
    sent: list[object], read: list[object]
) -> None:
    frame = encode_command(1, [14, [sent]])
    assert decode_command(14, frame, HEAD_BYTES, len(frame)) == [14, [read]]
    op = sent[0]
    assert isinstance(op, int)
    alone = encode_command(1, sent)
    assert decode_command(op, alone, HEAD_BYTES, len(alone)) == sent
