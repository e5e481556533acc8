"""What a node tells its operators: status, readiness and metrics, read from its parts when somebody asks.

Decides names and shapes only; the HTTP around it is quorum.admin's. Keeps no state and changes nothing.

Source: architecture, "HTTP on the admin port"; Prometheus naming conventions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric

from quorum.member import QuorumMember
from quorum.raft.core.messages import Role
from quorum.raft.transport import PeerTransport

#: committed entries that a node which had caught up may be behind and still be ready
READY_LAG_MAX = 1000

#: name, what it says, value
Reading = tuple[str, str, float]


class NodeView:
    """The admin port's view of one running node."""

    def __init__(self, member: QuorumMember, transport: PeerTransport) -> None:
        """Keep the parts that are read."""
        self.engine = member.engine
        #: once everything committed was applied, a short lag is the normal life of a busy node
        self._caught_up = False
        self._config = member.config
        self._core = member.core
        self._replica = member.replica
        self._frontend = member.frontend
        self._writer = member.writer
        self._transport = transport
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
        return {
            "node_id": status.node_id,
            "cluster": self._config.node.cluster,
            "cluster_id": machine.cluster_id or None,
            "role": status.role.value,
            "term": status.term,
            "leader_id": status.leader_id or None,
            "commit_index": status.commit_index,
            "applied_index": machine.applied_index,
            "zxid": machine.zxid,
            "state_digest": machine.state_digest.hex(),
            "sessions": len(machine.sessions),
            "members": self._members(),
        }

    def _members(self) -> list[dict[str, object]]:
        status = self._core.status()
        matches = {peer.node_id: peer.match_index for peer in status.peers}
        configuration = self.engine.configuration
        members: dict[int, tuple[str, bool]] = {
            node_id: (str(address), True) for node_id, address in self._config.members.items()
        }
        if configuration is not None:
            members = {node_id: (member.address, True) for node_id, member in configuration.voters.items()}
            members |= {
                node_id: (member.address, False) for node_id, member in configuration.learners.items()
            }
        rows: list[dict[str, object]] = []
        for node_id, (address, votes) in sorted(members.items()):
            own = node_id == status.node_id
            leads = node_id == status.leader_id
            role = status.role.value if own else "leader" if leads else "follower" if votes else "learner"
            match = (
                (status.durable_index if own else matches.get(node_id))
                if status.role is Role.LEADER
                else None
            )
            rows.append({"node_id": node_id, "address": address, "role": role, "match_index": match})
        return rows

    def readiness(self) -> tuple[bool, str]:
        """Return whether clients are served now, and the reason in one sentence."""
        soft_state = self.engine.soft_state
        if soft_state.halted:
            return False, f"nothing is acknowledged: {soft_state.halted}"
        if self.engine.leader_id is None:
            return False, f"no leader is known in term {soft_state.term}"
        if not self.engine.isReady():
            return False, f"the leader was not heard for {self.engine.contact_age_ms():.0f} ms"
        status = self._core.status()
        applied_index = self._replica.machine.applied_index
        lag = status.commit_index - applied_index
        self._caught_up = not status.installing and (lag <= 0 or (self._caught_up and lag <= READY_LAG_MAX))
        if not self._caught_up:
            return False, f"applied {applied_index} of {status.commit_index} committed entries"
        if self.engine.leads and not self.engine.accepts_proposals:
            return (
                False,
                f"node {status.node_id} leads term {status.term} and has not applied its first entry",
            )
        if not self._replica.registered:
            return False, "this node's origin incarnation is not registered yet"
        return True, f"node {self.engine.leader_id} leads term {soft_state.term}"

    def metrics(self) -> Iterable[Metric]:
        """Yield the node's metric families with their values of now."""
        for name, text, value in (*self._raft_gauges(), *self._client_gauges()):
            yield GaugeMetricFamily(name, text, value=value)
        for name, text, value in self._totals():
            yield CounterMetricFamily(name, text, value=value)

    def _raft_gauges(self) -> list[Reading]:
        status, machine, journal = self._core.status(), self._replica.machine, self._writer.statistics
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
                "quorate_journal_write_p50_ms",
                "Median of the last groups: write, fsync",
                journal.write_ms(0.5),
            ),
            ("quorate_journal_write_p99_ms", "99th percentile of them", journal.write_ms(0.99)),
            (
                "quorate_snapshot_log_bytes",
                "Applied log that no snapshot covers",
                self._snapshotter.log_bytes,
            ),
        ]

    def _client_gauges(self) -> list[Reading]:
        machine, replica = self._replica.machine, self._replica
        watches = replica.watches.counts().watches
        return [
            ("quorate_zxid", "Last transaction", machine.zxid),
            ("quorate_znodes", "Nodes in the tree", machine.tree.node_count),
            ("quorate_data_bytes", "Bytes of paths and data", machine.tree.data_bytes),
            ("quorate_sessions", "Sessions", len(machine.sessions)),
            ("quorate_connections", "Client connections of this node", len(self._frontend.connections)),
            ("quorate_watches", "Watches of this node's clients", watches),
            (
                "quorate_forward_backlog_bytes",
                "Unapplied bytes of this node's clients",
                replica.backlog_bytes,
            ),
        ]

    def _totals(self) -> list[Reading]:
        clients, journal = self._frontend.counters, self._writer.statistics
        peers, snapshots = self._transport.counters, self._snapshotter
        return [
            ("quorate_requests", "Requests received from clients", clients.requests_received),
            ("quorate_packets_sent", "Replies and events sent to clients", clients.packets_sent),
            ("quorate_handshakes_refused", "Handshakes without a promise", clients.handshakes_refused),
            ("quorate_malformed_frames", "Clients closed for a malformed frame", clients.malformed_frames),
            ("quorate_connections_rejected", "Clients over an address's limit", clients.connections_rejected),
            ("quorate_slow_clients_closed", "Clients that did not read their replies", clients.overflows),
            ("quorate_batches_abandoned", "Batches of unknown outcome", self._replica.batches_abandoned),
            ("quorate_journal_fsyncs", "Groups made durable", journal.fsyncs),
            ("quorate_journal_inline_fsyncs", "Those written in the event loop", journal.inline_fsyncs),
            ("quorate_journal_bytes", "Bytes made durable", journal.bytes_written),
            ("quorate_snapshots_taken", "Snapshots written", snapshots.taken_count),
            ("quorate_snapshots_failed", "Snapshots given up", snapshots.failed_count),
            ("quorate_snapshots_installed", "Snapshots received and installed", self.snapshots_installed),
            ("quorate_peer_messages_sent", "Messages to members", peers.messages_sent),
            ("quorate_peer_bytes_sent", "Bytes to members", peers.bytes_sent),
            ("quorate_peer_hellos_refused", "Peer connections refused", peers.hellos_refused),
        ]
