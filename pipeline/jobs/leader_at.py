"""Who led a partition as of a time or a zxid, or the whole cluster then: controller, brokers, partitions.

A time means the last transaction at or before it. What did not change up to then, but later, is known by the
image before its next change.
"""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING, Final

from pipeline.errors import InputError, OptionError
from pipeline.jobs.arguments import Moment, moment
from pipeline.jobs.changelog_job import changelog_job, run_as_program
from quorum.metadata import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_BROKER: Final = f"^{paths.BROKER_IDS}/([0-9]+)$"
_TOPIC: Final = f"^{paths.BROKER_TOPICS}/([^/]+)$"
_STATE: Final = f"^{paths.BROKER_TOPICS}/([^/]+)/partitions/([0-9]+)/state$"


def nodes_at(changes: DataFrame, when: Moment | None) -> DataFrame:
    """Return the znodes of the control plane as of a moment; None: the end of the history.

    Returns:
        path, value (as text), zxid, ts (of the change that made it so; null: before the history), created
        (zxid), controller_epoch.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    path = Window.partitionBy("path").orderBy("zxid", "txn_index")
    some = changes.where(F.col("path").rlike(f"^({paths.CONTROLLER}$|/brokers/(ids|topics)/)")).withColumn(
        "created", F.last(F.when(F.col("op") == "c", F.col("zxid")), ignorenulls=True).over(path)
    )
    is_past = F.lit(True) if when is None else F.col("ts" if isinstance(when, datetime) else "zxid") <= when
    last = Window.partitionBy("path").orderBy(F.desc("zxid"), F.desc("txn_index"))
    past = some.where(is_past).withColumn("rank", F.row_number().over(last)).where("rank = 1")
    next_one = some.withColumn("rank", F.row_number().over(path)).where((F.col("rank") == 1) & ~is_past)
    columns = (
        "path",
        F.col("after").cast("string").alias("value"),
        "zxid",
        "ts",
        "created",
        "controller_epoch",
    )
    earlier = next_one.select(
        *("path", F.col("before").cast("string"), F.lit(None).cast("bigint"), F.lit(None).cast("timestamp")),
        *(F.lit(None).cast("bigint"), "controller_epoch"),
    )
    return past.select(*columns).union(earlier).where("value is not null")


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
    broker = F.regexp_extract("path", _BROKER, 1)
    brokers = nodes.where(F.col("path").rlike(_BROKER)).select(
        row("broker", broker, f"regexp_extract(path, '{_BROKER}', 1)", "created")
    )
    topics = nodes.where(F.col("path").rlike(_TOPIC)).select(
        F.regexp_extract("path", _TOPIC, 1).alias("topic"),
        F.explode(F.from_json(F.get_json_object("value", "$.partitions"), "map<string, array<int>>")).alias(
            "partition", "replicas"
        ),
    )
    of_states = nodes.where(F.col("path").rlike(_STATE)).select(
        *(F.regexp_extract("path", _STATE, at).alias(name) for at, name in ((1, "topic"), (2, "partition"))),
        F.from_json("value", "leader INT, leader_epoch INT, isr ARRAY<INT>").alias("state"),
        *("zxid", "ts"),
    )
    partitions = of_states.join(topics, ["topic", "partition"], "left").select(
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
    """Return the rows that the options ask for.

    Raises:
        InputError: the partition did not exist then.
    """
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
        raise OptionError("--time", arguments.time, "is no time", "write 2026-11-25T10:00:00, or use --zxid")
    if isinstance(arguments.zxid, datetime):
        raise OptionError("--zxid", str(arguments.zxid), "is no zxid", "write a number, or use --time")


JOB = changelog_job(
    "leader_at",
    "who led a partition, or the whole cluster, as of a time",
    "One row for the partition as of a time or a zxid; with --all, one for the controller, each broker and "
    "each partition.",
    answer,
    add_arguments=_add_arguments,
    check=_check,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
