"""Kafka 3.9.1's own tools, unchanged, by SASL_SSL against brokers with access lists and one super user.

They run one after the other in one virtual machine. `AclCommand --authorizer-properties` writes znodes past
the brokers, by TLS with a certificate.
Source: AclCommand, ConfigCommand, TopicCommand, ConsoleProducer, ConsoleConsumer, ConsumerGroupCommand,
TransactionsCommand (Kafka 3.9); KIP-664.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.wire.apis import ApiKey
from tests.support.broker_wire import ask, record_batch
from tests.support.certificates import Authority
from tests.support.kafka_tools import KafkaTools
from tests.support.nodes import eventually
from tests.support.secured_brokers import ADMIN, SecuredBrokers

ACLS = "kafka.admin.AclCommand"
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
WAIT_S = 60.0


class SecuredTools(KafkaTools):
    """Runs the tools as one user or another."""

    def __init__(self, brokers: SecuredBrokers, folder: Path) -> None:
        super().__init__(brokers.bootstrap(), folder)
        self._brokers = brokers

    def by(
        self, user: str, name: str, *words: str, code: int = 0, given: str = "", password: str = ""
    ) -> str:
        """Run a tool as a user; the producer says after each record whether it was taken."""
        words = ("--sync", *words) if name == PRODUCER else words
        option = {PRODUCER: "--producer.config", CONSUMER: "--consumer.config"}.get(name, "--command-config")
        path = self._brokers.java_file(self.folder, "SCRAM-SHA-512", user, password)
        return self.run(name, option, str(path), *words, code=code, given=given)

    def acl(self, action: str, *words: str) -> str:
        """Change access lists as the super user."""
        return self.by(ADMIN, ACLS, action, *words, *(["--force"] if action == "--remove" else []))

    def consumed(self, user: str, topic: str, group: str, *words: str, code: int = 0) -> str:
        """Read a topic from its start; ends after a record, or some seconds without one."""
        limits = "--max-messages", "1", "--timeout-ms", "20000", "--from-beginning"
        return self.by(user, CONSUMER, "--topic", topic, "--group", group, *limits, *words, code=code)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBrokers]:
    # A transaction that no coordinator knows can only be made without it.
    sections = {"transactions": {"transaction_partition_verification_enable": False}}
    running = SecuredBrokers(Authority(tmp_path_factory.mktemp("pki") / "ours"), sections=sections)
    with running.cluster, running.cluster.shown():
        running.set_users()
        yield running


@pytest.fixture(scope="module")
def tools(brokers: SecuredBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredTools]:
    running = SecuredTools(brokers, tmp_path_factory.mktemp("kafka"))
    yield running
    running.close()


def test_rights_come_and_go_by_kafka_acls(tools: SecuredTools) -> None:
    tools.by(ADMIN, TOPICS, "--create", "--topic", "orders")
    assert "Topic authorization failed." in tools.by("alice", TOPICS, "--create", "--topic", "mine", code=1)
    assert tools.by("alice", TOPICS, "--list").strip() == ""
    not_authorized = "TopicAuthorizationException: Not authorized to access topics: [orders]"
    assert not_authorized in tools.by("alice", PRODUCER, "--topic", "orders", given="no\n", code=1)
    tools.acl("--add", "--allow-principal", "User:alice", "--producer", "--topic", "orders")
    prefixed = "--topic", "ord", "--group", "g", "--resource-pattern-type", "prefixed"
    tools.acl("--add", "--allow-principal", "User:bob", "--consumer", *prefixed)
    assert tools.by("alice", PRODUCER, "--topic", "orders", given="one\n").strip() == ""
    assert tools.consumed("bob", "orders", "group").split()[0] == "one"
    said = tools.by("bob", GROUPS, "--describe", "--group", "group")
    assert said.strip().splitlines()[-1].split()[:6] == ["group", "orders", "0", "1", "1", "0"]
    assert "GroupAuthorizationException" in tools.by("bob", GROUPS, "--describe", "--group", "other")
    listed = tools.acl("--list", "--topic", "orders", "--resource-pattern-type", "match")
    assert "name=ord, patternType=PREFIXED" in listed
    assert "principal=User:alice, host=*, operation=WRITE, permissionType=ALLOW" in listed
    # A denial wins, and goes.
    denial = "--deny-principal", "User:bob", "--operation", "Read", "--topic", "orders"
    tools.acl("--add", *denial)
    assert not_authorized in tools.consumed("bob", "orders", "group-2")
    tools.acl("--remove", *denial)
    assert tools.consumed("bob", "orders", "group-3").split()[0] == "one"


def test_who_may_not_change_lists_is_refused_by_name(tools: SecuredTools) -> None:
    words = "--allow-principal", "User:bob", "--operation", "All", "--topic", "x"
    assert "ClusterAuthorizationException" in tools.by("bob", ACLS, "--add", *words, code=1)
    assert "ClusterAuthorizationException" in tools.by("bob", ACLS, "--list", code=1)


def test_a_wrong_password_ends_a_tool(tools: SecuredTools) -> None:
    said = tools.by("bob", TOPICS, "--list", password="guess", code=1)
    assert "invalid credentials with SASL mechanism SCRAM-SHA-512" in said


# -- users ---------------------------------------------------------------------------------------------------


def test_users_come_and_go_by_kafka_configs(tools: SecuredTools) -> None:
    user = "--entity-type", "users", "--entity-name", "carol"
    change = "SCRAM-SHA-512=[iterations=8192,password=first]"
    said = tools.by("alice", CONFIGS, "--alter", "--add-config", change, *user, code=1)
    assert "ClusterAuthorizationException" in said, said
    said = tools.by(ADMIN, CONFIGS, "--alter", "--add-config", change, *user)
    assert "Completed updating config for user carol." in said
    said = tools.by(ADMIN, CONFIGS, "--describe", *user)
    assert "SCRAM credential configs for user-principal 'carol' are SCRAM-SHA-512=iterations=8192" in said
    tools.by("carol", TOPICS, "--list", password="first")
    words = "--delete-config", "SCRAM-SHA-512"
    assert "Completed updating config" in tools.by(ADMIN, CONFIGS, "--alter", *words, *user)
    said = tools.by("carol", TOPICS, "--list", password="first", code=1)
    assert "Authentication failed" in said, said
    said = tools.by(ADMIN, CONFIGS, "--alter", *words, *user, code=1)
    assert "ResourceNotFoundException" in said, said


# -- past the brokers ----------------------------------------------------------------------------------------


def test_lists_that_are_written_past_the_brokers_count(brokers: SecuredBrokers, tools: SecuredTools) -> None:
    tls = tools.folder / "zookeeper.properties"
    settings = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keystore.location": str(brokers.authority.both("operator")),
        "zookeeper.ssl.truststore.location": str(brokers.authority.file),
    }
    tls.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    quorum = f"zookeeper.connect={brokers.nodes.secure_hosts}"
    own = "--authorizer-properties", quorum, "--zk-tls-config-file", str(tls)
    tools.by(ADMIN, TOPICS, "--create", "--topic", "past")
    words = "--allow-principal", "User:bob", "--operation", "Describe", "--topic", "past"
    tools.call(ACLS, *own, "--add", *words)
    eventually(lambda: "past" in tools.by("bob", TOPICS, "--list").split(), WAIT_S, "it counts")
    assert "principal=User:bob" in tools.acl("--list", "--topic", "past")
    tools.call(ACLS, *own, "--remove", "--force", *words)
    eventually(lambda: "past" not in tools.by("bob", TOPICS, "--list").split(), WAIT_S, "it counts no more")


def test_a_user_that_is_written_past_the_brokers_counts(brokers: SecuredBrokers, tools: SecuredTools) -> None:
    own = "--zookeeper", brokers.nodes.hosts, "--entity-type", "users", "--entity-name", "dora"
    said = tools.call(CONFIGS, *own, "--alter", "--add-config", "SCRAM-SHA-512=[password=first]")
    assert "Completed updating config for entity: user-principal 'dora'." in said

    def is_known() -> bool:
        return "user-principal 'dora'" in tools.by(ADMIN, CONFIGS, "--describe", "--entity-type", "users")

    eventually(is_known, WAIT_S, "the broker has read it")
    assert tools.by("dora", TOPICS, "--list", password="first").strip() == ""

    def is_kept() -> bool:
        return "NoAuth for /config/users/dora" in tools.call(CONFIGS, *own, "--describe", code=1)

    eventually(is_kept, WAIT_S, "it is the brokers' own")


# -- transactions --------------------------------------------------------------------------------------------


def begin_hanging(brokers: SecuredBrokers, topic: str) -> None:
    """Append one record of a transaction that no coordinator knows."""
    address = brokers.cluster.address(1)
    values = {"transactional_id": None, "transaction_timeout": 0}
    producer_id = ask(address, ApiKey.INIT_PRODUCER_ID, 1, values).producer_id
    batch = record_batch([b"h"], attributes=0x10, producer=(producer_id, 0, 0))
    data = [{"name": topic, "partition_data": [{"index": 0, "records": batch}]}]
    asked = {"transactional_id": "t", "acks": -1, "timeout": 20_000, "topic_data": data}
    row = ask(address, ApiKey.PRODUCE, 9, asked).responses[0].partition_responses[0]
    assert row.error_code == 0


def test_who_may_alter_the_cluster_aborts_a_hanging_transaction(
    brokers: SecuredBrokers, tools: SecuredTools
) -> None:
    tools.by(ADMIN, TOPICS, "--create", "--topic", "hanging")
    anonymous = "--add", "--allow-principal", "User:ANONYMOUS", "--operation", "Write"
    tools.acl(*anonymous, "--topic", "hanging", "--transactional-id", "t")
    begin_hanging(brokers, "hanging")
    where = "--topic", "hanging", "--partition", "0"

    def open_since() -> set[str]:
        said = tools.by(ADMIN, TRANSACTIONS, "describe-producers", *where)
        _, *rows = [line.split() for line in said.splitlines() if line.strip()]
        return {row[-1] for row in rows}

    assert open_since() == {"0"}
    abort = "abort", *where, "--start-offset", "0"
    tools.acl("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "hanging")
    assert "failed due to cluster authorization error" in tools.by("alice", TRANSACTIONS, *abort, code=1)
    assert open_since() == {"0"}
    tools.acl("--add", "--allow-principal", "User:alice", "--operation", "Alter", "--cluster")
    assert tools.by("alice", TRANSACTIONS, *abort).strip() == ""
    assert open_since() == {"None"}
    begin_hanging(brokers, "hanging")
    tools.by(ADMIN, TRANSACTIONS, *abort[:-1], "2")
    assert open_since() == {"None"}
