"""Which segments of a log are kept no longer: by retention.ms, retention.bytes, or since they were deleted.

Nothing above the high watermark goes. Where the time cannot be trusted nothing goes for its age. Pure, but
for the time of a file whose records carry none.
Source: Kafka's UnifiedLog.deleteOldSegments (3.9).
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
        """Whether the active segment is so old that the next one must begin; then it can go."""
        return bool(active.size) and self._is_old(active) and active.next_offset <= self.high_watermark

    def expired(self, segments: Sequence[Segment]) -> list[Segment]:
        """Return the oldest segments that go; never the active one."""
        left_bytes = sum(segment.size for segment in segments)
        found: list[Segment] = []
        for oldest, following in pairwise(segments):
            too_much = 0 <= self.settings.retention_bytes <= left_bytes - oldest.size
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
        return self.by_age and 0 <= retention_ms < self.now_ms - segment.newest_ms()
