"""Starts servers from interpreters that have loaded their modules already.

Loading takes 0.4 s of a node's start and 0.6 s of a broker's, nearly all of it; tests start hundreds.
A process that has loaded the modules forks for each server. The server is a process of its own, with its own
files, environment and memory, and it runs `python -m …` from the first line on.

There are two such processes for each process of pytest, for strings hash alike in all that one of them forks.
Replicas must agree whatever the order of a set is.
"""

from __future__ import annotations

import functools
import gc
import importlib
import itertools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

#: what servers load, by way of these
MODULES: Final = (
    "quorum.cli.commands.serve",
    "quorum.node.node",
    "broker.commands.broker",
    "broker.lifecycle.broker",
)
#: variables that an interpreter reads when it starts begin so
_READ_AT_START: Final = ("PYTHON", "LD_", "MALLOC_")
_FORKING: Final = 2
_REQUEST_BYTES_MAX: Final = 1 << 18


class ForkedServer:
    """A running server; used as subprocess.Popen is.

    Attributes:
        pid: its process id, which nobody else gets before `poll` or `wait` saw the end.
        returncode: its exit code or, negative, the signal that ended it; None until that was seen.
    """

    def __init__(self, forking: Forking, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._forking = forking
        self._descriptor = os.pidfd_open(pid)
        self._ending = threading.Lock()

    def poll(self) -> int | None:
        """Return the exit code if it has ended."""
        return self._look(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, at most so many seconds; return the exit code.

        Raises:
            subprocess.TimeoutExpired: it still runs.
        """
        code = self._look(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(f"the server with pid {self.pid}", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL, unless it has ended."""
        self.send_signal(signal.SIGKILL)

    def _look(self, timeout_s: float | None) -> int | None:
        with self._ending:
            if self.returncode is None and select.select([self._descriptor], [], [], timeout_s)[0]:
                self.returncode = self._forking.ask({"ended": self.pid})
                os.close(self._descriptor)
            return self.returncode


Server: TypeAlias = "subprocess.Popen[bytes] | ForkedServer"


class Forking:
    """A process that forks servers."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._connection, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asking = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.support.prepared", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                env=dict(environment),
                pass_fds=[theirs.fileno()],
            )

    def ask(self, request: Mapping[str, object], *descriptors: int) -> int:
        """Send a request with file descriptors; return the answer."""
        with self._asking:
            socket.send_fds(self._connection, [json.dumps(request).encode()], descriptors)
            return int(self._connection.recv(_REQUEST_BYTES_MAX))


def start_server(
    command: Sequence[str], *, output: int, folder: Path, environment: Mapping[str, str], number: int
) -> Server:
    """Start a server without waiting for it.

    Args:
        command: an interpreter and its arguments, `-m MODULE` among them. What is not `quorum` of this
            environment is started as it is.
        output: file descriptor for its standard output and error.
        folder: where it runs. environment: all of its variables.
        number: servers with an odd and an even one have different seeds of hashes.
    """
    run = list(itertools.dropwhile(lambda word: word != "-m", command))[1:]
    # A module of the tests may change others before they are loaded.
    is_shipped = command[0] == sys.executable and run[:1] == ["quorum"]
    if not is_shipped or _of_interpreter(environment) != _of_interpreter(_usual()):
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=dict(environment),
        )
    forking = _forking(number % _FORKING)
    request = {"run": run, "folder": str(folder), "environment": dict(environment)}
    return ForkedServer(forking, forking.ask(request, output))


def _of_interpreter(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def _usual() -> dict[str, str]:
    from tests.support.nodes import server_environment

    return server_environment()


@functools.cache
def _forking(_number: int) -> Forking:
    return Forking(_usual())


def main() -> None:
    """Fork servers until the other end of the connection is closed; go on as one of them."""
    for name in MODULES:
        importlib.import_module(name)
    gc.freeze()
    connection = socket.socket(fileno=int(sys.argv[1]))
    while True:
        content, descriptors, _, _ = socket.recv_fds(connection, _REQUEST_BYTES_MAX, 1)
        if not content:
            return
        request = json.loads(content)
        if "ended" in request:
            _, status = os.waitpid(request["ended"], 0)
            connection.send(b"%d" % os.waitstatus_to_exitcode(status))
            continue
        pid = os.fork()
        if not pid:
            connection.close()
            break
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(b"%d" % pid)
    [output] = descriptors
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    module, *sys.argv[1:] = request["run"]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
