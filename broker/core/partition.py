"""One replica of a partition: leader, follower or idle; which records are committed and who is in sync.

Decides the high watermark (the smallest log end offset of the maximal ISR), when a follower joins or leaves
the ISR, and whether enough replicas are in sync. It does not know logs, clocks, the quorum or connections:
offsets and times come in as arguments, and a change of the ISR goes out as `ProposeIsr`, whose outcome comes
back through `isr_written`, `isr_refused` or `isr_read_again`. Hard state: none; everything follows from the
LeaderAndIsr request and from fetches.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; KIP-101, KIP-497, KIP-903;
docs/internals/requirements.md, [0.disc3].
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from broker.core import fences
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.records import PartitionStateRecord

UNKNOWN_OFFSET: Final = -1
NO_GENERATION: Final = BrokerGeneration(-1)
#: After a refused change of the ISR a leader waits this long before it proposes another one.
ISR_PAUSE_MS: Final = 1000


@dataclass(slots=True)
class FollowerProgress:
    """What the fetches of one follower have shown in this leader epoch."""

    #: When the follower last had everything that the leader had; monotonic.
    caught_up_ms: int
    #: Exclusive; UNKNOWN_OFFSET until the first fetch in this leader epoch.
    log_end_offset: int = UNKNOWN_OFFSET
    log_start_offset: int = UNKNOWN_OFFSET
    generation: BrokerGeneration = NO_GENERATION
    last_fetch_ms: int = 0
    #: The leader's log end offset at the last fetch: who fetches from there had caught up then.
    leader_end_offset_at_fetch: int = UNKNOWN_OFFSET


@dataclass(frozen=True, slots=True)
class ProposeIsr:
    """Write this state by compare-and-set, with the generations of those that join."""

    state: PartitionStateRecord
    #: The version that the state znode must still have.
    partition_version: PartitionVersion
    #: {broker id: generation that its fetches carried} of the followers that join.
    joining: Mapping[int, BrokerGeneration]


@dataclass(slots=True)
class IdleState:
    """A replica that neither leads nor follows.

    It was opened at the start, or its partition is offline, or its broker has stepped down.
    """

    high_watermark: int
    #: Of the last decision that was applied, or read at the start.
    leader_epoch: LeaderEpoch
    #: The generation of this broker that the decision was for; NO_GENERATION: it was only read.
    decided_in: BrokerGeneration = NO_GENERATION


@dataclass(slots=True)
class FollowerState:
    """A replica that fetches from a leader."""

    leader: int
    leader_epoch: LeaderEpoch
    #: Exclusive; never above the own log end offset.
    high_watermark: int
    decided_in: BrokerGeneration = NO_GENERATION

    def leader_said(self, high_watermark: int, log_end_offset: int) -> bool:
        """Take over the leader's high watermark as far as the own log reaches; True if it rose.

        It never falls: a new leader that does not know yet what is committed takes nothing back.
        """
        known = max(self.high_watermark, min(high_watermark, log_end_offset))
        risen = known > self.high_watermark
        self.high_watermark = known
        return risen

    def truncated(self, log_end_offset: int) -> None:
        """Note that the log ends here now; after an unclean election that may be below what was committed."""
        self.high_watermark = min(self.high_watermark, log_end_offset)


@dataclass(slots=True)
class LeaderState:
    """A replica that leads, in one leader epoch."""

    broker_id: int
    controller_epoch: ControllerEpoch
    leader_epoch: LeaderEpoch
    partition_version: PartitionVersion
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader_recovery_state: int
    #: The log end offset at which this epoch began.
    epoch_start_offset: int
    #: Exclusive; never falls.
    high_watermark: int
    #: {broker id: progress} of all replicas but the leader.
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    #: The change whose outcome is not known. While there is one, no other is proposed.
    pending: ProposeIsr | None = None
    propose_not_before_ms: int = 0
    decided_in: BrokerGeneration = NO_GENERATION

    @classmethod
    def elected(
        cls,
        broker_id: int,
        state: PartitionStateRecord,
        partition_version: PartitionVersion,
        replicas: Sequence[int],
        *,
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        decided_in: BrokerGeneration = NO_GENERATION,
    ) -> LeaderState:
        """Begin to lead in the epoch of a state that names this broker as the leader.

        Members of the ISR count as caught up now, so that each has the whole of replica_lag_time_max_ms for
        its first fetch; what they have is unknown until then.
        """
        leader = cls(
            broker_id,
            state.controller_epoch,
            state.leader_epoch,
            partition_version,
            tuple(replicas),
            state.isr,
            state.leader_recovery_state,
            epoch_start_offset=log_end_offset,
            high_watermark=min(high_watermark, log_end_offset),
            decided_in=decided_in,
        )
        for replica in replicas:
            if replica != broker_id:
                leader.followers[replica] = FollowerProgress(caught_up_ms=now_ms)
        leader.advance_high_watermark(log_end_offset)
        return leader

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Who may be in the ISR as the quorum has it: the known one, and those of a change on its way."""
        if self.pending is None:
            return self.isr
        return fences.gating_isr(self.isr, self.pending.joining)

    def is_under_replicated(self) -> bool:
        """Whether an assigned replica is not in sync."""
        return any(replica not in self.isr for replica in self.replicas)

    def has_enough_in_sync(self, min_insync_replicas: int) -> bool:
        """Whether a record with acks=all may be taken, or acknowledged."""
        return len(self.isr) >= min_insync_replicas

    def follower_fetched(
        self,
        replica: int,
        generation: BrokerGeneration,
        fetch_offset: int,
        log_start_offset: int,
        *,
        log_end_offset: int,
        now_ms: int,
    ) -> bool:
        """Note a fetch in this leader epoch; its offset is the log end offset of the follower.

        Returns:
            False if it counts for nothing: not a replica, or a former life of that broker.
        """
        progress = self.followers.get(replica)
        if progress is None or fences.is_of_former_life(generation, progress.generation):
            return False
        if fetch_offset >= log_end_offset:
            progress.caught_up_ms = max(progress.caught_up_ms, now_ms)
        elif (
            progress.leader_end_offset_at_fetch != UNKNOWN_OFFSET
            and fetch_offset >= progress.leader_end_offset_at_fetch
        ):
            progress.caught_up_ms = max(progress.caught_up_ms, progress.last_fetch_ms)
        progress.log_end_offset = fetch_offset
        progress.log_start_offset = log_start_offset
        progress.generation = generation
        progress.last_fetch_ms = now_ms
        progress.leader_end_offset_at_fetch = log_end_offset
        return True

    def follower_kept_up(self, replica: int, generation: BrokerGeneration, until_ms: int) -> None:
        """Note that a follower, whose fetches need not name the partition, had everything until then."""
        progress = self.followers.get(replica)
        if progress is not None and progress.generation == generation:
            progress.caught_up_ms = max(progress.caught_up_ms, until_ms)

    def advance_high_watermark(self, log_end_offset: int) -> bool:
        """Raise the high watermark to the smallest log end offset of the maximal ISR; True if it rose."""
        lowest = log_end_offset
        for replica in self.maximal_isr:
            if replica != self.broker_id:
                progress = self.followers.get(replica)
                lowest = min(lowest, UNKNOWN_OFFSET if progress is None else progress.log_end_offset)
        if lowest <= self.high_watermark:
            return False
        self.high_watermark = lowest
        return True

    def knows_what_is_committed(self) -> bool:
        """Whether the high watermark has reached the start of this epoch (KIP-207)."""
        return self.high_watermark >= self.epoch_start_offset

    # -- the ISR ---------------------------------------------------------------------------------------------

    def maybe_expand(self, replica: int, now_ms: int) -> ProposeIsr | None:
        """Propose that a follower joins, if its log reaches the high watermark and the start of this epoch.

        The second condition keeps out one that has yet to truncate what only a former leader had.
        """
        progress = self.followers.get(replica)
        if (
            progress is None
            or progress.generation == NO_GENERATION
            or replica in self.isr
            or not self._may_propose(now_ms)
            or progress.log_end_offset < max(self.high_watermark, self.epoch_start_offset)
        ):
            return None
        return self._propose((*self.isr, replica), {replica: progress.generation})

    def maybe_shrink(self, log_end_offset: int, now_ms: int, lag_max_ms: int) -> ProposeIsr | None:
        """Propose that the followers leave which have not caught up within lag_max_ms."""
        if not self._may_propose(now_ms):
            return None
        kept = tuple(
            replica
            for replica in self.isr
            if replica == self.broker_id or self._is_in_time(replica, log_end_offset, now_ms, lag_max_ms)
        )
        return None if kept == self.isr else self._propose(kept, {})

    def _is_in_time(self, replica: int, log_end_offset: int, now_ms: int, lag_max_ms: int) -> bool:
        progress = self.followers.get(replica)
        return progress is not None and (
            progress.log_end_offset >= log_end_offset or now_ms - progress.caught_up_ms <= lag_max_ms
        )

    def _may_propose(self, now_ms: int) -> bool:
        return self.pending is None and now_ms >= self.propose_not_before_ms

    def _propose(self, isr: tuple[int, ...], joining: Mapping[int, BrokerGeneration]) -> ProposeIsr:
        state = PartitionStateRecord(
            self.controller_epoch, self.broker_id, self.leader_epoch, isr, self.leader_recovery_state
        )
        self.pending = ProposeIsr(state, self.partition_version, joining)
        return self.pending

    def isr_written(self, partition_version: PartitionVersion) -> None:
        """Note that the pending change is written."""
        assert self.pending is not None
        self.isr = self.pending.state.isr
        self.partition_version = partition_version
        self.pending = None

    def isr_refused(self, now_ms: int) -> None:
        """Note that the pending change was not and will not be written, and that the state is as before."""
        assert self.pending is not None
        self.pending = None
        self.propose_not_before_ms = now_ms + ISR_PAUSE_MS

    def isr_read_again(
        self, state: PartitionStateRecord, partition_version: PartitionVersion, now_ms: int
    ) -> bool:
        """Judge the state that was read after a conflict or an unknown outcome of the pending change.

        Where the controller has decided again and kept this leader, the pending change stays: it goes on
        gating the high watermark, and nothing more is proposed before the controller's request comes.

        Returns:
            False if this broker must step down.
        """
        if state.leader != self.broker_id:
            return False
        if fences.is_own_epoch(state.leader_epoch, self.leader_epoch):
            self.isr = state.isr
            self.partition_version = partition_version
            self.pending = None
            self.propose_not_before_ms = now_ms + ISR_PAUSE_MS
        return True

    def check_invariants(self, log_end_offset: int) -> None:
        """Assert what always holds."""
        assert self.broker_id in self.isr, (self.broker_id, self.isr)
        assert 0 <= self.high_watermark <= log_end_offset, (self.high_watermark, log_end_offset)
        assert len(set(self.maximal_isr)) == len(self.maximal_isr), self.maximal_isr


ReplicaState = IdleState | FollowerState | LeaderState
