"""Reading on behind damage: nothing that is whole is lost, nothing is invented."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import (
    FORMAT_VERSION,
    TRAILER_BYTES,
    FormatVersionError,
    Place,
    SegmentHeader,
    encode_group,
    encode_record,
    segment_name,
)
from quorum.raft.journal.journal import Journal, JournalOptions
from quorum.raft.journal.survey import FoundRecord, FoundTrailer, UnreadableRecord, survey
from tests.support.memory_disk import MemoryDisk

DIRECTORY = "/data/journal"
SEQUENCE = 1


def entry(index: int, payload: bytes) -> Entry:
    return Entry(index, 1, EntryKind.BATCH, 1000 + index, payload)


@pytest.fixture(scope="module")
def segment() -> bytes:
    """Groups of one and of several records, without the space that was written ahead."""
    disk = MemoryDisk(random.Random(0))
    Journal.create(disk, DIRECTORY)
    journal, _ = Journal.open(disk, DIRECTORY, JournalOptions(), lambda _line: None)
    journal.append([HardState(1, 2), entry(1, b"one"), entry(2, b"two" * 30)])
    journal.append([entry(3, b"three")])
    journal.append([entry(4, bytes(200)), entry(5, b"five"), entry(6, b"six" * 20), entry(7, b"7")])
    journal.append([entry(8, b"eight" * 100)])
    return disk.content(f"{DIRECTORY}/{segment_name(SEQUENCE)}")[: journal.end]


def records(data: bytes) -> dict[int, FoundRecord]:
    return {found.offset: found for found in survey(data, SEQUENCE) if isinstance(found, FoundRecord)}


def gaps(data: bytes) -> list[UnreadableRecord]:
    return [found for found in survey(data, SEQUENCE) if isinstance(found, UnreadableRecord)]


def trailers(data: bytes) -> list[FoundTrailer]:
    return [found for found in survey(data, SEQUENCE) if isinstance(found, FoundTrailer)]


def untouched(segment: bytes, start: int, end: int) -> dict[int, FoundRecord]:
    """The records of the whole segment that hold none of the bytes from start to end."""
    return {at: found for at, found in records(segment).items() if found.end <= start or end <= found.offset}


def test_a_whole_segment_is_read_from_end_to_end(segment: bytes) -> None:
    assert [found.record for found in records(segment).values() if isinstance(found.record, Entry)] == [
        *(entry(1, b"one"), entry(2, b"two" * 30), entry(3, b"three"), entry(4, bytes(200))),
        *(entry(5, b"five"), entry(6, b"six" * 20), entry(7, b"7"), entry(8, b"eight" * 100)),
    ]
    assert [found.group for found in trailers(segment)] == [1, 2, 3, 4, 5]
    assert all(found.whole for found in trailers(segment))
    assert gaps(segment) == []
    assert records(segment + bytes(5000)) == records(segment)
    assert gaps(segment + bytes(5000)) == []


def test_any_flipped_bit_costs_at_most_the_record_that_holds_it(segment: bytes) -> None:
    rng = random.Random(1)
    for at in range(len(segment)):
        damaged = bytearray(segment)
        damaged[at] ^= 1 << rng.randrange(8)
        assert records(bytes(damaged)) == untouched(segment, at, at + 1), at
        found = gaps(bytes(damaged))
        assert found, f"byte {at} went unnoticed"
        assert any(gap.start <= at < max(gap.end, gap.start + TRAILER_BYTES) for gap in found), (at, found)


def test_a_cut_costs_what_is_behind_it(segment: bytes) -> None:
    for size in range(len(segment)):
        expected = untouched(segment, size, len(segment))
        assert records(segment[:size]) == (expected if size >= min_readable(segment) else {})


def min_readable(segment: bytes) -> int:
    """Where the segment's header ends: without it nothing says which groups stand here."""
    return min(found.end for found in records(segment).values())


def ranges(size: int) -> Iterator[tuple[int, int]]:
    rng = random.Random(2)
    for _ in range(300):
        start = rng.randrange(size)
        yield start, min(size, start + rng.choice([1, 7, 60, 200, 512]))


@pytest.mark.parametrize("filling", ["zeros", "garbage"])
def test_what_lies_behind_lost_bytes_is_found(segment: bytes, filling: str) -> None:
    rng = random.Random(3)
    for start, end in ranges(len(segment)):
        lost = bytes(end - start) if filling == "zeros" else rng.randbytes(end - start)
        damaged = segment[:start] + lost + segment[end:]
        if damaged != segment:
            found = records(damaged)
            assert set(untouched(segment, start, end)) - set(found) <= unreachable(segment, start, end)
            assert found.items() <= records(segment).items(), "nothing is invented"


def unreachable(segment: bytes, start: int, end: int) -> set[int]:
    """Records of a group that lost its first bytes and its trailer, where the group before lost its own.

    Nothing says any more to which group they belong.
    """
    hit = {
        found.group for found in trailers(segment) if start < found.end and found.end - TRAILER_BYTES < end
    }
    return {at for at, found in records(segment).items() if found.group in hit or found.group - 1 in hit}


def test_a_last_group_without_its_trailer_is_found_behind_a_lost_trailer(segment: bytes) -> None:
    before, last = trailers(segment)[-2:]
    damaged = bytearray(segment[: last.end - TRAILER_BYTES])
    damaged[before.end - 5] ^= 1
    assert records(bytes(damaged)) == records(segment)


def test_a_segment_of_another_format_is_refused(segment: bytes) -> None:
    header = SegmentHeader(FORMAT_VERSION + 1, SEQUENCE, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    group = encode_group(Place(SEQUENCE, 0, 1, 0), [encode_record(header)])
    with pytest.raises(FormatVersionError):
        list(survey(group.records + group.trailer, SEQUENCE))


def test_a_segment_under_another_number_is_unreadable(segment: bytes) -> None:
    assert [type(found) for found in survey(segment, SEQUENCE + 1)] == [UnreadableRecord]
    assert next(survey(segment, SEQUENCE + 1)) == UnreadableRecord(
        0, len(segment), "the segment's header is not readable"
    )


@pytest.mark.parametrize("content", [b"", bytes(600), b"nonsense" * 100])
def test_what_is_no_segment_is_unreadable(content: bytes) -> None:
    (found,) = survey(content, SEQUENCE)
    assert isinstance(found, UnreadableRecord)
    assert found.start == 0
    assert found.end == len(content.rstrip(b"\0"))
