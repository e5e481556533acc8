"""When a follower asks for a partition again, and for how much: pauses after errors, and throttling.

Soft state, one per partition and role.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-73.
"""

from __future__ import annotations

from dataclasses import dataclass

from broker.core.throttle import Throttle
from quorum.metadata.paths import PartitionKey


@dataclass(slots=True)
class FetchPace:
    """The pace of one partition that this broker follows."""

    key: PartitionKey
    #: Monotonic; after an error the partition is left out until then.
    not_before_ms: int = 0
    backoff_ms: int = 0
    #: Whether its log ends below the leader's high watermark: only then it waits for a throttle, because
    #: producers may wait for it else. None: not known before the first answer in this role.
    is_behind: bool | None = None
    #: Whether an answer waits for the disk: it is left out until then.
    is_busy: bool = False

    def max_bytes(self, configured: int, throttle: Throttle, now_ms: int) -> int:
        """Return how much to ask for at once."""
        return min(configured, throttle.allowance(now_ms)) if self.is_throttled(throttle) else configured

    def is_throttled(self, throttle: Throttle) -> bool:
        """Whether its bytes count."""
        return self.is_behind is not False and throttle.limits(self.key)

    def is_due(self, now_ms: int, throttle: Throttle) -> bool:
        """Whether to ask for it now; a throttled one waits until bytes may pass again."""
        if self.is_busy:
            return False
        if self.not_before_ms <= now_ms and self.is_behind and throttle.limits(self.key):
            self.not_before_ms = now_ms + throttle.wait_ms(now_ms)
        return self.not_before_ms <= now_ms

    def answered(self) -> None:
        """Note an answer without an error: the next pause is short again."""
        self.backoff_ms = 0

    def copied(self, high_watermark: int, log_end_offset: int) -> None:
        """Note an answer that was applied: the leader's high watermark, and the own end."""
        self.is_behind = high_watermark > log_end_offset

    def back_off(self, now_ms: int, first_ms: int, max_ms: int) -> None:
        """Pause after an error: first_ms, and each time twice as long up to max_ms."""
        self.backoff_ms = min(max(self.backoff_ms * 2, first_ms), max_ms)
        self.not_before_ms = now_ms + self.backoff_ms
