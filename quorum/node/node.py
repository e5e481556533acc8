"""One quorum node: a member with its sockets; starts everything in order and stops it in the reverse order.

Decides nothing about consensus or clients; it knows which part needs which. Hard state is the data directory
that storage.py opens; everything here is soft. A node that stopped itself (`failure` is set) has closed its
sockets and acknowledges nothing any more; its process should end with the story.

Start: bind the sockets, open the data directory, restore state and log, listen to peers, then to
clients and operators. Stop: leadership is handed over, clients are closed, what was submitted to the
journal becomes durable, files are closed.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from dataclasses import dataclass

from quorum.admin.app import AdminPort
from quorum.admin.server import AdminServer
from quorum.changelog.files import ChangeFiles
from quorum.changelog.recorder import ChangeRecorder
from quorum.config.admin_port import AdminHolders, admin_holders
from quorum.config.audit import audit_log
from quorum.config.certificates import RELOAD_S, Certificates
from quorum.config.node import ListenSection, NodeConfig
from quorum.config.peer_secrets import PeerSecrets
from quorum.config.sasl_users import what_is_open
from quorum.errors import NodeStoppedError
from quorum.node.member import QuorumMember
from quorum.node.node_state import build_app
from quorum.node.node_view import RunningNodeView
from quorum.platform.audit import AuditLog
from quorum.platform.listening import Listen, bind
from quorum.platform.os_runtime import AsyncioRuntime, OsDisk
from quorum.platform.wall_clock import CLOCK
from quorum.raft.datadir.identity import Start as Start  # noqa: PLC0414 - the maker of a node names its start
from quorum.raft.peers.codec import RAFT_MESSAGE_TYPES, Codec
from quorum.raft.peers.peers import PeerTls, TransportOptions
from quorum.raft.peers.transport import PeerTransport
from quorum.raft.requests.origins import FORWARDING_MESSAGE_TYPES
from quorum.server.listener import ClientListener

log = logging.getLogger("quorate.node")

#: everything that members say to each other
MESSAGE_TYPES = {**RAFT_MESSAGE_TYPES, **FORWARDING_MESSAGE_TYPES}
#: folder of the change log in the data directory
CHANGELOG_NAME = "changelog"
#: how long a stopping leader waits for another one to take over
HANDOVER_WAIT_S = 1.0
HANDOVER_LOOK_S = 0.005
#: a clean stop takes a snapshot if at least so much log was applied since the last one
LEAVING_LOG_BYTES_MIN = 16 * 1024 * 1024
LEAVING_SNAPSHOT_WAIT_S = 15.0
#: what surrounds an entry in a peer's frame
FRAME_HEAD_BYTES = 64 * 1024
PEER_QUEUE_BYTES_MIN = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NodeSockets:
    """Bound sockets to listen on in place of the configured addresses; they are closed with the node.

    Given ones lack `secure_client`: that is always as configured.
    """

    client: socket.socket | None
    peer: socket.socket
    admin: socket.socket
    secure_client: socket.socket | None = None


class QuorumNode:
    """A member of the quorum, on the running event loop."""

    def __init__(
        self,
        config: NodeConfig,
        *,
        bootstrap: bool = False,
        start: Start = Start.PLAIN,
        sockets: NodeSockets | None = None,
    ) -> None:
        """Keep what it will be; nothing is opened before `start`.

        Args:
            config: the whole configuration, checked.
            bootstrap: the same as Start.BOOTSTRAP: format an empty data directory as a founder of a new
                cluster; changes nothing on a formatted one.
            start: what may happen to the data directory.
            sockets: bound sockets to take in place of `config.listen`.
        """
        self.config = config
        #: why the node stopped itself; None while it did not
        self.failure: BaseException | None = None
        self._start_mode = Start.BOOTSTRAP if bootstrap else start
        self._sockets = sockets
        self._ended = asyncio.Event()
        self._stopping = asyncio.Lock()
        self._bound: list[socket.socket] = []
        #: whether the member was attached
        self._running = False
        self._runtime: AsyncioRuntime
        self._member: QuorumMember | None = None
        self._transport: PeerTransport | None = None
        self._listener: ClientListener | None = None
        self._admin: AdminServer | None = None
        self._recorder: ChangeRecorder | None = None
        self._certificates: Certificates
        self._holders: AdminHolders | None = None
        self._audit: AuditLog | None = None
        self._secrets: PeerSecrets
        self._reloading: asyncio.Task[None] | None = None
        #: status, readiness and metrics; only after `start`
        self.view: RunningNodeView

    # --- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start everything; on return the node listens, but may not have found a leader yet (see /readyz)."""
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

    def reload(self) -> None:
        """Read the files of certificates, secrets, users and tokens again; they count for what comes."""
        if self._reloading is not None:
            self._certificates.reload()
            self._secrets.reload()
        users = None if self._member is None else self._member.frontend.options.sasl_users
        for found in (users, self._holders):
            if found is not None:
                found.reload()

    async def _keep_reloading(self) -> None:
        while True:
            await asyncio.sleep(RELOAD_S)
            self.reload()

    async def _stop(self, *, hand_over: bool) -> None:
        member = self._member
        if self._reloading is not None:
            self._reloading.cancel()
            self._reloading = None
        if hand_over and member is not None and self.failure is None and self._running:
            await self._hand_over(member)
        if member is not None and member.audit is not None:
            member.audit.stopped()
        if self._listener is not None:
            await self._listener.stop()
            self._listener = None
        if hand_over and member is not None and self.failure is None and self._running:
            await self._leave_snapshot(member)
        if member is not None:
            member.stop()
        if self._recorder is not None:
            self._recorder.stop()
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        if self._transport is not None:
            await self._transport.stop()
            self._transport = None
        if member is not None:
            # Ends the lanes: everything that was handed to the journal's thread is on the disk.
            await asyncio.get_running_loop().run_in_executor(None, self._runtime.close)
            if self._recorder is not None:
                self._recorder.close()
                self._recorder = None
            member.close()
            self._member = None
        if self._audit is not None:
            await asyncio.to_thread(self._audit.stop)
            self._audit = None
        for bound in self._bound:
            bound.close()
        self._bound.clear()

    async def _hand_over(self, member: QuorumMember) -> None:
        """Let another node lead before this one goes: clients of the others lose less than a heartbeat."""
        if not member.engine.leads or not member.engine.peer_ids():
            return
        if not member.engine.transfer(None):
            return
        try:
            async with asyncio.timeout(HANDOVER_WAIT_S):
                while member.engine.leader_id in (None, self.config.node.id):  # noqa: ASYNC110 - no call says it
                    await asyncio.sleep(HANDOVER_LOOK_S)
        except TimeoutError:
            log.warning("no other node took over within %g s", HANDOVER_WAIT_S)

    async def take_snapshot(self) -> None:
        """Take a snapshot of the state as it is now, or join the one under way; durable on return."""
        assert self._member is not None
        self._member.snapshotter.take()
        await self._member.snapshotter.settle()

    async def _leave_snapshot(self, member: QuorumMember) -> None:
        """Spare the next start a long log, where that is worth the wait."""
        if member.snapshotter.log_bytes < LEAVING_LOG_BYTES_MIN:
            return
        try:
            async with asyncio.timeout(LEAVING_SNAPSHOT_WAIT_S):
                await self.take_snapshot()
        except TimeoutError:
            log.warning("stops without a snapshot: it was not written within %g s", LEAVING_SNAPSHOT_WAIT_S)

    async def _start(self) -> None:
        config = self.config
        bound = self._bind()
        if problem := what_is_open(config.listen.client, config.security):
            log.warning("%s", problem)
        certificates = self._certificates = Certificates(config.tls, config.tls_used())
        self._secrets = PeerSecrets(config.security.peer_secret_file)
        self._reloading = asyncio.ensure_future(self._keep_reloading())
        security, handshake_s = config.security, config.limits.handshake_timeout_ms / 1000
        self._holders = admin_holders(security)
        audit = self._audit = audit_log(config.audit, config.node.data_dir)
        self._runtime = runtime = AsyncioRuntime(asyncio.get_running_loop())
        self._member = member = QuorumMember(
            config, runtime, OsDisk(), start=self._start_mode, on_failure=self._on_failure, audit=audit
        )
        if audit is not None:
            audit.start()
        frame_bytes_max = member.entry_bytes_max + FRAME_HEAD_BYTES
        self._transport = transport = PeerTransport(
            runtime,
            member.identity,
            self._secrets,
            codec=Codec(MESSAGE_TYPES, frame_bytes_max=frame_bytes_max),
            listen=bound.peer,
            members={node_id: str(address) for node_id, address in config.members.items()},
            options=TransportOptions(peer_queue_bytes_max=max(PEER_QUEUE_BYTES_MIN, 2 * frame_bytes_max)),
            tls=PeerTls(
                certificates.port("peer", takes_plain=security.port_unification, timeout_s=handshake_s),
                certificates.dialling("peer") if security.ssl_quorum else None,
            ),
            admits_strangers=member.hears_nobody,
            admission=member.admission,
            on_proven=member.peer_proved,
        )
        # No hello is done before this coroutine lets the loop run again: the engine hears of every link.
        await transport.start()
        self._bound.remove(bound.peer)
        self._refuse_if_stopped()
        member.attach(transport)
        self._running = True
        self._recorder = recorder = self._record(member, runtime)
        self.view = RunningNodeView(member, transport, recorder, certificates)
        member.start()
        if member.audit is not None:
            member.audit.started()
        self._listener = ClientListener(member.frontend)
        for listening, tls in (
            (bound.client, None),
            (bound.secure_client, certificates.port("client", timeout_s=handshake_s)),
        ):
            if listening is not None:
                self._listener.start_on(listening, tls)
                self._bound.remove(listening)
        self._refuse_if_stopped()
        app = build_app(
            self.view,
            member,
            recorder,
            port=AdminPort(security.admin_hosts, self._holders, security.admin_behind_proxy, audit),
            tls=certificates.dialling_itself("client"),
        )
        self._admin = AdminServer(app, bound.admin, certificates.port("admin", timeout_s=handshake_s))
        await self._admin.start()
        self._bound.remove(bound.admin)
        log.info("node %d listens: clients %s, peers %s, admin %s", config.node.id, *self._addresses())

    def _record(self, member: QuorumMember, runtime: AsyncioRuntime) -> ChangeRecorder:
        """Have the change log record what is applied from here on."""
        settings = self.config.changelog
        files = ChangeFiles(
            OsDisk(),
            f"{self.config.node.data_dir}/{CHANGELOG_NAME}",
            retention_bytes_max=settings.retention_bytes_max,
            retention_age_ms=settings.retention_age_ms,
            believes=CLOCK.believes,
        )
        recorder = ChangeRecorder(files, runtime, member.replica.machine, self.fail)
        # What an entry changed is recorded before a snapshot can begin that covers it.
        member.replica.when_applied.insert(0, lambda _: recorder.entry_applied())
        member.replica.when_installed.append(recorder.installed)
        member.storage.snapshots.before_finish = recorder.sync
        return recorder

    def _refuse_if_stopped(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self._ended.is_set():
            raise NodeStoppedError(f"node {self.config.node.id} was stopped while it started")

    def _bind(self) -> NodeSockets:
        """Bind all before anything is written, so that a taken address changes nothing."""
        listen = self.config.listen
        wanted: ListenSection | NodeSockets = self._sockets or listen
        secure = listen.secure_client
        return NodeSockets(
            client=self._bind_one("listen.client", wanted.client) if wanted.client else None,
            peer=self._bind_one("listen.peer", wanted.peer),
            admin=self._bind_one("listen.admin", wanted.admin),
            secure_client=self._bind_one("listen.secure_client", secure) if secure else None,
        )

    def _bind_one(self, field: str, wanted: Listen) -> socket.socket:
        self._bound.append(bind(field, wanted))
        return self._bound[-1]

    def _addresses(self) -> tuple[str, str, str]:
        assert self._listener is not None
        assert self._transport is not None
        assert self._admin is not None
        clients, peer, admin = (
            " and ".join(f"{host}:{port}" for host, port in found)
            for found in (self._listener.addresses, [self._transport.address], [self._admin.address])
        )
        return clients, peer, admin

    def fail(self, error: BaseException) -> None:
        """Stop answering at once: something happened after which nothing is certain."""
        if self._member is not None and self._running:
            self._member.engine.fail(error)

    def _on_failure(self, error: BaseException) -> None:
        """The member stopped itself and answers nobody; the process that runs the node ends it."""
        self.failure = error
        self._ended.set()
