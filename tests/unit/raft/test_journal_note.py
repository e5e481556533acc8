"""A journal whose end is gone is missed at the start, whatever was done; no power cut looks like it."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.errors import DataDamagedError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.journal.format import TRAILER_BYTES, segment_name
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.journal.note import NOTE_NAME
from quorum.raft.journal.recovery import JournalMissingError, scan_journal
from tests.support.memory_disk import Cut, MemoryDisk, Stopped

DIRECTORY = "/data/journal"
NOTE = f"{DIRECTORY}/{NOTE_NAME}"
FIRST = f"{DIRECTORY}/{segment_name(1)}"
SMALL = JournalOptions(segment_bytes_max=1024)
LARGE = JournalOptions(segment_bytes_max=1 << 20)
GROUPS = 20


def entry(index: int) -> Entry:
    return Entry(index, 1, EntryKind.BATCH, 1000, b"%d " % index * 60)


class Bench:
    """A journal with some groups of one entry each."""

    def __init__(self, options: JournalOptions = LARGE, seed: int = 0) -> None:
        self.disk = MemoryDisk(random.Random(seed))
        self.options = options
        Journal.create(self.disk, DIRECTORY)
        self.journal = self.open()
        self.ends = []
        for index in range(1, GROUPS + 1):
            self.journal.append([entry(index)])
            self.ends.append(self.journal.end)

    def open(self) -> Journal:
        return Journal.open(self.disk, DIRECTORY, self.options, lambda _line: None)[0]

    def reopened(self) -> Journal:
        self.disk.kill()
        return self.open()

    def refusal(self) -> DataDamagedError:
        self.disk.kill()
        with pytest.raises(DataDamagedError) as caught:
            self.open()
        assert "put the file back" in caught.value.remedy
        assert "a node without others goes on from a backup" in caught.value.remedy
        return caught.value

    def segments(self) -> list[str]:
        return [f"{DIRECTORY}/{name}" for name in self.disk.listdir(DIRECTORY) if name.endswith(".segment")]


@pytest.mark.parametrize("missing", [1, 2])
def test_newest_segments_that_are_gone_are_missed(missing: int) -> None:
    bench = Bench(SMALL)
    *rest, last = bench.segments()
    assert len(rest) > missing
    gone = [*rest, last][-missing:]
    for path in gone:
        bench.disk.unlink(path)
    error = bench.refusal()
    assert (error.path, error.offset) == (gone[0], 0)
    assert "missing" in str(error)


@pytest.mark.parametrize("left", [b"", b"Q", bytes(1024)])
def test_a_newest_segment_without_anything_left_is_missed(left: bytes) -> None:
    bench = Bench(SMALL)
    last = bench.segments()[-1]
    bench.disk.plant(last, left)
    error = bench.refusal()
    assert (error.path, error.offset) == (last, 0)


def test_a_newest_segment_that_was_cut_is_missed_wherever_it_was_cut() -> None:
    bench = Bench()
    content = bench.disk.content(FIRST)
    for size in range(bench.ends[-4], bench.ends[-1] - TRAILER_BYTES):
        bench.disk.plant(FIRST, content[:size])
        error = bench.refusal()
        assert error.path == FIRST
        assert error.offset <= size
    bench.disk.plant(FIRST, content[: bench.ends[-1]])
    assert bench.reopened().last_index == GROUPS, "only zeros that were written ahead are missing"


def test_a_last_group_of_which_only_some_records_are_left_is_missed() -> None:
    bench = Bench()
    bench.journal.append([entry(GROUPS + number) for number in (1, 2, 3)])
    content = bench.disk.content(FIRST)
    for size in range(bench.ends[-1], bench.journal.end - TRAILER_BYTES):
        bench.disk.plant(FIRST, content[:size])
        bench.refusal()


def test_an_end_that_was_overwritten_with_zeros_is_missed() -> None:
    bench = Bench()
    content = bench.disk.content(FIRST)
    start = bench.ends[-2]
    bench.disk.plant(FIRST, content[:start] + bytes(len(content) - start))
    error = bench.refusal()
    assert error.offset == start
    assert str(bench.ends[-1]) in str(error)


@pytest.mark.parametrize("slot", [0, 512])
@pytest.mark.parametrize("at", [0, 8, 24, 35])
def test_a_slot_that_cannot_be_read_is_spoken_of_and_written_anew(slot: int, at: int) -> None:
    bench = Bench()
    content = bytearray(bench.disk.content(NOTE))
    content[slot + at] ^= 1
    bench.disk.plant(NOTE, bytes(content))
    bench.disk.kill()
    told: list[str] = []
    journal, _ = Journal.open(bench.disk, DIRECTORY, LARGE, told.append)
    assert journal.last_index == GROUPS
    (line,) = told
    assert line.startswith(f"{NOTE}: the slot at byte {slot} cannot be read")
    journal.close()
    bench.disk.kill()
    Journal.open(bench.disk, DIRECTORY, LARGE, told.append)
    assert told == [line], "it is the one that is not counted on"


def test_a_slot_that_was_never_written_is_no_news() -> None:
    disk = MemoryDisk(random.Random(0))
    Journal.create(disk, DIRECTORY)
    told: list[str] = []
    for content in (disk.content(NOTE), disk.content(NOTE)[:36] + bytes(800)):
        disk.plant(NOTE, content)
        Journal.open(disk, DIRECTORY, LARGE, told.append)[0].close()
        disk.kill()
    assert told == []


def test_a_last_group_without_its_trailer_is_kept_whole() -> None:
    bench = Bench()
    content = bytearray(bench.disk.content(FIRST))
    content[bench.ends[-1] - 1] ^= 1
    bench.disk.plant(FIRST, bytes(content))
    assert bench.reopened().last_index == GROUPS


@pytest.mark.parametrize("seed", range(60))
def test_no_power_cut_looks_like_it(seed: int) -> None:
    bench = Bench(SMALL if seed % 2 else LARGE, seed)
    for _ in range(3):
        group = bench.journal.stage([entry(bench.journal.last_index + 1)])
        bench.disk.stop_after(bench.disk.rng.randrange(8))
        durable = bench.journal.last_index - 1
        try:
            bench.journal.write(group)
        except Stopped:
            pass
        else:
            durable += 1
        bench.disk.power_cut()
        bench.journal = bench.open()
        assert bench.journal.last_index >= durable
        for _ in range(3):
            bench.journal.append([entry(bench.journal.last_index + 1)])


@pytest.mark.parametrize("content", [None, b"", b"\0" * 36, b"x" * 36, b"QDURABLE"])
def test_a_journal_without_a_note_that_can_be_read_is_refused(content: bytes | None) -> None:
    bench = Bench()
    if content is None:
        bench.disk.unlink(NOTE)
    else:
        bench.disk.plant(NOTE, content)
    for _ in range(2):
        error = bench.refusal()
        assert (error.path, error.offset) == (NOTE, 0)


def test_either_slot_alone_is_a_note() -> None:
    bench = Bench()
    good = bench.disk.content(NOTE)
    whole = bench.disk.content(FIRST)
    for bad in (0, 512):
        bench.disk.plant(NOTE, good[:bad] + b"torn" + good[bad + 4 :])
        bench.disk.plant(FIRST, whole[: bench.ends[-3]])
        bench.refusal()
        bench.disk.plant(FIRST, whole)
        assert bench.reopened().last_index == GROUPS
        assert bench.disk.content(NOTE)[bad:][:4] == b"QDUR", "the torn one is written first"


def test_an_end_of_creation_at_any_call_leaves_no_journal_or_one_with_its_note() -> None:
    for calls in range(20):
        for cut in Cut:
            disk = MemoryDisk(random.Random(calls))
            disk.make_dirs(DIRECTORY)
            disk.stop_after(calls)
            finished = False
            try:
                Journal.create(disk, DIRECTORY)
                finished = True
            except Stopped:
                pass
            disk.power_cut(cut)
            try:
                scan_journal(disk, DIRECTORY)
            except JournalMissingError:
                assert not finished
                Journal.create(disk, DIRECTORY)
                scan_journal(disk, DIRECTORY)


def test_it_costs_no_fsync_but_where_a_segment_begins() -> None:
    bench = Bench(SMALL)
    for _ in range(GROUPS):
        before, segments = bench.disk.fsyncs, len(bench.segments())
        bench.journal.append([entry(bench.journal.last_index + 1)])
        # a new segment: its own fsync, that of its folder, and that of the note
        assert bench.disk.fsyncs - before == (1 if len(bench.segments()) == segments else 4)


def test_a_full_disk_goes_on_with_an_older_note_and_another_error_stops_the_node() -> None:
    bench = Bench()
    journal = bench.reopened()
    older = bench.disk.content(NOTE)
    for number in (1, 2):
        bench.disk.fail("pwrite", errno.ENOSPC, path_part=NOTE_NAME)
        journal.append([entry(GROUPS + number)])
    newer = bench.disk.content(NOTE)
    assert older[:36] == newer[:36] or older[512:] == newer[512:], "one slot is left as it was"
    assert bench.reopened().last_index == GROUPS + 2
    journal = bench.reopened()
    bench.disk.fail("pwrite", errno.EIO, path_part=NOTE_NAME)
    with pytest.raises(Exception, match="EIO"):
        journal.append([entry(GROUPS + 3)])
