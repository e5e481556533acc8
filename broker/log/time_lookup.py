"""Which record is the first at or after a time, and which is the newest.

The time index leads to a batch, headers lead further, and one batch is opened.
Source: Kafka's LogSegment.findOffsetByTimestamp (3.9), KIP-734.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.batches import BatchHeader
from broker.log.records import record_times
from broker.log.segment import Segment


def first_at_or_after(segments: Sequence[Segment], timestamp_ms: int) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record, by offset, whose timestamp is at least this one."""
    for segment in segments:
        if segment.max_timestamp < timestamp_ms:
            continue
        entry = segment.times.floor(0, timestamp_ms)
        relative = segment.times[entry][1] if entry >= 0 else 0
        start = segment.position_of(segment.base_offset + relative)
        for position, header in segment.walk(start or 0):
            if header.max_timestamp >= timestamp_ms:
                for found in _times(segment, position, header):
                    if found[0] >= timestamp_ms:
                        return found
    return None


def newest(segments: Sequence[Segment]) -> tuple[int, int] | None:
    """Return (timestamp, offset) of the first record with the largest timestamp; None if none has a time."""
    segment = max(segments, key=lambda each: each.max_timestamp)
    start = segment.position_of(segment.max_timestamp_offset)
    if segment.max_timestamp < 0 or start is None:
        return None
    _, header = next(segment.walk(start))
    times = _times(segment, start, header)
    # A producer may have written a larger time into the header than any of its records has.
    return max(times, key=lambda found: found[0], default=None)


def _times(segment: Segment, position: int, header: BatchHeader) -> list[tuple[int, int]]:
    return list(record_times(header, segment.read(position, header.size)))
