"""The watch table, and what a returning client is told."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.rearm import rearm
from quorum.core.watches import WatchCause, WatchTable, branch_bytes, watch_bytes
from tests.unit.core.driver import Driver

DATA, EXIST, CHILD = WatchCause.DATA, WatchCause.EXIST, WatchCause.CHILD
RECURSIVE = WatchCause.RECURSIVE
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4


@pytest.mark.parametrize(
    ("kind", "fires"),
    [(DATA, {CREATED, DELETED, CHANGED}), (EXIST, {CREATED, DELETED, CHANGED}), (CHILD, {DELETED, CHILDREN})],
)
def test_which_event_reaches_which_kind(kind: WatchCause, fires: set[int]) -> None:
    for event in (CREATED, DELETED, CHANGED, CHILDREN, -1, -2, 99):
        table: WatchTable[str] = WatchTable()
        table.add(kind, "/a", "x")
        assert table.trigger(event, "/b") == []
        assert table.trigger(event, "/a") == (["x"] if event in fires else [])
        assert table.trigger(event, "/a") == [], "one shot"
        assert table.counts() == ((0, 0, 0) if event in fires else (1, 1, 1))


def test_a_deletion_reaches_a_watcher_once() -> None:
    table: WatchTable[str] = WatchTable()
    for kind in (DATA, EXIST, CHILD):
        table.add(kind, "/a", "x")
    assert table.counts() == (1, 1, 2), "data and exist watches are one"
    assert table.trigger(DELETED, "/a") == ["x"]
    assert table.counts() == (0, 0, 0)


def test_kinds_are_used_up_one_by_one() -> None:
    table: WatchTable[str] = WatchTable()
    table.add(CHILD, "/a", "x")
    table.add(DATA, "/a", "x")
    assert table.trigger(CHANGED, "/a") == ["x"]
    assert table.count_of("x") == 1
    assert table.trigger(CHANGED, "/a") == []
    assert table.trigger(CHILDREN, "/a") == ["x"]
    assert table.count_of("x") == 0


def test_watchers_are_reached_in_the_order_of_registration() -> None:
    table: WatchTable[int] = WatchTable()
    order = [5, 3, 9, 1, 7, 0]
    for watcher in (*order, 3, 5):
        table.add(DATA, "/a", watcher)
    assert table.trigger(CHANGED, "/a") == order


def test_a_watcher_that_leaves_takes_everything_along() -> None:
    table: WatchTable[str] = WatchTable()
    for path in ("/a", "/b", "/c"):
        table.add(DATA, path, "x")
        table.add(CHILD, path, "x")
    table.add(DATA, "/a", "y")
    assert table.counts() == (2, 3, 7)
    assert table.count_of("x") == 6
    table.remove_watcher("x")
    table.remove_watcher("x")
    assert table.counts() == (1, 1, 1)
    assert table.trigger(CHANGED, "/a") == ["y"]


def test_returning_clients_are_told_what_they_missed_and_left_the_rest() -> None:
    driver = Driver()
    client = driver.connect()
    for path in ("/same", "/changed", "/deleted", "/parent", "/leaf", "/parent2"):
        client.make(path)
    client.make("/parent2/x")
    seen = driver.zxid
    client.put("/changed", b"new")
    client.remove("/deleted")
    client.make("/parent/x")
    client.remove("/parent2/x")
    client.make("/created")
    table: WatchTable[str] = WatchTable()
    missed = rearm(
        driver.machine,
        table,
        "x",
        seen,
        ["/same", "/changed", "/deleted", "/parent"],
        ["/created", "/missing"],
        ["/parent", "/parent2", "/leaf", "/deleted", "/changed"],
    )
    assert missed == [
        (CHANGED, "/changed"),
        (DELETED, "/deleted"),
        (CREATED, "/created"),
        (CHILDREN, "/parent"),
        (CHILDREN, "/parent2"),
        (DELETED, "/deleted"),
    ]
    armed = {
        "/same": CHANGED,
        "/parent": CHANGED,
        "/missing": CREATED,
        "/leaf": CHILDREN,
        "/changed": CHILDREN,
    }
    assert table.count_of("x") == len(armed)
    for path, event in armed.items():
        assert table.trigger(event, path) == ["x"], path


def test_what_the_client_has_seen_is_not_missed() -> None:
    driver = Driver()
    client = driver.connect()
    client.make("/a")
    for change in (
        lambda: client.put("/a", b"x"),
        lambda: client.make("/a/b"),
        lambda: client.remove("/a/b"),
    ):
        change()
        table: WatchTable[str] = WatchTable()
        assert rearm(driver.machine, table, "x", driver.zxid, ["/a"], [], ["/a"]) == []
        assert table.count_of("x") == 2


def test_a_directory_that_was_created_since_is_a_change_of_its_children() -> None:
    driver = Driver()
    client = driver.connect()
    seen = driver.zxid
    client.make("/a")
    nothing: Any = []
    assert rearm(driver.machine, WatchTable[str](), "x", seen, ["/a"], nothing, ["/a"]) == [
        (CHANGED, "/a"),
        (CHILDREN, "/a"),
    ]


def test_a_recursive_watch_reaches_what_is_below_the_nearest_watcher_first() -> None:
    table: WatchTable[str] = WatchTable()
    for path, watcher in (
        ("/", "root"),
        ("/a/b", "near"),
        ("/a", "far"),
        ("/a/b/c/d", "below"),
        ("/ab", "x"),
    ):
        table.add(RECURSIVE, path, watcher)
    table.add(RECURSIVE, "/a", "near")
    assert table.trigger(CHANGED, "/a/b/c") == ["near", "far", "root"]
    assert table.trigger(DELETED, "/a/b") == ["near", "far", "root"]
    assert table.trigger(CREATED, "/z/y/x") == ["root"]
    assert table.trigger(CHILDREN, "/a/b/c") == []
    assert table.trigger(CHANGED, "/") == ["root"]


def test_recursive_watches_leave_nothing_behind() -> None:
    table: WatchTable[str] = WatchTable()
    table.add(RECURSIVE, "/a/b/c", "x")
    table.add(RECURSIVE, "/a/b", "x")
    table.add(RECURSIVE, "/a", "y")
    table.add(RECURSIVE, "/", "y")
    assert table.remove("/a/b", "x", int(RECURSIVE))
    assert table.trigger(CHANGED, "/a/b/c/d") == ["x", "y"]
    table.remove_watcher("x")
    assert table.trigger(CHANGED, "/a/b/c/d") == ["y"]
    table.remove_watcher("y")
    assert table.counts() == (0, 0, 0)
    assert table.trigger(CHANGED, "/a/b/c/d") == []
    assert not table._recursive.below


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//", "/a//b", "/../a", "/\0", "/a" * 257, "/" + "a" * 8192]
)
def test_a_watch_that_could_never_fire_is_not_kept(path: str) -> None:
    table: WatchTable[str] = WatchTable()
    for kind in WatchCause:
        table.add(kind, path, "x")
    assert table.counts() == (0, 0, 0)
    assert not table.has(path, "x", int(DATA))


def test_the_walk_to_recursive_watchers_ends_where_nobody_watches() -> None:
    table: WatchTable[str] = WatchTable()
    table.add(RECURSIVE, "/", "root")
    deep = "/s" * 256
    for _ in range(20_000):
        # A copy of the path per ancestor would be 2.6 GB.
        assert table.trigger(DELETED, deep) == ["root"]


def test_watches_count_what_they_cost_and_nothing_once_they_are_gone() -> None:
    table: WatchTable[str] = WatchTable()
    table.add(WatchCause.EXIST, "/a/b", "x")
    table.add(WatchCause.DATA, "/a/b", "x")
    plain = watch_bytes("/a/b")
    assert (table.total_bytes, table.bytes_of("x")) == (plain, plain)
    table.add(RECURSIVE, "/a/b", "x")
    table.add(RECURSIVE, "/a/b", "x")
    assert table.total_bytes == plain + branch_bytes("/a/b")
    table.add(WatchCause.CHILD, "/" + "\u2713" * 1000, "y")
    assert watch_bytes("/" + "\u2713" * 1000) > 4000
    assert table.fattest() == "y"
    assert table.remove("/a/b", "x", int(RECURSIVE))
    assert table.bytes_of("x") == plain
    assert table.trigger(DELETED, "/a/b") == ["x"]
    table.remove_watcher("y")
    assert (table.total_bytes, table.bytes_of("x"), table.fattest()) == (0, 0, None)
