"""The controller's channels in transcripts: brokers come and go, states change, and the transcript answers.

After each command everything that may leave leaves. Time passes only by ``wait``. A state is what the quorum
has acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from controller.core.channels import Channels
from controller.core.effects import CloseChannel, Effect, OpenChannel, Resign, Send, Trace
from controller.core.inputs import Answered, NoAnswer
from controller.core.model import ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.options import Counters
from controller.core.outbox import LeadershipBatch, MetadataBatch, StopBatch
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from tests.scenarios.transcript import Lines, Scene, TranscriptError, command

REGISTRATION = BrokerRecord(None, -1, (), {}, reads_queue=True, timestamp_ms=0)


class ChannelScene(Scene):
    """One controller's channels."""

    def __init__(self) -> None:
        self.model = ClusterModel()
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.channels = Channels(self.model, Counters(), self.effects.append, by_queue=False)

    @command("topic {topic} has {count:int} partitions on {brokers:ints}")
    def create(self, topic: str, count: int, brokers: tuple[int, ...]) -> Lines:
        """A topic whose states everybody has, or will get when its channel is opened."""
        self.model.topics[topic] = KnownTopic(TopicRecord(None, dict.fromkeys(range(count), brokers)), 0)
        state = PartitionStateRecord(ControllerEpoch(1), brokers[0], LeaderEpoch(0), brokers)
        for key in self.model.keys_of(topic):
            self.model.states[key] = KnownState(state, PartitionVersion(0), None)
        return ()

    # --- brokers

    @command("broker {broker:int} arrives in generation {generation:int}")
    def arrive(self, broker: int, generation: int) -> Lines:
        found = self.model.brokers[broker] = LiveBroker(BrokerGeneration(generation), REGISTRATION)
        self.channels.open(broker, found)
        self.channels.owe_brokers()
        return self._take()

    @command("broker {broker:int} in generation {generation:int} knows everything")
    def introduce(self, broker: int, generation: int) -> Lines:
        """It came long ago, and has answered all that it was owed."""
        self.arrive(broker, generation)
        for _ in range(4):
            for each in self.model.brokers:
                self.answer(each)
        return self._take(hiding=True)

    @command("broker {broker:int} is gone")
    def leave(self, broker: int) -> Lines:
        del self.model.brokers[broker]
        self.channels.close([broker])
        self.channels.owe_brokers()
        return self._take()

    @command("broker {broker:int} bounces into generation {generation:int}")
    def bounce(self, broker: int, generation: int) -> Lines:
        self.channels.close([broker])
        return self.arrive(broker, generation)

    @command("broker {broker:int} shuts down, and {key} keeps {isr:ints} in sync")
    def shut_down(self, broker: int, key: str, isr: tuple[int, ...]) -> Lines:
        self.model.leaving[broker] = None
        self._put(_key(key), leader=isr[0], isr=isr)
        self.channels.owe_stops_of_leaver(broker, [_key(key)])
        return self._take()

    @command("broker {broker:int} is in doubt about topic {topic}")
    def doubt(self, broker: int, topic: str) -> Lines:
        self.model.doubts[broker] = {topic: None}
        return ()

    @command("broker {broker:int} is judged")
    def judge(self, broker: int) -> Lines:
        topics = self.model.doubts.pop(broker)
        self.channels.owe_roles(broker, topics)
        return self._take()

    # --- states

    @command("{key} is led by {leader:int}")
    def lead(self, key: str, leader: int) -> Lines:
        """The controller's multi is acknowledged."""
        self._put(_key(key), leader=leader)
        return self._take()

    @command("topic {topic} is being deleted")
    def delete(self, topic: str) -> Lines:
        self.model.deleting[topic] = None
        self.channels.owe_stops(self.model.keys_of(topic))
        self.channels.owe_metadata(self.model.keys_of(topic))
        return self._take()

    def _put(self, key: PartitionKey, leader: int, isr: tuple[int, ...] | None = None) -> None:
        known = self.model.states[key]
        epoch = LeaderEpoch(known.state.leader_epoch + 1)
        state = replace(known.state, leader=leader, isr=isr or known.state.isr, leader_epoch=epoch)
        self.model.put_state(key, KnownState(state, PartitionVersion(known.partition_version + 1), None))
        self.channels.owe_leadership(key, is_new=False)

    # --- answers

    @command("{broker:int} answers")
    def answer(self, broker: int) -> Lines:
        return self._answer(broker, {}, ErrorCode.NONE)

    @command("{broker:int} answers {code}")
    def answer_error(self, broker: int, code: str) -> Lines:
        return self._answer(broker, {}, ErrorCode[code])

    @command("{broker:int} refuses {key} with {code}")
    def refuse(self, broker: int, key: str, code: str) -> Lines:
        return self._answer(broker, {_key(key): ErrorCode[code]}, ErrorCode.NONE)

    @command("generation {generation:int} of {broker:int} answers {code}")
    def answer_late(self, generation: int, broker: int, code: str) -> Lines:
        """An answer that was on its way when that life of the broker ended."""
        return self._answer(broker, {}, ErrorCode[code], BrokerGeneration(generation))

    def _answer(
        self,
        broker: int,
        errors: dict[PartitionKey, int],
        code: ErrorCode,
        generation: BrokerGeneration | None = None,
    ) -> Lines:
        asked = self.model.brokers[broker].generation if generation is None else generation
        resign = self.channels.answered(Answered(broker, asked, code, errors), self.now_ms)
        if resign is not None:
            self.effects.append(resign)
        return self._take()

    @command("{broker:int} does not answer")
    def lose(self, broker: int) -> Lines:
        asked = self.model.brokers[broker].generation
        self.channels.no_answer(NoAnswer(broker, asked, "the connection broke"), self.now_ms)
        return self._take()

    # --- time, and questions

    @command("wait {ms:int} ms")
    def wait(self, ms: int) -> Lines:
        self.now_ms += ms
        return self._take()

    @command("who pauses?")
    def pauses(self) -> Lines:
        wake_ms = self.channels.wake_ms
        return [f"until {wake_ms - self.now_ms} ms from now" if wake_ms is not None else "nobody"]

    @command("what is unanswered?")
    def unanswered(self) -> Lines:
        return [f"topic {each}" for each in sorted(self.channels.pending_topics())] or ["all is answered"]

    @command("is {key} stopped on {brokers:ints}?")
    def stopped(self, key: str, brokers: tuple[int, ...]) -> Lines:
        return ["yes" if self.channels.stopped(_key(key), brokers) else "no"]

    def _take(self, *, hiding: bool = False) -> list[str]:
        self.channels.flush(self.now_ms)
        lines = [line for each in self.effects for line in self._lines(each)]
        self.effects.clear()
        return [] if hiding else lines

    def _lines(self, effect: Effect) -> Iterator[str]:
        match effect:
            case OpenChannel(broker_id, broker):
                yield f"open a channel to broker {broker_id}, generation {broker.generation}"
            case CloseChannel(broker_id, generation):
                yield f"close the channel to broker {broker_id}, generation {generation}"
            case Send(broker_id, _, batch):
                yield f"-> {broker_id}  {self._request(batch)}"
            case Trace(level, text):
                yield f"log, {level.value}: {text}"
            case Resign(reason):
                yield f"resign: {reason}"
            case _:
                raise TranscriptError(f"no effect of a channel: {effect}")

    def _request(self, batch: MetadataBatch | LeadershipBatch | StopBatch) -> str:
        """What a request says that is built now."""
        match batch:
            case MetadataBatch(keys):
                return ", ".join(["UpdateMetadata of the live brokers", *map(self._said, keys)])
            case LeadershipBatch(new):
                return f"LeaderAndIsr {', '.join(map(self._said, new))}"
            case StopBatch(stops):
                said = [f"{_name(key)}{' and its log' if deletes else ''}" for key, deletes in stops.items()]
                return f"StopReplica {', '.join(said)}"

    def _said(self, key: PartitionKey) -> str:
        if key.topic in self.model.deleting:
            return f"{_name(key)} deleted"
        return _role(key, self.model.states[key])


def _role(key: PartitionKey, known: KnownState) -> str:
    return f"{_name(key)} led by {known.state.leader} in epoch {known.state.leader_epoch}"


def _name(key: PartitionKey) -> str:
    return f"{key.topic}-{key.partition}"


def _key(name: str) -> PartitionKey:
    topic, partition = name.rsplit("-", 1)
    return PartitionKey(topic, int(partition))
