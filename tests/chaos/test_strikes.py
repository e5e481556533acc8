"""Nemeses that never bit strike again before a run ends; those that bit do not."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

from tests.chaos.nemeses.base import Nemesis
from tests.chaos.recorder import Recorder
from tests.chaos.strikes import AGAIN_MAX, Strikes
from tests.support.nodes import eventually

DEADLINE_S = 30.0


class Ready:
    """A cluster that takes no harm."""

    def ready(self) -> bool:
        return True


class Harmless(Nemesis):
    """Never bites."""

    name: ClassVar[str] = "harmless"
    holds_s: ClassVar[tuple[float, float]] = (0.0, 0.0)

    def start(self) -> str:
        return "nothing"

    def stop(self) -> None:
        """Nothing began."""

    def bite(self) -> str:
        return ""


class SecondTime(Harmless):
    """Bites when it strikes again."""

    name: ClassVar[str] = "second-time"
    struck: ClassVar[list[str]] = []

    def bite(self) -> str:
        self.struck.append(self.name)
        return "bit" if len(self.struck) > 1 else ""


def test_nemeses_that_never_bit_strike_again(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    strikes = Strikes(Ready(), recorder, [Harmless, SecondTime], random.Random(1))  # type: ignore[arg-type]
    strikes.start(lambda: None)
    eventually(lambda: len(strikes.strikes) == 2, DEADLINE_S, "both struck")
    strikes.stop()
    recorder.close()
    last = strikes.strikes[-1]
    assert last.nemesis == "harmless"
    assert sum(each.nemesis == "harmless" for each in strikes.strikes) > AGAIN_MAX
    assert [each.bite for each in strikes.strikes if each.nemesis == "second-time"] == ["", "bit"]
