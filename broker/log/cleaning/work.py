"""One round over one log, in the cleaner's process: it reads segments and writes `.cleaned` files.

It changes nothing else: the broker swaps them in. Each file is durable when its segment is returned.
Source: Kafka's Cleaner (3.9).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.aborted import AbortedTransaction
from broker.log.batches import HEADER, LENGTH_OVERHEAD, BatchHeader, parse_header, plausible
from broker.log.cleaning.aborted import Transactions
from broker.log.cleaning.dirtiness import ClosedSegment, grouped
from broker.log.cleaning.keys import LastOffsets
from broker.log.cleaning.rewriting import Batch, Rules, cleaned
from broker.log.cleaning.swapping import BESIDE_LOG, CLEANED, CleanedSegment
from broker.log.files import FilePool, create_file, disk_errors, remove_file, sync_file
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
    #: (producer id, epoch)
    fencing: Sequence[tuple[int, int]]
    #: rows of AbortedTransaction: all that reach into the segments
    aborted: Sequence[Sequence[int]]
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
    aborted = [AbortedTransaction(*row) for row in job.aborted]
    known = LastOffsets(job.first_dirty, job.keys_max, Transactions(aborted))
    dirty = [each for each in segments if each.next_offset > job.first_dirty]
    for header, content in _batches(job.folder, dirty, spend):
        if header.last_offset >= job.first_dirty and not known.take(header, content):
            break
    rules = Rules(
        *(
            known.last,
            known.survivors(),
            job.first_dirty,
            known.end_offset,
            job.now_ms,
            job.delete_retention_ms,
        ),
        *(_pairs(job.remembered), _pairs(job.fencing), job.start_offset, job.oldest_ms),
    )
    judged = [each for each in segments if each.base_offset < known.end_offset]
    transactions = Transactions(aborted)
    for group in grouped(judged, job.segment_bytes):
        yield _write(job.folder, group, rules, transactions, spend)
    yield known.end_offset


def _pairs(rows: Sequence[Sequence[int]]) -> frozenset[tuple[int, int]]:
    return frozenset((first, second) for first, second in rows)


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
    folder: str,
    group: Sequence[ClosedSegment],
    rules: Rules,
    transactions: Transactions,
    spend: Callable[[int], None],
) -> CleanedSegment:
    """Write the files of one segment; durable on return."""
    base_offset, next_offset = group[0].base_offset, group[-1].next_offset
    segment = Segment(FilePool(), folder, base_offset)
    stem, path = segment.stem, segment.log_path + CLEANED
    for suffix in (".log", *BESIDE_LOG):
        remove_file(stem + suffix + CLEANED)
    create_file(path)
    with disk_errors(path), Path(path).open("r+b", buffering=_CHUNK_BYTES) as file:
        for header, content in cleaned(_batches(folder, group, spend), rules, transactions, next_offset):
            _check_room(segment, header)
            file.write(content)
            spend(len(content))
            segment.note(header)
        file.flush()
        os.fsync(file.fileno())
    segment.note_time()
    aborted = transactions.take_ended()
    contents = (segment.offsets.to_bytes(), segment.times.to_bytes(), aborted)
    for suffix, content in zip(BESIDE_LOG, contents, strict=True):
        create_file(stem + suffix + CLEANED)
        with disk_errors(stem + suffix):
            Path(stem + suffix + CLEANED).write_bytes(content)
        sync_file(stem + suffix + CLEANED)
    return CleanedSegment(
        *(base_offset, next_offset, segment.size, segment.max_timestamp, segment.max_timestamp_offset),
        [each.base_offset for each in group],
        has_aborted=bool(aborted),
    )


def _check_room(segment: Segment, header: BatchHeader) -> None:
    if segment.size + header.batch_length + LENGTH_OVERHEAD > RELATIVE_OFFSET_MAX:
        raise ValueError(f"{file_name(segment.base_offset)} would have more than {RELATIVE_OFFSET_MAX} bytes")
