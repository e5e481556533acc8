"""The parts of replication with real logs, listeners and a quorum: leaders, followers, ISRs and fences."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from controller.messages.entities import partition_codes
from controller.wire.codes import ErrorCode
from quorum.metadata.records import LogEnd
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_replication.cluster import KEY, brokers, until


async def test_one_replica_serves_producers_and_consumers(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        assert (await cluster[1].produce(b"a", b"b")).base_offset == 0
        assert (await cluster[1].produce(b"c", acks=1)).base_offset == 2
        assert (await cluster[1].produce(b"d", acks=0)).base_offset == 3
        read = await cluster[1].fetch(0)
        assert (read.error_code, read.high_watermark, read.records) == (
            ErrorCode.NONE,
            4,
            cluster[1].values(),
        )


async def test_a_request_is_one_log_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="broker.replication.control")
    async with brokers(tmp_path, 1) as cluster:
        request = cluster.leader_and_isr(1, *await cluster.decide(1, [1]))
        (topic,) = request.topic_states
        states = [replace(topic.partition_states[0], partition_index=each) for each in range(30)]
        states += [replace(each, partition_index=30 + each.partition_index, leader=2) for each in states[:2]]
        states.append(replace(states[0], partition_index=40, leader=-1))
        many = replace(request, topic_states=(replace(topic, partition_states=tuple(states)),))
        assert not any(partition_codes(await cluster[1].parts.control.apply(many)))
        lines = [each.message for each in caplog.records if each.name == "broker.replication.control"]
        assert len(lines) == 1
        for part in (
            "controller epoch 1: leads orders-0 in epoch 0 from offset 0 with ISR [1], orders-1",
            "orders-9 in epoch 0 from offset 0 with ISR [1] and 20 more; follows orders-30 in epoch 0",
            "; no leader for orders-40 in epoch 0",
        ):
            assert part in lines[0]
        assert "orders-10" not in lines[0]


async def test_followers_copy_the_log_and_gate_acknowledgements(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.elect(1, [1, 2, 3])
        for number in range(20):
            outcome = await cluster[1].produce(b"%d" % number)
            assert outcome == (ErrorCode.NONE, number, -1, 0, None, ())
        await until(lambda: all(cluster[each].replica.high_watermark == 20 for each in (1, 2, 3)))
        assert cluster[2].values() == cluster[3].values() == cluster[1].values()


async def test_silent_follower_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2, settings=TopicSettings(min_insync_replicas=2)) as cluster:
        await cluster.elect(1, [1, 2])
        await cluster[1].produce(b"a")
        await cluster.stop(2, kill=True)
        late = await cluster[1].produce(b"b")
        assert late.error_code is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        assert await cluster.isr() == (1,)
        assert (await cluster[1].produce(b"c")).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
        await cluster.start(2)
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        await cluster.send(2, decided)
        await cluster.until_isr(1, 2)
        assert (await cluster[1].produce(b"d")).error_code is ErrorCode.NONE
        assert cluster[2].values() == cluster[1].values()


async def test_paused_leader_commits_nothing_and_steps_down(tmp_path: Path) -> None:
    """The seed's race: A does not hear that B leads. Its shrink of the ISR is refused by version."""
    async with brokers(tmp_path, 1, 2, 3) as cluster:
        await cluster.elect(1, [1, 2, 3])
        await cluster[1].produce(b"committed")
        decided = await cluster.decide(2, [2, 3])
        await cluster.send(2, decided)
        await cluster.send(3, decided)
        stale = asyncio.create_task(cluster[1].produce(b"of A"))
        assert (await cluster[2].produce(b"of B")).error_code is ErrorCode.NONE
        assert (await stale).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert cluster[1].replica.leader is None
        assert cluster[1].parts.counters.isr_conflicts == 1
        assert await cluster.isr() == (2, 3)
        assert (await cluster[1].produce(b"later", acks=1)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await cluster.send(1, decided)
        await cluster.until_isr(1, 2, 3)
        assert cluster[1].values() == cluster[2].values() == cluster[3].values()
        assert cluster[1].parts.counters.truncations == 1
        assert b"of A" not in cluster[1].values()


@pytest.mark.parametrize("damaged", [1, 2])
async def test_damage_costs_that_replica_and_another_registration(tmp_path: Path, damaged: int) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        for value in (b"a", b"b", b"c"):
            await cluster[1].produce(value)
        await until(lambda: cluster[2].log.log_end_offset == 3)
        broker, log = cluster[damaged], cluster[damaged].log
        (path,) = broker.folder.glob("*/*.log")
        content = bytearray(path.read_bytes())
        content[len(content) // 3 + 30] ^= 1
        path.write_bytes(content)
        # Two reads meet it at once.
        for _ in range(2):
            broker.parts.fetchers.on_failure(log._active.damaged(0))
        assert (await broker.fetch(0)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        await until(lambda: broker.unjudged)
        assert (broker.unjudged, broker.failures) == ([damaged], [])
        assert broker.log is not log
        assert broker.log.log_end_offset == 1, "it is cut where it is damaged"
        (ends,) = broker.parts.control.shortened().values()
        assert ends == {0: LogEnd(0, 1)}
        # No role that was decided for the former registration counts.
        answer = await broker.parts.control.apply(
            cluster.leader_and_isr(damaged, *await cluster.decide(damaged, [1, 2]))
        )
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert broker.replica.high_watermark == 1


async def test_damage_that_no_other_replica_can_mend_stays(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        log = cluster[1].log
        assert cluster[1].parts.mending.meet(log._active.damaged(0)) is ErrorCode.CORRUPT_MESSAGE
        assert (await cluster[1].produce(b"b")).error_code is ErrorCode.NONE
        assert cluster[1].log is log
        assert cluster[1].unjudged == []


async def test_a_registration_that_does_not_name_a_damaged_log_gets_no_role(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        parts = cluster[1].parts
        parts.control.detach()
        parts.control.shortened()
        cluster[1].directory.note_shortened([KEY])
        parts.control.attach(cluster[1].client, cluster[1].generation)
        decided = await cluster.decide(1, [1])
        answer = await parts.control.apply(cluster.leader_and_isr(1, *decided))
        assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert cluster[1].replica.leader is None
