"""A Spark application of a test: waits in a task until it may go on, then judges a recorded run.

python -m tests.support.spark_application MASTER RUN FOLDER

A task creates FOLDER/running and waits for FOLDER/go. The verdicts go to FOLDER/verdicts.json.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pyarrow as pa

from pipeline.jobs.histories import read_runs
from pipeline.jobs.history_check import compute
from pipeline.session import start_session
from tests.support.nodes import REPOSITORY, eventually
from tests.support.spark_jvm import SHORT_LIVED

DEADLINE_S = 120.0


def wait(folder: Path, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    (folder / "running").touch()
    eventually((folder / "go").exists, DEADLINE_S, "the test lets the task go on")
    yield from batches


def main(master: str, run: Path, folder: Path) -> None:
    settings = {
        **SHORT_LIVED,
        "spark.executor.memory": "512m",
        "spark.executorEnv.PYTHONPATH": str(REPOSITORY),
        "spark.sql.shuffle.partitions": "1",
        "spark.local.dir": str(folder),
    }
    session = start_session("judge", master=master, settings=settings)
    try:
        session.range(1, numPartitions=1).mapInArrow(partial(wait, folder), "id bigint").collect()
        rows = compute(read_runs(session, [run])).collect()
        (folder / "verdicts.json").write_text(json.dumps([row.asDict() for row in rows]))
    finally:
        session.stop()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
