"""A short run of chaos over the quorum and one over brokers, with verdicts that must be right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos.report import summary
from tests.chaos.run import Plan, run

#: Chosen so that the seconds suffice for every nemesis of a run.
SEED = 20_261


@pytest.mark.parametrize(
    ("seconds", "workloads", "nemeses"),
    [
        pytest.param(
            25,
            ["registers", "appends", "bank", "locks", "watches", "epochs"],
            ["isolate-leader", "kill-leader", "one-direction", "pause-leader"],
            id="quorum",
        ),
        pytest.param(
            35,
            ["registers", "records", "states"],
            ["broker-from-quorum", "kill-controller", "isolate-broker"],
            id="brokers",
        ),
    ],
)
def test_nothing_is_wrong_under_chaos(
    tmp_path: Path, seconds: float, workloads: list[str], nemeses: list[str]
) -> None:
    report = run(Plan(seconds, SEED, workloads, nemeses, results=tmp_path))
    assert not report.failed, summary(report)
    assert report.operations["ok"] > 1000
    assert (report.folder / "timeline.html").stat().st_size > 10_000
