"""The options of a read of topics: what is refused, and the words that say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from pipeline.errors import OptionError
from pipeline.topics.options import Bound, Partition, Query, read_options
from pipeline.topics.ranges import (
    OffsetRange,
    SeenOffset,
    from_stream_offset,
    limited,
    split,
    to_stream_offset,
)
from pipeline.topics.source import TopicsDataSource
from tests.support.topic_cluster import Record, TopicCluster, topic_cluster

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
A, B = Partition("a", 0), Partition("b", 0)


@pytest.fixture(scope="module")
def cluster() -> Iterator[TopicCluster]:
    with topic_cluster() as running:
        running.create("t", 2)
        running.send("t", [Record(number % 2, b"v") for number in range(10)])
        yield running


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"startingoffset": "earliest"},
            "startingoffset = 'earliest': there is no such option .*startingOffsets",
        ),
        ({"kafka.bootstrap.servers": ""}, r"kafka\.bootstrap\.servers = '': it is required"),
        ({"kafka.poll.records.max": "5"}, r"kafka\.poll\.records\.max = '5': No such configuration property"),
        ({"kafka.fetch.min.bytes": "x"}, r"kafka\.fetch\.min\.bytes = 'x': Invalid value"),
        ({"kafka.group.id": "g"}, r"kafka\.group\.id = 'g': the reader decides .*commitGroup"),
        ({"assign": '{"t":[0]}'}, "subscribe and assign': it must be clear what to read"),
        ({"subscribe": " , "}, "subscribe = ' , ': names no topic"),
        ({"startingoffsets": "first"}, "startingOffsets = 'first': cannot be read"),
        ({"startingoffsets": '{"t":{"0":"1"}}'}, "startingOffsets = '1': is not a number that fits"),
        ({"startingoffsets": '{"t":{"0":-3}}'}, "startingOffsets = -3: is not a number that fits"),
        ({"startingoffsets": '{"t":{"x":1}}'}, "startingOffsets = .*cannot be read"),
        ({"startingoffsets": '{"t":[1]}'}, "startingOffsets = .*cannot be read"),
        ({"startingoffsetsbytimestamp": '{"t":{"0":-1}}'}, "startingOffsetsByTimestamp = -1"),
        ({"startingtimestamp": "yesterday"}, "startingTimestamp = 'yesterday'"),
        ({"failondataloss": "maybe"}, "failOnDataLoss = 'maybe': is neither .use true or false"),
        ({"minpartitions": "0"}, "minPartitions = '0': no whole number in range"),
    ],
)
def test_an_option_that_cannot_be_taken_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        TopicsDataSource({**GIVEN, **options}).schema()


@pytest.mark.parametrize(
    ("query", "options", "message"),
    [
        (Query.BATCH, {"startingoffsets": "latest"}, "a batch query cannot begin at latest"),
        (Query.BATCH, {"startingoffsets": '{"t":{"0":-1}}'}, r"cannot begin at latest \(-1\)"),
        (Query.BATCH, {"endingoffsets": "earliest"}, "a batch query cannot end at earliest"),
        (Query.BATCH, {"maxoffsetspertrigger": "5"}, "maxOffsetsPerTrigger = '5': a batch query has no such"),
        (Query.STREAM, {"endingoffsets": "latest"}, "endingOffsets = 'latest': a stream has no such option"),
    ],
)
def test_each_kind_of_query_has_its_options(query: Query, options: dict[str, str], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        read_options({**GIVEN, **options}, query)


def test_a_batch_reads_all_and_a_stream_what_comes() -> None:
    assert read_options(GIVEN, Query.BATCH).start.everywhere == -2
    assert read_options(GIVEN, Query.STREAM).start.everywhere == -1


def test_times_take_precedence() -> None:
    times = {"startingtimestamp": "5", "startingoffsets": "earliest"}
    assert read_options({**GIVEN, **times}, Query.BATCH).start == Bound(
        "startingTimestamp", "5", by_time=True, everywhere=5
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "nope"}, "option subscribe = 'nope': there is no such topic"),
        ({"subscribe": "", "assign": '{"t":[7]}'}, "option assign = 't-7': there is no such partition"),
        ({"startingoffsets": '{"t":{"0":1}}'}, "startingOffsets = .*it leaves out t-1"),
        ({"startingoffsets": '{"t":{"0":1,"1":1,"2":1}}'}, "startingOffsets = .*names what is not read: t-2"),
        ({"startingoffsets": '{"t":{"0":9,"1":0}}'}, "t-0 has offsets 0 to 5, not 9"),
        ({"endingoffsets": '{"t":{"0":9,"1":0}}'}, "endingOffsets = .*t-0 has offsets 0 to 5, not 9"),
        (
            {"startingoffsets": '{"t":{"0":4,"1":0}}', "endingoffsets": '{"t":{"0":3,"1":5}}'},
            "endingOffsets = .*t-0 would end at 3, before its start 4",
        ),
        (
            {"startingtimestamp": "4102444800000"},
            "startingTimestamp = .*t-0 has no record from 4102444800000 ms on",
        ),
    ],
)
def test_what_the_cluster_does_not_have_is_named(
    cluster: TopicCluster, options: dict[str, str], message: str
) -> None:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": "t", **options}
    source = TopicsDataSource({name: value for name, value in given.items() if value})
    with pytest.raises(OptionError, match=message):
        source.reader(StructType()).partitions()


def test_data_loss_may_be_accepted(cluster: TopicCluster) -> None:
    source = TopicsDataSource(
        {
            "kafka.bootstrap.servers": cluster.bootstrap,
            "subscribe": "t",
            "startingoffsets": '{"t":{"0":9,"1":2}}',
            "endingoffsets": '{"t":{"0":11,"1":12}}',
            "failondataloss": "false",
        }
    )
    assert source.reader(StructType()).partitions() == [OffsetRange("t", 1, 2, 5)]


def test_spark_says_it_before_it_starts_work(spark: SparkSession, cluster: TopicCluster) -> None:
    reader = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    with pytest.raises(AnalysisException, match="option typo = 'x': there is no such option"):
        reader.option("typo", "x").load()
    empty = spark.read.format("quorate").option("kafka.bootstrap.servers", cluster.bootstrap)
    assert empty.option("subscribePattern", "none.*").load().count() == 0


def test_no_broker_is_named_after_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.topics.cluster.ANSWER_DEADLINE_S", 0.5)
    monkeypatch.setattr("pipeline.topics.cluster.REQUEST_TIMEOUT_S", 0.5)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers = '127\.0\.0\.1:1': no answer"):
        TopicsDataSource(GIVEN).reader(StructType()).partitions()


def test_offsets_of_a_stream_have_their_keys_in_order() -> None:
    places = {
        Partition("b", 10): SeenOffset(1, 0),
        Partition("b", 9): SeenOffset(2, 3),
        Partition("a", 0): SeenOffset(3, 0),
    }
    written = to_stream_offset(places)
    assert str(written) == "{'a': {'0': [3, 0]}, 'b': {'9': [2, 3], '10': [1, 0]}}"
    assert from_stream_offset(written) == places
    known = {Partition("a", number): SeenOffset(number, 0, "id of a") for number in (10, 9)}
    written = to_stream_offset(known)
    assert str(written) == "{'a': {'9': [9, 0], '10': [10, 0], 'id': 'id of a'}}"
    assert from_stream_offset(written) == known


def test_a_limit_starves_no_partition() -> None:
    ends = {A: SeenOffset(1000, 0), B: SeenOffset(1, 0)}
    assert limited({A: 0, B: 0}, ends, 10) == {A: SeenOffset(9, 0), B: SeenOffset(1, 0)}
    assert limited({A: 995, B: 1}, ends, 10) == ends


@pytest.mark.parametrize("partitions_min", [1, 2, 3, 7, 50, 200])
def test_pieces_cover_their_ranges(partitions_min: int) -> None:
    ranges = [OffsetRange("a", 0, 5, 105), OffsetRange("b", 0, 0, 3)]
    pieces = split(ranges, partitions_min)
    assert len(pieces) >= min(partitions_min, 103)
    assert [offset for piece in pieces for offset in range(piece.start, piece.end)] == [
        *range(5, 105),
        0,
        1,
        2,
    ]
    assert all(piece.start < piece.end for piece in pieces)
