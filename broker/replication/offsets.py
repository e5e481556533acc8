"""ListOffsets and OffsetForLeaderEpoch: questions about offsets that only the leader answers.

While a new leader does not know yet whether all of the former epochs is committed, it does not name a last
offset that could fall below one that was named before (KIP-207). Reads nothing but logs and roles.
Source: control-plane design, "Reads"; KIP-79, KIP-101, KIP-207, KIP-405, KIP-734, KIP-1005.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from broker.core.epochs import EpochEndOffset, epoch_end_at_leader
from broker.core.partition import LeaderState
from broker.log.errors import LogStorageError
from broker.log.partition_log import PartitionLog
from broker.log.records import Walked, walk
from broker.log.time_lookup import TimedBatch
from broker.replication.outcomes import EpochEnd, ListedOffset
from broker.replication.registry import Registry, check_leader_epoch
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

#: Opens one batch at a time in the whole process: it may unfold to records.UNFOLDED_BYTES_MAX.
_THREAD: Final = ThreadPoolExecutor(1, thread_name_prefix="look-ups by time")
#: Timestamps of ListOffsets that are none.
LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
#: The first offset on this disk; no records are anywhere else.
EARLIEST_LOCAL: Final = -4
#: The last offset that was moved to other storage: there is none.
LATEST_TIERED: Final = -5


def epoch_end(replica: Replica, leader: LeaderState, requested: int) -> EpochEndOffset:
    """Return where an epoch ended in the leader's log."""
    log = replica.log
    return epoch_end_at_leader(
        requested,
        log.end_offset_for_epoch(requested),
        latest_epoch_in_log=log.latest_epoch,
        leader_epoch=leader.leader_epoch,
        epoch_start_offset=leader.epoch_start_offset,
        log_end_offset=log.log_end_offset,
    )


def epoch_end_offset(
    registry: Registry, key: PartitionKey, leader_epoch: int, current_leader_epoch: int
) -> EpochEnd:
    """Answer OffsetForLeaderEpoch for one partition."""
    found = _leading(registry, key, current_leader_epoch)
    if isinstance(found, ErrorCode):
        return EpochEnd(found)
    replica, leader = found
    return EpochEnd(ErrorCode.NONE, *epoch_end(replica, leader, leader_epoch))


async def list_offset(
    registry: Registry, key: PartitionKey, timestamp: int, current_leader_epoch: int, *, is_follower: bool
) -> ListedOffset:
    """Answer ListOffsets for one partition.

    Args:
        registry: holds the replica.
        key: which partition.
        timestamp: milliseconds since 1970, or LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED.
        current_leader_epoch: what the asker believes; -1: nothing.
        is_follower: sees the end of the log where a consumer sees the high watermark.

    Raises:
        UnreadableBatchError: a batch cannot be opened.
        LogStorageError: the disk refused.
    """
    found = _leading(registry, key, current_leader_epoch)
    if isinstance(found, ErrorCode):
        return ListedOffset(found)
    replica, leader = found
    log = replica.log
    end = log.log_end_offset if is_follower else leader.high_watermark
    certain = is_follower or leader.knows_what_is_committed()
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return ListedOffset(ErrorCode.NONE, -1, log.log_start_offset)
    if timestamp == LATEST:
        if not certain:
            return ListedOffset(ErrorCode.OFFSET_NOT_AVAILABLE)
        return ListedOffset(ErrorCode.NONE, -1, end, leader.leader_epoch)
    if timestamp == LATEST_TIERED:
        return ListedOffset(ErrorCode.NONE)
    if timestamp < MAX_TIMESTAMP:
        return ListedOffset(ErrorCode.INVALID_REQUEST)
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
    # Records of a batch that spans the start may be deleted.
    offset = max(entry.offset, log.log_start_offset)
    if offset < end:
        return ListedOffset(ErrorCode.NONE, entry.timestamp, offset)
    return ListedOffset(ErrorCode.NONE if certain else ErrorCode.OFFSET_NOT_AVAILABLE)


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
        place = await log.in_thread(partial(log.batch_for_time, timestamp_ms, place))
    return None


async def _newest(log: PartitionLog) -> Walked | None:
    """Return the first record with the largest timestamp; None: none has one."""
    batch = await log.in_thread(log.newest_batch)
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
    epoch_error = check_leader_epoch(replica, current_leader_epoch)
    if replica.leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return (replica, replica.leader) if epoch_error is ErrorCode.NONE else epoch_error
