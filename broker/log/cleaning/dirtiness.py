"""Which part of a log is dirty, whether it is time to compact it, and which segments become one. Pure.

Whole segments only: never the active one, none that ends above the last stable offset,
none from the first on that is younger than min.compaction.lag.ms.
Source: Kafka's LogCleanerManager and Cleaner.groupSegmentsBySize (3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from quorum.metadata.topic_settings import TopicSettings

RELATIVE_OFFSET_MAX = 2**31 - 1


class ClosedSegment(NamedTuple):
    """A segment that is not written to any more."""

    base_offset: int
    #: where the following one begins
    next_offset: int
    size_bytes: int
    #: of its first batch, its largest; and its largest
    first_ms: int
    newest_ms: int


class Dirtiness(NamedTuple):
    """What there is to compact."""

    first_dirty: int
    #: exclusive
    end_offset: int
    dirty_bytes: int
    ratio: float
    is_due: bool


def dirtiness(
    segments: Sequence[ClosedSegment],
    first_dirty: int,
    uncleanable_from: int,
    settings: TopicSettings,
    now_ms: int,
) -> Dirtiness:
    """Look at the closed segments of a log.

    Args:
        segments: from the oldest on.
        first_dirty: what is compacted already ends here; another value than one in the log counts as none.
        uncleanable_from: the last stable offset.
        settings: the topic's.
        now_ms: the time.
    """
    end = segments[0].base_offset if segments else 0
    if not segments or not end <= first_dirty <= segments[-1].next_offset:
        first_dirty = end
    clean_bytes = dirty_bytes = 0
    overdue = False
    for each in segments:
        if each.next_offset > uncleanable_from:
            break
        if each.next_offset > first_dirty:
            # As much as is clean in it was less before.
            if (
                settings.min_compaction_lag_ms > 0
                and each.newest_ms > now_ms - settings.min_compaction_lag_ms
            ):
                break
            dirty_bytes += each.size_bytes
            overdue = overdue or 0 <= each.first_ms < now_ms - settings.max_compaction_lag_ms
        else:
            clean_bytes += each.size_bytes
        end = each.next_offset
    ratio = dirty_bytes / (clean_bytes + dirty_bytes) if dirty_bytes else 0.0
    is_due = bool(dirty_bytes) and (overdue or ratio > settings.min_cleanable_dirty_ratio)
    return Dirtiness(first_dirty, max(end, first_dirty), dirty_bytes, ratio, is_due)


def grouped(segments: Sequence[ClosedSegment], segment_bytes: int) -> list[list[ClosedSegment]]:
    """Return which segments become one, in order."""
    groups: list[list[ClosedSegment]] = []
    size_bytes = 0
    for each in segments:
        fits = groups and size_bytes + each.size_bytes <= segment_bytes
        if fits and each.next_offset - groups[-1][0].base_offset <= RELATIVE_OFFSET_MAX:
            groups[-1].append(each)
            size_bytes += each.size_bytes
        else:
            groups.append([each])
            size_bytes = each.size_bytes
    return groups
