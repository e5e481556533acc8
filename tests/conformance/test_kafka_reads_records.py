"""Kafka 3.9.1's own classes read what we write into the quorum, as we mean it."""

from __future__ import annotations

import subprocess
import uuid
from pathlib import Path

from broker.lifecycle.registration import broker_record
from quorum.config.address import Address
from quorum.metadata.numbers import ControllerEpoch, LeaderEpoch
from quorum.metadata.records import (
    NO_LEADER,
    RECOVERING,
    BrokerConfigRecord,
    ControllerRecord,
    PartitionStateRecord,
    ProducerIdBlockRecord,
    TopicConfigRecord,
    TopicRecord,
    encode_cluster_id,
    encode_controller_epoch,
    encode_topic_id,
)
from tests.support.kafka_jars import kafka_java_command
from tests.support.trust import TRUST

PROGRAM = Path(__file__).parent / "java" / "KafkaRecords.java"
DEADLINE_S = 120.0
TOPIC_ID = uuid.UUID("5db2ced6-64f3-48c1-89d2-416f05cc401b")
BROKER = broker_record(
    clients={"CLIENT": Address("one.example", 9092)},
    broker=Address("one.example", 9192),
    admin="http://127.0.0.1:9292",
    rack="r1",
    incarnation="0" * 32,
    timestamp_ms=1_700_000_000_000,
    reads_queue=True,
)


def _state(leader: int, isr: tuple[int, ...], recovery: int = 0) -> bytes:
    return PartitionStateRecord(ControllerEpoch(7), leader, LeaderEpoch(9), isr, recovery).encode()


#: (kind, name, value, what Kafka must see in it)
RECORDS: list[tuple[str, str, bytes, list[str]]] = [
    ("controller", "-", ControllerRecord(3, 1_700_000_000_000).encode(), ["Some(3)"]),
    ("controller_epoch", "-", encode_controller_epoch(ControllerEpoch(12)), ["12"]),
    ("cluster", "-", encode_cluster_id("XbLO1mTzSMGJ0kFvBcxAGw"), ["XbLO1mTzSMGJ0kFvBcxAGw"]),
    (
        *("broker", "5", TRUST.sign("/brokers/ids/5", BROKER.encode(), 7)),
        [
            *("5 : ", "r1", "EndPoint(one.example,9092,ListenerName(CLIENT),PLAINTEXT)"),
            "EndPoint(one.example,9192,ListenerName(BROKER),SASL_PLAINTEXT)",
        ],
    ),
    (
        *("topic", "orders", TopicRecord(TOPIC_ID, {0: (1, 2), 1: (2, 1)}, {1: (3,)}, {1: (2,)}).encode()),
        [
            *("orders", encode_topic_id(TOPIC_ID)),
            "orders-0 -> ReplicaAssignment(replicas=1,2, addingReplicas=, removingReplicas=)",
            "orders-1 -> ReplicaAssignment(replicas=2,1, addingReplicas=3, removingReplicas=2)",
        ],
    ),
    (
        "state",
        "-",
        _state(2, (2, 1)),
        ["Leader:2,ISR:2,1,", "RECOVERED", "LeaderEpoch:9", "ControllerEpoch:7"],
    ),
    ("state", "-", _state(NO_LEADER, ()), ["Leader:-1,ISR:,"]),
    ("state", "-", _state(1, (1,), RECOVERING), ["Leader:1,ISR:1,LeaderRecoveryState:RECOVERING"]),
    (
        *("config", "-", TopicConfigRecord({"retention.ms": "5", "min.insync.replicas": "2"}).encode()),
        ["{min.insync.replicas=2, retention.ms=5}"],
    ),
    (
        *("config", "-", BrokerConfigRecord({"leader.replication.throttled.rate": "1000"}).encode()),
        ["{leader.replication.throttled.rate=1000}"],
    ),
    (
        *("producer_ids", "-", ProducerIdBlockRecord(4, 3000, 3999).encode()),
        ["assignedBrokerId=4", "firstProducerId=3000", "size=1000"],
    ),
]


def test_kafka_reads_our_records_as_we_mean_them(tmp_path: Path) -> None:
    lines = [f"{kind} {name} {value.hex()}" for kind, name, value, _ in RECORDS]
    done = subprocess.run(
        kafka_java_command(PROGRAM, tmp_path),
        input="\n".join(lines) + "\n",
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(RECORDS), done.stdout
    for (kind, _, _, parts), answer in zip(RECORDS, answers, strict=True):
        missing = [part for part in parts if part not in answer]
        assert not missing, f"{kind}: Kafka sees {answer}, which lacks {missing}"
