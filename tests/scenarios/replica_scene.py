"""Replicas in transcripts: the machines of one partition on several brokers, with logs, a quorum and a clock.

The transcript is the controller, the network and the quorum: a decision is heard, a fetch is asked and
answered, and a change of the ISR is judged when it says so. Broker N registers first with generation N0;
another life of it has the next number. The lines say what a replica is, whenever that changes, and what it
wants done, but for wake-ups.
"""

from __future__ import annotations

import uuid
from typing import NamedTuple

from broker.core import fences
from broker.core import replica_effects as effects
from broker.core import replica_inputs as inputs
from broker.core.control_gate import ControlGate
from broker.core.fetched import FetchPosition
from broker.core.partition import FollowerState, LeaderState, ProposeIsr
from broker.core.replica import ReplicaMachine
from broker.log.epochs import LeaderEpochs
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.records import NO_LEADER, RECOVERED, RECOVERING, PartitionStateRecord
from tests.scenarios.transcript import Lines, Scene, TranscriptError, command

LAG_MAX_MS = 30_000
TOPIC_ID = uuid.UUID(int=1)


class _Record(NamedTuple):
    leader_epoch: int
    value: str


class _Log:
    """One replica's log, from offset 0."""

    log_start_offset = 0

    def __init__(self, topic_id: uuid.UUID) -> None:
        self.topic_id = topic_id
        self.records: list[_Record] = []
        self._epochs = LeaderEpochs()

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def latest_epoch(self) -> int:
        return self._epochs.latest

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """No transaction is here."""
        return high_watermark

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        return self._epochs.end_offset_for(leader_epoch, self.log_end_offset)

    def append(self, record: _Record) -> None:
        self._epochs.assign(record.leader_epoch, self.log_end_offset)
        self.records.append(record)

    def truncate(self, end_offset: int) -> None:
        del self.records[end_offset:]
        self._epochs.truncate_to(end_offset)

    def __str__(self) -> str:
        rows = [f"{offset}:e{epoch} {value}" for offset, (epoch, value) in enumerate(self.records)]
        return ", ".join(rows) or "empty"


class _Broker:
    """A broker with one replica."""

    def __init__(self, broker_id: int, min_isr: int, topic_id: uuid.UUID) -> None:
        self.broker_id = broker_id
        self.gate = ControlGate()
        self.generation = BrokerGeneration(10 * broker_id)
        self.log = _Log(topic_id)
        self.machine = ReplicaMachine(broker_id, min_isr)
        self.waiting: list[tuple[int, str]] = []  #: (end, value) of produces that wait for the high watermark
        self.change: tuple[int, ProposeIsr] | None = None  #: on its way to the quorum
        self.answer: tuple[inputs.LeaderAnswer, list[_Record]] | None = None  #: on its way from the leader
        self.shown = ""


class _Decision(NamedTuple):
    state: PartitionStateRecord
    version: int
    topic_id: uuid.UUID


class ReplicaScene(Scene):
    """The replicas of one partition."""

    def __init__(self) -> None:
        self.brokers: dict[int, _Broker] = {}
        self.min_isr = 1
        self.now_ms = 0
        self.controller_epoch = ControllerEpoch(1)
        self.version = -1
        self.state = PartitionStateRecord(self.controller_epoch, NO_LEADER, LeaderEpoch(-1), ())
        self.decisions: dict[int, _Decision] = {}  #: {leader epoch: what the controller wrote}
        self.topic_id = TOPIC_ID
        self.lines: list[str] = []

    @command("brokers {brokers:ints}, min isr {min_isr:int}")
    def begin(self, brokers: tuple[int, ...], min_isr: int) -> Lines:
        self.min_isr = min_isr
        for broker_id in brokers:
            self.brokers[broker_id] = _Broker(broker_id, min_isr, self.topic_id)
            self._open(self.brokers[broker_id], 0)
        self.lines.clear()
        return ()

    # --- the controller

    @command("the controller elects {leader:int}, isr {isr:ints}")
    def elect(self, leader: int, isr: tuple[int, ...]) -> Lines:
        return self._decide(leader, isr, RECOVERED)

    @command("the controller elects nobody, isr {isr:ints}")
    def elect_nobody(self, isr: tuple[int, ...]) -> Lines:
        return self._decide(NO_LEADER, isr, RECOVERED)

    @command("the controller elects {leader:int} uncleanly")
    def elect_uncleanly(self, leader: int) -> Lines:
        return self._decide(leader, (leader,), RECOVERING)

    def _decide(self, leader: int, isr: tuple[int, ...], recovery: int) -> Lines:
        epoch = LeaderEpoch(self.state.leader_epoch + 1)
        self._write(PartitionStateRecord(self.controller_epoch, leader, epoch, isr, recovery))
        self.decisions[epoch] = _Decision(self.state, self.version, self.topic_id)
        return self._take()

    def _write(self, state: PartitionStateRecord) -> None:
        self.state, self.version = state, self.version + 1
        self.lines.append(f"quorum: {_state(state)}, version {self.version}")

    @command("another controller is elected")
    def elect_controller(self) -> Lines:
        self.controller_epoch = ControllerEpoch(self.controller_epoch + 1)
        return [f"controller epoch {self.controller_epoch}"]

    @command("the topic is deleted and created again")
    def create_again(self) -> Lines:
        self.topic_id = uuid.UUID(int=self.topic_id.int + 1)
        self.version = -1
        self.state = PartitionStateRecord(self.controller_epoch, NO_LEADER, LeaderEpoch(-1), ())
        self.decisions.clear()
        return ()

    @command("{broker:int} hears of epoch {epoch:int}")
    def hear(self, broker: int, epoch: int) -> Lines:
        return self.hear_for(broker, epoch, self.brokers[broker].generation)

    @command("{broker:int} hears of epoch {epoch:int} for generation {generation:int}")
    def hear_for(self, broker: int, epoch: int, generation: int) -> Lines:
        """Let a LeaderAndIsr arrive, also an old one again."""
        each, decision = self.brokers[broker], self.decisions[epoch]
        controller_epoch = decision.state.controller_epoch
        code = each.gate.judge(BrokerGeneration(generation), controller_epoch)
        if code is not ErrorCode.NONE:
            return [f"{broker} refuses the request: {code.name}"]
        if each.gate.take(BrokerGeneration(generation), 1, controller_epoch):
            self._step(each, inputs.SessionLost(each.gate.generation))
        self._decided(each, decision)
        return self._take()

    def _decided(self, each: _Broker, decision: _Decision) -> None:
        heard = inputs.LeaderAndIsr(
            each.gate.generation,
            decision.topic_id,
            decision.state,
            PartitionVersion(decision.version),
            tuple(self.brokers),
        )
        if any(isinstance(wanted, effects.SetAside) for wanted in self._step(each, heard)):
            self.lines.append(f"{each.broker_id} begins a new log")
            each.log = _Log(decision.topic_id)
            self._open(each, 0)
            self._step(each, heard)

    @command("{broker:int} hears that it stops at epoch {epoch:int}")
    def stop(self, broker: int, epoch: int) -> Lines:
        self._step(self.brokers[broker], inputs.StopReplica(epoch))
        return self._take()

    @command("{broker:int} hears that it deletes")
    def delete(self, broker: int) -> Lines:
        each = self.brokers[broker]
        if any(isinstance(wanted, effects.Close) for wanted in self._step(each, inputs.StopReplica(-2))):
            each.log = _Log(self.topic_id)
            self.lines.append(f"{broker} deletes its log")
        return self._take()

    # --- lives

    @command("{broker:int} restarts")
    def restart(self, broker: int) -> Lines:
        """End the process and start another, which reads the state and registers."""
        each = self.brokers[broker]
        return self._restart(each, each.machine.high_watermark)

    @command("{broker:int} restarts with an empty disk")
    def restart_empty(self, broker: int) -> Lines:
        each = self.brokers[broker]
        each.log = _Log(self.topic_id)
        return self._restart(each, 0)

    @command("{broker:int} restarts without its last {count:int} records")
    def restart_shortened(self, broker: int, count: int) -> Lines:
        each = self.brokers[broker]
        each.log.truncate(each.log.log_end_offset - count)
        return self._restart(each, each.machine.high_watermark)

    def _restart(self, each: _Broker, high_watermark: int) -> Lines:
        lost = [value for _, value in each.waiting]
        each.waiting, each.change, each.answer = [], None, None
        self.lines += [f"{each.broker_id} answers {value} no more" for value in lost]
        each.machine = ReplicaMachine(each.broker_id, self.min_isr)
        each.gate = ControlGate()
        each.generation = BrokerGeneration(each.generation + 1)
        self._open(each, high_watermark)
        return self._take()

    def _open(self, each: _Broker, high_watermark: int) -> None:
        each.gate.begin(each.generation)
        self._step(each, inputs.Opened(high_watermark, self.state.leader_epoch))

    @command("{broker:int} loses its session")
    def lose_session(self, broker: int) -> Lines:
        self._step(self.brokers[broker], inputs.SessionLost())
        return self._take()

    @command("{broker:int} registers again")
    def register(self, broker: int) -> Lines:
        each = self.brokers[broker]
        each.generation = BrokerGeneration(each.generation + 1)
        each.gate.begin(each.generation)
        self._step(each, inputs.SessionLost(each.generation))
        self._step(each, inputs.SessionBegun())
        return [f"{broker} has generation {each.generation}", *self._take()]

    # --- producers and consumers

    @command("{broker:int} gets {value} with acks all")
    def produce_all(self, broker: int, value: str) -> Lines:
        return self._produce(broker, value, acks_all=True)

    @command("{broker:int} gets {value} with acks 1")
    def produce_one(self, broker: int, value: str) -> Lines:
        return self._produce(broker, value, acks_all=False)

    def _produce(self, broker: int, value: str, *, acks_all: bool) -> Lines:
        each = self.brokers[broker]
        code, leader = each.machine.may_append(acks_all), each.machine.leader
        if code is not ErrorCode.NONE or leader is None:
            return [f"{broker} answers {value}: {code.name}"]
        each.log.append(_Record(leader.leader_epoch, value))
        if acks_all:
            each.waiting.append((each.log.log_end_offset, value))
        else:
            self.lines.append(f"{broker} answers {value}: NONE")
        self._step(each, inputs.LogGrew())
        return self._take()

    @command("a consumer reads {broker:int} from {offset:int}")
    def consume(self, broker: int, offset: int) -> Lines:
        each = self.brokers[broker]
        answer = self._step(each, inputs.ConsumerFetch(FetchPosition(offset, 1)))[-1]
        if isinstance(answer, effects.ReadUpTo):
            values = [value for _, value in each.log.records[offset : answer.offset]]
            self.lines.append(f"a consumer gets {' '.join(values) or 'nothing'}")
        return self._take()

    # --- copying

    @command("{follower:int} fetches from {leader:int}")
    def fetch(self, follower: int, leader: int) -> Lines:
        """Ask and take the answer at once."""
        self._ask(follower, leader)
        self._hear(follower)
        return self._take()

    @command("{follower:int} asks {leader:int}")
    def ask(self, follower: int, leader: int) -> Lines:
        """Ask; the answer is on its way."""
        self._ask(follower, leader)
        return self._take()

    @command(
        "a fetch of {follower:int} from generation {generation:int} at {offset:int} reaches {leader:int} late"
    )
    def ask_late(self, follower: int, generation: int, offset: int, leader: int) -> Lines:
        """Its answer reaches no process."""
        led = self.brokers[leader]
        log = led.log
        asked = FetchPosition(offset, 1, led.machine.leader_epoch, log.latest_epoch, 0, log.topic_id)
        self._step(led, inputs.FollowerFetch(follower, BrokerGeneration(generation), asked))
        return self._take()

    @command("{follower:int} takes the answer")
    def hear_leader(self, follower: int) -> Lines:
        self._hear(follower)
        return self._take()

    def _ask(self, follower: int, leader: int) -> None:
        each, led = self.brokers[follower], self.brokers[leader]
        log, epoch = each.log, each.machine.leader_epoch
        asked = FetchPosition(log.log_end_offset, 1, epoch, log.latest_epoch, 0, log.topic_id)
        wanted = self._step(led, inputs.FollowerFetch(follower, each.generation, asked))[-1]
        code, diverging, records = ErrorCode.NONE, None, []
        match wanted:
            case effects.ReadUpTo(end):
                records = led.log.records[asked.offset : end]
            case effects.Diverge(diverging_epoch, end):
                diverging = (int(diverging_epoch), end)
            case effects.RefuseWith(code):
                pass
        answer = inputs.LeaderAnswer(
            epoch, asked.offset, code, led.machine.high_watermark, 0, diverging, bool(records)
        )
        each.answer = (answer, records)

    def _hear(self, follower: int) -> None:
        each = self.brokers[follower]
        if each.answer is None:
            raise TranscriptError(f"no answer is on its way to {follower}")
        answer, records = each.answer
        before = each.log.log_end_offset
        for effect in self._step(each, answer, quiet=True):
            if isinstance(effect, effects.TakeRecords):
                for record in records:
                    each.log.append(record)
                self._step(each, inputs.Copied(answer.high_watermark, 0), quiet=True)
            elif isinstance(effect, effects.TruncateTo | effects.StartAt):
                each.log.truncate(effect.offset)
                self._step(each, inputs.Truncated(), quiet=True)
        each.answer = None
        copied = " ".join(value for _, value in each.log.records[before:])
        if copied:
            self.lines.append(f"{follower} copies {copied}")
        self._show(each)

    # --- the ISR

    @command("the quorum judges the change of {broker:int}")
    def judge(self, broker: int) -> Lines:
        number, written = self._judge(broker)
        each = self.brokers[broker]
        if written is None:
            self._step(each, inputs.IsrRefused(number))
        elif written:
            self._step(each, inputs.IsrWritten(number, PartitionVersion(self.version)))
        else:
            self._find(each, number)
        return self._take()

    @command("the quorum judges the change of {broker:int}, the reply is lost, and it reads the state")
    def judge_without_reply(self, broker: int) -> Lines:
        number, _ = self._judge(broker)
        self._find(self.brokers[broker], number)
        return self._take()

    @command("the change of {broker:int} is lost, and it reads the state")
    def lose_change(self, broker: int) -> Lines:
        number, _ = self._change(broker)
        self._find(self.brokers[broker], number)
        return self._take()

    def _judge(self, broker: int) -> tuple[int, bool | None]:
        """Compare and set; None: a broker that joins has registered since it fetched."""
        number, change = self._change(broker)
        for joining, generation in change.joining.items():
            registered = self.brokers[joining].generation
            if not fences.may_join(generation, registered, registered):
                self.lines.append(f"quorum: refused, {joining} has registered again")
                return number, None
        if change.partition_version != self.version:
            self.lines.append(f"quorum: refused, the version is {self.version}")
            return number, False
        self._write(change.state)
        return number, True

    def _change(self, broker: int) -> tuple[int, ProposeIsr]:
        change, self.brokers[broker].change = self.brokers[broker].change, None
        if change is None:
            raise TranscriptError(f"{broker} has asked for no change")
        return change

    def _find(self, each: _Broker, number: int) -> None:
        self._step(each, inputs.IsrFound(number, self.state, PartitionVersion(self.version)))

    @command("{broker:int} looks for followers that lag")
    def look(self, broker: int) -> Lines:
        self._step(self.brokers[broker], inputs.LagTick(LAG_MAX_MS))
        return self._take()

    @command("{seconds:int} s pass")
    def wait(self, seconds: int) -> Lines:
        self.now_ms += 1000 * seconds
        return ()

    # --- what is shown

    @command("show")
    def show(self) -> Lines:
        return [f"{_role(each)}; log {each.log}" for each in self.brokers.values()]

    def _step(
        self, each: _Broker, happened: inputs.ReplicaInput, *, quiet: bool = False
    ) -> list[effects.ReplicaEffect]:
        wanted = each.machine.step(happened, each.log, self.now_ms)
        for effect in wanted:
            self._effect(each, effect)
        if not quiet:
            self._show(each)
        return wanted

    def _show(self, each: _Broker) -> None:
        """Say what a replica is, if it was something else before."""
        role = _role(each)
        if role != each.shown:
            each.shown = role
            self.lines.append(role)

    def _effect(self, each: _Broker, effect: effects.ReplicaEffect) -> None:
        name = each.broker_id
        match effect:
            case effects.AnswerProduces(up_to, code):
                done = [value for end, value in each.waiting if up_to is None or end <= up_to]
                each.waiting = [row for row in each.waiting if row[1] not in done]
                self.lines += [f"{name} answers {value}: {code.name}" for value in done]
            case effects.WriteIsr(number, change):
                each.change = (number, change)
                isr = " ".join(map(str, change.state.isr))
                self.lines.append(f"{name} asks for isr {isr} at version {change.partition_version}")
            case effects.TruncateTo(offset):
                self.lines.append(f"{name} cuts its log at {offset}")
            case effects.StartAt(offset):
                self.lines.append(f"{name} drops its log and begins at {offset}")
            case effects.Diverge(epoch, end):
                self.lines.append(f"{name} answers that epoch {epoch} ends at {end}")
            case effects.RefuseWith(code):
                self.lines.append(f"{name} refuses: {code.name}")
            case effects.ReadElsewhere(other):
                self.lines.append(f"{name} sends the reader to {other}")
            case effects.Close():
                self.lines.append(f"{name} lets its replica go")
            case effects.SetAside():
                self.lines.append(f"{name} sets its log aside")
            case effects.BackOff():
                self.lines.append(f"{name} pauses its fetches")
            case _:
                # Wake-ups, and what the role's line or the caller says.
                pass

    def _take(self) -> Lines:
        taken, self.lines = self.lines, []
        return taken


def _state(state: PartitionStateRecord) -> str:
    leader = "nobody leads" if state.leader == NO_LEADER else f"{state.leader} leads"
    unclean = ", recovering" if state.leader_recovery_state == RECOVERING else ""
    return f"{leader} epoch {state.leader_epoch}, isr {' '.join(map(str, state.isr))}{unclean}"


def _role(each: _Broker) -> str:
    role = each.machine.role
    mark = f"high watermark {role.high_watermark}"
    match role:
        case LeaderState():
            pending = role.pending
            gating = f", isr {' '.join(map(str, pending.state.isr))} asked for" if pending else ""
            isr = " ".join(map(str, role.isr))
            return f"{each.broker_id} leads epoch {role.leader_epoch}, isr {isr}{gating}, {mark}"
        case FollowerState():
            return f"{each.broker_id} follows {role.leader} in epoch {role.leader_epoch}, {mark}"
    return f"{each.broker_id} idles in epoch {role.leader_epoch}, {mark}"
