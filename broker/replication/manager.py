"""The replicas of a broker behind one door: control requests, produce, fetch, offsets, upkeep.

Puts the parts together and hands calls on; each part decides for itself. A broker leads only by a
LeaderAndIsr for its current generation: at the end of a quorum session it steps down everywhere. Any error of
the disk goes to `on_storage_error`, which stops the broker; damage goes to broker/replication/mending.py.
Source: control-plane design, "Broker"; seeds [0.B], [0.E], [1.6].
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

from broker.core.cluster_view import ClusterView
from broker.core.partition import IdleState
from broker.datadir.directory import LogDirectory
from broker.log.disk_threads import finished
from broker.log.errors import DamagedSegmentError, LogStorageError, UnreadableBatchError
from broker.log.files import disk_space
from broker.replication import offsets
from broker.replication.clock import monotonic_ms
from broker.replication.control import Control
from broker.replication.deleting import Deleting
from broker.replication.fetchers import Fetchers
from broker.replication.fetching import Fetching, Reader
from broker.replication.isr_writer import IsrWriter
from broker.replication.maintenance import Maintenance
from broker.replication.mending import Mending
from broker.replication.outcomes import (
    ActiveProducer,
    Counters,
    DeleteOutcome,
    EpochEnd,
    FetchOutcome,
    FetchPosition,
    ListedOffset,
    LogSize,
    ProduceOutcome,
    ReplicaStatus,
    ReplicationOptions,
)
from broker.replication.producing import GivenIds, Producing
from broker.replication.published_epoch import PublishedEpoch
from broker.replication.registry import Registry, is_log_of
from controller.messages.entities import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from controller.wire.codes import ErrorCode
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata.broker_settings import BrokerSettings
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import LogEnd, PartitionStateRecord, TopicRecord, topic_label
from quorum.metadata.topic_settings import TopicSettings

_log = logging.getLogger(__name__)


class ReplicaManager:
    """All replicas of one broker."""

    def __init__(
        self,
        broker_id: int,
        log_directory: LogDirectory,
        cluster_view: ClusterView,
        *,
        options: ReplicationOptions,
        secrets: Sequence[str],
        cluster_id: str,
        dial: Mapping[int, tuple[str, int]],
        settings_of: Callable[[str], TopicSettings],
        producer_ids: GivenIds,
        on_storage_error: Callable[[QuorateError], None],
        register_again: Callable[[], None],
    ) -> None:
        """Serve nothing before open_replicas() and attach().

        Args:
            broker_id: this broker.
            log_directory: open; the manager does not close it.
            cluster_view: changed by UpdateMetadata.
            options: see there.
            secrets: of the broker listeners; the first one is used, all are accepted.
            cluster_id: of /cluster/id.
            dial: {broker id: address} that replaces what a broker announces.
            settings_of: a topic's effective settings.
            producer_ids: those that were given out.
            on_storage_error: called when the broker must stop; also for a defect in one of the tasks.
            register_again: called when the broker must register again, so that its shortened logs are judged.
        """

        def stop(error: QuorateError) -> None:
            self._failed(error)

        self._registry = Registry(broker_id, log_directory, cluster_view, settings_of)
        self._on_storage_error = on_storage_error
        self._counters = Counters()
        self._isr_writer = IsrWriter(self._counters, stop)
        self._fetchers = Fetchers(
            self._registry,
            options,
            self._counters,
            secrets=secrets,
            cluster_id=cluster_id,
            dial=dial,
            on_failure=stop,
        )
        self._producing = Producing(self._registry, self._counters, producer_ids, stop)
        self._deleting = Deleting(self._registry, self._failed)
        self._fetching = Fetching(self._registry, self._isr_writer, self._counters, self._failed)
        self._published_epoch = PublishedEpoch()
        self._control = Control(
            self._registry, self._fetchers, self._fetching.wake_followers, self._published_epoch
        )
        self._mending = Mending(self._registry, self._control, register_again, on_storage_error, options)
        self._maintenance = Maintenance(self._registry, self._isr_writer, options, stop)
        #: The shortened logs that the present registration names.
        self._named: frozenset[PartitionKey] = frozenset()
        self._upkeep: asyncio.Task[None] | None = None
        #: Set while this broker has a registration. Requests that come before it wait: only its generation
        #: tells a request for this life from one for a former life.
        self._registered = asyncio.Event()

    # -- life ------------------------------------------------------------------------------------------------

    def open_replicas(
        self,
        topics: Mapping[str, TopicRecord],
        states: Mapping[PartitionKey, PartitionStateRecord],
        *,
        unreadable: Collection[str] = (),
    ) -> None:
        """Open the logs of replicas that are assigned to this broker; the others are set aside as strays.

        A log whose topic id was lost belongs to the topic of its name. A log that an ISR counts on and that
        was, or may have been, in the directory is made again, empty and shortened.

        Nothing is led or followed yet; what the states say is remembered, but does not count as applied.

        Args:
            topics: every topic whose record could be read.
            states: the partitions' states, as far as they exist.
            unreadable: topics with a malformed record; their logs are left alone.

        Raises:
            LogStorageError: the disk refused.
        """
        registry = self._registry
        counted_on = list(self._counted_on(topics, states))
        for key, log in list(registry.log_directory.logs.items()):
            if key.topic in unreadable:
                continue
            topic = topics.get(key.topic)
            is_ours = topic is not None and registry.broker_id in topic.partitions.get(key.partition, ())
            if is_ours and topic is not None and topic.topic_id is not None and log.topic_id is None:
                registry.log_directory.adopt(key, topic.topic_id)
            if topic is None or not is_ours or not is_log_of(log, topic.topic_id):
                _log.warning("%s-%d is not assigned to this broker: its log is set aside as a stray", *key)
                registry.log_directory.set_aside(key)
                continue
            replica = registry.open_replica(key)
            if (state := states.get(key)) is not None:
                replica.take_role(IdleState(replica.high_watermark, state.leader_epoch), applied=False)

        missing = [key for key in counted_on if key not in registry.log_directory.logs]
        registry.log_directory.note_shortened(missing)
        for key in missing:
            _log.error("%s-%d has lost its log: an empty one takes its place", *key)
            registry.create_replica(key, topics[key.topic].topic_id)

    def _counted_on(
        self, topics: Mapping[str, TopicRecord], states: Mapping[PartitionKey, PartitionStateRecord]
    ) -> Iterator[PartitionKey]:
        """Yield the partitions whose ISR names this broker and that had, or may have had, a log here."""
        directory, broker_id = self._registry.log_directory, self._registry.broker_id
        for key, state in states.items():
            had_log = directory.lost_power or key in directory.high_watermarks or key in directory.logs
            replicas = topics[key.topic].partitions.get(key.partition, ()) if key.topic in topics else ()
            if had_log and broker_id in state.isr and broker_id in replicas:
                yield key

    def shortened(self) -> dict[str, dict[int, LogEnd]]:
        """Return {topic id: {partition: where its log ends}} of the shortened logs, for a registration."""
        directory = self._registry.log_directory
        self._named = frozenset(directory.shortened)
        found: dict[str, dict[int, LogEnd]] = {}
        for key in directory.shortened:
            if (log := directory.logs.get(key)) is not None:
                ends = found.setdefault(topic_label(key.topic, log.topic_id), {})
                ends[key.partition] = LogEnd(log.latest_epoch, log.log_end_offset)
        return found

    async def start(self) -> None:
        """Begin the upkeep; the replicas must be open, or the first checkpoint would lack some of them."""
        self._upkeep = asyncio.create_task(self._maintenance.run(), name="upkeep of replicas")

    async def stop(self, *, clean: bool = True) -> None:
        """Step down everywhere, stop fetching and write the high watermarks; the log directory stays open.

        Args:
            clean: False: write nothing, as after SIGKILL.
        """
        self._registry.step_down()
        if self._upkeep is not None:
            self._upkeep.cancel()
            await asyncio.gather(self._upkeep, return_exceptions=True)
        await self._mending.stop()
        await self._producing.stop()
        await self._fetchers.stop()
        await self._isr_writer.stop()
        if not clean:
            return
        try:
            await self._maintenance.write_last_high_watermarks()
        except LogStorageError as error:
            self._failed(error)

    def attach(self, client: Client, generation: BrokerGeneration) -> None:
        """Take up a new registration: ISRs change through this client, requests are for this generation."""
        if generation != self._registry.generation:
            self._registry.begin_generation(generation)
        if not self._named.issuperset(self._registry.log_directory.shortened):
            # Damage was met after the registration was written: another one follows, which names it.
            self._registry.leave_generation()
        self._isr_writer.attach(client)
        self._published_epoch.attach(client)
        self._registered.set()
        for replica in self._registry.replicas.values():
            # A request for this generation came before the reply to the registration, and a change since.
            if (leader := replica.leader) is not None and leader.pending is not None:
                self._isr_writer.write(replica, leader, leader.pending)

    def detach(self) -> None:
        """Note that the session is over: others lead now what this broker led."""
        self._registered.clear()
        self._isr_writer.attach(None)
        self._published_epoch.attach(None)
        self._registry.step_down()

    # -- control requests ------------------------------------------------------------------------------------

    async def handle_leader_and_isr(self, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
        """Lead or follow the named partitions."""
        await self._registered.wait()
        try:
            return await self._control.leader_and_isr(request)
        except LogStorageError as error:
            self._failed(error)
            return LeaderAndIsrResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, topics=())

    async def handle_stop_replica(self, request: StopReplicaRequest) -> StopReplicaResponse:
        """Stop the named replicas."""
        await self._registered.wait()
        try:
            return await self._control.stop_replica(request)
        except LogStorageError as error:
            self._failed(error)
            return StopReplicaResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, partition_errors=())

    async def handle_update_metadata(self, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
        """Take over what the cluster looks like; what comes before the registration is sent again."""
        if not self._registered.is_set():
            return UpdateMetadataResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)
        return await self._control.update_metadata(request)

    # -- records ---------------------------------------------------------------------------------------------

    async def produce(
        self, batches: Mapping[PartitionKey, bytes | memoryview], *, acks: int, timeout_ms: int
    ) -> dict[PartitionKey, ProduceOutcome]:
        """Append batches; see Producing.produce."""
        return await self._producing.produce(batches, acks=acks, timeout_ms=timeout_ms)

    async def fetch(
        self,
        positions: Mapping[PartitionKey, FetchPosition],
        *,
        replica_id: int = -1,
        generation: int = -1,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        rack: str = "",
    ) -> dict[PartitionKey, FetchOutcome]:
        """Read partitions; see Fetching.fetch.

        Args:
            positions: where to read.
            replica_id: the follower that fetches, -1 for a consumer.
            generation: of the follower.
            max_wait_ms: 0: answer at once.
            min_bytes: of records in all.
            max_bytes: of records in all.
            rack: of the consumer.
        """
        return await self._fetching.fetch(
            positions,
            Reader(replica_id, BrokerGeneration(generation), rack),
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
        )

    async def delete_records(
        self, offsets: Mapping[PartitionKey, int], *, timeout_ms: int
    ) -> dict[PartitionKey, DeleteOutcome]:
        """Delete the records below offsets; see Deleting.delete_records."""
        return await self._deleting.delete_records(offsets, timeout_ms=timeout_ms)

    async def list_offset(
        self, key: PartitionKey, timestamp: int, *, current_leader_epoch: int = -1, replica_id: int = -1
    ) -> ListedOffset:
        """Return the offset for a timestamp; see offsets.list_offset."""
        try:
            return await offsets.list_offset(
                self._registry, key, timestamp, current_leader_epoch, is_follower=replica_id >= 0
            )
        except UnreadableBatchError as error:
            return ListedOffset(error.error_code)
        except LogStorageError as error:
            return ListedOffset(self._failed(error))

    def epoch_end_offset(
        self, key: PartitionKey, *, leader_epoch: int, current_leader_epoch: int = -1
    ) -> EpochEnd:
        """Return where a leader epoch ended."""
        return offsets.epoch_end_offset(self._registry, key, leader_epoch, current_leader_epoch)

    # -- logs ------------------------------------------------------------------------------------------------

    def logs(self) -> list[PartitionKey]:
        """Return the partitions whose logs are here."""
        return list(self._registry.log_directory.logs)

    def log_size(self, key: PartitionKey) -> LogSize | None:
        """Return how large a log is; None: it is not here."""
        log = self._registry.log_directory.logs.get(key)
        if log is None:
            return None
        replica = self._registry.replicas.get(key)
        lag = -1 if replica is None else max(replica.high_watermark - log.log_end_offset, 0)
        return LogSize(log.size_bytes, lag)

    async def disk_space(self) -> tuple[int, int] | ErrorCode:
        """Return (total, usable) bytes of the log directory's disk."""
        directory = self._registry.log_directory
        found = directory.flusher.readers.run(partial(disk_space, directory.path))
        await finished(found)
        try:
            return found.result()
        except LogStorageError as error:
            return error.error_code

    def active_producers(self, key: PartitionKey) -> list[ActiveProducer] | ErrorCode:
        """Return the idempotent producers of a partition, or why they are not known here."""
        replica = self._registry.replicas.get(key)
        if replica is None:
            return self._registry.why_missing(key)
        return [ActiveProducer(*each) for each in replica.log.active_producers()]

    def _failed(self, error: QuorateError) -> ErrorCode:
        """Take note that the disk, or a task, has failed; returns the answer to a request that met it."""
        if isinstance(error, DamagedSegmentError):
            return self._mending.meet(error)
        self._on_storage_error(error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    # -- settings and counts ---------------------------------------------------------------------------------

    def settings_changed(self, topic: str) -> None:
        """Apply a topic's new settings to its replicas."""
        settings = self._registry.settings_of(topic)
        for key, replica in self._registry.replicas.items():
            if key.topic == topic:
                replica.log.configure(settings)
                replica.min_insync_replicas = settings.min_insync_replicas

    def throttle(self, settings: BrokerSettings) -> None:
        """Limit the copying of throttled replicas to these rates from now on."""
        now_ms = monotonic_ms()
        self._registry.leader_throttle.set_rate(settings.leader_throttled_rate, now_ms)
        self._registry.follower_throttle.set_rate(settings.follower_throttled_rate, now_ms)

    def status(self) -> ReplicaStatus:
        """Return counts for operators."""
        registry = self._registry
        leaders = [replica.leader for replica in registry.replicas.values() if replica.leader is not None]
        followed = sum(replica.follower is not None for replica in registry.replicas.values())
        return ReplicaStatus(
            generation=registry.generation,
            controller_id=registry.controller_id,
            controller_epoch=registry.controller_epoch,
            led=len(leaders),
            followed=followed,
            offline=len(registry.replicas) - len(leaders) - followed,
            under_replicated=sum(leader.is_under_replicated() for leader in leaders),
            counters=replace(self._counters),
            waiting_produces=self._producing.waiting,
            waiting_fetches=self._fetching.waiting,
            leader_throttled_bytes=registry.leader_throttle.bytes_total,
            follower_throttled_bytes=registry.follower_throttle.bytes_total,
        )
