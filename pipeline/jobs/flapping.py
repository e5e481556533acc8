"""Which brokers came and went: their registrations, how long they were away, the shortest life.

A registration lasts from the creation of /brokers/ids/N to its end; its czxid is the generation. What has not
ended counts until the last change of the history, what began before it from its first change.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.jobs.arguments import add_picture_argument
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.drawing import Bar, limited, timeline
from pipeline.jobs.records import lives

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame


def stays(changes: DataFrame) -> DataFrame:
    """Return `records.lives` with begin_ts and end_ts inside of the history, and next_ts of the next one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    bounds = changes.agg(F.min("ts").alias("first_ts"), F.max("ts").alias("last_ts"))
    order = Window.partitionBy("broker").orderBy(F.asc_nulls_first("from_zxid"))
    return (
        lives(changes)
        .crossJoin(F.broadcast(bounds))
        .withColumn("begin_ts", F.coalesce("from_ts", "first_ts"))
        .withColumn("end_ts", F.coalesce("until_ts", "last_ts"))
        .withColumn("next_ts", F.coalesce(F.lead("from_ts").over(order), "last_ts"))
    )


def compute(changes: DataFrame) -> DataFrame:
    """Return one row for each broker, the most restless first.

    Returns:
        broker, registrations, bounces (registrations after the first), generation (of the last; null: older
        than the history), alive, up_ms, down_ms (since its first one), shortest_ms (of its ended ones).
    """
    from pyspark.sql import functions as F

    up = "greatest(unix_millis(end_ts) - unix_millis(begin_ts), 0)"
    down = "if(until_ts is null, 0, greatest(unix_millis(next_ts) - unix_millis(until_ts), 0))"
    return (
        stays(changes)
        .groupBy("broker")
        .agg(
            F.count("*").alias("registrations"),
            (F.count("*") - 1).alias("bounces"),
            F.expr("nullif(max(generation), -1)").alias("generation"),
            F.expr("bool_or(until_zxid is null)").alias("alive"),
            F.expr(f"sum({up})").alias("up_ms"),
            F.expr(f"sum({down})").alias("down_ms"),
            F.expr(f"min(if(until_ts is null, null, {up}))").alias("shortest_ms"),
        )
        .orderBy(F.desc("bounces"), F.desc("down_ms"), "broker")
    )


def picture(changes: DataFrame, _arguments: argparse.Namespace) -> Figure:
    """Draw one bar for each registration."""
    bars = [
        Bar(f"broker {row.broker}", row.begin_ts, row.end_ts, "registered", f"generation {row.generation}")
        for row in limited(stays(changes).orderBy("begin_ts"))
    ]
    return timeline("Brokers", bars)


JOB = changelog_job(
    "flapping",
    "which brokers came and went",
    "One row for each broker: how often it registered, its last generation, for how long it was there and "
    "away.",
    lambda changes, _arguments: compute(changes),
    add_arguments=add_picture_argument,
    picture=picture,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
