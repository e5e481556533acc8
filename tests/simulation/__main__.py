"""Run seeds: python -m tests.simulation --help.

Prints one line per failing seed with its story, the one command that repeats it and the last lines of its
timeline, and at the end what was run, how fast, and which faults bit. Exits with 1 if a seed failed.
"""

from __future__ import annotations

import argparse
import gc
import logging
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from multiprocessing import get_context
from typing import NamedTuple

from tests.simulation.control_plane import __main__ as control_plane
from tests.simulation.faults import PROFILES
from tests.simulation.world import (
    FULL,
    SHORT,
    Outcome,
    Span,
    World,
    prepare_process,
    run_repeatably,
    run_seed,
)
from tests.support.arguments import at_least_one

#: seeds that one worker process runs before a new one takes its place
SEEDS_PER_PROCESS = 100
FAILURES_SHOWN = 5
#: the profile that is another world: brokers and controllers over a quorum that does not fail
CONTROL_PLANE = "control-plane"


class Job(NamedTuple):
    """A seed to run: what run_seed takes."""

    seed: int
    profile: str
    nodes: int
    span: Span


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--seeds", type=at_least_one, default=100, help="how many seeds (default: 100)")
    which.add_argument("--seed", type=int, help="run this one only")
    parser.add_argument("--first", type=int, default=1, help="the first of --seeds (default: 1)")
    profiles = [*sorted(PROFILES), CONTROL_PLANE]
    parser.add_argument("--profile", choices=profiles, default="mix", help="which faults, or which world")
    parser.add_argument("--short", action="store_true", help="the third of a seed that `make test` runs")
    parser.add_argument("--nodes", type=int, choices=(3, 5), default=3)
    parser.add_argument("--timeline", action="store_true", help="print the timeline of --seed")
    parser.add_argument("--lines", type=at_least_one, default=100, help="how much of it")
    parser.add_argument(
        "--idle",
        type=float,
        metavar="SECONDS",
        help="run a cluster that nobody uses for so long, and its pace",
    )
    parser.add_argument("--workers", type=at_least_one, default=os.cpu_count() or 1)
    # What only the control plane's own command line asks for.
    parser.set_defaults(without=None, record=None)
    arguments = parser.parse_args()
    if arguments.idle is not None and not 0 < arguments.idle < math.inf:
        parser.error(f"--idle is {arguments.idle:g}: give a number of simulated seconds above 0")
    if arguments.timeline and arguments.seed is None:
        parser.error("--timeline is that of one seed: give --seed too")
    return arguments


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    arguments = parse()
    if arguments.profile == CONTROL_PLANE:
        return control_plane.run(arguments)
    span = SHORT if arguments.short else FULL
    logging.disable(logging.CRITICAL)
    begun_s = time.monotonic()
    if arguments.idle is not None:
        idle(arguments.first, arguments.nodes, arguments.idle)
        return 0
    if arguments.seed is not None:
        outcomes = [
            run_seed(
                arguments.seed,
                arguments.profile,
                arguments.nodes,
                span,
                verbose=arguments.timeline,
                lines=arguments.lines,
            )
        ]
        if arguments.timeline or not outcomes[0].ok:
            print("\n".join(outcomes[0].timeline))
        if not outcomes[0].ok:
            print(f"\nseed {arguments.seed} FAILED: {outcomes[0].story}")
    else:
        outcomes = []
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        for outcome in run_all(seeds, arguments.profile, arguments.nodes, arguments.workers, span):
            outcomes.append(outcome)
            if not outcome.ok:
                report(outcome, with_timeline=sum(not each.ok for each in outcomes) <= FAILURES_SHOWN)
    summarise(outcomes, time.monotonic() - begun_s)
    return any(not outcome.ok for outcome in outcomes)


def idle(seed: int, nodes: int, sim_s: float) -> None:
    """Print how quickly time passes in a cluster without clients or faults, on one core."""
    prepare_process()
    gc.disable()
    world = World(seed, "calm", nodes)
    events = -world.scheduler.events
    spent_s = world.idle(sim_s)
    events += world.scheduler.events
    print(
        f"{nodes} idle nodes, {sim_s:g} simulated s in {spent_s:.2f} s: {sim_s / spent_s:.0f} simulated s/s, "
        f"{events / sim_s:.0f} events per simulated s"
    )


def run_all(
    seeds: Iterable[int], profile: str, nodes: int, workers: int, span: Span = FULL
) -> Iterator[Outcome]:
    """Run seeds in processes of their own; yield outcomes as they come."""
    yield from run_jobs((Job(seed, profile, nodes, span) for seed in seeds), workers)


def run_jobs(jobs: Iterable[Job], workers: int) -> Iterator[Outcome]:
    """Run seeds of any profiles in processes of their own; yield outcomes as they come."""
    with ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=prepare_process,
        max_tasks_per_child=SEEDS_PER_PROCESS,
    ) as pool:
        waiting: set[Future[Outcome]] = set()
        for job in jobs:
            waiting.add(pool.submit(run_repeatably, *job))
            if len(waiting) > 2 * workers:
                done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        for future in waiting:
            yield future.result()


def report(outcome: Outcome, *, with_timeline: bool) -> None:
    """Print a failing seed."""
    print(f"\nseed {outcome.seed} FAILED at {outcome.sim_ms / 1000:.4f} s: {outcome.story}")
    if with_timeline:
        print("\n".join(outcome.timeline))
    print(f"repeat with: {outcome.command}\n", flush=True)


def summarise(outcomes: list[Outcome], spent_s: float) -> None:
    """Print what was run and what bit."""
    events = sum(outcome.events for outcome in outcomes)
    sim_s = sum(outcome.sim_ms for outcome in outcomes) / 1000
    bit: Counter[str] = Counter()
    tried: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for outcome in outcomes:
        bit.update(outcome.bit)
        tried.update(outcome.tried)
        counts.update(outcome.counts)
    failed = [outcome.seed for outcome in outcomes if not outcome.ok]
    print(
        f"{len(outcomes)} seeds in {spent_s:.1f} s: {len(outcomes) / spent_s:.2f} seeds/s, "
        f"{events / spent_s:,.0f} events/s, {sim_s / spent_s:,.1f} simulated s/s; "
        f"{sum(outcome.operations for outcome in outcomes):,} client operations, "
        f"{sum(bit.values()):,} faults bit"
    )
    print(
        "faults that bit / were tried: "
        + ", ".join(f"{name} {bit[name]}/{tried[name]}" for name in sorted(tried))
    )
    print("counted: " + ", ".join(f"{name} {counts[name]:,}" for name in sorted(counts)))
    print(f"FAILED: {failed}" if failed else "all held")


if __name__ == "__main__":
    sys.exit(main())
