"""plan_verify finds what a plan would break, as a plain search does, and nothing in a plan of ours."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from controller.core.plan import plan_reassignment
from pipeline.errors import InputError
from pipeline.jobs.changes import changes_schema
from pipeline.jobs.plan_verify import read_plan, verify
from quorum.cli.main import main
from quorum.metadata.admin_requests import ReassignmentRecord
from quorum.metadata.paths import BROKER_IDS, PartitionKey, topic_path
from quorum.metadata.records import BrokerRecord, TopicRecord

Assignments = dict[PartitionKey, tuple[int, ...]]
#: (topic, partition, replicas), in the order of a file
Moves = list[tuple[str, int, list[int]]]
Finding = tuple[str, str | None, int | None, int | None]


def changes_of(spark: SparkSession, racks: Mapping[int, str | None], assigned: Assignments) -> DataFrame:
    """A change log that ends with these brokers and assignments, and has others before."""
    topics: dict[str, dict[int, tuple[int, ...]]] = {}
    for key, replicas in assigned.items():
        topics.setdefault(key.topic, {})[key.partition] = replicas
    values: list[tuple[str, str, bytes | None]] = [("c", f"{BROKER_IDS}/99", _broker("gone"))]
    values += [("c", topic_path("gone"), TopicRecord(None, {0: (99,)}).encode())]
    values += [("d", f"{BROKER_IDS}/99", None), ("d", topic_path("gone"), None)]
    values += [("c", f"{BROKER_IDS}/{each}", _broker("elsewhere")) for each in racks]
    values += [("u", f"{BROKER_IDS}/{each}", _broker(rack)) for each, rack in racks.items()]
    values += [("r", topic_path(name), TopicRecord(None, {0: (98,)}).encode()) for name in topics]
    values += [("u", topic_path(name), TopicRecord(None, found).encode()) for name, found in topics.items()]
    when = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        (zxid, 0, 1, 1, when, op, path, None, after, 0, 7, 1, "c")
        for zxid, (op, path, after) in enumerate(values, 1)
    ]
    return spark.createDataFrame(rows, changes_schema())


def _broker(rack: str | None) -> bytes:
    return BrokerRecord("127.0.0.1", 9092, (), {}, 0, rack=rack).encode()


def written(path: Path, moves: Moves) -> Path:
    rows = [{"topic": topic, "partition": number, "replicas": ids} for topic, number, ids in moves]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return path


def oracle(
    racks: Mapping[int, str | None], assigned: Assignments, moves: Moves, replicas_max: int, tolerance: int
) -> set[Finding]:
    """The same rules, one partition and one broker after the other."""
    found: set[Finding] = set()
    named = Counter((topic, number) for topic, number, _ in moves)
    after, held = dict(assigned), {key: set(ids) for key, ids in assigned.items()}
    share_of = len(set(racks.values()))
    for topic, number, ids in moves:
        key = PartitionKey(topic, number)
        rules = {
            "partition exists": key not in assigned,
            "named once": named[topic, number] > 1,
            "replicas differ": len(set(ids)) < len(ids),
            "some replica": not ids,
            "as many replicas": key in assigned and 0 < len(ids) < len(assigned[key]),
        }
        in_rack = Counter(racks[each] for each in ids if each in racks)
        share = math.ceil(len(ids) / share_of)
        rules["racks share"] = None not in racks.values() and any(each > share for each in in_rack.values())
        found |= {(rule, topic, number, None) for rule, wrong in rules.items() if wrong}
        found |= {("broker lives", topic, number, each) for each in ids if each not in racks}
        if key in assigned:
            after[key] = tuple(ids)
            held[key] |= set(ids)
    room = Counter(each for ids in held.values() for each in ids)
    found |= {("broker has room", None, None, each) for each, count in room.items() if count > replicas_max}
    for what, counts in (
        ("replicas are even", Counter(each for ids in after.values() for each in ids)),
        ("preferred leaders are even", Counter(ids[0] for ids in after.values() if ids)),
    ):
        mean = sum(counts[each] for each in racks) / len(racks)
        low, high = math.floor(mean * (1 - tolerance / 100)), math.ceil(mean * (1 + tolerance / 100))
        found |= {(what, None, None, each) for each in racks if not low <= counts[each] <= high}
    return found


def _found(answer: DataFrame) -> set[Finding]:
    rows: list[Any] = answer.collect()
    return {(row.rule, row.topic, row.partition, row.broker) for row in rows}


def test_what_a_plain_search_finds_is_found(spark: SparkSession, tmp_path: Path) -> None:
    rng = random.Random(5)
    racks: dict[int, str | None] = {each: f"rack-{each % 3}" for each in range(1, 7)}
    assigned = {
        PartitionKey(f"topic-{topic}", number): tuple(rng.sample(range(1, 5), 3))
        for topic in range(4)
        for number in range(10)
    }
    moves: Moves = [
        (key.topic, key.partition, rng.sample(range(1, 8), rng.choice([2, 3, 3])))
        for key in sorted(assigned)
        if key.topic in ("topic-1", "topic-2")
    ]
    moves += [("topic-9", 0, [1, 2, 3]), ("topic-0", 0, [1, 1, 2]), ("topic-0", 1, [])]
    moves += [("topic-3", 9, [1, 4, 2])] * 2  # 1 and 4 share a rack
    plan = read_plan(spark, written(tmp_path / "plan.json", moves))
    expected = oracle(racks, assigned, moves, 22, 10)
    assert len({rule for rule, *_ in expected}) == 10, "every rule is broken by the plan"
    assert _found(verify(changes_of(spark, racks, assigned), plan, replicas_max=22, tolerance=10)) == expected


def test_a_plan_of_ours_breaks_nothing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    racks: dict[int, str | None] = {each: f"rack-{each % 3}" for each in range(1, 7)}
    assigned: Assignments = {PartitionKey("orders", number): (1, 2, 3) for number in range(60)}
    changes_of(spark, racks, assigned).write.parquet(str(tmp_path / "changes"))
    moves = plan_reassignment(racks, assigned)
    (tmp_path / "plan.json").write_bytes(ReassignmentRecord(moves).encode())
    (tmp_path / "nothing.json").write_bytes(ReassignmentRecord({}).encode())
    words = ["--input", str(tmp_path / "changes"), "--format", "json"]
    assert main(["pipeline", "plan_verify", str(tmp_path / "plan.json"), *words]) == 0
    assert capsys.readouterr().out == ""
    assert main(["pipeline", "plan_verify", str(tmp_path / "nothing.json"), *words]) == 1
    assert "60 replicas, where 27 to 33 are even" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not a plan"),
        ('{"version": 2, "partitions": []}', "is not a plan"),
        ('{"partitions": 5}', "is not a plan"),
        (
            '{"version": 1, "partitions": [{"topic": "a", "partition": 0}]}',
            "has no topic, number or replicas",
        ),
        ("", "is not a plan"),
    ],
)
def test_what_is_no_plan_is_refused(spark: SparkSession, tmp_path: Path, text: str, says: str) -> None:
    path = tmp_path / "plan.json"
    path.write_text(text)
    with pytest.raises(InputError, match=says):
        read_plan(spark, path)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["missing.json"], "missing.json"),
        ([__file__, "--replicas-max", "0"], "--replicas-max"),
        ([__file__, "--tolerance", "101"], "--tolerance"),
    ],
)
def test_options_are_refused(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pipeline", "plan_verify", *words]) == 2
    assert says in capsys.readouterr().err
