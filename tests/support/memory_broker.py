"""A broker without logs, quorum and controller: real sockets and handlers over records in memory.

`MemoryReplicas` keeps batches in lists and waits for nothing but new records; `MemoryController` creates
topics in the view at once. Both have the shape that the handlers ask for. `MemoryBroker` serves both
listeners in a thread of its own, for clients that block.
"""
# ruff: noqa: ARG002 - the shape is that of the real parts

from __future__ import annotations

import asyncio
import itertools
import struct
import threading
import uuid
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import uvloop

from broker.config.broker import BrokerConfig, broker_config
from broker.core.cluster_view import ClusterView
from broker.core.fetch_sessions import FetchSession, FetchSessions
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.core.listed_offsets import ListedOffset
from broker.log.markers import EndMarker, end_batch
from broker.log.producers import ActiveProducer
from broker.replication.fetching import Reader
from broker.replication.outcomes import DeleteOutcome, EpochEnd, ProduceOutcome
from broker.server.handlers import ApiHandlers
from broker.server.listener import Listener
from broker.server.services import BrokerServices
from broker.server.shedding import ListenerLimits
from controller.core.outcomes import PartitionOutcome, ShutdownOutcome, TopicOutcome
from controller.core.reassignment import Move
from controller.core.requests import NewPartitions, NewTopic
from controller.messages.entities import (
    ControllerRequest,
    ControlResponse,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
    refusal,
)
from controller.wire.codes import ErrorCode
from controller.wire.scram import ScramServer
from quorum.metadata.broker_settings import BROKER_LISTS, check_broker_changes
from quorum.metadata.errors import InvalidTopicSettingError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.setting_changes import SettingChanges
from quorum.metadata.topic_setting_rows import TOPIC_LISTS
from quorum.metadata.topic_settings import TopicSettings, check_topic_settings
from quorum.platform.listening import bind
from tests.support.broker_services import CLUSTER_ID, in_every_part, services

SECRET = "a secret of sixteen bytes"
#: A deadline for what takes milliseconds.
PATIENCE_S = 20.0
#: base offset, length, leader epoch, magic, crc, attributes, last offset delta
_BATCH = struct.Struct(">qiibIhi")

T = TypeVar("T")


def config(folder: Path, **broker: object) -> BrokerConfig:
    """Return a checked configuration."""
    secret = folder / "peer.secret"
    secret.write_text(SECRET)
    secret.chmod(0o600)
    sections: dict[str, dict[str, object]] = {
        "broker": {"id": 1, "data_dir": str(folder / "broker"), **broker},
        "security": {"peer_secret_file": str(secret)},
    }
    return broker_config(sections, folder)


def partition_state(index: int, leader: int = 1, leader_epoch: int = 5) -> UpdateMetadataPartitionState:
    """Return a partition with broker 1 as its replica."""
    return UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=ControllerEpoch(1),
        leader=leader,
        leader_epoch=LeaderEpoch(leader_epoch),
        isr=(1,),
        zk_version=PartitionVersion(0),
        replicas=(1,),
    )


def update_metadata(
    topics: Mapping[str, Sequence[UpdateMetadataPartitionState]],
    *,
    client: tuple[str, int] = ("127.0.0.1", 1),
    topic_ids: Mapping[str, uuid.UUID] | None = None,
) -> UpdateMetadataRequest:
    """Return what a controller on broker 1 says; a topic's id is made of its name unless it is given."""
    endpoint = UpdateMetadataEndpoint(port=client[1], host=client[0], listener="CLIENT", security_protocol=0)
    return UpdateMetadataRequest(
        controller_id=1,
        controller_epoch=ControllerEpoch(1),
        broker_epoch=BrokerGeneration(1),
        topic_states=tuple(
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=(topic_ids or {}).get(name, topic_id(name)),
                partition_states=tuple(states),
            )
            for name, states in topics.items()
        ),
        live_brokers=(UpdateMetadataBroker(id=1, endpoints=(endpoint,), rack=None),),
    )


def topic_id(name: str) -> uuid.UUID:
    """Return the id of a topic that was not created twice."""
    return uuid.uuid5(uuid.NAMESPACE_DNS, name)


class MemoryReplicas:
    """Partitions as lists of batches."""

    def __init__(self, view: ClusterView) -> None:
        self.view = view
        #: {partition: [(base offset, last offset, bytes)]}
        self.batches: dict[PartitionKey, list[tuple[int, int, bytes]]] = {}
        self.arrived = asyncio.Condition()
        #: Positions of each fetch.
        self.fetches: list[tuple[Mapping[PartitionKey, FetchPosition], Reader]] = []
        #: Set: produce requests wait for it after they have appended.
        self.hold: asyncio.Event | None = None
        self.produced: list[Mapping[PartitionKey, bytes]] = []
        #: Answered for every partition that is known.
        self.error = ErrorCode.NONE
        self.sessions: FetchSessions = FetchSessions(
            2, itertools.count(1), on_due=lambda *_: None, on_end=lambda *_: None
        )

    def _error(self, key: PartitionKey) -> ErrorCode:
        found = self.view.partition(*key)
        if found is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return self.error if found.leader == 1 else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def end(self, key: PartitionKey) -> int:
        """Return the log end offset."""
        batches = self.batches.get(key)
        return batches[-1][1] + 1 if batches else 0

    async def apply(self, request: ControllerRequest) -> ControlResponse:
        """Apply what the cluster looks like, and nothing else."""
        if isinstance(request, UpdateMetadataRequest):
            self.view.apply(request)
        return refusal(request, ErrorCode.NONE)

    async def produce(
        self,
        batches: Mapping[PartitionKey, bytes],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> dict[PartitionKey, ProduceOutcome]:
        """Append."""
        self.produced.append(batches)
        outcomes = {key: self._append(key, records) for key, records in batches.items()}
        async with self.arrived:
            self.arrived.notify_all()
        if self.hold is not None:
            await self.hold.wait()
        return outcomes

    async def write_markers(
        self,
        keys: Sequence[PartitionKey],
        producer_id: int,
        producer_epoch: int,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        timeout_ms: int,
    ) -> dict[PartitionKey, ProduceOutcome]:
        """Append a marker to each."""
        marker = EndMarker(is_commit, coordinator_epoch)
        batch = bytes(end_batch(producer_id, producer_epoch, marker, 5).content)
        return {key: self._append(key, batch) for key in keys}

    def _append(self, key: PartitionKey, records: bytes) -> ProduceOutcome:
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return ProduceOutcome(error)
        first = self.end(key)
        position = 0
        while position < len(records):
            header = _BATCH.unpack_from(records, position)
            end = position + 12 + header[1]
            base = self.end(key)
            batch = struct.pack(">qii", base, header[1], 5) + records[position + 16 : end]
            self.batches.setdefault(key, []).append((base, base + header[6], batch))
            position = end
        return ProduceOutcome(ErrorCode.NONE, first, log_start_offset=0)

    async def fetch(
        self,
        positions: Mapping[PartitionKey, FetchPosition],
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        session: FetchSession | None = None,
    ) -> dict[PartitionKey, FetchOutcome]:
        """Read, and wait for new records if there are none."""
        self.fetches.append((positions, reader))
        outcomes = self._read(positions)
        if min_bytes and not any(each.records or each.error_code for each in outcomes.values()):
            try:
                async with asyncio.timeout(max_wait_ms / 1000), self.arrived:
                    await self.arrived.wait()
            except TimeoutError:
                return outcomes
            outcomes = self._read(positions)
        return outcomes

    def _read(self, positions: Mapping[PartitionKey, FetchPosition]) -> dict[PartitionKey, FetchOutcome]:
        outcomes = {}
        for key, position in positions.items():
            error = self._error(key)
            if error is ErrorCode.NONE and position.offset > self.end(key):
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            if error is not ErrorCode.NONE:
                outcomes[key] = FetchOutcome(error)
                continue
            found = [batch for _, last, batch in self.batches.get(key, []) if last >= position.offset]
            outcomes[key] = FetchOutcome(ErrorCode.NONE, self.end(key), 0, b"".join(found))
        return outcomes

    async def list_offset(
        self,
        key: PartitionKey,
        timestamp: int,
        current_leader_epoch: int,
        *,
        is_follower: bool,
        read_committed: bool,
    ) -> ListedOffset:
        """Return the start or the end."""
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return ListedOffset(error)
        return ListedOffset(ErrorCode.NONE, -1, 0 if timestamp == -2 else self.end(key), 5)

    async def delete_records(
        self, offsets: Mapping[PartitionKey, int], *, timeout_ms: int
    ) -> dict[PartitionKey, DeleteOutcome]:
        """Delete nothing."""
        return {key: DeleteOutcome(self._error(key), offset) for key, offset in offsets.items()}

    def keys(self) -> list[PartitionKey]:
        """Return all partitions."""
        return [
            PartitionKey(name, each) for name, topic in self.view.topics.items() for each in topic.partitions
        ]

    def size(self, key: PartitionKey) -> tuple[int, int] | None:
        """Return the size of its batches."""
        if key not in self.keys():
            return None
        return sum(len(batch) for _, _, batch in self.batches.get(key, ())), 0

    async def disk_space(self) -> tuple[int, int] | ErrorCode:
        """Return some space, or refuse."""
        return (1000, 400) if self.error is ErrorCode.NONE else self.error

    def active_producers(self, key: PartitionKey) -> list[ActiveProducer] | ErrorCode:
        """Return one for each batch."""
        error = self._error(key)
        if error is not ErrorCode.NONE:
            return error
        return [ActiveProducer(7, 1, last, 5, 3, last - 1) for _, last, _ in self.batches.get(key, ())]

    def epoch_end_offset(self, key: PartitionKey, leader_epoch: int, current_leader_epoch: int) -> EpochEnd:
        """Return the end of the only epoch."""
        error = self._error(key)
        return EpochEnd(error) if error is not ErrorCode.NONE else EpochEnd(error, 5, self.end(key))


class MemoryController:
    """Creates topics in the view at once."""

    def __init__(self, view: ClusterView, client: tuple[str, int] = ("127.0.0.1", 1)) -> None:
        self.active = True
        self.view = view
        self.client = client
        self.settings: dict[str, dict[str, str]] = {}
        self.moves: dict[PartitionKey, Move] = {}

    async def elect_leaders(
        self, keys: Collection[PartitionKey] | None, *, unclean: bool, timeout_ms: int
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Elect."""
        return dict.fromkeys(keys or (), PartitionOutcome(ErrorCode.NONE))

    async def reassign(
        self, targets: Mapping[PartitionKey, tuple[int, ...] | None], *, timeout_ms: int
    ) -> dict[PartitionKey, PartitionOutcome]:
        """Begin at once, from broker 1."""
        for key, target in targets.items():
            self.moves.pop(key, None)
            if target is not None:
                self.moves[key] = Move((*target, 1), (1,), target)
        return dict.fromkeys(targets, PartitionOutcome(ErrorCode.NONE))

    def reassignments(self) -> Iterator[tuple[PartitionKey, Move]]:
        """Say what was begun."""
        return iter(list(self.moves.items()))

    async def shut_down(self, broker_id: int, generation: BrokerGeneration) -> ShutdownOutcome:
        """Agree."""
        return ShutdownOutcome(ErrorCode.NONE)

    async def create_topics(
        self, topics: Sequence[NewTopic], *, timeout_ms: int, validate_only: bool
    ) -> dict[str, TopicOutcome]:
        """Create, or only check."""
        outcomes = {}
        for topic in topics:
            settings = {name: value or "" for name, value in topic.settings.items()}
            count = max(topic.num_partitions, 1)
            try:
                check_topic_settings(settings)
            except InvalidTopicSettingError as error:
                outcomes[topic.name] = TopicOutcome(ErrorCode.INVALID_CONFIG, error.message)
                continue
            if topic.name in self.view.topics:
                outcomes[topic.name] = TopicOutcome(ErrorCode.TOPIC_ALREADY_EXISTS, "it exists")
                continue
            if not validate_only:
                self.settings[topic.name] = settings
                self._announce(topic.name, count)
            created = None if validate_only else topic_id(topic.name)
            outcomes[topic.name] = TopicOutcome(ErrorCode.NONE, None, created, count, 1, settings)
        return outcomes

    async def delete_topics(self, names: Sequence[str], *, timeout_ms: int) -> dict[str, TopicOutcome]:
        """Delete."""
        outcomes = {}
        for name in names:
            found = self.view.topics.get(name)
            if found is None:
                outcomes[name] = TopicOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown")
                continue
            states = [partition_state(index, leader=-2) for index in found.partitions]
            self.view.apply(update_metadata({name: states}, client=self.client))
            outcomes[name] = TopicOutcome(ErrorCode.NONE)
        return outcomes

    async def create_partitions(
        self, counts: Sequence[NewPartitions], *, timeout_ms: int, validate_only: bool
    ) -> dict[str, TopicOutcome]:
        """Add partitions."""
        outcomes = {}
        for each in counts:
            if each.name not in self.view.topics:
                outcomes[each.name] = TopicOutcome(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "unknown")
            elif each.count <= len(self.view.topics[each.name].partitions):
                outcomes[each.name] = TopicOutcome(ErrorCode.INVALID_PARTITIONS, "not more than there are")
            else:
                self._announce(each.name, each.count)
                outcomes[each.name] = TopicOutcome(ErrorCode.NONE)
        return outcomes

    def _announce(self, name: str, count: int) -> None:
        states = [partition_state(index) for index in range(count)]
        self.view.apply(update_metadata({name: states}, client=self.client))


class MemoryConfigs:
    """Settings of topics or brokers in a dict."""

    def __init__(
        self,
        settings: dict[str, dict[str, str]],
        lists: Mapping[str, str | None],
        check: Callable[[SettingChanges, Mapping[str, str]], None],
    ) -> None:
        self.defaults = TopicSettings(min_insync_replicas=2)
        self.settings = settings
        self._lists = lists
        self._check = check

    def overrides(self, name: str) -> Mapping[str, str]:
        """Return what is set."""
        return self.settings.get(name, {})

    async def alter(self, name: str, changes: SettingChanges, validate_only: bool = False) -> None:
        """Change."""
        after = changes.applied(self.overrides(name), self._lists)
        self._check(changes, after)
        if not validate_only:
            self.settings[name] = after


class MemoryProducerIds:
    """Rising numbers."""

    def __init__(self) -> None:
        self._next = 1000

    async def next(self) -> int:
        """Return the next one."""
        self._next += 1
        return self._next


@dataclass
class MemoryParts:
    """One broker's services and what is behind them."""

    view: ClusterView
    replicas: MemoryReplicas
    controller: MemoryController
    configs: MemoryConfigs
    own_configs: MemoryConfigs
    services: BrokerServices = field(init=False)

    @classmethod
    def build(cls, settings: BrokerConfig) -> MemoryParts:
        """Put the parts together; must run in the event loop that uses them."""
        view = ClusterView()
        controller = MemoryController(view)
        own = MemoryConfigs({}, BROKER_LISTS, lambda changes, _: check_broker_changes(changes))
        of_topics = MemoryConfigs(
            controller.settings,
            TOPIC_LISTS,
            lambda changes, after: check_topic_settings(changes.named(after), after=after),
        )
        parts = cls(view, MemoryReplicas(view), controller, of_topics, own)
        parts.services = services(
            view,
            replicas=in_every_part(parts.replicas),
            controller=lambda: parts.controller,
            topic_configs=parts.configs,
            broker_configs=parts.own_configs,
            producer_ids=MemoryProducerIds(),
            config=settings,
        )
        return parts


class MemoryBroker:
    """Both listeners in a thread with an event loop, for clients that block. A context manager."""

    def __init__(self, settings: BrokerConfig, topics: Mapping[str, int], limits: ListenerLimits) -> None:
        self._settings = settings
        self._topics = topics
        self._limits = limits
        # The loop of real brokers.
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="memory broker")
        self.parts: MemoryParts
        self._listeners: list[Listener] = []

    def __enter__(self) -> Self:
        self._thread.start()
        self.run(self._start())
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.run(self.stop_listening())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the broker's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    @property
    def bootstrap(self) -> str:
        """The client listener."""
        host, port = self._listeners[0].address
        return f"{host}:{port}"

    @property
    def client_address(self) -> tuple[str, int]:
        """The client listener."""
        return self._listeners[0].address

    @property
    def broker_address(self) -> tuple[str, int]:
        """The broker listener."""
        return self._listeners[1].address

    async def _start(self) -> None:
        self.parts = parts = MemoryParts.build(self._settings)
        clients = ApiHandlers(parts.services, for_brokers=False)
        brokers = ApiHandlers(parts.services, for_brokers=True)
        scram = ScramServer([SECRET], CLUSTER_ID)
        address = ("127.0.0.1", 0)
        self._listeners = [
            Listener(bind("client", address), name="client", api=clients, limits=self._limits),
            Listener(bind("broker", address), name="broker", api=brokers, sasl=scram, limits=self._limits),
        ]
        parts.controller.client = self.client_address
        states = {
            name: [partition_state(index) for index in range(count)] for name, count in self._topics.items()
        }
        parts.view.apply(update_metadata(states, client=self.client_address))

    async def stop_listening(self) -> None:
        """End both listeners and their connections."""
        for listener in self._listeners:
            await listener.stop()
