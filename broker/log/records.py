"""The records inside of one batch: one walk that checks them all, and finds one by its time.

A walk looks at every byte but those of keys and values: lengths end where they must and the last one at the
last byte, offsets rise by one from 0, counts and sizes fit. What the records unfold to has a bound, since a
small batch may unfold to a thousand times its size.

Two walks give the same answer: one in plain Python, which decides, and one over columns with numpy, which
knows only what is usual (no headers, short numbers) and leaves the rest to the first. Snappy comes in two
forms: bare, and in the frames of the Java client's library.
Source: Kafka protocol guide, "Record"; Kafka's DefaultRecord (3.9); xerial snappy-java, SnappyOutputStream.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from struct import Struct
from typing import Any, Final, NamedTuple

import cramjam

from broker.log.batches import CODEC_MASK, HEADER, LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from broker.log.errors import UnreadableBatchError

np: Any
try:
    import numpy as np
except ImportError:
    # The plain walk serves.
    np = None

#: the most that one batch may unfold to
UNFOLDED_BYTES_MAX: Final = 256 * 1024 * 1024
#: length, attributes, two deltas, two lengths and a count, of a byte each
RECORD_BYTES_MIN: Final = 7
#: records from which columns are quicker
COLUMNS_MIN: Final = 256
#: what each thread that unfolds keeps, and how much larger the next room is where that does not suffice
_ROOM_BYTES: Final = 2 * 1024 * 1024
_GROWTH: Final = 4
_own = threading.local()
#: zeros behind the records: a number that is cut ends in them, and its record then in the wrong place
_PAD: Final = bytes(16)
_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_INT64_END: Final = 2**63
_NEVER: Final = 2**70

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
#: magic, version, oldest compatible version; blocks with an int32 length follow
_XERIAL_HEADER_BYTES: Final = 16
_BLOCK_LENGTH: Final = Struct(">i")

_INTO: Final[dict[int, Callable[[Buffer, Buffer], int]]] = {
    1: cramjam.gzip.decompress_into,
    3: cramjam.lz4.decompress_into,
    4: cramjam.zstd.decompress_into,
}


class Walked(NamedTuple):
    """What a walk over a batch's records found."""

    #: the largest timestamp; of those before the end of the walk
    timestamp: int
    #: of the first record that has it
    offset: int
    #: whether a record has no key; of those before the end of the walk
    key_missing: bool


def walk(
    header: BatchHeader,
    batch: Buffer,
    *,
    at_least: int | None = None,
    unfolded_bytes_max: int = UNFOLDED_BYTES_MAX,
) -> Walked:
    """Walk over the records of a batch.

    Args:
        header: the batch's.
        batch: the whole batch.
        at_least: end at the first record whose timestamp is at least this.
        unfolded_bytes_max: what the records may unfold to.

    Raises:
        UnreadableBatchError: the records are not what the header says.
    """
    try:
        records, size = _unfolded(header, memoryview(batch)[HEADER.size :], unfolded_bytes_max)
        if header.records_count > size // RECORD_BYTES_MIN:
            raise _MalformedError(f"{header.records_count} records in {size} bytes")
        stop = _NEVER if at_least is None else at_least - header.base_timestamp
        if header.attributes & LOG_APPEND_TIME and at_least is not None:
            # All have the time of the header: the first one decides.
            stop = -_NEVER
        found = None
        if np is not None and header.records_count >= COLUMNS_MIN:
            found = _walk_columns(records, size, header.records_count, stop)
        delta, number, key_missing = found or _walk_plain(records, size, header.records_count, stop)
        if not -_INT64_END <= header.base_timestamp + delta < _INT64_END:
            raise _MalformedError(f"record {number}: its timestamp is {header.base_timestamp} + {delta}")
    except (_MalformedError, MemoryError) as error:
        raise UnreadableBatchError(
            f"the records of the batch at offset {header.base_offset} cannot be opened: {error}"
        ) from error
    if header.attributes & LOG_APPEND_TIME:
        return Walked(header.max_timestamp, header.base_offset, key_missing)
    return Walked(header.base_timestamp + delta, header.base_offset + number, key_missing)


def oldest_time(header: BatchHeader, batch: Buffer, unfolded_bytes_max: int) -> int | None:
    """Return the smallest timestamp of a batch whose records walk() has checked; None: no record has one.

    A walk of its own: few topics limit how old a record may be, and all others need not look for this.
    """
    try:
        records, _ = _unfolded(header, memoryview(batch)[HEADER.size :], unfolded_bytes_max)
    except (_MalformedError, MemoryError) as error:
        raise UnreadableBatchError(f"the records cannot be opened again: {error}") from error
    position, oldest = 0, None
    for _ in range(header.records_count):
        length, position = _long_number(records, position, _INT_BYTES_MAX)
        # One byte of attributes comes first.
        delta, _ = _long_number(records, position + 1, _LONG_BYTES_MAX)
        timestamp = header.base_timestamp + ((delta >> 1) ^ -(delta & 1))
        if timestamp != NO_TIMESTAMP and (oldest is None or timestamp < oldest):
            oldest = timestamp
        position += length >> 1
    return oldest


class _MalformedError(Exception):
    """What is wrong with the records of a batch."""


# -- the walk in plain Python ----------------------------------------------------------------------------


def _walk_plain(  # noqa: C901, PLR0912, PLR0915 - numbers are read in place: calls would cost more
    records: bytes | bytearray, size: int, count: int, stop: int
) -> tuple[int, int, bool]:
    """Walk over records, of which `size` bytes count; ends at the first with a delta of `stop` or more.

    Returns:
        The largest delta of a timestamp, the first record that has it, and whether a key is missing.
    """
    position = end = number = 0
    largest, newest, key_missing = -_NEVER, 0, False
    try:
        for number in range(count):
            # Numbers of one and two bytes are read right here: calls would cost more than all the rest.
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = _long_number(records, position, _INT_BYTES_MAX)
            end = position + (byte >> 1)
            if byte & 1 or end > size:
                raise _MalformedError("its length is negative or leads out of the batch")
            # One byte of attributes comes first.
            position += 1
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = _long_number(records, position, _LONG_BYTES_MAX)
            delta = (byte >> 1) ^ -(byte & 1)
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = _long_number(records, position, _INT_BYTES_MAX)
            if byte != number << 1:
                raise _MalformedError(f"its offset is {(byte >> 1) ^ -(byte & 1)} behind the first one's")
            position, has_key = _behind_key_and_value(records, position)
            key_missing |= not has_key
            if records[position]:
                position = _behind_headers(records, position, end)
            else:
                position += 1
            if position != end:
                raise _MalformedError(f"its length is wrong by {position - end} bytes")
            if delta > largest:
                largest, newest = delta, number
                if delta >= stop:
                    return largest, newest, key_missing
    except IndexError:
        raise _MalformedError(f"record {number}: it leads out of the batch") from None
    except _MalformedError as problem:
        raise _MalformedError(f"record {number}: {problem}") from None
    if end != size:
        raise _MalformedError(f"{size - end} bytes follow the last record")
    return largest, newest, key_missing


def _behind_key_and_value(records: bytes | bytearray, position: int) -> tuple[int, bool]:
    """Return the position behind a record's key and value, and whether it has a key."""
    key = records[position]
    if key < 0x80:
        position += 1
    elif (more := records[position + 1]) < 0x80:
        key = key & 0x7F | more << 7
        position += 2
    else:
        key, position = _long_number(records, position, _INT_BYTES_MAX)
    if not key & 1:
        position += key >> 1
    elif key != 1:
        raise _MalformedError("the length of its key is below -1")
    value = records[position]
    if value < 0x80:
        position += 1
    elif (more := records[position + 1]) < 0x80:
        value = value & 0x7F | more << 7
        position += 2
    else:
        value, position = _long_number(records, position, _INT_BYTES_MAX)
    if not value & 1:
        position += value >> 1
    elif value != 1:
        raise _MalformedError("the length of its value is below -1")
    return position, key != 1


def _behind_headers(records: bytes | bytearray, position: int, end: int) -> int:
    """Return the position behind a record's headers; each one has two bytes at least."""
    count, position = _long_number(records, position, _INT_BYTES_MAX)
    if count & 1 or count > end - position:
        raise _MalformedError(f"{(count >> 1) ^ -(count & 1)} headers in {end - position} bytes")
    for _ in range(count >> 1):
        length, position = _long_number(records, position, _INT_BYTES_MAX)
        if length & 1:
            raise _MalformedError("the length of a header's key is negative")
        position += length >> 1
        length, position = _long_number(records, position, _INT_BYTES_MAX)
        if length != 1:
            if length & 1:
                raise _MalformedError("the length of a header's value is below -1")
            position += length >> 1
        if position > end:
            raise _MalformedError("a header leads out of the record")
    return position


def _long_number(records: bytes | bytearray, position: int, bytes_max: int) -> tuple[int, int]:
    """Read a number of any length, still in zigzag; returns it and the position behind it."""
    value = 0
    for shift in range(0, 7 * bytes_max, 7):
        byte = records[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
    raise _MalformedError(f"a number has more than {bytes_max} bytes")


# -- the walk over columns -------------------------------------------------------------------------------


def _step(first: int, second: int) -> int:
    """Return the bytes of a record whose length begins with these two bytes; 0: not known from them."""
    if first < 0x80:
        return 0 if first & 1 else 1 + (first >> 1)
    return 0 if second >= 0x80 or first & 1 else 2 + ((first & 0x7F | second << 7) >> 1)


#: bytes of a record by the first two bytes, little endian
_STEPS: Final = array("i", [_step(pair & 0xFF, pair >> 8) for pair in range(65_536)])


def _walk_columns(
    records: bytes | bytearray, size: int, count: int, stop: int
) -> tuple[int, int, bool] | None:
    """As _walk_plain(), for all records at once; None: something is wrong or unusual."""
    starts = array("q", bytes(8)) * (count + 1)
    steps = _STEPS
    position = 0
    try:
        for number in range(count):
            starts[number] = position
            step = steps[records[position] | records[position + 1] << 8]
            if not step:
                length, after = _long_number(records, position, 3)
                if length & 1:
                    return None
                step = after - position + (length >> 1)
            position += step
    except (IndexError, _MalformedError):
        return None
    if position != size:
        return None
    starts[count] = position
    places = np.frombuffer(starts, np.int64)
    content = np.frombuffer(records, np.uint8)
    ends = places[1:]
    _, place = _numbers(content, places[:-1])
    times, place = _numbers(content, place + 1)
    offsets, place = _numbers(content, place)
    keys, place = _numbers(content, place)
    if times is None or offsets is None or keys is None:
        return None
    place = _behind(place, keys)
    # What leads out of its record must not be read: it may lead out of the batch.
    if place is None or (place >= ends).any() or (offsets != np.arange(0, 2 * count, 2)).any():
        return None
    values, place = _numbers(content, place)
    if values is None or (place := _behind(place, values)) is None:
        return None
    if (place + 1 != ends).any() or content[ends - 1].any():
        return None
    deltas = (times >> 1) ^ -(times & 1)
    newest = int(deltas.argmax())
    if stop <= deltas[newest]:
        newest = int((deltas >= stop).argmax())
    return int(deltas[newest]), newest, bool((keys == 1).any())


def _numbers(content: Any, place: Any) -> tuple[Any, Any]:
    """Read a number, still in zigzag, at each place; returns them, None if one is long, and what follows."""
    value = content[place].astype(np.int32)
    longer = value >= 0x80
    place = place + 1
    if not longer.any():
        return value, place
    value &= 0x7F
    for shift in (7, 14):
        more = content[place].astype(np.int32)
        value |= np.where(longer, (more & 0x7F) << shift, 0)
        place = place + longer
        longer &= more >= 0x80
        if not longer.any():
            return value, place
    return None, place


def _behind(place: Any, lengths: Any) -> Any:
    """Return the places behind bytes of these lengths, still in zigzag; None if one is below -1."""
    if ((lengths & 1) & (lengths != 1)).any():
        return None
    return place + (lengths >> 1)


# -- unfolding -------------------------------------------------------------------------------------------


def _unfolded(header: BatchHeader, content: memoryview, bytes_max: int) -> tuple[bytes | bytearray, int]:
    """Return the records with zeros behind them, and how many bytes they are."""
    codec = header.attributes & CODEC_MASK
    if codec == 0:
        return b"".join((content, _PAD)), len(content)
    try:
        if codec == 2:
            return _snappy(content, bytes_max)
        return _grown(content, bytes_max, _INTO[codec])
    except (cramjam.DecompressionError, KeyError) as error:
        raise _MalformedError(f"compression type {codec}, at most {bytes_max} bytes: {error}") from error


def _grown(
    content: memoryview, bytes_max: int, into: Callable[[Buffer, Buffer], int]
) -> tuple[bytearray, int]:
    """Decompress into the thread's own room, or into one that grows until it is large enough."""
    room: bytearray | None = getattr(_own, "room", None)
    if room is None:
        # New memory costs more than what is done in it, so it is kept.
        room = _own.room = bytearray(_ROOM_BYTES + len(_PAD))
    size = min(_ROOM_BYTES, bytes_max)
    while True:
        try:
            unfolded = into(content, memoryview(room)[:size])
        except cramjam.DecompressionError:
            # It does not say whether the room was too small: the largest room decides.
            if size == bytes_max:
                raise
            size = min(size * _GROWTH, bytes_max)
            room = bytearray(size + len(_PAD))
            continue
        room[unfolded : unfolded + len(_PAD)] = _PAD
        return room, unfolded


def _snappy(content: memoryview, bytes_max: int) -> tuple[bytes, int]:
    if bytes(content[: len(_XERIAL_MAGIC)]) != _XERIAL_MAGIC:
        block = _snappy_block(content, bytes_max)
        return b"".join((block, _PAD)), len(block)
    blocks: list[bytes] = []
    position, have = _XERIAL_HEADER_BYTES, 0
    while position < len(content):
        if position + _BLOCK_LENGTH.size > len(content):
            raise _MalformedError("a snappy frame is cut")
        (length,) = _BLOCK_LENGTH.unpack_from(content, position)
        position += _BLOCK_LENGTH.size
        if not 0 <= length <= len(content) - position:
            raise _MalformedError("a snappy frame is cut")
        blocks.append(_snappy_block(content[position : position + length], bytes_max - have))
        have += len(blocks[-1])
        position += length
    return b"".join((*blocks, _PAD)), have


def _snappy_block(block: memoryview, bytes_max: int) -> bytes:
    if cramjam.snappy.decompress_raw_len(block) > bytes_max:
        raise _MalformedError("the records unfold to more than is allowed")
    return bytes(cramjam.snappy.decompress_raw(block))
