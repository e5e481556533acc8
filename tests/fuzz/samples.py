"""Well-formed requests and replies of every kind, as the differential run encodes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import pack
from typing import Any, Final

from tests.conformance.differential.wire import Op, Request, acls, blob, body, text, texts

_OPEN: Final = ((31, "world", "anyone"),)
_OWN: Final = ((31, "auth", ""), (1, "digest", "bob:x"))
RECONFIG: Final = 16
#: credentials of a user who may change the members
SUPER_USER: Final = b"super:pw"

#: requests as the differential run writes them
SAMPLES: Final = (
    Request(Op.CREATE, ("/a", b"x", _OPEN, 0)),
    Request(Op.CREATE, ("/a/s-", None, _OWN, 2)),
    Request(Op.CREATE2, ("/e", b"", _OPEN, 1)),
    Request(Op.CREATE_CONTAINER, ("/c", b"", _OPEN, 4)),
    Request(Op.CREATE_TTL, ("/t", b"", _OPEN, 5, 1000)),
    Request(Op.DELETE, ("/a", -1)),
    Request(Op.SET_DATA, ("/a", b"yy", 0)),
    Request(Op.SET_ACL, ("/a", _OWN, -1)),
    Request(Op.SYNC, ("/",)),
    Request(Op.EXISTS, ("/a", True)),
    Request(Op.GET_DATA, ("/a", True)),
    Request(Op.GET_CHILDREN, ("/", True)),
    Request(Op.GET_CHILDREN2, ("/", False)),
    Request(Op.GET_ACL, ("/a",)),
    Request(Op.GET_EPHEMERALS, ("/",)),
    Request(Op.GET_ALL_CHILDREN_NUMBER, ("/",)),
    Request(Op.ADD_WATCH, ("/a", 1)),
    Request(Op.ADD_WATCH, ("/", 0)),
    Request(Op.CHECK_WATCHES, ("/a", 3)),
    Request(Op.REMOVE_WATCHES, ("/a", 3)),
    Request(Op.WHO_AM_I),
    Request(Op.PING),
    Request(Op.AUTH, (0, "digest", b"bob:secret")),
    Request(Op.SET_WATCHES, (1, ("/a",), ("/b",), ("/",))),
    Request(Op.SET_WATCHES2, (1, ("/a",), (), ("/",), ("/p",), ("/r",))),
    Request(
        Op.MULTI,
        (
            (
                Request(Op.CREATE, ("/m", b"", _OPEN, 0)),
                Request(Op.CREATE2, ("/m/e", None, _OWN, 1)),
                Request(Op.SET_DATA, ("/m", b"1", 0)),
                Request(Op.CHECK, ("/m", 1)),
                Request(Op.DELETE, ("/m", 1)),
                Request(Op.CREATE_TTL, ("/m/t", b"", _OPEN, 5, 7)),
            ),
        ),
    ),
    Request(Op.MULTI_READ, ((Request(Op.GET_DATA, ("/a", False)), Request(Op.GET_CHILDREN, ("/", True))),)),
    Request(Op.AUTH, (0, "digest", SUPER_USER)),
    Request(RECONFIG, (), text("server.4=h:4:5;6") + text(None) + text(None) + pack(">q", -1)),
    Request(RECONFIG, (), text(None) + text("2") + text(None) + pack(">q", 3)),
    Request(Op.CLOSE_SESSION),
    Request(Op.DELETE_CONTAINER, ("/c",)),
    Request(Op.UNKNOWN),
)
#: where a client proves that it is the super user, asks for a change of members, and pings
PROOF: Final = next(n for n, each in enumerate(SAMPLES) if SUPER_USER in each.args)
CHANGE: Final = next(n for n, each in enumerate(SAMPLES) if each.op == RECONFIG)
PING: Final = next(n for n, each in enumerate(SAMPLES) if each.op == Op.PING)

_STAT: Final = pack(">qqqqiiiqiiq", *range(1, 12))
_END: Final = pack(">i?i", -1, True, -1)

#: {operation: body of a reply}
_REPLY_BODIES: Final[dict[int, bytes]] = {
    Op.CREATE: text("/a"),
    Op.CREATE2: text("/a") + _STAT,
    Op.EXISTS: _STAT,
    Op.GET_DATA: blob(b"xyz") + _STAT,
    Op.GET_CHILDREN: texts(("a", "b")),
    Op.GET_CHILDREN2: texts(("a", "b")) + _STAT,
    Op.GET_ACL: acls(_OWN) + _STAT,
    Op.MULTI: b"".join(
        (
            pack(">i?i", 1, False, 0) + text("/a"),
            pack(">i?i", 15, False, 0) + text("/b") + _STAT,
            pack(">i?i", 5, False, 0) + _STAT,
            pack(">i?i", 2, False, 0),
            pack(">i?ii", -1, False, -101, -101),
            _END,
        )
    ),
    Op.MULTI_READ: pack(">i?i", 4, False, 0) + blob(b"x") + _STAT + pack(">i?ii", -1, False, -1, -101) + _END,
    Op.WHO_AM_I: pack(">i", 1) + text("ip") + text("127.0.0.1"),
    Op.GET_ALL_CHILDREN_NUMBER: pack(">i", 3),
    0: pack(">ii", 1, 3) + text("/a"),
    -10: pack(">iiq", 0, 4000, 1) + blob(bytes(16)) + b"\0",
    -1: pack(">iqi", 1, 2, 0),
}


def body_of(request: Request) -> bytes:
    """Encode what stands behind the header of a request."""
    return body(request)


def sample_replies(decoders: Sequence[Any]) -> Iterator[tuple[int, bytes]]:
    """(number of the decoder, body) of a reply of every kind."""
    for number, decoder in enumerate(decoders):
        yield number, _REPLY_BODIES.get(decoder.op, b"")
