"""Who led a partition as of a time or a zxid, or the whole cluster then: controller, brokers, partitions.

A time means the last transaction at or before it. What did not change up to then, but later, is known by the
image before its next change.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from pipeline.errors import InputError, OptionError
from pipeline.jobs.arguments import Moment, moment
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.records import BROKER_PATH, STATE_PATH, TOPIC_PATH
from quorum.metadata import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def nodes_at(changes: DataFrame, when: Moment | None) -> DataFrame:
    """Return the znodes of the control plane as of a moment; None: the end of the history.

    Returns:
        path, value (as text), zxid, ts (of the change that made it so; null: before the history), created
        (zxid), controller_epoch.
    """
    from pyspark.sql import functions as F

    is_past = F.lit(True) if when is None else F.col("ts" if isinstance(when, datetime) else "zxid") <= when
    place = F.struct("zxid", "txn_index")
    last = F.max_by(F.struct("after", "zxid", "ts", "controller_epoch"), F.when(is_past, place))
    following = F.min_by(F.struct("before", "controller_epoch"), F.when(~is_past, place))
    return (
        changes.where(F.col("path").rlike(f"^({paths.CONTROLLER}$|/brokers/(ids|topics)/)"))
        .groupBy("path")
        .agg(
            last.alias("last"),
            following.alias("following"),
            F.max(F.when(is_past & (F.col("op") == "c"), F.col("zxid"))).alias("created"),
        )
        .select(
            "path",
            F.expr("cast(if(last is null, following.before, last.after) as string)").alias("value"),
            *("last.zxid", "last.ts", "created"),
            F.coalesce("last.controller_epoch", "following.controller_epoch").alias("controller_epoch"),
        )
        .where("value is not null")
    )


def assignment_of(nodes: DataFrame) -> DataFrame:
    """Return topic, partition and replicas of every partition, of what `nodes_at` returns."""
    from pyspark.sql import functions as F

    record = F.from_json("value", "partitions MAP<STRING, ARRAY<INT>>")
    return (
        nodes.where(F.col("path").rlike(TOPIC_PATH))
        .select(
            F.regexp_extract("path", TOPIC_PATH, 1).alias("topic"),
            F.explode(record["partitions"]).alias("partition", "replicas"),
        )
        .withColumn("partition", F.col("partition").cast("int"))
    )


def compute(changes: DataFrame, when: Moment | None = None) -> DataFrame:
    """Return one row for the controller, each broker and each partition as of a moment.

    Returns:
        kind, name, leader (of a partition; the controller's or the broker's id), epoch (leader epoch,
        controller epoch or generation), isr, replicas, zxid, ts (of the record).
    """
    from pyspark.sql import functions as F

    nodes = nodes_at(changes, when).cache()
    none = F.lit(None).cast("array<int>")

    def row(
        kind: str, name: Column, leader: str, epoch: str, isr: Column = none, replicas: Column = none
    ) -> list[Column]:
        who = (F.expr(leader).cast("int").alias("leader"), F.expr(epoch).cast("bigint").alias("epoch"))
        lists = (isr.alias("isr"), replicas.alias("replicas"))
        return [F.lit(kind).alias("kind"), name.alias("name"), *who, *lists, F.col("zxid"), F.col("ts")]

    controller = nodes.where(F.col("path") == paths.CONTROLLER).select(
        row("controller", F.lit(""), "get_json_object(value, '$.brokerid')", "controller_epoch")
    )
    broker = F.regexp_extract("path", BROKER_PATH, 1)
    brokers = nodes.where(F.col("path").rlike(BROKER_PATH)).select(
        row("broker", broker, f"regexp_extract(path, '{BROKER_PATH}', 1)", "created")
    )
    of_states = nodes.where(F.col("path").rlike(STATE_PATH)).select(
        F.regexp_extract("path", STATE_PATH, 1).alias("topic"),
        F.regexp_extract("path", STATE_PATH, 2).cast("int").alias("partition"),
        F.from_json("value", "leader INT, leader_epoch INT, isr ARRAY<INT>").alias("state"),
        *("zxid", "ts"),
    )
    partitions = of_states.join(assignment_of(nodes), ["topic", "partition"], "left").select(
        row(
            *("partition", F.concat_ws("-", "topic", "partition"), "state.leader", "state.leader_epoch"),
            *(F.col("state.isr"), F.col("replicas")),
        )
    )
    return (
        controller.union(brokers)
        .union(partitions)
        .orderBy(
            F.expr("array_position(array('controller', 'broker', 'partition'), kind)"),
            F.length("name"),
            "name",
        )
    )


def answer(changes: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """Return the rows that the options ask for."""
    from pyspark.sql import functions as F

    when: Moment | None = arguments.time if arguments.time is not None else arguments.zxid
    rows = compute(changes, when)
    if arguments.all:
        return rows
    name = f"{arguments.topic}-{arguments.partition}"
    found = rows.where((F.col("kind") == "partition") & (F.col("name") == name))
    if found.isEmpty():
        raise InputError(
            f"partition {name} is not in the history as of {'its end' if when is None else when}",
            "name a partition that existed then, or a history that begins earlier",
        )
    return found


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--topic", metavar="T", help="of the partition")
    parser.add_argument("--partition", metavar="P", type=int, help="its number")
    parser.add_argument("--all", action="store_true", help="the whole cluster")
    at = parser.add_mutually_exclusive_group()
    at.add_argument("--time", metavar="TIME", type=moment, help="ISO 8601, UTC unless it says otherwise")
    at.add_argument("--zxid", metavar="ZXID", type=moment, help="a transaction (default: the last)")


def _check(arguments: argparse.Namespace) -> None:
    named = arguments.topic is not None and arguments.partition is not None
    if arguments.all == named or (arguments.all and (arguments.topic or arguments.partition) is not None):
        raise OptionError(
            "--all", arguments.all, "does not say what is asked", "give --topic and --partition, or --all"
        )
    if isinstance(arguments.time, int):
        raise OptionError(
            "--time", arguments.time, "is not a time", "write 2026-11-25T10:00:00, or use --zxid"
        )
    if isinstance(arguments.zxid, datetime):
        raise OptionError("--zxid", str(arguments.zxid), "is not a zxid", "write a number, or use --time")


JOB = changelog_job(
    "leader_at",
    "which broker led a partition, or the whole cluster, as of a time",
    "One row for the partition as of a time or a zxid; with --all, one for the controller, each broker and "
    "each partition.",
    answer,
    add_arguments=_add_arguments,
    check=_check,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
