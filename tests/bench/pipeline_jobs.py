"""Each job of `quorate pipeline` as a user runs it, over recordings, in a Spark that was started before."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from quorum.cli.main import main
from tests.bench.pipeline_case import Bench, Timed
from tests.pipeline.histories import Change, Player
from tests.pipeline.recorded import RecordedRun

PARTITIONS = 1_000
#: of one register, and whether a key is one of those for which the search is needed
OPERATIONS, UNKNOWN_EVERY = 20, 10
CHUNK_STEPS, CHUNK_ROWS = 1_000, 50_000
COLUMNS = pa.schema(
    [
        *(("zxid", pa.int64()), ("txn_index", pa.int32()), ("txn_size", pa.int32()), ("term", pa.int64())),
        *(("ts", pa.timestamp("us", tz="UTC")), ("op", pa.string()), ("path", pa.string())),
        *(("before", pa.binary()), ("after", pa.binary()), ("version", pa.int32())),
        *(("session_id", pa.int64()), ("controller_epoch", pa.int32()), ("cluster_id", pa.string())),
    ]
)


def run(bench: Bench) -> list[Timed]:
    """Record a history, a chaos run and a plan, and run every job over them."""
    history = write_history(bench.folder / "history.parquet", bench.rows)
    runs = write_run(bench.folder / "run", bench.rows)
    assignment, plan = write_plan(bench.folder, bench.rows)
    whole = ("--input", str(history))
    asked: dict[tuple[str, ...], str] = {
        ("isr_history", *whole): "rows",
        ("elections", *whole): "rows",
        ("controller_timeline", *whole): "rows",
        ("flapping", *whole): "rows",
        ("leader_at", "--all", *whole): "rows",
        ("invariants", *whole): "rows",
        ("plan_verify", str(plan), "--input", str(assignment)): "partitions",
        ("history_check", str(runs)): "operations",
        ("audit", str(runs)): "operations",
    }
    return [
        bench.timed(words[0], bench.rows, unit, partial(answer, bench.spark, words))
        for words, unit in asked.items()
    ]


def answer(spark: SparkSession, words: tuple[str, ...]) -> None:
    """Run a job that has nothing left over from a former round."""
    spark.catalog.clearCache()
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["pipeline", *words])
    assert code == 0, f"{words} ended with {code}"


def write_history(path: Path, rows: int) -> Path:
    """Play a cluster with many partitions until its change log has so many rows."""
    with pq.ParquetWriter(path, COLUMNS) as writer:
        played = islice(_played(), rows)
        while chunk := list(islice(played, CHUNK_ROWS)):
            writer.write_table(table(chunk))
    return path


def table(rows: Sequence[Change]) -> pa.Table:
    """Return rows as the source would."""
    return pa.Table.from_arrays(list(map(list, zip(*rows, strict=True))), schema=COLUMNS)


def _played() -> Iterator[Change]:
    player = Player(1, brokers=12)
    player.begin()
    player.create("many", {at: _replicas(at, player.brokers) for at in range(PARTITIONS)})
    while True:
        yield from player.rows
        player.rows.clear()
        player.move(CHUNK_STEPS)


def _replicas(at: int, brokers: int) -> tuple[int, ...]:
    return tuple((at + add) % brokers + 1 for add in range(3))


def write_run(folder: Path, operations: int) -> Path:
    """Record a run: half of its operations on registers, half of them produce and consume records."""
    run = RecordedRun(folder, ["registers", "records"])
    for number in range(operations // OPERATIONS // 2):
        key, process = f"register-{number}", f"w{number % 8}"
        run.done((process, "create", key, "v0", 0, 1))
        for version in range(1, OPERATIONS // 2):
            run.done((process, "write", key, f"v{version}", version, 1))
            run.done((process, "read", key, None, [version, f"v{version}"], 1))
        if number % UNKNOWN_EVERY == 0:
            run.invoke(f"u{number % 8}", "write", key, "lost").unknown("no answer")
        else:
            run.done((process, "read", key, None, [OPERATIONS // 2 - 1, f"v{OPERATIONS // 2 - 1}"], 1))
    for number in range(operations // 4):
        key, offset, value = f"topic-{number % 16}", number // 16, f"p/{number}"
        run.done(("p", "produce", key, value, offset, 0), ("c", "consume", key, offset, value, 0))
        run.final.append({"key": key, "argument": offset, "value": value})
    run.close()
    return folder


def write_plan(folder: Path, partitions: int) -> tuple[Path, Path]:
    """Write the change log of so many partitions, and a plan that turns the replicas of each round."""
    moves = []
    player = Player(1, brokers=12)
    player.begin()
    with pq.ParquetWriter(folder / "assignment.parquet", COLUMNS) as writer:
        for first in range(0, partitions, PARTITIONS):
            names = range(min(PARTITIONS, partitions - first))
            player.create(f"t-{first}", {at: _replicas(at, player.brokers) for at in names})
            moves += [
                {"topic": f"t-{first}", "partition": at, "replicas": _replicas(at, player.brokers)[::-1]}
                for at in names
            ]
            writer.write_table(table(player.rows))
            player.rows.clear()
    plan = folder / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    return folder / "assignment.parquet", plan
