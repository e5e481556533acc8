"""Unchanged clients against brokers with everything on: each mechanism over TLS, certificates, a short proof.

Kafka's own client (kafka-clients 3.9.1), confluent-kafka, kafka-python and aiokafka produce, read in a group,
and are refused in their own words. A proof holds for three seconds. What each does at a listener without
access lists is in tests/integration/test_sasl_kafka.py and test_tls_kafka.py.
Source: KIP-43, KIP-84, KIP-152, KIP-368.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AioError
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer

from tests.site.programs import write
from tests.support.certificates import Authority
from tests.support.java import JavaProgram
from tests.support.kafka_jars import kafka_java_command
from tests.support.nodes import eventually
from tests.support.secured_brokers import ADMIN, MECHANISMS, PASSWORDS, SecuredBrokers

PROGRAM = Path(__file__).with_name("java") / "SecuredClients.java"
DEADLINE_S = 30.0
REAUTH_MS = 3000
WAYS = (*MECHANISMS, "SSL")
# In a process of its own: a client that does not get in leaves its sockets to the collector.
REFUSED = """
import json, logging, sys
from kafka import KafkaProducer
logging.basicConfig()
KafkaProducer(**json.loads(sys.argv[1]), bootstrap_timeout_ms=1_000)
"""


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    sections = {"sasl": {"connections_max_reauth_ms": REAUTH_MS}}
    running = SecuredBrokers(Authority(tmp_path_factory.mktemp("pki") / "ours"), brokers=2, sections=sections)
    with running.cluster, running.cluster.shown():
        running.set_users()
        admin = AdminClient(running.confluent("SCRAM-SHA-512", ADMIN))
        admin.create_topics([NewTopic("shared", 2, 2)])["shared"].result(DEADLINE_S)
        rights = [
            (ResourceType.TOPIC, "shared", AclOperation.READ),
            (ResourceType.TOPIC, "shared", AclOperation.WRITE),
            (ResourceType.GROUP, "*", AclOperation.READ),
        ]
        entries = [
            AclBinding(
                kind, name, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
            )
            for kind, name, operation in rights
        ]
        for made in admin.create_acls(entries).values():
            made.result(DEADLINE_S)
        running.cluster.wait_in_sync("shared")
        yield running


# -- Kafka's own client --------------------------------------------------------------------------------------


def java(folder: Path, *files: Path, proofs: int = 0) -> dict[str, dict[str, Any]]:
    """Run clients with the settings of files, all at once; returns what each says, by the file's name."""
    command = [*kafka_java_command(PROGRAM, folder), "shared", str(proofs), *map(str, files)]
    with JavaProgram(command, folder) as program:
        assert program.wait_end(DEADLINE_S) == 0
        return {line["event"]: line for line in program.lines}


def test_kafkas_client_proves_itself_again(brokers: SecuredBrokers, tmp_path: Path) -> None:
    files = [brokers.java_file(tmp_path, way, "alice") for way in WAYS]
    found = java(tmp_path, *files, proofs=1)
    assert [line.get("error") for line in found.values()] == [None] * len(WAYS)
    for name, line in found.items():
        assert line["read"] == line["sent"] >= 1
        is_repeated = not name.startswith("SSL")
        assert (line["producer"] >= 1, line["consumer"] >= 1) == (is_repeated, is_repeated), name


def test_kafkas_client_says_why_it_is_refused(brokers: SecuredBrokers, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "theirs")
    strange, theirs = tmp_path / "trusts-another.properties", tmp_path / "signed-by-another.properties"
    own = brokers.java_file(tmp_path, "SSL", "alice").read_text()
    strange.write_text(own.replace(str(brokers.authority.file), str(stranger.file)))
    theirs.write_text(own.replace(str(brokers.authority.both("alice")), str(stranger.both("alice"))))
    wrong = [brokers.java_file(tmp_path, mechanism, "bob", "guess") for mechanism in MECHANISMS]
    found = java(tmp_path, brokers.java_file(tmp_path, "SSL", "bob"), *wrong, strange, theirs)
    said = {name: line["error"] for name, line in found.items()}
    assert "TopicAuthorizationException: Not authorized to access topics: [shared]" in said.pop("SSL-bob")
    assert "SslAuthenticationException: SSL handshake failed" in said["trusts-another"]
    assert "PKIX path validation failed" in said.pop("trusts-another")
    assert "SslAuthenticationException" in said.pop("signed-by-another")
    assert "Authentication failed: Invalid username or password" in said.pop("PLAIN-bob")
    for name, error in said.items():
        assert f"invalid credentials with SASL mechanism {name.removesuffix('-bob')}" in error


# -- clients of Python ---------------------------------------------------------------------------------------


def by_confluent_kafka(brokers: SecuredBrokers, way: str, name: str) -> None:
    settings = brokers.confluent(way, "alice")
    failed: list[object] = []
    producer = Producer(settings)
    producer.produce("shared", b"v", key=name, on_delivery=lambda error, _: failed.append(error))
    assert producer.flush(DEADLINE_S) == 0
    assert failed == [None]
    consumer = Consumer({**settings, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe(["shared"])
    eventually(lambda: name.encode() in [each.key() for each in consumer.consume(500, 0.2)], DEADLINE_S)
    consumer.close()


def by_kafka_python(brokers: SecuredBrokers, way: str, name: str) -> None:
    settings = brokers.python(way, "alice")
    producer = KafkaProducer(**settings)
    producer.send("shared", b"v", key=name.encode()).get(timeout=DEADLINE_S)
    producer.close()
    consumer = KafkaConsumer(
        "shared",
        **settings,
        group_id=name,
        auto_offset_reset="earliest",
        consumer_timeout_ms=DEADLINE_S * 1000,
    )
    assert any(each.key == name.encode() for each in consumer)
    consumer.close()


def by_aiokafka(brokers: SecuredBrokers, way: str, name: str) -> None:
    async def go() -> None:
        settings = of_aiokafka(brokers.python(way, "alice"))
        async with AIOKafkaProducer(**settings) as producer:
            await producer.send_and_wait("shared", b"v", key=name.encode())
        async with AIOKafkaConsumer(
            "shared", **settings, group_id=name, auto_offset_reset="earliest"
        ) as consumer:
            while (await consumer.getone()).key != name.encode():
                pass

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))


def of_aiokafka(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings of aiokafka, which are those of kafka-python but for files of TLS."""
    context = ssl.create_default_context(cafile=settings["ssl_cafile"])
    if "ssl_certfile" in settings:
        context.load_cert_chain(settings["ssl_certfile"], settings["ssl_keyfile"])
    kept = {name: value for name, value in settings.items() if not name.startswith("ssl_")}
    return {**kept, "ssl_context": context}


CLIENTS: dict[str, Callable[[SecuredBrokers, str, str], None]] = {
    "confluent-kafka": by_confluent_kafka,
    "kafka-python": by_kafka_python,
    "aiokafka": by_aiokafka,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("client", CLIENTS)
def test_a_client_produces_and_reads_in_a_group(brokers: SecuredBrokers, client: str, way: str) -> None:
    CLIENTS[client](brokers, way, f"{client}-{way}")


def refused(settings: dict[str, Any], caplog: pytest.LogCaptureFixture) -> tuple[str, str]:
    """Return what kafka-python and aiokafka log when they do not get in."""
    command = [sys.executable, "-W", "ignore", "-c", REFUSED, json.dumps(settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 1
    caplog.clear()

    async def go() -> None:
        producer = AIOKafkaProducer(**of_aiokafka(settings))
        try:
            with pytest.raises(AioError):
                await producer.start()
        finally:
            await producer.stop()

    asyncio.run(go())
    return done.stderr, caplog.text


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_named(
    brokers: SecuredBrokers, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    # kafka-python 3.0 drops an answer that comes together with the end of its connection.
    by_python, by_aiokafka = refused(brokers.python(mechanism, "alice", "guess"), caplog)
    assert "Unable to bootstrap" in by_python
    in_words = {"PLAIN": "Invalid username or password"}
    assert in_words.get(mechanism, f"invalid credentials with SASL mechanism {mechanism}") in by_aiokafka


def test_another_authority_is_named(
    brokers: SecuredBrokers, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger = Authority(tmp_path / "theirs")
    own = brokers.python("SSL", "alice")
    for said in refused({**own, "ssl_cafile": str(stranger.file)}, caplog):
        assert "certificate verify failed" in said
    certificate, key = map(str, stranger.issue("alice"))
    by_python, by_aiokafka = refused({**own, "ssl_certfile": certificate, "ssl_keyfile": key}, caplog)
    assert "tlsv1 alert unknown ca" in by_python
    assert "Unable connect to" in by_aiokafka


def test_clients_go_on_past_the_end_of_a_proof(brokers: SecuredBrokers) -> None:
    def late() -> int:
        return brokers.output().count("after its proof was out of date")

    before, ends_s = late(), time.monotonic() + 1.3 * REAUTH_MS / 1000
    settings = brokers.python("SCRAM-SHA-512", "alice")
    producer = KafkaProducer(**settings, retries=0, enable_idempotence=False)
    while time.monotonic() < ends_s:
        producer.send("shared", b"v").get(timeout=DEADLINE_S)
    producer.close()
    assert late() == before, "kafka-python proves itself again"

    async def go() -> None:
        async with AIOKafkaProducer(**of_aiokafka(settings)) as other:
            # It does not know KIP-368: its connections end, and it opens others.
            while late() == before:
                await other.send_and_wait("shared", b"v")

    asyncio.run(asyncio.wait_for(go(), DEADLINE_S))


# -- what docs/clients/kafka.md shows ------------------------------------------------------------------------


def test_the_page_for_clients_proves_a_user(brokers: SecuredBrokers, tmp_path: Path) -> None:
    (tmp_path / "pki").symlink_to(brokers.authority.folder)
    (tmp_path / "alice.password").write_text(PASSWORDS["alice"])
    shown = "broker-1.example:9094,broker-2.example:9094,broker-3.example:9094"
    addresses = {shown: brokers.bootstrap(), "pki/": f"{tmp_path}/pki/", "wonderland": PASSWORDS["alice"]}
    found = {each.name: each for each in write("docs/clients/kafka.md", tmp_path, addresses)}
    done = subprocess.run(
        [sys.executable, "secure.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, found["secure.py"].prints), done.stderr
    settings = tmp_path / "client.properties"
    settings.write_text(f"bootstrap.servers={brokers.bootstrap()}\n{settings.read_text('utf-8')}")
    said = java(tmp_path, settings)
    assert [line.get("error") for line in said.values()] == [None]
