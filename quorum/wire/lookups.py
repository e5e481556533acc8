"""Requests that only look or watch, beside the four reads of requests.py: getACL, getEphemerals,
getAllChildrenNumber, whoAmI, multiRead, addWatch, checkWatches, removeWatches, setWatches2.

The server decodes them, the client encodes them; none changes a node. Decoders take the whole received chunk
and the bounds of one body, as in requests.py.
Source: zookeeper.jute, MultiOperationRecord, ZooDefs.AddWatchModes, Watcher.WatcherType (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from quorum.core.codes import INT32_MAX
from quorum.wire.jute import INT, LONG, Buffer, JuteReader, string_bytes, strings_bytes
from quorum.wire.protocol import XID_SET_WATCHES, OpCode
from quorum.wire.requests import REQUEST_HEAD, REQUEST_HEADER_BYTES, SetWatches, read_paths

#: modes of addWatch
ADD_PERSISTENT: Final = 0
ADD_RECURSIVE: Final = 1

#: reads of one multiRead: so many keep the loop for some tens of milliseconds
MULTI_READ_READS_MAX: Final = 10_000

_MULTI_HEADER: Final = Struct(">i?i")
_MULTI_END: Final = _MULTI_HEADER.pack(-1, True, -1)
_GET_DATA: Final = int(OpCode.GET_DATA)
_GET_CHILDREN: Final = int(OpCode.GET_CHILDREN)


class WatchRequest(NamedTuple):
    """addWatch, checkWatches or removeWatches."""

    path: str
    #: of addWatch the mode, of the others what kinds are meant
    code: int


class SetWatches2(NamedTuple):
    """What a client had armed before it reconnected, with the persistent watches."""

    relative_zxid: int
    data: list[str]
    exist: list[str]
    child: list[str]
    persistent: list[str]
    recursive: list[str]


def decode_nothing(buffer: Buffer, start: int, end: int) -> None:
    """Decode the body of whoAmI, which has none."""


def decode_looked_at(buffer: Buffer, start: int, end: int) -> str:
    """Decode the body of getACL or getAllChildrenNumber: a path.

    Raises:
        WireError: it cannot be decoded; the same holds for every decoder below.
    """
    return JuteReader(buffer, start, end, "path request").path("path")


def decode_prefix(buffer: Buffer, start: int, end: int) -> str:
    """Decode the body of getEphemerals; null stands for all of them, as an empty prefix does."""
    return JuteReader(buffer, start, end, "getEphemerals").path_or_null("prefixPath") or ""


def decode_watch_request(buffer: Buffer, start: int, end: int) -> WatchRequest:
    """Decode the body of addWatch, checkWatches or removeWatches; a null path, where nothing can be watched,
    stands for an empty one."""
    reader = JuteReader(buffer, start, end, "watch request")
    return WatchRequest(reader.path_or_null("path") or "", reader.int32("type"))


def decode_set_watches2(buffer: Buffer, start: int, end: int, paths_max: int = INT32_MAX) -> SetWatches2:
    """Decode the body of setWatches2, which may name so many paths; see `decode_set_watches`."""
    reader = JuteReader(buffer, start, end, "setWatches2")
    relative_zxid = reader.int64("relativeZxid")
    persistent = ("persistentWatches", "persistentRecursiveWatches")
    fields = ("dataWatches", "existWatches", "childWatches", *persistent)
    return SetWatches2(relative_zxid, *read_paths(reader, fields, paths_max))


def decode_multi_read(buffer: Buffer, start: int, end: int) -> list[tuple[int, str]] | None:
    """Decode the body of multiRead.

    Returns:
        (getData or getChildren, path) in order, or None if anything else stands in it. The watches that such
        a read may ask for are never armed, as in ZooKeeper. What comes behind one read more than
        MULTI_READ_READS_MAX is not looked at: the request is refused then.
    """
    reader = JuteReader(buffer, start, end, "multiRead")
    reads: list[tuple[int, str]] = []
    while True:
        op = reader.int32("type")
        done = reader.boolean("done")
        reader.int32("err")
        if done:
            return reads
        if op not in (_GET_DATA, _GET_CHILDREN):
            return None
        reads.append((op, reader.path("path")))
        reader.boolean("watch")
        if len(reads) > MULTI_READ_READS_MAX:
            return reads


def _frame(xid: int, op: int, body: bytes) -> bytes:
    return REQUEST_HEAD.pack(len(body) + REQUEST_HEADER_BYTES, xid, op) + body


def encode_looked_at(xid: int, op: int, path: str) -> bytes:
    """Encode getACL, getAllChildrenNumber or getEphemerals as a whole frame, with its length."""
    return _frame(xid, op, string_bytes(path))


def encode_who_am_i(xid: int) -> bytes:
    """Encode whoAmI as a whole frame, with its length."""
    return _frame(xid, OpCode.WHO_AM_I, b"")


def encode_watch_request(xid: int, op: int, path: str, code: int) -> bytes:
    """Encode addWatch, checkWatches or removeWatches as a whole frame, with its length."""
    return _frame(xid, op, string_bytes(path) + INT.pack(code))


def encode_multi_read(xid: int, reads: Sequence[tuple[int, str]]) -> bytes:
    """Encode multiRead as a whole frame, with its length.

    Args:
        xid: of the request.
        reads: (getData or getChildren, path) in order.
    """
    parts = [_MULTI_HEADER.pack(op, False, -1) + string_bytes(path) + b"\0" for op, path in reads]
    return _frame(xid, OpCode.MULTI_READ, b"".join((*parts, _MULTI_END)))


def encode_set_watches2(request: SetWatches2, xid: int = XID_SET_WATCHES) -> bytes:
    """Encode setWatches2 as a whole frame, with its length."""
    body = b"".join((LONG.pack(request.relative_zxid), *map(strings_bytes, request[1:])))
    return _frame(xid, OpCode.SET_WATCHES2, body)


def watches_of(request: SetWatches | SetWatches2) -> int:
    """Return how many watches a setWatches of either kind asks for; a persistent one counts as two."""
    persistent = len(request.persistent) if isinstance(request, SetWatches2) else 0
    return sum(map(len, request[1:])) + persistent
