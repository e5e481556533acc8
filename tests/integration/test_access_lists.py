"""Access lists count for every client of a broker, at once, whoever writes them.

The principal is that of a listener without proofs: User:ANONYMOUS.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclBindingFilter, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from broker.local import BlockingBrokers, brokers_in_thread
from controller.wire.apis import ApiKey
from tests.support.broker_wire import ask
from tests.support.nodes import eventually

DEADLINE_S = 30.0
ANONYMOUS = "User:ANONYMOUS"
SETTINGS: dict[str, dict[str, object]] = {
    "broker": {"auto_create_topics": True},
    "security": {"authorizer_class_name": "AclAuthorizer", "super_users": ["User:admin"]},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(2, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: BlockingBrokers) -> AdminClient:
    """An administrator who has got the rights by Kafka's own tool: past the brokers."""
    client = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic("refused", 1, 1)
    with pytest.raises(KafkaException) as failed:
        client.create_topics([new])["refused"].result(DEADLINE_S)
    assert failed.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert described(cluster) == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    entry = {"principal": ANONYMOUS, "permissionType": "Allow", "operation": "All", "host": "*"}
    zookeeper = KazooClient(cluster.hosts)
    zookeeper.start()
    value = json.dumps({"version": 1, "acls": [entry]}).encode()
    zookeeper.create("/kafka-acl/Cluster/kafka-cluster", value)
    zookeeper.stop()
    zookeeper.close()
    eventually(lambda: described(cluster) == 0, DEADLINE_S, "the rights count")
    return client


def described(cluster: BlockingBrokers) -> int:
    """Return the code of a request for all entries; librdkafka shows none."""
    any_text = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    any_kind = dict.fromkeys(
        ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"), 1
    )
    return int(ask(cluster.bootstrap.split(",")[0], ApiKey.DESCRIBE_ACLS, 2, any_text | any_kind).error_code)


def binding(
    kind: ResourceType,
    name: str,
    operation: AclOperation,
    *,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
) -> AclBinding:
    return AclBinding(kind, name, pattern, ANONYMOUS, "*", operation, permission)


def grant(admin: AdminClient, *bindings: AclBinding) -> None:
    for future in admin.create_acls(list(bindings)).values():
        future.result(DEADLINE_S)


def take_away(admin: AdminClient, kind: ResourceType, name: str) -> list[Any]:
    anybody: Any = None
    wanted = AclBindingFilter(
        kind, name, ResourcePatternType.ANY, anybody, anybody, AclOperation.ANY, AclPermissionType.ANY
    )
    return [each for future in admin.delete_acls([wanted]).values() for each in future.result(DEADLINE_S)]


def produced(cluster: BlockingBrokers, topic: str, **settings: object) -> int:
    """Return the code with which a record is refused, 0 if it is taken."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, **settings})
    producer.produce(topic, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(DEADLINE_S)
    return codes[0]


def consumed(cluster: BlockingBrokers, topic: str, group: str) -> int:
    """Return the code of the first error of a consumer, 0 if it gets a record."""
    settings = {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings)
    consumer.subscribe([topic])
    try:
        message = eventually(lambda: consumer.poll(1.0), DEADLINE_S, "a record or an error")
        assert message is not None
        error = message.error()
        return int(error.code()) if error else 0
    finally:
        consumer.close()


def test_a_topic_needs_a_right_for_each_operation(cluster: BlockingBrokers, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("orders", 2, 2)])["orders"].result(DEADLINE_S)
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(cluster, "orders") == refused
    grant(admin, binding(ResourceType.TOPIC, "ord", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED))
    eventually(lambda: produced(cluster, "orders") == 0, DEADLINE_S, "the right to write counts")
    # To write is to describe, and not to read.
    assert "orders" in admin.list_topics(timeout=DEADLINE_S).topics
    grant(admin, binding(ResourceType.GROUP, "g", AclOperation.READ))
    eventually(lambda: consumed(cluster, "orders", "g") == refused, DEADLINE_S, "reading is refused")
    grant(admin, binding(ResourceType.TOPIC, "orders", AclOperation.READ))
    eventually(lambda: consumed(cluster, "orders", "g") == 0, DEADLINE_S, "the right to read counts")
    assert consumed(cluster, "orders", "other") == KafkaError.GROUP_AUTHORIZATION_FAILED
    gone = take_away(admin, ResourceType.TOPIC, "orders")
    assert [each.operation for each in gone] == [AclOperation.READ]
    eventually(lambda: consumed(cluster, "orders", "g") == refused, DEADLINE_S, "a taken right is gone")


def test_a_denial_wins(cluster: BlockingBrokers, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("denied", 1, 2)])["denied"].result(DEADLINE_S)
    grant(admin, binding(ResourceType.TOPIC, "denied", AclOperation.ALL))
    eventually(lambda: produced(cluster, "denied") == 0, DEADLINE_S, "the right to write counts")
    grant(
        admin,
        binding(ResourceType.TOPIC, "*", AclOperation.WRITE, permission=AclPermissionType.DENY),
    )
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: produced(cluster, "denied") == refused, DEADLINE_S, "the denial counts")
    take_away(admin, ResourceType.TOPIC, "*")
    eventually(lambda: produced(cluster, "denied") == 0, DEADLINE_S, "the denial is gone")


def test_what_may_not_be_described_is_not_listed(cluster: BlockingBrokers, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("hidden", 1, 1)])["hidden"].result(DEADLINE_S)
    assert "hidden" not in admin.list_topics(timeout=DEADLINE_S).topics
    for name in ("hidden", "none-such"):
        error = admin.list_topics(name, timeout=DEADLINE_S).topics[name].error
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_wrong_entries_are_refused_with_a_sentence(admin: AdminClient) -> None:
    for wrong, said in (
        (binding(ResourceType.BROKER, "other", AclOperation.ALTER), "kafka-cluster"),
        (binding(ResourceType.TOPIC, "a/b", AclOperation.READ), "illegal resource name"),
    ):
        (future,) = admin.create_acls([wrong]).values()
        with pytest.raises(KafkaException) as failed:
            future.result(DEADLINE_S)
        assert failed.value.args[0].code() == KafkaError.INVALID_REQUEST
        assert said in failed.value.args[0].str()


def test_a_list_that_cannot_be_read_denies(cluster: BlockingBrokers, admin: AdminClient) -> None:
    admin.create_topics([NewTopic("broken", 1, 1)])["broken"].result(DEADLINE_S)
    grant(admin, binding(ResourceType.TOPIC, "bro", AclOperation.WRITE, pattern=ResourcePatternType.PREFIXED))
    eventually(lambda: produced(cluster, "broken") == 0, DEADLINE_S, "the right to write counts")
    zookeeper = KazooClient(cluster.hosts)
    zookeeper.start()
    zookeeper.create("/kafka-acl/Topic/broken", b"not JSON")
    refused = KafkaError.TOPIC_AUTHORIZATION_FAILED
    eventually(lambda: produced(cluster, "broken") == refused, DEADLINE_S, "the list denies")
    zookeeper.delete("/kafka-acl/Topic/broken")
    zookeeper.stop()
    zookeeper.close()
    eventually(lambda: produced(cluster, "broken") == 0, DEADLINE_S, "the list is gone")


def test_a_right_to_create_counts_at_every_broker(cluster: BlockingBrokers, admin: AdminClient) -> None:
    # Those that are not the controller ask it; no broker needs a right.
    prefixed = ResourcePatternType.PREFIXED
    for operation in (AclOperation.CREATE, AclOperation.DESCRIBE):
        grant(admin, binding(ResourceType.TOPIC, "auto-", operation, pattern=prefixed))
    take_away(admin, ResourceType.BROKER, "kafka-cluster")
    flags = {"allow_auto_topic_creation": True, "include_topic_authorized_operations": False}

    def is_there(address: str, name: str) -> bool:
        asked = {"topics": [{"name": name, "topic_id": None}], **flags}
        return bool(ask(address, ApiKey.METADATA, 12, asked).topics[0].error_code == 0)

    for number, address in enumerate(cluster.bootstrap.split(",")):
        eventually(partial(is_there, address, f"auto-{number}"), DEADLINE_S, f"{address} has it made")
