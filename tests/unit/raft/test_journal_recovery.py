"""What a start makes of segments that are not as they were written: torn, or damaged."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest

from quorum.errors import DataDamagedError, DataDirError
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import TRAILER_BYTES, encode_group, encode_record, segment_name
from quorum.raft.journal.journal import Install, Journal, JournalOptions, OriginIncarnation, Record, Recovered
from quorum.raft.journal.note import NOTE_NAME
from quorum.raft.journal.recovery import JournalMissingError, scan_journal
from tests.support.journals import compact
from tests.support.memory_disk import Cut, MemoryDisk

DIRECTORY = "/data/journal"
OPTIONS = JournalOptions(segment_bytes_max=1 << 20, log_cache_bytes_max=1 << 20)
FIRST = f"{DIRECTORY}/{segment_name(1)}"
NOTE = f"{DIRECTORY}/{NOTE_NAME}"


def entry(index: int, payload: bytes = b"payload", term: int = 1) -> Entry:
    return Entry(index, term, EntryKind.BATCH, 1000 + index, payload)


def reopened(disk: MemoryDisk, options: JournalOptions = OPTIONS) -> tuple[Journal, Recovered]:
    disk.kill()
    return Journal.open(disk, DIRECTORY, options, lambda _line: None)


class Written:
    """A journal with some groups, and where they end."""

    def __init__(self, *groups: Sequence[Record], options: JournalOptions = OPTIONS) -> None:
        self.disk = MemoryDisk(random.Random(0))
        Journal.create(self.disk, DIRECTORY)
        self.first_note = self.disk.content(NOTE)
        self.journal, _ = Journal.open(self.disk, DIRECTORY, options, lambda _line: None)
        self.ends = [self.journal.end]
        for group in groups:
            self.journal.append(group)
            self.ends.append(self.journal.end)

    def lose_note(self) -> None:
        """Forget what was noted of the durable end since the beginning, as a power cut may."""
        self.disk.plant(NOTE, self.first_note)

    def content(self) -> bytearray:
        return bytearray(self.disk.content(FIRST))

    def damage(self, at: int, by: bytes) -> None:
        content = self.content()
        content[at : at + len(by)] = by
        self.disk.plant(FIRST, bytes(content))

    def refusal(self) -> DataDamagedError:
        with pytest.raises(DataDamagedError) as caught:
            reopened(self.disk)
        return caught.value

    def last_index(self) -> int:
        return reopened(self.disk)[1].last_index


def test_a_clean_journal_comes_back_without_a_word() -> None:
    written = Written([HardState(1, 2), entry(1)], [entry(2), entry(3)])
    lines: list[str] = []
    written.disk.power_cut(Cut.NOTHING)
    _, recovered = Journal.open(written.disk, DIRECTORY, OPTIONS, lines.append)
    assert lines == []
    assert recovered.hard_state == HardState(1, 2)
    assert (recovered.first_index, recovered.last_index, recovered.last_term) == (1, 3, 1)
    assert recovered.tail == (entry(1), entry(2), entry(3))
    assert (recovered.base_term, recovered.last_stamp_ms, recovered.torn) == (0, 1003, "")


def test_the_last_group_is_torn_at_its_first_bad_record() -> None:
    written = Written([entry(1)], [entry(2), entry(3, b"three")])
    content = written.content()
    at = content.index(b"three")
    written.disk.plant(FIRST, bytes(content[: at + 2]))
    written.lose_note()
    lines: list[str] = []
    written.disk.kill()
    _, recovered = Journal.open(written.disk, DIRECTORY, OPTIONS, lines.append)
    assert recovered.last_index == 2
    assert [recovered.torn] == lines
    assert FIRST in lines[0]
    assert "cut" in lines[0]


def test_a_record_that_is_good_is_kept_without_its_trailer() -> None:
    written = Written([entry(1)], [entry(2)])
    end = written.ends[-1]
    written.disk.plant(FIRST, bytes(written.content()[: end - TRAILER_BYTES]))
    assert written.last_index() == 2
    # The start closed the group: now its trailer is there again, byte for byte.
    assert written.disk.content(FIRST)[:end] == Written([entry(1)], [entry(2)]).content()[:end]


@pytest.mark.parametrize("offset", [0, 8, 20, TRAILER_BYTES - 1])
def test_a_flip_in_the_last_trailer_costs_nothing(offset: int) -> None:
    written = Written([entry(1)], [entry(2)])
    written.disk.flip_bit(FIRST, 8 * (written.ends[-1] - TRAILER_BYTES + offset))
    assert written.last_index() == 2


def test_a_bad_record_under_a_valid_trailer_is_damage() -> None:
    written = Written([entry(1)], [entry(2)])
    start = written.ends[-2]
    written.disk.flip_bit(FIRST, 8 * (written.content().rindex(b"payload")))
    error = written.refusal()
    assert (error.path, error.offset) == (FIRST, start)
    assert "valid trailer" in str(error)
    assert "members replace" in error.remedy


@pytest.mark.parametrize("what", ["record", "trailer", "length"])
def test_a_bad_group_before_another_is_damage(what: str) -> None:
    written = Written([entry(1)], [entry(2)], [entry(3)])
    at = {"record": written.ends[1] + 20, "trailer": written.ends[2] - 10, "length": written.ends[1]}[what]
    written.damage(at, b"\xff\xff\xff\xff")
    assert "later group" in str(written.refusal())


def test_a_whole_sector_of_garbage_before_records_without_a_trailer_is_damage() -> None:
    # The later group lost its trailer, but its record proves that the one before was durable.
    written = Written([entry(1)], [entry(2)], [entry(3)])
    content = written.content()
    del content[written.ends[3] - TRAILER_BYTES :]
    content[written.ends[1] : written.ends[2]] = b"\xaa" * (written.ends[2] - written.ends[1])
    written.disk.plant(FIRST, bytes(content))
    assert "later group" in str(written.refusal())


def test_a_trailer_without_its_records_before_it_is_damage_of_the_group_before() -> None:
    written = Written([entry(1)], [entry(2)], [entry(3)])
    written.damage(written.ends[1], b"\xaa" * (written.ends[3] - TRAILER_BYTES - written.ends[1]))
    assert "later group" in str(written.refusal())


def test_every_set_of_sectors_of_the_last_group_that_a_power_cut_can_leave_is_accepted() -> None:
    payloads = [b"a" * 300, bytes(1500), b"b" * 700]
    written = Written([entry(1, b"first")])
    written.journal.write(
        written.journal.stage([entry(2 + i, payload) for i, payload in enumerate(payloads)])
    )
    before, after = written.ends[1], written.content()
    full = len(bytes(after).rstrip(b"\0"))
    sectors = range(before // 512, full // 512 + 1)
    for size in range(len(sectors) + 1):
        for kept in itertools.combinations(sectors, size):
            content = bytearray(after[:before]) + bytearray(len(after) - before)
            for sector in kept:
                first = max(before, 512 * sector)
                content[first : 512 * (sector + 1)] = after[first : 512 * (sector + 1)]
            written.disk.plant(FIRST, bytes(content))
            written.lose_note()
            _, recovered = reopened(written.disk)
            assert recovered.tail[0] == entry(1, b"first")
            assert recovered.last_index == 4 if len(kept) == len(sectors) else recovered.last_index >= 1


def test_zeros_that_were_written_are_not_taken_for_a_lost_sector() -> None:
    written = Written(
        [entry(1)],
        [entry(2, bytes(3000))],
    )
    written.disk.flip_bit(FIRST, 8 * (written.ends[1] + 1500))
    written.refusal()


def test_zeros_behind_the_last_group_may_be_anything_else_but_a_group() -> None:
    written = Written([entry(1)], [entry(2)])
    written.damage(written.ends[-1] + 700, b"left by a write that never ended")
    assert written.last_index() == 2
    assert not written.content()[written.ends[-1] :].strip(b"\0")


def test_an_older_segment_must_be_whole() -> None:
    small = JournalOptions(segment_bytes_max=1024, log_cache_bytes_max=10)
    written = Written(*[[entry(index, b"x" * 300)] for index in range(1, 10)], options=small)
    assert written.journal.segment_count > 2
    content = written.content()
    written.disk.plant(FIRST, bytes(content).rstrip(b"\0")[:-60])
    error = written.refusal()
    assert error.path == FIRST
    assert "later segment exists" in str(error)


def test_a_missing_segment_is_named() -> None:
    small = JournalOptions(segment_bytes_max=1024, log_cache_bytes_max=10)
    written = Written(*[[entry(index, b"x" * 300)] for index in range(1, 10)], options=small)
    written.disk.unlink(f"{DIRECTORY}/{segment_name(2)}")
    error = written.refusal()
    assert error.path.endswith(segment_name(2))
    assert "missing" in str(error)


def test_a_replaced_segment_does_not_continue_the_one_before() -> None:
    small = JournalOptions(segment_bytes_max=1024, log_cache_bytes_max=10)
    one = Written(*[[entry(index, b"x" * 300)] for index in range(1, 10)], options=small)
    other = Written(*[[entry(index, b"y" * 300)] for index in range(1, 10)], options=small)
    second = f"{DIRECTORY}/{segment_name(2)}"
    one.disk.plant(second, other.disk.content(second))
    assert one.refusal().path == second


@pytest.mark.parametrize("content", [b"", b"\0" * 600, b"nonsense" * 100])
def test_a_segment_without_its_header_is_damage(content: bytes) -> None:
    written = Written([entry(1)])
    written.disk.plant(FIRST, content)
    assert written.refusal().offset == 0


def test_a_folder_without_segments_is_refused() -> None:
    disk = MemoryDisk(random.Random(0))
    for _ in range(2):
        with pytest.raises(JournalMissingError) as caught:
            Journal.open(disk, DIRECTORY, OPTIONS, lambda _line: None)
        assert DIRECTORY in str(caught.value)
        disk.make_dirs(DIRECTORY)


def test_a_segment_of_another_format_is_refused_without_calling_it_damaged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("quorum.raft.journal.journal.FORMAT_VERSION", 2)
    disk = MemoryDisk(random.Random(0))
    Journal.create(disk, DIRECTORY)
    with pytest.raises(DataDirError, match="format version is 2") as caught:
        reopened(disk)
    assert not isinstance(caught.value, DataDamagedError)
    assert "version that wrote it" in caught.value.remedy


def test_what_contradicts_the_log_is_damage_though_its_crc_is_right() -> None:
    written = Written([entry(1)])
    staged = written.journal.stage([entry(2)])
    written.journal.write(staged)
    # A group that was written for another log: entry 9 where entry 2 belongs.
    foreign = encode_group(staged.place, [encode_record(entry(9))])
    written.damage(staged.place.offset, foreign.records + foreign.trailer)
    assert "entry 9 follows entry 1" in str(written.refusal())


def test_records_without_entries_survive_their_segment() -> None:
    small = JournalOptions(segment_bytes_max=1024, log_cache_bytes_max=10)
    written = Written([HardState(4, 2), OriginIncarnation(6), Install(0, 0)], options=small)
    written.journal.append([Install(100, 4)])
    for index in range(101, 120):
        written.journal.append([entry(index, b"x" * 300, term=4)])
    assert compact(written.journal, 115) > 0
    _, recovered = reopened(written.disk, small)
    assert recovered.hard_state == HardState(4, 2)
    assert recovered.origin_incarnation == 6
    assert recovered.highest_install is not None
    assert recovered.highest_install[:2] == (100, 4)
    assert 101 < recovered.first_index <= 115


def test_a_scan_alone_writes_nothing() -> None:
    written = Written([entry(1)], [entry(2)])
    content = bytes(written.content()[: written.ends[-1] - 3])
    written.disk.plant(FIRST, content)
    seen: list[object] = []
    scan = scan_journal(written.disk, DIRECTORY, lambda record, _path, _offset: seen.append(record))
    assert seen[1:] == [entry(1), entry(2)]
    assert scan.tail < len(content)
    assert written.disk.content(FIRST) == content
