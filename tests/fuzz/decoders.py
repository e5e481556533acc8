"""Target `decoder`: every decoder of quorum.wire, of requests and of replies.

The first byte of an input chooses the decoder, the rest is the body. A decoder may refuse it with WireError
and with nothing else; it must not look beyond the body; what it makes of a request must survive being
encoded and decoded again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple

from quorum.wire import lookups, replies, requests
from quorum.wire.errors import WireError
from quorum.wire.jute import Buffer, JuteReader
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode
from tests.fuzz.samples import SAMPLES, body_of, sample_replies
from tests.support.zookeeper_frames import decode_command, encode_reconfig

Decode = Callable[[Buffer, int, int], Any]
Encode = Callable[[Any], bytes]

#: what stands around a body: a decoder that looks there reads something else each time
_AROUND: Final = ((b"", b""), (b"\x00" * 13, b"\x00" * 80), (b"\x7f" * 5, b"\xff" * 80))


class Decoder(NamedTuple):
    """A decoder of a body, and what encodes it again."""

    op: int
    decode: Decode
    #: decoded value -> whole frame; None: only the other side has one
    encode: Encode | None
    #: bytes of the frame before the body
    head_bytes: int


def _command(op: int) -> Decoder:
    return Decoder(op, partial(decode_command, op), partial(requests.encode_command, 7), 12)


def _watch_request(op: int) -> Decoder:
    def encode(request: lookups.WatchRequest) -> bytes:
        return lookups.encode_watch_request(7, op, *request)

    return Decoder(op, lookups.decode_watch_request, encode, 12)


def _looked_at(op: int, decode: Decode) -> Decoder:
    return Decoder(op, decode, lambda path: lookups.encode_looked_at(7, op, path), 12)


def _read(op: int) -> Decoder:
    return Decoder(op, requests.decode_read, lambda read: requests.encode_read(7, op, *read), 12)


_REQUESTS: Final = (
    *(_command(op) for op, row in OPERATIONS.items() if row.treatment is Treatment.WRITE),
    *(_read(op) for op in (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)),
    *(_watch_request(op) for op in (OpCode.ADD_WATCH, OpCode.CHECK_WATCHES, OpCode.REMOVE_WATCHES)),
    _looked_at(OpCode.GET_ACL, lookups.decode_looked_at),
    _looked_at(OpCode.GET_EPHEMERALS, lookups.decode_prefix),
    Decoder(OpCode.MULTI_READ, lookups.decode_multi_read, None, 12),
    Decoder(OpCode.AUTH, requests.decode_auth, lambda value: requests.encode_auth(*value), 12),
    Decoder(OpCode.RECONFIG, requests.decode_reconfig, partial(encode_reconfig, 7), 12),
    Decoder(OpCode.SET_WATCHES, requests.decode_set_watches, requests.encode_set_watches, 12),
    Decoder(OpCode.SET_WATCHES2, requests.decode_set_watches2, requests.encode_set_watches2, 12),
    Decoder(0, requests.decode_connect, requests.encode_connect, 4),
)


def _reply(op: int, decode: Callable[[Buffer], Any]) -> Decoder:
    def decode_part(buffer: Buffer, start: int, end: int) -> Any:
        return decode(memoryview(bytes(replies.REPLY_HEADER_BYTES) + bytes(buffer[start:end])))

    return Decoder(op, decode_part, None, 0)


_REPLIES: Final = (
    _reply(OpCode.CREATE, replies.decode_path),
    _reply(OpCode.CREATE2, replies.decode_path_stat),
    _reply(OpCode.EXISTS, replies.decode_stat),
    _reply(OpCode.GET_DATA, replies.decode_data),
    _reply(OpCode.GET_CHILDREN, replies.decode_children),
    _reply(OpCode.GET_CHILDREN2, replies.decode_children_stat),
    _reply(OpCode.GET_ACL, replies.decode_acl),
    _reply(OpCode.MULTI, replies.decode_multi),
    _reply(OpCode.MULTI_READ, replies.decode_multi_read),
    _reply(OpCode.WHO_AM_I, replies.decode_identities),
    _reply(OpCode.GET_ALL_CHILDREN_NUMBER, replies.decode_number),
    _reply(OpCode.NOTIFICATION, replies.decode_watch_event),
    Decoder(-10, lambda b, s, e: replies.decode_connect_response(b[s:e]), None, 0),
    Decoder(-1, lambda b, s, e: replies.decode_header(b[s:e]), None, 0),
    Decoder(OpCode.EXISTS, lambda b, s, e: JuteReader(b, s, e, "stat").stat("fields"), None, 0),
)

DECODERS: Final = (*_REQUESTS, *_REPLIES)


def outcome(decode: Decode, buffer: Buffer, start: int, end: int) -> Any:
    """What a decoder makes of a body: its value, or which field it refuses."""
    try:
        return decode(buffer, start, end)
    except WireError as error:
        return "refused", error.field


class DecoderTarget:
    """Every decoder of the codec."""

    def seeds(self) -> list[bytes]:
        """A well-formed body of every kind, encoded by the encoder of the differential run."""
        asked = [
            bytes([number]) + body_of(sample)
            for number, decoder in enumerate(_REQUESTS)
            for sample in SAMPLES
            if sample.op == decoder.op
        ]
        answers = [bytes([len(_REQUESTS) + number]) + body for number, body in sample_replies(_REPLIES)]
        return [*asked, bytes([len(_REQUESTS) - 1]) + bytes(28), *answers]

    def run(self, data: bytes) -> None:
        """Decode the body alone and between other bytes, then encode and decode it again."""
        decoder = DECODERS[(data[0] if data else 0) % len(DECODERS)]
        body = data[1:]
        results = [
            outcome(decoder.decode, buffer, len(before), len(before) + len(body))
            for before, behind in _AROUND
            for buffer in (before + body + behind, memoryview(before + body + behind))
        ]
        assert all(result == results[0] for result in results), results
        value = results[0]
        if decoder.encode is None or (isinstance(value, tuple) and value[:1] == ("refused",)):
            return
        frame = decoder.encode(value)
        again = decoder.decode(frame, decoder.head_bytes, len(frame))
        assert again == value, (value, again)
