"""What a node tells its operators: status, readiness and metrics, read from its parts when somebody asks; and
how their requests reach it.

Decides names and shapes only; the HTTP around it is quorum.admin's. Keeps no state; a request is judged by
the leader and waited for by quorum.raft.requests.administration, one for a snapshot by
quorum.node.snapshotting.

Source: docs/reference/http.md; Prometheus naming conventions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from quorum.admin.metrics import audit_metrics, room_metrics, tls_metrics
from quorum.changelog.recorder import ChangeRecorder
from quorum.config.certificates import Certificates
from quorum.core.results import Result
from quorum.errors import QuorateError
from quorum.node.member import QuorumMember
from quorum.node.node_metrics import families
from quorum.platform.disk_room import DiskRoom
from quorum.raft.core.configuration import Member
from quorum.raft.core.messages import Role
from quorum.raft.core.status import Status
from quorum.raft.peers.transport import PeerTransport
from quorum.raft.requests.requests import Action, LeaderRequest
from quorum.server.inspection import outstanding

#: name, what it says, value
Reading = tuple[str, str, float]
Outcome = TypeVar("Outcome")


async def _outcome_of(submit: Callable[[Callable[[Outcome | QuorateError], None]], None]) -> Outcome:
    """Wait for what a request gives its callback; an error is raised."""
    outcome: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

    def answered(result: Outcome | QuorateError) -> None:
        if outcome.done():
            return
        if isinstance(result, QuorateError):
            outcome.set_exception(result)
        else:
            outcome.set_result(result)

    submit(answered)
    return await outcome


class RunningNodeView:
    """The admin port's view of one running node."""

    def __init__(
        self,
        member: QuorumMember,
        transport: PeerTransport,
        recorder: ChangeRecorder,
        certificates: Certificates,
    ) -> None:
        """Keep the parts that are read."""
        self._certificates = certificates
        self._recorder = recorder
        self._room = DiskRoom(member.config.node.data_dir)
        self.engine = member.engine
        self.syncobj = member.syncobj
        self._member = member
        self._config = member.config
        self._core = member.core
        self._replica = member.replica
        self._frontend = member.frontend
        self._writer = member.writer
        self._transport = transport
        self._storage = member.storage
        self._runtime = member.runtime
        self._courier = member.courier
        self._snapshotter = member.snapshotter

    @property
    def first_index(self) -> int:
        """First log index that this node still holds."""
        return self._core.status().first_index

    @property
    def snapshots_installed(self) -> int:
        """Snapshots that this node received and installed since its start."""
        return self._courier.installed_count

    def status(self) -> Mapping[str, object]:
        """Return what GET /v1/status answers; match_index is known on the leader only, and null elsewhere."""
        status = self._core.status()
        machine = self._replica.machine
        ready, reason = self.readiness()
        listen = self._config.listen
        return {
            "node_id": status.node_id,
            "cluster": self._config.node.cluster,
            "cluster_id": machine.cluster_id or self._storage.identity.cluster_id or None,
            "role": self._own_role(status),
            "phase": self._phase(ready=ready),
            "term": status.term,
            "leader_id": status.leader_id or None,
            "commit_index": status.commit_index,
            "applied_index": machine.applied_index,
            "zxid": machine.zxid,
            "import_source": machine.transaction.import_source or None,
            "state_digest": machine.state_digest.hex(),
            "sessions": len(machine.sessions),
            "feature_level": machine.feature_level,
            "client_port": listen.client and listen.client.port,
            "secure_client_port": listen.secure_client and listen.secure_client.port,
            "members": self._members(),
            "problem": None if ready else reason,
            "refused_by": [refusal.node_id for refusal in self._transport.refusals.by_peers()],
        }

    def _phase(self, *, ready: bool) -> str:
        """Return what ZooKeeper calls it: election, synchronization, or broadcast, with clients served."""
        if self.engine.leader_id is None:
            return "election"
        return "broadcast" if ready else "synchronization"

    def _own_role(self, status: Status) -> str:
        configuration = self._replica.configuration()
        if status.role is Role.FOLLOWER and configuration is not None:
            if status.node_id in configuration.learners:
                return "learner"
            if status.node_id not in configuration.voters:
                return "removed" if self._storage.identity.cluster_id else "joining"
        return "candidate" if status.role is Role.PRE_CANDIDATE else status.role.value

    def _members(self) -> list[dict[str, object]]:
        """List the members of the configuration that this node has applied, as this node sees them."""
        status = self._core.status()
        leads = status.role is Role.LEADER
        matches = {peer.node_id: peer.match_index for peer in status.peers}
        refused = self._transport.refusals.refused_disks()
        configuration = self._replica.configuration()
        members = {
            node_id: (Member(str(address), ""), True) for node_id, address in self._config.members.items()
        }
        if configuration is not None:
            both = {**configuration.voters, **configuration.learners}
            voters = configuration.voters
            members = {node_id: (member, node_id in voters) for node_id, member in both.items()}
        return [
            {
                "node_id": node_id,
                "address": member.address,
                # of its disk, the one that counts
                "incarnation": member.incarnation or None,
                "role": self._role_of(node_id, status, voter=voter, refused=node_id in refused),
                "voter": voter,
                # the highest feature level that its build supports
                "feature_level": self._replica.levels.of_member(node_id),
                # incarnation of a process that speaks for this member and does not count, and why not
                "refused": refused[node_id].incarnation if node_id in refused else None,
                "refusal": refused[node_id].reason if node_id in refused else None,
                "match_index": (status.durable_index if node_id == status.node_id else matches.get(node_id))
                if leads
                else None,
            }
            for node_id, (member, voter) in sorted(members.items())
        ]

    def _role_of(self, node_id: int, status: Status, *, voter: bool, refused: bool) -> str:
        """Tell what a member is as this node sees it: refused or unreachable, whatever it was, or its role.

        Whether a connected member answers is known to the leader only.
        """
        if node_id == status.node_id:
            return self._own_role(status)
        silent_since_ms = self._runtime.monotonic_ms() - self._config.raft.election_timeout_ms[1]
        silent = any(peer.node_id == node_id and peer.contact_ms < silent_since_ms for peer in status.peers)
        if silent or not self.engine.is_connected(node_id):
            return "refused" if refused else "unreachable"
        if node_id == status.leader_id:
            return "leader"
        return "follower" if voter else "learner"

    def _membership_problem(self, status: Status) -> str:
        """Say why this node is no full member; empty if it is one."""
        node_id, configuration = status.node_id, self._replica.configuration()
        identity = self._storage.identity
        if configuration is None:
            if not identity.founder:
                return f"node {node_id} waits to be added (`quorate members add` or `replace` on a member)"
            problem, remedy = self._member.founding_problem()
            return f"{problem} ({remedy})" if problem else ""
        member = configuration.member(node_id)
        if member is None:
            applied_index = self._replica.machine.applied_index
            return f"node {node_id} is no member as of entry {applied_index}: removed, or not added yet"
        if member.incarnation not in ("", identity.incarnation):
            return (
                f"the log knows node {node_id} by another disk (incarnation {member.incarnation}): run "
                f"`quorate members replace {node_id}` if that one is lost"
            )
        if node_id in configuration.learners:
            return f"node {node_id} is a learner, which votes once it has caught up"
        return ""

    def _refusals(self) -> str:
        """Say which nodes refuse this one, and what to do; empty if none does."""
        by_reason: dict[tuple[str, str], list[int]] = {}
        for node_id, reason, remedy in self._transport.refusals.by_peers():
            by_reason.setdefault((reason, remedy), []).append(node_id)
        return "".join(
            f"; of node {', '.join(map(str, node_ids))}: {reason} ({remedy})"
            for (reason, remedy), node_ids in by_reason.items()
        )

    def _disk_problem(self) -> str:
        """Say for how long the disk hangs; empty if it does not, as far as is known."""
        waited_ms = self.engine.undurable_ms()
        if waited_ms < self._frontend.options.contact_loss_ms_max:
            return ""
        return (
            f"{self._config.node.data_dir} has made nothing durable for {waited_ms:.0f} ms, so this node "
            "answers nobody: see whether its disk hangs"
        )

    def _leader_problem(self, status: Status) -> str:
        """Say why no leader is heard; empty if one is."""
        if self.engine.leader_id is not None:
            if self.engine.hears_leader():
                return ""
            return f"the leader was not heard for {self.engine.contact_age_ms():.0f} ms{self._refusals()}"
        voters = status.voters or tuple(sorted(self._config.members))
        links, now_ms = self._transport.links(), self._runtime.monotonic_ms()
        heard = "".join(
            f"; node {node_id} was heard {now_ms - links[node_id].heard_ms:.0f} ms ago"
            if node_id in links and links[node_id].inbound
            else f"; node {node_id} is not connected"
            for node_id in voters
            if node_id != status.node_id
        )
        cluster_id = self._storage.identity.cluster_id
        known = f"the cluster {cluster_id} waits for" if cluster_id else "the founding needs"
        return (
            f"no leader is known in term {status.term}: {known} a majority of the voters "
            f"{', '.join(map(str, voters))}{heard}{self._refusals()}"
        )

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients are served now, and the reason in one sentence."""
        soft_state = self.engine.soft_state
        if soft_state.halted:
            return False, f"nothing is acknowledged: {soft_state.halted}"
        problem = self._disk_problem()
        if problem:
            return False, problem
        status = self._core.status()
        problem = self._membership_problem(status)
        if problem:
            return False, problem + self._refusals()
        problem = self._leader_problem(status)
        if problem:
            return False, problem
        progress = f"applied {self._replica.machine.applied_index} of {status.known_index} committed entries"
        if not self._replica.caught_up():
            return False, progress
        if self.engine.leads and not self.engine.accepts_proposals:
            first = f"node {status.node_id} leads term {status.term} and has not applied its first entry"
            return False, f"{first}: {progress}"
        if not self._replica.batches.forwarder.is_registered:
            return False, f"this node's origin incarnation is not registered yet: {progress}"
        return True, f"node {self.engine.leader_id} leads term {soft_state.term}"

    async def ask(self, action: str, node_id: int, address: str, incarnation: str, force: bool) -> int:
        """Have the leader carry out an Action; returns its log index once that is applied here.

        Always comes to an end by the forward deadline.
        """
        request = LeaderRequest(Action[action], node_id, address, incarnation=incarnation, force=force)
        return await _outcome_of(partial(self._replica.ask, request))

    async def import_step(self, step: list[Any]) -> Result:
        """Have a step of an import applied; ends by the forward deadline. Raises as `ask` does."""
        return await _outcome_of(partial(self._replica.import_step, step))

    def metrics(self) -> Iterable[Metric]:
        """Yield the node's metric families with their values of now."""
        for name, text, value in self._gauges():
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, value in self._totals():
            yield CounterMetricFamily(name, text, value=value)
        yield from families(self._member, self._recorder)
        yield from tls_metrics(self._certificates)
        yield from room_metrics(self._room.look())
        yield from audit_metrics(None if self._member.audit is None else self._member.audit.log)

    def _gauges(self) -> list[Reading]:
        status, replica = self._core.status(), self._replica
        machine, watches = replica.machine, replica.watches.counts().watches
        return [
            ("quorate_ready", "1 if clients are served", float(self.readiness()[0])),
            ("quorate_raft_leader", "1 on the leader", float(self.engine.leads)),
            ("quorate_raft_term", "Current term", status.term),
            ("quorate_raft_commit_index", "Last committed log index", status.commit_index),
            ("quorate_raft_durable_index", "Last durable log index", status.durable_index),
            ("quorate_raft_applied_index", "Last applied log index", machine.applied_index),
            ("quorate_raft_first_index", "First log index that is kept", status.first_index),
            ("quorate_journal_queued_bytes", "Bytes that wait for the journal", self._writer.queued_bytes),
            (
                "quorate_snapshot_log_bytes",
                "Applied log that no snapshot covers",
                self._snapshotter.log_bytes,
            ),
            ("quorate_zxid", "Last transaction", machine.zxid),
            ("quorate_znodes", "Nodes in the tree", machine.tree.node_count),
            ("quorate_data_bytes", "Bytes of paths and data", machine.tree.data_bytes),
            ("quorate_quotas", "Quotas of subtrees", len(machine.tree.quotas)),
            (
                "quorate_quotas_above_soft_limit",
                "Quotas of which more is used than a soft limit wants",
                sum(quota.is_above_soft_limit() for quota in machine.tree.quotas.values()),
            ),
            ("quorate_sessions", "Sessions", len(machine.sessions)),
            ("quorate_feature_level", "Feature level of the cluster", machine.feature_level),
            (
                "quorate_feature_level_supported",
                "The highest feature level that this node's build supports",
                replica.levels.supported_level,
            ),
            ("quorate_connections", "Client connections of this node", len(self._frontend.connections)),
            ("quorate_watches", "Watches of this node's clients", watches),
            (
                "quorate_outstanding_requests",
                "Client requests without a reply yet",
                outstanding(self._frontend),
            ),
            (
                "quorate_forward_backlog_bytes",
                "Unapplied bytes of this node's clients",
                replica.batches.backlog_bytes,
            ),
        ]

    def _totals(self) -> list[Reading]:
        clients, journal = self._frontend.counters, self._writer.statistics
        peers, snapshots = self._transport.counters, self._snapshotter
        forwarder = self._replica.batches.forwarder
        return [
            ("quorate_requests", "Requests received from clients", clients.requests_received),
            ("quorate_packets_sent", "Replies and events sent to clients", clients.packets_sent),
            ("quorate_handshakes_refused", "Clients refused at the handshake", clients.handshakes_refused),
            ("quorate_malformed_frames", "Clients closed for a malformed frame", clients.malformed_frames),
            (
                "quorate_connections_rejected",
                "Clients refused by address limits",
                clients.connections_rejected,
            ),
            ("quorate_clients_shed", "Clients closed for what all hold together", clients.connections_shed),
            ("quorate_slow_clients_closed", "Clients that did not read their replies", clients.overflows),
            (
                "quorate_quota_refusals",
                "Writes of any node's clients that a hard limit refused",
                self._replica.machine.transaction.quota_refusals,
            ),
            (
                "quorate_batches_abandoned",
                "Batches of writes of unknown outcome",
                forwarder.batches_abandoned,
            ),
            (
                "quorate_digests_compared",
                "Digests compared with those of the leader",
                self._replica.digests.compared_count,
            ),
            ("quorate_journal_fsyncs", "Groups made durable", journal.fsyncs),
            ("quorate_journal_inline_fsyncs", "Groups made durable in the event loop", journal.inline_fsyncs),
            ("quorate_journal_bytes", "Bytes made durable", journal.bytes_written),
            ("quorate_snapshots_taken", "Snapshots written", snapshots.taken_count),
            ("quorate_snapshots_failed", "Snapshots given up", snapshots.failed_count),
            ("quorate_snapshots_installed", "Snapshots received and installed", self.snapshots_installed),
            ("quorate_peer_messages_sent", "Messages to members", peers.messages_sent),
            ("quorate_peer_bytes_sent", "Bytes to members", peers.bytes_sent),
            ("quorate_peer_hellos_refused", "Peer connections refused", peers.hellos_refused),
            ("quorate_peer_protocol_errors", "Peer connections ended by bad frames", peers.protocol_errors),
        ]
