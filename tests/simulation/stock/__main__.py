"""`python -m tests.simulation.stock`: does the simulation find the known defects of stock pysyncobj?

For each defect, seeds of its profile are tried until one finds it; the control runs the same seeds on a copy
in which only that defect is mended. `--mended` runs the seeds on a copy in which all of them are mended:
there, nothing at all may be found. Exit code 1 if a defect is not found, or a control finds something.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

from tests.simulation.stock.findings import Finding
from tests.simulation.stock.fixes import FIXES, stock_copy
from tests.simulation.stock.profiles import PROFILES, Profile
from tests.simulation.stock.world import Outcome, run_seed
from tests.support.arguments import at_least_one

ROW = "{:<7} {:<38} {:>10} {:>11} {:>8}  {}"


@dataclass(frozen=True)
class Search:
    """What came of the search for one defect.

    Attributes:
        findings: of the first seed that found it; empty if none did.
        tried: seeds.
        seconds: the time they took.
        control: findings of the defect in the same seeds when it is mended.
    """

    findings: list[Finding]
    tried: int
    seconds: float
    control: list[Finding]


def search(profile: Profile, seeds: range) -> Search:
    """Try seeds until one finds the profile's defect, then run the control."""
    begun = time.perf_counter()
    findings: list[Finding] = []
    tried = 0
    for seed in seeds:
        findings = run_seed(seed, profile, stock_copy()).of(profile.defect)
        tried += 1
        if findings:
            break
    seconds = time.perf_counter() - begun
    control: list[Finding] = []
    for seed in seeds[:tried]:
        control += run_seed(seed, profile, stock_copy(profile.defect)).of(profile.defect)
    return Search(findings, tried, seconds, control)


def print_row(profile: Profile, result: Search) -> None:
    """Print what a search found."""
    rate = f"{result.tried / result.seconds:.1f}"
    first = str(result.findings[0].seed) if result.findings else "none"
    seen = [str(finding) for finding in result.findings] or ["nothing"]
    control = "not found when mended" if not result.control else f"MENDED, BUT: {result.control[0]}"
    print(ROW.format(profile.defect, profile.title, first, result.tried, rate, seen[0]))
    for line in [*seen[1:], control]:
        print(ROW.format("", "", "", "", "", line))
    sys.stdout.flush()


def check_mended(profile: Profile, seeds: range) -> bool:
    """Run seeds on a copy in which all is mended; returns whether nothing was found."""
    begun = time.perf_counter()
    outcomes: list[Outcome] = [run_seed(seed, profile, stock_copy(*FIXES)) for seed in seeds]
    rate = f"{len(outcomes) / (time.perf_counter() - begun):.1f}"
    findings = [finding for outcome in outcomes for finding in outcome.findings]
    first = str(findings[0].seed) if findings else "none"
    seen = str(findings[0]) if findings else "nothing, as it must be"
    print(ROW.format(profile.defect, profile.title, first, len(outcomes), rate, seen), flush=True)
    return not findings


def main() -> int:
    """Run the command line; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.stock", description=__doc__)
    parser.add_argument("--defect", choices=list(PROFILES), action="append", help="only this one; repeatable")
    parser.add_argument(
        "--seeds", type=at_least_one, default=1000, help="at most so many each (default: %(default)s)"
    )
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: %(default)s)")
    parser.add_argument("--mended", action="store_true", help="all defects mended: nothing may be found")
    options = parser.parse_args()
    seeds = range(options.first, options.first + options.seeds)
    print(ROW.format("defect", "faults", "first seed", "seeds tried", "seeds/s", "what was seen"))
    good = True
    for defect in options.defect or list(PROFILES):
        profile = PROFILES[defect]
        if options.mended:
            good = check_mended(profile, seeds) and good
            continue
        result = search(profile, seeds)
        print_row(profile, result)
        good = good and bool(result.findings) and not result.control
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
