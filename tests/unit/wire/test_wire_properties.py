"""Every request and reply of the codec against an encoder and decoder that know nothing of it.

Round trips in both directions; frames that are cut, changed or extended are refused with WireError or read as
what they say, without looking behind their end; counts and lengths that no frame can hold cost nothing.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quorum.wire import lookups, replies, requests
from quorum.wire.errors import WireError
from quorum.wire.jute import Stat
from quorum.wire.operations import OPERATIONS, Treatment
from tests.conformance.differential import wire as independent
from tests.conformance.differential.wire import Op, Request
from tests.fuzz.decoders import DECODERS, DecoderTarget, outcome
from tests.fuzz.samples import SAMPLES, body_of
from tests.support.zookeeper_frames import decode_command

HEAD_BYTES = 12
XID = 7
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
blobs = st.binary(max_size=20)
ints = st.integers(-(2**31), 2**31 - 1)
longs = st.integers(-(2**63), 2**63 - 1)
acls = st.lists(st.tuples(ints, texts, texts), max_size=3)
stats = st.tuples(longs, longs, longs, longs, ints, ints, ints, longs, ints, ints, longs).map(Stat._make)
ARGUMENTS: dict[str, st.SearchStrategy[Any]] = {
    "s": texts,
    "b": st.none() | blobs,
    "B": st.booleans(),
    "i": ints,
    "q": longs,
    "a": acls,
    "S": st.lists(texts, max_size=3),
}
OPEN_ACL = [(31, "world", "anyone")]
LONE = [op for op, shape in independent.SHAPES.items() if "M" not in shape]
WRITES = [op for op in LONE if op in OPERATIONS and OPERATIONS[op].treatment is Treatment.WRITE]
#: creates of a multi whose flags say what they are
PLAIN_PARTS = [Op.CREATE, Op.CREATE2, Op.DELETE, Op.SET_DATA, Op.CHECK]


def requests_of(*ops: int) -> st.SearchStrategy[Request]:
    return st.sampled_from(ops).flatmap(
        lambda op: st.tuples(*(ARGUMENTS[kind] for kind in independent.SHAPES[Op(op)])).map(
            lambda arguments: Request(op, arguments)
        )
    )


def command_of(request: Request) -> list[Any]:
    """The command that a write must become: an open access list is None."""
    command: list[Any] = [int(request.op)]
    for kind, value in zip(independent.SHAPES[Op(request.op)], request.args, strict=True):
        if kind == "a":
            command.append(None if value == OPEN_ACL else [list(entry) for entry in value])
        else:
            command.append(value)
    return command


@given(requests_of(*WRITES))
def test_writes_are_read_and_written_as_the_other_encoder_does(request: Request) -> None:
    frame = independent.request_frame(XID, request)
    command = command_of(request)
    assert decode_command(request.op, frame, HEAD_BYTES, len(frame)) == command
    assert requests.encode_command(XID, command) == frame


@given(st.lists(requests_of(*PLAIN_PARTS).filter(lambda part: part.args[-1] != 4), max_size=4))
def test_multis_are_read_and_written_as_the_other_encoder_does(parts: list[Request]) -> None:
    frame = independent.request_frame(XID, Request(Op.MULTI, (parts,)))
    command = [int(Op.MULTI), [command_of(part) for part in parts]]
    assert decode_command(Op.MULTI, frame, HEAD_BYTES, len(frame)) == command
    assert requests.encode_command(XID, command) == frame


def _encode_looked_at(request: Request) -> bytes:
    return lookups.encode_looked_at(XID, request.op, *request.args)


#: {operation: (decoder of its body, what is expected of it by its arguments, encoder)}
OTHERS: dict[int, tuple[Callable[..., Any], Callable[[Any], Any], Callable[[Request], bytes]]] = {
    **{
        op: (requests.decode_read, tuple, lambda each: requests.encode_read(XID, each.op, *each.args))
        for op in (Op.EXISTS, Op.GET_DATA, Op.GET_CHILDREN, Op.GET_CHILDREN2)
    },
    **{
        op: (lookups.decode_looked_at, lambda args: args[0], _encode_looked_at)
        for op in (Op.GET_ACL, Op.GET_ALL_CHILDREN_NUMBER)
    },
    Op.GET_EPHEMERALS: (lookups.decode_prefix, lambda args: args[0], _encode_looked_at),
    **{
        op: (
            lookups.decode_watch_request,
            tuple,
            lambda each: lookups.encode_watch_request(XID, each.op, *each.args),
        )
        for op in (Op.ADD_WATCH, Op.CHECK_WATCHES, Op.REMOVE_WATCHES)
    },
    Op.SET_WATCHES: (
        requests.decode_set_watches,
        lambda args: requests.SetWatches(*args),
        lambda each: requests.encode_set_watches(requests.SetWatches(*each.args), XID),
    ),
    Op.SET_WATCHES2: (
        requests.decode_set_watches2,
        lambda args: requests.SetWatches(*args),
        lambda each: requests.encode_set_watches2(requests.SetWatches(*each.args), XID),
    ),
}


@given(requests_of(*OTHERS))
def test_reads_and_watch_requests_are_read_and_written_as_the_other_encoder_does(request: Request) -> None:
    frame = independent.request_frame(XID, request)
    decode, expected, encode = OTHERS[request.op]
    assert decode(frame, HEAD_BYTES, len(frame)) == expected(request.args)
    assert encode(request) == frame


@given(st.lists(requests_of(Op.GET_DATA, Op.GET_CHILDREN), max_size=4))
def test_a_multi_read_is_read_and_written_as_the_other_encoder_does(parts: list[Request]) -> None:
    frame = independent.request_frame(XID, Request(Op.MULTI_READ, (parts,)))
    reads = [(int(part.op), part.args[0]) for part in parts]
    assert lookups.decode_multi_read(frame, HEAD_BYTES, len(frame)) == reads
    plain = [Request(part.op, (part.args[0], False)) for part in parts]
    assert lookups.encode_multi_read(XID, reads) == independent.request_frame(
        XID, Request(Op.MULTI_READ, (plain,))
    )


@given(texts, blobs, longs, longs, st.integers(0, 2**31 - 1), st.none() | st.booleans())
def test_auth_and_handshakes_are_read_and_written_as_the_other_encoder_does(
    scheme: str, secret: bytes, zxid: int, session_id: int, timeout_ms: int, read_only: bool | None
) -> None:
    frame = independent.request_frame(-4, Request(Op.AUTH, (0, scheme, secret)))
    assert requests.decode_auth(frame, HEAD_BYTES, len(frame)) == (scheme, secret)
    assert requests.encode_auth(scheme, secret) == frame
    frame = independent.connect_frame(zxid, timeout_ms, session_id, secret, read_only)
    asked = requests.ConnectRequest(0, zxid, timeout_ms, session_id, secret, read_only)
    assert requests.decode_connect(frame, 4, len(frame)) == asked
    assert requests.encode_connect(asked) == frame


def packed(stat: Stat) -> bytes:
    return pack(">qqqqiiiqiiq", *stat)


def told(frame: bytes, op: int) -> Any:
    """What the other decoder reads in a reply; its header must be as it was asked for."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    reply = independent.decode_reply(frame[4:], op)
    assert (reply.xid, reply.zxid, reply.err) == (XID, 9, 0)
    return reply.body


@given(texts, stats, st.none() | blobs, st.lists(texts, max_size=3), acls, ints)
def test_replies_are_read_and_written_as_the_other_decoder_does(
    path: str, stat: Stat, data: bytes | None, names: list[str], acl: list[tuple[int, str, str]], number: int
) -> None:
    raw = packed(stat)
    cases: list[tuple[int, bytes, Any, Callable[[bytes], Any] | None]] = [
        (Op.CREATE, replies.encode_path(XID, 9, path), path, replies.decode_path),
        (Op.CREATE2, replies.encode_path_stat(XID, 9, path, raw), (path, stat), replies.decode_path_stat),
        (Op.EXISTS, replies.encode_stat(XID, 9, raw), stat, replies.decode_stat),
        (Op.GET_DATA, replies.encode_data(XID, 9, data, raw), (data, stat), replies.decode_data),
        (Op.GET_CHILDREN, replies.encode_children(XID, 9, names), names, replies.decode_children),
        (
            Op.GET_CHILDREN2,
            replies.encode_children(XID, 9, names, raw),
            (names, stat),
            replies.decode_children_stat,
        ),
        (Op.GET_ACL, replies.encode_acl(XID, 9, acl, raw), (acl, stat), replies.decode_acl),
        (Op.GET_ALL_CHILDREN_NUMBER, replies.encode_number(XID, 9, number), number, replies.decode_number),
        (
            Op.WHO_AM_I,
            replies.encode_identities(XID, 9, [(path, path)]),
            [(path, path)],
            replies.decode_identities,
        ),
    ]
    for op, frame, value, decode in cases:
        assert told(frame, op) == _as_tuples(value)
        if decode is not None:
            assert decode(frame[4:]) == value


@given(st.lists(st.tuples(st.sampled_from([1, 15, 5, 2, 13, -1]), texts, stats, ints), max_size=5))
def test_results_of_multis_are_read_and_written_as_the_other_decoder_does(
    rows: list[tuple[int, str, Stat, int]],
) -> None:
    given_: list[tuple[int, int, Any]] = []
    expected: list[tuple[int, int, Any]] = []
    mine: list[replies.MultiResult] = []
    for op, path, stat, number in rows:
        raw = packed(stat)
        match op:
            case 1:
                given_.append((op, 0, path))
                expected.append((op, 0, path))
                mine.append(replies.MultiResult(op, 0, path, None))
            case 15:
                given_.append((op, 0, (path, raw)))
                expected.append((op, 0, (path, stat)))
                mine.append(replies.MultiResult(op, 0, path, stat))
            case 5:
                given_.append((op, 0, raw))
                expected.append((op, 0, stat))
                mine.append(replies.MultiResult(op, 0, None, stat))
            case -1:
                given_.append((op, number, None))
                expected.append((op, number, number))
                mine.append(replies.MultiResult(op, number, None, None))
            case _:
                given_.append((op, 0, None))
                expected.append((op, 0, None))
                mine.append(replies.MultiResult(op, 0, None, None))
    frame = replies.encode_multi(XID, 9, given_)
    assert told(frame, Op.MULTI) == (*expected, ("end", -1, -1))
    assert replies.decode_multi(frame[4:]) == mine


@given(longs, st.sampled_from([1, 2, 3, 4]), texts)
def test_events_are_read_and_written_as_the_other_decoder_does(zxid: int, kind: int, path: str) -> None:
    frame = replies.encode_watch_event(zxid, kind, path)
    assert independent.decode_event(frame[4:]) == (zxid, 0, kind, 3, path)
    assert replies.decode_watch_event(frame[4:]) == (kind, 3, path)


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list | tuple) else value


@pytest.mark.parametrize("number", range(len(DECODERS)))
def test_every_decoder_reads_its_samples_and_refuses_every_cut(number: int) -> None:
    decoder = DECODERS[number]
    bodies = [seed[1:] for seed in DecoderTarget().seeds() if seed[0] == number]
    assert bodies
    for body in bodies:
        value = decoder.decode(body, 0, len(body))
        assert outcome(decoder.decode, body + b"\xff" * 9, 0, len(body)) == value
        for end in range(len(body)):
            cut = outcome(decoder.decode, body, 0, end)
            refused = isinstance(cut, tuple) and cut[:1] == ("refused",)
            # A handshake may end before its last byte; what differs otherwise reads behind the end.
            assert (
                refused
                or (decoder.decode is requests.decode_connect and end == len(body) - 1)
                or cut != value
            )


HUGE = 2**31 - 1


@pytest.mark.parametrize("length", [HUGE, -2, -(2**31), 2**20])
@pytest.mark.parametrize("number", range(len(DECODERS)))
def test_lengths_and_counts_beyond_the_frame_are_refused_without_cost(number: int, length: int) -> None:
    decoder = DECODERS[number]
    for body in [seed[1:] for seed in DecoderTarget().seeds() if seed[0] == number]:
        tracemalloc.start()
        try:
            for at in range(len(body)):
                changed = body[:at] + pack(">i", length) + body[at + 4 :]
                outcome(decoder.decode, changed, 0, len(changed))
            peak_bytes = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak_bytes < 1 << 18


@given(st.sampled_from(SAMPLES), st.binary(min_size=1, max_size=8), st.data())
def test_changed_frames_are_refused_with_a_wire_error_or_read(
    sample: Request, garbage: bytes, data: st.DataObject
) -> None:
    body = body_of(sample)
    at = data.draw(st.integers(0, len(body)))
    for changed in (body[:at] + garbage + body[at:], body[:at] + garbage + body[at + len(garbage) :]):
        for number, decoder in enumerate(DECODERS):
            if decoder.op == sample.op:
                DecoderTarget().run(bytes([number]) + changed)


def test_a_vector_that_claims_two_billion_elements_is_refused_by_name() -> None:
    body = pack(">q", 1) + pack(">i", HUGE)
    with pytest.raises(WireError, match=r"dataWatches.* a count from -1 to 0 was"):
        requests.decode_set_watches(body, 0, len(body))
    with pytest.raises(WireError, match=r"acl.* a count from -1 to 0 was"):
        decode_command(1, pack(">i", 0) * 2 + pack(">i", HUGE), 0, 12)
