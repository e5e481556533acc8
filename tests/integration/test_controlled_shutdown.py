"""A broker that stops gives its leaderships away first, and no request of a former life of it does harm.

Source: docs/internals/requirements.md, [1.4], [1.6]; KIP-380; ARCHITECTURE.md, "Life of a broker failure".
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import threading
from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from broker.lifecycle.broker import Broker
from broker.lifecycle.departure import Departure
from broker.local import BlockingBrokers, brokers_in_thread
from controller.core.inputs import Reconnected
from controller.core.io import Steps
from controller.messages.entities import (
    CONTROL_VERSIONS,
    CONTROLLED_SHUTDOWN,
    STOP_REPLICA,
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    ControlResponse,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    decode_response,
    encode_request,
)
from controller.runtime.controller import Controller
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnection, BrokerConnectionLostError
from quorum.metadata.numbers import BrokerGeneration, LeaderEpoch
from tests.support.broker_records import quiet, reading
from tests.support.broker_sessions import generation_of, session_of, thief_of
from tests.support.broker_wire import produce, record_batch
from tests.support.controlled_cluster import KEY, ControlledCluster, controlled_cluster, term_of, until
from tests.support.embedded_brokers import zookeeper
from tests.support.nodes import eventually
from tests.support.nothing_lost_brokers import PARTITIONS, TOPIC, SteadyProducer, wait_for_records

__all__ = ["zookeeper"]

WAIT_S = 30.0
#: Bounces of one broker after another.
ROUNDS = (1, 2, 3)

T = TypeVar("T")


@pytest.fixture(scope="module", params=["direct", pytest.param("queue", marks=pytest.mark.long)])
def cluster(request: pytest.FixtureRequest) -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3, settings={"broker": {"channel": request.param}}) as running:
        yield running


def running(cluster: BlockingBrokers, broker_id: int) -> Broker:
    return cluster._running._running[broker_id]


def generation(cluster: BlockingBrokers, broker_id: int) -> BrokerGeneration:
    found = eventually(lambda: generation_of(running(cluster, broker_id)), WAIT_S)
    assert found is not None
    return found


def state_of(zookeeper: KazooClient, topic: str, partition: int = 0) -> dict[str, Any]:
    # On a busy machine this session may have to go to another node.
    value, _ = zookeeper.retry(zookeeper.get, f"/brokers/topics/{topic}/partitions/{partition}/state")
    found: dict[str, Any] = json.loads(value)
    return found


def controller_id(zookeeper: KazooClient) -> int:
    value, _ = zookeeper.get("/controller")
    return int(json.loads(value)["brokerid"])


def wait_in_sync(zookeeper: KazooClient, topic: str, partitions: int = 1, count: int = 3) -> None:
    eventually(
        lambda: all(len(state_of(zookeeper, topic, each)["isr"]) == count for each in range(partitions)),
        WAIT_S,
        f"{topic} is in sync",
    )


def create(cluster: BlockingBrokers, zookeeper: KazooClient, topic: str, partitions: int = 1) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(topic, partitions, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[topic].result(WAIT_S)
    wait_in_sync(zookeeper, topic, partitions)


def ask(cluster: BlockingBrokers, broker_id: int, api_key: int, body: bytes) -> ControlResponse:
    """Send a control request to a broker's listener, as another broker does."""
    parts = running(cluster, broker_id).state.parts
    assert parts is not None

    async def exchange() -> memoryview:
        host, port = cluster._running._sockets[broker_id].broker.getsockname()[:2]
        connection = await BrokerConnection.open(
            host,
            port,
            secrets=parts.secrets,
            cluster_id=parts.cluster_id,
            client_id="test",
            timeout_ms=9_000,
        )
        try:
            return await connection.request(
                api_key, CONTROL_VERSIONS[api_key], body, flexible=True, timeout_ms=9_000
            )
        finally:
            connection.close()

    return decode_response(api_key, CONTROL_VERSIONS[api_key], cluster._do(exchange()))


def ask_shutdown(
    cluster: BlockingBrokers, asked: int, broker_id: int, generation: BrokerGeneration
) -> ControlledShutdownResponse:
    request = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=generation)
    response = ask(cluster, asked, CONTROLLED_SHUTDOWN, encode_request(request))
    assert isinstance(response, ControlledShutdownResponse)
    return response


# -- generations ---------------------------------------------------------------------------------------------


def test_a_stop_of_an_earlier_life_leaves_the_replica_online(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    create(cluster, zookeeper, "stays-online")
    leader = state_of(zookeeper, "stays-online")["leader"]
    follower = next(each for each in (1, 2, 3) if each != leader)
    former = generation(cluster, follower)
    cluster.stop(follower)
    cluster.start(follower)
    wait_in_sync(zookeeper, "stays-online")
    state = state_of(zookeeper, "stays-online")
    stop = StopReplicaPartitionState(
        partition_index=0, leader_epoch=LeaderEpoch(state["leader_epoch"]), delete_partition=False
    )
    epoch, _ = zookeeper.get("/controller_epoch")
    request = StopReplicaRequest(
        controller_id=controller_id(zookeeper),
        controller_epoch=int(epoch),  # type: ignore[arg-type]  # the number as it stands there
        broker_epoch=former,
        topic_states=(StopReplicaTopicState(topic_name="stays-online", partition_states=(stop,)),),
    )
    assert ask(cluster, follower, STOP_REPLICA, encode_request(request)).error_code == 77
    replicas = running(cluster, follower).state.parts
    assert replicas is not None
    # Acknowledged by all three: the replica fetches.
    host = cluster.bootstrap.split(",")[state["leader"] - 1]
    assert produce(host, "stays-online", 0, record_batch([b"value"])).error_code == 0
    assert set(state_of(zookeeper, "stays-online")["isr"]) == {1, 2, 3}
    assert replicas.replicas.logs.counts()["offline"] == 0


def test_a_shutdown_asked_for_by_an_earlier_life_moves_nothing(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    create(cluster, zookeeper, "unmoved", 6)
    former = generation(cluster, 2)
    cluster.stop(2)
    cluster.start(2)
    wait_in_sync(zookeeper, "unmoved", 6)
    before = [state_of(zookeeper, "unmoved", each) for each in range(6)]
    response = ask_shutdown(cluster, controller_id(zookeeper), 2, former)
    assert response.error_code == 77
    assert [state_of(zookeeper, "unmoved", each) for each in range(6)] == before


def test_only_the_controller_prepares_a_shutdown(cluster: BlockingBrokers, zookeeper: KazooClient) -> None:
    other = next(each for each in (1, 2, 3) if each != controller_id(zookeeper))
    response = ask_shutdown(cluster, other, 2, generation(cluster, 2))
    assert response.error_code == ErrorCode.NOT_CONTROLLER


def test_a_session_lost_in_the_middle_is_followed_by_a_request_of_the_new_life(
    cluster: BlockingBrokers, zookeeper: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, zookeeper, "asked-again", 6)
    leaver = next(each for each in (1, 2, 3) if each != controller_id(zookeeper))
    broker = running(cluster, leaver)
    former = generation(cluster, leaver)
    asked: list[BrokerGeneration | None] = []
    answers: list[int] = []
    really_ask = Departure._ask

    async def ask_and_lose(departure: Departure) -> ControlledShutdownResponse:
        asked.append(generation_of(broker))
        if len(asked) == 1:
            await really_ask(departure)
            thief = thief_of(broker, cluster.hosts)
            await thief.start()
            await thief.close()
            raise BrokerConnectionLostError("the answer is lost", "ask again")
        if len(asked) == 2:
            # What was packed before the new registration reaches the controller after it.
            await until(lambda: generation_of(broker) not in (None, former))
            session = session_of(broker)
            registration = session.registration
            assert registration is not None
            session.registration = registration._replace(generation=former)
            try:
                response = await really_ask(departure)
            finally:
                session.registration = registration
        else:
            response = await really_ask(departure)
        answers.append(response.error_code)
        return response

    monkeypatch.setattr(Departure, "_ask", ask_and_lose)
    cluster.stop(leaver)
    assert answers == [ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE]
    states = [state_of(zookeeper, "asked-again", each) for each in range(6)]
    assert all(state["leader"] not in (leaver, -1) and leaver not in state["isr"] for state in states)
    cluster.start(leaver)
    wait_in_sync(zookeeper, "asked-again", 6)


async def test_a_generation_that_is_not_known_yet_waits_for_the_broker_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with controlled_cluster() as scripted:
        brokers = await scripted.start(2)
        await scripted.create({0: (2, 1)})
        controller, term = scripted.active, term_of(scripted.active)
        membership = term.machine.parts.membership
        noticed, really_update = asyncio.Event(), membership.update

        def update() -> Steps[bool]:
            return (yield from really_update()) if noticed.is_set() else True

        monkeypatch.setattr(membership, "update", update)
        await brokers[1].bounce()
        shutdown = asyncio.create_task(controller.shut_down(2, brokers[1].generation))
        # Requests of others are served meanwhile, and nothing has moved.
        await controller.create_topics([], timeout_ms=5_000, validate_only=False)
        assert not shutdown.done()
        state = await brokers[0].read_state(KEY)
        assert state is not None
        assert state.leader == 2
        noticed.set()
        term.put(Reconnected())
        outcome = await shutdown
        assert (outcome.error_code, outcome.remaining) == (ErrorCode.NONE, ())
        state = await brokers[0].read_state(KEY)
        assert state is not None
        assert (state.leader, state.isr) == (1, (1,))


async def test_an_unknown_broker_is_waited_for_no_longer_than_the_setting() -> None:
    async with controlled_cluster() as scripted:
        await scripted.start(1)
        controller: Controller = scripted.active
        controller._options = dataclasses.replace(controller._options, broker_event_ms=50)
        outcome = await controller.shut_down(7, BrokerGeneration(1))
        assert outcome.error_code == ErrorCode.BROKER_NOT_AVAILABLE


# -- what moves ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("channel", ["direct", pytest.param("queue", marks=pytest.mark.long)])
async def test_leaderships_and_isr_memberships_move_and_replicas_are_stopped(channel: str) -> None:
    async with controlled_cluster(channel) as scripted:
        one, two, three = await scripted.start(3)
        await scripted.create({0: (2, 1, 3), 1: (1, 2, 3), 2: (2,)})
        await two_in_isr(scripted)
        outcome = await scripted.active.shut_down(2, two.generation)
        # Nobody else can ever lead partition 2, so nothing is waited for.
        assert (outcome.error_code, outcome.remaining) == (ErrorCode.NONE, ())
        states = [await one.read_state(KEY._replace(partition=each)) for each in range(3)]
        assert [(state.leader, state.isr) for state in states if state] == [
            (1, (1, 3)),
            (1, (1, 3)),
            (2, (2,)),
        ]
        await until(lambda: sorted(two.halted) == [KEY, KEY._replace(partition=1)])
        assert two.stopped == []
        await until(lambda: all(three.leader_of(KEY._replace(partition=each)) == 1 for each in (0, 1)))
        # Its next life is like any other.
        await two.bounce()
        await until(lambda: KEY in two.states)
        await one.set_isr(KEY, (1, 2, 3))
        outcome = await scripted.active.shut_down(1, one.generation)
        assert outcome.error_code == ErrorCode.NONE
        state = await one.read_state(KEY)
        assert state is not None
        assert (state.leader, state.isr) == (2, (2, 3))


@pytest.mark.parametrize("channel", ["direct", pytest.param("queue", marks=pytest.mark.long)])
async def test_the_answer_waits_until_no_broker_sends_clients_to_the_leaver(channel: str) -> None:
    async with controlled_cluster(channel) as scripted:
        scripted.options = dataclasses.replace(
            scripted.options, settle_ms=1, control_request_timeout_ms=30_000
        )
        one, two, three = await scripted.start(3)
        await scripted.create({0: (2, 1)})
        await until(lambda: three.metadata.get(KEY) is not None)
        three.answers.clear()
        shutdown = asyncio.create_task(scripted.active.shut_down(2, two.generation))
        await until(lambda: one.leader_of(KEY) == 1 and KEY in two.halted)
        await one.client.sync()
        assert three.metadata[KEY].leader == 2
        assert not shutdown.done()
        three.answers.set()
        assert (await shutdown).error_code == ErrorCode.NONE
        assert three.metadata[KEY].leader == 1


async def test_what_another_replica_could_lead_once_it_is_in_sync_remains() -> None:
    async with controlled_cluster() as scripted:
        one, two = await scripted.start(2)
        await scripted.create({0: (2, 1)})
        await two.set_isr(KEY, (2,))
        outcome = await scripted.active.shut_down(2, two.generation)
        assert (outcome.error_code, outcome.remaining) == (ErrorCode.NONE, (KEY,))
        await two.set_isr(KEY, (2, 1))
        outcome = await scripted.active.shut_down(2, two.generation)
        assert outcome.remaining == ()
        state = await one.read_state(KEY)
        assert state is not None
        assert (state.leader, state.isr) == (1, (1,))


async def two_in_isr(scripted: ControlledCluster) -> None:
    """Wait until every broker has heard of every first state."""
    for each in scripted.brokers.values():
        await until(lambda each=each: len(each.metadata) == 3)  # type: ignore[misc]


# -- under load ----------------------------------------------------------------------------------------------


class SteadyConsumer:
    """Reads everything from the beginning, in a thread of its own, and keeps every error.

    As a client of Kafka 0.11, which asks for no end of a leader epoch: librdkafka 2.16 takes two of its locks
    in opposite order where such an answer meets the end of a connection, and hangs for ever.
    """

    def __init__(self, bootstrap: str) -> None:
        self.counts = [0] * PARTITIONS
        self.errors: list[str] = []
        self._stopping = threading.Event()
        old = {"api.version.request": False, "broker.version.fallback": "0.11.0.0"}
        self._consumer = Consumer({**reading(bootstrap), **old, "enable.partition.eof": False})
        self._consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is not None:
                self.errors.append(str(message.error()))
            elif message is not None:
                self.counts[message.partition() or 0] += 1

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(WAIT_S)
        self._consumer.close()


def test_a_rolling_restart_costs_clients_no_error_and_no_partition_its_leader(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    create(cluster, zookeeper, TOPIC, PARTITIONS)
    leaders: list[int] = []

    def keep(value: bytes | None, _stat: object) -> None:
        if value is not None:
            leaders.append(json.loads(value)["leader"])

    for each in range(PARTITIONS):
        zookeeper.DataWatch(f"/brokers/topics/{TOPIC}/partitions/{each}/state", keep)
    producer = SteadyProducer("rolling", cluster.bootstrap)
    consumer = SteadyConsumer(cluster.bootstrap)
    with contextlib.ExitStack() as ending:
        ending.callback(consumer.close)
        for broker_id in ROUNDS:
            wait_for_records([producer], 500)
            cluster.stop(broker_id)
            states = [state_of(zookeeper, TOPIC, each) for each in range(PARTITIONS)]
            assert all(broker_id not in state["isr"] for state in states)
            wait_for_records([producer], 500)
            cluster.start(broker_id)
            wait_in_sync(zookeeper, TOPIC, PARTITIONS)
        producer.finish()
        assert producer.failures == []
        eventually(lambda: consumer.counts == producer.sent, WAIT_S, "everything is read exactly once")
    assert consumer.errors == []
    assert -1 not in leaders
    assert len(leaders) > PARTITIONS
