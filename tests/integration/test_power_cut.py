"""All brokers and all nodes lose power at once: real processes, logs cut back to what was fsynced."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_cluster import SHORT_SESSION_MS, BrokerCluster
from tests.support.broker_records import log_files, quiet, reading
from tests.support.nodes import eventually

WAIT_S = 60.0
RECORDS = 90
SMALL_SEGMENTS: dict[str, dict[str, object]] = {"limits": {"segment_bytes_min": 4096}}
TOPICS = {"triple": 3, "single": 1}


@pytest.mark.long
def test_after_a_power_cut_of_the_site_all_that_a_disk_has_is_served_with_no_command() -> None:
    with (
        BrokerCluster(session_timeout_ms=SHORT_SESSION_MS, settings=SMALL_SEGMENTS) as cluster,
        cluster.shown(),
    ):
        admin = AdminClient(quiet(cluster.bootstrap))
        config = {"segment.bytes": "4096", "min.insync.replicas": "1"}
        wanted = [NewTopic(name, 1, replicas, config=config) for name, replicas in TOPICS.items()]
        for created in admin.create_topics(wanted).values():
            created.result(WAIT_S)
        producer = Producer({**quiet(cluster.bootstrap), "acks": "all", "batch.num.messages": 1})
        failures: list[object] = []
        for number in range(RECORDS):
            for name in TOPICS:
                value = b"%d:" % number + b"x" * 300
                producer.produce(name, value, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(WAIT_S) == 0
        assert not any(failures)

        cluster.kill(1, 2, 3)
        cluster.nodes.kill(1)
        longest = 0
        for broker_id, kept in ((1, 3), (2, 6), (3, 5)):
            data_dir = cluster.brokers[broker_id].data_dir
            # Segments are fsynced in their order; a name may be there without its content.
            segments = log_files(data_dir, "triple", 0)
            for path in segments[kept:]:
                path.write_bytes(b"")
            longest = max(longest, int(segments[kept].stem))
            (data_dir / "boot-id").write_text("another boot\n")
        cluster.nodes.start_node(1)
        for broker_id in (1, 3, 2):
            cluster.start_broker(broker_id)
        cluster.wait_ready()

        def read(name: str, count: int) -> list[bytes]:
            consumer = Consumer({**reading(cluster.bootstrap), "auto.offset.reset": "error"})
            consumer.assign([TopicPartition(name, 0, 0)])
            found: list[bytes] = []

            def more() -> bool:
                found.extend(each.value() or b"" for each in consumer.consume(1000, 0.2) if not each.error())
                return len(found) >= count

            eventually(more, WAIT_S, f"{name} is read")
            consumer.close()
            return found

        values = [b"%d:" % number + b"x" * 300 for number in range(RECORDS)]
        assert read("triple", longest) == values[:longest]
        assert read("single", RECORDS) == values
