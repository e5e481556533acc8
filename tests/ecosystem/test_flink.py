"""Flink 1.20 runs on the brokers unchanged: a job that copies exactly once, with task managers killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.ecosystem.committed import CommittedTopic
from tests.ecosystem.programs import java_program
from tests.support.broker_cluster import BrokerCluster

DEADLINE_S = 180.0
WAIT_S = 30.0
PARTITIONS = 2
RECORDS = 2_000


@pytest.fixture
def brokers() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in ("in", "out")]).values():
            future.result(WAIT_S)
        yield running


def produce(bootstrap: str, first: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(first, first + RECORDS):
        producer.produce("in", str(number), partition=number % PARTITIONS)
    assert producer.flush(DEADLINE_S) == 0


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_flink_job_copies_each_record_once_beside_kills(brokers: BrokerCluster, tmp_path: Path) -> None:
    copied = CommittedTopic(brokers.bootstrap, "out", PARTITIONS)
    arguments = (brokers.bootstrap, str(tmp_path / "checkpoints"), "copies")
    with java_program("flink", "FlinkCopy.java", tmp_path / "flink", *arguments) as job:
        job.wait_for("running", DEADLINE_S)
        produce(brokers.bootstrap, 0)
        copied.wait_for(RECORDS, DEADLINE_S)
        produce(brokers.bootstrap, RECORDS)
        job.say("kill one")
        job.wait_for("killed", DEADLINE_S)
        brokers.kill(2)
        produce(brokers.bootstrap, 2 * RECORDS)
        found = copied.wait_for(3 * RECORDS, DEADLINE_S)
        copied.close()
    assert sorted(int(value or -1) for _, value in found) == list(range(3 * RECORDS))
