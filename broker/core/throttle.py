"""How many bytes of throttled replicas pass in one direction: a bucket that a rate fills.

The bucket holds at most one second's worth. Each partition of a fetch may take what is in it, but at least
one batch, which may be more: the next fetches wait until the debt is paid. So the rate holds over any longer
time, however large a batch is. Which replicas count is a setting of their topic. Soft state.
Source: KIP-73; Kafka's ReplicationQuotaManager, the idea.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from quorum.metadata.broker_settings import RATE_MAX
from quorum.metadata.paths import PartitionKey

#: Longest pause that is named at once, so that a new rate soon takes effect.
WAIT_MAX_MS: Final = 1_000
#: Lists of replicas that are kept as they were read.
LISTS_MAX: Final = 1_024


class Throttle:
    """One direction of one broker: what it sends as a leader, or what it fetches as a follower."""

    def __init__(self, broker_id: int, replicas_of: Callable[[str], str]) -> None:
        """Limit nothing yet.

        Args:
            broker_id: this broker.
            replicas_of: topic → its throttled replicas, "partition:broker,…", or "*".
        """
        self._broker_id = broker_id
        self._replicas_of = replicas_of
        self._rate = RATE_MAX
        #: Bytes that may pass at _filled_ms; negative: a debt.
        self._level = 0.0
        self._filled_ms = 0
        #: Of throttled replicas, since the process started.
        self.bytes_total = 0

    def set_rate(self, rate: int) -> None:
        """Let so many bytes a second pass from now on, a second's worth at once; RATE_MAX: all."""
        if rate != self._rate:
            self._rate, self._level = rate, float(rate)

    def limits(self, key: PartitionKey) -> bool:
        """Whether this broker's replica of a partition is throttled."""
        if self._rate == RATE_MAX:
            return False
        replicas = self._replicas_of(key.topic)
        return replicas == "*" or f"{key.partition}:{self._broker_id}" in _listed(replicas)

    def spend(self, size: int, now_ms: int) -> None:
        """Note bytes of a throttled replica."""
        self._fill(now_ms)
        self._level -= size
        self.bytes_total += size

    def allowance(self, now_ms: int) -> int:
        """Return how many bytes a fetch may take now."""
        self._fill(now_ms)
        return max(0, math.ceil(self._level))

    def wait_ms(self, now_ms: int) -> int:
        """Return how long nothing more may pass, at most WAIT_MAX_MS; 0: something may."""
        if self.allowance(now_ms) > 0:
            return 0
        if -self._level >= self._rate:
            return WAIT_MAX_MS
        return min(WAIT_MAX_MS, 1 + int(-self._level * 1000 / self._rate))

    def _fill(self, now_ms: int) -> None:
        earned = self._rate * (now_ms - self._filled_ms) / 1000
        self._level = min(self._level + earned, float(self._rate))
        self._filled_ms = now_ms


@lru_cache(LISTS_MAX)
def _listed(replicas: str) -> frozenset[str]:
    return frozenset(replicas.split(","))
