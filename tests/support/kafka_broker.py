"""One Apache Kafka 3.9.1 broker in ZooKeeper mode, on our quorum: ours are compared with it.

Source: Kafka's configuration reference (zookeeper.connect, listeners).
"""

from __future__ import annotations

import contextlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from quorum.local import ensemble_in_thread
from tests.support.kafka_jars import NO_LOG, KafkaJarsError, kafka_class_path
from tests.support.nodes import eventually, tail

START_DEADLINE_S: Final = 90.0
_JVM: Final = ("-Xms128m", "-Xmx256m", "-XX:TieredStopAtLevel=1")


@contextlib.contextmanager
def kafka_broker(folder: Path) -> Iterator[str]:
    """Run a broker and its quorum; yields "host:port" of its listener.

    Args:
        folder: for its files.

    Raises:
        KafkaJarsError: Java or the jars cannot be had.
    """
    with ensemble_in_thread(1) as quorum, kafka_broker_on(quorum.hosts, folder) as bootstrap:
        yield bootstrap


@contextlib.contextmanager
def kafka_broker_on(hosts: str, folder: Path) -> Iterator[str]:
    """Run a broker on a quorum or a ZooKeeper that is there; yields "host:port" of its listener.

    Args:
        hosts: of the quorum.
        folder: for its files; a broker that ran on them goes on.

    Raises:
        KafkaJarsError: Java or the jars cannot be had.
    """
    java = shutil.which("java")
    if java is None:
        raise KafkaJarsError("no java on PATH: run deploy/ensure-java.sh, or install Java 17")
    settings = {
        "broker.id": 1,
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.dirs": folder / "kafka-logs",
        "zookeeper.connect": hosts,
        "offsets.topic.num.partitions": 1,
        "offsets.topic.replication.factor": 1,
        "group.initial.rebalance.delay.ms": 0,
        "num.network.threads": 1,
        "num.io.threads": 2,
        "log.cleaner.enable": "false",
    }
    path, output = folder / "server.properties", folder / "kafka.log"
    path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = [java, *_JVM, NO_LOG, "-cp", kafka_class_path(folder), "kafka.Kafka", str(path)]
    with output.open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    zookeeper = KazooClient(hosts)
    try:
        zookeeper.start(START_DEADLINE_S)

        def registered() -> dict[str, Any]:
            assert process.poll() is None, tail(output)
            with contextlib.suppress(NoNodeError):
                found: dict[str, Any] = json.loads(zookeeper.get("/brokers/ids/1")[0])
                return found
            return {}

        found = eventually(registered, START_DEADLINE_S, "Kafka is registered")
        yield f"{found['host']}:{found['port']}"
    finally:
        process.kill()
        process.wait()
        zookeeper.stop()
        zookeeper.close()
