"""The sink beside Spark's own Kafka connector: the same rows appended to a topic, one broker process.

Ours stages the rows first and so writes them twice; the connector's may double rows after a failure.
"""

from __future__ import annotations

from functools import partial

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.pipeline_case import Bench, Timed
from tests.support.broker_cluster import running_brokers

PARTITIONS = 2
VALUE_BYTES = 100
DEADLINE_S = 60.0


def run(bench: Bench) -> list[Timed]:
    """Append rows with keys with each of the two, to a topic of its own."""
    with running_brokers(1) as cluster:
        rows = bench.spark.range(bench.rows).selectExpr(
            "CAST(id AS STRING) AS key", f"RPAD(CAST(id AS STRING), {VALUE_BYTES}, 'v') AS value"
        )
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})

        def write(name: str) -> None:
            options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": f"by-{name}"}
            rows.write.format(name).mode("append").options(**options).save()

        timed = []
        for name in ("quorate", "kafka"):
            topic = NewTopic(f"by-{name}", PARTITIONS, 1)
            admin.create_topics([topic])[topic.topic].result(DEADLINE_S)
            words = f'sink, {VALUE_BYTES}-byte values: format("{name}")'
            timed.append(bench.timed(words, bench.rows, "rows", partial(write, name)))
        return timed
