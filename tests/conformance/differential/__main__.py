"""Compare Quorate with a real ZooKeeper 3.9.5, request by request and event by event.

Exits with 1 if a stream differs in a way that no row of DIVERGENCES.md explains; the first such stream is
made small and printed. With --planted the nodes have a defect, and the run fails if it is not found; with
--require-coverage also if the streams did not reach every answer of every operation often enough.
"""

from __future__ import annotations

import argparse
import contextlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import Final

import uvloop

from tests.conformance.differential.campaign import LANES, Arena, Report, Verdict, run_seeds
from tests.conformance.differential.clusters import quorate, zookeeper
from tests.conformance.differential.coverage import GOAL, PENDING_PER_GOAL
from tests.conformance.differential.link import LostError, Side
from tests.conformance.differential.planted import PLANTED, serving
from tests.conformance.differential.shrink import shrink, tell

PLANTED_STREAMS_MAX = 500
#: so few at a time, so that the number of streams until a defect is found means something
PLANTED_LANES: Final = 8
#: streams between two lines about how far a run is
PROGRESS_EVERY = 500


def at_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is not below some other."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: use a whole number from {least} up")
        return value

    return read


def parse(words: Sequence[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.differential", description=__doc__)
    count = at_least(1)
    parser.add_argument("--streams", type=count, default=200, help="how many streams (default: 200)")
    parser.add_argument("--seed", type=at_least(0), default=1, help="seed of the first stream (default: 1)")
    many = f"streams at a time (default: {LANES}, with --planted {PLANTED_LANES})"
    parser.add_argument("--lanes", type=count, help=many)
    parser.add_argument("--failures", type=count, default=1, help="stop after so many (default: 1)")
    parser.add_argument(
        "--require-coverage",
        type=count,
        nargs="?",
        const=GOAL,
        metavar="TIMES",
        help=f"fail unless every answer came so often (default: {GOAL}), and {PENDING_PER_GOAL} times as "
        "many reconnects with pending writes",
    )
    parser.add_argument("--no-shrink", action="store_true", help="print streams that differ as they are")
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--planted", nargs="+", choices=(*PLANTED, "all"), help="look for defects put in on purpose"
    )
    what.add_argument("--self-check", action="store_true", help="compare ZooKeeper with ZooKeeper")
    arguments = parser.parse_args(words)
    if arguments.planted and arguments.require_coverage:
        parser.error("--require-coverage: a run with --planted ends with the first difference; use it alone")
    arguments.lanes = arguments.lanes or (PLANTED_LANES if arguments.planted else LANES)
    return arguments


async def run(arena: Arena, arguments: argparse.Namespace, report: Report) -> None:
    """Run the streams that the command line asks for; print what differs."""
    failures: list[Verdict] = []
    done = 0

    def judge(verdict: Verdict) -> bool:
        nonlocal done
        done += 1
        if done % PROGRESS_EVERY == 0:
            print(f"{done} streams, {len(failures)} differ", flush=True)
        if verdict.difference is not None:
            failures.append(verdict)
            print(f"stream {verdict.stream.seed} differs:\n{tell(verdict)}", flush=True)
        return bool(len(failures) < arguments.failures)

    seeds = range(arguments.seed, arguments.seed + arguments.streams)
    async with arena.opened():
        await run_seeds(arena, seeds, judge, lanes=arguments.lanes, report=report)
        for verdict in failures:
            print(f"\nstream {verdict.stream.seed} made small; to repeat it:")
            print(f"  python -m tests.conformance.differential --streams 1 --seed {verdict.stream.seed}")
            small = verdict if arguments.no_shrink else await shrink(arena, verdict)
            print(tell(small), flush=True)


async def find(arena: Arena, arguments: argparse.Namespace) -> tuple[str, bool]:
    """Look for a planted defect: a line about what found it, and whether anything did."""
    found: list[Verdict] = []

    def judge(verdict: Verdict) -> bool:
        if verdict.difference is not None:
            found.append(verdict)
        return not found

    seeds = range(arguments.seed, arguments.seed + PLANTED_STREAMS_MAX)
    async with arena.opened():
        report = await run_seeds(arena, seeds, judge, lanes=arguments.lanes)
        if not found:
            return f"NOT FOUND in {report.streams} streams", False
        small = found[0] if arguments.no_shrink else await shrink(arena, found[0])
    where = f"by stream {found[0].stream.seed}, the {report.streams}. that was run"
    return f"found {where}; {len(small.stream.steps)} steps are left of it:\n{tell(small)}", True


def look_for(names: list[str], arguments: argparse.Namespace, theirs: Side) -> int:
    """Look for defects one after the other; prints the table."""
    rows: list[tuple[str, str, bool]] = []
    for name in names:
        with quorate(serving(name)) as ours:
            line, found = uvloop.run(find(Arena(theirs, ours), arguments))
        rows.append((name, line, found))
        print(f"{name}: {line}", flush=True)
    print("\ndefect                       found")
    for name, line, _ in rows:
        print(f"{name:28} {line.splitlines()[0].partition(';')[0]}")
    return not all(found for _, _, found in rows)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    code = 1
    arguments = parse()
    # whoever stops a run gets its report, and no server outlives it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        code = compare(arguments)
    except* LostError as group:
        print(f"error: {group.exceptions[0]}", file=sys.stderr)
    except* KeyboardInterrupt:
        print("error: stopped before all streams were run", file=sys.stderr)
    return code


def compare(arguments: argparse.Namespace) -> int:
    """Start both systems and run; return the exit code."""
    with contextlib.ExitStack() as stack:
        theirs = stack.enter_context(zookeeper())
        if arguments.planted:
            names = list(PLANTED) if "all" in arguments.planted else arguments.planted
            return look_for(names, arguments, theirs)
        ours = stack.enter_context(zookeeper() if arguments.self_check else quorate())
        goal, report = arguments.require_coverage, Report()
        try:
            uvloop.run(run(Arena(theirs, ours), arguments, report))
        finally:
            print(report.summary(goal or GOAL))
    return bool(report.failures or (goal and report.coverage.unmet(goal)))


if __name__ == "__main__":
    sys.exit(main())
