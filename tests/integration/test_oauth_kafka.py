"""OAUTHBEARER at a broker: unchanged Kafka clients prove themselves by tokens, as long as these last."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.structs import TopicPartition

from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_wire import BrokerLink
from tests.support.certificates import Authority
from tests.support.nodes import eventually, hold_port
from tests.support.tokens import AUDIENCE, ISSUER, Issuer

DEADLINE_S = 30.0


class TokenBrokers:
    """One broker that takes tokens on a SASL port by TLS and on one without, and access lists."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder / "pki")
        self.issuer = Issuer(folder / "keys.json")
        self.cluster = BrokerCluster(
            brokers=1,
            settings={
                "security": {"authorizer_class_name": "AclAuthorizer", "super_users": ["User:alice"]},
                "sasl": {
                    "enabled_mechanisms": ["OAUTHBEARER"],
                    "plain_without_tls": True,
                    "oauthbearer_jwks_endpoint_url": self.issuer.url,
                    "oauthbearer_expected_audience": [AUDIENCE],
                    "oauthbearer_expected_issuer": ISSUER,
                },
                "tls": self.authority.settings("broker-1"),
            },
        )
        broker = self.cluster.brokers[1]
        self.ports: dict[str, int] = {}
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
            holder, self.ports[protocol] = hold_port()
            broker.holders.append(holder)
        broker.settings["listen"] = {
            "listeners": [f"{protocol}://127.0.0.1:{port}" for protocol, port in self.ports.items()]
        }

    @property
    def output(self) -> str:
        return self.cluster.brokers[1].output_path.read_text()

    def confluent(self, name: str, *, lasts_s: float = 300.0) -> dict[str, Any]:
        """Settings of librdkafka, whose token lasts that long and is made anew after half of it."""

        def fetch(_config: str) -> tuple[str, float]:
            now_s = time.time()
            return self.issuer.token(name, exp=now_s + lasts_s), now_s + lasts_s / 2

        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports['SASL_SSL']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": fetch,
            "log_level": 0,
        }

    def link(self) -> BrokerLink:
        """A connection to the port without TLS, after the handshake of SASL."""
        link = BrokerLink(f"127.0.0.1:{self.ports['SASL_PLAINTEXT']}")
        self.shake(link)
        return link

    @staticmethod
    def shake(link: BrokerLink) -> None:
        answer = link.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "OAUTHBEARER"})
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.NONE, ("OAUTHBEARER",))

    def prove(self, link: BrokerLink, token: str) -> Any:
        """Send a token; returns the answer."""
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        return link.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": message})


class Provider(AbstractTokenProvider):  # type: ignore[misc]
    """Tokens for kafka-python."""

    def __init__(self, issuer: Issuer, name: str) -> None:
        self._issuer = issuer
        self._name = name

    def token(self) -> str:
        return self._issuer.token(self._name, kid="ec")


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TokenBrokers]:
    running = TokenBrokers(tmp_path_factory.mktemp("oauth"))
    with running.cluster:
        yield running


def metadata(link: BrokerLink) -> Any:
    return link.ask(ApiKey.METADATA, 1, {"topics": None})


def test_confluent_kafka_proves_itself_by_tokens_that_end(brokers: TokenBrokers) -> None:
    client = brokers.confluent("alice", lasts_s=4.0)
    admin = AdminClient(client)
    eventually(lambda: admin.poll(0.1) is not None, DEADLINE_S)
    admin.create_topics([NewTopic("tokens", 1, 1)])["tokens"].result(DEADLINE_S)
    errors: list[KafkaError] = []
    failed: list[object] = []
    producer = Producer({**client, "error_cb": errors.append, "retries": 0})
    ends_s = time.monotonic() + 6.0
    count = 0
    while time.monotonic() < ends_s:
        producer.produce("tokens", b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(DEADLINE_S) == 0
        count += 1
    assert (failed, errors) == ([], [])
    consumer = Consumer({**brokers.confluent("alice"), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["tokens"])
    assert len(consumer.consume(count, DEADLINE_S)) == count
    consumer.close()


def test_kafka_python_proves_itself_by_a_token(brokers: TokenBrokers) -> None:
    settings = {
        "bootstrap_servers": f"127.0.0.1:{brokers.ports['SASL_SSL']}",
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(brokers.authority.file),
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": Provider(brokers.issuer, "alice"),
    }
    admin = AdminClient(brokers.confluent("alice"))
    admin.create_topics([NewTopic("python", 1, 1)])["python"].result(DEADLINE_S)
    producer = KafkaProducer(**settings)
    producer.send("python", b"value").get(DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(auto_offset_reset="earliest", **settings)
    consumer.assign([TopicPartition("python", 0)])
    assert next(iter(consumer)).value == b"value"
    consumer.close()


def test_a_token_has_its_users_rights(brokers: TokenBrokers) -> None:
    bob = AdminClient(brokers.confluent("bob"))
    refused = bob.create_topics([NewTopic("of-bob", 1, 1)])["of-bob"].exception(DEADLINE_S)
    assert refused is not None
    assert refused.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_bad_token_is_told_and_then_refused(brokers: TokenBrokers) -> None:
    with brokers.link() as link:
        answer = brokers.prove(link, brokers.issuer.token(aud="others"))
        assert answer.error_code == ErrorCode.NONE
        assert json.loads(answer.auth_bytes) == {"status": "invalid_token"}
        answer = link.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\x01"})
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "the token is refused: it is for another audience (sasl.oauthbearer_expected_audience) "
            "(get another token)"
        )
        assert link.closed_by_broker()
    eventually(lambda: "the token is refused: it is for another audience" in brokers.output, DEADLINE_S)


def test_nothing_is_served_after_the_end_of_a_token(brokers: TokenBrokers) -> None:
    with brokers.link() as link:
        answer = brokers.prove(link, brokers.issuer.token(exp=time.time() + 1.5))
        lifetime_ms = answer.session_lifetime.total_seconds() * 1000
        assert 0 < lifetime_ms <= 1500
        assert metadata(link).topics is not None

        def ended() -> bool:
            try:
                metadata(link)
            except (ConnectionError, EOFError):
                return True
            return False

        eventually(ended, DEADLINE_S)
    eventually(lambda: "or the exp of a token" in brokers.output, DEADLINE_S)


def test_another_token_prolongs_a_connection_for_the_same_user_alone(brokers: TokenBrokers) -> None:
    with brokers.link() as link:
        assert brokers.prove(link, brokers.issuer.token()).auth_bytes == b""
        brokers.shake(link)
        assert brokers.prove(link, brokers.issuer.token(kid="ec")).error_code == ErrorCode.NONE
        assert metadata(link).topics is not None
        brokers.shake(link)
        answer = brokers.prove(link, brokers.issuer.token("mallory"))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert link.closed_by_broker()
    # No token is in the log, or a part of one.
    assert "eyJ" not in brokers.output
