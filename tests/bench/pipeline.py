"""What the pipeline reads and checks in a second, in one Spark with as many cores as --cores says.

A case has one module; `CASES` lists them. Each warms up what it measures, and reports the median of its
rounds. The JVM, the Python worker and the brokers share the machine's cores.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pipeline.session import start_session
from tests.bench import pipeline_changelog, pipeline_jobs, pipeline_sink, pipeline_topics
from tests.bench.pipeline_case import Bench, Timed
from tests.support.kafka_jars import spark_connector_jars

Case = Callable[[Bench], list[Timed]]
CASES: Mapping[str, Case] = {
    "topics": pipeline_topics.run,
    "changelog": pipeline_changelog.run,
    "sink": pipeline_sink.run,
    "jobs": pipeline_jobs.run,
}


def run(folder: Path, cases: Sequence[str], rows: int, rounds: int, cores: int) -> list[str]:
    """Measure the cases, one after the other; returns the lines of a table."""
    jars, master = spark_connector_jars(folder), f"local[{cores}]"
    spark = start_session(
        "quorate-bench", master=master, settings={"spark.jars": jars, "spark.ui.showConsoleProgress": "false"}
    )
    lines = ["", f"Spark {spark.version}, {master}, medians of {rounds}", ""]
    lines += ["| case | read | rate | rounds |", "| --- | --- | --- | --- |"]
    try:
        for name in cases:
            lines += [timed.line() for timed in CASES[name](Bench(spark, folder, rows, rounds))]
    finally:
        spark.stop()
    return lines
