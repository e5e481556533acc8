"""Kafka 3.9.1's own consumer and its tool for consumer groups, against brokers in this process."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.kafka_jars import kafka_tool_command

WAIT_S = 60.0
RECORDS = 100
SETTINGS = {
    "groups": {"group_initial_rebalance_delay_ms": 0, "group_consumer_heartbeat_interval_ms": 300},
}
Tool = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(2, settings=SETTINGS) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("java", 4, 2)])["java"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(RECORDS):
            producer.produce("java", b"%d" % number, partition=number % 4)
        assert producer.flush(WAIT_S) == 0
        yield running


@pytest.fixture(scope="module")
def tool(cluster: BlockingBrokers, tmp_path_factory: pytest.TempPathFactory) -> Tool:
    folder = tmp_path_factory.mktemp("kafka")

    def run(name: str, *words: str) -> str:
        command = [*kafka_tool_command(name, folder), "--bootstrap-server", cluster.bootstrap, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stdout, done.stdout
        return done.stdout

    return run


def consumed(tool: Tool, group: str, protocol: str) -> list[dict[str, Any]]:
    words = ["--topic", "java", "--group-id", group, "--group-protocol", protocol]
    words += ["--max-messages", str(RECORDS), "--reset-policy", "earliest"]
    said = tool("org.apache.kafka.tools.VerifiableConsumer", *words)
    return [json.loads(line) for line in said.splitlines()]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_the_java_consumer_reads_and_commits(tool: Tool, protocol: str) -> None:
    events = consumed(tool, protocol, protocol)
    assert sum(each["count"] for each in events if each["name"] == "records_consumed") == RECORDS
    assert all(each["success"] for each in events if each["name"] == "offsets_committed")
    assert events[-1]["name"] == "shutdown_complete"


def test_the_tool_for_groups_lists_describes_resets_and_deletes(tool: Tool) -> None:
    consumed(tool, "tools", "classic")
    name = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    assert ["tools", "Empty"] in [line.split() for line in tool(name, "--list", "--state").splitlines()]
    rows = [line.split() for line in tool(name, "--describe", "--group", "tools").splitlines()]
    assert ["tools", "java", "0", "25", "25", "0", "-", "-", "-"] in rows
    goal = ["--group", "tools", "--topic", "java:0", "--to-earliest", "--execute"]
    # Its table is one line.
    assert tool(name, "--reset-offsets", *goal).split()[-4:] == ["tools", "java", "0", "0"]
    assert "was successful" in tool(name, "--delete", "--group", "tools")
