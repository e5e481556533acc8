"""audit counts what was lost, doubled and read, in recorded runs and between topics and committed offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipeline.jobs.audit import audit_topics
from pipeline.jobs.changes import changes_schema
from quorum.cli.main import main
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey, group_offset_path
from tests.pipeline.recorded import SAMPLED, RecordedRun, broken, sound

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
COUNTS = ("produced", "consumed", "waiting", "lost", "reread")


def test_a_recorded_run_is_audited(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedRun(tmp_path / "run", SAMPLED)
    sound(run)
    broken(run)
    run.invoke("q", "produce", "chaos-2", "q/6").unknown("no answer")
    run.invoke("q", "produce", "chaos-2", "q/7").unknown("no answer")
    run.final.append({"key": "chaos-2", "argument": 0, "value": "q/7"})
    run.final.append({"key": "chaos-2", "argument": 1, "value": "q/8"})
    run.close()
    assert main(["pipeline", "audit", str(tmp_path / "run"), "--format", "json"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    # chaos-0 holds q/1 and q/2, of which the first was read; chaos-1 holds q/4 twice and q/3, and lost q/5
    asked = {"acknowledged": 5, "unknown": 2, "stored": 5, "lost": 1, "doubled": 1, "consumed": 1}
    strange = {"acknowledged": 0, "unknown": 0, "stored": 1, "lost": 0, "doubled": 0, "consumed": 0}
    names = {"run": "run", "topic": "chaos"}
    assert rows == [
        {**names, "from_s": None, **strange, "completeness": 0.0},
        {**names, "from_s": 0, **asked, "completeness": 0.2},
    ]


def test_a_sound_run_is_no_finding(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RecordedRun(tmp_path, SAMPLED)
    sound(run)
    run.close()
    assert main(["pipeline", "audit", str(tmp_path)]) == 0
    assert "chaos" in capsys.readouterr().out


def test_topics_are_held_against_committed_offsets(spark: SparkSession) -> None:
    # partition 0: offsets 5 to 14, a record a second; partition 1: 0 to 9; no group has read topic "idle"
    records = [("orders", 0, 5 + n, BEGIN + timedelta(seconds=n)) for n in range(10)]
    records += [("orders", 1, n, BEGIN + timedelta(seconds=n)) for n in range(10)]
    records += [("idle", 0, 0, BEGIN)]
    # at: group, partition, offset (None: removed)
    commits: list[tuple[str, int, int | None]] = [
        ("slow", 0, 3),  # retention went past it: 5 - 3 are lost
        ("slow", 1, 8),
        ("slow", 1, 4),  # went back by 4
        ("a/b", 0, 12),
        ("a/b", 1, 13),  # the log ends at 10: 3 are lost
        ("gone", 0, 9),
        ("gone", 0, None),
    ]
    rows = []
    for zxid, (group, number, offset) in enumerate(commits, 1):
        path = group_offset_path(group, PartitionKey("orders", number))
        after = None if offset is None else OffsetRecord(offset, -1, "", 0).encode()
        when = BEGIN + timedelta(seconds=zxid)
        rows.append((zxid, 0, 1, 1, when, "d" if after is None else "u", path, None, after, 0, 7, 1, "c"))
    answer = audit_topics(
        spark.createDataFrame(records, "topic string, partition int, offset bigint, timestamp timestamp"),
        spark.createDataFrame(rows, changes_schema()),
        5,
    )
    found = {(row.group, _second(row)): _counts(row) for row in answer.collect()}
    assert found == {
        ("slow", None): (0, 0, 0, 2, 0),
        ("slow", 0): (10, 4, 6, 0, 4),
        ("slow", 5): (10, 0, 10, 0, 0),
        ("a/b", None): (0, 0, 0, 3, 0),
        ("a/b", 0): (10, 10, 0, 0, 0),
        ("a/b", 5): (10, 7, 3, 0, 0),
    }


def _second(row: Row) -> int | None:
    if row.from_ts is None:
        return None
    seconds: int = row.from_ts.replace(tzinfo=None).second
    return seconds


def _counts(row: Row) -> tuple[Any, ...]:
    values: Mapping[str, Any] = row.asDict()
    return tuple(values[name] for name in COUNTS)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--bootstrap"),
        (["x", "--bootstrap", "127.0.0.1:9092"], "--bootstrap"),
        (["x", "--bucket", "0"], "--bucket"),
        (["x", "--follow"], "--follow"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "audit", *words]) == 2
    assert says in capsys.readouterr().err
