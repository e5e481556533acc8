"""The peer secret is replaced while nodes and brokers run and clients write: nothing fails or is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError

from quorum.metadata import paths
from quorum.metadata.rotation import check_value
from quorum.metadata.trust import Trust
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import eventually, server_environment
from tests.support.request_relay import RequestRelay

WAIT_S = 60.0
OLD, NEW = "old-" + 32 * "0", "new-" + 32 * "1"
#: requests of the command that are answered before it is killed: it is among the access lists then
ANSWERED = 60


class Secrets:
    """A cluster whose processes have a file of secrets each."""

    def __init__(self) -> None:
        self.cluster = BrokerCluster(brokers=2, nodes=3)
        self.files: list[Path] = []
        for node in self.cluster.nodes.nodes.values():
            self.files.append(node.secret_path)
        for broker in self.cluster.brokers.values():
            file = broker.folder / "peer.secret"
            broker.settings["security"] = {"peer_secret_file": str(file), "protect_znodes": True}
            self.files.append(file)
        self.outputs = [each.output_path for each in self.cluster.nodes.nodes.values()]
        self.outputs += [each.output_path for each in self.cluster.brokers.values()]
        self.write(OLD)

    def write(self, *lines: str) -> None:
        """Replace every file at once."""
        for file in self.files:
            written = file.with_suffix(".next")
            written.touch(mode=0o600)
            written.write_text("\n".join(lines) + "\n")
            written.replace(file)

    def step(self, *lines: str) -> None:
        """Replace every file and have it read; returns when all processes have."""
        told = "security.peer_secret_file is read again"
        before = [output.read_text().count(told) for output in self.outputs]
        self.write(*lines)
        for pid in (
            *map(self.cluster.nodes.pid, self.cluster.nodes.node_ids),
            *map(self.cluster.pid, self.cluster.brokers),
        ):
            os.kill(pid, signal.SIGHUP)
        for output, count in zip(self.outputs, before, strict=True):
            eventually(lambda o=output, c=count: o.read_text().count(told) == c + 1, WAIT_S, str(output))  # type: ignore[misc]

    def command(self, hosts: str, folder: Path, *lines: str) -> list[str]:
        """Return `quorate secret rotate` with a file of these lines."""
        file = folder / "-".join(each[:3] for each in lines)
        file.touch(mode=0o600)
        file.write_text("\n".join(lines))
        rotate = [sys.executable, "-m", "quorum", "secret", "rotate"]
        return [*rotate, "--hosts", hosts, "--peer-secret", str(file)]

    def rotate(self, folder: Path, *lines: str) -> subprocess.CompletedProcess[str]:
        """Run the command to its end."""
        command = self.command(self.cluster.nodes.hosts, folder, *lines)
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=WAIT_S, env=server_environment()
        )

    def replace(self, folder: Path) -> None:
        """Do every step, unless it was done."""
        if self.signers(NEW) == [0, 0]:
            return
        self.step(OLD, NEW)
        self.step(NEW, OLD)
        eventually(lambda: self.signers(NEW, OLD) == [0, 0], WAIT_S, "both sign with the new secret")
        assert self.rotate(folder, NEW, OLD).returncode == 0
        self.step(NEW)

    def trust(self, *secrets: str) -> Trust:
        """What follows from secrets in this cluster."""
        return Trust(secrets, json.loads(self.cluster.zookeeper.get(paths.CLUSTER_ID)[0])["id"])

    def signers(self, *secrets: str) -> list[int | None]:
        """By which of the secrets each registration is signed."""
        trust, found = self.trust(*secrets), []
        for broker_id in self.cluster.brokers:
            path = paths.broker_id_path(broker_id)
            data, stat = self.cluster.zookeeper.get(path)
            found.append(trust.signer(path, data, stat.ephemeralOwner))
        return found

    def standing(self) -> list[Any]:
        """What changes when a broker or the controller does: czxids and the epoch."""
        lives = [paths.CONTROLLER, *map(paths.broker_id_path, self.cluster.brokers)]
        czxids = [self.cluster.zookeeper.get(path)[1].czxid for path in lives]
        return [*czxids, self.cluster.controller_epoch()]


class Load:
    """Writes to the brokers and to the quorum, each as soon as the one before it is answered."""

    def __init__(self, cluster: BrokerCluster) -> None:
        self.failed: list[object] = []
        self.records = self.znodes = 0
        self._over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "retries": 0, "linger.ms": 5}
        )
        self._client = KazooClient(cluster.nodes.hosts, timeout=10)
        self._client.start(WAIT_S)
        self._client.create("/load")
        self._threads = [
            threading.Thread(target=self._run, args=[each]) for each in (self._produce, self._set)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.moved()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(WAIT_S)
        self.seen = self._client.get("/load")[1].version
        self._client.stop()
        self._client.close()

    def moved(self) -> None:
        """Wait until both have gone on."""
        records, znodes = self.records, self.znodes
        eventually(
            lambda: self.failed or (self.records > records + 20 and self.znodes > znodes + 5), WAIT_S, "load"
        )
        assert self.failed == []

    def _run(self, write: Callable[[], None]) -> None:
        while not self._over.is_set() and not self.failed:
            try:
                write()
            except (KazooException, AssertionError, BufferError) as error:
                self.failed.append(error)

    def _produce(self) -> None:
        for number in range(10):
            self._producer.produce("load", b"%d" % number, on_delivery=self._delivered)
        assert self._producer.flush(WAIT_S) == 0

    def _delivered(self, error: object, _: object) -> None:
        if error is not None:
            self.failed.append(error)
        else:
            self.records += 1

    def _set(self) -> None:
        self._client.set("/load", b"x")
        self.znodes += 1


@pytest.fixture(scope="module")
def secrets() -> Iterator[Secrets]:
    made = Secrets()
    with made.cluster:
        yield made


class Interrupting(RequestRelay):
    """Passes so many requests on to a node, and holds what follows."""

    def __init__(self, target_port: int, count: int) -> None:
        self.left = count
        super().__init__(target_port, control=False)

    def _keep_back(self, _link: object, _frame: bytes) -> bool:
        self.left -= 1
        return self.left < 0


def test_a_secret_is_replaced_under_load(secrets: Secrets, tmp_path: Path) -> None:
    cluster = secrets.cluster
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic("load", 2, 2, config={"min.insync.replicas": "2"})])["load"].result(WAIT_S)
    before = secrets.standing()
    with cluster.shown(), Load(cluster) as load:
        secrets.step(OLD, NEW)
        load.moved()
        early = secrets.rotate(tmp_path, NEW, OLD)
        assert early.returncode == 1
        assert "brokers 1, 2 have not the first secret of --peer-secret first" in early.stderr
        assert "swap the lines of their files" in early.stderr
        secrets.step(NEW, OLD)
        eventually(lambda: secrets.signers(NEW, OLD) == [0, 0], WAIT_S, "both sign with the new secret")
        load.moved()
        relay = Interrupting(cluster.nodes.nodes[1].client_port, ANSWERED)
        command = secrets.command(relay.address, tmp_path, NEW, OLD)
        with subprocess.Popen(command, env=server_environment()) as interrupted:
            eventually(lambda: relay.left < 0, WAIT_S, "the command is amid its work")
            interrupted.kill()
        relay.close()
        data, _ = cluster.zookeeper.get(paths.PEER_CHECK_VALUE)
        assert check_value(data) == secrets.trust(OLD).check_values[0]
        load.moved()
        done = secrets.rotate(tmp_path, NEW, OLD)
        assert done.returncode == 0, done.stderr
        counts = re.search(r"access lists of (\d+) of (\d+) znodes", done.stdout)
        assert counts is not None, done.stdout
        assert 0 < int(counts[1]) < int(counts[2]), "the first run did some"
        assert "and the check value" in done.stdout
        assert "next: cut every line but the first" in done.stdout
        again = secrets.rotate(tmp_path, NEW, OLD)
        assert "nothing to rewrite" in again.stdout
        secrets.step(NEW)
        load.moved()
        # What is made now hangs on the new secret alone, and nothing on the old one.
        admin.create_topics([NewTopic("after", 2, 2)])["after"].result(WAIT_S)
        assert "nothing to rewrite" in secrets.rotate(tmp_path, NEW).stdout
    assert load.failed == []
    assert secrets.standing() == before
    assert load.seen == load.znodes
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    ends = [consumer.get_watermark_offsets(TopicPartition("load", each), timeout=WAIT_S) for each in (0, 1)]
    consumer.close()
    assert sum(high for _, high in ends) == load.records


def test_new_connections_prove_the_new_secret_alone(secrets: Secrets, tmp_path: Path) -> None:
    """What starts after the replacement has never seen the former secret."""
    cluster = secrets.cluster
    secrets.replace(tmp_path)
    cluster.nodes.stop(3)
    cluster.nodes.start_node(3)
    cluster.stop(2)
    cluster.start_broker(2)
    cluster.nodes.wait_ready()
    cluster.wait_ready()
    for secret, allowed in ((OLD, False), (NEW, True)):
        client = KazooClient(cluster.nodes.hosts)
        client.start(WAIT_S)
        client.add_auth("digest", secrets.trust(secret).credentials[0].decode())
        path = paths.BROKER_TOPICS
        if allowed:
            client.set_acls(path, client.get_acls(path)[0])
        else:
            with pytest.raises(NoAuthError):
                client.set_acls(path, client.get_acls(path)[0])
        client.stop()
        client.close()
    wrong = secrets.rotate(tmp_path, OLD)
    assert wrong.returncode != 0
    assert "--peer-secret: none of its secrets is that of the brokers" in wrong.stderr


def test_a_file_that_skips_a_step_keeps_what_was(secrets: Secrets, tmp_path: Path) -> None:
    secrets.replace(tmp_path)
    cluster = secrets.cluster
    third = "third-" + 32 * "3"
    for lines, said in (
        ([third], "has no line that counts now"),
        ([NEW, NEW], "has one secret twice"),
    ):
        secrets.write(*lines)
        for pid in (cluster.nodes.pid(1), cluster.pid(1)):
            os.kill(pid, signal.SIGHUP)
        for output in (secrets.outputs[0], secrets.outputs[3]):
            eventually(lambda o=output, s=said: s in o.read_text(), WAIT_S, said)  # type: ignore[misc]
    # The same, where a former line counts in the process but is not the cluster's.
    secrets.step(NEW, third)
    secrets.write(third)
    os.kill(cluster.pid(1), signal.SIGHUP)
    eventually(lambda: "its secret is not that of the cluster" in secrets.outputs[3].read_text(), WAIT_S)
    assert cluster.ready(1)
    secrets.step(NEW)
