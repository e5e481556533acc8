"""The records inside of one batch: their timestamps and offsets, for a look-up by time.

The only place that opens what a producer closed. Decompression is bounded: a small batch may unfold to a
thousand times its size. Snappy comes in two forms: bare, and in the frames of the Java client's library.
Source: Kafka protocol guide, "Record"; xerial snappy-java, SnappyOutputStream (framing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

import cramjam

from broker.log.batches import CODEC_MASK, HEADER, LOG_APPEND_TIME, BatchHeader
from broker.log.errors import UnreadableBatchError

#: the most that one batch may unfold to
UNFOLDED_BYTES_MAX: Final = 256 * 1024 * 1024
_FIRST_GUESS: Final = 16
_GUESS_BYTES_MIN: Final = 64 * 1024
_VARINT_BYTES_MAX: Final = 10

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: magic, version, oldest compatible version; blocks with an int32 length follow
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = Struct(">i")

_INTO: Final[dict[int, Callable[[bytes, bytearray], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}


def record_times(header: BatchHeader, batch: bytes) -> Iterator[tuple[int, int]]:
    """Yield (timestamp, offset) of each record of a batch.

    Args:
        header: the batch's.
        batch: the whole batch.

    Raises:
        UnreadableBatchError: the records are not what the header says.
    """
    records = _unfolded(header, batch[HEADER.size :])
    position = 0
    for _ in range(header.records_count):
        length, position = _varint(header, records, position)
        end = position + length
        if length < 0 or end > len(records):
            raise _unreadable(header, "a record is longer than the batch")
        # One byte of attributes comes first.
        timestamp_delta, after = _varint(header, records, position + 1)
        offset_delta, _ = _varint(header, records, after)
        timestamp = (
            header.max_timestamp
            if header.attributes & LOG_APPEND_TIME
            else header.base_timestamp + timestamp_delta
        )
        yield timestamp, header.base_offset + offset_delta
        position = end


def _varint(header: BatchHeader, records: bytes | bytearray, position: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and the position behind it."""
    value = 0
    for shift, byte in enumerate(records[position : position + _VARINT_BYTES_MAX]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + shift + 1
    raise _unreadable(header, "a record ends inside of a number")


def _unfolded(header: BatchHeader, content: bytes) -> bytes | bytearray:
    codec = header.attributes & CODEC_MASK
    try:
        if codec == 0:
            return content
        if codec == 2:
            return _snappy(header, content)
        return _grown(content, _INTO[codec])
    except (cramjam.DecompressionError, KeyError) as error:
        raise _unreadable(header, f"compression type {codec}: {error}") from error


def _grown(content: bytes, into: Callable[[bytes, bytearray], int]) -> bytearray:
    """Decompress into a buffer that grows until it is large enough; untouched pages of it cost nothing."""
    size = max(_GUESS_BYTES_MIN, len(content) * _FIRST_GUESS)
    while True:
        room = bytearray(min(size, UNFOLDED_BYTES_MAX))
        try:
            unfolded = into(content, room)
        except cramjam.DecompressionError:
            # It does not say whether the room was too small: the largest room decides.
            if len(room) == UNFOLDED_BYTES_MAX:
                raise
            size *= _FIRST_GUESS
            continue
        del room[unfolded:]
        return room


def _snappy(header: BatchHeader, content: bytes) -> bytes:
    if not content.startswith(_XERIAL_MAGIC):
        return _snappy_block(header, content, 0)
    blocks: list[bytes] = []
    position, have = _XERIAL_HEADER_BYTES, 0
    while position < len(content):
        if position + _BLOCK_LENGTH.size > len(content):
            raise _unreadable(header, "a snappy frame is cut")
        (length,) = _BLOCK_LENGTH.unpack_from(content, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(content) - position:
            raise _unreadable(header, "a snappy frame is cut")
        blocks.append(_snappy_block(header, content[position : position + length], have))
        have += len(blocks[-1])
        position += length
    return b"".join(blocks)


def _snappy_block(header: BatchHeader, block: bytes, have: int) -> bytes:
    if have + cramjam.snappy.decompress_raw_len(block) > UNFOLDED_BYTES_MAX:
        raise _unreadable(header, f"more than {UNFOLDED_BYTES_MAX} bytes")
    return bytes(cramjam.snappy.decompress_raw(block))


def _unreadable(header: BatchHeader, problem: str) -> UnreadableBatchError:
    return UnreadableBatchError(
        f"the records of the batch at offset {header.base_offset} cannot be opened: {problem}"
    )
