"""What snapshots cost the writes: quiet, while every node takes one, and while a node is brought up by one.

Three real nodes with the settings that are shipped hold a million znodes of 100 bytes; an open loop sets
random ones at a fixed rate, half of them at the leader and half at a follower, and every latency counts from
the moment at which the write was due. Rounds of two phases: quiet; every node takes a snapshot at once. In
the end: quiet without the third node; that one, which was down until the log that it lacks was gone, starts
and is brought up by the leader's snapshot. Prints quantiles of each phase and the ratio of its p99 to that of
the quiet phase right before, of which a median is less disturbed by other work of the machine than a single
one; asserts no time. Source: docs/internals/consensus.md, "Snapshots".
"""

from __future__ import annotations

import os
import re
import signal
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.bench import million
from tests.bench.machine import memory_bytes
from tests.bench.servers import QuorateServers
from tests.support.nodes import QuorateNodes, eventually
from tests.support.open_loop import Load, quantile, running_load
from tests.support.wire_load import SET_DATA, Connection, frame, node_path, set_body

ROOT = "/million"
DEADLINE_S = 600.0
#: writes of this size lengthen the log without making the state larger
FILLER_BYTES = 4096
FILLERS = 1000
#: what must be applied before the log behind a snapshot is let go: more than a segment
FILLER_LOG_BYTES = 80 * 1024 * 1024
QUIET, TAKEN = "quiet", "every node takes a snapshot"
ALONE, BROUGHT_UP = "quiet, two nodes", "the third is brought up"


@dataclass(frozen=True)
class Phase:
    """What happened between two moments of the monotonic clock, in seconds."""

    name: str
    begin_s: float
    end_s: float


def counter(nodes: QuorateNodes, node_id: int, name: str) -> int:
    """Read one metric of a node."""
    _, body = nodes.get(node_id, "/metrics")
    found = re.search(rf"^{name} (\S+)$", body.decode(), re.MULTILINE)
    assert found is not None, f"/metrics of node {node_id} has no {name}"
    return int(float(found[1]))


def take_snapshots(nodes: QuorateNodes, node_ids: Sequence[int]) -> tuple[float, float]:
    """Let nodes take a snapshot, all at once; returns when it began and when the last one was durable."""
    before = {node_id: counter(nodes, node_id, "quorate_snapshots_taken_total") for node_id in node_ids}
    begin_s = time.monotonic()
    for node_id in node_ids:
        os.kill(nodes.pid(node_id), signal.SIGUSR1)

    def done() -> bool:
        return all(
            counter(nodes, node_id, "quorate_snapshots_taken_total") > taken
            for node_id, taken in before.items()
        )

    eventually(done, DEADLINE_S, "the snapshots are durable")
    return begin_s, time.monotonic()


def pause_until(end_s: float) -> None:
    """Let the load run until a moment."""
    eventually(lambda: time.monotonic() >= end_s, DEADLINE_S, "the phase is over")


def lengthen_log(nodes: QuorateNodes, node_ids: Sequence[int], behind: int) -> None:
    """Write and take snapshots until the nodes' log begins above what node `behind` has."""
    has = last_index(nodes, behind)
    nodes.stop(behind)
    host = nodes.host(nodes.leader())
    writes = FILLER_LOG_BYTES // FILLER_BYTES

    def gone() -> bool:
        with Connection(host, timeout_s=120.0) as connection:
            frames = [
                frame(
                    number,
                    SET_DATA,
                    set_body(node_path(f"{ROOT}/filler", number % FILLERS), bytes(FILLER_BYTES)),
                )
                for number in range(1, writes + 1)
            ]
            connection.pipelined(frames, 256)
        take_snapshots(nodes, node_ids)
        return all(counter(nodes, node_id, "quorate_raft_first_index") > has + 1 for node_id in node_ids)

    eventually(gone, DEADLINE_S, f"the log that node {behind} lacks is gone")


def last_index(nodes: QuorateNodes, node_id: int) -> int:
    """The last log index that a node has applied."""
    return int(nodes.status(node_id)["applied_index"])


def table(phases: Sequence[Phase], writes: Sequence[tuple[float, float]]) -> list[str]:
    """Rows of a Markdown table, and a line with the medians; every second phase has a quiet one before it."""
    rows = [
        "| phase | seconds | writes/s | p50 ms | p99 ms | p99.9 ms | max ms | p99 / quiet p99 |",
        "|" + " --- |" * 8,
    ]
    ratios: dict[str, list[float]] = {}
    quiet_p99_s = 0.0
    for number, phase in enumerate(phases):
        taken = sorted(late for due, late in writes if phase.begin_s <= due < phase.end_s)
        seconds = phase.end_s - phase.begin_s
        p50_s, p99_s, p999_s, max_s = (quantile(taken, share) for share in (0.5, 0.99, 0.999, 1.0))
        ratio = ""
        if number % 2:
            ratios.setdefault(phase.name, []).append(p99_s / quiet_p99_s)
            ratio = f"{p99_s / quiet_p99_s:.2f}×"
        quiet_p99_s = p99_s
        cells = [phase.name, f"{seconds:.1f}", f"{len(taken) / seconds:,.0f}"]
        cells += [f"{value * 1000:.2f}" for value in (p50_s, p99_s, p999_s, max_s)]
        rows.append("| " + " | ".join([*cells, ratio]) + " |")
    medians = [f"{name}: {statistics.median(found):.2f}×" for name, found in ratios.items()]
    return [*rows, "", "median of p99 / quiet p99: " + "; ".join(medians)]


def run(folder: Path, znodes: int, rate_per_s: int, quiet_s: float, rounds: int) -> list[str]:
    """Run all phases; returns the lines of the report."""
    servers = QuorateServers(folder, arguments=("-m", "tests.bench.snapshot_node", "serve"))
    try:
        return _run(servers, folder, znodes, rate_per_s, quiet_s, rounds)
    finally:
        servers.close()


def _run(
    servers: QuorateServers, folder: Path, znodes: int, rate_per_s: int, quiet_s: float, rounds: int
) -> list[str]:
    nodes = servers.nodes
    million.load(servers, znodes)
    leader = nodes.leader()
    with Connection(nodes.host(leader)) as connection:
        connection.ensure(f"{ROOT}/filler")
        for number in range(FILLERS):
            connection.ensure(node_path(f"{ROOT}/filler", number))
    follower, behind = (node_id for node_id in nodes.node_ids if node_id != leader)
    everywhere = list(nodes.node_ids)
    take_snapshots(nodes, everywhere)
    load = Load(
        hosts=[nodes.host(leader), nodes.host(follower)],
        rate_per_s=rate_per_s,
        folder=ROOT,
        folders=million.FOLDERS,
        nodes=znodes // million.FOLDERS,
        record=str(folder / "latencies"),
    )
    phases: list[Phase] = []

    def quiet(name: str) -> None:
        taken = [counter(nodes, node_id, "quorate_snapshots_taken_total") for node_id in (leader, follower)]
        begin_s = time.monotonic()
        pause_until(begin_s + quiet_s)
        phases.append(Phase(name, begin_s, time.monotonic()))
        now = [counter(nodes, node_id, "quorate_snapshots_taken_total") for node_id in (leader, follower)]
        assert now == taken, f"a snapshot was taken in the phase {name!r}, which is to be quiet"

    with running_load(load) as running:
        pause_until(time.monotonic() + 2.0)  # warm
        for number in range(rounds):
            print(f"round {number + 1}", file=sys.stderr, flush=True)
            quiet(QUIET)
            phases.append(Phase(TAKEN, *take_snapshots(nodes, everywhere)))
        first = running.finish()
    print("brings the third node up", file=sys.stderr, flush=True)
    lengthen_log(nodes, (leader, follower), behind)
    with running_load(load) as running:
        pause_until(time.monotonic() + 2.0)
        quiet(ALONE)
        phases.append(Phase(BROUGHT_UP, *_bring_up(nodes, leader, behind)))
        second = running.finish()
    memory = ", ".join(f"{memory_bytes(pid)[0] / 1e6:,.0f}" for pid in servers.pids)
    return [
        "",
        f"{znodes:,} znodes of {million.VALUE_BYTES} bytes, an open loop of {rate_per_s:,} writes/s",
        "",
        *table(phases, first + second),
        "",
        f"VmHWM per node: {memory} MB",
        f"the leader was node {leader} from the beginning to the end",
    ]


def _bring_up(nodes: QuorateNodes, leader: int, behind: int) -> tuple[float, float]:
    """Start the node that is behind; returns when that was and when it had caught up."""
    begin_s = time.monotonic()
    nodes.start_node(behind)
    nodes.wait_ready(behind, deadline_s=DEADLINE_S)
    end_s = time.monotonic()
    assert counter(nodes, behind, "quorate_snapshots_installed_total") == 1, "it came up by the log alone"
    assert nodes.leader() == leader, "the leader changed meanwhile"
    return begin_s, end_s
