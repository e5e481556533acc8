"""One segment of a log: record batches from a base offset on, with its two sparse indexes.

Decides where a batch is and how many bytes of whole batches a reader gets. The indexes live in memory
while the segment grows; their files are written only after an fsync of the records
(broker/log/flushing.py), so what lies before the last entry of an index file is durable and whole. Knows
nothing of other segments.

Reading waits for the disk and keeps nothing, so any thread may read; with `wait=False`, which is for the
loop's thread alone, it raises NotCachedError instead.
Source: Kafka's LogSegment (3.9); ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from struct import Struct
from typing import Final, NamedTuple

from broker.log.aborted import ABORTED_SUFFIX
from broker.log.batches import (
    HEADER,
    LENGTH_OVERHEAD,
    NO_TIMESTAMP,
    BatchHeader,
    Buffer,
    checked_batches,
    parse_header,
    plausible,
    whole_size,
)
from broker.log.errors import AppendError, DamagedSegmentError
from broker.log.files import FilePool, create_file, disk_errors, read_file, read_range, remove_file, write_at
from broker.log.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex

log = logging.getLogger("quorate.broker.log")

#: bytes of records between two index entries
INDEX_INTERVAL_BYTES: Final = 4096
#: relative offsets in an index are int32
RELATIVE_OFFSET_MAX: Final = 2**31 - 1
#: bytes read at once while headers are walked: one index interval, mostly
_WALK_BYTES: Final = 2 * INDEX_INTERVAL_BYTES
_HINTS_MAX: Final = 16
#: base_offset, batch_length, last_offset_delta: what a walk over offsets needs of a header
_PLACE: Final = Struct(">qi11xi")


_ENTRIES: Final = {".index": OFFSET_ENTRY, ".timeindex": TIME_ENTRY}
#: of all its files; the records go first, so that what is left by a crash counts as nothing
_SUFFIXES: Final = (".log", *_ENTRIES, ABORTED_SUFFIX, ".snapshot")


class Cut(NamedTuple):
    """What a segment is like once its tail is cut; read by any thread, applied by the loop's."""

    position: int
    end_offset: int
    offsets: SparseIndex
    times: SparseIndex
    first_timestamp: int
    #: of the batches that the index does not reach
    unindexed: Sequence[BatchHeader]


def distrust(error: DamagedSegmentError) -> None:
    """Let the next opening of the log read a damaged segment whole: its index vouches for it no more."""
    for suffix in _ENTRIES:
        remove_file(error.stem + suffix)


class Span(NamedTuple):
    """Whole batches of a segment: where they begin, how many bytes they have, and the offset after them."""

    position: int
    size: int
    next_offset: int


def file_name(base_offset: int) -> str:
    """Kafka's name of a segment's files, without the suffix."""
    return f"{base_offset:020d}"


class Segment:
    """A segment; the last one of a log is written to."""

    __slots__ = (
        "_checked_to",
        "_files",
        "_hints",
        "_index_is_wrong",
        "_offsets",
        "_since_entry",
        "_times",
        "_vouched_to",
        "base_offset",
        "first_timestamp",
        "log_path",
        "max_timestamp",
        "max_timestamp_offset",
        "next_offset",
        "size",
    )

    def __init__(self, files: FilePool, folder: str, base_offset: int) -> None:
        self._files = files
        self.base_offset = base_offset
        self.log_path = f"{folder}/{file_name(base_offset)}.log"
        #: offset after the last record
        self.next_offset = base_offset
        self.size = 0
        #: of the first batch, its largest; known while the segment is the active one of its log
        self.first_timestamp = NO_TIMESTAMP
        self.max_timestamp = NO_TIMESTAMP
        #: last offset of the first batch with the largest timestamp
        self.max_timestamp_offset = base_offset
        #: None: as in their files, which the pool reads when they are needed
        self._offsets: SparseIndex | None = SparseIndex(OFFSET_ENTRY)
        self._times: SparseIndex | None = SparseIndex(TIME_ENTRY)
        self._since_entry = 0
        #: whether the offset index was found wrong: readers do without it, and so does the next start
        self._index_is_wrong = False
        #: bytes that only the index vouches for since the start, and of these those that were checked since
        self._vouched_to = self._checked_to = 0
        #: {offset: position of the batch that begins with it}: where sequential readers go on
        self._hints: dict[int, int] = {}

    @classmethod
    def create(cls, files: FilePool, folder: str, base_offset: int) -> Segment:
        """Make the file of a new segment."""
        segment = cls(files, folder, base_offset)
        create_file(segment.log_path)
        return segment

    @classmethod
    def load(cls, files: FilePool, folder: str, base_offset: int) -> Segment:
        """Take a segment from the disk, with the size of its file and the entries of its index files.

        What follows the last entry is not known yet: recovery reads it.
        """
        segment = cls(files, folder, base_offset)
        with disk_errors(segment.log_path):
            segment.size = Path(segment.log_path).stat().st_size
        segment.release_indexes()
        segment.hold_indexes()
        _, segment._vouched_to = segment.offsets.last or (0, 0)
        return segment

    @property
    def stem(self) -> str:
        """The path of its files, without a suffix."""
        return self.log_path[: -len(".log")]

    @property
    def offsets(self) -> SparseIndex:
        """(relative last offset, position) of a batch every 4 KiB."""
        return self._index(self._offsets, ".index", wait=True)

    @property
    def times(self) -> SparseIndex:
        """(largest timestamp so far, relative last offset of its batch)."""
        return self._index(self._times, ".timeindex", wait=True)

    def _index(self, held: SparseIndex | None, suffix: str, *, wait: bool) -> SparseIndex:
        if self._index_is_wrong and suffix == ".index":
            return SparseIndex(OFFSET_ENTRY)
        if held is not None:
            return held
        if wait:
            return SparseIndex(_ENTRIES[suffix], read_file(self.stem + suffix) or b"")
        return self._files.index(self.stem + suffix)

    def warm(self) -> None:
        """Open what a thread has just read, so that the next read need not wait."""
        needs_index = self._offsets is None and not self._index_is_wrong
        self._files.warm(self.stem, {".index": OFFSET_ENTRY} if needs_index else {})

    def hold_indexes(self) -> None:
        """Take the indexes into memory, to write to them."""
        self._offsets, self._times = self.offsets, self.times
        self._files.forget_indexes(self.stem)

    def release_indexes(self) -> None:
        """Leave the indexes to their files, which are written and complete."""
        self._offsets = self._times = None

    def drop_indexes(self) -> None:
        """Begin with empty indexes: those in the files do not fit the records."""
        self._offsets, self._times = SparseIndex(OFFSET_ENTRY), SparseIndex(TIME_ENTRY)
        self._vouched_to = 0

    def write(self, buffers: Sequence[Buffer]) -> int:
        """Write buffers after the last byte; returns the position of the first. Nothing is noted yet."""
        write_at(self._files.descriptor(self.log_path), buffers, self.size, self.log_path)
        return self.size

    def note(self, header: BatchHeader) -> None:
        """Note a batch whose bytes are there, after the last one that was noted."""
        size = header.batch_length + LENGTH_OVERHEAD
        last_offset = header.base_offset + header.last_offset_delta
        if not self.size:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = last_offset
        if self._since_entry > INDEX_INTERVAL_BYTES:
            self.offsets.append(last_offset - self.base_offset, self.size)
            self.note_time()
            self._since_entry = 0
        self._since_entry += size
        # In this order: a thread that reads the size first never takes records for older than they are.
        self.next_offset = last_offset + 1
        self.size += size

    def note_time(self) -> None:
        """Give the time index an entry for the largest timestamp, if it has none yet."""
        last = self.times.last
        if self.max_timestamp > (NO_TIMESTAMP if last is None else last[0]):
            self.times.append(self.max_timestamp, self.max_timestamp_offset - self.base_offset)

    def take_closed(self, next_offset: int) -> bool:
        """Take what the files say, unread: the segment was closed and made durable, and another follows.

        Args:
            next_offset: where the following one begins.

        Returns:
            False if the files do not fit each other; then they must be read.
        """
        offsets, times = self.offsets, self.times
        relative, position = offsets.last or (0, 0)
        if (
            not len(times)
            or (not len(offsets) and self.size > INDEX_INTERVAL_BYTES)
            or not (offsets.rises() and times.rises())
            or not position <= self.size - HEADER.size
            or (len(offsets) and not offsets[0][1])
            or self.base_offset + max(relative, times[len(times) - 1][1]) >= next_offset
        ):
            return False
        self.max_timestamp, relative = times[len(times) - 1]
        self.max_timestamp_offset = self.base_offset + relative
        self.next_offset = next_offset
        self._vouched_to = self.size
        return True

    def forget_unindexed(self) -> int:
        """Go back to what the index vouches for; returns the position from which to note batches anew."""
        self.max_timestamp, relative = self.times.last or (NO_TIMESTAMP, 0)
        self.max_timestamp_offset = self.base_offset + relative
        # The batch of the last entry is noted again, without a second entry.
        _, position = self.offsets.last or (0, 0)
        self.size = position
        self._since_entry = 0
        self._hints.clear()
        return position

    def read(self, position: int, size: int) -> bytes:
        """Return bytes, all of which are there."""
        return read_range(self.log_path, size, position)

    def read_cached(self, position: int, size: int) -> bytes:
        """Return bytes, all of which are there, without waiting for the disk; raises NotCachedError."""
        return self._files.read_cached(self.log_path, size, position)

    def check(self, position: int, records: bytes) -> None:
        """Check whole batches that were read, if that is the first time since they came from the disk."""
        end = position + len(records)
        if position >= self._vouched_to or end <= self._checked_to:
            return
        try:
            checked_batches(memoryview(records))
        except AppendError as error:
            raise self.damaged(position + whole_size(memoryview(records))) from error
        if position <= self._checked_to:
            self._checked_to = end

    def walk(self, position: int, end: int | None = None) -> Iterator[tuple[int, BatchHeader]]:
        """Yield (position, header) of each batch from the one that begins at a position on."""
        end = self.size if end is None else end
        window, first = b"", position
        while position < end:
            if position - first + HEADER.size > len(window):
                first = position
                window = self.read(first, min(_WALK_BYTES, end - first))
            if len(window) < HEADER.size or not plausible(header := parse_header(window, position - first)):
                raise self.damaged(position)
            yield position, header
            position += header.size

    def damaged(self, position: int) -> DamagedSegmentError:
        """Return the error for bytes that no broker wrote."""
        error = DamagedSegmentError(
            f"{self.log_path} holds no whole record batch at byte {position}",
            "nothing, where another replica is in sync: it is copied from there",
        )
        error.stem, error.position = self.stem, position
        return error

    def position_of(self, offset: int, *, wait: bool = True) -> int | None:
        """Return where the first batch begins whose last offset is at least `offset`; None: after all."""
        if offset >= self.next_offset:
            return None
        hint = self._hints.get(offset)
        if hint is not None:
            return hint
        offsets = self._index(self._offsets, ".index", wait=wait)
        start = self._place_of(offsets, offsets.floor(0, offset - self.base_offset), wait=wait)
        for position, last_offset, _ in self._places(start, wait=wait):
            if last_offset >= offset:
                return position
        return None

    def _place_of(self, offsets: SparseIndex, entry: int, *, wait: bool) -> int:
        """Return the position that an index entry names; an index that is wrong there is used no more."""
        if entry < 0:
            return 0
        relative, position = offsets[entry]
        if 0 < position <= self.size - HEADER.size:
            read = self.read if wait else self.read_cached
            base_offset, _, delta = _PLACE.unpack(read(position, _PLACE.size))
            if base_offset + delta == self.base_offset + relative:
                return position
        if not self._index_is_wrong:
            self._index_is_wrong = True
            log.error("%s.index is damaged; readers do without it until the next start", self.stem)
            remove_file(self.stem + ".index")
        return 0

    def _places(self, position: int, *, wait: bool) -> Iterator[tuple[int, int, int]]:
        """Yield (position, last offset, size) of each batch: walk() for the paths that readers wait on."""
        window, first, read = b"", position, self.read if wait else self.read_cached
        while position < self.size:
            if position - first + HEADER.size > len(window):
                first = position
                window = read(first, min(_WALK_BYTES, self.size - first))
                if len(window) < HEADER.size:
                    raise self.damaged(position)
            base_offset, length, delta = _PLACE.unpack_from(window, position - first)
            size = length + LENGTH_OVERHEAD
            if size < HEADER.size:
                raise self.damaged(position)
            yield position, base_offset + delta, size
            position += size

    def span(
        self, offset: int, bytes_max: int, below: int, *, at_least_one: bool, wait: bool = True
    ) -> Span | None:
        """Find whole batches for a reader.

        Args:
            offset: of the first record that is wanted; its batch may begin before.
            bytes_max: what the reader has room for.
            below: only batches whose last offset is below this.
            at_least_one: the first batch also where it is larger than `bytes_max`.
            wait: for the disk.

        Returns:
            What fits, maybe nothing; None if this segment has no record from `offset` on.
        """
        start = self.position_of(offset, wait=wait)
        if start is None:
            return None
        whole, whole_end = self.size, self.next_offset
        limit = min(start + bytes_max, whole)
        if limit == whole and below >= whole_end:
            if not wait:
                self._hint(whole_end, whole)
            return Span(start, whole - start, whole_end)
        # The last index entry inside both limits is a batch boundary: only what follows it is walked.
        offsets = self._index(self._offsets, ".index", wait=wait)
        entry = min(offsets.floor(1, limit), offsets.floor(0, below - 1 - self.base_offset))
        end, next_offset = max(start, self._place_of(offsets, entry, wait=wait)), offset
        for position, last_offset, size in self._places(end, wait=wait):
            fits = position + size <= limit or (position == start and at_least_one)
            if not fits or last_offset >= below:
                if position == end > start and next_offset == offset:
                    next_offset = self.base_offset_at(position, wait=wait)
                break
            end, next_offset = position + size, last_offset + 1
            if end == limit:
                # What follows may be damaged: it is not looked at.
                break
        if end > start and not wait:
            self._hint(next_offset, end)
        return Span(start, end - start, next_offset)

    def base_offset_at(self, position: int, *, wait: bool = True) -> int:
        """Return the base offset of the batch that begins at a position."""
        read = self.read if wait else self.read_cached
        return parse_header(read(position, HEADER.size), 0).base_offset

    def _hint(self, offset: int, position: int) -> None:
        if len(self._hints) >= _HINTS_MAX:
            self._hints.clear()
        self._hints[offset] = position

    def truncate(self, position: int, end_offset: int) -> None:
        """Cut the tail, in memory and on the disk."""
        cut = self.plan_cut(position, end_offset)
        self.cut_files(position)
        self.apply_cut(cut)

    def plan_cut(self, position: int, end_offset: int) -> Cut:
        """Read what is needed for cutting the tail; any thread may do it, while nothing is appended."""
        offsets = SparseIndex(OFFSET_ENTRY, self.offsets.to_bytes())
        times = SparseIndex(TIME_ENTRY, self.times.to_bytes())
        offsets.cut_from(1, position)
        times.cut_from(1, end_offset - self.base_offset)
        _, start = offsets.last or (0, 0)
        unindexed = [header for _, header in self.walk(start, position)]
        first_timestamp = self.read_first_timestamp() if position else NO_TIMESTAMP
        return Cut(position, end_offset, offsets, times, first_timestamp, unindexed)

    def apply_cut(self, cut: Cut) -> None:
        """Forget the tail; cut_files() must follow before anything is written here."""
        self._offsets, self._times = cut.offsets, cut.times
        self.first_timestamp = cut.first_timestamp
        self._files.forget_indexes(self.stem)
        self.forget_unindexed()
        for header in cut.unindexed:
            self.note(header)
        self.next_offset = cut.end_offset

    def cut_files(self, position: int) -> None:
        """Cut the file, in any thread; the index files go first, since they vouch for what is cut."""
        for suffix in _ENTRIES:
            remove_file(self.stem + suffix)
        with disk_errors(self.log_path):
            os.truncate(self.log_path, position)

    def close(self) -> None:
        """Let go of the files."""
        self._files.forget(self.log_path)
        self._files.forget_indexes(self.stem)

    def remove(self) -> None:
        """Remove its files, in any thread once it is closed."""
        for suffix in _SUFFIXES:
            remove_file(self.stem + suffix)

    def move_to(self, folder: str) -> None:
        """Move its files to another folder."""
        self.close()
        for suffix in _SUFFIXES:
            path = Path(self.stem + suffix)
            with disk_errors(str(path)):
                if path.exists():
                    path.rename(f"{folder}/{path.name}")

    def read_first_timestamp(self) -> int:
        """Return the largest timestamp of the first batch."""
        return parse_header(self.read(0, HEADER.size), 0).max_timestamp

    def oldest_ms(self) -> int:
        """Return the time of the first record of an active segment, or newest_ms() if that has none."""
        return self.first_timestamp if self.first_timestamp >= 0 else self.newest_ms()

    def newest_ms(self) -> int:
        """Return the largest timestamp, or the file's time where the records carry none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        with disk_errors(self.log_path):
            return Path(self.log_path).stat().st_mtime_ns // 1_000_000


def remove_all(segments: Sequence[Segment]) -> None:
    """Remove the files of closed segments, in order."""
    for segment in segments:
        segment.remove()
