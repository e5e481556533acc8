"""Transactions at a leader: what is taken, when a marker is answered, when readers of committed ones wake."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.core.fetched import FetchOutcome, FetchPosition
from broker.log.batches import TRANSACTIONAL
from broker.replication.clock import wall_ms
from broker.replication.fetching import Reader
from broker.replication.outcomes import ProduceOutcome
from controller.wire.codes import ErrorCode
from tests.unit.broker_log.samples import batch
from tests.unit.broker_replication.cluster import KEY, TestBroker, brokers, until

PRODUCER_ID = 7


async def send(
    broker: TestBroker, sequence: int, *, acks: int = -1, transactional_id: str | None = "t"
) -> ProduceOutcome:
    records = batch(producer=(PRODUCER_ID, 0, sequence), attributes=TRANSACTIONAL)
    outcomes = await broker.parts.producing.produce(
        {KEY: records}, acks=acks, timeout_ms=10_000, transactional_id=transactional_id
    )
    return outcomes[KEY]


async def mark(broker: TestBroker, *, coordinator_epoch: int = 1) -> ProduceOutcome:
    outcomes = await broker.parts.producing.write_markers(
        *([KEY], PRODUCER_ID, 0),
        is_commit=False,
        coordinator_epoch=coordinator_epoch,
        timeout_ms=10_000,
    )
    return outcomes[KEY]


async def read_committed(broker: TestBroker, offset: int, max_wait_ms: int = 0) -> FetchOutcome:
    outcomes = await broker.parts.fetching.fetch(
        {KEY: FetchPosition(offset, 1 << 20)},
        Reader(read_committed=True),
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
    )
    return outcomes[KEY]


async def test_a_transactional_batch_needs_its_id_and_all_acks(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        found = await send(cluster[1], 0, transactional_id=None)
        assert found.error_code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        assert (await send(cluster[1], 0, acks=1)).error_code is ErrorCode.INVALID_REQUIRED_ACKS
        assert cluster[1].log.log_end_offset == 0
        assert (await send(cluster[1], 0)).error_code is ErrorCode.NONE


async def test_a_late_transaction_counts_at_the_leader_until_it_ends(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])

        def late(before_ms: int) -> list[int]:
            return [cluster[each].parts.logs.late_transactions(before_ms) for each in (1, 2)]

        begun_ms = wall_ms()
        assert late(begun_ms + 600_000) == [0, 0]
        assert (await send(cluster[1], 0)).error_code is ErrorCode.NONE
        assert cluster[2].log.oldest_open_ms() is not None, "the follower knows it, too"
        assert late(begun_ms + 600_000) == [1, 0]
        assert late(begun_ms) == [0, 0]
        assert (await mark(cluster[1])).error_code is ErrorCode.NONE
        assert late(begun_ms + 600_000) == [0, 0]


async def test_a_reader_of_committed_records_wakes_at_the_end(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        leader = cluster[1]
        assert (await send(leader, 0)).base_offset == 0
        assert (await leader.produce(b"other")).base_offset == 1
        found = await read_committed(leader, 0)
        assert (found.records, found.last_stable_offset, found.high_watermark) == (b"", 0, 2)
        assert (await leader.fetch(0)).last_stable_offset == 0
        waiting = asyncio.create_task(read_committed(leader, 0, max_wait_ms=60_000))
        await until(lambda: leader.parts.fetching.waiting == 1)
        assert (await send(leader, 1)).base_offset == 2
        assert (await mark(leader)).base_offset == 3
        found = await waiting
        assert (found.last_stable_offset, found.aborted) == (4, [(PRODUCER_ID, 0)])
        assert found.records == leader.log.segments.read(0, 1 << 20, below=4, at_least_one=True).records
        assert (await leader.fetch(0)).aborted is None
        fenced = await mark(leader, coordinator_epoch=0)
        assert fenced.error_code is ErrorCode.TRANSACTION_COORDINATOR_FENCED


async def test_a_marker_is_answered_once_it_is_committed(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        assert (await send(cluster[1], 0)).base_offset == 0
        assert (await mark(cluster[1])).error_code is ErrorCode.NONE
        assert cluster[2].log.log_end_offset == 2
        assert (await mark(cluster[2])).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The follower knows the same.
        await until(lambda: cluster[2].replica.last_stable_offset == 2)
