"""The bytes of a snapshot file. Pure.

    file   = magic, header frame, chunk frame, … , footer frame
    frame  = length u32, CRC32 u32, body
    bodies = msgpack [0, format version, log index, term, stamp, cluster id, configuration payload]
             msgpack [1, values]                               (what the values mean is quorum.core's
             business) msgpack [2, number of chunks, bytes before the footer, BLAKE2b-128 of those bytes]

The CRC of a frame is seeded with its offset, so that frames which changed places are noticed at once. A file
without its footer, or with anything after it, is damaged. Integers of frames are little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from hashlib import blake2b
from typing import NamedTuple
from zlib import crc32

import msgpack

from quorum.errors import DataDamagedError, DataDirError
from quorum.platform.runtime import File

FORMAT_VERSION = 1
MAGIC = b"QSNAP\r\n\x1a"
_FRAME = struct.Struct("<II")
_DIGEST_BYTES = 16
_HEADER, _CHUNK, _FOOTER = range(3)
#: What is read from the file at once, at least.
_BLOCK_BYTES = 1024 * 1024

Values = list[object]


class SnapshotDamagedError(DataDamagedError):
    """A snapshot file that is not what was written; names the file and the offset."""


class SnapshotVersionError(DataDirError):
    """A snapshot file that another version wrote, whole as far as this one can see; it stays as it is."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path} cannot be read: {problem}", "start the version that wrote it")


class SnapshotHeader(NamedTuple):
    """What a snapshot says about itself.

    Attributes:
        log_index: the last entry that it covers.
        term: of that entry.
        stamp_ms: of that entry.
        cluster_id: 32 hex digits.
        configuration_payload: the configuration as of log_index.
    """

    log_index: int
    term: int
    stamp_ms: int
    cluster_id: str
    configuration_payload: bytes


def pack_chunk(values: Values) -> bytes:
    """Return the body of a chunk."""
    return bytes(msgpack.packb([_CHUNK, values], use_bin_type=True))


class SnapshotEncoder:
    """Turns bodies into the bytes of one file, in order."""

    def __init__(self) -> None:
        #: bytes handed out so far
        self.size = 0
        self._chunks = 0
        self._digest = blake2b(digest_size=_DIGEST_BYTES)

    def begin(self, header: SnapshotHeader) -> list[bytes]:
        """Return the beginning of the file."""
        self._count(MAGIC)
        body = msgpack.packb([_HEADER, FORMAT_VERSION, *header], use_bin_type=True)
        return [MAGIC, *self._frame(body)]

    def chunk(self, body: bytes) -> list[bytes]:
        """Return the frame around a body of `pack_chunk`."""
        self._chunks += 1
        return self._frame(body)

    def end(self) -> list[bytes]:
        """Return the footer."""
        body = msgpack.packb([_FOOTER, self._chunks, self.size, self._digest.digest()], use_bin_type=True)
        return self._frame(body)

    def _frame(self, body: bytes) -> list[bytes]:
        head = _FRAME.pack(len(body), _frame_crc(body, self.size))
        self._count(head)
        self._count(body)
        return [head, body]

    def _count(self, data: bytes) -> None:
        self.size += len(data)
        self._digest.update(data)


def _frame_crc(body: bytes, offset: int) -> int:
    return crc32(body, crc32(offset.to_bytes(8, "little")))


class SnapshotReader:
    """Reads one snapshot file, every byte through its CRC and the digest.

    Attributes:
        header: read and checked by the constructor.
    """

    def __init__(self, file: File) -> None:
        """Read the header.

        Args:
            file: open; stays the caller's.
        """
        self._file = file
        self._size = file.size()
        self._digest = blake2b(digest_size=_DIGEST_BYTES)
        self._offset = 0
        self._block = b""
        self._block_offset = 0
        magic = self._take(len(MAGIC))
        if magic != MAGIC:
            raise self._damaged(0, "this is not a snapshot file")
        self._digest.update(magic)
        self.header = self._read_header()

    @property
    def path(self) -> str:
        """The file's path."""
        return self._file.path

    def bodies(self) -> Iterator[bytes]:
        """Return the bodies of all chunks, in order, each checked; the footer is checked at the end."""
        chunks = 0
        while True:
            start = self._offset
            digest = self._digest.copy()
            body = self._next_frame()
            if body[:2] != _FOOTER_START:
                chunks += 1
                yield body
                continue
            if self._unpack(body, start) != [_FOOTER, chunks, start, digest.digest()]:
                raise self._damaged(start, "the footer does not fit the file")
            if self._offset != self._size:
                raise self._damaged(self._offset, "there are bytes after the footer")
            return

    def chunks(self) -> Iterator[Values]:
        """Return the values of all chunks, in order; see `bodies`."""
        for body in self.bodies():
            match self._unpack(body, self._offset - len(body)):
                case [kind, list(values)] if kind == _CHUNK:
                    yield values
                case _:
                    raise self._damaged(self._offset - len(body), "a chunk has another shape")

    def verify(self) -> None:
        """Read the whole file through its CRCs."""
        for _ in self.bodies():
            pass

    def _read_header(self) -> SnapshotHeader:
        start = self._offset
        values = self._unpack(self._next_frame(), start)
        match values:
            case [kind, int(version), *_] if kind == _HEADER and version != FORMAT_VERSION:
                problem = f"its format version is {version}, this version reads {FORMAT_VERSION}"
                raise SnapshotVersionError(self.path, problem)
            case [kind, _, int(index), int(term), int(stamp_ms), str(cluster), bytes(payload)] if (
                kind == _HEADER
            ):
                return SnapshotHeader(index, term, stamp_ms, cluster, payload)
        raise self._damaged(start, "the header has another shape")

    def _next_frame(self) -> bytes:
        start = self._offset
        head = self._take(_FRAME.size)
        if len(head) < _FRAME.size:
            raise self._damaged(start, "the file ends before its footer")
        length, crc = _FRAME.unpack(head)
        if length > self._size - self._offset:
            raise self._damaged(start, f"a frame of {length} bytes reaches beyond the end of the file")
        body = self._take(length)
        if len(body) < length or crc != _frame_crc(body, start):
            raise self._damaged(start, f"the CRC of a frame of {length} bytes is wrong")
        self._digest.update(head)
        self._digest.update(body)
        return body

    def _take(self, size: int) -> bytes:
        first = self._offset - self._block_offset
        if first + size > len(self._block):
            try:
                self._block = self._file.pread(max(size, _BLOCK_BYTES), self._offset)
            except OSError as error:
                raise self._damaged(self._offset, f"the file cannot be read: {error.strerror}") from error
            self._block_offset = self._offset
            first = 0
        taken = self._block[first : first + size]
        self._offset += len(taken)
        return taken

    def _unpack(self, body: bytes, offset: int) -> object:
        try:
            found: object = msgpack.unpackb(body, raw=False, strict_map_key=False)
        except (ValueError, msgpack.exceptions.UnpackException) as error:
            raise self._damaged(offset, f"a frame is not msgpack: {error}") from error
        return found

    def _damaged(self, offset: int, problem: str) -> SnapshotDamagedError:
        return SnapshotDamagedError(self._file.path, offset, problem, REMEDY)


#: How the body of a footer begins: a list of four whose first value is the footer's kind.
_FOOTER_START = bytes([0x94, _FOOTER])
#: What to do about a snapshot that cannot be used.
REMEDY = (
    "the node uses the snapshot before it if that and the journal reach far enough; otherwise run `quorate "
    "members replace` for this node and start it with `quorate serve --join` on an empty data directory"
)
