"""Who was the controller, from when until when, and how long there was none.

One row for each time that a broker took /controller. Its epoch is the value of /controller_epoch after that
transaction. The gap is the time since the former controller's node went; both times are leaders' clocks.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.jobs.arguments import add_picture_argument
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.drawing import Bar, end_of, limited, timeline
from quorum.metadata import paths

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame


def compute(changes: DataFrame) -> DataFrame:
    """Return controllers by rising epoch.

    Returns:
        controller_epoch, broker (−1: the value is malformed), from_zxid, from_ts, until_zxid, until_ts (null:
        still the controller), gap_ms since the former one (null: none is known).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.orderBy("zxid", "txn_index")
    until = ("zxid", "ts")
    terms = (
        changes.where(F.col("path") == paths.CONTROLLER)
        .withColumn("broker", F.get_json_object(F.col("after").cast("string"), "$.brokerid").cast("int"))
        # A node that is overwritten ends its controller's time as a deletion does.
        .withColumns({f"until_{name}": F.lead(name).over(in_order) for name in until})
        .where(F.col("after").isNotNull() & (F.col("op") != "u"))
    )
    gap_ms = F.unix_millis("ts") - F.unix_millis(F.lag("until_ts").over(in_order))
    return terms.select(
        "controller_epoch",
        F.coalesce("broker", F.lit(-1)).alias("broker"),
        F.col("zxid").alias("from_zxid"),
        F.col("ts").alias("from_ts"),
        *(f"until_{name}" for name in until),
        F.when(gap_ms < 0, 0).otherwise(gap_ms).alias("gap_ms"),
    ).orderBy("from_zxid")


def picture(changes: DataFrame, _arguments: argparse.Namespace) -> Figure:
    """Draw one bar for each controller."""
    end = end_of(changes)
    bars = [
        Bar(
            f"broker {row.broker}",
            row.from_ts,
            row.until_ts or end,
            f"broker {row.broker}",
            f"epoch {row.controller_epoch}, zxid {row.from_zxid} to {row.until_zxid}",
        )
        for row in limited(compute(changes))
    ]
    return timeline("Controllers", bars)


JOB = changelog_job(
    "controller_timeline",
    "who was the controller, and how long there was none",
    "One row for each time that a broker became the controller: its epoch, from when until when, and the gap "
    "since the controller before it.",
    lambda changes, _arguments: compute(changes),
    add_arguments=add_picture_argument,
    picture=picture,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
