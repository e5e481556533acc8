"""The change log as Spark reads it from running nodes, beside the records that a node gives."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from pipeline.changelog.reading import HistoryLostError, TreeLostError
from pipeline.changelog.source import ChangelogDataSource
from pipeline.errors import OptionError
from quorum.cli.main import main
from quorum.client import Client, ClientError, CreateMode, Transaction
from quorum.errors import UnreachableError
from quorum.local.embedded import Ensemble, ensemble_in_thread
from tests.pipeline.histories import Change

DEADLINE_S = 60
#: Nothing listens there.
DEAD = "http://127.0.0.1:1"


class History:
    """A quorum that was written to."""

    def __init__(self, running: Ensemble) -> None:
        self._running = running
        #: the zxid of the tree {path: data}
        self.then: tuple[int, dict[str, bytes | None]] = (0, {})

    @property
    def hosts(self) -> str:
        return self._running.hosts

    @property
    def urls(self) -> str:
        return ",".join(self._running.admin_urls)

    def run(self, work: Callable[[Client], Any]) -> Any:
        async def story() -> Any:
            async with Client(self._running.hosts) as client:
                return await work(client)

        return asyncio.run(story())

    def records(self) -> list[dict[str, Any]]:
        """All records, as the last node gives them."""
        url = f"{self._running.admin_urls[-1]}/v1/changelog?from_zxid=0&bytes_max=8388608&wait_ms=0"
        with urllib.request.urlopen(url, timeout=DEADLINE_S) as answer:
            return [json.loads(line) for line in answer.read().splitlines()]

    def rows(self, from_zxid: int, to_zxid: int) -> list[Change]:
        """The rows that Spark must have."""
        return [
            row for each in self.records() if from_zxid <= each["zxid"] <= to_zxid for row in rows_of(each)
        ]


def rows_of(record: dict[str, Any]) -> Iterator[Change]:
    when = datetime.fromtimestamp(record["ts"] / 1000, UTC).replace(tzinfo=None)
    for index, change in enumerate(record["changes"]):
        before, after = (
            None if change[name] is None else base64.b64decode(change[name]) for name in ("before", "after")
        )
        place = (record["zxid"], index, len(record["changes"]), record["term"], when)
        what = (change["op"], change["path"], before, after, change["version"])
        yield Change(*place, *what, record["session_id"], record["controller_epoch"], record["cluster_id"])


async def tree_of(client: Client) -> dict[str, bytes | None]:
    found: dict[str, bytes | None] = {}
    ahead = ["/"]
    while ahead:
        path = ahead.pop()
        found[path], _ = await client.get(path)
        ahead += [f"{path.rstrip('/')}/{name}" for name in await client.get_children(path)]
    return found


async def write(client: Client) -> tuple[int, dict[str, bytes | None]]:
    """Every kind of transaction; returns the tree in the midst of them."""
    await client.create("/controller_epoch", b"7")
    await client.create("/a", b"1")
    await client.create("/a/empty", None)
    await client.create("/gone", bytes(range(256)))
    with pytest.raises(ClientError):
        await client.delete("/nowhere")
    found = await tree_of(client)
    await client.create("/mark", b"")
    zxid = (await client.get("/mark"))[1].czxid - 1
    await client.create("/session", b"", CreateMode.EPHEMERAL)
    both = Transaction()
    both.set("/a", b"2")
    both.delete("/gone")
    await client.multi(both)
    return zxid, found


@pytest.fixture(scope="module")
def history() -> Iterator[History]:
    with ensemble_in_thread(3) as running:
        found = History(running)
        found.then = found.run(write)
        yield found


def load(spark: SparkSession, urls: str, **options: object) -> DataFrame:
    given = {name: str(value) for name, value in options.items()}
    return spark.read.format("quorate-changelog").option("quorate.admin", urls).options(**given).load()


def found(frame: DataFrame) -> list[Change]:
    return [Change(*row) for row in frame.orderBy("zxid", "txn_index").collect()]


def newest(history: History) -> int:
    """The last zxid, once all nodes give it."""
    history.run(lambda client: client.set("/mark", b"newest"))
    last: int = history.run(lambda client: client.get("/mark"))[1].mzxid
    for url in history.urls.split(","):
        wait_for_record(url, last)
    return last


def test_a_batch_has_the_rows_of_every_record(spark: SparkSession, history: History) -> None:
    last = newest(history)
    expected = history.rows(0, last)
    assert found(load(spark, history.urls, bootstrap="false", endingZxid=last)) == expected
    assert {row.op for row in expected} == {"c", "u", "d"}
    assert {row.controller_epoch for row in expected} == {0, 7}
    zxid = expected[-3].zxid
    some = load(spark, f"{DEAD},{history.urls}", startingZxid=zxid, endingZxid=zxid)
    assert found(some) == history.rows(zxid, zxid)


def test_a_batch_that_begins_with_the_tree_leads_to_the_tree(spark: SparkSession, history: History) -> None:
    as_of_zxid, then = history.then
    last = newest(history)
    rows = found(load(spark, history.urls, bootstrap="true", startingZxid=as_of_zxid + 1, endingZxid=last))
    tree = {row.path: row.after for row in rows if row.op == "r"}
    assert tree == then
    assert {row.zxid for row in rows if row.op == "r"} == {as_of_zxid}
    changes = [row for row in rows if row.op != "r"]
    assert changes == history.rows(as_of_zxid + 1, last)
    for row in changes:
        if row.op == "d":
            del tree[row.path]
        else:
            tree[row.path] = row.after
    assert tree == {**history.run(tree_of)}


def start(spark: SparkSession, history: History, folder: Path, **options: object) -> StreamingQuery:
    given = {name: str(value) for name, value in options.items()}
    rows = spark.readStream.format("quorate-changelog").option("quorate.admin", history.urls)
    writing = rows.options(**given).load().writeStream.format("parquet").trigger(availableNow=True)
    return writing.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "rows"))


def test_a_stream_resumes_behind_the_last_transaction(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    as_of_zxid, then = history.then
    begin = {"bootstrap": "true", "startingZxid": as_of_zxid + 1, "maxTransactionsPerTrigger": 2}
    ends = []
    for _ in range(2):
        last = newest(history)
        query = start(spark, history, tmp_path, **begin)
        assert query.awaitTermination(DEADLINE_S)
        ends += [json.loads(each.sources[0].endOffset)["zxid"] for each in query.recentProgress]
        assert ends[-1] >= last
        assert json.loads(query.recentProgress[-1].sources[0].latestOffset)["zxid"] >= last
    assert all(0 < end - begin <= 2 for begin, end in itertools.pairwise([as_of_zxid, *ends]))
    rows = found(spark.read.parquet(str(tmp_path / "rows")))
    assert {row.path: row.after for row in rows if row.op == "r"} == then
    assert [row for row in rows if row.op != "r"] == history.rows(as_of_zxid + 1, ends[-1])


def reader(history: History, urls: str = "", **options: object) -> Any:
    given = {"quorate.admin": urls or history.urls, **{name: str(each) for name, each in options.items()}}
    return ChangelogDataSource(given).streamReader(StructType())


def test_limits_hold_unless_everything_is_asked_for(history: History) -> None:
    last = newest(history)
    stream = reader(history, bootstrap="false", maxTransactionsPerTrigger="3")
    begin = stream.initialOffset()
    assert begin == {"zxid": -1}
    assert stream.getDefaultReadLimit() == ReadMaxRows(3)
    assert stream.latestOffset(begin, ReadMaxRows(3)) == {"zxid": 2}
    assert stream.latestOffset(begin, ReadAllAvailable())["zxid"] >= last
    small = reader(history, bootstrap="false", maxBytesPerTrigger="1")
    assert small.getDefaultReadLimit() == ReadMaxBytes(1)
    assert small.latestOffset(begin, ReadMaxBytes(1)) == {"zxid": 0}, "one transaction at least"
    large = reader(history, bootstrap="false", maxBytesPerTrigger=1 << 20)
    assert large.latestOffset(begin, ReadMaxBytes(1 << 20))["zxid"] >= last


def test_a_first_batch_without_a_transaction_is_empty(history: History) -> None:
    last = newest(history)
    stream = reader(history, startingZxid=last + 1)
    begin = stream.initialOffset()
    assert begin == {"zxid": last}
    [task] = stream.partitions(begin, begin)
    assert list(stream.read(task)) == []


@pytest.fixture(scope="module")
def short() -> Iterator[tuple[str, int]]:
    """A node that has dropped history; and the first zxid that it retains."""

    async def fill(client: Client) -> int:
        await client.create("/n", b"")
        while not first_retained(url):
            for _ in range(20):
                await client.set("/n", bytes(20_000))
        return (await client.get("/n"))[1].mzxid

    with ensemble_in_thread(1, {"changelog": {"retention_bytes_max": 1 << 20}}) as running:
        url = running.admin_urls[0]
        # The history of the last writes may take more with it.
        wait_for_record(url, History(running).run(fill))
        yield url, first_retained(url)


def wait_for_record(url: str, zxid: int) -> None:
    """Wait until a node gives a record."""
    with urllib.request.urlopen(
        f"{url}/v1/changelog?from_zxid={zxid}&wait_ms=10000", timeout=DEADLINE_S
    ) as answer:
        assert answer.read(), f"{url} has no zxid {zxid}"


def first_retained(url: str) -> int:
    try:
        with urllib.request.urlopen(f"{url}/v1/changelog?from_zxid=0&bytes_max=1", timeout=DEADLINE_S):
            return 0
    except urllib.error.HTTPError as error:
        with error:
            return int(json.loads(error.read())["first_retained_zxid"])


def test_history_that_every_node_dropped_is_a_loss(spark: SparkSession, short: tuple[str, int]) -> None:
    url, first = short
    with pytest.raises(Exception, match=rf"zxid 2 is gone from every node.*give startingZxid = {first}"):
        load(spark, url, startingZxid=2).collect()
    rows = found(load(spark, url, startingZxid=2, failOnDataLoss="false"))
    assert rows[0].zxid == first
    assert [row.zxid for row in rows] == list(range(first, rows[-1].zxid + 1))


def test_history_that_one_node_has_is_no_loss(history: History, short: tuple[str, int]) -> None:
    # Of another quorum, which has dropped nothing: the source cannot know.
    stream = reader(history, f"{short[0]},{history.urls.split(',')[0]}", startingZxid=2)
    [task] = stream.partitions({"zxid": 1}, {"zxid": 3})
    rows = [row for batch in stream.read(task) for row in batch.to_pylist()]
    assert [row["zxid"] for row in rows] == [row.zxid for row in history.rows(2, 3)]


def test_a_stream_whose_history_is_gone_says_where_to_begin(history: History, short: tuple[str, int]) -> None:
    url, first = short
    stream = reader(history, url)
    with pytest.raises(TreeLostError, match=rf"the tree at zxid 2, .*give startingZxid = {first}, and a new"):
        stream.partitions({"bootstrap": True, "zxid": 2}, {"zxid": 5})
    with pytest.raises(HistoryLostError, match=rf"zxid 3 is gone .*give startingZxid = {first}, or failOn"):
        stream.partitions({"zxid": 2}, {"zxid": first})


@pytest.mark.parametrize("zxid", ["0", "3"])
def test_a_job_says_from_where_on_the_history_is_there(
    short: tuple[str, int], capsys: pytest.CaptureFixture[str], zxid: str
) -> None:
    url, first = short
    assert main(["pipeline", "flapping", "--admin", url, "--from", zxid]) == 1
    error = capsys.readouterr().err
    found = re.search(r"is gone.*\nremedy: give --from ([0-9]+)$", error.strip())
    assert found is not None, error
    assert int(found[1]) > first
    assert main(["pipeline", "flapping", "--admin", url, "--from", found[1]]) == 0


def test_a_job_that_ends_before_it_begins_names_its_own_options(
    short: tuple[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pipeline", "flapping", "--admin", short[0], "--until", "3"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: option --until = 3: is before zxid ")
    assert error.endswith("remedy: give --from as well\n")


def test_a_query_that_may_choose_begins_well_behind_what_is_dropped_next(short: tuple[str, int]) -> None:
    url, first = short
    begin: Any = ChangelogDataSource({"quorate.admin": url}).streamReader(StructType()).initialOffset()
    assert begin["bootstrap"] is True
    assert begin["zxid"] > first


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingzxd": "1"}, "option startingzxd = '1': is unknown .*startingZxid, endingZxid"),
        ({"quorate.admin": "h:1"}, r"quorate\.admin = .*'h:1' is not http://host:port"),
        ({"quorate.admin": "https://h:1"}, r"quorate\.admin = .*'https://h:1' is by TLS .*quorate\.ca"),
        ({"quorate.admin": "http://h:0"}, "quorate.admin = 'http://h:0'"),
        ({"startingzxid": "-1"}, "startingZxid = '-1': is not such a number .*from 0 on"),
        ({"maxtransactionspertrigger": "0"}, "maxTransactionsPerTrigger = '0'.*from 1 on"),
        ({"maxbytespertrigger": "1k"}, "maxBytesPerTrigger = '1k'"),
        ({"failondataloss": "no"}, "failOnDataLoss = 'no': is neither true nor false"),
        ({"startingzxid": "9", "endingzxid": "8"}, "endingZxid = 8: is before startingZxid = 9"),
        ({"quorate.tokenfile": "/nowhere"}, "quorate.tokenFile = '/nowhere': cannot be read"),
    ],
)
def test_an_option_that_cannot_be_taken_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        ChangelogDataSource(options)


def test_spark_says_what_is_wrong_before_it_starts_work(spark: SparkSession, history: History) -> None:
    last = newest(history)
    with pytest.raises(AnalysisException, match="option typo = 'x': is unknown"):
        load(spark, history.urls, typo="x")
    with pytest.raises(Exception, match=rf"startingZxid = {last + 1000}: the newest transaction is "):
        load(spark, history.urls, startingZxid=last + 1000).collect()
    with pytest.raises(Exception, match=rf"endingZxid = {last + 1000}: .*give a zxid from 0 to "):
        load(spark, history.urls, endingZxid=last + 1000).collect()
    with pytest.raises(
        Exception, match=r"127\.0\.0\.1:1 did not answer.*name running nodes with quorate.admin"
    ):
        load(spark, DEAD).collect()
    with pytest.raises(OptionError, match="endingZxid = 5: a stream has no end"):
        reader(history, endingZxid="5")


def test_a_port_of_something_else_is_no_history(history: History) -> None:
    url = f"http://{history.hosts.split(',')[0]}"
    with pytest.raises(
        UnreachableError, match=rf"{url} did not answer.*name running nodes with quorate.admin"
    ):
        reader(history, url).initialOffset()
