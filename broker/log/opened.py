"""The records of one batch, one by one: for what needs their keys, and for batches that records have left.

In a compacted log a batch keeps its offsets when records go: their deltas rise, but no longer by one.
Source: Kafka protocol guide, "Record".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.log.batches import BatchHeader, Buffer
from broker.log.errors import UnreadableBatchError
from broker.log.unfolding import UNFOLDED_BYTES_MAX, MalformedError, unfolded

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
        found = list(_records(bytes(records[begin:end]), header.records_count))
    except (MalformedError, MemoryError, OSError, IndexError) as error:
        raise UnreadableBatchError(
            f"the records of the batch at offset {header.base_offset} cannot be opened: {error}"
        ) from error
    return found


def _records(content: bytes, count: int) -> Iterator[StoredRecord]:
    position, before = 0, -1
    for _ in range(count):
        start = position
        size, position = _number(content, start)
        end = position + size
        # One byte of attributes comes first.
        timestamp_delta, rest = _number(content, position + 1)
        offset_delta, position = _number(content, rest)
        key_bytes, position = _number(content, position)
        behind_key = position + max(key_bytes, 0)
        value_bytes, behind = _number(content, behind_key)
        if not before < offset_delta or size < 0 or behind > end or end > len(content):
            raise MalformedError(f"record {offset_delta} behind {before}, {size} bytes at byte {start}")
        before, position = offset_delta, end
        key = content[behind_key - key_bytes : behind_key] if key_bytes >= 0 else None
        whole = content[start:end]
        yield StoredRecord(offset_delta, timestamp_delta, key, value_bytes >= 0, whole, rest - start)
    if position != len(content):
        raise MalformedError(f"{len(content) - position} bytes follow the last record")


def _number(content: bytes, position: int) -> tuple[int, int]:
    """Read a zigzag varint; returns it and the position behind it."""
    value = 0
    for shift in range(0, 7 * _NUMBER_BYTES_MAX, 7):
        byte = content[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise MalformedError(f"a number has more than {_NUMBER_BYTES_MAX} bytes")
