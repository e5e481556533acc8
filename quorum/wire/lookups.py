"""Requests that only look or watch, apart from the four reads of requests.py: getACL, getEphemerals,
getAllChildrenNumber, whoAmI, multiRead, addWatch, checkWatches, removeWatches.

The server decodes them, the client encodes them; none changes a node. Decoders take the whole received chunk
and the bounds of one body, as in requests.py.
Source: zookeeper.jute, MultiOperationRecord, ZooDefs.AddWatchModes, Watcher.WatcherType (ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from quorum.wire.jute import INT, MULTI_END, MULTI_HEADER, Buffer, JuteReader, string_bytes
from quorum.wire.protocol import OpCode
from quorum.wire.requests import frame

#: modes of addWatch
ADD_PERSISTENT: Final = 0
ADD_RECURSIVE: Final = 1

#: reads of one multiRead: so many keep the loop for some tens of milliseconds
MULTI_READ_READS_MAX: Final = 10_000

_GET_DATA: Final = int(OpCode.GET_DATA)
_GET_CHILDREN: Final = int(OpCode.GET_CHILDREN)


class WatchRequest(NamedTuple):
    """addWatch, checkWatches or removeWatches."""

    path: str
    #: of addWatch the mode, of the others what kinds are meant
    code: int


def decode_nothing(buffer: Buffer, start: int, end: int) -> None:
    """Decode the body of whoAmI, which has none."""


def decode_looked_at(buffer: Buffer, start: int, end: int) -> str:
    """Decode the body of getACL or getAllChildrenNumber: a path."""
    return JuteReader(buffer, start, end, "path request").path("path")


def decode_prefix(buffer: Buffer, start: int, end: int) -> str:
    """Decode the body of getEphemerals; null means all of them, as an empty prefix does."""
    return JuteReader(buffer, start, end, "getEphemerals").path_or_null("prefixPath") or ""


def decode_watch_request(buffer: Buffer, start: int, end: int) -> WatchRequest:
    """Decode the body of addWatch, checkWatches or removeWatches; a null path, where nothing can be watched,
    is read as an empty one."""
    reader = JuteReader(buffer, start, end, "watch request")
    return WatchRequest(reader.path_or_null("path") or "", reader.int32("type"))


def decode_multi_read(buffer: Buffer, start: int, end: int) -> list[tuple[int, str]] | None:
    """Decode the body of multiRead.

    Returns:
        (getData or getChildren, path) in order, or None if it holds anything else. The watches that such
        a read may ask for are never armed, as in ZooKeeper. What follows one read more than
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


def encode_looked_at(xid: int, op: int, path: str) -> bytes:
    """Encode getACL, getAllChildrenNumber or getEphemerals as a whole frame, with its length."""
    return frame(xid, op, string_bytes(path))


def encode_who_am_i(xid: int) -> bytes:
    """Encode whoAmI as a whole frame, with its length."""
    return frame(xid, OpCode.WHO_AM_I, b"")


def encode_watch_request(xid: int, op: int, path: str, code: int) -> bytes:
    """Encode addWatch, checkWatches or removeWatches as a whole frame, with its length."""
    return frame(xid, op, string_bytes(path) + INT.pack(code))


def encode_multi_read(xid: int, reads: Sequence[tuple[int, str]]) -> bytes:
    """Encode multiRead as a whole frame, with its length.

    Args:
        xid: of the request.
        reads: (getData or getChildren, path) in order.
    """
    parts = [MULTI_HEADER.pack(op, False, -1) + string_bytes(path) + b"\0" for op, path in reads]
    return frame(xid, OpCode.MULTI_READ, b"".join((*parts, MULTI_END)))
