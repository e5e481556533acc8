"""Records, groups and trailers, byte by byte."""

from __future__ import annotations

import random

import pytest

from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import (
    HEAD_BYTES,
    SECTOR_BYTES,
    TRAILER_BYTES,
    Install,
    OriginIncarnation,
    Place,
    RecordError,
    SegmentHeader,
    count_zero_parts,
    decode_record,
    encode_group,
    encode_record,
    find_record,
    find_trailers,
    scan_group,
    segment_name,
    sequence_of,
)

PLACE = Place(sequence=7, offset=130, group=41, previous_crc=99)


def entry(payload: bytes, index: int = 5) -> Entry:
    return Entry(index, 3, EntryKind.BATCH, 1_700_000_000_123, payload)


RECORDS = [
    entry(b""),
    entry(b"x" * 255),
    entry(b"x" * 256),
    entry(b"x" * 65535),
    entry(b"x" * 65536),
    Entry(1 << 60, 1 << 40, EntryKind.FOUND, 1 << 50, b"{}"),
    HardState(9, 0),
    HardState(1 << 33, 3),
    Install(12, 4, True),
    OriginIncarnation(1 << 63),
    SegmentHeader(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_as_it_was(record: Entry) -> None:
    found = decode_record(b"".join(encode_record(record)))
    assert found == record
    assert type(found) is type(record)


def test_an_entry_of_a_kind_that_is_not_known_is_refused_by_name() -> None:
    body = bytearray(b"".join(encode_record(entry(b"abc"))))
    body[4] = 77
    with pytest.raises(RecordError, match="kind 77"):
        decode_record(bytes(body))


@pytest.mark.parametrize(
    "body",
    [b"", b"\xc1", b"\x93\x02\x01", b"\x01", b"\x90", b"\x92\x02\x01", b"\x93\x02\xa1a\x01", b"\x92\x63\x01"],
)
def test_a_body_of_another_shape_is_refused(body: bytes) -> None:
    with pytest.raises(RecordError):
        decode_record(body)


def segment_with(records: list[Entry], place: Place = PLACE) -> bytes:
    group = encode_group(place, [encode_record(record) for record in records])
    return bytes(place.offset) + group.records + group.trailer


def test_a_group_ends_in_a_trailer_that_names_the_next_place() -> None:
    group = encode_group(PLACE, [encode_record(entry(b"a")), encode_record(entry(b"b", 6))])
    data = segment_with([entry(b"a"), entry(b"b", 6)])
    found = scan_group(data, PLACE)
    assert found.problem == ""
    assert found.end == len(data) == group.after.offset
    assert len(group.trailer) == TRAILER_BYTES
    assert found.trailer is not None
    assert (found.trailer.group, found.trailer.records, found.trailer.previous_crc) == (41, 2, 99)
    assert group.after == Place(7, len(data), 42, found.trailer.crc)


@pytest.mark.parametrize(
    "other", [PLACE._replace(sequence=8), PLACE._replace(group=42), PLACE._replace(previous_crc=98)]
)
def test_a_group_of_another_place_is_not_taken(other: Place) -> None:
    assert scan_group(segment_with([entry(b"a")]), other).problem


def test_a_copied_group_inside_a_payload_is_no_evidence() -> None:
    inner = segment_with([entry(b"inner")], PLACE._replace(group=42))[PLACE.offset :]
    data = segment_with([entry(b"-" + inner + b"-")])
    assert [trailer.group for trailer in find_trailers(data, 0, PLACE.sequence)] == [41]
    assert find_record(data, 0, PLACE._replace(group=42)) is None


def test_records_and_trailers_are_found_wherever_they_stand() -> None:
    place = PLACE._replace(offset=777, group=42)
    data = segment_with([entry(b"a")])
    data += b"\xff" * (place.offset - len(data)) + segment_with([entry(b"later")], place)[place.offset :]
    assert find_record(data, PLACE.offset, place) == 777
    assert [trailer.start for trailer in find_trailers(data, 0, 7)] == [130, 777]


def test_every_single_flipped_bit_of_a_group_is_noticed() -> None:
    data = segment_with([entry(b"payload"), entry(bytes(20), 6)])
    for bit in range(8 * PLACE.offset, 8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        assert scan_group(bytes(damaged), PLACE).problem, bit


def naive_zero_parts(records: bytes, offset: int) -> int:
    zeros = 0
    for sector in range(offset // SECTOR_BYTES, (offset + len(records)) // SECTOR_BYTES + 1):
        first = max(sector * SECTOR_BYTES, offset) - offset
        end = (sector + 1) * SECTOR_BYTES - offset
        if first < end <= len(records) and not any(records[first:end]):
            zeros += 1
    return zeros


def test_zero_sectors_are_counted_from_the_segments_start() -> None:
    rng = random.Random(1)
    for _ in range(2000):
        records = b"".join(
            rng.choice([bytes(rng.randrange(1400)), rng.randbytes(rng.randrange(40))])
            for _ in range(rng.randrange(6))
        )
        offset = rng.randrange(1500)
        assert count_zero_parts(records, offset) == naive_zero_parts(records, offset)


def test_names_of_segments_sort_like_their_numbers() -> None:
    assert segment_name(9) < segment_name(10) < segment_name(10**15)
    assert sequence_of(segment_name(12345)) == 12345
    others = [
        "",
        "lock",
        segment_name(3) + ".partial",
        "3.segment",
        "0000000000000000000x.segment",
        "٣" * 20 + ".segment",
    ]
    assert [sequence_of(name) for name in others] == [None] * len(others)


def test_a_head_has_a_fixed_size() -> None:
    data = segment_with([entry(b"a")])
    body = b"".join(encode_record(entry(b"a")))
    assert len(data) == PLACE.offset + HEAD_BYTES + len(body) + TRAILER_BYTES
