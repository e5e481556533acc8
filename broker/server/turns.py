"""Long work in slices, so that others get their turn.

Decides how long a slice is, and that of all long work of a listener one slice runs between two turns of the
event loop: many long answers take longer, and others wait no longer than for one. Soft state only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Final

#: how long a slice may hold the event loop; one step more
SLICE_S: Final = 0.02


class Turns:
    """The long work of one listener."""

    def __init__(self) -> None:
        """Begin with none."""
        self._next = asyncio.Lock()

    async def take(self, steps: Iterator[None], may_go_on: Callable[[], bool]) -> bool:
        """Take steps, slice by slice.

        Args:
            steps: the work.
            may_go_on: asked after each slice.

        Returns:
            Whether all steps were taken.
        """
        while True:
            until_s = time.monotonic() + SLICE_S
            for _ in steps:
                if time.monotonic() >= until_s:
                    break
            else:
                return may_go_on()
            if not may_go_on():
                return False
            # Those who wait for the lock are served in their order, each in a turn of its own.
            async with self._next:
                await asyncio.sleep(0)
