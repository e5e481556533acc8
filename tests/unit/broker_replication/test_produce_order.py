"""Batches of one partition keep their order, whatever one of them waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.log.errors import LogStorageError
from broker.replication import producing
from broker.replication.outcomes import ProduceOutcome
from controller.messages.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.support.broker_wire import record_batch
from tests.unit.broker_replication.cluster import KEY, Brokers, TestBroker, brokers, until


class Gate:
    """Holds the appends of a log back, each until the test lets it go."""

    def __init__(self, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed = True
        self.held: list[asyncio.Future[None]] = []
        monkeypatch.setattr(log, "before_append", self.before_append)

    def before_append(self, _size_bytes: int, _records_count: int) -> Awaitable[None] | None:
        if not self.closed:
            return None
        self.held.append(asyncio.get_running_loop().create_future())
        return self.held[-1]

    def open(self) -> None:
        self.closed = False
        self.let_go()

    def let_go(self) -> None:
        for each in self.held:
            each.set_result(None)
        self.held.clear()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, 1) as running:
        await running.elect(1, [1])
        yield running


async def produces(broker: TestBroker, *values: bytes, acks: int = -1) -> list[asyncio.Task[ProduceOutcome]]:
    """Begin a produce for each value, one after the other."""
    tasks = [asyncio.create_task(broker.produce(value, acks=acks)) for value in values]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_batches_wait_behind_one_that_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"first", acks=acks)
    gate.closed = False
    tasks += await produces(cluster[1], b"second", b"third", acks=acks)
    assert cluster[1].log.log_end_offset == 0
    gate.open()
    assert [(await each).base_offset for each in tasks] == [0, 1, 2]
    values = cluster[1].values()
    assert values.index(b"first") < values.index(b"second") < values.index(b"third")
    # With nothing that waits, a batch is in the log before its request gives way.
    await produces(cluster[1], b"fourth", acks=acks)
    assert cluster[1].log.log_end_offset == 4


async def test_one_partition_does_not_wait_for_another(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    missing = PartitionKey("orders", 9)
    batches = {missing: record_batch([b"x"]), KEY: record_batch([b"y"])}
    manager = cluster[1].manager
    task = asyncio.create_task(manager.produce(batches, acks=-1, timeout_ms=10_000))
    await until(lambda: gate.held)
    assert not task.done()
    gate.open()
    outcomes = await task
    assert outcomes[missing].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes[KEY].error_code is ErrorCode.NONE


async def test_an_idempotent_producers_sequence_is_judged_in_its_turn(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    manager = cluster[1].manager
    tasks = [
        asyncio.create_task(
            manager.produce({KEY: record_batch([b"v"], producer=(9, 0, sequence))}, acks=-1, timeout_ms=9000)
        )
        for sequence in (*range(5), 4)
    ]
    await asyncio.sleep(0)
    gate.open()
    assert [(await each)[KEY].base_offset for each in tasks] == [0, 1, 2, 3, 4, 4]


async def test_leader_that_steps_down_answers_what_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    cluster[1].manager.detach()
    for each in tasks:
        assert (await each).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # In its next leadership the log goes on without them.
    gate.closed = False
    cluster[1].manager.attach(cluster[1].client, cluster[1].generation)
    await cluster.elect(1, [1])
    later = await produces(cluster[1], b"c")
    gate.open()
    assert (await later[0]).base_offset == 0
    assert cluster[1].log.log_end_offset == 1


async def test_replica_that_is_removed_answers_what_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a")
    control = cluster[1].manager._control
    control._close(cluster[1].replica)
    assert (await tasks[0]).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    gate.open()


async def test_isr_is_judged_in_the_turn_of_the_append(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a")
    tasks += await produces(cluster[1], b"b", acks=1)
    cluster[1].replica.min_insync_replicas = 2
    gate.open()
    assert (await tasks[0]).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await tasks[1]).base_offset == 0


async def test_request_that_ended_in_time_changes_nothing_later(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    assert (await cluster[1].produce(b"a", timeout_ms=0)).error_code is ErrorCode.REQUEST_TIMED_OUT
    left = (await produces(cluster[1], b"b"))[0]
    left.cancel()
    gate.open()
    # Both have their places all the same.
    assert (await cluster[1].produce(b"c")).base_offset == 2
    assert cluster[1].replica.produces == {}
    assert cluster[1].manager.status().waiting_produces == 0


async def test_what_waits_is_bounded(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    monkeypatch.setattr(producing, "APPENDS_BYTES_MAX", 250)
    tasks = await produces(cluster[1], b"x" * 100, b"y" * 100, b"z")
    refused = await tasks[1]
    assert refused.error_code is ErrorCode.REQUEST_TIMED_OUT
    assert "nothing was appended" in (refused.message or "")
    gate.open()
    assert ((await tasks[0]).base_offset, (await tasks[2]).base_offset) == (0, 1)
    assert (await cluster[1].produce(b"y" * 100)).base_offset == 2


async def test_a_disk_that_fails_while_batches_wait_is_reported(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    gate.held[0].set_exception(LogStorageError("the disk is full"))
    for each in tasks:
        assert (await each).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [str(each) for each in cluster[1].failures] == ["the disk is full"]
    cluster[1].failures.clear()


async def test_a_broker_that_stops_waits_for_no_batch(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    await cluster.stop(1)
    for each in tasks:
        assert (await each).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
