"""Nemeses that never bit strike again before a run ends; several may strike together."""

from __future__ import annotations

import random
from pathlib import Path
from typing import ClassVar

from tests.chaos.nemeses.base import Nemesis
from tests.chaos.nemeses.together import together
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
    description: ClassVar[str] = "nothing"
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


class Bites(Harmless):
    """Always bites, and writes down when it begins and ends."""

    name: ClassVar[str] = "bites"
    holds_s: ClassVar[tuple[float, float]] = (1.0, 2.0)
    order: ClassVar[list[str]] = []

    def start(self) -> str:
        self.order.append(f"{self.name} begins")
        return self.name

    def stop(self) -> None:
        self.order.append(f"{self.name} ends")

    def bite(self) -> str:
        return f"{self.name} bit"


class AlsoBites(Bites):
    """Another one."""

    name: ClassVar[str] = "also-bites"
    needs_brokers: ClassVar[bool] = True


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


def test_nemeses_together_bite_if_all_do(tmp_path: Path) -> None:
    recorder = Recorder(tmp_path / "history")
    kind = together(Bites, AlsoBites)
    assert (kind.name, kind.needs_brokers, kind.holds_s) == ("bites+also-bites", True, (1.0, 2.0))
    both = kind(Ready(), recorder, random.Random(1))  # type: ignore[arg-type]
    assert both.start() == "bites and also-bites"
    both.stop()
    assert both.bite() == "bites bit and also-bites bit"
    assert Bites.order == ["bites begins", "also-bites begins", "also-bites ends", "bites ends"]
    one = together(Bites, Harmless)(Ready(), recorder, random.Random(1))  # type: ignore[arg-type]
    one.start()
    one.stop()
    assert one.bite() == ""
    recorder.close()
