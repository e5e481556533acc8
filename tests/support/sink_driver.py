"""A driver that writes a stream to a topic and can be struck at a chosen point of a commit.

`python -m tests.support.sink_driver` runs Spark in a process of its own, reads text files a few a batch and
ends when all are written. The strike comes from inside the commit: the process that carries it out kills or
stops the JVM and the driver above it, so the point is exact. Nothing of the product knows of it: the source
is one of this module, whose writer uses a commit of this module.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamWriter
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from broker.client import BrokerClient
from controller.core.requests import NewTopic
from pipeline.session import start_session
from pipeline.sink.committing import Commit
from pipeline.sink.ledger import SinkState
from pipeline.sink.staging import Manifest
from pipeline.sink.writer import TopicStreamWriter
from quorum.metadata.paths import PartitionKey
from tests.support.broker_records import reading
from tests.support.spark_jvm import SHORT_LIVED, SMALL_PLANS

#: Where a commit is struck: its files are staged; the manifest is in the quorum; some chunks are appended;
#: all are; the manifest is marked as done.
POINTS = ("staged", "recorded", "appending", "appended", "done")
#: A batch of which something is already appended when it is struck in mid-append.
PRODUCE_CALLS = 3
PARTITIONS = 3
#: Small batches, so that an append takes many requests.
MESSAGE_BYTES = 4096
FILES_PER_BATCH = 2
READ_DEADLINE_S = 60.0
#: What a driver writes once its first batch runs.
STARTED = "the first batch runs"
POLL_S = 0.02
_OWN = "test."


class Strike(NamedTuple):
    """What befalls the driver."""

    point: str
    #: SIGKILL or SIGSTOP.
    signal_number: int
    #: Whether the process that carries out the commit is spared: Spark's driver is gone, it goes on.
    orphan: bool
    batch_id: int


class StruckCommit(Commit):
    """A commit during which its driver is struck."""

    def __init__(self, *args: Any, strike: Strike, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._strike = strike
        self._calls = 0

    async def run(self) -> None:
        self._reached("staged")
        await super().run()
        self._reached("done")

    async def append(self, state: SinkState, manifest: Manifest | None) -> None:
        self._reached("recorded")
        produce = self._brokers.produce

        async def struck(*args: Any, **kwargs: Any) -> Any:
            answer = await produce(*args, **kwargs)
            self._calls += 1
            if self._calls == PRODUCE_CALLS:
                self._reached("appending")
            return answer

        setattr(self._brokers, "produce", struck)  # noqa: B010 - a method is replaced
        await super().append(state, manifest)
        self._reached("appended")

    def _reached(self, point: str) -> None:
        if point == self._strike.point and self._batch_id == self._strike.batch_id:
            strike_down(self._strike)


def strike_down(strike: Strike) -> None:
    """Strike every process from the driver down to this one; only the driver leads a group of its own."""
    struck = [os.getpid()]
    for each in psutil.Process().parents():
        struck.append(each.pid)
        if os.getpgid(each.pid) == each.pid == os.getsid(each.pid):
            break
    # The driver first, this process last.
    for pid in reversed(struck[1:]):
        os.kill(pid, strike.signal_number)
    if not strike.orphan:
        os.kill(os.getpid(), strike.signal_number)


class StruckSource(DataSource):
    """The sink with a commit that is struck; its own options begin with `test.`."""

    @classmethod
    def name(cls) -> str:
        return "quorate-struck"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = {name: value for name, value in self.options.items() if not name.startswith(_OWN)}
        own = {name.removeprefix(_OWN): value for name, value in self.options.items() if name not in options}
        writer = TopicStreamWriter(options, schema, overwrite)
        strike = Strike(own["point"], int(own["signal"]), own["orphan"] == "True", int(own["batch"]))
        setattr(writer, "commit_type", functools.partial(StruckCommit, strike=strike))  # noqa: B010
        return writer


def begin(
    spark: SparkSession, options: Mapping[str, str], folder: Path, *, form: str = "quorate"
) -> StreamingQuery:
    """Start the query: the lines of a folder's files, keyed by their last digit, into a topic."""
    lines = spark.readStream.option("maxFilesPerTrigger", FILES_PER_BATCH).text(str(folder / "input"))
    rows = lines.selectExpr("value", "right(value, 1) AS key")
    writing = rows.writeStream.format(form).options(**options)
    return writing.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()


def write_input(folder: Path, files: int, rows: int) -> Counter[bytes]:
    """Write the input; returns what the topic must hold."""
    (folder / "input").mkdir()
    lines: Counter[bytes] = Counter()
    for file in range(files):
        texts = [f"{file}-{row:06}-{row:050}-{row % 10}" for row in range(rows)]
        (folder / "input" / f"{file}.txt").write_text("\n".join(texts) + "\n")
        lines.update(text.encode() for text in texts)
    return lines


async def create_topic(bootstrap: str, topic: str, replicas: int = 1) -> None:
    """Create the topic that is written to."""
    async with BrokerClient(bootstrap) as client:
        settings = {"max.message.bytes": str(MESSAGE_BYTES)}
        result = (await client.create_topics([NewTopic(topic, PARTITIONS, replicas, None, settings)]))[topic]
        assert result.error_code == 0, result


async def _ends(bootstrap: str, topic: str) -> dict[int, int]:
    keys = [PartitionKey(topic, index) for index in range(PARTITIONS)]
    async with BrokerClient(bootstrap) as client:
        listed = await client.list_offsets(dict.fromkeys(keys, -1))
    assert all(row.error_code == 0 for row in listed.values()), listed
    return {key.partition: row.offset for key, row in listed.items()}


def end_of_topic(bootstrap: str, topic: str) -> int:
    """Return how many records a topic holds."""
    return sum(asyncio.run(_ends(bootstrap, topic)).values())


def read_topic(bootstrap: str, topic: str) -> dict[int, list[bytes]]:
    """Return every value of a topic, by partition and in order."""
    ends = asyncio.run(_ends(bootstrap, topic))
    found: dict[int, list[bytes]] = {partition: [] for partition in ends}
    consumer = Consumer(reading(bootstrap))
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    try:
        while any(len(found[partition]) < end for partition, end in ends.items()):
            message = consumer.poll(READ_DEADLINE_S)
            assert message is not None, (
                f"read { ({key: len(value) for key, value in found.items()}) } of {ends}"
            )
            assert message.error() is None, message.error()
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            found[partition].append(value)
    finally:
        consumer.close()
    return found


def misplaced(
    bootstrap: str, topic: str, expected: Counter[bytes]
) -> tuple[Counter[bytes], Counter[bytes], int]:
    """Return the lines that a topic lacks, those that it has too often, and how many come too late."""
    found = read_topic(bootstrap, topic)
    counts = Counter(value for values in found.values() for value in values)
    late = 0
    for values in found.values():
        last: dict[bytes, bytes] = {}
        for value in values:
            file, _, row = value.partition(b"-")
            late += last.get(file, b"") >= row
            last[file] = row
    return expected - counts, counts - expected, late


def assert_once_in_order(bootstrap: str, topic: str, expected: Counter[bytes]) -> None:
    """The topic holds every line once, those of one file in their order within a partition."""
    lost, doubled, late = misplaced(bootstrap, topic, expected)
    assert not lost, f"lost {lost.total()}: {list(lost)[:5]}"
    assert not doubled, f"doubled {doubled.total()}: {list(doubled)[:5]}"
    assert not late, f"{late} lines stand behind later ones of their file"


def start_driver(
    folder: Path, bootstrap: str, topic: str, *more: str, strike: Strike | None = None
) -> subprocess.Popen[str]:
    """Start a driver in a session of its own; its output goes to a file of the folder."""
    arguments = [sys.executable, "-m", "tests.support.sink_driver", str(folder), bootstrap, topic, *more]
    if strike is not None:
        arguments += [
            "--strike",
            strike.point,
            str(strike.signal_number),
            str(strike.orphan),
            str(strike.batch_id),
        ]
    with (folder / "driver.log").open("a") as log:
        return subprocess.Popen(
            arguments, stdout=log, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )


def main() -> None:
    """Write the input of a folder to a topic."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--form", default="quorate", help="the sink: quorate, or Spark's own kafka")
    parser.add_argument("--jars", default="", help="of Spark's own Kafka connector")
    parser.add_argument("--strike", nargs=4, metavar=("POINT", "SIGNAL", "ORPHAN", "BATCH"))
    given = parser.parse_args()
    options = {"kafka.bootstrap.servers": given.bootstrap, "topic": given.topic}
    spark = start_session(
        "sink-driver",
        master="local[2,4]",
        settings={
            **SHORT_LIVED,
            **SMALL_PLANS,
            **({"spark.jars": given.jars} if given.jars else {}),
        },
    )
    if given.strike is None:
        query = begin(spark, options, given.folder, form=given.form)
    else:
        from tests.support.sink_driver import StruckSource

        spark.dataSource.register(StruckSource)
        names = ("point", "signal", "orphan", "batch")
        own = {f"{_OWN}{name}": value for name, value in zip(names, given.strike, strict=True)}
        query = begin(spark, {**options, **own}, given.folder, form="quorate-struck")
    # Starting takes longer than a batch does.
    while not spark.sparkContext.statusTracker().getActiveJobsIds() and query.isActive:
        threading.Event().wait(POLL_S)
    sys.stdout.write(STARTED + "\n")
    sys.stdout.flush()
    query.awaitTermination()


if __name__ == "__main__":
    main()
