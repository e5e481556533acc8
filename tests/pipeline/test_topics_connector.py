"""The same job with Spark's own Kafka connector and with format("quorate"): identical rows and batches."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from tests.support.topic_cluster import SMALL_SEGMENTS, Record, TopicCluster, topic_cluster

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
NOW_MS = int(time.time() * 1000)
#: Rows of each partition of the topic.
SIZES = (700, 250, 50)


def record(partition: int, number: int) -> Record:
    return Record(
        partition,
        value=None if number % 50 == 7 else f"value {partition} {number}".encode(),
        key=None if number % 3 == 0 else f"key {number % 10}".encode(),
        timestamp_ms=NOW_MS - 60_000 + 10 * number,
        headers=[("a", b"1"), ("b", None), ("a", b"2")] if number % 4 == 0 else [],
    )


@pytest.fixture(scope="module")
def cluster() -> Iterator[TopicCluster]:
    with topic_cluster() as running:
        running.create("orders", len(SIZES))
        running.send("orders", [record(p, n) for p, size in enumerate(SIZES) for n in range(size)])
        for topic in ("orders-old", "shipments"):
            running.create(topic, 2)
            running.send(topic, [record(n % 2, n) for n in range(100)])
        yield running


@pytest.fixture
def both(spark: SparkSession, cluster: TopicCluster) -> Any:
    """Read with each of the two, and return the rows of format("quorate") once they are the connector's."""

    def read(*, columns: tuple[str, ...] = COLUMNS, **options: str) -> list[Row]:
        ours, theirs = (
            spark.read.format(name)
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .options(**options)
            .load()
            .select(*columns)
            .orderBy("topic", "partition", "offset")
            .collect()
            for name in ("quorate", "kafka")
        )
        assert ours == theirs
        return list(ours)

    return read


def batches(
    spark: SparkSession, cluster: TopicCluster, name: str, **options: str
) -> list[tuple[int, dict[str, dict[str, int]]]]:
    """What each micro-batch of a stream had: its rows, and where it ended."""
    query = (
        spark.readStream.format(name)
        .option("kafka.bootstrap.servers", cluster.bootstrap)
        .options(**options)
        .load()
        .writeStream.format("noop")
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    return [
        (progress.numInputRows, plain(json.loads(progress.sources[0].endOffset)))
        for progress in query.recentProgress
    ]


def plain(offsets: dict[str, dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Offsets without leader epochs and ids of topics, as the connector has them."""
    return {
        topic: {
            number: place[0] if isinstance(place, list) else place
            for number, place in places.items()
            if number != "id"
        }
        for topic, places in offsets.items()
    }


def test_batch_rows_are_identical(both: Any) -> None:
    rows = both(subscribe="orders")
    assert len(rows) == sum(SIZES)
    assert [row.value for row in rows[:3]] == [b"value 0 0", b"value 0 1", b"value 0 2"]
    assert {row.timestampType for row in rows} == {0}


def test_headers_are_identical(both: Any) -> None:
    rows = both(subscribe="orders", includeHeaders="true", columns=(*COLUMNS, "headers"))
    assert [tuple(header) for header in rows[0].headers] == [("a", b"1"), ("b", None), ("a", b"2")]
    assert rows[1].headers is None


def test_offsets_per_partition_are_identical(both: Any) -> None:
    rows = both(
        subscribe="orders",
        startingOffsets='{"orders":{"0":100,"1":-2,"2":49}}',
        endingOffsets='{"orders":{"0":101,"1":-1,"2":49}}',
    )
    assert len(rows) == 1 + SIZES[1]


def test_rows_from_a_time_on_are_identical(both: Any) -> None:
    rows = both(
        subscribe="orders",
        startingTimestamp=str(NOW_MS - 60_000 + 995),
        startingOffsetsByTimestampStrategy="latest",
        endingTimestamp=str(NOW_MS - 60_000 + 3_000),
    )
    assert [row.offset for row in rows if row.partition == 0] == list(range(100, 300))
    assert {row.partition for row in rows} == {0, 1}


def test_times_per_partition_are_identical(both: Any) -> None:
    times = {str(number): NOW_MS - 60_000 + 100 * number for number in range(3)}
    rows = both(subscribe="orders", startingOffsetsByTimestamp=json.dumps({"orders": times}))
    assert len(rows) == sum(SIZES) - 30


def test_a_pattern_and_assigned_partitions_are_identical(both: Any) -> None:
    assert {row.topic for row in both(subscribePattern="orders.*")} == {"orders", "orders-old"}
    rows = both(assign='{"orders":[2],"shipments":[0]}')
    assert {(row.topic, row.partition) for row in rows} == {("orders", 2), ("shipments", 0)}


def test_a_limit_makes_the_same_micro_batches(spark: SparkSession, cluster: TopicCluster) -> None:
    options = {"subscribe": "orders,shipments", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "170"}
    ours = batches(spark, cluster, "quorate", **options)
    assert ours == batches(spark, cluster, "kafka", **options)
    assert len(ours) > 5
    assert ours[-1][1] == {
        "orders": {str(p): size for p, size in enumerate(SIZES)},
        "shipments": {"0": 50, "1": 50},
    }


def test_lost_records_are_the_same_loss(spark: SparkSession, cluster: TopicCluster, both: Any) -> None:
    cluster.create("short", settings=SMALL_SEGMENTS)
    cluster.send("short", [Record(0, b"%04d" % number + bytes(400)) for number in range(100)])
    first = cluster.lose_oldest("short")
    wanted = {"subscribe": "short", "startingOffsets": '{"short":{"0":0}}'}
    rows = both(**wanted, failOnDataLoss="false")
    assert rows[0].offset >= first and rows[-1].offset == 99
    for name in ("quorate", "kafka"):
        reader = (
            spark.read.format(name).option("kafka.bootstrap.servers", cluster.bootstrap).options(**wanted)
        )
        with pytest.raises(Exception, match="failOnDataLoss"):
            reader.load().count()


def test_the_connector_writes_what_both_read(spark: SparkSession, cluster: TopicCluster, both: Any) -> None:
    cluster.create("written", 2)
    frame = spark.range(500).selectExpr("cast(id as string) key", "concat('row ', id) value")
    to = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": "written"}
    frame.write.format("kafka").options(**to).save()
    rows = both(subscribe="written")
    assert sorted(row.value for row in rows) == sorted(b"row %d" % number for number in range(500))
