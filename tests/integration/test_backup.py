"""A drill: a cluster is backed up under load, lost, and restored into three new nodes.

One old cluster, one backup that was taken while writers wrote, and one new cluster for all tests. Source:
docs/operate/backup.md.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.protocol.states import ZnodeStat
from kazoo.security import make_digest_acl

from quorum.backup.points import read_time
from tests.site.commands import walk
from tests.support.broker_cluster import BrokerCluster
from tests.support.node_configs import SMALL_SEGMENTS
from tests.support.nodes import LIVE, QUICK_SESSIONS, QuorateNodes, eventually

DEADLINE_S = 30.0
SETTINGS = {**QUICK_SESSIONS, "limits": {**QUICK_SESSIONS["limits"], **SMALL_SEGMENTS["limits"]}}
SETTINGS["raft"] = dict(SMALL_SEGMENTS["raft"])
JUMP = 1 << 32
WRITERS = 3
#: anything but --bootstrap
PLAIN = ("--set", "limits.tick_ms=500")


def quorate(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "quorum", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def admin(nodes: QuorateNodes) -> str:
    return ",".join(nodes.admin_url(node_id) for node_id in nodes.node_ids)


@contextlib.contextmanager
def connect(nodes: QuorateNodes, node_id: int = 1, **options: Any) -> Iterator[KazooClient]:
    client = KazooClient(nodes.host(node_id), timeout=10.0, **options)
    client.start()
    try:
        yield client
    finally:
        client.stop()
        client.close()


def restore(nodes: QuorateNodes, node_id: int, backup: Path, *options: str) -> dict[str, Any]:
    """Write a node's data directory; returns the report."""
    config = str(nodes.nodes[node_id].config_path)
    done = quorate("restore", str(backup), "--config", config, "--json", *options)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


class Writers:
    """Threads that create znodes, one after the other, and note what was acknowledged."""

    def __init__(self, nodes: QuorateNodes) -> None:
        #: {path: czxid}
        self.acknowledged: dict[str, int] = {}
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._write, args=(nodes, node_id)) for node_id in nodes.node_ids
        ]
        for thread in self._threads:
            thread.start()

    def _write(self, nodes: QuorateNodes, node_id: int) -> None:
        with connect(nodes, node_id) as client:
            for count in itertools.count():
                if self._stop.is_set():
                    return
                path = f"/load/{node_id}-{count}"
                _, stat = client.create(path, b"x" * 100, include_data=True)
                self.acknowledged[path] = stat.czxid

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S)


@dataclass
class Drill:
    """What was there, and what became of it."""

    old: QuorateNodes
    backup: Path
    report: dict[str, Any]
    #: {path: (data, Stat)} of znodes that nobody touched afterwards
    kept: dict[str, tuple[bytes | None, ZnodeStat]]
    #: {path: czxid} of what writers had acknowledged before the backup began, and until they stopped
    before: dict[str, int]
    acknowledged: dict[str, int]
    #: id and password of a session that owned an ephemeral
    client_id: tuple[int, bytes]
    #: a point before /kept/item was changed
    early_zxid: int
    new: QuorateNodes = field(default_factory=QuorateNodes)
    restored: list[dict[str, Any]] = field(default_factory=list)


def populate(client: KazooClient) -> int:
    """Write what a restore must keep; returns the zxid behind the first value of /kept/item."""
    client.ensure_path("/load")
    client.create("/kept", b"")
    client.create("/kept/item", b"one")
    client.create("/kept/empty", b"")
    client.create("/kept/queue", b"")
    for _ in range(3):
        client.create("/kept/queue/job-", b"", sequence=True)
    client.delete("/kept/queue/job-0000000001")
    early: int = client.create("/kept/mark", b"", include_data=True)[1].czxid
    client.set("/kept/item", b"two")
    client.create("/kept/secret", b"s", acl=[make_digest_acl("ann", "secret", all=True)])
    transaction = client.transaction()
    transaction.create("/kept/multi-1", b"1")
    transaction.create("/kept/multi-2", b"2")
    assert len(transaction.commit()) == 2
    client.create("/kept/alive", b"", ephemeral=True)
    return early


def shorten_log(nodes: QuorateNodes, client: KazooClient) -> None:
    """Let the first node's log begin behind a snapshot, as that of any cluster does after some time."""
    client.create("/bulk", b"")

    def begins_later() -> bool:
        for _ in range(8):
            client.set("/bulk", b"x" * 60_000)
        nodes.take_snapshot(1)
        first_index: int = json.loads(nodes.get(1, "/v1/journal")[1])["first_index"]
        return first_index > 1

    eventually(begins_later, DEADLINE_S, "the log is compacted")


KEPT = ("/kept/item", "/kept/empty", "/kept/queue", "/kept/queue/job-0000000002", "/kept/multi-2")


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drill]:
    backup = tmp_path_factory.mktemp("drill") / "backup"
    with QuorateNodes(settings=SETTINGS) as old, connect(old) as client:
        shorten_log(old, client)
        early_zxid = populate(client)
        kept = {path: client.get(path) for path in KEPT}
        writers = Writers(old)
        eventually(lambda: len(writers.acknowledged) > 100, DEADLINE_S, "the writers write")
        before = dict(writers.acknowledged)
        done = quorate("backup", str(backup), "--admin", admin(old), "--json")
        after = len(writers.acknowledged)
        eventually(lambda: len(writers.acknowledged) > after, DEADLINE_S, "the writers go on")
        writers.stop()
        assert done.returncode == 0, done.stderr
        report = json.loads(done.stdout)
        made = Drill(old, backup, report, kept, before, writers.acknowledged, client.client_id, early_zxid)
        try:
            yield made
        finally:
            made.new.close()


@pytest.fixture
def new(drill: Drill) -> QuorateNodes:
    """The new cluster, running; restored once."""
    if not drill.restored:
        LIVE.append(drill.new)
        drill.restored = [restore(drill.new, node_id, drill.backup) for node_id in (1, 2, 3)]
        for node_id in (1, 2, 3):
            drill.new.start_node(node_id, *PLAIN)
    drill.new.wait_ready(1, 2, 3)
    return drill.new


def test_what_was_acknowledged_before_the_backup_is_in_the_new_cluster(
    drill: Drill, new: QuorateNodes
) -> None:
    with connect(new, 2) as client:
        found = set(client.get_children("/load"))
        last_zxid = drill.report["last_zxid"]
        expected = {path for path, zxid in drill.acknowledged.items() if zxid <= last_zxid}
        assert set(drill.before) <= expected
        assert {path for path in drill.acknowledged if path.removeprefix("/load/") in found} == expected
        path = next(iter(drill.before))
        assert client.exists(path).czxid == drill.before[path]


def test_data_stats_access_lists_and_counters_are_as_they_were(drill: Drill, new: QuorateNodes) -> None:
    with connect(new) as client:
        assert {path: client.get(path) for path in KEPT} == drill.kept
        with pytest.raises(NoAuthError):
            client.get("/kept/secret")
        client.add_auth("digest", "ann:secret")
        assert client.get("/kept/secret")[0] == b"s"
        assert client.exists("/kept/alive") is None
        name = client.create("/kept/queue/job-", b"", sequence=True)
        assert name == "/kept/queue/job-0000000003"
        client.delete(name)


def test_zxids_and_sessions_begin_beyond_the_old_clusters(drill: Drill, new: QuorateNodes) -> None:
    reports = drill.restored
    assert {report["cluster_id"] for report in reports} == {new.status(1)["cluster_id"]}
    assert new.status(1)["cluster_id"] != drill.report["cluster_id"]
    for report in reports:
        assert report["next_zxid"] >= drill.report["last_zxid"] + JUMP
        assert report["as_of_zxid"] == drill.report["last_zxid"]
        assert (report["ephemerals_left_out"], report["sessions_closed"] >= 1 + WRITERS) == (1, True)
    with connect(new, client_id=drill.client_id) as client:
        # As after an expiry: another session.
        assert client.client_id[0] > drill.client_id[0] + JUMP // 2
        _, stat = client.create("/new", b"", include_data=True)
        assert stat.czxid >= reports[0]["next_zxid"]
        code, body = new.get(1, "/v1/changelog?from_zxid=0")
        assert (code, json.loads(body)["first_retained_zxid"]) == (410, reports[0]["next_zxid"])


def test_a_lost_disk_of_the_new_cluster_is_replaced(new: QuorateNodes) -> None:
    """It gets the restored state as a snapshot, which names no members, and the founding behind it."""
    new.stop(3)
    shutil.rmtree(new.nodes[3].data_dir)
    eventually(
        lambda: new.change(1, "POST", "/v1/members", {"node_id": 3, "replace": True})[0] == 200, DEADLINE_S
    )
    new.start_node(3, "--join")
    new.wait_ready(3)
    with connect(new, 3) as client:
        client.sync("/")
        assert client.get("/kept/item")[0] == b"two"
    assert new.one_digest()


def test_a_point_in_time_is_restored_by_zxid_and_by_time(drill: Drill) -> None:
    backup = str(drill.backup)
    report = json.loads(
        quorate("restore", backup, "--dry-run", "--as-of-zxid", str(drill.early_zxid), "--json").stdout
    )
    assert report["as_of_zxid"] == drill.early_zxid
    again = quorate("restore", backup, "--dry-run", "--as-of-time", report["as_of_time"], "--json")
    assert json.loads(again.stdout)["as_of_zxid"] >= drill.early_zxid
    outside = quorate("restore", backup, "--dry-run", "--as-of-zxid", str(drill.report["last_zxid"] + 1))
    assert outside.returncode == 2
    first, last = str(drill.report["first_zxid"]), str(drill.report["last_zxid"])
    assert f"zxid {first} … {last}" in outside.stderr
    early = quorate("restore", backup, "--dry-run", "--as-of-time", "2001-01-01T00:00:00Z")
    assert early.returncode == 2
    assert f"zxid {first} … {last}" in early.stderr
    assert read_time(drill.report["first_time"]) <= read_time(drill.report["last_time"])


def test_the_files_are_for_their_owner_and_begin_with_a_snapshot(drill: Drill) -> None:
    files = sorted(drill.backup.iterdir())
    assert [path.name for path in files] == ["backup.json", "journal", "snapshot"]
    assert [path.stat().st_mode & 0o777 for path in (drill.backup, *files)] == [0o700, *[0o600] * 3]
    assert drill.report["bytes"] == sum(path.stat().st_size for path in files)
    assert 0 < drill.report["first_zxid"] < drill.early_zxid < drill.report["last_zxid"]


def test_a_founder_without_the_restored_state_is_waited_for(drill: Drill) -> None:
    """It would found an empty cluster; both sides say what is missing."""
    mixed = QuorateNodes(nodes=2)
    LIVE.append(mixed)
    try:
        restore(mixed, 1, drill.backup)
        mixed.start_node(1, *PLAIN)
        mixed.start_node(2, "--bootstrap")
        eventually(lambda: "already" in str(mixed.status(2)["problem"]), DEADLINE_S)
        assert "quorate restore" in str(mixed.status(1)["problem"])
        mixed.stop(2)
        shutil.rmtree(mixed.nodes[2].data_dir)
        restore(mixed, 2, drill.backup)
        mixed.start_node(2, *PLAIN)
        mixed.wait_ready(1, 2)
        with connect(mixed) as with_data:
            assert with_data.get("/kept/item")[0] == b"two"
    finally:
        mixed.close()


def produce(bootstrap: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    producer.produce("orders", value, partition=0)
    assert producer.flush(DEADLINE_S) == 0


def consume(bootstrap: str, count: int) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "drill"})
    consumer.assign([TopicPartition("orders", 0, 0)])
    try:
        return [message.value() for message in consumer.consume(count, DEADLINE_S)]
    finally:
        consumer.close()


def test_brokers_refuse_a_quorum_that_forgot_leader_epochs_of_their_logs(tmp_path: Path) -> None:
    """One that runs stops, a start ends, and an epoch that is raised as the page says keeps all records.

    The commands of docs/operate/backup.md do all of it.
    """
    with BrokerCluster(brokers=1) as cluster:
        node = cluster.nodes.nodes[1]
        kafka = cluster.bootstrap
        assert (
            quorate("topics", "create", "orders", "--partitions", "1", "--bootstrap", kafka).returncode == 0
        )
        produce(kafka, b"before")
        rewrites = {
            "http://10.0.0.1:8181,http://10.0.0.2:8181": cluster.nodes.admin_url(1),
            "node.toml": str(node.config_path),
            "/var/lib/quorate/data": str(node.data_dir),
        }
        addresses = {"hosts": cluster.nodes.hosts}
        (folder := tmp_path / "page").mkdir()
        with walk("docs/operate/backup.md", folder, rewrites=rewrites, addresses=addresses) as page:
            point = page.run("Back up").split()[-1].strip("()")
            page.replaced["2026-11-27T20:59:00Z"] = point
            known = int(cluster.state("orders", 0)["leader_epoch"])
            cluster.stop(1)
            cluster.start_broker(1)
            cluster.wait_ready(1)
            produce(kafka, b"after")
            newer = int(cluster.state("orders", 0)["leader_epoch"])
            assert newer > known

            cluster.nodes.stop(1)
            node.data_dir.rename(node.folder / "lost")
            page.run("Restore")
            cluster.nodes.start_node(1)
            named = f"orders-0 has records of leader epoch {newer}, and the quorum's state has leader epoch"
            eventually(lambda: not cluster.running(1), DEADLINE_S, "the broker stops")
            assert f"{named} {known}" in cluster.brokers[1].output_path.read_text()
            cluster.stop(1)
            code, said = cluster.run_to_end(1)
            assert (code, f"{named} {known}" in said, "docs/operate/backup.md" in said) == (1, True, True)
            assert f"orders-0: the log has leader epoch {newer}, the quorum's state {known}" in said

            forgotten = cluster.state("orders", 0)
            page.replaced["broker-1.log broker-2.log broker-3.log"] = str(cluster.brokers[1].output_path)
            page.run("Brokers")
            assert cluster.state("orders", 0) == forgotten | {"leader_epoch": newer}
        cluster.start_broker(1)
        cluster.wait_ready(1)
        assert consume(kafka, 2) == [b"before", b"after"]
