"""The simulation finds the known defects of stock pysyncobj, by seeds that random search found.

What is asserted is that a known seed finds its defect by the same check every time, that the same seed finds
nothing of it when that one defect is mended, and that nothing at all is found when all are.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pysyncobj
import pytest

from tests.simulation.stock.findings import Check
from tests.simulation.stock.fixes import FIXES, stock_copy
from tests.simulation.stock.loader import Fix, StockCopy, WrongLibraryError
from tests.simulation.stock.profiles import PROFILES
from tests.simulation.stock.world import run_seed

REPOSITORY = Path(__file__).resolve().parents[2]
#: (defect, a seed that finds it, the checks that do)
KNOWN = [
    ("D1", 1, {Check.COMMITTED_SAME, Check.SUCCESS_TRUE, Check.SUCCESS_KEPT}),
    ("D2", 0, {Check.COMMITTED_STAYS}),
    ("D3", 19, {Check.MATCH_TRUE}),
    ("D5", 10, {Check.RESTART_KEEPS, Check.SUCCESS_KEPT}),
    ("D6", 0, {Check.APPLIED_ONCE}),
    ("D14", 13, {Check.MATCH_TRUE, Check.COMMIT_PROVEN, Check.SUCCESS_TRUE}),
    ("D14", 25, {Check.MATCH_TRUE, Check.COMMIT_PROVEN, Check.SUCCESS_TRUE}),
    ("D15", 2, {Check.RESTART_KEEPS}),
]
TRACES = """
from tests.simulation.stock.fixes import stock_copy
from tests.simulation.stock.profiles import PROFILES
from tests.simulation.stock.world import run_seed
for defect in ("D2", "D3", "D14", "D15"):
    outcome = run_seed(7, PROFILES[defect], stock_copy())
    print(defect, outcome.trace, outcome.events, [str(finding) for finding in outcome.findings])
"""


@pytest.mark.parametrize(("defect", "seed", "checks"), KNOWN)
def test_a_known_seed_finds_its_defect_and_not_when_it_is_mended(
    defect: str, seed: int, checks: set[Check]
) -> None:
    profile = PROFILES[defect]
    outcome = run_seed(seed, profile, stock_copy())
    found = outcome.of(defect)
    assert {finding.check for finding in found} == checks, outcome.findings
    assert all(finding.seed == seed and finding.seen for finding in found)
    assert outcome.bits, "no fault had an effect"

    mended = run_seed(seed, profile, stock_copy(defect))
    assert mended.of(defect) == []
    assert mended.committed > 50, "the control committed too little to mean anything"


@pytest.mark.parametrize("defect", PROFILES)
def test_nothing_is_found_where_everything_is_mended(defect: str) -> None:
    outcome = run_seed(3, PROFILES[defect], stock_copy(*FIXES))
    assert outcome.findings == ()
    assert outcome.committed > 50


def test_a_seed_is_the_same_run_in_every_process() -> None:
    def traces(hash_seed: str) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(REPOSITORY)}
        return subprocess.run(
            [sys.executable, "-c", TRACES], env=environment, check=True, capture_output=True, text=True
        ).stdout

    first = traces("1")
    assert first.count("\n") == 4
    assert traces("2") == first


def test_the_installed_modules_are_not_those_of_the_copy() -> None:
    copy = stock_copy()
    installed = pysyncobj.syncobj
    assert installed is not copy.syncobj
    assert installed.SyncObj is not copy.syncobj.SyncObj
    assert installed.createJournal is not copy.syncobj.createJournal
    assert installed.monotonicTime.__module__ == "pysyncobj.monotonic"
    assert installed.PIPE_NOTIFIER_ENABLED
    assert installed.os is os


def test_a_fix_that_does_not_fit_is_refused() -> None:
    with pytest.raises(WrongLibraryError, match="is not once"):
        StockCopy((Fix("none", (("node", "no such text", ""),)),))
