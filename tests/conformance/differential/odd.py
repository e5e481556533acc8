"""Frames and handshakes that no well-behaved client sends."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from struct import pack
from typing import Final

from tests.conformance.differential.access import OPEN
from tests.conformance.differential.steps import Break
from tests.conformance.differential.wire import (
    XID_AUTH,
    Op,
    Request,
    body,
    frame,
    multi,
    request_frame,
    text,
)

#: kinds of `player.handshake`
HANDSHAKES: Final = (
    "wrong-password",
    "wrong-password",
    "wrong-password-no-read-only",
    "short-password",
    "unknown-session",
    "future-zxid",
    "no-read-only",
    "read-only",
    "empty-password",
    "huge-timeout",
    "small-timeout",
)
_XID: Final = 7777
#: Reads only: a write whose body cannot be read stops the request pipeline of ZooKeeper 3.9.5 for good (it
#: waits for a commit that nobody proposed), a multi excepted.
_SHORT: Final = (
    *(Op.EXISTS, Op.GET_DATA, Op.GET_ACL, Op.GET_CHILDREN, Op.SYNC, Op.SET_WATCHES, Op.SET_WATCHES2),
    *(Op.GET_EPHEMERALS, Op.ADD_WATCH, Op.REMOVE_WATCHES, Op.CHECK_WATCHES, Op.MULTI_READ),
)


def broken_request(session: int, kind: str, request: Request) -> Break:
    """A whole request that is likely to end the connection."""
    xid = XID_AUTH if request.op == Op.AUTH else _XID
    return Break(session, kind, request_frame(xid, request), request.op)


def _unknown(random: Random, session: int) -> Break:
    op = random.choice((Op.UNKNOWN, Op.UNKNOWN_NEGATIVE, Op.CHECK, Op.DELETE_CONTAINER))
    args = {Op.CHECK: ("~", -1), Op.DELETE_CONTAINER: ("~",)}.get(op, ())
    return broken_request(session, "unknown operation", Request(op, args))


def _length(random: Random, session: int) -> Break:
    length = random.choice((0, -1, -(2**31), 2**31 - 1, 64 * 2**20))
    return Break(session, "impossible length", pack(">i", length))


def _header(random: Random, session: int) -> Break:
    return Break(session, "cut header", frame(bytes(random.randint(1, 7))))


def _cut(random: Random, session: int) -> Break:
    op = random.choice(_SHORT)
    return broken_request(session, "cut body", Request(op, raw=b"\0\0"))


def _length_inside(random: Random, session: int) -> Break:
    op = random.choice((Op.EXISTS, Op.GET_DATA, Op.GET_ACL))
    return broken_request(session, "impossible length inside", Request(op, raw=pack(">i", 2**30) + b"/a"))


def _multi_part(random: Random, session: int) -> Break:
    """A multi with an operation that none may hold."""
    good = Request(Op.CREATE, ("/unreachable/a", b"", OPEN, 0))
    inner = Request(random.choice((Op.SYNC, Op.SET_ACL, Op.UNKNOWN)), raw=text("/a"))
    return broken_request(session, "odd part of a multi", Request(Op.MULTI, raw=multi((good, inner))))


def _multi_end(random: Random, session: int) -> Break:
    """A multi that does not end."""
    whole = body(Request(Op.MULTI, ((Request(Op.CHECK, ("/unreachable", -1)),),)))
    return broken_request(session, "endless multi", Request(Op.MULTI, raw=whole[:-9]))


def _flags(random: Random, session: int) -> Break:
    """A create whose flags mean nothing."""
    op = random.choice((Op.CREATE, Op.CREATE2))
    flags = random.choice((7, -1, 100))
    return broken_request(session, "odd flags", Request(op, ("/unreachable/f", b"", OPEN, flags)))


_KINDS: Final[tuple[Callable[[Random, int], Break], ...]] = (
    *(_unknown, _unknown, _unknown, _unknown, _length, _header, _cut, _cut),
    *(_length_inside, _multi_part, _multi_end, _flags),
)


def broken(random: Random, session: int) -> Break:
    """Choose something that may end a connection."""
    return random.choice(_KINDS)(random, session)
