"""What a reader of a replica gets: the end of what it may see, a place where the logs diverge, or an error.

Followers read to the end of the leader's log, consumers to the high watermark or, of committed records, to
the last stable offset; from followers, too. Pure functions over a role and a view of the log; they change
nothing.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas", "Consumers"; KIP-98, KIP-101, KIP-107,
KIP-320, KIP-392, KIP-516.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from broker.core import fences
from broker.core.epochs import UNDEFINED, EpochEndOffset, epoch_end_at_leader
from broker.core.fetched import FetchPosition
from broker.core.partition import FollowerState, LeaderState, ReplicaState
from broker.core.read_replica import NO_PREFERENCE, preferred_read_replica
from broker.core.replica_effects import Diverge, ReadUpTo, RefuseWith
from broker.core.replica_inputs import LogView
from controller.wire.codes import ErrorCode


def check_leader_epoch(role: ReplicaState, current_leader_epoch: int) -> ErrorCode:
    """Judge the leader epoch that a reader believes in; -1: it does not say."""
    if fences.is_fenced_reader(current_leader_epoch, role.leader_epoch):
        return ErrorCode.FENCED_LEADER_EPOCH
    if fences.is_ahead_reader(current_leader_epoch, role.leader_epoch):
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE


def judge_question(role: ReplicaState, current_leader_epoch: int) -> ErrorCode:
    """Judge a question about offsets, which only a leader answers."""
    if not isinstance(role, LeaderState):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return check_leader_epoch(role, current_leader_epoch)


def judge_deletion(role: ReplicaState, offset: int) -> ErrorCode:
    """Judge a deletion of the records below an offset (exclusive)."""
    if not isinstance(role, LeaderState):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    is_committed = 0 <= offset <= role.high_watermark
    return ErrorCode.NONE if is_committed else ErrorCode.OFFSET_OUT_OF_RANGE


def low_watermark(role: ReplicaState, live: Collection[int], durable_start_offset: int) -> int:
    """Return the smallest log start of the replicas whose brokers are live.

    Args:
        role: of this replica; only a leader knows of others.
        live: broker ids.
        durable_start_offset: of the own log, as a crash would leave it.
    """
    if not isinstance(role, LeaderState):
        return durable_start_offset
    others = (progress.log_start_offset for each, progress in role.followers.items() if each in live)
    return min((durable_start_offset, *others))


def judge_deleted(role: ReplicaState, low_watermark: int, required_offset: int) -> ErrorCode | None:
    """Return what a deletion is answered; None: a live replica has not followed yet."""
    if not isinstance(role, LeaderState):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE if low_watermark >= required_offset else None


def judge_fetch(role: ReplicaState, replica_id: int, position: FetchPosition, log: LogView) -> ErrorCode:
    """Judge a reader by topic, role and leader epoch, not yet by its offset.

    Args:
        role: of this replica.
        replica_id: the follower that reads; -1: a consumer.
        position: where it reads.
        log: this replica's.
    """
    if fences.is_of_another_topic(position.topic_id, log.topic_id):
        return ErrorCode.INCONSISTENT_TOPIC_ID
    is_follower = replica_id >= 0
    if not isinstance(role, LeaderState) and (is_follower or not isinstance(role, FollowerState)):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    error_code = check_leader_epoch(role, position.current_leader_epoch)
    if error_code is not ErrorCode.NONE:
        return error_code
    if is_follower and isinstance(role, LeaderState) and replica_id not in role.followers:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.NONE


def epoch_end(leader: LeaderState, requested: int, log: LogView) -> EpochEndOffset:
    """Return where an epoch ended in the leader's log."""
    return epoch_end_at_leader(
        requested,
        log.end_offset_for_epoch(requested),
        latest_epoch_in_log=log.latest_epoch,
        leader_epoch=leader.leader_epoch,
        epoch_start_offset=leader.epoch_start_offset,
        log_end_offset=log.log_end_offset,
    )


def diverging(role: ReplicaState, position: FetchPosition, log: LogView) -> EpochEndOffset | None:
    """Return where the reader's log and the leader's diverge; None: nowhere, as far as this replica knows.

    An end offset of UNDEFINED: the leader has never heard of the reader's epoch.
    """
    last_epoch = position.last_fetched_epoch
    if last_epoch < 0 or not isinstance(role, LeaderState):
        return None
    if last_epoch == log.latest_epoch and position.offset <= log.log_end_offset:
        return None
    end = epoch_end(role, last_epoch, log)
    return end if fences.has_diverged(end, last_epoch, position.offset) else None


def may_throttle(role: ReplicaState, replica_id: int) -> bool:
    """Whether a follower may have to wait for its bytes; one in the ISR never does: producers wait for it."""
    return isinstance(role, LeaderState) and replica_id not in role.isr


def read_limit(role: ReplicaState, is_follower: bool, log: LogView, *, read_committed: bool = False) -> int:
    """Return the end (exclusive) of what a reader may see."""
    log_end_offset = log.log_end_offset
    if is_follower:
        return log_end_offset
    end = fences.visible_end(role.high_watermark, log_end_offset)
    return log.last_stable_offset(end) if read_committed else end


def code_out_of_range(role: ReplicaState) -> ErrorCode:
    """Return what a reader gets whose offset is not in the log.

    A follower may lag: only the leader can say that an offset is out of range.
    """
    is_leader = isinstance(role, LeaderState)
    return ErrorCode.OFFSET_OUT_OF_RANGE if is_leader else ErrorCode.NOT_LEADER_OR_FOLLOWER


def nearer_replica(
    role: ReplicaState, racks: Mapping[int, str], rack: str, position: FetchPosition, log: LogView
) -> int:
    """Return the broker that a consumer should read from, or NO_PREFERENCE.

    Args:
        role: of this replica.
        racks: {live broker: rack}, "" for none.
        rack: the consumer's, "" if it did not say.
        position: where it reads.
        log: this replica's.
    """
    if not isinstance(role, LeaderState):
        return NO_PREFERENCE
    if check_leader_epoch(role, position.current_leader_epoch) is not ErrorCode.NONE:
        return NO_PREFERENCE
    return preferred_read_replica(role, racks, rack, position.offset, log.log_end_offset)


def answer(
    role: ReplicaState, replica_id: int, position: FetchPosition, log: LogView
) -> ReadUpTo | Diverge | RefuseWith:
    """Return what a reader gets; see end_for."""
    found = end_for(role, replica_id, position, log)
    return ReadUpTo(found) if isinstance(found, int) else found


def end_for(
    role: ReplicaState,
    replica_id: int,
    position: FetchPosition,
    log: LogView,
    *,
    read_committed: bool = False,
) -> int | Diverge | RefuseWith:
    """Return the end (exclusive) of what a reader may see, or why it may not read here; see judge_fetch."""
    error_code = judge_fetch(role, replica_id, position, log)
    if error_code is not ErrorCode.NONE:
        return RefuseWith(error_code)
    end = diverging(role, position, log)
    if end is not None:
        is_known = end.end_offset != UNDEFINED
        # Nothing here can be compared with an epoch that this leader has never heard of.
        return Diverge(*end) if is_known else RefuseWith(ErrorCode.OFFSET_OUT_OF_RANGE)
    if not log.log_start_offset <= position.offset <= log.log_end_offset:
        return RefuseWith(code_out_of_range(role))
    return read_limit(role, replica_id >= 0, log, read_committed=read_committed)
