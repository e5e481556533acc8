"""What a start makes of the files of one log.

An index file vouches for the records before its last entry. After a crash, what follows is read and checked
batch by batch; at the first byte that begins no whole batch the log ends. A start cannot know whether what it
cuts had been acknowledged, so it notes the log as shortened, durably and before it cuts anything. Segments
after the tear are set aside in a folder of their own. After a clean end closed segments are not read: their
files must only fit each other. Epochs and producers come from their files as far as those reach, and from
the batches that were read.
Source: docs/concepts/guarantees.md, "What kills, disks and power cost"; ARCHITECTURE.md, "Life of a record";
Kafka's LogLoader (3.9).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from broker.log import aborted
from broker.log.aborted import ABORTED_SUFFIX
from broker.log.batches import CONTROL, HEADER, NO_PRODUCER, BatchHeader, crc_matches, parse_header, plausible
from broker.log.cleaning.swapping import finish_swaps
from broker.log.epochs import LeaderEpochs
from broker.log.errors import DamagedSegmentError
from broker.log.files import (
    ASIDE,
    DELETED,
    STRAY,
    FilePool,
    disk_errors,
    name_beside,
    names_in,
    read_file,
    remove_file,
    replace_file,
    sync_folder,
)
from broker.log.log_start import read_log_start
from broker.log.markers import EndMarker, end_marker_in
from broker.log.producers import Producers
from broker.log.segment import Segment, distrust

log = logging.getLogger("quorate.broker.log")

EPOCHS_NAME: Final = "leader-epoch-checkpoint"
_STEM: Final = re.compile(r"([0-9]{20})\.(log|index|timeindex|txnindex|snapshot)", re.ASCII)
#: bytes read at once while checksums are checked
_CHECK_BYTES: Final = 1024 * 1024


class RecoveredLog(NamedTuple):
    """What the files of a log hold."""

    #: at least one, without a gap between two
    segments: list[Segment]
    epochs: LeaderEpochs
    #: closed segments whose index files do not reach their end and must be written anew
    unsaved: list[Segment]
    producers: Producers
    #: records before it were deleted; at most where the last segment ends
    log_start_offset: int


def recover_log(
    files: FilePool, folder: str, now_ms: int, *, is_clean: bool, on_shortened: Callable[[], None]
) -> RecoveredLog:
    """Open a log and cut what is torn or damaged.

    Args:
        files: where its segments are opened.
        folder: the log's own.
        now_ms: the time, for the expiry of producers.
        is_clean: whether the log was closed at the last end; then only its newest segment is read.
        on_shortened: called before anything is cut; what it notes must be durable on return.
    """
    while True:
        try:
            segments, epochs, unsaved = _recover_segments(files, folder, is_clean, on_shortened)
            start = read_log_start(folder)
            if start > segments[-1].next_offset:
                on_shortened()
                segments, epochs, unsaved = _begin_anew(files, folder, segments, start), LeaderEpochs(), []
            epochs.start_at(max(start, segments[0].base_offset))
            producers = recover_producers(folder, segments, segments[-1].next_offset, now_ms)
            return RecoveredLog(segments, epochs, unsaved, producers, start)
        except DamagedSegmentError as error:
            # The segment is read whole now, and the log ends where it is damaged.
            log.error("%s", error)
            distrust(error)
            files.forget_indexes(error.stem)
            is_clean = False


def _recover_segments(
    files: FilePool, folder: str, is_clean: bool, on_shortened: Callable[[], None]
) -> tuple[list[Segment], LeaderEpochs, list[Segment]]:
    """Open the segments and cut what is torn; returns all but the producers of RecoveredLog."""
    bases = _segment_bases(files, folder)
    if not bases:
        return [Segment.create(files, folder, 0)], LeaderEpochs(), []
    known_epochs = _read_epochs(folder)
    epochs = known_epochs or LeaderEpochs()
    segments: list[Segment] = []
    unsaved: list[Segment] = []
    whole = True
    for number, base_offset in enumerate(bases):
        if segments and (not whole or base_offset != segments[-1].next_offset):
            on_shortened()
            _set_aside(files, folder, bases[number:], segments[-1])
            break
        segment = Segment.load(files, folder, base_offset)
        segments.append(segment)
        if is_clean and number + 1 < len(bases) and segment.take_closed(bases[number + 1]):
            continue
        saved = segment.offsets.to_bytes()
        whole = _check_tail(segment, epochs, on_shortened)
        if segment.offsets.to_bytes() != saved:
            unsaved.append(segment)
    active = segments[-1]
    if active.size:
        active.first_timestamp = active.read_first_timestamp()
    for segment in segments[:-1]:
        if segment not in unsaved:
            segment.release_indexes()
    if known_epochs is None:
        epochs.clear()
        for segment in segments:
            for _, header in segment.walk(0):
                epochs.assign(header.partition_leader_epoch, header.base_offset)
    if epochs.truncate_to(active.next_offset):
        # Before other batches come to these offsets.
        replace_file(f"{folder}/{EPOCHS_NAME}", epochs.to_bytes())
    return segments, epochs, [segment for segment in unsaved if segment is not active]


def _begin_anew(files: FilePool, folder: str, segments: list[Segment], start: int) -> list[Segment]:
    """Drop records that were all deleted: a crash has taken what followed them, up to the log start."""
    log.warning(
        "%s ends at %d, before its start %d: it goes on there", folder, segments[-1].next_offset, start
    )
    remove_file(f"{folder}/{EPOCHS_NAME}")
    for segment in reversed(segments):
        segment.close()
        segment.remove()
    return [Segment.create(files, folder, start)]


def _segment_bases(files: FilePool, folder: str) -> list[int]:
    """Return the base offsets of the segments, and remove what a crash left of files that were to go."""
    finish_swaps(files, folder)
    names = names_in(folder)
    found = {match[0]: int(match[1]) for name in names if (match := _STEM.fullmatch(name))}
    bases = sorted(base for name, base in found.items() if name.endswith(".log"))
    for name in names:
        orphan = name in found and not name.endswith(".snapshot") and found[name] not in bases
        if orphan or name.endswith((ASIDE, DELETED)):
            remove_file(f"{folder}/{name}")
    return bases


def _read_epochs(folder: str) -> LeaderEpochs | None:
    content = read_file(f"{folder}/{EPOCHS_NAME}")
    if content is None:
        return None
    try:
        return LeaderEpochs.parse(content)
    except ValueError as error:
        log.warning("%s/%s is damaged (%s); the epochs are read from the records", folder, EPOCHS_NAME, error)
        return None


def _set_aside(files: FilePool, folder: str, bases: list[int], last: Segment) -> None:
    """Set segments aside, the last one first: what a crash leaves then is a log without a gap."""
    stray = name_beside(folder, STRAY)
    with disk_errors(stray):
        Path(stray).mkdir(0o700)
    for base_offset in reversed(bases):
        Segment(files, folder, base_offset).move_to(stray)
    log.error("%s ends at %d; %d segments after it are in %s", folder, last.next_offset, len(bases), stray)
    for each in (stray, folder, str(Path(folder).parent)):
        sync_folder(each)


def _check_tail(segment: Segment, epochs: LeaderEpochs, on_shortened: Callable[[], None]) -> bool:
    """Note every batch that the index does not vouch for, and cut at the first one that is not whole.

    Returns:
        Whether nothing was cut.
    """
    size = segment.size
    if not _fits_index(segment, size):
        if segment.offsets.last:
            log.warning("%s.index does not fit its records; they are read from the start", segment.stem)
        segment.drop_indexes()
    end = segment.forget_unindexed()
    if end:
        segment.next_offset = parse_header(segment.read(end, HEADER.size), 0).base_offset
    window, window_from = b"", end
    while size - end >= HEADER.size:
        if end - window_from + HEADER.size > len(window):
            window_from, window = end, segment.read(end, min(_CHECK_BYTES, size - end))
        header = parse_header(window, end - window_from)
        if not plausible(header) or header.size > size - end or not _continues(header, segment, end):
            break
        if end - window_from + header.size > len(window):
            window_from, window = end, segment.read(end, max(header.size, min(_CHECK_BYTES, size - end)))
        if not crc_matches(header, memoryview(window), end - window_from):
            break
        segment.note(header)
        epochs.assign(header.partition_leader_epoch, header.base_offset)
        end += header.size
    if end == size:
        return True
    log.warning(
        "%s: %d bytes from byte %d on are no whole batches and are cut; the log ends at offset %d",
        segment.log_path,
        size - end,
        end,
        segment.next_offset,
    )
    on_shortened()
    segment.truncate(end, segment.next_offset)
    return False


def _continues(header: BatchHeader, segment: Segment, position: int) -> bool:
    """Whether a batch begins where the one before it ends; the first one of a log may begin before that."""
    if position == 0 and header.base_offset < segment.next_offset:
        return header.last_offset >= segment.next_offset
    return header.base_offset == segment.next_offset


def _fits_index(segment: Segment, size: int) -> bool:
    """Whether both indexes rise, and the last entry of the offset index names a whole batch."""
    relative, position = segment.offsets.last or (0, 0)
    if not (segment.offsets.rises() and segment.times.rises() and segment.times.last):
        return False
    if not 0 < position <= size - HEADER.size:
        return False
    header = parse_header(segment.read(position, HEADER.size), 0)
    if not plausible(header) or header.size > size - position:
        return False
    batch = memoryview(segment.read(position, header.size))
    return crc_matches(header, batch, 0) and header.last_offset == segment.base_offset + relative


def recover_producers(folder: str, segments: list[Segment], end_offset: int, now_ms: int) -> Producers:
    """Build the producers' state as of an offset: from the newest snapshot, and the batches after it.

    Snapshots that are of no use any more are removed: those after the end, those behind a damaged list of
    aborted transactions, and those that are neither at the start of a segment nor the newest one. On return
    the file of each list is as it should be.
    """
    names = names_in(folder)
    lists = _aborted_in_files(names, segments)
    usable_to = min([end_offset, *(base for base, content in lists.items() if content is None)])
    producers, first = Producers(folder), segments[0].base_offset
    bases = {segment.base_offset for segment in segments}
    found = False
    for taken_at, path in reversed(_snapshots(folder, names)):
        usable = segments[0].base_offset <= taken_at <= usable_to
        if usable and not found:
            try:
                producers = Producers.parse(read_file(path) or b"", taken_at, folder)
                first, found = taken_at, True
                continue
            except ValueError as error:
                log.warning("%s is damaged (%s) and is removed", path, error)
                usable = False
        if not usable or taken_at not in bases:
            remove_file(path)
    for segment in segments:
        in_file = lists.get(segment.base_offset)
        if in_file:
            kept = aborted.before(in_file, first)
            if kept:
                producers.aborted.lists[segment.base_offset] = bytearray(kept)
        start = segment.position_of(max(first, segment.base_offset))
        if start is not None:
            _replay(segment, start, producers, end_offset, now_ms)
        for path, content in producers.aborted.files(segment.base_offset):
            if content != in_file:
                replace_file(path, content)
        if segment.base_offset in lists and segment.base_offset not in producers.aborted.lists:
            remove_file(producers.aborted.path(segment.base_offset))
        if segment is not segments[-1]:
            producers.aborted.release(segment.base_offset)
    return producers


def _aborted_in_files(names: list[str], segments: list[Segment]) -> dict[int, bytes | None]:
    """Return {base offset of a segment with a list of aborted transactions: its file, None: damaged}."""
    with_list = {int(name[: -len(ABORTED_SUFFIX)]) for name in names if name.endswith(ABORTED_SUFFIX)}
    found: dict[int, bytes | None] = {}
    for segment in segments:
        if segment.base_offset in with_list:
            content = read_file(segment.stem + ABORTED_SUFFIX) or b""
            found[segment.base_offset] = content
            if not aborted.is_sound(content, segment.base_offset):
                log.warning("%s%s is damaged and built anew", segment.stem, ABORTED_SUFFIX)
                found[segment.base_offset] = None
    return found


def _replay(segment: Segment, position: int, producers: Producers, end_offset: int, now_ms: int) -> None:
    """Record the batches of a segment from a position on, up to an offset."""
    for place, header in segment.walk(position):
        if header.base_offset >= end_offset:
            return
        if header.producer_id == NO_PRODUCER:
            continue
        marker: EndMarker | None = None
        if header.attributes & CONTROL:
            marker = end_marker_in(header, [segment.read(place, header.size)])
        found = producers.record(header, now_ms, marker)
        if found is not None:
            producers.aborted.note(segment.base_offset, found)


def _snapshots(folder: str, names: list[str]) -> list[tuple[int, str]]:
    """Return (offset, path) of the producers' snapshots among the files of a log, by offset."""
    found = [match for name in names if (match := _STEM.fullmatch(name))]
    return [(int(match[1]), f"{folder}/{match[0]}") for match in found if match[2] == "snapshot"]


def remove_snapshots(folder: str, from_offset: int) -> None:
    """Remove the snapshots that were taken at an offset or after it."""
    for taken_at, path in _snapshots(folder, names_in(folder)):
        if taken_at >= from_offset:
            remove_file(path)
