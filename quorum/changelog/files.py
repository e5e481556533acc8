"""The files of the change log: segments in one folder, each named by its first zxid.

Decides where a block goes, what a start keeps, and what retention lets go: whole segments, the oldest first.
Any thread may call; one lock keeps the order. Blocks wait in a queue until `drain` has written them, so who
applies entries does not wait for the disk. A closed segment is durable before the next one begins; the last
one is made so by `sync`, before a snapshot becomes the state that a start begins with. All that a start finds
after that state is cut off: applying the log again writes the same bytes.

Hard state: the files, but what is lost of them is history only. What cannot be written waits; past a bound,
and after a failed fsync, the log begins anew after the gap.

Source: docs/clients/spark.md, "Change log"; docs/internals/consensus.md, "Snapshots".
"""

from __future__ import annotations

import logging
import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from quorum.changelog.blocks import MAGIC, Block, format_at, scan
from quorum.errors import DataDamagedError, DataDirError, told_by_os
from quorum.platform.runtime import Disk, File

log = logging.getLogger("quorate.changelog")

#: of one segment; a block that is larger has one of its own
SEGMENT_BYTES_MAX: Final = 16 * 1024 * 1024
SEGMENT_BYTES_MIN: Final = 16 * 1024
#: segments that retention is shared among
SEGMENTS: Final = 16
#: what is written at once
WRITE_BYTES_MAX: Final = 1024 * 1024
#: between two blocks of a segment whose place is remembered
INDEX_BYTES: Final = 64 * 1024
_NAME: Final = re.compile(r"[0-9a-f]{16}\.changes", re.ASCII)

#: a block to write; or the zxid after which the log begins anew
Queued: TypeAlias = "Block | int"


class DamagedChangelogError(DataDamagedError):
    """A segment that is not as it was written.

    Attributes:
        next_zxid: where whole history begins again.
    """

    definite = True

    def __init__(self, path: str, offset: int, next_zxid: int) -> None:
        super().__init__(path, offset, "the change log is damaged", "read this part from another node")
        self.next_zxid = next_zxid


@dataclass(slots=True)
class ChangelogSegment:
    """One file.

    Attributes:
        first_zxid: no block in it begins before.
        size: bytes of whole blocks.
        begun_ms: stamp of its first block; 0 while it has none.
        places: (first zxid, offset) of blocks about INDEX_BYTES apart; None: not looked at since the start.
    """

    path: str
    first_zxid: int
    size: int = 0
    begun_ms: int = 0
    places: list[tuple[int, int]] | None = field(default_factory=list)


class ChangeFiles:
    """The segments of one node."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        *,
        retention_bytes_max: int,
        retention_age_ms: int,
        believes: Callable[[int], bool] = lambda _time_ms: True,
    ) -> None:
        """Touch nothing before `open`.

        Args:
            disk: where.
            folder: made if missing.
            retention_bytes_max: of all segments but the one that is written to.
            retention_age_ms: a segment goes once a block that is this much newer than all of it is written.
            believes: whether a block's time can be right; if not, nothing goes for its age.
        """
        self._disk = disk
        self._folder = folder
        self._retention_bytes_max = retention_bytes_max
        self._retention_age_ms = retention_age_ms
        self._believes = believes
        share = retention_bytes_max // SEGMENTS
        self._segment_bytes_max = max(SEGMENT_BYTES_MIN, min(SEGMENT_BYTES_MAX, share))
        self._lock = threading.Lock()
        self._segments: list[ChangelogSegment] = []
        self._file: File | None = None
        self._queue: deque[Queued] = deque()
        self._refused = False
        #: last zxid that is in the files; -1: none, not even entry 1
        self.last_zxid = -1
        #: bytes of blocks that left the queue so far
        self.drained_bytes = 0

    @property
    def first_zxid(self) -> int:
        """First zxid that is retained, or will be; the founding is 0."""
        oldest = self._segments[:1]
        return oldest[0].first_zxid if oldest else self.last_zxid + 1

    @property
    def size_bytes(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in tuple(self._segments))

    # --- start ------------------------------------------------------------------------------------

    def open(self, zxid: int) -> None:
        """Keep what leads to the state from which the log is applied, and nothing after it.

        Args:
            zxid: of that state; -1: it is empty.
        """
        with self._lock:
            try:
                self._open(zxid)
            except OSError as error:
                log.warning("the change log begins anew: %s", told_by_os(error, self._folder))
                self._segments.clear()
                self.last_zxid = zxid
                self._queue.append(zxid)

    def _open(self, zxid: int) -> None:
        self._disk.make_dirs(self._folder)
        segments = self._segments
        for path in self._paths():
            self._check_format(path)
            first_zxid = int(path[-len("0123456789abcdef.changes") :][:16], 16)
            if first_zxid <= zxid:
                segments.append(ChangelogSegment(path, first_zxid, places=None))
            else:
                self._disk.unlink(path)
        while segments and not self._cut(segments[-1], zxid):
            self._disk.unlink(segments.pop().path)
        for segment in segments[:-1]:
            self._measure(segment)
        if self.last_zxid != zxid:
            if segments:
                what = "the change log ends at zxid %d, the state at %d: it begins anew there"
                log.warning(what, self.last_zxid, zxid)
            self._begin_anew(zxid)

    def _paths(self) -> list[str]:
        return [
            f"{self._folder}/{name}" for name in self._disk.listdir(self._folder) if _NAME.fullmatch(name)
        ]

    def _check_format(self, path: str) -> None:
        """Refuse a segment that another build began, before anything is cut off."""
        file = self._disk.open(path)
        try:
            found, known = format_at(file, 0), int(MAGIC[3:])
        finally:
            file.close()
        if found is not None and found > known:
            raise DataDirError(
                f"{path} has format {found}, and this build reads up to {known}",
                "start the build that wrote it, or a newer one; or move the folder away, which loses history "
                "and no state",
            )

    def _measure(self, segment: ChangelogSegment) -> None:
        """Take the size of a closed segment; it was durable before the next one began."""
        file = self._disk.open(segment.path)
        try:
            segment.size = file.size()
            segment.begun_ms = next((block.stamp_ms for _, block in scan(file, 0, segment.size)), 0)
        finally:
            file.close()

    def _cut(self, segment: ChangelogSegment, zxid: int) -> bool:
        """Cut the last segment after a zxid, and what is not whole; returns whether anything is left."""
        file = self._disk.open(segment.path, writable=True)
        try:
            segment.places = []
            for offset, block in scan(file, 0, file.size()):
                if block.last_zxid > zxid:
                    break
                _take(segment, offset, block)
                self.last_zxid = block.last_zxid
            file.truncate(segment.size)
        finally:
            file.close()
        return segment.size > 0

    # --- writing ----------------------------------------------------------------------------------

    def put(self, queued: Queued) -> None:
        """Queue a block, or a new beginning after a zxid; any thread, never waits."""
        self._queue.append(queued)

    def drain(self) -> bool:
        """Write all that is queued; blocks.

        Returns:
            False if the disk refused; what was not written stays queued.
        """
        with self._lock:
            return self._drain()

    def _drain(self) -> bool:
        try:
            while self._queue:
                self._write_next()
        except OSError as error:
            if not self._refused:
                log.warning("the change log waits: %s", told_by_os(error, self._folder))
            self._refused = True
            return False
        self._refused = False
        return True

    def sync(self) -> None:
        """Make durable what was queued until now; blocks. A log that cannot be made durable begins anew."""
        with self._lock:
            if not self._drain() or self._file is None:
                return
            try:
                self._file.fdatasync()
                self._disk.fsync_dir(self._folder)
            except OSError as error:
                self._lost(error)

    def close(self) -> None:
        """Write what is queued, as far as the disk takes it, and close the file."""
        with self._lock:
            self._drain()
            if self._file is not None:
                self._file.close()
                self._file = None

    def abandon_queue(self, zxid: int) -> None:
        """Give up what is queued: the log begins anew after a zxid as soon as the disk takes that."""
        log.warning("the change log could not be written for too long: it begins anew at zxid %d", zxid)
        with self._lock:
            self.drained_bytes += sum(each.size for each in self._queue if isinstance(each, Block))
            self._queue.clear()
            self._queue.append(zxid)

    def _lost(self, error: OSError) -> None:
        log.warning("the change log begins anew: %s", told_by_os(error, self._folder))
        self._queue.appendleft(self.last_zxid)
        self._drain()

    def _write_next(self) -> None:
        first = self._queue[0]
        if not isinstance(first, Block):
            self._begin_anew(first)
            self._queue.popleft()
            return
        segment = self._segment_for(first)
        room = min(WRITE_BYTES_MAX, self._segment_bytes_max - segment.size)
        blocks: list[Block] = []
        size = 0
        for block in tuple(self._queue):
            if not isinstance(block, Block) or (blocks and size + block.size > room):
                break
            blocks.append(block)
            size += block.size
        assert self._file is not None
        pieces = [piece for block in blocks for piece in (block.header(), block.body)]
        self._file.pwrite(pieces, segment.size)
        for block in blocks:
            self._queue.popleft()
            _take(segment, segment.size, block)
        self.drained_bytes += size
        self.last_zxid = blocks[-1].last_zxid
        self._retain(blocks[-1].stamp_ms)

    def _segment_for(self, block: Block) -> ChangelogSegment:
        """Return the segment that a block goes to, its file open."""
        segments = self._segments
        if segments and segments[-1].size and segments[-1].size + block.size > self._segment_bytes_max:
            self._close_segment()
            segments.append(self._create(block.first_zxid))
        elif not segments:
            segments.append(self._create(block.first_zxid))
        if self._file is None:
            self._file = self._disk.open(segments[-1].path, writable=True)
        return segments[-1]

    def _close_segment(self) -> None:
        """Make the last segment durable; if the disk refuses, nothing is known of it, and the log begins
        anew."""
        file = self._file or self._disk.open(self._segments[-1].path, writable=True)
        self._file = None
        try:
            file.fdatasync()
        except OSError as error:
            log.warning("the change log begins anew: %s", told_by_os(error, self._folder))
            self._begin_anew(self.last_zxid)
        finally:
            file.close()

    def _create(self, first_zxid: int) -> ChangelogSegment:
        path = f"{self._folder}/{first_zxid:016x}.changes"
        try:
            self._file = self._disk.create(path)
        except FileExistsError:
            # An attempt that the disk refused half-way left it.
            self._file = self._disk.open(path, writable=True)
            self._file.truncate(0)
        self._disk.fsync_dir(self._folder)
        return ChangelogSegment(path, first_zxid)

    def _begin_anew(self, zxid: int) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        self._segments.clear()
        self._disk.make_dirs(self._folder)
        for path in self._paths():
            self._disk.unlink(path)
        self.last_zxid = zxid

    def _retain(self, now_ms: int) -> None:
        """Let the oldest segments go that are too many or too old; never the last one."""
        segments = self._segments
        while len(segments) > 1:
            kept_bytes = sum(segment.size for segment in segments[:-1])
            too_old = segments[1].begun_ms < now_ms - self._retention_age_ms
            if kept_bytes <= self._retention_bytes_max and not (too_old and self._believes(now_ms)):
                return
            self._disk.unlink(segments[0].path)
            del segments[0]

    # --- reading ----------------------------------------------------------------------------------

    def blocks_from(self, zxid: int) -> Iterator[Block]:
        """Read the blocks that end at a zxid or after it, by rising zxid, as far as is written now.

        Nothing more comes where retention, or a new beginning, takes a segment away meanwhile. Blocks.
        """
        with self._lock:
            segments = [(segment, segment.size) for segment in self._segments]
        for number, (segment, size) in enumerate(segments):
            if number + 1 < len(segments) and segments[number + 1][0].first_zxid <= zxid:
                continue
            try:
                file = self._disk.open(segment.path)
            except FileNotFoundError:
                return
            try:
                end = self._place(segment, file, size, zxid)
                for offset, block in scan(file, end, size):
                    end = offset + block.size
                    if block.last_zxid >= zxid:
                        yield block
                if end != size:
                    following = segments[number + 1 : number + 2]
                    raise DamagedChangelogError(
                        segment.path, end, following[0][0].first_zxid if following else self.last_zxid + 1
                    )
            finally:
                file.close()

    def _place(self, segment: ChangelogSegment, file: File, size: int, zxid: int) -> int:
        """Return the offset of a block that begins at or before a zxid."""
        if segment.places is None:
            looked_at = ChangelogSegment(segment.path, segment.first_zxid)
            for offset, block in scan(file, 0, size):
                _take(looked_at, offset, block)
            segment.places = looked_at.places
        return _offset_before(segment.places or [], zxid)


def _take(segment: ChangelogSegment, offset: int, block: Block) -> None:
    """Count a block at the end of a segment."""
    if not segment.size:
        segment.begun_ms = block.stamp_ms
    places = segment.places
    if places is not None and (not places or offset - places[-1][1] >= INDEX_BYTES):
        places.append((block.first_zxid, offset))
    segment.size = offset + block.size


def _offset_before(places: Sequence[tuple[int, int]], zxid: int) -> int:
    low, high = 0, len(places)
    while low < high:
        middle = (low + high) // 2
        if places[middle][0] <= zxid:
            low = middle + 1
        else:
            high = middle
    return places[low - 1][1] if low else 0
