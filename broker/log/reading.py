"""Reading whole batches from the segments of a log, in the event loop or in a thread.

Source: Kafka's LogSegment.read (3.9).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.log.errors import DamagedSegmentError
from broker.log.results import Read
from broker.log.segment import Segment


def segment_of(segments: Sequence[Segment], offset: int) -> Segment:
    """Return the segment that holds an offset of a log."""
    low, high = 0, len(segments)
    if offset >= segments[high - 1].base_offset:
        return segments[high - 1]
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if segments[middle].base_offset <= offset else (low, middle)
    return segments[low]


def read_segment(
    segment: Segment, offset: int, max_bytes: int, below: int, *, at_least_one: bool, wait: bool
) -> Read:
    """Read whole batches from the one that holds `offset` on; see Segments.read.

    What is whole in front of damage is read first; the read that begins at the damage meets it.
    """
    try:
        return _read(segment, offset, max_bytes, below, at_least_one=at_least_one, wait=wait)
    except DamagedSegmentError as error:
        start = segment.position_of(offset, wait=wait)
        if start is None or start >= error.position:
            raise
        room = error.position - start
        return read_segment(segment, offset, room, below, at_least_one=False, wait=wait)


def _read(
    segment: Segment, offset: int, max_bytes: int, below: int, *, at_least_one: bool, wait: bool
) -> Read:
    span = segment.span(offset, max_bytes, below, at_least_one=at_least_one, wait=wait)
    if span is None or not span.size:
        return Read(b"", offset)
    records = (segment.read if wait else segment.read_cached)(span.position, span.size)
    segment.check(span.position, records)
    return Read(records, span.next_offset)
