"""The project's own client of brokers, over real sockets: where requests go, and what is sent again."""

import asyncio
import struct
from collections.abc import Awaitable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.client import BrokerClient, BrokerRequestError, NoBrokerAnswersError, UnsupportedByBrokerError
from broker.client.links import Link
from broker.client.partition_admin import PartitionAdminClient
from broker.server.handlers import ApiHandlers
from broker.server.requests import Request
from broker.server.shedding import ListenerLimits
from broker.wire.codec import decode_response, encode_request
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnection
from quorum.metadata.paths import PartitionKey
from tests.support.broker_services import CLUSTER_ID
from tests.support.broker_wire import whole
from tests.support.memory_broker import (
    PATIENCE_S,
    SECRET,
    MemoryBroker,
    MemoryController,
    MemoryParts,
    config,
    topic_id,
    update_metadata,
)
from tests.support.nodes import eventually

KEY = PartitionKey("t", 0)
OTHER = PartitionKey("t", 1)


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MemoryBroker]:
    with MemoryBroker(config(tmp_path), {"t": 2}, ListenerLimits()) as started:
        yield started


def batch(value: bytes) -> bytes:
    return struct.pack(">qiibIhi", 0, 15 + len(value), 0, 2, 0, 0, 0) + value


async def test_topics_live_and_die(broker: MemoryBroker) -> None:
    async with BrokerClient(broker.bootstrap) as client:
        made = (await client.create_topics([NewTopic("made", 2, settings={"retention.ms": "5"})]))["made"]
        assert (made.error_code, made.topic_id, made.num_partitions) == (0, topic_id("made"), 2)
        again = (await client.create_topics([NewTopic("made")]))["made"]
        assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        await client.alter_topic_configs("made", {"retention.bytes": "7"}, ["retention.ms"])
        rows = {
            row.name: (row.value, row.source)
            for row in (await client.describe_topic_configs(["made"]))["made"]
        }
        assert (rows["retention.bytes"], rows["retention.ms"][1]) == (("7", 1), 5)
        more = await client.create_partitions([NewPartitions("made", 4)])
        assert more["made"].error_code == 0
        metadata = await client.metadata(["made", "none"])
        assert len(metadata.topics["made"].partitions) == 4
        assert metadata.topics["none"].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert (await client.delete_topics(["made"]))["made"].error_code == 0
        assert set((await client.metadata()).topics) == {"t"}


async def test_a_refused_setting_is_an_error_with_its_story(broker: MemoryBroker) -> None:
    async with BrokerClient(broker.bootstrap) as client:
        with pytest.raises(BrokerRequestError, match=r"INVALID_CONFIG.*retention\.ms") as caught:
            await client.alter_topic_configs("t", {"retention.ms": "x"})
        assert (caught.value.definite, caught.value.retriable) == (True, False)
        with pytest.raises(BrokerRequestError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            await client.describe_topic_configs(["none"])


class HesitantController(MemoryController):
    """The controller from the third question on."""

    def __init__(self, *arguments: Any) -> None:
        self.asked = 0
        super().__init__(*arguments)

    @property
    def active(self) -> bool:
        self.asked += 1
        return self.asked > 2

    @active.setter
    def active(self, _value: bool) -> None:
        pass


async def test_the_controller_is_looked_for_until_it_is_found(broker: MemoryBroker) -> None:
    broker.parts.controller = HesitantController(broker.parts.view, broker.client_address)
    async with BrokerClient(broker.bootstrap) as client:
        assert (await client.create_topics([NewTopic("made")]))["made"].error_code == 0
    assert broker.parts.controller.asked == 3


async def test_no_controller_in_time_is_a_definite_error(broker: MemoryBroker) -> None:
    broker.parts.controller.active = False
    async with BrokerClient(broker.bootstrap, timeout_ms=200) as client:
        with pytest.raises(BrokerRequestError, match="NOT_CONTROLLER") as caught:
            await client.create_topics([NewTopic("made")])
    assert caught.value.definite


async def test_records_go_to_leaders_and_come_back(broker: MemoryBroker) -> None:
    async with BrokerClient(broker.bootstrap) as client:
        large = bytes(100_000)
        produced = await client.produce({KEY: batch(b"first"), OTHER: batch(large)})
        assert {key: (each.error_code, each.base_offset) for key, each in produced.items()} == {
            KEY: (0, 0),
            OTHER: (0, 0),
        }
        await client.produce({KEY: batch(b"second")})
        ends = await client.list_offsets({KEY: -1, OTHER: -1})
        assert [ends[key].offset for key in (KEY, OTHER)] == [2, 1]
        fetched = await client.fetch({KEY: 1, OTHER: 0})
        assert fetched[KEY].records.endswith(b"second")
        assert fetched[OTHER].records.endswith(large)
        assert (fetched[KEY].high_watermark, fetched[KEY].error_code) == (2, 0)


async def test_a_leader_that_refuses_is_asked_again_until_the_deadline(broker: MemoryBroker) -> None:
    broker.parts.replicas.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    async with BrokerClient(broker.bootstrap, timeout_ms=350) as client:
        produced = await client.produce({KEY: batch(b"x")})
    assert produced[KEY].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert len(broker.parts.replicas.produced) > 1


async def test_an_unknown_partition_has_no_leader(broker: MemoryBroker) -> None:
    async with BrokerClient(broker.bootstrap, timeout_ms=200) as client:
        found = await client.fetch({PartitionKey("t", 9): 0, PartitionKey("none", 0): 0})
    assert {each.error_code for each in found.values()} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_an_unknown_outcome_is_not_repeated(broker: MemoryBroker) -> None:
    replicas = broker.parts.replicas

    async def hold() -> None:
        replicas.hold = asyncio.Event()

    broker.run(hold())
    async with BrokerClient(broker.bootstrap) as client:
        sending = asyncio.create_task(client.produce({KEY: batch(b"x")}))
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, lambda: eventually(lambda: replicas.produced, PATIENCE_S))
        broker.run(broker.stop_listening())
        assert (await sending)[KEY].error_code == ErrorCode.NETWORK_EXCEPTION
    assert len(replicas.produced) == 1


class SlowController(MemoryController):
    """One that says at every other request for reassignments that it had no time."""

    asked = 0

    async def reassign(self, *arguments: Any, **more: Any) -> Any:
        self.asked += 1
        return ErrorCode.REQUEST_TIMED_OUT if self.asked % 2 else await super().reassign(*arguments, **more)


async def test_a_reassignment_without_an_outcome_is_asked_again_and_a_cancellation_is_not(
    broker: MemoryBroker,
) -> None:
    controller = broker.parts.controller = SlowController(broker.parts.view)
    async with PartitionAdminClient(broker.bootstrap) as client:
        found = await client.alter_reassignments({KEY: (2, 3)})
        assert (found[KEY].error_code, controller.asked) == (ErrorCode.NONE, 2)
        assert sorted(await client.list_reassignments()) == [KEY]
        with pytest.raises(BrokerRequestError, match="REQUEST_TIMED_OUT") as caught:
            await client.alter_reassignments({KEY: None})
        assert (caught.value.definite, controller.asked) == (False, 3)


async def test_no_broker_at_all_is_a_definite_error(broker: MemoryBroker) -> None:
    bootstrap = broker.bootstrap
    broker.run(broker.stop_listening())
    async with BrokerClient(bootstrap) as client:
        with pytest.raises(NoBrokerAnswersError, match="cannot be reached") as caught:
            await client.metadata()
    assert caught.value.definite


def test_versions_are_the_newest_of_both_sides() -> None:
    connection = cast("Any", SimpleNamespace(address="b:1"))
    link = Link(connection, {ApiKey.METADATA: (0, 11), ApiKey.FETCH: (4, 99), ApiKey.PRODUCE: (0, 2)})
    assert (link.version(ApiKey.METADATA), link.version(ApiKey.FETCH)) == (11, 16)
    assert link.version(ApiKey.FETCH, at_most=12) == 12
    for api_key, at_least in ((ApiKey.PRODUCE, 0), (ApiKey.METADATA, 12), (ApiKey.LIST_OFFSETS, 0)):
        with pytest.raises(UnsupportedByBrokerError, match="b:1"):
            link.version(api_key, at_least=at_least)
    # As a broker listener answers, which serves no clients.
    with pytest.raises(UnsupportedByBrokerError, match="name a client listener"):
        Link(connection, {}).version(ApiKey.METADATA)


async def test_a_missing_topic_is_asked_of_the_controller_elsewhere(
    broker: MemoryBroker, tmp_path: Path
) -> None:
    parts = MemoryParts.build(config(tmp_path, auto_create_topics=True))
    parts.controller.active = False
    parts.view.apply(update_metadata({}, client=broker.client_address))

    async def connect(_: int) -> BrokerConnection:
        host, port = broker.broker_address
        return await BrokerConnection.open(
            host, port, secrets=[SECRET], cluster_id=CLUSTER_ID, client_id="test", timeout_ms=5000
        )

    cast("Any", parts.services.replicas).fetchers = SimpleNamespace(connect=connect)
    asked = {
        "topics": [{"name": "made", "topic_id": None}],
        "allow_auto_topic_creation": True,
        "include_topic_authorized_operations": False,
    }
    body = memoryview(encode_request(ApiKey.METADATA, 12, asked))
    answer = ApiHandlers(parts.services, for_brokers=False).handle(
        Request(ApiKey.METADATA, 12, 1, None, body, len(body), 0.0)
    )
    assert isinstance(answer, Awaitable)
    parts_of_answer = await answer
    assert parts_of_answer is not None
    found = decode_response(ApiKey.METADATA, 12, whole(parts_of_answer))
    # Created there; this broker has not heard of it yet.
    assert found.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert "made" in broker.parts.view.topics
