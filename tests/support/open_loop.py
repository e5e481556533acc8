"""An open-loop load: writes that are due at fixed times, whatever the servers do meanwhile.

Each write has a time at which it is due; its latency counts from there, so a pause of a server costs every
write that was due in it, and not only the one that happened to wait (coordinated omission). One process
spreads the writes over one connection per server; every write sets a random znode of a `Job` of
tests/bench/million.py. Run as `python -m tests.support.open_loop '<JSON of Load>'` it connects, prints
"ready" and goes on until its standard input ends; then it waits for what is in flight and writes one pair of
doubles per write to a file: when it was due (monotonic seconds) and its latency in seconds, in the order
of completion. `running_load` does that around a block. Any error of a server ends it with that error.
"""

from __future__ import annotations

import contextlib
import json
import random
import select
import struct
import subprocess
import sys
import time
from array import array
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.support.nodes import clean_environment
from tests.support.wire_load import SET_DATA, Connection, LoadError, frame, node_path, set_body

RECEIVE_BYTES = 1 << 18
DRAIN_DEADLINE_S = 60.0
#: the longest sleep, so that the end of standard input is noticed
WAIT_S_MAX = 0.05
_HEAD = struct.Struct(">iiqi")


@dataclass(frozen=True)
class Load:
    """What is written, where, and how often.

    Attributes:
        hosts: one connection each; the writes take turns.
        rate_per_s: writes per second over all connections.
        folder: below it the folders f0000, f0001, … with the znodes of tests/bench/million.py.
        folders: how many folders.
        nodes: znodes in each.
        record: file that gets the latencies.
    """

    hosts: list[str]
    rate_per_s: int
    folder: str
    folders: int
    nodes: int
    record: str
    value_bytes: int = 100
    seed: int = 1


class _Stream:
    """One connection without blocking."""

    def __init__(self, host: str) -> None:
        self._connection = Connection(host, session_timeout_ms=40000)
        self.socket = self._connection.socket
        self.socket.setblocking(False)
        self.host = host
        #: when each unanswered write was due
        self.due: deque[float] = deque()
        self._xid = 0
        self._answered = 0
        self._out = bytearray()
        self._in = b""

    @property
    def blocked(self) -> bool:
        """Whether the socket takes no more for now."""
        return bool(self._out)

    def put(self, due_s: float, body: bytes) -> None:
        """Queue a write."""
        self._xid += 1
        self.due.append(due_s)
        self._out += frame(self._xid, SET_DATA, body)

    def send(self) -> None:
        """Hand the socket what it takes."""
        if self._out:
            with contextlib.suppress(BlockingIOError):
                del self._out[: self.socket.send(self._out)]

    def receive(self, record: array[float]) -> None:
        """Take replies, and record when they came.

        Raises:
            LoadError: a reply out of order or with an error, or the connection ended.
        """
        chunk = self.socket.recv(RECEIVE_BYTES)
        now_s = time.monotonic()
        if not chunk:
            raise LoadError(f"{self.host} closed the connection with {len(self.due)} writes in flight")
        data = self._in + chunk
        position, size = 0, len(data)
        while size - position >= _HEAD.size:
            length, xid, _zxid, error = _HEAD.unpack_from(data, position)
            if size - position < 4 + length:
                break
            position += 4 + length
            self._answered += 1
            if xid != self._answered or error:
                raise LoadError(f"{self.host}: reply {self._answered} has xid {xid}, error {error}")
            due_s = self.due.popleft()
            record.append(due_s)
            record.append(now_s - due_s)
        self._in = data[position:]

    def close(self) -> None:
        """End the session."""
        self.socket.setblocking(True)
        self._connection.close()


def run(load: Load, end_fd: int) -> array[float]:
    """Write until the descriptor ends, then until everything is answered; returns due times and latencies.

    Raises:
        LoadError: a server answered with an error, ended a connection, or left writes unanswered.
    """
    choose = random.Random(load.seed)
    streams = [_Stream(host) for host in load.hosts]
    record: array[float] = array("d")
    interval_s = 1.0 / load.rate_per_s
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    begun_s = time.monotonic()
    sent, ending_s = 0, 0.0
    by_fd = {stream.socket.fileno(): stream for stream in streams}
    while not ending_s or any(stream.due for stream in streams):
        now_s = time.monotonic()
        if ending_s and now_s > ending_s + DRAIN_DEADLINE_S:
            raise LoadError(f"writes unanswered: {[(s.host, len(s.due)) for s in streams if s.due]}")
        while not ending_s and (due_s := begun_s + sent * interval_s) <= now_s:
            path = node_path(
                f"{load.folder}/f{choose.randrange(load.folders):04d}", choose.randrange(load.nodes)
            )
            streams[sent % len(streams)].put(due_s, set_body(path, choose.randbytes(load.value_bytes)))
            sent += 1
        for stream in streams:
            stream.send()
        wait_s = WAIT_S_MAX if ending_s else max(0.0, begun_s + sent * interval_s - time.monotonic())
        readable, _, _ = select.select(
            [*by_fd, *([] if ending_s else [end_fd])],
            [fd for fd, stream in by_fd.items() if stream.blocked],
            [],
            min(wait_s, WAIT_S_MAX),
        )
        for found in readable:
            if found == end_fd:
                ending_s = time.monotonic()
            else:
                by_fd[found].receive(record)
    for stream in streams:
        stream.close()
    return record


class RunningLoad:
    """A load in a process of its own."""

    def __init__(self, load: Load) -> None:
        """Start it and wait until it writes."""
        self._load = load
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.open_loop", json.dumps(asdict(load))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=clean_environment(),
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise LoadError(f"the load did not start: {self._process.communicate()[1].decode()}")

    def finish(self) -> list[tuple[float, float]]:
        """Let it end; returns (due at monotonic seconds, latency in seconds) of every write.

        Raises:
            LoadError: it met an error.
        """
        _, errors = self._process.communicate(timeout=2 * DRAIN_DEADLINE_S)
        if self._process.returncode:
            raise LoadError(f"the load failed: {errors.decode()[-2000:]}")
        values: array[float] = array("d")
        values.frombytes(Path(self._load.record).read_bytes())
        return list(zip(values[::2], values[1::2], strict=True))

    def close(self) -> None:
        """End the process if it is still there."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


@contextlib.contextmanager
def running_load(load: Load) -> Iterator[RunningLoad]:
    """Run a load around a block; the block calls `finish` when it has seen enough."""
    running = RunningLoad(load)
    try:
        yield running
    finally:
        running.close()


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of the sorted values lie; 0.0 for none."""
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))] if ordered else 0.0


def main() -> None:
    """Run the one load of the command line."""
    load = Load(**json.loads(sys.argv[1]))
    Path(load.record).write_bytes(run(load, sys.stdin.fileno()).tobytes())


if __name__ == "__main__":
    main()
