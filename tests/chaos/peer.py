"""Real ZooKeeper servers in the place of the quorum, so that recovery figures have something beside them.

Only the links of clients have proxies, and only nemeses of nodes strike: kills and freezes. The servers have
ZooKeeper's sample configuration. Histories, checkers and figures are those of Quorate.
Source: zoo_sample.cfg (ZooKeeper 3.9).
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any, Final, Self, cast

from tests.chaos.cluster import ChaosCluster
from tests.chaos.proxies import Proxies
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import ZooKeeperNodes
from tests.support.zookeeper import ZooKeeper

#: Nemeses that need nothing of a server but its process.
NEMESES: Final = ("kill-leader", "kill-node", "kill-all-nodes", "pause-leader")


class SampleZooKeeper(ZooKeeperNodes):
    """Servers with the settings of zoo_sample.cfg."""

    def __init__(self, nodes: int) -> None:
        super().__init__(nodes)
        limits: dict[str, str | int] = {"initLimit": 10, "syncLimit": 5}
        self._servers = ZooKeeper(nodes, tick_ms=2000, config=limits)

    def server_term(self, node_id: int) -> int:
        """The epoch in a server's last zxid; 0 if it does not answer."""
        try:
            answer = self._servers.ask(node_id - 1, "srvr")
        except OSError:
            return 0
        zxids = [line.split()[1] for line in answer.splitlines() if line.startswith("Zxid: ")]
        return int(zxids[0], 16) >> 32 if zxids else 0

    def serves(self, node_id: int) -> bool:
        """Whether a server says that it leads or follows."""
        return self._servers.mode(node_id - 1) != ""

    def leader_now(self) -> int:
        """The leading server; 0 if none."""
        return next((each for each in self.node_ids if self._servers.mode(each - 1) == "leader"), 0)


class ZooKeeperCluster(ChaosCluster):
    """ZooKeeper in the shape of a chaos cluster without brokers."""

    def __init__(self, *, nodes: int = 3) -> None:
        """Describe the servers; entering it starts them."""
        self._temporary = tempfile.TemporaryDirectory(prefix="quorate-chaos-")
        self.folder = Path(self._temporary.name)
        self.proxies = Proxies(self.folder)
        self._peer = SampleZooKeeper(nodes)
        self.nodes = cast("Any", self._peer)
        self.brokers = BrokerCluster(brokers=0, folder=self.folder)

    def term(self, *, without: int = 0) -> int:
        """The highest epoch that a server, one excepted, has seen a transaction of."""
        return max(self._peer.server_term(each) for each in self.node_ids if each != without)

    def leader_now(self) -> int:
        """The leading server; 0 if none."""
        return self._peer.leader_now()

    def ready(self) -> bool:
        """Whether every server serves."""
        return all(self._peer.serves(each) for each in self.node_ids)

    def output_files(self) -> dict[str, Path]:
        """ZooKeeper's own log is not kept."""
        return {}

    def __enter__(self) -> Self:
        try:
            self._peer.start()
            for node_id in self.node_ids:
                self.proxies.link(f"client-{node_id}", self._peer.host(node_id))
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """End every server and remove their files."""
        self._peer.close()
        super().close()
