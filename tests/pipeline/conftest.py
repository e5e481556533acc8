"""One Spark for all tests of the pipeline: a session takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real local Spark: two cores, and a failed task is tried again, as on a cluster."""
    folder: Path = tmp_path_factory.mktemp("spark")
    session = start_session(
        "quorate-tests",
        master="local[2,4]",
        settings={
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()
