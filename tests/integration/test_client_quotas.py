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
from tests.support.client_quotas import alter, described, entity
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
    body, started_s = produce(13_000, acks), time.monotonic()
    if acks:
        # ten seconds' worth passes at once
        assert 2900 < milliseconds(noisy.ask(ApiKey.PRODUCE, 9, body)) < 3300
    else:
        noisy.send(ApiKey.PRODUCE, 9, encode_request(ApiKey.PRODUCE, 9, body))
    noisy.send(ApiKey.API_VERSIONS, 3, encode_request(ApiKey.API_VERSIONS, 3, VERSIONS))
    link.ask(ApiKey.API_VERSIONS, 3, VERSIONS)
    assert not noisy.has_answer()
    noisy.answer(ApiKey.API_VERSIONS, 3)
    assert time.monotonic() - started_s > 2.9
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


def test_what_was_just_set_elsewhere_is_removed(cluster: BrokerCluster, link: BrokerLink) -> None:
    zookeeper, value = cluster.zookeeper, {"version": 1, "config": {"producer_byte_rate": "5"}}
    for number in range(20):
        path = f"/config/clients/new-{number}"
        zookeeper.create(path, json.dumps(value).encode())
        row = alter(link, entity(client_id=f"new-{number}"), {"producer_byte_rate": None})
        assert row.error_code == ErrorCode.NONE
        assert json.loads(zookeeper.get(path)[0])["config"] == {}
        zookeeper.delete(path)


def fetch(offset: int = 0, *, session_id: int = 0, epoch: int = -1, named: bool = True) -> Mapping[str, Any]:
    partition = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 2**20}
    return {
        "max_wait": 500,
        "min_bytes": 1,
        "max_bytes": 2**25,
        "isolation_level": 0,
        "session_id": session_id,
        "session_epoch": epoch,
        "topics": [{"topic": "t", "partitions": [partition]}] if named else (),
        "forgotten_topics_data": (),
        "rack_id": "",
    }


def test_a_consumer_over_its_quota_gets_nothing(cluster: BrokerCluster, link: BrokerLink) -> None:
    sent = [link.ask(ApiKey.PRODUCE, 9, produce(100_000)) for _ in range(3)]
    start = sent[0].responses[0].partition_responses[0].base_offset
    alter(link, entity(client_id="reader"), {"consumer_byte_rate": 8500})
    readers = [BrokerLink(cluster.bootstrap, client_id="reader") for _ in range(2)]
    with readers[0] as reader, readers[1] as other:
        # As much as ten seconds are worth, one batch at least.
        first = reader.ask(ApiKey.FETCH, 12, fetch(start, epoch=0))
        assert 100_000 < len(first.responses[0].partitions[0].records) < 120_000
        assert 1000 < milliseconds(first) < 4000
        assert first.session_id
        # It shares the rate, begins no session, and nothing is read for it.
        answer = other.ask(ApiKey.FETCH, 12, fetch(start, epoch=0))
        assert (answer.error_code, answer.responses, answer.session_id) == (ErrorCode.NONE, (), 0)
        assert 0 < milliseconds(answer) < 4000
        # The session goes on where it was, with the offset that its client has reached.
        for epoch in range(1, 100):
            after = fetch(start + 1, session_id=first.session_id, epoch=epoch, named=epoch == 1)
            if (answer := reader.ask(ApiKey.FETCH, 12, after)).responses:
                break
            assert milliseconds(answer) > 0
        assert len(answer.responses[0].partitions[0].records) > 100_000
    assert cluster.metric(1, "quorate_broker_throttled_seconds_total", "consumer_byte_rate") > 1
    alter(link, entity(client_id="reader"), {"consumer_byte_rate": None})


def created(topics: Mapping[str, int], *, validate_only: bool = False) -> Mapping[str, Any]:
    rows = [
        {
            "name": name,
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": (),
            "configs": (),
        }
        for name, count in topics.items()
    ]
    return {"topics": rows, "timeout": 20_000, "validate_only": validate_only}


def test_partitions_are_created_at_a_rate(cluster: BrokerCluster, link: BrokerLink) -> None:
    alter(link, entity(client_id="maker"), {"controller_mutation_rate": 2.0})
    with BrokerLink(cluster.bootstrap, client_id="maker") as maker:
        # What is only checked, or fails, does not count.
        maker.ask(ApiKey.CREATE_TOPICS, 7, created({"only": 100}, validate_only=True))
        maker.ask(ApiKey.CREATE_TOPICS, 7, created({"t": 100}))
        answer = maker.ask(ApiKey.CREATE_TOPICS, 7, created({"many": 24, "more": 1}))
        codes = {each.name: each.error_code for each in answer.topics}
        assert codes == {"many": ErrorCode.NONE, "more": ErrorCode.THROTTLING_QUOTA_EXCEEDED}
        assert 0 < milliseconds(answer) <= 1000
        # Its connection was not read meanwhile, so that there is room again.
        names = {"topics": [{"name": "many", "topic_id": None}], "timeout": 20_000}
        deleted = maker.ask(ApiKey.DELETE_TOPICS, 6, names)
        assert [each.error_code for each in deleted.responses] == [ErrorCode.NONE]
        # An older request has no such code: it only throttles.
        answer = maker.ask(ApiKey.CREATE_TOPICS, 5, created({"old": 1}))
        assert [each.error_code for each in answer.topics] == [ErrorCode.NONE]
        assert 5000 < milliseconds(answer) <= 11_000
    alter(link, entity(client_id="maker"), {"controller_mutation_rate": None})


def test_an_address_has_so_many_connections(cluster: BrokerCluster, link: BrokerLink) -> None:
    def limited(count: int) -> None:
        ops = [{"name": "max.connections.per.ip", "config_operation": 0, "value": str(count)}]
        resource = {"resource_type": 4, "resource_name": "1", "configs": ops}
        values = {"resources": [resource], "validate_only": False}
        (row,) = link.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, values).responses
        assert row.error_code == ErrorCode.NONE

    def is_turned_away() -> bool:
        with BrokerLink(cluster.bootstrap) as more:
            more.send(ApiKey.API_VERSIONS, 3, encode_request(ApiKey.API_VERSIONS, 3, VERSIONS))
            return more.closed_by_broker()

    assert not is_turned_away()
    limited(1)
    eventually(is_turned_away, WAIT_S, "one more is turned away")
    assert link.ask(ApiKey.API_VERSIONS, 3, VERSIONS).error_code == ErrorCode.NONE
    limited(2**31 - 1)
    eventually(lambda: not is_turned_away(), WAIT_S, "one more is taken")
    assert cluster.metric(1, "quorate_broker_connections_over_address_max_total", "client") >= 1
    told = "its address has 1 connections (limits.connections_per_address_max)"
    assert told in cluster.brokers[1].output_path.read_text()


def test_quotas_that_cannot_be_are_refused(link: BrokerLink) -> None:
    client, user = entity(client_id="c"), entity(user="u")
    cases: list[tuple[list[dict[str, str | None]], dict[str, float | None], str]] = [
        (client, {"request_percentage": 50}, "brokers do not limit time; set producer_byte_rate and"),
        (entity(ip="10.0.0.1"), {"connection_creation_rate": 5}, "set max.connections.per.ip"),
        (user, {"connection_creation_rate": 5}, "set max.connections.per.ip"),
        (user, {"x": 1}, "Invalid configuration key x: there are producer_byte_rate, consumer_byte_rate,"),
        (user, {"producer_byte_rate": 1.5}, "must be a whole number of bytes a second, but got 1.5"),
        (user, {"consumer_byte_rate": -1}, "Quota consumer_byte_rate must be greater than 0, but got -1.0"),
        (user, {"controller_mutation_rate": float("nan")}, "must be greater than 0, but got nan"),
        (user, {"controller_mutation_rate": float("inf")}, "must be greater than 0, but got inf"),
        ([], {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
        (entity(user=""), {"producer_byte_rate": 1}, "Empty user not supported"),
        (entity(user=".."), {"producer_byte_rate": 1}, ".. can be no user; give another name"),
        (entity(group="g"), {"producer_byte_rate": 1}, "Unhandled client quota entity type: group"),
        ([*user, *user], {"producer_byte_rate": 1}, "Duplicate entity type user"),
    ]
    for of, quotas, words in cases:
        row = alter(link, of, quotas)
        assert row.error_code == ErrorCode.INVALID_REQUEST
        assert words in row.error_message
    assert alter(link, user, {"producer_byte_rate": 5}, validate_only=True).error_code == ErrorCode.NONE
    assert described(link) == {}


def test_a_filter_matches_names_defaults_and_kinds(link: BrokerLink) -> None:
    of = {
        "u": entity(user="u"),
        "u*": entity(user="u", client_id=None),
        "uc": entity(user="u", client_id="c"),
        "*": entity(user=None),
        "c": entity(client_id="c"),
    }
    for parts in of.values():
        alter(link, parts, {"consumer_byte_rate": 10})

    def matched(*components: tuple[str, int, str | None], strict: bool = False) -> set[str]:
        names = ("entity_type", "match_type", "match")
        asked = [dict(zip(names, each, strict=True)) for each in components]
        answer = link.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": strict})
        assert answer.error_code == ErrorCode.NONE, answer.error_message
        found = [[(each.entity_type, each.entity_name) for each in row.entity] for row in answer.entries]
        by_parts = {tuple(tuple(each.values()) for each in parts): name for name, parts in of.items()}
        return {by_parts[tuple(each)] for each in found}

    assert matched() == set(of)
    assert matched(strict=True) == set()
    assert matched(("user", 0, "u")) == {"u", "u*", "uc"}
    assert matched(("user", 0, "u"), strict=True) == {"u"}
    assert matched(("user", 1, None)) == {"*"}
    assert matched(("user", 2, None), strict=True) == {"u", "*"}
    assert matched(("client-id", 2, None)) == {"u*", "uc", "c"}
    assert matched(("user", 0, "u"), ("client-id", 1, None)) == {"u*"}
    assert matched(("ip", 2, None)) == set()
    for parts in of.values():
        alter(link, parts, {"consumer_byte_rate": None})
    for component, code in {
        ("", 2, None): ErrorCode.INVALID_REQUEST,
        ("group", 2, None): ErrorCode.UNSUPPORTED_VERSION,
        ("user", 0, None): ErrorCode.INVALID_REQUEST,
        ("user", 3, None): ErrorCode.INVALID_REQUEST,
    }.items():
        asked = [dict(zip(("entity_type", "match_type", "match"), component, strict=True))]
        answer = link.ask(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, {"components": asked, "strict": False})
        assert answer.error_code == code
