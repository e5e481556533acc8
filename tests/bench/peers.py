"""Quorate beside ZooKeeper and etcd in one run: the cases of the performance page over the raw protocols.

All systems run at the same time and take turns: round by round, case by case, each round beginning with
another system, so that a disturbance of the machine meets all of them. What wants a million nodes runs after
that, one system at a time. Prints what it does; a table, every round's values and a chart are the result. No
time is asserted. Source: docs/internals/benchmarks.md.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from tests.bench import residence
from tests.bench.cases import FULL, Case, Measured, Row, Sizes, Subject
from tests.bench.chart import draw
from tests.bench.expiry import EXPIRIES
from tests.bench.gaps import GAPS
from tests.bench.report import bars, rounds_table, table, value_text
from tests.bench.servers import running
from tests.bench.states import STATES
from tests.bench.throughput import MULTIS, READS, WRITES
from tests.bench.watchers import WATCHERS
from tests.support.wire_load import LoadInterruptedError

#: {name on the command line: cases}, in the order of the table; leaders go last, as what follows is disturbed
CASES: dict[str, list[Case]] = {
    "write": WRITES,
    "read": READS,
    "multi": MULTIS,
    "states": STATES,
    "watchers": WATCHERS,
    "expiry": EXPIRIES,
    "leader": GAPS,
}
#: the group that takes a quarter of an hour by itself
MILLION = "million"
GROUPS = (*CASES, MILLION)
PEERS = ("zookeeper", "etcd")
OWN = "quorate"

System = TypeVar("System")
#: {(name of the row, name of the system): one value per round}
Samples = dict[tuple[str, str], list[float]]


def chosen(text: str, known: Sequence[str], what: str) -> list[str]:
    """Split a comma-separated list of names.

    Args:
        text: as on the command line.
        known: the names that there are; the result has their order.
        what: the kind of thing, in the singular.

    Raises:
        ValueError: a name is unknown or given twice, or there is none; names the remedy.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    choices = f"choose from {', '.join(known)}"
    if not names:
        raise ValueError(f"no {what} is named: {choices}")
    for name in names:
        if name not in known:
            raise ValueError(f"unknown {what} {name!r}: {choices}")
        if names.count(name) > 1:
            raise ValueError(f"{what} {name!r} is named twice: name it once")
    return [name for name in known if name in names]


def in_turn(systems: Sequence[System], turn: int) -> list[System]:
    """The systems of a round, each round beginning with the next one."""
    first = turn % len(systems)
    return [*systems[first:], *systems[:first]]


def measure(
    subjects: Sequence[Subject], cases: Sequence[Case], rounds: int, into: Samples, *, warm_up: bool = True
) -> None:
    """Warm up, then run all cases round by round, the systems taking turns.

    Args:
        subjects: the systems.
        cases: what is measured.
        rounds: how often.
        into: gets one value per round for each row and system.
        warm_up: whether a round that does not count goes before them.
    """
    for turn in range(0 if warm_up else 1, rounds + 1):
        for case in cases:
            if turn == 0 and not case.warmed:
                continue
            for subject in in_turn(subjects, turn):
                taken = measured_once(case, subject)
                name = subject.servers.name
                tell(f"round {turn} of {rounds}" if turn else "warm-up", name, case.rows, taken)
                for row, value in taken.items() if turn else ():
                    into.setdefault((row, name), []).append(value)


def measured_once(case: Case, subject: Subject) -> Measured:
    """Measure a case; begin it anew, once, if a server ended it, and keep why.

    On a machine that is busy with other things a leader may change in the middle of a load, and a load knows
    only its one server. A wrong reply or value is never tried again.
    """
    try:
        return case.measure(subject)
    except (OSError, LoadInterruptedError) as error:
        said = str(error).strip().splitlines() or [type(error).__name__]
        subject.broken.append(f"{case.rows[0].name}: {said[-1]}")
        print(f"{subject.servers.name}, begun anew: {subject.broken[-1]}", file=sys.stderr, flush=True)
        subject.servers.settle()
        return case.measure(subject)


def tell(when: str, name: str, rows: Sequence[Row], taken: Measured) -> None:
    """Print what was just measured."""
    values = [f"{row.name}: {value_text(taken[row.name], row.unit)}" for row in rows if row.name in taken]
    print(f"{when}, {name}: {'; '.join(values)}", file=sys.stderr, flush=True)


def run(
    folder: Path,
    groups: Sequence[str],
    peers: Sequence[str],
    rounds: int,
    sizes: Sizes = FULL,
    *,
    warm_up: bool = True,
) -> tuple[list[str], str]:
    """Run the groups of cases; returns the lines of the report and its chart.

    Args:
        folder: where the servers keep their data.
        groups: keys of CASES, and MILLION.
        peers: systems beside Quorate, of PEERS.
        rounds: measured rounds.
        sizes: how much the cases do.
        warm_up: whether a round that does not count goes before them.
    """
    begun_s = time.monotonic()
    kinds = [OWN, *peers]
    cases = [case for group in groups if group != MILLION for case in CASES[group]]
    rows = [row for case in cases for row in case.rows]
    samples: Samples = {}
    names: list[str] = []
    broken: list[str] = []
    plan = f"cases: {', '.join(groups)}; systems: {', '.join(kinds)}; rounds after a warm-up: {rounds}"
    print(plan, file=sys.stderr, flush=True)
    if cases:
        with running(kinds, folder) as systems:
            names = [servers.name for servers in systems]
            try:
                subjects = [Subject(servers, sizes) for servers in systems]
                measure(subjects, cases, rounds, samples, warm_up=warm_up)
            except BaseException:
                print("ended early; until then:", *rounds_table(rows, names, samples), sep="\n", flush=True)
                raise
            broken = [f"- {one.servers.name}: {what}" for one in subjects for what in one.broken]
    if MILLION in groups:
        rows += residence.ROWS
        found = [residence.measure(kind, folder, sizes.nodes) for kind in kinds]
        names = [name for name, _ in found]
        samples |= {(row, name): [value] for name, taken in found for row, value in taken.items()}
    minutes = (time.monotonic() - begun_s) / 60
    rows = [row for row in rows if any((row.name, name) in samples for name in names)]
    times = f"{rounds} round{'s' if rounds > 1 else ''}" if cases else "one time"
    once = "; what needs 1,000,000 nodes was done once" if cases and MILLION in groups else ""
    better = "the better of " + " and ".join(names[1:]) if len(names) > 2 else names[1]
    lines = ["", f"Medians of {times}{once}; {minutes:.0f} minutes.", ""]
    lines += table(rows, names, samples)
    lines += ["", "Every round:", "", *rounds_table(rows, names, samples)]
    if broken:
        lines += ["", "Measurements that were begun anew, because they had ended with an error:", "", *broken]
    return lines, draw(f"How many times better than {better}", bars(rows, names, samples))
