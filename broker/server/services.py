"""What the handlers of requests need of the rest of the broker.

Decides nothing: these are the shapes of the replica manager, the controller candidate, the settings of topics
and the producer ids, so that a handler can be tested with small fakes. The real classes fit by their shape.
Source: architecture design, "Code map"; broker.replication, controller.runtime, broker.lifecycle.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.config.broker import BrokerConfig
from broker.core.cluster_view import ClusterView
from broker.groups.coordinator import Coordinator
from broker.replication.outcomes import (
    ActiveProducer,
    DeleteOutcome,
    EpochEnd,
    FetchOutcome,
    FetchPosition,
    ListedOffset,
    LogSize,
    ProduceOutcome,
)
from controller.core.outcomes import PartitionOutcome, ShutdownOutcome, TopicOutcome
from controller.core.reassignment import Move
from controller.core.requests import NewPartitions, NewTopic
from controller.messages.entities import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_settings import TopicSettings


class Replicas(Protocol):
    """The replicas of this broker."""

    async def handle_leader_and_isr(self, request: LeaderAndIsrRequest, /) -> LeaderAndIsrResponse:
        """Apply a LeaderAndIsr request and return its response."""

    async def handle_stop_replica(self, request: StopReplicaRequest, /) -> StopReplicaResponse:
        """Apply a StopReplica request and return its response."""

    async def handle_update_metadata(self, request: UpdateMetadataRequest, /) -> UpdateMetadataResponse:
        """Apply an UpdateMetadata request and return its response."""

    async def produce(
        self, batches: Mapping[PartitionKey, bytes], /, *, acks: int, timeout_ms: int
    ) -> Mapping[PartitionKey, ProduceOutcome]:
        """Append batches and wait for the acknowledgements."""

    async def fetch(
        self,
        positions: Mapping[PartitionKey, FetchPosition],
        /,
        *,
        replica_id: int = -1,
        generation: int = -1,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        rack: str = "",
    ) -> Mapping[PartitionKey, FetchOutcome]:
        """Read batches, waiting for enough of them."""

    async def list_offset(
        self, key: PartitionKey, timestamp: int, /, *, current_leader_epoch: int = -1, replica_id: int = -1
    ) -> ListedOffset:
        """Return the offset that belongs to a timestamp; -1 and -2: the last and the first."""

    async def delete_records(
        self, offsets: Mapping[PartitionKey, int], /, *, timeout_ms: int
    ) -> Mapping[PartitionKey, DeleteOutcome]:
        """Delete the records below offsets, and wait for the replicas."""

    def logs(self) -> Collection[PartitionKey]:
        """Return the partitions whose logs are here."""

    def log_size(self, key: PartitionKey, /) -> LogSize | None:
        """Return how large a log is; None: it is not here."""

    async def disk_space(self) -> tuple[int, int] | ErrorCode:
        """Return (total, usable) bytes of the log directory's disk, or why it does not say so."""

    def active_producers(self, key: PartitionKey, /) -> Sequence[ActiveProducer] | ErrorCode:
        """Return the idempotent producers of a partition, or why they are not known here."""

    def epoch_end_offset(
        self, key: PartitionKey, /, *, leader_epoch: int, current_leader_epoch: int = -1
    ) -> EpochEnd:
        """Return where a leader epoch ended."""


class TopicAdministration(Protocol):
    """The controller candidate of this broker."""

    @property
    def active(self) -> bool:
        """Whether it is the controller."""

    async def create_topics(
        self, topics: Sequence[NewTopic], /, *, timeout_ms: int, validate_only: bool
    ) -> Mapping[str, TopicOutcome]:
        """Create topics."""

    async def delete_topics(self, names: Sequence[str], /, *, timeout_ms: int) -> Mapping[str, TopicOutcome]:
        """Delete topics."""

    async def create_partitions(
        self, counts: Sequence[NewPartitions], /, *, timeout_ms: int, validate_only: bool
    ) -> Mapping[str, TopicOutcome]:
        """Add partitions."""

    async def elect_leaders(
        self, keys: Collection[PartitionKey] | None, /, *, unclean: bool, timeout_ms: int
    ) -> Mapping[PartitionKey, PartitionOutcome] | ErrorCode:
        """Elect preferred leaders, or unclean ones."""

    async def reassign(
        self, targets: Mapping[PartitionKey, tuple[int, ...] | None], /, *, timeout_ms: int
    ) -> Mapping[PartitionKey, PartitionOutcome] | ErrorCode:
        """Begin reassignments, or cancel them."""

    def reassignments(self) -> Iterator[tuple[PartitionKey, Move]] | None:
        """Yield the reassignments under way, topic by topic."""

    async def shut_down(self, broker_id: int, generation: BrokerGeneration, /) -> ShutdownOutcome:
        """Give the leaderships of a broker away."""


class TopicSettingsStore(Protocol):
    """The settings of topics."""

    @property
    def defaults(self) -> TopicSettings:
        """What holds where a topic sets nothing."""

    def settings_of(self, topic: str, /) -> TopicSettings:
        """Return the effective settings of a topic."""

    def overrides(self, topic: str, /) -> Mapping[str, str]:
        """Return what is set for a topic itself: {Kafka's name: text}."""

    async def alter(self, topic: str, changes: SettingChanges, /, validate_only: bool) -> None:
        """Change the settings of a topic, or only check that."""


class BrokerSettingsStore(Protocol):
    """The settings of this broker that change while it runs."""

    @property
    def overrides(self) -> Mapping[str, str]:
        """What is set: {Kafka's name: text}."""

    async def alter(self, changes: SettingChanges, /, validate_only: bool) -> None:
        """Change settings, or only check that."""


class ProducerIdSource(Protocol):
    """Producer ids that no other broker gives out."""

    async def next(self) -> int:
        """Return an id that nobody has."""


@dataclass(frozen=True, slots=True)
class BrokerServices:
    """The parts of one broker, as its handlers use them."""

    broker_id: int
    cluster_id: str
    replicas: Replicas
    view: ClusterView
    #: Returns the controller candidate of the present session; None without a session.
    controller: Callable[[], TopicAdministration | None]
    topic_configs: TopicSettingsStore
    broker_configs: BrokerSettingsStore
    producer_ids: ProducerIdSource
    config: BrokerConfig
    #: Returns the candidate for coordinator of the present session; None without a session.
    groups: Callable[[], Coordinator | None] = lambda: None

    def active_controller(self) -> TopicAdministration | None:
        """Return the controller, if it is this broker's candidate."""
        candidate = self.controller()
        return candidate if candidate is not None and candidate.active else None
