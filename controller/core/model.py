"""The cluster as the controller knows it: admitted brokers, topics, partition states.

Holds what was read from the quorum, and says what a newly read value changes. Soft state: everything here
can be read again. It holds acknowledged states only, so whatever is sent from it has been published before.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.A], [0.D].
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from controller.core.reassignment import Move, move_of
from quorum.metadata.numbers import BrokerGeneration, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import (
    NO_LEADER,
    BrokerRecord,
    LogEnd,
    PartitionStateRecord,
    TopicRecord,
    topic_label,
)

#: Why what an ISR counts on may not be there: {topic_label(): {partition: where the broker's log ends}} of
#: shortened logs, or None: the disk is another one.
Doubt = Mapping[str, Mapping[int, LogEnd]] | None


class LiveBroker(NamedTuple):
    """A registration."""

    generation: BrokerGeneration
    record: BrokerRecord


class KnownTopic(NamedTuple):
    """A topic and the version of its znode."""

    record: TopicRecord
    topic_version: int


class KnownState(NamedTuple):
    """A partition's leaderAndISR as it stands in the quorum."""

    state: PartitionStateRecord
    partition_version: PartitionVersion
    #: The transaction that wrote it; None for a write of this controller, which knew all brokers.
    mzxid: int | None


class Change(Enum):
    """What a newly known state means for the brokers."""

    NONE = "none"
    #: The leader changed its ISR: everybody's metadata changes, nobody's role.
    ISR = "isr"
    #: A controller wrote: the replicas need a LeaderAndIsr.
    LEADERSHIP = "leadership"


class ClusterModel:
    """What the controller knows."""

    def __init__(self) -> None:
        """Know nothing yet."""
        #: {broker id: registration} of the admitted ones: their incarnation is judged, a channel serves them
        self.brokers: dict[int, LiveBroker] = {}
        #: {topic: assignment}, readable ones only
        self.topics: dict[str, KnownTopic] = {}
        #: {partition: state}, of known topics only
        self.states: dict[PartitionKey, KnownState] = {}
        #: {topic: why nothing is decided about it}
        self.left_alone: dict[str, str] = {}
        #: {broker id: {topic in which its ISR memberships are still to be judged: why}}, live brokers only
        self.doubts: dict[int, dict[str, Doubt]] = {}
        #: Topics that are being deleted; nothing is decided about them.
        self.deleting: dict[str, None] = {}
        #: Brokers that have asked to shut down, until that life of them is over.
        self.leaving: dict[int, None] = {}
        #: {partition that is being reassigned: replicas that its brokers were last asked to hold}
        self.announced: dict[PartitionKey, tuple[int, ...]] = {}

    def partitions(self) -> Iterator[tuple[PartitionKey, tuple[int, ...]]]:
        """Yield every partition with its replicas, whether it has a state or not."""
        for topic, known in self.topics.items():
            for partition, replicas in known.record.partitions.items():
                yield PartitionKey(topic, partition), replicas

    def partition_count(self) -> int:
        """Return how many partitions the known topics have."""
        return sum(len(known.record.partitions) for known in self.topics.values())

    def keys_of(self, topic: str) -> list[PartitionKey]:
        """Return the partitions of a topic; none if it is unknown."""
        known = self.topics.get(topic)
        return [] if known is None else [PartitionKey(topic, each) for each in known.record.partitions]

    def replicas(self, key: PartitionKey) -> tuple[int, ...]:
        """Return the replicas of a partition; none if it is unknown."""
        known = self.topics.get(key.topic)
        return () if known is None else known.record.partitions.get(key.partition, ())

    def move(self, key: PartitionKey) -> Move | None:
        """Return the reassignment of a partition, or None where there is none."""
        known = self.topics.get(key.topic)
        if known is None or key.partition not in known.record.partitions:
            return None
        return move_of(known.record, key.partition)

    def moves(self) -> Iterator[tuple[PartitionKey, Move]]:
        """Yield every partition that is being reassigned, as things are at the first one."""
        for topic, known in list(self.topics.items()):
            record = known.record
            for partition in dict.fromkeys((*record.adding_replicas, *record.removing_replicas)):
                move = move_of(record, partition) if partition in record.partitions else None
                if move is not None:
                    yield PartitionKey(topic, partition), move

    def holders(self, key: PartitionKey) -> tuple[int, ...]:
        """Return the replicas that shall hold a partition now: while it is reassigned, as announced."""
        announced = self.announced.get(key)
        return self.replicas(key) if announced is None or self.move(key) is None else announced

    def drop_broker(self, broker_id: int) -> None:
        """Forget a life of a broker that is over."""
        del self.brokers[broker_id]
        self.doubts.pop(broker_id, None)
        self.leaving.pop(broker_id, None)

    def may_decide(self, topic: str) -> bool:
        """Say whether the controller decides about a topic's partitions."""
        return topic not in self.left_alone and topic not in self.deleting

    def doubts_about(self, topic: str) -> dict[int, Doubt]:
        """Return {broker id: why its ISR memberships in a topic are still to be judged}."""
        return {each: topics[topic] for each, topics in self.doubts.items() if topic in topics}

    def reopened(self) -> bool:
        """Say whether a topic with doubts can be decided about, or is gone: then they can be settled."""
        return any(self.may_decide(topic) for topics in self.doubts.values() for topic in topics)

    def is_judged(self, broker_id: int, topic: str) -> bool:
        """Say whether no state in a topic counts any more on what is doubted of a broker there."""
        known, doubt = self.topics.get(topic), self.doubts[broker_id][topic]
        if not self.may_decide(topic):
            return False
        if known is None:
            return True
        states = {key: self.states[key].state for key in self.keys_of(topic) if key in self.states}
        if doubt is None:
            return not any(broker_id in (*state.isr, *state.shortened) for state in states.values())
        named = doubt.get(topic_label(topic, known.record.topic_id), {})
        return not any(broker_id in state.isr for key, state in states.items() if key.partition in named)

    def put_state(self, key: PartitionKey, known: KnownState) -> Change:
        """Take a state that stands in the quorum and say what it changes."""
        before = self.states.get(key)
        self.states[key] = known
        if before is None:
            return Change.LEADERSHIP
        if before.state.leader_epoch != known.state.leader_epoch or before.state.leader != known.state.leader:
            return Change.LEADERSHIP
        return Change.NONE if before.partition_version == known.partition_version else Change.ISR

    def drop_topic(self, topic: str) -> None:
        """Forget a topic and its states."""
        for key in self.keys_of(topic):
            self.states.pop(key, None)
            self.announced.pop(key, None)
        self.topics.pop(topic, None)
        self.left_alone.pop(topic, None)
        self.deleting.pop(topic, None)

    def offline(self) -> list[PartitionKey]:
        """Return the partitions without a leader."""
        return [
            key
            for key, _ in self.partitions()
            if key.topic not in self.deleting
            and ((known := self.states.get(key)) is None or known.state.leader == NO_LEADER)
        ]

    def under_replicated(self) -> list[PartitionKey]:
        """Return the partitions whose ISR lacks a replica; one that is still to come is no lack."""
        return [
            key
            for key, replicas in self.partitions()
            if key.topic not in self.deleting
            and (
                (known := self.states.get(key)) is None
                or len(known.state.isr) < len(replicas if (move := self.move(key)) is None else move.origin)
            )
        ]


def problem_of(record: TopicRecord) -> str:
    """Say why nothing can be decided about an assignment although it can be read; "" if it is good."""
    if not record.partitions:
        return "it has no partitions"
    empty = [partition for partition, replicas in record.partitions.items() if not replicas]
    return f"partition {empty[0]} has no replicas" if empty else ""
