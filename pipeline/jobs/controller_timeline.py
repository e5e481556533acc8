"""Who was the controller, from when until when, and how long there was none.

One row for each time that a broker took /controller. Its epoch is the value of /controller_epoch after that
transaction. The gap is the time since the former controller's node went; both times are leaders' clocks.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from pipeline.jobs.arguments import add_picture_argument
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.drawing import Bar, ends_of, limited, timeline
from quorum.metadata import paths

if TYPE_CHECKING:
    from plotly.graph_objects import Figure
    from pyspark.sql import DataFrame


def compute(changes: DataFrame) -> DataFrame:
    """Return controllers by rising epoch.

    Returns:
        controller_epoch, broker (−1: the value is malformed), from_zxid, from_ts (null: before the history),
        until_zxid, until_ts (null: still the controller), gap_ms since the former one (null: none is known).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    in_order = Window.orderBy("zxid", "txn_index")
    rows = changes.where(F.col("path") == paths.CONTROLLER).withColumns(
        {
            "first": F.row_number().over(in_order) == 1,
            "former_op": F.lag("op").over(in_order),
            "former_ts": F.lag("ts").over(in_order),
            "next_zxid": F.lead("zxid").over(in_order),
            "next_ts": F.lead("ts").over(in_order),
        }
    )
    # A node that is overwritten ends its controller's time as a deletion does.
    return (
        rows.where("op in ('c', 'r') or first")
        .withColumn("image", F.expr("if(op in ('c', 'r'), after, before)"))
        .selectExpr(
            "controller_epoch",
            "coalesce(int(get_json_object(cast(image as string), '$.brokerid')), -1) as broker",
            *(f"if(op = 'c', {name}, null) as from_{name}" for name in ("zxid", "ts")),
            *(f"if(op in ('c', 'r'), next_{name}, {name}) as until_{name}" for name in ("zxid", "ts")),
            "if(op = 'c' and former_op in ('d', 'u'), "
            "greatest(unix_millis(ts) - unix_millis(former_ts), 0), null) as gap_ms",
        )
        .orderBy(F.asc_nulls_first("from_zxid"))
    )


def picture(changes: DataFrame, _arguments: argparse.Namespace) -> Figure:
    """Draw one bar for each controller."""
    begin, end = ends_of(changes)
    bars = [
        Bar(
            f"broker {row.broker}",
            row.from_ts or begin,
            row.until_ts or end,
            f"broker {row.broker}",
            f"epoch {row.controller_epoch}, zxid {row.from_zxid} to {row.until_zxid}",
        )
        for row in limited(compute(changes))
    ]
    return timeline("Controllers", bars)


JOB = changelog_job(
    "controller_timeline",
    "which broker was the controller, and how long there was none",
    "One row for each time that a broker became the controller: its epoch, from when until when, and the gap "
    "since the controller before it.",
    lambda changes, _arguments: compute(changes),
    add_arguments=add_picture_argument,
    picture=picture,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
