"""Everything of a segment that can still be read, also behind damage. Pure.

Recovery (recovery.py) stops at the first byte that is not as it was written, because a node must not
guess. A person who looks for what is left wants the rest: this reader steps over what is unreadable to the
next record of the same group, the next group with a good trailer, or the next group's first record, whichever
comes first, and says what it stepped over. It takes every group for itself, so it does not notice one that
contradicts those before; and it does not decide what is torn and what is damage.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

from quorum.raft.journal.format import (
    HEAD_BYTES,
    TRAILER_BYTES,
    TRAILER_MAGIC,
    FormatVersionError,
    Place,
    Record,
    RecordError,
    SegmentHeader,
    Trailer,
    decode_record,
    decode_trailer,
    find_record,
    find_trailers,
    first_place,
    is_zero,
    read_frame,
)


class FoundRecord(NamedTuple):
    """A record whose CRC is right.

    Attributes:
        offset: its first byte in the segment.
        end: the first byte behind it.
        group: the number of its group.
        record: what it says.
    """

    offset: int
    end: int
    group: int
    record: Record | SegmentHeader


class FoundTrailer(NamedTuple):
    """The end of a group.

    Attributes:
        group: its number.
        end: the first byte behind the trailer.
        whole: whether as many records were read as the trailer counts.
    """

    group: int
    end: int
    whole: bool


class UnreadableRecord(NamedTuple):
    """Bytes that are no record and no trailer of the group that they should belong to.

    Attributes:
        start: the first of them.
        end: the first byte that can be read again, or behind the last one that is not zero; `start` where
            only the end of a group is missing.
        problem: what is wrong at `start`.
    """

    start: int
    end: int
    problem: str


Finding = FoundRecord | FoundTrailer | UnreadableRecord


class _Step(NamedTuple):
    """Where reading goes on: at a byte of a group, whose first byte is place.offset."""

    offset: int
    place: Place


def survey(data: bytes, sequence: int) -> Iterator[Finding]:
    """Go through a segment from its first byte to its last.

    Args:
        data: the whole segment.
        sequence: its number.

    Raises:
        FormatVersionError: another version wrote it.
    """
    return _Survey(data, sequence).findings()


class _Survey:
    """One pass over one segment."""

    def __init__(self, data: bytes, sequence: int) -> None:
        self._data = data
        self._sequence = sequence
        #: all good trailers, once they are needed
        self._trailers: list[Trailer] | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield everything in the order in which it stands."""
        problem = "the segment's header is not readable"
        try:
            place = first_place(self._data, self._sequence)
        except FormatVersionError:
            raise
        except RecordError as error:
            place, problem = None, str(error)
        step: _Step | None
        if place is not None:
            step = _Step(0, place)
        else:
            step = yield from self._step_over(Place(self._sequence, 0, 0, 0), 0, problem)
        while step is not None:
            step = yield from self._group(step)

    def _group(self, step: _Step) -> Generator[Finding, None, _Step | None]:
        """Yield what is good from a byte of a group on; return where to go on."""
        data = self._data
        position, place = step
        count = 0
        while True:
            if data.startswith(TRAILER_MAGIC, position):
                trailer = decode_trailer(data, position, self._sequence)
                if trailer is not None and (trailer.group, trailer.start) == (place.group, place.offset):
                    end = position + TRAILER_BYTES
                    whole = step.offset == place.offset and count == trailer.records
                    yield FoundTrailer(place.group, end, whole)
                    return None if self._ends_at(end) else _behind(place, trailer)
                problem = "a group's trailer is wrong"
                break
            end, problem = read_frame(data, position, place)
            if problem:
                break
            count += 1
            yield self._record(position, end, place.group)
            position = end
        return (yield from self._step_over(place, position, problem))

    def _record(self, position: int, end: int, group: int) -> FoundRecord | UnreadableRecord:
        try:
            record = decode_record(memoryview(self._data)[position + HEAD_BYTES : end])
        except FormatVersionError:
            raise
        except RecordError as error:
            return UnreadableRecord(position, end, str(error))
        return FoundRecord(position, end, group, record)

    def _ends_at(self, position: int) -> bool:
        # The first bytes of a group are never all zeros, so the whole rest is looked at only once.
        return not any(self._data[position : position + 4]) and is_zero(self._data, position)

    def _step_over(self, place: Place, bad: int, problem: str) -> Generator[Finding, None, _Step | None]:
        """Yield what cannot be read from `bad` on; return where it can be read again, None for nowhere."""
        step = self._next_readable(place, bad)
        end = max(bad, len(self._data.rstrip(b"\0"))) if step is None else step.offset
        yield UnreadableRecord(bad, end, problem)
        return step

    def _next_readable(self, place: Place, bad: int) -> _Step | None:
        """Return the first readable place behind a bad byte of a group."""
        data, sequence = self._data, self._sequence
        steps: list[_Step] = []
        if (offset := find_record(data, bad + 1, place)) is not None:
            steps.append(_Step(offset, place))
        if (offset := find_record(data, bad + 1, place._replace(group=place.group + 1))) is not None:
            # What it continues is not known; nobody asks here.
            steps.append(_Step(offset, Place(sequence, offset, place.group + 1, 0)))
        if self._trailers is None:
            self._trailers = find_trailers(data, 0, sequence)
        first_start = bad if place.group else bad + 1
        for trailer in self._trailers:
            if trailer.group > place.group and trailer.start >= first_start:
                first = Place(sequence, trailer.start, trailer.group, trailer.previous_crc)
                steps.append(_Step(trailer.start, first))
        return min(steps, key=lambda step: (step.offset, step.place.group), default=None)


def _behind(place: Place, trailer: Trailer) -> _Step:
    """Return the beginning of the group behind one with this trailer."""
    offset = trailer.start + trailer.length + TRAILER_BYTES
    return _Step(offset, Place(place.sequence, offset, trailer.group + 1, trailer.crc))
