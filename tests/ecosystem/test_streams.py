"""Kafka Streams 3.9.1 runs on the brokers unchanged: counts and a windowed join, exactly once, with kills."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.ecosystem.committed import CommittedTopic, Record
from tests.ecosystem.programs import java_program
from tests.site.programs import settings
from tests.support.broker_cluster import BrokerCluster
from tests.support.java import JavaProgram
from tests.support.nodes import eventually

DEADLINE_S = 180.0
WAIT_S = 30.0
PARTITIONS = 2
LINES = 600
KEYS = 200
VOCABULARY = ("quorum", "leader", "follower", "epoch", "fence", "log", "offset", "commit", "abort", "term")


@pytest.fixture
def brokers() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        topics = ("words", "left", "right", "counts", "joined")
        for future in admin.create_topics([NewTopic(name, PARTITIONS, 3) for name in topics]).values():
            future.result(WAIT_S)
        yield running


def application(brokers: BrokerCluster, folder: Path, name: str) -> JavaProgram:
    folder = folder / name
    shown = settings("docs/clients/kafka.md", "streams.properties")
    arguments = (brokers.bootstrap, str(folder / "state"), shown["processing.guarantee"], "counts")
    return java_program("streams", "StreamsCounts.java", folder, *arguments)


def produce(bootstrap: str, lines: list[str], side: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for number, line in enumerate(lines):
        producer.produce("words", line, str(number))
    for number in range(KEYS):
        producer.produce(side, f"{side} {number}", str(number))
    assert producer.flush(DEADLINE_S) == 0


def increments(records: list[Record]) -> dict[str, list[int]]:
    """Return each word's counts in the order in which they were written."""
    found: dict[str, list[int]] = {}
    for word, count in records:
        assert word is not None
        assert count is not None
        found.setdefault(word, []).append(int(count))
    return found


@pytest.mark.timeout(600)
def test_streams_counts_each_word_exactly_once_beside_kills(brokers: BrokerCluster, tmp_path: Path) -> None:
    chance = random.Random(4)
    lines = [" ".join(chance.choices(VOCABULARY, k=5)) for _ in range(2 * LINES)]
    expected = Counter(word for line in lines for word in line.split(" "))
    counts = CommittedTopic(brokers.bootstrap, "counts", PARTITIONS)
    joined = CommittedTopic(brokers.bootstrap, "joined", PARTITIONS)

    def counted(wanted: Counter[str]) -> bool:
        found = {word: max(each) for word, each in increments(counts.read()).items()}
        assert found == wanted, found
        return True

    with application(brokers, tmp_path, "one") as one, application(brokers, tmp_path, "two") as two:
        produce(brokers.bootstrap, lines[:LINES], "left")
        first = Counter(word for line in lines[:LINES] for word in line.split(" "))
        eventually(lambda: counted(first), DEADLINE_S, "the first half is counted")
        # What it counted is restored from its changelog by the other instance, and by one that is new.
        one.__exit__()
        brokers.kill(1)
        produce(brokers.bootstrap, lines[LINES:], "right")
        with application(brokers, tmp_path, "three") as three:
            eventually(lambda: counted(expected), DEADLINE_S, "everything is counted")
            pairs = [(str(number), f"left {number}+right {number}") for number in range(KEYS)]
            joined.wait_for(KEYS, DEADLINE_S)
            assert sorted(map(str, joined.records)) == sorted(map(str, pairs))
            for program in (two, three):
                assert not program.all("failed"), program.lines
    # The last count of each word is right, and none came twice or went back.
    for word, each in increments(counts.read()).items():
        assert each == sorted(set(each)), word
    counts.close()
    joined.close()
