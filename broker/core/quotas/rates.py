"""How much somebody has used of a rate: bytes by windows, and mutations by a bucket.

Bytes count over Kafka's windows: eleven of a second, so that ten seconds' worth may pass at once. What passes
is never refused; the client waits until its rate is what is set. A wait is at most as long as the windows, so
that no client's request times out meanwhile; what was more than the windows allow counts in the next ones, so
that the rate holds all the same. Soft state.
Source: ClientQuotaManager, SampledStat, Rate, TokenBucket (Kafka 3.9); KIP-13, KIP-219, KIP-599.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final, NamedTuple

#: Kafka's quota.window.num and controller.quota.window.num.
WINDOWS: Final = 11
WINDOW_MS: Final = 1_000
#: Longest throttle, whatever was used.
THROTTLE_MS_MAX: Final = WINDOWS * WINDOW_MS
#: The shortest time over which a rate is taken.
_SPAN_MS_MIN: Final = (WINDOWS - 1) * WINDOW_MS


class Spending(NamedTuple):
    """What becomes of mutations."""

    throttle_ms: int
    #: whether they may be; if not, they were not counted
    passes: bool = True


class Left(NamedTuple):
    """What may be used now."""

    amount: float
    #: for how long nothing may; 0: something may
    throttle_ms: int = 0


class Window:
    """What was used within the last windows, by one client or by several that share a rate."""

    __slots__ = ("_rate", "_samples", "_total")

    def __init__(self) -> None:
        """Have used nothing."""
        #: [when a window began, what was used in it], the oldest first; at most WINDOWS + 1
        self._samples: deque[list[float]] = deque()
        self._total = 0.0
        self._rate = math.inf

    def record(self, amount: float, rate: float, now_ms: float) -> int:
        """Use an amount, and return for how many milliseconds to throttle whoever does.

        Args:
            amount: used now. rate: what may be used in a second. now_ms: by any monotonic clock.
        """
        self._rate = rate
        self._expire(now_ms)
        samples = self._samples
        if not samples or now_ms - samples[-1][0] >= WINDOW_MS:
            samples.append([now_ms, 0.0])
        samples[-1][1] += amount
        self._total += amount
        return min(max(round(self._excess_ms(now_ms)), 0), THROTTLE_MS_MAX)

    def left(self, rate: float, now_ms: float) -> Left:
        """Return what may be used now."""
        self._rate = rate
        self._expire(now_ms)
        excess_ms = self._excess_ms(now_ms)
        if round(excess_ms) > 0:
            return Left(0, min(round(excess_ms), THROTTLE_MS_MAX))
        return Left(max(-excess_ms, 0) * rate / 1000)

    def is_clear(self, now_ms: float) -> bool:
        """Say whether nothing that was used counts any more."""
        self._expire(now_ms)
        return not self._samples

    def _expire(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= THROTTLE_MS_MAX:
            start_ms, amount = samples.popleft()
            # All of the time that nothing else counted in.
            periods = 1 if samples else (now_ms - start_ms) // THROTTLE_MS_MAX
            too_much = min(self._total - periods * self._rate * WINDOWS * WINDOW_MS / 1000, amount)
            self._total -= amount
            if too_much <= 0:
                continue
            self._total += too_much
            if samples:
                samples[0][1] += too_much
            else:
                samples.append([start_ms + periods * THROTTLE_MS_MAX, too_much])

    def _excess_ms(self, now_ms: float) -> float:
        """Return after what time without use the rate would be what it may be."""
        # The part of the last full window that has begun, on top of all full windows that there shall be.
        age_ms = now_ms - self._samples[0][0] if self._samples else 0.0
        return self._total * 1000 / self._rate - (_SPAN_MS_MIN + age_ms % WINDOW_MS)


class Bucket:
    """Mutations that may still be asked for: a bucket that the rate fills, eleven seconds' worth at most."""

    __slots__ = ("_filled_ms", "_full_ms", "_tokens")

    def __init__(self) -> None:
        """Be full at first use."""
        self._tokens: float | None = None
        self._filled_ms = 0.0
        #: when it will be full
        self._full_ms = 0.0

    def spend(self, amount: float, rate: float, now_ms: float, *, is_strict: bool) -> Spending:
        """Take out an amount, also more than there is.

        Args:
            amount: taken; negative: given back.
            rate: what comes in a second.
            now_ms: by any monotonic clock.
            is_strict: take nothing while there is a debt, and throttle for no new one.
        """
        most = rate * WINDOWS * WINDOW_MS / 1000
        earned = rate * max(now_ms - self._filled_ms, 0) / 1000
        left = most if self._tokens is None else min(self._tokens + earned, most)
        passes = not is_strict or left >= 0
        throttle_ms = 0 if passes else _debt_ms(left, rate)
        if passes:
            left = min(left - amount, most)
        if not is_strict:
            throttle_ms = _debt_ms(left, rate)
        self._tokens, self._filled_ms = left, now_ms
        self._full_ms = now_ms + (most - left) * 1000 / rate
        return Spending(throttle_ms, passes)

    def is_clear(self, now_ms: float) -> bool:
        """Say whether it is full."""
        return self._full_ms <= now_ms


def _debt_ms(left: float, rate: float) -> int:
    """Return for how long to wait for a debt, which is kept."""
    return 0 if left >= 0 else min(max(round(-left * 1000 / rate), 1), THROTTLE_MS_MAX)
