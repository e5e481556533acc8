"""One replica with its log: which role it has, by which decision, and who waits for it.

Holds state and passes changes on to those that wait; the decisions are broker.core's. The log is the hard
state; role, epochs and waiters are soft.
Source: control-plane design, "Leader and follower", "Start-up".
"""

from __future__ import annotations

import uuid
from collections import deque

from broker.core.partition import FollowerState, IdleState, LeaderState, ReplicaState
from broker.log.partition_log import PartitionLog
from broker.replication.outcomes import ProduceOutcome
from broker.replication.waiting import WaitingAppend, WaitingDeletion, WaitingFetch, WaitingProduce
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.paths import PartitionKey

NO_LEADER_EPOCH = LeaderEpoch(-1)


class Replica:
    """A partition's replica on this broker."""

    def __init__(self, key: PartitionKey, log: PartitionLog, high_watermark: int, min_insync: int) -> None:
        """Open a replica that has no role yet.

        Args:
            key: which partition.
            log: its log.
            high_watermark: as checkpointed; cut to what the log has.
            min_insync: the topic's min.insync.replicas.
        """
        self.key = key
        self.log = log
        self.min_insync_replicas = min_insync
        bounded = min(max(high_watermark, log.log_start_offset), log.log_end_offset)
        self.role: ReplicaState = IdleState(bounded, NO_LEADER_EPOCH)
        #: Whether a LeaderAndIsr for the broker's current generation has set the role.
        self.applied = False
        #: Batches that wait for their turn in the log, in the order in which they came.
        self.appends: deque[WaitingAppend] = deque()
        #: {who waits: offset that the high watermark must reach}
        self.produces: dict[WaitingProduce, int] = {}
        #: Who waits; a dict, for its order.
        self.fetches: dict[WaitingFetch, None] = {}
        self.deletions: dict[WaitingDeletion, None] = {}

    @property
    def topic_id(self) -> uuid.UUID | None:
        """The id of the topic that the log belongs to."""
        return self.log.topic_id

    @property
    def high_watermark(self) -> int:
        """Records below it are committed."""
        return self.role.high_watermark

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Of the last decision that was applied, or read at the start."""
        return self.role.leader_epoch

    @property
    def leader(self) -> LeaderState | None:
        """The leader's state, if this replica leads."""
        role = self.role
        return role if isinstance(role, LeaderState) else None

    @property
    def follower(self) -> FollowerState | None:
        """The follower's state, if this replica follows a leader."""
        role = self.role
        return role if isinstance(role, FollowerState) else None

    def take_role(self, role: ReplicaState, *, applied: bool) -> None:
        """Change the role. A produce of a former leadership fails; who fetches reads again."""
        self.role = role
        self.applied = applied
        if not isinstance(role, LeaderState):
            for waiting in list(self.produces):
                del self.produces[waiting]
                waiting.answer(self.key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            for append in self.appends:
                append.refuse(self.key, ProduceOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        for fetch in self.fetches:
            fetch.wake(self.key)
        self.wake_deletions()

    def step_down(self) -> None:
        """Lead no longer; what comes next is for the controller to say."""
        self.take_role(IdleState(self.high_watermark, self.leader_epoch), applied=self.applied)

    def log_grew(self) -> None:
        """Wake followers that wait for records; a leader that is alone in its ISR commits at once."""
        for fetch in self.fetches:
            if fetch.is_follower:
                fetch.wake(self.key)
        self.maybe_advance()

    def start_moved(self) -> None:
        """Let followers know at once that the leader's log begins elsewhere."""
        for fetch in self.fetches:
            if fetch.is_follower:
                fetch.wake(self.key, is_news=True)

    def wake_deletions(self) -> None:
        """Let those look again that wait until all replicas have deleted records."""
        for deletion in self.deletions:
            deletion.wake(self)

    def maybe_advance(self) -> None:
        """Raise the leader's high watermark as far as the ISR allows."""
        leader = self.leader
        if leader is not None and leader.advance_high_watermark(self.log.log_end_offset):
            self.high_watermark_rose()

    def high_watermark_rose(self) -> None:
        """Answer the produces that waited for it and wake consumers."""
        reached = self.high_watermark
        if self.produces and (leader := self.leader) is not None:
            enough = leader.has_enough_in_sync(self.min_insync_replicas)
            error_code = ErrorCode.NONE if enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
            for waiting in [each for each, required in self.produces.items() if required <= reached]:
                del self.produces[waiting]
                waiting.answer(self.key, error_code)
        for fetch in self.fetches:
            if not fetch.is_follower:
                fetch.wake(self.key)
