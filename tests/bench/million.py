"""Memory and restart with a million znodes: load, snapshot, restart, as /proc and the clock see it.

Loads znodes with 100-byte values over a thousand folders, waits for a snapshot on every node, stops all
nodes cleanly, starts them again and takes the time until each serves. Prints VmHWM and VmRSS of each process
at every stage and verifies a sample of the values on all nodes. Asserts no time and no size.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench.machine import memory_bytes
from tests.bench.servers import Servers, running
from tests.support.wire_load import Job, run_jobs

FOLDERS = 1000
VALUE_BYTES = 100
#: of the values that `Clients.fill` writes
SEED = 0
#: A log of fewer nodes is too short for a snapshot (64 MB).
SNAPSHOT_NODES_MIN = 500_000


def load(servers: Servers, nodes: int) -> float:
    """Create the nodes, folder by folder; return seconds."""
    per_folder = nodes // FOLDERS
    elapsed = 0.0
    host = servers.hosts[servers.leader()]
    for folder in range(FOLDERS):
        elapsed += servers.clients.fill(host, f"/million/f{folder:04d}", per_folder, VALUE_BYTES)
        if folder % 100 == 99:
            print(f"{servers.name}: {(folder + 1) * per_folder:,} znodes", file=sys.stderr, flush=True)
    return elapsed


def verify(servers: Servers, nodes: int) -> None:
    """Compare all values of every hundredth folder on every server."""
    per_folder = nodes // FOLDERS
    for host in servers.hosts:
        for folder in range(0, FOLDERS, 100):
            job = Job(host, "read_verify", f"/million/f{folder:04d}", per_folder, 64, VALUE_BYTES, SEED)
            run_jobs([job], servers.clients.program)


def memory_row(servers: Servers, stage: str) -> str:
    """A table row with VmHWM / VmRSS of each process in MB."""
    cells = []
    for pid in servers.pids:
        peak, now = memory_bytes(pid)
        cells.append(f"{peak / 1e6:,.0f} / {now / 1e6:,.0f}")
    return f"| {servers.name} | {stage} | " + " | ".join(cells) + " |"


def run(name: str, folder: Path, nodes: int) -> list[str]:
    """Run one system through all stages; returns the lines of its table."""
    lines = ["", f"{nodes:,} znodes of {VALUE_BYTES} bytes: VmHWM / VmRSS in MB per node", ""]
    lines += ["| system | stage | node 1 | node 2 | node 3 |", "| --- | --- | --- | --- | --- |"]
    with running([name], folder) as systems:
        servers = systems[0]
        elapsed = load(servers, nodes)
        lines.append(memory_row(servers, "loaded"))
        if nodes >= SNAPSHOT_NODES_MIN:
            servers.wait_for_snapshots()
            lines.append(memory_row(servers, "snapshot taken"))
        ready = servers.restart()
        lines.append(memory_row(servers, "restarted"))
        verify(servers, nodes)
        lines.append(memory_row(servers, "restarted and read"))
    seconds = ", ".join(f"{one:.1f} s" for one in ready)
    lines += ["", f"loaded in {elapsed:.1f} s; all three started together, each ready after {seconds}"]
    return lines
