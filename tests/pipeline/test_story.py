"""The whole story: a cluster under chaos; its change log and histories go through Spark, beside plain Python.

Before the cluster ends, Spark reads the change log and the topics from it. What the jobs answer equals a walk
over the rows and the run's own checkers; nothing is found, until a violation is planted.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

from pipeline.checks.history import OK, read_history, read_lines
from pipeline.checks.verdicts import BAD
from pipeline.jobs import controller_timeline, elections, flapping, invariants, isr_history, leader_at
from pipeline.jobs.audit import audit_runs
from pipeline.jobs.changes import changes_schema
from pipeline.jobs.histories import read_runs
from pipeline.jobs.history_check import compute
from quorum.cli.main import main
from tests.chaos.cluster import ChaosCluster
from tests.chaos.report import summary
from tests.chaos.run import Plan, Report, run
from tests.chaos.workloads import WORKLOADS
from tests.chaos.workloads.records import TOPIC, Records
from tests.pipeline import oracle
from tests.pipeline.histories import Change

SEED = 20_262


@dataclass
class Told:
    """What a run left behind."""

    report: Report
    #: the change log as Spark read it from the nodes, and the exit code of the audit of the live topics
    rows: list[Change] = field(default_factory=list)
    live_audit: int = -1


@pytest.fixture(
    scope="module",
    params=[
        pytest.param((8, ["registers", "records", "states"], ["kill-controller"]), id="short"),
        pytest.param(
            (
                60,
                ["registers", "appends", "records", "states", "groups"],
                ["kill-controller", "kill-broker", "pause-controller", "isolate-broker", "kill-leader"],
            ),
            id="minute",
            marks=pytest.mark.long,
        ),
    ],
)
def told(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Told]:
    """A run of chaos, read by Spark before its cluster ends."""
    seconds, workloads, nemeses = request.param
    rows: list[Change] = []
    codes: list[int] = []

    def read(cluster: ChaosCluster) -> None:
        urls = ",".join(cluster.nodes.admin_url(each) for each in cluster.node_ids)
        changes = spark.read.format("quorate-changelog").option("quorate.admin", urls).load()
        rows.extend(Change(*row) for row in changes.orderBy("zxid", "txn_index").collect())
        words = ["--bootstrap", cluster.bootstrap, "--admin", urls, "--topics", TOPIC]
        codes.append(main(["pipeline", "audit", *words]))

    class Observed(Records):
        async def final_state(self) -> Iterable[dict[str, Any]]:
            await asyncio.to_thread(read, self.cluster)
            return await super().final_state()

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(WORKLOADS, "records", Observed)
        results = tmp_path_factory.mktemp("story")
        report = run(Plan(seconds, SEED, workloads, nemeses, results=results))
        yield Told(report, rows, codes[0])


@pytest.fixture(scope="module")
def changes(spark: SparkSession, told: Told) -> Iterator[DataFrame]:
    """The change log of the run."""
    cached = spark.createDataFrame(told.rows, changes_schema()).coalesce(1).cache()
    yield cached
    cached.unpersist()


def test_nothing_was_wrong_under_chaos(told: Told) -> None:
    assert not told.report.failed, summary(told.report)
    assert told.live_audit == 0


def test_jobs_over_the_change_log_equal_a_walk_over_it(changes: DataFrame, told: Told) -> None:
    rows = told.rows
    assert len(rows) > 100
    assert sorted(_tuples(isr_history.compute(changes))) == oracle.isr_history(rows)
    assert _tuples(elections.each_election(changes).drop("ts")) == oracle.elections(rows)
    timeline = controller_timeline.compute(changes).drop("from_ts", "until_ts")
    assert _tuples(timeline) == oracle.controller_timeline(rows)
    assert timeline.count() > 1, "a controller was killed"
    assert _tuples(flapping.compute(changes)) == oracle.flapping(rows)
    at = rows[len(rows) // 2].zxid
    answer = _tuples(leader_at.compute(changes, at).drop("zxid", "ts"))
    assert sorted(map(str, answer)) == sorted(map(str, oracle.cluster_at(rows, at)))


def _tuples(answer: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in answer.collect()]


def test_the_change_log_breaks_no_invariant_until_one_is_planted(
    spark: SparkSession, changes: DataFrame, told: Told
) -> None:
    assert invariants.compute(changes).collect() == []
    at, state = next(
        (at, row)
        for at, row in enumerate(told.rows)
        if row.path.endswith("/state") and row.after and json.loads(row.after)["leader"] > 0
    )
    value = json.loads(state.after or b"")
    value["isr"] = [each for each in (1, 2, 3) if each != value["leader"]]
    planted = list(told.rows)
    planted[at] = state._replace(after=json.dumps(value).encode())
    found = invariants.compute(spark.createDataFrame(planted, changes_schema())).collect()
    assert state.zxid in {row.zxid for row in found}


def test_histories_are_judged_as_by_the_run_itself(spark: SparkSession, told: Told) -> None:
    rows = compute(read_runs(spark, [told.report.folder])).collect()
    judged: Counter[str] = Counter()
    for row in rows:
        judged[row.check] += row.judged
    assert judged == Counter({each.check: each.judged for each in told.report.verdicts if each.judged})
    assert {row.verdict for row in rows} == {OK}


def test_the_audit_counts_what_producers_and_readers_wrote_down(spark: SparkSession, told: Told) -> None:
    totals = _totals(audit_runs(read_runs(spark, [told.report.folder]), 5).collect())
    operations = read_history(told.report.folder / "history")
    final = list(read_lines(told.report.folder / "final.jsonl"))
    stored = [line for line in final if line["key"].startswith(f"{TOPIC}-") and "value" in line]
    acknowledged = sum(each.operation == "produce" and each.outcome == OK for each in operations)
    expected = {"acknowledged": acknowledged, "stored": len(stored), "lost": 0, "doubled": 0}
    assert {name: totals[name] for name in expected} == expected
    assert totals["consumed"] > 0


def _totals(rows: Iterable[Row]) -> dict[str, int]:
    totals: dict[str, int] = defaultdict(int)
    for row in rows:
        for name in ("acknowledged", "stored", "lost", "doubled", "consumed"):
            totals[name] += row[name]
    return totals


def test_a_planted_loss_and_a_planted_stale_read_are_found(
    spark: SparkSession, told: Told, tmp_path: Path
) -> None:
    folder = tmp_path / "planted"
    shutil.copytree(told.report.folder, folder)
    final = (folder / "final.jsonl").read_text().splitlines(keepends=True)
    place = next(at for at, line in enumerate(final) if json.loads(line)["key"].startswith(f"{TOPIC}-"))
    gone = json.loads(final.pop(place))
    (folder / "final.jsonl").write_text("".join(final))
    _make_stale(folder / "history" / "registers-1.jsonl")
    rows = read_runs(spark, [folder])
    bad = {(row.check, row.key) for row in compute(rows).collect() if row.verdict == BAD}
    assert ("records exactly once", gone["key"]) in bad
    assert "linearizable registers" in {check for check, _ in bad}
    assert _totals(audit_runs(rows, 5).collect())["lost"] == 1


def _make_stale(path: Path) -> None:
    """Let the last read of a process show what the register was at the very beginning."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    last = max(at for at, line in enumerate(lines) if line["operation"] == "read" and line["type"] == OK)
    assert lines[last]["result"][0] > 0
    lines[last]["result"] = [0, "first"]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
