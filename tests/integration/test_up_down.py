"""`quorate up` and `quorate down`: a local quorum as a newcomer runs it, by the command line alone."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.nodes import clean_environment, eventually, tail
from tests.support.wire_load import CREATE, GET_DATA, Connection, create_body, decode_get, read_body

DEADLINE_S = 60.0
PORT_ATTEMPTS_MAX = 100
#: what the supervisor says of the whole; of one node it may say "is not ready: "
READY = "ready: 127.0.0.1:"


class Up:
    """One `quorate up` process in the foreground and its output."""

    def __init__(self, data_dir: Path, output: Path, *options: str) -> None:
        self.data_dir = data_dir
        self.output = output
        with output.open("wb") as file:
            self.process = subprocess.Popen(
                command("up", "--data-dir", str(data_dir), *options),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                env=clean_environment(),
                start_new_session=True,
            )

    def text(self) -> str:
        """What it printed so far."""
        return self.output.read_text(errors="replace")

    def wait_for(self, *words: str, after: int = 0) -> None:
        """Wait until the output beyond an offset holds all words."""

        def seen() -> bool:
            assert self.process.poll() is None or all(word in self.text()[after:] for word in words), (
                f"`quorate up` ended with {self.process.returncode}:\n{self.text()}"
            )
            return all(word in self.text()[after:] for word in words)

        eventually(seen, DEADLINE_S, f"`quorate up` prints {words}")

    def nodes(self) -> dict[int, psutil.Process]:
        """The node processes by node id."""
        found = {}
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                for node_id in (1, 2, 3):
                    if any(f"node-{node_id}{os.sep}node.toml" in part for part in child.cmdline()):
                        found[node_id] = child
        return found

    def interrupt(self) -> int:
        """Press Ctrl-C and return the exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        """End it and its nodes, whatever state they are in."""
        children = []
        with contextlib.suppress(psutil.Error):
            children = psutil.Process(self.process.pid).children(recursive=True)
        for process in children:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        psutil.wait_procs(children, timeout=DEADLINE_S)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "quorum", *arguments]


def run(*arguments: str) -> tuple[int, str]:
    """Run a command to its end: (exit code, output and errors)."""
    done = subprocess.run(
        command(*arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        env=clean_environment(),
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def consecutive_ports(count: int) -> int:
    """First of some free ports that follow each other, outside of those already given out by this process."""
    for _ in range(PORT_ATTEMPTS_MAX):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(socket.socket())
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                for offset in range(1, count):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", port + offset))
            except OSError:
                continue
            return port
    raise AssertionError("no consecutive free ports")


def port_options() -> tuple[int, list[str]]:
    """The first client port, and the options that give nine free ports to three nodes."""
    ports = [consecutive_ports(3) for _ in range(3)]
    while len({port + offset for port in ports for offset in range(3)}) < 9:
        ports = [consecutive_ports(3) for _ in range(3)]
    names = ("--client-port", "--peer-port", "--admin-port")
    options = [text for name, port in zip(names, ports, strict=True) for text in (name, str(port))]
    return ports[0], [*options, "--brokers", "0", "--console-port", "0"]


@pytest.fixture
def started(tmp_path: Path) -> Iterator[list[Up]]:
    """Foreground processes to be ended, whatever happens."""
    running: list[Up] = []
    try:
        yield running
    finally:
        for up in running:
            up.close()


def test_up_restarts_a_killed_node_stops_on_ctrl_c_and_resumes(tmp_path: Path, started: list[Up]) -> None:
    data_dir = tmp_path / "data"
    client_port, options = port_options()
    up = Up(data_dir, tmp_path / "first.txt", *options)
    started.append(up)
    # Endpoints of every node, then the news that everything is ready.
    up.wait_for(*(f"127.0.0.1:{int(port) + node}" for port in options[1:6:2] for node in range(3)))
    up.wait_for(READY)
    eventually(lambda: len(up.nodes()) == 3, DEADLINE_S, "three node processes")
    hosts = [f"127.0.0.1:{client_port + node}" for node in range(3)]
    eventually(lambda: writes(hosts[0], "/kept", b"value"), DEADLINE_S, "a client writes")

    # A second one on the same directory is refused and disturbs nothing.
    code, output = run("up", "--data-dir", str(data_dir))
    assert code == 1
    assert "Traceback" not in output
    assert str(data_dir) in output
    assert "down" in output

    # A node that dies is started again, and the supervisor says so.
    before = len(up.text())
    killed = up.nodes()[2]
    killed.kill()
    up.wait_for("node 2", "SIGKILL", after=before)
    eventually(lambda: 2 in up.nodes() and up.nodes()[2].pid != killed.pid, DEADLINE_S, "node 2 runs again")
    eventually(lambda: reads(hosts[1], "/kept") == b"value", DEADLINE_S, "node 2 serves again")

    # Ctrl-C stops all of it.
    nodes = list(up.nodes().values())
    assert up.interrupt() == 0
    assert not [process for process in nodes if process.is_running()]
    assert "Traceback" not in up.text()

    # A second start resumes data and ports.
    again = Up(data_dir, tmp_path / "second.txt")
    started.append(again)
    again.wait_for(READY, hosts[0])
    for host in hosts:
        eventually(lambda h=host: reads(h, "/kept") == b"value", DEADLINE_S, "the data is still there")  # type: ignore[misc]

    # Nodes do not outlive a supervisor that is killed, and the next start resumes after that, too.
    nodes = list(again.nodes().values())
    again.process.kill()
    again.process.wait()
    eventually(
        lambda: not [process for process in nodes if process.is_running()], DEADLINE_S, "all nodes end"
    )
    third = Up(data_dir, tmp_path / "third.txt")
    started.append(third)
    third.wait_for(READY)
    eventually(lambda: reads(hosts[2], "/kept") == b"value", DEADLINE_S, "the data is still there")
    assert third.interrupt() == 0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    client_port, options = port_options()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", client_port + 1))
        taken.listen()
        begun = time.monotonic()
        code, output = run("up", "--data-dir", str(tmp_path / "data"), *options)
    assert code == 1
    assert str(client_port + 1) in output
    assert "--client-port" in output
    assert "Traceback" not in output
    assert time.monotonic() - begun < DEADLINE_S


def test_detach_and_down(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    client_port, options = port_options()
    try:
        code, output = run("up", "--detach", "--data-dir", str(data_dir), *options)
        assert code == 0, output + tail(data_dir / "up.log")
        assert f"127.0.0.1:{client_port}" in output
        # A second one is refused by name, and leaves no trace in the log of the one that runs.
        before = (data_dir / "up.log").read_bytes()
        code, output = run("up", "--detach", "--data-dir", str(data_dir), *options)
        assert code == 1
        assert "is in use by the process" in output
        assert (data_dir / "up.log").read_bytes() == before
        # It returned because everything is ready: the first attempt of a client succeeds.
        assert writes(f"127.0.0.1:{client_port + 2}", "/kept", b"value")
        admin = f"http://127.0.0.1:{options[5]}"
        code, output = run("status", "--admin", admin, "--json")
        assert code == 0, output
        assert "leader_id" in output
        code, output = run("shell", "--hosts", f"127.0.0.1:{client_port}", "get", "/kept")
        assert code == 0, output
        assert "value" in output
    finally:
        code, output = run("down", "--data-dir", str(data_dir))
    assert code == 0, output
    with pytest.raises(OSError, match="refused"):
        Connection(f"127.0.0.1:{client_port}")
    code, output = run("down", "--data-dir", str(data_dir))
    assert code == 0
    assert "nothing" in output
    code, output = run("down", "--data-dir", str(tmp_path / "elsewhere"))
    assert code == 1
    assert str(tmp_path / "elsewhere") in output


def writes(host: str, path: str, value: bytes) -> bool:
    """Create a node through one host; OSError while nobody serves there."""
    with Connection(host) as connection:
        return connection.call(CREATE, create_body(path, value))[0] == 0


def reads(host: str, path: str) -> bytes | None:
    """Value of a node as one host has it after a sync; OSError while nobody serves there."""
    with Connection(host) as connection:
        connection.sync()
        error, _, body = connection.call(GET_DATA, read_body(path))
        return decode_get(body)[0] if error == 0 else None
