"""Somebody who reaches the quorum and does not know the peer secret attacks a cluster of real brokers.

A stranger writes what it likes into the quorum, listens where it says that it listens, and tries to control
brokers at their own listeners. Nothing dials it, nothing obeys it, and no acknowledged record is lost.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import urllib.request
from collections.abc import AsyncIterator
from typing import Any, Self

import pytest

from broker.client import BrokerClient
from broker.lifecycle.registration import broker_record
from broker.local.embedded import EmbeddedBrokers, brokers
from controller.core.brokers import broker_endpoint
from controller.core.requests import NewTopic
from controller.messages.entities import (
    LEADER_AND_ISR,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    decode_response,
    encode_request,
)
from controller.wire.connection import (
    BrokerAuthenticationError,
    BrokerConnection,
    BrokerConnectionLostError,
)
from quorum.cli.commands.control_plane import describe_control_plane, read_control_plane
from quorum.client import Client, CreateMode, NodeExistsError
from quorum.config.address import Address
from quorum.metadata import paths
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch, PartitionVersion
from quorum.metadata.paths import PartitionKey
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from quorum.metadata.records import BrokerRecord, ControllerRecord
from tests.support.broker_wire import record_batch

STRANGER = 9
TOPIC = "orders"
KEY = PartitionKey(TOPIC, 0)
RECORDS = 100
WAIT_S = 30.0


class Listener:
    """Where a stranger listens, and how often somebody came."""

    def __init__(self) -> None:
        self.dialled = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._come, "127.0.0.1")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()

    @property
    def address(self) -> Address:
        return Address(*self._server.sockets[0].getsockname())

    async def _come(self, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.dialled += 1
        writer.close()


@pytest.fixture(params=["direct", "queue"])
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedBrokers]:
    async with brokers(3, settings={"broker": {"channel": request.param}}) as running:
        yield running


async def status(url: str) -> dict[str, Any]:
    def ask() -> bytes:
        with urllib.request.urlopen(f"{url}/v1/status", timeout=WAIT_S) as answer:
            found: bytes = answer.read()
            return found

    found: dict[str, Any] = json.loads(await asyncio.to_thread(ask))
    return found


async def controller_status(cluster: EmbeddedBrokers, epoch_min: int) -> dict[str, Any]:
    """What the controller of this epoch or a later one knows, once there is one that knows all brokers."""
    async with asyncio.timeout(WAIT_S):
        while True:
            for url in cluster.admin_urls:
                found = (await status(url))["controller"]
                if found and found["controller_epoch"] >= epoch_min and len(found["brokers"]) == 3:
                    return dict(found)


async def write(kafka: BrokerClient, count: int) -> None:
    for _ in range(count):
        done = await kafka.produce({KEY: record_batch([b"x" * 100])})
        assert done[KEY].error_code == 0


async def test_a_stranger_gets_nothing_and_costs_nothing(cluster: EmbeddedBrokers) -> None:
    async with (
        Listener() as listener,
        BrokerClient(cluster.bootstrap) as kafka,
        Client(cluster.hosts) as stranger,
    ):
        assert (await kafka.create_topics([NewTopic(TOPIC, 1, 3)]))[TOPIC].error_code == 0
        await write(kafka, RECORDS)
        # It registers brokers, one of them with what a real one has signed, and one that is no JSON.
        here = listener.address
        record = broker_record(
            clients={"CLIENT": here},
            broker=here,
            admin=f"http://{here}",
            rack="",
            incarnation="e" * 32,
            timestamp_ms=0,
        )
        signed, _ = await stranger.get(paths.broker_id_path(1))
        strangers = {STRANGER: record.encode(), STRANGER + 1: signed, STRANGER + 2: b"{"}
        for broker_id, value in strangers.items():
            await stranger.create(paths.broker_id_path(broker_id), value, CreateMode.EPHEMERAL)
        # It takes the controller's office, and raises its epoch.
        await stranger.delete(paths.CONTROLLER)
        await stranger.set(paths.CONTROLLER_EPOCH, b"100")
        with contextlib.suppress(NodeExistsError):
            await stranger.create(
                paths.CONTROLLER, ControllerRecord(STRANGER, 0).encode(), CreateMode.EPHEMERAL
            )
        known = await controller_status(cluster, 101)
        assert sorted(known["brokers"]) == ["1", "2", "3"]
        assert sorted(map(int, known["strangers"])) == sorted(strangers)
        assert "no proof of the peer secret" in known["strangers"][str(STRANGER)]
        shown = await asyncio.to_thread(read_control_plane, cluster.hosts, WAIT_S)
        assert shown is not None
        standing = {each["broker_id"]: each["stranger"] is not None for each in shown["brokers"]}
        assert standing == {each: each >= STRANGER for each in (1, 2, 3, *strangers)}
        told = "\n".join(describe_control_plane(shown))
        assert f"stranger broker {STRANGER}: " in told
        # It asks a broker to delete its replica, by its queue.
        for broker_id in (1, 2, 3):
            await leave_entry(stranger, broker_id, known["brokers"][str(broker_id)])
        # It proves at a listener what it has read.
        value, _ = await stranger.get(paths.PEER_CHECK_VALUE)
        check = json.loads(value or b"")["check"]
        cluster_id = (await status(cluster.admin_urls[0]))["cluster_id"]
        for guess in (check, base64.b64decode(check).hex(), (value or b"").decode()):
            with pytest.raises(BrokerAuthenticationError):
                await prove(stranger, guess, cluster_id)
        # Nothing of it had an effect.
        results = await kafka.create_topics([NewTopic("wide", 1, 4), NewTopic("whole", 6, 3)])
        assert [results[each].error_code for each in ("wide", "whole")] == [38, 0]
        metadata = await kafka.metadata([TOPIC, "whole"])
        assert sorted(metadata.brokers) == [1, 2, 3]
        await write(kafka, 1)
        assert (await kafka.list_offsets({KEY: -1}))[KEY].offset == RECORDS + 1
        assert (await kafka.list_offsets({KEY: -2}))[KEY].offset == 0
        assert listener.dialled == 0


async def test_who_knows_the_secret_and_is_no_controller_ends_no_term() -> None:
    async with brokers(1) as cluster, Client(cluster.hosts) as client:
        found = await status(cluster.admin_urls[0])
        secret = cluster._secret.read_text()
        folders = {each.name for each in cluster._secret.parent.rglob("*")}
        for epoch, name, code in ((1_000, TOPIC, 8), (1, "../escaped", None), (1, "nul\0", None)):
            connection = await prove(client, secret, found["cluster_id"])
            request = lead_request(epoch, found["generation"], name)
            try:
                body = await connection.request(
                    LEADER_AND_ISR, 6, encode_request(request), flexible=True, timeout_ms=5_000
                )
                assert decode_response(LEADER_AND_ISR, 6, body).error_code == code
            except BrokerConnectionLostError:
                assert code is None
            connection.close()
        assert folders == {each.name for each in cluster._secret.parent.rglob("*")}
        async with BrokerClient(cluster.bootstrap) as kafka:
            assert (await kafka.create_topics([NewTopic(TOPIC, 1, 1)]))[TOPIC].error_code == 0
        known = await status(cluster.admin_urls[0])
        assert known["controller"]["controller_epoch"] == 1
        assert known["generation"] == found["generation"]


def lead_request(epoch: int, generation: int, topic: str) -> LeaderAndIsrRequest:
    state = LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=ControllerEpoch(epoch),
        leader=1,
        leader_epoch=LeaderEpoch(0),
        isr=(1,),
        partition_epoch=PartitionVersion(0),
        replicas=(1,),
    )
    row = LeaderAndIsrTopicState(topic_name=topic, topic_id=None, partition_states=(state,))
    return LeaderAndIsrRequest(
        controller_id=1,
        controller_epoch=ControllerEpoch(epoch),
        broker_epoch=BrokerGeneration(generation),
        type=1,
        topic_states=(row,),
        live_leaders=(),
    )


async def leave_entry(stranger: Client, broker_id: int, generation: int) -> None:
    state = StopReplicaPartitionState(partition_index=0, leader_epoch=LeaderEpoch(-2), delete_partition=True)
    request = StopReplicaRequest(
        controller_id=STRANGER,
        controller_epoch=ControllerEpoch(1_000),
        broker_epoch=BrokerGeneration(generation),
        topic_states=(StopReplicaTopicState(topic_name=TOPIC, partition_states=(state,)),),
    )
    entry = QueueEntryRecord(
        ChangeKind.STOP_REPLICA, ControllerEpoch(1_000), request.broker_epoch, encode_request(request)
    )
    with contextlib.suppress(NodeExistsError):
        await stranger.create(paths.queue_path(broker_id))
    path = f"{paths.queue_path(broker_id)}/"
    await stranger.create(path, entry.encode(), CreateMode.PERSISTENT_SEQUENTIAL)


async def prove(stranger: Client, secret: str, cluster_id: str) -> BrokerConnection:
    value, _ = await stranger.get(paths.broker_id_path(1))
    endpoint = broker_endpoint(BrokerRecord.decode(1, value))
    assert endpoint is not None
    return await BrokerConnection.open(
        *(endpoint.host, endpoint.port),
        secrets=[secret],
        cluster_id=cluster_id,
        client_id="stranger",
        timeout_ms=5_000,
    )
