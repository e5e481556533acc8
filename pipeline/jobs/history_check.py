"""Judge recorded chaos runs: every check on every key on its own, on as many cores as Spark has.

The checkers are those that judge a run where it was made (pipeline.checks.suites). Registers whose order is
plain from their versions are judged by SQL windows (witness.py); the search of Wing and Gong gets the rest.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pipeline.checks.suites import PARTS, Part
from pipeline.checks.verdicts import BAD, NOTHING_JUDGED, OK, UNKNOWN
from pipeline.errors import InputError
from pipeline.jobs.changelog_job import run_as_program
from pipeline.jobs.job import Job

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession

ANSWER: Final = (
    "run STRING, workload STRING, check STRING, key STRING, verdict STRING, judged BIGINT, "
    "problems ARRAY<STRING>, counter_example ARRAY<STRING>"
)
#: What the key of a check is called that looks at several keys at once.
TOGETHER: Final = "(all)"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the job's own options."""
    parser.add_argument(
        "runs", metavar="RUN", type=Path, nargs="+", help="folder of a recorded run, or of several"
    )


def read(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Return operations and final states of the runs."""
    from pipeline.jobs.histories import find_runs, read_runs

    known = {part.workload for part in PARTS}
    for run, recorded in find_runs(arguments.runs).items():
        strange = [name for name in recorded.workloads if name not in known]
        if strange:
            raise InputError(
                f"{run / 'run.json'}: no checker judges the workload {strange[0]}",
                f"known are {', '.join(sorted(known))}",
            )
    return read_runs(spark, arguments.runs)


def compute(rows: DataFrame) -> DataFrame:
    """Judge.

    Returns:
        run, workload, check, key, verdict (ok, bad or unknown), judged, problems, counter_example; what
        is not ok comes first. A check without a row to judge has one that says so.
    """
    from pyspark.sql import functions as F

    from pipeline.jobs.witness import CHECK, plain_registers

    parts = F.array(*(F.when(_is_mine(part), number) for number, part in enumerate(PARTS)))
    together = F.array(*(F.lit(part.together) for part in PARTS))
    mine = (
        rows.withColumn("part", F.explode(F.array_compact(parts)))
        .withColumn("group", F.when(F.get(together, F.col("part")), TOGETHER).otherwise(F.col("key")))
        .drop("workloads")
    )
    registers = next(number for number, part in enumerate(PARTS) if part.workload == "registers")
    plain = plain_registers(mine.where(F.col("part") == registers)).cache()
    rest = mine.join(
        plain.select("run", F.col("key").alias("group"), F.lit(registers).alias("part")),
        ["run", "group", "part"],
        "left_anti",
    )
    searched = rest.groupBy("run", "part", "group").applyInArrow(judge_group, ANSWER)
    nothing = F.array().cast("array<string>")
    witnessed = plain.select(
        "run",
        F.lit(PARTS[registers].workload).alias("workload"),
        F.lit(CHECK).alias("check"),
        "key",
        F.lit(OK).alias("verdict"),
        "judged",
        nothing.alias("problems"),
        nothing.alias("counter_example"),
    )
    found = searched.unionByName(witnessed).unionByName(_unseen(rows, mine))
    return found.orderBy(F.col("verdict") == OK, "run", "workload", "check", "key")


def _unseen(rows: DataFrame, mine: DataFrame) -> DataFrame:
    """Return a verdict for each check of a run's workloads that sees nothing at all."""
    from pyspark.sql import functions as F

    checks = F.array(*(F.array(*(F.lit(each.check) for each in part.judge((), ()))) for part in PARTS))
    of_workload = (F.array_contains("workloads", part.workload) for part in PARTS)
    parts = F.array_compact(F.array(*(F.when(each, number) for number, each in enumerate(of_workload))))
    runs = rows.where(F.col("operation").isNull() & F.col("final").isNull())
    return (
        runs.select("run", F.explode(parts).alias("part"))
        .join(mine.select("run", "part").distinct(), ["run", "part"], "left_anti")
        .select(
            "run",
            F.get(F.array(*(F.lit(part.workload) for part in PARTS)), F.col("part")).alias("workload"),
            F.explode(F.get(checks, F.col("part"))).alias("check"),
            F.lit(TOGETHER).alias("key"),
            F.lit(UNKNOWN).alias("verdict"),
            F.lit(0).cast("bigint").alias("judged"),
            F.array(F.lit(NOTHING_JUDGED)).alias("problems"),
            F.array().cast("array<string>").alias("counter_example"),
        )
    )


def _is_mine(part: Part) -> Column:
    """Whether a part of the suites looks at a row."""
    from pyspark.sql import functions as F

    return F.array_contains("workloads", part.workload) & F.col("key").rlike(f"^(?:{part.keys})$")


def judge_group(key: tuple[pa.Scalar[Any], ...], rows: pa.Table) -> pa.Table:
    """Judge one part of one run, for one key or for all: runs in Spark's workers."""
    import pyarrow as pa

    from pipeline.jobs.histories import split

    run, part, group = (each.as_py() for each in key)
    operations, final = split(rows.to_pylist())
    verdicts = PARTS[part].judge(operations, final)
    texts = pa.list_(pa.string())
    return pa.table(
        {
            "run": pa.array([run] * len(verdicts), pa.string()),
            "workload": pa.array([PARTS[part].workload] * len(verdicts), pa.string()),
            "check": pa.array([each.check for each in verdicts], pa.string()),
            "key": pa.array([group] * len(verdicts), pa.string()),
            "verdict": pa.array([each.state for each in verdicts], pa.string()),
            "judged": pa.array([each.judged for each in verdicts], pa.int64()),
            "problems": pa.array([list(each.problems) for each in verdicts], texts),
            "counter_example": pa.array([[*map(str, each.counter_example)] for each in verdicts], texts),
        }
    )


def is_finding(answer: DataFrame) -> bool:
    """Say whether a verdict is bad, a search was too long, or a check judged nothing of a run."""
    from pyspark.sql import functions as F

    wrong = (F.col("verdict") == BAD) | ((F.col("verdict") == UNKNOWN) & (F.col("judged") > 0))
    checks = answer.groupBy("run", "workload", "check").agg(
        F.sum("judged").alias("judged"), F.max(wrong).alias("wrong")
    )
    return not checks.where(F.col("wrong") | (F.col("judged") == 0)).isEmpty()


JOB = Job(
    name="history_check",
    summary="judge the recorded histories of chaos runs",
    description="One row for each check and key of a run: whether its operations agree with what the check "
    "demands, how many it judged, and what is wrong, with a counter-example. A verdict is `unknown` where "
    "the search for an order took too many steps, or where nothing was there to judge.",
    add_arguments=add_arguments,
    read=read,
    compute=lambda rows, _arguments: compute(rows),
    is_finding=is_finding,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
