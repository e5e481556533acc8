"""`quorate doctor` against real processes: what is caused is found, and nothing else is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from broker.client.partition_admin import PartitionAdminClient
from broker.client.topics import NewTopic
from quorum.cli.main import main
from quorum.local import ensemble_in_thread
from quorum.metadata.paths import PartitionKey
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.nodes import eventually

WAIT_S = 60.0
#: what the command promises
BOUND_S = 20.0
TOPICS = (
    NewTopic("orders", 3, 3),
    NewTopic("strict", 1, 2, settings={"min.insync.replicas": "2"}, assignments={0: (2, 3)}),
    NewTopic("lone", 1, 1, assignments={0: (3,)}),
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as running:
        asked(running, lambda client: client.create_topics(list(TOPICS)))
        yield running


def asked(cluster: BrokerCluster, ask: Callable[[PartitionAdminClient], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        async with PartitionAdminClient(cluster.bootstrap) as client:
            return await ask(client)

    return asyncio.run(run())


class Doctor:
    """Runs the command line and reads what it prints."""

    def __init__(self, cluster: BrokerCluster, output: pytest.CaptureFixture[str]) -> None:
        self._admin = ",".join(cluster.nodes.admin_url(node_id) for node_id in cluster.nodes.node_ids)
        self._output = output

    def run(self, *words: str, admin: str | None = None) -> tuple[int, str]:
        self._output.readouterr()
        begun_s = time.monotonic()
        code = main(["doctor", "--admin", admin or self._admin, *words])
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


def severity(found: Any, check: str) -> str:
    (first, *_) = [each["severity"] for each in found["findings"] if each["check"] == check]
    return str(first)


def test_a_healthy_cluster_is_healthy(doctor: Doctor, cluster: BrokerCluster) -> None:
    found = doctor.report()
    assert (found["verdict"], found["sentence"]) == ("healthy", "healthy")
    assert found["cluster_id"] == cluster.nodes.status(1)["cluster_id"]
    outcomes = {each["check"]: each["outcome"] for each in found["checks"]}
    for check in ("no-quorum", "node-down", "broker-down", "partition-offline", "partition-under-min-isr"):
        assert outcomes[check] == "ok"
    for check in ("throttle-stale", "group-lag", "versions-differ", "clocks-differ", "open-files"):
        assert outcomes[check] == "ok"
    assert outcomes["secret-readable"] == "skipped"
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
        code, line = doctor.run("--nagios")
        assert code == 1
        assert line.startswith(f"WARNING - node {follower} is down")
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
    finally:
        asked(cluster, lambda client: client.remove_throttle())


def test_a_group_far_behind_is_found(doctor: Doctor, cluster: BrokerCluster) -> None:
    async def commit(client: PartitionAdminClient) -> None:
        await client.commit_offsets("billing", {PartitionKey("orders", 0): 0})
        await client.metadata()
        for _ in range(3):
            produced = await client.produce({PartitionKey("orders", 0): batch()})
            assert all(each.error_code == 0 for each in produced.values())

    asked(cluster, commit)
    found = doctor.until(("group-lag", "group billing"), words=("--lag-max", "2"))
    assert severity(found, "group-lag") == "warning"
    assert "3 records behind" in found["sentence"]
    assert doctor.report("--lag-max", "3")["verdict"] == "healthy"


def batch() -> bytes:
    from tests.support.broker_records import batch_of

    return batch_of(b"value")


def test_files_that_a_configuration_names_are_looked_at(doctor: Doctor, cluster: BrokerCluster) -> None:
    config, secret = cluster.brokers[1].config_path, cluster.secret_path
    words = ("--config", str(config), "--config", str(cluster.nodes.nodes[1].config_path))
    assert {each["check"]: each["outcome"] for each in doctor.report(*words)["checks"]}["secret-readable"] == "ok"
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
    assert any(each["check"] == "config-wrong" and "node.id = 0" in each["what"] for each in found["findings"])


def test_two_voters_are_even(doctor: Doctor) -> None:
    with ensemble_in_thread(2) as quorum:
        admin = ",".join(quorum.admin_urls)
        found = doctor.report(admin=admin)
    assert [each["check"] for each in found["findings"]] == ["voters-even"]
    assert found["verdict"] == "warning"
    assert {each["check"]: each["reason"] for each in found["checks"]}["broker-down"] is not None


def test_where_nobody_answers_there_is_no_quorum(doctor: Doctor) -> None:
    nobody = "http://127.0.0.1:1"
    found = doctor.report(admin=nobody)
    assert [each["check"] for each in found["findings"]] == ["no-quorum"]
    code, line = doctor.run("--nagios", admin=nobody)
    assert code == 2
    assert line.startswith("CRITICAL - no node answers at http://127.0.0.1:1")
