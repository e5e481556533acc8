"""Kafka 3.9.1's tools about logs, and two clients, unchanged, against three brokers: deletions, sizes, pages.

Source: DeleteRecordsCommand, LogDirsCommand, GetOffsetShell, TransactionsCommand, TopicCommand and
ConfigCommand (Kafka 3.9); KIP-107, KIP-113, KIP-664, KIP-734, KIP-966.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka import TopicPartition as PythonPartition
from kafka.admin import KafkaAdminClient

from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import quiet
from tests.support.kafka_tools import KafkaTools
from tests.support.nodes import eventually

WAIT_S = 60.0
RECORDS = 60
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers(session_timeout_ms=2000) as running:
        yield running


@pytest.fixture(scope="module")
def tools(cluster: BrokerCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaTools]:
    running = KafkaTools(cluster.bootstrap, tmp_path_factory.mktemp("kafka"))
    yield running
    running.close()


def create(cluster: BrokerCluster, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with RECORDS records in each partition, several in each batch."""
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([wanted])[topic].result(WAIT_S)
    producer = Producer(
        quiet(cluster.bootstrap) | {"enable.idempotence": True, "linger.ms": 50, "batch.num.messages": 7}
    )
    for number in range(RECORDS * len(assignment)):
        producer.produce(topic, b"%d" % number, partition=number % len(assignment), timestamp=1_000 + number)
    assert producer.flush(WAIT_S) == 0
    cluster.wait_in_sync(topic)


def delete(cluster: BrokerCluster, topic: str, offset: int, partition: int = 0) -> int:
    """Delete through librdkafka; returns the low watermark."""
    wanted = TopicPartition(topic, partition, offset)
    admin = AdminClient(quiet(cluster.bootstrap))
    done = admin.delete_records([wanted], operation_timeout=30)
    return int(done[wanted].result(WAIT_S).low_watermark)


def bounds(cluster: BrokerCluster, topic: str, partition: int = 0) -> tuple[int, int]:
    """The first offset and the end, as a consumer sees them; it asks again while a leader is new."""
    consumer: Any = KafkaConsumer(bootstrap_servers=cluster.bootstrap.split(","))
    wanted = PythonPartition(topic, partition)
    found = consumer.beginning_offsets([wanted])[wanted], consumer.end_offsets([wanted])[wanted]
    consumer.close()
    return found


def first_read(cluster: BrokerCluster, topic: str, offset: int, reset: str = "earliest") -> int:
    """The offset of the first record that a consumer gets who begins at an offset."""
    consumer = Consumer(quiet(cluster.bootstrap) | {"group.id": "first", "auto.offset.reset": reset})
    consumer.assign([TopicPartition(topic, 0, offset)])
    try:
        record = consumer.poll(WAIT_S)
        assert record is not None
        if (error := record.error()) is not None:
            raise KafkaException(error)
        found = record.offset()
        assert found is not None
        return found
    finally:
        consumer.close()


# -- deleting ------------------------------------------------------------------------------------------------


def test_the_tool_deletes_up_to_an_offset_and_up_to_the_end(
    cluster: BrokerCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    create(cluster, "tool", [[1, 2, 3], [2, 3, 1]])
    path = tmp_path / "offsets.json"
    rows = [
        {"topic": "tool", "partition": 0, "offset": 25},
        {"topic": "tool", "partition": 1, "offset": -1},
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    said = tools.run(DELETE, "--offset-json-file", str(path))
    assert "partition: tool-0\tlow_watermark: 25" in said
    assert f"partition: tool-1\tlow_watermark: {RECORDS}" in said
    assert bounds(cluster, "tool", 0) == (25, RECORDS)
    assert bounds(cluster, "tool", 1) == (RECORDS, RECORDS)
    path.write_text(json.dumps({"version": 1, "partitions": [{**rows[0], "offset": RECORDS + 1}]}))
    said = tools.run(DELETE, "--offset-json-file", str(path))
    assert "OffsetOutOfRangeException" in said
    assert bounds(cluster, "tool", 0) == (25, RECORDS)


def test_a_consumer_below_the_start_is_sent_to_it(cluster: BrokerCluster) -> None:
    create(cluster, "reset", [[2, 3, 1]])
    assert delete(cluster, "reset", 30) == 30
    assert first_read(cluster, "reset", 0) == 30
    with pytest.raises(KafkaException, match="out of range"):
        first_read(cluster, "reset", 29, reset="error")


def test_deleted_records_stay_deleted_when_every_broker_is_killed(cluster: BrokerCluster) -> None:
    create(cluster, "killed", [[1, 2, 3]])
    assert delete(cluster, "killed", 33) == 33
    cluster.kill(1, 2, 3)
    for broker_id in (3, 2, 1):
        cluster.start_broker(broker_id)
    cluster.wait_ready()
    cluster.wait_in_sync("killed")
    assert bounds(cluster, "killed") == (33, RECORDS)
    # Each of them leads once.
    for broker_id in (1, 2):
        cluster.stop(broker_id)
        eventually(lambda b=broker_id: cluster.leader_of("killed", 0) != b, WAIT_S, "another one leads")  # type: ignore[misc]
        assert first_read(cluster, "killed", 0) == 33
        cluster.start_broker(broker_id)
        cluster.wait_ready(broker_id)
        cluster.wait_in_sync("killed")
    assert delete(cluster, "killed", -1) == RECORDS
    assert bounds(cluster, "killed") == (RECORDS, RECORDS)


def test_a_replica_that_moves_begins_at_the_start(
    cluster: BrokerCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    create(cluster, "moved", [[1, 2]])
    assert delete(cluster, "moved", 31) == 31
    path = tmp_path / "moves.json"
    path.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": "moved", "partition": 0, "replicas": [3]}]})
    )
    tools.run(REASSIGN, "--execute", "--reassignment-json-file", str(path))
    eventually(lambda: cluster.state("moved", 0).get("isr") == [3], WAIT_S, "the replica has moved")
    eventually(lambda: cluster.leader_of("moved", 0) == 3, WAIT_S, "broker 3 leads")
    assert bounds(cluster, "moved") == (31, RECORDS)
    assert first_read(cluster, "moved", 0) == 31
    cluster.kill(3)
    cluster.start_broker(3)
    cluster.wait_ready(3)
    assert bounds(cluster, "moved") == (31, RECORDS)


def test_kafka_python_deletes(cluster: BrokerCluster) -> None:
    create(cluster, "python", [[3, 1, 2]])
    admin: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(","))
    admin.delete_records({PythonPartition("python", 0): 12}, timeout_ms=30_000)
    admin.close()
    assert bounds(cluster, "python") == (12, RECORDS)


# -- what tools ask ------------------------------------------------------------------------------------------


def test_the_tool_for_offsets_knows_the_special_ones(cluster: BrokerCluster, tools: KafkaTools) -> None:
    create(cluster, "offsets", [[1, 2, 3]])
    delete(cluster, "offsets", 5)
    expected = {"-1": RECORDS, "-2": 5, "-3": RECORDS - 1, "-4": 5, "1000": 5, "1007": 7}
    for time, offset in expected.items():
        said = tools.run(OFFSETS, "--topic", "offsets", "--time", time)
        assert said.strip() == f"offsets:0:{offset}", time
    # Nothing is on other storage.
    assert tools.run(OFFSETS, "--topic", "offsets", "--time", "-5").strip() in ("", "offsets:0:")


def test_the_tool_for_log_directories_names_every_replica(cluster: BrokerCluster, tools: KafkaTools) -> None:
    create(cluster, "sizes", [[1, 2], [3, 1]])
    said = tools.run(LOG_DIRS, "--describe", "--topic-list", "sizes")
    found = json.loads(said.strip().splitlines()[-1])
    held = {}
    for broker in found["brokers"]:
        (directory,) = broker["logDirs"]
        assert (directory["error"], directory["logDir"]) == (
            None,
            str(cluster.brokers[broker["broker"]].data_dir),
        )
        for row in directory["partitions"]:
            held[broker["broker"], row["partition"]] = row
    assert sorted(held) == [(1, "sizes-0"), (1, "sizes-1"), (2, "sizes-0"), (3, "sizes-1")]
    for (broker_id, name), row in held.items():
        files = (cluster.brokers[broker_id].data_dir / name).glob("*.log")
        assert row["size"] == sum(each.stat().st_size for each in files) > 0
        assert (row["offsetLag"], row["isFuture"]) == (0, False)


def test_a_reassignment_to_another_log_directory_is_refused(
    cluster: BrokerCluster, tools: KafkaTools, tmp_path: Path
) -> None:
    create(cluster, "directories", [[1]])
    path = tmp_path / "moves.json"
    own = str(cluster.brokers[1].data_dir)
    for log_dir, code in (("/elsewhere", 1), (own, 0)):
        row = {"topic": "directories", "partition": 0, "replicas": [1], "log_dirs": [log_dir]}
        path.write_text(json.dumps({"version": 1, "partitions": [row]}))
        said = tools.run(REASSIGN, "--execute", "--reassignment-json-file", str(path), code=code)
        assert ("LogDirNotFound" in said) == bool(code), said


def test_the_tool_for_transactions_names_producers(cluster: BrokerCluster, tools: KafkaTools) -> None:
    create(cluster, "producers", [[2, 1]])
    words = ["describe-producers", "--topic", "producers", "--partition", "0"]
    head, row = [line.split() for line in tools.run(TRANSACTIONS, *words).splitlines() if line.strip()]
    assert head[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert row[1:4] == ["0", "-1", str(RECORDS - 1)]
    by_follower = tools.run(TRANSACTIONS, *words, "--broker-id", "1")
    assert row[0] in by_follower


def test_topics_are_described_page_by_page(cluster: BrokerCluster, tools: KafkaTools) -> None:
    create(cluster, "pages", [[1, 2], [2, 3], [3, 1], [1, 3], [2, 1]])
    words = ["--describe", "--topic", "pages", "--partition-size-limit-per-response", "2"]
    said = [line.split("\t") for line in tools.run(TOPICS, *words).splitlines() if "Leader:" in line]
    assert [row[2] for row in said] == [f"Partition: {each}" for each in range(5)]
    # Metadata says nothing of eligible replicas: the rows come from the pages.
    assert said[1][3:7] == ["Leader: 2", "Replicas: 2,3", "Isr: 2,3", "Elr: "]


def test_quotas_are_set_shown_and_removed(cluster: BrokerCluster, tools: KafkaTools) -> None:
    assert tools.run(CONFIGS, "--describe", "--entity-type", "clients").strip() == ""
    of = {
        "client-id 'an app'": ["--entity-type", "clients", "--entity-name", "an app"],
        "the default client-id": ["--entity-type", "clients", "--entity-default"],
        "user-principal 'eve'": ["--entity-type", "users", "--entity-name", "eve"],
    }
    both = [*of["user-principal 'eve'"], *of["the default client-id"]]
    of["user-principal 'eve', the default client-id"] = both
    for rate, words in enumerate(of.values(), 1):
        tools.run(CONFIGS, "--alter", *words, "--add-config", f"producer_byte_rate={rate}048576")
        tools.run(CONFIGS, "--alter", *words, "--add-config", "controller_mutation_rate=1.5")
    for rate, (what, words) in enumerate(of.items(), 1):
        said = tools.run(CONFIGS, "--describe", *words)
        assert said.startswith(f"Quota configs for {what} are ")
        assert f"producer_byte_rate={rate}048576.0" in said
        assert "controller_mutation_rate=1.5" in said
    found = {"controller_mutation_rate": "1.5", "producer_byte_rate": "1048576"}
    assert cluster.read("/config/clients/an%20app") == {"version": 1, "config": found}
    for words in of.values():
        tools.run(
            CONFIGS, "--alter", *words, "--delete-config", "producer_byte_rate,controller_mutation_rate"
        )
        assert tools.run(CONFIGS, "--describe", *words).strip() == ""
    refused = [*of["client-id 'an app'"], "--add-config", "request_percentage=50"]
    assert "set producer_byte_rate and consumer_byte_rate" in tools.run(CONFIGS, "--alter", *refused, code=1)
