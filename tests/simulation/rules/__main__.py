"""Are our own rules found when they are switched off? python -m tests.simulation.rules --help.

Seeds of the ordinary mix, or of the profile that a rule names, are run with one rule switched off until one
fails that passes with the rule on. A guard, whose lack alone is no harm, is tried alone with a few seeds, and
then beside the rule that it guards.
Exits with 1 if a rule that is no guard is not found.
"""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from multiprocessing import get_context

from tests.simulation.rules.catalogue import AREA_OF, AREAS, RULES, changes_of
from tests.simulation.rules.edits import made
from tests.simulation.rules.page import PAGE, WITHIN, read_tables, within_of
from tests.simulation.rules.rule import Rule
from tests.simulation.rules.search import Finding, Hunt, hunt_for
from tests.support.arguments import at_least_one

#: seeds that a worker runs at a time; with one rule after the other, so that easy ones are known soon
CHUNK = 5
#: a guard is tried alone with so many
ALONE = 50
CHUNKS_PER_PROCESS = 12
ROW = "{:<44} {:<12} {:>6} {:>6}  {:<16} {}"


@dataclass
class Search:
    """The search for one rule, alone or beside the one that it guards."""

    rule: Rule
    beside: bool
    seeds: range
    tried: int = 0
    finding: Finding | None = None
    spoilt: list[int] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether it has found something, or has run all its seeds."""
        return self.finding is not None or self.tried >= len(self.seeds)

    @property
    def failed(self) -> bool:
        """Whether it proves less than it should."""
        if self.rule.guard and not self.beside:
            return False
        return self.finding is None

    def next_seeds(self) -> range:
        """Return the seeds that come next."""
        return self.seeds[self.tried : self.tried + CHUNK]

    def take(self, result: Hunt) -> None:
        """Add what came of some seeds."""
        self.tried += result.tried
        self.finding = result.finding
        self.spoilt += result.spoilt

    @property
    def name(self) -> str:
        """What is switched off."""
        if not self.rule.guard:
            return self.rule.name
        return f"{self.rule.name} + {self.rule.beside}" if self.beside else f"{self.rule.name} (guard, alone)"

    def cells(self) -> str:
        """Say it as docs/internals/simulation.md does."""
        rule, finding = self.rule, self.finding
        within, by = (within_of(self.tried), finding.by) if finding else ("none", "nobody")
        return f"| {self.name} | {rule.source} | {rule.profile} | {within} | {by} |"

    def row(self) -> str:
        """Say it in a line."""
        rule, finding, name = self.rule, self.finding, self.name
        seed = str(finding.seed) if finding else "none"
        by, story = (finding.by, finding.story) if finding else ("-", "nothing")
        row = ROW.format(name, AREA_OF[rule.name], seed, self.tried, by, story[:150])
        return f"{row} [fails with it on: {self.spoilt}]" if self.spoilt else row


def searches_of(rules: Iterable[Rule], first: int, count: int) -> Iterator[Search]:
    """Return what has to be searched for."""
    for rule in rules:
        seeds = range(first, first + (min(count, ALONE) if rule.guard else count))
        yield Search(rule, beside=False, seeds=seeds)
        if rule.beside:
            yield Search(rule, beside=True, seeds=range(first, first + count))


def searches_of_page(rules: Iterable[Rule]) -> Iterator[Search]:
    """Return the searches of docs/internals/simulation.md, each with as many seeds as its row allows."""
    named = {rule.name for rule in rules}
    for row in read_tables(PAGE.read_text())[0]:
        if row.name in named:
            yield Search(RULES[row.name], beside=bool(row.beside), seeds=range(1, int(row.within) + 1))


def run(searches: Iterable[Search], workers: int) -> Iterator[Search]:
    """Carry searches out in processes of their own; yields each when it is over."""
    waiting = deque(searches)
    with ProcessPoolExecutor(
        workers,
        mp_context=get_context("spawn"),
        initializer=logging.disable,
        initargs=(logging.CRITICAL,),
        max_tasks_per_child=CHUNKS_PER_PROCESS,
    ) as pool:
        running: dict[Future[Hunt], Search] = {}
        while waiting or running:
            while waiting and len(running) <= workers:
                search = waiting.popleft()
                task = pool.submit(hunt_for, search.rule.name, search.next_seeds(), beside=search.beside)
                running[task] = search
            for task in wait(running, return_when=FIRST_COMPLETED).done:
                search = running.pop(task)
                search.take(task.result())
                if search.over:
                    yield search
                else:
                    waiting.append(search)


def main() -> int:
    """Run what the command line asks for; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.rules", description=__doc__)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rule", choices=sorted(RULES), metavar="NAME", action="append", help="only this one")
    which.add_argument("--area", choices=sorted(AREAS), action="append", help="only the rules of this area")
    parser.add_argument(
        "--seeds", type=at_least_one, default=WITHIN[-1], help="at most so many each (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=1, help="the first seed (default: %(default)s)")
    parser.add_argument("--workers", type=at_least_one, default=2)
    parser.add_argument(
        "--markdown", action="store_true", help="print the rows of docs/internals/simulation.md at the end"
    )
    parser.add_argument("--page", action="store_true", help="run as many seeds as the page allows each rule")
    parser.add_argument("--list", action="store_true", help="print the rules, and what is changed")
    arguments = parser.parse_args()
    rules = [rule for area, rules in AREAS.items() for rule in rules if area in (arguments.area or AREAS)]
    if arguments.rule:
        rules = [RULES[name] for name in arguments.rule]
    if arguments.list:
        print("\n\n".join(map(describe, rules)))
        return 0
    for rule in rules:
        # Loudly, before anything is run: an edit that fits no more.
        with made(changes_of(rule)):
            pass
    logging.disable(logging.CRITICAL)
    begun_s = time.monotonic()
    print(ROW.format("switched off", "area", "seed", "tried", "found by", "its story"), flush=True)
    wanted = searches_of(rules, arguments.first, arguments.seeds)
    if arguments.page:
        wanted = searches_of_page(rules)
    searches = []
    for search in run(wanted, arguments.workers):
        searches.append(search)
        print(search.row(), flush=True)
    if arguments.markdown:
        shown = [each for each in searches if each.beside or not each.rule.guard]
        shown.sort(key=lambda each: list(RULES).index(each.rule.name))
        print(
            *(each.cells() for each in shown),
            sep="\n",
        )
    missed = [search.rule.name for search in searches if search.failed]
    found = sum(search.finding is not None for search in searches)
    seeds = sum(search.tried for search in searches)
    print(f"{len(rules)} rules, {found} of {len(searches)} searches found something")
    print(f"{seeds} seeds in {time.monotonic() - begun_s:.0f} s")
    print(f"NOT FOUND: {', '.join(missed)}" if missed else "every rule that is no guard was found")
    return bool(missed)


def describe(rule: Rule) -> str:
    """Return what a rule says and what switches it off."""
    lines = [f"{rule.name} ({AREA_OF[rule.name]}; {rule.source})", f"    {rule.says}"]
    if rule.guard:
        lines.append(f"    guard: {rule.guard}" + (f"; searched beside {rule.beside}" * bool(rule.beside)))
    lines += [f"    {change.target}" for change in rule.changes]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
