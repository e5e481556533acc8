"""The control plane's records in a change log, as tables: states, assignments, lives of brokers.

Decides how a znode's path and JSON value become columns, and what is known of the time before the history
begins: the tree that it begins with (rows of op r), or the image before a node's first change. A malformed
value has null columns. Pure.
Source: quorum.metadata.paths and records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from quorum.metadata import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: generation of a broker that registered before the history begins
UNKNOWN: Final = -1
#: instead of a generation: the broker is not registered
DEAD: Final = -2
#: zxid of what was there before the history begins
BEFORE: Final = -1
#: Paths, as regular expressions.
STATE_PATH: Final = f"^{paths.BROKER_TOPICS}/([^/]+)/partitions/([0-9]+)/state$"
TOPIC_PATH: Final = f"^{paths.BROKER_TOPICS}/([^/]+)$"
BROKER_PATH: Final = f"^{paths.BROKER_IDS}/([0-9]+)$"
_STATE: Final = (
    "controller_epoch INT, leader INT, leader_epoch INT, isr ARRAY<INT>, leader_recovery_state INT"
)
_TOPIC: Final = (
    "topic_id STRING, partitions MAP<STRING, ARRAY<INT>>, adding_replicas MAP<STRING, ARRAY<INT>>, "
    "removing_replicas MAP<STRING, ARRAY<INT>>"
)


def state_changes(changes: DataFrame) -> DataFrame:
    """Return the changes of partition states.

    Returns:
        topic, partition, zxid, txn_index, term, ts, op, session_id, epoch (of the controller then), before
        and after (structs of the record; null: absent), incarnation (rises when it is created again).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    partition = Window.partitionBy("topic", "partition").orderBy("zxid", "txn_index")
    return (
        changes.where(F.col("path").rlike(STATE_PATH))
        .select(
            F.regexp_extract("path", STATE_PATH, 1).alias("topic"),
            F.regexp_extract("path", STATE_PATH, 2).cast("int").alias("partition"),
            *("zxid", "txn_index", "term", "ts", "op", "session_id"),
            F.col("controller_epoch").alias("epoch"),
            *(_json(name, _STATE).alias(name) for name in ("before", "after")),
        )
        .withColumn("incarnation", F.sum(F.when(F.col("op") == "c", 1).otherwise(0)).over(partition))
    )


def states(changes: DataFrame) -> DataFrame:
    """Return `state_changes` and, as a change with zxid −1, what was there before the history begins."""
    return _with_beginning(changes, state_changes(changes), ["topic", "partition"])


def topic_changes(changes: DataFrame) -> DataFrame:
    """Return the changes of topic records.

    Returns:
        topic, zxid, txn_index, term, ts, op, session_id, before and after (structs of the record).
    """
    from pyspark.sql import functions as F

    return changes.where(F.col("path").rlike(TOPIC_PATH)).select(
        F.regexp_extract("path", TOPIC_PATH, 1).alias("topic"),
        *("zxid", "txn_index", "term", "ts", "op", "session_id"),
        *(_json(name, _TOPIC).alias(name) for name in ("before", "after")),
    )


def assignments(changes: DataFrame) -> DataFrame:
    """Return which brokers were assigned to each partition, one row for each change of its topic.

    Returns:
        topic, partition, zxid, ts, replicas, adding, removing (empty: none).
    """
    from pyspark.sql import functions as F

    topics = _with_beginning(changes, topic_changes(changes), ["topic"])
    each = topics.where("after.partitions is not null").select(
        "topic", "zxid", "ts", "after", F.explode("after.partitions").alias("name", "replicas")
    )
    none = F.array().cast("array<int>")
    return each.select(
        "topic",
        F.col("name").cast("int").alias("partition"),
        *("zxid", "ts", "replicas"),
        F.coalesce(F.col("after.adding_replicas")[F.col("name")], none).alias("adding"),
        F.coalesce(F.col("after.removing_replicas")[F.col("name")], none).alias("removing"),
    )


def lives(changes: DataFrame) -> DataFrame:
    """Return each registration of a broker.

    Returns:
        broker, generation (−1: it registered before the history begins), session_id, from_zxid, from_ts (null
        there), until_zxid, until_ts, until_term (null: it is registered still).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    broker = Window.partitionBy("broker").orderBy("zxid", "txn_index")
    events = (
        changes.where(F.col("path").rlike(BROKER_PATH) & (F.col("op") != "u"))
        .withColumn("broker", F.regexp_extract("path", BROKER_PATH, 1).cast("int"))
        .withColumns({f"until_{name}": F.lead(name).over(broker) for name in ("zxid", "ts", "term")})
        .withColumn("first", F.row_number().over(broker) == 1)
    )
    return events.where("op in ('c', 'r') or first").selectExpr(
        "broker",
        f"if(op = 'c', zxid, {UNKNOWN}L) as generation",
        "if(op = 'd', null, session_id) as session_id",
        *(f"if(op = 'c', {name}, null) as from_{name}" for name in ("zxid", "ts")),
        *(f"if(op = 'd', {name}, until_{name}) as until_{name}" for name in ("zxid", "ts", "term")),
    )


def with_generation(rows: DataFrame, changes: DataFrame, broker: Column) -> DataFrame:
    """Add the generation and session that a broker of each row had as of its zxid.

    Returns:
        The rows with generation (−1: unknown, the broker is taken to live; −2: not registered) and
        generation_session.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    def mark(zxid: str, generation: str, session_id: str) -> str:
        return (
            f"struct({zxid} as zxid, struct({generation} as generation, {session_id} as session_id) as mark)"
        )

    nobody = (f"{DEAD}L", "cast(null as bigint)")
    of_life = (
        mark("coalesce(from_zxid, -2L)", "generation", "session_id"),
        mark("until_zxid", *nobody),
        # A broker whose first row registers it was not there before.
        mark("-2L", *nobody),
    )
    # Where one life follows another in one transaction, the later one counts.
    marks = (
        lives(changes)
        .selectExpr("broker", f"inline(array({', '.join(of_life)}))")
        .where("zxid is not null")
        .groupBy("broker", "zxid")
        .agg(F.max("mark").alias("mark"))
    )
    asked = rows.select(broker.alias("broker"), "zxid", F.struct("*").alias("row"))
    both = asked.unionByName(marks, allowMissingColumns=True)
    until_now = Window.partitionBy("broker").orderBy("zxid").rangeBetween(Window.unboundedPreceding, 0)
    return (
        both.withColumn("mark", F.last("mark", ignorenulls=True).over(until_now))
        .where("row is not null")
        .select(
            "row.*",
            F.coalesce("mark.generation", F.lit(UNKNOWN)).alias("generation"),
            F.col("mark.session_id").alias("generation_session"),
        )
    )


def _with_beginning(changes: DataFrame, rows: DataFrame, key: list[str]) -> DataFrame:
    """Add, for each first change with an image before it, that image as a row of its own."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order = Window.partitionBy(*key).orderBy("zxid", "txn_index")
    begin = changes.agg(F.min("ts").alias("begin_ts"))
    image = {
        "zxid": F.lit(BEFORE).cast("bigint"),
        "ts": F.col("begin_ts"),
        "op": F.lit("r"),
        "after": F.col("before"),
        "before": F.lit(None).cast(rows.schema["before"].dataType),
    }
    beginning = F.struct(*(image.get(name, F.col(name)).alias(name) for name in rows.columns))
    itself = F.struct(*rows.columns)
    return (
        rows.withColumn("is_first", (F.row_number().over(order) == 1) & F.col("before").isNotNull())
        .crossJoin(F.broadcast(begin))
        .select(F.inline(F.when(F.col("is_first"), F.array(beginning, itself)).otherwise(F.array(itself))))
    )


def _json(image: str, schema: str) -> Column:
    from pyspark.sql import functions as F

    return F.from_json(F.col(image).cast("string"), schema)
