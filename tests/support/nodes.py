"""Ensembles of real server processes on loopback, for tests that kill, pause and restart them.

`QuorateNodes` runs `python -m quorum serve` once per node in a folder of its own; `ZooKeeperNodes` gives
real ZooKeeper servers the same shape, so that a test can be proven right against the system whose clients it
speaks for. `start_system` picks one by the environment variable TESTED_SYSTEM ("quorate", the default, or
"zookeeper"). Nodes are numbered from 1, as in node.toml. Nothing here knows what the servers store. Every
wait is a condition with a deadline (`eventually`); every process is ended by its own process id, also when a
test fails, and its output is kept in a file that the failure report shows. Source: docs/reference/http.md.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

from tests.support.prepared import Server, start_server
from tests.support.zookeeper import ZooKeeper

REPOSITORY = Path(__file__).resolve().parents[2]
READY_DEADLINE_S = 30.0
STOP_DEADLINE_S = 15.0
POLL_INTERVAL_S = 0.02
HTTP_TIMEOUT_S = 5.0
#: longer than a node's own deadline for the outcome of a change
CHANGE_TIMEOUT_S = 15.0
OUTPUT_TAIL_BYTES = 6000

#: Settings that tests use unless they ask for others: session timeouts of 1 s to 20 s instead of 4 s to 40 s.
QUICK_SESSIONS: dict[str, dict[str, object]] = {
    "limits": {"tick_ms": 500, "session_timeout_min_ms": 1000, "session_timeout_max_ms": 20000}
}

Value = TypeVar("Value")
Settings = Mapping[str, Mapping[str, object]]


class NodeError(RuntimeError):
    """A server process did not do what the test needs; carries the tail of its output."""


def eventually(predicate: Callable[[], Value], deadline_s: float, what: str = "") -> Value:
    """Wait until predicate returns something true, and return that.

    Args:
        predicate: asked again and again; an AssertionError or OSError that it raises counts as "not yet".
        deadline_s: seconds after which the wait fails.
        what: the condition in words, for the failure message.

    Raises:
        AssertionError: the condition did not come true in time; says what was seen last.
    """
    deadline = time.monotonic() + deadline_s
    seen: object = None
    while True:
        try:
            result = predicate()
            if result:
                return result
            seen = result
        except (AssertionError, OSError, http.client.HTTPException) as error:
            seen = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"not within {deadline_s} s: {what or predicate}; last seen: {seen!r}")
        time.sleep(POLL_INTERVAL_S)  # the one pause of the tests: between two looks at a condition


def hold_port(port: int = 0) -> tuple[socket.socket, int]:
    """Reserve a loopback port, by default a free one; bound but not listening.

    A server, which binds with SO_REUSEADDR, gets it. Another holder, which sets it later, does not.

    Raises:
        OSError: it is taken or held.
    """
    holder = socket.socket()
    try:
        holder.bind(("127.0.0.1", port))
    except OSError:
        holder.close()
        raise
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return holder, int(holder.getsockname()[1])


@contextlib.contextmanager
def held_ports(*offsets: int) -> Iterator[int]:
    """Hold free loopback ports, as hold_port does: a first one, and those so far above it.

    Args:
        offsets: with 0, which is the first port itself.
    """
    while True:
        with contextlib.ExitStack() as held:
            holder, first = hold_port()
            held.callback(holder.close)
            try:
                for above in sorted({*offsets} - {0}):
                    held.callback(hold_port(first + above)[0].close)
            except (OSError, OverflowError):
                continue
            yield first
            return


def tail(path: Path, bytes_max: int = OUTPUT_TAIL_BYTES) -> str:
    """Return the end of a text file, or why it cannot be read."""
    try:
        return path.read_bytes()[-bytes_max:].decode("utf-8", "replace")
    except OSError as error:
        return f"(no output: {error})"


def clean_environment(**extra: str) -> dict[str, str]:
    """Environment of a child: no overrides of settings, this checkout first to import from."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("QUORATE_")}
    paths = [str(REPOSITORY), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return environment | extra


def server_environment(**extra: str) -> dict[str, str]:
    """Environment of a node, a broker or a command of ours: no Hypothesis, no authority of the machine.

    kio loads the former; the library of the admin port reads the latter, twice: 0.3 s of a start.
    """
    environment = clean_environment(**{"SSL_CERT_FILE": os.devnull} | extra)
    unseen = str(REPOSITORY / "tests/support/unseen")
    return environment | {"PYTHONPATH": f"{environment['PYTHONPATH']}{os.pathsep}{unseen}"}


def toml(settings: Mapping[str, Mapping[str, object]]) -> str:
    """Write sections of strings, numbers, booleans and flat lists as TOML."""
    lines: list[str] = []
    for section, values in settings.items():
        lines.append(f"[{section}]")
        lines += [f"{name} = {_toml_value(value)}" for name, value in values.items()]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    # JSON's strings, integers, floats and booleans are TOML's as well.
    return json.dumps(value)


class System(Protocol):
    """What a test may do to either system."""

    @property
    def node_ids(self) -> Sequence[int]: ...
    def host(self, node_id: int) -> str: ...
    def hosts_from(self, node_id: int) -> str: ...
    def leader(self, deadline_s: float = READY_DEADLINE_S) -> int: ...
    def running(self, node_id: int) -> bool: ...
    def kill(self, node_id: int) -> None: ...
    def stop(self, node_id: int) -> None: ...
    def pause(self, node_id: int) -> None: ...
    def resume(self, node_id: int) -> None: ...
    def start_node(self, node_id: int) -> None: ...
    def wait_ready(self, *node_ids: int, deadline_s: float = READY_DEADLINE_S) -> None: ...
    def outputs(self) -> list[tuple[str, str]]: ...
    def close(self) -> None: ...


class Printing(Protocol):
    """Processes whose output a failure report shows."""

    def outputs(self) -> list[tuple[str, str]]: ...


#: Running ensembles, so that a failure report can show their output.
LIVE: list[Printing] = []


def output_sections() -> list[tuple[str, str]]:
    """(title, text) of the last output of every running ensemble's nodes."""
    return [section for system in LIVE for section in system.outputs()]


@dataclass
class Node:
    """One Quorate process: its ports stay reserved and its files stay in place while it is down."""

    node_id: int
    folder: Path
    client_port: int
    peer_port: int
    admin_port: int
    holders: list[socket.socket] = field(repr=False)
    process: Server | None = None

    @property
    def config_path(self) -> Path:
        """The node's node.toml."""
        return self.folder / "node.toml"

    @property
    def data_dir(self) -> Path:
        """The node's data directory, which the node itself makes."""
        return self.folder / "data"

    @property
    def secret_path(self) -> Path:
        """The file with the peer secret."""
        return self.folder / "peer.secret"

    @property
    def output_path(self) -> Path:
        """What the process wrote to its standard output and error, over all its lives."""
        return self.folder / "output.log"


class QuorateNodes:
    """A cluster of `quorate serve` processes."""

    def __init__(
        self,
        *,
        nodes: int = 3,
        cluster: str = "test",
        settings: Settings | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        secret: str | None = None,
        arguments: Sequence[str] = ("-m", "quorum", "serve"),
    ) -> None:
        """Choose ports and write the configuration files; start() runs the processes.

        Args:
            nodes: how many nodes, numbered from 1.
            cluster: name of the cluster.
            settings: sections of node.toml to add or override, {section: {key: value}}.
            environment: variables to add to the children's environment.
            folder: where the nodes keep their files; a temporary folder, removed by close(), when absent.
            secret: the peer secret; a random one when absent.
            arguments: what follows the Python interpreter, before `--config`.
        """
        self._own_folder = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="quorate-")) if folder is None else folder
        self._environment = server_environment(**dict(environment or {}))
        self._arguments = tuple(arguments)
        self._formatted: dict[int, bool] = {}
        self._settings = settings if settings is not None else QUICK_SESSIONS
        self._cluster = cluster
        self.secret = secret or secrets.token_hex(32)
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, nodes + 1):
            self._choose_ports(node_id)
        for node in self.nodes.values():
            self._write_files(node)

    def _choose_ports(self, node_id: int) -> Node:
        (client, client_port), (peer, peer_port), (admin, admin_port) = (hold_port() for _ in range(3))
        folder = self.folder / f"node-{node_id}"
        folder.mkdir(parents=True, exist_ok=True)
        holders = [client, peer, admin]
        node = Node(node_id, folder, client_port, peer_port, admin_port, holders=holders)
        self.nodes[node_id] = node
        return node

    def _write_files(self, node: Node) -> None:
        self.write_secret(node, self.secret)
        node.config_path.write_text(toml(self.config(node)))

    def new_node(self, node_id: int) -> Node:
        """Choose ports for one more node, whose [members] names all nodes; start it with --join."""
        node = self._choose_ports(node_id)
        self._write_files(node)
        return node

    def peer_address(self, node_id: int) -> str:
        """host:port of a node's peer listener."""
        return f"127.0.0.1:{self.nodes[node_id].peer_port}"

    def config(self, node: Node) -> dict[str, dict[str, object]]:
        """Sections of one node's node.toml."""
        sections: dict[str, dict[str, object]] = {
            "node": {"id": node.node_id, "cluster": self._cluster, "data_dir": str(node.data_dir)},
            "listen": {
                "client": f"127.0.0.1:{node.client_port}",
                "peer": f"127.0.0.1:{node.peer_port}",
                "admin": f"127.0.0.1:{node.admin_port}",
            },
            "members": {str(other.node_id): f"127.0.0.1:{other.peer_port}" for other in self.nodes.values()},
            "security": {"peer_secret_file": str(node.secret_path)},
        }
        for section, values in self._settings.items():
            sections.setdefault(section, {}).update(values)
        return sections

    @staticmethod
    def write_secret(node: Node, secret: str) -> None:
        """Write a node's peer secret, readable by its owner only."""
        node.secret_path.unlink(missing_ok=True)
        descriptor = os.open(node.secret_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secret + "\n")

    @property
    def node_ids(self) -> Sequence[int]:
        """All node ids, running or not."""
        return list(self.nodes)

    @property
    def hosts(self) -> str:
        """Connect string of all nodes."""
        return self.hosts_from(1)

    def host(self, node_id: int) -> str:
        """Connect string of one node."""
        return f"127.0.0.1:{self.nodes[node_id].client_port}"

    def hosts_from(self, node_id: int) -> str:
        """Connect string of all nodes that begins with the given one."""
        ids = self.node_ids
        first = ids.index(node_id)
        return ",".join(self.host(other) for other in [*ids[first:], *ids[:first]])

    def admin_url(self, node_id: int) -> str:
        """Address of a node's admin port, without a slash at the end."""
        return f"http://127.0.0.1:{self.nodes[node_id].admin_port}"

    def command(self, node_id: int, *options: str) -> list[str]:
        """Command line of one node."""
        config = str(self.nodes[node_id].config_path)
        return [sys.executable, *self._arguments, "--config", config, *options]

    @property
    def environment(self) -> dict[str, str]:
        """Environment of the nodes' processes."""
        return self._environment

    def start(self) -> None:
        """Found the cluster: start every node with --bootstrap and wait until all are ready."""
        LIVE.append(self)
        for node_id in self.node_ids:
            self.start_node(node_id)
        self.wait_ready(*self.node_ids)

    def start_node(self, node_id: int, *options: str) -> None:
        """Start one node without waiting; the first start of its life formats its data directory."""
        node = self.nodes[node_id]
        assert not self.running(node_id), f"node {node_id} runs already"
        if not options and not self._formatted.get(node_id):
            options = ("--bootstrap",)
        self._formatted[node_id] = True
        with node.output_path.open("ab") as output:
            node.process = start_server(
                self.command(node_id, *options),
                output=output.fileno(),
                folder=node.folder,
                environment=self._environment,
                number=node_id,
            )

    def run_to_end(self, node_id: int, *options: str, deadline_s: float = 20.0) -> tuple[int, str]:
        """Run a node that is expected to refuse to start; return its exit code and output.

        Raises:
            NodeError: it was still running at the deadline (it is killed then).
        """
        process = subprocess.Popen(
            self.command(node_id, *options),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.nodes[node_id].folder,
            env=self._environment,
        )
        try:
            output, _ = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            text = output.decode("utf-8", "replace")
            raise NodeError(f"node {node_id} still ran after {deadline_s} s:\n{text}") from None
        return process.returncode, output.decode("utf-8", "replace")

    def running(self, node_id: int) -> bool:
        """Whether the node's process exists."""
        process = self.nodes[node_id].process
        return process is not None and process.poll() is None

    def pid(self, node_id: int) -> int:
        """Process id of a running node."""
        process = self.nodes[node_id].process
        assert process is not None, f"node {node_id} does not run"
        return process.pid

    def kill(self, node_id: int) -> None:
        """End a node with SIGKILL and wait until it is gone."""
        self._end(node_id, signal.SIGKILL)

    def stop(self, node_id: int) -> None:
        """End a node with SIGTERM and wait; SIGKILL, and an error, if that takes too long."""
        self._end(node_id, signal.SIGTERM)

    def restart(self, node_id: int) -> None:
        """Kill a node if it runs, start it again and wait until it is ready."""
        self.kill(node_id)
        self.start_node(node_id)
        self.wait_ready(node_id)

    def pause(self, node_id: int) -> None:
        """Freeze a node (SIGSTOP)."""
        os.kill(self.pid(node_id), signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Let a frozen node run on (SIGCONT)."""
        os.kill(self.pid(node_id), signal.SIGCONT)

    def _end(self, node_id: int, signal_number: int) -> None:
        node = self.nodes[node_id]
        process = node.process
        if process is None:
            return
        try:
            if process.poll() is None:
                process.send_signal(signal_number)
                process.send_signal(signal.SIGCONT)
                process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_DEADLINE_S)
            raise NodeError(
                f"node {node_id} did not end within {STOP_DEADLINE_S} s of SIGTERM: {tail(node.output_path)}"
            ) from None
        finally:
            node.process = None

    def get(self, node_id: int, path: str) -> tuple[int, bytes]:
        """HTTP GET on a node's admin port: (status code, body)."""
        return self.request(node_id, "GET", path)

    def request(
        self,
        node_id: int,
        method: str,
        path: str,
        body: bytes | None = None,
        timeout_s: float = HTTP_TIMEOUT_S,
    ) -> tuple[int, bytes]:
        """One HTTP request on a node's admin port: (status code, body of the answer)."""
        connection = http.client.HTTPConnection(
            "127.0.0.1", self.nodes[node_id].admin_port, timeout=timeout_s
        )
        with contextlib.closing(connection):
            headers = {} if method == "GET" else {"Content-Type": "application/json"}
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, response.read()

    def change(
        self, node_id: int, method: str, path: str, fields: Mapping[str, object] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Ask a node for a change of members or leadership: (status code, its JSON answer)."""
        body = None if fields is None else json.dumps(fields).encode()
        code, content = self.request(node_id, method, path, body, CHANGE_TIMEOUT_S)
        answer = json.loads(content)
        assert isinstance(answer, dict)
        return code, answer

    def take_snapshot(self, node_id: int) -> dict[str, Any]:
        """Have a node take a snapshot; returns the listed one once it is durable."""
        code, answer = self.change(node_id, "POST", "/v1/snapshots", {})
        assert code == 202, answer

        def newest() -> dict[str, Any]:
            listed = json.loads(self.get(node_id, "/v1/snapshots")[1])
            assert not listed["problem"], listed
            found = [each for each in listed["items"] if each["log_index"] >= answer["log_index"]]
            return found[-1] if found else {}

        return eventually(newest, READY_DEADLINE_S, f"node {node_id} has a snapshot")

    def status(self, node_id: int) -> dict[str, Any]:
        """The answer of GET /v1/status.

        Raises:
            OSError: the node does not listen.
            NodeError: the answer is not 200.
        """
        code, body = self.get(node_id, "/v1/status")
        if code != 200:
            raise NodeError(f"node {node_id}: /v1/status answered {code}: {body[:500]!r}")
        answer = json.loads(body)
        assert isinstance(answer, dict)
        return answer

    def ready(self, node_id: int) -> bool:
        """Whether /readyz answers 200.

        Raises:
            NodeError: the process ended.
        """
        node = self.nodes[node_id]
        if node.process is not None and node.process.poll() is not None:
            raise NodeError(f"node {node_id} ended with {node.process.returncode}: {tail(node.output_path)}")
        try:
            return self.get(node_id, "/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_ready(self, *node_ids: int, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until the given nodes (all, when none is given) are ready."""
        for node_id in node_ids or self.node_ids:
            eventually(lambda n=node_id: self.ready(n), deadline_s, f"node {node_id} is ready")  # type: ignore[misc]

    def leader(self, deadline_s: float = READY_DEADLINE_S) -> int:
        """Wait for a running node that leads in the highest term anybody reports, and return its id."""
        return eventually(self.leader_now, deadline_s, "a node leads")

    def leader_now(self) -> int:
        """The running node that leads in the highest term anybody reports, or 0."""
        leaders: list[tuple[int, int]] = []
        for node_id in self.node_ids:
            if self.running(node_id):
                with contextlib.suppress(OSError, http.client.HTTPException):
                    status = self.status(node_id)
                    if status["role"] == "leader" and status["leader_id"] == node_id:
                        leaders.append((int(status["term"]), node_id))
        return max(leaders)[1] if leaders else 0

    def digests(self, deadline_s: float = READY_DEADLINE_S) -> dict[int, tuple[int, str]]:
        """Wait until all running nodes applied the same index, and return {node id: (index, state digest)}.

        The caller compares the digests: equal index with unequal digests is what it looks for.
        """

        def read() -> dict[int, tuple[int, str]]:
            found: dict[int, tuple[int, str]] = {}
            for node_id in self.node_ids:
                if self.running(node_id):
                    status = self.status(node_id)
                    found[node_id] = (int(status["applied_index"]), str(status["state_digest"]))
            return found if len({index for index, _ in found.values()}) == 1 else {}

        return eventually(read, deadline_s, "all running nodes applied the same index")

    def one_digest(self, deadline_s: float = READY_DEADLINE_S) -> str:
        """State digest that all running nodes share.

        Raises:
            AssertionError: they applied the same index and differ.
        """
        found = self.digests(deadline_s)
        assert len({digest for _, digest in found.values()}) == 1, f"state digests differ: {found}"
        return next(iter(found.values()))[1]

    def outputs(self) -> list[tuple[str, str]]:
        """(title, text) of the last output of every node."""
        return [
            (f"output of node {node.node_id} ({node.output_path})", tail(node.output_path))
            for node in self.nodes.values()
        ]

    def close(self) -> None:
        """End every process, give the ports back and remove the temporary folder."""
        if self in LIVE:
            LIVE.remove(self)
        for node in self.nodes.values():
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait(STOP_DEADLINE_S)
            node.process = None
            for holder in node.holders:
                holder.close()
        if self._own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException as error:
            for title, text in self.outputs():
                error.add_note(f"{title}:\n{text}")
            self.close()
            raise
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class ZooKeeperNodes:
    """Real ZooKeeper servers in the shape of QuorateNodes."""

    def __init__(self, nodes: int = 3) -> None:
        """Describe the servers; start() runs them with ticks of 500 ms and fsync on."""
        self._servers = ZooKeeper(nodes, tick_ms=500, config={"snapCount": 1000000})
        self._count = nodes
        self._stopped: list[int] = []

    def start(self) -> None:
        """Start every server and wait until all serve."""
        LIVE.append(self)
        self._servers.start()

    @property
    def node_ids(self) -> Sequence[int]:
        """All server numbers, from 1."""
        return list(range(1, self._count + 1))

    @property
    def hosts(self) -> str:
        """Connect string of all servers."""
        return self._servers.hosts

    def host(self, node_id: int) -> str:
        """Connect string of one server."""
        return self._servers.host(node_id - 1)

    def hosts_from(self, node_id: int) -> str:
        """Connect string of all servers that begins with the given one."""
        parts = self._servers.hosts.split(",")
        return ",".join([*parts[node_id - 1 :], *parts[: node_id - 1]])

    def leader(self, deadline_s: float = READY_DEADLINE_S) -> int:
        """Wait for the leading server and return its number."""

        def look() -> int:
            for node_id in self.node_ids:
                if self.running(node_id) and self._servers.mode(node_id - 1) in ("leader", "standalone"):
                    return node_id
            return 0

        return eventually(look, deadline_s, "a server leads")

    def running(self, node_id: int) -> bool:
        """Whether the server's process exists."""
        return self._servers.pids[node_id - 1] is not None

    def kill(self, node_id: int) -> None:
        """End a server with SIGKILL and wait until it is gone."""
        self._servers.kill_server(node_id - 1)

    def stop(self, node_id: int) -> None:
        """End a server with SIGTERM and wait until it is gone."""
        self._servers.stop_server(node_id - 1)

    def pause(self, node_id: int) -> None:
        """Freeze a server (SIGSTOP)."""
        self._servers.signal_server(node_id - 1, signal.SIGSTOP)

    def resume(self, node_id: int) -> None:
        """Let a frozen server run on (SIGCONT)."""
        self._servers.signal_server(node_id - 1, signal.SIGCONT)

    def start_node(self, node_id: int) -> None:
        """Start one stopped server without waiting until it serves."""
        self._servers.start_server(node_id - 1, wait=False)

    def wait_ready(self, *node_ids: int, deadline_s: float = READY_DEADLINE_S) -> None:
        """Wait until the given servers (all, when none is given) serve clients."""
        for node_id in node_ids or self.node_ids:
            eventually(
                lambda n=node_id: self._servers.mode(n - 1),  # type: ignore[misc]
                deadline_s,
                f"server {node_id} serves",
            )

    def outputs(self) -> list[tuple[str, str]]:
        """ZooKeeper's servers write no output that helps a failed test."""
        return []

    def close(self) -> None:
        """End every server and remove their files."""
        if self in LIVE:
            LIVE.remove(self)
        self._servers.close()


def tested_system() -> str:
    """Which system the tests run against: "quorate" or "zookeeper"."""
    name = os.environ.get("TESTED_SYSTEM", "quorate")
    if name not in ("quorate", "zookeeper"):
        raise ValueError(f"TESTED_SYSTEM: {name!r}: use quorate or zookeeper")
    return name


@contextlib.contextmanager
def start_system(settings: Settings | None = None) -> Iterator[System]:
    """Run three nodes of the tested system with quick session timeouts; yields them ready."""
    system: QuorateNodes | ZooKeeperNodes
    system = ZooKeeperNodes() if tested_system() == "zookeeper" else QuorateNodes(settings=settings)
    try:
        system.start()
        yield system
    except BaseException as error:
        for title, text in system.outputs():
            error.add_note(f"{title}:\n{text}")
        raise
    finally:
        system.close()
