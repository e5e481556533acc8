"""`python -m tests.bench`: the benchmarks that `make bench` runs.

`speed` (the default) compares writes and reads with ZooKeeper 3.9.5 in the same run; `million` loads
1,000,000 znodes, takes a snapshot, restarts all nodes and prints memory and the time to ready; `failover`
measures the pause of writes when a leader goes; `snapshots` what taking and sending snapshots of a million
znodes costs the writes meanwhile. Tables go to the standard output and to bench-results/. Nothing here
asserts a time.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import tempfile
from pathlib import Path

from tests.bench import chart, failover, million, snapshots, speed
from tests.bench.servers import measure_disk, running

RESULTS = Path(__file__).resolve().parents[2] / "bench-results"


def machine(folder: Path) -> list[str]:
    """Lines that say when, where and on what disk a benchmark ran."""
    disk = measure_disk(folder)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"{now} · {os.cpu_count()} cores · Python {platform.python_version()} · {platform.platform()}",
        f"load average at the start: {', '.join(f'{load:.1f}' for load in os.getloadavg())}",
        f"fdatasync of a 4 KB append in {folder}: p50 {disk.p50_ms:.3f} ms, p99 {disk.p99_ms:.3f} ms",
    ]


def write_results(name: str, lines: list[str], picture: str = "") -> None:
    """Print a report and keep it in bench-results/, with the chart beside it if there is one."""
    text = "\n".join(lines) + "\n"
    print(text, flush=True)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}-{dt.datetime.now(dt.UTC):%Y%m%d-%H%M%S}.md"
    path.write_text(text)
    if picture:
        path.with_suffix(".svg").write_text(picture)
    print(f"written to {path}")


def main() -> None:
    """Run the benchmark of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument(
        "benchmark", nargs="?", default="speed", choices=["speed", "million", "failover", "snapshots"]
    )
    parser.add_argument(
        "--systems", default="quorate,zookeeper", help="which servers, quorate first (default: %(default)s)"
    )
    parser.add_argument(
        "--rounds", type=int, help="measured rounds after the warm-up (default: 3; failover: 15)"
    )
    parser.add_argument("--only", default="", help="only cases whose name contains this")
    parser.add_argument("--nodes", type=int, default=1_000_000, help="znodes of `million`, `snapshots`")
    parser.add_argument("--rate", type=int, default=5_000, help="writes per second of `snapshots`")
    parser.add_argument(
        "--quiet", type=float, default=15.0, help="seconds of each quiet phase of `snapshots`"
    )
    parser.add_argument("--folder", type=Path, help="where the servers keep their data (default: temporary)")
    options = parser.parse_args()
    names = options.systems.split(",")
    with tempfile.TemporaryDirectory(prefix="quorate-bench-", dir=options.folder) as folder:
        lines = machine(Path(folder))
        if options.benchmark == "million":
            for name in names:
                lines += million.run(name, Path(folder), options.nodes)
            write_results("million", lines)
            return
        if options.benchmark == "failover":
            lines += failover.run(Path(folder), options.rounds or 15, options.only)
            write_results("failover", lines)
            return
        if options.benchmark == "snapshots":
            lines += snapshots.run(
                Path(folder), options.nodes, options.rate, options.quiet, options.rounds or 3
            )
            write_results("snapshots", lines)
            return
        cases = [case for case in speed.CASES if options.only in case.name]
        rounds = options.rounds or 3
        with running(names, Path(folder)) as systems:
            samples = speed.run_cases(systems, cases, rounds)
            lines += ["", *speed.table(systems, cases, samples)]
            title = f"How many times faster than {systems[-1].name} (medians of {rounds})"
            picture = chart.draw(title, speed.bars(systems, cases, samples)) if len(systems) == 2 else ""
        write_results("speed", lines, picture)


if __name__ == "__main__":
    main()
