"""The stream reader of topics, driven as Spark drives it, and by Spark."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.types import StructType, _parse_datatype_string

from pipeline.errors import InputError, OptionError
from pipeline.topics.ranges import OffsetRange
from pipeline.topics.reading import BATCH_ROWS_MAX, RUN_MESSAGES_MAX, DataLossError
from pipeline.topics.source import TopicsDataSource
from tests.support.topic_cluster import SMALL_SEGMENTS, Record, TopicCluster, topic_cluster

PATIENCE_MS = 3000


@pytest.fixture(scope="module")
def cluster() -> Iterator[TopicCluster]:
    with topic_cluster(2) as running:
        yield running


class Stream:
    """A query: what the driver and the tasks of Spark do, in one process; offsets travel as text."""

    def __init__(self, cluster: TopicCluster, schema: StructType, **options: str) -> None:
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "startingOffsets": "earliest", **options}
        source = TopicsDataSource({name.lower(): value for name, value in given.items()})
        self.reader: Any = source.streamReader(schema)
        self.start = json.dumps(self.reader.initialOffset())

    def next(self, *, everything: bool = False) -> list[bytes]:
        """Run a micro-batch; returns its values."""
        end = self.latest(everything=everything)
        found = self.rows(self.start, end)
        self.start = end
        return found

    def latest(self, *, everything: bool = False) -> str:
        limit = ReadAllAvailable() if everything else self.reader.getDefaultReadLimit()
        return json.dumps(self.reader.latestOffset(json.loads(self.start), limit))

    def rows(self, start: str, end: str) -> list[bytes]:
        ranges = self.reader.partitions(json.loads(start), json.loads(end))
        assert ranges
        return [
            value
            for each in ranges
            for batch in self.reader.read(each)
            for value in batch["value"].to_pylist()
        ]


@pytest.fixture
def stream(spark: SparkSession, cluster: TopicCluster) -> Any:
    def begin(**options: str) -> Stream:
        wanted = {name.lower(): value for name, value in options.items()}
        bootstrap = {"kafka.bootstrap.servers": cluster.bootstrap}
        columns = TopicsDataSource({**bootstrap, **wanted}).schema()
        schema = _parse_datatype_string(columns)
        assert isinstance(schema, StructType)
        return Stream(cluster, schema, **options)

    return begin


def without_ids(offset: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The offset of a stream, of which the topics have an id."""
    assert all(places["id"] for places in offset.values())
    return {
        topic: {number: place for number, place in places.items() if number != "id"}
        for topic, places in offset.items()
    }


def values(count: int, partitions: int = 1, first: int = 0) -> list[Record]:
    return [Record(number % partitions, b"%d" % number) for number in range(first, first + count)]


def test_new_partitions_and_topics_are_found(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("grown-a")
    query = stream(subscribePattern="grown-.*")
    cluster.send("grown-a", values(10))
    assert len(query.next()) == 10
    cluster.grow("grown-a", 2)
    cluster.create("grown-b")
    cluster.send("grown-a", values(10, 2, first=10))
    cluster.send("grown-b", values(5, first=20))
    assert sorted(map(int, query.next())) == list(range(10, 25))
    assert query.next() == []


def test_a_limit_holds_unless_everything_is_asked_for(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("limited", 2)
    query = stream(subscribe="limited", maxOffsetsPerTrigger="30")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(30)
    cluster.send("limited", values(100, 2))
    assert len(query.next()) == 30
    newest = query.reader.reportLatestOffset()
    assert json.dumps(without_ids(newest)) == '{"limited": {"0": [50, 0], "1": [50, 0]}}'
    assert len(query.next(everything=True)) == 70


def test_a_limit_in_bytes_is_about_that(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("heavy")
    cluster.send("heavy", [Record(0, bytes(1000)) for _ in range(100)])
    query = stream(subscribe="heavy", maxBytesPerTrigger="20000")
    assert query.reader.getDefaultReadLimit() == ReadMaxBytes(20000)
    assert len(query.next()) == 20
    both = stream(subscribe="heavy", maxBytesPerTrigger="20000", maxOffsetsPerTrigger="7")
    assert len(both.next()) == 7


def test_available_now_ends_where_it_was_at_the_start(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("bounded")
    cluster.send("bounded", values(10))
    query = stream(subscribe="bounded", maxOffsetsPerTrigger="6")
    query.reader.prepareForTriggerAvailableNow()
    cluster.send("bounded", values(10, first=10))
    assert [len(query.next()) for _ in range(3)] == [6, 4, 0]
    assert query.latest() == query.start


def test_the_same_offsets_give_the_same_rows(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("repeated", 3)
    query = stream(subscribe="repeated", minPartitions="7")
    cluster.send("repeated", values(300, 3))
    end = query.latest()
    once = query.rows(query.start, end)
    assert len(query.reader.partitions(json.loads(query.start), json.loads(end))) >= 7
    cluster.send("repeated", values(30, 3, first=300))
    assert query.rows(query.start, end) == once
    assert sorted(map(int, once)) == list(range(300))


def test_a_leader_change_alone_makes_no_batch(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("calm")
    cluster.send("calm", values(5))
    query = stream(subscribe="calm")
    query.start = '{"calm": {"0": [5, -1]}}'
    assert query.latest() == query.start


def test_a_leader_dies_while_its_partition_is_read(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("led", replicas=2)
    cluster.send("led", [Record(0, b"%06d" % number + bytes(94)) for number in range(30_000)])
    small = {"kafka.queued.min.messages": "100", "kafka.queued.max.messages.kbytes": "100"}
    query = stream(subscribe="led", **small)
    (task,) = query.reader.partitions(json.loads(query.start), json.loads(query.latest()))
    batches = query.reader.read(task)
    found = next(batches)["value"].to_pylist()
    leader = cluster.leader("led")
    cluster.brokers.kill(leader)
    try:
        for batch in batches:
            found += batch["value"].to_pylist()
        assert cluster.leader("led") != leader
    finally:
        cluster.brokers.start(leader)
    assert [int(value[:6]) for value in found] == list(range(30_000))


def test_rows_may_be_taken_slowly(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("slow")
    count = BATCH_ROWS_MAX + RUN_MESSAGES_MAX
    cluster.send("slow", values(count))
    query = stream(subscribe="slow", **{"kafkaConsumer.pollTimeoutMs": str(PATIENCE_MS)})
    (task,) = query.reader.partitions(json.loads(query.start), json.loads(query.latest()))
    batches = query.reader.read(task)
    taken = next(batches).num_rows
    threading.Event().wait(1.1 * PATIENCE_MS / 1000)
    assert 0 < taken < count
    assert taken + sum(batch.num_rows for batch in batches) == count


def test_an_end_that_never_comes_is_an_error(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("ended")
    cluster.send("ended", values(5))
    query = stream(subscribe="ended", **{"kafkaConsumer.pollTimeoutMs": "5000"})
    with pytest.raises(
        InputError, match=r"ended-0: offset 5 did not come within 5000 ms: .*ends at offset 5"
    ):
        list(query.reader.read(OffsetRange("ended", 0, 3, 9)))


@pytest.mark.parametrize(
    ("start", "problem", "left"),
    [
        ([8, 0], "its end went back from 8 to 5", []),
        ([3, 4], "its leader epoch went back from 4 to 0", [b"0", b"1", b"2", b"3", b"4"]),
    ],
)
def test_a_log_that_went_back_is_data_loss(
    cluster: TopicCluster, stream: Any, start: list[int], problem: str, left: list[bytes]
) -> None:
    topic = f"back-{start[0]}"
    cluster.create(topic)
    cluster.send(topic, values(5))
    query = stream(subscribe=topic)
    query.start = json.dumps({topic: {"0": start}})
    with pytest.raises(DataLossError, match=f"{topic}-0: {problem}.*failOnDataLoss"):
        query.next()
    query = stream(subscribe=topic, failOnDataLoss="false")
    query.start = json.dumps({topic: {"0": start}})
    assert query.next() == left
    assert without_ids(json.loads(query.start)) == {topic: {"0": [5, 0]}}


def test_a_log_that_diverged_from_what_was_read_is_data_loss(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("parted", replicas=2)
    cluster.send("parted", values(3))
    leader = cluster.leader("parted")
    cluster.brokers.kill(leader)
    try:
        cluster.send("parted", values(10, first=3))
    finally:
        cluster.brokers.start(leader)
    # A stream had read 8 records of the first leader epoch, and an unclean election left 3 of them.
    start = '{"parted": {"0": [8, 0]}}'
    strict, lenient = stream(subscribe="parted"), stream(subscribe="parted", failOnDataLoss="false")
    end = strict.latest()
    with pytest.raises(DataLossError, match="parted-0: the log diverged from what was read before offset 8"):
        strict.rows(start, end)
    assert lenient.rows(start, end) == [b"%d" % number for number in range(8, 13)]
    for whole in ('{"parted": {"0": [3, 0]}}', '{"parted": {"0": [8, 1]}}', '{"parted": {"0": [0, 0]}}'):
        first = json.loads(whole)["parted"]["0"][0]
        assert strict.rows(whole, end) == [b"%d" % number for number in range(first, 13)]


def test_a_topic_that_vanished_is_data_loss(cluster: TopicCluster, stream: Any) -> None:
    for topic in ("gone-a", "gone-b"):
        cluster.create(topic)
        cluster.send(topic, values(5))
    strict = stream(subscribePattern="gone-.*")
    lenient = stream(subscribePattern="gone-.*", failOnDataLoss="false")
    end = strict.latest()
    cluster.delete("gone-a")
    with pytest.raises(DataLossError, match="gone-a-0 does not exist any more"):
        strict.next()
    with pytest.raises(DataLossError, match="gone-a-0 does not exist any more"):
        strict.rows(strict.start, end)
    assert len(lenient.rows(lenient.start, end)) == 5
    assert len(lenient.next()) == 5


def test_a_recreated_topic_is_data_loss(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("anew")
    cluster.send("anew", values(5))
    strict = stream(subscribe="anew", maxOffsetsPerTrigger="100")
    lenient = stream(subscribe="anew", maxOffsetsPerTrigger="100", failOnDataLoss="false")
    planned = lenient.latest()
    assert strict.next() == lenient.next() == [b"0", b"1", b"2", b"3", b"4"]
    cluster.delete("anew")
    cluster.create("anew")
    # It has more records than the old one: neither its end nor its leader epoch goes back.
    cluster.send("anew", values(7, first=10))
    with pytest.raises(DataLossError, match="anew-0 is not what was read: the topic was recreated"):
        strict.next()
    with pytest.raises(DataLossError, match="anew-0 does not exist any more"):
        strict.rows(strict.start, planned.replace("[5, 0]", "[7, 0]"))
    assert lenient.rows(lenient.start, planned.replace("[5, 0]", "[7, 0]")) == []
    assert lenient.next() == [b"%d" % number for number in range(10, 17)]
    assert lenient.next() == []


def test_records_that_retention_took_are_data_loss(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("brief", settings=SMALL_SEGMENTS)
    strict, lenient = stream(subscribe="brief"), stream(subscribe="brief", failOnDataLoss="false")
    cluster.send("brief", [Record(0, b"%04d" % number + bytes(400)) for number in range(100)])
    first = cluster.lose_oldest("brief")
    with pytest.raises(DataLossError, match="brief-0: offsets 0 to 100 were to be read"):
        strict.next()
    found = [int(value[:4]) for value in lenient.next()]
    assert found == list(range(found[0], 100)) and found[0] >= first
    late = OffsetRange("brief", 0, 0, 100)  # as if retention had come between planning and reading
    with pytest.raises(DataLossError, match="were removed"):
        list(strict.reader.read(late))
    assert sum(batch.num_rows for batch in lenient.reader.read(late)) == len(found)


def test_spark_resumes_and_the_group_shows_how_far(
    spark: SparkSession, cluster: TopicCluster, tmp_path: Path
) -> None:
    cluster.create("resumed", 2)

    def run(count: int, first: int) -> list[Any]:
        cluster.send("resumed", values(count, 2, first))
        query = (
            spark.readStream.format("quorate")
            .option("kafka.bootstrap.servers", cluster.bootstrap)
            .option("subscribe", "resumed")
            .option("startingOffsets", "earliest")
            .option("maxOffsetsPerTrigger", 30)
            .option("commitGroup", "dashboards")
            .load()
            .selectExpr("cast(value as string) value", "partition", "offset", "leaderEpoch")
            .writeStream.format("parquet")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return list(query.recentProgress)

    progress = run(40, first=0)
    assert [each.numInputRows for each in progress] == [30, 10]
    newest = json.loads(progress[0].sources[0].latestOffset)
    assert without_ids(newest) == {"resumed": {"0": [20, 0], "1": [20, 0]}}
    assert [each.numInputRows for each in run(20, first=40)] == [20]
    rows = spark.read.parquet(str(tmp_path / "rows")).collect()
    assert sorted(int(row.value) for row in rows) == list(range(60))
    # Spark tells of a micro-batch when it plans the next one.
    assert cluster.committed("dashboards", "resumed") >= 15


def test_a_group_with_members_refuses(cluster: TopicCluster, stream: Any) -> None:
    cluster.create("shared")
    cluster.send("shared", values(3))
    query = stream(subscribe="shared", commitGroup="team")
    with cluster.member("team", "shared"), pytest.raises(OptionError, match="commitGroup = 'team'"):
        query.reader.commit(json.loads(query.latest()))
    assert cluster.committed("team", "shared") < 0
