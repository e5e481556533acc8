"""A member of the quorum without its sockets: everything between a disk, a transport and a runtime.

Puts state machine, log, journal, snapshots, forwarding and the client front end together and lets them talk.
Decides nothing about consensus or clients; it knows which part needs which. What needs an event loop or a
socket (the peer transport, the listeners, the admin port) belongs to `quorum.node.node`; a simulation gives
it a virtual clock, disk and network instead. Hard state is the data directory that storage.py opens; all else
is soft.

Order: `QuorumMember(...)` opens and recovers the data directory, `attach` builds the parts that use it,
`start` lets it tick. A member that stopped itself has called `on_failure` once and acknowledges nothing any
more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from quorum.config.address import Address
from quorum.config.node import NodeConfig
from quorum.config.sasl_users import SaslUsers, required_schemes
from quorum.core.feature_levels import FEATURE_LEVEL
from quorum.core.machine import StateMachine
from quorum.errors import PASSING_ERRNOS, DataDirError, QuorateError, told_by_os
from quorum.node.compaction import Compaction
from quorum.node.replica import NodeReplica
from quorum.node.snapshotting import RECORDS_PER_STEP, Snapshotter, covered_by
from quorum.node.storage import Storage, load_machine, open_storage
from quorum.platform.audit import AuditLog
from quorum.platform.open_files import connections_within, open_files_max
from quorum.platform.runtime import Disk, Runtime
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry
from quorum.raft.core.messages import Halt, PeerMet, Resume, SnapshotMark
from quorum.raft.core.options import Options
from quorum.raft.core.raft import Raft
from quorum.raft.datadir.founding import founding_payload
from quorum.raft.datadir.identity import Start
from quorum.raft.engine.contracts import MemberTransport
from quorum.raft.engine.engine import Engine
from quorum.raft.engine.syncobj import QuorateSyncObj
from quorum.raft.journal.format import OriginIncarnation
from quorum.raft.journal.journal import JournalFullError
from quorum.raft.journal.writer import JournalWriter
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import PeerIdentity
from quorum.raft.requests.origins import incarnation_above
from quorum.raft.snapshots.exchange import SnapshotCourier
from quorum.server.audit import ClientAudit
from quorum.server.frontend import Frontend
from quorum.server.options import ServerOptions

log = logging.getLogger("quorate.member")

COMMITTED_BYTES_MAX = 64 * 1024
APPEND_BYTES_MAX = 1024 * 1024
SNAPSHOT_CHUNK_BYTES_MAX = 256 * 1024
#: bytes of a client connection that are read at once, and so may become one run
CHUNK_BYTES_MAX = 512 * 1024
#: origin incarnations of a disk begin between this and its double; connection ids leave them 32 bits
FIRST_INCARNATION_MIN = 1 << 30
#: of the longest election timeout: how long leader and own disk may be silent while clients are answered
CONTACT_LOSS_TIMEOUTS = 2.0
#: how often a full disk is tried again
RETRY_INTERVAL_MS = 500.0
#: measures the data directory for the four-letter words that tell its size
WORDS_LANE = "words"


class Sizes(NamedTuple):
    """Bounds that no operator needs to know; a simulation has little of everything, and lowers them."""

    #: committed entries that are applied between two looks at the clock
    committed_bytes_max: int = COMMITTED_BYTES_MAX
    #: entries of one message between members
    append_bytes_max: int = APPEND_BYTES_MAX
    #: a snapshot's piece in one such message
    snapshot_chunk_bytes_max: int = SNAPSHOT_CHUNK_BYTES_MAX
    #: applied log above which a snapshot is taken; None: half of raft.journal_bytes_max
    snapshot_log_bytes: int | None = None
    #: znodes that a snapshot looks at between two looks at the clock
    snapshot_records_per_step: int = RECORDS_PER_STEP


class QuorumMember:
    """One replica of the quorum, its log and its clients' connections."""

    core: Raft
    engine: Engine
    syncobj: QuorateSyncObj
    frontend: Frontend
    replica: NodeReplica
    snapshotter: Snapshotter
    courier: SnapshotCourier[StateMachine]

    def __init__(
        self,
        config: NodeConfig,
        runtime: Runtime,
        disk: Disk,
        *,
        start: Start,
        on_failure: Callable[[BaseException], None],
        sizes: Sizes | None = None,
        audit: AuditLog | None = None,
        feature_level: int = FEATURE_LEVEL,
    ) -> None:
        """Open, recover and lock the data directory, and make this life's origin incarnation durable.

        Args:
            config: the whole configuration, checked.
            runtime: clock, loop, lanes and randomness.
            disk: where the data directory is.
            start: whether an empty directory is formatted, and as what.
            on_failure: called once, with the story, when the member stopped itself.
            sizes: bounds that the configuration does not know.
            audit: where clients' writes and refusals are noted.
            feature_level: the highest that this build supports.
        """
        self.config = config
        self.runtime = runtime
        self._on_failure = on_failure
        #: None: nothing is noted
        self.audit = None if audit is None else ClientAudit(audit, f"node:{config.node.id}")
        self._sizes = sizes or Sizes()
        self._attached = self._ended = False
        #: why this start cannot write
        self._start_error: BaseException | None = None
        self.storage = storage = open_storage(
            config.node, config.raft, disk, start, runtime.random, feature_level=feature_level
        )
        #: whether the identity is to be written as soon as the disk has room
        self._identity_waits = False
        self.writer = JournalWriter(storage.journal, runtime, self._on_journal_failed, self._on_disk_full)
        self._incarnation = _next_incarnation(storage, runtime)
        self.writer.submit([OriginIncarnation(self._incarnation)], lambda: None)
        self.writer.flush_now()
        if self.writer.failed or not self.writer.idle:
            storage.close()
            raise self._cannot_write()

    def _cannot_write(self, error: OSError | None = None) -> DataDirError:
        data_dir = self.config.node.data_dir
        if error is not None:
            problem = f"data directory {data_dir} cannot be written to: {told_by_os(error, 'its identity')}"
            return DataDirError(problem, "free or repair the disk")
        reason = self._start_error
        why = reason.message if isinstance(reason, QuorateError) else reason
        problem = f"data directory {data_dir} cannot be written to: {why}"
        return DataDirError(problem, "repair the disk, or free space on it, and start again")

    @property
    def entry_bytes_max(self) -> int:
        """What a batch may reach: it is closed once full, and its last run may exceed that."""
        return self.config.raft.batch_bytes_max + self.config.limits.frame_bytes_max + CHUNK_BYTES_MAX

    def identity(self) -> PeerIdentity:
        """Return what this member proves in a hello, as it is known now."""
        identity = self.storage.identity
        return PeerIdentity(
            identity.cluster_name,
            identity.cluster_id,
            identity.node_id,
            identity.incarnation,
            str(self.config.members[identity.node_id]),
            self.core.founding_term if self._attached else None,
            self.storage.supported_level,
        )

    def hears_nobody(self) -> bool:
        """Tell whether no leader is heard: a member that this log does not know may lead by now."""
        return self._attached and not self.engine.hears_leader()

    def admission(self) -> Admission:
        """Return what is known now of the disks that may speak for a member."""
        if not self._attached:
            return Admission()
        leader_id = self.engine.leader_id if self.engine.hears_leader() else None
        applied, level = self.replica.configuration(), self.replica.machine.feature_level
        return Admission(self.engine.configuration, applied, leader_id or 0, level)

    def peer_proved(self, peer: PeerIdentity) -> None:
        """Take notice of whom a hello proved, let in or not: a founder waits for all others."""
        mine = self.storage.identity
        if not self._attached or peer.cluster != mine.cluster_name or peer.node_id == mine.node_id:
            return
        clusters, _ = self.core.founding_obstacles
        was_hindered = bool(clusters)
        self.engine.step(PeerMet(peer.node_id, peer.incarnation, peer.founding_term, peer.cluster_id))
        if clusters and not was_hindered:
            log.warning("%s (%s)", *self.founding_problem())

    def founding_problem(self) -> tuple[str, str]:
        """Say what this founder of an empty log waits for, and the remedy; two empty texts if for nothing."""
        node_id = self.config.node.id
        if not self._attached or self.core.founding_term is None:
            return "", ""
        clusters, missing = self.core.founding_obstacles
        for peer_id, cluster_id in clusters.items():
            problem = (
                f"node {peer_id} belongs to the cluster {cluster_id} already and the data directory of node "
                f"{node_id} is empty: it founds nothing and waits to be let in"
            )
            remedy = (
                f"if its data are lost put them back or run `quorate members replace {node_id}`, or `quorate "
                "members add` if it is no member any more; if another cluster is meant, correct node.cluster "
                "or [members] and start with an empty data directory"
            )
            return problem, remedy
        if missing:
            problem = (
                f"a cluster is founded by all of [members] together, and node {node_id} has not heard from "
                f"{', '.join(f'node {peer_id}' for peer_id in missing)} that it founds, too"
            )
            remedy = "start every one of them once, with an empty data directory and --bootstrap"
            if self.storage.identity.cluster_id:
                remedy = "run `quorate restore` with the same backup and options for every one, and start it"
            return problem, remedy
        return "", ""

    def attach(self, transport: MemberTransport) -> None:
        """Build everything on the open data directory; once. Nothing runs before `start`.

        Args:
            transport: ready to send; its callbacks become the engine's.
        """
        config, runtime, storage, writer = self.config, self.runtime, self.storage, self.writer
        self._transport = transport
        self.core = self._build_core()
        self.engine = engine = self._build_engine(transport)
        self.frontend = frontend = Frontend(
            self._server_options(),
            runtime.monotonic_ms,
            lambda serve: runtime.call_soon(engine.guarded("serving a client", serve)),
            lambda delay_ms, serve: runtime.call_later(delay_ms, engine.guarded("serving a client", serve)),
            partial(runtime.run_in_thread, WORDS_LANE),
        )
        self.replica = replica = NodeReplica(
            storage.machine,
            engine,
            runtime,
            frontend,
            incarnation=self._incarnation,
            forward_deadline_ms=config.raft.forward_deadline_ms,
            heartbeat_interval_ms=config.raft.heartbeat_interval_ms,
            batch_bytes_max=config.raft.batch_bytes_max,
            entry_bytes_max=self.entry_bytes_max,
            container_check_interval_ms=config.limits.container_check_interval_ms,
            enforce_quota=config.limits.enforce_quota,
            feature_level=storage.supported_level,
        )
        frontend.attach(replica)
        self.snapshotter = Snapshotter(
            replica,
            storage.snapshots,
            Compaction(storage.snapshots, storage.journal, writer, runtime, engine.step, engine.fail),
            runtime,
            engine.fail,
            log_bytes_max=config.raft.journal_bytes_max,
            log_bytes_due=self._sizes.snapshot_log_bytes,
            records_per_step=self._sizes.snapshot_records_per_step,
        )
        replica.when_applied.append(self._entry_applied)
        self.courier = SnapshotCourier(
            storage.snapshots,
            storage.disk,
            writer,
            runtime,
            lambda reader: load_machine(reader, config.raft.snapshot_overlay_bytes_max),
            self._install,
            engine.step,
            engine.fail,
            self.snapshotter.take,
        )
        engine.attach(replica, self.courier)
        self.syncobj = QuorateSyncObj(engine, transport)
        # The core has its own copy of the log's tail, and bounds it.
        storage.recovered = storage.recovered._replace(tail=())
        self._attached = True
        # A crash may have come between the state that names the cluster and the identity.
        self._write_identity()

    def start(self) -> None:
        """Begin to tick."""
        self.syncobj.start()

    def stop(self) -> None:
        """Stop deciding, sending and acknowledging; what a lane works on may still become durable."""
        self._ended = True
        if self._attached:
            self.syncobj.destroy()
            self.replica.administration.stop()
            self.replica.batches.imports.stop()
            self.snapshotter.stop()
        self.writer.stop()

    def close(self) -> None:
        """Close the files; after `stop`, and after the runtime's lanes ended."""
        self.storage.close()

    def _build_core(self) -> Raft:
        config, runtime, storage = self.config, self.runtime, self.storage
        identity, raft = storage.identity, config.raft
        founders = {node_id: str(address) for node_id, address in config.members.items()}
        options = Options(
            election_timeout_min_ms=raft.election_timeout_ms[0],
            election_timeout_max_ms=raft.election_timeout_ms[1],
            undurable_ms_max=CONTACT_LOSS_TIMEOUTS * raft.election_timeout_ms[1],
            heartbeat_interval_ms=raft.heartbeat_interval_ms,
            entry_bytes_max=self.entry_bytes_max,
            log_cache_bytes_max=raft.log_cache_bytes_max,
            committed_bytes_max=self._sizes.committed_bytes_max,
            # What one message carries must fit into a peer's frame, whatever the limits are set to.
            append_bytes_max=min(self._sizes.append_bytes_max, self.entry_bytes_max),
            snapshot_chunk_bytes_max=self._sizes.snapshot_chunk_bytes_max,
        )
        return Raft(
            options=options,
            node_id=config.node.id,
            incarnation=identity.incarnation,
            hard_state=storage.recovered.hard_state,
            log=storage.recovered.durable_log(storage.machine.applied_index),
            snapshot=storage.mark,
            founders=founders if identity.founder else {},
            found=lambda configuration: founding_payload(configuration, runtime.random, identity.cluster_id),
            reader=storage.journal,
            rng=runtime.random,
            now_ms=runtime.monotonic_ms(),
            cluster_id=identity.cluster_id,
        )

    def _build_engine(self, transport: MemberTransport) -> Engine:
        config = self.config
        return Engine(
            self.core,
            transport,
            self.writer,
            self.runtime,
            node_id=config.node.id,
            peer_ids=[node_id for node_id in config.members if node_id != config.node.id],
            applied_index=self.storage.machine.applied_index,
            election_timeout_max_ms=config.raft.election_timeout_ms[1],
            heartbeat_interval_ms=config.raft.heartbeat_interval_ms,
            on_failure=self._on_engine_failed,
        )

    def _server_options(self) -> ServerOptions:
        limits, security = self.config.limits, self.config.security
        return ServerOptions(
            frame_bytes_max=limits.frame_bytes_max,
            session_timeout_min_ms=limits.session_timeout_min_ms,
            session_timeout_max_ms=limits.session_timeout_max_ms,
            handshake_timeout_ms=limits.handshake_timeout_ms,
            connections_per_address_max=limits.connections_per_address_max,
            connections_max=limits.connections_max or connections_within(open_files_max()),
            received_bytes_total_max=limits.received_bytes_total_max,
            unread_bytes_total_max=limits.unread_bytes_total_max,
            watch_bytes_total_max=limits.watch_bytes_total_max,
            outstanding_requests_max=limits.outstanding_requests_max,
            watches_per_connection_max=limits.watches_per_connection_max,
            contact_loss_ms_max=CONTACT_LOSS_TIMEOUTS * self.config.raft.election_timeout_ms[1],
            # Ticks come more often than heartbeats, whatever their interval.
            pause_ms_min=max(100.0, 2.0 * self.config.raft.heartbeat_interval_ms),
            four_letter_words=security.four_letter_words,
            super_digest=security.super_digest,
            super_user=security.super_user,
            x509_super_user=security.x509_super_user,
            sasl_users=SaslUsers(security.sasl_users_file) if security.sasl_users_file else None,
            required_schemes=required_schemes(security),
            audit=self.audit,
            read_only_mode=limits.read_only_mode,
            node_id=self.config.node.id,
            client_port=_port(self.config.listen.client),
            secure_client_port=_port(self.config.listen.secure_client),
            tick_ms=limits.tick_ms,
            data_dir=str(self.config.node.data_dir),
        )

    # --- what the parts tell ----------------------------------------------------------------------

    def _entry_applied(self, entry: Entry) -> None:
        """Count an applied entry for the snapshots; the identity keeps the cluster and its level."""
        self.snapshotter.entry_applied(entry)
        risen = self.replica.machine.feature_level > self.storage.identity.feature_level
        if risen or entry.kind in CONFIGURATION_KINDS:
            self._write_identity()
            self._transport.recheck_identities()

    def _install(self, machine: StateMachine, mark: SnapshotMark) -> None:
        self.snapshotter.abandon()
        self.engine.state_installed(mark.snapshot_index)
        self.replica.install(machine)
        # A reference to the state that it replaces would keep its memory.
        self.storage.machine = machine
        # Compaction comes after the core knows of the install.
        self.runtime.call_soon(self.snapshotter.installed, covered_by(machine))
        self._write_identity()
        self._transport.recheck_identities()

    def _own_cluster_id(self) -> str:
        """Return the id of the cluster that this disk belongs to: once the state names this very disk, or "".

        A node with an empty log, a founder too, reads the log of a cluster that may have had another id
        before a forced start; until it has come to its own record it does not say whose it is.
        """
        configuration, identity = self.replica.configuration(), self.storage.identity
        if configuration is None or identity.cluster_id:
            # Log and identity were compared at the start; only a forced start changes either.
            return identity.cluster_id
        member = configuration.member(identity.node_id)
        named = member is not None and member.incarnation == identity.incarnation
        return configuration.cluster_id if named else ""

    def _write_identity(self) -> None:
        """Write to the identity which cluster this disk belongs to; on a full disk once there is room.

        That may wait: the log has it.
        """
        own = self._own_cluster_id()
        try:
            if own:
                self.storage.learn_cluster_id(own)
            self.storage.learn_feature_level(self.replica.machine.feature_level)
        except OSError as error:
            if error.errno not in PASSING_ERRNOS:
                self.engine.fail(self._cannot_write(error))
            elif not self._identity_waits:
                log.warning("%s; tried again until there is room", self._cannot_write(error).message)
                self._identity_waits = True
                self.runtime.call_later(RETRY_INTERVAL_MS, self._write_identity_again)

    def _write_identity_again(self) -> None:
        self._identity_waits = False
        if self._ended:
            return
        try:
            self._write_identity()
        except QuorateError as error:
            self.engine.fail(error)

    def _on_disk_full(self, error: JournalFullError) -> None:
        """Acknowledge nothing until there is room again; called at each attempt that found none."""
        if not self._attached:
            self._start_error = self._start_error or error
            return
        log.error("nothing is acknowledged until the journal can be written: %s", error)
        if self._ended:
            return
        if not self.engine.soft_state.halted:
            self.engine.step(Halt(str(error)))
        self.runtime.call_later(RETRY_INTERVAL_MS, self._retry_journal)

    def _retry_journal(self) -> None:
        if self._ended:
            return
        self.writer.retry()
        self.runtime.call_later(RETRY_INTERVAL_MS / 2, self._resume_if_room)

    def _resume_if_room(self) -> None:
        if self._ended or self.writer.full:
            return
        if self.writer.idle:
            log.info("the disk takes writes again")
            self.engine.step(Resume())
        else:
            self.runtime.call_later(RETRY_INTERVAL_MS / 2, self._resume_if_room)

    def _on_engine_failed(self, error: BaseException) -> None:
        """Stop answering at once, and say why."""
        self._transport.destroy()
        self.replica.administration.stop()
        self.replica.batches.imports.stop()
        self.frontend.close()
        self._on_failure(error)

    def _on_journal_failed(self, error: Exception) -> None:
        if self._attached:
            self.engine.fail(error)
        else:
            self._start_error = error


def _port(address: Address | None) -> int:
    return -1 if address is None else address.port


def _next_incarnation(storage: Storage, runtime: Runtime) -> int:
    """Return the origin incarnation of this life: one that this node id never had, on no disk.

    What an earlier disk of this id used is in the log but not here; repeating a number would take the old
    disk's batches for this one's. So a disk begins at random, a founder's too, which may be bootstrapped
    again; the leader says if that is too low. A snapshot may know more than the journal: of another disk, or
    of this one, whose journal lost its end.
    """
    known = storage.recovered.origin_incarnation
    if not known:
        return FIRST_INCARNATION_MIN + runtime.random.randrange(FIRST_INCARNATION_MIN)
    applied, _ = storage.machine.origins.get(storage.identity.node_id, (0, 0))
    return known + 1 if known >= applied else incarnation_above(applied, runtime.random)
