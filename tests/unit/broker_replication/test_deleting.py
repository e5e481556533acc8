"""DeleteRecords among replicas: when it is answered, and what followers and new replicas learn."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.core.listed_offsets import ListedOffset
from broker.replication.outcomes import DeleteOutcome
from controller.wire.codes import ErrorCode
from tests.unit.broker_log.samples import NOW_MS, batch
from tests.unit.broker_replication.cluster import KEY, Brokers, brokers, until


async def delete(
    cluster: Brokers, offset: int, *, broker_id: int = 1, timeout_ms: int = 10_000
) -> DeleteOutcome:
    outcomes = await cluster[broker_id].parts.deleting.delete_records({KEY: offset}, timeout_ms=timeout_ms)
    return outcomes[KEY]


async def produce(cluster: Brokers, *sizes: int) -> None:
    for size in sizes:
        assert (await cluster[1].produce(*[b"x"] * size)).error_code is ErrorCode.NONE


async def test_the_answer_waits_for_every_live_replica(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.elect(1, [1, 2, 3])
        await produce(cluster, 4, 4)
        assert await delete(cluster, 5) == (ErrorCode.NONE, 5)
        assert [cluster[each].log.durable_start_offset for each in (1, 2, 3)] == [5, 5, 5]
        first = await cluster[1].parts.logs.list_offset(KEY, -2)
        assert first == ListedOffset(ErrorCode.NONE, -1, 5)
        too_low = await cluster[1].fetch(4)
        assert (too_low.error_code, too_low.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 5)
        assert (await cluster[1].fetch(5)).records
        assert await delete(cluster, 2) == (ErrorCode.NONE, 5), "nothing comes back"
        assert await delete(cluster, -1) == (ErrorCode.NONE, 8)
        assert [cluster[each].log.durable_start_offset for each in (1, 2, 3)] == [8, 8, 8]


async def test_what_is_refused_changes_nothing(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4)
        for offset in (5, -2):
            assert await delete(cluster, offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(cluster, 2, broker_id=2) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        assert cluster[1].log.log_start_offset == 0


async def test_a_live_replica_that_does_not_follow_costs_the_whole_time(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4)
        await cluster.stop(2, kill=True)
        for offset, timeout_ms in ((2, 50), (3, 0), (3, -1)):
            assert await delete(cluster, offset, timeout_ms=timeout_ms) == (ErrorCode.REQUEST_TIMED_OUT, 0)
            assert cluster[1].log.log_start_offset == offset
        assert cluster[1].replica.waiters.deletions == {}


async def test_a_replica_whose_broker_is_gone_learns_the_start_later(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4)
        await cluster.stop(2, kill=True)
        del cluster.dial[2]
        await cluster.send(1, await cluster.decide(1, [1]))
        assert await delete(cluster, 3) == (ErrorCode.NONE, 3)
        await cluster.start(2)
        assert cluster[2].log.log_start_offset == 0
        await cluster.elect(1, [1])
        await until(lambda: cluster[2].log.durable_start_offset == 3)
        await cluster.until_isr(1, 2)


async def test_a_new_leader_keeps_the_start_also_after_crashes(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4, 4)
        assert await delete(cluster, 6) == (ErrorCode.NONE, 6)
        for broker_id in (1, 2):
            await cluster.stop(broker_id, kill=True)
        for broker_id in (1, 2):
            await cluster.start(broker_id)
        await cluster.elect(2, [1, 2])
        assert await cluster[2].parts.logs.list_offset(KEY, -2) == ListedOffset(ErrorCode.NONE, -1, 6)
        assert (await cluster[2].fetch(5)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_new_replica_begins_where_the_log_does(tmp_path: Path) -> None:
    """The start is inside of a batch, which the new replica gets whole."""
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await produce(cluster, 4, 4, 2)
        assert await delete(cluster, 6) == (ErrorCode.NONE, 6)
        cluster.replicas = (1, 2)
        await cluster.start(2)
        await cluster.elect(1, [1])
        await cluster.until_isr(1, 2)
        for _ in range(2):
            assert (cluster[2].log.log_start_offset, cluster[2].log.log_end_offset) == (6, 10)
            assert cluster[2].values() == cluster[1].values()
            await cluster.stop(2, kill=True)
            await cluster.start(2)


async def test_a_leader_that_steps_down_answers(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4)
        await cluster.stop(2, kill=True)
        waiting = asyncio.create_task(delete(cluster, 3))
        await until(lambda: cluster[1].parts.deleting.waiting)
        cluster[1].parts.control.detach()
        assert await waiting == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


async def test_an_empty_log_above_its_leader_starts_over(tmp_path: Path) -> None:
    """After an unclean election: without a batch there is no epoch that could tell where the logs part."""
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await produce(cluster, 4)
        await cluster.stop(2)
        await produce(cluster, 4)
        del cluster.dial[2]
        await cluster.send(1, await cluster.decide(1, [1]))
        assert await delete(cluster, -1) == (ErrorCode.NONE, 8)
        await cluster.stop(1)
        await cluster.start(2)
        await cluster.start(1)
        await cluster.elect(2, [2])
        await cluster.until_isr(1, 2)
        assert cluster[1].values() == cluster[2].values()
        assert (cluster[1].log.log_start_offset, cluster[1].log.log_end_offset) == (0, 4)


async def test_a_look_up_names_no_deleted_record(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        records = batch([NOW_MS + 9, NOW_MS + 1, NOW_MS + 2, NOW_MS + 3])
        await cluster[1].parts.producing.produce({KEY: records}, acks=-1, timeout_ms=1000)
        assert await delete(cluster, 2) == (ErrorCode.NONE, 2)
        for timestamp in (NOW_MS, NOW_MS + 1, -3):
            found = await cluster[1].parts.logs.list_offset(KEY, timestamp)
            assert (found.error_code, found.offset) == (ErrorCode.NONE, 2)
        assert await delete(cluster, -1) == (ErrorCode.NONE, 4)
        for timestamp in (NOW_MS, -3):
            assert (await cluster[1].parts.logs.list_offset(KEY, timestamp)).offset == -1
