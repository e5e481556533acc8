"""The bytes of the journal: records, groups, trailers and the names of segments. Pure.

    segment = group, group, … , zeros up to the end of the file (space that was written ahead)
    group   = record, record, … , trailer                       (what one fsync covers)
    record  = length u32, group number u32, CRC32 u32, body     (a msgpack list, first its type)
    trailer = magic, group number, start, length, number of records, zero parts,
              CRC32 of all record heads, CRC32 of the trailer before, CRC32 of this one

The CRC of a record is seeded with its place (segment, offset, group), so bytes of a journal that were copied
somewhere else, into the payload of an entry for example, are never taken for records. The group's CRC runs
over the record heads, which hold the CRCs of the bodies. Integers are little-endian.

"Zero parts" counts the sectors of the group that are all zeros because that is what was written. A disk that
lost a sector in a power cut shows zeros there, too: more of them than the trailer counts prove a torn write.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple
from zlib import crc32

import msgpack

from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.messages import HardState

FORMAT_VERSION = 1
SECTOR_BYTES = 512
#: The longest body of a record.
RECORD_BYTES_MAX = 1 << 30
SEGMENT_SUFFIX = ".segment"
PARTIAL_SUFFIX = ".partial"

_HEAD = struct.Struct("<III")
_PLACE = struct.Struct("<QQII")
_TRAILER = struct.Struct("<8sQQIIIIII")
HEAD_BYTES = _HEAD.size
TRAILER_BYTES = _TRAILER.size

#: Its first four bytes, read as a length, exceed RECORD_BYTES_MAX: a trailer is never taken for a record.
TRAILER_MAGIC = b"\xf1\xf2\xf3\xf4QTRL"
_WORD = 0xFFFFFFFF
_ZERO_SECTOR = bytes(SECTOR_BYTES)
_SEQUENCE_DIGITS = 20


class RecordType(IntEnum):
    """The first value of a record's body."""

    HEADER = 0
    ENTRY = 1
    HARD_STATE = 2
    INSTALL = 3
    ORIGIN = 4


class Install(NamedTuple):
    """A snapshot that this node installed and may acknowledge.

    Attributes:
        log_index: the snapshot's last index.
        term: the term of the entry there.
        resets_log: whether the log was dropped because it did not hold that entry; the journal decides.
    """

    log_index: int
    term: int
    resets_log: bool = False


class OriginIncarnation(NamedTuple):
    """The number under which this node forwards batches from now on."""

    number: int


class SegmentHeader(NamedTuple):
    """The first record of a segment; it repeats everything that must outlive the segments before.

    Attributes:
        format_version: FORMAT_VERSION.
        sequence: the number in the segment's name.
        group: the number of the group that this record is alone in.
        previous_crc: the CRC of the trailer before, 0 in the first segment.
        term: hard state at the segment's start.
        voted_for: as term; 0 for nobody.
        last_index: last log index before the segment, 0 for an empty log.
        last_term: its term.
        install_index: highest installed snapshot, 0 for none.
        install_term: its term.
        origin_incarnation: the origin incarnation, 0 for none.
    """

    format_version: int
    sequence: int
    group: int
    previous_crc: int
    term: int
    voted_for: int
    last_index: int
    last_term: int
    install_index: int
    install_term: int
    origin_incarnation: int


Record = Entry | HardState | Install | OriginIncarnation


class RecordError(ValueError):
    """The body of a record is not what its type says, though its CRC is right."""


class FormatVersionError(RecordError):
    """The segment was written by a version with another format."""


class Place(NamedTuple):
    """Where a group begins, and what it continues.

    Attributes:
        sequence: the segment's number.
        offset: the group's first byte in the segment.
        group: the group's number; rises by one, across segments.
        previous_crc: the CRC of the trailer before.
    """

    sequence: int
    offset: int
    group: int
    previous_crc: int


class Trailer(NamedTuple):
    """A decoded trailer whose own CRC is right."""

    group: int
    start: int
    length: int
    records: int
    zero_parts: int
    heads_crc: int
    previous_crc: int
    crc: int


class EncodedGroup(NamedTuple):
    """A group as it is written.

    Attributes:
        records: all records in one piece.
        trailer: TRAILER_BYTES.
        after: the place of the next group.
    """

    records: bytes
    trailer: bytes
    after: Place


class ScannedGroup(NamedTuple):
    """What was found where a group should be.

    Attributes:
        bodies: (offset of the record, first byte of its body, byte after it), up to the first bad record.
        end: the first byte after the trailer, or the first that is neither a good record nor its trailer.
        heads_crc: the CRC of the good records' heads.
        trailer: the trailer, or None if the group has none in its place.
        problem: why the group ends without a trailer; "" if it has one.
    """

    bodies: list[tuple[int, int, int]]
    end: int
    heads_crc: int
    trailer: Trailer | None
    problem: str


def segment_name(sequence: int) -> str:
    """Return the file name of a segment."""
    return f"{sequence:0{_SEQUENCE_DIGITS}d}{SEGMENT_SUFFIX}"


def sequence_of(name: str) -> int | None:
    """Return the number in a segment's file name, or None for any other name."""
    digits = name.removesuffix(SEGMENT_SUFFIX)
    if digits == name or len(digits) != _SEQUENCE_DIGITS or not (digits.isascii() and digits.isdigit()):
        return None
    return int(digits)


def encode_record(record: Record | SegmentHeader) -> tuple[bytes, ...]:
    """Return a record's body, in parts so that an entry's payload is not copied."""
    if not isinstance(record, Entry):
        return (msgpack.packb((_TYPES[type(record)], *record)),)
    index, term, kind, stamp_ms, payload = record
    size = len(payload)
    if size > _PAYLOAD_BYTES_MAX:
        raise ValueError(f"the payload of entry {index} has {size} bytes, at most {_PAYLOAD_BYTES_MAX} fit")
    fields = msgpack.packb((RecordType.ENTRY, index, term, int(kind), stamp_ms))
    # The msgpack list of five becomes one of six whose last value is the payload.
    return (_ENTRY_LIST + fields[1:] + _binary_head(size), payload)


_ENTRY_LIST = b"\x96"
_PAYLOAD_BYTES_MAX = RECORD_BYTES_MAX - 64


def _binary_head(size: int) -> bytes:
    if size < 1 << 8:
        return b"\xc4" + size.to_bytes(1, "big")
    if size < 1 << 16:
        return b"\xc5" + size.to_bytes(2, "big")
    return b"\xc6" + size.to_bytes(4, "big")


_TYPES: dict[type, RecordType] = {
    SegmentHeader: RecordType.HEADER,
    HardState: RecordType.HARD_STATE,
    Install: RecordType.INSTALL,
    OriginIncarnation: RecordType.ORIGIN,
}


def decode_record(body: bytes | memoryview) -> Record | SegmentHeader:
    """Return the record in a body whose CRC was right."""
    try:
        values = msgpack.unpackb(body)
    except (ValueError, msgpack.exceptions.UnpackException) as error:
        raise RecordError(f"the record is not msgpack: {error}") from error
    if not isinstance(values, list) or not values:
        raise RecordError("the record is not a list with a type")
    # Nearly all records are entries, and a start reads hundreds of thousands.
    if len(values) == 6 and values[0] == RecordType.ENTRY and list(map(type, values)) == _ENTRY_TYPES:
        _, index, term, kind, stamp_ms, payload = values
        if kind in _KINDS:
            return Entry(index, term, _KINDS[kind], stamp_ms, payload)
        raise RecordError(f"entry {index} is of kind {kind}, which this version does not know")
    match values:
        case [RecordType.HARD_STATE, int(term), int(voted_for)]:
            return HardState(term, voted_for)
        case [RecordType.INSTALL, int(log_index), int(term), bool(resets_log)]:
            return Install(log_index, term, resets_log)
        case [RecordType.ORIGIN, int(number)]:
            return OriginIncarnation(number)
        case [RecordType.HEADER, int(version), *rest] if version != FORMAT_VERSION:
            raise FormatVersionError(f"its format version is {version}, this version reads {FORMAT_VERSION}")
        case [RecordType.HEADER, *rest] if len(rest) == len(SegmentHeader._fields) and _all_int(rest):
            return SegmentHeader._make(rest)
    raise RecordError(f"this version knows no record of type {values[0]!r} with {len(values)} values")


_KINDS = {int(kind): kind for kind in EntryKind}
_ENTRY_TYPES = [int, int, int, int, int, bytes]


def _all_int(values: list[object]) -> bool:
    return all(type(value) is int for value in values)


def encode_group(place: Place, bodies: Iterable[tuple[bytes, ...]]) -> EncodedGroup:
    """Frame record bodies to a group with its trailer.

    Args:
        place: where the group will stand.
        bodies: at least one, each in parts.
    """
    sequence, start, group, _ = place
    marker = group & _WORD
    parts: list[bytes] = []
    count = 0
    heads_crc = 0
    position = start
    for body in bodies:
        length = sum(map(len, body))
        crc = crc32(_PLACE.pack(sequence, position, marker, length))
        for part in body:
            crc = crc32(part, crc)
        head = _HEAD.pack(length, marker, crc)
        heads_crc = crc32(head, heads_crc)
        count += 1
        parts.append(head)
        parts.extend(body)
        position += HEAD_BYTES + length
    records = b"".join(parts)
    trailer, crc = encode_trailer(place, records, count, heads_crc)
    return EncodedGroup(records, trailer, Place(sequence, position + TRAILER_BYTES, group + 1, crc))


def encode_trailer(place: Place, records: bytes, count: int, heads_crc: int) -> tuple[bytes, int]:
    """Return the trailer that follows `records`, and its CRC.

    Args:
        place: where the group begins.
        records: the group's records in one piece.
        count: how many they are.
        heads_crc: the CRC of their heads.
    """
    fixed = _TRAILER.pack(
        TRAILER_MAGIC,
        place.group,
        place.offset,
        len(records),
        count,
        count_zero_parts(records, place.offset),
        heads_crc,
        place.previous_crc,
        0,
    )[:-4]
    crc = _trailer_crc(fixed, place.sequence)
    return fixed + crc.to_bytes(4, "little"), crc


def _trailer_crc(fixed: bytes, sequence: int) -> int:
    return crc32(fixed, crc32(sequence.to_bytes(8, "little")))


def decode_trailer(data: bytes, position: int, sequence: int) -> Trailer | None:
    """Return the trailer at `position`, or None if there is none whose CRC is right and that belongs there.

    Args:
        data: the segment from its first byte.
        position: of the trailer's first byte.
        sequence: the segment's number.
    """
    if len(data) - position < TRAILER_BYTES or not data.startswith(TRAILER_MAGIC, position):
        return None
    trailer = Trailer._make(_TRAILER.unpack_from(data, position)[1:])
    fixed = data[position : position + TRAILER_BYTES - 4]
    if trailer.crc != _trailer_crc(fixed, sequence) or trailer.start + trailer.length != position:
        return None
    return trailer


def count_zero_parts(records: bytes, offset: int) -> int:
    """Count the sectors, or the group's part of its first sector, that are all zeros.

    The sector in which the trailer begins does not count: where the trailer is, that sector was written.

    Args:
        records: a group's records.
        offset: of their first byte in the segment.
    """
    lead = -offset % SECTOR_BYTES
    zeros = 1 if 0 < lead <= len(records) and not any(records[:lead]) else 0
    # One byte of each sector rules nearly all of them out.
    if 0 in records[lead::SECTOR_BYTES]:
        for first in range(lead, len(records) - SECTOR_BYTES + 1, SECTOR_BYTES):
            zeros += records[first] == 0 and records.startswith(_ZERO_SECTOR, first)
    return zeros


def is_zero(data: bytes, start: int) -> bool:
    """Return whether everything from `start` on is zeros."""
    return data.count(0, start) == len(data) - start if start < len(data) else True


def read_frame(data: bytes, position: int, place: Place) -> tuple[int, str]:
    """Check the record at `position`.

    Args:
        data: the segment from its first byte.
        position: of the record's head.
        place: of its group.

    Returns:
        (the first byte after the record, ""), or (position, why the record is not good).
    """
    if len(data) - position < HEAD_BYTES:
        return position, "the file ends where a record should begin"
    length, marker, crc = _HEAD.unpack_from(data, position)
    if length == 0 or length > RECORD_BYTES_MAX or marker != place.group & _WORD:
        return position, "no record of this group begins here"
    end = position + HEAD_BYTES + length
    if end > len(data):
        return position, f"a record of {length} bytes reaches beyond the end of the file"
    body = memoryview(data)[position + HEAD_BYTES : end]
    if crc != crc32(body, crc32(_PLACE.pack(place.sequence, position, marker, length))):
        return position, f"the CRC of a record of {length} bytes is wrong"
    return end, ""


def frame_bytes(data: bytes, position: int) -> int:
    """Return how long the record at `position` says it is with its head, HEAD_BYTES if that is cut off."""
    if len(data) - position < HEAD_BYTES:
        return HEAD_BYTES
    return HEAD_BYTES + int.from_bytes(data[position : position + 4], "little")


def read_body(data: bytes, position: int, offset: int, sequence: int) -> memoryview | None:
    """Return the body of a record whose place is known, or None if it is not good.

    Args:
        data: a piece of the segment.
        position: of the record's head in the piece.
        offset: of the record's head in the segment.
        sequence: the segment's number.
    """
    end = position + frame_bytes(data, position)
    if end > len(data):
        return None
    length, marker, crc = _HEAD.unpack_from(data, position)
    body = memoryview(data)[position + HEAD_BYTES : end]
    return body if crc == crc32(body, crc32(_PLACE.pack(sequence, offset, marker, length))) else None


def first_place(data: bytes, sequence: int) -> Place | None:
    """Return the place of a segment's first group by its header, or None without a good header."""
    body = read_body(data, 0, 0, sequence)
    if body is None:
        return None
    header = decode_record(body)
    if not isinstance(header, SegmentHeader):
        raise RecordError("the segment's first record is not its header")
    return Place(sequence, 0, header.group, header.previous_crc)


def scan_group(data: bytes, place: Place) -> ScannedGroup:
    """Read the group that should begin at `place.offset`.

    Args:
        data: the segment from its first byte.
        place: where the group begins and what it continues.
    """
    bodies: list[tuple[int, int, int]] = []
    heads_crc = 0
    position = place.offset
    problem = ""
    while not problem:
        if data.startswith(TRAILER_MAGIC, position) and len(data) - position >= TRAILER_BYTES:
            return _end_group(data, position, place, bodies, heads_crc)
        end, problem = read_frame(data, position, place)
        if not problem:
            first = position + HEAD_BYTES
            heads_crc = crc32(data[position:first], heads_crc)
            bodies.append((position, first, end))
            position = end
    return ScannedGroup(bodies, position, heads_crc, None, problem)


def _end_group(
    data: bytes, position: int, place: Place, bodies: list[tuple[int, int, int]], heads_crc: int
) -> ScannedGroup:
    """Check the trailer after a group's records."""
    trailer = decode_trailer(data, position, place.sequence)
    if trailer is None:
        problem = "the CRC of a group's trailer is wrong"
    elif (
        trailer.heads_crc != heads_crc
        or trailer.previous_crc != place.previous_crc
        or (trailer.group, trailer.start, trailer.records) != (place.group, place.offset, len(bodies))
    ):
        problem = "a group's trailer does not fit its records or the trailer before"
    else:
        return ScannedGroup(bodies, position + TRAILER_BYTES, heads_crc, trailer, "")
    return ScannedGroup(bodies, position, heads_crc, None, problem)


def find_trailers(data: bytes, start: int, sequence: int) -> list[Trailer]:
    """Return all good trailers from `start` on, wherever they are."""
    found = []
    position = data.find(TRAILER_MAGIC, start)
    while position >= 0:
        if (trailer := decode_trailer(data, position, sequence)) is not None:
            found.append(trailer)
        position = data.find(TRAILER_MAGIC, position + 1)
    return found


def find_record(data: bytes, start: int, place: Place) -> int | None:
    """Return where the first good record of group `place.group` begins, from `start` on, or None."""
    marker = (place.group & _WORD).to_bytes(4, "little")
    position = data.find(marker, start + 4)
    while position >= 0:
        if not read_frame(data, position - 4, place)[1]:
            return position - 4
        position = data.find(marker, position + 1)
    return None
