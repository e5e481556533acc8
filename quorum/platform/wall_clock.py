"""Whether the time of day can be believed, for what is deleted by its age.

Compares the time of day with a clock that nobody sets and that counts the machine's sleep, too. Where the two
have parted by more than an hour since the start, somebody has set the time: what looks a week old may be of
today. A process that starts takes the time as it finds it.
Source: clock_gettime(2), CLOCK_BOOTTIME.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

PARTED_MS_MAX: Final = 3_600_000
_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _boot_ms() -> int:
    return time.clock_gettime_ns(_BOOT) // 1_000_000


class WallClock:
    """The time of day, as far as it can be believed."""

    def __init__(self, wall_ms: Callable[[], int] = _wall_ms, boot_ms: Callable[[], int] = _boot_ms) -> None:
        """Believe the time as it is now."""
        self._wall_ms = wall_ms
        self._boot_ms = boot_ms
        self._began_ms = wall_ms() - boot_ms()

    def parted_ms(self) -> int:
        """Return by how much the time was set forward since the start; negative: back."""
        return self._wall_ms() - self._boot_ms() - self._began_ms

    def is_believed(self) -> bool:
        """Whether things may be deleted because of their age."""
        return abs(self.parted_ms()) <= PARTED_MS_MAX

    def believes(self, time_ms: int) -> bool:
        """Whether things may be deleted because another machine says that it is so late."""
        return self.is_believed() and time_ms - self._wall_ms() <= PARTED_MS_MAX


#: This process's.
CLOCK: Final = WallClock()
