"""Speed of writes and reads: Quorate beside ZooKeeper in the same run, alternating, the median of the rounds.

Each case runs once on a connection to the leader and once on a connection to a follower, which are reported
apart. Every written path of the main case is read back from all three servers and its value compared. Times
are printed and never asserted. Knows the systems only through their client ports and /proc. Source:
docs/internals/benchmarks.md.
"""

from __future__ import annotations

import itertools
import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.bench.chart import Bar
from tests.bench.machine import cpu_seconds
from tests.bench.servers import Servers
from tests.support.wire_load import (
    CREATE,
    Connection,
    Job,
    LoadError,
    Outcome,
    create_body,
    frame,
    node_path,
    run_jobs,
    value_of,
)

LEADER, FOLLOWER = "leader", "follower"


@dataclass(frozen=True)
class Sample:
    """One measurement of one case on one system."""

    rate_per_s: float
    p50_ms: float
    cpu_s_per_1000: float
    syncs_per_1000: float | None


@dataclass(frozen=True)
class Case:
    """What is measured: how the folder is prepared, which jobs run at once, what is checked afterwards."""

    name: str
    unit: str  # "/s" or "ms"
    jobs: Callable[[str, str, int], list[Job]]  # (host, folder, seed)
    prepared_nodes: int = 0
    placements: tuple[str, ...] = (LEADER, FOLLOWER)
    verified: bool = False


def _one(kind: str, count: int, window: int) -> Callable[[str, str, int], list[Job]]:
    return lambda host, folder, seed: [Job(host, kind, folder, count, window, seed=seed)]


def _eight(kind: str, count: int) -> Callable[[str, str, int], list[Job]]:
    def jobs(hosts: str, folder: str, seed: int) -> list[Job]:
        places = hosts.split(",")
        return [
            Job(places[number % len(places)], kind, folder, count, 64, seed=seed, first=number * count)
            for number in range(8)
        ]

    return jobs


CASES = [
    Case("create 10,000 paths, 64 in flight", "/s", _one("create", 10000, 64), verified=True),
    Case("set 10,000 paths, 64 in flight", "/s", _one("set", 10000, 64), prepared_nodes=10000, verified=True),
    Case("multi(check, setData), 10 in flight", "/s", _one("fenced", 5000, 10), prepared_nodes=1000),
    Case("one client, synchronous writes", "ms", _one("sync_write", 1000, 1), prepared_nodes=1000),
    Case("one client, synchronous reads", "ms", _one("sync_read", 2000, 1), prepared_nodes=2000),
    Case("read 10,000 paths, 64 in flight", "/s", _one("read", 10000, 64), prepared_nodes=10000),
    Case("8 processes × 64 writes, all servers", "/s", _eight("create", 5000), placements=("all",)),
]


def prepare_folder(servers: Servers, folder: str, nodes: int) -> None:
    """Create a folder, its fence and as many nodes as the case works on."""
    with Connection(servers.hosts[servers.leader()]) as connection:
        connection.ensure(folder)
        connection.ensure(f"{folder}/fence")
        frames = [
            frame(number, CREATE, create_body(node_path(folder, number - 1), value_of(0, number - 1, 100)))
            for number in range(1, nodes + 1)
        ]
        if frames:
            connection.pipelined(frames, 256)


def verify_everywhere(servers: Servers, jobs: Sequence[Job]) -> None:
    """Read every path of the jobs from every server and compare the values."""
    for host in servers.hosts:
        with Connection(host) as connection:
            connection.sync()
        for job in jobs:
            reading = Job(
                host, "read_verify", job.folder, job.count, 64, job.value_bytes, job.seed, job.first
            )
            outcome = run_jobs([reading])[0]
            if outcome.count != job.count:
                raise LoadError(f"{host}: {outcome.count} of {job.count} paths read")


def host_for(servers: Servers, placement: str) -> str:
    """Address that a placement means now."""
    leader = servers.leader()
    if placement == LEADER:
        return servers.hosts[leader]
    if placement == FOLLOWER:
        return servers.hosts[(leader + 1) % len(servers.hosts)]
    return ",".join(servers.hosts)


def measure(servers: Servers, case: Case, placement: str, folder: str, seed: int) -> Sample:
    """Run one case once."""
    prepare_folder(servers, folder, case.prepared_nodes)
    jobs = case.jobs(host_for(servers, placement), folder, seed)
    syncs_before, cpu_before = servers.sync_counts(), cpu_seconds(servers.pids)
    outcomes: list[Outcome] = run_jobs(jobs)
    cpu, syncs_after = cpu_seconds(servers.pids) - cpu_before, servers.sync_counts()
    if case.verified:
        verify_everywhere(servers, jobs)
    count = sum(outcome.count for outcome in outcomes)
    syncs = None
    if syncs_before is not None and syncs_after is not None:
        syncs = (sum(syncs_after) - sum(syncs_before)) * 1000.0 / count
    return Sample(
        count / max(outcome.elapsed_s for outcome in outcomes),
        statistics.median(outcome.p50_ms for outcome in outcomes),
        cpu * 1000.0 / count,
        syncs,
    )


def run_cases(
    systems: Sequence[Servers], cases: Sequence[Case], rounds: int
) -> dict[tuple[str, str, str], list[Sample]]:
    """Warm each system up, then run all cases round by round, the systems alternating.

    Returns:
        {(case name, placement, system name): one sample per round}.
    """
    numbers = itertools.count(1)
    samples: dict[tuple[str, str, str], list[Sample]] = {}
    for turn in range(rounds + 1):
        for case in cases:
            for placement in case.placements:
                for servers in systems if turn % 2 else reversed(systems):
                    number = next(numbers)
                    sample = measure(servers, case, placement, f"/bench-{number:05d}", number)
                    if turn:  # the first turn warms up
                        samples.setdefault((case.name, placement, servers.name), []).append(sample)
                    print(
                        f"{'round ' + str(turn) if turn else 'warm-up'}: {case.name}, {placement}, "
                        f"{servers.name}: {sample.rate_per_s:,.0f}/s {sample.p50_ms:.3f} ms",
                        file=sys.stderr,
                        flush=True,
                    )
    return samples


def median_of(case: Case, taken: Sequence[Sample]) -> float:
    """Median over the rounds of what a case is about: its p50 in milliseconds, or its rate per second."""
    return statistics.median(one.p50_ms if case.unit == "ms" else one.rate_per_s for one in taken)


def bars(
    systems: Sequence[Servers], cases: Sequence[Case], samples: dict[tuple[str, str, str], list[Sample]]
) -> list[Bar]:
    """How many times faster the first system is than the second, case by case."""
    found = []
    for case in cases:
        for placement in case.placements:
            own, peer = (median_of(case, samples[case.name, placement, one.name]) for one in systems)
            found.append(Bar(f"{case.name}, {placement}", peer / own if case.unit == "ms" else own / peer))
    return found


def table(
    systems: Sequence[Servers], cases: Sequence[Case], samples: dict[tuple[str, str, str], list[Sample]]
) -> list[str]:
    """Rows of a Markdown table: medians per system, and Quorate's ratio to the peer."""
    names = [servers.name for servers in systems]
    header = ["case", "placed on", *names, *([f"{names[0]} / {names[1]}"] if len(names) == 2 else [])]
    header += [f"CPU s per 1,000, {name}" for name in names]
    header += [f"fdatasyncs per 1,000, {name}" for name in names]
    rows = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    for case in cases:
        for placement in case.placements:
            medians: list[float] = []
            cells: list[str] = []
            costs: list[str] = []
            syncs: list[str] = []
            for name in names:
                taken = samples[case.name, placement, name]
                medians.append(median_of(case, taken))
                cells.append(f"{medians[-1]:.3f} ms" if case.unit == "ms" else f"{medians[-1]:,.0f}/s")
                costs.append(f"{statistics.median(one.cpu_s_per_1000 for one in taken):.3f}")
                counted = [one.syncs_per_1000 for one in taken if one.syncs_per_1000 is not None]
                syncs.append(f"{statistics.median(counted):.0f}" if counted else "–")
            if len(medians) == 2:
                cells.append(f"{medians[0] / medians[1]:.2f}×")
            rows.append("| " + " | ".join([case.name, placement, *cells, *costs, *syncs]) + " |")
    return rows
