"""One replica with its log, its machine and those that wait for it.

Carries out what the machine wants of those that wait; the other effects go to who stepped it. Decides
nothing. The log is the hard state; machine and waiters are soft.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

import logging
import uuid

from broker.core.partition import FollowerState, LeaderState, ReplicaState
from broker.core.replica import ReplicaMachine
from broker.core.replica_effects import AnswerProduces, LookAtDeletions, ReplicaEffect, WakeFetches
from broker.core.replica_inputs import ReplicaInput
from broker.log.partition_log import PartitionLog
from broker.replication.clock import monotonic_ms, wall_ms
from broker.replication.waiting import Waiters
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey

_log = logging.getLogger(__name__)


class Replica:
    """A partition's replica on this broker."""

    __slots__ = ("key", "log", "machine", "waiters")

    def __init__(self, key: PartitionKey, log: PartitionLog, machine: ReplicaMachine) -> None:
        """Put a new machine and its log together."""
        self.key = key
        self.log = log
        self.machine = machine
        self.waiters = Waiters(key)

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id of the topic that the log belongs to."""
        return self.log.topic_id

    @property
    def role(self) -> ReplicaState:
        """What the replica is now."""
        return self.machine.role

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self.machine.role.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Transactions that begin below it have ended."""
        return self.log.last_stable_offset(self.machine.role.high_watermark)

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Of the last decision that was applied, or read at the start."""
        return self.machine.role.leader_epoch

    @property
    def leader(self) -> LeaderState | None:
        """The leader's state, if this replica leads."""
        return self.machine.leader

    @property
    def follower(self) -> FollowerState | None:
        """The follower's state, if this replica follows a leader."""
        return self.machine.follower

    def step(self, happened: ReplicaInput) -> list[ReplicaEffect]:
        """Step the machine; returns the effects that do not concern those that wait here."""
        left: list[ReplicaEffect] = []
        for effect in self.machine.step(happened, self.log, monotonic_ms()):
            match effect:
                case AnswerProduces(None, error_code):
                    self.waiters.fail_produces(error_code)
                case AnswerProduces(int(up_to), error_code):
                    self.waiters.answer_produces(up_to, error_code)
                case WakeFetches(of_followers, of_consumers, is_news):
                    self.waiters.wake_fetches(
                        of_followers=of_followers, of_consumers=of_consumers, is_news=is_news
                    )
                case LookAtDeletions():
                    self.waiters.wake_deletions()
                case _:
                    left.append(effect)
        return left

    def delete_expired(self, *, by_age: bool) -> None:
        """Close and remove segments as PartitionLog.delete_expired() does; readers learn of the new start."""
        log, before = self.log, self.log.log_start_offset
        log.delete_expired(high_watermark=self.high_watermark, now_ms=wall_ms(), by_age=by_age)
        if log.log_start_offset != before:
            self.waiters.mark_fetches()
            _log.info("retention: %s-%d starts at %d now, not at %d", *self.key, log.log_start_offset, before)

    def log_grew(self) -> None:
        """Wake followers that wait for records; a leader that is alone in its ISR commits at once."""
        self.waiters.wake_fetches(of_followers=True, of_consumers=False)
        if self.machine.appended(self.log.log_end_offset):
            self.high_watermark_rose()

    def high_watermark_rose(self) -> None:
        """Answer the produces that waited for it and wake consumers."""
        if self.waiters.produces:
            self.waiters.answer_produces(self.high_watermark, self.machine.code_of_committed())
        self.waiters.wake_fetches(of_followers=False, of_consumers=True)
