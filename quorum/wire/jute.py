"""Jute's primitives: what every ZooKeeper record is made of, and a cursor that reads them strictly.

Knows no record, but how long a path may be. A null buffer is None; a null string is refused, because nothing
that takes one can do without. Bytes that are not UTF-8 become U+FFFD, as in Java, which no path may contain.
What follows a record is ignored, as ZooKeeper does. Source: BinaryInputArchive, BinaryOutputArchive
(ZooKeeper 3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from struct import Struct
from typing import Final, NamedTuple

from quorum.core.paths import excess_of
from quorum.wire.errors import PathTooLongError, WireError

#: What is decoded: a whole frame, or a larger buffer of which the frame is a part.
Buffer = bytes | memoryview

INT: Final = Struct(">i")
LONG: Final = Struct(">q")
BOOLEAN: Final = Struct(">?")
STAT: Final = Struct(">qqqqiiiqiiq")
STAT_BYTES: Final = 68
#: What precedes each operation of a multi, and follows the last one.
MULTI_HEADER: Final = Struct(">i?i")
MULTI_END: Final = MULTI_HEADER.pack(-1, True, -1)

#: The length of a short text, as text.
_SHORT_HEADS: Final = ["\0\0\0" + chr(length) for length in range(128)]

#: One entry of an access list: [permission bits, scheme, id].
AclEntry = list[int | str]
Acl = list[AclEntry]


class Stat(NamedTuple):
    """What ZooKeeper tells about a node besides its data, in the order of the wire."""

    czxid: int
    mzxid: int
    #: Milliseconds since 1970, as the leader stamped the transactions.
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    #: Session that owns the node, or 0.
    ephemeral_owner: int
    data_length: int
    children_count: int
    pzxid: int


class JuteReader:
    """A cursor over one record; every method names its field so that an error can."""

    __slots__ = ("_buffer", "_end", "position", "record")

    def __init__(self, buffer: Buffer, start: int, end: int, record: str) -> None:
        """Stand at the record's first byte.

        Args:
            buffer: holds the frame.
            start: first byte of the record.
            end: first byte after the frame.
            record: name for errors.
        """
        self._buffer = buffer
        self._end = end
        self.position = start
        self.record = record

    @property
    def remaining(self) -> int:
        """Bytes up to the end of the frame."""
        return self._end - self.position

    def _fixed(self, layout: Struct, field: str) -> int:
        position = self.position
        after = position + layout.size
        if after > self._end:
            raise WireError(
                f"{self.record}.{field}",
                bytes(self._buffer[position : self._end]),
                f"{layout.size} bytes were expected, the frame ends after {max(self._end - position, 0)}",
            )
        self.position = after
        value: int = layout.unpack_from(self._buffer, position)[0]
        return value

    def struct(self, layout: Struct, field: str) -> tuple[int, ...]:
        """Read several numbers of fixed size."""
        position = self.position
        self._fixed(layout, field)
        return layout.unpack_from(self._buffer, position)

    def int32(self, field: str) -> int:
        """Read a signed 32-bit number."""
        return self._fixed(INT, field)

    def int64(self, field: str) -> int:
        """Read a signed 64-bit number."""
        return self._fixed(LONG, field)

    def boolean(self, field: str) -> bool:
        """Read a byte; anything but 0 is true."""
        return bool(self._fixed(BOOLEAN, field))

    def buffer(self, field: str) -> bytes | None:
        """Read bytes with their length; length -1 is None."""
        length = self._fixed(INT, field)
        if length == -1:
            return None
        position = self.position
        after = position + length
        if length < 0 or after > self._end:
            raise WireError(
                f"{self.record}.{field}", length, f"a length from -1 to {self._end - position} was expected"
            )
        self.position = after
        return bytes(self._buffer[position:after])

    def string(self, field: str) -> str:
        """Read text."""
        raw = self.buffer(field)
        if raw is None:
            raise WireError(f"{self.record}.{field}", None, "a string was expected")
        return raw.decode("utf-8", "replace")

    def text_or_null(self, field: str) -> str | None:
        """Read text; null is None."""
        raw = self.buffer(field)
        return None if raw is None else raw.decode("utf-8", "replace")

    def path_or_null(self, field: str) -> str | None:
        """Read a path of a node, valid or not; null is None."""
        raw = self.buffer(field)
        if raw is None:
            return None
        path = raw.decode("utf-8", "replace")
        excess = excess_of(path, len(raw))
        if excess:
            raise PathTooLongError(f"{self.record}.{field}", excess)
        return path

    def path(self, field: str) -> str:
        """Read a path of a node; see `path_or_null`."""
        path = self.path_or_null(field)
        if path is None:
            raise WireError(f"{self.record}.{field}", None, "a string was expected")
        return path

    def count(self, field: str, element_bytes_min: int) -> int:
        """Read the length of a vector; null is 0."""
        count = self._fixed(INT, field)
        elements_max = self.remaining // element_bytes_min
        if count < -1 or count > elements_max:
            raise WireError(
                f"{self.record}.{field}", count, f"a count from -1 to {elements_max} was expected"
            )
        return max(count, 0)

    def strings(self, field: str) -> list[str]:
        """Read a vector of strings."""
        return [self.string(field) for _ in range(self.count(field, 4))]

    def acl(self, field: str) -> Acl:
        """Read a vector of access list entries.

        An id may be null, as kazoo sends the empty one of "auth". A null scheme is read as an empty one,
        which no list may hold either: it is refused as an access list, as in ZooKeeper, and not as a record.
        """
        return self.acl_entries(field, self.count(field, 12))

    def acl_entries(self, field: str, count: int) -> Acl:
        """Read the entries of an access list after their count."""
        entries: Acl = []
        for _ in range(count):
            permissions = self.int32(f"{field}.perms")
            scheme = self.text_or_null(f"{field}.scheme") or ""
            identity = self.buffer(f"{field}.id") or b""
            entries.append([permissions, scheme, identity.decode("utf-8", "replace")])
        return entries

    def stat(self, field: str) -> Stat:
        """Read a Stat."""
        position = self.position
        if position + STAT_BYTES > self._end:
            raise WireError(
                f"{self.record}.{field}",
                bytes(self._buffer[position : self._end]),
                f"a Stat has {STAT_BYTES} bytes, the frame ends after {self._end - position}",
            )
        self.position = position + STAT_BYTES
        return Stat._make(STAT.unpack_from(self._buffer, position))


def buffer_bytes(value: bytes | None) -> bytes:
    """Encode bytes with their length, None as null."""
    return b"\xff\xff\xff\xff" if value is None else INT.pack(len(value)) + value


def string_bytes(text: str) -> bytes:
    """Encode text as UTF-8 with its length."""
    try:
        raw = text.encode()
    except UnicodeEncodeError as error:
        raise WireError("string", text, "it cannot be encoded as UTF-8") from error
    return INT.pack(len(raw)) + raw


def strings_bytes(texts: Sequence[str]) -> bytes:
    """Encode a vector of strings."""
    with suppress(IndexError):
        # The names of a large node are short and plain: a third of the time.
        pieces = [""] * (2 * len(texts))
        pieces[::2] = map(_SHORT_HEADS.__getitem__, map(len, texts))
        pieces[1::2] = texts
        text = "".join(pieces)
        if text.isascii():
            return INT.pack(len(texts)) + text.encode()
    parts = [INT.pack(len(texts))]
    parts += [string_bytes(text) for text in texts]
    return b"".join(parts)


def acl_bytes(entries: Sequence[Sequence[int | str]]) -> bytes:
    """Encode an access list."""
    parts = [INT.pack(len(entries))]
    for permissions, scheme, identity in entries:
        parts += (INT.pack(permissions), string_bytes(str(scheme)), string_bytes(str(identity)))
    return b"".join(parts)
