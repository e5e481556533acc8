"""The timer wheel: keys come out when they are due, each once, whatever was scheduled before."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from broker.core.groups.timers import TICK_MS, TimerWheel


def test_a_key_comes_out_at_its_deadline_and_once() -> None:
    wheel: TimerWheel[str] = TimerWheel(0)
    wheel.schedule("a", 120)
    assert wheel.expired(100) == []
    assert wheel.expired(150) == ["a"]
    assert wheel.expired(10_000) == []
    assert len(wheel) == 0


def test_the_nearest_deadline_of_a_key_counts() -> None:
    wheel: TimerWheel[str] = TimerWheel(0)
    wheel.schedule("a", 1_000)
    wheel.schedule("a", 200)
    wheel.schedule("a", 5_000)
    assert wheel.expired(200) == ["a"]
    assert wheel.expired(9_000) == []


def test_a_deadline_that_has_passed_is_due_at_the_next_tick() -> None:
    wheel: TimerWheel[str] = TimerWheel(10_000)
    wheel.schedule("a", 0)
    assert wheel.expired(10_000) == []
    assert wheel.expired(10_000 + TICK_MS) == ["a"]


@given(
    deadlines=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5_000)), max_size=40),
    steps=st.lists(st.integers(1, 2_000), min_size=1, max_size=10),
)
def test_nothing_is_early_and_nothing_is_lost(deadlines: list[tuple[int, int]], steps: list[int]) -> None:
    wheel: TimerWheel[int] = TimerWheel(0)
    earliest: dict[int, int] = {}
    for key, deadline_ms in deadlines:
        wheel.schedule(key, deadline_ms)
        earliest[key] = min(deadline_ms, earliest.get(key, deadline_ms))
    now_ms = 0
    for step in [*steps, 10_000]:
        now_ms += step
        for key in wheel.expired(now_ms):
            assert earliest.pop(key) <= now_ms
        assert all(deadline_ms > now_ms - TICK_MS for deadline_ms in earliest.values())
    assert earliest == {}
