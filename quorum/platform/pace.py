"""Long work in the event loop gives way to others now and then.

For work whose state nobody else changes meanwhile, or that looks again after a rest. Soft state.
Source: asyncio, "Developing with asyncio", Running Blocking Code.
"""

from __future__ import annotations

import asyncio
import time
from typing import Final

#: How long one piece of work keeps the event loop to itself.
TURN_MS_MAX: Final = 20


class Pace:
    """The turns of one piece of work."""

    def __init__(self) -> None:
        """Begin now."""
        self._until_s = time.monotonic() + TURN_MS_MAX / 1000

    async def rest(self) -> bool:
        """Give way if it is time; True if something else may have happened."""
        if time.monotonic() < self._until_s:
            return False
        await asyncio.sleep(0)
        self._until_s = time.monotonic() + TURN_MS_MAX / 1000
        return True
