"""A cluster of real processes with a proxy on every link, under the shipped defaults.

    peer-1-2      node 1 dials node 2          client-1     clients dial node 1
    broker-1-2    broker 1 dials broker 2      client-b1    clients dial broker 1
    quorum-b1-2   broker 1 dials node 2

node.toml's [members] and broker.toml's [dial], [quorum] and [advertised] name the proxies, so no link goes
around them. The admin ports are asked directly: they tell the run how the cluster is, and are no part of it.
Source: docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

import contextlib
import http.client
import itertools
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

from kazoo.exceptions import KazooException

from tests.chaos import clocks
from tests.chaos.clients import Client
from tests.chaos.planted import VARIABLE
from tests.chaos.proxies import Proxies
from tests.chaos.secured import Secured
from tests.support.broker_cluster import BrokerCluster, BrokerProcess
from tests.support.nodes import Node, NodeError, QuorateNodes, hold_port, server_environment

LOOKS_MAX: Final = 2


class ProxiedNodes(QuorateNodes):
    """Nodes that reach each other through proxies."""

    def __init__(
        self, proxies: Proxies, nodes: int, folder: Path, *, faked_clocks: bool, secured: Secured | None
    ) -> None:
        """Choose ports, make the links and write the configuration."""
        self._proxies = proxies
        self._secured = secured
        #: {node: its TLS port}
        self._secure_ports: dict[int, int] = {}
        super().__init__(
            nodes=nodes,
            cluster="chaos",
            settings={},
            environment=clocks.environment() if faked_clocks else {},
            folder=folder,
            arguments=("-m", "tests.chaos.process", "serve"),
        )
        for node in self.nodes.values():
            proxies.link(f"client-{node.node_id}", self.upstream(node))
            clocks.put_off(node.folder, 0)

    def add(self, node_id: int) -> str:
        """Choose ports for one more node and make its links; returns where all others dial it."""
        node = self.new_node(node_id)
        clocks.put_off(node.folder, 0)
        self._proxies.link(f"client-{node_id}", self.upstream(node))
        return self._proxies.link(f"peer-any-{node_id}", f"127.0.0.1:{node.peer_port}")

    def forget(self, node_id: int) -> None:
        """End an added node, and remove its files and links."""
        self.kill(node_id)
        node = self.nodes.pop(node_id)
        for holder in node.holders:
            holder.close()
        shutil.rmtree(node.folder)
        self._secure_ports.pop(node_id, None)
        self._proxies.remove(rf"client-{node_id}", rf"peer-any-{node_id}", rf"peer-{node_id}-\d+")

    def config(self, node: Node) -> dict[str, dict[str, object]]:
        """Sections of node.toml with the links to the other members."""
        sections = super().config(node)
        sections["members"] = {
            str(other.node_id): f"127.0.0.1:{other.peer_port}"
            if other is node
            else self._proxies.link(f"peer-{node.node_id}-{other.node_id}", f"127.0.0.1:{other.peer_port}")
            for other in self.nodes.values()
        }
        if self._secured is not None:
            secured = self._secured.node(node.node_id, self._secure_port(node))
            for section, values in secured.items():
                sections.setdefault(section, {}).update(values)
        return sections

    def _secure_port(self, node: Node) -> int:
        if node.node_id not in self._secure_ports:
            holder, self._secure_ports[node.node_id] = hold_port()
            node.holders.append(holder)
        return self._secure_ports[node.node_id]

    def upstream(self, node: Node) -> str:
        """host:port where clients come in."""
        port = node.client_port if self._secured is None else self._secure_port(node)
        return f"127.0.0.1:{port}"


class ProxiedBrokers(BrokerCluster):
    """Brokers whose disks and clocks nemeses reach."""

    def __init__(
        self, brokers: int, quorum: ProxiedNodes, folder: Path, *, faked_clocks: bool, planted: str
    ) -> None:
        """Choose ports and write the configuration."""
        self._extra = {VARIABLE: planted} | (clocks.environment() if faked_clocks else {})
        super().__init__(brokers=brokers, quorum=quorum, folder=folder)
        for broker in self.brokers.values():
            clocks.put_off(broker.folder, 0)

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the brokers' processes."""
        return server_environment(**self._extra)

    def command(self, broker: BrokerProcess) -> list[str]:
        """Write a broker's configuration; return the command that runs it."""
        return [each if each != "quorum" else "tests.chaos.process" for each in super().command(broker)]


class ChaosCluster:
    """Nodes, and brokers if there are any, with a proxy on every link between them and to them."""

    #: what keeps strangers out; None: nothing
    secured: Secured | None = None

    def __init__(
        self,
        *,
        nodes: int = 3,
        brokers: int = 0,
        faked_clocks: bool = False,
        planted: str = "",
        is_secured: bool = False,
    ) -> None:
        """Choose ports and write the configuration; entering it starts the processes."""
        self._temporary = tempfile.TemporaryDirectory(prefix="quorate-chaos-")
        self.folder = Path(self._temporary.name)
        self.proxies = Proxies(self.folder)
        #: Those that are processes of their own.
        self.clients: list[Client] = []
        if is_secured:
            self.secured = Secured(self.folder / "pki")
        self.nodes = ProxiedNodes(
            self.proxies, nodes, self.folder, faked_clocks=faked_clocks, secured=self.secured
        )
        self.brokers: BrokerCluster = ProxiedBrokers(
            brokers, self.nodes, self.folder, faked_clocks=faked_clocks, planted=planted
        )
        self._link_brokers()

    def _link_brokers(self) -> None:
        for broker in self.brokers.brokers.values():
            client = self.proxies.link(f"client-b{broker.broker_id}", f"127.0.0.1:{broker.client_port}")
            quorum: dict[str, object] = {
                "hosts": [
                    self.proxies.link(f"quorum-b{broker.broker_id}-{node.node_id}", self.nodes.upstream(node))
                    for node in self.nodes.nodes.values()
                ]
            }
            if self.secured is None:
                broker.settings["advertised"] = {"client": client}
            else:
                count = len(self.brokers.brokers)
                broker.settings |= self.secured.broker(broker.broker_id, count, broker.client_port)
                broker.settings["advertised"] = {"client": "", "listeners": [f"SASL_SSL://{client}"]}
                quorum["ssl"] = True
            broker.settings["quorum"] = quorum
        for asking, asked in itertools.permutations(self.brokers.brokers.values(), 2):
            name = f"broker-{asking.broker_id}-{asked.broker_id}"
            dial = asking.settings.setdefault("dial", {})
            dial[str(asked.broker_id)] = self.proxies.link(name, f"127.0.0.1:{asked.broker_port}")

    @property
    def node_ids(self) -> list[int]:
        """The nodes of the quorum."""
        return list(self.nodes.node_ids)

    @property
    def broker_ids(self) -> list[int]:
        """The brokers."""
        return list(self.brokers.brokers)

    def host(self, node_id: int) -> str:
        """Where clients reach one node, through its link; "" while it has none: it comes or goes."""
        return self._way(self.proxies.address(f"client-{node_id}"))

    @property
    def hosts(self) -> str:
        """Where clients reach all nodes."""
        found = (self.proxies.address(f"client-{node_id}") for node_id in self.node_ids)
        return self._way(",".join(filter(None, found)))

    @property
    def bootstrap(self) -> str:
        """Where clients reach all brokers."""
        found = (self.proxies.address(f"client-b{broker_id}") for broker_id in self.broker_ids)
        return self._way(",".join(found))

    def _way(self, hosts: str) -> str:
        return hosts if self.secured is None or not hosts else self.secured.prefix(hosts)

    # -- roles, as the processes tell them -------------------------------------------------------------------

    def term(self, *, without: int = 0) -> int:
        """The highest term that a node, one excepted, reports; 0 if none answers."""
        terms = [0]
        for node_id in self.node_ids:
            if node_id == without:
                continue
            with contextlib.suppress(OSError, http.client.HTTPException, NodeError):
                terms.append(int(self.nodes.status(node_id)["term"]))
        return max(terms)

    def leader_now(self) -> int:
        """The node that says that it leads, in the highest term; 0 if none."""
        for _ in range(LOOKS_MAX):
            # KeyError: a node was removed during the look.
            with contextlib.suppress(NodeError, KeyError):
                return self.nodes.leader_now()
        return 0

    def controller_now(self) -> int:
        """The broker that says that it is the controller with the highest epoch; 0 if none."""
        return self._holder_now(
            lambda status, broker_id: status["controller_id"] == broker_id and status["controller_epoch"]
        )

    def coordinator_now(self) -> int:
        """The broker that says that it is the coordinator with the highest epoch; 0 if none."""
        return self._holder_now(
            lambda status, _: status["coordinator"] and status["coordinator"]["coordinator_epoch"]
        )

    def _holder_now(self, epoch_of: Callable[[dict[str, Any], int], Any]) -> int:
        found = [(0, 0)]
        for broker_id in self.brokers.awake():
            with contextlib.suppress(OSError, http.client.HTTPException):
                if epoch := epoch_of(self.brokers.status(broker_id), broker_id):
                    found.append((int(epoch), broker_id))
        return max(found)[1]

    def partitions_left_by(self, broker_id: int) -> int:
        """How many partitions have a replica on a broker, and that no longer in their ISR."""
        lost = 0
        with contextlib.suppress(KazooException):
            zookeeper = self.brokers.zookeeper
            for topic in zookeeper.get_children("/brokers/topics"):
                record = self.brokers.read(f"/brokers/topics/{topic}") or {"partitions": {}}
                for partition, replicas in record["partitions"].items():
                    state = self.brokers.state(topic, int(partition)) if broker_id in replicas else {}
                    lost += bool(state) and broker_id not in state["isr"]
        return lost

    def registered(self, broker_id: int) -> bool:
        """Whether a broker has a registration; yes, if the quorum does not answer."""
        try:
            return self.brokers.zookeeper.exists(f"/brokers/ids/{broker_id}") is not None
        except KazooException:
            return True

    def in_sync(self) -> bool:
        """Whether every replica of every partition is in its ISR; no, if the quorum does not answer."""
        try:
            topics = self.brokers.zookeeper.get_children("/brokers/topics")
        except KazooException:
            return False
        for topic in topics:
            record = self.brokers.read(f"/brokers/topics/{topic}")
            if record is None:
                return False
            for partition, replicas in record["partitions"].items():
                state = self.brokers.state(topic, int(partition))
                if not state or set(state["isr"]) != set(replicas):
                    return False
        return True

    def ready(self) -> bool:
        """Whether every process serves clients.

        Raises:
            NodeError: a process ended by itself.
        """
        return all(self.nodes.ready(each) for each in self.node_ids) and all(
            self.brokers.ready(each) for each in self.broker_ids
        )

    def output_files(self) -> dict[str, Path]:
        """{name: what that process printed}."""
        files = {f"node-{node.node_id}": node.output_path for node in self.nodes.nodes.values()}
        files |= {f"broker-{each.broker_id}": each.output_path for each in self.brokers.brokers.values()}
        return files | {each.name: each.output_path for each in self.clients}

    # -- life ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            with self.brokers.shown():
                self.brokers.start()
                if self.secured is not None and self.broker_ids:
                    self.secured.admit(self.bootstrap, self.brokers.zookeeper, self.brokers.secret_path)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End every process and remove their files."""
        self.brokers.close()
        self.proxies.close()
        self._temporary.cleanup()
