"""Compacted keys: planted old values, values from the dead, and replicas that differ are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pipeline.checks.compacted import (
    CHECK_AGREE,
    CHECK_NEWEST,
    CHECK_REMOVED,
    CHECK_SCANS,
    check_compacted,
)
from pipeline.checks.history import OK, UNKNOWN, Operation
from tests.unit.pipeline_checks.histories import op

RETENTION_MS = 1
_MS = 1_000_000


def write(number: int, offset: int, start: int, outcome: str = OK) -> Operation:
    return op("write", number, offset, start, start + 1, key="kept", outcome=outcome)


def delete(number: int, offset: int, start: int, key: str = "gone", outcome: str = OK) -> Operation:
    return op("delete", number, offset, start, start + 1, key=key, outcome=outcome)


def scan(found: list[int | None] | None, start: int, key: str = "kept", lasts: int = 1) -> Operation:
    retention_ms = RETENTION_MS if key == "gone" else None
    return op("scan", retention_ms, found, start, start + lasts, key=key, process="scanner")


class World:
    """A key with three values, of which compaction left the last, and a key that was deleted."""

    def __init__(self) -> None:
        self.history = [
            *(write(number, number * 10, number * 10) for number in (1, 2, 3)),
            op("write", 1, 5, 5, 6, key="gone"),
            delete(2, 15, 15),
            *(scan([20, 2], 25), scan([30, 3], 35), scan([5, 1], 10, "gone"), scan(None, 20, "gone")),
            scan([5, 1], 16, "gone", lasts=RETENTION_MS * _MS),
            scan([15, None], 18, "gone"),
        ]
        #: {replica: {key: records}}
        self.replicas: dict[int, dict[str, list[list[int | None]]]] = {
            1: {"kept": [[30, 3]], "gone": []},
            2: {"kept": [[20, 2], [30, 3]], "gone": [[15, None]]},
        }

    def bad(self) -> dict[str, str]:
        """{check that is not ok: its problems}."""
        self.history.sort(key=lambda each: each.invoked_ns)
        lines: list[dict[str, Any]] = [
            {
                "key": key,
                "replica": replica,
                "retention_ms": RETENTION_MS if key == "gone" else None,
                "records": records,
            }
            for replica, keys in self.replicas.items()
            for key, records in keys.items()
        ]
        verdicts = check_compacted(self.history, lines)
        return {each.check: "; ".join(each.problems) for each in verdicts if each.state != OK}


def test_what_is_right_is_found_right() -> None:
    world = World()
    assert world.bad() == {}


def test_an_unknown_outcome_may_be_the_newest() -> None:
    world = World()
    world.history += [write(4, 0, 40, outcome=UNKNOWN), scan([41, 4], 50)]
    assert world.bad() == {}
    for replica in world.replicas.values():
        replica["kept"].append([41, 4])
    assert world.bad() == {}


def old_value(world: World) -> None:
    world.replicas[1]["kept"] = [[20, 2]]


def lost(world: World) -> None:
    world.replicas[1]["kept"] = []


def tombstone_is_lost(world: World) -> None:
    world.history.append(delete(4, 40, 40, "kept"))
    for replica in world.replicas.values():
        replica["kept"] = []


def back_from_the_dead(world: World) -> None:
    world.replicas[2]["gone"] = [[5, 1]]


def scan_sees_an_old_value(world: World) -> None:
    world.history.append(scan([20, 2], 40))


def scan_sees_the_dead(world: World) -> None:
    world.history.append(scan([5, 1], 30, "gone"))


def scan_sees_nothing(world: World) -> None:
    world.history.append(scan(None, 40))


def replicas_differ(world: World) -> None:
    world.history.append(write(4, 0, 40, outcome=UNKNOWN))
    world.replicas[1]["kept"].append([41, 4])


def nobody_wrote_it(world: World) -> None:
    world.replicas[2]["kept"].insert(0, [12, 9])


def other_value(world: World) -> None:
    world.replicas[2]["kept"][0] = [20, 9]


def nothing_is_compacted(world: World) -> None:
    for replica in world.replicas.values():
        replica |= {"kept": [[10, 1], [20, 2], [30, 3]], "gone": [[5, 1], [15, None]]}


@pytest.mark.parametrize(
    ("plant", "check", "says"),
    [
        (old_value, CHECK_NEWEST, "acknowledged at 30, 2 at 20 is the last"),
        (lost, CHECK_NEWEST, "nothing is there"),
        (tombstone_is_lost, CHECK_NEWEST, "delete 4 was acknowledged at 40, nothing is there"),
        (back_from_the_dead, CHECK_NEWEST, "delete 2 was acknowledged at 15, 1 at 5"),
        (back_from_the_dead, CHECK_AGREE, "gone: replicas have"),
        (scan_sees_an_old_value, CHECK_SCANS, "2 at 20 is the last"),
        (scan_sees_the_dead, CHECK_SCANS, "1 at 5 is the last"),
        (scan_sees_nothing, CHECK_SCANS, "nothing is there"),
        (replicas_differ, CHECK_AGREE, "kept: replicas have"),
        (nobody_wrote_it, CHECK_REMOVED, "nobody can have written it"),
        (other_value, CHECK_REMOVED, "write 2 was acknowledged at 20, where 9 is"),
        (nothing_is_compacted, CHECK_REMOVED, "nothing was there to judge"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[World], None], check: str, says: str) -> None:
    world = World()
    plant(world)
    assert says in world.bad()[check]
