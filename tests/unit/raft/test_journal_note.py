"""A journal whose end is gone is missed at the start, whatever was done; no power cut looks like it."""

from __future__ import annotations

import errno
import random

import pytest

from quorum.errors import DataDamagedError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.journal import Journal, JournalOptions
from quorum.raft.journal_format import TRAILER_BYTES, segment_name
from quorum.raft.journal_note import NOTE_NAME
from tests.support.memory_disk import MemoryDisk, Stopped

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
        assert NOTE in caught.value.remedy
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


@pytest.mark.parametrize("content", [b"", b"\0" * 36, b"x" * 36, b"QDURABLE"])
def test_a_note_that_cannot_be_read_claims_nothing_and_is_written_anew(content: bytes) -> None:
    bench = Bench()
    good = bench.disk.content(NOTE)
    whole = bench.disk.content(FIRST)
    bench.disk.plant(NOTE, content)
    bench.disk.plant(FIRST, whole[: bench.ends[-2]])
    assert bench.reopened().last_index == GROUPS - 1
    assert len(bench.disk.content(NOTE)) == len(good)
    bench.disk.plant(FIRST, whole[: bench.ends[-3]])
    bench.refusal()


def test_a_journal_without_a_note_gets_one() -> None:
    bench = Bench()
    bench.disk.unlink(NOTE)
    bench.reopened()
    bench.disk.plant(FIRST, bench.disk.content(FIRST)[: bench.ends[-2]])
    bench.refusal()


def test_it_costs_no_fsync_but_where_a_segment_begins() -> None:
    bench = Bench(SMALL)
    for _ in range(GROUPS):
        before, segments = bench.disk.fsyncs, len(bench.segments())
        bench.journal.append([entry(bench.journal.last_index + 1)])
        # a new segment: its own fsync, that of its folder, and that of the note
        assert bench.disk.fsyncs - before == (1 if len(bench.segments()) == segments else 4)


def test_a_full_disk_goes_on_without_a_note_and_another_error_stops_the_node() -> None:
    bench = Bench()
    bench.disk.unlink(NOTE)
    bench.disk.kill()
    bench.disk.fail("create", errno.ENOSPC, path_part=NOTE_NAME)
    journal = bench.open()
    journal.append([entry(GROUPS + 1)])
    assert not bench.disk.exists(NOTE)
    journal = bench.reopened()
    bench.disk.fail("pwrite", errno.ENOSPC, path_part=NOTE_NAME)
    journal.append([entry(GROUPS + 2)])
    assert bench.reopened().last_index == GROUPS + 2
    journal = bench.reopened()
    bench.disk.fail("pwrite", errno.EIO, path_part=NOTE_NAME)
    with pytest.raises(Exception, match="EIO"):
        journal.append([entry(GROUPS + 3)])
