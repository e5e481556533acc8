"""What a starting node makes of its segments.

Decides, for each byte that is not as it was written, between two stories. A crash tore the last group: its
records up to the first bad one are kept, the rest is cut, and nothing acknowledged is lost, because an
acknowledgement needs the whole group durable. Anything else is damage, and the node refuses to start rather
than forget.

A bad record is damage if anything valid of a later group or segment follows (a group is written only after
the fsync of the one before returned), or if its own group has a valid trailer, unless more sectors of the
group are zeros than were written so (a power cut may keep the trailer's sector and lose another). A journal
that ends before the end that its note claims (note.py), or has no note that can be read, is damage as well.
`scan_journal` only reads; `close_tail` writes. Knows nothing of what entries mean, nor of identity
and snapshots.

Source: the protocol-aware recovery of Alagappan et al. (FAST '18) names the two stories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from quorum.errors import DataDamagedError, DataDirError, Fault
from quorum.platform.runtime import Disk, File
from quorum.raft.journal.format import (
    FORMAT_VERSION,
    PARTIAL_SUFFIX,
    FormatVersionError,
    Place,
    Record,
    RecordError,
    ScannedGroup,
    SegmentHeader,
    count_zero_parts,
    decode_record,
    encode_trailer,
    find_record,
    find_trailers,
    first_place,
    is_zero,
    scan_group,
    segment_name,
    sequence_of,
)
from quorum.raft.journal.index import LogGapError, LogIndex
from quorum.raft.journal.note import NOTE_NAME, DurableEnd, read_note

#: Called for each record in the order of writing, with the segment's path and the record's offset in it.
Visitor = Callable[[Record | SegmentHeader, str, int], None]

#: What to do about a journal that cannot be used.
REPLACE_REMEDY = (
    "keep the file for a look; if the other voters are healthy, run `quorate members replace` for this node "
    "and start it with `quorate serve --join` on an empty data directory"
)

#: What to do about a journal whose end is gone, or may be.
_LOSS_REMEDY = (
    "put the file back as it was; if it is lost and the other voters are healthy, run `quorate members "
    "replace` for this node and start it with `quorate serve --join` on an empty data directory; a node "
    "without others goes on from a backup of its data directory"
)


class JournalMissingError(DataDirError):
    """A data directory that has an identity and no journal: it is not the one that this node wrote."""

    fault = Fault.OPERATOR


class JournalScan(NamedTuple):
    """What the segments hold, before anything is written.

    Attributes:
        log: everything that the records add up to.
        path: the newest segment.
        closing: the bytes of the last group that is kept, from its start to `tail`.
        closing_start: its first byte in that segment.
        trailer: the trailer that `closing` lacks, b"" if it has its own.
        tail: the first byte after what is kept.
        after: where the next group goes.
        torn: why the bytes after `tail` are cut, "" if they are all zeros.
        torn_bytes: how many they are.
    """

    log: LogIndex
    path: str
    closing: bytes
    closing_start: int
    trailer: bytes
    tail: int
    after: Place
    torn: str
    torn_bytes: int


class _Tail(NamedTuple):
    """How the newest segment ends."""

    place: Place
    group: ScannedGroup
    torn: str


def scan_journal(disk: Disk, directory: str, visit: Visitor | None = None) -> JournalScan:
    """Read all segments and judge them; writes nothing.

    Args:
        disk: where they are.
        directory: their folder.
        visit: called for each record.
    """
    sequences = list_segments(disk, directory)
    first, last = sequences[0], sequences[-1]
    index: LogIndex | None = None
    place: Place | None = None
    for expected, sequence in enumerate(sequences, first):
        path = f"{directory}/{segment_name(sequence)}"
        if sequence != expected:
            missing = f"{directory}/{segment_name(expected)}"
            raise DataDamagedError(
                missing, 0, f"the segment is missing, but {segment_name(last)} exists", REPLACE_REMEDY
            )
        data = read_all(disk, path)
        reader = _SegmentReader(path, data, index, visit)
        place = reader.begin(sequence, place)
        index, tail = reader.read(place, newest=sequence == last)
        place = tail.place
    assert index is not None
    index.seal()
    scan = _closing(index, path, data, tail, reader.last_start)
    if (loss := _loss(directory, read_note(disk, directory), scan)) is not None:
        raise loss
    return scan


def _loss(directory: str, note: DurableEnd | None, scan: JournalScan) -> DataDamagedError | None:
    """Return why a journal does not reach, or may not reach, to the end that was durable; None if it does."""
    after = scan.after
    if note is None:
        problem = (
            "it is missing or cannot be read, and without it nobody knows whether the journal's end is there"
        )
        return DataDamagedError(f"{directory}/{NOTE_NAME}", 0, problem, _LOSS_REMEDY)
    if (note.group, note.offset) <= (after.group - 1, after.offset):
        return None
    if note.sequence > after.sequence:
        path = f"{directory}/{segment_name(after.sequence + 1)}"
        problem = f"the segment is missing, but segment {note.sequence} was durable up to byte {note.offset}"
        return DataDamagedError(path, 0, problem, _LOSS_REMEDY)
    problem = f"the journal ends here, but was durable up to byte {note.offset}: it was cut or overwritten"
    return DataDamagedError(scan.path, scan.tail, problem, _LOSS_REMEDY)


def list_segments(disk: Disk, directory: str) -> list[int]:
    """Return the numbers of all segments, ascending."""
    try:
        names = disk.listdir(directory)
    except FileNotFoundError:
        names = []
    sequences = sorted(number for name in names if (number := sequence_of(name)) is not None)
    if not sequences:
        raise JournalMissingError(
            f"the journal folder {directory} holds no segment",
            "put back the folder that belongs to this data directory; if it is lost, run `quorate members "
            "replace` for this node and start it with `quorate serve --join` on an empty data directory",
        )
    return sequences


def read_all(disk: Disk, path: str) -> bytes:
    """Return a whole file's content."""
    file = disk.open(path)
    try:
        return file.pread(file.size(), 0)
    finally:
        file.close()


class _SegmentReader:
    """Reads one segment from its first byte to its last."""

    def __init__(self, path: str, data: bytes, index: LogIndex | None, visit: Visitor | None) -> None:
        self.path = path
        #: where the last group with a trailer begins
        self.last_start = 0
        self._data = data
        self._index = index
        self._visit = visit

    def begin(self, sequence: int, place: Place | None) -> Place:
        """Return where the first group begins; `place` is what a segment before demands, None without one."""
        if place is not None:
            return Place(sequence, 0, place.group, place.previous_crc)
        try:
            found = first_place(self._data, sequence)
        except RecordError as error:
            raise self._unreadable(0, error) from error
        if found is None:
            raise self._damage(0, "the segment's header is not readable")
        return found

    def read(self, place: Place, *, newest: bool) -> tuple[LogIndex, _Tail]:
        """Read all groups from `place` on."""
        while True:
            group = scan_group(self._data, place)
            if place.offset == 0 and group.trailer is None:
                problem = f"the segment's header: {group.problem}"
                raise DataDamagedError(
                    self.path, group.end, problem, _LOSS_REMEDY if newest else REPLACE_REMEDY
                )
            self._take(place, group)
            assert self._index is not None
            if group.trailer is None:
                torn = self._judge(place, group, newest=newest)
                return self._index, _Tail(place, group, torn)
            self.last_start = place.offset
            place = Place(place.sequence, group.end, place.group + 1, group.trailer.crc)
            if self._ends_at(group.end):
                nothing = ScannedGroup([], group.end, 0, None, "")
                return self._index, _Tail(place, nothing, "")

    def _ends_at(self, position: int) -> bool:
        # The first bytes of a group are never all zeros, so the whole rest is looked at only once.
        return not any(self._data[position : position + 4]) and is_zero(self._data, position)

    def _take(self, place: Place, group: ScannedGroup) -> None:
        view = memoryview(self._data)
        for offset, first, end in group.bodies:
            try:
                record = decode_record(view[first:end])
                if isinstance(record, SegmentHeader):
                    self._take_header(record, place, offset)
                elif self._index is None:
                    raise RecordError("the segment's first record is not its header")
                else:
                    self._index.add(record, offset)
            except (RecordError, LogGapError) as error:
                raise self._unreadable(offset, error) from error
            if self._visit is not None:
                self._visit(record, self.path, offset)

    def _take_header(self, header: SegmentHeader, place: Place, offset: int) -> None:
        if offset != 0 or (header.sequence, header.group, header.previous_crc) != (
            place.sequence,
            place.group,
            place.previous_crc,
        ):
            raise RecordError(f"the header is that of segment {header.sequence}, group {header.group}")
        if self._index is None:
            self._index = LogIndex(header)
        elif header != header_of(self._index, place):
            raise LogGapError("the header does not continue the segment before")
        self._index.begin_segment(header.sequence, self.path, header.group)

    def _judge(self, place: Place, group: ScannedGroup, *, newest: bool) -> str:
        """Return why the bytes from group.end on are torn, "" if they are zeros; raise if they are damage."""
        if not newest:
            raise self._damage(group.end, f"{group.problem}, and a later segment exists")
        data = self._data
        trailers = find_trailers(data, place.offset, place.sequence)
        next_group = place._replace(group=place.group + 1)
        later = any(trailer.group > place.group for trailer in trailers)
        if later or find_record(data, group.end, next_group) is not None:
            raise self._damage(group.end, f"{group.problem}, and a later group follows")
        for trailer in trailers:
            if (trailer.group, trailer.start) == (place.group, place.offset):
                records = data[place.offset : place.offset + trailer.length]
                if count_zero_parts(records, place.offset) <= trailer.zero_parts:
                    raise self._damage(group.end, f"{group.problem}, in a group with a valid trailer")
                return f"{group.problem}; a sector of the last group was lost"
        return "" if is_zero(data, group.end) else group.problem

    def _damage(self, offset: int, problem: str) -> DataDamagedError:
        return DataDamagedError(self.path, offset, problem, REPLACE_REMEDY)

    def _unreadable(self, offset: int, error: ValueError) -> DataDirError:
        if isinstance(error, FormatVersionError):
            return DataDirError(f"{self.path} cannot be read: {error}", "start the version that wrote it")
        return self._damage(offset, str(error))


def header_of(index: LogIndex, place: Place) -> SegmentHeader:
    """Return the header of a segment that begins at `place` after everything in `index`."""
    return SegmentHeader(
        format_version=FORMAT_VERSION,
        sequence=place.sequence,
        group=place.group,
        previous_crc=place.previous_crc,
        term=index.hard_state.term,
        voted_for=index.hard_state.voted_for,
        last_index=index.last_index,
        last_term=index.last_term,
        install_index=index.install.log_index,
        install_term=index.install.term,
        origin_incarnation=index.origin_incarnation,
    )


def _closing(log: LogIndex, path: str, data: bytes, tail: _Tail, last_start: int) -> JournalScan:
    place, group, torn = tail
    end = group.end
    torn_bytes = len(data.rstrip(b"\0")) - end if torn else 0
    if not group.bodies:
        return JournalScan(log, path, data[last_start:end], last_start, b"", end, place, torn, torn_bytes)
    records = data[place.offset : end]
    trailer, crc = encode_trailer(place, records, len(group.bodies), group.heads_crc)
    after = Place(place.sequence, end + len(trailer), place.group + 1, crc)
    return JournalScan(log, path, records, place.offset, trailer, end, after, torn, torn_bytes)


def close_tail(disk: Disk, directory: str, scan: JournalScan) -> File:
    """Make durable what a scan kept, and remove what it did not, before anything is acknowledged.

    The last group is written again, not only fsynced: after a failed fsync the kernel may hold its pages as
    clean though they never reached the disk, and then an fsync alone would return without writing them.

    Returns:
        The newest segment, open for writing.
    """
    for name in disk.listdir(directory):
        if name.endswith(PARTIAL_SUFFIX):
            disk.unlink(f"{directory}/{name}")
    file = disk.open(scan.path, writable=True)
    try:
        if scan.torn:
            # Durable before anything is written there: a new group must not meet bytes of the torn one.
            file.truncate(scan.tail)
            file.fdatasync()
        file.pwrite([scan.closing, scan.trailer], scan.closing_start)
        file.fdatasync()
        disk.fsync_dir(directory)
    except OSError:
        file.close()
        raise
    return file
