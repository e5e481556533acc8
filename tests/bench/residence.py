"""Memory of each server with a million nodes, and how long a restart with them takes.

One system at a time and alone, because three of them would share the machine's memory and page cache: load,
wait until a snapshot has been taken where the system takes one by itself, look at /proc, stop all servers
cleanly, start them together, and read a sample of the values everywhere. Done once, as it takes minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import million
from tests.bench.cases import Measured, Row
from tests.bench.machine import memory_bytes
from tests.bench.servers import running

MEMORY = Row("memory of a server, 1,000,000 nodes of 100 bytes", "MB", "≤ 600 MB")
PEAK = Row("peak memory of a server, 1,000,000 nodes", "MB", "≤ 800 MB")
RESTART = Row("restart with 1,000,000 nodes, to ready", "s", "≤ 3 s")
ROWS = (MEMORY, PEAK, RESTART)


def measure(name: str, folder: Path, nodes: int) -> tuple[str, Measured]:
    """Take one system through it; returns its name with its version, and the largest value of its servers."""
    with running([name], folder) as (servers,):
        print(f"{servers.name}: loads {nodes:,} nodes, restarts, reads", file=sys.stderr, flush=True)
        million.load(servers, nodes)
        if nodes >= million.SNAPSHOT_NODES_MIN:
            servers.wait_for_snapshots()
        seen = [memory_bytes(pid) for pid in servers.pids]
        ready_s = servers.restart()
        million.verify(servers, nodes)
    return servers.name, {
        MEMORY.name: max(now for _, now in seen) / 1e6,
        PEAK.name: max(peak for peak, _ in seen) / 1e6,
        RESTART.name: max(ready_s),
    }
