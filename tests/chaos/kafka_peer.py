"""Apache Kafka 3.9.1 brokers on ZooKeeper in the place of ours, so that their recovery figures have a peer.

Clients reach each broker, and each broker the ZooKeeper servers, through links of their own; brokers reach
each other directly. So those nemeses strike that end or freeze a broker, or cut it off from its metadata.
Kafka has its own defaults, but for the session timeout, which is that of our brokers.
Source: Kafka's configuration reference (advertised.listeners, inter.broker.listener.name, zookeeper.connect).
"""

from __future__ import annotations

import shutil
import socket
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, cast

from kazoo.exceptions import KazooException

from tests.chaos.cluster import ChaosCluster
from tests.chaos.peer import SampleZooKeeper
from tests.chaos.proxies import Proxies
from tests.support.broker_cluster import BrokerCluster, BrokerProcess
from tests.support.kafka_jars import NO_LOG, KafkaJarsError, kafka_class_path
from tests.support.nodes import NodeError, tail

NEMESES: Final = (
    *("kill-broker", "kill-controller", "kill-two-brokers", "pause-broker", "pause-controller"),
    "broker-from-quorum",
)
SESSION_TIMEOUT_MS: Final = 6_000
START_DEADLINE_S: Final = 120.0
#: As Kafka's start script has it.
HEAP: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class KafkaBrokers(BrokerCluster):
    """Kafka brokers as processes that nemeses kill and freeze."""

    def __init__(self, brokers: int, zookeeper: SampleZooKeeper, proxies: Proxies, folder: Path) -> None:
        """Choose ports.

        Raises:
            KafkaJarsError: Java or the jars cannot be had.
        """
        java = shutil.which("java")
        if java is None:
            raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
        self._kafka = [java, *HEAP, NO_LOG, "-cp", kafka_class_path(folder), "kafka.Kafka"]
        self._proxies = proxies
        self._own_folder = False
        self.folder = folder
        self.nodes = cast("Any", zookeeper)
        self.brokers: dict[int, BrokerProcess] = {}
        self._zookeeper = None
        self._counted = Counter()
        for broker_id in range(1, brokers + 1):
            broker = self.add_broker(broker_id)
            proxies.link(f"client-b{broker_id}", f"127.0.0.1:{broker.client_port}")

    def command(self, broker: BrokerProcess) -> list[str]:
        """Write a broker's server.properties; return the command that runs it."""
        number = broker.broker_id
        metadata = [
            self._proxies.link(f"quorum-b{number}-{each}", self.nodes.host(each))
            for each in self.nodes.node_ids
        ]
        ports = (("CLIENT", broker.client_port), ("BROKER", broker.broker_port))
        advertised = self._proxies.address(f"client-b{number}")
        settings = {
            "broker.id": number,
            "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports),
            "advertised.listeners": f"CLIENT://{advertised},BROKER://127.0.0.1:{broker.broker_port}",
            "listener.security.protocol.map": "CLIENT:PLAINTEXT,BROKER:PLAINTEXT",
            "inter.broker.listener.name": "BROKER",
            "log.dirs": broker.data_dir,
            "zookeeper.connect": ",".join(metadata),
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        }
        path = broker.folder / "server.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return [*self._kafka, str(path)]

    def ready(self, broker_id: int) -> bool:
        """Whether a broker is registered and listens.

        Raises:
            NodeError: the process ended.
        """
        broker = self.brokers[broker_id]
        if broker.process is not None and broker.process.poll() is not None:
            raise NodeError(f"Kafka {broker_id} ended: {tail(broker.output_path)}")
        try:
            socket.create_connection(("127.0.0.1", broker.client_port), 1.0).close()
            return bool(self.zookeeper.exists(f"/brokers/ids/{broker_id}"))
        except (OSError, KazooException):
            return False

    def wait_ready(self, *broker_ids: int, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until the given brokers (all, when none is given) serve clients."""
        super().wait_ready(*broker_ids, deadline_s=deadline_s)

    def _keep_counts(self, broker_ids: Sequence[int]) -> None:
        """Kafka has no admin port to ask."""


class KafkaCluster(ChaosCluster):
    """Kafka and its ZooKeeper in the shape of a chaos cluster."""

    def __init__(self, *, nodes: int = 3, brokers: int = 3) -> None:
        """Describe the servers; entering it starts them."""
        self._temporary = tempfile.TemporaryDirectory(prefix="quorate-chaos-")
        self.folder = Path(self._temporary.name)
        self.proxies = Proxies(self.folder)
        zookeeper = SampleZooKeeper(nodes)
        self.nodes = cast("Any", zookeeper)
        self.brokers = KafkaBrokers(brokers, zookeeper, self.proxies, self.folder)

    def controller_now(self) -> int:
        """The broker that /controller names; 0 if none."""
        return int((self.brokers.read("/controller") or {}).get("brokerid", 0))

    def leader_now(self) -> int:
        """Nobody asks who leads the ZooKeeper servers."""
        return 0

    def term(self, *, without: int = 0) -> int:  # noqa: ARG002 - the shape of a chaos cluster
        """Nor in which epoch."""
        return 0

    def ready(self) -> bool:
        """Whether every broker serves."""
        return all(self.brokers.ready(each) for each in self.broker_ids)

    def output_files(self) -> dict[str, Path]:
        """What the brokers printed."""
        return {f"broker-{each.broker_id}": each.output_path for each in self.brokers.brokers.values()}
