"""Rows that Spark writes by format("quorate"): what arrives, what is refused, what a repeated task leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from broker.client import BrokerClient
from broker.local import BlockingBrokers, brokers_in_thread
from controller.core.requests import NewTopic
from pipeline.errors import OptionError
from pipeline.sink.encoding import Encoder, SinkRow, TopicShape
from pipeline.sink.errors import RowError
from pipeline.sink.options import check_columns, read_options
from pipeline.sink.writer import TopicBatchWriter
from tests.support.broker_records import reading

PARTITIONS = 5
READ_DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def brokers() -> Iterator[BlockingBrokers]:
    with brokers_in_thread() as running:
        yield running


@pytest.fixture
def topic(brokers: BlockingBrokers, request: pytest.FixtureRequest) -> str:
    name = "".join(letter if letter.isalnum() else "-" for letter in request.node.name)

    async def create() -> None:
        async with BrokerClient(brokers.bootstrap) as client:
            for each in (name, f"{name}-2"):
                await client.create_topics([NewTopic(each, PARTITIONS, 1, None, {})])

    asyncio.run(create())
    return name


def write(frame: DataFrame, brokers: BlockingBrokers, *, form: str = "quorate", **options: str) -> None:
    names = {name.replace("_", "."): value for name, value in options.items()}
    writer = frame.write.format(form).option("kafka.bootstrap.servers", brokers.bootstrap)
    writer.mode("append").options(**names).save()


def read(brokers: BlockingBrokers, topic: str, count: int) -> list[tuple[Any, ...]]:
    """Return (partition, key, value, headers) of a topic's records, in order; it must have just so many."""
    consumer = Consumer(reading(brokers.bootstrap))
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[tuple[Any, ...]] = []
    try:
        while len(found) < count:
            message = consumer.poll(READ_DEADLINE_S)
            assert message is not None, f"{len(found)} of {count} records"
            assert message.error() is None, message.error()
            found.append((message.partition(), message.key(), message.value(), message.headers()))
        ends = [consumer.get_watermark_offsets(TopicPartition(topic, each))[1] for each in range(PARTITIONS)]
    finally:
        consumer.close()
    assert sum(ends) == count
    return sorted(found, key=lambda row: row[0])


def test_rows_arrive_as_the_kafka_connector_writes_them(
    spark: SparkSession, brokers: BlockingBrokers, topic: str
) -> None:
    rows = spark.range(500).selectExpr(
        "IF(id % 7 = 0, CAST(id % 5 AS INT), NULL) AS partition",
        "CONCAT('key-', id) AS key",
        "IF(id % 11 = 0, NULL, CAST(CONCAT('value-', id) AS BINARY)) AS value",
        "IF(id % 3 = 0, ARRAY(NAMED_STRUCT('key', 'n', 'value', CAST('1' AS BINARY)),"
        " NAMED_STRUCT('key', 'none', 'value', CAST(NULL AS BINARY))), NULL) AS headers",
        "id AS left_out",
        f"'{topic}' AS topic",
    )
    write(rows, brokers)
    write(rows, brokers, form="kafka", topic=f"{topic}-2")
    ours, theirs = read(brokers, topic, 500), read(brokers, f"{topic}-2", 500)
    assert sorted(ours, key=repr) == sorted(theirs, key=repr)
    assert {row[3] and tuple(row[3]) for row in ours} == {None, (("n", b"1"), ("none", None))}


def test_rows_without_keys_go_to_several_partitions(
    spark: SparkSession, brokers: BlockingBrokers, topic: str
) -> None:
    write(
        spark.range(40_000).selectExpr("REPEAT(CAST(id AS STRING), 20) AS value").coalesce(1),
        brokers,
        topic=topic,
    )
    found = read(brokers, topic, 40_000)
    assert {row[0] for row in found} == set(range(PARTITIONS))
    for number in range(PARTITIONS):
        ids = [int(row[2][: len(row[2]) // 20]) for row in found if row[0] == number]
        assert ids == sorted(ids), "rows of a task keep their order"


@pytest.mark.parametrize("codec", ["gzip", "lz4", "zstd"])
def test_compressed_rows_are_read_by_others(
    spark: SparkSession, brokers: BlockingBrokers, topic: str, codec: str
) -> None:
    frame = spark.range(300).selectExpr("CAST(id AS STRING) AS value")
    write(frame, brokers, topic=topic, kafka_compression_type=codec)
    assert {row[2] for row in read(brokers, topic, 300)} == {b"%d" % number for number in range(300)}


def test_task_that_fails_and_is_repeated_doubles_nothing(
    spark: SparkSession, brokers: BlockingBrokers, topic: str
) -> None:
    def fails_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0:
            raise ValueError("the first attempt fails at its end")

    frame = spark.range(2_000).selectExpr("CAST(id AS STRING) AS value").repartition(2)
    write(frame.mapInArrow(fails_once, "value STRING"), brokers, topic=topic)
    assert len({row[2] for row in read(brokers, topic, 2_000)}) == 2_000


def test_named_batch_write_takes_effect_once(
    spark: SparkSession, brokers: BlockingBrokers, topic: str, tmp_path: Path
) -> None:
    frame = spark.range(100).selectExpr("CAST(id AS STRING) AS value")
    for _ in range(2):
        write(frame, brokers, topic=topic, quorate_sink=topic, stagingLocation=str(tmp_path))
    assert len({row[2] for row in read(brokers, topic, 100)}) == 100
    assert not any(tmp_path.rglob("*.*")), "nothing stays staged"


def test_spark_refuses_a_write_without_a_mode(
    spark: SparkSession, brokers: BlockingBrokers, topic: str
) -> None:
    rows = spark.range(1).selectExpr("CAST(id AS STRING) AS value").write.format("quorate")
    rows = rows.options(**{"kafka.bootstrap.servers": brokers.bootstrap, "topic": topic})
    with pytest.raises(
        AnalysisException, match=r'"quorate" cannot be written in the "ErrorIfExists" mode.*"Append"'
    ):
        rows.save()


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        ("CAST(id AS STRING) AS value", {"topic": "nowhere"}, "topic = 'nowhere': there is no such topic"),
        ("id AS value", {"topic": "t"}, "value = 'bigint': the column has another type"),
        ("CAST(id AS STRING) AS value", {}, "neither the option nor a column names a topic"),
        (
            "CAST(id AS STRING) AS value",
            {"topic": "t", "acks": "1"},
            "acks = '1': the sink has no such option",
        ),
    ],
)
def test_spark_shows_what_is_refused_before_it_starts(
    spark: SparkSession, brokers: BlockingBrokers, columns: str, options: dict[str, str], told: str
) -> None:
    with pytest.raises(Exception, match=told):
        write(spark.range(1).selectExpr(columns), brokers, **options)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers = None: no broker is named"),
        ({"topic": " "}, "topic = ' ': it is empty"),
        ({"quorate.sink": "a/b"}, "quorate.sink = 'a/b': it cannot name a znode"),
        ({"quorate.sink": ".."}, "quorate.sink = '..': it cannot name a znode"),
        ({"kafka.compression.type": "snappy"}, "kafka.compression.type = 'snappy'.*none, gzip, lz4, zstd"),
        ({"checkpointlocation": None}, "checkpointLocation = None: the sink stages rows below it"),
        ({"kafka.linger.ms": "5"}, "kafka.linger.ms = '5': the sink has no such option"),
    ],
)
def test_option_that_cannot_be_taken_is_named(changed: dict[str, str | None], told: str) -> None:
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "checkpointlocation": "c", **changed}
    with pytest.raises(OptionError, match=told):
        read_options({name: value for name, value in given.items() if value is not None}, stream=True)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"kafka.bootstrap.servers": "127.0.0.1:1"},
            r"kafka.bootstrap.servers = '127.0.0.1:1': broker .* cannot be reached.*start a broker",
        ),
        ({"kafka.bootstrap.servers": "h"}, "kafka.bootstrap.servers = 'h': .*give HOST:PORT"),
        ({"kafka.bootstrap.servers": "h", "topic": None}, "kafka.bootstrap.servers = 'h': .*give HOST:PORT"),
        ({"staginglocation": "foo://x"}, "stagingLocation = 'foo://x': .*foo://x.*name a folder"),
        (
            {"staginglocation": "/proc/x"},
            "stagingLocation = '/proc/x.*': cannot be written to: .*name a folder",
        ),
        ({"quorate.hosts": "h:x"}, "quorate.hosts = 'h:x': .*the port must be a number.*quorum's nodes"),
    ],
)
def test_what_cannot_be_reached_is_named_on_the_driver(
    brokers: BlockingBrokers, topic: str, tmp_path: Path, changed: dict[str, str | None], told: str
) -> None:
    given = {"kafka.bootstrap.servers": brokers.bootstrap, "topic": topic, "staginglocation": str(tmp_path)}
    options = {name: value for name, value in {**given, **changed}.items() if value is not None}
    columns = StructType().add("value", "string").add("topic", "string")
    with pytest.raises(OptionError, match=told):
        TopicBatchWriter(options, columns, False)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("key STRING", "value = 'key': no column is called so"),
        ("value BINARY, key INT", "key = 'int'.*cast it to BINARY or STRING"),
        ("value BINARY, partition BIGINT", "partition = 'bigint'.*cast it to INT"),
        ("value BINARY, headers MAP<STRING, BINARY>", "headers = 'map<string,binary>'"),
        ("value BINARY, topic BINARY", "topic = 'binary'.*cast it to STRING"),
    ],
)
def test_column_that_cannot_be_taken_is_named(columns: str, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        check_columns(cast("StructType", StructType.fromDDL(columns)), "t")


@pytest.mark.parametrize(
    ("row", "told"),
    [
        (SinkRow(None, None, None, b"v", None), "a row has no topic"),
        (SinkRow("t", 2, None, b"v", None), "a row for partition 2 of topic 't', which has 2"),
        (
            SinkRow("t", None, None, b"v" * 2_000, None),
            "a row of 20.. bytes for topic 't': its max.message.bytes is 1024",
        ),
    ],
)
def test_row_that_cannot_be_written_is_refused(row: SinkRow, told: str) -> None:
    encoder = Encoder(lambda _: TopicShape(2, 1024), codec=0, first_partition=0)
    with pytest.raises(RowError, match=told):
        list(encoder.add(row))
