"""Requests of ZooKeeper's client protocol: the server decodes them, the client encodes them.

A write is a *command*, the list that the replicated log holds too: ``[op, argument, …]`` (create and
create2 and createContainer ``[op, path, data, acl, flags]``, createTTL the same and the TTL in milliseconds,
setACL ``[7, path, acl, aversion]``, delete and check ``[op, path, version]``, setData ``[op, path, data,
version]``, multi ``[14, [command, …]]``, sync ``[9, path]``, closeSession ``[-11]``); an access list of
world:anyone with all permissions is None. `encode_command` is the inverse of decoding.
The path of setData, setACL and sync may be null, as in ZooKeeper: the first two refuse it, sync repeats it.

The decoders take the whole received chunk and the bounds of one record, so that no frame is copied; the
frequent shapes are decoded inline, and whatever is odd about a frame is left to the `JuteReader`, which
refuses it or reads it as ZooKeeper would. A path that is too long is refused here, on every operation; those
of setWatches are not kept (core/watches.py).
Source: zookeeper.jute, MultiOperationRecord (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from quorum.core.acl import ACL_ENTRIES_MAX
from quorum.core.codes import FLAG_SEQUENTIAL, INT32_MAX, INVALID_ACL, PERM_ALL, QUOTA_EXCEEDED
from quorum.core.paths import SEQUENCE_BYTES_MAX, SHORT_PATH_BYTES_MAX, excess_of
from quorum.wire.errors import FrameTooLargeError, PathTooLongError, WireError
from quorum.wire.jute import (
    INT,
    LONG,
    MULTI_END,
    MULTI_HEADER,
    Acl,
    Buffer,
    JuteReader,
    acl_bytes,
    buffer_bytes,
    string_bytes,
    strings_bytes,
)
from quorum.wire.protocol import XID_AUTH, XID_PING, XID_SET_WATCHES, OpCode

#: ``[op, argument, …]``; the arguments' types depend on the operation.
Command = list[Any]

#: Length, xid and operation: what every request begins with.
REQUEST_HEAD: Final = Struct(">iii")
#: xid and operation, without which a frame is not a request.
REQUEST_HEADER_BYTES: Final = 8
#: A ConnectRequest without password and readOnly.
CONNECT_BYTES_MIN: Final = 28

_CREATE: Final = int(OpCode.CREATE)
_DELETE: Final = int(OpCode.DELETE)
_SET_DATA: Final = int(OpCode.SET_DATA)
_SYNC: Final = int(OpCode.SYNC)
_CHECK: Final = int(OpCode.CHECK)
_MULTI: Final = int(OpCode.MULTI)
_CREATE2: Final = int(OpCode.CREATE2)
_CLOSE_SESSION: Final = int(OpCode.CLOSE_SESSION)
_CREATE_CONTAINER: Final = int(OpCode.CREATE_CONTAINER)
_CREATE_TTL: Final = int(OpCode.CREATE_TTL)
_SET_ACL: Final = int(OpCode.SET_ACL)

_read_int: Final = INT.unpack_from
_CONNECT: Final = Struct(">iqiq")

OPEN_ACL: Final[Acl] = [[PERM_ALL, "world", "anyone"]]
_OPEN_ACL_BYTES: Final = acl_bytes(OPEN_ACL)
_OPEN_ACL_LENGTH: Final = len(_OPEN_ACL_BYTES)


class ConnectRequest(NamedTuple):
    """The first packet of a client."""

    protocol_version: int
    last_zxid_seen: int
    session_timeout_ms: int
    #: 0 asks for a new session.
    session_id: int
    password: bytes
    #: None if the client did not send the byte; then it must not get one back.
    read_only: bool | None


class Reconfig(NamedTuple):
    """A change of the members; either the first two or the third say which."""

    #: "server.<id>=<address>", separated by commas; None: null
    joining: str | None
    #: ids, separated by commas
    leaving: str | None
    #: all members, as `joining`
    new_members: str | None
    #: the version of the configuration that it is meant for; -1: any
    config_version: int


class SetWatches(NamedTuple):
    """What a client had armed before it reconnected; only setWatches2 carries the persistent watches."""

    relative_zxid: int
    data: Sequence[str]
    exist: Sequence[str]
    child: Sequence[str]
    persistent: Sequence[str] = ()
    recursive: Sequence[str] = ()


def frame(xid: int, op: int, body: bytes) -> bytes:
    """Return a request as a whole frame, with its length."""
    return REQUEST_HEAD.pack(len(body) + REQUEST_HEADER_BYTES, xid, op) + body


def decode_reconfig(buffer: Buffer, start: int, end: int) -> Reconfig:
    """Decode the body of a reconfig."""
    reader = JuteReader(buffer, start, end, "reconfig")
    texts: list[str | None] = []
    for field in ("joiningServers", "leavingServers", "newMembers"):
        raw = reader.buffer(field)
        texts.append(None if raw is None else raw.decode("utf-8", "replace"))
    return Reconfig(texts[0], texts[1], texts[2], reader.int64("curConfigId"))


def decode_auth(buffer: Buffer, start: int, end: int) -> tuple[str, bytes]:
    """Decode the body of an auth packet: scheme and credentials."""
    reader = JuteReader(buffer, start, end, "auth")
    reader.int32("type")
    return reader.string("scheme"), reader.buffer("auth") or b""


def decode_sasl(buffer: Buffer, start: int, end: int) -> bytes:
    """Decode the body of a sasl request: a token, which may be empty."""
    return JuteReader(buffer, start, end, "sasl").buffer("token") or b""


def encode_sasl(xid: int, token: bytes) -> bytes:
    """Encode a sasl request as a whole frame, with its length."""
    return frame(xid, OpCode.SASL, buffer_bytes(token))


def encode_auth(scheme: str, credentials: bytes) -> bytes:
    """Encode an auth packet as a whole frame, with its length."""
    body = INT.pack(0) + string_bytes(scheme) + buffer_bytes(credentials)
    return frame(XID_AUTH, OpCode.AUTH, body)


def decode_connect(buffer: Buffer, start: int, end: int) -> ConnectRequest:
    """Decode a ConnectRequest."""
    reader = JuteReader(buffer, start, end, "connect")
    protocol_version = reader.int32("protocolVersion")
    last_zxid_seen = reader.int64("lastZxidSeen")
    session_timeout_ms = reader.int32("timeOut")
    session_id = reader.int64("sessionId")
    password = reader.buffer("passwd") or b""
    read_only = reader.boolean("readOnly") if reader.remaining else None
    return ConnectRequest(
        protocol_version, last_zxid_seen, session_timeout_ms, session_id, password, read_only
    )


def encode_connect(request: ConnectRequest) -> bytes:
    """Encode a ConnectRequest as a whole frame, with its length."""
    body = _CONNECT.pack(*request[:4]) + buffer_bytes(request.password)
    if request.read_only is not None:
        body += b"\x01" if request.read_only else b"\x00"
    return INT.pack(len(body)) + body


def decode_read(buffer: Buffer, start: int, end: int) -> tuple[str, bool]:
    """Decode the body of exists, getData, getChildren or getChildren2.

    Args:
        buffer: holds the frame.
        start: first byte after the request header.
        end: first byte after the frame.

    Returns:
        Path and whether a watch is asked for (a plain pair: this is the read path).
    """
    if end - start >= 5:
        length = _read_int(buffer, start)[0]
        after = start + 4 + length
        if 0 < length <= SHORT_PATH_BYTES_MAX and after < end:
            return str(buffer[start + 4 : after], "utf-8", "replace"), buffer[after] != 0
    reader = JuteReader(buffer, start, end, "read")
    return reader.path("path"), reader.boolean("watch")


def _set_watches(record: str, *fields: str) -> Callable[..., SetWatches]:
    def decode(buffer: Buffer, start: int, end: int, paths_max: int = INT32_MAX) -> SetWatches:
        reader = JuteReader(buffer, start, end, record)
        relative_zxid = reader.int64("relativeZxid")
        vectors: list[list[str]] = []
        room = paths_max
        for field in fields:
            count = reader.count(field, 4)
            if count > room:
                raise FrameTooLargeError(f"{record}.{field}", count, room, QUOTA_EXCEEDED)
            room -= count
            vectors.append([reader.string(field) for _ in range(count)])
        return SetWatches(relative_zxid, *vectors)

    return decode


_ONE_SHOT: Final = ("dataWatches", "existWatches", "childWatches")
#: As every decoder; they may be given how many paths are allowed. Of a vector too long nothing is read.
decode_set_watches: Final = _set_watches("setWatches", *_ONE_SHOT)
decode_set_watches2: Final = _set_watches(
    "setWatches2", *_ONE_SHOT, "persistentWatches", "persistentRecursiveWatches"
)


def decode_set_data(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
    """Decode a setData: the command, and the first byte after its record."""
    if end - start >= 12:
        length = _read_int(buffer, start)[0]
        path_end = start + 4 + length
        if 0 < length <= SHORT_PATH_BYTES_MAX and path_end + 8 <= end:
            size = _read_int(buffer, path_end)[0]
            data_end = path_end + 4 + size
            if size >= 0 and data_end + 4 <= end:
                path = str(buffer[start + 4 : path_end], "utf-8", "replace")
                data = bytes(buffer[path_end + 4 : data_end])
                return [_SET_DATA, path, data, _read_int(buffer, data_end)[0]], data_end + 4
    reader = JuteReader(buffer, start, end, "setData")
    command = [_SET_DATA, reader.path_or_null("path"), reader.buffer("data"), reader.int32("version")]
    return command, reader.position


def _versioned(op: int, record: str) -> Callable[[Buffer, int, int], tuple[Command, int]]:
    def decode(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
        if end - start >= 8:
            length = _read_int(buffer, start)[0]
            after = start + 4 + length
            if 0 < length <= SHORT_PATH_BYTES_MAX and after + 4 <= end:
                path = str(buffer[start + 4 : after], "utf-8", "replace")
                return [op, path, _read_int(buffer, after)[0]], after + 4
        reader = JuteReader(buffer, start, end, record)
        return [op, reader.path("path"), reader.int32("version")], reader.position

    return decode


def _acl(reader: JuteReader) -> Acl:
    """Read an access list that is to be stored; the entries of one too long are not looked at."""
    count = reader.count("acl", 12)
    if count > ACL_ENTRIES_MAX:
        raise FrameTooLargeError(f"{reader.record}.acl", count, ACL_ENTRIES_MAX, INVALID_ACL)
    return reader.acl_entries("acl", count)


def _creation(op: int, record: str) -> Callable[[Buffer, int, int], tuple[Command, int]]:
    def decode(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
        if end - start >= 16:
            length = _read_int(buffer, start)[0]
            path_end = start + 4 + length
            if 0 < length <= SHORT_PATH_BYTES_MAX and path_end + 8 <= end:
                size = _read_int(buffer, path_end)[0]
                data_end = path_end + 4 + size
                acl_end = data_end + _OPEN_ACL_LENGTH
                if size >= 0 and acl_end + 4 <= end and buffer[data_end:acl_end] == _OPEN_ACL_BYTES:
                    path = str(buffer[start + 4 : path_end], "utf-8", "replace")
                    data = bytes(buffer[path_end + 4 : data_end])
                    return [op, path, data, None, _read_int(buffer, acl_end)[0]], acl_end + 4
        reader = JuteReader(buffer, start, end, record)
        path, data_or_null, acl = reader.path("path"), reader.buffer("data"), _acl(reader)
        flags = reader.int32("flags")
        if flags & FLAG_SEQUENTIAL:
            # A node that got its number could not be named any more.
            excess = excess_of(path, len(path.encode()) + SEQUENCE_BYTES_MAX)
            if excess:
                raise PathTooLongError(f"{record}.path", excess)
        return [op, path, data_or_null, None if acl == OPEN_ACL else acl, flags], reader.position

    return decode


decode_delete: Final = _versioned(_DELETE, "delete")
decode_check: Final = _versioned(_CHECK, "check")
decode_create: Final = _creation(_CREATE, "create")
decode_create2: Final = _creation(_CREATE2, "create2")
decode_create_container: Final = _creation(_CREATE_CONTAINER, "createContainer")
_decode_creation: Final = _creation(_CREATE_TTL, "createTTL")


def decode_create_ttl(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
    """Decode a createTTL: the command, and the first byte after its record."""
    (_, *fields), position = _decode_creation(buffer, start, end)
    reader = JuteReader(buffer, position, end, "createTTL")
    return [_CREATE_TTL, *fields, reader.int64("ttl")], reader.position


def decode_set_acl(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
    """Decode a setACL: the command, and the first byte after its record."""
    reader = JuteReader(buffer, start, end, "setACL")
    path, acl = reader.path_or_null("path"), _acl(reader)
    return [_SET_ACL, path, None if acl == OPEN_ACL else acl, reader.int32("version")], reader.position


def decode_sync(buffer: Buffer, start: int, end: int) -> tuple[Command, int]:
    """Decode a sync: the command, and the first byte after its record."""
    reader = JuteReader(buffer, start, end, "sync")
    return [_SYNC, reader.path_or_null("path")], reader.position


def _path_bytes(path: str | None) -> bytes:
    return buffer_bytes(None) if path is None else string_bytes(path)


def _command_body(command: Sequence[Any]) -> bytes:
    op = command[0]
    if op in (_CREATE, _CREATE2, _CREATE_CONTAINER, _CREATE_TTL):
        _, path, data, acl, flags, *ttl = command
        entries = _OPEN_ACL_BYTES if acl is None else acl_bytes(acl)
        body = string_bytes(path) + buffer_bytes(data) + entries + INT.pack(flags)
        return body + LONG.pack(*ttl) if op == _CREATE_TTL else body
    if op == _SET_ACL:
        _, path, acl, version = command
        return _path_bytes(path) + (_OPEN_ACL_BYTES if acl is None else acl_bytes(acl)) + INT.pack(version)
    if op == _SET_DATA:
        _, path, data, version = command
        return _path_bytes(path) + buffer_bytes(data) + INT.pack(version)
    if op in (_DELETE, _CHECK):
        return string_bytes(command[1]) + INT.pack(command[2])
    if op == _SYNC:
        return _path_bytes(command[1])
    if op == _MULTI:
        parts: list[bytes] = []
        for part in command[1]:
            parts += (MULTI_HEADER.pack(part[0], False, -1), _command_body(part))
        return b"".join((*parts, MULTI_END))
    if op == _CLOSE_SESSION:
        return b""
    raise WireError("header.type", op, "this operation makes no command")


def encode_command(xid: int, command: Sequence[Any]) -> bytes:
    """Encode a write, sync or closeSession as a whole frame, with its length."""
    body = _command_body(command)
    return frame(xid, command[0], body)


def encode_read(xid: int, op: int, path: str, watch: bool) -> bytes:
    """Encode exists, getData, getChildren or getChildren2 as a whole frame, with its length."""
    body = string_bytes(path) + (b"\x01" if watch else b"\x00")
    return frame(xid, op, body)


def encode_set_watches(request: SetWatches, xid: int = XID_SET_WATCHES) -> bytes:
    """Encode setWatches as a whole frame, with its length; persistent watches are left out."""
    return frame(xid, OpCode.SET_WATCHES, _watches_body(request[:4]))


def encode_set_watches2(request: SetWatches, xid: int = XID_SET_WATCHES) -> bytes:
    """Encode setWatches2 as a whole frame, with its length."""
    return frame(xid, OpCode.SET_WATCHES2, _watches_body(request))


def _watches_body(fields: Sequence[Any]) -> bytes:
    return LONG.pack(fields[0]) + b"".join(map(strings_bytes, fields[1:]))


def watches_of(request: SetWatches) -> int:
    """Return how many watches a setWatches of either kind asks for; a persistent one counts as two."""
    return sum(map(len, request[1:])) + len(request.persistent)


#: A ping as a whole frame.
PING_FRAME: Final = REQUEST_HEAD.pack(REQUEST_HEADER_BYTES, XID_PING, OpCode.PING)
