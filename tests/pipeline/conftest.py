"""One Spark for all tests of the pipeline: a session takes seconds to start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session
from tests.support.kafka_jars import spark_connector_jars
from tests.support.spark_jvm import SHORT_LIVED


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
            "spark.jars": spark_connector_jars(folder),
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()


@pytest.fixture(scope="module")
def small_plans(spark: SparkSession) -> Iterator[None]:
    """For hundreds of rows: their plans are interpreted, since compiling one takes longer than running it."""
    settings = {
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "1",
    }
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)
