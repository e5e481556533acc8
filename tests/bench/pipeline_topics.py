"""The topic source beside Spark's own Kafka connector: the same topic, every column, one broker process."""

from __future__ import annotations

import os
from functools import partial

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.pipeline_case import Bench, Timed
from tests.support.broker_cluster import running_brokers

TOPIC = "measured"
PARTITIONS = 2
RECORD_BYTES = 100
DEADLINE_S = 60.0


def run(bench: Bench) -> list[Timed]:
    """Fill a topic, and read all of it with each of the two."""
    with running_brokers(1) as cluster:
        fill(cluster.bootstrap, bench.rows)

        def read(name: str) -> None:
            options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": TOPIC}
            frame = bench.spark.read.format(name).options(**options).load()
            frame.write.format("noop").mode("overwrite").save()

        words = f"topic of {RECORD_BYTES}-byte records"
        return [
            bench.timed(f'{words}: format("{name}")', bench.rows, "rows", partial(read, name))
            for name in ("quorate", "kafka")
        ]


def fill(bootstrap: str, rows: int) -> None:
    """Produce records without a key."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(DEADLINE_S)
    queue = {"linger.ms": 20, "queue.buffering.max.messages": rows}
    producer = Producer({"bootstrap.servers": bootstrap, **queue})
    value = os.urandom(RECORD_BYTES)
    for number in range(rows):
        producer.produce(TOPIC, value, partition=number % PARTITIONS)
        if number % 1000 == 0:
            producer.poll(0)
    assert producer.flush(DEADLINE_S) == 0
