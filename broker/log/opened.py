"""The records of one batch, one by one: for what needs their keys, and for batches that records have left.

In a compacted log a batch keeps its offsets when records go: their deltas rise, but no longer by one.
Source: Kafka protocol guide, "Record".
"""

from __future__ import annotations

from itertools import repeat
from typing import Final, NamedTuple

from broker.log.batches import BatchHeader, Buffer
from broker.log.errors import UnreadableBatchError
from broker.log.unfolding import UNFOLDED_BYTES_MAX, Bytes, MalformedError, unfolded

_NUMBER_BYTES_MAX: Final = 10


class StoredRecord(NamedTuple):
    """One record, and where it is in the records of its batch."""

    offset_delta: int
    timestamp_delta: int
    #: None: it has none; an empty key is one
    key: bytes | None
    #: None is a tombstone
    has_value: bool
    #: its bytes with their length
    whole: bytes
    #: where the offset's delta begins in them: all from there on is the same whatever its time
    rest: int


def opened(
    header: BatchHeader, batch: Buffer, *, unfolded_bytes_max: int = UNFOLDED_BYTES_MAX
) -> list[StoredRecord]:
    """Return the records of a whole batch; raises UnreadableBatchError."""
    try:
        records, begin, end = unfolded(header, batch, unfolded_bytes_max)
        # What a thread unfolds into is used again.
        found = _records(bytes(records[begin:end]), header.records_count)
    except (MalformedError, MemoryError, OSError, IndexError) as error:
        raise UnreadableBatchError(
            f"the records of the batch at offset {header.base_offset} cannot be opened: {error}"
        ) from error
    return found


def _records(content: bytes, count: int) -> list[StoredRecord]:  # noqa: PLR0912, PLR0915 - numbers are read in place
    found: list[StoredRecord] = []
    position, before = 0, -1
    for _ in repeat(None, count):
        start = position
        # Numbers of one and two bytes are read right here: calls would cost more than all the rest.
        size = content[position]
        if size < 0x80:
            position += 1
        elif (more := content[position + 1]) < 0x80:
            size = size & 0x7F | more << 7
            position += 2
        else:
            size, position = long_number(content, position)
        end = position + (size >> 1)
        # One byte of attributes comes first.
        position += 1
        time = content[position]
        if time < 0x80:
            position += 1
        elif (more := content[position + 1]) < 0x80:
            time = time & 0x7F | more << 7
            position += 2
        else:
            time, position = long_number(content, position)
        rest = position
        offset = content[position]
        if offset < 0x80:
            position += 1
        elif (more := content[position + 1]) < 0x80:
            offset = offset & 0x7F | more << 7
            position += 2
        else:
            offset, position = long_number(content, position)
        length = content[position]
        if length < 0x80:
            position += 1
        elif (more := content[position + 1]) < 0x80:
            length = length & 0x7F | more << 7
            position += 2
        else:
            length, position = long_number(content, position)
        key = None if length & 1 else content[position : (position := position + (length >> 1))]
        length = content[position]
        if length < 0x80:
            position += 1
        elif (more := content[position + 1]) < 0x80:
            length = length & 0x7F | more << 7
            position += 2
        else:
            length, position = long_number(content, position)
        has_value = not length & 1
        behind = position + (length >> 1) if has_value else position
        delta = offset >> 1
        if offset & 1 or delta <= before or size & 1 or behind > end or end > len(content):
            raise MalformedError(f"record {delta} behind {before}, {size >> 1} bytes at byte {start}")
        before, position = delta, end
        time_delta = (time >> 1) ^ -(time & 1)
        found.append(StoredRecord(delta, time_delta, key, has_value, content[start:end], rest - start))
    if position != len(content):
        raise MalformedError(f"{len(content) - position} bytes follow the last record")
    return found


def long_number(content: Bytes, position: int, bytes_max: int = _NUMBER_BYTES_MAX) -> tuple[int, int]:
    """Read a number of any length, still in zigzag; returns it and the position behind it."""
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise MalformedError(f"a number has more than {bytes_max} bytes")
