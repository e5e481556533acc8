"""The sink's driver is killed or stopped in the midst of a commit; every row is in the topic once."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.nodes import eventually
from tests.support.sink_driver import (
    POINTS,
    Strike,
    assert_once_in_order,
    begin,
    create_topic,
    read_topic,
    start_driver,
    write_input,
)

DRIVER_DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingBrokers]:
    with brokers_in_thread() as running:
        yield running


def struck_once(folder: Path, brokers: BlockingBrokers, strike: Strike) -> Counter[bytes]:
    """Let a driver be killed in its second batch; returns what the topic must hold in the end."""
    expected = write_input(folder, files=4, rows=1_500)
    asyncio.run(create_topic(brokers.bootstrap, folder.name))
    driver = start_driver(folder, brokers.bootstrap, folder.name, strike=strike)
    assert driver.wait(DRIVER_DEADLINE_S) == -signal.SIGKILL, (folder / "driver.log").read_text()
    return expected


def go_on(spark: SparkSession, folder: Path, brokers: BlockingBrokers) -> None:
    options = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": folder.name}
    begin(spark, options, folder).awaitTermination()


def test_driver_killed_in_mid_append(spark: SparkSession, brokers: BlockingBrokers, tmp_path: Path) -> None:
    expected = struck_once(tmp_path, brokers, Strike("appending", signal.SIGKILL, orphan=False, batch_id=1))
    there = sum(map(len, read_topic(brokers.bootstrap, tmp_path.name).values()))
    assert 3_000 < there < 6_000, "the second batch is there in part"
    go_on(spark, tmp_path, brokers)
    assert_once_in_order(brokers.bootstrap, tmp_path.name, expected)


@pytest.mark.long
@pytest.mark.parametrize("orphan", [False, True])
@pytest.mark.parametrize("point", POINTS)
def test_driver_killed_at_each_point(
    spark: SparkSession, brokers: BlockingBrokers, tmp_path: Path, point: str, orphan: bool
) -> None:
    expected = struck_once(tmp_path, brokers, Strike(point, signal.SIGKILL, orphan=orphan, batch_id=1))
    go_on(spark, tmp_path, brokers)
    assert_once_in_order(brokers.bootstrap, tmp_path.name, expected)


@pytest.mark.long
@pytest.mark.parametrize("point", POINTS)
def test_stopped_driver_appends_nothing_after_a_newer_one(
    spark: SparkSession, brokers: BlockingBrokers, tmp_path: Path, point: str
) -> None:
    expected = write_input(tmp_path, files=4, rows=1_500)
    asyncio.run(create_topic(brokers.bootstrap, tmp_path.name))
    strike = Strike(point, signal.SIGSTOP, orphan=False, batch_id=0)
    driver = start_driver(tmp_path, brokers.bootstrap, tmp_path.name, strike=strike)
    processes = psutil.Process(driver.pid)
    eventually(
        lambda: processes.status() == psutil.STATUS_STOPPED, DRIVER_DEADLINE_S, "the driver is stopped"
    )
    go_on(spark, tmp_path, brokers)
    assert_once_in_order(brokers.bootstrap, tmp_path.name, expected)
    for each in [*processes.children(recursive=True), processes]:
        each.send_signal(signal.SIGCONT)
    assert driver.wait(DRIVER_DEADLINE_S) == 1, "the older driver fails"
    # After the last step it is Spark's own log of batches that stops it.
    assert point == "done" or "SinkFencedError" in (tmp_path / "driver.log").read_text()
    assert_once_in_order(brokers.bootstrap, tmp_path.name, expected)
