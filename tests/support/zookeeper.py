"""Real Apache ZooKeeper 3.9.5 servers on loopback: the oracle of tests and the peer of benchmarks.

The servers come from the jars of the installed pyspark wheel and run on the Java found on PATH, with the
settings that Quorate's comparisons need (extended node types and reconfig on, no admin server, every
four-letter word allowed). An ensemble keeps its files in a temporary folder of its own, so that servers can
be killed and started again on their data; everything is gone when the context manager ends. Ports are free
ones, chosen again if somebody takes one between the choice and the bind. All calls block; nothing here knows
asyncio.
Source: ZooKeeper administrator's guide 3.9 (configuration parameters, four-letter words).
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pytest

from tests.support.node_configs import free_ports

START_ATTEMPTS_MAX = 3
READY_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 10.0
POLL_INTERVAL_S = 0.05
#: Small, quick-starting virtual machines: a test starts up to three of them on two cores.
TEST_JVM_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")

_STANDALONE_MAIN = "org.apache.zookeeper.server.ZooKeeperServerMain"
_ENSEMBLE_MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"


class ZooKeeperStartError(RuntimeError):
    """A server did not begin to serve; carries the tail of its output."""


@dataclass
class _Server:
    number: int
    folder: Path
    client_port: int
    peer_port: int
    election_port: int
    process: subprocess.Popen[bytes] | None = field(default=None)

    @property
    def output_path(self) -> Path:
        return self.folder / "output.log"

    @property
    def config_path(self) -> Path:
        return self.folder / "zoo.cfg"


def jars_folder() -> Path:
    """Find the folder of the pyspark wheel that holds ZooKeeper's jars.

    Raises:
        ZooKeeperStartError: pyspark is not installed in this environment.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ZooKeeperStartError(
            "pyspark is not installed: ZooKeeper's jars come with it (pip install pyspark)"
        )
    return Path(spec.origin).parent / "jars"


def four_letter_word(port: int, word: str, timeout_s: float = 5.0) -> str:
    """Ask 127.0.0.1:port a four-letter word and return the whole answer.

    Raises:
        OSError: nobody listens there, or the answer did not come within timeout_s.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        connection.sendall(word.encode("ascii"))
        parts: list[bytes] = []
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts).decode("utf-8", "replace")


class ZooKeeper:
    """One standalone ZooKeeper server, or an ensemble of them, on free loopback ports.

    Servers are counted from 0. `hosts` is stable: a server that is killed and started again keeps its port.
    """

    def __init__(
        self,
        servers: int = 1,
        *,
        tick_ms: int = 2000,
        config: Mapping[str, str | int] | None = None,
        properties: Mapping[str, str] | None = None,
        jvm_options: Sequence[str] = TEST_JVM_OPTIONS,
        fsync: bool = True,
        data_dir: Path | None = None,
    ) -> None:
        """Describe the servers; start() starts them.

        Args:
            servers: 1 for standalone, otherwise the size of the ensemble.
            tick_ms: ZooKeeper's tickTime; sessions last between 2 and 20 ticks unless config says otherwise.
            config: further lines of zoo.cfg, which win over the ones written here.
            properties: further Java system properties, such as
                "zookeeper.DigestAuthenticationProvider.superDigest".
            jvm_options: options of the Java virtual machine; a benchmark passes its own.
            fsync: False sets zookeeper.forceSync=no, for tests that do not kill servers.
            data_dir: where the servers keep their files; a temporary folder, removed by close(), when absent.
        """
        if servers < 1:
            raise ValueError(f"servers: {servers}: at least one server is needed")
        self._count = servers
        self._tick_ms = tick_ms
        self._config = dict(config or {})
        self._properties = dict(properties or {})
        self._jvm_options = tuple(jvm_options)
        self._fsync = fsync
        self._own_folder = data_dir is None
        self._folder = Path(tempfile.mkdtemp(prefix="zookeeper-")) if data_dir is None else data_dir
        self._servers: list[_Server] = []

    @property
    def hosts(self) -> str:
        """Connect string of all servers, "127.0.0.1:p,127.0.0.1:q"."""
        return ",".join(f"127.0.0.1:{server.client_port}" for server in self._servers)

    @property
    def client_ports(self) -> list[int]:
        """Client port of each server, in server order."""
        return [server.client_port for server in self._servers]

    @property
    def pids(self) -> list[int | None]:
        """Process id of each server; None where it does not run."""
        return [
            server.process.pid if server.process is not None and server.process.poll() is None else None
            for server in self._servers
        ]

    def host(self, number: int) -> str:
        """Connect string of one server."""
        return f"127.0.0.1:{self._servers[number].client_port}"

    def start(self) -> None:
        """Start every server and wait until each of them serves clients.

        Raises:
            ZooKeeperStartError: a server did not serve within READY_TIMEOUT_S.
        """
        for attempt in range(START_ATTEMPTS_MAX):
            self._choose_ports()
            for server in self._servers:
                self._launch(server)
            try:
                for server in self._servers:
                    self._wait_until_serving(server)
            except ZooKeeperStartError as error:
                self.stop()
                # A port may have been taken meanwhile, and servers of an ensemble that miss each other's
                # first connections sometimes never find a quorum; both go away with other ports.
                retriable = self._count > 1 or "BindException" in str(error)
                if attempt + 1 == START_ATTEMPTS_MAX or not retriable:
                    raise
                continue
            return

    def start_server(self, number: int, *, wait: bool = True) -> None:
        """Start one stopped or killed server on its old ports and files.

        Args:
            number: which server, from 0.
            wait: whether to return only when it serves clients (an ensemble needs a majority for that).
        """
        server = self._servers[number]
        self._launch(server)
        if wait:
            self._wait_until_serving(server)

    def kill_server(self, number: int) -> None:
        """End one server with SIGKILL and wait until it is gone."""
        self._end(self._servers[number], signal.SIGKILL)

    def stop_server(self, number: int) -> None:
        """End one server with SIGTERM (SIGKILL if that takes too long) and wait until it is gone."""
        self._end(self._servers[number], signal.SIGTERM)

    def signal_server(self, number: int, signal_number: int) -> None:
        """Send a signal such as SIGSTOP or SIGCONT to one running server."""
        process = self._servers[number].process
        if process is None or process.poll() is not None:
            raise ValueError(f"server {number} does not run")
        os.kill(process.pid, signal_number)

    def ask(self, number: int, word: str) -> str:
        """Answer of one server to a four-letter word."""
        return four_letter_word(self._servers[number].client_port, word)

    def mode(self, number: int) -> str:
        """Say what one server is now: "standalone", "leader", "follower", or "" when it serves nobody."""
        try:
            answer = self.ask(number, "srvr")
        except OSError:
            return ""
        for line in answer.splitlines():
            if line.startswith("Mode: "):
                return line.removeprefix("Mode: ").strip()
        return ""

    def leader(self) -> int:
        """Number of the leading (or the only) server.

        Raises:
            LookupError: no server leads now.
        """
        for number in range(self._count):
            if self.mode(number) in ("leader", "standalone"):
                return number
        raise LookupError("no server leads")

    def stop(self) -> None:
        """End every server; files stay until close()."""
        for server in self._servers:
            if server.process is not None and server.process.poll() is None:
                # A stopped (SIGSTOP) process takes no SIGTERM before it continues.
                os.kill(server.process.pid, signal.SIGCONT)
                server.process.terminate()
        for server in self._servers:
            self._end(server, signal.SIGTERM)

    def close(self) -> None:
        """End every server and remove their temporary folder."""
        self.stop()
        if self._own_folder:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def _choose_ports(self) -> None:
        ports = free_ports(3 * self._count)
        self._servers = []
        for number in range(self._count):
            folder = self._folder / f"server-{number + 1}"
            (folder / "data").mkdir(parents=True, exist_ok=True)
            client_port, peer_port, election_port = ports[3 * number : 3 * number + 3]
            self._servers.append(_Server(number, folder, client_port, peer_port, election_port))
        for server in self._servers:
            self._write_config(server)

    def _write_config(self, server: _Server) -> None:
        settings: dict[str, str | int] = {
            "tickTime": self._tick_ms,
            "initLimit": 20,
            "syncLimit": 10,
            "dataDir": str(server.folder / "data"),
            "clientPort": server.client_port,
            "clientPortAddress": "127.0.0.1",
            "maxClientCnxns": 0,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            "extendedTypesEnabled": "true",
            "reconfigEnabled": "true",
        }
        if self._count > 1:
            (server.folder / "data" / "myid").write_text(f"{server.number + 1}\n")
            for other in self._servers:
                settings[f"server.{other.number + 1}"] = (
                    f"127.0.0.1:{other.peer_port}:{other.election_port}:participant"
                )
        settings.update(self._config)
        server.config_path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))

    def _launch(self, server: _Server) -> None:
        java = shutil.which("java")
        if java is None:
            raise ZooKeeperStartError("no java on PATH: install Java 17 or later")
        properties = {
            "zookeeper.extendedTypesEnabled": "true",
            "zookeeper.forceSync": "yes" if self._fsync else "no",
            "java.net.preferIPv4Stack": "true",
            "reconfigEnabled": "true",
            **self._properties,
        }
        command = [
            java,
            *self._jvm_options,
            *(f"-D{name}={value}" for name, value in properties.items()),
            "-cp",
            f"{jars_folder()}/*",
            _STANDALONE_MAIN if self._count == 1 else _ENSEMBLE_MAIN,
            str(server.config_path),
        ]
        with server.output_path.open("ab") as output:
            server.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=server.folder
            )

    def _wait_until_serving(self, server: _Server) -> None:
        process = server.process
        assert process is not None
        deadline = time.monotonic() + READY_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.mode(server.number):
                return
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = process.wait(POLL_INTERVAL_S)
                raise ZooKeeperStartError(
                    f"server {server.number} ended with {code}: {_tail(server.output_path)}"
                )
        raise ZooKeeperStartError(
            f"server {server.number} did not serve within {READY_TIMEOUT_S} s: {_tail(server.output_path)}"
        )

    def _end(self, server: _Server, signal_number: int) -> None:
        process = server.process
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(signal_number)
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(STOP_TIMEOUT_S)
        server.process = None


def _tail(path: Path, bytes_max: int = 4000) -> str:
    try:
        return path.read_bytes()[-bytes_max:].decode("utf-8", "replace")
    except OSError as error:
        return f"(no output: {error})"


@pytest.fixture(scope="session")
def zookeeper_server() -> Iterator[ZooKeeper]:
    """A standalone ZooKeeper with ticks of 500 ms (sessions of 1 s to 10 s), shared by the whole run."""
    with ZooKeeper(tick_ms=500, fsync=False) as server:
        yield server


@pytest.fixture(scope="session")
def zookeeper_ensemble() -> Iterator[ZooKeeper]:
    """Three ZooKeeper servers with ticks of 500 ms, shared by the whole run: leave all of them running."""
    with ZooKeeper(3, tick_ms=500) as servers:
        yield servers
