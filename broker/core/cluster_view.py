"""What a broker knows of its cluster: the content of the UpdateMetadata requests that it has applied.

Decides how one request changes the view. A request replaces the live brokers and only those partitions that
it names. Fences are checked by the caller. Everything here is soft state: the next controller sends it again.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.B]; ZkMetadataCache
(Kafka 3.9).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from quorum.metadata.numbers import TopicId

#: As leader of a partition: nobody leads it now.
NO_LEADER: Final = -1
#: As leader of a partition in UpdateMetadata: the partition is being deleted.
LEADER_DURING_DELETE: Final = -2


class BrokerEndpoints(NamedTuple):
    """One live broker."""

    id: int
    rack: str | None
    #: {listener name: (host, port)}
    listeners: Mapping[str, tuple[str, int]]


class PartitionView(NamedTuple):
    """One partition as the controller last announced it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...]


class TopicView(NamedTuple):
    """One topic."""

    #: None for a topic without an id.
    topic_id: TopicId | None
    #: {partition: what is known of it}
    partitions: dict[int, PartitionView]


class _Endpoint(Protocol):
    @property
    def listener(self) -> str: ...
    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class _Broker(Protocol):
    @property
    def id(self) -> int: ...
    @property
    def rack(self) -> str | None: ...
    @property
    def endpoints(self) -> Sequence[_Endpoint]: ...


class _Partition(Protocol):
    @property
    def partition_index(self) -> int: ...
    @property
    def leader(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def isr(self) -> Sequence[int]: ...
    @property
    def replicas(self) -> Sequence[int]: ...
    @property
    def offline_replicas(self) -> Sequence[int]: ...


class _Topic(Protocol):
    @property
    def topic_name(self) -> str: ...
    @property
    def topic_id(self) -> TopicId | None: ...
    @property
    def partition_states(self) -> Sequence[_Partition]: ...


class UpdateMetadata(Protocol):
    """The parts of an UpdateMetadata request that change the view."""

    @property
    def controller_id(self) -> int:
        """Broker id of the controller."""

    @property
    def topic_states(self) -> Sequence[_Topic]:
        """Partitions by topic."""

    @property
    def live_brokers(self) -> Sequence[_Broker]:
        """Every live broker."""


class ClusterView:
    """Brokers, topics and partitions, as of the last UpdateMetadata request."""

    def __init__(self) -> None:
        #: True once a request was applied: what is missing here does not exist then.
        self.received = False
        #: How many requests were applied; who follows the view looks again when it has risen.
        self.changes = 0
        self.controller_id = -1
        #: {broker id: endpoints}
        self.brokers: dict[int, BrokerEndpoints] = {}
        #: {topic: partitions}
        self.topics: dict[str, TopicView] = {}
        self._names: dict[Hashable, str] = {}
        #: {topic: {version of Metadata: its row as it is written}}. A row depends on its topic and on which
        #: brokers live; what either changes is replaced, so that a row that is still being written is lost.
        self.rows: dict[str, dict[int, bytes]] = {}

    def apply(self, request: UpdateMetadata) -> None:
        """Take a request over that has passed its fences."""
        self.received = True
        self.changes += 1
        self.controller_id = request.controller_id
        brokers = {
            broker.id: BrokerEndpoints(
                broker.id,
                broker.rack,
                {endpoint.listener: (endpoint.host, endpoint.port) for endpoint in broker.endpoints},
            )
            for broker in request.live_brokers
        }
        if brokers.keys() != self.brokers.keys():
            self.rows = {}
        self.brokers = brokers
        for topic in request.topic_states:
            self._apply_topic(topic)

    def topic_name(self, topic_id: Hashable) -> str | None:
        """Return the name of the topic with this id, or None."""
        return self._names.get(topic_id)

    def partition(self, topic: str, partition: int) -> PartitionView | None:
        """Return what is known of a partition, or None."""
        view = self.topics.get(topic)
        return None if view is None else view.partitions.get(partition)

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Return host and port of a live broker's listener, or None."""
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.listeners.get(listener)

    def _apply_topic(self, topic: _Topic) -> None:
        name = topic.topic_name
        self.rows.pop(name, None)
        view = self.topics.get(name)
        if view is None or view.topic_id != topic.topic_id:
            # The same name with another id is another topic: nothing of the old one is kept.
            self._forget(name)
            view = self.topics[name] = TopicView(topic.topic_id, {})
            if topic.topic_id is not None:
                self._names[topic.topic_id] = name
        partitions = view.partitions
        for state in topic.partition_states:
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
                continue
            partitions[state.partition_index] = PartitionView(
                state.leader,
                state.leader_epoch,
                tuple(state.isr),
                tuple(state.replicas),
                tuple(state.offline_replicas),
            )
        if not partitions:
            self._forget(name)

    def _forget(self, name: str) -> None:
        view = self.topics.pop(name, None)
        if view is not None and view.topic_id is not None:
            self._names.pop(view.topic_id, None)
