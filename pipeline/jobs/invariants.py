"""The invariants of the control plane that a history of transactions can break: one row for each violation.

I16 one controller per epoch, epochs rise by one, nothing is written for an older controller · I17 a broker
registers together with its generation, and nothing is written by a former life of a leader · I18 the leader
is in the ISR, the ISR in the replicas, the leader epoch rises by one with the controller's writes and never
with a leader's · I20 a leader from outside the ISR is marked, and only such a one · I21 a reassignment ends
with its target or its origin, and replicas change by nothing else · I22 a topic that is created again has an
id and states of its own. (I19, no acknowledged message is lost, takes the messages: see `history_check`.)
What the history does not show, such as which broker was the controller before it begins, is not judged.
Source: docs/internals/simulation.md, "What is checked"; controller.core.elections and reassignment.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Final

from pipeline.jobs.changelog_job import changelog_job, run_as_program
from pipeline.jobs.elections import UNCLEAN
from pipeline.jobs.records import assignments, lives, state_changes, topic_changes, with_generation
from quorum.metadata import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


def compute(changes: DataFrame) -> DataFrame:
    """Return violations by rising zxid.

    Returns:
        invariant, zxid, ts, path, seen (a sentence).
    """
    states = state_changes(changes).drop("incarnation").cache()
    written = states.where("op in ('c', 'u')")
    found = (
        _controllers(changes),
        _epochs(changes),
        _controller_writes(changes, written),
        _registrations(changes),
        _former_lives(changes, written),
        _states(written),
        _outside_of_replicas(changes, written),
        _reassignments(changes),
        _topics(changes, states),
    )
    return functools.reduce(lambda left, right: left.unionByName(right), found).orderBy(
        "zxid", "path", "invariant", "seen"
    )


def _violations(rows: DataFrame, path: str, *rules: tuple[str, str, str]) -> DataFrame:
    """Return a row for each rule that a row breaks.

    Args:
        rows: with zxid and ts.
        path: template of the znode.
        rules: invariant, SQL of when it is broken, template of what is seen.
    """
    from pyspark.sql import functions as F

    broken = F.array(
        *(
            F.when(
                F.coalesce(F.expr(condition), F.lit(False)),
                F.struct(F.lit(name).alias("invariant"), _filled(seen).alias("seen")),
            )
            for name, condition, seen in rules
        )
    )
    return (
        rows.withColumn("broken", F.explode(broken))
        .where("broken is not null")
        .select("broken.invariant", "zxid", "ts", _filled(path).alias("path"), "broken.seen")
    )


def _filled(template: str) -> Column:
    """Return a text in which {SQL} stands for its value."""
    from pyspark.sql import functions as F

    texts = re.split(r"\{([^}]*)\}", template)
    return F.concat(
        *(
            F.coalesce(F.expr(text).cast("string"), F.lit("null")) if at % 2 else F.lit(text)
            for at, text in enumerate(texts)
        )
    )


_PARTITION: Final = f"{paths.BROKER_TOPICS}/{{topic}}/partitions/{{partition}}/state"
_TOPIC: Final = f"{paths.BROKER_TOPICS}/{{topic}}"


def _elected(changes: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return changes.where((F.col("path") == paths.CONTROLLER) & (F.col("op") == "c"))


def _controllers(changes: DataFrame) -> DataFrame:
    """I16: no two controllers have one epoch, and each raises it in the transaction that makes it one."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    epoch = Window.partitionBy("controller_epoch").orderBy("zxid", "txn_index")
    raised = changes.where(F.col("path") == paths.CONTROLLER_EPOCH).select(
        "zxid", F.lit(True).alias("raised")
    )
    elected = _elected(changes).withColumn("earlier", F.lag("zxid").over(epoch))
    return _violations(
        elected.join(raised.distinct(), "zxid", "left"),
        "{path}",
        (
            "I16",
            "earlier is not null",
            "epoch {controller_epoch} had a controller already, by zxid {earlier}",
        ),
        ("I16", "raised is null", "a controller was elected without raising epoch {controller_epoch}"),
    )


def _epochs(changes: DataFrame) -> DataFrame:
    """I16: /controller_epoch rises by one."""
    from pyspark.sql import functions as F

    values = changes.where((F.col("path") == paths.CONTROLLER_EPOCH) & (F.col("op") == "u")).selectExpr(
        *("zxid", "ts", "path"),
        *(f"try_cast(cast({image} as string) as int) {image}" for image in ("before", "after")),
    )
    return _violations(
        values,
        "{path}",
        ("I16", "after is null or after <> before + 1", "the controller epoch went from {before} to {after}"),
    )


def _controller_writes(changes: DataFrame, written: DataFrame) -> DataFrame:
    """I16: the controller's writes of states carry the present epoch, and come from that epoch's session."""
    from pyspark.sql import functions as F

    controllers = (
        changes.where((F.col("path") == paths.CONTROLLER) & F.col("op").isin("c", "r"))
        .groupBy(F.col("controller_epoch").alias("epoch"))
        .agg(F.min_by("session_id", "zxid").alias("controller_session"))
    )
    decided = written.where("before is null or before.leader_epoch <> after.leader_epoch")
    return _violations(
        decided.join(controllers, "epoch", "left"),
        _PARTITION,
        (
            "I16",
            "after.controller_epoch <> epoch",
            "controller epoch {after.controller_epoch} was written while it was {epoch}",
        ),
        (
            "I16",
            "controller_session <> session_id",
            "session {session_id} decided; the controller of epoch {epoch} has session {controller_session}",
        ),
    )


def _registrations(changes: DataFrame) -> DataFrame:
    """I17: a registration and its generation are one transaction."""
    from pyspark.sql import functions as F

    generation = f"^{paths.BROKER_GENERATIONS}/([0-9]+)$"
    recorded = changes.where(F.col("path").rlike(generation)).select(
        *("zxid", F.regexp_extract("path", generation, 1).cast("int").alias("broker")),
        F.lit(True).alias("recorded"),
    )
    begun = lives(changes).where("from_zxid is not null").selectExpr("broker", "from_zxid zxid", "from_ts ts")
    return _violations(
        begun.join(recorded, ["zxid", "broker"], "left"),
        f"{paths.BROKER_IDS}/{{broker}}",
        ("I17", "recorded is null", "broker {broker} registered without recording its generation"),
    )


def _former_lives(changes: DataFrame, written: DataFrame) -> DataFrame:
    """I17: a leader's own write of its ISR comes from the session of its present registration."""
    from pyspark.sql import functions as F

    own = written.where("before.leader_epoch = after.leader_epoch and after.leader >= 0")
    return _violations(
        with_generation(own, changes, F.col("after.leader")),
        _PARTITION,
        (
            "I17",
            "generation = -2",
            "session {session_id} changed the ISR for broker {after.leader}, which is not registered",
        ),
        (
            "I17",
            "generation_session <> session_id",
            "session {session_id} changed the ISR for broker {after.leader} of session {generation_session}",
        ),
    )


def _states(written: DataFrame) -> DataFrame:
    """I18 and I20: what one change of a state shows by itself."""
    is_marked = "coalesce(after.leader_recovery_state, 0) = 1"
    is_member = "array_contains(before.isr, after.leader)"
    return _violations(
        written,
        _PARTITION,
        (
            "I18",
            "after.leader is null or after.isr is null or after.leader_epoch is null",
            "the state is malformed",
        ),
        (
            "I18",
            "after.leader >= 0 and not array_contains(after.isr, after.leader)",
            "leader {after.leader} is not in the ISR {after.isr}",
        ),
        (
            "I18",
            "after.leader_epoch not in (before.leader_epoch, before.leader_epoch + 1)",
            "the leader epoch went from {before.leader_epoch} to {after.leader_epoch}",
        ),
        (
            "I18",
            "after.leader_epoch = before.leader_epoch and "  # noqa: ISC004 - one condition
            "(after.leader <> before.leader or after.controller_epoch <> before.controller_epoch)",
            "leader {before.leader} became {after.leader} within leader epoch {after.leader_epoch}",
        ),
        (
            "I20",
            f"after.leader >= 0 and not {is_member} and not {is_marked}",
            "leader {after.leader} was not in the ISR {before.isr}, and the state does not say so",
        ),
        (
            "I20",
            f"{UNCLEAN} and {is_member}",
            "leader {after.leader} was in the ISR {before.isr}, and the state calls its election unclean",
        ),
    )


def _outside_of_replicas(changes: DataFrame, written: DataFrame) -> DataFrame:
    """I18: the ISR is a part of the replicas that the topic's record names, after the same transaction."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    partition = Window.partitionBy("topic", "partition").orderBy("zxid")
    until_now = partition.rangeBetween(Window.unboundedPreceding, 0)
    assigned = assignments(changes).select("topic", "partition", "zxid", "replicas")
    both = written.select("topic", "partition", "zxid", "ts", F.col("after.isr").alias("isr")).unionByName(
        assigned, allowMissingColumns=True
    )
    return _violations(
        both.withColumn("replicas", F.last("replicas", ignorenulls=True).over(until_now)),
        _PARTITION,
        ("I18", "size(array_except(isr, replicas)) > 0", "ISR {isr} goes beyond the replicas {replicas}"),
    )


def _reassignments(changes: DataFrame) -> DataFrame:
    """I21: a reassignment keeps its origin, and ends with its target or its origin."""
    from pyspark.sql import functions as F

    def part(image: str, name: str) -> str:
        return f"coalesce({image}.{name}[partition], array())"

    moved = (
        topic_changes(changes)
        .where("op = 'u'")
        .withColumn("partition", F.explode(F.expr("map_keys(before.partitions)")))
    )
    for image in ("before", "after"):
        replicas = f"{image}.partitions[partition]"
        adding, removing = part(image, "adding_replicas"), part(image, "removing_replicas")
        moved = moved.withColumns(
            {
                f"{image}_replicas": F.expr(replicas),
                f"{image}_origin": F.expr(f"array_sort(array_except({replicas}, {adding}))"),
                f"{image}_target": F.expr(
                    f"filter({replicas}, each -> not array_contains({removing}, each))"
                ),
                f"{image}_moves": F.expr(f"size({adding}) + size({removing}) > 0"),
            }
        )
    seen = "partition {partition} went from replicas {before_replicas} to {after_replicas}, "
    is_restored = "array_sort(after_replicas) = before_origin"
    return _violations(
        moved,
        _TOPIC,
        ("I21", "after_replicas is null", "partition {partition} is gone"),
        (
            "I21",
            f"before_moves and not after_moves and after_replicas <> before_target and not ({is_restored})",
            seen + "neither the target {before_target} nor the origin {before_origin}",
        ),
        ("I21", "after_moves and after_origin <> before_origin", seen + "with another origin {after_origin}"),
        (
            "I21",
            f"not before_moves and not after_moves and not ({is_restored})",
            seen + "without a reassignment",
        ),
    )


def _topics(changes: DataFrame, states: DataFrame) -> DataFrame:
    """I22: a topic id is given once and stays; a partition begins with leader epoch 0."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    topics = topic_changes(changes)
    same_id = Window.partitionBy("after.topic_id").orderBy("zxid", "txn_index")
    created = topics.where("op = 'c' and after.topic_id is not null")
    of_topics = _violations(
        created.withColumn("earlier", F.lag("topic").over(same_id)).unionByName(
            topics.where("op = 'u'"), allowMissingColumns=True
        ),
        _TOPIC,
        ("I22", "earlier is not null", "topic {topic} was created with the id of an earlier topic {earlier}"),
        ("I22", "before.topic_id <> after.topic_id", "the id of topic {topic} changed"),
    )
    begun = _violations(
        states.where("op = 'c'"),
        _PARTITION,
        ("I22", "after.leader_epoch <> 0", "a new partition began with leader epoch {after.leader_epoch}"),
    )
    return of_topics.unionByName(begun)


JOB = changelog_job(
    "invariants",
    "find transactions that break an invariant of the control plane",
    "One row for each violation: which invariant, the transaction, the znode, and what was seen. Exit code 1 "
    "if there is one.",
    lambda changes, _arguments: compute(changes),
    is_finding=lambda answer: not answer.isEmpty(),
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
