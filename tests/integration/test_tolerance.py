"""Whatever a request says within its schema, a broker answers it, and goes on.

Requests are made by the schema of every version that is served, and carried out by a real broker with its
controller and its coordinator.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka import KafkaConsumer

from broker.local import BlockingBrokers, brokers_in_thread
from broker.server.table import FOR_CLIENTS
from broker.wire.codec import request_type
from controller.wire.apis import ApiKey
from tests.support.broker_wire import BrokerLink, ask, produce, record_batch
from tests.support.kio_samples import encoded
from tests.support.nodes import eventually
from tests.support.wire_values import WireValues

#: An answer that does not come by then waits for something that a test need not see.
PATIENCE_S = 0.2
EXAMPLES = 25
DEADLINE_S = 30.0
#: A topic that no request names which is made here.
KEPT = "kept"
#: The connection itself answers it.
BY_THE_CONNECTION = {ApiKey.API_VERSIONS}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(1) as running:
        yield running


def topic_there(bootstrap: str, name: str) -> Any:
    """Create a topic unless it is there; returns what Metadata says of it once its partitions are led."""
    new = {"name": name, "num_partitions": 2, "replication_factor": 1, "assignments": (), "configs": ()}
    asked = {"topics": [{"name": name, "topic_id": None}], "allow_auto_topic_creation": False}

    def led() -> Any:
        ask(bootstrap, ApiKey.CREATE_TOPICS, 4, {"topics": [new], "timeout": 10_000})
        found = ask(bootstrap, ApiKey.METADATA, 12, {**asked, "include_topic_authorized_operations": False})
        led = [each.error_code == 0 for each in found.topics[0].partitions]
        return found.topics[0] if led and all(led) else None

    return eventually(led, DEADLINE_S, f"topic {name} is led")


@pytest.fixture
def values(cluster: BlockingBrokers) -> WireValues:
    found = topic_there(cluster.bootstrap, "t")
    return WireValues(("t", "g", "1"), (found.topic_id,), ("retention.ms", "5", "delete", "consumer"))


def ends_the_connection(message: Any) -> bool:
    """Whether a request is one of the few that a broker has no answer to."""
    # A producer that wants no answer learns of an error by the end of its connection.
    return getattr(message, "acks", None) == 0


@pytest.mark.parametrize(
    "api_key", sorted(set(FOR_CLIENTS) - BY_THE_CONNECTION), ids=lambda key: ApiKey(key).name
)
def test_every_value_of_the_schema_is_answered(
    cluster: BlockingBrokers, values: WireValues, api_key: int, caplog: pytest.LogCaptureFixture
) -> None:
    versions = FOR_CLIENTS[api_key].versions
    links: list[BrokerLink] = []

    @settings(
        max_examples=EXAMPLES * (versions.high + 1 - versions.low),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def check(data: st.DataObject) -> None:
        version = data.draw(st.integers(versions.low, versions.high))
        message = data.draw(values.of(request_type(api_key, version)))
        if ends_the_connection(message):
            return
        if not links:
            links.append(BrokerLink(cluster.bootstrap, PATIENCE_S))
        try:
            links[-1].send(api_key, version, encoded(message))
            links[-1].answer(api_key, version)
        except TimeoutError:
            links.pop().close()
        except ConnectionError:
            links.pop().close()
            pytest.fail(caplog.text)

    check()
    for link in links:
        link.close()
    broker = cluster._running._running[1]
    registration = broker.state.registration
    assert registration is not None and registration.controller.active


def commit(cluster: BlockingBrokers, group: str, offset: int, **row: Any) -> None:
    """Commit an offset of kept-0 in the name of nobody."""
    partition = {"partition_index": 0, "committed_offset": offset, "committed_metadata": None, **row}
    member = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": ""}
    asked = {**member, "topics": [{"name": KEPT, "partitions": [partition]}]}
    found = ask(cluster.bootstrap, ApiKey.OFFSET_COMMIT, 8, asked)
    assert found.topics[0].partitions[0].error_code == 0


@pytest.mark.parametrize("offset", [-1, -2])
def test_a_group_is_reset_by_a_negative_offset(cluster: BlockingBrokers, offset: int) -> None:
    # kafkajs does it: consumers then begin where auto.offset.reset says.
    topic_there(cluster.bootstrap, KEPT)
    produced = produce(cluster.bootstrap, KEPT, 0, record_batch([b"first"]))
    for client, read in {"confluent": read_by_confluent, "python": read_by_python}.items():
        group = f"reset{offset}-{client}"
        commit(cluster, group, produced.base_offset + 1)
        commit(cluster, group, offset)
        topics = [{"name": KEPT, "partition_indexes": [0]}]
        asked = {"groups": [{"group_id": group, "topics": topics}], "require_stable": False}
        found = ask(cluster.bootstrap, ApiKey.OFFSET_FETCH, 8, asked).groups[0].topics[0].partitions[0]
        assert (found.committed_offset, found.error_code) == (offset, 0)
        assert read(cluster.bootstrap, group) == 0


def read_by_confluent(bootstrap: str, group: str) -> int | None:
    """The offset of the first record that a consumer of a group reads."""
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    consumer.subscribe([KEPT])
    try:
        message = consumer.poll(DEADLINE_S)
        assert message is not None
        assert message.error() is None
        return message.offset()
    finally:
        consumer.close()


def read_by_python(bootstrap: str, group: str) -> int | None:
    """As the former, by kafka-python."""
    consumer = KafkaConsumer(
        KEPT,
        bootstrap_servers=bootstrap,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    try:
        offset: int = next(iter(consumer)).offset
        return offset
    finally:
        consumer.close()


def test_nothing_that_was_stored_is_malformed_for_the_next_broker(cluster: BlockingBrokers) -> None:
    """The requests above have left groups, topics and settings, beside this group."""
    topic_there(cluster.bootstrap, KEPT)
    commit(cluster, "kept", -(2**63), committed_leader_epoch=-7)
    cluster.stop(1)
    cluster.start(1)

    def status() -> dict[str, Any] | None:
        with urllib.request.urlopen(f"{cluster.admin_urls[0]}/v1/status", timeout=PATIENCE_S) as answer:
            said: dict[str, Any] = json.load(answer)
        return said if said["coordinator"] is not None and said["controller"] is not None else None

    held = eventually(status, DEADLINE_S)
    assert held is not None
    assert held["coordinator"]["left_alone"] == []
    assert held["coordinator"]["groups"]["Empty"] >= 1
