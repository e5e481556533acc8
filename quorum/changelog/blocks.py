"""Blocks of the change log: what one log entry changed, as the files hold it.

A block is a header (magic, CRC-32 of all after it, length of the body, first and last zxid, the entry's
stamp) and a msgpack body [term, controller epoch before the entry, cluster id, trace]. It holds the state's
own packed records, because packing those costs the write path least; the header, whose checksum reads all of
the body, is made where the block is written. rows.py makes of a block what readers get. A block without
transactions (first zxid above the last) says that zxids jumped. Knows nothing of files' names or of readers.
Pure.

Source: quorum.core.tree, `Traced`; docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final, NamedTuple, Protocol
from zlib import crc32

import msgpack

from quorum.core.tree import Traced

HEADER: Final = Struct(">4sIIqqq")
#: the last byte is the number of the format
MAGIC: Final = b"QCL1"
#: largest body; an entry and the images of what it replaced are far below
BODY_BYTES_MAX: Final = 1 << 31
#: what is read from a file at once
READ_BYTES_MAX: Final = 256 * 1024
#: the header's two parts; the checksum is of all after the first
_UNCHECKED: Final = Struct(">4sI")
_CHECKED: Final = Struct(">Iqqq")
_CHECKED_FROM: Final = _UNCHECKED.size


class Block(NamedTuple):
    """The transactions of one entry.

    Attributes:
        first_zxid: inclusive; where earlier ones jumped ahead, the first after the jump.
        last_zxid: inclusive.
        stamp_ms: the entry's wall clock.
        body: packed; see BlockBody.
    """

    first_zxid: int
    last_zxid: int
    stamp_ms: int
    body: bytes

    @property
    def size(self) -> int:
        """Bytes of header and body."""
        return HEADER.size + len(self.body)

    def header(self) -> bytes:
        """Return the header, with the checksum that it takes."""
        checked = _CHECKED.pack(len(self.body), self.first_zxid, self.last_zxid, self.stamp_ms)
        return _UNCHECKED.pack(MAGIC, crc32(self.body, crc32(checked))) + checked


class BlockBody(NamedTuple):
    """What a block's body says.

    Attributes:
        term: of the entry.
        controller_epoch: the value of /controller_epoch before the entry, 0 where there is none.
        cluster_id: as of the entry.
        trace: what happened, in order.
    """

    term: int
    controller_epoch: int
    cluster_id: str
    trace: Sequence[Traced]


class Readable(Protocol):
    """The part of a file that reading needs."""

    def pread(self, size: int, offset: int) -> bytes:
        """Return up to `size` bytes from `offset`; fewer only at the end of the file."""


def body_of(block: Block) -> BlockBody:
    """Decode a block's body."""
    return BlockBody(*msgpack.unpackb(block.body, raw=False, use_list=False))


def format_at(file: Readable, offset: int) -> int | None:
    """Return the format of the block that begins at an offset, whole or not; None where none begins."""
    magic = file.pread(len(MAGIC), offset)
    return int(magic[3:]) if magic[:3] == MAGIC[:3] and magic[3:].isdigit() else None


def scan(file: Readable, offset: int, end: int) -> Iterator[tuple[int, Block]]:
    """Read the blocks of a file, each checked; ends at the first that is not whole.

    Args:
        file: what to read.
        offset: where a block begins.
        end: what follows does not count.

    Yields:
        (where it begins, block).
    """
    buffer = memoryview(b"")
    buffer_offset = offset
    while offset + HEADER.size <= end:
        begin = offset - buffer_offset
        if len(buffer) - begin < HEADER.size:
            buffer, buffer_offset, begin = _read(file, offset, end, READ_BYTES_MAX), offset, 0
            if len(buffer) < HEADER.size:
                return
        magic, crc, length, first_zxid, last_zxid, stamp_ms = HEADER.unpack_from(buffer, begin)
        size = HEADER.size + length
        if magic != MAGIC or length > BODY_BYTES_MAX or offset + size > end:
            return
        if len(buffer) - begin < size:
            wanted = max(size, READ_BYTES_MAX)
            buffer, buffer_offset, begin = _read(file, offset, end, wanted), offset, 0
        checked = buffer[begin + _CHECKED_FROM : begin + size]
        if len(checked) < size - _CHECKED_FROM or crc32(checked) != crc:
            return
        body = bytes(checked[HEADER.size - _CHECKED_FROM :])
        yield offset, Block(first_zxid, last_zxid, stamp_ms, body)
        offset += size


def _read(file: Readable, offset: int, end: int, size: int) -> memoryview:
    return memoryview(file.pread(min(size, end - offset), offset))
