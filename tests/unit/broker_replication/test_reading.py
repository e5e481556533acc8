"""Fetch, ListOffsets and OffsetForLeaderEpoch: limits, waiting, followers, and what is refused."""

from __future__ import annotations

import asyncio
import threading
import uuid
from pathlib import Path
from typing import Any

import cramjam
import pytest

from broker.core.fetched import FetchPosition
from broker.core.listed_offsets import ListedOffset
from broker.log import files, segment
from broker.log.errors import LogStorageError
from broker.log.files import NotCachedError
from broker.log.segments import Segments
from broker.replication import fetching, producing
from broker.replication.fetching import Reader
from broker.replication.outcomes import EpochEnd
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import ZSTD, altered, batch
from tests.unit.broker_replication.cluster import KEY, TOPIC, Brokers, brokers, until
from tests.unit.broker_replication.test_fences import stop_request

DEADLINE_S = 20.0


async def test_fetch_waits_for_records(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        waiting = asyncio.create_task(cluster[1].fetch(0, max_wait_ms=10_000))
        await until(lambda: cluster[1].parts.fetching.waiting)
        await cluster[1].produce(b"a")
        assert (await waiting).records == cluster[1].values()
        assert cluster[1].replica.waiters.fetches == {}


async def test_a_log_that_is_deleted_while_a_thread_reads_it_costs_that_answer_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, go_on = threading.Event(), threading.Event()

    def read_range(*place: Any) -> bytes:
        reading.set()
        go_on.wait(DEADLINE_S)
        return files.read_range(*place)

    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        with monkeypatch.context() as patched:
            patched.setattr(files, "_NO_WAIT", None)
            patched.setattr(segment, "read_range", read_range)
            fetching_it = asyncio.create_task(cluster[1].fetch(0))
            listing = asyncio.create_task(cluster[1].parts.logs.list_offset(KEY, 1))
            await until(reading.is_set)
            stop = stop_request(cluster, cluster[1].generation, -2, delete=True)
            assert (await cluster[1].parts.control.apply(stop)).error_code is ErrorCode.NONE
            go_on.set()
            assert (await fetching_it).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert (await listing).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[1].failures == []


async def test_fetch_answers_at_its_deadline(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        read = await cluster[1].fetch(0, max_wait_ms=20, min_bytes=10_000)
        assert read.records == cluster[1].values()


async def test_consumer_sees_only_what_is_committed(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a")
        await cluster.stop(2, kill=True)
        assert (await cluster[1].produce(b"b", acks=1)).error_code is ErrorCode.NONE
        read = await cluster[1].fetch(1)
        assert (read.error_code, read.high_watermark, read.records) == (ErrorCode.NONE, 1, b"")
        epoch = cluster[1].replica.leader_epoch
        as_follower = await cluster[1].fetch(1, replica_id=2, generation=1, current_leader_epoch=epoch)
        assert as_follower.records != b""
        waiting = asyncio.create_task(cluster[1].fetch(1, max_wait_ms=10_000))
        assert (await waiting).records != b""  # the silent follower leaves the ISR


async def test_limits_of_bytes_span_partitions_and_give_one_batch(tmp_path: Path) -> None:
    other = PartitionKey(TOPIC, 1)
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        await cluster[1].parts.control.apply(cluster.leader_and_isr(1, *decided, key=other))
        for key in (KEY, other):
            for _ in range(2):
                await cluster[1].produce(b"x" * 1000, key=key)
        positions = {KEY: FetchPosition(0, 5000), other: FetchPosition(0, 5000)}
        sizes = []
        for max_bytes in (1, 1500, 2200, 3300, 9000):
            read = await cluster[1].parts.fetching.fetch(
                positions, Reader(), max_wait_ms=0, min_bytes=1, max_bytes=max_bytes
            )
            sizes.append([len(read[key].records) // 1000 for key in positions])
        assert sizes == [[1, 0], [1, 0], [2, 0], [2, 1], [2, 2]]


async def test_fetches_that_wait_for_the_disk_hold_little_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "HELD_BYTES_MAX", 5000)
    numbers = range(10)
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        for number in numbers[1:]:
            key = PartitionKey(TOPIC, number)
            await cluster[1].parts.control.apply(cluster.leader_and_isr(1, *decided, key=key))
        for number in numbers:
            await cluster[1].produce(b"x" * 1000, key=PartitionKey(TOPIC, number))

        read = Segments.read

        def read_the_disk(segments: Segments, *given: Any, wait: bool = True, **named: Any) -> Any:
            if not wait:
                raise NotCachedError
            return read(segments, *given, **named)

        monkeypatch.setattr(Segments, "read", read_the_disk)
        positions = {PartitionKey(TOPIC, number): FetchPosition(0, 5000) for number in numbers}
        answers = await asyncio.gather(
            *(
                cluster[1].parts.fetching.fetch(
                    positions, Reader(), max_wait_ms=0, min_bytes=1, max_bytes=100_000
                )
                for _ in range(20)
            )
        )
        sizes = [sum(len(each.records) // 1000 for each in answer.values()) for answer in answers]
        # Each has something, the first ones more; alone one has all.
        assert min(sizes) >= 1
        assert sum(sizes) < 20 * 5
        few = {PartitionKey(TOPIC, number): FetchPosition(0, 5000) for number in range(4)}
        alone = await cluster[1].parts.fetching.fetch(
            few, Reader(), max_wait_ms=0, min_bytes=1, max_bytes=100_000
        )
        assert all(each.records for each in alone.values())


async def test_refused_fetches_name_the_reason(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a")
        leader = cluster[1]
        assert (await leader.fetch(5)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await leader.fetch(-1)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
        fenced = await leader.fetch(0, current_leader_epoch=0)
        assert (fenced.error_code, fenced.current_leader) == (ErrorCode.FENCED_LEADER_EPOCH, (1, 1))
        unknown = await leader.fetch(0, current_leader_epoch=2)
        assert unknown.error_code is ErrorCode.UNKNOWN_LEADER_EPOCH
        as_follower = await cluster[2].fetch(0, replica_id=1, current_leader_epoch=1)
        assert as_follower.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert as_follower.current_leader == (1, 1)
        stranger = await leader.fetch(0, replica_id=4, current_leader_epoch=1)
        assert stranger.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        positions = {
            KEY: FetchPosition(0, 100, topic_id=uuid.UUID(int=1)),
            PartitionKey("absent", 0): FetchPosition(0, 100),
        }
        read = await leader.parts.fetching.fetch(
            positions, Reader(), max_wait_ms=0, min_bytes=1, max_bytes=100
        )
        assert [outcome.error_code for outcome in read.values()] == [
            ErrorCode.INCONSISTENT_TOPIC_ID,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]


async def test_broker_without_metadata_calls_nothing_unknown(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_follower_serves_consumers_up_to_its_own_high_watermark(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        decided = await cluster.decide(1, [1, 2])
        racks = {1: "a", 2: "b"}
        for broker_id in (1, 2):
            await cluster.send(broker_id, decided, racks)
        await cluster[1].produce(b"a")
        await until(lambda: cluster[2].replica.high_watermark == 1)
        sent_away = await cluster[1].fetch(0, rack="b")
        assert (sent_away.preferred_read_replica, sent_away.records) == (2, b"")
        read = await cluster[2].fetch(0, rack="b")
        assert (read.error_code, read.records) == (ErrorCode.NONE, cluster[1].values())
        assert (await cluster[1].fetch(0, rack="a")).records == cluster[1].values()
        # What a follower does not have may exist at the leader: it says nothing about the range.
        assert (await cluster[2].fetch(3)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_offsets_by_time_and_at_both_ends(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a", b"b")
        parts = cluster[1].parts
        timestamp = 1_700_000_000_000
        assert (await parts.logs.list_offset(KEY, -1)) == ListedOffset(ErrorCode.NONE, -1, 2, 0)
        assert (await parts.logs.list_offset(KEY, -2)) == ListedOffset(ErrorCode.NONE, -1, 0)
        assert (await parts.logs.list_offset(KEY, -3)) == ListedOffset(ErrorCode.NONE, timestamp, 0)
        assert (await parts.logs.list_offset(KEY, timestamp - 5)) == ListedOffset(
            ErrorCode.NONE, timestamp, 0
        )
        assert (await parts.logs.list_offset(KEY, timestamp + 5)) == ListedOffset(ErrorCode.NONE)
        assert (await parts.logs.list_offset(KEY, -9)).error_code is ErrorCode.INVALID_REQUEST
        assert (await parts.logs.list_offset(KEY, -1, current_leader_epoch=3)).error_code == 75
        assert parts.logs.epoch_end_offset(KEY, 0, -1) == EpochEnd(ErrorCode.NONE, 0, 2)
        absent = PartitionKey("absent", 0)
        assert (await parts.logs.list_offset(absent, -1)).error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_stored_bomb_costs_a_look_up_and_not_the_broker(tmp_path: Path) -> None:
    """8 KiB that unfold to 256 MiB, from before records were looked at when they are produced."""
    bomb = bytes(cramjam.zstd.compress(bytes(256 << 20)))
    stored = altered(batch([100], codec=ZSTD)[:61] + bomb, batch_length=49 + len(bomb), max_timestamp=10**15)
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        cluster[1].log.append_as_follower(stored, 0)
        parts = cluster[1].parts
        tasks = [asyncio.create_task(parts.logs.list_offset(KEY, each)) for each in (50, -3, 50)]
        assert (await cluster[1].produce(b"a")).base_offset == 1
        assert not any(each.done() for each in tasks)
        assert [(await each).error_code for each in tasks] == [ErrorCode.CORRUPT_MESSAGE] * 3
        assert (await parts.logs.list_offset(KEY, -1)).offset == 2
        assert cluster[1].failures == []


async def test_a_look_up_that_ends_after_the_leadership_says_so(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        look_up = asyncio.create_task(cluster[1].parts.logs.list_offset(KEY, 5))
        await asyncio.sleep(0)
        cluster[1].parts.control.detach()
        assert (await look_up).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_new_leader_names_no_last_offset_before_it_is_certain(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, settings=TopicSettings(min_insync_replicas=1)) as cluster:
        await cluster.elect(1, [1, 2])
        for number in range(3):
            await cluster[1].produce(b"%d" % number)
        await cluster.stop(2, kill=True)
        await cluster.stop(1, kill=True)
        (tmp_path / "broker-1" / "replication-offset-checkpoint").unlink(missing_ok=True)
        broker = await cluster.start(1)
        decided = await cluster.decide(1, [1, 2])
        await cluster.send(1, decided)
        assert (await broker.parts.logs.list_offset(KEY, -1)).error_code is ErrorCode.OFFSET_NOT_AVAILABLE
        assert (await broker.parts.logs.list_offset(KEY, -2)).error_code is ErrorCode.NONE
        assert (await broker.parts.logs.list_offset(KEY, -1, is_follower=True)).offset == 3
        await cluster.until_isr(1)
        await until(lambda: broker.replica.leader.knows_what_is_committed())
        assert (await broker.parts.logs.list_offset(KEY, -1)).offset == 3


async def test_waiting_fetch_ends_when_the_leader_steps_down(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        waiting = asyncio.create_task(cluster[1].fetch(0, max_wait_ms=10_000))
        await until(lambda: cluster[1].parts.fetching.waiting)
        cluster[1].parts.control.detach()
        assert (await waiting).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_disk_error_is_reported_and_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LogStorageError("the disk is on fire")

    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        monkeypatch.setattr(cluster[1].log, "append_produced", refuse, raising=False)
        monkeypatch.setattr(Segments, "read", refuse)
        assert (await cluster[1].produce(b"b")).error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert (await cluster[1].fetch(0)).error_code is ErrorCode.KAFKA_STORAGE_ERROR
        assert len(cluster[1].failures) == 2
        cluster[1].failures.clear()


async def produce_codes(cluster: Brokers, batch: bytes, acks: int) -> ErrorCode:
    return (await cluster[1].parts.producing.produce({KEY: batch}, acks=acks, timeout_ms=50))[KEY].error_code


async def test_refused_produces_name_the_reason(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, settings=TopicSettings(min_insync_replicas=2)) as cluster:
        await cluster.elect(1, [1, 2])
        assert await produce_codes(cluster, b"garbage", -1) is ErrorCode.CORRUPT_MESSAGE
        assert await produce_codes(cluster, b"", 5) is ErrorCode.INVALID_REQUIRED_ACKS
        await cluster.stop(2, kill=True)
        slow = await cluster[1].produce(b"a", timeout_ms=20)
        assert slow.error_code is ErrorCode.REQUEST_TIMED_OUT
        assert cluster[1].replica.waiters.produces == {}


async def test_one_waiting_request_too_many_does_not_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster.stop(2, kill=True)
        waits = [
            asyncio.create_task(cluster[1].fetch(0, max_wait_ms=10_000)),
            asyncio.create_task(cluster[1].produce(b"a")),
        ]
        await until(lambda: cluster[1].parts.producing.waiting)
        monkeypatch.setattr(fetching, "WAITING_MAX", 1)
        monkeypatch.setattr(producing, "WAITING_MAX", 1)
        assert (await cluster[1].fetch(0, max_wait_ms=10_000)).records == b""
        refused = await cluster[1].produce(b"b")
        assert refused.error_code is ErrorCode.REQUEST_TIMED_OUT
        assert cluster[1].log.log_end_offset == 1
        await asyncio.gather(*waits)


async def test_follower_refuses_damaged_records_and_asks_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"first")
        whole, leader = Segments.read, cluster[1].log.segments
        served: list[int] = []

        def damaged(segments: Segments, *given: Any, **named: Any) -> Any:
            read = whole(segments, *given, **named)
            if segments is not leader:
                return read
            served.append(len(read.records))
            return read._replace(records=read.records[:-1] + b"?") if read.records else read

        with monkeypatch.context() as patch:
            patch.setattr(Segments, "read", damaged)
            await cluster.elect(1, [1])
            await until(lambda: len(served) >= 3)
            assert cluster[2].log.log_end_offset == 0
        await cluster.until_isr(1, 2)
        assert cluster[2].values() == cluster[1].values()


async def test_position_of_another_epoch_moves_no_high_watermark(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster.stop(2, kill=True)
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a", acks=1)
        for epoch, error_code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)):
            read = await cluster[1].fetch(1, replica_id=2, generation=1, current_leader_epoch=epoch)
            assert read.error_code is error_code
            assert cluster[1].replica.high_watermark == 0
        await cluster[1].fetch(1, replica_id=2, generation=1, current_leader_epoch=1)
        assert cluster[1].replica.high_watermark == 1
