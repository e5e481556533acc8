"""Check a plan of reassignments, as `quorate reassign plan` or Kafka's tool prints it, before it is started.

The plan is laid over the assignment in the change log, and every partition and broker is held against rules:
which brokers exist, how racks share a partition, how many replicas a broker can take, and how even the load
is. A reassignment holds old and new replicas until it ends, so capacity counts both.
Source: KIP-36 (racks); controller.core.plan (the shares that a plan of ours keeps).
"""

from __future__ import annotations

import argparse
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import InputError, OptionError
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.leader_at import assignment_of, nodes_at
from pipeline.jobs.records import BROKER_PATH, STATE_PATH

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PLAN: Final = "version INT, partitions ARRAY<STRUCT<topic: STRING, partition: INT, replicas: ARRAY<INT>>>"
TOLERANCE_DEFAULT: Final = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the job's own options."""
    parser.add_argument("plan", metavar="PLAN", type=Path, help="JSON as `quorate reassign plan` prints it")
    parser.add_argument(
        "--replicas-max", metavar="N", type=int, help="replicas that a broker can hold (default: no limit)"
    )
    parser.add_argument(
        "--tolerance",
        metavar="PERCENT",
        type=int,
        default=TOLERANCE_DEFAULT,
        help="how far from the mean the replicas and preferred leaders of a broker may be "
        f"(default: {TOLERANCE_DEFAULT})",
    )


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that cannot be taken."""
    if not arguments.plan.is_file():
        raise OptionError("PLAN", str(arguments.plan), "is not a file", "name one of `quorate reassign plan`")
    if arguments.replicas_max is not None and arguments.replicas_max < 1:
        raise OptionError("--replicas-max", arguments.replicas_max, "leaves no room", "name 1 or more")
    if not 0 <= arguments.tolerance <= 100:
        raise OptionError("--tolerance", arguments.tolerance, "is not a percentage", "name 0 to 100")


def read_plan(spark: SparkSession, path: Path) -> DataFrame:
    """Read a plan.

    Returns:
        topic, partition, replicas.
    """
    from pyspark.sql import functions as F

    reader = spark.read.schema(f"{PLAN}, damage STRING").option("columnNameOfCorruptRecord", "damage")
    content = reader.json(str(path), multiLine=True).cache()
    whole = F.col("damage").isNull() & (F.col("version") == 1) & F.col("partitions").isNotNull()
    rows = content.select(whole.alias("whole")).collect()
    if [row.whole for row in rows] != [True]:
        remedy = 'write {"version": 1, "partitions": [{"topic", "partition", "replicas"}]}'
        raise InputError(f"{path} is not a plan of reassignments", remedy)
    moves = content.select(F.inline("partitions"))
    if not moves.where("topic is null or partition is null or replicas is null").isEmpty():
        raise InputError(f"{path}: a partition has no topic, number or replicas", "complete it")
    return moves


def brokers_of(nodes: DataFrame) -> DataFrame:
    """Return broker and rack of the live brokers."""
    from pyspark.sql import functions as F

    return nodes.where(F.col("path").rlike(BROKER_PATH)).select(
        F.regexp_extract("path", BROKER_PATH, 1).cast("int").alias("broker"),
        F.get_json_object("value", "$.rack").alias("rack"),
    )


def verify(changes: DataFrame, plan: DataFrame, *, replicas_max: int | None, tolerance: int) -> DataFrame:
    """Hold a plan against the rules.

    Returns:
        rule, topic, partition, broker (null where the rule is not about one), problem: one row for each
        violation.
    """
    from pyspark.sql import functions as F

    nodes = nodes_at(changes.where(~F.col("path").rlike(STATE_PATH)), None).cache()
    brokers = F.broadcast(brokers_of(nodes))
    former = assignment_of(nodes)
    moves = plan.groupBy("topic", "partition").agg(
        F.count("*").alias("named"), F.max_by("replicas", F.size("replicas")).alias("target")
    )
    both = former.join(moves, ["topic", "partition"], "full").cache()
    planned = both.where(F.col("target").isNotNull())
    after = both.where(F.col("replicas").isNotNull()).withColumn("target", F.coalesce("target", "replicas"))
    rules = [*_partition_rules(planned), _strangers(planned, brokers), _racks(planned, brokers)]
    if replicas_max is not None:
        rules.append(_capacity(after, replicas_max))
    rules += [
        _balance(after.select(F.explode("target").alias("broker")), brokers, "replicas", tolerance),
        _balance(after.select(F.get("target", 0).alias("broker")), brokers, "preferred leaders", tolerance),
    ]
    found = reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), rules)
    return found.select("rule", "topic", "partition", "broker", "problem").orderBy(
        "rule", "topic", "partition", "broker"
    )


def _partition_rules(planned: DataFrame) -> list[DataFrame]:
    """What a partition's replicas must be, whatever the brokers are."""
    from pyspark.sql import functions as F

    size = F.size("target")
    rows: tuple[tuple[str, Column, Column], ...] = (
        ("partition exists", F.col("replicas").isNull(), F.lit("the cluster has no such partition")),
        ("named once", F.col("named") > 1, F.format_string("is named %d times", "named")),
        ("replicas differ", size != F.size(F.array_distinct("target")), _listed("names one twice: %s")),
        ("some replica", size == 0, F.lit("would have no replica")),
        (
            "as many replicas",
            F.col("replicas").isNotNull() & (size > 0) & (size < F.size("replicas")),
            F.format_string("falls from %d replicas to %d", F.size("replicas"), size),
        ),
    )
    return [
        planned.where(wrong).select(
            F.lit(rule).alias("rule"),
            "topic",
            "partition",
            F.lit(None).cast("int").alias("broker"),
            problem.alias("problem"),
        )
        for rule, wrong, problem in rows
    ]


def _listed(words: str) -> Column:
    from pyspark.sql import functions as F

    return F.format_string(words, F.array_join(F.col("target").cast("array<string>"), ","))


def _strangers(planned: DataFrame, brokers: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    replicas = planned.select("topic", "partition", F.explode(F.array_distinct("target")).alias("broker"))
    return replicas.join(brokers, "broker", "left_anti").select(
        F.lit("broker lives").alias("rule"),
        "topic",
        "partition",
        "broker",
        F.lit("no such broker is registered").alias("problem"),
    )


def _racks(planned: DataFrame, brokers: DataFrame) -> DataFrame:
    """Look for racks with more replicas of a partition than their share; if every broker has one."""
    from pyspark.sql import functions as F

    known = brokers.agg(
        F.count_distinct("rack").alias("racks"), (F.count("rack") == F.count("*")).alias("aware")
    )
    replicas = planned.select(
        "topic", "partition", F.size("target").alias("factor"), F.explode("target").alias("broker")
    )
    in_rack = replicas.join(brokers, "broker").groupBy("topic", "partition", "factor", "rack").count()
    share = F.ceil(F.col("factor") / F.col("racks"))
    problem = F.format_string(
        "%d of %d replicas are in rack %s, whose share is %d", "count", "factor", "rack", share
    )
    return (
        in_rack.crossJoin(F.broadcast(known))
        .where(F.col("aware") & (F.col("count") > share))
        .select(F.lit("racks share").alias("rule"), "topic", "partition", problem.alias("problem"))
    )


def _capacity(after: DataFrame, replicas_max: int) -> DataFrame:
    from pyspark.sql import functions as F

    held = (
        after.select(F.explode(F.array_union("replicas", "target")).alias("broker")).groupBy("broker").count()
    )
    problem = F.format_string("%d replicas until the moves end, more than %d", "count", F.lit(replicas_max))
    return held.where(F.col("count") > replicas_max).select(
        F.lit("broker has room").alias("rule"), "broker", problem.alias("problem")
    )


def _balance(held: DataFrame, brokers: DataFrame, what: str, tolerance: int) -> DataFrame:
    """Each live broker has the mean of live brokers, give or take the tolerance and what rounding needs."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    counts = brokers.join(held.groupBy("broker").count(), "broker", "left").select(
        "broker", F.coalesce("count", F.lit(0)).alias("count")
    )
    mean = F.avg("count").over(Window.partitionBy())
    low = F.floor(F.col("mean") * (1 - tolerance / 100))
    high = F.ceil(F.col("mean") * (1 + tolerance / 100))
    problem = F.format_string(f"%d {what}, where %d to %d are even", "count", low, high)
    return (
        counts.withColumn("mean", mean)
        .where((F.col("count") < low) | (F.col("count") > high))
        .select(F.lit(f"{what} are even").alias("rule"), "broker", problem.alias("problem"))
    )


def compute(changes: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """Read the plan and verify it."""
    plan = read_plan(changes.sparkSession, arguments.plan)
    return verify(changes, plan, replicas_max=arguments.replicas_max, tolerance=arguments.tolerance)


JOB = changelog_job(
    "plan_verify",
    "check a plan of reassignments against racks, capacity and balance",
    "One row for each rule that the cluster would break once the plan is carried out. Partitions and brokers "
    "exist, and replicas do not fall in number. No rack has more than its share of a partition. Brokers have "
    "room for old and new replicas, and load is even.",
    compute,
    add_arguments=add_arguments,
    check=check,
    is_finding=lambda answer: not answer.isEmpty(),
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
