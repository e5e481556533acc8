"""Replicas of one partition against a naive model: what a leader has committed survives every clean election.

Three brokers step the product's machines (broker.core) over logs that are plain lists, and obey what the
controller's elections decide. The quorum is one versioned record and the registrations. Sessions end without
the broker's knowledge; requests of the controller, writes of ISRs and their replies are held back, lost or
delivered in any order, also those for a former life; processes die and come back with an old checkpoint of
the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from hypothesis import settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.core import fences
from broker.core.control_gate import ControlGate
from broker.core.fetched import FetchPosition
from broker.core.partition import NO_GENERATION, LeaderState
from broker.core.replica import ReplicaMachine
from broker.core.replica_effects import (
    Diverge,
    ReadUpTo,
    ReplicaEffect,
    TakeRecords,
    TruncateTo,
    WriteIsr,
)
from broker.core.replica_inputs import (
    Copied,
    FollowerFetch,
    IsrFound,
    IsrRefused,
    IsrWritten,
    LagTick,
    LeaderAndIsr,
    LeaderAnswer,
    LogGrew,
    Opened,
    ReplicaInput,
    SessionLost,
    Truncated,
)
from controller.core.elections import Situation, first_state, next_state
from controller.core.model import KnownState
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER, PartitionStateRecord

KEY = PartitionKey("orders", 0)
REPLICAS = (1, 2, 3)
CONTROLLER = (9, ControllerEpoch(1))
LAG_MAX_MS = 10

replicas = strategies.sampled_from(REPLICAS)
Entry = tuple[int, int]


class ListLog:
    """A log of (leader epoch, value)."""

    topic_id = None
    log_start_offset = 0

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    @property
    def log_end_offset(self) -> int:
        return len(self.entries)

    @property
    def latest_epoch(self) -> int:
        return self.entries[-1][0] if self.entries else -1

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """No transaction is here."""
        return high_watermark

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int]:
        entries = self.entries
        later = next((offset for offset, (epoch, _) in enumerate(entries) if epoch > leader_epoch), None)
        if later is None:
            return (leader_epoch, len(entries)) if leader_epoch == self.latest_epoch else (-1, -1)
        return (entries[later - 1][0] if later else leader_epoch, later)


@dataclass
class Broker:
    broker_id: int
    log: ListLog = field(default_factory=ListLog)
    machine: ReplicaMachine = field(init=False)
    gate: ControlGate = field(init=False)
    alive: bool = False
    #: As the quorum has it.
    generation: BrokerGeneration = NO_GENERATION
    registered: bool = False
    checkpoint: int = 0

    def begin(self, checkpoint: int, state: PartitionStateRecord | None) -> None:
        """Start the process."""
        self.alive = True
        self.machine, self.gate = ReplicaMachine(self.broker_id, 1), ControlGate()
        opened = Opened(checkpoint) if state is None else Opened(checkpoint, state.leader_epoch)
        self.step(opened, 0)

    def register(self) -> None:
        self.generation = BrokerGeneration(self.generation + 1)
        self.registered = True
        if self.gate.begin(self.generation):
            self.step(SessionLost(self.generation), 0)

    def step(self, happened: ReplicaInput, now_ms: int) -> list[ReplicaEffect]:
        return self.machine.step(happened, self.log, now_ms)


class Write(NamedTuple):
    """A change of the ISR that has not reached the quorum yet."""

    broker: Broker
    #: Of the process that wants it.
    machine: ReplicaMachine
    asked: WriteIsr


class Partition(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.brokers = {broker_id: Broker(broker_id) for broker_id in REPLICAS}
        self.state: PartitionStateRecord
        self.version = PartitionVersion(0)
        #: {offset: entry} of what a replica has shown as committed
        self.committed: dict[int, Entry] = {}
        self.now_ms = 0
        self.values = 0
        #: Every request that the controller has made: (its receiver, the generation it is for, its content).
        self.requests: list[tuple[Broker, LeaderAndIsr]] = []
        self.writes: list[Write] = []

    @initialize(live=strategies.sampled_from([(1,), (1, 2), (1, 3), REPLICAS]))
    def begin(self, live: tuple[int, ...]) -> None:
        first = first_state(Situation(CONTROLLER[1], live), REPLICAS)
        assert first is not None
        self.state = first
        for broker in self.brokers.values():
            broker.begin(0, None)
            broker.register()
        self.send(REPLICAS)

    # -- the controller --------------------------------------------------------------------------------------

    def decide(self, live: set[int], *, is_told: bool = True) -> None:
        known = KnownState(self.state, self.version, None)
        state = next_state(Situation(CONTROLLER[1], live), KEY, REPLICAS, known, is_told=is_told)
        if state is not None:
            self.state, self.version = state, PartitionVersion(self.version + 1)

    def send(self, reached: tuple[int, ...]) -> None:
        """Make a LeaderAndIsr for every registered broker; those that are reached get it at once."""
        for broker in self.brokers.values():
            if broker.registered:
                decision = LeaderAndIsr(broker.generation, None, self.state, self.version, REPLICAS)
                self.requests.append((broker, decision))
                if broker.broker_id in reached:
                    self.deliver(broker, decision)

    def registered(self) -> set[int]:
        return {broker.broker_id for broker in self.brokers.values() if broker.registered}

    @rule(
        lost=strategies.sets(replicas, max_size=2),
        reached=strategies.sets(replicas, min_size=1),
        is_told=strategies.booleans(),
    )
    def elect(self, lost: set[int], reached: set[int], is_told: bool) -> None:
        """Sessions end, of the dead and of the slow ones, which go on; the controller decides."""
        for broker in self.brokers.values():
            broker.registered &= broker.alive and broker.broker_id not in lost
        self.decide(self.registered(), is_told=is_told)
        self.send(tuple(reached))

    @precondition(lambda self: self.requests)
    @rule(index=strategies.integers(0, 20))
    def request_arrives(self, index: int) -> None:
        """One of the last requests, late or once more."""
        self.deliver(*self.requests[-1 - index % len(self.requests)])

    def deliver(self, broker: Broker, decision: LeaderAndIsr) -> None:
        if not broker.alive:
            return
        if broker.gate.judge(decision.generation, CONTROLLER[1]) is not ErrorCode.NONE:
            return
        if broker.gate.take(decision.generation, *CONTROLLER):
            broker.step(SessionLost(decision.generation), self.now_ms)
        known = broker.machine.high_watermark
        broker.step(decision, self.now_ms)
        assert broker.machine.high_watermark >= min(known, broker.log.log_end_offset)

    @rule(broker_id=replicas)
    def come_back(self, broker_id: int) -> None:
        """A process learns that its session is over, and registers again."""
        broker = self.brokers[broker_id]
        if broker.alive and not broker.registered:
            broker.step(SessionLost(), self.now_ms)
            self.register(broker)

    def register(self, broker: Broker) -> None:
        """The controller takes a bounce for a failure and a start: no life leads by another's decision."""
        self.decide(self.registered() - {broker.broker_id})
        broker.register()
        self.decide(self.registered())
        self.send((broker.broker_id,))

    # -- producers and followers -----------------------------------------------------------------------------

    @rule(broker_id=replicas, count=strategies.integers(1, 3))
    def produce(self, broker_id: int, count: int) -> None:
        broker = self.brokers[broker_id]
        if not broker.alive or broker.machine.may_append(acks_all=True) is not ErrorCode.NONE:
            return
        for _ in range(count):
            self.values += 1
            broker.log.entries.append((broker.machine.leader_epoch, self.values))
        broker.step(LogGrew(), self.now_ms)

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
        role = follower.machine.follower
        if not follower.alive or role is None or not self.brokers[role.leader].alive:
            return
        source = self.brokers[role.leader]
        log = follower.log
        position = FetchPosition(log.log_end_offset, 1, role.leader_epoch, log.latest_epoch, 0)
        *effects, said = source.step(
            FollowerFetch(broker_id, follower.gate.generation, position), self.now_ms
        )
        self.note_writes(source, effects)
        high_watermark = source.machine.high_watermark
        if not answered or not isinstance(said, ReadUpTo | Diverge):
            return
        taken = source.log.entries[position.offset : position.offset + limit]
        diverging = (said.leader_epoch, said.end_offset) if isinstance(said, Diverge) else None
        answer = LeaderAnswer(
            role.leader_epoch,
            position.offset,
            ErrorCode.NONE,
            high_watermark,
            0,
            diverging,
            has_records=bool(taken) and diverging is None,
        )
        for effect in follower.step(answer, self.now_ms):
            if isinstance(effect, TakeRecords):
                log.entries += taken
                follower.step(Copied(high_watermark, 0), self.now_ms)
            elif isinstance(effect, TruncateTo):
                self.truncate(follower, effect)

    def truncate(self, follower: Broker, cut: TruncateTo) -> None:
        assert cut.offset < follower.log.log_end_offset  # each answer brings it nearer
        known = follower.machine.high_watermark
        del follower.log.entries[cut.offset :]
        follower.step(Truncated(), self.now_ms)
        assert follower.machine.high_watermark == known  # only an unclean election takes committed records

    # -- the ISR ---------------------------------------------------------------------------------------------

    def note_writes(self, broker: Broker, effects: list[ReplicaEffect]) -> None:
        self.writes += [Write(broker, broker.machine, each) for each in effects if isinstance(each, WriteIsr)]

    @rule(broker_id=replicas)
    def shrink(self, broker_id: int) -> None:
        """Followers that lack something have lacked it for too long."""
        self.now_ms += 2000
        broker = self.brokers[broker_id]
        if broker.alive:
            self.note_writes(broker, broker.step(LagTick(LAG_MAX_MS), self.now_ms))

    @precondition(lambda self: self.writes)
    @rule(index=strategies.integers(0, 5), reply_lost=strategies.booleans())
    def write_arrives(self, index: int, reply_lost: bool) -> None:
        """A compare-and-set reaches the quorum; without its reply the leader reads the state again."""
        broker, machine, asked = self.writes.pop(index % len(self.writes))
        change, version = asked.proposal, self.version
        may_join = all(self.may_join(*each) for each in change.joining.items())
        written = version == change.partition_version and may_join
        if written:
            self.state, self.version = change.state, PartitionVersion(version + 1)
        if not broker.alive or broker.machine is not machine:
            return
        if written and not reply_lost:
            outcome: ReplicaInput = IsrWritten(asked.number, self.version)
        elif not may_join and version == change.partition_version:
            outcome = IsrRefused(asked.number)
        else:
            outcome = IsrFound(asked.number, self.state, self.version)
        self.note_writes(broker, broker.step(outcome, self.now_ms))

    def may_join(self, broker_id: int, generation: BrokerGeneration) -> bool:
        joining = self.brokers[broker_id]
        registered = joining.generation if joining.registered else -1
        return fences.may_join(generation, joining.generation, registered)

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
            del broker.log.entries[kept:]
            checkpoint = min(checkpoint, kept)
        broker.registered = False
        broker.begin(min(checkpoint, broker.machine.high_watermark), self.state)
        self.register(broker)

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def committed_records_are_never_lost(self) -> None:
        for broker in self.brokers.values():
            role, entries = broker.machine.role, broker.log.entries
            if isinstance(role, LeaderState):
                role.check_invariants(len(entries))
            if broker.alive:
                for offset in range(role.high_watermark):
                    assert self.committed.setdefault(offset, entries[offset]) == entries[offset]
        for member in self.state.isr:
            entries = self.brokers[member].log.entries
            for offset, entry in self.committed.items():
                assert offset < len(entries), f"replica {member} of the ISR lacks committed offset {offset}"
                assert entries[offset] == entry

    @invariant()
    def high_watermark_is_within_the_isr(self) -> None:
        leader = self.brokers[self.state.leader] if self.state.leader != NO_LEADER else None
        role = None if leader is None else leader.machine.leader
        if role is not None and role.leader_epoch == self.state.leader_epoch:
            ends = [self.brokers[member].log.log_end_offset for member in self.state.isr]
            assert role.high_watermark <= min(ends)

    @invariant()
    def one_leads_in_an_epoch(self) -> None:
        leaders = [broker.machine.leader for broker in self.brokers.values() if broker.alive]
        epochs = [leader.leader_epoch for leader in leaders if leader is not None]
        assert len(set(epochs)) == len(epochs)


TestPartition = Partition.TestCase
TestPartition.settings = settings(max_examples=400, stateful_step_count=50, deadline=None)
