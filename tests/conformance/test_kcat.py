"""kcat of Debian (librdkafka 2.0.2), unchanged, against three brokers.

KAFKA_RECORDS=100000 sends so many with each codec.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import CODECS, PARTITIONS, RECORDS, expected, quiet, sample, stored_codecs

DEADLINE_S = 300.0
#: between key and value, and between records; neither is in a sample
BETWEEN = "|"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers() as running:
        yield running


def kcat(cluster: BrokerCluster, *arguments: str, given: bytes = b"") -> bytes:
    done = subprocess.run(
        ["kcat", "-b", cluster.bootstrap, *arguments],
        input=given,
        capture_output=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def rows(cluster: BrokerCluster, topic: str, partition: int) -> list[dict[str, Any]]:
    out = kcat(cluster, "-C", "-t", topic, "-p", str(partition), "-o", "beginning", "-e", "-q", "-J")
    return [json.loads(line) for line in out.splitlines()]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec_come_back_as_they_were_sent(cluster: BrokerCluster, codec: str) -> None:
    topic = f"kcat-{codec}"
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic(topic, PARTITIONS, 3)], operation_timeout=20)[topic].result(30)
    for partition in range(PARTITIONS):
        lines = b"".join(
            record.key + BETWEEN.encode() + record.value + b"\n" for record in expected(partition, RECORDS)
        )
        options = ["-P", "-t", topic, "-p", str(partition), "-K", BETWEEN, "-H", "from=kcat", "-z", codec]
        kcat(cluster, *options, "-X", "enable.idempotence=true", given=lines)
        found = rows(cluster, topic, partition)
        assert [(row["key"].encode(), row["payload"].encode()) for row in found] == [
            (record.key, record.value) for record in expected(partition, RECORDS)
        ]
        assert all(row["headers"] == ["from", "kcat"] and row["ts"] > sample(0).timestamp_ms for row in found)
        data_dir = cluster.brokers[cluster.leader_of(topic, partition)].data_dir
        assert stored_codecs(data_dir, topic, partition) == {CODECS[codec]}


def test_kcat_lists_brokers_and_topics(cluster: BrokerCluster) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic("listed", 2, 3)], operation_timeout=20)["listed"].result(30)
    listed = json.loads(kcat(cluster, "-L", "-J"))
    assert sorted(broker["id"] for broker in listed["brokers"]) == [1, 2, 3]
    topic = next(each for each in listed["topics"] if each["topic"] == "listed")
    assert [sorted(row["id"] for row in part["replicas"]) for part in topic["partitions"]] == [[1, 2, 3]] * 2


def test_kcat_asks_for_an_offset_by_time(cluster: BrokerCluster) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic("asked", 1, 3)], operation_timeout=20)["asked"].result(30)
    kcat(cluster, "-P", "-t", "asked", "-p", "0", given=b"one\ntwo\n")
    first = rows(cluster, "asked", 0)[0]
    assert b"offset 0" in kcat(cluster, "-Q", "-t", f"asked:0:{first['ts']}")
