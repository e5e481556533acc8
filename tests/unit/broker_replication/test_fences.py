"""Which control requests take effect: generations, controller epochs, leader epochs, topic ids, restarts."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path

from broker.datadir.checkpoints import CHECKPOINT_NAME, read_checkpoint
from controller.messages.entities import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    partition_codes,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import CONTROLLER_EPOCH, PartitionKey
from tests.unit.broker_replication.cluster import KEY, TOPIC, Brokers, brokers, until


def stop_request(cluster: Brokers, generation: int, leader_epoch: int, *, delete: bool) -> StopReplicaRequest:
    state = StopReplicaPartitionState(
        partition_index=0, leader_epoch=LeaderEpoch(leader_epoch), delete_partition=delete
    )
    return StopReplicaRequest(
        controller_id=9,
        controller_epoch=ControllerEpoch(cluster.controller_epoch),
        broker_epoch=BrokerGeneration(generation),
        topic_states=(StopReplicaTopicState(topic_name=TOPIC, partition_states=(state,)),),
    )


async def test_requests_for_a_former_life_are_refused(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        decided = await cluster.decide(1, [1])
        former = cluster[1].generation
        held_back = cluster.leader_and_isr(1, *decided)
        held_update = cluster.update_metadata(1, *decided, {})
        await cluster.stop(1)
        broker = await cluster.start(1)
        assert (await broker.parts.control.apply(held_back)).error_code == 77
        assert (await broker.parts.control.apply(held_update)).error_code == 77
        stop = stop_request(cluster, former, -2, delete=True)
        assert (await broker.parts.control.apply(stop)).error_code == 77
        assert not broker.parts.registry.view.received
        assert (await broker.produce(b"b")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.log.log_end_offset == 1


async def test_held_back_request_waits_for_the_registration(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        broker = cluster[1]
        decided = await cluster.decide(1, [1])
        held_back = cluster.leader_and_isr(1, *decided)
        broker.parts.control.detach()
        answer = asyncio.create_task(broker.parts.control.apply(held_back))
        client, generation = broker.client, broker.generation
        await client.close()
        broker.client, broker.generation = await cluster.register(1)
        assert broker.generation > generation
        assert not answer.done()
        update = await broker.parts.control.apply(cluster.update_metadata(1, *decided, {}))
        assert update.error_code == ErrorCode.BROKER_NOT_AVAILABLE
        broker.parts.control.attach(broker.client, broker.generation)
        assert (await answer).error_code == 77
        assert broker.replica.leader is None


async def test_generation_above_the_own_one_is_accepted_and_stays(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        broker = cluster[1]
        ahead = broker.generation + 5
        request = cluster.leader_and_isr(1, *decided, generation=ahead)
        assert (await broker.parts.control.apply(request)).error_code == 0
        leader = broker.replica.leader
        broker.parts.control.attach(broker.client, BrokerGeneration(ahead))
        assert broker.replica.leader is leader
        assert (await broker.produce(b"a")).error_code is ErrorCode.NONE


async def test_older_controller_is_refused(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        cluster.controller_epoch = 5
        await cluster.admin.set(CONTROLLER_EPOCH, b"5")
        await cluster.elect(1, [1])
        decided = await cluster.decide(1, [1])
        request = cluster.leader_and_isr(1, *decided, controller_epoch=4)
        assert (await cluster[1].parts.control.apply(request)).error_code == 11
        assert cluster[1].replica.leader_epoch == 0


async def test_an_epoch_that_was_never_published_is_not_believed(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"a")
        decided = await cluster.decide(1, [1])
        parts = cluster[1].parts
        cluster.controller_epoch = 7
        stop = stop_request(cluster, cluster[1].generation, -2, delete=True)
        lead = cluster.leader_and_isr(1, *decided)
        update = cluster.update_metadata(1, *decided, {})
        not_available = ErrorCode.BROKER_NOT_AVAILABLE
        assert (await parts.control.apply(stop)).error_code == not_available
        assert (await parts.control.apply(lead)).error_code == not_available
        assert (await parts.control.apply(update)).error_code == not_available
        assert parts.registry.gate.controller_epoch == 1
        assert (await cluster[1].produce(b"b")).error_code is ErrorCode.NONE
        assert cluster[1].log.log_end_offset == 2
        # Once it is published, the same request counts; the epoch before it is fenced from then on.
        await cluster.admin.set(CONTROLLER_EPOCH, b"7")
        assert (await parts.control.apply(lead)).error_code == ErrorCode.NONE
        cluster.controller_epoch = 1
        update = cluster.update_metadata(1, *decided, {})
        assert (await parts.control.apply(update)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_repeated_decision_changes_nothing_and_older_one_is_refused(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        first = await cluster.decide(1, [1])
        second = await cluster.decide(1, [1])
        await cluster.send(1, second)
        leader = cluster[1].replica.leader
        await cluster.send(1, second)
        assert cluster[1].replica.leader is leader
        answer = await cluster[1].parts.control.apply(cluster.leader_and_isr(1, *first))
        assert partition_codes(answer) == [ErrorCode.FENCED_LEADER_EPOCH]
        assert cluster[1].replica.leader is leader


async def test_broker_leads_only_by_a_request_for_its_present_life(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NONE
        await cluster.stop(1)
        broker = await cluster.start(1)
        # The state names it as the leader, and it has read that.
        assert broker.replica.leader_epoch == decided[0].leader_epoch
        assert (await broker.produce(b"b")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await broker.fetch(0)).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        # The same epoch as the one read: applied all the same, because nothing was applied in this life.
        await cluster.send(1, decided)
        assert (await broker.produce(b"b")).error_code is ErrorCode.NONE


async def test_lost_session_ends_every_leadership(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1, 2) as cluster:
        await cluster.elect(1, [1, 2])
        broker = cluster[1]
        await cluster.stop(2, kill=True)
        waiting = asyncio.create_task(broker.produce(b"a"))
        await until(lambda: broker.parts.producing.waiting)
        broker.parts.control.detach()
        assert (await waiting).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await broker.produce(b"b")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert broker.parts.logs.counts()["led"] == 0


async def test_new_registration_needs_every_decision_again(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        broker = cluster[1]
        broker.parts.control.detach()
        await broker.client.close()
        broker.client, broker.generation = await cluster.register(1)
        broker.parts.control.attach(broker.client, broker.generation)
        assert broker.replica.leader is None
        await cluster.send(1, decided)
        assert (await broker.produce(b"a")).error_code is ErrorCode.NONE


async def test_first_request_that_names_a_part_changes_nothing_else(tmp_path: Path) -> None:
    """KAFKA-7235: the checkpoint keeps what the request does not name, and nothing is truncated."""
    other = PartitionKey(TOPIC, 1)
    async with brokers(tmp_path, 1) as cluster:
        decided = await cluster.decide(1, [1])
        await cluster.send(1, decided)
        request = cluster.leader_and_isr(1, *decided, key=other)
        await cluster[1].parts.control.apply(request)
        for key in (KEY, other):
            assert (await cluster[1].produce(b"a", b"b", key=key)).error_code is ErrorCode.NONE
        await cluster.stop(1)
        cluster.partitions = 2
        broker = await cluster.start(1)
        await cluster.send(1, decided)
        await broker.parts.registry.write_high_watermarks()
        assert broker.directory.high_watermarks == {KEY: 2, other: 2}
        assert broker.directory.logs[other].log_end_offset == 2


async def test_a_log_that_the_start_has_cut_is_checkpointed_before_anything_comes_there(
    tmp_path: Path,
) -> None:
    """Else a second crash would open it with what came there since as committed."""
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        for _ in range(3):
            await cluster[1].produce(b"a")
        await cluster.stop(1)
        segment = next(cluster.folder.glob(f"broker-1/{TOPIC}-0/*.log"))
        segment.write_bytes(segment.read_bytes()[:-1])
        broker = await cluster.start(1)
        assert broker.log.log_end_offset == 2
        checkpoint = cluster.folder / "broker-1" / CHECKPOINT_NAME
        assert read_checkpoint(str(checkpoint)) == {KEY: 2}


async def test_log_of_an_older_topic_is_set_aside(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster[1].produce(b"old")
        decided = await cluster.decide(1, [1])
        new_id = uuid.UUID(int=8)
        request = cluster.leader_and_isr(1, *decided, topic_id=new_id)
        answer = await cluster[1].parts.control.apply(request)
        assert partition_codes(answer) == [ErrorCode.INCONSISTENT_TOPIC_ID]
        assert cluster[1].log.log_end_offset == 1
        # In its next life the broker has applied nothing, so the old log is that of a deleted topic.
        await cluster.stop(1)
        broker = await cluster.start(1)
        request = cluster.leader_and_isr(1, *decided, topic_id=new_id)
        answer = await broker.parts.control.apply(request)
        assert partition_codes(answer) == [ErrorCode.NONE]
        assert (broker.log.topic_id, broker.log.log_end_offset) == (new_id, 0)
        assert [each.name for each in broker.folder.glob("*-stray")] != []


async def test_log_without_an_assignment_is_a_stray_at_the_start(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster.stop(1)
        cluster.replicas = (2,)
        broker = await cluster.start(1)
        assert broker.directory.logs == {}
        assert len(list(broker.folder.glob("*-stray"))) == 1


async def test_stopped_replica_is_deleted_if_the_request_says_so(tmp_path: Path) -> None:
    async with brokers(tmp_path, 1) as cluster:
        await cluster.elect(1, [1])
        await cluster.elect(1, [1])
        parts, generation = cluster[1].parts, cluster[1].generation
        late = await parts.control.apply(stop_request(cluster, generation, 0, delete=True))
        assert partition_codes(late) == [ErrorCode.FENCED_LEADER_EPOCH]
        stopped = await parts.control.apply(stop_request(cluster, generation, 1, delete=False))
        assert partition_codes(stopped) == [ErrorCode.NONE]
        assert KEY in cluster[1].directory.logs
        assert (await cluster[1].produce(b"a")).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        deleted = await parts.control.apply(stop_request(cluster, generation, -2, delete=True))
        assert partition_codes(deleted) == [ErrorCode.NONE]
        assert cluster[1].directory.logs == {}
