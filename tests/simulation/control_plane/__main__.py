"""Run seeds of the control plane: python -m tests.simulation.control_plane --help.

Prints each failing seed with its story, the one command that repeats it and the last lines of its timeline,
and at the end what was run and which faults bit. Exits with 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from quorum.platform.recording import Recordings
from tests.simulation.control_plane.fences_off import FENCES
from tests.simulation.control_plane.world import Outcome, run_seed
from tests.simulation.world import prepare_process
from tests.support.arguments import at_least_one

FAILURES_SHOWN = 5
SEEDS_PER_PROCESS = 200


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.control_plane", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=at_least_one, default=100, help="how many seeds (default: 100)")
    which.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--first", type=int, default=1, help="the first of --seeds (default: 1)")
    words = "switch this fence off, and print which of --seeds find that"
    parser.add_argument("--without", choices=FENCES, metavar="FENCE", help=words)
    parser.add_argument("--timeline", action="store_true", help="print the timeline of --seed")
    parser.add_argument("--lines", type=at_least_one, default=80, help="how much of it")
    words = (
        "record what the machines of --seed decide in this folder; tests/support/replaying.py plays it again"
    )
    parser.add_argument("--record", type=Path, metavar="FOLDER", help=words)
    parser.add_argument("--workers", type=at_least_one, default=os.cpu_count() or 1)
    arguments = parser.parse_args()
    if arguments.timeline and arguments.seed is None:
        parser.error("--timeline is that of one seed: give --seed too")
    if arguments.record is not None and arguments.seed is None:
        parser.error("--record is of one seed: give --seed too")
    return arguments


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    return run(parse())


def run(arguments: argparse.Namespace) -> int:
    """Run the seeds that arguments name; return the exit code."""
    prepare_process()
    begun_s = time.monotonic()
    if arguments.without is not None:
        return find(arguments.without, range(arguments.first, arguments.first + arguments.seeds))
    if arguments.seed is not None:
        recordings = None if arguments.record is None else Recordings(arguments.record)
        verbose, lines = arguments.timeline, arguments.lines
        outcome = run_seed(arguments.seed, verbose=verbose, lines=lines, recordings=recordings)
        if arguments.timeline or not outcome.ok:
            print("\n".join(outcome.timeline))
        outcomes = [outcome]
    else:
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        outcomes = []
        for outcome in run_all(seeds, arguments.workers):
            outcomes.append(outcome)
            if not outcome.ok and sum(not each.ok for each in outcomes) <= FAILURES_SHOWN:
                print("\n".join(outcome.timeline))
                print(f"repeat with: {outcome.command}", flush=True)
    for outcome in outcomes:
        if not outcome.ok:
            print(f"seed {outcome.seed} FAILED at {outcome.sim_ms / 1000:.4f} s: {outcome.story}")
    summarise(outcomes, time.monotonic() - begun_s)
    return any(not outcome.ok for outcome in outcomes)


def find(fence: str, seeds: Iterable[int]) -> int:
    """Print the seeds that find a missing fence; return the exit code, 1 if none does."""
    found = 0
    for seed in seeds:
        outcome = run_seed(seed, without=fence)
        if not outcome.ok:
            found += 1
            print(f"seed {seed}: {outcome.story.splitlines()[0]}", flush=True)
    return not found


def run_all(seeds: Sequence[int], workers: int) -> Iterator[Outcome]:
    """Run seeds in processes of their own; yield outcomes in the order of the seeds."""
    # Not by max_tasks_per_child: in Python 3.11 a pool may forget to replace the process that has ended.
    for start in range(0, len(seeds), SEEDS_PER_PROCESS * workers):
        chunk = seeds[start : start + SEEDS_PER_PROCESS * workers]
        spawning = get_context("spawn")
        with ProcessPoolExecutor(workers, mp_context=spawning, initializer=prepare_process) as pool:
            yield from pool.map(run_repeatably, chunk)


def run_repeatably(seed: int) -> Outcome:
    """Run a seed; if it fails, run it again for its timeline, and see that it fails in the same way."""
    outcome = run_seed(seed)
    if outcome.ok:
        outcome.timeline = []
        return outcome
    again = run_seed(seed, verbose=True)
    if (again.trace, again.story) != (outcome.trace, outcome.story):
        again.story = f"NOT REPEATABLE: {outcome.story}\nthe second time: {again.story or 'nothing broke'}"
    return again


def summarise(outcomes: list[Outcome], spent_s: float) -> None:
    """Print what was run and what bit."""
    bit: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        bit.update(outcome.bit)
        counts.update(outcome.counts)
    events = sum(outcome.events for outcome in outcomes)
    failed = [outcome.seed for outcome in outcomes if not outcome.ok]
    print(f"{len(outcomes)} seeds in {spent_s:.1f} s, {events:,} events")
    print("faults that bit: " + ", ".join(f"{name} {count}" for name, count in sorted(bit.items())))
    print("counted: " + ", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())))
    print(f"FAILED: {failed}" if failed else "all held")


if __name__ == "__main__":
    # Under its own name: other processes look its functions up there.
    from tests.simulation.control_plane import __main__ as named

    raise SystemExit(named.main())
