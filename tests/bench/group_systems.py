"""The systems whose coordinators and controllers are compared: three brokers and their metadata servers.

Quorate with the settings that are shipped; Kafka 3.9.1 in ZooKeeper mode, on ZooKeeper 3.9.5, with Kafka's
own defaults. Both give their brokers the same session timeout. Knows nothing of what is measured.
Source: Kafka's configuration reference (broker.id, zookeeper.session.timeout.ms).
"""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tests.bench.servers import ZOOKEEPER_SETTINGS
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import Authority
from tests.support.kafka_jars import NO_LOG, KafkaJarsError, kafka_class_path
from tests.support.node_configs import free_ports
from tests.support.nodes import STOP_DEADLINE_S, QuorateNodes, eventually, hold_port, tail
from tests.support.zookeeper import ZooKeeper

BROKERS: Final = 3
#: of a broker with its metadata servers, in both systems
SESSION_TIMEOUT_MS: Final = 6_000
START_DEADLINE_S: Final = 120.0
#: the folder of the authority of TLS ports
AUTHORITY: Final = "pki"
#: As Kafka's start script has it.
KAFKA_HEAP: Final = ("-Xms256m", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")


class GroupSystem(Protocol):
    """Three brokers."""

    name: str

    @property
    def addresses(self) -> list[str]: ...
    @property
    def broker_ids(self) -> list[int]: ...
    @property
    def metadata_hosts(self) -> str: ...
    @property
    def pids(self) -> list[int]: ...
    def kill(self, address: str) -> None: ...
    def end(self, address: str) -> None: ...
    def revive(self) -> None: ...
    def close(self) -> None: ...


class QuorateBrokers:
    """Three nodes and three brokers with the settings that are shipped."""

    def __init__(
        self, folder: Path, name: str = "Quorate", channel: str = "direct", *, is_secure: bool = False
    ) -> None:
        """Start them in an empty folder; `is_secure`: with TLS ports besides."""
        self.name = name
        nodes = QuorateNodes(settings={}, folder=folder)
        self._cluster = BrokerCluster(
            brokers=BROKERS,
            settings={"broker": {"channel": channel}},
            session_timeout_ms=SESSION_TIMEOUT_MS,
            folder=folder,
            quorum=nodes,
        )
        #: of the TLS ports
        self.secure_addresses: list[str] = []
        if is_secure:
            authority = Authority(folder / AUTHORITY)
            for broker in self._cluster.brokers.values():
                holder, port = hold_port()
                broker.holders.append(holder)
                broker.settings["listen"] = {"listeners": [f"SSL://127.0.0.1:{port}"]}
                broker.settings["tls"] = authority.settings("brokers")
                self.secure_addresses.append(f"127.0.0.1:{port}")
        try:
            with self._cluster.shown():
                self._cluster.start()
        except BaseException:
            self._cluster.close()
            raise

    @property
    def addresses(self) -> list[str]:
        """host:port of every broker."""
        return [self._cluster.address(each) for each in self._cluster.brokers]

    @property
    def broker_ids(self) -> list[int]:
        """Their ids, in the order of the addresses."""
        return list(self._cluster.brokers)

    @property
    def metadata_hosts(self) -> str:
        """Where their metadata is."""
        return self._cluster.nodes.hosts

    @property
    def pids(self) -> list[int]:
        """Process ids of the running brokers."""
        return [self._cluster.pid(each) for each in self._cluster.brokers if self._cluster.running(each)]

    def kill(self, address: str) -> None:
        """End a broker with SIGKILL."""
        self._cluster.kill(
            *(each for each in self._cluster.brokers if self._cluster.address(each) == address)
        )

    def end(self, address: str) -> None:
        """End a broker with SIGTERM, and wait until it has gone."""
        self._cluster.stop(
            *(each for each in self._cluster.brokers if self._cluster.address(each) == address)
        )

    def metric(self, name: str, label: str = "") -> float:
        """The sum of a metric over all brokers, of the samples that have a label."""
        return sum(self._cluster.metric(each, name, label) for each in self._cluster.awake())

    def pid(self, broker_id: int) -> int:
        """Process id of a broker."""
        return self._cluster.pid(broker_id)

    @property
    def node_pids(self) -> list[int]:
        """Process ids of the nodes."""
        return [self._cluster.nodes.pid(each) for each in self._cluster.nodes.node_ids]

    @property
    def changelog(self) -> Path:
        """Folder of the change log of the first node."""
        return self._cluster.nodes.nodes[1].data_dir / "changelog"

    def take_snapshot(self) -> None:
        """Have the first node write a snapshot."""
        self._cluster.nodes.take_snapshot(1)

    def longest_turn_s(self, broker_id: int) -> float:
        """The longest turn of a broker's loop in the last minute or two."""
        return self._cluster.metric(broker_id, "quorate_broker_longest_turn_seconds")

    def revive(self) -> None:
        """Start what was killed, and wait until it serves."""
        for each in self._cluster.brokers:
            if not self._cluster.running(each):
                self._cluster.start_broker(each)
        self._cluster.wait_ready(deadline_s=START_DEADLINE_S)

    def close(self) -> None:
        """End everything."""
        self._cluster.close()


class KafkaBrokers:
    """Three Kafka 3.9.1 brokers on three ZooKeeper servers."""

    name = "Kafka 3.9.1"

    def __init__(self, folder: Path, *, is_secure: bool = False) -> None:
        """Start them in an empty folder; `is_secure`: with TLS ports besides.

        Raises:
            KafkaJarsError: Java or the jars cannot be had.
        """
        java = shutil.which("java")
        if java is None:
            raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
        self._folder = folder
        self._command = [java, *KAFKA_HEAP, NO_LOG, "-cp", kafka_class_path(folder), "kafka.Kafka"]
        self._ports = free_ports(BROKERS)
        self._secure_ports: list[int] = []
        self._secure_settings: dict[str, object] = {}
        if is_secure:
            self._secure_ports = free_ports(BROKERS)
            self._secure_settings = _of_kafka(Authority(folder / AUTHORITY))
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._zookeeper = ZooKeeper(3, config=ZOOKEEPER_SETTINGS, data_dir=folder)
        try:
            self._zookeeper.start()
            self.revive()
        except BaseException:
            self.close()
            raise

    @property
    def addresses(self) -> list[str]:
        """host:port of every broker."""
        return [f"127.0.0.1:{port}" for port in self._ports]

    @property
    def secure_addresses(self) -> list[str]:
        """host:port of every broker's TLS port."""
        return [f"127.0.0.1:{port}" for port in self._secure_ports]

    @property
    def broker_ids(self) -> list[int]:
        """Their ids, in the order of the addresses."""
        return list(range(BROKERS))

    @property
    def metadata_hosts(self) -> str:
        """Where their metadata is."""
        return self._zookeeper.hosts

    @property
    def pids(self) -> list[int]:
        """Process ids of the running brokers."""
        return [process.pid for process in self._processes.values()]

    def _start(self, number: int) -> None:
        listeners = [f"PLAINTEXT://127.0.0.1:{self._ports[number]}"]
        listeners += [f"SSL://127.0.0.1:{port}" for port in self._secure_ports[number : number + 1]]
        settings: dict[str, object] = {
            "broker.id": number,
            "listeners": ",".join(listeners),
            "log.dirs": self._folder / f"kafka-{number}",
            "zookeeper.connect": self._zookeeper.hosts,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
            **self._secure_settings,
        }
        path = self._folder / f"kafka-{number}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        with (self._folder / f"kafka-{number}.log").open("ab") as output:
            self._processes[number] = subprocess.Popen(
                [*self._command, str(path)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )

    def kill(self, address: str) -> None:
        """End a broker with SIGKILL."""
        process = self._processes.pop(self.addresses.index(address))
        process.send_signal(signal.SIGKILL)
        process.wait(STOP_DEADLINE_S)

    def end(self, address: str) -> None:
        """End a broker with SIGTERM, and wait until it has gone."""
        process = self._processes.pop(self.addresses.index(address))
        process.send_signal(signal.SIGTERM)
        process.wait(START_DEADLINE_S)

    def revive(self) -> None:
        """Start what does not run, and wait until all listen."""
        for number in range(BROKERS):
            if number not in self._processes:
                self._start(number)

        def all_listen() -> bool:
            for number, process in self._processes.items():
                said = tail(self._folder / f"kafka-{number}.log")
                if process.poll() is not None:
                    raise KafkaJarsError(f"Kafka {number} ended with {process.returncode}: {said}")
                socket.create_connection(("127.0.0.1", self._ports[number]), 1.0).close()
            return True

        eventually(all_listen, START_DEADLINE_S, "all Kafka brokers listen")

    def close(self) -> None:
        """End everything."""
        for process in self._processes.values():
            process.kill()
            process.wait(STOP_DEADLINE_S)
        self._zookeeper.close()


def _of_kafka(authority: Authority) -> dict[str, object]:
    certificate, key = authority.issue("brokers")
    both = authority.folder / "brokers.both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
        "ssl.client.auth": "required",
    }


#: {name on the command line: what starts such a system in an empty folder}
SYSTEMS: Final[Mapping[str, Callable[[Path], GroupSystem]]] = {
    "quorate": QuorateBrokers,
    "queue": lambda folder: QuorateBrokers(folder, "Quorate, by queues", "queue"),
    "kafka": KafkaBrokers,
    "quorate-tls": partial(QuorateBrokers, is_secure=True),
    "kafka-tls": partial(KafkaBrokers, is_secure=True),
}


def measured(
    folder: Path,
    kinds: Sequence[str],
    rounds: int,
    measure: Callable[[GroupSystem], Iterable[tuple[str, float]]],
) -> tuple[dict[tuple[str, str], list[float]], list[str]]:
    """Start each kind of system anew for each round, one after the other, and measure it.

    Args:
        folder: gets a folder for each.
        kinds: names in SYSTEMS.
        rounds: how often.
        measure: yields (name of a row, value).

    Returns:
        {(name of the row, name of the system): one value per round}, and the systems in their order.
    """
    samples: dict[tuple[str, str], list[float]] = {}
    names: dict[str, None] = {}
    for turn in range(rounds):
        for kind in kinds:
            place = folder / f"{kind}-{turn}"
            place.mkdir()
            system = SYSTEMS[kind](place)
            try:
                found = measure(system)
            finally:
                system.close()
            names[system.name] = None
            for name, value in found:
                samples.setdefault((name, system.name), []).append(value)
    return samples, list(names)
