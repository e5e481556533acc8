"""What a node tells its operators that waits for room on its disk and has not opened its data directory.

Decides names and shapes only, those of node_view.py, so that monitors need not know the difference. It knows
the configuration and why the node waits; nothing of it is in the quorum yet. Soft state only.

Source: architecture, "HTTP on the admin port".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from quorum.config.node import NodeConfig
from quorum.errors import DiskFullError, NoLeaderError, SnapshotBusyError


class StartingView:
    """The admin port's view of a node that waits for room."""

    def __init__(self, config: NodeConfig, problem: DiskFullError) -> None:
        """Say why it waits."""
        self._config = config
        #: of the last attempt
        self.problem = problem

    def status(self) -> Mapping[str, object]:
        """Return what GET /v1/status answers; what only an open data directory says is null."""
        unknown = ("cluster_id", "term", "leader_id", "commit_index", "applied_index", "zxid", "state_digest")
        facts: dict[str, object] = dict.fromkeys(unknown)
        return {
            "node_id": self._config.node.id,
            "cluster": self._config.node.cluster,
            "role": "starting",
            "phase": "election",
            "sessions": 0,
            "members": [],
            "problem": self.readiness()[1],
            "refused_by": [],
            **facts,
        }

    def readiness(self) -> tuple[bool, str]:
        """Return that no client is served, and why."""
        remedy = "free space, and it goes on by itself"
        return False, f"the start waits for room on the disk: {self.problem.message} ({remedy})"

    def metrics(self) -> Iterable[Metric]:
        """Yield that the node is not ready; the other families come with the start."""
        yield GaugeMetricFamily("quorate_ready", "1 if clients are served", value=0.0)

    async def transfer_leadership(self, node_id: int) -> Mapping[str, object]:
        """Refuse: another node has to be asked."""
        raise self._not_done(f"leadership was not handed to node {node_id}")

    async def add_member(self, node_id: int, address: str) -> Mapping[str, object]:
        """Refuse: another node has to be asked."""
        raise self._not_done(f"node {node_id} at {address} was not added")

    async def replace_member(
        self,
        node_id: int,
        incarnation: str,
        *,
        force: bool,  # noqa: ARG002 -- refused in any case
    ) -> Mapping[str, object]:
        """Refuse: another node has to be asked."""
        raise self._not_done(f"the disk {incarnation or 'of record'} of node {node_id} was not replaced")

    async def remove_member(self, node_id: int) -> Mapping[str, object]:
        """Refuse: another node has to be asked."""
        raise self._not_done(f"node {node_id} was not removed")

    async def take_snapshot(self) -> Mapping[str, object]:
        """Refuse: its state is not loaded."""
        problem = self._not_done("no snapshot was taken").message
        raise SnapshotBusyError(problem, "free space on the disk of this node, and ask again")

    def _not_done(self, what: str) -> NoLeaderError:
        problem = f"{what}: node {self._config.node.id} has not started yet, {self.problem.message}"
        return NoLeaderError(problem, "ask another node, or free space on the disk of this one")
