"""The systems that a benchmark compares, three server processes each, on the same disk with fsync on.

Quorate runs with the settings that it ships with; ZooKeeper 3.9.5 with its own and a Java heap that a
production server would get. CPU time and memory are read from /proc. Knows nothing of what is measured.
Source: performance.md (how it is measured).
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from tests.support.nodes import QuorateNodes, eventually
from tests.support.zookeeper import ZooKeeper

READY_DEADLINE_S = 300.0
_CLOCK_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class Servers(Protocol):
    """Three servers under load."""

    name: str

    @property
    def hosts(self) -> list[str]: ...
    @property
    def pids(self) -> list[int]: ...
    def leader(self) -> int: ...
    def sync_counts(self) -> list[int] | None: ...
    def wait_for_snapshots(self) -> None: ...
    def restart(self) -> list[float]: ...
    def close(self) -> None: ...


class QuorateServers:
    """Three `quorate serve` processes with the settings that are shipped."""

    name = "Quorate"

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

    def close(self) -> None:
        """End all nodes."""
        self._nodes.close()


class ZooKeeperServers:
    """Three real ZooKeeper 3.9.5 servers."""

    name = "ZooKeeper 3.9.5"

    def __init__(self, folder: Path, heap_bytes: int = 2 << 30) -> None:
        """Start an ensemble in an empty folder and wait until it serves."""
        heap = f"-Xmx{heap_bytes >> 20}m"
        self._servers = ZooKeeper(3, tick_ms=2000, data_dir=folder, jvm_options=(heap, "-XX:+UseG1GC"))
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

    def close(self) -> None:
        """End all servers."""
        self._servers.close()


def seconds_until(conditions: Sequence[Callable[[], bool]]) -> list[float]:
    """Wait for all conditions at once; returns how many seconds each took to come true."""
    started = time.monotonic()
    seconds: dict[int, float] = {}

    def look() -> bool:
        for number, condition in enumerate(conditions):
            if number not in seconds and condition():
                seconds[number] = time.monotonic() - started
        return len(seconds) == len(conditions)

    eventually(look, READY_DEADLINE_S, "all servers serve")
    return [seconds[number] for number in range(len(conditions))]


@contextlib.contextmanager
def running(names: Sequence[str], folder: Path) -> Iterator[list[Servers]]:
    """Run the named systems ("quorate", "zookeeper") beside each other, their files in folder."""
    kinds = {"quorate": QuorateServers, "zookeeper": ZooKeeperServers}
    with contextlib.ExitStack() as stack:
        started: list[Servers] = []
        for name in names:
            place = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=folder))
            servers = kinds[name](place)
            stack.callback(servers.close)
            started.append(servers)
        yield started


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system CPU time that processes have used so far."""
    total = 0
    for pid in pids:
        # The command name stands in parentheses and may hold spaces; fields 14 and 15 count from the front.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / _CLOCK_TICKS_PER_S


def memory_bytes(pid: int) -> tuple[int, int]:
    """(VmHWM, VmRSS) of a process: the most it ever held, and what it holds now."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", text, re.MULTILINE))
    return int(found["VmHWM"]) * 1024, int(found["VmRSS"]) * 1024


@dataclass(frozen=True)
class Disk:
    """What one fdatasync of a small append costs on a disk."""

    p50_ms: float
    p99_ms: float


def measure_disk(folder: Path, rounds: int = 200, append_bytes: int = 4096) -> Disk:
    """Time fdatasync after small appends to a file in folder."""
    path = folder / "fdatasync-probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    times: list[float] = []
    try:
        for _ in range(rounds):
            os.write(descriptor, os.urandom(append_bytes))
            started = time.perf_counter()
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - started) * 1000.0)
    finally:
        os.close(descriptor)
        path.unlink()
    ordered = sorted(times)
    return Disk(ordered[rounds // 2], ordered[rounds * 99 // 100])
