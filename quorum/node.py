"""One quorum node: puts the parts together, starts them in order and stops them in the reverse order.

Decides nothing about consensus or clients; it knows who needs whom. Hard state is the data directory that
storage.py opens; everything here is soft. A node that stopped itself (`failure` is set) has closed its
sockets and acknowledges nothing any more; its process should end with the story.

Start: bind the three sockets, open the data directory, restore state and log, listen to peers, then to
    clients and
operators. Stop: leadership is handed over, clients are closed, what was submitted to the journal becomes
durable, files are closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass

from quorum.admin.app import build_app
from quorum.admin.server import AdminServer
from quorum.config import NodeConfig, read_peer_secret
from quorum.core.machine import StateMachine
from quorum.errors import DataDirError, NodeStoppedError
from quorum.listening import Listen, bind
from quorum.node_view import NodeView
from quorum.raft.codec import RAFT_MESSAGE_TYPES, Codec
from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import SnapshotMark
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from quorum.raft.engine import Engine
from quorum.raft.exchange import SnapshotCourier
from quorum.raft.forwarding import FORWARDING_MESSAGE_TYPES
from quorum.raft.founding import founding_payload
from quorum.raft.hello import PeerIdentity
from quorum.raft.identity import Start
from quorum.raft.journal import JournalFullError
from quorum.raft.journal_format import OriginIncarnation
from quorum.raft.journal_writer import JournalWriter
from quorum.raft.os_runtime import AsyncioRuntime, OsDisk
from quorum.raft.peers import TransportOptions
from quorum.raft.transport import PeerTransport
from quorum.replica import Replica
from quorum.server.frontend import Frontend
from quorum.server.listener import ClientListener
from quorum.server.options import ServerOptions
from quorum.snapshotting import Snapshotter
from quorum.storage import Storage, load_machine, open_storage

log = logging.getLogger("quorate.node")

#: how long a stopping leader waits for another one to take over
HANDOVER_WAIT_S = 1.0
#: a clean stop takes a snapshot if at least so much log was applied since the last one
LEAVING_LOG_BYTES_MIN = 16 * 1024 * 1024
LEAVING_SNAPSHOT_WAIT_S = 15.0
#: committed entries that are applied between two looks at the clock
COMMITTED_BYTES_MAX = 512 * 1024
#: bytes of a client connection that are read at once, and so may become one run
CHUNK_BYTES_MAX = 512 * 1024
#: what surrounds an entry in a peer's frame
FRAME_HEAD_BYTES = 64 * 1024
PEER_QUEUE_BYTES_MIN = 64 * 1024 * 1024
#: how often a full disk is tried again
RETRY_INTERVAL_MS = 500.0


@dataclass(frozen=True, slots=True)
class NodeSockets:
    """Bound sockets to listen on in place of the configured addresses; they are closed with the node."""

    client: socket.socket
    peer: socket.socket
    admin: socket.socket


class QuorumNode:
    """A member of the quorum, on the running event loop."""

    def __init__(
        self, config: NodeConfig, *, bootstrap: bool = False, sockets: NodeSockets | None = None
    ) -> None:
        """Keep what it will be; nothing is opened before `start`.

        Args:
            config: the whole configuration, checked.
            bootstrap: format an empty data directory as a founder of a new cluster; changes nothing on a
                formatted one.
            sockets: bound sockets to take in place of `config.listen`.
        """
        self.config = config
        #: why the node stopped itself; None while it did not
        self.failure: BaseException | None = None
        self._start_mode = Start.BOOTSTRAP if bootstrap else Start.PLAIN
        self._sockets = sockets
        self._ended = asyncio.Event()
        self._stopping = asyncio.Lock()
        self._bound: list[socket.socket] = []
        self._runtime: AsyncioRuntime
        self._storage: Storage | None = None
        self._writer: JournalWriter | None = None
        self._engine: Engine | None = None
        self._transport: PeerTransport | None = None
        self._frontend: Frontend | None = None
        self._replica: Replica
        self._snapshotter: Snapshotter | None = None
        self._listener: ClientListener | None = None
        self._admin: AdminServer | None = None
        #: status, readiness and metrics; only after `start`
        self.view: NodeView

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; on return the node listens, but may not have found a leader yet (see /readyz).

        Raises:
            QuorateError: an address is taken, the data directory is refused or damaged: nothing is left
                running.
        """
        try:
            await self._start()
        except BaseException:
            await self.stop()
            raise

    async def run_until_stopped(self) -> None:
        """Return when the node stopped itself (`failure` says why) or `stop` was called."""
        await self._ended.wait()

    async def stop(self, *, hand_over: bool = False) -> None:
        """Stop cleanly; safe to call in every state, more than once.

        Args:
            hand_over: a leader lets another node lead first (not where all nodes stop together).
        """
        self._ended.set()
        async with self._stopping:
            await self._stop(hand_over=hand_over)

    async def _stop(self, *, hand_over: bool) -> None:
        if hand_over and self._engine is not None and self.failure is None:
            await self._hand_over(self._engine)
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if hand_over and self.failure is None:
            await self._leave_snapshot()
        if self._engine is not None:
            self._engine.stop()
            self._engine = None
        if self._snapshotter is not None:
            self._snapshotter.abandon()
            self._snapshotter = None
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        if self._transport is not None:
            await self._transport.stop()
            self._transport = None
        if self._writer is not None:
            self._writer.stop()
            self._writer = None
        if self._storage is not None:
            # Ends the lanes: everything that was handed to the journal's thread is on the disk.
            await asyncio.get_running_loop().run_in_executor(None, self._runtime.close)
            self._storage.close()
            self._storage = None
        for bound in self._bound:
            bound.close()
        self._bound.clear()

    async def _hand_over(self, engine: Engine) -> None:
        """Let another node lead before this one goes: clients of the others lose less than a heartbeat."""
        if not engine.leads or not engine.peer_ids():
            return
        handed_over = asyncio.Event()
        self._replica.when_deposed(handed_over.set)
        if not engine.transfer(None):
            return
        try:
            await asyncio.wait_for(handed_over.wait(), HANDOVER_WAIT_S)
        except TimeoutError:
            log.warning("no other node took over within %g s", HANDOVER_WAIT_S)

    async def take_snapshot(self) -> None:
        """Take a snapshot of the state as it is now, or join the one under way; durable on return."""
        assert self._snapshotter is not None
        self._snapshotter.take()
        await self._snapshotter.settle()

    async def _leave_snapshot(self) -> None:
        """Spare the next start a long log, where that is worth the wait."""
        snapshotter = self._snapshotter
        if snapshotter is None or snapshotter.log_bytes < LEAVING_LOG_BYTES_MIN:
            return
        try:
            await asyncio.wait_for(self.take_snapshot(), LEAVING_SNAPSHOT_WAIT_S)
        except TimeoutError:
            log.warning("stops without a snapshot: it was not written within %g s", LEAVING_SNAPSHOT_WAIT_S)

    async def _start(self) -> None:
        config = self.config
        for field, given in (
            ("limits.read_only_mode", config.limits.read_only_mode),
            ("security.super_digest", bool(config.security.super_digest)),
        ):
            if given:
                log.warning(
                    "%s is set and has no effect yet: this version does not serve what it is for", field
                )
        client, peer, admin = self._bind()
        secret = read_peer_secret(config.security.peer_secret_file)
        self._runtime = runtime = AsyncioRuntime(asyncio.get_running_loop())
        disk = OsDisk()
        storage = self._storage = open_storage(config, disk, self._start_mode, runtime.random)
        writer = JournalWriter(storage.journal, runtime, self._on_journal_failed, self._on_disk_full)
        self._writer = writer
        incarnation = storage.recovered.origin_incarnation + 1
        writer.submit([OriginIncarnation(incarnation)], lambda: None)
        writer.flush_now()
        if not writer.idle:
            data_dir = config.node.data_dir
            problem = self.failure or "the disk is full"
            raise DataDirError(
                f"data directory {data_dir} cannot be written to: {problem}", "free or repair the disk"
            )
        frame_bytes_max = self._entry_bytes_max() + FRAME_HEAD_BYTES
        self._transport = transport = PeerTransport(
            runtime,
            self._peer_identity,
            secret,
            codec=Codec({**RAFT_MESSAGE_TYPES, **FORWARDING_MESSAGE_TYPES}, frame_bytes_max=frame_bytes_max),
            listen=peer,
            members={node_id: str(address) for node_id, address in config.members.items()},
            options=TransportOptions(peer_queue_bytes_max=max(PEER_QUEUE_BYTES_MIN, 2 * frame_bytes_max)),
        )
        # SyncObj wants a transport that listens. No hello can be done before this coroutine lets the loop run
        # again, so the engine hears of every link.
        await transport.start()
        self._bound.remove(peer)
        self._refuse_if_stopped()
        self._build(storage, transport, disk, incarnation, writer).start()
        assert self._frontend is not None
        self._listener = ClientListener(self._frontend)
        await self._listener.start_on(client)
        self._bound.remove(client)
        self._refuse_if_stopped()
        self._admin = AdminServer(build_app(self.view), admin)
        await self._admin.start()
        self._bound.remove(admin)
        log.info("node %d listens: clients %s, peers %s, admin %s", config.node.id, *self._addresses())

    def _refuse_if_stopped(self) -> None:
        if self._ended.is_set():
            raise NodeStoppedError(f"node {self.config.node.id} was stopped while it started")

    def _bind(self) -> tuple[socket.socket, socket.socket, socket.socket]:
        """Bind all three before anything is written, so that a taken address changes nothing."""
        listen = self.config.listen
        given = self._sockets
        wanted: list[tuple[str, Listen]] = [
            ("listen.client", listen.client if given is None else given.client),
            ("listen.peer", listen.peer if given is None else given.peer),
            ("listen.admin", listen.admin if given is None else given.admin),
        ]
        for field, each in wanted:
            self._bound.append(bind(field, each))
        client, peer, admin = self._bound
        return client, peer, admin

    def _addresses(self) -> tuple[str, str, str]:
        assert self._listener is not None
        assert self._transport is not None
        assert self._admin is not None
        found = (self._listener.address, self._transport.address, self._admin.address)
        client, peer, admin = (f"{host}:{port}" for host, port in found)
        return client, peer, admin

    # --- assembly ---------------------------------------------------------------------------------

    def _build(
        self,
        storage: Storage,
        transport: PeerTransport,
        disk: OsDisk,
        incarnation: int,
        writer: JournalWriter,
    ) -> Engine:
        config, runtime = self.config, self._runtime
        core = self._build_core(storage)
        self._engine = engine = Engine(
            core,
            transport,
            writer,
            runtime,
            node_id=config.node.id,
            peer_ids=[node_id for node_id in config.members if node_id != config.node.id],
            applied_index=storage.machine.applied_index,
            election_timeout_ms=config.raft.election_timeout_ms,
            heartbeat_interval_ms=config.raft.heartbeat_interval_ms,
            on_failure=self._on_failure,
        )
        frontend = self._frontend = Frontend(self._server_options(), runtime.monotonic_ms, runtime.call_soon)
        self._replica = replica = Replica(
            storage.machine,
            engine,
            runtime,
            frontend,
            incarnation=incarnation,
            forward_deadline_ms=config.raft.forward_deadline_ms,
            heartbeat_interval_ms=config.raft.heartbeat_interval_ms,
            batch_bytes_max=config.raft.batch_bytes_max,
        )
        frontend.attach(replica)
        self._snapshotter = Snapshotter(
            replica, storage.snapshots, storage.journal, writer, runtime, engine.step, engine.fail
        )
        replica.attach(self)
        courier = SnapshotCourier(
            storage.snapshots,
            disk,
            writer,
            runtime,
            lambda reader: load_machine(reader, config.raft.snapshot_overlay_bytes_max),
            self._install,
            engine.step,
            engine.fail,
        )
        engine.attach(replica, courier)
        self.view = NodeView(
            config,
            core,
            engine,
            replica,
            frontend,
            writer,
            transport,
            courier,
            self._snapshotter,
        )
        if storage.machine.cluster_id:
            # A crash may have come between the state that names the cluster and the identity.
            self._learn_cluster_id()
        return engine

    def _build_core(self, storage: Storage) -> Raft:
        config, runtime, identity = self.config, self._runtime, storage.identity
        raft = config.raft
        founders = {node_id: str(address) for node_id, address in config.members.items()}
        options = Options(
            election_timeout_min_ms=raft.election_timeout_ms[0],
            election_timeout_max_ms=raft.election_timeout_ms[1],
            heartbeat_interval_ms=raft.heartbeat_interval_ms,
            entry_bytes_max=self._entry_bytes_max(),
            log_cache_bytes_max=raft.log_cache_bytes_max,
            committed_bytes_max=COMMITTED_BYTES_MAX,
        )
        return Raft(
            options=options,
            node_id=config.node.id,
            incarnation=identity.incarnation,
            hard_state=storage.recovered.hard_state,
            log=storage.recovered.durable_log(storage.machine.applied_index),
            snapshot=storage.mark,
            founders=founders if identity.founder else {},
            found=lambda configuration: founding_payload(configuration, runtime.random),
            reader=storage.journal,
            rng=runtime.random,
            now_ms=runtime.monotonic_ms(),
        )

    def _entry_bytes_max(self) -> int:
        """Return what a batch may reach: it is closed once full, and its last run may exceed that."""
        return self.config.raft.batch_bytes_max + self.config.limits.frame_bytes_max + CHUNK_BYTES_MAX

    def _server_options(self) -> ServerOptions:
        limits = self.config.limits
        return ServerOptions(
            frame_bytes_max=limits.frame_bytes_max,
            session_timeout_min_ms=limits.session_timeout_min_ms,
            session_timeout_max_ms=limits.session_timeout_max_ms,
            handshake_timeout_ms=limits.handshake_timeout_ms,
            connections_per_address_max=limits.connections_per_address_max,
            outstanding_requests_max=limits.outstanding_requests_max,
            watches_per_connection_max=limits.watches_per_connection_max,
            contact_loss_ms_max=2.0 * self.config.raft.election_timeout_ms[1],
            four_letter_words=self.config.security.four_letter_words,
        )

    # --- what the parts tell ----------------------------------------------------------------------

    def entry_applied(self, entry: Entry) -> None:
        """Count an applied entry for the snapshots; the first one names the cluster."""
        assert self._snapshotter is not None
        self._snapshotter.entry_applied(entry)
        if entry.index == 1:
            self._learn_cluster_id()

    def _install(self, machine: StateMachine, mark: SnapshotMark) -> None:
        assert self._engine is not None
        assert self._snapshotter is not None
        assert self._storage is not None
        self._snapshotter.abandon()
        self._engine.state_installed(mark.snapshot_index)
        self._replica.install(machine)
        newest = self._storage.snapshots.newest
        # Compaction comes after the core knows of the install.
        self._runtime.call_soon(self._snapshotter.installed, 0 if newest is None else newest.size_bytes)
        self._learn_cluster_id()

    def _learn_cluster_id(self) -> None:
        assert self._storage is not None
        assert self._transport is not None
        if self._storage.learn_cluster_id(self._replica.machine.cluster_id):
            self._transport.recheck_identities()

    def _peer_identity(self) -> PeerIdentity:
        assert self._storage is not None
        identity = self._storage.identity
        return PeerIdentity(
            identity.cluster_name, identity.cluster_id, identity.node_id, identity.incarnation
        )

    def _on_disk_full(self, error: JournalFullError) -> None:
        """Acknowledge nothing until there is room again; called at each attempt that found none."""
        log.error("nothing is acknowledged until there is room on the disk: %s", error)
        if self._engine is None:
            return
        if not self._engine.soft_state.halted:
            self._engine.halt(str(error))
        self._runtime.call_later(RETRY_INTERVAL_MS, self._retry_journal)

    def _retry_journal(self) -> None:
        if self._writer is None:
            return
        self._writer.retry()
        self._runtime.call_later(RETRY_INTERVAL_MS / 2, self._resume_if_room)

    def _resume_if_room(self) -> None:
        if self._engine is None or self._writer is None or self._writer.full:
            return
        if self._writer.idle:
            log.info("the disk takes writes again")
            self._engine.resume()
        else:
            self._runtime.call_later(RETRY_INTERVAL_MS / 2, self._resume_if_room)

    def _on_journal_failed(self, error: Exception) -> None:
        if self._engine is not None:
            self._engine.fail(error)
        else:
            self._on_failure(error)

    def _on_failure(self, error: BaseException) -> None:
        """Stop answering at once; the process that runs the node ends it."""
        self.failure = error
        self._ended.set()
        if self._transport is not None:
            self._transport.destroy()
        if self._frontend is not None:
            self._frontend.close()
