"""What a follower does with a leader's answer for one partition: append it, or do what the machine says.

An answer counts only for the role and the log end offset that the request was made with; anything else is an
answer to a question of the past. Knows no connection.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-101, KIP-279, KIP-320, KIP-595
(diverging epochs).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from broker.core.fetch_pace import FetchPace
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.core.partition import FollowerState
from broker.core.replica_effects import BackOff, ReplicaEffect, StartAt, TruncateTo
from broker.core.replica_inputs import LeaderAnswer, Truncated, WriteFailed
from broker.core.throttle import Throttle
from broker.log.errors import AppendError
from broker.replication.clock import wall_ms
from broker.replication.outcomes import Counters, ReplicationOptions
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Followed:
    """One partition that this broker follows."""

    replica: Replica
    #: The role in which it is followed; another role of the replica ends it.
    role: FollowerState
    pace: FetchPace

    def position(self, options: ReplicationOptions, throttle: Throttle, now_ms: int) -> FetchPosition:
        """Return what to ask the leader for."""
        log = self.replica.log
        return FetchPosition(
            log.log_end_offset,
            self.pace.max_bytes(options.replica_fetch_max_bytes, throttle, now_ms),
            self.role.leader_epoch,
            log.latest_epoch,
            # What a crash would not take back: the leader may answer a deletion because of it.
            log.durable_start_offset,
            self.replica.topic_id,
        )

    def may_change(self, position: FetchPosition, throttle: Throttle) -> bool:
        """Whether the next position may be another one, without an answer of the leader in between."""
        return position.log_start_offset != self.replica.log.log_start_offset or self.pace.is_throttled(
            throttle
        )

    def is_current(self, offset: int) -> bool:
        """Whether an answer to a fetch from this offset still counts."""
        return self.replica.role is self.role and self.replica.log.log_end_offset == offset

    def carry_out(self, effects: Iterable[ReplicaEffect], options: ReplicationOptions) -> None:
        """Pause, if the machine says so."""
        for effect in effects:
            if isinstance(effect, BackOff):
                self.pace.back_off(
                    effect.since_ms, options.replica_fetch_backoff_ms, options.replica_fetch_backoff_max_ms
                )


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
    """
    log = followed.replica.log
    if outcome.error_code is ErrorCode.OFFSET_OUT_OF_RANGE or outcome.diverging_epoch is not None:
        await log.settled()
        await _change_log(followed, offset, outcome, options, counters)
        await log.settled()
        # What is stable is known again.
        followed.replica.waiters.wake_fetches(of_followers=False, of_consumers=True)
        return
    size_bytes = len(outcome.records)
    await log.before_append(size_bytes, size_bytes)
    if followed.is_current(offset):
        take_answer(followed, offset, outcome, options)


def take_answer(followed: Followed, offset: int, outcome: FetchOutcome, options: ReplicationOptions) -> bool:
    """Apply a leader's answer, which need not wait, to the replica; True if records were appended."""
    replica = followed.replica
    log, machine = replica.log, replica.machine
    if outcome.error_code is not ErrorCode.NONE:
        followed.carry_out(replica.step(_answer(followed, offset, outcome)), options)
        return False
    followed.pace.answered()
    if outcome.records:
        try:
            log.append_as_follower(outcome.records, wall_ms())
        except AppendError as error:
            _log.warning("records of %s-%d from broker %d: %s", *replica.key, followed.role.leader, error)
            followed.carry_out(replica.step(WriteFailed()), options)
            return False
    log_end_offset = log.log_end_offset
    followed.pace.copied(outcome.high_watermark, log_end_offset)
    if machine.copied(outcome.high_watermark, log_end_offset):
        replica.high_watermark_rose()
    if (start_offset := machine.start_to_keep(outcome.log_start_offset)) > log.log_start_offset:
        log.advance_start(start_offset)
        replica.waiters.mark_fetches()
    return bool(outcome.records)


def _answer(followed: Followed, offset: int, outcome: FetchOutcome) -> LeaderAnswer:
    return LeaderAnswer(
        followed.role.leader_epoch,
        offset,
        outcome.error_code,
        outcome.high_watermark,
        outcome.log_start_offset,
        outcome.diverging_epoch,
        bool(outcome.records),
    )


async def _change_log(
    followed: Followed, offset: int, outcome: FetchOutcome, options: ReplicationOptions, counters: Counters
) -> None:
    """Cut the log, or begin it anew, as the machine says; asked again if others changed it meanwhile."""
    replica, log = followed.replica, followed.replica.log
    if outcome.error_code is ErrorCode.NONE:
        followed.pace.answered()
    while followed.is_current(offset):
        effects = replica.step(_answer(followed, offset, outcome))
        match effects:
            case [StartAt(start_offset)]:
                log.truncate_fully_and_start_at(start_offset)
                text = (
                    "%s-%d starts over at %d: broker %d has nothing before it any more, this log ended at %d"
                )
                _log.info(text, *replica.key, start_offset, followed.role.leader, offset)
            case [TruncateTo() as asked]:
                if not await _cut(followed, offset, asked):
                    continue
                counters.truncations += 1
                text = "truncated %s-%d from %d to %d, where the log of broker %d diverges"
                _log.info(text, *replica.key, offset, log.log_end_offset, followed.role.leader)
            case _:
                followed.carry_out(effects, options)
                return
        replica.step(Truncated())
        return


async def _cut(followed: Followed, offset: int, asked: TruncateTo) -> bool:
    """Cut the log; False, and nothing is done, if others changed it meanwhile or the role is another one."""

    def is_wanted() -> bool:
        return followed.replica.machine.awaits_cut(asked) and followed.is_current(offset)

    return await followed.replica.log.truncate_patiently(asked.offset, is_wanted)
