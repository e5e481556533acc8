"""What the machines of a coordinator's term share: an input goes in, effects come out, until a term is over.

Source: ARCHITECTURE.md, "Code map".
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from broker.core.groups.inputs import ClockTick
from controller.core.effects import Level, Resign, Trace

Input = TypeVar("Input")
Effect = TypeVar("Effect")


class TermMachine(ABC, Generic[Input, Effect]):
    """One machine of one term; after Resign it does nothing more."""

    def __init__(self) -> None:
        self._clock = ClockTick(0, is_believed=False)
        self._numbers = itertools.count()
        self._effects: list[Effect | Trace | Resign] = []
        self._is_over = False

    def step(self, happened: Input, now_ms: int) -> list[Effect | Trace | Resign]:
        """Take in what has happened; returns what to do, in order.

        Args:
            happened: the input.
            now_ms: monotonic.
        """
        if self._is_over:
            return []
        self._take(happened, now_ms)
        effects, self._effects = self._effects, []
        return effects

    @abstractmethod
    def _take(self, happened: Input, now_ms: int) -> None:
        """Act on an input."""

    def _resign(self, reason: str, is_fenced: bool) -> None:
        self._is_over = True
        self._effects.append(Resign(reason, is_fenced))

    def _trace(self, text: str, level: Level = Level.INFO) -> None:
        self._effects.append(Trace(level, text))

    def _wall_ms(self, now_ms: int) -> int:
        return self._clock.wall_offset_ms + now_ms
