"""ListOffsets and OffsetForLeaderEpoch: questions about offsets that only the leader answers.

Finds records by their time; what may be said of an offset is decided in broker/core/listed_offsets.py. Reads
nothing but logs and roles.
Source: docs/concepts/guarantees.md, "Consumers"; KIP-79, KIP-101, KIP-207, KIP-405, KIP-734, KIP-1005.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from broker.core import reading
from broker.core.listed_offsets import MAX_TIMESTAMP, ListedOffset, is_certain, of_record, without_looking
from broker.core.partition import LeaderState
from broker.log.errors import LogStorageError
from broker.log.partition_log import PartitionLog
from broker.log.records import Walked, walk
from broker.log.time_lookup import TimedBatch
from broker.replication.outcomes import EpochEnd
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

#: Opens one batch at a time in the whole process: it may unfold to records.UNFOLDED_BYTES_MAX.
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="look-ups by time")


def epoch_end_offset(
    registry: Registry, key: PartitionKey, leader_epoch: int, current_leader_epoch: int
) -> EpochEnd:
    """Answer OffsetForLeaderEpoch for one partition."""
    found = _leading(registry, key, current_leader_epoch)
    if isinstance(found, ErrorCode):
        return EpochEnd(found)
    replica, leader = found
    return EpochEnd(ErrorCode.NONE, *reading.epoch_end(leader, leader_epoch, replica.log))


async def list_offset(
    registry: Registry,
    key: PartitionKey,
    timestamp: int,
    current_leader_epoch: int,
    *,
    is_follower: bool,
    read_committed: bool = False,
) -> ListedOffset:
    """Answer ListOffsets for one partition.

    Args:
        registry: holds the replica.
        key: which partition.
        timestamp: milliseconds since 1970, or one of broker/core/listed_offsets.py.
        current_leader_epoch: what the asker believes; -1: nothing.
        is_follower: sees the end of the log where a consumer sees the high watermark.
        read_committed: a consumer that sees the last stable offset.
    """
    found = _leading(registry, key, current_leader_epoch)
    if isinstance(found, ErrorCode):
        return ListedOffset(found)
    replica, leader = found
    log = replica.log
    known = without_looking(leader, timestamp, log, is_follower=is_follower, read_committed=read_committed)
    if known is not None:
        return known
    end = reading.read_limit(leader, is_follower, log, read_committed=read_committed)
    certain = is_certain(leader, is_follower)
    entry: Walked | None = None
    try:
        entry = await (_newest(log) if timestamp == MAX_TIMESTAMP else _first_at_or_after(log, timestamp))
    except LogStorageError:
        # A log that was deleted while a thread read it is no broken disk.
        if registry.replicas.get(key) is replica:
            raise
    if replica.leader is not leader:
        return ListedOffset(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if entry is None:
        return ListedOffset(ErrorCode.NONE)
    return of_record(entry.timestamp, entry.offset, log, end_offset=end, is_certain=certain)


async def _first_at_or_after(log: PartitionLog, timestamp_ms: int) -> Walked | None:
    """Return the first record, by offset, whose timestamp is at least this one.

    The log is asked anew after each wait: it may have been cut meanwhile.
    """
    place: TimedBatch | int | None = log.log_start_offset
    while place is not None:
        if isinstance(place, TimedBatch):
            found = await _open(place, timestamp_ms)
            if found.timestamp >= timestamp_ms:
                return found
            place = place.header.last_offset + 1
        place = await log.segments.in_thread(partial(log.segments.batch_for_time, timestamp_ms, place))
    return None


async def _newest(log: PartitionLog) -> Walked | None:
    """Return the first record with the largest timestamp; None: none has one."""
    batch = await log.segments.in_thread(log.segments.newest_batch)
    return None if batch is None else await _open(batch, None)


async def _open(batch: TimedBatch, timestamp_ms: int | None) -> Walked:
    """Look into a batch, in a thread."""
    opened = partial(walk, batch.header, batch.content, at_least=timestamp_ms)
    return await asyncio.get_running_loop().run_in_executor(_THREAD, opened)


def _leading(
    registry: Registry, key: PartitionKey, current_leader_epoch: int
) -> tuple[Replica, LeaderState] | ErrorCode:
    replica = registry.replicas.get(key)
    if replica is None:
        return registry.why_missing(key)
    refused = reading.judge_question(replica.role, current_leader_epoch)
    if refused is not ErrorCode.NONE or replica.leader is None:
        return refused
    return replica, replica.leader
