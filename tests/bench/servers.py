"""The systems that a benchmark compares, three server processes each, on the same disk with fsync on.

Quorate, ZooKeeper 3.9.5 and etcd 3.5 run with the settings that they ship with, ZooKeeper with a Java heap
that a production server would get. Each brings the clients that speak its protocol. Knows nothing of what is
measured. Source: docs/internals/benchmarks.md.
"""

from __future__ import annotations

import contextlib
import re
import signal
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

from tests.bench.clients import Clients
from tests.bench.etcd_clients import EtcdClients
from tests.bench.machine import READY_DEADLINE_S, seconds_until
from tests.bench.zookeeper_clients import ZooKeeperClients
from tests.support.etcd import Etcd
from tests.support.nodes import QuorateNodes, eventually
from tests.support.zookeeper import ZooKeeper

#: name of Quorate without a change log
BARE: Final = "quorate-bare"
#: as in ZooKeeper's own sample configuration, in ticks of 2 s
ZOOKEEPER_SETTINGS = {"initLimit": 10, "syncLimit": 5}


class Servers(Protocol):
    """Three servers under load, counted from 0."""

    name: str
    clients: Clients

    @property
    def hosts(self) -> list[str]: ...
    @property
    def pids(self) -> list[int]: ...
    def leader(self) -> int: ...
    def sync_counts(self) -> list[int] | None: ...
    def wait_for_snapshots(self) -> None: ...
    def restart(self) -> list[float]: ...
    def kill(self, position: int) -> None: ...
    def pause(self, position: int) -> None: ...
    def resume(self, position: int) -> None: ...
    def revive(self, position: int) -> None: ...
    def settle(self) -> None: ...
    def close(self) -> None: ...


class QuorateServers:
    """Three `quorate serve` processes with the settings that are shipped."""

    name = "Quorate"
    clients: Clients = ZooKeeperClients()

    def __init__(self, folder: Path, arguments: Sequence[str] = ("-m", "quorum", "serve")) -> None:
        """Found a cluster in an empty folder and wait until it is ready.

        Args:
            folder: where the nodes keep their files.
            arguments: what follows the Python interpreter, before `--config`.
        """
        self._nodes = QuorateNodes(folder=folder, cluster="bench", settings={}, arguments=arguments)
        try:
            self._nodes.start()
        except BaseException as error:
            for title, text in self._nodes.outputs():
                error.add_note(f"{title}:\n{text}")
            self._nodes.close()
            raise

    @property
    def nodes(self) -> QuorateNodes:
        """The nodes, for what only Quorate can be asked."""
        return self._nodes

    @property
    def hosts(self) -> list[str]:
        """Client address of each node."""
        return [self._nodes.host(node_id) for node_id in self._nodes.node_ids]

    @property
    def pids(self) -> list[int]:
        """Process id of each node."""
        return [self._nodes.pid(node_id) for node_id in self._nodes.node_ids]

    def leader(self) -> int:
        """Position of the leader in hosts."""
        return list(self._nodes.node_ids).index(self._nodes.leader())

    def sync_counts(self) -> list[int] | None:
        """How often each node made its journal durable."""
        return self._counters("quorate_journal_fsyncs_total")

    def wait_for_snapshots(self) -> None:
        """Wait until every node has written a snapshot since it started."""
        eventually(
            lambda: all(self._counters("quorate_snapshots_taken_total")),
            READY_DEADLINE_S,
            "every node has a snapshot",
        )

    def _counters(self, name: str) -> list[int]:
        values = []
        for node_id in self._nodes.node_ids:
            _, body = self._nodes.get(node_id, "/metrics")
            found = re.search(rf"^{name} (\S+)$", body.decode(), re.MULTILINE)
            assert found is not None, f"/metrics of node {node_id} has no {name}"
            values.append(int(float(found[1])))
        return values

    def restart(self) -> list[float]:
        """Stop all nodes cleanly, start them together; returns the seconds until each was ready."""
        for node_id in self._nodes.node_ids:
            self._nodes.stop(node_id)
        for node_id in self._nodes.node_ids:
            self._nodes.start_node(node_id)
        return seconds_until([lambda n=node_id: self._nodes.ready(n) for node_id in self._nodes.node_ids])  # type: ignore[misc]

    def kill(self, position: int) -> None:
        """End a node with SIGKILL."""
        self._nodes.kill(self._nodes.node_ids[position])

    def pause(self, position: int) -> None:
        """Freeze a node."""
        self._nodes.pause(self._nodes.node_ids[position])

    def resume(self, position: int) -> None:
        """Let a frozen node run on."""
        self._nodes.resume(self._nodes.node_ids[position])

    def revive(self, position: int) -> None:
        """Start a killed node on its data."""
        self._nodes.start_node(self._nodes.node_ids[position])

    def settle(self) -> None:
        """Wait until all nodes serve and one leads."""
        self._nodes.wait_ready(deadline_s=READY_DEADLINE_S)

    def close(self) -> None:
        """End all nodes."""
        self._nodes.close()


class BareServers(QuorateServers):
    """The same without a change log."""

    name = "Quorate without a change log"

    def __init__(self, folder: Path) -> None:
        """As QuorateServers."""
        super().__init__(folder, ("-m", "tests.bench.bare_node", "serve"))


class ZooKeeperServers:
    """Three real ZooKeeper 3.9.5 servers."""

    name = "ZooKeeper 3.9.5"
    clients: Clients = ZooKeeperClients()

    def __init__(self, folder: Path, heap_bytes: int = 2 << 30) -> None:
        """Start an ensemble in an empty folder and wait until it serves."""
        heap = f"-Xmx{heap_bytes >> 20}m"
        self._servers = ZooKeeper(
            3,
            tick_ms=2000,
            config=ZOOKEEPER_SETTINGS,
            data_dir=folder,
            jvm_options=(heap, "-XX:+UseG1GC"),
        )
        try:
            self._servers.start()
        except BaseException:
            self._servers.close()
            raise

    @property
    def hosts(self) -> list[str]:
        """Client address of each server."""
        return self._servers.hosts.split(",")

    @property
    def pids(self) -> list[int]:
        """Process id of each server."""
        return [pid for pid in self._servers.pids if pid is not None]

    def leader(self) -> int:
        """Position of the leader in hosts."""
        return self._servers.leader()

    def sync_counts(self) -> list[int] | None:
        """How often each server forced its log to disk, from the `mntr` word."""
        counts: list[int] = []
        for number in range(3):
            found = re.search(r"^zk_cnt_fsynctime\t(\d+)$", self._servers.ask(number, "mntr"), re.MULTILINE)
            if found is None:
                return None
            counts.append(int(found[1]))
        return counts

    def wait_for_snapshots(self) -> None:
        """ZooKeeper writes snapshots by itself, every 50,000 to 100,000 transactions."""

    def restart(self) -> list[float]:
        """Stop all servers, start them together; returns the seconds until each served."""
        for number in range(3):
            self._servers.stop_server(number)
        for number in range(3):
            self._servers.start_server(number, wait=False)
        return seconds_until([lambda n=number: bool(self._servers.mode(n)) for number in range(3)])  # type: ignore[misc]

    def kill(self, position: int) -> None:
        """End a server with SIGKILL."""
        self._servers.kill_server(position)

    def pause(self, position: int) -> None:
        """Freeze a server."""
        self._servers.signal_server(position, signal.SIGSTOP)

    def resume(self, position: int) -> None:
        """Let a frozen server run on."""
        self._servers.signal_server(position, signal.SIGCONT)

    def revive(self, position: int) -> None:
        """Start a killed server on its data."""
        self._servers.start_server(position, wait=False)

    def settle(self) -> None:
        """Wait until all servers serve and one of them leads."""

        def settled() -> bool:
            return sorted(self._servers.mode(number) for number in range(3)) == [
                *("follower", "follower", "leader")
            ]

        eventually(settled, READY_DEADLINE_S, "one ZooKeeper leads and two follow")

    def close(self) -> None:
        """End all servers."""
        self._servers.close()


class EtcdServers:
    """Three real etcd servers."""

    clients: Clients = EtcdClients()

    def __init__(self, folder: Path) -> None:
        """Found a cluster in an empty folder and wait until it serves."""
        self._servers = Etcd(3, folder)
        try:
            self._servers.start()
            self.name = f"etcd {self._servers.version()}"
        except BaseException:
            self.close()
            raise

    @property
    def hosts(self) -> list[str]:
        """Client address of each server."""
        return self._servers.hosts

    @property
    def pids(self) -> list[int]:
        """Process id of each server."""
        return [pid for pid in self._servers.pids if pid is not None]

    def leader(self) -> int:
        """Position of the leader in hosts."""
        return self._servers.leader()

    def sync_counts(self) -> list[int] | None:
        """How often each server made its log durable."""
        name = "etcd_disk_wal_fsync_duration_seconds_count"
        return [int(self._servers.metric(number, name)) for number in range(3)]

    def wait_for_snapshots(self) -> None:
        """Etcd keeps its state in a file as it goes."""

    def restart(self) -> list[float]:
        """Stop all servers, start them together; returns the seconds until each served."""
        for number in range(3):
            self._servers.end_server(number)
        for number in range(3):
            self._servers.start_server(number)
        return seconds_until([lambda n=number: self._servers.serving(n) for number in range(3)])  # type: ignore[misc]

    def kill(self, position: int) -> None:
        """End a server with SIGKILL."""
        self._servers.end_server(position, signal.SIGKILL)

    def pause(self, position: int) -> None:
        """Freeze a server."""
        self._servers.signal_server(position, signal.SIGSTOP)

    def resume(self, position: int) -> None:
        """Let a frozen server run on."""
        self._servers.signal_server(position, signal.SIGCONT)

    def revive(self, position: int) -> None:
        """Start a killed server on its data."""
        self._servers.start_server(position)

    def settle(self) -> None:
        """Wait until all servers serve and one of them leads."""

        def settled() -> bool:
            leading = sum(self._servers.metric(number, "etcd_server_is_leader") for number in range(3))
            return leading == 1 and all(self._servers.serving(number) for number in range(3))

        eventually(settled, READY_DEADLINE_S, "one etcd leads and all serve")

    def close(self) -> None:
        """End all servers."""
        self._servers.close()


#: {name on the command line: what starts such servers in an empty folder}
KINDS: Mapping[str, Callable[[Path], Servers]] = {
    "quorate": QuorateServers,
    BARE: BareServers,
    "zookeeper": ZooKeeperServers,
    "etcd": EtcdServers,
}


@contextlib.contextmanager
def running(names: Sequence[str], folder: Path) -> Iterator[list[Servers]]:
    """Run the named systems (keys of KINDS) beside each other, their files in folder."""
    with contextlib.ExitStack() as stack:
        started: list[Servers] = []
        for name in names:
            place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
            servers = KINDS[name](place)
            stack.callback(servers.close)
            started.append(servers)
        yield started
