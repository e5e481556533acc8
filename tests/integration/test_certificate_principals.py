"""Who shows a certificate may do what the access lists allow its principal, and nobody else may."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic

from tests.integration.test_tls_kafka import SUPER_USERS, SecureBrokers
from tests.support.certificates import Authority
from tests.support.nodes import eventually

DEADLINE_S = 30.0


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBrokers]:
    folder: Path = tmp_path_factory.mktemp("pki")
    rules = ["RULE:^CN=(broker-.*)$/CN=$1/", "RULE:^CN=(.*)-of-ours$/$1/U", "RULE:^CN=(a.*)$/$1/"]
    security: dict[str, Any] = {
        "authorizer_class_name": "kafka.security.authorizer.AclAuthorizer",
        "super_users": [*SUPER_USERS, "User:ROOT"],
        "ssl_principal_mapping_rules": rules,
    }
    running = SecureBrokers(Authority(folder / "ours"), "want", **security)
    with running.cluster:
        yield running


def outcome(settings: dict[str, Any]) -> int | None:
    """Return the code of a record that is sent: 0 if it is taken, None while nobody answers."""
    codes: list[int] = []
    producer = Producer({**settings, "message.timeout.ms": 5_000})
    producer.produce("t", b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(DEADLINE_S)
    return codes[0] if codes else None


def test_a_certificate_has_its_principals_rights(brokers: SecureBrokers) -> None:
    root = AdminClient(brokers.confluent("root-of-ours"))
    root.create_topics([NewTopic("t", 1, 2)])["t"].result(DEADLINE_S)
    (granted,) = root.create_acls(
        [
            AclBinding(
                *(ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:alice", "127.0.0.1"),
                *(AclOperation.WRITE, AclPermissionType.ALLOW),
            )
        ]
    ).values()
    granted.result(DEADLINE_S)
    eventually(lambda: outcome(brokers.confluent("alice")) == 0, DEADLINE_S, "alice may write")
    assert outcome(brokers.confluent("adam")) == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert outcome(brokers.confluent()) == KafkaError.TOPIC_AUTHORIZATION_FAILED, "without a certificate"
    consumer = Consumer({**brokers.confluent("alice"), "group.id": "g"})
    consumer.assign([TopicPartition("t", 0, 0)])
    seen: set[int] = set()

    def refused_both() -> bool:
        message = consumer.poll(1.0)
        error = None if message is None else message.error()
        seen.add(0 if error is None else error.code())
        return {KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED} <= seen

    eventually(refused_both, DEADLINE_S, "to write is neither to read nor to join a group")
    consumer.close()


def test_a_subject_that_no_rule_is_for_is_turned_away(brokers: SecureBrokers) -> None:
    admin = AdminClient(brokers.confluent("mallory"))
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=3.0)
    said = "no rule of security.ssl_principal_mapping_rules is for 'CN=mallory'"
    eventually(lambda: any(said in brokers.output(each) for each in (1, 2)), DEADLINE_S, "the log says so")
