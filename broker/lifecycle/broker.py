"""One broker, from its configuration to its end.

Puts the parts together and owns their order: HTTP is served from the beginning, since a data directory may
take long to open; it is opened before the quorum learns of the broker; the broker listener serves before the
registration, because the controller dials it at once; clients are accepted only after the first
UpdateMetadata, because before it every topic would look unknown. A session that is over is followed by a new
one, with a new generation and a new controller candidate; the logs stay open meanwhile.

Decides nothing about partitions or the cluster. Hard state is the data directory; all else is soft.
Source: control-plane design, "Broker" (Registration, Start-up); seeds [0.E], [1.1], [1.2].
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import time
import uuid
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final, NamedTuple

from broker.config.broker import BrokerConfig
from broker.datadir.directory import LogDirectory, open_in_thread
from broker.groups.coordinator import Coordinator
from broker.groups.options import group_options
from broker.lifecycle.admin import BrokerView
from broker.lifecycle.departure import Departure, DepartureOptions
from broker.lifecycle.listening import AnnouncedView, BrokerSockets, Listeners
from broker.lifecycle.peer_secret import check_peer_secret
from broker.lifecycle.registration import SHORTENED_MAX, broker_record
from broker.lifecycle.state_queue import StateQueue, handing_to
from broker.log.errors import LogStorageError
from broker.replication.opening import open_replicas
from broker.replication.outcomes import ReplicationOptions
from broker.replication.parts import ReplicaParts
from broker.replication.settings import apply_broker_settings, apply_topic_settings
from broker.server.services import BrokerServices
from broker.stores.broker_configs import BrokerConfigs
from broker.stores.producer_ids import ProducerIds
from broker.stores.topic_configs import TopicConfigs
from controller.core.options import ControllerOptions
from controller.election.published import Published, read_published
from controller.election.store import ensure_base_paths, ensure_cluster_id, register_broker
from controller.runtime.controller import Controller
from quorum.client import Client, ClientState, ConnectionLossError
from quorum.config.node import read_peer_secrets
from quorum.errors import NodeStoppedError, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import BrokerIdInUseError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.protection import keep_node, protect_znodes, prove_secrets
from quorum.metadata.trust import Trust
from quorum.platform.loop_watch import LoopWatch

log = logging.getLogger("quorate.broker")

#: How long one attempt to reach the quorum may take.
CONNECT_PATIENCE_MS: Final = 10_000.0
#: Pause before a broker that could not register tries it with another session.
REGISTER_PAUSE_S: Final = 1.0
#: How long a stop waits for the end of the session, so that the controller acts at once.
CLOSE_DEADLINE_S: Final = 3.0
#: A shorter silence of a disk is a stall, whatever the session's timeout.
DISK_HANG_MS_MIN: Final = 2000.0


class _Parts(NamedTuple):
    """What exists from the first session to the stop."""

    directory: LogDirectory
    replicas: ReplicaParts
    configs: TopicConfigs
    own_configs: BrokerConfigs
    producer_ids: ProducerIds
    #: None where requests come directly.
    queue: StateQueue | None


class Broker:
    """One broker on the running event loop."""

    def __init__(self, config: BrokerConfig, *, sockets: BrokerSockets | None = None) -> None:
        """Open nothing yet.

        Args:
            config: checked settings.
            sockets: bound sockets to serve on, in place of config.listen.
        """
        self.config = config
        self.broker_id = config.broker.id
        self.view = AnnouncedView()
        self.loop_watch = LoopWatch()
        self.failure: BaseException | None = None
        self._sockets = sockets
        self._secrets = read_peer_secrets(config.security.peer_secret_file)
        self.listeners = Listeners(config, self._secrets, BrokerView(self), self.view)
        self._trust: Trust | None = None
        #: A third of the session: what the broker led is led by others before the session would have ended.
        self._disk_hang_ms = max(config.broker.session_timeout_ms / 3, DISK_HANG_MS_MIN)
        self._is_protected = False
        #: Set when the session is over, or must be.
        self._lost = asyncio.Event()
        self._parts: _Parts | None = None
        self._client: Client | None = None
        self._generation: BrokerGeneration | None = None
        self._controller: Controller | None = None
        self._coordinator: Coordinator | None = None
        self.cluster_id = ""
        self._stopped = asyncio.Event()
        self._stopping = False
        self._follower: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data directory, register, and serve; returns when the broker is registered.

        Waits for the quorum as long as it takes.

        Raises:
            QuorateError: the data directory is of another broker or cluster, or in use; the id is in use; an
                address cannot be bound. Nothing runs any more then.
        """
        self._spawn(self.loop_watch.run())
        try:
            await self.listeners.start_admin(self._sockets)
            client, parts, published = await self._read_cluster()
            for topic, problem in published.problems.items():
                log.warning("topic %s is left alone: %s", topic, problem)
            states = {key: each.state for key, each in published.states.items()}
            open_replicas(parts.replicas.registry, published.topics, states, unreadable=published.problems)
            self._spawn(parts.replicas.maintenance.run())
            await self.listeners.start(self._services(parts))
            lost = await self._begin_session(client)
        except BaseException:
            await self.stop()
            raise
        self._follower = self._spawn(self._follow_sessions(lost))

    async def wait_ready(self) -> None:
        """Return when clients are served.

        Raises:
            NodeStoppedError: the broker stopped before.
        """
        waits = [asyncio.ensure_future(event.wait()) for event in (self.view.first, self._stopped)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if self._stopped.is_set():
            raise stopped_error(self) or NodeStoppedError(f"broker {self.broker_id} was stopped", "start it")

    async def run_until_stopped(self) -> None:
        """Return when the broker has stopped, by `stop` or by a failure of its own (`failure`)."""
        await self._stopped.wait()

    async def stop(self) -> None:
        """Let others lead, end the session, and close everything; may be called again."""
        await self._stop(ends_session=True, closes_logs=self.failure is None)

    async def kill(self) -> None:
        """End as after SIGKILL: the session is left to its timeout, the logs are left as they are."""
        await self._stop(ends_session=False, closes_logs=False)

    async def _stop(self, *, ends_session: bool, closes_logs: bool) -> None:
        if self._stopping:
            await self._stopped.wait()
            return
        self._stopping = True
        try:
            if ends_session and self._follower is not None:
                await self._depart()
            await self._end(ends_session=ends_session, closes_logs=closes_logs)
        finally:
            self._stopped.set()

    async def _depart(self) -> None:
        """Let others lead; a broker whose disk has failed asks no longer than its session would last."""
        if self.failure is None:
            await self._departure().run()
        elif isinstance(self.failure, LogStorageError):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self.config.broker.session_timeout_ms / 1000):
                    await self._departure().run()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error that nothing can mend: a log that cannot be written, a bug."""
        if self.failure is None and not self._stopping:
            self.failure = error
            log.error("broker %d stops: %s", self.broker_id, error)
            # Not one of the tasks that the stop ends.
            self._ending = asyncio.ensure_future(self.stop())

    # -- what others look at ---------------------------------------------------------------------------------

    @property
    def generation(self) -> BrokerGeneration | None:
        """The generation of the present registration; None while there is none."""
        return self._generation

    @property
    def controller(self) -> Controller | None:
        """The controller candidate of the present session."""
        return self._controller

    @property
    def coordinator(self) -> Coordinator | None:
        """The candidate for coordinator of groups of the present session."""
        return self._coordinator

    @property
    def parts(self) -> _Parts | None:
        """The parts of a broker that has started."""
        return self._parts

    def readiness(self) -> tuple[bool, str]:
        """Say whether clients are served, and why not."""
        if self.failure is not None:
            return False, f"the broker stops: {self.failure}"
        if self._stopping:
            return False, "the broker stops"
        if self._generation is None:
            return False, "the broker is not registered: it has no session with the quorum"
        if not self.view.received:
            return False, "the controller has not sent the state of the cluster yet"
        return True, "registered, and the state of the cluster is known"

    # -- inside ----------------------------------------------------------------------------------------------

    async def _open_parts(self) -> _Parts:
        config, limits = self.config, self.config.limits
        configs = TopicConfigs(config.topics, self._settings_changed, limits.segment_bytes_min)
        opens = partial(LogDirectory.open, config.broker.data_dir, settings_of=configs.settings_of)
        opens = partial(opens, broker_id=self.broker_id, cluster_id=self.cluster_id)
        directory = await open_in_thread(partial(opens, open_files_max=limits.open_files_max))
        dial = {broker_id: (address.host, address.port) for broker_id, address in config.dial.items()}
        producer_ids = ProducerIds(self.broker_id)
        replicas = ReplicaParts.build(
            self.broker_id,
            directory,
            self.view,
            options=ReplicationOptions(
                replica_lag_time_max_ms=config.broker.replica_lag_time_max_ms,
                disk_hang_ms=self._disk_hang_ms,
            ),
            secrets=self._secrets,
            cluster_id=self.cluster_id,
            dial=dial,
            settings_of=configs.settings_of,
            producer_ids=producer_ids,
            on_storage_error=self.fail,
            register_again=lambda: self._lost.set(),
        )
        own_configs = BrokerConfigs(self.broker_id, partial(apply_broker_settings, replicas.registry))
        queue = None
        if config.broker.channel == "queue":
            trust = Trust(self._secrets, self.cluster_id)
            queue = StateQueue(self.broker_id, handing_to(replicas.registered), trust)
        return _Parts(directory, replicas, configs, own_configs, producer_ids, queue)

    def _services(self, parts: _Parts) -> BrokerServices:
        return BrokerServices(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            replicas=parts.replicas,
            view=self.view,
            controller=lambda: self._controller,
            topic_configs=parts.configs,
            broker_configs=parts.own_configs,
            producer_ids=parts.producer_ids,
            config=self.config,
            groups=lambda: self._coordinator,
        )

    def _settings_changed(self, topic: str) -> None:
        if self._parts is not None:
            apply_topic_settings(self._parts.replicas.registry, topic)

    async def _connect(self) -> Client:
        """Return a client with a session, however long the quorum is away."""
        hosts = ",".join(str(host) for host in self.config.quorum.hosts)
        while True:
            client = Client(hosts, session_timeout_ms=self.config.broker.session_timeout_ms)
            self._client = client
            try:
                await client.start(CONNECT_PATIENCE_MS)
            except QuorateError as error:
                await client.close()
                if self._stopping or not error.retriable:
                    raise
                log.info("broker %d waits for the quorum at %s: %s", self.broker_id, hosts, error.message)
            else:
                return client

    async def _read_cluster(self) -> tuple[Client, _Parts, Published]:
        """Open the data directory and read what the quorum has; again if the connection is lost meanwhile."""
        proposed = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")
        while True:
            client = await self._connect()
            try:
                self.cluster_id = await ensure_cluster_id(client, proposed)
                self._trust = Trust(self._secrets, self.cluster_id)
                await prove_secrets(client, self._trust)
                await check_peer_secret(client, self._trust)
                await self._make_tree(client, self._trust)
                self._parts = parts = self._parts or await self._open_parts()
                await parts.configs.attach(client)
                await parts.own_configs.attach(client)
                if parts.queue is not None:
                    await parts.queue.watch(client)
                return client, parts, await read_published(client)
            except ConnectionLossError as error:
                await client.close()
                if self._stopping:
                    raise
                log.info("broker %d asks the quorum again: %s", self.broker_id, error.message)

    async def _make_tree(self, client: Client, trust: Trust) -> None:
        wanted = self.config.security.protect_znodes
        self._is_protected = await protect_znodes(client, trust, wanted=wanted)
        await ensure_base_paths(client)
        if self._is_protected:
            await keep_node(client, paths.CONTROLLER_EPOCH)
            await keep_node(client, paths.LATEST_PRODUCER_ID_BLOCK)

    async def _begin_session(self, client: Client) -> asyncio.Event:
        """Register through a new session and compete for the controller; returns what its end sets."""
        assert self._parts is not None and self._trust is not None
        lost = self._lost = asyncio.Event()
        client.add_listener(lambda state: self._session_changed(client, state, lost))
        client_address, broker_address, admin_address = self.listeners.advertised()
        shortened = self._parts.replicas.registered.shortened()
        if sum(map(len, shortened.values())) > SHORTENED_MAX:
            self._parts.directory.forget_shortened(self.broker_id, self.cluster_id)
            shortened = {}
        record = broker_record(
            client=client_address,
            broker=broker_address,
            admin=admin_address,
            rack=self.config.broker.rack,
            incarnation=self._parts.directory.incarnation,
            timestamp_ms=time.time_ns() // 1_000_000,
            reads_queue=self._parts.queue is not None,
            shortened=shortened,
        )
        if self._parts.queue is not None:
            await self._parts.queue.watch(client)
        generation = await register_broker(client, self.broker_id, record, self._trust)
        self._generation = generation
        self._parts.producer_ids.attach(client)
        self._parts.replicas.registered.attach(client, generation)
        if self._parts.queue is not None:
            self._spawn(self._parts.queue.run(client, generation))
        log.info("broker %d registered with generation %d", self.broker_id, generation)
        options = ControllerOptions(
            control_request_timeout_ms=self.config.broker.control_request_timeout_ms,
            channel=self.config.broker.channel,
            default_num_partitions=self.config.broker.num_partitions,
            default_replication_factor=self.config.broker.default_replication_factor,
            segment_bytes_min=self.config.limits.segment_bytes_min,
            partitions_max=self.config.limits.partitions_max,
            leader_imbalance_check_interval_ms=(
                self.config.broker.leader_imbalance_check_interval_ms
                if self.config.broker.auto_leader_rebalance_enable
                else None
            ),
            leader_imbalance_per_broker_percentage=self.config.broker.leader_imbalance_per_broker_percentage,
        )
        self._controller = Controller(
            client,
            self.broker_id,
            options=options,
            secrets=self._secrets,
            cluster_id=self.cluster_id,
            default_settings=self.config.topics,
            dial={each: (address.host, address.port) for each, address in self.config.dial.items()},
        )
        self._spawn(self._controller.run())
        groups = group_options(self.config.groups)
        self._coordinator = Coordinator(client, self.broker_id, groups, self.view, self._trust)
        self._spawn(self._coordinator.run())
        if client.state in (ClientState.LOST, ClientState.CLOSED):
            lost.set()
        return lost

    def _session_changed(self, client: Client, state: ClientState, lost: asyncio.Event) -> None:
        if state is ClientState.LOST:
            lost.set()
        elif state is ClientState.CONNECTED and self._parts is not None:
            self._spawn(self._reload(client))

    async def _reload(self, client: Client) -> None:
        """Read the settings again: events of the time without a connection are not delivered."""
        assert self._parts is not None
        try:
            await self._parts.configs.reload()
            await self._parts.own_configs.reload()
        except QuorateError as error:
            if client.state is ClientState.CONNECTED:
                log.warning("broker %d could not read settings: %s", self.broker_id, error.message)

    async def _follow_sessions(self, lost: asyncio.Event) -> None:
        """Follow each session that is over by a new one, until the broker stops."""
        while True:
            await lost.wait()
            log.warning(
                "broker %d lost its session, and with it generation %s", self.broker_id, self._generation
            )
            await self._end_session()
            while True:
                client = await self._connect()
                try:
                    assert self._parts is not None and self._trust is not None
                    await prove_secrets(client, self._trust)
                    client.default_acl = self._trust.access() if self._is_protected else None
                    await self._parts.configs.attach(client)
                    await self._parts.own_configs.attach(client)
                    lost = await self._begin_session(client)
                except BrokerIdInUseError:
                    raise
                except QuorateError as error:
                    log.warning("broker %d could not register: %s", self.broker_id, error.message)
                    await client.close()
                    await asyncio.sleep(REGISTER_PAUSE_S)
                else:
                    break

    async def _end_session(self, *, ends_session: bool = True) -> None:
        controller, self._controller = self._controller, None
        coordinator, self._coordinator = self._coordinator, None
        self._generation = None
        if not ends_session and self._client is not None:
            await self._client.close(keep_session=True)
        if self._parts is not None:
            self._parts.replicas.registered.detach()
        if coordinator is not None:
            await coordinator.stop()
        if controller is not None:
            await controller.stop()
        if ends_session and self._client is not None:
            # Where no server confirms the end in time, the session ends by its timeout.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_DEADLINE_S):
                    await self._client.close()

    def _departure(self) -> Departure:
        config = self.config
        options = DepartureOptions(
            broker_id=self.broker_id,
            cluster_id=self.cluster_id,
            secrets=self._secrets,
            dial={each: (address.host, address.port) for each, address in config.dial.items()},
            retries_max=config.broker.controlled_shutdown_max_retries,
            retry_backoff_ms=config.broker.controlled_shutdown_retry_backoff_ms,
            request_timeout_ms=config.broker.control_request_timeout_ms,
        )
        return Departure(options, lambda: (self._client, self._generation))

    async def _end(self, *, ends_session: bool, closes_logs: bool) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        # The candidate ends with its session.
        await self._end_session(ends_session=ends_session)
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        # Their errors have been reported by _task_ended.
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.listeners.stop()
        if self._parts is not None:
            await self._parts.replicas.stop(clean=closes_logs)
            await self._parts.directory.leave(clean=closes_logs, hang_ms=self._disk_hang_ms)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)
        return task

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)


def stopped_error(broker: Broker) -> NodeStoppedError | None:
    """Return why a broker stopped itself, as an error for a person; None if it did not."""
    if broker.failure is None:
        return None
    told = broker.failure.message if isinstance(broker.failure, QuorateError) else repr(broker.failure)
    remedy = broker.failure.remedy if isinstance(broker.failure, QuorateError) else "see the log above"
    return NodeStoppedError(f"broker {broker.broker_id} stopped itself: {told}", remedy)
