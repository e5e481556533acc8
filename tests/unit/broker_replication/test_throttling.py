"""Throttled copying: who waits, who does not, and that a new rate takes effect at once."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.replication.settings import apply_broker_settings
from controller.wire.codes import ErrorCode
from quorum.metadata.broker_settings import BrokerSettings
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_replication.cluster import Brokers, TestBroker, brokers, until

LEADER = (
    1,
    TopicSettings(leader_replication_throttled_replicas="0:1"),
    BrokerSettings(leader_throttled_rate=0),
    BrokerSettings(leader_throttled_rate=1 << 30),
)
FOLLOWER = (
    3,
    TopicSettings(follower_replication_throttled_replicas="0:3"),
    BrokerSettings(follower_throttled_rate=0),
    BrokerSettings(follower_throttled_rate=1 << 30),
)


async def elect_before_the_third(cluster: Brokers) -> None:
    """Let broker 1 lead with broker 2, and append what broker 3 will have to copy."""
    cluster.replicas = (1, 2, 3)
    await cluster.elect(1, [1, 2])
    for value in (b"a", b"b" * 1000):
        assert (await cluster[1].produce(value)).error_code is ErrorCode.NONE


def throttled(broker: TestBroker) -> tuple[int, int]:
    registry = broker.parts.registry
    return registry.leader_throttle.bytes_total, registry.follower_throttle.bytes_total


@pytest.mark.parametrize(
    ("where", "settings", "stopped", "quick"), [LEADER, FOLLOWER], ids=["leader", "follower"]
)
async def test_a_throttled_replica_waits_and_producers_do_not(
    tmp_path: Path, where: int, settings: TopicSettings, stopped: BrokerSettings, quick: BrokerSettings
) -> None:
    async with brokers(tmp_path, 1, 2, settings=settings) as cluster:
        await elect_before_the_third(cluster)
        await cluster.start(3)
        apply_broker_settings(cluster[where].parts, stopped)
        decided = await cluster.state()
        assert decided is not None
        await cluster.send(3, decided)
        # A follower takes one batch to see how far it is behind; a leader that is out of bytes gives none.
        taken = 0 if where == 1 else 1
        await until(lambda: cluster[3].log.log_end_offset == taken)
        # The in-sync follower goes on fetching meanwhile.
        assert (await cluster[1].produce(b"c")).error_code is ErrorCode.NONE
        assert cluster[3].log.log_end_offset == taken
        assert await cluster.isr() == (1, 2)
        apply_broker_settings(cluster[where].parts, quick)
        await cluster.until_isr(1, 2, 3)
        assert cluster[3].values() == cluster[1].values()
        as_leader, as_follower = throttled(cluster[where])
        waited, idle = (as_leader, as_follower) if where == 1 else (as_follower, as_leader)
        assert waited >= len(cluster[1].values())
        assert idle == 0


async def test_a_leader_keeps_records_from_throttled_followers_only(tmp_path: Path) -> None:
    settings = TopicSettings(leader_replication_throttled_replicas="*")
    async with brokers(tmp_path, 1, 2, settings=settings) as cluster:
        await elect_before_the_third(cluster)
        apply_broker_settings(cluster[1].parts, BrokerSettings(leader_throttled_rate=0))
        epoch = cluster[1].replica.leader_epoch

        async def asks(broker_id: int) -> bytes:
            found = await cluster[1].fetch(
                0, replica_id=broker_id, generation=1, current_leader_epoch=epoch, max_wait_ms=20
            )
            assert (found.error_code, found.high_watermark) == (ErrorCode.NONE, 2)
            return bytes(found.records)

        assert await asks(3) == b""
        assert await asks(2) == await asks(-1) == cluster[1].values()
        # What the follower in the ISR takes leaves no debt to the others.
        assert throttled(cluster[1]) == (0, 0)


async def test_a_follower_in_the_isr_does_not_wait_in_a_new_epoch(tmp_path: Path) -> None:
    settings = TopicSettings(follower_replication_throttled_replicas="*")
    async with brokers(tmp_path, 1, 2, settings=settings) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a")
        apply_broker_settings(cluster[2].parts, BrokerSettings(follower_throttled_rate=0))
        await cluster.elect(1, [1, 2])
        for _ in range(2):
            assert (await cluster[1].produce(b"b")).error_code is ErrorCode.NONE
        assert await cluster.isr() == (1, 2)
        # Nor does what it takes there count, but for the first batch.
        await until(lambda: cluster[2].values() == cluster[1].values())
        assert throttled(cluster[2])[1] <= len(cluster[1].values()) // 3


async def test_a_fetch_takes_one_batch_at_least_and_the_next_one_waits(tmp_path: Path) -> None:
    settings = TopicSettings(leader_replication_throttled_replicas="*")
    async with brokers(tmp_path, 1, settings=settings) as cluster:
        cluster.replicas = (1, 3)
        await cluster.elect(1, [1])
        for _ in range(2):
            await cluster[1].produce(b"x" * 1000)
        apply_broker_settings(cluster[1].parts, BrokerSettings(leader_throttled_rate=1))
        epoch = cluster[1].replica.leader_epoch
        sizes = []
        for _ in range(2):
            read = await cluster[1].fetch(0, replica_id=3, generation=1, current_leader_epoch=epoch)
            sizes.append(len(read.records))
        assert sizes == [len(cluster[1].values()) // 2, 0]
        assert throttled(cluster[1]) == (sizes[0], 0)
