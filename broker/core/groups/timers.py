"""The timer wheel of a coordinator: every deadline of every group, in slots of one tick.

Scheduling a key that is in the wheel already, for an earlier slot or the same, costs one look-up; the caller
that gets a key compares its own deadline and schedules again if that has moved. So a heartbeat costs the
wheel nothing. Soft state only.
Source: docs/internals/requirements.md, [4.open2]; Varghese and Lauck, "Hashed and hierarchical timing
wheels" (1987).
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

TICK_MS: Final = 50

Key = TypeVar("Key", bound=Hashable)


class TimerWheel(Generic[Key]):
    """Keys by the tick in which they are due."""

    def __init__(self, now_ms: int) -> None:
        """Start empty at a time."""
        self._now_tick = now_ms // TICK_MS
        #: {tick: keys}, in the order in which they were scheduled
        self._slots: dict[int, dict[Key, None]] = {}
        #: {key: the earliest tick that it is in}
        self._ticks: dict[Key, int] = {}

    def __len__(self) -> int:
        """Count the keys."""
        return len(self._ticks)

    def schedule(self, key: Key, deadline_ms: int) -> None:
        """Return the key from `expired` at its deadline, at most a tick late."""
        tick = max(-(-deadline_ms // TICK_MS), self._now_tick + 1)
        before = self._ticks.get(key)
        if before is not None:
            if before <= tick:
                return
            self._slots[before].pop(key)
        self._ticks[key] = tick
        self._slots.setdefault(tick, {})[key] = None

    def expired(self, now_ms: int) -> list[Key]:
        """Take out every key that is due."""
        last = now_ms // TICK_MS
        if last <= self._now_tick:
            return []
        passed = last - self._now_tick
        # After a long pause the slots are fewer than the ticks.
        due = (
            range(self._now_tick + 1, last + 1)
            if passed <= len(self._slots)
            else sorted(tick for tick in self._slots if tick <= last)
        )
        self._now_tick = last
        keys = [key for tick in due for key in self._slots.pop(tick, ())]
        for key in keys:
            del self._ticks[key]
        return keys
