"""A topic with transactions, on Apache Kafka: both sources give its records and leave out its markers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from tests.chaos.kafka_peer import KafkaBrokers, KafkaCluster
from tests.chaos.peer import SampleZooKeeper
from tests.support.broker_cluster import BrokerProcess
from tests.support.topic_cluster import DEADLINE_S

pytestmark = pytest.mark.long

#: For the one broker.
SETTINGS = {
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "transaction.state.log.num.partitions": 1,
}
TOPIC = "paid"
#: Records of a transaction; then comes a marker, which has an offset as well.
RECORDS = 5


class TransactionBroker(KafkaBrokers):
    """A broker that can keep transactions without others."""

    def command(self, broker: BrokerProcess) -> list[str]:
        found = super().command(broker)
        with (broker.folder / "server.properties").open("a") as settings:
            settings.writelines(f"{name}={value}\n" for name, value in SETTINGS.items())
        return found


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    cluster = KafkaCluster(nodes=1, brokers=0)
    zookeeper = cast("SampleZooKeeper", cluster.nodes)
    cluster.brokers = TransactionBroker(1, zookeeper, cluster.proxies, cluster.folder)
    with cluster:
        produce(cluster.bootstrap)
        yield cluster.bootstrap


def produce(bootstrap: str) -> None:
    """One transaction that is committed, one that is aborted, and another one."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(DEADLINE_S)
    for number in range(3):
        producer.begin_transaction()
        for record in range(RECORDS):
            producer.produce(TOPIC, f"{number} {record}", partition=0)
        producer.flush(DEADLINE_S)
        end = producer.abort_transaction if number == 1 else producer.commit_transaction
        end(DEADLINE_S)


@pytest.mark.parametrize(
    ("options", "count"),
    [
        ({}, 15),
        ({"kafka.isolation.level": "read_committed"}, 10),
        # The marker is the last offset of the range, and more records follow.
        ({"startingOffsets": '{"paid":{"0":2}}', "endingOffsets": '{"paid":{"0":6}}'}, 3),
        ({"startingOffsets": '{"paid":{"0":5}}', "endingOffsets": '{"paid":{"0":6}}'}, 0),
    ],
)
def test_rows_beside_markers_are_identical(
    spark: SparkSession, bootstrap: str, options: dict[str, str], count: int
) -> None:
    def read(name: str) -> list[Any]:
        reader = spark.read.format(name).option("kafka.bootstrap.servers", bootstrap)
        frame = reader.option("subscribe", TOPIC).options(**options).load()
        return frame.select("value", "offset").orderBy("offset").collect()

    rows = read("quorate")
    assert rows == read("kafka")
    assert len(rows) == count
