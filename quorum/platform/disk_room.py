"""The room on the disk of a data directory, and how it changed.

A sample is taken when somebody asks, at most one in five minutes, for a day: so the change is that of a span
which is told with it, and covers whatever was written and deleted, by others on that disk, too. Soft state.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

INTERVAL_S: Final = 300.0
SPAN_S: Final = 24 * 3600.0


class FreeRoom(NamedTuple):
    """What there is now.

    Attributes:
        free_bytes, size_bytes: for this process, and of the file system.
        change_bytes: by which the free bytes rose; below 0: they fell.
        span_s: within so many seconds.
    """

    free_bytes: int
    size_bytes: int
    change_bytes: int
    span_s: float


class DiskRoom:
    """Watches one folder."""

    def __init__(self, folder: Path, clock_s: Callable[[], float] = time.monotonic) -> None:
        """Have no sample yet."""
        self._folder = folder
        self._clock_s = clock_s
        #: (when, free bytes)
        self._samples: deque[tuple[float, int]] = deque()

    def look(self) -> FreeRoom | None:
        """Return what there is now; None: the folder is not there."""
        try:
            found = os.statvfs(self._folder)
        except OSError:
            return None
        return self.take(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def take(self, free_bytes: int, size_bytes: int) -> FreeRoom:
        """Take a sample."""
        now_s = self._clock_s()
        if not self._samples or now_s - self._samples[-1][0] >= INTERVAL_S:
            self._samples.append((now_s, free_bytes))
        while len(self._samples) > 1 and now_s - self._samples[0][0] > SPAN_S:
            self._samples.popleft()
        since_s, before = self._samples[0]
        return FreeRoom(free_bytes, size_bytes, free_bytes - before, now_s - since_s)
