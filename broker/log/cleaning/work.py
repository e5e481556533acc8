"""One round over one log, in the cleaner's process: it reads segments and writes `.cleaned` files.

It changes nothing else: the broker swaps them in. Each file is durable when its segment is returned.
Source: Kafka's Cleaner (3.9).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.batches import (
    CONTROL,
    HEADER,
    LENGTH_OVERHEAD,
    TRANSACTIONAL,
    BatchHeader,
    parse_header,
    plausible,
)
from broker.log.cleaning.aborted import AbortedTransactions
from broker.log.cleaning.dirtiness import ClosedSegment, grouped
from broker.log.cleaning.keys import LastOffsets
from broker.log.cleaning.rewriting import Batch, Rules, cleaned
from broker.log.cleaning.swapping import CLEANED, CleanedSegment
from broker.log.files import FilePool, disk_errors, remove_file, sync_file
from broker.log.segment import RELATIVE_OFFSET_MAX, Segment, file_name

#: written at once
_CHUNK_BYTES: Final = 1024 * 1024


class Job(NamedTuple):
    """What the cleaner does; numbers, texts and lists of them, so that it travels as it is."""

    folder: str
    #: rows of ClosedSegment, from the oldest on, to the end of what is dirty
    segments: Sequence[Sequence[int]]
    first_dirty: int
    keys_max: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    #: (producer id, last offset)
    remembered: Sequence[tuple[int, int]]
    #: (producer id, first offset, offset of the marker)
    aborted: Sequence[tuple[int, int, int]]
    start_offset: int
    oldest_ms: int | None


def clean(job: Job, spend: Callable[[int], None]) -> Iterator[CleanedSegment | int]:
    """Compact a log.

    Args:
        job: what to do.
        spend: called with each number of bytes that are read or written; may wait.

    Yields:
        Each new segment; at the end the offset below which all is compacted now.
    """
    segments = [ClosedSegment(*row) for row in job.segments]
    aborted = AbortedTransactions(job.aborted)
    known = LastOffsets(job.first_dirty, job.keys_max, aborted)
    dirty = [each for each in segments if each.next_offset > job.first_dirty]
    stop_offset = segments[-1].next_offset
    for header, content in _batches(job.folder, dirty, spend):
        if header.attributes & (TRANSACTIONAL | CONTROL):
            # Lists of aborted transactions would have to come along.
            stop_offset = header.base_offset
            break
        if header.last_offset >= job.first_dirty and not known.take(header, content):
            break
    remembered = frozenset((producer_id, offset) for producer_id, offset in job.remembered)
    rules = Rules(
        *(known.offsets, known.end_offset, job.now_ms, job.delete_retention_ms),
        *(remembered, aborted, job.start_offset, job.oldest_ms),
    )
    end_offset = min(known.end_offset, stop_offset)
    judged = [each for each in segments if each.base_offset < end_offset and each.next_offset <= stop_offset]
    if judged:
        end_offset = min(end_offset, judged[-1].next_offset)
    for group in grouped(judged, job.segment_bytes):
        yield _write(job.folder, group, rules, spend)
    yield end_offset if judged else job.first_dirty


def _batches(folder: str, segments: Sequence[ClosedSegment], spend: Callable[[int], None]) -> Iterator[Batch]:
    files = FilePool()
    for each in segments:
        segment, position = Segment(files, folder, each.base_offset), 0
        with (
            disk_errors(segment.log_path),
            Path(segment.log_path).open("rb", buffering=_CHUNK_BYTES) as file,
        ):
            while position < each.size_bytes:
                head = file.read(HEADER.size)
                if len(head) < HEADER.size or not plausible(header := parse_header(head, 0)):
                    raise segment.damaged(position)
                content = head + file.read(header.size - HEADER.size)
                segment.check_batch(position, content)
                spend(len(content))
                yield header, content
                position += header.size


def _write(
    folder: str, group: Sequence[ClosedSegment], rules: Rules, spend: Callable[[int], None]
) -> CleanedSegment:
    """Write the files of one segment; durable on return."""
    base_offset, next_offset = group[0].base_offset, group[-1].next_offset
    segment = Segment(FilePool(), folder, base_offset)
    stem, path = segment.stem, segment.log_path + CLEANED
    for suffix in (".log", ".index", ".timeindex"):
        remove_file(stem + suffix + CLEANED)
    with disk_errors(path), Path(path).open("xb", buffering=_CHUNK_BYTES) as file:
        os.fchmod(file.fileno(), 0o600)
        for header, content in cleaned(_batches(folder, group, spend), rules, next_offset):
            _check_room(segment, header)
            file.write(content)
            spend(len(content))
            segment.note(header)
        file.flush()
        os.fsync(file.fileno())
    segment.note_time()
    for suffix, index in ((".timeindex", segment.times), (".index", segment.offsets)):
        with disk_errors(stem + suffix):
            Path(stem + suffix + CLEANED).write_bytes(index.to_bytes())
        sync_file(stem + suffix + CLEANED)
    return CleanedSegment(
        *(base_offset, next_offset, segment.size, segment.max_timestamp, segment.max_timestamp_offset),
        [each.base_offset for each in group],
    )


def _check_room(segment: Segment, header: BatchHeader) -> None:
    if segment.size + header.batch_length + LENGTH_OVERHEAD > RELATIVE_OFFSET_MAX:
        raise ValueError(f"{file_name(segment.base_offset)} would have more than {RELATIVE_OFFSET_MAX} bytes")
