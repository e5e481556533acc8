"""A cluster of real processes on loopback: nodes of the quorum, and brokers that tests kill and pause.

`BrokerCluster` starts `quorate serve` (tests/support/nodes.py) and `quorate broker`, each in a folder of its
own. Who leads is read from the quorum, as the controller wrote it; what a broker believes is asked at its
admin port. Counters of a broker's former lives are kept, so that a run can say how often something happened.
Every wait is a condition with a deadline; every process is ended by its own process id.
Source: docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException

from tests.support.nodes import (
    LIVE,
    READY_DEADLINE_S,
    STOP_DEADLINE_S,
    NodeError,
    QuorateNodes,
    Settings,
    eventually,
    hold_port,
    server_environment,
    tail,
    toml,
)
from tests.support.prepared import Server, start_server

HTTP_TIMEOUT_S = 2.0
#: A broker loads its modules for 2 s of a core; on a busy machine three of them take half a minute.
START_DEADLINE_S = 90.0
#: Sessions of one second, for tests that wait until one ends.
SHORT_SESSIONS: Settings = {
    "limits": {"tick_ms": 200, "session_timeout_min_ms": 1000, "session_timeout_max_ms": 20000}
}
SHORT_SESSION_MS = 1000
COUNTERS = (
    "quorate_broker_truncations_total",
    "quorate_broker_isr_shrinks_total",
    "quorate_broker_isr_expands_total",
)


@dataclass
class BrokerProcess:
    """One broker: its ports stay reserved and its files stay in place while it is down."""

    broker_id: int
    folder: Path
    client_port: int
    broker_port: int
    admin_port: int
    #: sections of its broker.toml over those of the cluster; a restart reads them again
    settings: dict[str, dict[str, object]]
    holders: list[socket.socket] = field(repr=False)
    process: Server | None = None
    paused: bool = False

    @property
    def config_path(self) -> Path:
        """The broker's broker.toml."""
        return self.folder / "broker.toml"

    @property
    def data_dir(self) -> Path:
        """The broker's data directory, which the broker itself makes."""
        return self.folder / "data"

    @property
    def output_path(self) -> Path:
        """What the process wrote, over all its lives."""
        return self.folder / "output.log"


class BrokerCluster:
    """Nodes and brokers as processes."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        nodes: int = 1,
        settings: Settings | None = None,
        session_timeout_ms: int = 6000,
        folder: Path | None = None,
        quorum: QuorateNodes | None = None,
    ) -> None:
        """Choose ports and write the configuration; start() runs the processes.

        Args:
            brokers: how many brokers, numbered from 1.
            nodes: how many nodes of the quorum.
            settings: sections of every broker.toml to add or override.
            session_timeout_ms: of the brokers.
            folder: where all files are kept; a temporary folder, removed by close(), when absent.
            quorum: its nodes, when they are not the usual ones; start() starts them.
        """
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="quorate-brokers-")) if folder is None else folder
        self.nodes = quorum or QuorateNodes(nodes=nodes, settings=SHORT_SESSIONS, folder=self.folder)
        self.secret = self.nodes.secret
        self.secret_path = self.nodes.nodes[1].secret_path
        self._settings: dict[str, dict[str, object]] = {"broker": {"session_timeout_ms": session_timeout_ms}}
        for section, values in (settings or {}).items():
            self._settings.setdefault(section, {}).update(values)
        self.brokers: dict[int, BrokerProcess] = {}
        self._zookeeper: KazooClient | None = None
        #: {metric: its value in lives that are over}
        self._counted: Counter[str] = Counter()
        for broker_id in range(1, brokers + 1):
            self.add_broker(broker_id)

    def add_broker(self, broker_id: int) -> BrokerProcess:
        """Choose ports for one more broker; start_broker() runs it."""
        (client, client_port), (peer, broker_port), (admin, admin_port) = (hold_port() for _ in range(3))
        folder = self.folder / f"broker-{broker_id}"
        folder.mkdir(parents=True, exist_ok=True)
        broker = BrokerProcess(
            broker_id, folder, client_port, broker_port, admin_port, {}, [client, peer, admin]
        )
        self.brokers[broker_id] = broker
        return broker

    def remove_broker(self, broker_id: int) -> None:
        """Forget a broker that does not run, and give its ports back."""
        assert not self.running(broker_id)
        for holder in self.brokers.pop(broker_id).holders:
            holder.close()

    def config(self, broker: BrokerProcess) -> dict[str, dict[str, object]]:
        """Sections of one broker's broker.toml."""
        sections: dict[str, dict[str, object]] = {
            "broker": {"id": broker.broker_id, "data_dir": str(broker.data_dir)},
            "listen": {
                "client": f"127.0.0.1:{broker.client_port}",
                "broker": f"127.0.0.1:{broker.broker_port}",
                "admin": f"127.0.0.1:{broker.admin_port}",
            },
            "quorum": {"hosts": self.nodes.hosts.split(",")},
            "security": {"peer_secret_file": str(self.secret_path)},
        }
        for layer in (self._settings, broker.settings):
            for section, values in layer.items():
                sections.setdefault(section, {}).update(values)
        return sections

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the nodes, then all brokers, and wait until they are ready."""
        self.nodes.start()
        LIVE.append(self)
        for broker_id in self.brokers:
            self.start_broker(broker_id)
        self.wait_ready()

    def command(self, broker: BrokerProcess) -> list[str]:
        """Write a broker's configuration; return the command that runs it."""
        broker.config_path.write_text(toml(self.config(broker)))
        return [sys.executable, "-P", "-m", "quorum", "broker", "--config", str(broker.config_path)]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the brokers' processes."""
        return server_environment()

    def start_broker(self, broker_id: int) -> None:
        """Start one broker without waiting."""
        broker = self.brokers[broker_id]
        assert not self.running(broker_id), f"broker {broker_id} runs already"
        broker.paused = False
        with broker.output_path.open("ab") as output:
            broker.process = start_server(
                self.command(broker),
                output=output.fileno(),
                folder=broker.folder,
                environment=self.environment,
                number=broker_id,
            )

    def run_to_end(self, broker_id: int, deadline_s: float = 20.0) -> tuple[int, str]:
        """Run a broker that is expected to refuse to start; return its exit code and output."""
        broker = self.brokers[broker_id]
        try:
            done = subprocess.run(
                self.command(broker),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=broker.folder,
                env=self.environment,
                timeout=deadline_s,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            said = (error.output or b"").decode("utf-8", "replace")
            raise NodeError(f"broker {broker_id} still ran after {deadline_s} s:\n{said}") from None
        return done.returncode, done.stdout.decode("utf-8", "replace")

    def running(self, broker_id: int) -> bool:
        """Whether the broker's process exists."""
        process = self.brokers[broker_id].process
        return process is not None and process.poll() is None

    def kill(self, *broker_ids: int) -> None:
        """End brokers with SIGKILL, at the same time, and wait until they are gone."""
        self._keep_counts(broker_ids)
        for broker_id in broker_ids:
            if self.running(broker_id):
                os.kill(self.pid(broker_id), signal.SIGKILL)
        for broker_id in broker_ids:
            self._reap(broker_id)

    def stop(self, *broker_ids: int) -> None:
        """End brokers with SIGTERM and wait; an error if that takes too long."""
        self._keep_counts(broker_ids)
        for broker_id in broker_ids:
            if self.running(broker_id):
                os.kill(self.pid(broker_id), signal.SIGTERM)
        for broker_id in broker_ids:
            self._reap(broker_id)

    def pause(self, broker_id: int) -> None:
        """Freeze a broker (SIGSTOP)."""
        self.brokers[broker_id].paused = True
        os.kill(self.pid(broker_id), signal.SIGSTOP)

    def resume(self, broker_id: int) -> None:
        """Let a frozen broker run on (SIGCONT)."""
        os.kill(self.pid(broker_id), signal.SIGCONT)
        self.brokers[broker_id].paused = False

    def pid(self, broker_id: int) -> int:
        """Process id of a running broker."""
        process = self.brokers[broker_id].process
        assert process is not None, f"broker {broker_id} does not run"
        return process.pid

    def empty(self, broker_id: int) -> None:
        """Remove all data of a broker that does not run."""
        assert not self.running(broker_id)
        shutil.rmtree(self.brokers[broker_id].data_dir)

    def _reap(self, broker_id: int) -> None:
        broker = self.brokers[broker_id]
        process, broker.process, broker.paused = broker.process, None, False
        if process is None:
            return
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_DEADLINE_S)
            raise NodeError(f"broker {broker_id} did not end: {tail(broker.output_path)}") from None

    def close(self) -> None:
        """End every process, give the ports back and remove the temporary folder."""
        if self in LIVE:
            LIVE.remove(self)
        if self._zookeeper is not None:
            self._zookeeper.stop()
            self._zookeeper.close()
        for broker in self.brokers.values():
            if broker.process is not None and broker.process.poll() is None:
                broker.process.kill()
                broker.process.wait(STOP_DEADLINE_S)
            for holder in broker.holders:
                holder.close()
        self.nodes.close()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def outputs(self) -> list[tuple[str, str]]:
        """(title, text) of the last output of every broker; the nodes show their own."""
        return [
            (f"output of broker {broker.broker_id} ({broker.output_path})", tail(broker.output_path))
            for broker in self.brokers.values()
        ]

    @contextlib.contextmanager
    def shown(self) -> Iterator[None]:
        """Let a failure inside of a with block carry what the brokers printed."""
        try:
            yield
        except BaseException as error:
            for title, text in self.outputs():
                error.add_note(f"{title}:\n{text}")
            raise

    def __enter__(self) -> Self:
        try:
            with self.shown():
                self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # -- what brokers say ------------------------------------------------------------------------------------

    @property
    def bootstrap(self) -> str:
        """host:port of all brokers' client listeners."""
        return ",".join(self.address(broker_id) for broker_id in self.brokers)

    def address(self, broker_id: int) -> str:
        """host:port of one broker's client listener."""
        return f"127.0.0.1:{self.brokers[broker_id].client_port}"

    def get(self, broker_id: int, path: str) -> tuple[int, bytes]:
        """HTTP GET on a broker's admin port: (status code, body)."""
        port = self.brokers[broker_id].admin_port
        with contextlib.closing(
            http.client.HTTPConnection("127.0.0.1", port, timeout=HTTP_TIMEOUT_S)
        ) as link:
            link.request("GET", path)
            response = link.getresponse()
            return response.status, response.read()

    def status(self, broker_id: int) -> dict[str, Any]:
        """The answer of GET /v1/status."""
        code, body = self.get(broker_id, "/v1/status")
        assert code == 200, f"broker {broker_id}: /v1/status answered {code}: {body[:500]!r}"
        answer = json.loads(body)
        assert isinstance(answer, dict)
        return answer

    def ready(self, broker_id: int) -> bool:
        """Whether /readyz answers 200.

        Raises:
            NodeError: the process ended.
        """
        broker = self.brokers[broker_id]
        if broker.process is not None and broker.process.poll() is not None:
            raise NodeError(
                f"broker {broker_id} ended with {broker.process.returncode}: {tail(broker.output_path)}"
            )
        try:
            return self.get(broker_id, "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, *broker_ids: int, deadline_s: float = START_DEADLINE_S) -> None:
        """Wait until the given brokers (all, when none is given) serve clients."""
        for broker_id in broker_ids or tuple(self.brokers):
            eventually(lambda b=broker_id: self.ready(b), deadline_s, f"broker {broker_id} is ready")  # type: ignore[misc]

    def awake(self) -> list[int]:
        """Brokers that run and are not paused."""
        return [each for each in self.brokers if self.running(each) and not self.brokers[each].paused]

    def metric(self, broker_id: int, name: str, label: str = "") -> float:
        """The sum of a metric's samples on one broker, of those that have a label, as in `le="0.1"`."""
        code, body = self.get(broker_id, "/metrics")
        assert code == 200, f"broker {broker_id}: /metrics answered {code}"
        lines = (
            line.split()
            for line in body.decode().splitlines()
            if line.startswith((name + " ", name + "{")) and label in line
        )
        return sum(float(words[-1]) for words in lines if words[0].split("{")[0] == name)

    def _keep_counts(self, broker_ids: Sequence[int]) -> None:
        for broker_id in broker_ids:
            if broker_id in self.awake():
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for name in COUNTERS:
                        self._counted[name] += int(self.metric(broker_id, name))

    def counts(self) -> dict[str, int]:
        """COUNTERS over all lives of all brokers."""
        now = {name: sum(int(self.metric(each, name)) for each in self.awake()) for name in COUNTERS}
        return {name: value + self._counted[name] for name, value in now.items()}

    # -- what the quorum says --------------------------------------------------------------------------------

    @property
    def zookeeper(self) -> KazooClient:
        """A session of the test with the quorum."""
        if self._zookeeper is None:
            self._zookeeper = KazooClient(hosts=self.nodes.hosts, timeout=10)
            self._zookeeper.start(timeout=READY_DEADLINE_S)
        return self._zookeeper

    def read(self, path: str) -> dict[str, Any] | None:
        """A JSON record of the quorum; None if there is none, or the quorum does not answer."""
        try:
            found, _ = self.zookeeper.retry(self.zookeeper.get, path)
            record = json.loads(found)
        except (KazooException, ValueError):
            return None
        return record if isinstance(record, dict) else None

    def controller_id(self, deadline_s: float = READY_DEADLINE_S) -> int:
        """Wait for a controller, and return its broker."""
        record = eventually(lambda: self.read("/controller"), deadline_s, "there is a controller")
        assert record is not None
        return int(record["brokerid"])

    def wait_controller_known(self) -> int:
        """Wait until all brokers that are awake name the controller to their clients; returns it."""

        def look() -> int:
            found = (self.read("/controller") or {}).get("brokerid", 0)
            told = {self.status(broker_id)["controller_id"] for broker_id in self.awake()}
            assert told == {found}, f"the controller is {found}, the brokers name {told}"
            return int(found)

        return eventually(look, READY_DEADLINE_S, "all brokers know the controller")

    def controller_epoch(self) -> int:
        """The number in /controller_epoch."""
        return int(self.zookeeper.get("/controller_epoch")[0])

    def state(self, topic: str, partition: int) -> dict[str, Any]:
        """The published state of a partition; an empty one if there is none."""
        return self.read(f"/brokers/topics/{topic}/partitions/{partition}/state") or {}

    def leader_of(self, topic: str, partition: int, deadline_s: float = READY_DEADLINE_S) -> int:
        """Wait until a partition has a leader, and return it."""

        def look() -> int:
            return max(int(self.state(topic, partition).get("leader", -1)), 0)

        return eventually(look, deadline_s, f"{topic}-{partition} has a leader")

    def generation(self, broker_id: int) -> int:
        """The czxid of a broker's registration; 0 without one."""
        stat = self.zookeeper.exists(f"/brokers/ids/{broker_id}")
        return int(stat.czxid) if stat is not None else 0

    def wait_in_sync(self, topic: str, deadline_s: float = 60.0) -> None:
        """Wait until every partition of a topic has a leader and all its replicas in the ISR."""
        record = self.read(f"/brokers/topics/{topic}")
        assert record is not None, f"no topic {topic}"

        def behind() -> dict[str, Any]:
            states = {number: self.state(topic, int(number)) for number in record["partitions"]}
            return {
                number: state
                for number, state in states.items()
                if state.get("leader", -1) < 0 or sorted(state["isr"]) != sorted(record["partitions"][number])
            }

        def look() -> bool:
            found = behind()
            assert not found, f"not in sync: {found}"
            return True

        eventually(look, deadline_s, f"all replicas of {topic} are in sync")


@contextlib.contextmanager
def running_brokers(
    brokers: int = 3,
    nodes: int = 1,
    *,
    settings: Mapping[str, Mapping[str, object]] | None = None,
    session_timeout_ms: int = 6000,
) -> Iterator[BrokerCluster]:
    """Run a cluster for a with block; a failure carries what the processes printed."""
    cluster = BrokerCluster(
        brokers=brokers, nodes=nodes, settings=settings, session_timeout_ms=session_timeout_ms
    )
    with cluster, cluster.shown():
        yield cluster
