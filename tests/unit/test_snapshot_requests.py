"""A request for a snapshot: it is listed once it is durable, or `problem` says why there is none."""

from __future__ import annotations

import errno

import pytest

from quorum.core.machine import StateMachine
from quorum.core.snapshot_walk import SnapshotIncompleteError, SnapshotWalk
from quorum.errors import SnapshotNotTakenError
from quorum.raft.snapshots.writer import SNAPSHOT_LANE
from tests.unit.test_snapshotting import GIVE_UP_PAUSE_MS, NODES, REST_MS, Bench


def newest_index(bench: Bench) -> int:
    newest = bench.store.newest
    return 0 if newest is None else newest.log_index


def test_it_is_of_all_that_was_applied_and_durable_when_it_is_listed() -> None:
    bench = Bench()
    wanted = bench.snapshotter.request()
    assert wanted == bench.machine.applied_index
    assert newest_index(bench) == 0
    bench.finish()
    newest = bench.store.newest
    assert newest is not None
    assert (newest.log_index, newest.term) == (wanted, bench.machine.applied_term)
    bench.disk.power_cut()
    assert bench.disk.open(newest.path).size() == newest.size_bytes


def test_nothing_is_written_where_nothing_was_applied_since_the_newest() -> None:
    bench = Bench()
    first = bench.snapshotter.request()
    bench.finish()
    assert bench.snapshotter.request() == first
    assert not bench.snapshotter.active
    bench.write(0)
    assert bench.snapshotter.request() == first + 1
    bench.finish()
    assert newest_index(bench) == first + 1
    assert bench.snapshotter.taken_count == 2


def test_where_nothing_was_applied_at_all_it_is_refused() -> None:
    bench = Bench()
    bench.machine = StateMachine(2**20)
    with pytest.raises(SnapshotNotTakenError, match="nothing was applied yet"):
        bench.snapshotter.request()
    assert not bench.snapshotter.active


def test_one_under_way_serves_if_nothing_was_applied_since() -> None:
    bench = Bench()
    bench.begin()
    bench.chunks(1)
    wanted = [bench.snapshotter.request() for _ in range(3)]
    bench.finish()
    assert {newest_index(bench)} == set(wanted)
    assert bench.snapshotter.taken_count == 1


def test_one_that_began_before_the_last_write_is_followed_by_another() -> None:
    bench = Bench()
    bench.snapshotter.request()
    bench.runtime.turn()
    bench.chunks(1)
    bench.write(0)
    wanted = bench.snapshotter.request()
    bench.finish()
    bench.finish()
    assert newest_index(bench) == wanted == bench.machine.applied_index
    assert bench.snapshotter.taken_count == 2


@pytest.mark.parametrize("operation", ["create", "pwrite", "fdatasync", "rename", "fsync_dir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_disk_that_refuses_it_is_told_until_somebody_asks_again(operation: str, number: int) -> None:
    bench = Bench()
    bench.disk.fail(operation, number)
    wanted = bench.snapshotter.request()
    bench.finish()
    assert bench.snapshotter.problem.startswith("no snapshot was taken: ")
    assert ("No space left" if number == errno.ENOSPC else "Input/output") in bench.snapshotter.problem
    assert bench.snapshotter.taken_count == 0
    assert bench.snapshotter.request() == wanted
    assert bench.snapshotter.problem == ""
    bench.finish()
    assert newest_index(bench) == wanted


def test_one_that_is_read_back_damaged_is_refused_and_names_its_file() -> None:
    bench = Bench()
    bench.snapshotter.request()
    bench.runtime.turn()
    while bench.chunks(1):
        pass
    # All but the end is written; the file has no name yet.
    while len(bench.runtime.lanes[SNAPSHOT_LANE]) > 1:
        bench.runtime.work(SNAPSHOT_LANE)
    (name,) = bench.disk.listdir("/data/snapshots")
    bench.disk.open(f"/data/snapshots/{name}", writable=True).pwrite([b"\xff"], 60)
    bench.finish()
    assert name in bench.snapshotter.problem


def test_a_walk_that_lost_nodes_is_told_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    def next_chunk(_self: SnapshotWalk, _records: int) -> None:
        raise SnapshotIncompleteError("3 names were left")

    bench = Bench()
    monkeypatch.setattr(SnapshotWalk, "next_chunk", next_chunk)
    bench.snapshotter.request()
    bench.finish()
    assert "3 names were left" in bench.snapshotter.problem


def test_one_that_is_given_up_is_begun_again() -> None:
    bench = Bench(overlay_bytes_max=20_000)
    bench.snapshotter.request()
    bench.runtime.turn()
    for number in range(NODES):
        bench.write(number)
    bench.chunks(1)
    assert bench.snapshotter.failed_count == 1
    wanted = bench.snapshotter.request()
    assert bench.snapshotter.problem == ""
    bench.runtime.advance(GIVE_UP_PAUSE_MS)
    bench.finish()
    assert newest_index(bench) == wanted, "of the state when it began again"
    assert bench.snapshotter.taken_count == 1


def test_a_state_that_is_replaced_has_no_snapshot() -> None:
    bench = Bench()
    bench.snapshotter.request()
    bench.runtime.turn()
    bench.chunks(1, after_ms=REST_MS)
    bench.snapshotter.abandon()
    assert "replaced" in bench.snapshotter.problem
    wanted = bench.snapshotter.request()
    bench.finish()
    assert newest_index(bench) == wanted
