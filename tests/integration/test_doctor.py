"""`quorate doctor` against real processes: what is caused is found, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import time
import zipfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kazoo.client import KazooClient

from broker.client.partition_admin import PartitionAdminClient
from controller.core.requests import NewTopic
from quorum.admin.client import get_status, send
from quorum.cli.main import main
from quorum.local import ensemble_in_thread
from quorum.metadata import paths
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicRecord
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.certificates import Authority
from tests.support.nodes import QuorateNodes, eventually
from tests.support.secure_nodes import SecureNodes

WAIT_S = 60.0
#: what the command promises
BOUND_S = 20.0
TOPICS = (
    NewTopic("orders", 3, 3),
    NewTopic("strict", assignments={0: (2, 3)}, settings={"min.insync.replicas": "2"}),
    NewTopic("lone", assignments={0: (3,)}),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as running:
        created = asked(running, lambda client: client.create_topics(list(TOPICS)))
        assert {each.error_code for each in created.values()} == {0}
        yield running


def asked(cluster: BrokerCluster, ask: Callable[[PartitionAdminClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with PartitionAdminClient(cluster.bootstrap) as client:
            return await ask(client)

    return asyncio.run(run())


class Doctor:
    """Runs the command line and reads what it prints."""

    def __init__(self, cluster: BrokerCluster, output: pytest.CaptureFixture[str]) -> None:
        self.admin = ",".join(cluster.nodes.admin_url(node_id) for node_id in cluster.nodes.node_ids)
        self._output = output

    def run(self, *words: str, admin: str | None = None) -> tuple[int, str]:
        self._output.readouterr()
        begun_s = time.monotonic()
        code = main(["doctor", "--admin", admin or self.admin, *words])
        assert time.monotonic() - begun_s < BOUND_S
        return code, self._output.readouterr().out

    def report(self, *words: str, admin: str | None = None) -> Any:
        code, text = self.run("--json", *words, admin=admin)
        found = json.loads(text)
        assert code == {"healthy": 0, "error": 1, "warning": 3}[found["verdict"]]
        return found

    def until(self, *wanted: tuple[str, str], words: tuple[str, ...] = ()) -> Any:
        """Look until these (check, subject) are found, or nothing is; return the report."""

        def look() -> Any:
            found = self.report(*words)
            pairs = {(each["check"], each["subject"]) for each in found["findings"]}
            assert set(wanted) <= pairs if wanted else found["verdict"] == "healthy", found["findings"]
            return found

        return eventually(look, WAIT_S, f"{wanted or 'health'} is found")


@pytest.fixture
def doctor(cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]) -> Doctor:
    doctor = Doctor(cluster, capsys)
    doctor.until()
    return doctor


def outcomes(found: Any) -> dict[str, str]:
    return {each["check"]: each["outcome"] for each in found["checks"]}


def severity(found: Any, check: str) -> str:
    (first, *_) = [each["severity"] for each in found["findings"] if each["check"] == check]
    return str(first)


def test_a_healthy_cluster_is_healthy(doctor: Doctor, cluster: BrokerCluster) -> None:
    found = doctor.report()
    assert (found["verdict"], found["sentence"]) == ("healthy", "healthy")
    assert found["cluster_id"] == cluster.nodes.status(1)["cluster_id"]
    made = outcomes(found)
    for check in ("no-quorum", "node-down", "broker-down", "partition-offline", "partition-under-min-isr"):
        assert made[check] == "ok"
    assert made["elections-often"] == "ok"
    for check in ("throttle-stale", "group-lag", "versions-differ", "clocks-differ", "open-files"):
        assert made[check] == "ok"
    assert made["secret-readable"] == "skipped"
    assert all(each["reason"] for each in found["checks"] if each["outcome"] == "skipped")
    assert doctor.run("--nagios") == (0, "OK - healthy\n")
    code, text = doctor.run()
    assert code == 0
    assert text.splitlines()[-1].startswith("healthy: ")


def test_a_node_that_hangs_is_found_in_time(doctor: Doctor, cluster: BrokerCluster) -> None:
    follower = next(each for each in cluster.nodes.node_ids if each != cluster.nodes.leader())
    cluster.nodes.pause(follower)
    try:
        found = doctor.until(("node-down", f"node {follower}"))
        assert found["verdict"] == "warning"
        assert found["sentence"].startswith(f"node {follower} is down")
    finally:
        cluster.nodes.resume(follower)


def test_a_dead_broker_and_its_partitions_are_found(doctor: Doctor, cluster: BrokerCluster) -> None:
    cluster.kill(3)
    try:
        found = doctor.until(
            ("broker-down", "broker 3"),
            ("partition-offline", "lone-0"),
            ("partition-under-min-isr", "strict-0"),
            ("partition-under-replicated", "orders-0"),
        )
        assert found["findings"][0]["check"] == "partition-offline"
        assert found["sentence"].startswith("lone-0 is offline")
        assert severity(found, "partition-under-min-isr") == "error"
        assert severity(found, "broker-down") == "warning"
        code, text = doctor.run()
        assert code == 1
        assert text.startswith("error partition-offline: lone-0 is offline")
        assert "  command quorate topics describe lone" in text
    finally:
        cluster.start_broker(3)
        cluster.wait_ready(3)


def test_a_broker_that_hangs_is_found_in_time(doctor: Doctor, cluster: BrokerCluster) -> None:
    cluster.pause(2)
    try:
        doctor.report()
        doctor.until(("broker-down", "broker 2"))
    finally:
        cluster.resume(2)


def test_a_throttle_that_was_left_is_found(doctor: Doctor, cluster: BrokerCluster) -> None:
    asked(cluster, lambda client: client.set_throttle(["orders"], 1_000_000))
    try:
        found = doctor.until(*(("throttle-stale", f"broker {each}") for each in (1, 2, 3)))
        assert found["verdict"] == "warning"
        assert found["findings"][0]["command"] == "quorate reassign throttle off"
        code, line = doctor.run("--nagios")
        assert code == 1
        assert line.startswith("WARNING - broker 1 throttles replication, and nothing is reassigned: ")
    finally:
        asked(cluster, lambda client: client.remove_throttle())


def test_a_group_far_behind_is_found(doctor: Doctor, cluster: BrokerCluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for _ in range(3):
        producer.produce("orders", b"late", partition=0)
    assert producer.flush(WAIT_S) == 0
    asked(cluster, lambda client: client.commit_offsets("billing", {PartitionKey("orders", 0): 0}))
    found = doctor.until(("group-lag", "group billing"), words=("--lag-max", "2"))
    assert severity(found, "group-lag") == "warning"
    assert "3 records behind" in found["sentence"]
    assert doctor.report("--lag-max", "3")["verdict"] == "healthy"


def test_files_that_a_configuration_names_are_looked_at(doctor: Doctor, cluster: BrokerCluster) -> None:
    config, secret = cluster.brokers[1].config_path, cluster.secret_path
    words = ("--config", str(config), "--config", str(cluster.nodes.nodes[1].config_path))
    assert outcomes(doctor.report(*words))["secret-readable"] == "ok"
    secret.chmod(0o644)
    try:
        found = doctor.report(*words)
        first = found["findings"][0]
        assert (first["check"], first["severity"]) == ("secret-readable", "error")
        assert (first["subject"], first["command"]) == (str(secret), f"chmod 600 {secret}")
        assert [each for each in found["findings"] if each["check"] == "config-wrong"] == []
    finally:
        secret.chmod(0o600)


def test_a_configuration_that_a_start_refuses_is_found(doctor: Doctor, tmp_path: Path) -> None:
    config = tmp_path / "node.toml"
    config.write_text('[node]\nid = 0\ncluster = "local"\ndata_dir = "data"\n')
    found = doctor.report("--config", str(config))
    wrong = [each["what"] for each in found["findings"] if each["check"] == "config-wrong"]
    assert any("node.id = 0" in each for each in wrong)


def test_a_bundle_has_every_process_and_no_secret(
    doctor: Doctor, cluster: BrokerCluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    node, output = cluster.nodes.nodes[1], tmp_path / "report.zip"
    secret = cluster.secret_path.read_text().strip()
    cluster.zookeeper.ensure_path("/private")
    cluster.zookeeper.set("/private", b"data of a znode")
    log = node.config_path.with_name("node.log")
    password = tmp_path / "password"
    password.touch(mode=0o600)
    password.write_text('a "secret" of words')
    event = json.dumps({"message": password.read_text()})
    log.write_text(f"it said {secret} once\n{event}\n")
    words = ["bundle", "--admin", doctor.admin, "--output", str(output), "--config", str(node.config_path)]
    proof = ["--sasl", "admin", "--password-file", str(password)]
    assert main([*words, *proof, "--config", str(cluster.brokers[1].config_path)]) == 0
    assert capsys.readouterr().out == f"{output}\n"
    assert output.stat().st_mode & 0o777 == 0o600
    with zipfile.ZipFile(output) as archive:
        found = {name: archive.read(name).decode() for name in archive.namelist()}
    processes = [f"node-{each}" for each in (1, 2, 3)] + [f"broker-{each}" for each in (1, 2, 3)]
    assert {f"{each}/{name}" for each in processes for name in ("status.json", "metrics.txt")} <= found.keys()
    assert {f"node-{each}/settings.json" for each in (1, 2, 3)} | {"broker-1/settings.json"} <= found.keys()
    assert json.loads(found["doctor.json"])["verdict"] == "healthy"
    assert found["node-1/log.txt"] == 'it said *** once\n{"message": "***"}\n'
    assert not [name for name, text in found.items() if secret in text or "data of a znode" in text]
    missing = found["missing.txt"].splitlines()
    assert "broker-2/settings.json: name its configuration with --config" in missing
    assert any(line.startswith("broker-1/log.txt: ") for line in missing)
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err


def test_two_voters_are_even(doctor: Doctor) -> None:
    with ensemble_in_thread(2) as quorum:
        admin = ",".join(quorum.admin_urls)
        found = doctor.report(admin=admin)
    assert [each["check"] for each in found["findings"]] == ["voters-even"]
    assert found["verdict"] == "warning"
    assert outcomes(found)["broker-down"] == "skipped"


def test_leaders_that_change_all_the_time_are_found(doctor: Doctor) -> None:
    with ensemble_in_thread(3) as quorum:
        admin = ",".join(quorum.admin_urls)
        assert outcomes(doctor.report(admin=admin))["elections-often"] == "skipped", "nothing was written"
        client = KazooClient(quorum.hosts)
        client.start(WAIT_S)
        client.create("/written")
        client.stop()
        client.close()

        def ok() -> bool:
            # The node that is asked may have it later than the one that was written to.
            return outcomes(doctor.report(admin=admin))["elections-often"] == "ok"

        eventually(ok, WAIT_S, "the change log has what was written")
        for round_number in range(8):

            def led(heir: int = round_number % 2 + 1) -> bool:
                # In between nobody leads, and another node may be elected.
                body = json.dumps({"node_id": heir}).encode()
                send(quorum.admin_urls[0], "POST", "/v1/leader", WAIT_S, body)
                return bool(get_status(quorum.admin_urls[0], WAIT_S)["leader_id"] == heir)

            eventually(led, WAIT_S, "the leader changed")
        found = doctor.report(admin=admin)
    assert [each["check"] for each in found["findings"]] == ["elections-often"]
    assert found["verdict"] == "warning"
    assert "minutes" in found["sentence"]


def test_a_certificate_that_ends_soon_is_found_by_tls(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(tmp_path / "pki")
    authority.issue("nodes", days=5)
    nodes = SecureNodes(authority, security={"admin_ssl": True})
    try:
        nodes.start_node(1)
        certificate, key = authority.issue("operator")
        options = ("--ca", str(authority.file), "--cert", str(certificate), "--key", str(key))
        config = str(nodes.nodes[1].config_path)

        def look() -> Any:
            # The configuration names the admin port, too.
            capsys.readouterr()
            assert main(["doctor", "--config", config, "--json", *options]) == 3
            found = json.loads(capsys.readouterr().out)
            pairs = {(each["check"], each["subject"]) for each in found["findings"]}
            wanted = {("certificate-expires", "node 1")}
            wanted.add(("certificate-file-expires", str(authority.folder / "nodes.pem")))
            assert wanted <= pairs
            return found

        found = eventually(look, WAIT_S, "the certificate is found")
        assert any("expires in" in each["what"] for each in found["findings"])
    finally:
        nodes.close()


def test_what_brokers_hide_from_everybody_is_not_called_sound(capsys: pytest.CaptureFixture[str]) -> None:
    security = {"security": {"authorizer_class_name": "AclAuthorizer"}}
    key = PartitionKey("orders", 0)
    with BrokerCluster(brokers=1, settings=security) as cluster:
        topic = TopicRecord(None, {0: (1,)}).encode()
        cluster.zookeeper.create(paths.topic_path("orders"), topic)
        offset = OffsetRecord(0, -1, "", 0).encode()
        cluster.zookeeper.create(paths.group_offset_path("billing", key), offset, makepath=True)
        words = ["doctor", "--admin", cluster.nodes.admin_url(1), "--json"]

        def reasons() -> dict[str, str]:
            capsys.readouterr()
            assert main(words) == 0
            checks = json.loads(capsys.readouterr().out)["checks"]
            found = {each["check"]: each["reason"] for each in checks if each["outcome"] == "skipped"}
            assert {"group-lag", "partition-under-min-isr"} <= found.keys(), found
            return found

        found = eventually(reasons, WAIT_S, "brokers hide the topic")
    assert "orders" in found["group-lag"]
    assert found["partition-under-min-isr"].startswith("brokers do not tell settings of topics: ")


def test_a_node_without_a_majority_has_no_quorum(capsys: pytest.CaptureFixture[str]) -> None:
    with QuorateNodes(nodes=3) as nodes:
        urls = ",".join(nodes.admin_url(each) for each in nodes.node_ids)
        nodes.kill(1)
        nodes.kill(2)

        def look() -> Any:
            capsys.readouterr()
            code = main(["doctor", "--admin", urls, "--json"])
            found = json.loads(capsys.readouterr().out)
            pairs = {(each["check"], each["subject"]) for each in found["findings"]}
            assert code == 1
            assert {("no-quorum", "quorum"), ("node-down", "node 1"), ("node-down", "node 2")} <= pairs
            return found

        found = eventually(look, WAIT_S, "the missing quorum is found")
    assert found["findings"][0]["check"] == "no-quorum"


def test_where_nobody_answers_there_is_no_quorum(doctor: Doctor) -> None:
    nobody = "http://127.0.0.1:1"
    found = doctor.report(admin=nobody)
    assert [each["check"] for each in found["findings"]] == ["no-quorum"]
    code, line = doctor.run("--nagios", admin=nobody)
    assert code == 2
    assert line.startswith("CRITICAL - no node answers at http://127.0.0.1:1")


def test_an_admin_port_that_wants_a_token_gets_the_one_that_is_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = {}
    for name in ("operate", "read"):
        tokens[f"admin_{name}_token_file"] = str(tmp_path / name)
        (tmp_path / name).touch(mode=0o600)
        (tmp_path / name).write_text(f"{name}-0123456789abcdef")
    with ensemble_in_thread(1, {"security": tokens}) as quorum:
        words = ["doctor", "--admin", quorum.admin_urls[0], "--json"]
        assert main(words) == 1
        found = json.loads(capsys.readouterr().out)
        assert [each["check"] for each in found["findings"]] == ["admin-refused"]
        assert outcomes(found)["no-quorum"] == "skipped"
        assert main(["--token-file", str(tmp_path / "read"), *words]) == 0
        assert outcomes(json.loads(capsys.readouterr().out))["no-quorum"] == "ok"
