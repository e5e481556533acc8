"""Runs a job: checks its options, starts Spark, delivers the answer, and says whether it is a finding.

`--follow` appends each micro-batch to parquet files below the checkpoint and computes the answer anew from
all of them: the answer is the batch answer by construction, memory is Spark's (it spills), and the disk holds
the history once. Foreign exceptions become ours here.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pipeline.errors import InputError
from pipeline.jobs import arguments as options
from pipeline.jobs.job import Job
from pipeline.session import start_session
from quorum.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FINDING: Final = 1
#: How long a batch that is under way may take once --follow is interrupted.
_LAST_BATCH_S: Final = 10
#: How an exception ends the story of a Python worker.
_RAISED: Final = re.compile(r"^(?:[\w.]+\.)?\w+(?:Error|Exception): (.*)", re.MULTILINE)
_MODULES: Final = ("pyspark", "pyarrow", "pandas", "plotly", "confluent_kafka", "kio")


def require_extra() -> None:
    """Refuse to run where what the pipeline needs is not installed."""
    missing = [name for name in _MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise UsageError(f"{', '.join(missing)} is not installed", "pip install 'quorate[spark]'")


def run_job(job: Job, arguments: argparse.Namespace) -> int:
    """Run a job.

    Returns:
        The exit code: 0 fine, 1 a finding.
    """
    require_extra()
    options.check_output(arguments)
    if job.check is not None:
        job.check(arguments)
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    found = _running_session()
    spark = found or start_session(
        f"quorate pipeline {job.name}",
        master=arguments.master,
        settings={"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()},
    )
    try:
        if getattr(arguments, "follow", False):
            return _follow(job, spark, arguments)
        return _answer(job, job.read(spark, arguments), arguments)
    except (PySparkException, Py4JJavaError) as error:
        raise InputError(_message_of(error), "see the message; the job changed nothing") from None
    finally:
        if found is None:
            spark.stop()


def _running_session() -> SparkSession | None:
    """Return the session that a caller in this process has begun."""
    from pyspark.errors import PySparkRuntimeError
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except PySparkRuntimeError:
        return None


def _answer(job: Job, read: DataFrame, arguments: argparse.Namespace) -> int:
    from pipeline.jobs.output import deliver, draw
    from pipeline.jobs.summary import write_summary

    begun_s = time.time()
    answer = job.compute(read, arguments).cache()
    try:
        deliver(answer, arguments)
        wanted = arguments.out is not None or getattr(arguments, "picture", None) is not None
        figure = job.picture(read, arguments) if job.picture is not None and wanted else None
        if figure is not None and arguments.picture is not None:
            draw(figure, arguments)
        is_finding = job.is_finding is not None and job.is_finding(answer)
        if arguments.out is not None:
            write_summary(arguments.out, job.name, answer, figure, is_finding=is_finding, begun_s=begun_s)
        return FINDING if is_finding else 0
    finally:
        answer.unpersist()


def _follow(job: Job, spark: SparkSession, arguments: argparse.Namespace) -> int:
    assert job.follow is not None
    codes = [0]
    with tempfile.TemporaryDirectory(prefix="quorate-follow-") as scratch:
        folder = (arguments.checkpoint or Path(scratch)).resolve()
        rows = folder / "rows"
        stream = job.follow(spark, arguments)

        def take(batch: DataFrame, batch_id: int) -> None:
            # Written again with the same name when a batch is repeated after a crash.
            batch.write.mode("overwrite").parquet(str(rows / f"batch={batch_id}"))
            history = spark.read.parquet(str(rows)).select(*batch.columns).cache()
            codes[0] = _answer(job, history, arguments)
            spark.catalog.clearCache()  # the history, and what the job computed from it
            sys.stdout.flush()

        query = (
            stream.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(folder / "spark"))
            .trigger(processingTime=f"{arguments.every} seconds")
            .start()
        )
        try:
            _await_end(query)
        finally:
            query.stop()
    return codes[0]


def _await_end(query: StreamingQuery) -> None:
    """Wait until a query fails or is interrupted, which is its usual end.

    An exception out of a signal's handler would break the conversation with Spark's JVM, and print its stack.
    """
    interrupted = threading.Event()
    before = signal.signal(signal.SIGINT, lambda *_: interrupted.set())
    try:
        while not interrupted.is_set() and not query.awaitTermination(1):
            pass
        # Spark prints the stack of a batch that it has to cut off.
        deadline = time.monotonic() + _LAST_BATCH_S
        while query.status["isTriggerActive"] and time.monotonic() < deadline:
            query.awaitTermination(1)
    finally:
        signal.signal(signal.SIGINT, before)


def _message_of(error: Exception) -> str:
    """Return one line: what a Python worker raised, if one did, else the first of Spark's."""
    from py4j.protocol import Py4JJavaError

    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    if "Traceback (most recent call last)" in text and (raised := _RAISED.findall(text)):
        return str(raised[-1])
    return (text.strip() or type(error).__name__).splitlines()[0]
