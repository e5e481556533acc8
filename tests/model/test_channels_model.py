"""Channels against brokers that lose requests and answers, refuse, and bounce: all converge on the model.

Each broker applies what arrives, in order, and keeps the newer of two roles, as real ones do. Each seed is a
walk of its own; after it nothing is lost any more, and every broker must hold what the model says.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pytest

from controller.core.channels import PAUSE_MAX_MS, Channels
from controller.core.effects import CloseChannel, Effect, OpenChannel, Send
from controller.core.inputs import Answered, NoAnswer
from controller.core.model import Change, ClusterModel, KnownState, KnownTopic, LiveBroker
from controller.core.options import Counters
from controller.core.outbox import LeadershipBatch, MetadataBatch, StopBatch
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord

BROKERS = (1, 2, 3)
TOPICS = {"a": {0: (1, 2), 1: (2, 3)}, "b": {0: (3, 1)}, "c": {0: (1, 2), 1: (3, 2)}}
RECORD = BrokerRecord(None, -1, (), {}, reads_queue=True, timestamp_ms=0)
#: What a request says: {partition: leader epoch}, of roles, of metadata, or None for stops
Said = Mapping[PartitionKey, int]


@dataclass
class Life:
    """One generation of a broker."""

    generation: BrokerGeneration
    is_open: bool = False
    roles: dict[PartitionKey, int] = field(default_factory=dict)
    metadata: dict[PartitionKey, int] = field(default_factory=dict)
    #: What is on its way to it: what it says, and the request that it answers.
    arriving: deque[tuple[str, Said, Send]] = field(default_factory=deque)

    def apply(self, kind: str, said: Said, refused: Mapping[PartitionKey, int]) -> None:
        for key, epoch in said.items():
            if kind == "stop" and key not in refused:
                self.roles.pop(key, None)
            elif kind == "roles":
                assert self.metadata or not said, "a role came before the cluster was known"
                self.roles[key] = max(epoch, self.roles.get(key, -1))
            elif kind == "metadata":
                self.metadata[key] = epoch


class Walk:
    """A random walk of one controller's channels."""

    def __init__(self, seed: int, *, by_queue: bool) -> None:
        self.rng = random.Random(seed)
        self.model = ClusterModel()
        for topic, partitions in TOPICS.items():
            self.model.topics[topic] = KnownTopic(TopicRecord(None, partitions), 0)
            for key in self.model.keys_of(topic):
                replicas = self.model.replicas(key)
                state = PartitionStateRecord(ControllerEpoch(1), replicas[0], LeaderEpoch(0), replicas)
                self.model.states[key] = KnownState(state, PartitionVersion(0), None)
        self.now_ms = 0
        self.effects: list[Effect] = []
        self.channels = Channels(self.model, Counters(), self.effects.append, by_queue=by_queue)
        self.lives: dict[int, Life] = {}
        self.under_way: dict[int, Send] = {}
        for each in BROKERS:
            self._register(each, 10)
        self.take()

    def _register(self, broker_id: int, generation: int) -> None:
        self.lives[broker_id] = Life(BrokerGeneration(generation))
        broker = self.model.brokers[broker_id] = LiveBroker(BrokerGeneration(generation), RECORD)
        self.channels.open(broker_id, broker)
        self.channels.owe_brokers()

    def take(self) -> None:
        """Carry out what is wanted."""
        self.channels.flush(self.now_ms)
        for effect in self.effects:
            match effect:
                case OpenChannel(broker_id, broker):
                    assert broker.generation == self.lives[broker_id].generation
                    self.lives[broker_id].is_open = True
                case CloseChannel(broker_id):
                    self.under_way.pop(broker_id, None)
                case Send(broker_id, generation, _):
                    life = self.lives[broker_id]
                    assert life.is_open
                    assert generation == life.generation
                    assert broker_id not in self.under_way, "two requests are under way"
                    self.under_way[broker_id] = effect
                    life.arriving.append((*self._built(effect), effect))
                case _:
                    pass
        self.effects.clear()

    def _built(self, send: Send) -> tuple[str, Said]:
        match send.batch:
            case MetadataBatch(keys):
                return "metadata", {key: self._epoch(key) for key in keys}
            case LeadershipBatch(new):
                return "roles", {key: self._epoch(key) for key in new if self._epoch(key) >= 0}
            case StopBatch(stops):
                return "stop", dict.fromkeys(stops, -2)

    def _epoch(self, key: PartitionKey) -> int:
        return -2 if key.topic in self.model.deleting else self.model.states[key].state.leader_epoch

    # -- what may happen -------------------------------------------------------------------------------------

    def step(self) -> None:
        chosen = self.rng.choice(
            [self.decide, self.decide, self.arrive, self.arrive, self.arrive, self.lose, self.rest]
            + [self.bounce, self.delete] * (self.rng.random() < 0.1)
        )
        chosen()
        self.take()

    def decide(self) -> None:
        """A multi of one state is written."""
        key = self.rng.choice([each for each in self.model.states if each.topic not in self.model.deleting])
        known = self.model.states[key]
        state = replace(
            known.state,
            leader=self.rng.choice(self.model.replicas(key)),
            leader_epoch=LeaderEpoch(known.state.leader_epoch + 1),
        )
        written = KnownState(state, PartitionVersion(known.partition_version + 1), None)
        assert self.model.put_state(key, written) is Change.LEADERSHIP
        self.channels.owe_leadership(key, is_new=False)

    def arrive(self) -> None:
        """The oldest message to a broker arrives, and is answered."""
        broker_id = self.rng.choice(BROKERS)
        refused: dict[PartitionKey, int] = {}
        life = self.lives[broker_id]
        if life.arriving and life.arriving[0][0] == "stop" and self.rng.random() < 0.3:
            refused = dict.fromkeys(life.arriving[0][1], int(ErrorCode.KAFKA_STORAGE_ERROR))
        self.deliver(broker_id, refused)

    def deliver(self, broker_id: int, refused: Mapping[PartitionKey, int]) -> None:
        life = self.lives[broker_id]
        if not life.arriving:
            return
        kind, said, send = life.arriving.popleft()
        life.apply(kind, said, refused)
        # A request whose answer nobody waits for any more was applied all the same.
        if self.under_way.get(broker_id) is send:
            del self.under_way[broker_id]
            self.channels.answered(Answered(broker_id, life.generation, 0, refused), self.now_ms)

    def lose(self) -> None:
        """A request or its answer is lost; the request may still arrive."""
        broker_id = self.rng.choice(BROKERS)
        send = self.under_way.pop(broker_id, None)
        if send is None:
            return
        life = self.lives[broker_id]
        if self.rng.random() < 0.5:
            life.arriving = deque(each for each in life.arriving if each[2] is not send)
        self.channels.no_answer(NoAnswer(broker_id, send.generation, "it was lost"), self.now_ms)

    def rest(self) -> None:
        self.now_ms += self.rng.choice([1, 50, PAUSE_MAX_MS])

    def bounce(self) -> None:
        """A broker is killed and comes back; answers of its former life come late."""
        broker_id = self.rng.choice(BROKERS)
        former = self.lives[broker_id].generation
        self.channels.close([broker_id])
        self.take()
        self._register(broker_id, former + 1)
        self.take()
        code = self.rng.choice(
            [ErrorCode.NONE, ErrorCode.STALE_BROKER_EPOCH, ErrorCode.STALE_CONTROLLER_EPOCH]
        )
        assert self.channels.answered(Answered(broker_id, former, code, {}), self.now_ms) is None
        self.channels.no_answer(NoAnswer(broker_id, former, "it is gone"), self.now_ms)

    def delete(self) -> None:
        if self.model.deleting:
            return
        self.model.deleting["c"] = None
        self.channels.owe_stops(self.model.keys_of("c"))
        self.channels.owe_metadata(self.model.keys_of("c"))

    # -- the end ---------------------------------------------------------------------------------------------

    def heal(self) -> None:
        for _ in range(200):
            self.now_ms += PAUSE_MAX_MS
            self.take()
            for each in BROKERS:
                self.deliver(each, {})
        assert not self.under_way
        assert self.channels.pending_topics() == set()

    def check(self) -> None:
        metadata = {key: self._epoch(key) for key in self.model.states}
        for broker_id, life in self.lives.items():
            assert life.metadata == metadata
            assert life.roles == {
                key: epoch
                for key, epoch in metadata.items()
                if epoch >= 0 and broker_id in self.model.replicas(key)
            }
        for key in self.model.keys_of("c") if self.model.deleting else ():
            assert self.channels.stopped(key, BROKERS)


@pytest.mark.parametrize("by_queue", [False, True], ids=["direct", "queue"])
@pytest.mark.parametrize("seed", range(100))
def test_every_broker_holds_what_the_model_says_in_the_end(seed: int, *, by_queue: bool) -> None:
    walk = Walk(seed, by_queue=by_queue)
    for _ in range(300):
        walk.step()
    walk.heal()
    walk.check()
