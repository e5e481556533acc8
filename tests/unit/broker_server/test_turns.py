"""Long work in slices: of all of it one slice runs in a turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.server import turns
from broker.server.turns import Turns


async def test_one_slice_of_all_long_work_runs_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SLICE_S", 0.0)
    lane, taken, loop_turns = Turns(), [0], 0

    def steps() -> Iterator[None]:
        for _ in range(10):
            taken[0] += 1
            yield

    work = [asyncio.create_task(lane.take(steps(), lambda: True)) for _ in range(5)]
    await asyncio.sleep(0)
    first = taken[0]
    assert first == 5
    while not all(each.done() for each in work):
        before = taken[0]
        await asyncio.sleep(0)
        loop_turns += 1
        assert taken[0] - before <= 1
    assert taken[0] == 50
    assert all(each.result() for each in work)


async def test_work_that_may_not_go_on_is_given_up() -> None:
    endless = iter(lambda: None, 0)
    assert not await Turns().take(endless, lambda: False)
