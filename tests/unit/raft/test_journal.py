"""The journal as its user sees it: append, read back, supersede, install, compact, and the disk's errors."""

from __future__ import annotations

import contextlib
import errno
import random
from pathlib import Path

import pytest

from quorum.errors import DataDamagedError, DataDirError
from quorum.platform.os_runtime import OsDisk
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import segment_name
from quorum.raft.journal.index import LogGapError
from quorum.raft.journal.journal import (
    Install,
    Journal,
    JournalFailedError,
    JournalFullError,
    JournalOptions,
    LogUnavailableError,
    OriginIncarnation,
    Record,
    Recovered,
)
from tests.support.journals import compact
from tests.support.memory_disk import Cut, MemoryDisk

DIRECTORY = "/data/journal"
SMALL = JournalOptions(segment_bytes_max=2048, log_cache_bytes_max=600)
ALL = 1 << 40


def entry(index: int, term: int = 1, payload: bytes = b"x" * 100, kind: EntryKind = EntryKind.BATCH) -> Entry:
    return Entry(index, term, kind, 1000 + index, payload)


def entries(first: int, last: int, term: int = 1) -> list[Entry]:
    return [entry(index, term) for index in range(first, last + 1)]


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk(random.Random(0))
    Journal.create(disk, DIRECTORY)
    return disk


def opened(disk: MemoryDisk, options: JournalOptions = SMALL) -> Journal:
    return Journal.open(disk, DIRECTORY, options, lambda _line: None)[0]


def recovered(disk: MemoryDisk, options: JournalOptions = SMALL) -> Recovered:
    disk.power_cut(Cut.NOTHING)
    return Journal.open(disk, DIRECTORY, options, lambda _line: None)[1]


def filled(disk: MemoryDisk, last: int, options: JournalOptions = SMALL) -> Journal:
    journal = opened(disk, options)
    for index in range(1, last + 1):
        journal.append([entry(index)])
    return journal


def test_entries_are_read_back_across_segments(disk: MemoryDisk) -> None:
    journal = filled(disk, 50)
    assert journal.segment_count > 3
    assert journal.read(1, 50, ALL) == entries(1, 50)
    assert journal.read(17, 17, ALL) == entries(17, 17)
    assert journal.read(40, 1000, ALL) == entries(40, 50)


def test_a_read_stops_at_its_bound_but_returns_one_entry(disk: MemoryDisk) -> None:
    journal = filled(disk, 10)
    assert journal.read(3, 10, 1) == entries(3, 3)
    assert journal.read(3, 10, 3 * (100 + 64)) == entries(3, 5)


def test_an_entry_larger_than_a_segment_is_read_back(disk: MemoryDisk) -> None:
    journal = opened(disk)
    large = entry(1, payload=random.Random(1).randbytes(300_000))
    journal.append([large])
    journal.append([entry(2)])
    assert journal.read(1, 2, ALL) == [large, entry(2)]
    assert recovered(disk).last_index == 2


def test_what_is_not_durable_is_not_read(disk: MemoryDisk) -> None:
    journal = filled(disk, 3)
    group = journal.stage(entries(4, 5))
    assert journal.read(2, 5, ALL) == entries(2, 3)
    with pytest.raises(LogUnavailableError, match="4 to 5"):
        journal.read(4, 5, ALL)
    journal.write(group)
    journal.finish(group)
    assert journal.read(4, 5, ALL) == entries(4, 5)


def test_superseded_entries_are_gone_at_once(disk: MemoryDisk) -> None:
    journal = filled(disk, 30)
    journal.stage([entry(12, term=2)])
    with pytest.raises(LogUnavailableError):
        journal.read(13, 30, ALL)
    assert journal.read(10, 30, ALL) == entries(10, 11)


def test_a_conflict_supersedes_over_segments_and_deletes_nothing(disk: MemoryDisk) -> None:
    journal = filled(disk, 30)
    segments = journal.segment_count
    journal.append(entries(12, 14, term=2))
    assert journal.segment_count >= segments
    wanted = entries(1, 11) + entries(12, 14, term=2)
    assert journal.read(1, ALL, ALL) == wanted
    found = recovered(disk)
    assert (found.first_index, found.last_index, found.last_term) == (1, 14, 2)
    assert found.term_runs == ((1, 1), (12, 2))
    assert list(found.tail) == wanted[-len(found.tail) :]


@pytest.mark.parametrize(
    "bad",
    [
        [entry(7)],
        [entry(5, term=0)],
        [entry(0)],
        [HardState(0, 0)],
        [HardState(1, 3)],
        [OriginIncarnation(4)],
        [entry(3, term=0)],
    ],
    ids=str,
)
def test_records_that_do_not_follow_are_refused(disk: MemoryDisk, bad: list[Entry]) -> None:
    journal = opened(disk)
    journal.append([HardState(1, 2), OriginIncarnation(4), *entries(1, 4)])
    with pytest.raises(LogGapError):
        journal.stage(bad)


def test_a_vote_may_follow_a_term_without_one(disk: MemoryDisk) -> None:
    journal = opened(disk)
    for state in (HardState(1, 0), HardState(1, 3), HardState(1, 3), HardState(2, 1)):
        journal.append([state])
    assert recovered(disk).hard_state == HardState(2, 1)


def test_an_install_beyond_the_log_empties_it(disk: MemoryDisk) -> None:
    journal = filled(disk, 10)
    journal.append([Install(40, 3)])
    assert (journal.first_index, journal.last_index) == (41, 40)
    journal.append(entries(41, 42, term=3))
    found = recovered(disk)
    assert (found.first_index, found.last_index, found.base_term) == (41, 42, 3)
    assert found.highest_install == Install(40, 3, resets_log=True)
    assert found.tail == tuple(entries(41, 42, term=3))


def test_an_install_that_the_log_holds_keeps_what_follows(disk: MemoryDisk) -> None:
    journal = filled(disk, 10)
    journal.append([Install(6, 1)])
    assert journal.read(1, ALL, ALL) == entries(1, 10)
    found = recovered(disk)
    assert (found.first_index, found.last_index) == (1, 10)
    assert found.highest_install == Install(6, 1, resets_log=False)


def test_an_install_that_the_log_contradicts_empties_it(disk: MemoryDisk) -> None:
    journal = filled(disk, 10)
    journal.append([Install(6, 2)])
    assert (journal.first_index, journal.last_index) == (7, 6)
    found = recovered(disk)
    assert (found.first_index, found.last_index, found.last_term) == (7, 6, 2)
    assert found.tail == ()


def test_the_outcome_of_an_install_outlives_the_segments_that_decided_it(disk: MemoryDisk) -> None:
    journal = filled(disk, 30)
    journal.append([Install(29, 2)])
    journal.append(entries(30, 60, term=2))
    assert compact(journal, 30) > 0
    found = recovered(disk)
    assert found.first_index <= 30
    assert found.last_index == 60
    assert opened(disk).read(30, 60, ALL) == entries(30, 60, term=2)


@pytest.mark.parametrize(("log_index", "term"), [(40, 3), (6, 2), (11, 1)])
def test_an_install_that_a_crash_cut_is_finished_at_the_start(
    disk: MemoryDisk, log_index: int, term: int
) -> None:
    filled(disk, 10)
    for _ in range(2):
        disk.power_cut(Cut.NOTHING)
        lines: list[str] = []
        journal, found = Journal.open(disk, DIRECTORY, SMALL, lines.append, snapshot=(log_index, term))
        assert (found.first_index, found.last_index, found.last_term) == (log_index + 1, log_index, term)
        assert (found.tail, found.configuration_entries) == ((), ())
        assert found.highest_install == Install(log_index, term, resets_log=True)
        found.check_reaches(DIRECTORY, log_index)
    assert lines == []
    journal.append([entry(log_index + 1, term=term)])


def test_a_snapshot_that_the_log_holds_or_lies_behind_changes_nothing(disk: MemoryDisk) -> None:
    journal = filled(disk, 60)
    compact(journal, 40)
    first = journal.first_index
    for snapshot in ((60, 1), (45, 1), (first - 1, 1), (first - 2, 1), (3, 1)):
        disk.kill()
        _, found = Journal.open(disk, DIRECTORY, SMALL, pytest.fail, snapshot=snapshot)
        assert (found.first_index, found.last_index, found.highest_install) == (first, 60, None)


def test_compaction_drops_whole_segments_and_keeps_what_it_must(disk: MemoryDisk) -> None:
    journal = filled(disk, 60)
    before = len(disk.listdir(DIRECTORY))
    dropped = compact(journal, 40)
    assert dropped == before - len(disk.listdir(DIRECTORY)) > 1
    assert 1 < journal.first_index <= 40
    assert journal.read(40, 60, ALL) == entries(40, 60)
    with pytest.raises(LogUnavailableError):
        journal.read(journal.first_index - 1, 60, ALL)
    found = recovered(disk)
    assert found.first_index == journal.first_index
    assert found.base_term == 1
    assert found.term_runs == ((found.first_index, 1),)


def test_compaction_never_drops_the_newest_segment(disk: MemoryDisk) -> None:
    journal = filled(disk, 60)
    compact(journal, 10_000)
    assert journal.segment_count == 1
    journal.append([entry(61)])
    assert recovered(disk).last_index == 61


def test_compaction_keeps_the_last_segment_while_a_full_disk_takes_no_new_one(disk: MemoryDisk) -> None:
    journal = filled(disk, 5)
    disk.capacity_bytes = disk.used_bytes
    while journal.segment_count == 1:
        written = journal.last_index
        with contextlib.suppress(JournalFullError):
            journal.append([entry(written + 1), HardState(written, 1)])
    assert disk.listdir(DIRECTORY) == [segment_name(1), "durable"]
    assert compact(journal, journal.last_index) == 0
    disk.capacity_bytes = None
    found = recovered(disk)
    assert (found.first_index, found.last_index, found.hard_state) == (1, written, HardState(written - 1, 1))


@pytest.mark.parametrize(("staged", "keep_from"), [(entry(20, term=2), 20), (Install(50, 2), 51)])
def test_compaction_keeps_what_a_group_that_is_not_durable_takes_back(
    disk: MemoryDisk, staged: Record, keep_from: int
) -> None:
    journal = filled(disk, 40)
    disk.fail("pwrite", errno.ENOSPC, path_part=".segment")
    with pytest.raises(JournalFullError):
        journal.append([staged])
    assert journal.segment_count > 3
    assert journal.takes_back
    assert compact(journal, keep_from) == 0
    found = recovered(disk)
    assert (found.first_index, found.last_index) == (1, 40)
    # Once such a group is durable, what it superseded goes.
    journal = opened(disk)
    journal.append([staged])
    assert not journal.takes_back
    assert compact(journal, keep_from) > 0
    assert recovered(disk).first_index <= journal.first_index


def test_a_superseding_entry_may_reach_below_the_oldest_segment(disk: MemoryDisk) -> None:
    journal = filled(disk, 13)
    while journal.segment_count < 3:
        journal.append([entry(journal.last_index + 1)])
    last = journal.last_index
    journal.append([entry(last - 3, term=2)])
    journal.append(entries(last - 2, last + 20, term=2))
    assert compact(journal, last - 3) > 0
    assert journal.first_index == last - 3
    found = recovered(disk)
    assert (found.first_index, found.last_index) == (last - 3, last + 20)
    assert found.base_term in (None, 1)


def test_configurations_and_the_newest_entries_are_handed_over(disk: MemoryDisk) -> None:
    journal = opened(disk)
    journal.append([entry(1, kind=EntryKind.FOUND, payload=b"{}"), *entries(2, 20)])
    journal.append([entry(21, kind=EntryKind.MEMBERS), *entries(22, 40)])
    journal.append([entry(41, kind=EntryKind.MEMBERS)])
    journal.append(entries(41, 43, term=2))
    found = recovered(disk)
    assert [kept.index for kept in found.configuration_entries] == [1, 21]
    assert sum(100 + 64 for _ in found.tail) <= SMALL.log_cache_bytes_max
    assert found.tail == tuple(entries(41, 43, term=2))
    log = found.durable_log(snapshot_index=5)
    assert [kept.index for kept in log.configuration_entries] == [21]
    assert (log.first_index, log.last_index, log.last_stamp_ms) == (1, 43, 1043)
    assert log.term_runs == ((1, 1), (41, 2))


def test_the_term_before_the_log_is_handed_over_where_it_is_known(disk: MemoryDisk) -> None:
    journal = opened(disk)
    journal.append([Install(10, 4)])
    assert recovered(disk).durable_log(10).term_runs == ((10, 4),)
    journal = opened(disk)
    journal.append(entries(11, 12, term=4))
    assert recovered(disk).durable_log(10).term_runs == ((10, 4),)
    journal = opened(disk)
    journal.append(entries(13, 14, term=6))
    assert recovered(disk).durable_log(10).term_runs == ((10, 4), (13, 6))


def test_a_snapshot_from_which_the_log_does_not_lead_on_is_refused(disk: MemoryDisk) -> None:
    journal = filled(disk, 5)
    recovered(disk).check_reaches(DIRECTORY, 0)
    journal = opened(disk)
    journal.append([Install(40, 3)])
    found = recovered(disk)
    found.check_reaches(DIRECTORY, 40)
    with pytest.raises(DataDirError, match="41") as caught:
        found.check_reaches(DIRECTORY, 39)
    assert "members replace" in caught.value.remedy


@pytest.mark.parametrize("number", [errno.EIO, errno.EBADF, errno.ENOSPC])
def test_a_failed_fsync_is_final(disk: MemoryDisk, number: int) -> None:
    journal = filled(disk, 3)
    disk.fail("fdatasync", number)
    with pytest.raises(JournalFailedError, match=errno.errorcode[number]):
        journal.append([entry(4)])


def test_a_failed_write_is_final(disk: MemoryDisk) -> None:
    journal = filled(disk, 3)
    disk.fail("pwrite", errno.EIO)
    with pytest.raises(JournalFailedError, match="EIO"):
        journal.append([entry(4)])


@pytest.mark.parametrize("operation", ["create", "fdatasync", "rename", "fsync_dir"])
def test_an_error_while_a_segment_begins_is_final(disk: MemoryDisk, operation: str) -> None:
    journal = filled(disk, 3)
    disk.fail(operation, errno.EIO)
    with pytest.raises(JournalFailedError):
        journal.append(entries(4, 20))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_leaves_the_file_at_the_last_trailer_and_the_group_for_later(
    disk: MemoryDisk, number: int
) -> None:
    journal = filled(disk, 3)
    path = f"{DIRECTORY}/{segment_name(1)}"
    end = journal.end
    group = journal.stage([entry(4)])
    for _ in range(2):
        disk.fail("pwrite", number)
        with pytest.raises(JournalFullError):
            journal.write(group)
        assert len(disk.content(path)) == end
        assert disk.unsynced_bytes(path) == 0
    journal.write(group)
    journal.finish(group)
    assert journal.read(1, 4, ALL) == entries(1, 4)
    assert recovered(disk).last_index == 4


def test_a_disk_too_full_for_a_new_segment_is_no_failure(disk: MemoryDisk) -> None:
    journal = filled(disk, 3)
    group = journal.stage(entries(4, 20))
    assert group.header is not None
    disk.capacity_bytes = (
        sum(len(disk.content(f"{DIRECTORY}/{name}")) for name in disk.listdir(DIRECTORY)) + 20
    )
    for _ in range(2):
        with pytest.raises(JournalFullError):
            journal.write(group)
    disk.capacity_bytes = None
    journal.write(group)
    journal.finish(group)
    assert recovered(disk).last_index == 20


def test_a_cut_back_that_fails_is_final(disk: MemoryDisk) -> None:
    journal = filled(disk, 3)
    disk.fail("pwrite", errno.ENOSPC)
    disk.fail("truncate", errno.EIO)
    with pytest.raises(JournalFailedError, match="full disk"):
        journal.append([entry(4)])


def test_an_entry_that_rots_while_the_node_runs_is_named(disk: MemoryDisk) -> None:
    journal = filled(disk, 3)
    content = disk.content(f"{DIRECTORY}/{segment_name(1)}")
    disk.flip_bit(f"{DIRECTORY}/{segment_name(1)}", 8 * content.index(b"x" * 100))
    with pytest.raises(DataDamagedError, match="entry 1 "):
        journal.read(1, 3, ALL)


def test_a_start_that_cannot_make_its_log_durable_is_refused(disk: MemoryDisk) -> None:
    filled(disk, 3)
    disk.kill()
    disk.fail("fdatasync", errno.EIO)
    with pytest.raises(DataDirError, match="durable"):
        opened(disk)


@pytest.mark.parametrize("size", [0, 100, 1 << 40])
def test_a_segment_size_out_of_bounds_is_refused_by_name(disk: MemoryDisk, size: int) -> None:
    with pytest.raises(DataDirError, match=f"segment_bytes_max = {size}"):
        opened(disk, JournalOptions(segment_bytes_max=size))


def test_a_journal_is_created_only_once(disk: MemoryDisk) -> None:
    with pytest.raises(DataDirError, match="exists"):
        Journal.create(disk, DIRECTORY)


def test_on_real_files(tmp_path: Path) -> None:
    disk = OsDisk()
    directory = str(tmp_path / "data" / "journal")
    Journal.create(disk, directory)
    for part in range(3):
        journal, found = Journal.open(disk, directory, SMALL, lambda _line: None)
        assert found.last_index == part * 20
        for index in range(part * 20 + 1, part * 20 + 21):
            journal.append([HardState(index, 0), entry(index)])
        assert journal.read(1, ALL, ALL) == entries(1, part * 20 + 20)
        journal.close()
    journal, found = Journal.open(disk, directory, SMALL, lambda _line: None)
    assert compact(journal, 50) > 0
    assert journal.read(50, 60, ALL) == entries(50, 60)
    journal.close()
    journal.close()
