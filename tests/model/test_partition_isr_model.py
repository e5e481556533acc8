"""Replicas of one partition against a naive model: what a leader has committed survives every clean election.

Three replicas exchange fetches through the real decisions (broker.core) over logs that are plain lists. The
quorum is one versioned record. Requests of the controller, writes of ISRs and their replies are held back,
lost or delivered in any order; processes die and come back with an old checkpoint of the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core.epochs import EpochEndOffset, epoch_end_at_leader, truncation_offset
from broker.core.fences import has_diverged
from broker.core.partition import FollowerState, IdleState, LeaderState, ProposeIsr, ReplicaState
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.records import NO_LEADER, PartitionStateRecord

REPLICAS = (1, 2, 3)
LAG_MAX_MS = 10

replicas = strategies.sampled_from(REPLICAS)
Entry = tuple[int, int]


@dataclass
class Broker:
    log: list[Entry] = field(default_factory=list)
    role: ReplicaState = field(default_factory=lambda: IdleState(0, LeaderEpoch(-1)))
    alive: bool = True
    generation: int = 1

    def latest_epoch(self) -> int:
        return self.log[-1][0] if self.log else -1

    def epoch_end(self, requested: int) -> EpochEndOffset:
        later = next((offset for offset, (epoch, _) in enumerate(self.log) if epoch > requested), None)
        if later is None:
            known = requested == self.latest_epoch()
            return EpochEndOffset(requested, len(self.log)) if known else EpochEndOffset(-1, -1)
        return EpochEndOffset(self.log[later - 1][0] if later else requested, later)


class Partition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.brokers = {broker_id: Broker() for broker_id in REPLICAS}
        self.state = PartitionStateRecord(ControllerEpoch(1), 1, LeaderEpoch(0), REPLICAS)
        self.version = 0
        #: {offset: entry} of what a leader has shown as committed
        self.committed: dict[int, Entry] = {}
        self.now_ms = 0
        self.values = 0
        #: (leader's broker id, its state, the change) of writes that have not reached the quorum yet
        self.writes: list[tuple[int, LeaderState, ProposeIsr]] = []

    @initialize(isr=strategies.sampled_from([(1,), (1, 2), (1, 3), REPLICAS]))
    def begin(self, isr: tuple[int, ...]) -> None:
        self.state = PartitionStateRecord(ControllerEpoch(1), 1, LeaderEpoch(0), isr)
        for broker_id in REPLICAS:
            self.request_arrives(broker_id)

    # -- the controller --------------------------------------------------------------------------------------

    @rule(chosen=replicas, reached=strategies.sets(replicas, min_size=1))
    def elect(self, chosen: int, reached: set[int]) -> None:
        """The leader is dead or slow: a live member of the ISR leads; the dead ones leave it."""
        live = tuple(member for member in self.state.isr if self.brokers[member].alive)
        leader = chosen if chosen in live else (live[0] if live else NO_LEADER)
        isr = live or self.state.isr
        epoch = LeaderEpoch(self.state.leader_epoch + 1)
        self.state = PartitionStateRecord(ControllerEpoch(1), leader, epoch, isr)
        self.version += 1
        for broker_id in sorted(reached):
            self.request_arrives(broker_id)

    @rule(broker_id=replicas)
    def request_arrives(self, broker_id: int) -> None:
        """LeaderAndIsr with the newest state."""
        broker = self.brokers[broker_id]
        is_new = isinstance(broker.role, IdleState) or self.state.leader_epoch > broker.role.leader_epoch
        if not broker.alive or not is_new:
            return
        known = broker.role.high_watermark
        if self.state.leader == broker_id:
            broker.role = LeaderState.elected(
                broker_id,
                self.state,
                PartitionVersion(self.version),
                REPLICAS,
                log_end_offset=len(broker.log),
                high_watermark=known,
                now_ms=self.now_ms,
            )
        elif self.state.leader == NO_LEADER:
            broker.role = IdleState(known, self.state.leader_epoch)
        else:
            broker.role = FollowerState(self.state.leader, self.state.leader_epoch, known)
        assert broker.role.high_watermark >= min(known, len(broker.log))

    # -- producers and followers -----------------------------------------------------------------------------

    @rule(broker_id=replicas, count=strategies.integers(1, 3))
    def produce(self, broker_id: int, count: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.alive or not isinstance(broker.role, LeaderState):
            return
        for _ in range(count):
            self.values += 1
            broker.log.append((broker.role.leader_epoch, self.values))
        broker.role.advance_high_watermark(len(broker.log))

    @rule(count=strategies.integers(1, 3), fetching=strategies.lists(replicas, max_size=6))
    def produce_and_replicate(self, count: int, fetching: list[int]) -> None:
        """Every leader appends, also one that has been replaced; some followers fetch."""
        for broker_id in REPLICAS:
            self.produce(broker_id, count)
        for broker_id in fetching:
            self.fetch(broker_id, 4, answered=True)

    @rule(broker_id=replicas, limit=strategies.integers(1, 4), answered=strategies.booleans())
    def fetch(self, broker_id: int, limit: int, answered: bool) -> None:
        follower = self.brokers[broker_id]
        if not follower.alive or not isinstance(follower.role, FollowerState):
            return
        source = self.brokers[follower.role.leader]
        leader = source.role
        if not source.alive or not isinstance(leader, LeaderState):
            return
        if leader.leader_epoch != follower.role.leader_epoch:
            return
        offset = len(follower.log)
        last_epoch = follower.latest_epoch()
        if last_epoch >= 0:
            end = self._end_at_leader(source, leader, last_epoch)
            if has_diverged(end, last_epoch, offset):
                if answered:
                    self._truncate(follower, end)
                return
        leader.follower_fetched(
            broker_id,
            BrokerGeneration(follower.generation),
            offset,
            0,
            log_end_offset=len(source.log),
            now_ms=self.now_ms,
        )
        leader.advance_high_watermark(len(source.log))
        change = leader.maybe_expand(broker_id, self.now_ms)
        if change is not None:
            self.writes.append((leader.broker_id, leader, change))
        if answered:
            follower.log += source.log[offset : offset + limit]
            follower.role.leader_said(leader.high_watermark, len(follower.log))

    def _end_at_leader(self, source: Broker, leader: LeaderState, requested: int) -> EpochEndOffset:
        return epoch_end_at_leader(
            requested,
            source.epoch_end(requested),
            latest_epoch_in_log=source.latest_epoch(),
            leader_epoch=leader.leader_epoch,
            epoch_start_offset=leader.epoch_start_offset,
            log_end_offset=len(source.log),
        )

    def _truncate(self, follower: Broker, end: EpochEndOffset) -> None:
        assert isinstance(follower.role, FollowerState)
        cut = truncation_offset(end, follower.epoch_end(end.leader_epoch), len(follower.log))
        assert cut < len(follower.log)  # each answer brings it nearer
        del follower.log[cut:]
        known = follower.role.high_watermark
        follower.role.truncated(len(follower.log))
        assert follower.role.high_watermark == known  # only an unclean election takes committed records

    # -- the ISR ---------------------------------------------------------------------------------------------

    @rule(broker_id=replicas)
    def shrink(self, broker_id: int) -> None:
        """Followers that lack something have lacked it for too long."""
        self.now_ms += 2000
        broker = self.brokers[broker_id]
        if not broker.alive or not isinstance(broker.role, LeaderState):
            return
        change = broker.role.maybe_shrink(len(broker.log), self.now_ms, LAG_MAX_MS)
        if change is not None:
            self.writes.append((broker_id, broker.role, change))

    @precondition(lambda self: self.writes)
    @rule(index=strategies.integers(0, 5), reply_lost=strategies.booleans())
    def write_arrives(self, index: int, reply_lost: bool) -> None:
        """A compare-and-set reaches the quorum; without its reply the leader reads the state again."""
        broker_id, leader, change = self.writes.pop(index % len(self.writes))
        bounced = any(
            self.brokers[joining].generation != generation for joining, generation in change.joining.items()
        )
        written = self.version == change.partition_version and not bounced
        if written:
            self.state, self.version = change.state, self.version + 1
        broker = self.brokers[broker_id]
        if not broker.alive or broker.role is not leader:
            return
        if written and not reply_lost:
            leader.isr_written(PartitionVersion(self.version))
        elif bounced and self.version == change.partition_version:
            leader.isr_refused(self.now_ms)
        elif not leader.isr_read_again(self.state, PartitionVersion(self.version), self.now_ms):
            broker.role = IdleState(leader.high_watermark, leader.leader_epoch)
            return
        leader.advance_high_watermark(len(broker.log))

    # -- processes -------------------------------------------------------------------------------------------

    @rule(broker_id=replicas)
    def kill(self, broker_id: int) -> None:
        self.brokers[broker_id].alive = False

    @rule(broker_id=replicas, checkpoint=strategies.integers(0, 30), kept=strategies.integers(0, 30))
    def start(self, broker_id: int, checkpoint: int, kept: int) -> None:
        """Come back with an old checkpoint; what is in no ISR may also have lost the tail of its log."""
        broker = self.brokers[broker_id]
        if broker.alive:
            return
        if broker_id not in self.state.isr:
            del broker.log[kept:]
            checkpoint = min(checkpoint, kept)
        broker.alive = True
        broker.generation += 1
        broker.role = IdleState(min(checkpoint, broker.role.high_watermark), LeaderEpoch(-1))
        if self.state.leader == broker_id:
            # The controller takes a bounce for a failure and a start: no life leads by a decision about a
            # former one, whose ISR write may still be on its way.
            self.elect(broker_id, {broker_id})
        self.request_arrives(broker_id)

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def committed_records_are_never_lost(self) -> None:
        for broker in self.brokers.values():
            if isinstance(broker.role, LeaderState):
                broker.role.check_invariants(len(broker.log))
            if broker.alive:
                for offset in range(broker.role.high_watermark):
                    entry = broker.log[offset]
                    assert self.committed.setdefault(offset, entry) == entry
        for member in self.state.isr:
            log = self.brokers[member].log
            for offset, entry in self.committed.items():
                assert offset < len(log), f"replica {member} of the ISR lacks committed offset {offset}"
                assert log[offset] == entry

    @invariant()
    def high_watermark_is_within_the_isr(self) -> None:
        leader = self.brokers[self.state.leader] if self.state.leader != NO_LEADER else None
        if leader is None or not isinstance(leader.role, LeaderState):
            return
        if leader.role.leader_epoch == self.state.leader_epoch:
            ends = [len(self.brokers[member].log) for member in self.state.isr]
            assert leader.role.high_watermark <= min(ends)


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=400, stateful_step_count=50, deadline=None)
