"""SASL at brokers: unchanged Kafka clients prove whose they are, and have their user's rights."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.structs import TopicPartition as KafkaPartition
from kazoo.exceptions import NoAuthError

from quorum.cli.main import main
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_wire import BrokerLink
from tests.support.certificates import Authority
from tests.support.client_quotas import alter, described
from tests.support.nodes import eventually, hold_port

DEADLINE_S = 30.0
PASSWORDS = {"alice": "wonder, land=", "bob": "builder"}
SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")


class SaslBrokers:
    """One broker with a SASL port by TLS and another without, users, and access lists."""

    def __init__(self, authority: Authority, **sasl: object) -> None:
        self.authority = authority
        self.cluster = BrokerCluster(
            brokers=1,
            settings={
                "security": {
                    "authorizer_class_name": "AclAuthorizer",
                    "super_users": ["User:ANONYMOUS", "User:alice"],
                },
                "sasl": {"enabled_mechanisms": ["PLAIN", *SCRAM], **sasl},
            },
        )
        broker = self.cluster.brokers[1]
        self.ports: dict[str, int] = {}
        for protocol in ("SASL_SSL", "SASL_PLAINTEXT"):
            holder, self.ports[protocol] = hold_port()
            broker.holders.append(holder)
        listeners = [f"{protocol}://127.0.0.1:{port}" for protocol, port in self.ports.items()]
        broker.settings["listen"] = {"listeners": listeners}
        broker.settings["tls"] = authority.settings("broker-1")

    @property
    def output(self) -> str:
        return self.cluster.brokers[1].output_path.read_text()

    def users(self, *words: str, password: str = "", own: bool = True) -> int:
        """Run `quorate users`, with the brokers' secret or without."""
        options = ["--hosts", self.cluster.nodes.hosts]
        if own:
            options += ["--peer-secret", str(self.cluster.secret_path)]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
            return main(["users", *words, *options])

    def confluent(
        self, mechanism: str, user: str, *, protocol: str = "SASL_SSL", password: str = ""
    ) -> dict[str, Any]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self.ports[protocol]}",
            "security.protocol": protocol,
            "ssl.ca.location": str(self.authority.file),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password or PASSWORDS[user],
            "log_level": 0,
        }

    def python(
        self, mechanism: str, user: str, *, protocol: str = "SASL_SSL", password: str = ""
    ) -> dict[str, Any]:
        """Settings of kafka-python."""
        return {
            "bootstrap_servers": f"127.0.0.1:{self.ports[protocol]}",
            "security_protocol": protocol,
            "ssl_cafile": str(self.authority.file),
            "sasl_mechanism": mechanism,
            "sasl_plain_username": user,
            "sasl_plain_password": password or PASSWORDS[user],
        }


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBrokers]:
    running = SaslBrokers(Authority(tmp_path_factory.mktemp("pki") / "ours"))
    with running.cluster:
        for user, password in PASSWORDS.items():
            assert running.users("set", user, password=password) == 0
        yield running


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_our_own_commands_prove_their_user(
    brokers: SaslBrokers, tmp_path: Path, capsys: pytest.CaptureFixture[str], mechanism: str
) -> None:
    file = tmp_path / "password"
    file.touch(mode=0o600)
    file.write_text(PASSWORDS["alice"])
    dialled = ["--bootstrap", f"127.0.0.1:{brokers.ports['SASL_SSL']}", "--ca", str(brokers.authority.file)]
    proof = ["--sasl", "alice", "--password-file", str(file), "--mechanism", mechanism]
    assert main(["topics", "create", f"own-{mechanism}", *dialled, *proof]) == 0
    assert main(["groups", "list", *dialled, *proof]) == 0
    file.write_text("wrong")
    capsys.readouterr()
    assert main(["topics", "list", *dialled, *proof]) == 1
    told = capsys.readouterr().err
    assert "SASL_AUTHENTICATION_FAILED" in told
    assert "quorate users list" in told


WAYS = [
    ("PLAIN", "SASL_SSL"),
    *((mechanism, protocol) for mechanism in SCRAM for protocol in ("SASL_SSL", "SASL_PLAINTEXT")),
]


def test_doctor_proves_its_user(
    brokers: SaslBrokers,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It comes to the SASL listeners by itself, by TLS and without, and sees what its user may see."""
    topic = "doctored"
    bootstrap = brokers.cluster.bootstrap
    assert main(["topics", "create", topic, "--bootstrap", bootstrap]) == 0
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for _ in range(5):
        producer.produce(topic, b"x", partition=0)
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "billing", "log_level": 0})
    consumer.commit(offsets=[TopicPartition(topic, 0, 2)], asynchronous=False)
    consumer.close()
    for user, password in {**PASSWORDS, "wrong": "another"}.items():
        file = tmp_path / user
        file.touch(mode=0o600)
        file.write_text(f"{password}\n")

    def doctor(user: str, *words: str, password: str = "") -> Any:
        capsys.readouterr()
        file = tmp_path / (password or user)
        admin = ("--admin", brokers.cluster.nodes.admin_url(1))
        sasl = ("--sasl", user, "--password-file", str(file)) if user else ()
        main(["doctor", "--json", "--lag-max", "2", *admin, *sasl, *words])
        found = json.loads(capsys.readouterr().out)
        whats = [each["what"] for each in found["findings"] if each["check"] == "group-lag"]
        reasons = [each["reason"] for each in found["checks"] if each["check"] == "group-lag"]
        return whats[0] if whats else reasons[0]

    tls = ("--ca", str(brokers.authority.file))
    behind = "group billing is 3 records behind"
    for mechanism in SCRAM:
        assert doctor("alice", "--mechanism", mechanism, *tls) == behind
    assert doctor("alice") == behind, "SASL_PLAINTEXT"
    assert doctor("bob", *tls) == f"brokers do not show topic {topic} to user bob"
    refused = doctor("alice", *tls, password="wrong")
    assert refused.startswith("brokers do not tell where logs end: ")
    assert "SASL_AUTHENTICATION_FAILED" in refused
    profiles = tmp_path / "profiles.toml"
    profiles.touch(mode=0o600)
    profiles.write_text(f'[safe]\nca = "{tls[1]}"\nkafka_sasl = "alice"\nkafka_password_file = "alice"\n')
    monkeypatch.setenv("QUORATE_PROFILE_FILE", str(profiles))
    monkeypatch.setenv("QUORATE_PROFILE", "safe")
    assert doctor("") == behind
    monkeypatch.delenv("QUORATE_PROFILE")
    assert main(["doctor", "--sasl", "alice"]) == 2
    assert "--password-file" in capsys.readouterr().err
    assert main(["groups", "delete", "billing", "--bootstrap", bootstrap]) == 0
    assert main(["topics", "delete", topic, "--bootstrap", bootstrap]) == 0


@pytest.mark.parametrize(("mechanism", "protocol"), WAYS)
def test_confluent_kafka_proves_its_user(brokers: SaslBrokers, mechanism: str, protocol: str) -> None:
    client = brokers.confluent(mechanism, "alice", protocol=protocol)
    topic = f"confluent-{mechanism}-{protocol}"
    admin = AdminClient(client)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    found = {(str(each.host), each.port) for each in admin.list_topics(timeout=DEADLINE_S).brokers.values()}
    assert found == {("127.0.0.1", brokers.ports[protocol])}
    assert outcome(client, topic) == 0
    consumer = Consumer({**client, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(DEADLINE_S)
    assert message is not None
    assert message.value() == b"v"
    consumer.close()


@pytest.mark.parametrize(("mechanism", "protocol"), WAYS)
def test_kafka_python_proves_its_user(brokers: SaslBrokers, mechanism: str, protocol: str) -> None:
    client = brokers.python(mechanism, "alice", protocol=protocol)
    topic = f"python-{mechanism}-{protocol}"
    admin = AdminClient({"bootstrap.servers": brokers.cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    producer = KafkaProducer(**client)
    assert producer.send(topic, b"one").get(timeout=DEADLINE_S).offset == 0
    producer.close()
    consumer = KafkaConsumer(**client, consumer_timeout_ms=DEADLINE_S * 1000)
    consumer.assign([KafkaPartition(topic, 0)])
    consumer.seek_to_beginning()
    assert next(consumer).value == b"one"
    consumer.close()


def outcome(settings: dict[str, Any], topic: str) -> int | None:
    """Return the code of a record that is sent: 0 if it is taken, None while nobody answers."""
    codes: list[int] = []
    producer = Producer({**settings, "message.timeout.ms": 5_000})
    producer.produce(topic, b"v", on_delivery=lambda error, _: codes.append(error.code() if error else 0))
    producer.flush(DEADLINE_S)
    return codes[0] if codes else None


def refusal(settings: dict[str, Any]) -> KafkaError | None:
    """Return why a client does not get in; None: it does."""
    errors: list[KafkaError] = []
    producer = Producer({**settings, "error_cb": errors.append})
    refused = KafkaError._AUTHENTICATION
    try:
        eventually(
            lambda: producer.poll(0.1) is None or any(each.code() == refused for each in errors), DEADLINE_S
        )
    finally:
        producer.purge()
    return next((each for each in errors if each.code() == refused), None)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAM])
def test_wrong_passwords_and_unknown_users_read_the_same(brokers: SaslBrokers, mechanism: str) -> None:
    wrong = refusal(brokers.confluent(mechanism, "alice", password="wrong"))
    unknown = refusal(brokers.confluent(mechanism, "mallory", password="wrong"))
    assert wrong is not None
    assert unknown is not None
    assert wrong.str().replace("SASL_SSL", "").count("nvalid") == 1
    assert "authentication failed" in brokers.output


def test_plain_is_not_offered_without_tls(brokers: SaslBrokers) -> None:
    found = refusal(brokers.confluent("PLAIN", "alice", protocol="SASL_PLAINTEXT"))
    assert found is not None
    assert "PLAIN" in found.str()


def test_a_user_has_its_own_rights_alone(brokers: SaslBrokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.cluster.bootstrap})
    admin.create_topics([NewTopic("rights", 1, 1)])["rights"].result(DEADLINE_S)
    assert outcome(brokers.confluent("SCRAM-SHA-256", "alice"), "rights") == 0
    bob = brokers.confluent("SCRAM-SHA-256", "bob")
    assert outcome(bob, "rights") == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_the_command_keeps_users(brokers: SaslBrokers, capsys: pytest.CaptureFixture[str]) -> None:
    carol = brokers.confluent("SCRAM-SHA-512", "carol", password="first")
    assert brokers.users("set", "carol", "--mechanism", "SCRAM-SHA-512", password="first") == 0
    admin = AdminClient({"bootstrap.servers": brokers.cluster.bootstrap})
    admin.create_topics([NewTopic("kept", 1, 1)])["kept"].result(DEADLINE_S)
    eventually(lambda: outcome(carol, "kept") == KafkaError.TOPIC_AUTHORIZATION_FAILED, DEADLINE_S)
    assert refusal(brokers.confluent("SCRAM-SHA-256", "carol", password="first")) is not None
    assert brokers.users("set", "carol", password="second") == 0
    assert refusal(carol) is not None
    capsys.readouterr()
    assert brokers.users("list", "--json") == 0
    rows = {each["user"]: each for each in json.loads(capsys.readouterr().out)}
    assert rows["carol"]["mechanisms"] == list(SCRAM)
    assert rows["carol"]["iterations"] == 8192
    assert brokers.users("delete", "carol") == 0
    assert refusal(brokers.confluent("PLAIN", "carol", password="second")) is not None
    assert brokers.users("delete", "carol") == 2
    assert brokers.users("set", "carol", "--iterations", "4095", password="x") == 2
    assert brokers.users("set", "carol", password="") == 2


def test_nobody_but_brokers_reads_what_is_kept(
    brokers: SaslBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    zookeeper = brokers.cluster.zookeeper
    with pytest.raises(NoAuthError):
        zookeeper.get("/config/users/alice")
    # Without the secret a user is added, too, and is the brokers' own from the beginning.
    for password in ("first", "second"):
        assert brokers.users("set", "dave", password=password, own=password == "second") == 0
        with pytest.raises(NoAuthError):
            zookeeper.get("/config/users/dave")
        dave = brokers.confluent("PLAIN", "dave", password=password)
        eventually(lambda: len(AdminClient(dave).list_topics(timeout=DEADLINE_S).brokers) == 1, DEADLINE_S)  # noqa: B023
    capsys.readouterr()
    assert brokers.users("list", own=False) == 0
    assert "dave  ?" in capsys.readouterr().out
    for words in (("set", "dave"), ("delete", "dave")):
        assert brokers.users(*words, password="x", own=False) == 2
        told = capsys.readouterr().err
        assert "the users are for the brokers alone\nremedy: give --peer-secret FILE" in told
    assert brokers.users("delete", "dave") == 0


def test_a_znode_that_cannot_be_read_hides_no_other_user(
    brokers: SaslBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    zookeeper = brokers.cluster.zookeeper
    zookeeper.create("/config/users/eve", b"a")
    try:
        capsys.readouterr()
        assert brokers.users("list", "--json") == 1
        told = capsys.readouterr()
        assert {"alice", "bob"} <= {each["user"] for each in json.loads(told.out)}
        assert told.err == (
            "eve is left out: /config/users/eve holds another thing, expected Kafka's settings of a user; "
            "correct or delete /config/users/eve\n"
        )
    finally:
        zookeeper.delete("/config/users/eve")


def test_without_protected_znodes_everybody_makes_users_and_the_broker_warns(brokers: SaslBrokers) -> None:
    zookeeper = brokers.cluster.zookeeper
    assert brokers.users("set", "victim", password="true") == 0
    zookeeper.delete("/config/users/victim")
    assert brokers.users("set", "victim", password="stolen", own=False) == 0
    stolen = AdminClient(brokers.confluent("PLAIN", "victim", password="stolen"))
    eventually(lambda: len(stolen.list_topics(timeout=DEADLINE_S).brokers) == 1, DEADLINE_S)
    zookeeper.delete("/config/users/victim")
    assert brokers.output.count("security.protect_znodes is false, so whoever reaches") == 1


def test_passwords_come_and_go_without_quotas(brokers: SaslBrokers) -> None:
    def quotas() -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
        with BrokerLink(brokers.cluster.bootstrap) as link:
            return described(link)

    wanted = {
        (("user", "erin"),): {"producer_byte_rate": 5000.0},
        (("user", "erin"), ("client-id", "app")): {"consumer_byte_rate": 6000.0},
    }
    assert brokers.users("set", "erin", password="first") == 0
    with BrokerLink(brokers.cluster.bootstrap) as link:
        for parts, values in wanted.items():
            assert alter(link, [{"entity_type": kind, "entity_name": name} for kind, name in parts], values)
    assert brokers.users("set", "erin", password="second") == 0
    erin = AdminClient(brokers.confluent("PLAIN", "erin", password="second"))
    eventually(lambda: len(erin.list_topics(timeout=DEADLINE_S).brokers) == 1, DEADLINE_S)
    assert quotas() == wanted
    assert brokers.users("delete", "erin") == 0
    assert brokers.users("delete", "erin") == 2
    assert quotas() == wanted
    with pytest.raises(NoAuthError):
        brokers.cluster.zookeeper.get("/config/users/erin/clients/app")


def test_scram_requests_follow_kafkas_rules(brokers: SaslBrokers) -> None:
    admin = AdminClient({"bootstrap.servers": brokers.cluster.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 8192)

    def altered(*changes: UserScramCredentialAlteration) -> int:
        (found,) = admin.alter_user_scram_credentials(list(changes)).values()
        try:
            found.result(DEADLINE_S)
        except KafkaException as error:
            return int(error.args[0].code())
        return 0

    upsertion = UserScramCredentialUpsertion("erin", info, b"secret", b"salt")
    assert altered(upsertion) == 0
    weak = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4095)
    assert altered(UserScramCredentialUpsertion("erin", weak, b"secret", b"salt")) == 93
    assert altered(UserScramCredentialDeletion("erin", ScramMechanism.SCRAM_SHA_512)) == 91
    assert altered(upsertion, upsertion) == 92
    found = admin.describe_user_scram_credentials(["erin", "nobody"])
    assert isinstance(found, dict)
    (described,) = found["erin"].result(DEADLINE_S).scram_credential_infos
    assert (described.mechanism, described.iterations) == (ScramMechanism.SCRAM_SHA_256, 8192)
    with pytest.raises(KafkaException) as unknown:
        found["nobody"].result(DEADLINE_S)
    assert unknown.value.args[0].code() == 91
    erin = brokers.confluent("SCRAM-SHA-256", "erin", password="secret")
    hers = AdminClient(erin)
    assert len(hers.list_topics(timeout=DEADLINE_S).brokers) == 1
    with pytest.raises(KafkaException) as refused:
        hers.alter_user_scram_credentials([upsertion])["erin"].result(DEADLINE_S)
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    assert altered(UserScramCredentialDeletion("erin", ScramMechanism.SCRAM_SHA_256)) == 0
    assert refusal(erin) is not None


def test_proofs_are_repeated_until_the_user_is_gone(tmp_path_factory: pytest.TempPathFactory) -> None:
    running = SaslBrokers(Authority(tmp_path_factory.mktemp("pki") / "ours"), connections_max_reauth_ms=1000)
    with running.cluster:
        assert running.users("set", "alice", password=PASSWORDS["alice"]) == 0
        errors: list[KafkaError] = []
        client = running.confluent("SCRAM-SHA-256", "alice", protocol="SASL_PLAINTEXT")
        producer = Producer({**client, "error_cb": errors.append, "retries": 0})
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(DEADLINE_S)
        ends_s = time.monotonic() + 4.0
        failed: list[object] = []

        def produce() -> None:
            producer.produce("t", b"v", on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.flush(DEADLINE_S)

        while time.monotonic() < ends_s:
            produce()
        assert (failed, errors) == ([], [])
        assert running.users("delete", "alice") == 0
        refused = KafkaError._AUTHENTICATION
        eventually(
            lambda: producer.poll(0.1) is not None and any(each.code() == refused for each in errors),
            DEADLINE_S,
        )
        producer.purge()
