"""Produced against consumed, by topic and time: what was lost, came twice, or nobody has read yet.

Recorded chaos runs say exactly what was acknowledged and read. For a running cluster the topics' own records
are held against the offsets that groups committed, which stand in the change log: a group that committed
beyond the end of a log has read what was lost since, and one whose next offset is older than the log has
missed what retention removed. An offset that goes back means that records were read again.
Source: docs/internals/simulation.md, "What is checked"; quorum.metadata.group_records (the committed
offsets).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import OptionError
from pipeline.jobs import arguments as options
from pipeline.jobs.changelog_job import run_as_program
from pipeline.jobs.job import Job
from quorum.cli.commands.status import add_kafka_sasl_options
from quorum.config.logins import read_login
from quorum.metadata import paths

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BUCKET_S_DEFAULT: Final = 60
#: A partition as chaos runs name it.
PARTITION: Final = r"^(.+)-(\d+)$"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the job's own options."""
    parser.add_argument(
        "runs", metavar="RUN", type=Path, nargs="*", help="recorded runs; none: a running cluster"
    )
    parser.add_argument("--bootstrap", metavar="HOST:PORT,…", help="brokers whose topics are read")
    parser.add_argument(
        "--topics", metavar="REGEX", default=".*", help="the topics that count (default: every topic)"
    )
    parser.add_argument(
        "--bucket",
        metavar="SECONDS",
        type=int,
        default=BUCKET_S_DEFAULT,
        help=f"length of a row's time (default: {BUCKET_S_DEFAULT})",
    )
    options.add_changelog_arguments(parser)
    add_kafka_sasl_options(parser)


def broker_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the options of the topic source that the job's options mean."""
    name, file = arguments.kafka_sasl, arguments.kafka_password_file
    login = read_login(name, file, ("--sasl", "--password-file"))
    protocol = "plaintext" if login is None else "sasl_plaintext"
    found = {"kafka.bootstrap.servers": arguments.bootstrap}
    if arguments.ca is not None:
        protocol = protocol.replace("plaintext", "ssl")
        found["kafka.ssl.ca.location"] = str(arguments.ca)
    if arguments.cert is not None:
        found["kafka.ssl.certificate.location"] = str(arguments.cert)
        found["kafka.ssl.key.location"] = str(arguments.key)
    if login is not None:
        found["kafka.sasl.mechanism"] = arguments.kafka_mechanism
        found |= {"kafka.sasl.username": name, "quorate.passwordFile": str(file)}
    return {**found, "kafka.security.protocol": protocol}


def check(arguments: argparse.Namespace) -> None:
    """Refuse options that do not fit together."""
    from pipeline.jobs.changes import check_source

    options.check_changelog(arguments)
    if bool(arguments.runs) == (arguments.bootstrap is not None):
        raise OptionError(
            "--bootstrap", arguments.bootstrap, "one source is needed", "name either runs or brokers"
        )
    if not 1 <= arguments.bucket <= 86_400:
        raise OptionError("--bucket", arguments.bucket, "is out of range", "name 1 to 86400 seconds")
    if not arguments.runs:
        broker_options(arguments)
        check_source(arguments)


def read(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Return operations of runs, or the change log."""
    from pipeline.jobs.changes import read_changes
    from pipeline.jobs.histories import read_runs

    return read_runs(spark, arguments.runs) if arguments.runs else read_changes(spark, arguments)


def compute(rows: DataFrame, arguments: argparse.Namespace) -> DataFrame:
    """Audit what was read."""
    if arguments.runs:
        return audit_runs(rows, arguments.bucket)
    topics = (
        rows.sparkSession.read.format("quorate")
        .options(**broker_options(arguments))
        .option("subscribePattern", arguments.topics)
        .load()
        .select("topic", "partition", "offset", "timestamp")
        .cache()
    )
    return audit_topics(topics, rows, arguments.bucket)


def audit_runs(rows: DataFrame, bucket_s: int) -> DataFrame:
    """Audit recorded runs.

    Returns:
        run, topic, from_s (since the run's first operation, when it was produced; null: nobody produced it),
        acknowledged, unknown, stored, lost (acknowledged and not stored), doubled (copies beyond the first),
        consumed (stored and read by somebody), completeness (of what is stored, the part that was consumed).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    mine = rows.where(F.col("key").rlike(PARTITION)).withColumn(
        "began_ns",
        F.min(F.when(F.col("operation").isNotNull(), F.col("invoked_ns"))).over(Window.partitionBy("run")),
    )
    value = F.get_json_object("final", "$.value")
    stored = (
        mine.where(F.col("operation").isNull() & value.isNotNull())
        .groupBy("run", "key", value.alias("value"))
        .agg(F.count("*").alias("copies"))
    )
    produced = mine.where("operation = 'produce'").select(
        "run",
        "key",
        _text("argument").alias("value"),
        "outcome",
        (F.floor((F.col("invoked_ns") - F.col("began_ns")) / 1e9 / bucket_s) * bucket_s).alias("from_s"),
    )
    consumed = (
        mine.where("operation = 'consume' and outcome = 'ok'")
        .select("run", "key", _text("result").alias("value"), F.lit(True).alias("was_read"))
        .distinct()
    )
    names = ["run", "key", "value"]
    joined = produced.join(stored, names, "full").join(consumed, names, "left")
    is_stored, acknowledged = F.col("copies").isNotNull(), F.col("outcome") == "ok"
    counted = joined.groupBy("run", F.regexp_extract("key", PARTITION, 1).alias("topic"), "from_s").agg(
        F.count_if(acknowledged).alias("acknowledged"),
        F.count_if(F.col("outcome") == "unknown").alias("unknown"),
        F.count_if(is_stored).alias("stored"),
        F.count_if(acknowledged & ~is_stored).alias("lost"),
        F.coalesce(F.sum(F.col("copies") - 1), F.lit(0)).alias("doubled"),
        F.count_if(is_stored & F.col("was_read")).alias("consumed"),
    )
    return counted.withColumn("completeness", _part("consumed", "stored")).orderBy("run", "topic", "from_s")


def audit_topics(records: DataFrame, changes: DataFrame, bucket_s: int) -> DataFrame:
    """Audit topics against the offsets that groups committed.

    Args:
        records: topic, partition, offset and timestamp of what the topics hold.
        changes: the change log.
        bucket_s: length of a bucket, seconds.

    Returns:
        group, topic, from_ts (null: not known when it was produced), produced, consumed (committed by the
        group), waiting, lost, reread (in the bucket of the commit), completeness.
    """
    from pyspark.sql import functions as F

    bucket = _bucket(bucket_s)
    commits = _commits(changes)
    ends = records.groupBy("topic", "partition").agg(
        F.min("offset").alias("first"), (F.max("offset") + 1).alias("end")
    )
    last = commits.where("is_last and committed is not null").select(
        "group", "topic", "partition", "committed"
    )
    read_by = records.select("topic", "partition", "offset", bucket("timestamp").alias("from_ts")).join(
        last, ["topic", "partition"]
    )
    is_read = F.col("offset") < F.col("committed")
    counted = read_by.groupBy("group", "topic", "from_ts").agg(
        F.count("*").alias("produced"),
        F.count_if(is_read).alias("consumed"),
        F.count_if(~is_read).alias("waiting"),
    )
    gaps = last.join(ends, ["topic", "partition"])
    lost = gaps.groupBy("group", "topic", F.lit(None).cast("timestamp").alias("from_ts")).agg(
        F.sum(
            F.greatest(F.col("committed") - F.col("end"), F.lit(0))
            + F.greatest(F.col("first") - F.col("committed"), F.lit(0))
        ).alias("lost")
    )
    back = (
        commits.where("committed < former")
        .groupBy("group", "topic", bucket("ts").alias("from_ts"))
        .agg(F.sum(F.col("former") - F.col("committed")).alias("reread"))
    )
    numbers = ("produced", "consumed", "waiting", "lost", "reread")
    everything = (
        counted.unionByName(lost.where("lost > 0"), allowMissingColumns=True)
        .unionByName(back, allowMissingColumns=True)
        .groupBy("group", "topic", "from_ts")
        .agg(*(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in numbers))
    )
    return everything.withColumn("completeness", _part("consumed", "produced")).orderBy(
        "group", "topic", "from_ts"
    )


def _commits(changes: DataFrame) -> DataFrame:
    """Return every commit of an offset in order: group, topic, partition, ts, committed (null: the offset is
    gone), former, is_last."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    pattern = rf"^{paths.GROUPS}/([^/]+)/offsets/([^/]+)/(\d+)$"
    in_order = Window.partitionBy("path").orderBy("zxid", "txn_index")
    offset = F.get_json_object(F.col("after").cast("string"), "$.offset").cast("bigint")
    return (
        changes.where(F.col("path").rlike(pattern))
        .withColumn("committed", F.when(F.col("op") != "d", offset))
        .select(
            F.url_decode(F.regexp_extract("path", pattern, 1)).alias("group"),
            F.regexp_extract("path", pattern, 2).alias("topic"),
            F.regexp_extract("path", pattern, 3).cast("int").alias("partition"),
            "ts",
            "committed",
            F.lag("committed").over(in_order).alias("former"),
            F.lead("zxid").over(in_order).isNull().alias("is_last"),
        )
    )


def _bucket(bucket_s: int) -> Callable[[str], Column]:
    from pyspark.sql import functions as F

    def start(name: str) -> Column:
        return F.timestamp_seconds(F.floor(F.unix_seconds(name) / bucket_s) * bucket_s)

    return start


def _text(name: str) -> Column:
    """Return the text that a column holds as JSON."""
    from pyspark.sql import functions as F

    return F.variant_get(F.parse_json(name), "$", "string")


def _part(some: str, whole: str) -> Column:
    from pyspark.sql import functions as F

    return F.when(F.col(whole) > 0, F.col(some) / F.col(whole))


def is_finding(answer: DataFrame) -> bool:
    """Say whether something was lost or doubled; what was read again, or waits, is not a mistake."""
    wrong = "lost > 0 or doubled > 0" if "doubled" in answer.columns else "lost > 0"
    return not answer.where(wrong).isEmpty()


JOB = Job(
    name="audit",
    summary="produced against consumed: what was lost, came twice, or waits",
    description="One row for each topic and time. Of recorded runs: what was acknowledged, lost, doubled and "
    "consumed. Of a running cluster, for each group: what the topic holds, how much of it the group has "
    "committed, what it lost, and how often it read something again.",
    add_arguments=add_arguments,
    read=read,
    compute=compute,
    check=check,
    is_finding=is_finding,
)

if __name__ == "__main__":
    raise SystemExit(run_as_program(JOB))
