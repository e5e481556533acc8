"""The commands of docs/operate that keep a cluster well, as an operator runs them.

Each page is walked on processes that its own commands start, or on a cluster of the test's own.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from quorum.cli.main import main
from tests.site.commands import Step, Walk, walk
from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.nodes import eventually
from tests.support.observability import promtool_path
from tests.tidy.rules import REPOSITORY

WAIT_S = 60.0
#: what servers say once they take part
SERVERS = {"quorate serve": "quorate.raft became", "quorate broker": "registered with generation"}

#: sections whose commands need a node that does not run, the last of them starts it
WITHOUT_NODE_2 = (
    "A process refuses to start",
    "A certificate expires",
    "A secret or a password has leaked",
    "A node is down or not ready",
)
WITHOUT_ALL = (*WITHOUT_NODE_2, "A disk of a node is lost", "A broker is down or not ready")


def test_a_cluster_is_secured_step_by_step(tmp_path: Path) -> None:
    with walk("docs/operate/secure.md", tmp_path, runs_on=SERVERS) as page:
        for heading in ("Make secrets", "Nodes", "Brokers", "A profile of options"):
            page.run(heading)
        for heading in ("Users and rights of Kafka clients", "Check", "Replace a certificate"):
            page.run(heading)
        for count, heading in enumerate(("Accept the new one", "Prove the new one"), 1):
            page.run(heading)
            for process in page.started.values():
                process.send_signal(signal.SIGHUP)
            eventually(lambda times=count: times_read(page) == 2 * times, WAIT_S, "both read the secret")  # type: ignore[misc]
        page.run()


def times_read(page: Walk) -> int:
    """How often the servers of a page have read the peer secret again."""
    outputs = (page.folder / "output").glob("*.txt")
    return sum(each.read_text().count("security.peer_secret_file is read again") for each in outputs)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    """Three nodes and three brokers, with what the pages speak of."""
    with BrokerCluster(brokers=3, nodes=3, session_timeout_ms=SHORT_SESSION_MS) as running:
        hosts, kafka = running.nodes.hosts, running.bootstrap
        for words in (
            f"topics create orders --partitions 3 --replication-factor 3 --bootstrap {kafka}",
            f"topics create balances --bootstrap {kafka}",
            f"groups reset-offsets billing --topic orders --to-latest --execute --bootstrap {kafka}",
            f"shell --hosts {hosts} create /app good",
            f"shell --hosts {hosts} set /app bad",
            f"shell --hosts {hosts} setquota -N 1000 /app",
        ):
            assert main(words.split()) == 0, words
        yield running


@contextlib.contextmanager
def walk_on(cluster: BrokerCluster, page: str, folder: Path, **more: Any) -> Iterator[Walk]:
    """Walk a page on a cluster: its folder is `data`, node.toml is node 2's, broker.toml broker 3's."""
    for name, target in {
        "data": cluster.folder,
        "node.toml": cluster.nodes.nodes[2].config_path,
        "broker.toml": cluster.brokers[3].config_path,
        "deploy": REPOSITORY / "deploy",
    }.items():
        (folder / name).symlink_to(target)
    admin = {8180 + node_id: node.admin_port for node_id, node in cluster.nodes.nodes.items()}
    admin |= {9291 + broker_id: broker.admin_port for broker_id, broker in cluster.brokers.items()}
    rewrites = {f"127.0.0.1:{shown}": f"127.0.0.1:{port}" for shown, port in admin.items()}
    addresses = {
        "hosts": cluster.nodes.hosts,
        "admin": cluster.nodes.admin_url(1),
        "bootstrap_servers": cluster.bootstrap,
    }
    rewrites |= more.pop("rewrites", {})
    with walk(page, folder, rewrites=rewrites, addresses=addresses, runs_on=SERVERS, **more) as walked:
        yield walked


def heal(cluster: BrokerCluster) -> None:
    """Have all processes run, and wait until nothing is wrong."""
    for node_id in cluster.nodes.node_ids:
        if not cluster.nodes.running(node_id):
            cluster.nodes.start_node(node_id)
    for broker_id in cluster.brokers:
        if not cluster.running(broker_id):
            cluster.start_broker(broker_id)
    cluster.nodes.wait_ready(*cluster.nodes.node_ids)
    cluster.wait_ready(*cluster.brokers)
    cluster.wait_in_sync("orders")


def said_again(steps: list[Step]) -> list[Step]:
    """Return the commands that stand there a second time; nothing is shown of what they print."""
    first: dict[str, Step] = {}
    return [each for each in steps if not each.shown and first.setdefault(each.command, each) is not each]


def wait_gone(cluster: BrokerCluster) -> None:
    """Wait until the leader does not reach node 2."""

    def gone() -> bool:
        members = cluster.nodes.status(1)["members"]
        return any(each["node_id"] == 2 and each["role"] == "unreachable" for each in members)

    eventually(gone, WAIT_S, "node 2 is not reached")


def test_what_a_cluster_shows_of_itself(cluster: BrokerCluster, tmp_path: Path) -> None:
    programs = {"promtool": promtool_path()}
    with walk_on(cluster, "docs/operate/observe.md", tmp_path, rewrites=programs) as page:
        page.run()


def test_doctor_looks_and_makes_a_bundle(cluster: BrokerCluster, tmp_path: Path) -> None:
    with walk_on(cluster, "docs/operate/doctor.md", tmp_path) as page:
        page.run()


def test_the_console_and_top_are_started(cluster: BrokerCluster, tmp_path: Path) -> None:
    any_port = {"quorate console": "quorate console --port 0"}
    with walk_on(cluster, "docs/operate/console.md", tmp_path, rewrites=any_port) as page:
        page.run()


def test_the_looks_of_an_upgrade(cluster: BrokerCluster, tmp_path: Path) -> None:
    with walk_on(cluster, "docs/operate/upgrade.md", tmp_path) as page:
        page.run()
    cluster.nodes.wait_ready(*cluster.nodes.node_ids)


def test_the_runbook_in_the_conditions_that_it_is_about(cluster: BrokerCluster, tmp_path: Path) -> None:
    heal(cluster)
    nodes = cluster.nodes
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "payments"})
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("balances", b"1")
    assert producer.flush(WAIT_S) == 0
    assert main(["certs", "init", str(tmp_path / "pki")]) == 0
    stat = cluster.zookeeper.get("/app")[1]
    rewrites = {"as_of_zxid=110": f"as_of_zxid={stat.czxid}"}
    codes = {"quorate doctor --config": 3}
    with walk_on(cluster, "docs/operate/runbook.md", tmp_path, rewrites=rewrites, codes=codes) as page:
        page.run("Runbook")
        for node_id in (2, 3):
            nodes.pause(node_id)
        eventually(lambda: not nodes.ready(1), WAIT_S, "node 1 misses the others")
        said = page.run("No quorum")
        for node_id in (2, 3):
            nodes.resume(node_id)
        assert "a majority of the voters 1, 2, 3" in said
        heal(cluster)
        page.run("A disk is slow or hangs")
        eventually(lambda: nodes.leader_now() == 1, WAIT_S, "node 1 leads")
        page.run("Consumers of committed records stand still")
        for step in said_again([step for step in page.left if step.heading not in WITHOUT_ALL]):
            page.left.remove(step)
        for heading in dict.fromkeys(step.heading for step in page.left):
            if heading not in WITHOUT_ALL:
                page.run(heading)

        nodes.kill(2)
        wait_gone(cluster)
        for heading in WITHOUT_NODE_2:
            page.run(heading)
        page.end("quorate serve")
        shutil.rmtree(nodes.nodes[2].data_dir)
        wait_gone(cluster)
        page.run("A disk of a node is lost")
        page.end("quorate serve")
        cluster.kill(3)
        page.run("A broker is down or not ready")
        page.end("quorate broker")
    heal(cluster)
