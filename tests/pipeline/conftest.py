"""One Spark for all tests of the pipeline: a session takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session
from tests.support.kafka_jars import spark_connector_jars
from tests.support.spark_jvm import SHORT_LIVED, SMALL_PLANS


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A real local Spark: two cores, and a failed task is tried again, as on a cluster.

    It has Spark's own Kafka connector as well, which format("quorate") is compared with.
    """
    folder: Path = tmp_path_factory.mktemp("spark")
    session = start_session(
        "quorate-tests",
        master="local[2,4]",
        settings={
            **SHORT_LIVED,
            **SMALL_PLANS,
            "spark.jars": spark_connector_jars(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()
