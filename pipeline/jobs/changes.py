"""Where a job's change log comes from: the nodes of a quorum, or a recording of their history.

Decides which part of it counts, and refuses a damaged recording, naming file and line. Each row is one change
of a znode, as `format("quorate-changelog")` gives it.
Source: docs/clients/spark.md, "Change log"; docs/reference/http.md, "The change log".
"""

from __future__ import annotations

import argparse
import gzip
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from pipeline.errors import InputError, OptionError
from pipeline.jobs.arguments import Moment
from quorum.errors import shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SOURCE: Final = "quorate-changelog"
#: {option of the source: the option of a job that sets it}
_OF_JOB: Final = {
    "quorate.admin": "--admin",
    "quorate.tokenFile": "--token-file",
    **{f"quorate.{name}": f"--{name}" for name in ("ca", "cert", "key")},
    "startingZxid": "--from",
    "endingZxid": "--until",
}
#: One record of `quorate changelog dump --json`; images are base64.
RECORD: Final = (
    "zxid BIGINT, term BIGINT, ts BIGINT, session_id BIGINT, node_id INT, controller_epoch INT, "
    "cluster_id STRING, changes ARRAY<STRUCT<op: STRING, path: STRING, before: STRING, after: STRING, "
    "version: INT>>, damage STRING"
)


def changes_schema() -> str:
    """Return the columns of a change, as DDL."""
    from pipeline.changelog.rows import SCHEMA

    return SCHEMA


def check_source(arguments: argparse.Namespace) -> None:
    """Refuse a history that cannot be had, before Spark is started."""
    from pipeline.changelog.options import read_options
    from pipeline.changelog.ranges import batch_partitions
    from pipeline.changelog.reading import ChangelogClient, HistoryLostError, TreeLostError
    from quorum.errors import UnreachableError

    if arguments.input is not None:
        _check_exists(arguments.input)
        return
    try:
        given = read_options(source_options(arguments))
        if getattr(arguments, "follow", False):
            # A checkpoint may decide where it begins.
            ChangelogClient(given.nodes, given.token, given.tls).extent()
        else:
            batch_partitions(given)
    except OptionError as error:
        name = _OF_JOB.get(error.name, error.name)
        remedy = error.remedy.replace("startingZxid", "--from")
        raise OptionError(name, error.value, error.problem, remedy) from None
    except (HistoryLostError, TreeLostError) as error:
        # A job begins with the tree behind the transaction before.
        raise InputError(error.message, f"give --from {error.first_zxid + 1}") from None
    except UnreachableError as error:
        remedy = "name running nodes with --admin, or a recording with --input"
        raise InputError(error.message, remedy) from error


def read_changes(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Return the part of the history that the options name; Spark reads it once and keeps it.

    A job looks at its rows many times, and must see the same history each time.
    """
    if arguments.input is not None:
        changes = read_recording(spark, arguments.input)
    else:
        reader = spark.read.format(SOURCE)
        for name, value in source_options(arguments).items():
            reader = reader.option(name, value)
        changes = reader.load()
    return within(changes, arguments.begin, arguments.end).cache()


def follow_changes(spark: SparkSession, arguments: argparse.Namespace) -> DataFrame:
    """Return the history from --from on as a stream."""
    stream = spark.readStream.format(SOURCE)
    for name, value in source_options(arguments).items():
        stream = stream.option(name, value)
    return within(stream.load(), arguments.begin, None)


def source_options(arguments: argparse.Namespace) -> dict[str, str]:
    """Return the source's options that the job's options mean."""
    options = {"quorate.admin": arguments.admin}
    if getattr(arguments, "token_file", None) is not None:
        options["quorate.tokenFile"] = arguments.token_file
    for name in ("ca", "cert", "key"):
        if getattr(arguments, name, None) is not None:
            options[f"quorate.{name}"] = str(getattr(arguments, name))
    if isinstance(arguments.begin, int):
        options |= {"startingZxid": str(arguments.begin), "bootstrap": "true"}
    if isinstance(arguments.end, int):
        options["endingZxid"] = str(arguments.end)
    return options


def within(changes: DataFrame, begin: Moment | None, end: Moment | None) -> DataFrame:
    """Keep the transactions from one moment to another, both inclusive, and the tree before them."""
    from pyspark.sql import functions as F

    if begin is not None:
        since = F.col("ts" if isinstance(begin, datetime) else "zxid") >= F.lit(begin)
        changes = changes.where(since | (F.col("op") == "r"))
    if end is not None:
        changes = changes.where(F.col("ts" if isinstance(end, datetime) else "zxid") <= F.lit(end))
    return changes


def read_recording(spark: SparkSession, path: str) -> DataFrame:
    """Read a recorded history: parquet where PATH is a directory or ends with .parquet, else JSON lines."""
    _check_exists(path)
    local = Path(path)
    if local.is_dir() or local.suffix == ".parquet":
        return _read_parquet(spark, path)
    return _read_lines(spark, path)


def _check_exists(path: str) -> None:
    if "://" not in path and not Path(path).exists():
        raise OptionError("--input", path, "does not exist", "name a file or a directory with a history")


def _read_parquet(spark: SparkSession, path: str) -> DataFrame:
    from pyspark.errors import AnalysisException

    wanted = spark.createDataFrame([], changes_schema()).schema
    remedy = f'write it with spark.read.format("{SOURCE}")'
    try:
        found = spark.read.parquet(path)
    except AnalysisException as error:
        raise InputError(f"{path} holds no parquet files: {first_line(error)}", remedy) from None
    types = {field.name: field.dataType for field in found.schema}
    for field in wanted:
        if types.get(field.name) != field.dataType:
            kind = types.get(field.name)
            was = "is missing" if kind is None else f"is {kind.simpleString()}"
            raise InputError(
                f"{path}: the column {field.name} {was}, not {field.dataType.simpleString()}", remedy
            )
    return found.select(*wanted.fieldNames())


def _read_lines(spark: SparkSession, path: str) -> DataFrame:
    from pyspark.sql import functions as F

    parsed = F.from_json("value", RECORD, {"columnNameOfCorruptRecord": "damage"})
    records = spark.read.text(path).select("value", parsed.alias("record")).where("trim(value) != ''")
    _refuse_damage(records)
    change = F.explode(F.arrays_zip(F.sequence(F.lit(0), F.size("changes") - 1), "changes"))
    return (
        records.select("record.*")
        .where("size(changes) > 0")
        .select("*", change.alias("row"))
        .select(
            "zxid",
            F.col("row.0").alias("txn_index"),
            F.size("changes").alias("txn_size"),
            "term",
            F.timestamp_millis("ts").alias("ts"),
            *(F.col(f"row.changes.{name}").alias(name) for name in ("op", "path")),
            *(F.unbase64(f"row.changes.{name}").alias(name) for name in ("before", "after")),
            F.col("row.changes.version").alias("version"),
            "session_id",
            "controller_epoch",
            "cluster_id",
        )
    )


def _refuse_damage(records: DataFrame) -> None:
    """Refuse a recording with a line that is not a record."""
    whole = (
        "record.damage is null and record.zxid is not null and record.ts is not null and "
        "record.changes is not null and forall(record.changes, c -> c.op is not null and c.path is not null "
        "and (c.before is null or try_to_binary(c.before, 'base64') is not null) "
        "and (c.after is null or try_to_binary(c.after, 'base64') is not null))"
    )
    found = (
        records.where(f"not coalesce({whole}, false)")
        .select("_metadata.file_path", "value")
        .limit(1)
        .collect()
    )
    if found:
        file = Path(unquote(urlsplit(found[0][0]).path))
        line = _line_number(file, found[0][1])
        raise InputError(
            f"{file} line {line}: {shown(found[0][1])} is not a record of a change log",
            "repair or drop the line, or record again with `quorate changelog dump --json`",
        )


def _line_number(file: Path, text: str) -> int:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        return next(number for number, line in enumerate(lines, 1) if line.rstrip("\r\n") == text)


def first_line(error: Exception) -> str:
    """Return what an error of Spark's says before its stack."""
    return str(error).strip().splitlines()[0]
