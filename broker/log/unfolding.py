"""Unfolds the records of a batch, whatever their codec, within a bound.

A small batch may unfold to a thousand times its size. Snappy comes in two forms: bare, and in the frames of
the Java client's library.
Source: Kafka protocol guide, "Record Batch"; xerial snappy-java, SnappyOutputStream.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from mmap import mmap
from struct import Struct
from typing import Final

import cramjam

from broker.log.batches import CODEC_MASK, HEADER, BatchHeader, Buffer

#: the most that one batch may unfold to
UNFOLDED_BYTES_MAX: Final = 256 * 1024 * 1024
#: what each thread that unfolds keeps, and how much larger the next room is where that does not suffice
_ROOM_BYTES: Final = 2 * 1024 * 1024
_GROWTH: Final = 4
_own = threading.local()
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: magic, version, oldest compatible version; blocks with an int32 length follow
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = Struct(">i")

#: what is read byte by byte: quicker than a view of it
Bytes = bytes | memoryview | mmap

_INTO: Final[dict[int, Callable[[Buffer, Buffer], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}


class MalformedError(Exception):
    """What is wrong with the records of a batch."""


def unfolded(header: BatchHeader, batch: Buffer, bytes_max: int) -> tuple[Bytes, int, int]:
    """Return where the records of a batch are: in which bytes, from where on and up to where."""
    codec = header.attributes & CODEC_MASK
    if codec == 0:
        return batch, HEADER.size, len(batch)
    content = memoryview(batch)[HEADER.size :]
    try:
        if codec == 2:
            records = _snappy(content, bytes_max)
            return records, 0, len(records)
        return _grown(content, bytes_max, _INTO[codec])
    except (cramjam.DecompressionError, KeyError) as error:
        raise MalformedError(f"compression type {codec}, at most {bytes_max} bytes: {error}") from error


def _grown(
    content: memoryview, bytes_max: int, into: Callable[[Buffer, Buffer], int]
) -> tuple[mmap, int, int]:
    """Decompress into the thread's own room, or into one that grows until it is large enough."""
    room: mmap | None = getattr(_own, "room", None)
    if room is None:
        # New memory costs more than what is done in it, so it is kept; a bytearray would be zeroed, meanwhile
        # no other thread runs.
        room = _own.room = mmap(-1, _ROOM_BYTES)
    size = min(_ROOM_BYTES, bytes_max)
    while True:
        try:
            unfolded = into(content, memoryview(room)[:size])
        except cramjam.DecompressionError:
            # It does not say whether the room was too small: the largest room decides.
            if size == bytes_max:
                raise
            size = min(size * _GROWTH, bytes_max)
            room = mmap(-1, size)
            continue
        return room, 0, unfolded


def _snappy(content: memoryview, bytes_max: int) -> bytes:
    if bytes(content[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        return _snappy_block(content, bytes_max)
    blocks: list[bytes] = []
    position, have = _XERIAL_HEADER_BYTES, 0
    while position < len(content):
        if position + _BLOCK_LENGTH.size > len(content):
            raise MalformedError("a snappy frame is cut")
        (length,) = _BLOCK_LENGTH.unpack_from(content, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(content) - position:
            raise MalformedError("a snappy frame is cut")
        blocks.append(_snappy_block(content[position : position + length], bytes_max - have))
        have += len(blocks[-1])
        position += length
    return b"".join(blocks)


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise MalformedError("the records unfold to more than is allowed")
    return bytes(cramjam.snappy.decompress_raw(block))
