"""The order of writing: groups, acknowledgements, errors. Every interleaving is chosen by hand."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.errors import NodeStoppedError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.journal import writer as journal_writer
from quorum.raft.journal.journal import Journal, JournalFailedError, JournalFullError, JournalOptions
from quorum.raft.journal.writer import (
    INLINE_PROBES,
    INLINE_REST_MS,
    INLINE_WRITE_MS_WORST,
    JOURNAL_LANE,
    REMOVAL_RETRY_MS,
    STALL_MS,
    JournalWriter,
)
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import Cut, MemoryDisk

DIRECTORY = "/data/journal"
ALL = 1 << 40


def entry(index: int, payload: bytes = b"x" * 100) -> Entry:
    return Entry(index, 1, EntryKind.BATCH, 1000 + index, payload)


class Bench:
    """A writer on a disk and a runtime that do what the test says, and what became durable."""

    def __init__(self, options: JournalOptions | None = None) -> None:
        self.disk = MemoryDisk(random.Random(0))
        self.runtime = ManualRuntime()
        self.options = options or JournalOptions()
        Journal.create(self.disk, DIRECTORY)
        self.journal, _ = Journal.open(self.disk, DIRECTORY, self.options, lambda _line: None)
        self.fatal: list[Exception] = []
        self.full: list[JournalFullError] = []
        self.durable: list[int] = []
        self.writer = JournalWriter(self.journal, self.runtime, self.fatal.append, self.full.append)

    def submit(self, *indexes: int) -> None:
        self.writer.submit([entry(index) for index in indexes], lambda: self.durable.append(indexes[-1]))

    def warmed_up(self) -> Bench:
        """Make the disk known as quick."""
        for index in range(1, INLINE_PROBES + 1):
            self.submit(index)
            self.runtime.settle()
        self.durable.clear()
        return self

    def on_platter(self) -> int:
        """Return the last log index that a power cut right now would leave."""
        copy = self.disk.copy(random.Random(0))
        copy.power_cut(Cut.NOTHING)
        return Journal.open(copy, DIRECTORY, self.options, lambda _line: None)[1].last_index


def test_nothing_is_written_within_submit() -> None:
    bench = Bench().warmed_up()
    fsyncs = bench.disk.fsyncs
    bench.submit(9)
    assert (bench.disk.fsyncs, bench.durable) == (fsyncs, [])
    bench.runtime.turn()
    assert bench.durable == [9]
    assert bench.disk.fsyncs == fsyncs + 1


def test_acknowledgements_follow_durability_in_the_order_of_submission() -> None:
    bench = Bench()
    bench.submit(1)
    bench.submit(2, 3)
    bench.writer.submit([], lambda: bench.durable.append(-1))
    bench.runtime.turn()
    assert bench.durable == []
    assert bench.on_platter() == 0
    bench.runtime.work(JOURNAL_LANE)
    assert bench.on_platter() == 3
    assert bench.durable == []
    bench.runtime.turn()
    assert bench.durable == [1, 3, -1]
    assert bench.writer.statistics.groups == 1


def test_what_is_submitted_during_an_fsync_becomes_one_group() -> None:
    bench = Bench()
    bench.submit(1)
    bench.runtime.turn()
    for index in range(2, 8):
        bench.submit(index)
        bench.runtime.turn()
    bench.runtime.settle()
    assert bench.durable == [1, 2, 3, 4, 5, 6, 7]
    statistics = bench.writer.statistics
    assert (statistics.groups, statistics.fsyncs, statistics.records) == (2, 2, 7)


def test_a_submission_without_records_waits_for_those_before_it() -> None:
    bench = Bench()
    bench.submit(1)
    bench.runtime.turn()
    bench.writer.submit([], lambda: bench.durable.append(-1))
    bench.runtime.turn()
    assert bench.durable == []
    bench.runtime.settle()
    assert bench.durable == [1, -1]
    assert bench.writer.idle


def test_a_slow_disk_is_left_to_the_thread_until_it_is_quick_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench().warmed_up()
    bench.submit(9)
    bench.runtime.turn()
    assert bench.writer.statistics.inline_fsyncs == 1
    write = bench.journal.write

    def slow(group: object) -> None:
        write(group)  # type: ignore[arg-type]
        bench.runtime.now_ms += INLINE_WRITE_MS_WORST

    monkeypatch.setattr(bench.journal, "write", slow)
    bench.submit(10)
    bench.runtime.turn()
    monkeypatch.undo()
    for index in range(11, 11 + INLINE_PROBES):
        bench.submit(index)
        bench.runtime.turn()
        assert bench.durable[-1] == index - 1
        bench.runtime.settle()
    bench.submit(11 + INLINE_PROBES)
    bench.runtime.turn()
    assert bench.durable[-1] == 11 + INLINE_PROBES
    assert bench.writer.statistics.inline_fsyncs == 3


@pytest.mark.parametrize("inline", [True, False])
def test_after_a_stall_nothing_is_written_in_the_loop_for_long(
    monkeypatch: pytest.MonkeyPatch, inline: bool
) -> None:
    bench = Bench().warmed_up() if inline else Bench()
    write = bench.journal.write

    def stalling(group: object) -> None:
        write(group)  # type: ignore[arg-type]
        bench.runtime.now_ms += STALL_MS

    monkeypatch.setattr(bench.journal, "write", stalling)
    first = INLINE_PROBES + 1 if inline else 1
    bench.submit(first)
    bench.runtime.settle()
    monkeypatch.undo()
    assert bench.writer.statistics.inline_fsyncs == inline
    second = first + 2 * INLINE_PROBES
    for index in range(first + 1, second):
        bench.submit(index)
        bench.runtime.settle()
    bench.runtime.now_ms += INLINE_REST_MS - 1
    bench.submit(second)
    bench.runtime.turn()
    assert bench.durable[-1] == second - 1
    bench.runtime.settle()
    bench.runtime.now_ms += 1
    bench.submit(second + 1)
    bench.runtime.turn()
    assert bench.durable[-1] == second + 1
    assert bench.writer.statistics.inline_fsyncs == inline + 1


def test_a_large_group_never_holds_up_the_loop() -> None:
    bench = Bench().warmed_up()
    bench.writer.submit(
        [entry(9, b"x" * (journal_writer.INLINE_BYTES_MAX + 1))], lambda: bench.durable.append(9)
    )
    bench.runtime.turn()
    assert bench.durable == []
    bench.runtime.settle()
    assert bench.durable == [9]


def test_a_new_segment_never_holds_up_the_loop() -> None:
    bench = Bench(JournalOptions(segment_bytes_max=2048)).warmed_up()
    inline = []
    for index in range(9, 30):
        segments = bench.journal.segment_count
        bench.submit(index)
        bench.runtime.turn()
        inline.append((bench.durable[-1:] == [index], bench.journal.segment_count > segments))
        bench.runtime.settle()
    assert (True, True) not in inline
    assert (False, True) in inline
    assert (True, False) in inline


def test_a_group_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "GROUP_BYTES_MAX", 400)
    bench = Bench()
    for index in range(1, 8):
        bench.submit(index)
    bench.runtime.settle()
    assert bench.durable == [1, 2, 3, 4, 5, 6, 7]
    assert bench.writer.statistics.groups == 4


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_writer, "QUEUE_BYTES_MAX", 400)
    bench = Bench()
    bench.submit(1)
    bench.submit(2)
    assert bench.writer.queued_bytes == 2 * 164
    with pytest.raises(NodeStoppedError, match="400"):
        bench.submit(3)
    bench.runtime.settle()
    assert bench.writer.queued_bytes == 0
    bench.submit(3)


def test_a_callback_may_submit() -> None:
    bench = Bench().warmed_up()
    bench.writer.submit([entry(9)], lambda: bench.submit(10))
    bench.runtime.turn()
    assert bench.durable == []
    bench.runtime.turn()
    assert bench.durable == [10]


@pytest.mark.parametrize("inline", [True, False])
def test_after_a_failed_fsync_nothing_is_acknowledged_any_more(inline: bool) -> None:
    bench = Bench().warmed_up() if inline else Bench()
    first = bench.journal.last_index + 1
    bench.disk.fail("fdatasync", errno.EIO)
    bench.submit(first)
    bench.runtime.turn()
    if not inline:
        bench.submit(first + 1)
    bench.runtime.settle()
    assert [type(error) for error in bench.fatal] == [JournalFailedError]
    fsyncs = bench.disk.fsyncs
    bench.submit(first + 2)
    bench.writer.retry()
    bench.writer.submit([], lambda: bench.durable.append(-1))
    bench.runtime.settle()
    assert (bench.durable, bench.disk.fsyncs, len(bench.fatal)) == ([], fsyncs, 1)
    assert bench.writer.failed
    assert bench.writer.queued_bytes == 0


def test_a_record_that_does_not_follow_is_fatal() -> None:
    bench = Bench()
    bench.submit(5)
    bench.runtime.settle()
    assert "entry 5 follows entry 0" in str(bench.fatal[0])
    assert bench.durable == []


@pytest.mark.parametrize("inline", [True, False])
def test_a_full_disk_halts_and_a_retry_goes_on_in_order(inline: bool) -> None:
    bench = Bench().warmed_up() if inline else Bench()
    first = bench.journal.last_index + 1
    bench.disk.fail("pwrite", errno.ENOSPC, times=2)
    bench.submit(first)
    bench.runtime.settle()
    bench.submit(first + 1)
    bench.runtime.settle()
    assert (bench.durable, len(bench.full), bench.writer.full) == ([], 1, True)
    bench.writer.retry()
    bench.runtime.settle()
    assert (bench.durable, len(bench.full), bench.writer.full) == ([], 2, True)
    assert not bench.writer.idle
    bench.writer.retry()
    bench.writer.retry()
    bench.runtime.settle()
    assert (bench.durable, bench.fatal, bench.writer.full) == ([first, first + 1], [], False)
    assert bench.on_platter() == first + 1


def test_flush_now_writes_everything_at_once() -> None:
    bench = Bench()
    bench.submit(1)
    bench.submit(2)
    bench.writer.flush_now()
    assert bench.durable == [1, 2]
    assert bench.on_platter() == 2
    bench.runtime.settle()
    assert bench.durable == [1, 2]


def test_flush_now_is_refused_while_the_thread_writes() -> None:
    bench = Bench()
    bench.submit(1)
    bench.runtime.turn()
    with pytest.raises(NodeStoppedError, match="thread"):
        bench.writer.flush_now()


def test_flush_now_ends_on_a_full_disk() -> None:
    bench = Bench()
    bench.disk.fail("pwrite", errno.ENOSPC)
    bench.submit(1)
    bench.writer.flush_now()
    assert (bench.durable, len(bench.full)) == ([], 1)


def test_compaction_removes_files_in_the_thread() -> None:
    bench = Bench(JournalOptions(segment_bytes_max=2048))
    for index in range(1, 61):
        bench.submit(index)
        bench.runtime.settle()
    files = len(bench.disk.listdir(DIRECTORY))
    dropped: list[int] = []
    bench.writer.compact(50, dropped.append)
    assert bench.journal.first_index > 1
    assert len(bench.disk.listdir(DIRECTORY)) == files
    bench.runtime.settle()
    assert dropped == [files - len(bench.disk.listdir(DIRECTORY))]
    assert dropped[0] > 1
    bench.writer.compact(50, dropped.append)
    bench.runtime.settle()
    assert dropped[1:] == [0]


def test_a_compaction_that_fails_is_fatal() -> None:
    bench = Bench(JournalOptions(segment_bytes_max=2048))
    for index in range(1, 31):
        bench.submit(index)
        bench.runtime.settle()
    bench.disk.fail("fsync_dir", errno.EIO)
    bench.writer.compact(20, lambda _count: bench.durable.append(-1))
    bench.runtime.settle()
    assert len(bench.fatal) == 1
    assert bench.durable[-1] == 30


def test_the_statistics_add_up() -> None:
    bench = Bench()
    assert bench.writer.statistics.write_ms(0.99) == 0.0
    bench.submit(1, 2, 3)
    bench.runtime.turn()
    bench.runtime.settle()
    statistics = bench.writer.statistics
    assert (statistics.groups, statistics.records, statistics.inline_fsyncs) == (1, 3, 0)
    assert statistics.bytes_written == statistics.group_bytes_last > 300
    assert statistics.write_ms(0.5) == 0.0


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("operation", ["create", "fsync_dir", "open"])
def test_a_lack_of_files_is_waited_out_and_no_broken_disk(operation: str, number: int) -> None:
    bench = Bench(JournalOptions(segment_bytes_max=1024))
    bench.submit(*range(1, 8))
    bench.runtime.settle()
    bench.disk.fail(operation, number, path_part=DIRECTORY, times=2)
    bench.submit(*range(8, 20))
    for attempt in (1, 2):
        bench.runtime.settle()
        assert len(bench.full) == attempt
        assert "allow more open files" in bench.full[-1].remedy
        assert bench.durable == [7]
        bench.writer.retry()
    bench.runtime.settle()
    assert bench.durable == [7, 19]
    assert bench.on_platter() == 19
    assert bench.fatal == []


def test_segments_that_no_folder_could_be_opened_for_are_removed_later() -> None:
    bench = Bench(JournalOptions(segment_bytes_max=1024))
    for first in range(1, 40, 3):
        bench.submit(*range(first, first + 3))
        bench.runtime.settle()
    removed: list[int] = []
    bench.disk.fail("fsync_dir", errno.EMFILE, path_part=DIRECTORY)
    bench.writer.compact(30, removed.append)
    bench.runtime.settle()
    assert (removed, bench.fatal) == ([], [])
    bench.runtime.advance(REMOVAL_RETRY_MS)
    bench.runtime.settle()
    assert len(removed) == 1
    assert removed[0] > 1
    assert bench.on_platter() == 39
