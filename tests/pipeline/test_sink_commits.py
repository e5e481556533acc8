"""Commits of the sink against real brokers and a real quorum, ended or held at chosen points; no Spark."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from broker.client import BrokerClient
from broker.client.producing import PRODUCER_EPOCH_MAX, Chunk
from broker.local import BlockingBrokers, brokers_in_thread
from pipeline.sink.committing import Commit, append_once
from pipeline.sink.encoding import Encoder, SinkRow, TopicShape
from pipeline.sink.errors import SinkFencedError, SinkNameError, StagedFileError
from pipeline.sink.ledger import Ledger, SinkState
from pipeline.sink.options import read_options
from pipeline.sink.staging import Manifest, StagedFile, Staging
from pipeline.sink.writer import discard
from quorum.client import Client
from tests.support.sink_driver import (
    MESSAGE_BYTES,
    PARTITIONS,
    POINTS,
    assert_once_in_order,
    create_topic,
    read_topic,
)

DEADLINE_S = 30.0
_names = (f"sink-{number}" for number in itertools.count())


#: Where a commit is held, and what it does there.
Held = tuple[str, Callable[[], Awaitable[object]]]


class CrashError(Exception):
    """The driver is gone."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread() as running:
        yield running


@dataclasses.dataclass
class Sink:
    """One name, its topic and what was staged for it."""

    name: str
    cluster: BlockingBrokers
    folder: Path
    expected: Counter[bytes] = dataclasses.field(default_factory=Counter)

    @property
    def staging(self) -> Staging:
        return Staging(str(self.folder), self.name)

    def stage(self, run_id: str, batch_id: int, *, files: int = 2, rows: int = 600) -> list[StagedFile]:
        """Stage a batch; every run stages the same rows of it, in chunks of its own."""
        staged = []
        for file in range(files):
            values = [f"{batch_id}.{file}-{row:06}".encode() for row in range(rows)]
            found = self.staging.stage(run_id, chunks(self.name, values, first=len(run_id)))
            assert found is not None
            staged.append(found)
            self.expected |= Counter(values)
        return staged

    def check(self) -> None:
        """Every row that was staged is there once, in order."""
        assert_once_in_order(self.cluster.bootstrap, self.name, self.expected)

    def count(self) -> int:
        return sum(map(len, read_topic(self.cluster.bootstrap, self.name).values()))


def chunks(topic: str, values: Sequence[bytes], first: int) -> Iterator[Chunk]:
    encoder = Encoder(lambda _: TopicShape(PARTITIONS, MESSAGE_BYTES), codec=0, first_partition=first)
    for value in values:
        yield from encoder.add(SinkRow(topic, None, None, value, None))
    yield from encoder.rest()


@pytest.fixture
def sink(cluster: BlockingBrokers, tmp_path: Path) -> Sink:
    found = Sink(next(_names), cluster, tmp_path)
    asyncio.run(create_topic(cluster.bootstrap, found.name))
    return found


class HeldCommit(Commit):
    """A commit that does something at a point: it ends there, or waits."""

    def __init__(self, *args: Any, held: Held, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._point, self._at = held

    async def _reached(self, point: str) -> None:
        if point == self._point:
            await self._at()

    async def run(self) -> None:
        await self._reached("staged")
        await super().run()
        await self._reached("done")

    async def append(self, state: SinkState, manifest: Manifest | None) -> None:
        await self._reached("recorded")
        calls = itertools.count(1)
        produce = self._brokers.produce

        async def counted(*args: Any, **kwargs: Any) -> Any:
            answer = await produce(*args, **kwargs)
            if next(calls) == 2:
                await self._reached("appending")
            return answer

        setattr(self._brokers, "produce", counted)  # noqa: B010 - a method is replaced
        await super().append(state, manifest)
        await self._reached("appended")


@contextlib.asynccontextmanager
async def ledger_of(sink: Sink) -> AsyncIterator[tuple[BrokerClient, Ledger]]:
    async with BrokerClient(sink.cluster.bootstrap) as brokers, Client(sink.cluster.hosts) as client:
        yield brokers, Ledger(client, sink.name)


async def commit(
    sink: Sink,
    run_id: str,
    batch_id: int,
    files: Sequence[StagedFile],
    *,
    query_id: str = "q",
    held: Held | None = None,
) -> None:
    async with ledger_of(sink) as (brokers, ledger):
        names = {"query_id": query_id, "run_id": run_id}
        await HeldCommit(
            brokers,
            ledger,
            sink.staging,
            **names,
            batch_id=batch_id,
            files=files,
            held=held or ("nowhere", crash),
        ).run()


async def state_of(sink: Sink) -> SinkState:
    async with ledger_of(sink) as (_, ledger):
        state, _ = await ledger.read()
        assert state is not None
        return state


async def crash() -> None:
    raise CrashError


@pytest.mark.parametrize("point", POINTS)
def test_driver_that_ends_at_a_point_leaves_the_rest_to_the_next(sink: Sink, point: str) -> None:
    async def story() -> None:
        await commit(sink, "first", 0, sink.stage("first", 0))
        with pytest.raises(CrashError):
            await commit(sink, "first", 1, sink.stage("first", 1), held=(point, crash))
        await commit(sink, "second run", 1, sink.stage("second run", 1))
        await commit(sink, "second run", 2, sink.stage("second run", 2))
        assert sink.staging.runs() == [], "nothing stays staged"

    asyncio.run(story())
    sink.check()


@pytest.mark.parametrize("point", ["staged", "recorded", "appending", "appended"])
def test_paused_driver_appends_nothing_after_a_newer_one(sink: Sink, point: str) -> None:
    async def story() -> int:
        paused, resumed = asyncio.Event(), asyncio.Event()

        async def pause() -> None:
            paused.set()
            await resumed.wait()

        files = sink.stage("older", 0)
        older = asyncio.create_task(commit(sink, "older", 0, files, held=(point, pause)))
        await asyncio.wait_for(paused.wait(), DEADLINE_S)
        await commit(sink, "newer", 0, sink.stage("newer", 0))
        await commit(sink, "newer", 1, sink.stage("newer", 1))
        resumed.set()
        with pytest.raises((SinkFencedError, StagedFileError)):
            await asyncio.wait_for(older, DEADLINE_S)
        return (await state_of(sink)).batch_id

    assert asyncio.run(story()) == 1
    sink.check()


def test_two_drivers_that_append_at_once_write_each_row_once(sink: Sink) -> None:
    async def story() -> None:
        both, first_waits = asyncio.Barrier(2), asyncio.Event()

        async def meet() -> None:
            first_waits.set()
            await asyncio.wait_for(both.wait(), DEADLINE_S)

        files = sink.stage("older", 0, rows=3_000)
        older = asyncio.create_task(commit(sink, "older", 0, files, held=("recorded", meet)))
        await asyncio.wait_for(first_waits.wait(), DEADLINE_S)
        files = sink.stage("newer", 0, rows=3_000)
        newer = commit(sink, "newer", 0, files, held=("recorded", meet))
        results = await asyncio.gather(older, newer, return_exceptions=True)
        assert isinstance(results[0], SinkFencedError), results
        assert results[1] is None, results

    asyncio.run(story())
    sink.check()


def test_batch_that_was_done_is_not_appended_again(sink: Sink) -> None:
    async def story() -> None:
        await commit(sink, "first", 0, sink.stage("first", 0))
        await commit(sink, "second", 0, sink.stage("second", 0))
        assert (await state_of(sink)).run_id == "second"
        with pytest.raises(SinkFencedError, match="run first was replaced by run second"):
            await commit(sink, "first", 1, [])

    asyncio.run(story())
    sink.check()


def test_batch_of_an_older_checkpoint_is_refused(sink: Sink) -> None:
    async def story() -> None:
        for batch_id in range(3):
            await commit(sink, "first", batch_id, sink.stage("first", batch_id))
        with pytest.raises(SinkNameError, match="batch 1 comes after batch 2"):
            await commit(sink, "second", 1, sink.stage("second", 1))

    asyncio.run(story())
    sink.check()


def test_name_of_another_query_is_refused(sink: Sink) -> None:
    async def story() -> None:
        await commit(sink, "first", 0, sink.stage("first", 0))
        with pytest.raises(SinkNameError, match="the name is that of query q, this is query other"):
            await commit(sink, "second", 0, sink.stage("second", 0), query_id="other")

    asyncio.run(story())
    sink.check()


def spoil(path: Path, damage: str) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.unlink()
    if damage == "flipped":
        path.write_bytes(content)


@pytest.mark.parametrize("damage", ["flipped", "gone"])
def test_damaged_staged_file_appends_nothing(sink: Sink, damage: str) -> None:
    async def story() -> None:
        files = sink.stage("first", 0)
        spoil(Path(files[1].path), damage)
        with pytest.raises(StagedFileError, match=files[1].path):
            await commit(sink, "first", 0, files)

    asyncio.run(story())
    assert sink.count() == 0


def test_every_batch_has_an_epoch_and_the_last_one_a_new_producer_id(sink: Sink) -> None:
    async def story() -> None:
        await commit(sink, "first", 0, sink.stage("first", 0))
        before = await state_of(sink)
        await commit(sink, "first", 1, sink.stage("first", 1))
        after = await state_of(sink)
        assert after.life == before.life._replace(producer_epoch=before.producer_epoch + 1)
        async with ledger_of(sink) as (_, ledger):
            _, version = await ledger.read()
            assert await ledger.swap(after._replace(producer_epoch=PRODUCER_EPOCH_MAX), version) is not None
        await commit(sink, "first", 2, sink.stage("first", 2))
        last = await state_of(sink)
        assert last.producer_id != after.producer_id
        assert last.producer_epoch == 0

    asyncio.run(story())
    sink.check()


def there(files: Sequence[StagedFile]) -> bool:
    return all(Path(each.path).exists() for each in files)


def test_discard_keeps_what_the_quorum_names(sink: Sink) -> None:
    options = read_options(
        {"kafka.bootstrap.servers": sink.cluster.bootstrap, "staginglocation": str(sink.folder)}, stream=True
    )

    async def story() -> None:
        files = sink.stage("first", 0)
        with pytest.raises(CrashError):
            await commit(sink, "first", 0, files, held=("appending", crash))
        await discard(options, sink.name, "first", files)
        assert there(files)
        others = sink.stage("second", 0)
        await discard(options, sink.name, "second", others)
        assert not there(others)
        await commit(sink, "third", 0, [])

    asyncio.run(story())
    sink.check()


def test_write_without_a_name_appends_once(sink: Sink) -> None:
    async def story() -> None:
        async with BrokerClient(sink.cluster.bootstrap) as brokers:
            await append_once(brokers, sink.staging, sink.stage("only", 0))

    asyncio.run(story())
    sink.check()
