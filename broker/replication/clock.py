"""The two clocks: one for lags and deadlines inside this process, one for the timestamps of records."""

from __future__ import annotations

import time


def monotonic_ms() -> int:
    """Milliseconds that never go back; only differences mean anything."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000
