"""What is believed about the time of day."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.datadir import directory
from quorum.platform.wall_clock import PARTED_MS_MAX, WallClock
from tests.unit.broker_log.samples import KEY, Broker


class Clocks:
    """Two clocks under the test's hand."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.boot_ms = 5_000
        self.clock = WallClock(lambda: self.wall_ms, lambda: self.boot_ms)


@pytest.mark.parametrize(
    ("set_ms", "believed"), [(0, True), (PARTED_MS_MAX, True), (PARTED_MS_MAX + 1, False)]
)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_time_that_was_set_by_more_than_an_hour_is_not_believed(
    set_ms: int, sign: int, believed: bool
) -> None:
    clocks = Clocks()
    clocks.wall_ms += sign * set_ms
    assert clocks.clock.is_believed() is believed
    clocks.wall_ms -= sign * set_ms
    assert clocks.clock.is_believed()


def test_a_machine_that_slept_is_believed() -> None:
    clocks = Clocks()
    clocks.wall_ms += 14 * 3_600_000
    clocks.boot_ms += 14 * 3_600_000
    assert clocks.clock.is_believed()


def test_the_time_of_another_machine_is_compared_with_the_own() -> None:
    clocks = Clocks()
    assert clocks.clock.believes(clocks.wall_ms + PARTED_MS_MAX)
    assert not clocks.clock.believes(clocks.wall_ms + PARTED_MS_MAX + 1)


def test_strays_stay_while_the_time_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = Clocks()
    broker = Broker(tmp_path / "data")
    broker.create()
    broker.directory.set_aside(KEY)
    broker.create()
    monkeypatch.setattr(directory, "CLOCK", clocks.clock)
    monkeypatch.setattr(directory, "STRAY_KEPT_MS", -1000)
    clocks.wall_ms += 2 * PARTED_MS_MAX
    broker.directory.set_aside(KEY)
    broker.directory.close()
    assert len([*broker.path.glob("*-stray")]) == 2
    clocks.wall_ms -= 2 * PARTED_MS_MAX
    broker.open()
    broker.directory.close()
    assert [*broker.path.glob("*-stray")] == []
