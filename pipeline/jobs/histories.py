"""The histories of chaos runs as rows: one for each operation, and one for each line of the final state.

Pairs invocations with completions as `pipeline.checks.history` does, in Spark. Decides nothing about what is
allowed. A damaged file is refused with its line, and a run that lacks a file that its writer wrote.
Source: pipeline.checks.history (the format); tests/chaos/run.py writes it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pipeline.checks.history import (
    FAIL,
    INVOKE,
    NEVER_NS,
    OK,
    UNKNOWN,
    HistoryError,
    Line,
    Operation,
    check_whole,
)
from pipeline.errors import InputError, OptionError
from quorum.errors import shown

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

#: Runs that are judged at once.
RUNS_MAX: Final = 100
#: Files with damage that are looked into.
DAMAGED_FILES_MAX: Final = 100
FINAL: Final = "final.jsonl"
#: A line of a history; argument and result may be any JSON.
LINE: Final = (
    "process STRING, operation STRING, key STRING, argument VARIANT, type STRING, result VARIANT, "
    "zxid BIGINT, node STRING, time_ns BIGINT, damage STRING"
)
_TEXTS: Final = ("process", "operation", "key", "type")
_REMEDY_INCOMPLETE: Final = "judge it where it is whole: what is missing may be what was wrong"
_REMEDY: Final = "repair the line, or judge the run without this file"


def find_runs(folders: Sequence[Path]) -> dict[Path, Recorded]:
    """Return {folder of a run: what was recorded}; a folder may be a run or hold runs."""
    runs: dict[Path, Recorded] = {}
    for folder in folders:
        found = [each.parent for each in (*folder.glob("run.json"), *folder.glob("*/run.json"))]
        if not found:
            raise OptionError("RUN", str(folder), "holds no run", "name a folder with run.json and history/")
        for run in sorted(found):
            runs[run] = _recorded(run)
    if len(runs) > RUNS_MAX:
        raise OptionError("RUN", len(runs), f"are more than {RUNS_MAX} runs", "judge them in parts")
    names = Counter(run.resolve().name for run in runs)
    twice = [name for name, count in names.items() if count > 1]
    if twice:
        raise OptionError("RUN", twice[0], "names two runs", "judge one after the other")
    return runs


class Recorded(NamedTuple):
    """What run.json says of a run: its workloads and its files, as far as it names them."""

    workloads: list[str]
    files: list[str]


def _recorded(run: Path) -> Recorded:
    try:
        record = json.loads((run / "run.json").read_text())
        names, files = record["workloads"], record.get("files", [])
        if not all(isinstance(each, str) for each in names):
            raise TypeError(f"workloads: {shown(names)}")
        if not all(isinstance(each, str) for each in files):
            raise TypeError(f"files: {shown(files)}")
    except (ValueError, KeyError, TypeError, AttributeError, OSError) as error:
        raise InputError(f"{run / 'run.json'} is damaged: {error}", "name a run that ended") from error
    for name in ("history", FINAL):
        if not (run / name).exists():
            raise InputError(f"{run} has no {name}", "name a run that ended")
    return Recorded(list(names), list(files))


def read_runs(spark: SparkSession, folders: Sequence[Path]) -> DataFrame:
    """Read recorded runs; the rows are kept by Spark, and free when the session ends.

    Returns:
        run, workloads, process, operation, key, argument, outcome, result, zxid, node, invoked_ns,
        completed_ns (null while the outcome is unknown), final. argument and result are JSON; a row of the
        final state has its line as `final`, and no operation. A run has one row without either, so that
        one that holds nothing is seen.
    """
    from pyspark.sql import functions as F
    from pyspark.storagelevel import StorageLevel

    runs = find_runs(folders)
    parts = []
    for run, recorded in runs.items():
        names = F.array(*map(F.lit, recorded.workloads)).cast("array<string>")
        found = [_operations(_lines(spark, run / "history")), _final(spark, run / FINAL), _final(spark, None)]
        head = (F.lit(run.resolve().name).alias("run"), names.alias("workloads"))
        parts += [part.select(*head, "*") for part in found]
    rows = reduce(lambda left, right: left.unionByName(right), parts).persist(StorageLevel.MEMORY_AND_DISK)
    fine = F.col("invoked_ns").isNotNull()
    damaged = rows.where(~fine).select("run", "file").distinct().limit(DAMAGED_FILES_MAX)
    folder_of = {run.resolve().name: run for run in runs}
    for row in sorted(damaged.collect()):
        path = folder_of[row[0]] / (FINAL if row[1] == FINAL else f"history/{row[1]}")
        refuse_damage(path)
    for run, recorded in runs.items():
        try:
            check_whole(run, recorded.files)
        except HistoryError as error:
            raise InputError(f"{run}: {error}", _REMEDY_INCOMPLETE) from error
    return rows.where(fine).drop("file")


def _lines(spark: SparkSession, folder: Path) -> DataFrame:
    reader = spark.read.schema(LINE).option("columnNameOfCorruptRecord", "damage")
    return reader.json(str(folder), pathGlobFilter="*.jsonl").withColumn("file", _file_name())


def _file_name() -> Column:
    from pyspark.sql import functions as F

    return F.col("_metadata.file_name")


def _operations(lines: DataFrame) -> DataFrame:
    """Pair lines: a completion belongs to the oldest open invocation with the same name.

    What cannot be paired has no `invoked_ns`.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    damaged = F.col("damage").isNotNull() | reduce(
        lambda left, right: left | right, (F.col(name).isNull() for name in (*_TEXTS, "time_ns"))
    )
    damaged |= ~F.col("type").isin(INVOKE, OK, FAIL, UNKNOWN)
    begins = F.col("type") == INVOKE
    name = ("file", "process", "operation", "key", "argument")
    until_now = Window.partitionBy(*name).orderBy("time_ns", ~begins)
    numbered = (
        lines.withColumn("argument", F.coalesce(F.expr("to_json(argument)"), F.lit("null")))
        .withColumn("result", F.coalesce(F.expr("to_json(result)"), F.lit("null")))
        .withColumn("damaged", damaged)
        .withColumn("number", F.sum(F.when(begins, 1).otherwise(0)).over(until_now))
        .withColumn("ended", F.sum(F.when(begins, 0).otherwise(1)).over(until_now))
        .withColumn("number", F.when(begins, F.col("number")).otherwise(F.col("ended")))
    )
    ending = F.struct("type", "result", "zxid", "node", "time_ns")
    paired = numbered.groupBy(*name, "number").agg(
        F.max(F.when(begins, F.col("time_ns"))).alias("invoked_ns"),
        F.max(F.when(~begins, ending)).alias("end"),
        F.max("damaged").alias("damaged"),
    )
    unknown = F.col("end").isNull() | (F.col("end.type") == UNKNOWN)
    whole = ~F.col("damaged") & (F.col("end").isNull() | (F.col("invoked_ns") <= F.col("end.time_ns")))
    return paired.select(
        "file",
        "process",
        "operation",
        "key",
        "argument",
        F.when(unknown, UNKNOWN).otherwise(F.col("end.type")).alias("outcome"),
        F.coalesce("end.result", F.lit("null")).alias("result"),
        F.coalesce("end.zxid", F.lit(0)).cast("bigint").alias("zxid"),
        F.coalesce("end.node", F.lit("")).alias("node"),
        F.when(whole, F.col("invoked_ns")).alias("invoked_ns"),
        F.when(~unknown, F.col("end.time_ns")).alias("completed_ns"),
        F.lit(None).cast("string").alias("final"),
    )


def _final(spark: SparkSession, path: Path | None) -> DataFrame:
    """The final state; without a path the one row without a line."""
    from pyspark.sql import functions as F

    nothing = F.lit(None)
    if path is None:
        line = spark.range(1).select(nothing.cast("string").alias("value"), F.lit("").alias("key"))
    else:
        line = spark.read.text(str(path)).withColumn("key", F.get_json_object("value", "$.key"))
    return line.select(
        F.lit(FINAL).alias("file"),
        *(nothing.cast("string").alias(name) for name in ("process", "operation")),
        "key",
        *(nothing.cast("string").alias(name) for name in ("argument", "outcome", "result")),
        nothing.cast("bigint").alias("zxid"),
        nothing.cast("string").alias("node"),
        F.when(F.col("key").isNotNull(), 0).cast("bigint").alias("invoked_ns"),
        nothing.cast("bigint").alias("completed_ns"),
        F.col("value").alias("final"),
    )


def refuse_damage(path: Path) -> None:
    """Look for the first line that no history can have, as the pairing in Spark found one in this file."""
    is_open: Counter[tuple[str, ...]] = Counter()
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, text in enumerate(file, 1):
            try:
                line = json.loads(text)
            except ValueError as error:
                raise InputError(f"{path}:{number}: {shown(text)} is not JSON: {error}", _REMEDY) from None
            problem = _problem(line, is_open) if path.name != FINAL else _final_problem(line)
            if problem:
                raise InputError(f"{path}:{number}: {problem}", _REMEDY)


def _final_problem(line: Any) -> str:
    known = isinstance(line, dict) and isinstance(line.get("key"), str)
    return "" if known else f"{shown(line)} has no key"


def _problem(line: Any, is_open: Counter[tuple[str, ...]]) -> str:
    if not isinstance(line, dict):
        return f"{shown(line)} is not an operation"
    for field in (*_TEXTS, "time_ns"):
        kind = int if field == "time_ns" else str
        if not isinstance(line.get(field), kind):
            return f"{field} is {shown(line.get(field))}"
    if line["type"] not in (INVOKE, OK, FAIL, UNKNOWN):
        return f"the type {shown(line['type'])} is none of a history's"
    name = (line["process"], line["operation"], line["key"], json.dumps(line.get("argument")))
    is_open[name] += 1 if line["type"] == INVOKE else -1
    return "" if is_open[name] >= 0 else f"a completion of {name[1:]} that was never invoked"


def operation_of(row: dict[str, Any]) -> Operation:
    """Return the operation of a row."""
    unknown = row["completed_ns"] is None
    return Operation(
        process=row["process"],
        operation=row["operation"],
        key=row["key"],
        argument=json.loads(row["argument"]),
        outcome=row["outcome"],
        result=json.loads(row["result"]),
        zxid=row["zxid"],
        node=row["node"],
        invoked_ns=row["invoked_ns"],
        completed_ns=NEVER_NS if unknown else row["completed_ns"],
    )


def split(rows: Iterable[dict[str, Any]]) -> tuple[list[Operation], list[Line]]:
    """Return operations by rising time of invocation, and lines of the final state."""
    operations: list[Operation] = []
    final: list[Line] = []
    for row in rows:
        if row["operation"] is None:
            final.append(json.loads(row["final"]))
        else:
            operations.append(operation_of(row))
    operations.sort(key=lambda each: (each.invoked_ns, each.process))
    return operations, final
