"""One Spark for all tests of the pipeline, since a session takes seconds to start; and their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from pipeline.session import start_session
from tests.support.kafka_jars import spark_connector_jars
from tests.support.nodes import REPOSITORY
from tests.support.spark_jvm import SHORT_LIVED, SMALL_PLANS

#: The files that take longest, the longest one first: begun last, one alone would keep a core waiting.
LONGEST = (
    "jobs_cluster",
    "story",
    "topics_stream",
    "sink_writes",
    "history_check",
    "topics_connector",
    "sink_kills",
    "topics_options",
    "changelog_source",
    "jobs_answers",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; `make test` gives files to its workers in this order."""
    place = {Path(__file__).with_name(f"test_{name}.py"): place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


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
            # Its workers load kio, and so would Hypothesis.
            "spark.executorEnv.PYTHONPATH": str(REPOSITORY / "tests/support/unseen"),
            "spark.jars": spark_connector_jars(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
            "spark.local.dir": str(folder / "local"),
        },
    )
    yield session
    session.stop()
