"""Kafka 3.9.1's own tools for topics, partitions and settings, unchanged, against brokers in this process.

But for one that runs until it is stopped, they run one after the other in one virtual machine.
Source: ReassignPartitionsCommand, LeaderElectionCommand, ConfigCommand, TopicCommand (Kafka 3.9); KIP-73,
KIP-455, KIP-460.
"""

from __future__ import annotations

import json
import re
import subprocess
import threading
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.local import BlockingBrokers, brokers_in_thread
from tests.support.broker_records import quiet
from tests.support.embedded_brokers import zookeeper
from tests.support.kafka_jars import kafka_tool_command
from tests.support.kafka_tools import KafkaTools
from tests.support.nodes import eventually

__all__ = ["zookeeper"]

WAIT_S = 60.0
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
VERIFY = "org.apache.kafka.tools.ReplicaVerificationTool"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"
RATES = {"leader.replication.throttled.rate", "follower.replication.throttled.rate"}
CONFIGS = "kafka.admin.ConfigCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"
REPLICAS = {"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"}
VALUE = bytes(1000)
RECORDS = 300
#: {(topic, partition): replicas}
Moves = Mapping[tuple[str, int], Sequence[int]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(4) as running:
        yield running


class ReassignTools(KafkaTools):
    """Runs the tools, also with files of moves."""

    def reassign(self, action: str, moves: Moves, *words: str) -> str:
        """Run the tool for reassignments with a file of moves."""
        return self.run(REASSIGN, action, "--reassignment-json-file", self.file(moves), *words)

    def file(self, moves: Moves) -> str:
        """Write a file of moves; returns its name."""
        rows = [
            {"topic": topic, "partition": partition, "replicas": replicas}
            for (topic, partition), replicas in moves.items()
        ]
        path = self.folder / "moves.json"
        path.write_text(json.dumps({"version": 1, "partitions": rows}))
        return str(path)


@pytest.fixture(scope="module")
def tools(cluster: BlockingBrokers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReassignTools]:
    running = ReassignTools(cluster.bootstrap, tmp_path_factory.mktemp("kafka"))
    yield running
    running.close()


def create(cluster: BlockingBrokers, topic: str, assignment: list[list[int]], records: int = 0) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([wanted])[topic].result(WAIT_S)
    producer = Producer(quiet(cluster.bootstrap) | {"acks": "all", "linger.ms": 0, "batch.size": 16_384})
    for number in range(records):
        producer.produce(topic, VALUE, partition=number % len(assignment))
    assert producer.flush(WAIT_S) == 0


def create_throttled(cluster: BlockingBrokers, topic: str, assignment: list[list[int]]) -> None:
    """Create a topic with records that every broker throttles before the tool begins to move it."""
    create(cluster, topic, assignment, RECORDS)
    admin = AdminClient(quiet(cluster.bootstrap))
    changes = [
        ConfigEntry(name, "*", incremental_operation=AlterConfigOpType.SET) for name in sorted(REPLICAS)
    ]
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
    admin.incremental_alter_configs([wanted])[wanted].result(WAIT_S)

    def is_known() -> bool:
        parts = [broker.state.parts for broker in cluster._running._running.values()]
        return all(each is not None and len(each.configs.overrides(topic)) == 2 for each in parts)

    eventually(is_known, WAIT_S, "every broker knows what is throttled")


def read(zookeeper: KazooClient, path: str) -> dict[str, Any]:
    """A record of the quorum; empty if there is none."""
    try:
        value, _ = zookeeper.get(path)
    except NoNodeError:
        return {}
    found: dict[str, Any] = json.loads(value)
    return found


def replicas(zookeeper: KazooClient, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = read(zookeeper, f"/brokers/topics/{topic}")["partitions"]
    return found


def state(zookeeper: KazooClient, topic: str, partition: int = 0) -> dict[str, Any]:
    return read(zookeeper, f"/brokers/topics/{topic}/partitions/{partition}/state")


def metric(cluster: BlockingBrokers, name: str) -> float:
    """The sum of a metric over the brokers that run."""
    found = 0.0
    for broker_id in cluster._running._running:
        with urllib.request.urlopen(f"{cluster.admin_urls[broker_id - 1]}/metrics", timeout=WAIT_S) as answer:
            lines = [line.split() for line in answer.read().decode().splitlines()]
        found += sum(float(words[1]) for words in lines if words[0] == name)
    return found


def throttles(zookeeper: KazooClient, topic: str) -> dict[str, str]:
    """What is set for the four brokers and a topic."""
    found: dict[str, str] = read(zookeeper, f"/config/topics/{topic}").get("config", {})
    for broker_id in range(1, 5):
        found |= read(zookeeper, f"/config/brokers/{broker_id}").get("config", {})
    return {name: value for name, value in found.items() if name in RATES | REPLICAS}


# -- reassignments -------------------------------------------------------------------------------------------


def test_a_generated_plan_is_executed_and_verified(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools, tmp_path: Path
) -> None:
    create(cluster, "planned", [[1, 2], [2, 1]], RECORDS)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "planned"}]}))
    words = ["--topics-to-move-json-file", str(topics), "--broker-list", "3,4"]
    said = tools.run(REASSIGN, "--generate", *words)
    proposed = json.loads(said.split("Proposed partition reassignment configuration\n")[1])
    moves = {(each["topic"], each["partition"]): each["replicas"] for each in proposed["partitions"]}
    assert sorted(moves) == [("planned", 0), ("planned", 1)]
    assert "Successfully started" in tools.reassign("--execute", moves)
    eventually(
        lambda: "is still in progress" not in tools.reassign("--verify", moves), WAIT_S, "the moves are over"
    )
    said = tools.reassign("--verify", moves)
    for partition in (0, 1):
        assert f"Reassignment of partition planned-{partition} is completed." in said
        assert replicas(zookeeper, "planned")[str(partition)] == moves["planned", partition]
        assert set(state(zookeeper, "planned", partition)["isr"]) == {3, 4}
    assert "No partition reassignments found." in tools.run(REASSIGN, "--list")


def test_a_throttled_move_is_listed_and_cancelled_with_its_throttles(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools
) -> None:
    create_throttled(cluster, "slow", [[1, 2]])
    moves = {("slow", 0): [3, 2]}
    said = tools.reassign("--execute", moves, "--throttle", "1")
    assert "The inter-broker throttle limit was set to 1 B/s" in said
    assert throttles(zookeeper, "slow") == {
        **dict.fromkeys(RATES, "1"),
        "leader.replication.throttled.replicas": "0:1,0:2",
        "follower.replication.throttled.replicas": "0:3",
    }
    assert "slow-0: replicas: 3,2,1. adding: 3. removing: 1." in tools.run(REASSIGN, "--list")
    assert "slow-0 is still in progress" in tools.reassign("--verify", moves)
    said = tools.reassign("--cancel", moves)
    assert "Successfully cancelled partition reassignment for: slow-0" in said
    assert throttles(zookeeper, "slow") == {}
    eventually(lambda: replicas(zookeeper, "slow") == {"0": [2, 1]}, WAIT_S, "the former replicas are back")
    assert state(zookeeper, "slow")["leader"] == 1


def test_a_higher_rate_takes_effect_while_partitions_move(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools
) -> None:
    create_throttled(cluster, "quicker", [[1, 2]])
    sent = metric(cluster, "quorate_broker_leader_throttled_bytes_total")
    fetched = metric(cluster, "quorate_broker_follower_throttled_bytes_total")
    moves = {("quicker", 0): [3, 4]}
    tools.reassign("--execute", moves, "--throttle", "1")
    assert metric(cluster, "quorate_broker_follower_throttled_bytes_total") - fetched < 100_000
    said = tools.reassign("--execute", moves, "--additional", "--throttle", "100000000")
    assert "The inter-broker throttle limit was set to 100000000 B/s" in said
    eventually(lambda: replicas(zookeeper, "quicker") == {"0": [3, 4]}, WAIT_S, "the move is over")
    # Both new replicas fetched everything.
    for name, before in (("leader", sent), ("follower", fetched)):
        counted = metric(cluster, f"quorate_broker_{name}_throttled_bytes_total") - before
        assert counted >= 2 * RECORDS * len(VALUE)
    assert "quicker-0 is completed" in tools.reassign("--verify", moves)
    assert throttles(zookeeper, "quicker") == {}


def test_a_move_to_a_broker_that_does_not_live_is_refused_by_the_tool(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools
) -> None:
    create(cluster, "stays", [[1, 2]])
    path = tools.file({("stays", 0): [1, 9]})
    said = tools.run(REASSIGN, "--execute", "--reassignment-json-file", path, code=1)
    assert "Unknown broker id 9" in said
    assert replicas(zookeeper, "stays") == {"0": [1, 2]}


def test_a_move_to_a_broker_that_dies_is_listed_and_undone(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools, tmp_path: Path
) -> None:
    create_throttled(cluster, "waits", [[1, 2]])
    moves = {("waits", 0): [1, 4]}
    tools.reassign("--execute", moves, "--throttle", "1")
    cluster.kill(4)
    eventually(lambda: "4" not in zookeeper.get_children("/brokers/ids"), WAIT_S, "broker 4 counts as dead")
    assert "waits-0: replicas: 1,4,2. adding: 4. removing: 2." in tools.run(REASSIGN, "--list")
    # The tool removes the rate of every broker at that broker itself: for one that is dead, it gives up.
    patience = tmp_path / "patience.properties"
    patience.write_text("default.api.timeout.ms=2000\nrequest.timeout.ms=1000\n")
    path, config = tools.file(moves), ["--command-config", str(patience)]
    said = tools.run(REASSIGN, "--cancel", "--reassignment-json-file", path, *config, code=1)
    assert "Successfully cancelled partition reassignment for: waits-0" in said
    eventually(lambda: replicas(zookeeper, "waits") == {"0": [1, 2]}, WAIT_S, "the former replicas are back")
    assert "No partition reassignments found." in tools.run(REASSIGN, "--list")
    cluster.start(4)
    parts = cluster._running._running[4].state.parts
    assert parts is not None
    assert parts.own_configs.overrides("4") == dict.fromkeys(RATES, "1")
    tools.reassign("--cancel", moves)
    assert throttles(zookeeper, "waits") == {}


# -- elections -----------------------------------------------------------------------------------------------


def lead_elsewhere(cluster: BlockingBrokers, zookeeper: KazooClient, topic: str) -> None:
    """Make broker 1 lead partitions that prefer broker 4, which is in sync again."""
    create(cluster, topic, [[4, 1], [4, 1], [1, 4]])
    cluster.stop(4)
    eventually(
        lambda: [state(zookeeper, topic, each)["leader"] for each in (0, 1)] == [1, 1],
        *(WAIT_S, "broker 1 leads"),
    )
    cluster.start(4)
    eventually(lambda: all(len(state(zookeeper, topic, each)["isr"]) == 2 for each in range(3)), WAIT_S)


def test_preferred_leaders_are_elected_by_partition_by_file_and_by_znode(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools, tmp_path: Path
) -> None:
    lead_elsewhere(cluster, zookeeper, "preferred")
    preferred = ["--election-type", "preferred"]
    said = tools.run(ELECT, *preferred, "--topic", "preferred", "--partition", "0")
    assert "Successfully completed leader election (PREFERRED) for partitions preferred-0" in said
    rows = [{"topic": "preferred", "partition": each} for each in (0, 2)]
    path = tmp_path / "elections.json"
    path.write_text(json.dumps({"partitions": rows}))
    said = tools.run(ELECT, *preferred, "--path-to-json-file", str(path))
    assert "Valid replica already elected for partitions preferred-0, preferred-2" in said
    assert [state(zookeeper, "preferred", each)["leader"] for each in range(3)] == [4, 1, 1]
    value = json.dumps({"version": 1, "partitions": [{"topic": "preferred", "partition": 1}]})
    zookeeper.create("/admin/preferred_replica_election", value.encode())
    eventually(lambda: state(zookeeper, "preferred", 1)["leader"] == 4, WAIT_S, "the znode is carried out")
    eventually(lambda: zookeeper.exists("/admin/preferred_replica_election") is None, WAIT_S)
    said = tools.run(ELECT, *preferred, "--topic", "preferred", "--partition", "7", code=1)
    assert "UnknownTopicOrPartitionException" in said


def test_all_partitions_get_their_preferred_leaders(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools
) -> None:
    lead_elsewhere(cluster, zookeeper, "all")
    said = tools.run(ELECT, "--election-type", "preferred", "--all-topic-partitions")
    assert "all-0" in said
    assert "all-1" in said
    assert "all-2" not in said
    assert [state(zookeeper, "all", each)["leader"] for each in range(3)] == [4, 4, 1]


def test_a_topic_is_described_by_its_id(cluster: BlockingBrokers, tools: KafkaTools) -> None:
    create(cluster, "by-id", [[1, 2]])
    by_name = tools.run(TOPICS, "--describe", "--topic", "by-id")
    (topic_id,) = re.findall(r"TopicId: (\S+)", by_name)
    by_id = tools.run(TOPICS, "--describe", "--topic-id", topic_id)
    # By its name, DescribeTopicPartitions is asked, which alone knows of eligible leaders.
    named, found = (
        [line.partition("\tElr:")[0] for line in text.splitlines() if "by-id" in line]
        for text in (by_name, by_id)
    )
    assert found == named
    assert len(named) == 2
    unknown = tools.run(TOPICS, "--describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAATQ", code=1)
    assert "does not exist as expected" in unknown


def test_replicas_are_verified(cluster: BlockingBrokers, tmp_path: Path) -> None:
    create(cluster, "same", [[1, 2, 3], [2, 3, 4]], records=10)
    options = ("--broker-list", cluster.bootstrap, "--topics-include", "same", "--report-interval-ms", "100")
    process = subprocess.Popen(
        [*kafka_tool_command(VERIFY, tmp_path), *options], stdout=subprocess.PIPE, text=True
    )
    guard = threading.Timer(WAIT_S, process.kill)
    guard.start()
    assert process.stdout is not None
    found = re.compile(r"max lag is 0 for partition same-\d at offset 5 among 2 partitions")
    said = []
    for line in process.stdout:
        said.append(line)
        if found.search(line):
            break
    guard.cancel()
    process.kill()
    process.communicate()
    assert found.search(said[-1]), said


def test_an_unclean_election_is_marked_and_counted(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: ReassignTools
) -> None:
    create(cluster, "unclean", [[3, 4]])
    cluster.stop(4)
    eventually(lambda: state(zookeeper, "unclean")["isr"] == [3], WAIT_S, "broker 4 has left the ISR")
    cluster.stop(3)
    eventually(lambda: state(zookeeper, "unclean")["leader"] == -1, WAIT_S, "the partition is offline")
    cluster.start(4)
    words = ["--topic", "unclean", "--partition", "0"]
    said = tools.run(ELECT, "--election-type", "preferred", *words, code=1)
    assert "PreferredLeaderNotAvailableException" in said
    assert metric(cluster, "quorate_controller_unclean_elections_total") == 0
    said = tools.run(ELECT, "--election-type", "unclean", *words)
    assert "Successfully completed leader election (UNCLEAN) for partitions unclean-0" in said
    found = state(zookeeper, "unclean")
    assert (found["leader"], found["isr"], found["leader_recovery_state"]) == (4, [4], 1)
    assert metric(cluster, "quorate_controller_unclean_elections_total") == 1
    assert "already elected" in tools.run(ELECT, "--election-type", "unclean", *words)
    cluster.start(3)


# -- settings ------------------------------------------------------------------------------------------------


def test_what_has_no_effect_is_set_and_shown(
    cluster: BlockingBrokers, zookeeper: KazooClient, tools: KafkaTools
) -> None:
    def kept() -> dict[str, str]:
        found: dict[str, str] = read(zookeeper, "/config/topics/tool.ed").get("config", {})
        return found

    topic = ["--entity-type", "topics", "--entity-name", "tool.ed"]
    create(cluster, "tool.ed", [[1, 2]])
    given = "compression.type=zstd,flush.messages=1,preallocate=true"
    assert "Completed updating config" in tools.run(CONFIGS, "--alter", *topic, "--add-config", given)
    said = tools.run(CONFIGS, "--describe", *topic)
    assert "compression.type=zstd" in said
    assert "preallocate=true" in said
    tools.run(CONFIGS, "--alter", *topic, "--delete-config", "preallocate")
    assert kept() == {"compression.type": "zstd", "flush.messages": "1"}
    said = tools.run(CONFIGS, "--alter", *topic, "--add-config", "cleanup.policy=compacted", code=1)
    assert "delete, compact, or both" in said
    assert kept() == {"compression.type": "zstd", "flush.messages": "1"}
    said = tools.run(CONFIGS, "--describe", "--all", "--entity-type", "brokers", "--entity-name", "1")
    assert "inter.broker.protocol.version=3.9 " in said
    said = tools.run(TOPICS, "--create", "--topic", "tool_ed", code=1)
    assert "Topic 'tool_ed' collides with existing topic: tool.ed" in said
