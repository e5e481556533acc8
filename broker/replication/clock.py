"""The two clocks: one for lags and deadlines inside this process, one for the timestamps of records.

Source: style design, "Shape" (time comes in as an argument, from here).
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: How long one piece of work keeps the event loop to itself.
TURN_MS_MAX: Final = 20


def monotonic_ms() -> int:
    """Milliseconds that never go back; only differences mean anything."""
    return time.monotonic_ns() // 1_000_000


def wall_ms() -> int:
    """Milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class Pace:
    """Lets others have the event loop now and then: ten thousand new logs take seconds."""

    def __init__(self) -> None:
        """Begin now."""
        self._since_ms = monotonic_ms()

    async def rest(self) -> bool:
        """Give way if it is time; True if something else may have happened."""
        if monotonic_ms() - self._since_ms < TURN_MS_MAX:
            return False
        await asyncio.sleep(0)
        self._since_ms = monotonic_ms()
        return True
