"""What a follower does with a leader's answer for one partition: append, truncate, or wait a moment.

An answer counts only for the role and the log end offset that the request was made with; anything else is an
answer to a question of the past. Knows no connection.
Source: control-plane design, "Leader and follower"; KIP-101, KIP-279, KIP-320, KIP-595 (diverging epochs).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from broker.core.epochs import EpochEndOffset, truncation_offset
from broker.core.partition import FollowerState
from broker.core.throttle import Throttle
from broker.log.errors import AppendError
from broker.replication.clock import monotonic_ms, wall_ms
from broker.replication.outcomes import Counters, FetchOutcome, FetchPosition, ReplicationOptions
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Followed:
    """One partition that this broker follows."""

    replica: Replica
    #: The role in which it is followed; another role of the replica ends it.
    role: FollowerState
    #: Monotonic; after an error the partition is left out until then.
    not_before_ms: int = 0
    backoff_ms: int = 0
    #: Whether its log ends below the leader's high watermark: only then it waits for a throttle, because
    #: producers may wait for it else. None: not known before the first answer in this role.
    is_behind: bool | None = None
    #: Whether an answer waits for the disk: it is left out until then.
    is_busy: bool = False

    def position(self, options: ReplicationOptions, throttle: Throttle, now_ms: int) -> FetchPosition:
        """Return what to ask the leader for."""
        log = self.replica.log
        max_bytes = options.replica_fetch_max_bytes
        if self.is_throttled(throttle):
            max_bytes = min(max_bytes, throttle.allowance(now_ms))
        return FetchPosition(
            log.log_end_offset,
            max_bytes,
            self.role.leader_epoch,
            log.latest_epoch,
            # What a crash would not take back: the leader may answer a deletion because of it.
            log.durable_start_offset,
            self.replica.topic_id,
        )

    def is_throttled(self, throttle: Throttle) -> bool:
        """Whether its bytes count."""
        return self.is_behind is not False and throttle.limits(self.replica.key)

    def is_due(self, now_ms: int, throttle: Throttle) -> bool:
        """Whether to ask for it now; a throttled one waits until bytes may pass again."""
        if self.is_busy:
            return False
        if self.not_before_ms <= now_ms and self.is_behind and throttle.limits(self.replica.key):
            self.not_before_ms = now_ms + throttle.wait_ms(now_ms)
        return self.not_before_ms <= now_ms

    def is_current(self, offset: int) -> bool:
        """Whether an answer to a fetch from this offset still counts."""
        return self.replica.role is self.role and self.replica.log.log_end_offset == offset


def must_wait(followed: Followed, outcome: FetchOutcome) -> bool:
    """Whether a leader's answer cannot be applied before the disk has done something."""
    if outcome.error_code is ErrorCode.OFFSET_OUT_OF_RANGE or outcome.diverging_epoch is not None:
        return True
    # A record has at least one byte, so there are never more records than bytes.
    size_bytes = len(outcome.records)
    return bool(size_bytes) and followed.replica.log.must_wait(size_bytes, size_bytes)


async def take_answer_patiently(
    followed: Followed, offset: int, outcome: FetchOutcome, options: ReplicationOptions, counters: Counters
) -> None:
    """Apply a leader's answer once the disk allows it, if it still counts then.

    A truncation is durable on return, so that nothing is fetched before.

    Args:
        followed: the partition.
        offset: where the fetch began.
        outcome: the leader's answer.
        options: pauses.
        counters: of truncations.

    Raises:
        LogStorageError: the disk refused.
    """
    if outcome.error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
        await followed.replica.log.settled()
        if followed.is_current(offset):
            _start_over(followed, outcome, options)
    elif outcome.diverging_epoch is not None:
        await _truncate(followed, offset, EpochEndOffset(*outcome.diverging_epoch), counters)
    else:
        size_bytes = len(outcome.records)
        await followed.replica.log.before_append(size_bytes, size_bytes)
        if followed.is_current(offset):
            take_answer(followed, outcome, options)
        return
    await followed.replica.log.settled()


def take_answer(followed: Followed, outcome: FetchOutcome, options: ReplicationOptions) -> bool:
    """Apply a leader's answer, which need not wait, to the replica; True if records were appended.

    Raises:
        LogStorageError: the disk refused.
    """
    replica = followed.replica
    if outcome.error_code is not ErrorCode.NONE:
        _wait(followed, options)
        return False
    followed.backoff_ms = 0
    if outcome.records:
        try:
            replica.log.append_as_follower(outcome.records, wall_ms())
        except AppendError as error:
            _log.warning("records of %s-%d from broker %d: %s", *replica.key, followed.role.leader, error)
            _wait(followed, options)
            return False
    followed.is_behind = outcome.high_watermark > replica.log.log_end_offset
    if followed.role.leader_said(outcome.high_watermark, replica.log.log_end_offset):
        replica.high_watermark_rose()
    # The leader has deleted what is before.
    replica.log.advance_start(min(outcome.log_start_offset, replica.high_watermark))
    return bool(outcome.records)


async def _truncate(followed: Followed, offset: int, leader_end: EpochEndOffset, counters: Counters) -> None:
    log = followed.replica.log
    followed.backoff_ms = 0
    while followed.is_current(offset):
        own_end = EpochEndOffset(*log.end_offset_for_epoch(leader_end.leader_epoch))
        target = truncation_offset(leader_end, own_end, offset)
        if await log.truncate_patiently(target, lambda: followed.is_current(offset)):
            break
    else:
        return
    followed.role.truncated(log.log_end_offset)
    counters.truncations += 1
    _log.info(
        "truncated %s-%d from %d to %d: epoch %d ended there at broker %d",
        *followed.replica.key,
        offset,
        log.log_end_offset,
        leader_end.leader_epoch,
        followed.role.leader,
    )


def _start_over(followed: Followed, outcome: FetchOutcome, options: ReplicationOptions) -> None:
    """Begin where the leader's log begins, if that has passed this log's end, or this log has nothing."""
    log = followed.replica.log
    if log.log_start_offset < log.log_end_offset >= outcome.log_start_offset:
        _wait(followed, options)
        return
    _log.info(
        "%s-%d starts over at %d: broker %d has nothing before it any more, this log ended at %d",
        *followed.replica.key,
        outcome.log_start_offset,
        followed.role.leader,
        log.log_end_offset,
    )
    log.truncate_fully_and_start_at(outcome.log_start_offset)
    followed.role.high_watermark = outcome.log_start_offset


def _wait(followed: Followed, options: ReplicationOptions) -> None:
    followed.backoff_ms = min(
        max(followed.backoff_ms * 2, options.replica_fetch_backoff_ms), options.replica_fetch_backoff_max_ms
    )
    followed.not_before_ms = monotonic_ms() + followed.backoff_ms
