"""What a thread waited for a core, and a disk's time without it."""

from __future__ import annotations

import asyncio

import pytest

from quorum.platform import core_waits, os_runtime
from quorum.platform.os_runtime import AsyncioRuntime

KERNEL = b"5000000 %d 7\n"


class Clock:
    """A clock and a kernel's count that a test moves."""

    def __init__(self) -> None:
        self.now_ns = self.waited_ns = 0

    def monotonic_ns(self) -> int:
        return self.now_ns

    def counted(self) -> bytes:
        return KERNEL % self.waited_ns

    def passes(self, all_ms: float, waited_ms: float) -> None:
        self.now_ns += round(all_ms * 1e6)
        self.waited_ns += round(waited_ms * 1e6)


def disk_ms_of(clock: Clock, all_ms: float, waited_ms: float) -> float:
    loop = asyncio.new_event_loop()
    try:
        return AsyncioRuntime(loop).disk_ms(clock.passes, all_ms, waited_ms)
    finally:
        loop.close()


@pytest.mark.parametrize(
    ("all_ms", "waited_ms", "disk_ms"),
    [
        (0.5, 0.4, 0.5),
        (150.0, 0.0, 150.0),
        (150.0, 149.5, 0.5),
        # A stall shows, whatever the thread waited for besides.
        (900.0, 100.0, 800.0),
        # The kernel counts from before the clock is read.
        (20.0, 20.5, 0.0),
    ],
)
def test_waiting_for_a_core_is_no_time_of_the_disk(
    monkeypatch: pytest.MonkeyPatch, all_ms: float, waited_ms: float, disk_ms: float
) -> None:
    clock = Clock()
    monkeypatch.setattr(os_runtime, "time", clock)
    monkeypatch.setattr(core_waits, "counted", clock.counted)
    assert disk_ms_of(clock, all_ms, waited_ms) == pytest.approx(disk_ms)


def test_a_kernel_without_counts_leaves_all_to_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(os_runtime, "time", clock)
    monkeypatch.setattr(core_waits, "SCHEDSTAT", "/nowhere/schedstat")
    monkeypatch.setattr(core_waits, "_COUNTS", core_waits._Counts())
    assert disk_ms_of(clock, 150.0, 149.5) == pytest.approx(150.0)
