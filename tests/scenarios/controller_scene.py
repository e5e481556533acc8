"""The controller in transcripts: its machine over a tree of znodes, with brokers that answer.

A command happens, then everything that follows from it. Reads are not shown. Writes are done at once unless
``writes wait`` was said; control requests are answered unless a broker is silent: with 77 by another life of
the broker, with 11 by one that knows a later controller. A request that several brokers get is one line, at
the end. Of several controllers each has its own machine; one that is paused hears nothing until it wakes up.
"""

from __future__ import annotations

import uuid
from collections import Counter, deque
from dataclasses import dataclass, field, replace

from controller.core.effects import (
    Answer,
    CloseChannel,
    Effect,
    GiveWay,
    OpenChannel,
    ReadChildren,
    ReadNodes,
    Resign,
    Send,
    Trace,
    Write,
)
from controller.core.inputs import (
    Answered,
    ChildrenRead,
    Continued,
    DeleteTopics,
    Done,
    Elected,
    ElectLeaders,
    Ended,
    Input,
    MultiDone,
    NodesRead,
    PathsChanged,
    ReadFailed,
    Reassign,
    Reconnected,
    Rejected,
    Request,
    Requested,
    ShutDown,
    Tick,
    Unknown,
)
from controller.core.machine import ControllerMachine
from controller.core.options import ControllerOptions, Counters
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.admin_requests import ReassignmentRecord
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    BrokerRecord,
    ControllerRecord,
    LogEnd,
    PartitionStateRecord,
    TopicConfigRecord,
    TopicRecord,
    topic_label,
)
from quorum.metadata.topic_settings import TopicSettings
from tests.scenarios import controller_lines
from tests.scenarios.controller_lines import key_of
from tests.scenarios.transcript import Lines, Scene, TranscriptError, command
from tests.support.stepped_controller import SteppedTree

STEPS_MAX = 10_000


@dataclass(slots=True)
class _Office:
    """One term of one broker."""

    elected: Elected
    machine: ControllerMachine
    is_paused: bool = False
    is_cut_off: bool = False
    inbox: deque[Input] = field(default_factory=deque)


class ControllerScene(Scene):
    """A quorum, brokers, and the controllers that they elect."""

    def __init__(self) -> None:
        self.tree = SteppedTree()
        self.tree.nodes[paths.CONTROLLER_EPOCH] = self.tree.nodes["/"]
        self.tree.changed.clear()
        self.now_ms = 1_000
        self.controller_epoch = 0
        self.offices: list[_Office] = []
        self.waits = False
        self.held: deque[tuple[_Office, Write]] = deque()
        self.silent: set[int] = set()
        self.unanswered: dict[int, list[tuple[_Office, Send]]] = {}  #: {silent broker: requests}
        self.known_epochs: dict[int, int] = {}  #: {broker: the highest controller epoch that it has heard of}
        self.disks: dict[int, int] = {}
        self.requests = 0
        self.spoilt: dict[str, bytes] = {}
        self.overwritten = False
        self.lines: list[str] = []

    # --- brokers

    @command("brokers {brokers:ints}")
    def register_all(self, brokers: tuple[int, ...]) -> Lines:
        for broker in brokers:
            self._register(broker)
        return self._settle()

    @command("brokers {brokers:ints}; broker {controller:int} is the controller")
    def begin(self, brokers: tuple[int, ...], controller: int) -> Lines:
        """All is quiet."""
        self.register_all(brokers)
        self.become_controller(controller)
        return ()

    @command(
        "brokers {brokers:ints}; broker {controller:int} is the controller; topic t is on {replicas:ints}"
    )
    def begin_with_topic(self, brokers: tuple[int, ...], controller: int, replicas: tuple[int, ...]) -> Lines:
        """All is quiet."""
        self.begin(brokers, controller)
        self.create("t", replicas)
        return self.show()

    @command("broker {broker:int} registers")
    def register(self, broker: int) -> Lines:
        """Its first life or another one, also where the former one was not seen to end."""
        self._register(broker)
        return self._settle()

    @command("broker {broker:int} registers with an empty disk")
    def register_empty(self, broker: int) -> Lines:
        self.disks[broker] = self.disks.get(broker, 0) + 1
        self._register(broker)
        return self._settle()

    @command("broker {broker:int} registers, its log of {key} ends at {offset:int} of epoch {epoch:int}")
    def register_shortened(self, broker: int, key: str, offset: int, epoch: int) -> Lines:
        found = key_of(key)
        record = TopicRecord.decode(found.topic, self._value(paths.topic_path(found.topic)))
        label = topic_label(found.topic, record.topic_id)
        self._register(broker, {label: {found.partition: LogEnd(epoch, offset)}})
        return self._settle()

    def _register(self, broker: int, shortened: dict[str, dict[int, LogEnd]] | None = None) -> None:
        path = paths.broker_id_path(broker)
        self.tree.nodes.pop(path, None)
        record = BrokerRecord(
            None,
            -1,
            (f"BROKER://127.0.0.1:{9_000 + broker}",),
            {"BROKER": "SASL_PLAINTEXT"},
            0,
            incarnation=uuid.UUID(int=100 * self.disks.get(broker, 0) + broker).hex,
            shortened=shortened or {},
        )
        self.tree.put(path, record.encode(), owner=100 + broker)
        self.known_epochs.pop(broker, None)
        self.lines.append(f"broker {broker} has generation {self._generation(broker)}")

    @command("broker {broker:int} dies")
    def die(self, broker: int) -> Lines:
        self.tree.remove(paths.broker_id_path(broker))
        return self._settle()

    @command("brokers {brokers:ints} die at once")
    def die_at_once(self, brokers: tuple[int, ...]) -> Lines:
        for broker in brokers:
            self.tree.remove(paths.broker_id_path(broker))
        return self._settle()

    @command("broker {broker:int} is silent")
    def fall_silent(self, broker: int) -> Lines:
        self.silent.add(broker)
        return ()

    @command("broker {broker:int} answers")
    def answer(self, broker: int) -> Lines:
        """All that it was asked, in order."""
        self.silent.discard(broker)
        for office, send in self.unanswered.pop(broker):
            self._answer_send(office, send)
        return self._settle()

    @command("broker {broker:int} answers the controller of epoch {epoch:int}")
    def answer_controller(self, broker: int, epoch: int) -> Lines:
        waiting = self.unanswered[broker]
        (found,) = [each for each in waiting if each[0].elected.controller_epoch == epoch]
        waiting.remove(found)
        self._answer_send(*found)
        return self._settle()

    def _generation(self, broker: int) -> BrokerGeneration | None:
        node = self.tree.nodes.get(paths.broker_id_path(broker))
        return None if node is None else BrokerGeneration(node.czxid)

    def _value(self, path: str) -> bytes:
        data = self.tree.nodes[path].data
        assert data is not None
        return data

    # --- topics

    @command("topic {topic} has partition 0 on {replicas:ints}")
    def create(self, topic: str, replicas: tuple[int, ...]) -> Lines:
        """By its znode, as an administrator makes it."""
        topic_id = uuid.UUID(int=self.tree.zxid)
        self.tree.put(paths.topic_path(topic), TopicRecord(topic_id, {0: replicas}).encode())
        return self._settle()

    @command("topic {topic} is removed and created again on {replicas:ints}, unnoticed")
    def create_again(self, topic: str, replicas: tuple[int, ...]) -> Lines:
        """By an operator's hand, between two looks of the controller."""
        for path in [
            path for path in self.tree.nodes if f"{path}/".startswith(f"{paths.topic_path(topic)}/")
        ]:
            del self.tree.nodes[path]
        return self.create(topic, replicas)

    @command("the record of topic {topic} is spoilt")
    def spoil(self, topic: str) -> Lines:
        self.spoilt[topic] = self._value(paths.topic_path(topic))
        self.tree.put(paths.topic_path(topic), b"no json")
        return self._settle()

    @command("the record of topic {topic} is mended")
    def mend(self, topic: str) -> Lines:
        self.tree.put(paths.topic_path(topic), self.spoilt[topic])
        return self._settle()

    @command("topic {topic} allows unclean elections")
    def allow_unclean(self, topic: str) -> Lines:
        record = TopicConfigRecord({"unclean.leader.election.enable": "true"})
        self.tree.put(paths.config_topic_path(topic), record.encode())
        return self._settle()

    @command("the leader of {key} changes its isr to {isr:ints}")
    def change_isr(self, key: str, isr: tuple[int, ...]) -> Lines:
        """A leader's own compare-and-set, of which the controller hears by its watch."""
        path = paths.partition_state_path(key_of(key))
        found = PartitionStateRecord.decode(key_of(key), self._value(path))
        self.tree.put(path, replace(found, isr=isr, shortened={}).encode())
        return self._settle()

    # --- requests

    @command("a client deletes topic {topic}")
    def delete(self, topic: str) -> Lines:
        return self._ask(DeleteTopics((topic,)))

    @command("a client moves {key} to {replicas:ints}")
    def move(self, key: str, replicas: tuple[int, ...]) -> Lines:
        return self._ask(Reassign({key_of(key): replicas}))

    @command("an operator writes the move of {key} to {replicas:ints} into the quorum")
    def write_move(self, key: str, replicas: tuple[int, ...]) -> Lines:
        self.tree.put(paths.REASSIGN_PARTITIONS, ReassignmentRecord({key_of(key): replicas}).encode())
        return self._settle()

    @command("a client cancels the move of {key}")
    def cancel(self, key: str) -> Lines:
        return self._ask(Reassign({key_of(key): None}))

    @command("a client moves {key} to {replicas:ints} and cancels the move of {other}")
    def move_and_cancel(self, key: str, replicas: tuple[int, ...], other: str) -> Lines:
        return self._ask(Reassign({key_of(key): replicas, key_of(other): None}))

    @command("a client elects the preferred leader of {key}")
    def elect_preferred(self, key: str) -> Lines:
        return self._ask(ElectLeaders((key_of(key),), unclean=False))

    @command("a client elects a leader of {key} uncleanly")
    def elect_uncleanly(self, key: str) -> Lines:
        return self._ask(ElectLeaders((key_of(key),), unclean=True))

    @command("broker {broker:int} asks to shut down")
    def shut_down(self, broker: int) -> Lines:
        generation = self._generation(broker)
        assert generation is not None
        return self._ask(ShutDown(broker, generation))

    @command("generation {generation:int} of broker {broker:int} asks to shut down")
    def shut_down_late(self, generation: int, broker: int) -> Lines:
        return self._ask(ShutDown(broker, BrokerGeneration(generation)))

    def _ask(self, request: Request) -> Lines:
        self.requests += 1
        (office,) = [each for each in self.offices if not each.is_paused]
        office.inbox.append(Requested(self.requests, request))
        return self._settle()

    # --- controllers

    @command("broker {broker:int} becomes the controller")
    def become_controller(self, broker: int) -> Lines:
        """Create /controller and raise the epoch, in one multi as the election does."""
        self.controller_epoch += 1
        session_id = 100 * self.controller_epoch + broker
        if paths.CONTROLLER in self.tree.nodes:
            self.tree.remove(paths.CONTROLLER)
        self.tree.put(paths.CONTROLLER_EPOCH, str(self.controller_epoch).encode())
        self.tree.put(paths.CONTROLLER, ControllerRecord(broker, 0).encode(), owner=session_id)
        self._spread()
        version = self.tree.nodes[paths.CONTROLLER_EPOCH].version
        elected = Elected(broker, ControllerEpoch(self.controller_epoch), version, seed=7)
        machine = ControllerMachine(
            elected,
            options=ControllerOptions(),
            default_settings=TopicSettings(),
            counters=Counters(),
            check_signed=lambda _path, _data, _owner: None,
        )
        self.offices.append(_Office(elected, machine, inbox=deque([elected])))
        self.lines.append(f"controller epoch {self.controller_epoch}")
        return self._settle()

    @command("the controller is killed")
    def kill_controller(self) -> Lines:
        self.offices.pop()
        self.held.clear()
        self.unanswered.clear()
        self.waits = False
        self.tree.remove(paths.CONTROLLER)
        return self._settle()

    @command("the write is done and the controller is killed")
    def kill_controller_after_write(self) -> Lines:
        """Before it hears of that."""
        _, write = self._next_write()
        self.tree.multi(write.operations)
        return self.kill_controller()

    @command("the controller is paused")
    def pause(self) -> Lines:
        """What it has sent is on its way; its inputs wait."""
        self.offices[-1].is_paused = True
        self.waits = False
        return ()

    @command("the paused controller wakes up")
    def wake(self) -> Lines:
        for office in self.offices:
            office.is_paused = False
        return self._settle()

    @command("the paused controller wakes up in the middle of a write")
    def wake_in_write(self) -> Lines:
        """What it had sent to the quorum before arrives first."""
        office, write = self.held.popleft()
        office.is_paused = False
        self._finish(office, write, MultiDone(write.id, self.tree.multi(write.operations)), first=True)
        return self._settle()

    @command("an operator overwrites /controller")
    def overwrite(self) -> Lines:
        self.tree.put(paths.CONTROLLER, b"{}")
        self.overwritten = True
        return self._settle()

    @command("the controller's connection to the quorum breaks")
    def cut_off(self) -> Lines:
        """Its session goes on; no event comes, and no read is answered."""
        self.offices[-1].is_cut_off = True
        return ()

    @command("the controller's connection to the quorum comes back")
    def reconnect(self) -> Lines:
        office = self.offices[-1]
        office.is_cut_off = False
        office.inbox.append(Reconnected())
        return self._settle()

    # --- writes and time

    @command("writes wait")
    def hold(self) -> Lines:
        self.waits = True
        return ()

    @command("the write is done")
    def do_write(self) -> Lines:
        office, write = self._next_write()
        self._finish(office, write, MultiDone(write.id, self.tree.multi(write.operations)))
        return self._settle()

    @command("the write is done and its reply is lost")
    def do_write_without_reply(self) -> Lines:
        office, write = self._next_write()
        self.tree.multi(write.operations)
        self._finish(office, write, MultiDone(write.id, Unknown("the connection broke")))
        return self._settle()

    @command("the write is lost")
    def lose_write(self) -> Lines:
        office, write = self._next_write()
        self._finish(office, write, MultiDone(write.id, Unknown("the connection broke")))
        return self._settle()

    def _next_write(self) -> tuple[_Office, Write]:
        """Take the oldest write that waits; those after it are done at once."""
        self.waits = False
        if not self.held:
            raise TranscriptError("no write waits")
        return self.held.popleft()

    def _finish(self, office: _Office, write: Write, done: MultiDone, *, first: bool = False) -> None:
        """Let the outcome of a write arrive, after the events that it causes."""
        self._spread()
        if first:
            office.inbox.appendleft(done)
        else:
            office.inbox.append(done)
        match done.outcome:
            case Done():
                pass
            case Rejected(index, why):
                problem = controller_lines.operations(write.operations[index : index + 1]) or ["its fence"]
                self.lines.append(f"quorum: refused, {why.value} of {problem[0]}")
            case Unknown(problem_text):
                self.lines.append(f"quorum: unknown, {problem_text}")

    @command("{ms:int} ms pass")
    def wait(self, ms: int) -> Lines:
        self.now_ms += ms
        for office in self.offices:
            office.inbox.append(Tick())
        return self._settle()

    @command("show")
    def show(self) -> Lines:
        for path in sorted(self.tree.nodes):
            name = path.removeprefix(f"{paths.BROKER_TOPICS}/")
            if path.startswith(f"{paths.BROKER_TOPICS}/") and "/" not in name:
                yield from self._show_topic(name, self._value(path))

    def _show_topic(self, topic: str, value: bytes) -> Lines:
        record = TopicRecord.decode(topic, value)
        yield f"{topic}: {controller_lines.topic(record)}"
        for partition in record.partitions:
            key = PartitionKey(topic, partition)
            node = self.tree.nodes.get(paths.partition_state_path(key))
            if node is not None and node.data is not None:
                found = controller_lines.state(PartitionStateRecord.decode(key, node.data))
                yield f"{controller_lines.name_of(key)}: {found}, version {node.version}"

    # --- what follows

    def _settle(self) -> Lines:
        """Step every controller that is awake until nothing is left to do."""
        self._spread()
        sends: dict[str, list[int]] = {}
        places: dict[str, int] = {}  #: {request: its place among those of one broker}
        counts: dict[int, int] = {}
        for _ in range(STEPS_MAX):
            office = next((each for each in self.offices if each.inbox and not each.is_paused), None)
            if office is None:
                break
            for effect in office.machine.step(office.inbox.popleft(), self.now_ms):
                if isinstance(effect, Send):
                    text = self._said(office, controller_lines.request(office.machine.model, effect.batch))
                    sends.setdefault(text, []).append(effect.broker_id)
                    counts[effect.broker_id] = counts.get(effect.broker_id, 0) + 1
                    places[text] = max(places.get(text, 0), counts[effect.broker_id])
                    if effect.broker_id in self.silent:
                        self.unanswered.setdefault(effect.broker_id, []).append((office, effect))
                    else:
                        self._answer_send(office, effect)
                else:
                    self._carry_out(office, effect)
        else:
            raise TranscriptError("the controller never rests")
        for office in [each for each in self.offices if each.machine.is_over]:
            self.offices.remove(office)
        lines, self.lines = self.lines, []
        requests = sorted(sends, key=places.__getitem__)
        return [*lines, *(f"to {_receivers(sends[each])}: {each}" for each in requests)]

    def _spread(self) -> None:
        """Let every controller hear what has changed."""
        changed = self.tree.taken_changes()
        for office in self.offices:
            if changed and not office.is_cut_off:
                office.inbox.append(PathsChanged(changed))
        if self.overwritten:
            # The candidate looks at the node that it won.
            self.offices[-1].inbox.append(Ended("/controller was deleted or overwritten", is_fenced=False))
            self.overwritten = False

    def _said(self, office: _Office, line: str) -> str:
        """Say which controller it was, where there are several."""
        several = len(self.offices) > 1
        return f"{line} (controller epoch {office.elected.controller_epoch})" if several else line

    def _carry_out(self, office: _Office, effect: Effect) -> None:
        tree, inbox = self.tree, office.inbox
        match effect:
            case ReadNodes(number) | ReadChildren(number) if office.is_cut_off:
                inbox.append(ReadFailed(number, "the connection broke"))
            case ReadNodes(number, wanted):
                inbox.append(NodesRead(number, tuple(tree.nodes.get(path) for path in wanted)))
            case ReadChildren(number, path):
                inbox.append(ChildrenRead(number, tree.children(path) if path in tree.nodes else ()))
            case GiveWay():
                inbox.append(Continued())
            case Write():
                changes = "; ".join(controller_lines.operations(effect.operations))
                changes = changes or ("empty nodes" if len(effect.operations) > 1 else "its fence alone")
                self.lines.append(self._said(office, f"write: {changes}"))
                if self.waits:
                    self.held.append((office, effect))
                else:
                    self._finish(office, effect, MultiDone(effect.id, tree.multi(effect.operations)))
            case OpenChannel(broker_id, broker):
                self.lines.append(
                    self._said(office, f"channel to {broker_id}, generation {broker.generation}")
                )
            case CloseChannel(broker_id, generation):
                line = f"no channel to {broker_id}, generation {generation}, any more"
                self.lines.append(self._said(office, line))
            case Answer(_, outcome):
                self.lines.append(f"answer: {controller_lines.outcome(outcome)}")
            case Resign(reason):
                self.lines.append(self._said(office, f"resigns: {reason}"))
            case Trace(_, text):
                self.lines.append(self._said(office, f"log: {text}"))
            case _:
                raise TranscriptError(f"unknown: {effect}")

    def _answer_send(self, office: _Office, send: Send) -> None:
        """Answer as the broker does that is registered now; a dead one does not."""
        present = self._generation(send.broker_id)
        if present is None:
            return
        code = ErrorCode.NONE
        epoch = office.elected.controller_epoch
        if present > send.generation:
            code = ErrorCode.STALE_BROKER_EPOCH
        elif epoch < self.known_epochs.get(send.broker_id, 0):
            code = ErrorCode.STALE_CONTROLLER_EPOCH
        else:
            self.known_epochs[send.broker_id] = epoch
        answered = Answered(send.broker_id, send.generation, code, {})
        if office.is_paused:
            # It hears brokers before the quorum then: nothing orders the two.
            office.inbox.appendleft(answered)
        else:
            office.inbox.append(answered)


def _receivers(brokers: list[int]) -> str:
    """Write which brokers get a request, and which of them more than once."""
    counts = sorted(Counter(brokers).items())
    return " ".join(str(broker) if count == 1 else f"{broker} ({count} times)" for broker, count in counts)
