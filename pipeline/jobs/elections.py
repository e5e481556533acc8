"""How fast partitions got a new leader after the loss of a broker, and which elections were unclean.

An election is a change of the leader, or of the life in which the same broker leads. Its latency is the time
from the end of the former leader's registration to the commit of the state that names the new one, by the
clocks of the quorum's leaders: approximate where the term changed between them. Without a loss the partition
was moved (a preferred leader, a controlled shutdown, a reassignment).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from pipeline.jobs.arguments import add_picture_argument
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.drawing import limited
from pipeline.jobs.records import lives, states, with_generation

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame

#: Of a change of state: its leader does not come from the ISR, or says so.
UNCLEAN: Final = (
    "(coalesce(not array_contains(before.isr, after.leader), false) or "
    "(coalesce(after.leader_recovery_state, 0) = 1 and coalesce(before.leader_recovery_state, 0) = 0))"
)


def each_election(changes: DataFrame) -> DataFrame:
    """Return one row for each election.

    Returns:
        topic, partition, zxid, ts, controller_epoch, former, leader, leader_epoch, lost_zxid and latency_ms
        (null: moved), is_unclean, is_approximate.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    led = states(changes).where("after.leader >= 0")
    reigns = with_generation(led, changes, F.col("after.leader")).where("generation <> -2")
    order = Window.partitionBy("topic", "partition", "incarnation").orderBy("zxid", "txn_index")
    elected = reigns.withColumns(
        {
            "former": F.lag("after.leader").over(order),
            "former_generation": F.lag("generation").over(order),
        }
    ).where("former is not null and (former <> after.leader or former_generation <> generation)")
    lost = lives(changes).selectExpr(
        *("broker as former", "generation as former_generation", "until_zxid", "until_ts", "until_term")
    )
    return (
        elected.join(lost, ["former", "former_generation"], "left")
        .withColumn("is_lost", F.expr("coalesce(until_zxid <= zxid, false)"))
        .selectExpr(
            *("topic", "partition", "zxid", "ts", "epoch as controller_epoch", "former"),
            *("after.leader as leader", "after.leader_epoch as leader_epoch"),
            "if(is_lost, until_zxid, null) as lost_zxid",
            "if(is_lost, greatest(unix_millis(ts) - unix_millis(until_ts), 0), null) as latency_ms",
            f"{UNCLEAN} as is_unclean",
            "is_lost and until_term <> term as is_approximate",
        )
        .orderBy("zxid", "topic", "partition")
    )


def compute(changes: DataFrame) -> DataFrame:
    """Return one row for each controller epoch, and one (null) for all.

    Returns:
        controller_epoch, lost (elections after a loss), moved, unclean, p50_ms, p95_ms, p99_ms, max_ms,
        approximate (latencies across a change of term).
    """
    from pyspark.sql import functions as F

    return (
        each_election(changes)
        .rollup("controller_epoch")
        .agg(
            F.count("latency_ms").alias("lost"),
            F.expr("count_if(latency_ms is null)").alias("moved"),
            F.expr("count_if(is_unclean)").alias("unclean"),
            *(F.percentile("latency_ms", F.lit(part / 100)).alias(f"p{part}_ms") for part in (50, 95, 99)),
            F.max("latency_ms").alias("max_ms"),
            F.expr("count_if(is_approximate)").alias("approximate"),
        )
        .where("lost + moved > 0")
        .orderBy(F.asc_nulls_last("controller_epoch"))
    )


def picture(changes: DataFrame, _arguments: argparse.Namespace) -> Figure:
    """Draw the latency of each election over time."""
    from plotly import graph_objects

    rows = limited(each_election(changes).where("latency_ms is not null"))
    figure = graph_objects.Figure()
    for kind, some in (
        ("clean", [row for row in rows if not row.is_unclean]),
        ("unclean", [row for row in rows if row.is_unclean]),
    ):
        figure.add_scatter(
            name=kind,
            mode="markers",
            x=[row.ts for row in some],
            y=[row.latency_ms for row in some],
            hovertext=[
                f"{row.topic}-{row.partition}: {row.former} → {row.leader}, zxid {row.zxid}" for row in some
            ],
        )
    figure.update_layout(title="Elections", yaxis_title="ms from the loss to the new leader")
    return figure


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--each", action="store_true", help="one row for each election instead of a summary")
    add_picture_argument(parser)


JOB = changelog_job(
    "elections",
    "how fast partitions got a new leader, and unclean elections",
    "One row for each controller epoch, and a last one for all: elections after the loss of a leader with "
    "their latency, leaders that were only moved, unclean elections.",
    lambda changes, arguments: each_election(changes) if arguments.each else compute(changes),
    add_arguments=_add_arguments,
    picture=picture,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
