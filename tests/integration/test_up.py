"""`quorate up` and `quorate down` with real processes: start, refuse, restart, resume, stop."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.certificates import Authority
from tests.support.nodes import eventually, held_ports, server_environment, tail
from tests.support.wire_load import CREATE, GET_DATA, Connection, create_body, decode_get, read_body

DEADLINE_S = 30.0
NODES = 3
#: what the supervisor says of the whole; of one node it may say "is not ready: "
READY = "ready: 127.0.0.1:"
#: makes the terminal on its standard input its own, and becomes the program that its arguments name; who runs
#: the tests in the background may have signals ignored (nohup), which a terminal does not
ON_TERMINAL = (
    "import os, signal, sys; "
    "[signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP, signal.SIGINT)]; "
    "os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
)


@dataclass
class Ports:
    """First ports of three nodes each, held until the nodes bind them. No brokers."""

    client: int
    peer: int
    admin: int

    @property
    def options(self) -> list[str]:
        first = [f"--{key}-port={getattr(self, key)}" for key in ("client", "peer", "admin")]
        return [*first, "--brokers=0", "--console-port=0"]


@pytest.fixture
def ports() -> Iterator[Ports]:
    """Three runs of free ports; bound here without listening, so that only a server of ours can take them."""
    with contextlib.ExitStack() as held:
        yield Ports(*(held.enter_context(held_ports(*range(NODES))) for _ in range(3)))


@pytest.fixture
def broker_port() -> Iterator[int]:
    """The first port of two brokers; it and those above it that they use are held."""
    with held_ports(0, 1, 100, 101, 200, 201) as first:
        yield first


@dataclass
class Up:
    """A running `quorate up` in the foreground."""

    process: subprocess.Popen[bytes]
    output: Path

    def text(self) -> str:
        return self.output.read_text()

    def wait_for(self, words: str) -> None:
        try:
            eventually(lambda: words in self.text(), DEADLINE_S, f"{words!r} in the output")
        except AssertionError as error:
            logs = (self.output, *sorted(self.output.parent.glob("data/node-*/node.log")))
            told = "\n".join(f"--- {log}\n{tail(log)}" for log in logs)
            raise AssertionError(f"{error}\n{told}") from None

    def nodes(self, kind: str = "node") -> dict[int, psutil.Process]:
        """{id: process} of the nodes, or brokers, that run now."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            match = re.search(rf"{kind}-(\d)/{kind}\.toml", " ".join(child.cmdline()))
            if match:
                found[int(match[1])] = child
        return found

    def stop(self, signal_number: int = signal.SIGTERM) -> int:
        self.process.send_signal(signal_number)
        return self.process.wait(DEADLINE_S)


def lives(process: psutil.Process) -> bool:
    """True for a process that runs; one that only waits for its parent to read its exit code does not."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "quorum", *words]


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words),
        capture_output=True,
        text=True,
        check=False,
        env=server_environment(),
        timeout=DEADLINE_S,
    )


def status(ports: Ports, node_id: int = 1) -> dict[str, Any]:
    done = run("status", "--json", "--admin", f"http://127.0.0.1:{ports.admin + node_id - 1}")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def try_offered(text: str) -> list[str]:
    """Run each command that a start offers, as it is printed; return what they are about."""
    _, said, offered = text.partition("three things to try, in another terminal:\n")
    assert said, text
    lines = [line[2:] for line in offered.splitlines() if line.startswith("  ")]
    assert len(lines) == 3
    for line in lines:
        done = subprocess.run(
            line,
            shell=True,
            capture_output=True,
            text=True,
            check=False,
            env=server_environment(),
            timeout=60,
        )
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout
    return [line.partition(" -m quorum ")[2] for line in lines]


def writes(host: str, path: str, value: bytes) -> None:
    """Create a znode through one host; OSError while nobody serves there."""
    with Connection(host) as connection:
        assert connection.call(CREATE, create_body(path, value))[0] == 0


def reads(host: str, path: str) -> bytes:
    """Return a value as one host has it after a sync; OSError while nobody serves there."""
    with Connection(host) as connection:
        connection.sync()
        error, _, body = connection.call(GET_DATA, read_body(path))
        assert error == 0
        return decode_get(body)[0]


@contextlib.contextmanager
def up(data_dir: Path, *options: str, environment: dict[str, str] | None = None) -> Iterator[Up]:
    """Start `quorate up` in the foreground; whatever it leaves behind is killed at the end."""
    output = data_dir.parent / "up.out"
    with output.open("wb") as stream:
        process = subprocess.Popen(
            command("up", "--data-dir", str(data_dir), *options),
            stdout=stream,
            stderr=stream,
            env=server_environment(**(environment or {})),
        )
    running = Up(process, output)
    try:
        yield running
    finally:
        if process.poll() is None:
            left = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.wait()
            for child in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()


def test_it_starts_shows_restarts_stops_and_resumes(tmp_path: Path, ports: Ports) -> None:
    """One data directory: Ctrl-C ends the first start, SIGKILL the second one, `down` the third one."""
    data_dir = tmp_path / "data"
    hosts = [f"127.0.0.1:{ports.client + number}" for number in range(NODES)]
    own = {"QUORATE_NODE_ID": "7", "QUORATE_LISTEN_CLIENT": "127.0.0.1:1"}
    with up(data_dir, *ports.options, environment=own) as running:
        running.wait_for(READY)
        for first in (ports.client, ports.peer, ports.admin):
            assert all(f"127.0.0.1:{first + number}" in running.text() for number in range(NODES))
        begun = status(ports, 2)
        assert begun["node_id"] == 2
        writes(hosts[0], "/kept", b"value")

        second = run("up", "--data-dir", str(data_dir))
        assert second.returncode == 1
        assert str(running.process.pid) in second.stderr
        assert f"quorate down --data-dir {data_dir}" in second.stderr

        victim = running.nodes()[3]
        victim.kill()
        running.wait_for("node 3 was ended by SIGKILL; starting it again")
        eventually(lambda: running.text().count("node 3 is ready") == 2, DEADLINE_S, "node 3 ready again")
        assert running.nodes()[3].pid != victim.pid
        assert reads(hosts[2], "/kept") == b"value"

        nodes = running.nodes()
        assert sorted(nodes) == [1, 2, 3]
        # Ctrl-C in a terminal reaches a whole process group: the nodes must not be in the supervisor's
        assert os.getpgid(running.process.pid) not in {os.getpgid(node.pid) for node in nodes.values()}
        assert running.stop(signal.SIGINT) == 0
        assert [node_id for node_id, node in nodes.items() if lives(node)] == []
    assert "stopped 3 processes" in running.text()
    assert "Traceback" not in running.text()
    identities = {path: path.read_bytes() for path in data_dir.glob("node-*/data/identity.json")}
    assert len(identities) == NODES
    nothing_outlives_a_supervisor_that_is_killed(data_dir, hosts)
    detached_it_returns_when_ready_and_down_stops_it(data_dir, ports, hosts[2])
    assert {path: path.read_bytes() for path in identities} == identities


def nothing_outlives_a_supervisor_that_is_killed(data_dir: Path, hosts: list[str]) -> None:
    with up(data_dir) as resumed:
        resumed.wait_for(READY)
        for host in hosts:
            eventually(lambda at=host: reads(at, "/kept") == b"value", DEADLINE_S, "data are there")  # type: ignore[misc]
        nodes = [*resumed.nodes().values()]
        resumed.process.kill()
        resumed.process.wait()
        gone, alive = psutil.wait_procs(nodes, timeout=DEADLINE_S)
    assert (len(gone), alive) == (NODES, [])


def detached_it_returns_when_ready_and_down_stops_it(data_dir: Path, ports: Ports, host: str) -> None:
    started = run("up", "--data-dir", str(data_dir), "--detach")
    try:
        assert started.returncode == 0, started.stderr
        assert f"127.0.0.1:{ports.client}" in started.stdout
        # It returned because it is ready: the first attempt of a client succeeds.
        writes(host, "/detached", b"value")
        assert status(ports)["leader_id"] in (1, 2, 3)
        # A second one leaves no trace in the log of the one that runs.
        before = (data_dir / "up.log").read_bytes()
        again = run("up", "--data-dir", str(data_dir), "--detach")
        assert again.returncode == 1
        assert "is in use by the process" in again.stderr
        assert (data_dir / "up.log").read_bytes() == before
    finally:
        supervisor = psutil.Process(int((data_dir / "lock").read_text()))
        nodes = supervisor.children()
        stopped = run("down", "--data-dir", str(data_dir))
    assert stopped.returncode == 0, stopped.stderr
    eventually(lambda: not any(map(lives, [supervisor, *nodes])), DEADLINE_S, "all have ended")
    nothing = run("down", "--data-dir", str(data_dir))
    assert nothing.returncode == 0
    assert "nothing" in nothing.stdout
    elsewhere = run("down", "--data-dir", str(data_dir.parent / "elsewhere"))
    assert elsewhere.returncode == 1
    assert str(data_dir.parent / "elsewhere") in elsewhere.stderr


def test_admin_ports_that_speak_tls_are_asked_by_tls(tmp_path: Path, ports: Ports, broker_port: int) -> None:
    tls = Authority(tmp_path / "pki").settings("all")
    tls |= {"security_admin_ssl": "true", "tls_admin_client_auth": "need"}
    environment = {
        f"{prefix}_{key if '_admin_' in key else f'tls_{key}'}".upper(): str(value)
        for prefix in ("quorate", "quorate_broker")
        for key, value in tls.items()
    }
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        console = free.getsockname()[1]
    options = ("--nodes=1", *ports.options[:-1], "--brokers=1", f"--broker-port={broker_port}")
    with up(tmp_path / "data", *options, f"--console-port={console}", environment=environment) as running:
        running.wait_for("node 1 is ready")
        running.wait_for("broker 1 is ready")
        assert f"https://127.0.0.1:{ports.admin}" in running.text()
        running.wait_for(f"console: http://127.0.0.1:{console}/")
        with urllib.request.urlopen(f"http://127.0.0.1:{console}/api/overview") as answer:
            overview = json.load(answer)
        assert [(each["id"], each["role"]) for each in overview["nodes"]] == [(1, "leader")]
        assert running.stop() == 0


def test_a_quorum_whose_data_are_all_lost_is_not_founded_again(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    with up(data_dir, "--nodes=1", *ports.options) as first:
        first.wait_for(READY)
        first.stop()
    shutil.rmtree(data_dir / "node-1/data")
    refused = run("up", "--data-dir", str(data_dir))
    assert refused.returncode == 1
    assert f"the data of all its nodes are missing: {data_dir / 'node-1/data'}" in refused.stderr
    assert "remedy: put them back" in refused.stderr
    assert not (data_dir / "node-1/data").exists()


def test_a_first_start_that_was_cut_short_is_gone_on_with(tmp_path: Path, ports: Ports) -> None:
    """Ended as soon as a node had formatted its data: nobody was told that there is a cluster."""
    data_dir = tmp_path / "data"
    with up(data_dir, *ports.options) as first:
        eventually(
            lambda: list(data_dir.glob("node-*/data/identity.json")), DEADLINE_S, "a node is formatted"
        )
        first.process.kill()
    with up(data_dir) as second:
        second.wait_for(READY)
        assert len({status(ports, node_id)["cluster_id"] for node_id in (1, 2, 3)}) == 1
        second.stop()


def test_nodes_that_lost_their_data_found_no_second_cluster(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    with up(data_dir, *ports.options) as first:
        first.wait_for(READY)
        first.stop()
    for node_id in (2, 3):
        shutil.rmtree(data_dir / f"node-{node_id}/data")
    with up(data_dir) as second:
        for node_id in (2, 3):
            second.wait_for(f"the data directory of node {node_id} is empty")
        assert sorted(second.nodes()) == [1, 2, 3]
        # Each looks for a leader for 5 s.
        with ThreadPoolExecutor() as pool:
            told = list(pool.map(lambda node_id: status(ports, node_id), (1, 2, 3)))
        assert [each["leader_id"] for each in told] == [None, None, None]
        second.stop()


@pytest.mark.parametrize("options", [[], ["--detach"]])
def test_a_port_in_use_is_named_before_anything_is_started(
    tmp_path: Path, ports: Ports, options: list[str]
) -> None:
    data_dir = tmp_path / "data"
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", ports.peer + 1))
        other.listen()
        refused = run("up", "--data-dir", str(data_dir), *ports.options, *options)
    assert refused.returncode == 1
    assert f"port {ports.peer + 1}, which node 2 needs" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert f'quorate up --peer-port {ports.peer + 10} (or make up ARGS="--peer-port' in refused.stderr
    assert list(data_dir.glob("node-*")) == []


def test_detached_port_0_is_refused_and_not_taken_for_the_default(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    refused = run("up", "--data-dir", str(data_dir), *ports.options, "--client-port", "0", "--detach")
    try:
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--client-port" in refused.stderr
        assert list(data_dir.glob("node-*")) == []
    finally:
        run("down", "--data-dir", str(data_dir))


def test_every_node_that_cannot_start_is_told_with_its_story(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    with up(data_dir, "--nodes=1", *ports.options) as running:
        running.wait_for(READY)
        running.stop()
    toml = data_dir / "node-1/node.toml"
    toml.write_text(toml.read_text() + "[limits]\ntick = 5\n")
    refused = run("up", "--data-dir", str(data_dir))
    assert refused.returncode == 1
    assert "limits.tick" in refused.stderr
    assert "'tick_ms'" in refused.stderr


class OnTerminal:
    """A running `quorate up` on a terminal of its own; whatever it leaves behind is killed at the end."""

    def __init__(self, *options: str) -> None:
        self.ours, theirs = pty.openpty()
        self.seen = bytearray()
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_TERMINAL, *command("up", *options)],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=server_environment(TERM="xterm"),
        )
        os.close(theirs)
        os.set_blocking(self.ours, False)

    def wait_for(self, words: bytes) -> None:
        def shown() -> bool:
            with contextlib.suppress(BlockingIOError, OSError):
                self.seen.extend(os.read(self.ours, 65536))
            return words in self.seen

        eventually(shown, DEADLINE_S, f"{words!r} on the terminal")

    def close(self) -> None:
        if self.process.poll() is None:
            left = psutil.Process(self.process.pid).children(recursive=True)
            self.process.kill()
            self.process.wait()
            psutil.wait_procs(left, DEADLINE_S)


def test_on_a_terminal_there_is_a_status_line_and_ctrl_c_stops_everything(
    tmp_path: Path, ports: Ports
) -> None:
    with contextlib.closing(
        OnTerminal("--data-dir", str(tmp_path / "data"), "--nodes=1", *ports.options)
    ) as running:
        running.wait_for(b"1/1 ready")
        os.write(running.ours, b"\x03")
        running.wait_for(b"stopped 1 processes")
        assert running.process.wait(DEADLINE_S) == 0
        os.close(running.ours)
    assert b"Traceback" not in running.seen


def test_when_its_terminal_is_closed_everything_stops_cleanly(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    with contextlib.closing(OnTerminal("--data-dir", str(data_dir), "--nodes=1", *ports.options)) as running:
        running.wait_for(b"1/1 ready")
        os.close(running.ours)
        assert running.process.wait(DEADLINE_S) == 0
    logs = [path.read_text() for path in data_dir.glob("node-*/node.log")]
    assert [log.rstrip().endswith("stopped") for log in logs] == [True], logs


def test_nodes_run_what_is_installed_and_not_what_the_current_directory_holds(
    tmp_path: Path, ports: Ports
) -> None:
    foreign = tmp_path / "here/quorum"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    (foreign / "__main__.py").write_text("raise SystemExit('foreign code')")
    data_dir = tmp_path / "data"
    # As the installed `quorate` does, whose own path does not hold the current directory.
    console_script = (
        "import sys; sys.argv[0] = 'bin/quorate'; from quorum.__main__ import main; sys.exit(main())"
    )
    words = ("up", "--data-dir", str(data_dir), "--nodes=1", *ports.options, "--detach")
    started = subprocess.run(
        [sys.executable, "-P", "-c", console_script, *words],
        cwd=foreign.parent,
        capture_output=True,
        text=True,
        check=False,
        env=server_environment(),
        timeout=DEADLINE_S,
    )
    try:
        assert started.returncode == 0, started.stderr + tail(data_dir / "node-1/node.log")
        assert "\n  bin/quorate status" in started.stdout  # what it offers, as it was started itself
    finally:
        assert run("down", "--data-dir", str(data_dir)).returncode == 0


def test_a_detached_start_whose_command_is_ended_leaves_nothing_behind(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    waiting = subprocess.Popen(
        command("up", "--data-dir", str(data_dir), "--nodes=1", *ports.options, "--detach"),
        env=server_environment(),
    )
    eventually((data_dir / "node-1/node.log").exists, DEADLINE_S, "it starts the node")
    supervisor = psutil.Process(int((data_dir / "lock").read_text()))
    waiting.terminate()
    assert waiting.wait(DEADLINE_S) == -signal.SIGTERM
    processes = [supervisor, *supervisor.children()]
    _, left = psutil.wait_procs(processes, DEADLINE_S)
    for process in left:
        process.kill()
    assert left == []
    assert "the command that started this was ended" in (data_dir / "up.log").read_text()


def test_brokers_run_beside_nodes_are_restarted_resumed_and_stopped(
    tmp_path: Path, ports: Ports, broker_port: int
) -> None:
    data_dir = tmp_path / "data"
    options = ["--nodes=1", *ports.options, "--brokers=2", f"--broker-port={broker_port}"]
    with up(data_dir, *options) as running:
        running.wait_for(f"for Kafka clients: 127.0.0.1:{broker_port},127.0.0.1:{broker_port + 1}")
        running.wait_for(" shell --hosts")
        first, *_ = try_offered(running.text())
        assert first.startswith("topics create hello --partitions 6 --replication-factor 2 --bootstrap ")
        running.nodes("broker")[2].kill()
        running.wait_for("broker 2 was ended by SIGKILL; starting it again")
        eventually(lambda: running.text().count("broker 2 is ready") == 2, DEADLINE_S)
        assert sorted(running.nodes("broker")) == [1, 2]
        assert running.stop() == 0
    logs = [path.read_text() for path in data_dir.glob("broker-*/broker.log")]
    assert [log.rstrip().endswith("stopped") for log in logs] == [True, True], logs
    started = run("up", "--data-dir", str(data_dir), "--detach")
    try:
        assert started.returncode == 0, started.stderr
        assert f"\nready: 127.0.0.1:{ports.client}; for Kafka clients: " in started.stdout
        first, *_ = try_offered(started.stdout)
        assert first.startswith("topics list ")
        supervisor = psutil.Process(int((data_dir / "lock").read_text()))
        processes = [supervisor, *supervisor.children()]
        assert len(processes) == 4
        supervisor.kill()
    finally:
        assert run("down", "--data-dir", str(data_dir)).returncode == 0
    # Each has given its directory up, which is what `down` waits for, and may still be on its way out.
    eventually(lambda: not any(map(lives, processes)), DEADLINE_S, "all have ended")


def test_where_the_extra_is_not_installed_the_nodes_run_alone(tmp_path: Path, ports: Ports) -> None:
    output = tmp_path / "up.out"
    words = ["up", "--data-dir", str(tmp_path / "data"), "--nodes=1", *ports.options, "--brokers=3"]
    program = (
        f"import sys; sys.modules['kio'] = None; from quorum.cli.main import main; sys.exit(main({words}))"
    )
    with output.open("wb") as stream:
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=stream, stderr=stream, env=server_environment()
        )
    try:
        eventually(lambda: READY in output.read_text(), DEADLINE_S, "the nodes are ready")
    finally:
        process.terminate()
        assert process.wait(DEADLINE_S) == 0
    assert (
        "no brokers: what they need is not installed (pip install 'quorate[brokers]')" in output.read_text()
    )
    assert "stopped 1 processes" in output.read_text()


def console_pid(port: int) -> int:
    """The process of the console that listens there."""
    words = f"console\0--admin\0.*--port\0{port}\0".encode()
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if re.search(words, path.read_bytes()):
                found.append(int(path.parent.name))
    (pid,) = found
    return pid


def test_the_console_is_started_and_ended_with_the_cluster(tmp_path: Path, ports: Ports) -> None:
    data_dir = tmp_path / "data"
    with contextlib.closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        options = [*ports.options, "--nodes=1", f"--console-port={port}"]
        with up(data_dir, *options) as running:
            running.wait_for(f"no console: error: --port {port}: cannot listen on 127.0.0.1")
            assert running.stop() == 0
    with up(data_dir, *options) as running:
        running.wait_for(f"console: http://127.0.0.1:{port}/")
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/livez") as answer:
            assert answer.status == 200
        os.kill(console_pid(port), signal.SIGKILL)
        running.wait_for(f"the console ended and was started again; console: http://127.0.0.1:{port}/")
        assert running.stop() == 0
    with contextlib.closing(socket.socket()) as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def events(text: str) -> list[dict[str, str]]:
    """Return the events of a log in JSON, where each line is one."""
    return [json.loads(line) for line in text.splitlines()]


def test_all_processes_log_in_json_where_it_is_asked_for(
    tmp_path: Path, ports: Ports, broker_port: int
) -> None:
    data_dir = tmp_path / "data"
    options = ("--nodes=1", *ports.options[:-2], f"--broker-port={broker_port}", "--brokers=1")
    with up(data_dir, *options, "--console-port=0", "--log-format=json") as running:
        running.wait_for("node 1 is ready")
        running.wait_for("broker 1 is ready")
        # What a process says at its end goes to its log, too.
        config = str(data_dir / "node-1/node.toml")
        refused = run("serve", "--config", config, "--log-format", "json")
        assert refused.returncode == 1
        assert running.stop() == 0
    (*_, last) = events(refused.stderr)
    assert (last["level"], last["process"]) == ("CRITICAL", "node 1")
    assert "another process listens there" in last["message"]
    assert last["remedy"]
    assert {each["process"] for each in events(running.text())} == {"up"}
    for name, log in (("node 1", "node-1/node.log"), ("broker 1", "broker-1/broker.log")):
        found = events((data_dir / log).read_text())
        assert {each["process"] for each in found} == {name}
        assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", each["time"]) for each in found)
        assert {"INFO"} <= {each["level"] for each in found} <= {"INFO", "WARNING"}
    assert "quorate.controller" in {each["logger"] for each in found}, (
        "the controller logs as its broker does"
    )


def test_the_console_logs_in_json_where_it_is_asked_for() -> None:
    words = ("console", "--admin", "http://127.0.0.1:9", "--port", "0", "--log-format", "json")
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(*words), stdout=pipe, stderr=pipe, text=True, env=server_environment())
    assert process.stdout is not None
    assert process.stdout.readline().startswith("console: http://127.0.0.1:")
    process.send_signal(signal.SIGHUP)
    assert process.stderr is not None
    (found,) = events(process.stderr.readline())
    assert (found["process"], found["level"]) == ("console", "INFO")
    assert "SIGHUP" in found["message"]
    process.terminate()
    _, rest = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0
    events(rest)
