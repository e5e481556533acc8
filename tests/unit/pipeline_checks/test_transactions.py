"""Transactions: planted halves, repeats, early and aborted records, and zombies are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline.checks.history import FAIL, OK, UNKNOWN, Operation
from pipeline.checks.transactions import (
    CHECK_FENCED,
    CHECK_LATEST,
    CHECK_OFFSETS,
    CHECK_ONCE,
    CHECK_ORDER,
    CHECK_READERS,
    CHECK_WHOLE,
    check_transactions,
)
from pipeline.checks.verdicts import NOTHING_JUDGED
from tests.unit.pipeline_checks.histories import op

Record = dict[str, Any]
#: {(partition, offset): record}
Output = dict[tuple[int, int], Record]


def init(life: int, start: int) -> Operation:
    return op("init", ["id", life], None, start, start + 1)


def commit(tag: str, start: int, end: int, outcome: str = OK, life: int = 1) -> Operation:
    return op("commit", ["id", life, tag], None, start, end, outcome=outcome)


def see(place: tuple[int, int], record: Record, start: int) -> Operation:
    return op("see", list(place), record, start, start, process="reader")


def record(tag: str, number: int, source: list[int] | None, of: int = 2) -> Record:
    return {"tag": tag, "number": number, "of": of, "input": source}


class World:
    """Three committed transactions, an aborted one between them, and one with an unknown outcome."""

    def __init__(self) -> None:
        self.committed: Output = {
            (0, 0): record("a", 0, [0, 0]),
            (1, 0): record("a", 1, None),
            (0, 3): record("c", 0, [0, 1]),
            (1, 3): record("c", 1, [1, 0]),
            (2, 0): record("i", 0, None, of=1),
        }
        self.aborted: Output = {(0, 2): record("b", 0, [0, 1]), (1, 2): record("b", 1, None)}
        self.offsets = {"0": 2, "1": 1}
        self.latest = [[0, 2], [1, 1]]
        self.stable = {"0": [5, 5], "1": [5, 5]}
        self.history = [
            init(1, 0),
            commit("a", 10, 20),
            op("abort", ["id", 1, "b"], None, 30, 35),
            commit("c", 40, 50),
            commit("i", 52, 53),
            commit("d", 60, 0, outcome=UNKNOWN),
            *(see(place, self.committed[place], 55) for place in ((0, 0), (0, 3))),
        ]

    def lines(self) -> list[dict[str, Any]]:
        levels = {"read_committed": self.committed, "read_uncommitted": self.committed | self.aborted}
        found: list[dict[str, Any]] = [
            {"isolation": level, "partition": partition, "offset": offset, "record": each}
            for level, output in levels.items()
            for (partition, offset), each in output.items()
        ]
        return [
            *found,
            {"committed": self.offsets},
            {"replica": 1, "inputs": [0, 1], "latest": self.latest},
            {"stable": self.stable},
        ]

    def bad(self) -> dict[str, str]:
        """{check that finds something: its problems}."""
        self.history.sort(key=lambda each: each.invoked_ns)
        verdicts = check_transactions(self.history, self.lines())
        return {each.check: "; ".join(each.problems) for each in verdicts if each.state != OK}


def test_what_is_right_is_found_right() -> None:
    world = World()
    assert world.bad() == {}
    world.committed[0, 6] = record("d", 0, None, of=1)
    assert world.bad() == {}, "an unknown commit may have had its effect"


def twice(world: World) -> None:
    world.committed[1, 3] = record("c", 1, [0, 1])
    world.offsets["1"] = 0


def turned_round(world: World) -> None:
    world.committed[0, 0], world.committed[0, 3] = record("a", 0, [0, 1]), record("c", 0, [0, 0])
    world.history = [each for each in world.history if each.operation != "see"]
    world.history.append(see((0, 0), world.committed[0, 0], 55))


def half(world: World) -> None:
    world.aborted[1, 0] = world.committed.pop((1, 0))


def lost(world: World) -> None:
    world.history.append(commit("e", 70, 80))


def aborted_is_visible(world: World) -> None:
    world.committed |= {(0, 2): record("b", 0, None), (1, 2): record("b", 1, None)}
    world.history.append(see((0, 2), world.committed[0, 2], 41))
    world.history.append(commit("f", 31, 32))
    world.committed |= {(0, 7): record("f", 0, None, of=1)}


def failed_is_visible(world: World) -> None:
    world.history.append(commit("g", 90, 91, outcome=FAIL))
    world.committed[1, 8] = record("g", 0, None, of=1)


def seen_and_aborted(world: World) -> None:
    world.history.append(see((1, 2), world.aborted[1, 2], 31))


def seen_too_early(world: World) -> None:
    world.history.append(see((1, 3), world.committed[1, 3], 39))


def passed_over(world: World) -> None:
    world.committed[0, 1] = record("h", 0, None, of=1)
    world.history.append(commit("h", 21, 22))


def back(world: World) -> None:
    world.history.append(see((0, 0), world.committed[0, 0], 56))


def stuck(world: World) -> None:
    world.stable["1"] = [4, 5]


def levels_differ(world: World) -> None:
    world.aborted[0, 0] = record("a", 0, None)


def offsets_without_output(world: World) -> None:
    world.offsets["1"] = 2


def output_without_offsets(world: World) -> None:
    world.offsets["0"] = -1


def aborted_is_latest(world: World) -> None:
    world.latest.append([1, 2])


def cleaned_away(world: World) -> None:
    world.latest.remove([1, 1])


def latest_goes_back(world: World) -> None:
    world.latest[:0] = [[0, 3]]


def nothing_was_cleaned(world: World) -> None:
    world.latest[:0] = [[0, 1]]


def zombie(world: World) -> None:
    world.history.append(init(2, 38))


def taken_for_another(world: World) -> None:
    world.history += [init(2, 51), op("commit", ["id", 1, "z"], "INVALID_TXN_STATE", 70, 0, outcome=UNKNOWN)]


@pytest.mark.parametrize(
    ("plant", "check", "says"),
    [
        (twice, CHECK_ONCE, "2 times"),
        (turned_round, CHECK_ORDER, "comes after"),
        (half, CHECK_WHOLE, "a has 2 records, and [0] of them"),
        (lost, CHECK_WHOLE, "e was committed, and none"),
        (aborted_is_visible, CHECK_WHOLE, "b, which nobody asked to commit"),
        (failed_is_visible, CHECK_WHOLE, "aborted for certain"),
        (seen_and_aborted, CHECK_READERS, "where None is"),
        (seen_too_early, CHECK_READERS, "before anybody asked"),
        (passed_over, CHECK_READERS, "was not given"),
        (back, CHECK_READERS, "do not rise"),
        (stuck, CHECK_READERS, "stays at 4 of 5"),
        (levels_differ, CHECK_READERS, "read_uncommitted"),
        (offsets_without_output, CHECK_OFFSETS, "[1] are not in the output"),
        (output_without_offsets, CHECK_OFFSETS, "[0, 1] are in the output"),
        (aborted_is_latest, CHECK_LATEST, "1 is committed, 2 is last"),
        (cleaned_away, CHECK_LATEST, "1 is committed, -1 is last"),
        (latest_goes_back, CHECK_LATEST, "2 follows 3"),
        (nothing_was_cleaned, CHECK_LATEST, NOTHING_JUDGED),
        (zombie, CHECK_FENCED, "life 1 of id, after life 2"),
        (taken_for_another, CHECK_FENCED, "was taken for life 2"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[World], None], check: str, says: str) -> None:
    world = World()
    plant(world)
    assert says in world.bad()[check]


def test_two_lives_that_begin_at_once_fence_nobody_for_certain() -> None:
    world = World()
    world.history.append(op("init", ["id", 2], None, 0, 5))
    assert world.bad() == {}
