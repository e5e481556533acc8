"""Quotas of Kafka's clients at a broker: set by requests and znodes, they throttle who is over them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.wire.codec import encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, record_batch
from tests.support.nodes import eventually

WAIT_S = 30.0
VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers(brokers=1) as running:
        admin = AdminClient(quiet(running.bootstrap))
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(WAIT_S)
        yield running


@pytest.fixture
def link(cluster: BrokerCluster) -> Iterator[BrokerLink]:
    found = BrokerLink(cluster.bootstrap)
    yield found
    found.socket.close()


def entity(**parts: str | None) -> list[dict[str, str | None]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()]


def alter(
    link: BrokerLink, of: list[dict[str, str | None]], quotas: Mapping[str, float | None], **more: bool
) -> Any:
    """Set or remove quotas; returns the row of the answer."""
    ops = [{"key": key, "value": rate or 0.0, "remove": rate is None} for key, rate in quotas.items()]
    values = {"entries": [{"entity": of, "ops": ops}], "validate_only": False, **more}
    (row,) = link.ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, values).entries
    return row


def described(link: BrokerLink) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    answer = link.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": (), "strict": False})
    assert answer.error_code == ErrorCode.NONE
    return {
        tuple((each.entity_type, each.entity_name) for each in row.entity): {
            each.key: each.value for each in row.values
        }
        for row in answer.entries
    }


def produce(size: int, acks: int = -1) -> Mapping[str, Any]:
    records = record_batch([b"x" * size])
    partition = {"index": 0, "records": records}
    return {
        "transactional_id": None,
        "acks": acks,
        "timeout": 10_000,
        "topic_data": [{"name": "t", "partition_data": [partition]}],
    }


def milliseconds(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1000)


@pytest.mark.parametrize("acks", [-1, 0])
def test_a_producer_over_its_quota_is_not_read(cluster: BrokerCluster, link: BrokerLink, acks: int) -> None:
    client = f"noisy-{acks}"
    noisy = BrokerLink(cluster.bootstrap, client_id=client)
    assert alter(link, entity(client_id=client), {"producer_byte_rate": 1000}).error_code == ErrorCode.NONE
    body, started_s = produce(12_000, acks), time.monotonic()
    if acks:
        # ten seconds' worth passes at once
        assert 1900 < milliseconds(noisy.ask(ApiKey.PRODUCE, 9, body)) < 2300
    else:
        noisy.send(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, body))
    noisy.send(ApiKey.API_VERSIONS, 3, encode_request(ApiKey.API_VERSIONS, 3, VERSIONS))
    link.ask(ApiKey.API_VERSIONS, 3, VERSIONS)
    assert not noisy.has_answer()
    noisy.answer(ApiKey.API_VERSIONS, 3)
    assert time.monotonic() - started_s > 1.9
    alter(link, entity(client_id=client), {"producer_byte_rate": None})
    noisy.socket.close()


def test_what_a_znode_says_counts(cluster: BrokerCluster, link: BrokerLink) -> None:
    zookeeper = cluster.zookeeper
    value = {"version": 1, "config": {"producer_byte_rate": "1048576", "consumer_byte_rate": "2097152"}}
    zookeeper.create("/config/clients/a%20b", json.dumps(value).encode())
    wanted = {"producer_byte_rate": 1048576.0, "consumer_byte_rate": 2097152.0}
    eventually(lambda: described(link).get((("client-id", "a b"),)) == wanted, WAIT_S, "the quota counts")
    zookeeper.delete("/config/clients/a%20b")
    eventually(lambda: described(link) == {}, WAIT_S, "no quota is left")
