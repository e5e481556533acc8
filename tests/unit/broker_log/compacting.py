"""Compaction in the tests of a log: as a broker does it, but in one process."""

from __future__ import annotations

import asyncio

from broker.log.batches import CONTROL
from broker.log.cleaning.work import Job, clean
from broker.log.opened import opened
from broker.log.partition_log import PartitionLog
from tests.unit.broker_log.samples import NOW_MS, headers, read_all


def job_of(
    log: PartitionLog,
    *,
    first_dirty: int = 0,
    keys_max: int = 1000,
    now_ms: int = NOW_MS,
    delete_retention_ms: int = 0,
    segment_bytes: int = 3000,
) -> tuple[int, Job]:
    """Return the log's version, and a job for all that is stable; every record is committed."""
    found = log.cleanable()
    stable_offset = log.last_stable_offset(log.log_end_offset)
    rows = [
        (each.base_offset, each.next_offset, each.size, 0, 0)
        for each in found.segments
        if each.next_offset <= stable_offset
    ]
    aborted = log.segments.aborted.between(0, log.log_start_offset, log.log_end_offset, wait=True)
    return found.version, Job(
        *(log.folder, rows, first_dirty, keys_max, now_ms, delete_retention_ms, segment_bytes),
        *(found.remembered, found.fencing, aborted, log.log_start_offset, None),
    )


def compact(
    log: PartitionLog,
    *,
    first_dirty: int = 0,
    keys_max: int = 1000,
    now_ms: int = NOW_MS,
    delete_retention_ms: int = 0,
) -> int:
    """Compact a log in one round; returns the offset up to which it is."""
    version, job = job_of(
        log,
        first_dirty=first_dirty,
        keys_max=keys_max,
        now_ms=now_ms,
        delete_retention_ms=delete_retention_ms,
    )
    if not job.segments:
        return first_dirty
    for found in clean(job, lambda _bytes: None):
        if isinstance(found, int):
            return found
        swapped = asyncio.run(log.swap_in(version, found))
        assert swapped is not None
        version = swapped
    raise AssertionError("no end")


def rows(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """(offset, key) of each record."""
    content, position = read_all(log, 100_000), 0
    found = []
    for header in headers(content):
        batch = content[position : position + header.size]
        if header.records_count and not header.attributes & CONTROL:
            found += [(header.base_offset + each.offset_delta, each.key) for each in opened(header, batch)]
        position += header.size
    return found


def check_continuous(log: PartitionLog) -> None:
    """Each batch begins where the one before it ends."""
    offset = log.log_start_offset
    for header in headers(read_all(log, 500)):
        assert header.base_offset == offset
        offset = header.last_offset + 1
    assert offset == log.log_end_offset
