"""How the change of a disk's room is told, and over which span."""

from __future__ import annotations

from pathlib import Path

from quorum.platform.disk_room import INTERVAL_S, SPAN_S, DiskRoom


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_the_change_is_since_the_first_look_and_says_so() -> None:
    clock = Clock()
    room = DiskRoom(Path(), clock)
    assert room.take(900, 1000) == (900, 1000, 0, 0.0)
    clock.now_s += 30
    assert room.take(880, 1000) == (880, 1000, -20, 30.0)
    clock.now_s += INTERVAL_S
    assert room.take(950, 1000) == (950, 1000, 50, 30 + INTERVAL_S)


def test_looks_of_more_than_a_day_ago_do_not_count() -> None:
    clock = Clock()
    room = DiskRoom(Path(), clock)
    room.take(10_000, 10_000)
    for each in range(2 * int(SPAN_S / INTERVAL_S)):
        clock.now_s += INTERVAL_S
        found = room.take(9_000 - each, 10_000)
    assert found.span_s == SPAN_S
    assert found.change_bytes == -int(SPAN_S / INTERVAL_S)
    assert len(room._samples) <= SPAN_S / INTERVAL_S + 1


def test_after_a_long_time_without_a_look_the_change_begins_anew() -> None:
    clock = Clock()
    room = DiskRoom(Path(), clock)
    room.take(900, 1000)
    clock.now_s += 2 * SPAN_S
    assert room.take(100, 1000) == (100, 1000, 0, 0.0)


def test_a_real_folder_has_room_and_a_missing_one_has_none(tmp_path: Path) -> None:
    found = DiskRoom(tmp_path).look()
    assert found is not None
    assert 0 < found.free_bytes <= found.size_bytes
    assert DiskRoom(tmp_path / "missing").look() is None
