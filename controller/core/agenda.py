"""What is due, and when the next pass begins.

Events only mark a step of the pass; marks of the same step are one. A pass that was broken off marks all, and
the next one waits; one that left something unsettled is repeated. Both pauses double each time.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from enum import Enum
from typing import Final

#: Pause before a pass that was broken off, or left something unsettled, is repeated; it doubles each time.
REPEAT_PAUSE_MS: Final = 50
REPEAT_PAUSE_MAX_MS: Final = 2_000


class Duty(Enum):
    """The steps of a pass, by the names that operators see."""

    CACHE = "cache"
    DELETIONS = "deletions"
    BROKERS = "brokers"
    STATES = "states"
    SETTINGS = "settings"
    REASSIGNMENTS = "reassignments"
    ELECTIONS = "elections"
    BALANCE = "balance"
    COMMANDS = "commands"
    MOVES = "moves"
    REMOVALS = "removals"


#: What a new controller, or one that may have missed events, has to read.
_READ_AGAIN: Final = (
    Duty.CACHE,
    Duty.DELETIONS,
    Duty.BROKERS,
    Duty.SETTINGS,
    Duty.REASSIGNMENTS,
    Duty.ELECTIONS,
)


class Agenda:
    """The marks and times of one term."""

    def __init__(self, *, isr_coalesce_ms: int, balance_interval_ms: int | None) -> None:
        """Have nothing due yet.

        Args:
            isr_coalesce_ms: how long changes of states are collected.
            balance_interval_ms: how often the balance of leaderships is checked; None: never.
        """
        self._isr_coalesce_ms = isr_coalesce_ms
        self._balance_interval_ms = balance_interval_ms
        self._marked: dict[Duty, None] = {}
        #: What the present pass leaves to the next one.
        self._left: dict[Duty, None] = {}
        self._pause_ms = REPEAT_PAUSE_MS
        #: {what becomes due by itself: when}
        self._timers: dict[Duty, int] = {}
        self._repeat_ms: int | None = None
        self._paused_until_ms: int | None = None

    def begin_term(self, now_ms: int) -> None:
        """Mark all that a new controller has to do; it was elected just now, and no setting matters yet."""
        self.mark(Duty.CACHE, Duty.DELETIONS, Duty.BROKERS, Duty.REASSIGNMENTS, Duty.ELECTIONS)
        self._plan_balance(now_ms)

    def mark(self, *duties: Duty) -> None:
        """Let steps be due."""
        self._marked.update(dict.fromkeys(duties))

    def mark_all(self) -> None:
        """Let all be read again."""
        self.mark(*_READ_AGAIN)

    def mark_later(self, now_ms: int) -> None:
        """Let the cache be due once changes of states were collected for a while."""
        self._timers.setdefault(Duty.CACHE, now_ms + self._isr_coalesce_ms)

    def leave(self, duty: Duty) -> None:
        """Let a step be due in the next pass."""
        self._left[duty] = None

    def is_marked(self, duty: Duty) -> bool:
        """Say whether a step is due."""
        return duty in self._marked

    def take(self, duty: Duty) -> None:
        """A step begins."""
        self._marked.pop(duty, None)

    def is_time(self, now_ms: int) -> bool:
        """Say whether a pass may begin; what time has made due is marked."""
        for duty in [each for each, at_ms in self._timers.items() if at_ms <= now_ms]:
            del self._timers[duty]
            self.mark(duty)
            if duty is Duty.BALANCE:
                self._plan_balance(now_ms)
        if self._paused_until_ms is not None and now_ms < self._paused_until_ms:
            return False
        return bool(self._marked) or (self._repeat_ms is not None and self._repeat_ms <= now_ms)

    def begin_pass(self) -> None:
        """A pass begins: it takes what the one before left, and reads all states that have changed."""
        self._marked.update(self._left)
        self._left.clear()
        self._timers.pop(Duty.CACHE, None)
        self._repeat_ms = self._paused_until_ms = None

    def end_pass(self, now_ms: int, *, is_settled: bool, is_dirty: bool) -> None:
        """A pass has ended.

        Args:
            now_ms: monotonic.
            is_settled: whether nothing is left to another one.
            is_dirty: whether states changed that it has not read; the events of its own writes are no reason
                for another pass.
        """
        if not is_dirty:
            self._timers.pop(Duty.CACHE, None)
        if is_settled and not self._left:
            self._pause_ms = REPEAT_PAUSE_MS
        else:
            self._repeat_ms = self._next_pause(now_ms)

    def break_off(self, now_ms: int) -> None:
        """A pass was broken off: all is read again, after a pause."""
        self.mark_all()
        self._paused_until_ms = self._next_pause(now_ms)

    @property
    def wake_ms(self) -> int | None:
        """When the next pass may begin, or a time makes something due; None: not before an event."""
        times = list(self._timers.values())
        if self._repeat_ms is not None:
            times.append(self._repeat_ms)
        if self._paused_until_ms is not None:
            times.append(self._paused_until_ms)
        return min(times, default=None)

    def _next_pause(self, now_ms: int) -> int:
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, REPEAT_PAUSE_MAX_MS)
        return now_ms + pause_ms

    def _plan_balance(self, now_ms: int) -> None:
        if self._balance_interval_ms is not None:
            self._timers[Duty.BALANCE] = now_ms + self._balance_interval_ms
