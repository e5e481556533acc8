"""Brokers of one event loop: real logs, listeners, fetchers and a real quorum; the test is the controller.

`Brokers` holds a quorum of one node in this process and brokers that can be stopped and started again on
their data. A test decides states, writes them and sends the control requests, so it can hold back any of
them.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from broker.core.cluster_view import ClusterView
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.datadir.directory import LogDirectory
from broker.replication.fetching import Reader
from broker.replication.opening import open_replicas
from broker.replication.outcomes import ProduceOutcome, ReplicationOptions
from broker.replication.parts import ReplicaParts
from broker.server.handlers import ApiHandlers
from broker.server.listener import Listener
from broker.stores.producer_ids import ProducerIds
from controller.election.store import ensure_base_paths, read_partition_states, register_broker
from controller.messages.entities import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
    partition_codes,
)
from controller.wire.codes import ErrorCode
from controller.wire.scram import ScramServer
from quorum.client import BadVersionError, Client, CreateMode, Transaction
from quorum.errors import QuorateError
from quorum.local import ensemble
from quorum.metadata import paths
from quorum.metadata.errors import NoSessionError
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import CONTROLLER_EPOCH, PartitionKey
from quorum.metadata.records import BrokerRecord, PartitionStateRecord, TopicRecord
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.listening import bind
from tests.support.broker_services import CLUSTER_ID, services
from tests.support.broker_wire import record_batch
from tests.support.trust import TRUST

SECRET = "a secret of sixteen bytes"
TOPIC = "orders"
KEY = PartitionKey(TOPIC, 0)
TOPIC_ID = uuid.UUID(int=7)
DEADLINE_S = 15.0
QUICK = ReplicationOptions(
    replica_lag_time_max_ms=600, replica_fetch_wait_max_ms=100, high_watermark_checkpoint_interval_ms=200
)


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for a condition of this event loop, with a deadline."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():
            # Gives way to the tasks of the brokers until one of them has made it true.
            await asyncio.wait([asyncio.ensure_future(asyncio.get_running_loop().run_in_executor(None, int))])


class SomeProducerIds(ProducerIds):
    """Ids that were given out: all below an end, which the quorum knows and the brokers do not."""

    def __init__(self) -> None:
        super().__init__(0)
        self.end = 1000
        self.questions = 0
        self.fails = False

    async def was_given(self, producer_id: int) -> bool:
        self.questions += 1
        await asyncio.sleep(0)
        if self.fails:
            raise NoSessionError
        self.given_end = self.end
        return producer_id < self.end


@dataclass
class TestBroker:
    """One broker of a test."""

    broker_id: int
    folder: Path
    client: Client
    generation: BrokerGeneration
    directory: LogDirectory
    parts: ReplicaParts
    upkeep: asyncio.Task[None]
    listener: Listener
    failures: list[QuorateError]
    #: One entry for each time that it had to register again.
    unjudged: list[int]

    __test__ = False

    @property
    def log(self) -> Any:
        return self.directory.logs[KEY]

    @property
    def replica(self) -> Any:
        return self.parts.registry.replicas[KEY]

    def values(self) -> bytes:
        """All bytes of the log."""
        log = self.log
        end = log.log_end_offset
        offset, found = log.log_start_offset, b""
        while offset < end:
            read = log.segments.read(offset, 1 << 20, below=end, at_least_one=True)
            found += read.records
            offset = read.next_offset
        return found

    async def produce(
        self, *values: bytes, acks: int = -1, timeout_ms: int = 10_000, key: PartitionKey = KEY
    ) -> ProduceOutcome:
        batch = record_batch(values)
        return (await self.parts.producing.produce({key: batch}, acks=acks, timeout_ms=timeout_ms))[key]

    async def fetch(
        self,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        rack: str = "",
        replica_id: int = -1,
        generation: int = -1,
        current_leader_epoch: int = -1,
    ) -> FetchOutcome:
        position = FetchPosition(offset, 1 << 20, current_leader_epoch)
        outcomes = await self.parts.fetching.fetch(
            {KEY: position},
            Reader(replica_id, BrokerGeneration(generation), rack),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=1 << 20,
        )
        return outcomes[KEY]


@dataclass
class Brokers:
    """The brokers, and the state of the one partition as the test's controller decides it."""

    folder: Path
    hosts: str
    options: ReplicationOptions
    settings: TopicSettings
    admin: Client
    running: dict[int, TestBroker] = field(default_factory=dict)
    dial: dict[int, tuple[str, int]] = field(default_factory=dict)
    producer_ids: SomeProducerIds = field(default_factory=SomeProducerIds)
    replicas: tuple[int, ...] = (1, 2, 3)
    partitions: int = 1
    controller_epoch: int = 1

    def __getitem__(self, broker_id: int) -> TestBroker:
        return self.running[broker_id]

    async def start(self, broker_id: int) -> TestBroker:
        folder = self.folder / f"broker-{broker_id}"
        view = ClusterView()
        directory = LogDirectory.open(
            str(folder), broker_id=broker_id, cluster_id=CLUSTER_ID, settings_of=lambda _: self.settings
        )
        failures: list[QuorateError] = []
        unjudged: list[int] = []
        parts = ReplicaParts.build(
            broker_id,
            directory,
            view,
            options=self.options,
            secrets=[SECRET],
            cluster_id=CLUSTER_ID,
            dial=self.dial,
            settings_of=lambda _: self.settings,
            producer_ids=self.producer_ids,
            on_storage_error=failures.append,
            register_again=lambda: unjudged.append(broker_id),
        )
        state = await self.state()
        topics = {TOPIC: TopicRecord(TOPIC_ID, dict.fromkeys(range(self.partitions), self.replicas))}
        open_replicas(parts.registry, topics, {KEY: state[0]} if state else {})
        await parts.registry.write_high_watermarks()
        upkeep = asyncio.create_task(parts.maintenance.run())
        listener = Listener(
            bind("broker", ("127.0.0.1", 0)),
            name="broker",
            api=ApiHandlers(services(view, replicas=parts), for_brokers=True),
            sasl=ScramServer([SECRET], CLUSTER_ID),
        )
        self.dial[broker_id] = listener.address
        client, generation = await self.register(broker_id)
        parts.control.attach(client, generation)
        broker = TestBroker(
            broker_id, folder, client, generation, directory, parts, upkeep, listener, failures, unjudged
        )
        self.running[broker_id] = broker
        return broker

    async def register(self, broker_id: int) -> tuple[Client, BrokerGeneration]:
        client = Client(self.hosts, session_timeout_ms=5000)
        await client.start()
        incarnation = uuid.UUID(int=broker_id).hex
        record = BrokerRecord("127.0.0.1", 1, (), {}, timestamp_ms=0, incarnation=incarnation)
        return client, await register_broker(client, broker_id, record, TRUST)

    async def stop(self, broker_id: int, *, kill: bool = False) -> None:
        """End a broker; a killed one closes neither its logs nor its checkpoint."""
        broker = self.running.pop(broker_id)
        await broker.listener.stop()
        if kill:
            broker.parts.maintenance._on_failure = lambda _: None
        broker.upkeep.cancel()
        await asyncio.gather(broker.upkeep, return_exceptions=True)
        if kill:
            await broker.parts.fetchers.stop()
            await broker.parts.isr_writer.stop()
            broker.directory.abandon()
        else:
            await broker.parts.stop()
            broker.directory.close()
        await broker.client.close()
        assert broker.failures == []

    # -- the controller --------------------------------------------------------------------------------------

    async def state(self) -> tuple[PartitionStateRecord, PartitionVersion] | None:
        return (await read_partition_states(self.admin, [KEY]))[KEY]

    async def isr(self) -> tuple[int, ...]:
        state = await self.state()
        assert state is not None
        return state[0].isr

    async def until_isr(self, *members: int) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while set(await self.isr()) != set(members):
                pass

    async def decide(
        self, leader: int, isr: Sequence[int], *, recovery: int = 0
    ) -> tuple[PartitionStateRecord, PartitionVersion]:
        """Write the partition's next state as the controller does; sends nothing."""
        before = await self.state()
        epoch = LeaderEpoch(0 if before is None else before[0].leader_epoch + 1)
        state = PartitionStateRecord(
            ControllerEpoch(self.controller_epoch), leader, epoch, tuple(isr), recovery
        )
        path = paths.partition_state_path(KEY)
        if before is None:
            transaction = Transaction()
            for parent in (
                paths.topic_path(TOPIC),
                paths.topic_partitions_path(TOPIC),
                paths.partition_path(KEY),
            ):
                transaction.create(parent, b"", CreateMode.PERSISTENT)
            transaction.create(path, state.encode(), CreateMode.PERSISTENT)
            await self.admin.multi(transaction)
            return state, PartitionVersion(0)
        stat = await self.admin.set(path, state.encode(), before[1])
        return state, PartitionVersion(stat.version)

    async def try_decide(
        self, leader: int, isr: Sequence[int]
    ) -> tuple[PartitionStateRecord, PartitionVersion] | None:
        """As decide(); None if a leader has changed the ISR meanwhile."""
        try:
            return await self.decide(leader, isr)
        except BadVersionError:
            return None

    def leader_and_isr(
        self,
        broker_id: int,
        state: PartitionStateRecord,
        version: PartitionVersion,
        *,
        generation: int | None = None,
        controller_epoch: int | None = None,
        topic_id: uuid.UUID = TOPIC_ID,
        key: PartitionKey = KEY,
    ) -> LeaderAndIsrRequest:
        partition = LeaderAndIsrPartitionState(
            partition_index=key.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=version,
            replicas=self.replicas,
            leader_recovery_state=state.leader_recovery_state,
        )
        return LeaderAndIsrRequest(
            controller_id=9,
            controller_epoch=ControllerEpoch(controller_epoch or self.controller_epoch),
            broker_epoch=BrokerGeneration(generation or self.running[broker_id].generation),
            type=1,
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name=key.topic, topic_id=topic_id, partition_states=(partition,)
                ),
            ),
            live_leaders=(),
        )

    def update_metadata(
        self, broker_id: int, state: PartitionStateRecord, version: PartitionVersion, racks: dict[int, str]
    ) -> UpdateMetadataRequest:
        partition = UpdateMetadataPartitionState(
            partition_index=0,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=version,
            replicas=self.replicas,
        )
        return UpdateMetadataRequest(
            controller_id=9,
            controller_epoch=ControllerEpoch(self.controller_epoch),
            broker_epoch=self.running[broker_id].generation,
            topic_states=(
                UpdateMetadataTopicState(topic_name=TOPIC, topic_id=TOPIC_ID, partition_states=(partition,)),
            ),
            live_brokers=tuple(
                UpdateMetadataBroker(
                    id=each,
                    endpoints=(
                        UpdateMetadataEndpoint(
                            port=address[1], host=address[0], listener="BROKER", security_protocol=2
                        ),
                    ),
                    rack=racks.get(each),
                )
                for each, address in self.dial.items()
            ),
        )

    async def send(
        self,
        broker_id: int,
        decided: tuple[PartitionStateRecord, PartitionVersion],
        racks: dict[int, str] | None = None,
    ) -> None:
        """UpdateMetadata and LeaderAndIsr to one broker, for its present generation."""
        parts = self.running[broker_id].parts
        update = await parts.control.apply(self.update_metadata(broker_id, *decided, racks or {}))
        assert update.error_code == ErrorCode.NONE
        response = await parts.control.apply(self.leader_and_isr(broker_id, *decided))
        assert response.error_code == ErrorCode.NONE
        assert partition_codes(response) == [ErrorCode.NONE]

    async def elect(self, leader: int, isr: Sequence[int], *, recovery: int = 0) -> None:
        """Decide and tell every running broker, the leader first."""
        decided = await self.decide(leader, isr, recovery=recovery)
        for broker_id in sorted(self.running, key=lambda each: each != leader):
            await self.send(broker_id, decided)


@contextlib.asynccontextmanager
async def brokers(
    folder: Path,
    *broker_ids: int,
    options: ReplicationOptions = QUICK,
    settings: TopicSettings | None = None,
) -> AsyncIterator[Brokers]:
    """Run brokers; all that still run when the body ends are stopped."""
    async with ensemble(1) as quorum, Client(quorum.hosts) as admin:
        await ensure_base_paths(admin)
        await admin.set(CONTROLLER_EPOCH, b"1")
        cluster = Brokers(
            folder, quorum.hosts, options, settings or TopicSettings(), admin, replicas=broker_ids
        )
        try:
            for broker_id in broker_ids:
                await cluster.start(broker_id)
            yield cluster
        finally:
            for broker_id in list(cluster.running):
                await cluster.stop(broker_id)
