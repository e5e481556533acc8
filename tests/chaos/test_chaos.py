"""Short runs of chaos, over the quorum and over brokers with TLS, SASL and access lists."""

from __future__ import annotations

import json
from dataclasses import replace
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
            40,
            ["registers", "records", "states"],
            ["broker-from-quorum", "kill-controller", "isolate-broker", "renew-certificate"],
            id="secured-brokers",
        ),
    ],
)
def test_nothing_is_wrong_under_chaos(
    tmp_path: Path, seconds: float, workloads: list[str], nemeses: list[str]
) -> None:
    plan = Plan(seconds, SEED, workloads, nemeses, results=tmp_path)
    report = run(replace(plan, is_secured="renew-certificate" in nemeses))
    assert not report.failed, summary(report)
    assert report.operations["ok"] > 1000
    assert (report.folder / "timeline.html").stat().st_size > 10_000
    written = json.loads((report.folder / "verdicts.json").read_text())
    assert [each["check"] for each in written["checks"]] == [each.check for each in report.verdicts]
    assert not written["failed"]
