"""Steps of an import: what they set and delete, what they refuse, and what clients may do meanwhile."""

from __future__ import annotations

from typing import Any

import pytest

from quorum.core.codes import (
    BAD_ARGUMENTS,
    BAD_VERSION,
    NO_NODE,
    NODE_EXISTS,
    NOT_EMPTY,
    NOT_READ_ONLY,
    OK,
    RUNTIME_INCONSISTENCY,
)
from quorum.core.importing import ImportedNode, ImportedNumbers, walk
from quorum.core.snapshot import SnapshotWalk
from tests.unit.core.driver import Driver, chunks_of, data_at, dump, load, paths, replay, stat_at

SOURCE = "zk:2181"
#: of the source: its epoch is in the upper half
EPOCH = 7 << 32
NUMBERS = [EPOCH + 1, EPOCH + 5, EPOCH + 6, 1_111, 2_222, 4, 2, 0]


def change(
    path: str, data: bytes | None = b"", *, acl: Any = None, creates: int = 0, lifetime: int = 0
) -> list[Any]:
    return [path, data, acl, [*NUMBERS[:7], creates], lifetime]


@pytest.fixture
def driver() -> Driver:
    """A cluster with nothing in it, into which an import has begun."""
    driver = Driver()
    assert driver.import_step("begin", SOURCE, EPOCH + 9, None).err == OK
    return driver


def next_floor(driver: Driver) -> int:
    return driver.machine.transaction.import_floor + 1


def write(driver: Driver, *changes: Any, floor: int = 0) -> Any:
    result = driver.import_step("write", SOURCE, floor or next_floor(driver), list(changes))
    driver.machine.check_invariants()
    return result


def test_a_znode_is_set_as_it_is_at_the_source(driver: Driver) -> None:
    acl = [[31, "digest", "bob:hash"], [1, "world", "anyone"], [1, "ours", "x"]]
    assert write(driver, change("/a", None, acl=acl, creates=9), change("/a/b", b"x")).err == OK
    stat = stat_at(driver.machine, "/a")
    assert stat[:5] == (EPOCH + 1, EPOCH + 5, 1_111, 2_222, 4)
    assert (stat.cversion, stat.aversion, stat.children, stat.pzxid) == (2 * 9 - 1, 2, 1, EPOCH + 6)
    assert data_at(driver.machine, "/a") is None
    assert data_at(driver.machine, "/a/b") == b"x"
    [_, node, _] = walk(driver.machine.tree)
    expected = ImportedNumbers._make((*NUMBERS[:7], 9))
    stored = ((31, "digest", "bob:hash"), (1, "world", "anyone"), (1, "ours", "x"))
    assert node == ImportedNode("/a", None, stored, expected)


def test_the_zxid_jumps_above_the_source_and_then_rises_by_one(driver: Driver) -> None:
    assert driver.zxid == EPOCH + 10
    assert write(driver, change("/a")).zxid == EPOCH + 11
    assert write(driver, change("/b"), floor=EPOCH + 90).zxid == EPOCH + 91


def test_a_step_that_comes_late_does_nothing(driver: Driver) -> None:
    write(driver, change("/a", b"old"), floor=EPOCH + 20)
    write(driver, change("/a", b"new"), floor=EPOCH + 21)
    before = driver.machine.state_digest, driver.zxid
    for floor in (EPOCH + 20, EPOCH + 21):
        assert write(driver, change("/a", b"old"), floor=floor).err == RUNTIME_INCONSISTENCY
        assert driver.import_step("open", SOURCE, floor, None).err == RUNTIME_INCONSISTENCY
    assert (driver.machine.state_digest, driver.zxid) == before
    assert driver.import_step("begin", SOURCE, 0, None).value == EPOCH + 21


def test_the_counter_behind_sequential_names_goes_on(driver: Driver) -> None:
    write(driver, change("/q", creates=7), change("/q/n-0000000006"))
    assert driver.import_step("open", SOURCE, next_floor(driver), None).err == OK
    assert driver.connect().make("/q/n-", flags=2) == "/q/n-0000000007"


def test_a_child_before_its_parents_counter_is_set_right_by_it(driver: Driver) -> None:
    write(driver, change("/q"), change("/q/a"), change("/q/b"))
    write(driver, change("/q", creates=2))
    assert stat_at(driver.machine, "/q").cversion == 2
    write(driver, ["/q/a"], ["/q/b"])
    write(driver, change("/q"))
    assert stat_at(driver.machine, "/q").cversion == 0


def test_clients_read_and_do_not_write_until_it_is_open(driver: Driver) -> None:
    write(driver, change("/a", b"x"))
    client = driver.connect()
    for command in ([1, "/b", b"", None, 0], [5, "/a", b"y", -1], [2, "/a", -1], [14, []]):
        assert client.one(*command).err == NOT_READ_ONLY
    assert client.one(9, "/").err == OK
    assert data_at(driver.machine, "/a") == b"x"
    assert driver.import_step("open", SOURCE, next_floor(driver), None).err == OK
    assert client.put("/a", b"y").version == 5


def test_nothing_is_reaped_while_it_is_under_way(driver: Driver) -> None:
    write(driver, change("/t", lifetime=1), change("/c", lifetime=-1, creates=1))
    czxid = EPOCH + 1
    reaps = [["reap", "/t", czxid], ["reap", "/c", czxid]]
    assert [result.err for result in driver.control(*reaps)] == [NOT_READ_ONLY] * 2
    driver.import_step("open", SOURCE, next_floor(driver), None)
    driver.stamp_ms += 10_000
    assert [result.err for result in driver.control(*reaps)] == [OK] * 2
    assert paths(driver.machine)[1:] == ["/zookeeper", "/zookeeper/config", "/zookeeper/quota"]


def test_a_lifetime_comes_and_goes(driver: Driver) -> None:
    write(driver, change("/t", lifetime=5_000))
    assert list(driver.machine.tree.expirable) == ["/t"]
    write(driver, change("/t"))
    assert not driver.machine.tree.expirable
    write(driver, change("/t", lifetime=-1), ["/t"])
    assert not driver.machine.tree.expirable


def test_the_root_takes_data_and_counter_and_is_not_deleted(driver: Driver) -> None:
    assert write(driver, change("/", b"root", creates=3)).err == OK
    assert stat_at(driver.machine, "/").cversion == 2 * 3 - 1
    assert write(driver, ["/"]).err == BAD_ARGUMENTS


def test_a_target_with_znodes_is_refused_by_name() -> None:
    driver = Driver()
    driver.connect().make("/mine")
    zxid = driver.zxid
    result = driver.import_step("begin", SOURCE, EPOCH, None)
    assert (result.err, result.value, driver.zxid) == (NOT_EMPTY, "/mine", zxid)
    assert driver.connect().make("/more") == "/more"


def test_another_source_is_refused_and_the_same_goes_on(driver: Driver) -> None:
    write(driver, change("/a"))
    for kind in ("begin", "write", "open"):
        result = driver.import_step(kind, "other:1", 0, [])
        assert (result.err, result.value) == (NODE_EXISTS, SOURCE)
    assert driver.import_step("begin", SOURCE, 0, None).err == OK


@pytest.mark.parametrize("kind", ["write", "open"])
def test_without_an_import_there_is_nothing_to_write_or_open(kind: str) -> None:
    assert Driver().import_step(kind, SOURCE, 0, []).err == BAD_VERSION


@pytest.mark.parametrize(
    "wrong",
    [
        *(["/a"] * 2, "/a", [1], ["/zookeeper/a"], ["/zookeeper"], ["a"], ["/a/"], ["/" + "x" * 9000]),
        ["/a", 5, None, NUMBERS, 0],
        ["/a", b"", [], NUMBERS, 0],
        ["/a", b"", [[1, "world"]], NUMBERS, 0],
        ["/a", b"", None, NUMBERS[:7], 0],
        ["/a", b"", None, [9, 8, 9, 0, 0, 0, 0, 0], 0],
        ["/a", b"", None, [1, EPOCH * 2, 1, 0, 0, 0, 0, 0], 0],
        ["/a", b"", None, [1, 1, 1, 0, 0, 2**31, 0, 0], 0],
        ["/a", b"", None, NUMBERS, 2**40],
        ["/", b"", None, NUMBERS, -1],
    ],
)
def test_a_change_of_no_known_form_changes_nothing(driver: Driver, wrong: Any) -> None:
    before = driver.machine.state_digest, driver.zxid
    assert write(driver, change("/fine"), wrong).err == BAD_ARGUMENTS
    assert (driver.machine.state_digest, driver.zxid) == before


@pytest.mark.parametrize(
    "step", [("begin", "", 0, None), ("begin", SOURCE, -1, None), ("end", SOURCE, 0, [])]
)
def test_a_step_of_no_known_form_is_refused(step: tuple[Any, ...]) -> None:
    assert Driver().import_step(*step).err == BAD_ARGUMENTS


def test_a_change_without_a_place_names_its_path(driver: Driver) -> None:
    result = write(driver, change("/a"), change("/x/y"), change("/b"))
    assert (result.err, result.value) == (NO_NODE, "/x/y")
    assert "/a" in paths(driver.machine)
    write(driver, change("/a/b"))
    result = write(driver, ["/a"])
    assert (result.err, result.value) == (NOT_EMPTY, "/a")
    assert write(driver, ["/nowhere/at/all"]).err == OK


def test_watches_of_readers_fire(driver: Driver) -> None:
    assert [event[:2] for event in write(driver, change("/a")).events] == [(1, "/a"), (4, "/")]
    assert [event[:2] for event in write(driver, change("/a", b"new")).events] == [(3, "/a")]
    assert [event[:2] for event in write(driver, ["/a"]).events] == [(2, "/a"), (4, "/")]


def test_a_snapshot_knows_of_an_import_and_only_then_has_a_new_format(driver: Driver) -> None:
    write(driver, change("/a", creates=2, acl=[[1, "ip", "10.0.0.1"]]), change("/a/b", lifetime=77))
    chunks = chunks_of(SnapshotWalk(driver.machine))
    assert chunks[0][1] == 3
    restored = load(chunks)
    assert dump(restored) == dump(driver.machine)
    assert restored.transaction.import_source == SOURCE
    driver.import_step("open", SOURCE, next_floor(driver), None)
    assert chunks_of(SnapshotWalk(driver.machine))[0][1] == 2


def test_a_snapshot_that_is_walked_meanwhile_has_the_state_of_its_begin(driver: Driver) -> None:
    write(driver, change("/a", creates=1), change("/a/b"), *(change(f"/n{each}") for each in range(20)))
    before = dump(driver.machine)
    snapshot = SnapshotWalk(driver.machine)
    chunks = [snapshot.next_chunk(3)]
    write(driver, ["/a/b"], change("/a"), change("/n1", creates=3), change("/n1/x"), change("/new"))
    while (chunk := snapshot.next_chunk(2)) is not None:
        chunks.append(chunk)
    assert dump(load(chunks)) == before


def test_two_machines_agree(driver: Driver) -> None:
    write(driver, change("/a", b"x"))
    twin = Driver()
    for entry in driver.entries[len(twin.entries) :]:
        replay(twin.machine, entry)
    assert dump(twin.machine) == dump(driver.machine)
