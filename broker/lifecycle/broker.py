"""One broker, from its configuration to its end.

Owns the order of a broker's parts: HTTP is served from the beginning, since a data directory may
take long to open; it is opened before the quorum learns of the broker; the broker listener serves before the
registration, because the controller dials it at once; clients are accepted only after the first
UpdateMetadata, because before it every topic would look unknown. A session that is over is followed by a new
one, with a new generation and a new controller candidate; the logs stay open meanwhile.

Decides nothing about partitions or the cluster. Hard state is the data directory; all else is soft.
Source: ARCHITECTURE.md, "Life of a broker failure"; docs/internals/requirements.md, [0.E], [1.1], [1.2].
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import logging
import uuid
from typing import Final

from broker.config.broker import BrokerConfig
from broker.lifecycle.admin import BrokerView
from broker.lifecycle.departure import Departure
from broker.lifecycle.listening import BrokerSockets, Listeners
from broker.lifecycle.parts import BrokerParts, open_parts
from broker.lifecycle.peer_secret import check_peer_secret
from broker.lifecycle.secret_changes import SecretChanges
from broker.lifecycle.session import BrokerSession
from broker.lifecycle.state import BrokerState
from broker.log.errors import LogStorageError
from broker.replication.opening import NewerLogError, open_replicas, refuse_newer_logs
from broker.server.services import BrokerServices
from controller.election.published import Published, read_published, read_topics
from controller.election.store import ensure_base_paths, ensure_cluster_id
from quorum.client import Client, ConnectionLossError
from quorum.config.audit import audit_log
from quorum.config.certificates import RELOAD_S, Certificates
from quorum.config.logins import QUORUM_LOGIN, FileLogin
from quorum.config.peer_secrets import PeerSecrets
from quorum.errors import NodeStoppedError, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import BrokerIdInUseError
from quorum.metadata.protection import keep_node, protect_znodes, prove_secrets
from quorum.metadata.trust import Trust
from quorum.platform.loop_watch import LoopWatch
from quorum.platform.tasks import TaskSet

log = logging.getLogger("quorate.broker")

#: How long one attempt to reach the quorum may take.
CONNECT_PATIENCE_MS: Final = 10_000.0
#: of the first attempt: a mistake in a new configuration is named within seconds
FIRST_PATIENCE_MS: Final = 3_000.0
#: Pause before a broker that could not register tries it with another session.
REGISTER_PAUSE_S: Final = 1.0


class Broker:
    """One broker on the running event loop."""

    def __init__(self, config: BrokerConfig, *, sockets: BrokerSockets | None = None) -> None:
        """Open nothing yet.

        Args:
            config: checked settings.
            sockets: bound sockets to serve on, in place of config.listen.
        """
        self.broker_id = config.broker.id
        self.state = BrokerState(config)
        self._sockets = sockets
        self._secrets = PeerSecrets(config.security.peer_secret_file)
        self._secret_changes = SecretChanges(self._secrets, self.state)
        self._loop_watch = LoopWatch()
        self._certificates = Certificates(config.tls, config.tls_used())
        self._audit = audit_log(config.audit, config.broker.data_dir)
        self._listeners = Listeners(config, self._secrets, self.state.view, self._certificates, self._audit)
        self._is_protected = False
        self._stopped = asyncio.Event()
        self._follower: asyncio.Task[None] | None = None
        self._ending: asyncio.Future[None] | None = None
        self._tasks = TaskSet(self.fail)

    # -- life ------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Open the data directory, register, and serve; returns when the broker is registered.

        Waits for the quorum as long as it takes.
        """
        self._tasks.spawn(self._loop_watch.run())
        self._tasks.spawn(self._keep_reloading())
        self._tasks.spawn(self._secret_changes.run())
        try:
            view = BrokerView(self.state, self._listeners, self._loop_watch)
            await self._listeners.start_admin(view, self._sockets)
            session, parts, published = await self._read_cluster()
            self._warn_of_an_open_tree()
            if self._audit is not None:
                self._audit.start()
            for topic, problem in published.problems.items():
                log.warning("topic %s is left alone: %s", topic, problem)
            states = {key: each.state for key, each in published.states.items()}
            open_replicas(parts.replicas.registry, published.topics, states, unreadable=published.problems)
            # Before anything is appended to a log that the start has cut.
            await parts.replicas.registry.write_high_watermarks()
            self._tasks.spawn(parts.replicas.maintenance.run())
            self._listeners.start(self._services(parts))
            await session.register(parts, self._listeners.advertised())
        except BaseException:
            await self.stop()
            raise
        self._follower = self._tasks.spawn(self._follow_sessions(session, parts))

    async def wait_ready(self) -> None:
        """Return when clients are served."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self.state.view.first, self._stopped)]
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
        await self._stop(ends_session=True, closes_logs=self.state.failure is None)

    async def kill(self) -> None:
        """End as after SIGKILL: the session is left to its timeout, the logs are left as they are."""
        await self._stop(ends_session=False, closes_logs=False)

    async def _stop(self, *, ends_session: bool, closes_logs: bool) -> None:
        if self.state.is_stopping:
            await self._stopped.wait()
            return
        self.state.is_stopping = True
        try:
            if ends_session and self._follower is not None:
                await self._depart()
            await self._end(ends_session=ends_session, closes_logs=closes_logs)
        finally:
            self._stopped.set()

    async def _depart(self) -> None:
        """Let others lead; a broker whose disk has failed asks no longer than its session would last."""
        failure, parts = self.state.failure, self.state.parts
        if parts is None or not (failure is None or isinstance(failure, LogStorageError)):
            return
        patience_s = None if failure is None else parts.config.broker.session_timeout_ms / 1000
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await Departure(parts, lambda: self.state.session).run()

    def reload(self) -> None:
        """Read the files of certificates, secrets and tokens again; they count for what comes."""
        self._certificates.reload()
        self._secret_changes.look()
        if self._listeners.holders is not None:
            self._listeners.holders.reload()

    async def _keep_reloading(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            self.reload()

    def fail(self, error: BaseException) -> None:
        """Stop because of an error that nothing can mend: a log that cannot be written, a bug."""
        if self.state.failure is None and not self.state.is_stopping:
            self.state.failure = error
            log.error("broker %d stops: %s", self.broker_id, error)
            # Not one of the tasks that the stop ends.
            self._ending = asyncio.ensure_future(self.stop())

    # -- inside ----------------------------------------------------------------------------------------------

    def _warn_of_an_open_tree(self) -> None:
        """Say what users and access lists are worth where everybody who reaches the nodes may write them."""
        config = self.state.config
        if self._is_protected or not (
            config.security.authorizer_class_name or config.sasl.enabled_mechanisms
        ):
            return
        log.warning(
            "broker %d: security.protect_znodes is false, so whoever reaches a client port of the nodes may "
            "make and delete users and access lists, and so become a super user; set protect_znodes = true "
            "at every broker, or let nodes serve only who proves itself (enforce_auth_schemes of node.toml)",
            self.broker_id,
        )

    def _services(self, parts: BrokerParts) -> BrokerServices:
        return BrokerServices(
            broker_id=self.broker_id,
            cluster_id=parts.cluster_id,
            config=parts.config,
            view=parts.view,
            replicas=parts.replicas,
            topic_configs=parts.configs,
            broker_configs=parts.own_configs,
            producer_ids=parts.producer_ids,
            authorizer=parts.authorizer,
            users=parts.users,
            audit=self._audit,
            quotas=parts.quotas,
            quota_store=parts.quota_store,
            addresses=parts.addresses,
            controller=lambda: self.state.registration and self.state.registration.controller,
            groups=lambda: self.state.registration and self.state.registration.coordinator,
        )

    async def _connect(self) -> BrokerSession:
        """Return a session with the quorum, however long that is away."""
        quorum = self.state.config.quorum
        hosts = ",".join(map(str, quorum.hosts))
        tls = self._certificates.dialling("quorum") if "quorum" in self._certificates else None
        name, file = quorum.sasl_username, quorum.sasl_password_file
        sasl = None if file is None else FileLogin(name, file, QUORUM_LOGIN[1])
        patience_ms = FIRST_PATIENCE_MS
        while True:
            session = self.state.session = BrokerSession(self.state.config, hosts, self.fail, tls, sasl)
            try:
                await session.client.start(patience_ms)
            except QuorateError as error:
                await session.end()
                if self.state.is_stopping or not error.retriable:
                    raise
                log.warning("broker %d waits for the quorum at %s: %s", self.broker_id, hosts, error)
                patience_ms = CONNECT_PATIENCE_MS
            else:
                return session

    async def _read_cluster(self) -> tuple[BrokerSession, BrokerParts, Published]:
        """Open the data directory and read what the quorum has; again if the connection is lost meanwhile."""
        proposed = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode("ascii")
        state = self.state
        while True:
            session = await self._connect()
            client = session.client
            try:
                state.cluster_id = await ensure_cluster_id(client, proposed)
                trust = Trust(self._secrets, state.cluster_id)
                await prove_secrets(client, trust)
                await check_peer_secret(client, trust)
                wanted = state.config.security.protect_znodes
                self._is_protected = await protect_znodes(client, trust, wanted=wanted)
                await ensure_base_paths(client)
                if self._is_protected:
                    await keep_node(client, paths.CONTROLLER_EPOCH)
                    await keep_node(client, paths.LATEST_PRODUCER_ID_BLOCK)
                    await keep_node(client, paths.TRANSACTIONS)
                parts = state.parts = state.parts or await open_parts(
                    state.config,
                    self._secrets,
                    self._certificates.dialling("broker") if "broker" in self._certificates else None,
                    state.cluster_id,
                    state.view,
                    on_failure=self.fail,
                    register_again=self._give_session_up,
                )
                await parts.attach(client)
                if parts.queue is not None:
                    await parts.queue.watch(client)
                # A node that lags would know of older epochs than the logs.
                await client.sync(paths.BROKER_TOPICS)
                return session, parts, await read_published(client)
            except ConnectionLossError as error:
                await session.end()
                if state.is_stopping:
                    raise
                log.info("broker %d asks the quorum again: %s", self.broker_id, error.message)

    def _give_session_up(self) -> None:
        if self.state.session is not None:
            self.state.session.lost.set()

    async def _follow_sessions(self, session: BrokerSession, parts: BrokerParts) -> None:
        """Follow each session that is over by a new one, until the broker stops."""
        while True:
            await session.lost.wait()
            generation = session.registration and session.registration.generation
            log.warning("broker %d lost its session, and with it generation %s", self.broker_id, generation)
            await session.end()
            session = await self._register_again(parts)

    async def _register_again(self, parts: BrokerParts) -> BrokerSession:
        while True:
            session = await self._connect()
            client = session.client
            try:
                await prove_secrets(client, parts.trust)
                client.default_acl = parts.trust.access() if self._is_protected else None
                await parts.attach(client)
                await self._refuse_a_restored_quorum(client, parts)
                await session.register(parts, self._listeners.advertised())
            except (BrokerIdInUseError, NewerLogError):
                raise
            except QuorateError as error:
                log.warning("broker %d could not register: %s", self.broker_id, error.message)
                await session.end()
                await asyncio.sleep(REGISTER_PAUSE_S)
            else:
                return session

    async def _refuse_a_restored_quorum(self, client: Client, parts: BrokerParts) -> None:
        """Stop where the quorum went back to an earlier state while no session knew it."""
        registry = parts.replicas.registry
        await client.sync(paths.BROKER_TOPICS)
        found = await read_topics(client, sorted({key.topic for key in registry.log_directory.logs}))
        states = {key: each.state for key, each in found.states.items()}
        refuse_newer_logs(registry, found.topics, states)

    async def _end(self, *, ends_session: bool, closes_logs: bool) -> None:
        if self._follower is not None:
            self._follower.cancel()
            await asyncio.wait([self._follower])
        if self.state.session is not None:
            await self.state.session.end(keep_session=not ends_session)
        # Their errors have gone to fail().
        await self._tasks.stop()
        await self._listeners.stop()
        if self._audit is not None:
            await asyncio.to_thread(self._audit.stop)
        if self.state.parts is not None:
            await self.state.parts.close(clean=closes_logs)


def stopped_error(broker: Broker) -> NodeStoppedError | None:
    """Return why a broker stopped itself, as an error for a person; None if it did not."""
    failure = broker.state.failure
    if failure is None:
        return None
    told = failure.message if isinstance(failure, QuorateError) else repr(failure)
    remedy = failure.remedy if isinstance(failure, QuorateError) else "see the log above"
    return NodeStoppedError(f"broker {broker.broker_id} stopped itself: {told}", remedy)
