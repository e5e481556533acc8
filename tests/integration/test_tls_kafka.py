"""TLS at brokers: unchanged Kafka clients, other brokers, the quorum, and certificates that change."""

from __future__ import annotations

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as KafkaPartition

from quorum.cli.main import main
from tests.support.broker_cluster import BrokerCluster
from tests.support.certificates import Authority
from tests.support.nodes import eventually, hold_port
from tests.support.secure_nodes import SecureNodes

WAIT_S = 30.0
SUPER_USERS = ["User:CN=broker-1", "User:CN=broker-2"]


class SecureBrokers:
    """Two brokers that speak TLS wherever they can; their plain client ports serve as well."""

    def __init__(self, authority: Authority, client_auth: str, **security: object) -> None:
        self.authority = authority
        self.nodes = SecureNodes(authority)
        self.cluster = BrokerCluster(
            brokers=2,
            quorum=self.nodes,
            settings={
                "broker": {"auto_create_topics": True, "default_replication_factor": 2},
                "quorum": {"hosts": self.nodes.secure_hosts.split(","), "ssl": True},
                "security": {"inter_broker_protocol": "ssl", "super_users": SUPER_USERS, **security},
                "tls.ssl": {"client_auth": client_auth},
            },
        )
        self.ports: dict[int, int] = {}
        for broker_id, broker in self.cluster.brokers.items():
            holder, self.ports[broker_id] = hold_port()
            broker.holders.append(holder)
            broker.settings["listen"] = {"listeners": [f"SSL://127.0.0.1:{self.ports[broker_id]}"]}
            broker.settings["tls"] = authority.settings(f"broker-{broker_id}")

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())

    def confluent(self, name: str = "", authority: Authority | None = None) -> dict[str, Any]:
        """Settings of librdkafka, with the certificate of that name, or none."""
        found: dict[str, Any] = {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "ssl",
            "ssl.ca.location": str((authority or self.authority).file),
            "log_level": 0,
        }
        if name:
            certificate, key = self.authority.issue(name)
            found |= {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
        return found

    def python(self, name: str = "") -> dict[str, Any]:
        """Settings of kafka-python."""
        found: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SSL",
            "ssl_cafile": str(self.authority.file),
        }
        if name:
            certificate, key = self.authority.issue(name)
            found |= {"ssl_certfile": str(certificate), "ssl_keyfile": str(key)}
        return found

    def output(self, broker_id: int = 1) -> str:
        return self.cluster.brokers[broker_id].output_path.read_text()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("pki") / "ours")


@pytest.fixture(scope="module", params=[pytest.param("none", marks=pytest.mark.long), "need"])
def brokers(request: pytest.FixtureRequest, authority: Authority) -> Iterator[SecureBrokers]:
    running = SecureBrokers(authority, request.param)
    with running.cluster:
        yield running


def own_name(brokers: SecureBrokers) -> str:
    """Return whose certificate clients show, or "" where they need none."""
    settings = brokers.cluster.config(brokers.cluster.brokers[1])
    return "alice" if settings["tls.ssl"]["client_auth"] == "need" else ""


def test_confluent_kafka_speaks_tls_to_the_leaders(brokers: SecureBrokers) -> None:
    client = brokers.confluent(own_name(brokers))
    admin = AdminClient(client)
    (made,) = admin.create_topics([NewTopic("confluent", 4, 2)]).values()
    made.result(WAIT_S)
    # Who asks by TLS is sent to the TLS listeners, who asks plain to the plain ones.
    found = {(str(each.host), each.port) for each in admin.list_topics(timeout=WAIT_S).brokers.values()}
    assert found == {("127.0.0.1", port) for port in brokers.ports.values()}
    plain = AdminClient({"bootstrap.servers": brokers.cluster.bootstrap})
    found = {(str(each.host), each.port) for each in plain.list_topics(timeout=WAIT_S).brokers.values()}
    assert found == {("127.0.0.1", each.client_port) for each in brokers.cluster.brokers.values()}
    producer = Producer(client)
    failed: list[object] = []
    for number in range(400):
        producer.produce(
            "confluent",
            b"%d" % number,
            partition=number % 4,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
    assert producer.flush(WAIT_S) == 0
    assert failed == []
    consumer = Consumer({**client, "group.id": "tls", "auto.offset.reset": "earliest"})
    consumer.subscribe(["confluent"])
    values: set[int] = set()

    def all_read() -> bool:
        values.update(int(each.value() or b"") for each in consumer.consume(500, 1.0) if each.error() is None)
        return len(values) == 400

    eventually(all_read, WAIT_S)
    consumer.close()


def test_kafka_python_speaks_tls(brokers: SecureBrokers) -> None:
    client = brokers.python(own_name(brokers))
    producer = KafkaProducer(**client)
    assert producer.send("python", b"one").get(timeout=WAIT_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(**client, consumer_timeout_ms=WAIT_S * 1000)
    consumer.assign([KafkaPartition("python", 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"one"
    consumer.close()


def test_our_commands_speak_tls(brokers: SecureBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    certificate, key = brokers.authority.issue("operator")
    options = ["--ca", str(brokers.authority.file), "--cert", str(certificate), "--key", str(key)]
    assert main(["topics", "create", "ours", "--bootstrap", brokers.bootstrap, *options]) == 0
    assert main(["topics", "list", "--bootstrap", brokers.bootstrap, *options]) == 0
    assert "ours" in capsys.readouterr().out
    assert main(["topics", "list", "--bootstrap", brokers.bootstrap]) == 1
    assert "a port that speaks TLS needs --ca" in capsys.readouterr().err
    other = ["--ca", str(certificate)]
    assert main(["topics", "list", "--bootstrap", brokers.bootstrap, *other]) == 1
    assert "name who signed its certificate" in capsys.readouterr().err
    words = ["get", "/brokers/ids/1"]
    assert main(["shell", "--hosts", brokers.nodes.secure_hosts, *options, *words]) == 0
    assert f"SSL://127.0.0.1:{brokers.ports[1]}" in capsys.readouterr().out


def is_dropped(port: int, context: ssl.SSLContext) -> bool:
    """Tell whether a port ends the connection of a client that says nothing."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as bare:
        try:
            with context.wrap_socket(bare, server_hostname="127.0.0.1") as secure:
                return secure.recv(1) == b""
        except (ssl.SSLError, ConnectionError):
            return True


def test_what_is_no_tls_and_what_is_is_named_at_each_port(brokers: SecureBrokers) -> None:
    with socket.create_connection(("127.0.0.1", brokers.ports[1]), timeout=WAIT_S) as bare:
        bare.sendall(bytes((0, 0, 0, 10)))
        with pytest.raises((ConnectionError, AssertionError)):
            assert bare.recv(1)
    eventually(lambda: "on the ssl port: it speaks no TLS" in brokers.output(), WAIT_S)
    with (
        socket.create_connection(("127.0.0.1", brokers.cluster.brokers[1].client_port)) as bare,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        brokers.authority.context().wrap_socket(bare, server_hostname="127.0.0.1")
    eventually(lambda: "it speaks TLS, and this port is plain" in brokers.output(), WAIT_S)


def test_another_authority_is_refused_by_both_sides(
    brokers: SecureBrokers, tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path / "theirs")
    with pytest.raises(KafkaException):
        AdminClient(brokers.confluent(own_name(brokers), stranger)).list_topics(timeout=3.0)
    mallory = authority.context()
    mallory.load_cert_chain(*stranger.issue("mallory"))
    assert is_dropped(brokers.cluster.brokers[1].broker_port, mallory)
    eventually(lambda: "on the broker port: its certificate is refused" in brokers.output(), WAIT_S)


def test_who_is_no_super_user_is_no_broker(brokers: SecureBrokers, authority: Authority) -> None:
    assert is_dropped(brokers.cluster.brokers[1].broker_port, authority.context("alice"))
    eventually(lambda: "User:CN=alice is not in security.super_users" in brokers.output(), WAIT_S)


def test_new_certificates_under_load_lose_nothing(brokers: SecureBrokers) -> None:
    client = brokers.confluent(own_name(brokers))
    producer = Producer({**client, "acks": "all", "linger.ms": 5, "retries": 0})
    failed: list[object] = []
    count = 0

    def produce() -> bool:
        nonlocal count
        for _ in range(50):
            producer.produce(
                "load", b"%d" % count, on_delivery=lambda error, _: failed.append(error) if error else None
            )
            count += 1
        producer.flush(WAIT_S)
        return True

    def serial(port: int) -> str:
        context = brokers.authority.context("alice")
        with (
            socket.create_connection(("127.0.0.1", port)) as bare,
            context.wrap_socket(bare, server_hostname="127.0.0.1") as secure,
        ):
            return str((secure.getpeercert() or {})["serialNumber"])

    def renewed(before: str) -> bool:
        return produce() and serial(brokers.ports[1]) != before

    admin = AdminClient(client)
    admin.create_topics([NewTopic("load", 1, 2)])["load"].result(WAIT_S)
    eventually(produce, WAIT_S)
    failed.clear()
    begun, opened = count, producer.list_topics("load", timeout=WAIT_S)
    assert len(opened.brokers) == 2
    for _ in range(3):
        before = serial(brokers.ports[1])
        for broker_id, broker in brokers.cluster.brokers.items():
            brokers.authority.issue(f"broker-{broker_id}")
            assert broker.process is not None
            os.kill(broker.process.pid, signal.SIGHUP)
        brokers.authority.issue("nodes")
        brokers.nodes.reload()
        eventually(partial(renewed, before), WAIT_S)
    assert failed == []
    assert count > begun
    consumer = Consumer({**client, "group.id": "load"})
    low, high = consumer.get_watermark_offsets(TopicPartition("load", 0), timeout=WAIT_S)
    consumer.close()
    assert (low, high) == (0, count)
