"""The records inside of one batch: one walk that checks them all, and finds one by its time.

A walk looks at every byte but those of keys and values: lengths end where they must and the last one at the
last byte, offsets rise by one from 0, counts and sizes fit.

Two walks give the same answer: one in plain Python, which decides, and one over columns with numpy, which
knows only what is usual (no headers, short numbers) and leaves each other record to the first.
Source: Kafka protocol guide, "Record"; Kafka's DefaultRecord (3.9).
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any, Final, NamedTuple

from broker.log.batches import LOG_APPEND_TIME, NO_TIMESTAMP, BatchHeader, Buffer
from broker.log.errors import UnreadableBatchError
from broker.log.opened import long_number, opened
from broker.log.unfolding import UNFOLDED_BYTES_MAX, Bytes, MalformedError, unfolded

np: Any
try:
    import numpy as np
except ImportError:
    # The plain walk serves.
    np = None

#: length, attributes, two deltas, two lengths and a count, of a byte each
RECORD_BYTES_MIN: Final = 7
#: records from which columns are quicker
COLUMNS_MIN: Final = 64
#: records that are looked at together
_CHUNK: Final = 8192
#: records that are worth a look whether they have one length
_RUN_MIN: Final = 256
#: and how many times: offsets and timestamps become longer on the way
_RUNS_MAX: Final = 8
#: so much of a batch may be unusual before the plain walk takes it all
_ODD_PART: Final = 16
_INT_BYTES_MAX: Final = 5
_LONG_BYTES_MAX: Final = 10
_INT64_END: Final = 2**63
_NEVER: Final = 2**70


class Sought(NamedTuple):
    """What a walk looks for besides the largest delta of a timestamp; by default nothing."""

    #: the first delta of so much ends the walk
    stop: int = _NEVER
    #: the smallest delta, below this; below it is none
    smallest: int = -_NEVER
    #: the delta of a record without a time, which is not the smallest
    no_time: int = _NEVER


_LARGEST: Final = Sought()


class Walked(NamedTuple):
    """What a walk over a batch's records found."""

    #: the largest timestamp; of those before the end of the walk
    timestamp: int
    #: of the first record that has it
    offset: int
    #: whether a record has no key; of those before the end of the walk
    key_missing: bool
    #: the smallest timestamp, if it was asked for; None: no record has one
    oldest: int | None = None


def walk(
    header: BatchHeader,
    batch: Buffer,
    *,
    at_least: int | None = None,
    oldest: bool = False,
    unfolded_bytes_max: int = UNFOLDED_BYTES_MAX,
    plain_bytes_max: int = UNFOLDED_BYTES_MAX,
) -> Walked:
    """Walk over the records of a batch.

    Args:
        header: the batch's.
        batch: the whole batch.
        at_least: end at the first record whose timestamp is at least this.
        oldest: look for the smallest timestamp, too.
        unfolded_bytes_max: what the records may unfold to.
        plain_bytes_max: of records that are walked over one by one, which takes up to 0.5 µs a byte.
    """
    if header.records_count <= header.last_offset_delta:
        return _walk_compacted(header, batch, at_least)
    try:
        records, begin, end = unfolded(header, batch, unfolded_bytes_max)
        if header.records_count > (end - begin) // RECORD_BYTES_MIN:
            raise MalformedError(f"{header.records_count} records in {end - begin} bytes")
        stop = _NEVER if at_least is None else at_least - header.base_timestamp
        if header.attributes & LOG_APPEND_TIME and at_least is not None:
            # All have the time of the header: the first one decides.
            stop = -_NEVER
        smallest = _NEVER if oldest else -_NEVER
        sought = Sought(stop, smallest, NO_TIMESTAMP - header.base_timestamp)
        found = None
        if np is not None and at_least is None and header.records_count >= COLUMNS_MIN:
            found = _walk_columns(records, begin, end, header.records_count, plain_bytes_max, sought)
        if found is None:
            if end - begin > plain_bytes_max:
                raise MalformedError(f"{end - begin} bytes of records, one by one")
            # A byte of a view costs twice as much as one of bytes, and there are few.
            plain = bytes(records) if isinstance(records, memoryview) else records
            found = _walk_plain(plain, begin, end, header.records_count, sought=sought)
        delta, number, key_missing, smallest = found
        if not -_INT64_END <= header.base_timestamp + delta < _INT64_END:
            raise MalformedError(f"record {number}: its timestamp is {header.base_timestamp} + {delta}")
    except (MalformedError, MemoryError, OSError) as error:
        raise UnreadableBatchError(
            f"the records of the batch at offset {header.base_offset} cannot be opened: {error}"
        ) from error
    if header.attributes & LOG_APPEND_TIME:
        return Walked(header.max_timestamp, header.base_offset, key_missing)
    oldest_time = header.base_timestamp + smallest if abs(smallest) != _NEVER else None
    return Walked(header.base_timestamp + delta, header.base_offset + number, key_missing, oldest_time)


def _walk_compacted(header: BatchHeader, batch: Buffer, at_least: int | None) -> Walked:
    """Walk over what compaction has left of a batch."""
    newest = Walked(NO_TIMESTAMP, header.base_offset, key_missing=False)
    for each in opened(header, batch):
        time_ms = header.base_timestamp + each.timestamp_delta
        if header.attributes & LOG_APPEND_TIME:
            time_ms = header.max_timestamp
        if time_ms > newest.timestamp or newest.timestamp == NO_TIMESTAMP:
            newest = Walked(time_ms, header.base_offset + each.offset_delta, key_missing=False)
        if at_least is not None and time_ms >= at_least:
            break
    return newest


# -- the walk in plain Python ----------------------------------------------------------------------------


def _walk_plain(  # noqa: C901, PLR0912, PLR0915 - numbers are read in place: calls would cost more
    records: Bytes, position: int, limit: int, count: int, *, first: int = 0, sought: Sought = _LARGEST
) -> tuple[int, int, bool, int]:
    """Walk over records from a position to `limit`; looks for what is sought.

    What is behind them must not count: a number that is cut may end there, and its record in the wrong place.

    Returns:
        The largest delta of a timestamp, the first record that has it, whether a key is missing, and the
        smallest one that was sought.
    """
    stop, smallest, no_time = sought
    end = number = 0
    largest, newest, key_missing = -_NEVER, 0, False
    try:
        for number in range(first, first + count):
            # Numbers of one and two bytes are read right here: calls would cost more than all the rest.
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = long_number(records, position, _INT_BYTES_MAX)
            end = position + (byte >> 1)
            if byte & 1 or end > limit:
                raise MalformedError("its length is negative or leads out of the batch")
            # One byte of attributes comes first.
            position += 1
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = long_number(records, position, _LONG_BYTES_MAX)
            delta = (byte >> 1) ^ -(byte & 1)
            byte = records[position]
            if byte < 0x80:
                position += 1
            elif (more := records[position + 1]) < 0x80:
                byte = byte & 0x7F | more << 7
                position += 2
            else:
                byte, position = long_number(records, position, _INT_BYTES_MAX)
            if byte != number << 1:
                raise MalformedError(f"its offset is {(byte >> 1) ^ -(byte & 1)} behind the first one's")
            position, has_key = _behind_key_and_value(records, position)
            key_missing |= not has_key
            if records[position]:
                position = _behind_headers(records, position, end)
            else:
                position += 1
            if position != end:
                raise MalformedError(f"its length is wrong by {position - end} bytes")
            if delta > largest:
                largest, newest = delta, number
                if delta >= stop:
                    return largest, newest, key_missing, smallest
            if delta < smallest and delta != no_time:
                smallest = delta
    except IndexError:
        raise MalformedError(f"record {number}: it leads out of the batch") from None
    except MalformedError as problem:
        raise MalformedError(f"record {number}: {problem}") from None
    if end != limit:
        raise MalformedError(f"{limit - end} bytes follow the last record")
    return largest, newest, key_missing, smallest


def _behind_key_and_value(records: Bytes, position: int) -> tuple[int, bool]:
    """Return the position behind a record's key and value, and whether it has a key."""
    key = records[position]
    if key < 0x80:
        position += 1
    elif (more := records[position + 1]) < 0x80:
        key = key & 0x7F | more << 7
        position += 2
    else:
        key, position = long_number(records, position, _INT_BYTES_MAX)
    if not key & 1:
        position += key >> 1
    elif key != 1:
        raise MalformedError("the length of its key is below -1")
    value = records[position]
    if value < 0x80:
        position += 1
    elif (more := records[position + 1]) < 0x80:
        value = value & 0x7F | more << 7
        position += 2
    else:
        value, position = long_number(records, position, _INT_BYTES_MAX)
    if not value & 1:
        position += value >> 1
    elif value != 1:
        raise MalformedError("the length of its value is below -1")
    return position, key != 1


def _behind_headers(records: Bytes, position: int, end: int) -> int:
    """Return the position behind a record's headers; each one has two bytes at least."""
    count, position = long_number(records, position, _INT_BYTES_MAX)
    if count & 1 or count > end - position:
        raise MalformedError(f"{(count >> 1) ^ -(count & 1)} headers in {end - position} bytes")
    for _ in range(count >> 1):
        length, position = long_number(records, position, _INT_BYTES_MAX)
        if length & 1:
            raise MalformedError("the length of a header's key is negative")
        position += length >> 1
        length, position = long_number(records, position, _INT_BYTES_MAX)
        if length != 1:
            if length & 1:
                raise MalformedError("the length of a header's value is below -1")
            position += length >> 1
        if position > end:
            raise MalformedError("a header leads out of the record")
    return position


# -- the walk over columns -------------------------------------------------------------------------------

#: behind every batch
_FAR: Final = 2**40
#: the most bytes of a record whose length has two bytes
_STEP_MAX: Final = 2 + 8191


def _sizes() -> Any:
    """Return how many bytes a length and what it counts have, by their first two bytes; _FAR: not known."""
    pairs = np.arange(1 << 16)
    second = pairs >> 8
    longer = pairs >> 7 & 1
    zigzag = pairs & 0x7F | second << 7 & -longer
    negative = (zigzag & 1 == 1) & (zigzag != 1)
    return np.where(
        negative | (longer == 1) & ((second > 0x7F) | (second == 0)), _FAR, 1 + longer + (zigzag >> 1)
    )


def _offsets(first: int) -> tuple[Any, Any, Any]:
    """Return the bytes of _CHUNK offsets from one on, masks of as many bytes, and how many they are."""
    zigzag = np.arange(2 * first, 2 * (first + _CHUNK), 2)
    width = 1 + (zigzag > 0x7F) + (zigzag > 0x3FFF) + (zigzag > 0x1FFFFF)
    mask = (1 << 8 * width) - 1
    parts = zigzag & 0x7F | zigzag << 1 & 0x7F00 | zigzag << 2 & 0x7F0000 | zigzag << 3 & 0x7F000000
    return parts | mask >> 8 & 0x80808080, mask, width


if np is not None:
    _SIZES: Final = _sizes()
    #: [first byte of a record][second byte]: its bytes; 0: not known from these
    _STEPS: Final = np.where(_SIZES == _FAR, 0, _SIZES).reshape(256, 256).T.tolist()
    #: where the time of a record begins, by its bytes: behind its length and a byte of attributes
    _BODIES: Final = np.array([2] * 66 + [3] * (_STEP_MAX - 65) + [_FAR])
    #: bytes and mask of a number, by the highest bits of four bytes: it ends in the first that has 0
    _WIDTHS: Final = np.array([1, 2, 1, 3, 1, 2, 1, 4, 1, 2, 1, 3, 1, 2, 1, _FAR])
    _MASKS: Final = 0x7F7F7F7F & (1 << 8 * np.minimum(_WIDTHS, 4)) - 1
    _FIRST_OFFSETS: Final = _offsets(0)


def _places(records: Bytes, windows: Any, position: int, count: int) -> Any:
    """Return where records begin, the first one at a position, and where the last one ends.

    Records of one length are found at once: as long as the first two bytes repeat, so does the step.
    """
    parts: list[Any] = []
    while count >= _RUN_MIN and len(parts) < _RUNS_MAX:
        step = _STEPS[records[position]][records[position + 1]]
        heads = windows[position :: step or 1][:count]
        if not step or ((heads[:16] ^ heads[0]) & 0xFFFF).any():
            break
        others = (heads ^ heads[0]) & 0xFFFF != 0
        run = int(others.argmax()) or len(heads)
        parts.append(np.arange(position, position + run * step, step))
        position += run * step
        count -= run
    parts.append(np.fromiter(_one_by_one(records, position, count), np.int64))
    return np.concatenate(parts)


def _one_by_one(records: Bytes, position: int, count: int) -> Iterator[int]:
    """Say where records begin, and where the last one ends."""
    steps = _STEPS
    yield position
    for _ in repeat(None, count):
        position += steps[records[position]][records[position + 1]] or _long_step(records, position)
        yield position


def _long_step(records: Bytes, position: int) -> int:
    """Return the bytes of a record whose length has three bytes or more, and needs them."""
    length, behind = long_number(records, position, _INT_BYTES_MAX)
    if length & 1 or length < 1 << 14:
        raise MalformedError("its length is negative, or has more bytes than it needs")
    return behind - position + (length >> 1)


def _walk_columns(
    records: Bytes, position: int, limit: int, count: int, plain_bytes_max: int, sought: Sought = _LARGEST
) -> tuple[int, int, bool, int] | None:
    """As _walk_plain(), for many records at once; None: too much is unusual, or a length is wrong."""
    content = np.frombuffer(records, np.uint8)
    windows = np.ndarray((limit - 7,), "<i8", records, 0, (1,))
    largest, newest, key_missing, smallest = -_NEVER, 0, False, sought.smallest
    odd_left = count // _ODD_PART
    for first in range(0, count, _CHUNK):
        try:
            places = _places(records, windows, position, min(_CHUNK, count - first))
        except (IndexError, MalformedError):
            return None
        position = int(places[-1])
        if position > limit:
            return None
        candidates, null, odd = _columns(content, windows, places, first, oldest=sought.smallest != -_NEVER)
        key_missing |= null
        odd_left -= len(odd)
        if odd_left < 0:
            return None
        # The plain walk decides what is unusual.
        for number in sorted({*candidates, *odd}):
            start, end = places[number : number + 2].tolist()
            plain_bytes_max -= end - start
            if plain_bytes_max < 0:
                return None
            delta, _, null, smallest = _walk_plain(
                records, start, end, 1, first=first + number, sought=sought._replace(smallest=smallest)
            )
            key_missing |= null
            if delta > largest:
                largest, newest = delta, first + number
            if delta == sought.no_time and smallest != -_NEVER:
                # The smallest may be one without a time: which is the next one?
                return None
    return (largest, newest, key_missing, smallest) if position == limit else None


def _columns(
    content: Any, windows: Any, places: Any, first: int, *, oldest: bool
) -> tuple[list[int], bool, list[int]]:
    """Look at records that begin and end at these places.

    Args:
        content: their bytes.
        windows: the eight bytes from each place on, little endian.
        places: where the records begin, and where the last one ends.
        first: the number of the first record; a multiple of _CHUNK.
        oldest: look for the smallest timestamp, too.

    Returns:
        The usual records with the smallest and the largest timestamp, whether a usual one has no key, and
        which are unusual: what is wrong is among them.
    """
    starts, ends = places[:-1], places[1:]
    count, limit = len(starts), len(windows) - 1
    # What is near the end has no window of its own.
    odd = ends > limit - 8
    place = np.minimum(starts + _BODIES.take(ends - starts, mode="clip"), limit)
    time = windows[place]
    # The highest bits of four bytes, side by side.
    bits = (time & 0x80808080) * 0x204081 >> 28 & 0xF
    place = np.minimum(place + _WIDTHS.take(bits), limit - 4)
    time &= _MASKS.take(bits)
    # Seven bits a byte have the order of the numbers that they are.
    time ^= -(time & 1)
    expected, mask, width = _FIRST_OFFSETS if first == 0 else _offsets(first)
    odd |= (windows[place] & mask[:count]) != expected[:count]
    place += width[:count]
    key = windows[place] & 0xFFFF
    place = np.minimum(place + _SIZES.take(key), limit)
    place += _SIZES.take(windows[place] & 0xFFFF)
    last = ends - 1
    odd |= place != last
    odd |= content[last] != 0
    candidates = [int(np.where(odd, _FAR, time).argmin())] if oldest else []
    time[odd] = -_FAR
    candidates.append(int(time.argmax()))
    null = (key & 0xFF == 1) & ~odd
    return candidates, bool(null.any()), odd.nonzero()[0].tolist()
