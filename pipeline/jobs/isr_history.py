"""How long each partition was under-replicated or offline, and how often its ISR shrank and grew.

A partition is under-replicated while a replica that a reassignment does not just add is missing from the ISR;
it is offline while nobody leads it. What has not ended counts until the last change of the history.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.jobs.arguments import add_picture_argument
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.drawing import Bar, limited, timeline
from pipeline.jobs.records import assignments, states

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame


def intervals(changes: DataFrame) -> DataFrame:
    """Return the stretches between two changes of a partition.

    Returns:
        topic, partition, from_ts, until_ts, duration_ms, leader, isr, is_offline, is_under_replicated (null:
        the assignment is not in the history), is_last.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    state = F.struct(F.col("after.leader").alias("leader"), F.col("after.isr").alias("isr"))
    of_states = states(changes).select(
        "topic", "partition", "zxid", "ts", F.lit(1).alias("rank"), state.alias("state")
    )
    full = F.array_except("replicas", "adding").alias("full")
    of_topics = assignments(changes).select("topic", "partition", "zxid", "ts", F.lit(0).alias("rank"), full)
    order = Window.partitionBy("topic", "partition").orderBy("zxid", "rank")
    end = changes.agg(F.max("ts").alias("end_ts"))
    return (
        of_states.unionByName(of_topics, allowMissingColumns=True)
        .withColumn("state", F.last("state", ignorenulls=True).over(order))
        .withColumn("full", F.last("full", ignorenulls=True).over(order))
        .withColumn("next_ts", F.lead("ts").over(order))
        .crossJoin(F.broadcast(end))
        # A state that is gone, or not there yet, has no leader.
        .where("state.leader is not null")
        .select(
            *("topic", "partition", F.col("ts").alias("from_ts")),
            F.coalesce("next_ts", "end_ts").alias("until_ts"),
            F.expr("greatest(unix_millis(coalesce(next_ts, end_ts)) - unix_millis(ts), 0)").alias(
                "duration_ms"
            ),
            *("state.leader", "state.isr"),
            F.expr("state.leader < 0").alias("is_offline"),
            F.expr("size(array_except(full, state.isr)) > 0").alias("is_under_replicated"),
            F.col("next_ts").isNull().alias("is_last"),
        )
    )


def compute(changes: DataFrame) -> DataFrame:
    """Return one row for each partition, the worst first.

    Returns:
        topic, partition, offline_ms, under_replicated_ms, shrinks, expands, offline_now,
        under_replicated_now.
    """
    from pyspark.sql import functions as F

    times = (
        intervals(changes)
        .groupBy("topic", "partition")
        .agg(
            *(
                F.sum(F.when(F.col(f"is_{what}"), F.col("duration_ms")).otherwise(0)).alias(f"{what}_ms")
                for what in ("offline", "under_replicated")
            ),
            *(
                F.coalesce(F.bool_or(F.col(f"is_{what}") & F.col("is_last")), F.lit(False)).alias(
                    f"{what}_now"
                )
                for what in ("offline", "under_replicated")
            ),
        )
    )
    moves = (
        states(changes)
        .where("before.isr is not null and after.isr is not null")
        .groupBy("topic", "partition")
        .agg(
            F.expr("count_if(size(array_except(before.isr, after.isr)) > 0)").alias("shrinks"),
            F.expr("count_if(size(array_except(after.isr, before.isr)) > 0)").alias("expands"),
        )
    )
    return (
        times.join(moves, ["topic", "partition"], "left")
        .fillna(0, ["shrinks", "expands"])
        .select(
            *("topic", "partition", "offline_ms", "under_replicated_ms", "shrinks", "expands"),
            *("offline_now", "under_replicated_now"),
        )
        .orderBy(F.desc("offline_ms"), F.desc("under_replicated_ms"), "topic", "partition")
    )


def picture(changes: DataFrame, _arguments: argparse.Namespace) -> Figure:
    """Draw when partitions were offline or under-replicated."""
    bad = (
        intervals(changes).where("(is_offline or is_under_replicated) and duration_ms > 0").orderBy("from_ts")
    )
    bars = [
        Bar(
            f"{row.topic}-{row.partition}",
            row.from_ts,
            row.until_ts,
            "offline" if row.is_offline else "under-replicated",
            f"leader {row.leader}, ISR {row.isr}",
        )
        for row in limited(bad)
    ]
    return timeline("Partitions offline or under-replicated", bars)


JOB = changelog_job(
    "isr_history",
    "how long partitions were under-replicated or offline",
    "One row for each partition: for how long nobody led it, for how long its ISR lacked a replica, "
    "and how often the ISR shrank and grew.",
    lambda changes, _arguments: compute(changes),
    add_arguments=add_picture_argument,
    picture=picture,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
