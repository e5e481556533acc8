"""The journal of one node: what it promised, in append-only segments.

Decides when a segment is full, how space is written ahead, what an error of the disk means, and which
segments compaction drops. A group of records goes through three steps: `stage` gives it its place and enters
it in the index (loop), `write` puts it on the disk (any one thread), `finish` makes it readable (loop). One
group at a time: a group is written only after the fsync of the one before returned. writer.py keeps
that order; format.py says how the bytes look, recovery.py what a start makes of them.

The space after the last group is written ahead with zeros, because an fdatasync of bytes that overwrite
existing ones need not commit the file system's own journal (measured 0.12 ms against 0.19 ms). Large groups
do not gain.

Hard state: the segments, and a note of their durable end (note.py). Soft state: the index. Does not
know what entries mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from quorum.errors import (
    FULL_DISK_ERRNOS,
    NO_FILES_ERRNOS,
    DataDirError,
    refused_by_disk,
    told_by_os,
)
from quorum.platform.runtime import Disk, File
from quorum.raft.core.entry import Entry, size_bytes
from quorum.raft.core.messages import HardState
from quorum.raft.journal.format import (
    FORMAT_VERSION,
    HEAD_BYTES,
    PARTIAL_SUFFIX,
    EncodedGroup,
    Install,
    OriginIncarnation,
    Place,
    Record,
    SegmentHeader,
    encode_group,
    encode_record,
    segment_name,
)
from quorum.raft.journal.index import LogIndex
from quorum.raft.journal.note import DurableEnd, NoteFile
from quorum.raft.journal.reader import JournalEntries, LogUnavailableError
from quorum.raft.journal.recovery import close_tail, header_of, scan_journal
from quorum.raft.journal.refusals import JournalFailedError, JournalFullError, failed, refused
from quorum.raft.journal.start import Recovered, TailCollector

__all__ = [
    "HardState",
    "Install",
    "Journal",
    "JournalFailedError",
    "JournalFullError",
    "JournalOptions",
    "LogUnavailableError",
    "OriginIncarnation",
    "Record",
    "Recovered",
]

#: Zeros that are written after a group which needs new space.
_AHEAD_BYTES = 256 * 1024
#: Groups that are larger bring no zeros: their fdatasync is not dominated by the file system's journal.
_AHEAD_GROUP_BYTES_MAX = 64 * 1024
#: Offsets in a segment are four bytes; a group may exceed segment_bytes_max by one record.
_SEGMENT_BYTES_LIMIT = 1 << 31


class JournalOptions(NamedTuple):
    """What the configuration decides about a journal.

    Attributes:
        segment_bytes_max: a segment that has reached this gets no further group.
        log_cache_bytes_max: payload bytes of the newest entries that `open` hands out.
    """

    segment_bytes_max: int = 64 * 1024 * 1024
    log_cache_bytes_max: int = 64 * 1024 * 1024


class StagedGroup(NamedTuple):
    """A group that has its place and is not on the disk yet.

    Attributes:
        encoded: its bytes.
        place: where they go.
        path: the segment.
        header: the segment's header if the segment must be created first.
        end: the first byte after the group.
        record_count: how many records it holds.
    """

    encoded: EncodedGroup
    place: Place
    path: str
    header: EncodedGroup | None
    end: int
    record_count: int


class Journal:
    """An open journal. One process at a time; the holder of the data directory's lock."""

    def __init__(self, disk: Disk, directory: str, options: JournalOptions, log: LogIndex) -> None:
        """Use `Journal.open`."""
        self._disk = disk
        self._directory = directory
        self._options = options
        self._log = log
        #: where the next group goes
        self._place = Place(0, 0, 0, 0)
        #: everything before this place may be read
        self._durable = self._place
        self._file: File | None = None
        #: the newest segment's size; what follows the last group is zeros
        self._file_bytes = 0
        self._note: NoteFile | None = None
        self._reader = JournalEntries(disk, log)

    @classmethod
    def create(cls, disk: Disk, directory: str) -> None:
        """Make an empty journal, durable on return.

        Args:
            disk: where.
            directory: its folder, made if missing.
        """
        disk.make_dirs(directory)
        place = Place(1, 0, 1, 0)
        path = f"{directory}/{segment_name(place.sequence)}"
        if segment_name(place.sequence) in disk.listdir(directory):
            raise DataDirError(
                f"{path} exists already", "start the node without formatting its data directory"
            )
        header = SegmentHeader(FORMAT_VERSION, place.sequence, place.group, 0, 0, 0, 0, 0, 0, 0, 0)
        group = encode_group(place, [encode_record(header)])
        # Before the segment has its name: from then on a journal without a note has lost it.
        NoteFile.create(disk, directory, _end_before(group.after)).close()
        _create_segment(disk, directory, path, group).close()

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        options: JournalOptions,
        log: Callable[[str], None],
        *,
        snapshot: tuple[int, int] | None = None,
    ) -> tuple[Journal, Recovered]:
        """Read the segments, cut what a crash tore, and make the rest durable.

        Args:
            disk: where they are.
            directory: their folder.
            options: see there.
            log: takes a line about what was changed.
            snapshot: (log index, term) of the snapshot that was loaded, None for none. If the log lacks
                that entry, a crash came between the rename of the file and the record of its install; the
                record is written now, so that log and snapshot fit (defect D15 of pysyncobj).
        """
        if not 1024 <= options.segment_bytes_max <= _SEGMENT_BYTES_LIMIT:
            raise DataDirError(
                f"segment_bytes_max = {options.segment_bytes_max} is not in 1024..{_SEGMENT_BYTES_LIMIT}",
                "set raft.segment_bytes_max within these bounds",
            )
        tail = TailCollector(options.log_cache_bytes_max)
        scan = scan_journal(disk, directory, tail.visit)
        journal = cls(disk, directory, options, scan.log)
        torn = ""
        if scan.torn:
            torn = f"cut {scan.torn_bytes} bytes from byte {scan.tail} of {scan.path} on: {scan.torn}"
            log(torn)
        try:
            journal._file = close_tail(disk, directory, scan)
            journal._file_bytes = journal._file.size()
            journal._place = journal._durable = scan.after
            journal._note = NoteFile.open(disk, directory, log)
            journal._write_note(scan.after, synced=True)
            if snapshot is not None and (install := scan.log.resolve(Install(*snapshot))).resets_log:
                log(f"finished the install of the snapshot of entry {snapshot[0]}, term {snapshot[1]}")
                journal.append([install])
                tail.visit(install, scan.path, 0)
        except (OSError, JournalFullError, JournalFailedError) as error:
            journal.close()
            reason = told_by_os(error, scan.path) if isinstance(error, OSError) else error.message
            problem = f"the journal {directory} cannot be made durable: {reason}"
            raise refused_by_disk(problem, "repair the disk or free space on it", error) from error
        return journal, tail.recovered(scan.log, torn)

    @property
    def first_index(self) -> int:
        """The first log index that can be read."""
        return self._log.first_index

    @property
    def last_index(self) -> int:
        """The last log index that was staged."""
        return self._log.last_index

    @property
    def takes_back(self) -> bool:
        """Whether a staged group takes entries back; what held them can be compacted once it is durable."""
        return self._log.takes_back

    @property
    def end(self) -> int:
        """The first byte after the last staged group in the newest segment."""
        return self._place.offset

    @property
    def segment_count(self) -> int:
        """How many segments there are."""
        return len(self._log.segments)

    def stage(self, records: Sequence[Record]) -> StagedGroup:
        """Give records their place: the next group. Entries that they supersede are unreadable from now on.

        Args:
            records: at least one, in order.
        """
        header = self._roll(records)
        place = self._place
        position = place.offset
        bodies = []
        for record in records:
            resolved = self._log.resolve(record) if isinstance(record, Install) else record
            body = encode_record(resolved)
            self._log.add(resolved, position)
            bodies.append(body)
            position += HEAD_BYTES + sum(map(len, body))
        encoded = encode_group(place, bodies)
        self._place = encoded.after
        path = self._log.segments[-1].path
        return StagedGroup(encoded, place, path, header, encoded.after.offset, len(bodies))

    def _roll(self, records: Sequence[Record]) -> EncodedGroup | None:
        """Begin a new segment if the group does not fit into the newest; return its header."""
        place = self._place
        wanted = 0
        for record in records:
            wanted += size_bytes(record) if isinstance(record, Entry) else 64
        if place.offset + wanted <= self._options.segment_bytes_max or self._is_fresh():
            return None
        first = Place(place.sequence + 1, 0, place.group, place.previous_crc)
        header = encode_group(first, [encode_record(header_of(self._log, first))])
        path = f"{self._directory}/{segment_name(first.sequence)}"
        self._log.begin_segment(first.sequence, path, first.group)
        self._place = header.after
        return header

    def _is_fresh(self) -> bool:
        """Return whether the newest segment holds nothing but its header."""
        newest = self._log.segments[-1]
        return newest.header_group + 1 == self._place.group

    def write(self, group: StagedGroup) -> None:
        """Write a staged group and wait until it is durable; in any thread, one group after the other."""
        try:
            if group.header is not None:
                self._prepare_segment(group.path, group.header)
        except OSError as error:
            raise refused(group.path, "writing", error) from error
        file = self._file
        assert file is not None
        try:
            file.pwrite(self._buffers(group), group.place.offset)
        except OSError as error:
            if error.errno in FULL_DISK_ERRNOS:
                self._cut_back(file, group.place.offset)
            raise refused(group.path, "writing", error) from error
        _sync(group.path, file.fdatasync)
        self._write_note(group.encoded.after, synced=group.header is not None)

    def _write_note(self, after: Place, *, synced: bool) -> None:
        """Note that everything before a place is durable."""
        assert self._note is not None
        try:
            self._note.write(_end_before(after))
            if synced:
                self._note.sync()
        except OSError as error:
            # What a full disk leaves of the note is an older one: weaker, never wrong.
            if error.errno not in FULL_DISK_ERRNOS:
                raise failed(self._directory, "noting the durable end", error) from error

    def _prepare_segment(self, path: str, header: EncodedGroup) -> None:
        """Make the segment of a group the one that is open for writing."""
        old = self._file
        assert old is not None
        if old.path == path:
            return
        self._file = _create_segment(self._disk, self._directory, path, header)
        self._file_bytes = header.after.offset
        old.close()

    def _buffers(self, group: StagedGroup) -> list[bytes]:
        buffers = [group.encoded.records, group.encoded.trailer]
        if group.end > self._file_bytes:
            self._file_bytes = group.end
            room = self._options.segment_bytes_max - group.end
            if group.end - group.place.offset <= _AHEAD_GROUP_BYTES_MAX and room > 0:
                ahead = min(_AHEAD_BYTES, room)
                buffers.append(bytes(ahead))
                self._file_bytes += ahead
        return buffers

    def _cut_back(self, file: File, size: int) -> None:
        """Remove what a failed write left, durably: a later group must not meet it."""
        try:
            file.truncate(size)
            file.fdatasync()
        except OSError as error:
            raise failed(file.path, "cutting back after a full disk", error) from error
        self._file_bytes = size

    def finish(self, group: StagedGroup) -> None:
        """Make a written group readable."""
        self._durable = group.encoded.after
        self._log.settle()

    def append(self, records: Sequence[Record]) -> None:
        """Stage, write and finish a group at once."""
        group = self.stage(records)
        self.write(group)
        self.finish(group)

    def read(self, first: int, last: int, bytes_max: int) -> list[Entry]:
        """Read live, durable entries.

        Args:
            first: first log index wanted.
            last: last log index wanted, inclusive.
            bytes_max: size_bytes after which to stop; the first entry is returned whatever its size.

        Returns:
            The entries from `first` on, contiguous, at least one.
        """
        return self._reader.read(first, last, bytes_max, self._durable)

    def segment_before(self, index: int) -> int:
        """Return the first log index of the segment before that of a log index, or of the oldest one."""
        return self._log.segment_before(index)

    def detach(self, keep_from_index: int) -> list[str]:
        """Forget the segments that compaction may drop; return their paths for `remove`, oldest first.

        What is staged decides nothing: its segment is not a file yet, and will not be as long as the disk is
        full, and what it takes back is what a start finds until then. So the segment stays in which what is
        durable ends, and all of them do while a staged group takes entries back (`takes_back`).
        """
        dropped = self._log.drop(self._log.droppable(keep_from_index, self._durable.sequence))
        self._reader.close()
        return [segment.path for segment in dropped]

    def remove(self, paths: Sequence[str]) -> None:
        """Remove the files of detached segments. May run in the thread that writes."""
        for path in paths:
            try:
                with contextlib.suppress(FileNotFoundError):
                    # It is gone where an attempt before could not open the folder.
                    self._disk.unlink(path)
                # One by one: after a crash a gap between the segments that are left would be damage.
                _sync(self._directory, lambda: self._disk.fsync_dir(self._directory))
            except OSError as error:
                raise refused(path, "removing a compacted segment", error) from error

    def close(self) -> None:
        """Close the files; nothing is written."""
        self._reader.close()
        if self._note is not None:
            self._note.close()
            self._note = None
        if self._file is not None:
            self._file.close()
            self._file = None


def _end_before(place: Place) -> DurableEnd:
    """Return the claim that everything before a place is durable."""
    return DurableEnd(place.sequence, place.offset, place.group - 1)


def _create_segment(disk: Disk, directory: str, path: str, header: EncodedGroup) -> File:
    """Create a segment that is durable with its header before it has its name, and open it for writing."""
    partial = path + PARTIAL_SUFFIX
    try:
        file = disk.create(partial)
    except FileExistsError:
        # Left by an attempt that found the disk full.
        disk.unlink(partial)
        file = disk.create(partial)
    try:
        file.pwrite([header.records, header.trailer], 0)
        _sync(path, file.fdatasync)
    finally:
        file.close()
    disk.rename(partial, path)
    _sync(directory, lambda: disk.fsync_dir(directory))
    return disk.open(path, writable=True)


def _sync(path: str, sync: Callable[[], None]) -> None:
    # Also a full disk is final here: what an fsync left undone is not known.
    try:
        sync()
    except OSError as error:
        if error.errno in NO_FILES_ERRNOS:
            # It was not tried: a folder has to be opened for it.
            raise
        raise failed(path, "fsync", error) from error
