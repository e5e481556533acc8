"""Kafka Connect 3.9.1 runs on the brokers unchanged: two workers, file connectors, exactly-once sources."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.ecosystem.committed import CommittedTopic
from tests.ecosystem.connect_worker import ConnectWorker
from tests.support.broker_cluster import BrokerCluster
from tests.support.nodes import eventually

DEADLINE_S = 120.0
LINES = 2_000
SOURCE = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK = "org.apache.kafka.connect.file.FileStreamSinkConnector"


@pytest.fixture
def brokers() -> Iterator[BrokerCluster]:
    with BrokerCluster(brokers=3) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("lines", 1, 3)])["lines"].result(DEADLINE_S)
        yield running


def asked(worker: ConnectWorker, method: str, path: str, body: object = None) -> Any:
    """Return the answer of a request that the workers can carry out now or soon."""

    def answer() -> tuple[Any] | None:
        # 409: the workers rebalance; 404: this one has not read yet what was written.
        status, found = worker.ask(method, path, body)
        assert status in (0, 200, 201, 404, 409, 500, 503), (status, found)
        return (found,) if status in (200, 201) else None

    found = eventually(answer, DEADLINE_S, f"{method} {path} is answered")
    assert found is not None
    return found[0]


def tasks_run(worker: ConnectWorker, *names: str) -> bool:
    for name in names:
        status, found = worker.ask("GET", f"/connectors/{name}/status")
        tasks = found["tasks"] if status == 200 else []
        states = {task["state"] for task in tasks}
        assert "FAILED" not in states, tasks
        if states != {"RUNNING"} or found["connector"]["state"] != "RUNNING":
            return False
    return True


@pytest.mark.timeout(600)
def test_file_connectors_survive_a_killed_worker_and_broker(brokers: BrokerCluster, tmp_path: Path) -> None:
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    first, second = (
        [f"line {number}" for number in range(LINES)],
        [f"more {number}" for number in range(LINES)],
    )
    source.write_text("\n".join(first) + "\n")
    with (
        ConnectWorker(tmp_path / "one", brokers.bootstrap, {}) as one,
        ConnectWorker(tmp_path / "two", brokers.bootstrap, {}) as two,
    ):
        for name, settings in (
            ("from-file", {"connector.class": SOURCE, "file": str(source), "topic": "lines"}),
            ("to-file", {"connector.class": SINK, "file": str(sink), "topics": "lines"}),
        ):
            asked(one, "PUT", f"/connectors/{name}/config", {**settings, "tasks.max": "1"})
        eventually(lambda: tasks_run(two, "from-file", "to-file"), DEADLINE_S, "both connectors run")
        eventually(
            lambda: sink.exists() and len(set(sink.read_text().splitlines())) >= LINES, DEADLINE_S, "lines"
        )
        # The worker of the source goes, and the broker that leads its topic.
        _, found = two.ask("GET", "/connectors/from-file/status")
        victim, other = (one, two) if str(one.port) in found["tasks"][0]["worker_id"] else (two, one)
        victim.kill()
        state = brokers.read("/brokers/topics/lines/partitions/0/state")
        assert state is not None
        brokers.kill(state["leader"])
        with source.open("a") as more:
            more.write("\n".join(second) + "\n")
        eventually(lambda: set(sink.read_text().splitlines()) >= {*first, *second}, DEADLINE_S, "all lines")
        assert tasks_run(other, "from-file", "to-file")
    topic = CommittedTopic(brokers.bootstrap, "lines", 1)
    found = topic.wait_for(2 * LINES, DEADLINE_S)
    topic.close()
    assert [value for _, value in found] == [*first, *second]
