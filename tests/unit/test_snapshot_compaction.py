"""What goes when a snapshot is done: the files of older ones in the snapshot's lane, then the log behind."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.core.machine import StateMachine
from quorum.node.compaction import REMOVAL_RETRY_MS, Compaction
from quorum.node.snapshotting import LastSnapshot, Snapshotter
from quorum.platform.histogram import Histogram
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import Compacted, Stimulus
from quorum.raft.journal.journal import Install, Journal, JournalFullError, JournalOptions
from quorum.raft.journal.writer import JOURNAL_LANE, JournalWriter
from quorum.raft.snapshots.snapshots import SnapshotStore, SnapshotTransferError
from quorum.raft.snapshots.writer import SNAPSHOT_LANE
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.unit.core.driver import CONFIGURATION, SESSION_KEY, Driver

SNAPSHOTS, JOURNAL = "/data/snapshots", "/data/journal"


class Bench:
    """A snapshotter over a small state whose log fills a segment with every entry."""

    def __init__(self) -> None:
        self.driver = Driver(StateMachine(1 << 20))
        self.driver.apply("found", "c1", SESSION_KEY, CONFIGURATION)
        self.driver.register()
        self.client = self.driver.connect()
        self.machine = self.driver.machine
        self.log_is_long = False
        self.applies = Histogram()
        self.runtime = ManualRuntime()
        self.disk = MemoryDisk(random.Random(0))
        self.store = SnapshotStore(self.disk, SNAPSHOTS, self.fail)
        Journal.create(self.disk, JOURNAL)
        self.journal, _ = Journal.open(self.disk, JOURNAL, JournalOptions(1024, 4096), self.fail)
        self.steps: list[Stimulus] = []
        self.failures: list[object] = []
        self.writer = JournalWriter(self.journal, self.runtime, self.fail, self.fail)
        self.snapshotter = Snapshotter(
            self,
            self.store,
            Compaction(self.store, self.journal, self.writer, self.runtime, self.steps.append, self.fail),
            self.runtime,
            self.fail,
            log_bytes_max=1 << 30,
        )

    def fail(self, story: object) -> None:
        self.failures.append(story)

    def snapshot(self) -> None:
        """Write some log and take a snapshot of the state; stops where its file is finished."""
        self.client.make(f"/n{self.machine.applied_index}", b"")
        while self.journal.last_index < self.machine.applied_index:
            self.journal.append([Entry(self.journal.last_index + 1, 1, EntryKind.BATCH, 0, bytes(1000))])
        self.snapshotter.take()
        taken = self.snapshotter.taken_count
        while self.snapshotter.taken_count == taken:
            self.runtime.turn()
            if self.snapshotter.taken_count == taken:
                self.runtime.work(SNAPSHOT_LANE)

    def settled_snapshots(self, count: int) -> None:
        for _ in range(count):
            self.snapshot()
            self.runtime.settle()


def test_older_files_go_in_the_lane_and_the_log_behind_them_afterwards() -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    segments = bench.disk.listdir(JOURNAL)
    bench.steps.clear()
    bench.snapshot()
    assert len(bench.store.files()) == 2
    assert len(bench.disk.listdir(SNAPSHOTS)) == 3, "nothing is removed in the loop"
    for _ in range(5):
        bench.runtime.turn()
        assert not bench.runtime.work(JOURNAL_LANE), "the log waits for the files"
    assert not bench.steps
    assert bench.runtime.work(SNAPSHOT_LANE)
    assert len(bench.disk.listdir(SNAPSHOTS)) == 2
    bench.runtime.settle()
    oldest = bench.store.files()[0].log_index
    assert bench.steps == [Compacted(bench.journal.first_index)]
    assert 1 < bench.journal.first_index <= oldest + 1
    assert not set(segments) <= set(bench.disk.listdir(JOURNAL))
    assert not bench.failures


def test_a_segment_before_the_older_snapshot_stays() -> None:
    bench = Bench()
    bench.settled_snapshots(5)
    older = bench.store.files()[0].log_index
    assert bench.journal.first_index == older, "an entry fills a segment"


def test_a_snapshot_that_did_not_count_goes_before_the_log_behind_it() -> None:
    bench = Bench()
    bench.disk.fail("fsync_dir", errno.EIO, path_part=SNAPSHOTS)
    bench.snapshotter.take()
    bench.runtime.settle()
    assert bench.snapshotter.failed_count == 1
    assert not bench.store.files()
    (unfinished,) = bench.disk.listdir(SNAPSHOTS)
    bench.snapshot()
    assert unfinished in bench.disk.listdir(SNAPSHOTS)
    bench.runtime.turn()
    assert not bench.steps, "a start would count it, and needs the log behind it"
    bench.runtime.settle()
    assert bench.steps == [Compacted(bench.journal.first_index)]
    assert [f"{SNAPSHOTS}/{name}" for name in bench.disk.listdir(SNAPSHOTS)] == [
        file.path for file in bench.store.files()
    ]
    assert not bench.failures


def test_what_an_installed_snapshot_took_back_goes_with_the_install() -> None:
    bench = Bench()
    bench.settled_snapshots(1)
    for _ in range(3):
        last = bench.journal.last_index
        bench.journal.append([Entry(last + 1, 2, EntryKind.BATCH, 0, bytes(1000))])
        bench.journal.append([Install(last + 100, 2)])
        assert bench.journal.segment_count > 1
        bench.steps.clear()
        bench.snapshotter.installed(LastSnapshot(0, 0))
        bench.runtime.settle()
        assert bench.journal.segment_count == 1
        assert (bench.steps, bench.failures) == ([], [])


def test_what_a_staged_group_takes_back_is_compacted_once_that_is_durable() -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    last = bench.journal.last_index
    bench.journal.append([Entry(last + 1, 1, EntryKind.BATCH, 0, bytes(1000))])
    bench.journal.append([Entry(last + 2, 1, EntryKind.BATCH, 0, bytes(1000))])
    bench.disk.fail("pwrite", errno.ENOSPC, path_part=".segment")
    durable: list[int] = []
    bench.writer.submit([Install(last + 100, 2)], lambda: durable.append(1))
    bench.runtime.settle()
    assert bench.journal.takes_back
    segments = bench.disk.listdir(JOURNAL)
    bench.snapshotter.installed(LastSnapshot(0, 0))
    bench.runtime.settle()
    assert bench.disk.listdir(JOURNAL) == segments, "they hold what a start would find"
    bench.writer.retry()
    bench.runtime.settle()
    assert durable == [1]
    assert bench.journal.segment_count == 1
    assert [error for error in bench.failures if not isinstance(error, JournalFullError)] == []


def test_a_disk_that_does_not_remove_them_stops_the_node() -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    bench.snapshot()
    bench.disk.fail("unlink", errno.EIO)
    bench.runtime.settle()
    assert [error.errno for error in bench.failures if isinstance(error, OSError)] == [errno.EIO]
    assert len(bench.disk.listdir(SNAPSHOTS)) == 3


def test_a_full_disk_that_does_not_remove_them_is_asked_again_and_the_log_waits() -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    bench.snapshot()
    bench.steps.clear()
    bench.disk.fail("unlink", errno.ENOSPC, times=2)
    bench.runtime.settle()
    assert len(bench.disk.listdir(SNAPSHOTS)) == 3
    assert not bench.steps
    for _ in range(3):
        bench.runtime.advance(REMOVAL_RETRY_MS)
        bench.runtime.settle()
    assert len(bench.disk.listdir(SNAPSHOTS)) == 2
    assert bench.steps == [Compacted(bench.journal.first_index)]
    assert not bench.failures


@pytest.mark.parametrize("attempts", [1, 2])
def test_a_node_that_stopped_removes_nothing_any_more(attempts: int) -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    bench.disk.fail("unlink", errno.ENOSPC, times=attempts)
    bench.settled_snapshots(attempts)
    bench.snapshotter.stop()
    bench.runtime.advance(REMOVAL_RETRY_MS)
    bench.runtime.settle()
    assert len(bench.disk.listdir(SNAPSHOTS)) == 2 + attempts


def test_a_snapshot_that_was_let_go_of_cannot_be_sent_any_more() -> None:
    bench = Bench()
    bench.settled_snapshots(2)
    oldest = bench.store.files()[0].log_index
    bench.snapshot()
    with pytest.raises(SnapshotTransferError, match=str(oldest)):
        bench.store.pin(oldest)
