"""The jobs over the change log answer what a walk over the rows answers."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from pipeline.jobs import controller_timeline, elections, flapping, invariants, isr_history, leader_at
from pipeline.jobs.changes import changes_schema
from tests.pipeline import oracle
from tests.pipeline.histories import Change, beginning_with_tree, history

WHOLE = history(16)
#: The others begin in the middle: without and with the tree as it was then.
HISTORIES = {"whole": WHOLE, "cut": WHOLE[60:], "tree": beginning_with_tree(WHOLE, 50)}


def frame(spark: SparkSession, rows: Sequence[Change]) -> DataFrame:
    shuffled = list(rows)
    random.Random(0).shuffle(shuffled)
    return spark.createDataFrame(shuffled, changes_schema())


@pytest.fixture(scope="module", params=HISTORIES)
def rows(request: pytest.FixtureRequest) -> Sequence[Change]:
    return HISTORIES[request.param]


@pytest.fixture(scope="module")
def changes(spark: SparkSession, rows: Sequence[Change]) -> Iterator[DataFrame]:
    cached = frame(spark, rows).coalesce(1).cache()
    yield cached
    cached.unpersist()


def test_isr_history_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    answer = [tuple(row) for row in isr_history.compute(changes).collect()]
    assert sorted(answer) == oracle.isr_history(rows)
    assert answer[0][2] > 0 and max(row[4] for row in answer) > 1


def test_each_election_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    answer = elections.each_election(changes).drop("ts").collect()
    assert [tuple(row) for row in answer] == oracle.elections(rows)
    assert {row.is_unclean for row in answer} == {True, False}
    assert any(row.latency_ms is None for row in answer) and any(row.is_approximate for row in answer)


def test_elections_summary_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    answer = [
        tuple(round(value, 6) if isinstance(value, float) else value for value in row)
        for row in elections.compute(changes).collect()
    ]
    assert answer == oracle.election_summary(rows)


def test_controller_timeline_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    answer = controller_timeline.compute(changes).drop("from_ts", "until_ts").collect()
    assert [tuple(row) for row in answer] == oracle.controller_timeline(rows)
    assert len(answer) > 3


def test_flapping_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    assert [tuple(row) for row in flapping.compute(changes).collect()] == oracle.flapping(rows)


def test_cluster_as_of_a_zxid_equals_the_walk(changes: DataFrame, rows: Sequence[Change]) -> None:
    for at in (len(rows) // 3, len(rows) - 1):
        answer = leader_at.compute(changes, rows[at].zxid).drop("zxid", "ts").collect()
        expected = oracle.cluster_at(rows, rows[at].zxid)
        assert sorted(map(str, (tuple(row) for row in answer))) == sorted(map(str, expected))


def test_a_clean_history_breaks_no_invariant(changes: DataFrame) -> None:
    assert invariants.compute(changes).collect() == []
