"""The audit log of nodes and brokers: what unchanged clients do and are refused, and nothing secret."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient, TransactionRequest
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.config.sasl_users import user_line
from quorum.core.codes import FLAG_EPHEMERAL, OP_CREATE
from quorum.local.embedded import Ensemble, ensemble_in_thread
from quorum.wire.requests import ConnectRequest, encode_command, encode_connect
from tests.support.nodes import eventually, hold_port

DEADLINE_S = 30.0
#: stands in every value, password and token of these tests
MARKER = "pl4nted-m4rker"
TOKEN = f"token-{MARKER}-0123"
Line = dict[str, Any]


def private(path: Path, text: str) -> str:
    path.touch(mode=0o600)
    path.write_text(text)
    return str(path)


class Log:
    """An audit log that is being written."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self._path.read_text("utf-8").splitlines()]

    def await_line(self, wanted: Callable[[Line], bool]) -> Line:
        found: list[Line] = []

        def has_come() -> bool:
            found[:] = [each for each in self.lines() if wanted(each)]
            return bool(found)

        eventually(has_come, DEADLINE_S, "the line is there")
        return found[0]

    def await_operation(self, operation: str, resource: str, outcome: str) -> Line:
        wanted = (operation, resource, outcome)
        return self.await_line(lambda each: (each["operation"], each["resource"], each["outcome"]) == wanted)

    def is_silent_about(self, text: str) -> bool:
        return text not in self._path.read_text("utf-8")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit")


@pytest.fixture(scope="module")
def log(folder: Path) -> Log:
    return Log(folder / "node.log")


@pytest.fixture(scope="module")
def node(folder: Path, log: Log) -> Iterator[Ensemble]:
    settings: dict[str, dict[str, object]] = {
        "audit": {"enable": True, "file": str(folder / "node.log")},
        "limits": {"tick_ms": 100, "session_timeout_min_ms": 200},
        "security": {
            "sasl_users_file": private(folder / "users", user_line("eve", MARKER)),
            "admin_tokens_file": private(folder / "tokens", f"ann operator {TOKEN}\nbob reader {TOKEN}-2"),
        },
    }
    with ensemble_in_thread(1, settings) as running:
        yield running
    # It has stopped: whatever was said is written.
    assert log.lines()[0]["operation"] == "serverStart"
    assert log.lines()[-1]["operation"] == "serverStop"
    assert log.is_silent_about(MARKER)


@pytest.fixture
def client(node: Ensemble) -> Iterator[KazooClient]:
    found = KazooClient(node.hosts)
    found.start(DEADLINE_S)
    yield found
    found.stop()
    found.close()


def test_writes_are_noted_with_zookeepers_words(client: KazooClient, log: Log) -> None:
    session_id, _ = client.client_id
    client.create("/w", MARKER.encode())
    made = client.create("/w/s-", MARKER.encode(), sequence=True)
    client.set("/w", MARKER.encode())
    client.set_acls("/w", [make_digest_acl("dan", MARKER, all=True), *client.get_acls("/w")[0]])
    client.delete(made)
    line = log.await_operation("create", "/w", "allowed")
    assert line["session"] == f"0x{session_id:x}"
    assert line["principal"] == "ip:127.0.0.1"
    assert line["address"].startswith("127.0.0.1:")
    assert isinstance(line["request"], int)
    log.await_operation("create", made, "allowed")
    log.await_operation("setData", "/w", "allowed")
    log.await_operation("setAcl", "/w", "allowed")
    log.await_operation("delete", made, "allowed")


def test_what_fails_and_each_part_of_a_multi_is_noted(client: KazooClient, log: Log) -> None:
    client.create("/m", MARKER.encode())
    transaction: TransactionRequest = client.transaction()
    transaction.set_data("/m", MARKER.encode())
    transaction.create("/m/a", MARKER.encode())
    transaction.commit()
    log.await_operation("setData", "/m", "allowed")
    log.await_operation("create", "/m/a", "allowed")
    transaction = client.transaction()
    transaction.create("/m/b", MARKER.encode())
    transaction.create("/m/a", MARKER.encode())
    transaction.commit()
    log.await_operation("create", "/m/b", "failed")
    log.await_operation("create", "/m/a", "failed")


def test_denials_of_writes_and_reads_are_noted(client: KazooClient, node: Ensemble, log: Log) -> None:
    client.add_auth("digest", f"dan:{MARKER}")
    client.create("/d", MARKER.encode(), acl=[make_digest_acl("dan", MARKER, all=True)])
    assert log.await_operation("create", "/d", "allowed")["principal"] == "digest:dan,ip:127.0.0.1"
    stranger = KazooClient(node.hosts)
    stranger.start(DEADLINE_S)
    with pytest.raises(NoAuthError):
        stranger.get("/d")
    with pytest.raises(NoAuthError):
        stranger.set("/d", MARKER.encode())
    stranger.stop()
    stranger.close()
    assert log.await_operation("getData", "/d", "denied")["principal"] == "ip:127.0.0.1"
    log.await_operation("setData", "/d", "denied")


def test_sessions_and_their_ephemerals_are_noted(node: Ensemble, log: Log) -> None:
    gone = "ephemeralZNodeDeletionOnSessionCloseOrExpire"
    closing = KazooClient(node.hosts)
    closing.start(DEADLINE_S)
    session = f"0x{closing.client_id[0]:x}"
    closing.create("/e1", ephemeral=True)
    closing.stop()
    closing.close()
    for operation in ("createSession", "closeSession"):
        log.await_line(lambda each: (each["operation"], each["session"]) == (operation, session))  # noqa: B023
    assert log.await_operation(gone, "/e1", "allowed")["principal"] == "node:1"
    host, port = node.hosts.split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as silent:
        silent.sendall(encode_connect(ConnectRequest(0, 0, 300, 0, bytes(16), None)))
        silent.sendall(encode_command(1, [OP_CREATE, "/e2", b"", None, FLAG_EPHEMERAL]))
        # As a client that is cut off: its session ends by time.
        line = log.await_operation("create", "/e2", "allowed")
    log.await_line(lambda each: (each["operation"], each["session"]) == ("expireSession", line["session"]))
    assert log.await_operation(gone, "/e2", "allowed")["session"] == line["session"]


def test_a_write_whose_client_is_gone_is_noted(node: Ensemble, log: Log) -> None:
    host, port = node.hosts.split(":")
    with socket.create_connection((host, int(port)), DEADLINE_S) as leaving:
        leaving.sendall(encode_connect(ConnectRequest(0, 0, 300, 0, bytes(16), None)))
        assert leaving.recv(1)
        leaving.sendall(encode_command(7, [OP_CREATE, "/gone", b"", None, 0]))
    assert log.await_operation("create", "/gone", "allowed")["request"] == 7


def test_proofs_that_fail_are_noted(node: Ensemble, log: Log) -> None:
    options = {"mechanism": "DIGEST-MD5", "username": "eve", "password": f"{MARKER}-wrong"}
    for more, scheme, principal in (
        ({"sasl_options": options}, "sasl", "sasl:eve,ip:127.0.0.1"),
        ({"auth_data": [(f"scheme-{MARKER}", MARKER)]}, "another scheme", "ip:127.0.0.1"),
    ):
        wrong = KazooClient(node.hosts, **more)
        wrong.start_async()
        assert log.await_operation("auth", scheme, "denied")["principal"] == principal
        wrong.stop()
        wrong.close()


def http(url: str, method: str, path: str, token: str = "", body: bytes | None = None) -> int:
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        with urlopen(Request(url + path, body, headers, method=method), timeout=DEADLINE_S) as answer:
            return int(answer.status)
    except HTTPError as error:
        with error:
            return error.code


def test_changes_and_refusals_of_the_admin_port_are_noted(node: Ensemble, log: Log) -> None:
    (url,) = node.admin_urls
    data = b'{"data": "cGw0bnRlZC1tNHJrZXI="}'
    assert http(url, "PUT", f"/v1/znodes?path=/h&create=true&version={MARKER}", TOKEN, data) == 400
    assert http(url, "PUT", "/v1/znodes?path=/h&create=true", TOKEN, data) == 200
    assert http(url, "PUT", "/v1/znodes?path=/h", f"{TOKEN}-2", data) == 403
    assert http(url, "GET", f"/v1/status?token={MARKER}", f"{TOKEN}-3") == 401
    assert http(url, "POST", "/v1/members", TOKEN, b'{"node_id": 4}') == 403
    assert http(url, "GET", "/v1/status", TOKEN) == 200
    failed = log.await_operation("PUT", "/v1/znodes?path=/h", "failed")
    assert failed["principal"] == "ann"
    line = log.await_operation("PUT", "/v1/znodes?path=/h", "allowed")
    assert line["principal"] == "ann"
    assert line["session"] is None
    assert line["request"] > failed["request"]
    assert log.await_operation("PUT", "/v1/znodes?path=/h", "denied")["principal"] == "bob"
    assert log.await_operation("GET", "/v1/status", "denied")["principal"] == ""
    log.await_operation("POST", "/v1/members", "denied")
    assert not [each for each in log.lines() if (each["operation"], each["outcome"]) == ("GET", "allowed")]


class Audited:
    """A broker with access lists, a SASL port and an audit log."""

    def __init__(self, folder: Path) -> None:
        holder, self.port = hold_port()
        self.log = Log(folder / "broker.log")
        self._holder = holder
        self.settings: dict[str, dict[str, object]] = {
            "audit": {"enable": True, "file": str(folder / "broker.log")},
            "listen": {"listeners": [f"SASL_PLAINTEXT://127.0.0.1:{self.port}"]},
            "sasl": {"enabled_mechanisms": ["SCRAM-SHA-256"]},
            "security": {
                "authorizer_class_name": "AclAuthorizer",
                "super_users": ["User:ANONYMOUS"],
                "admin_tokens_file": private(folder / "broker-tokens", f"ann reader {TOKEN}"),
            },
        }
        self.running: BlockingBrokers

    def client(self, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": f"127.0.0.1:{self.port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "dave",
            "sasl.password": password,
        }


@pytest.fixture(scope="module")
def brokers(folder: Path) -> Iterator[Audited]:
    audited = Audited(folder)
    audited._holder.close()
    with brokers_in_thread(1, settings=audited.settings) as audited.running:
        admin = AdminClient({"bootstrap.servers": audited.running.bootstrap})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        made = UserScramCredentialUpsertion("dave", info, MARKER.encode())
        admin.alter_user_scram_credentials([made])["dave"].result(DEADLINE_S)
        yield audited
    assert audited.log.is_silent_about(MARKER)


def test_administrative_requests_are_noted_by_resource(brokers: Audited) -> None:
    log, admin = brokers.log, AdminClient({"bootstrap.servers": brokers.running.bootstrap})
    log.await_operation("AlterUserScramCredentials", "User:LITERAL:dave", "allowed")
    admin.create_topics([NewTopic("a", 1, 1), NewTopic("b", 1, 1)])["b"].result(DEADLINE_S)
    line = log.await_operation("CreateTopics", "Topic:LITERAL:a", "allowed")
    assert (line["principal"], line["session"]) == ("User:ANONYMOUS", None)
    log.await_operation("CreateTopics", "Topic:LITERAL:b", "allowed")
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("a", 1, 1)])["a"].result(DEADLINE_S)
    log.await_operation("CreateTopics", "Topic:LITERAL:a", "failed")
    change = ConfigEntry("retention.ms", "100000", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "a", incremental_configs=[change])
    next(iter(admin.incremental_alter_configs([resource]).values())).result(DEADLINE_S)
    log.await_operation("IncrementalAlterConfigs", "Topic:LITERAL:a", "allowed")
    entry = AclBinding(
        *(ResourceType.TOPIC, "pre", ResourcePatternType.PREFIXED, "User:dave", "*"),
        *(AclOperation.READ, AclPermissionType.ALLOW),
    )
    next(iter(admin.create_acls([entry]).values())).result(DEADLINE_S)
    line = log.await_operation("CreateAcls", "Topic:PREFIXED:pre (Allow User:dave Read from *)", "allowed")
    assert re.fullmatch(r"127\.0\.0\.1:\d+", line["address"])
    admin.delete_topics(["b"])["b"].result(DEADLINE_S)
    log.await_operation("DeleteTopics", "Topic:LITERAL:b", "allowed")


def test_what_access_lists_refuse_is_noted_with_the_right(brokers: Audited) -> None:
    log, admin = brokers.log, AdminClient(brokers.client(MARKER))
    with pytest.raises(KafkaException):
        admin.create_topics([NewTopic("c", 1, 1)])["c"].result(DEADLINE_S)
    line = log.await_operation("Create", "Topic:LITERAL:c", "denied")
    assert line["principal"] == "User:dave"
    assert isinstance(line["request"], int)
    producer = Producer({**brokers.client(MARKER), "message.timeout.ms": 5000})
    producer.produce("c", MARKER)
    producer.flush(DEADLINE_S)
    log.await_operation("Describe", "Topic:LITERAL:c", "denied")
    assert not [
        each for each in log.lines() if each["operation"] == "CreateTopics" and "c" in each["resource"][-1]
    ]


def test_what_is_allowed_and_changes_no_setting_leaves_no_line(brokers: Audited) -> None:
    producer = Producer({"bootstrap.servers": brokers.running.bootstrap})
    admin = AdminClient({"bootstrap.servers": brokers.running.bootstrap})
    admin.create_topics([NewTopic("quiet", 1, 1)])["quiet"].result(DEADLINE_S)
    brokers.log.await_operation("CreateTopics", "Topic:LITERAL:quiet", "allowed")
    producer.produce("quiet", MARKER)
    assert producer.flush(DEADLINE_S) == 0
    admin.delete_topics(["quiet"])["quiet"].result(DEADLINE_S)
    brokers.log.await_operation("DeleteTopics", "Topic:LITERAL:quiet", "allowed")
    found = {each["operation"] for each in brokers.log.lines() if each["resource"].endswith(":quiet")}
    assert found == {"CreateTopics", "DeleteTopics"}


def test_a_failed_authentication_is_noted(brokers: Audited) -> None:
    errors: list[object] = []
    producer = Producer({**brokers.client(f"{MARKER}-wrong"), "error_cb": errors.append})
    eventually(lambda: producer.poll(0.1) is not None and bool(errors), DEADLINE_S)
    line = brokers.log.await_operation("Authenticate", "SCRAM-SHA-256", "denied")
    assert line["principal"] == "User:dave"


def test_refusals_of_a_brokers_admin_port_are_noted(brokers: Audited) -> None:
    (url,) = brokers.running.admin_urls
    assert http(url, "GET", "/v1/status", f"{TOKEN}-x") == 401
    brokers.log.await_operation("GET", "/v1/status", "denied")
    with urlopen(Request(f"{url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})) as answer:
        page = answer.read().decode()
    assert "quorate_audit_lines_lost_total 0.0" in page
