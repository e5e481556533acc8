"""The lag of consumer groups, as the coordinator's broker exports it."""

from __future__ import annotations

import re
import urllib.request
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.group_members import create_topic
from tests.support.nodes import eventually

WAIT_S = 30.0
ROW = re.compile(r'(\w+)="([^"]*)"')


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    settings = {"groups": {"group_initial_rebalance_delay_ms": 0}}
    with brokers_in_thread(3, settings=settings) as running:
        yield running


def values(cluster: BlockingBrokers, name: str) -> dict[tuple[str, ...], float]:
    """Return {values of the labels, by their names: value} of a metric, of all brokers together."""
    found: dict[tuple[str, ...], float] = {}
    for url in cluster.admin_urls:
        for line in page(url).splitlines():
            if line.startswith((f"{name}{{", f"{name} ")):
                head, _, value = line.rpartition(" ")
                found[tuple(each for _, each in ROW.findall(head))] = float(value)
    return found


def page(url: str) -> str:
    """Return the metrics of a broker; "": it is stopped."""
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
            text: str = answer.read().decode()
            return text
    except OSError:
        return ""


def produce(cluster: BlockingBrokers, topic: str, counts: dict[int, int]) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for partition, count in counts.items():
        for _ in range(count):
            producer.produce(topic, b"x", partition=partition)
    assert producer.flush(WAIT_S) == 0


def commit(cluster: BlockingBrokers, group: str, topic: str, offsets: dict[int, int]) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group, "log_level": 0})
    rows = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]
    consumer.commit(offsets=rows, asynchronous=False)
    consumer.close()


def test_the_coordinator_shows_each_partition_and_their_sum(cluster: BlockingBrokers) -> None:
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}), "orders", 3)
    produce(cluster, "orders", {0: 5, 1: 7, 2: 1})
    commit(cluster, "billing", "orders", {0: 2, 1: 7, 2: 0})
    eventually(lambda: values(cluster, "quorate_group_sum_lag_records") == {("billing",): 4.0}, WAIT_S)
    assert values(cluster, "quorate_group_lag_records") == {
        ("billing", "0", "orders"): 3.0,
        ("billing", "1", "orders"): 0.0,
        ("billing", "2", "orders"): 1.0,
    }
    assert values(cluster, "quorate_group_unknown_lag_partitions") == {("billing",): 0.0}
    assert values(cluster, "quorate_group_lag_left_out") == {(): 0.0}
    # What waits gets older, what is committed does not wait.
    eventually(lambda: values(cluster, "quorate_group_max_lag_seconds")["billing",] > 1, WAIT_S)
    assert values(cluster, "quorate_group_lag_seconds")["billing", "1", "orders"] == 0.0
    commit(cluster, "billing", "orders", {0: 5, 2: 1})
    eventually(lambda: values(cluster, "quorate_group_sum_lag_records") == {("billing",): 0.0}, WAIT_S)
    assert values(cluster, "quorate_group_max_lag_seconds") == {("billing",): 0.0}


def test_a_leader_that_is_away_makes_its_lag_absent(cluster: BlockingBrokers) -> None:
    topic, group = "lone", "shipping"
    (coordinator,) = (
        number
        for number, url in enumerate(cluster.admin_urls, 1)
        if "quorate_coordinator_active 1.0" in page(url)
    )
    away = coordinator % 3 + 1
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    replicas = [[coordinator], [away]]
    admin.create_topics([NewTopic(topic, 2, replica_assignment=replicas)])[topic].result(WAIT_S)
    produce(cluster, topic, {0: 2, 1: 3})
    commit(cluster, group, topic, {0: 1, 1: 1})
    eventually(lambda: values(cluster, "quorate_group_sum_lag_records").get((group,)) == 3.0, WAIT_S)
    cluster.stop(away)
    eventually(lambda: values(cluster, "quorate_group_unknown_lag_partitions").get((group,)) == 1.0, WAIT_S)
    rows = values(cluster, "quorate_group_lag_records")
    assert {key: value for key, value in rows.items() if key[0] == group} == {(group, "0", topic): 1.0}
    assert (group, "1", topic) not in values(cluster, "quorate_group_lag_seconds")
    assert values(cluster, "quorate_group_sum_lag_records")[group,] == 1.0
    cluster.start(away)
    eventually(lambda: values(cluster, "quorate_group_sum_lag_records").get((group,)) == 3.0, WAIT_S)
