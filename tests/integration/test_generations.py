"""Broker generations: what was meant for a former life of a broker changes nothing in the next one.

Three real brokers; the controller reaches each through a relay that can hold requests back. Covered are
KIP-380's broken assumptions without controlled shutdown, and a restart of all brokers.
Source: docs/internals/requirements.md, [1.1], [1.7]; KIP-380; KAFKA-7235.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.datadir.checkpoints import CHECKPOINT_NAME, parse_checkpoint
from controller.messages.entities import (
    CONTROL_VERSIONS,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
    decode_response,
    encode_request,
)
from controller.wire.connection import BrokerConnection
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import partitions_as_seen_by, produce, record_batch
from tests.support.nodes import eventually
from tests.support.request_relay import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlSeen,
    RequestRelay,
)

DEADLINE_S = 60.0
STALE_BROKER_EPOCH = 77
PARTITIONS = 4
KINDS = {"LeaderAndIsr": LEADER_AND_ISR, "UpdateMetadata": UPDATE_METADATA, "StopReplica": STOP_REPLICA}


class Relayed(NamedTuple):
    """A cluster and the relays before its brokers."""

    cluster: BrokerCluster
    #: {broker id: before its broker listener}
    brokers: dict[int, RequestRelay]
    #: {broker id: between it and the quorum}
    quorum: dict[int, RequestRelay]


@pytest.fixture(scope="module")
def relayed() -> Iterator[Relayed]:
    cluster = BrokerCluster(session_timeout_ms=8000)
    brokers = {each.broker_id: RequestRelay(each.broker_port) for each in cluster.brokers.values()}
    node = cluster.nodes.nodes[1].client_port
    quorum = {broker_id: RequestRelay(node, control=False) for broker_id in cluster.brokers}
    for broker_id, broker in cluster.brokers.items():
        broker.settings["advertised"] = {"broker": brokers[broker_id].address}
        broker.settings["quorum"] = {"hosts": [quorum[broker_id].address]}
    with contextlib.ExitStack() as ending:
        for relay in (*brokers.values(), *quorum.values()):
            ending.callback(relay.close)
        ending.enter_context(cluster)
        yield Relayed(cluster, brokers, quorum)


@pytest.fixture
def cluster(relayed: Relayed) -> BrokerCluster:
    """Three ready brokers; a test may kill, pause or cut off any of them."""
    running = relayed.cluster
    for link in relayed.quorum.values():
        link.mend()
    for broker_id, broker in running.brokers.items():
        if broker.paused:
            running.resume(broker_id)
        if not running.running(broker_id):
            running.start_broker(broker_id)
    running.wait_ready()
    running.wait_controller_known()
    return running


def create(cluster: BrokerCluster, topic: str) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)], operation_timeout=20)[topic].result(30)
    cluster.wait_in_sync(topic)


def append(cluster: BrokerCluster, topic: str, partition: int, values: list[bytes]) -> int:
    """Append records, acknowledged by all; returns the first offset, and waits for a leader as clients do."""

    def attempt() -> list[int]:
        leader = cluster.leader_of(topic, partition)
        row = produce(cluster.address(leader), topic, partition, record_batch(values))
        assert row.error_code == 0, f"error {row.error_code}"
        return [row.base_offset]

    return eventually(attempt, DEADLINE_S, f"records are appended to {topic}-{partition}")[0]


def fill(cluster: BrokerCluster, topic: str) -> None:
    """Append 20 records to every partition."""
    for partition in range(PARTITIONS):
        append(cluster, topic, partition, [b"value"] * 20)


def end_offsets(cluster: BrokerCluster, topic: str) -> dict[int, int]:
    """Append one more record to every partition; returns where it went."""
    return {partition: append(cluster, topic, partition, [b"more"]) for partition in range(PARTITIONS)}


def a_victim(cluster: BrokerCluster) -> int:
    """A broker that is not the controller."""
    controller = cluster.controller_id()
    return next(each for each in cluster.brokers if each != controller)


def bounce(cluster: BrokerCluster, broker_id: int) -> int:
    """Kill a broker and start it, until it has a new generation; returns that."""
    before = cluster.generation(broker_id)
    cluster.kill(broker_id)
    cluster.start_broker(broker_id)
    eventually(lambda: cluster.generation(broker_id) > before, DEADLINE_S, "the broker registers again")
    return cluster.generation(broker_id)


def cluster_id(cluster: BrokerCluster) -> str:
    record = cluster.read("/cluster/id")
    assert record is not None
    return str(record["id"])


def printed(cluster: BrokerCluster, broker_id: int) -> str:
    """All that a broker printed, in all its lives."""
    return cluster.brokers[broker_id].output_path.read_text()


def checkpointed(cluster: BrokerCluster, broker_id: int) -> dict[PartitionKey, int]:
    """The high watermarks that a broker has on its disk."""
    return parse_checkpoint((cluster.brokers[broker_id].data_dir / CHECKPOINT_NAME).read_bytes())


@pytest.mark.parametrize(
    "kind", ["LeaderAndIsr", *(pytest.param(each, marks=pytest.mark.long) for each in list(KINDS)[1:])]
)
def test_a_request_held_back_until_the_broker_restarted_is_refused_and_sent_once(
    cluster: BrokerCluster, relayed: Relayed, kind: str
) -> None:
    topic = f"held-{kind}"
    victim = a_victim(cluster)
    controller = cluster.controller_id()
    relay = relayed.brokers[victim]
    admin = AdminClient(quiet(cluster.bootstrap))
    if kind == "StopReplica":
        create(cluster, topic)
        relay.hold(lambda seen: seen.api_key == STOP_REPLICA)
        admin.delete_topics([topic], operation_timeout=1)
    else:
        relay.hold(lambda seen: seen.api_key == KINDS[kind] and topic in repr(seen.request))
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)], operation_timeout=1)
    eventually(lambda: relay.held, DEADLINE_S, f"a {kind} is held")
    (held,) = relay.held

    # The controller cannot see the bounce before it has its answer.
    relayed.quorum[controller].cut()
    generation = bounce(cluster, victim)
    assert generation > held.generation
    sent_before = len(relay.seen)
    (answer,) = relay.deliver(cluster.secret, cluster_id(cluster))
    assert answer.error_code == STALE_BROKER_EPOCH
    over = f"generation {held.generation} of it is over"
    eventually(lambda: over in printed(cluster, controller), DEADLINE_S, "it sends nothing more")
    relayed.quorum[controller].mend()

    cluster.wait_ready(victim)
    if kind == "StopReplica":
        eventually(lambda: cluster.read(f"/brokers/topics/{topic}") is None, DEADLINE_S, "it is deleted")
    else:
        cluster.wait_in_sync(topic)
        fill(cluster, topic)
    later = relay.seen[sent_before:]
    assert [seen.api_key for seen in later if seen.generation == held.generation] == []
    assert any(seen.generation == generation for seen in later)


def leader_and_isr(cluster: BrokerCluster, broker_id: int, topic: str, partitions: list[int]) -> bytes:
    """What the controller would send to a broker about some partitions of a topic."""
    found, _ = cluster.zookeeper.get(f"/brokers/topics/{topic}")
    record = TopicRecord.decode(topic, found)
    rows = []
    for partition in partitions:
        state = cluster.state(topic, partition)
        rows.append(
            LeaderAndIsrPartitionState(
                partition_index=partition,
                controller_epoch=ControllerEpoch(state["controller_epoch"]),
                leader=state["leader"],
                leader_epoch=LeaderEpoch(state["leader_epoch"]),
                isr=tuple(state["isr"]),
                partition_epoch=PartitionVersion(0),
                replicas=record.partitions[partition],
                adding_replicas=(),
                removing_replicas=(),
                is_new=False,
                leader_recovery_state=0,
            )
        )
    return encode_request(
        LeaderAndIsrRequest(
            controller_id=cluster.controller_id(),
            controller_epoch=ControllerEpoch(cluster.controller_epoch()),
            broker_epoch=BrokerGeneration(cluster.generation(broker_id)),
            type=0,
            topic_states=(
                LeaderAndIsrTopicState(
                    topic_name=topic, topic_id=record.topic_id, partition_states=tuple(rows)
                ),
            ),
            live_leaders=(),
        )
    )


async def send(cluster: BrokerCluster, broker_id: int, body: bytes) -> LeaderAndIsrResponse:
    """Send a LeaderAndIsr to a broker's own listener."""
    connection = await BrokerConnection.open(
        *("127.0.0.1", cluster.brokers[broker_id].broker_port),
        secrets=[cluster.secret],
        cluster_id=cluster_id(cluster),
        client_id="test",
        timeout_ms=10_000,
    )
    version = CONTROL_VERSIONS[LEADER_AND_ISR]
    answer = await connection.request(LEADER_AND_ISR, version, body, flexible=True, timeout_ms=10_000)
    connection.close()
    response = decode_response(LEADER_AND_ISR, version, answer)
    assert isinstance(response, LeaderAndIsrResponse)
    return response


def test_a_first_request_that_names_a_part_costs_the_other_partitions_nothing(cluster: BrokerCluster) -> None:
    """KAFKA-7235: the other partitions' high watermarks stay in the checkpoint, and nothing is truncated."""
    create(cluster, "parts")
    fill(cluster, "parts")
    victim, controller = a_victim(cluster), cluster.controller_id()
    keys = [PartitionKey("parts", partition) for partition in range(PARTITIONS)]
    eventually(
        lambda: all(checkpointed(cluster, victim).get(key) == 20 for key in keys),
        DEADLINE_S,
        "all high watermarks are on the disk",
    )
    cluster.pause(controller)
    bounce(cluster, victim)
    written = (cluster.brokers[victim].data_dir / CHECKPOINT_NAME).stat().st_mtime_ns
    response = asyncio.run(send(cluster, victim, leader_and_isr(cluster, victim, "parts", [0])))
    assert response.error_code == 0
    eventually(
        lambda: (cluster.brokers[victim].data_dir / CHECKPOINT_NAME).stat().st_mtime_ns > written,
        7,
        "the checkpoint is written again, within the controller's session",
    )
    marks = checkpointed(cluster, victim)
    assert [marks.get(key) for key in keys] == [20] * PARTITIONS
    cluster.resume(controller)
    cluster.wait_ready(victim)
    cluster.wait_in_sync("parts")
    assert end_offsets(cluster, "parts") == dict.fromkeys(range(PARTITIONS), 20)
    assert "truncated" not in last_life(cluster, victim)


def last_life(cluster: BrokerCluster, broker_id: int) -> str:
    """What a broker printed since its last start."""
    return printed(cluster, broker_id).rpartition(" starts with ")[2]


def test_a_first_request_from_before_the_start_is_refused(cluster: BrokerCluster, relayed: Relayed) -> None:
    """The first LeaderAndIsr that the new process gets was meant for the old one: nothing is led by it."""
    create(cluster, "before")
    fill(cluster, "before")
    victim, controller = a_victim(cluster), cluster.controller_id()
    body = leader_and_isr(cluster, victim, "before", list(range(PARTITIONS)))
    cluster.pause(controller)
    bounce(cluster, victim)
    assert asyncio.run(send(cluster, victim, body)).error_code == STALE_BROKER_EPOCH
    partitions = cluster.status(victim)["partitions"]
    assert (partitions["led"], partitions["followed"]) == (0, 0)
    cluster.resume(controller)
    cluster.wait_ready(victim)
    cluster.wait_in_sync("before")
    assert end_offsets(cluster, "before") == dict.fromkeys(range(PARTITIONS), 20)


def test_a_bounce_between_watch_and_read_is_noticed(cluster: BrokerCluster, relayed: Relayed) -> None:
    """When the controller looks, the same ids are there; only a generation is another one."""
    create(cluster, "bounced")
    fill(cluster, "bounced")
    victim, controller = a_victim(cluster), cluster.controller_id()
    epochs = [cluster.state("bounced", partition)["leader_epoch"] for partition in range(PARTITIONS)]
    cluster.pause(controller)
    generation = bounce(cluster, victim)
    cluster.resume(controller)
    cluster.wait_ready(victim)
    cluster.wait_in_sync("bounced")
    assert cluster.controller_id() == controller
    later = [cluster.state("bounced", partition)["leader_epoch"] for partition in range(PARTITIONS)]
    assert all(now > before for now, before in zip(later, epochs, strict=True)), "a failure, then a start"

    def addressed(seen: ControlSeen) -> bool:
        return seen.api_key == LEADER_AND_ISR and seen.generation == generation

    assert any(addressed(seen) for seen in relayed.brokers[victim].seen)
    assert end_offsets(cluster, "bounced") == dict.fromkeys(range(PARTITIONS), 20)


def test_a_bounce_while_no_controller_lives_is_noticed(cluster: BrokerCluster) -> None:
    """The new controller knows no former generation; the states that name a leader are older than it."""
    controller = cluster.controller_id()
    victim = a_victim(cluster)
    third = next(each for each in cluster.brokers if each not in (controller, victim))
    # No replica of the dead controller: its death alone changes nothing in these states.
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic("unseen", PARTITIONS, replica_assignment=[[victim, third]] * PARTITIONS)
    admin.create_topics([wanted], operation_timeout=20)["unseen"].result(30)
    cluster.wait_in_sync("unseen")
    fill(cluster, "unseen")
    epoch = cluster.controller_epoch()
    epochs = [cluster.state("unseen", partition)["leader_epoch"] for partition in range(PARTITIONS)]
    cluster.kill(controller)
    bounce(cluster, victim)
    assert cluster.controller_epoch() == epoch, "the bounce was over before another controller was elected"
    eventually(lambda: cluster.controller_epoch() > epoch, DEADLINE_S, "another controller is elected")
    cluster.wait_ready(victim)
    for partition in range(PARTITIONS):
        eventually(
            lambda p=partition: cluster.state("unseen", p)["leader_epoch"] > epochs[p],  # type: ignore[misc]
            DEADLINE_S,
            "the leader's state was decided again",
        )
    assert end_offsets(cluster, "unseen") == dict.fromkeys(range(PARTITIONS), 20)


def test_all_brokers_are_killed_and_come_back_with_all_records(cluster: BrokerCluster) -> None:
    create(cluster, "all")
    fill(cluster, "all")
    generations = {broker_id: cluster.generation(broker_id) for broker_id in cluster.brokers}
    cluster.kill(*cluster.brokers)
    for broker_id in cluster.brokers:
        cluster.start_broker(broker_id)
    cluster.wait_ready()
    cluster.wait_in_sync("all")
    assert all(cluster.generation(each) > before for each, before in generations.items())
    assert end_offsets(cluster, "all") == dict.fromkeys(range(PARTITIONS), 20)
    for broker_id in cluster.brokers:
        seen = partitions_as_seen_by(cluster.address(broker_id), "all")
        assert {row.error_code for row in seen.values()} == {0}
