"""Snapshots: what is walked while entries go on is the state at the start, and only a whole one is loaded."""

from __future__ import annotations

import contextlib
import copy
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from quorum.core.machine import StateMachine
from quorum.core.snapshot import SnapshotFormatError, SnapshotLoader, SnapshotOverflowError, SnapshotWalk
from tests.unit.core.driver import Client, Driver, chunks_of, dump, load, replay, through_msgpack


def started(overlay_bytes_max: int = 2**20) -> tuple[Driver, Client]:
    driver = Driver(StateMachine(overlay_bytes_max))
    driver.apply("found", "c1", b"k" * 32, b"{}")
    driver.register(1)
    driver.register(2, 2**64 - 1)
    client = driver.connect()
    driver.connect()
    client.identities = [["digest", "a:b"]]
    for top in ("p", "q", "r"):
        client.make(f"/{top}", top.encode())
        for number in range(7):
            client.make(f"/{top}/n{number}", b"%d" % number, flags=number % 2, acl=[[31, "auth", ""]])
        client.make(f"/{top}/deep", None)
        client.make(f"/{top}/deep/er")
        client.remove(f"/{top}/n0")
    client.remove("/q/deep/er")
    client.one(5, "/p", b"version", 7)
    driver.machine.check_invariants()
    return driver, client


@pytest.mark.parametrize("records_max", [1, 2, 5, 1000])
def test_a_restored_machine_is_equal_and_goes_on_equal(records_max: int) -> None:
    driver, client = started()
    walk = SnapshotWalk(driver.machine)
    assert (walk.index, walk.term) == (driver.machine.applied_index, 3)
    chunks = chunks_of(walk, records_max)
    assert walk.next_chunk(records_max) is None
    assert driver.machine.tree.overlay is None
    restored = load(chunks)
    restored.check_invariants()
    assert dump(restored) == dump(driver.machine)
    before = len(driver.entries)
    client.make("/p/seq", flags=3)
    client.make("/new", acl=[[3, "world", "anyone"]])
    client.multi([2, "/p/n1", -1], [13, "/p", 9])
    client.one(-11)
    for entry in driver.entries[before:]:
        replay(restored, entry)
    assert dump(restored) == dump(driver.machine)


def test_the_blank_machine_can_be_kept_too() -> None:
    assert dump(load(chunks_of(SnapshotWalk(StateMachine())))) == dump(StateMachine())


def disturb(client: Client, step: int) -> None:
    """Change the tree in ways that a walk may stumble over, another one in each step."""
    match step % 9:
        case 0:
            client.one(5, "/p/n1", b"changed", -1)
            client.one(5, "/r", b"changed", -1)
        case 1:
            client.one(2, "/q/n2", -1)
            client.one(1, "/q/n2/below", b"", None, 0)
        case 2:
            client.one(1, "/q/n2", b"again", None, 0)
            client.one(1, "/q/n2/child", b"", None, 0)
        case 3:
            client.multi([2, "/r/deep/er", -1], [2, "/r/deep", -1], [1, "/r/deep", b"leaf now", None, 0])
        case 4:
            client.one(1, "/r/n6/child", b"a leaf became a directory", None, 0)
        case 5:
            client.multi([2, "/p/deep/er", -1], [2, "/p/deep", -1])
            client.multi([1, "/p/deep", b"", None, 0], [1, "/p/deep/other", b"", None, 0])
        case 6:
            client.one(1, f"/created{step}", b"", None, 0)
            client.one(1, f"/created{step}/too", b"", None, 0)
        case 7:
            client.multi([5, "/q", b"never", -1], [2, "/q/n4", -1], [13, "/missing", 0])
        case 8:
            client.make("/q/s", flags=2)
            client.one(2, "/p/n3", -1)


@pytest.mark.parametrize("records_max", [1, 2, 3, 7])
@pytest.mark.parametrize("first", range(9))
def test_a_walk_shows_the_state_of_its_start(records_max: int, first: int) -> None:
    driver, client = started()
    before = dump(driver.machine)
    walk = SnapshotWalk(driver.machine)
    chunks, step = [], first
    while (chunk := walk.next_chunk(records_max)) is not None:
        chunks.append(through_msgpack(chunk))
        disturb(client, step)
        step += 1
    restored = load(chunks)
    restored.check_invariants()
    assert dump(restored) == before
    for entry in driver.entries[restored.applied_index :]:
        replay(restored, entry)
    assert dump(restored) == dump(driver.machine)
    driver.machine.check_invariants()


def test_everything_may_be_deleted_under_a_walk() -> None:
    driver, client = started()
    before = dump(driver.machine)
    walk = SnapshotWalk(driver.machine)
    chunks = [through_msgpack(walk.next_chunk(3)) for _ in range(3)]
    client.one(-11)
    other = driver.connect()
    for path in sorted(dump(driver.machine)["nodes"], reverse=True):
        other.one(2, path, -1)
    chunks += chunks_of(walk, 3)
    assert dump(load(chunks)) == before


@pytest.mark.parametrize("seed", range(6))
def test_children_come_and_go_in_the_directory_that_is_being_walked(seed: int) -> None:
    choose = random.Random(seed)
    driver, client = started()
    client.make("/big")
    names = [f"/big/{number}" for number in range(500)]
    for name in names:
        client.make(name, choose.randbytes(choose.choice((1, 300))))
    for name in choose.sample(names, 20):
        client.make(f"{name}/below")
        names.remove(name)
    before = dump(driver.machine)
    walk = SnapshotWalk(driver.machine)
    chunks: list[Any] = []
    while (chunk := walk.next_chunk(choose.randint(1, 40), choose.choice((500, 2**20)))) is not None:
        chunks.append(through_msgpack(chunk))
        # Equal numbers of both kinds: a dict of the same size as before may still have been rebuilt.
        for _ in range(choose.randint(0, 12)):
            client.remove(names.pop(choose.randrange(len(names))))
            names.append(client.make("/big/new", flags=2))
        client.put(choose.choice(names), b"changed")
    assert dump(load(chunks)) == before
    driver.machine.check_invariants()


def test_a_quiet_directory_is_looked_at_in_steps() -> None:
    driver, client = started()
    client.make("/big")
    for number in range(100):
        client.make(f"/big/{number}")
    walk = SnapshotWalk(driver.machine)
    chunks: list[Any] = []
    while (chunk := walk.next_chunk(10)) is not None:
        chunks.append(through_msgpack(chunk))
        client.put("/big/7", b"changed")
    leaves = [len(group[3]) // 2 for chunk in chunks if chunk[0] == "nodes" for group in chunk[1:]]
    assert max(leaves) <= 10


def test_a_walk_knows_whether_it_is_ahead_of_the_overlay() -> None:
    driver, client = started(overlay_bytes_max=20_000)
    client.make("/big")
    for number in range(100):
        client.make(f"/big/{number}")
    walk = SnapshotWalk(driver.machine)
    assert not walk.ahead, "nothing was looked at, and nothing is kept"
    walk.next_chunk(1)
    while walk.next_chunk(20):
        if driver.machine.tree.overlay is not None:
            assert walk.ahead
    walk = SnapshotWalk(driver.machine)
    walk.next_chunk(1)
    walk.next_chunk(20)
    for number in range(50):
        client.put(f"/big/{number}", b"changed")
    assert not walk.ahead


def test_a_chunk_is_bounded_by_its_bytes() -> None:
    driver, client = started()
    client.make("/big")
    for number in range(20):
        client.make(f"/big/{number}", bytes(1000))
    walk = SnapshotWalk(driver.machine)
    sizes = []
    while (chunk := walk.next_chunk(1000, 2500)) is not None:
        records = [
            leaf for group in through_msgpack(chunk)[1:] if chunk[0] == "nodes" for leaf in group[3][1::2]
        ]
        sizes.append(sum(map(len, records)))
    assert max(sizes) <= 2500 + 1072
    assert sum(size > 2000 for size in sizes) >= 6


# The bound


def test_too_many_changes_end_the_walk_and_not_the_machine() -> None:
    driver, client = started(overlay_bytes_max=2_000)
    walk = SnapshotWalk(driver.machine)
    walk.next_chunk(3)
    before = walk.overflown
    for number in range(10):
        client.make(f"/many{number}", bytes(100))
    assert (before, walk.overflown) == (False, True)
    assert driver.machine.tree.overlay is None
    with pytest.raises(SnapshotOverflowError, match="snapshot_overlay_bytes_max"):
        walk.next_chunk(3)
    assert dump(load(chunks_of(SnapshotWalk(driver.machine)))) == dump(driver.machine)


@pytest.mark.parametrize("overlay_bytes_max", range(0, 1_600, 100))
def test_the_bound_may_be_passed_in_the_middle_of_a_change(overlay_bytes_max: int) -> None:
    driver, client = started(overlay_bytes_max)
    walk = SnapshotWalk(driver.machine)
    client.remove("/p/deep/er")
    client.make("/q/n2/child")
    client.multi([2, "/r/n2", -1], [1, "/r/n2", b"", None, 0], [13, "/missing", 0])
    walk.close()
    driver.machine.check_invariants()
    assert client.make("/q/n2/seq", flags=2) == "/q/n2/seq0000000001"


def test_changing_the_same_node_often_takes_room_once() -> None:
    driver, client = started(overlay_bytes_max=1_000)
    walk = SnapshotWalk(driver.machine)
    for number in range(50):
        client.put("/p", b"%d" % number)
    assert not walk.overflown


def test_changes_behind_the_walk_take_no_room() -> None:
    driver, client = started()
    before = dump(driver.machine)
    walk = SnapshotWalk(driver.machine)
    chunks: list[Any] = []
    client.put("/p", b"first")
    client.put("/q", b"second")
    while not chunks or chunks[-1][0] != "changed":
        chunks.append(through_msgpack(walk.next_chunk(1 if chunks else 100)))
        if chunks[-1][0] == "nodes":
            client.put("/p/n2", b"third")
    assert driver.machine.tree.overlay is None
    client.put("/r", b"last")
    assert dump(load(chunks + chunks_of(walk))) == before


def test_one_walk_at_a_time_begun_between_entries() -> None:
    driver, client = started()
    walk = SnapshotWalk(driver.machine)
    with pytest.raises(ValueError, match="another is under way"):
        SnapshotWalk(driver.machine)
    walk.close()
    walk.close()
    SnapshotWalk(driver.machine).close()
    runs: list[Any] = [[client.session_id, client.nonce, None, []]] * 2
    outcomes = driver.machine.apply_batch(
        driver.machine.applied_index + 1, 3, 10**6, 1, 2**64 - 5, driver.batches[1] + 1, runs
    )
    next(outcomes)
    with pytest.raises(ValueError, match="half applied"):
        SnapshotWalk(driver.machine)


# The loader


def good() -> list[Any]:
    driver, client = started()
    walk = SnapshotWalk(driver.machine)
    chunks = [through_msgpack(walk.next_chunk(1)), through_msgpack(walk.next_chunk(4))]
    client.put("/r/n4", b"later")
    client.make("/r/n4-", flags=2)
    return chunks + chunks_of(walk, 4)


def test_every_chunk_is_needed() -> None:
    chunks = good()
    load(chunks)
    for missing in range(len(chunks)):
        with pytest.raises(SnapshotFormatError):
            load(chunks[:missing] + chunks[missing + 1 :])


def test_no_chunk_comes_twice_but_changed_ones() -> None:
    chunks = good()
    for number, chunk in enumerate(chunks):
        doubled = chunks[: number + 1] + chunks[number:]
        if chunk[0] == "changed":
            load(doubled)
        else:
            with pytest.raises(SnapshotFormatError):
                load(doubled)


def test_a_foreign_format_is_named() -> None:
    chunks = good()
    chunks[0][1] = 4
    with pytest.raises(SnapshotFormatError, match="format of the state is 4, this version reads 1 to 3"):
        load(chunks)


MUTANTS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.text(max_size=3),
    st.binary(max_size=80),
    st.lists(st.integers(0, 3), max_size=4),
    st.dictionaries(st.integers(), st.integers(), max_size=2),
    st.sampled_from(["/", "/p", "/p/n1", "/zookeeper"]),
)


def places(value: Any) -> list[tuple[Any, int]]:
    """Every element of every list in a value, as (list, index)."""
    found = []
    for index, element in enumerate(value):
        found.append((value, index))
        if isinstance(element, list):
            found += places(element)
    return found


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_mutated_snapshot_is_loaded_or_refused_but_never_crashes(data: st.DataObject) -> None:
    chunks = copy.deepcopy(GOOD)
    spots = places(chunks)
    holder, index = spots[data.draw(st.integers(0, len(spots) - 1))]
    old = holder[index]
    if isinstance(old, bytes) and old and data.draw(st.booleans()):
        position = data.draw(st.integers(0, len(old) - 1))
        holder[index] = (
            old[:position]
            + bytes([old[position] ^ (1 << data.draw(st.integers(0, 7)))])
            + old[position + 1 :]
        )
    else:
        holder[index] = data.draw(MUTANTS)
    with contextlib.suppress(SnapshotFormatError):
        load(chunks)


@settings(max_examples=100, deadline=None)
@given(chunks=st.lists(MUTANTS | st.lists(MUTANTS, max_size=4), max_size=4))
def test_garbage_is_refused(chunks: list[Any]) -> None:
    with pytest.raises(SnapshotFormatError):
        load(chunks)


def test_an_unfinished_load_is_refused() -> None:
    with pytest.raises(SnapshotFormatError, match="end"):
        SnapshotLoader().finish()


GOOD = good()
