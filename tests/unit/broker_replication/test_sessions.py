"""Fetch sessions between brokers: what is named, what changes without a word, and what ends a session."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from broker.core import reading
from broker.core.fetch_sessions import FetchSession
from broker.core.replica_inputs import LagTick
from broker.replication import fetch_messages, fetchers
from broker.replication.outcomes import ReplicationOptions
from broker.replication.waiting import WaitingProduce
from controller.messages.entities import partition_codes
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.support.broker_wire import record_batch
from tests.unit.broker_replication.cluster import KEY, QUICK, TOPIC, Brokers, TestBroker, brokers, until

#: A wait that no test may have to sit out.
LONG_WAIT = replace(QUICK, replica_fetch_wait_max_ms=60_000, replica_lag_time_max_ms=3_600_000)


async def follow(cluster: Brokers, *numbers: int, broker_ids: tuple[int, ...] = (1, 2)) -> None:
    """Let broker 1 lead further partitions, and broker 2 follow."""
    decided = await cluster.state()
    assert decided is not None
    for broker_id in broker_ids:
        for number in numbers:
            request = cluster.leader_and_isr(broker_id, *decided, key=PartitionKey(TOPIC, number))
            answer = await cluster[broker_id].parts.control.apply(request)
            assert partition_codes(answer) == [ErrorCode.NONE]


def session_of(leader: TestBroker) -> FetchSession:
    (found,) = leader.parts.fetching.sessions._sessions.values()
    return found


async def until_settled(leader: TestBroker, partitions: int) -> FetchSession:
    """Wait until the follower's session has nothing due, and its fetch waits."""

    def is_settled() -> bool:
        sessions = leader.parts.fetching.sessions._sessions.values()
        return any(len(each) == partitions and not each.due and each.waiting for each in sessions)

    await until(is_settled)
    return session_of(leader)


async def test_an_append_reads_its_partition_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with brokers(tmp_path, 1, 2, options=LONG_WAIT) as cluster:
        await cluster.elect(1, [1, 2])
        await follow(cluster, *range(1, 100))
        await until_settled(cluster[1], 100)
        asked, read = [0], set()
        encode, end_for = fetch_messages.encode_fetch, reading.end_for

        def count(positions, *rest, **options):  # type: ignore[no-untyped-def]
            listed = list(positions)
            asked[0] += len(listed)
            return encode(listed, *rest, **options)

        def note(role, replica_id, position, log, **options):  # type: ignore[no-untyped-def]
            read.add(log)
            return end_for(role, replica_id, position, log, **options)

        monkeypatch.setattr(fetchers, "encode_fetch", count)
        monkeypatch.setattr(reading, "end_for", note)
        for _ in range(5):
            assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NONE
        assert asked[0] <= 6
        assert read == {cluster[1].log}


@pytest.mark.parametrize("slots", [0, 1000])
async def test_a_follower_copies_with_and_without_a_session(tmp_path: Path, slots: int) -> None:
    options = replace(QUICK, max_incremental_fetch_session_cache_slots=slots)
    async with brokers(tmp_path, 1, 2, options=options) as cluster:
        await cluster.elect(1, [1, 2])
        for value in (b"a", b"b"):
            assert (await cluster[1].produce(value)).error_code is ErrorCode.NONE
        await until(lambda: cluster[2].replica.high_watermark == 2)
        assert len(cluster[1].parts.fetching.sessions) == bool(slots)


async def test_a_partition_joins_a_fetch_that_waits(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, options=LONG_WAIT) as cluster:
        await cluster.elect(1, [1, 2])
        # The leader's own decision ends a wait, too.
        await follow(cluster, *range(1, 10), broker_ids=(1,))
        fetcher = cluster[2].parts.fetchers._fetchers[1]
        await until(lambda: fetcher._wait_ms > 4000 and fetcher._held)
        session = await until_settled(cluster[1], 1)
        begun_s = time.monotonic()
        await follow(cluster, *range(1, 10), broker_ids=(2,))
        key = PartitionKey(TOPIC, 9)
        assert (await cluster[1].produce(b"a", key=key)).error_code is ErrorCode.NONE
        assert time.monotonic() - begun_s < 2
        assert session_of(cluster[1]) is session


async def test_a_lost_session_begins_anew_at_once(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, options=LONG_WAIT) as cluster:
        await cluster.elect(1, [1, 2])
        session = await until_settled(cluster[1], 1)
        cluster[1].parts.fetching.sessions.end(session)
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NONE
        assert session_of(cluster[1]) is not session
        assert cluster[2].values() == cluster[1].values()


async def test_a_lost_connection_begins_a_session_anew(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, options=LONG_WAIT) as cluster:
        await cluster.elect(1, [1, 2])
        session = await until_settled(cluster[1], 1)
        connection = cluster[2].parts.fetchers._fetchers[1]._held
        assert connection is not None
        connection.close()
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NONE
        await until(lambda: session_of(cluster[1]) is not session)


async def test_a_new_leader_epoch_is_named(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, options=LONG_WAIT) as cluster:
        await cluster.elect(1, [1, 2])
        await follow(cluster, 1)
        session = await until_settled(cluster[1], 2)
        await cluster.elect(1, [1, 2])
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NONE
        assert session.partitions[KEY].current_leader_epoch == 1
        await cluster.elect(2, [1, 2])
        assert (await cluster[2].produce(b"b")).error_code is ErrorCode.NONE
        await until(lambda: KEY not in session.partitions)


async def test_a_quiet_follower_counts_as_caught_up(tmp_path: Path) -> None:
    options = ReplicationOptions(replica_lag_time_max_ms=600, replica_fetch_wait_max_ms=50)
    async with brokers(tmp_path, 1, 2, options=options) as cluster:
        await cluster.elect(1, [1, 2])
        session = await until_settled(cluster[1], 1)
        begun_ms = session.used_ms
        await until(lambda: session.used_ms > begun_ms + 1000)
        # Its fetches have not named the partition for longer than a follower may lag.
        request = WaitingProduce(acks_all=False, timeout_ms=1)
        cluster[1].parts.producing._take(KEY, record_batch([b"a"]), request)
        assert request.outcomes[KEY].error_code is ErrorCode.NONE
        assert cluster[1].replica.step(LagTick(600)) == []


async def test_a_follower_that_ceases_to_fetch_leaves_the_isr(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await until_settled(cluster[1], 1)
        await cluster.stop(2, kill=True)
        producing = asyncio.create_task(cluster[1].produce(b"a"))
        await cluster.until_isr(1)
        assert (await producing).error_code is ErrorCode.NONE


async def test_a_follower_out_of_the_isr_joins_without_records(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1])
        await cluster.until_isr(1, 2)
        await until_settled(cluster[1], 1)
