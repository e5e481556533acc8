"""Answers about a large cluster, over real sockets: they are whole, and others are served while they grow."""

import asyncio
import gc
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource  # type: ignore[attr-defined]

from broker.server import connection
from broker.server.shedding import ListenerLimits
from broker.wire.codec import encode_request
from controller.wire.apis import ApiKey
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink
from tests.support.memory_broker import PATIENCE_S, MemoryBroker, config
from tests.support.nodes import eventually

TOPICS, PARTITIONS = 5_000, 6
#: of which four answers are long enough
FEWER = 1_000
ALL_TOPICS: dict[str, Any] = {"topics": None}
FEW: dict[str, Any] = {"topics": [{"name": "topic-1"}]}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MemoryBroker]:
    names = {f"topic-{each}": PARTITIONS for each in range(TOPICS)}
    settings = config(tmp_path_factory.mktemp("broker"))
    with MemoryBroker(settings, names, ListenerLimits()) as started:
        yield started


@pytest.fixture(scope="module")
def admin(broker: MemoryBroker) -> Iterator[AdminClient]:
    """A client that outlives its last answer: its own thread, still at work, must not be what collects it."""
    client = AdminClient(quiet(broker.bootstrap))
    yield client
    gc.collect()


def test_five_thousand_topics_are_described_to_a_kafka_client(
    broker: MemoryBroker, admin: AdminClient
) -> None:
    found = admin.list_topics(timeout=PATIENCE_S).topics
    assert {len(topic.partitions) for topic in found.values()} == {PARTITIONS}
    asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in found]
    settings = [
        each.result(3 * PATIENCE_S)
        for each in admin.describe_configs(asked, request_timeout=3 * PATIENCE_S).values()
    ]
    assert len(settings) == TOPICS
    assert all("retention.ms" in each for each in settings)


def settings_of(topics: int) -> bytes:
    """A request about the settings of topics."""
    rows = [
        {"resource_type": 2, "resource_name": f"topic-{each}", "configuration_keys": None}
        for each in range(topics)
    ]
    return encode_request(ApiKey.DESCRIBE_CONFIGS, 1, {"resources": rows, "include_synonyms": False})


def test_others_are_served_while_long_answers_grow(broker: MemoryBroker) -> None:
    links = [BrokerLink(broker.bootstrap) for _ in range(4)]
    for link in links:
        link.send(ApiKey.DESCRIBE_CONFIGS, 1, settings_of(FEWER))
    with BrokerLink(broker.bootstrap) as other:
        rounds = 0
        while not links[0].has_answer():
            assert len(other.ask(ApiKey.METADATA, 1, FEW).topics) == 1
            rounds += 1
    # An answer takes at least ten slices; between any two of all the answers the other one gets its turn.
    assert rounds >= 10
    for link in links:
        assert len(link.answer(ApiKey.DESCRIBE_CONFIGS, 1).results) == FEWER
        link.close()


def test_an_answer_that_grows_too_large_ends_its_connection(
    broker: MemoryBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connection, "ANSWER_BYTES_MAX", 100_000)
    with BrokerLink(broker.bootstrap) as link, BrokerLink(broker.bootstrap) as other:
        link.send(ApiKey.METADATA, 2, encode_request(ApiKey.METADATA, 2, ALL_TOPICS))
        assert link.closed_by_broker()
        other.ask(ApiKey.METADATA, 1, FEW)
    assert "METADATA version 2: the answer is larger than 100000 bytes; ask for less" in caplog.text


def test_an_answer_that_nobody_waits_for_is_given_up(broker: MemoryBroker) -> None:
    links = [BrokerLink(broker.bootstrap) for _ in range(20)]
    for link in links:
        link.send(ApiKey.DESCRIBE_CONFIGS, 1, settings_of(TOPICS))
    with BrokerLink(broker.bootstrap) as other:
        other.ask(ApiKey.METADATA, 1, FEW)
        for link in links:
            link.close()

        async def tasks() -> int:
            return len(asyncio.all_tasks())

        # Twenty whole answers, of which nothing is kept, take more than ten seconds.
        eventually(lambda: broker.run(tasks()) == 1, 5.0, "only the question itself runs")
