"""Which batch has the first record at or after a time, and which has the newest.

The time index leads to a batch, and headers lead further: what is found is opened by the caller, in a thread.
A walk over headers ends after some of them and says where it goes on, since nothing bounds how far the next
time lies behind an entry of the index.
Source: Kafka's LogSegment.findOffsetByTimestamp (3.9), KIP-734.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

from broker.log.batches import NO_TIMESTAMP, BatchHeader
from broker.log.segment import Segment

#: headers that one call reads
HEADERS_MAX: Final = 1000


class TimedBatch(NamedTuple):
    """A batch that may have the record, to be opened."""

    header: BatchHeader
    content: bytes


def batch_at_or_after(
    segments: Sequence[Segment], timestamp_ms: int, from_offset: int
) -> TimedBatch | int | None:
    """Find the first batch from an offset on whose largest timestamp is at least this one.

    Returns:
        The batch; the offset at which to go on; or None: there is none.
    """
    left = HEADERS_MAX
    for segment in segments:
        if segment.max_timestamp < timestamp_ms or segment.next_offset <= from_offset:
            continue
        entry = segment.times.floor(0, timestamp_ms)
        relative = segment.times[entry][1] if entry >= 0 else 0
        start = segment.position_of(max(segment.base_offset + relative, from_offset))
        for position, header in segment.walk(start or 0):
            if header.max_timestamp >= timestamp_ms and header.last_offset >= from_offset:
                return TimedBatch(header, segment.read(position, header.size))
            left -= 1
            if not left:
                return header.last_offset + 1
    return None


def newest_batch(segments: Sequence[Segment], from_offset: int) -> TimedBatch | None:
    """Find the first batch, of those that end at an offset or behind it, with the largest timestamp.

    None if none has a time.
    """
    newest_ms, found = NO_TIMESTAMP, None
    batches: Iterator[tuple[int, BatchHeader]]
    for segment in segments:
        if segment.max_timestamp <= newest_ms or segment.next_offset <= from_offset:
            continue
        if segment.max_timestamp_offset >= from_offset:
            start = segment.position_of(segment.max_timestamp_offset)
            batches = iter(()) if start is None else islice(segment.walk(start), 1)
        else:
            # Its newest batch was deleted.
            batches = segment.walk(segment.position_of(from_offset) or 0)
        for position, header in batches:
            if header.max_timestamp > newest_ms:
                newest_ms, found = header.max_timestamp, (segment, position, header)
    if found is None:
        return None
    segment, position, header = found
    return TimedBatch(header, segment.read(position, header.size))
