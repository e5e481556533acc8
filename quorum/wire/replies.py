"""Replies and watch events of ZooKeeper's client protocol: the server encodes them, the client decodes them.

Encoders return whole frames, with their length; a Stat is the 68 packed bytes that the tree keeps. Decoders
of bodies begin after the reply header and return plain values. A reply with an error has a header and no
body, but that of a multi.
Source: zookeeper.jute, MultiResponse (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from quorum.wire.errors import WireError
from quorum.wire.jute import (
    INT,
    MULTI_END,
    MULTI_HEADER,
    Buffer,
    JuteReader,
    Stat,
    acl_bytes,
    buffer_bytes,
    string_bytes,
    strings_bytes,
)
from quorum.wire.protocol import PASSWORD_BYTES, SYNC_CONNECTED, XID_NOTIFICATION, OpCode

#: Length, xid, zxid, err.
REPLY_HEAD: Final = Struct(">iiqi")
REPLY_HEADER_BYTES: Final = 16

_head: Final = REPLY_HEAD.pack
_STAT_REPLY_BYTES: Final = REPLY_HEADER_BYTES + 68
_TEXT_HEAD: Final = Struct(">iiqii").pack  # the head, then the length of what follows
_EVENT_HEAD: Final = Struct(">iiqiiii").pack
_CONNECT: Final = Struct(">iiq")

_CREATE: Final = int(OpCode.CREATE)
_GET_DATA: Final = int(OpCode.GET_DATA)
_SET_DATA: Final = int(OpCode.SET_DATA)
_CREATE2: Final = int(OpCode.CREATE2)
_ERROR: Final = int(OpCode.ERROR)
_BARE_RESULTS: Final = frozenset((int(OpCode.DELETE), int(OpCode.CHECK)))


class ReplyHeader(NamedTuple):
    """What every reply and watch event begins with."""

    xid: int
    zxid: int
    err: int


class ConnectResponse(NamedTuple):
    """The answer to a handshake; timeout 0 and session id 0 tell that the session is gone."""

    protocol_version: int
    session_timeout_ms: int
    session_id: int
    password: bytes
    #: None: the byte was not sent.
    read_only: bool | None


class WatcherEvent(NamedTuple):
    """What a watch tells."""

    event_type: int
    keeper_state: int
    path: str


class MultiResult(NamedTuple):
    """The result of one operation of a multi.

    Attributes:
        op: the operation, or -1 if this is an error.
        err: 0, or the error's code.
        path: what create and create2 made, else None.
        stat: what create2 and setData left, else None.
    """

    op: int
    err: int
    path: str | None
    stat: Stat | None


#: What answers a resumption of a session that is gone, or with a wrong password.
REFUSED_SESSION: Final = ConnectResponse(0, 0, 0, bytes(PASSWORD_BYTES), None)


def encode_connect_response(response: ConnectResponse) -> bytes:
    """Encode the answer to a handshake."""
    body = _CONNECT.pack(*response[:3]) + buffer_bytes(response.password)
    if response.read_only is not None:
        body += b"\x01" if response.read_only else b"\x00"
    return INT.pack(len(body)) + body


def encode_header(xid: int, zxid: int, err: int) -> bytes:
    """Encode a reply without a body: an error, or an operation that answers nothing."""
    return _head(REPLY_HEADER_BYTES, xid, zxid, err)


def _frame(xid: int, zxid: int, body: bytes) -> bytes:
    return _head(REPLY_HEADER_BYTES + len(body), xid, zxid, 0) + body


def encode_stat(xid: int, zxid: int, stat: bytes) -> bytes:
    """Encode the reply to setData or exists."""
    return _head(_STAT_REPLY_BYTES, xid, zxid, 0) + stat


def encode_sasl(xid: int, err: int, token: bytes | None) -> bytes:
    """Encode the reply to sasl, which tells no zxid; Java's client reads a token also of a refusal."""
    body = buffer_bytes(token)
    return _head(REPLY_HEADER_BYTES + len(body), xid, 0, err) + body


def encode_sync(xid: int, zxid: int, path: str | None) -> bytes:
    """Encode the reply to sync, which repeats the path, also a null one."""
    if path is None:
        return _TEXT_HEAD(REPLY_HEADER_BYTES + 4, xid, zxid, 0, -1)
    return encode_path(xid, zxid, path)


def encode_path(xid: int, zxid: int, path: str) -> bytes:
    """Encode the reply to create."""
    raw = path.encode()
    return _TEXT_HEAD(REPLY_HEADER_BYTES + 4 + len(raw), xid, zxid, 0, len(raw)) + raw


def encode_path_stat(xid: int, zxid: int, path: str, stat: bytes) -> bytes:
    """Encode the reply to create2."""
    raw = path.encode()
    return _TEXT_HEAD(_STAT_REPLY_BYTES + 4 + len(raw), xid, zxid, 0, len(raw)) + raw + stat


def encode_data(xid: int, zxid: int, data: bytes | None, stat: bytes) -> bytes:
    """Encode the reply to getData."""
    if data is None:
        return _TEXT_HEAD(_STAT_REPLY_BYTES + 4, xid, zxid, 0, -1) + stat
    size = len(data)
    return _TEXT_HEAD(_STAT_REPLY_BYTES + 4 + size, xid, zxid, 0, size) + data + stat


def encode_children(xid: int, zxid: int, names: Sequence[str], stat: bytes = b"") -> bytes:
    """Encode the reply to getChildren or getEphemerals, or to getChildren2 if a Stat is given."""
    return _frame(xid, zxid, strings_bytes(names) + stat)


def encode_multi(xid: int, zxid: int, results: Sequence[tuple[int, int, Any]]) -> bytes:
    """Encode the reply to multi.

    Args:
        xid: of the request.
        zxid: of the transaction.
        results: (op, err, value) in the order of the operations; value is the path of a create, (path, stat)
            of a create2, the stat of a setData, else None. Each operation of a failed multi has op -1, with
            err 0 before the failing one.
    """
    parts: list[bytes] = [b""]
    for op, err, value in results:
        if op == _ERROR or err:
            parts.append(MULTI_HEADER.pack(_ERROR, False, err) + INT.pack(err))
        elif op == _SET_DATA:
            parts.append(MULTI_HEADER.pack(op, False, 0) + value)
        elif op == _CREATE:
            parts.append(MULTI_HEADER.pack(op, False, 0) + string_bytes(value))
        elif op == _CREATE2:
            path, stat = value
            parts.append(MULTI_HEADER.pack(op, False, 0) + string_bytes(path) + stat)
        else:
            parts.append(MULTI_HEADER.pack(op, False, 0))
    parts.append(MULTI_END)
    parts[0] = _head(REPLY_HEADER_BYTES + sum(map(len, parts)), xid, zxid, 0)
    return b"".join(parts)


def encode_acl(xid: int, zxid: int, acl: Sequence[Sequence[int | str]], stat: bytes) -> bytes:
    """Encode the reply to getACL."""
    return _frame(xid, zxid, acl_bytes(acl) + stat)


def encode_number(xid: int, zxid: int, number: int) -> bytes:
    """Encode the reply to getAllChildrenNumber, or to addWatch, which answers 0."""
    return _frame(xid, zxid, INT.pack(number))


def encode_identities(xid: int, zxid: int, identities: Sequence[tuple[str, str]]) -> bytes:
    """Encode the reply to whoAmI: (scheme, user name) in any order."""
    parts = [string_bytes(scheme) + string_bytes(user) for scheme, user in identities]
    body = INT.pack(len(parts)) + b"".join(parts)
    return _frame(xid, zxid, body)


def encode_read_answer(op: int, found: int | list[str] | tuple[bytes | None, bytes]) -> bytes:
    """Encode the answer to one read of a multiRead.

    Args:
        op: getData or getChildren.
        found: (data, stat) of a getData, names of a getChildren, or the code of an error.
    """
    if isinstance(found, int):
        return MULTI_HEADER.pack(_ERROR, False, found) + INT.pack(found)
    if isinstance(found, list):
        return MULTI_HEADER.pack(op, False, 0) + strings_bytes(found)
    data, stat = found
    return MULTI_HEADER.pack(op, False, 0) + buffer_bytes(data) + stat


def encode_multi_read(xid: int, zxid: int, answers: Sequence[bytes]) -> bytes:
    """Encode the reply to multiRead.

    Args:
        xid: of the request.
        zxid: the last transaction that was applied.
        answers: of `encode_read_answer`, in order.
    """
    return _frame(xid, zxid, b"".join((*answers, MULTI_END)))


def encode_watch_event(zxid: int, event_type: int, path: str) -> bytes:
    """Encode a watch event; its bytes are the same for every watcher."""
    raw = path.encode()
    size = REPLY_HEADER_BYTES + 12 + len(raw)
    return _EVENT_HEAD(size, XID_NOTIFICATION, zxid, 0, event_type, SYNC_CONNECTED, len(raw)) + raw


def decode_connect_response(frame: Buffer) -> ConnectResponse:
    """Decode the answer to a handshake, without its length."""
    reader = JuteReader(frame, 0, len(frame), "connect response")
    protocol_version = reader.int32("protocolVersion")
    session_timeout_ms = reader.int32("timeOut")
    session_id = reader.int64("sessionId")
    password = reader.buffer("passwd") or b""
    read_only = reader.boolean("readOnly") if reader.remaining else None
    return ConnectResponse(protocol_version, session_timeout_ms, session_id, password, read_only)


def decode_header(frame: Buffer) -> ReplyHeader:
    """Decode the header of a reply or watch event; the body starts at REPLY_HEADER_BYTES.

    Args:
        frame: without its length.
    """
    reader = JuteReader(frame, 0, len(frame), "reply header")
    return ReplyHeader(reader.int32("xid"), reader.int64("zxid"), reader.int32("err"))


def _body(frame: Buffer, record: str) -> JuteReader:
    return JuteReader(frame, REPLY_HEADER_BYTES, len(frame), record)


def decode_sasl(frame: Buffer) -> bytes:
    """Decode the token of a reply to sasl; b"": there is none."""
    return _body(frame, "sasl").buffer("token") or b""


def decode_path(frame: Buffer) -> str:
    """Decode the reply to create or sync."""
    return _body(frame, "create reply").string("path")


def decode_path_stat(frame: Buffer) -> tuple[str, Stat]:
    """Decode the reply to create2."""
    reader = _body(frame, "create2 reply")
    return reader.string("path"), reader.stat("stat")


def decode_stat(frame: Buffer) -> Stat:
    """Decode the reply to setData or exists."""
    return _body(frame, "stat reply").stat("stat")


def decode_data(frame: Buffer) -> tuple[bytes | None, Stat]:
    """Decode the reply to getData."""
    reader = _body(frame, "getData reply")
    return reader.buffer("data"), reader.stat("stat")


def decode_children(frame: Buffer) -> list[str]:
    """Decode the reply to getChildren."""
    return _body(frame, "getChildren reply").strings("children")


def decode_children_stat(frame: Buffer) -> tuple[list[str], Stat]:
    """Decode the reply to getChildren2."""
    reader = _body(frame, "getChildren2 reply")
    return reader.strings("children"), reader.stat("stat")


def decode_multi(frame: Buffer) -> list[MultiResult]:
    """Decode the reply to multi."""
    reader = _body(frame, "multi reply")
    results: list[MultiResult] = []
    while True:
        op, done, err = reader.int32("type"), reader.boolean("done"), reader.int32("err")
        if done:
            return results
        if op == _ERROR:
            results.append(MultiResult(op, reader.int32("error"), None, None))
        elif op == _SET_DATA:
            results.append(MultiResult(op, err, None, reader.stat("stat")))
        elif op == _CREATE:
            results.append(MultiResult(op, err, reader.string("path"), None))
        elif op == _CREATE2:
            results.append(MultiResult(op, err, reader.string("path"), reader.stat("stat")))
        elif op in _BARE_RESULTS:
            results.append(MultiResult(op, err, None, None))
        else:
            raise WireError("multi reply.type", op, "this operation has no result in a multi")


def decode_acl(frame: Buffer) -> tuple[list[tuple[int, str, str]], Stat]:
    """Decode the reply to getACL: (permissions, scheme, id) in order, and the Stat."""
    reader = _body(frame, "getACL reply")
    acl = [(int(perms), str(scheme), str(name)) for perms, scheme, name in reader.acl("acl")]
    return acl, reader.stat("stat")


def decode_number(frame: Buffer) -> int:
    """Decode the reply to getAllChildrenNumber."""
    return _body(frame, "number reply").int32("totalNumber")


def decode_identities(frame: Buffer) -> list[tuple[str, str]]:
    """Decode the reply to whoAmI: (scheme, user name)."""
    reader = _body(frame, "whoAmI reply")
    count = reader.count("clientInfo", 8)
    return [(reader.string("authScheme"), reader.string("user")) for _ in range(count)]


def decode_multi_read(frame: Buffer) -> list[tuple[bytes | None, Stat] | int]:
    """Decode the reply to a multiRead of getData alone: (data, Stat), or the code of an error."""
    reader = _body(frame, "multiRead reply")
    results: list[tuple[bytes | None, Stat] | int] = []
    while True:
        op, done, _ = reader.int32("type"), reader.boolean("done"), reader.int32("err")
        if done:
            return results
        if op == _ERROR:
            results.append(reader.int32("error"))
        elif op == _GET_DATA:
            results.append((reader.buffer("data"), reader.stat("stat")))
        else:
            raise WireError("multiRead reply.type", op, "only getData was asked for")


def decode_watch_event(frame: Buffer) -> WatcherEvent:
    """Decode a watch event."""
    reader = _body(frame, "watch event")
    return WatcherEvent(reader.int32("type"), reader.int32("state"), reader.string("path"))


def encode_outcome(xid: int, zxid: int, value: Any) -> bytes:
    """Encode the outcome of delete, closeSession, create2 or multi; the others have encoders of their own.

    Args:
        xid: of the request.
        zxid: of the transaction.
        value: None, (path, stat), or the items of a multi.
    """
    if value is None:
        return encode_header(xid, zxid, 0)
    if type(value) is list:
        return encode_multi(xid, zxid, value)
    path, stat = value
    return encode_path_stat(xid, zxid, path, stat)
