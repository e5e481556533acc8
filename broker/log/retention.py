"""Which segments are kept no longer (retention.ms, retention.bytes, or deleted), and which close by age.

A segment goes as a whole, by its newest record. So that a slow topic does not keep everything until its
segment is full, one closes when its first record is older than segment.ms or retention.ms. Nothing above the
high watermark goes. A topic without "delete" in its cleanup.policy loses only what was deleted on request.
Where the time cannot be trusted nothing closes or goes for its age. Pure, but for the time of a file whose
records carry none.
Source: Kafka's UnifiedLog.deleteOldSegments and LogSegment.shouldRoll (3.9).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from broker.log.segment import Segment
from quorum.metadata.topic_settings import TopicSettings


@dataclass(frozen=True, slots=True)
class Retention:
    """What is kept now."""

    settings: TopicSettings
    #: exclusive
    high_watermark: int
    #: records before it were deleted
    log_start_offset: int
    now_ms: int
    by_age: bool

    def closes(self, active: Segment) -> bool:
        """Whether the active segment is so old that the next one must begin; an empty one never is."""
        retention_ms, oldest_ms = self.settings.retention_ms, self.settings.segment_ms
        if self.settings.deletes and retention_ms >= 0:
            oldest_ms = min(oldest_ms, retention_ms)
        if self.settings.compacts:
            oldest_ms = min(oldest_ms, self.settings.max_compaction_lag_ms)
        return self.by_age and bool(active.size) and oldest_ms < self.now_ms - active.oldest_ms()

    def expired(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the oldest segments that go; never the active one."""
        left_bytes = sum(segment.size for segment in segments)
        found: list[Segment] = []
        for oldest, following in pairwise(segments):
            too_much = (
                self.settings.deletes and 0 <= self.settings.retention_bytes <= left_bytes - oldest.size
            )
            deleted = following.base_offset <= self.log_start_offset
            if following.base_offset > self.high_watermark or not (
                deleted or too_much or self._is_old(oldest)
            ):
                break
            left_bytes -= oldest.size
            found.append(oldest)
        return found

    def _is_old(self, segment: Segment) -> bool:
        retention_ms = self.settings.retention_ms
        return self.settings.deletes and self.by_age and 0 <= retention_ms < self.now_ms - segment.newest_ms()
