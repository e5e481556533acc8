"""Apache Kafka in ZooKeeper mode moves with its metadata, and loses no record."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic  # type: ignore[attr-defined]  # its types lack two

from quorum.cli.main import main
from quorum.local import ensemble_in_thread
from tests.support.importing import DEADLINE_S, PASSWORD, Lines, Target, last_line, new_source
from tests.support.kafka_broker import kafka_broker_on

RECORDS = 200


def produce(bootstrap: str, begin: int) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number in range(begin, begin + RECORDS):
        producer.produce("orders", str(number).encode(), partition=number % 3)
    assert producer.flush(DEADLINE_S) == 0


def consume(bootstrap: str, count: int) -> list[int]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "billing", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["orders"])
    found: list[int] = []
    while len(found) < count:
        batch = consumer.consume(count - len(found), DEADLINE_S)
        assert batch, f"{len(found)} of {count} records came"
        found += [int(each.value() or b"") for each in batch if not each.error()]
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


@pytest.mark.long
def test_kafkas_ensemble_moves_with_a_broker_attached(tmp_path: Path, capsys: Lines) -> None:
    auth = tmp_path / "auth"
    auth.write_text(f"digest:super:{PASSWORD}\n")
    with new_source(tmp_path / "zk") as source, ensemble_in_thread(3) as quorum:
        target = Target(quorum.hosts, list(quorum.admin_urls), str(auth))
        with target.following(source), kafka_broker_on(source.hosts, tmp_path) as bootstrap:
            admin = AdminClient({"bootstrap.servers": bootstrap})
            topic = NewTopic("orders", 3, 1, config={"retention.ms": "123456789"})
            admin.create_topics([topic])["orders"].result(DEADLINE_S)
            produce(bootstrap, 0)
            assert sorted(consume(bootstrap, RECORDS)) == list(range(RECORDS))
            produce(bootstrap, RECORDS)
        assert main(target.words(source, "--cutover", "--quiet", "1")) == 0
        assert last_line(capsys)["phase"] == "done"
        with kafka_broker_on(quorum.hosts, tmp_path) as bootstrap:
            produce(bootstrap, 2 * RECORDS)
            assert sorted(consume(bootstrap, 2 * RECORDS)) == list(range(RECORDS, 3 * RECORDS))
            resource = ConfigResource("TOPIC", "orders")
            admin = AdminClient({"bootstrap.servers": bootstrap})
            settings = admin.describe_configs([resource])[resource].result(DEADLINE_S)
            assert settings["retention.ms"].value == "123456789"
