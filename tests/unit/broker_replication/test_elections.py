"""Leaders change while producers write: what was acknowledged stays, what was not may go; replicas agree."""

from __future__ import annotations

import asyncio
import random
from concurrent.futures import Future
from functools import partial
from pathlib import Path

import pytest

from broker.datadir.checkpoints import CHECKPOINT_NAME, read_checkpoint
from broker.log.batches import checked_batches
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_replication.cluster import KEY, Brokers, brokers, until


async def test_uncommitted_tails_of_several_epochs_are_cut(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.elect(1, [1, 2, 3])
        await cluster[1].produce(b"common")
        await until(lambda: all(cluster[each].log.log_end_offset == 1 for each in (1, 2, 3)))
        # 1 writes alone in two epochs; 2 then leads with other records at the same offsets.
        await cluster.stop(3)
        await cluster.stop(2)
        for _ in range(2):
            decided = await cluster.decide(1, [1, 2, 3])
            await cluster.send(1, decided)
            await cluster[1].produce(b"lost", b"lost", acks=1)
        await cluster.stop(1)
        await cluster.start(2)
        await cluster.start(3)
        await cluster.elect(2, [2, 3])
        assert (await cluster[2].produce(b"kept")).base_offset == 1
        await cluster.start(1)
        await cluster.elect(2, [2, 3])
        await cluster.until_isr(1, 2, 3)
        assert cluster[1].values() == cluster[2].values() == cluster[3].values()
        assert b"lost" not in cluster[1].values()
        assert cluster[1].parts.counters.truncations >= 1


async def test_unclean_leader_takes_committed_records_away(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"common")
        await cluster.until_isr(1, 2)
        await cluster.stop(2)
        await cluster.elect(1, [1])
        await cluster[1].produce(b"lost", b"lost")
        assert cluster[1].replica.high_watermark == 3
        await cluster[1].parts.registry.write_high_watermarks()
        await cluster.start(2)
        await cluster.elect(2, [2], recovery=1)
        assert (await cluster[2].produce(b"kept")).base_offset == 1
        await cluster.until_isr(1, 2)
        state = await cluster.state()
        assert state is not None
        assert state[0].leader_recovery_state == 1
        # Nothing that was lost counts as committed after a crash; a regular checkpoint may have come since.
        checkpoint = cluster.folder / "broker-1" / CHECKPOINT_NAME
        assert read_checkpoint(str(checkpoint)) in ({KEY: 1}, {KEY: 2})
        assert cluster[1].values() == cluster[2].values()
        assert cluster[1].replica.high_watermark <= 2


async def test_follower_far_behind_starts_where_the_leader_begins(tmp_path: Path) -> None:
    settings = TopicSettings(segment_bytes=1200, retention_bytes=1000)
    async with brokers(tmp_path, 1, 2, settings=settings) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"first")
        await cluster.until_isr(1, 2)
        await cluster.stop(2)
        await cluster.elect(1, [1])
        for _ in range(10):
            await cluster[1].produce(b"x" * 500)
        await cluster[1].parts.maintenance.delete_expired()
        start = cluster[1].log.log_start_offset
        assert start > 1
        await cluster.start(2)
        await cluster.elect(1, [1])
        await cluster.until_isr(1, 2)
        assert cluster[2].log.log_start_offset == start
        assert cluster[2].values() == cluster[1].values()


class Producer:
    """Repeats a record until a leader acknowledges it; remembers what was acknowledged where."""

    def __init__(self, cluster: Brokers, name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.acknowledged: dict[bytes, int] = {}
        self.refusals = 0
        self.stopping = False

    async def run(self) -> None:
        number = 0
        while not self.stopping:
            value = f"{self.name}-{number}".encode()
            for broker in list(self.cluster.running.values()):
                outcome = await broker.produce(value, timeout_ms=300)
                if outcome.error_code is ErrorCode.NONE:
                    self.acknowledged[value] = outcome.base_offset
                    number += 1
                    break
                self.refusals += 1
            else:
                # As a client looks for the leader again; the others get their turn.
                await self.cluster.isr()


@pytest.mark.parametrize("seed", range(3))
async def test_acknowledged_records_survive_random_elections(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    settings = TopicSettings(min_insync_replicas=2)
    async with brokers(tmp_path, 1, 2, 3, settings=settings) as cluster:
        await cluster.elect(1, [1, 2, 3])
        producers = [Producer(cluster, name) for name in ("a", "b", "c")]
        tasks = [asyncio.create_task(producer.run()) for producer in producers]
        strikes = 0
        while strikes < 8:
            goal = acknowledged(producers) + 30
            await until(partial(has_reached, producers, goal))
            await strike(cluster, rng)
            strikes += 1
        for producer in producers:
            producer.stopping = True
        await asyncio.gather(*tasks)
        await cluster.until_isr(1, 2, 3)
        ends = [cluster[each].log.log_end_offset for each in (1, 2, 3)]
        await until(lambda: len({cluster[each].log.log_end_offset for each in (1, 2, 3)}) == 1, str(ends))
        content = cluster[1].values()
        assert cluster[2].values() == cluster[3].values() == content
        found = values_by_offset(content)
        for producer in producers:
            assert len(producer.acknowledged) > 20
            for value, offset in producer.acknowledged.items():
                assert found[offset] == value


async def test_isrs_shrink_though_a_checkpoint_never_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent follower leaves, and acks=all returns."""
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a")
        begun: list[Future[None]] = []

        def never_ends(_high_watermarks: object) -> Future[None]:
            begun.append(Future())
            return begun[-1]

        with monkeypatch.context() as patch:
            patch.setattr(cluster[1].directory, "begin_checkpoint", never_ends)
            await until(lambda: begun)
            await cluster.stop(2, kill=True)
            assert (await cluster[1].produce(b"b")).error_code is ErrorCode.NONE
            await cluster.until_isr(1)
            assert len(begun) == 1


def acknowledged(producers: list[Producer]) -> int:
    return sum(len(producer.acknowledged) for producer in producers)


def has_reached(producers: list[Producer], goal: int) -> bool:
    return acknowledged(producers) >= goal


async def strike(cluster: Brokers, rng: random.Random) -> None:
    """Kill and start a broker, or move the leader; requests reach the brokers in any order."""
    isr = await cluster.isr()
    victim = rng.choice([1, 2, 3])
    if len(isr) == 3 and rng.random() < 0.5:
        await cluster.stop(victim, kill=True)
        left = [member for member in isr if member != victim]
        await cluster.elect(rng.choice(left), left)
        await cluster.start(victim)
    decided = None
    while decided is None:
        isr = await cluster.isr()
        decided = await cluster.try_decide(rng.choice(isr), isr)
    order = [1, 2, 3]
    rng.shuffle(order)
    for broker_id in order:
        await cluster.send(broker_id, decided)


def values_by_offset(content: bytes) -> dict[int, bytes]:
    """{offset: value} of batches that hold one record with a short value each."""
    found: dict[int, bytes] = {}
    position = 0
    for header in checked_batches(memoryview(content)):
        record = content[position + 61 : position + header.size]
        length = record[5] >> 1
        found[header.base_offset] = record[6 : 6 + length]
        position += header.size
    return found
