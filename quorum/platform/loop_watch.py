"""How long an event loop is held by one piece of work: its turns, measured by how late a timer comes.

A loop that was busy for a second calls its timers a second late. A machine that pauses makes every loop late,
so a test that judges a turn compares it with a loop of another process. Soft state.
Source: asyncio, "Event Loop", loop.call_at.
"""

from __future__ import annotations

import asyncio
from typing import Final

from quorum.platform.histogram import Histogram

#: How often a timer is set.
INTERVAL_S: Final = 0.05
#: For how long the longest turn is remembered, at least; at most twice as long.
WINDOW_S: Final = 60.0


class LoopWatch:
    """The turns of the running loop."""

    def __init__(self) -> None:
        """Measure nothing before run()."""
        self.turns = Histogram()
        self._longest_ms = 0.0
        self._longest_before_ms = 0.0

    @property
    def longest_ms(self) -> float:
        """The longest turn of the last minute or two."""
        return max(self._longest_ms, self._longest_before_ms)

    async def run(self) -> None:
        """Measure until cancelled."""
        loop = asyncio.get_running_loop()
        window_ends_s = loop.time() + WINDOW_S
        while True:
            due_s = loop.time() + INTERVAL_S
            await asyncio.sleep(INTERVAL_S)
            now_s = loop.time()
            late_ms = max(now_s - due_s, 0.0) * 1000
            self.turns.add(late_ms)
            self._longest_ms = max(self._longest_ms, late_ms)
            if now_s >= window_ends_s:
                self._longest_before_ms, self._longest_ms = self._longest_ms, 0.0
                window_ends_s = now_s + WINDOW_S
