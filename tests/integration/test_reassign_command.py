"""`quorate reassign` and Kafka's clients against real brokers: records arrive whole while partitions move."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient
from kazoo.client import KazooClient

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.cli.main import main
from quorum.metadata.paths import PartitionKey
from tests.support.broker_records import quiet
from tests.support.embedded_brokers import zookeeper
from tests.support.nodes import eventually
from tests.support.nothing_lost_brokers import (
    PARTITIONS,
    TOPIC,
    SteadyProducer,
    check,
    read_all,
    wait_for_records,
)

__all__ = ["zookeeper"]

WAIT_S = 60.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(4) as running:
        yield running


class Quorate:
    """Runs the command line and reads what it prints."""

    def __init__(self, cluster: BlockingBrokers, output: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = cluster.bootstrap
        self._output = output

    def text(self, *words: str, code: int = 0) -> str:
        self._output.readouterr()
        found = main(["reassign", words[0], "--bootstrap", self._bootstrap, *words[1:]])
        captured = self._output.readouterr()
        assert found == code, captured.err
        return captured.err if code else captured.out

    def json(self, *words: str, code: int = 0) -> Any:
        self._output.readouterr()
        assert main(["reassign", words[0], "--bootstrap", self._bootstrap, "--json", *words[1:]]) == code
        return json.loads(self._output.readouterr().out)


@pytest.fixture
def quorate(cluster: BlockingBrokers, capsys: pytest.CaptureFixture[str]) -> Quorate:
    return Quorate(cluster, capsys)


def create(cluster: BlockingBrokers, topic: str, assignment: list[list[int]]) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(topic, len(assignment), replica_assignment=assignment)
    admin.create_topics([wanted])[topic].result(WAIT_S)


def record_of(zookeeper: KazooClient, topic: str) -> dict[str, Any]:
    value, _ = zookeeper.get(f"/brokers/topics/{topic}")
    found: dict[str, Any] = json.loads(value)
    return found


def isr_of(zookeeper: KazooClient, topic: str, partition: int) -> set[int]:
    value, _ = zookeeper.get(f"/brokers/topics/{topic}/partitions/{partition}/state")
    return set(json.loads(value)["isr"])


def holders(cluster: BlockingBrokers, topic: str, partition: int) -> set[int]:
    """The brokers whose data directory has the partition."""
    key = PartitionKey(topic, partition)
    return {
        broker_id
        for broker_id, broker in cluster._running._running.items()
        if broker.state.parts is not None and key in broker.state.parts.directory.logs
    }


def until_nothing_moves(quorate: Quorate) -> None:
    eventually(lambda: quorate.json("status") == [], WAIT_S, "nothing is under way")


def test_partitions_move_under_load_to_exactly_the_target(
    cluster: BlockingBrokers, zookeeper: KazooClient, quorate: Quorate, tmp_path: Path
) -> None:
    create(cluster, TOPIC, [[1, 2]] * PARTITIONS)
    producer = SteadyProducer("moving", cluster.bootstrap)
    try:
        wait_for_records([producer], 1_000)
        plan = tmp_path / "moves.json"
        for brokers, expected in (("3,4", {3, 4}), ("1,2,3,4", None), ("2,3", {2, 3})):
            plan.write_text(quorate.text("plan", "--brokers", brokers, TOPIC))
            assert "started" in quorate.text("start", str(plan))
            wait_for_records([producer], 500)
            until_nothing_moves(quorate)
            replicas = record_of(zookeeper, TOPIC)["partitions"]
            for row in json.loads(plan.read_text())["partitions"]:
                assert replicas[str(row["partition"])] == row["replicas"]
            for number in range(PARTITIONS):
                target = set(replicas[str(number)])
                assert expected is None or target == expected
                assert isr_of(zookeeper, TOPIC, number) == target
                assert holders(cluster, TOPIC, number) == target
            if expected is None:
                load = [sum(each in found for found in replicas.values()) for each in (1, 2, 3, 4)]
                assert load == [PARTITIONS // 2] * 4
    finally:
        producer.finish()
    assert producer.failures == []
    # librdkafka may send a later batch to a new leader before the one that the former refused. It then begins
    # a new epoch, in which it repeats what it takes for not written.
    wrong = check([producer], read_all(cluster.bootstrap))
    assert [each for each in wrong if "are there twice" not in each] == []


def test_several_requests_run_at_once_and_kafkas_client_sees_them(
    cluster: BlockingBrokers, zookeeper: KazooClient, quorate: Quorate
) -> None:
    create(cluster, "one", [[1, 2]])
    create(cluster, "two", [[2, 1], [1, 2]])
    cluster.stop(4)
    eventually(lambda: 4 not in registered(zookeeper), WAIT_S)
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap.split(",")[:3])
    with contextlib.closing(admin):
        wanted = {
            KafkaTopicPartition("one", 0): [1, 3],
            KafkaTopicPartition("two", 0): [3, 2],
            KafkaTopicPartition("two", 1): [1, 4],
        }
        found = admin.alter_partition_reassignments(wanted)
        refused = {each.topic: error.errno for each, error in found.items() if error is not None}
        assert refused == {"two": 39}
        zookeeper.create(
            "/admin/reassign_partitions",
            b'{"version":1,"partitions":[{"topic":"two","partition":1,"replicas":[3,1]}]}',
        )
        until_nothing_moves(quorate)
        eventually(lambda: zookeeper.exists("/admin/reassign_partitions") is None, WAIT_S)
        assert admin.list_partition_reassignments() == {}
        cluster.start(4)
    assert record_of(zookeeper, "one")["partitions"] == {"0": [1, 3]}
    assert record_of(zookeeper, "two")["partitions"] == {"0": [3, 2], "1": [3, 1]}


def test_a_move_to_a_broker_that_is_down_is_shown_and_cancelled(
    cluster: BlockingBrokers, zookeeper: KazooClient, quorate: Quorate, tmp_path: Path
) -> None:
    create(cluster, "waits", [[1, 2]])
    producer = Producer(quiet(cluster.bootstrap) | {"acks": "all"})
    producer.produce("waits", b"value", partition=0)
    assert producer.flush(WAIT_S) == 0
    moves = tmp_path / "moves.json"
    row = {"topic": "waits", "partition": 0, "replicas": [1, 4]}
    moves.write_text(json.dumps({"version": 1, "partitions": [row]}))
    assert "no live broker 9" in quorate.text("start", _file(tmp_path, [{**row, "replicas": [9]}]), code=1)
    cluster.kill(4)
    assert quorate.json("start", str(moves))[0]["error"] is None
    eventually(lambda: 4 not in registered(zookeeper), WAIT_S)
    shown = quorate.json("status")
    assert [(each["adding"], each["removing"], each["not_in_sync"]) for each in shown] == [([4], [2], [4])]
    assert "waits" in quorate.text("status")
    assert quorate.json("cancel", "--all")[0]["error"] is None
    until_nothing_moves(quorate)
    assert record_of(zookeeper, "waits")["partitions"] == {"0": [1, 2]}
    assert "No partition reassignment is in progress" in quorate.text("cancel", str(moves), code=1)
    assert "no partition" in quorate.text("status")
    # What may have come to its disk is a stray there.
    cluster.start(4)
    eventually(lambda: holders(cluster, "waits", 0) == {1, 2}, WAIT_S)


def test_a_replica_that_its_assignment_no_longer_names_is_a_stray(
    cluster: BlockingBrokers, zookeeper: KazooClient, quorate: Quorate, tmp_path: Path
) -> None:
    create(cluster, "stray", [[1, 4]])
    eventually(lambda: holders(cluster, "stray", 0) == {1, 4}, WAIT_S)
    cluster.stop(4)
    quorate.text("start", _file(tmp_path, [{"topic": "stray", "partition": 0, "replicas": [1, 2]}]))
    until_nothing_moves(quorate)
    cluster.start(4)
    assert holders(cluster, "stray", 0) == {1, 2}
    broker = cluster._running._running[4]
    assert list(Path(broker.state.config.broker.data_dir).glob("**/stray-0*-stray"))
    assert isr_of(zookeeper, "stray", 0) == {1, 2}


def test_copying_is_throttled_until_the_rate_is_raised_or_the_throttle_ended(
    cluster: BlockingBrokers, zookeeper: KazooClient, quorate: Quorate, tmp_path: Path
) -> None:
    create(cluster, "slow", [[1, 2]])
    create(cluster, "quick", [[1, 2]])
    producer = Producer(quiet(cluster.bootstrap) | {"acks": "all"})
    for _ in range(5):
        for topic in ("slow", "quick"):
            producer.produce(topic, bytes(100_000))
        assert producer.flush(WAIT_S) == 0

    def moves(topic: str) -> str:
        file = tmp_path / f"{topic}.json"
        row = {"topic": topic, "partition": 0, "replicas": [2, 3]}
        file.write_text(json.dumps({"version": 1, "partitions": [row]}))
        return str(file)

    told = quorate.text("start", moves("slow"), "--throttle", "1")
    assert "copy at most 1 bytes a second each, in each direction, until `quorate reassign " in told
    assert "throttle off`\nstarted 1 of 1" in told
    quorate.text("start", moves("quick"))
    eventually(lambda: [row["topic"] for row in quorate.json("status")] == ["slow"], WAIT_S)
    assert 3 not in isr_of(zookeeper, "slow", 0)
    raised = quorate.json("throttle", "50000000")
    assert raised["bytes_per_second"] == 50_000_000 and {1, 2, 3} <= set(raised["brokers"])
    until_nothing_moves(quorate)
    assert isr_of(zookeeper, "slow", 0) == {2, 3}
    assert "are still throttled; end it with `quorate reassign throttle off`" in quorate.text("status")
    assert "copy without a throttle" in quorate.text("throttle", "off")
    assert quorate.text("status") == "no partition is being reassigned\n"
    for path in ("/config/topics/slow", "/config/brokers/3"):
        assert json.loads(zookeeper.get(path)[0])["config"] == {}
    assert "give --throttle to `quorate reassign start`" in quorate.text("throttle", "5", code=2)
    assert "missing-0: " in quorate.text("start", moves("missing"), "--throttle", "5", code=1)
    assert quorate.text("status") == "no partition is being reassigned\n"


@pytest.mark.parametrize(
    ("words", "story"),
    [
        (("plan", "--brokers", "1,1"), "different broker ids"),
        (("plan", "--brokers", "9"), "no live broker 9"),
        (("plan", "no-such-topic"), "does not exist"),
        (("start", "/no/such/file"), "cannot be read"),
        (("start", "-"), "is not a list of reassignments"),
        (("start", "-"), "remedy: correct the file"),
        (("cancel",), "either a file or --all"),
        (("throttle", "0"), "'0' is not a number of bytes a second"),
        (("start", "-", "--throttle", "off"), "'off' is not a number of bytes a second"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(
    quorate: Quorate, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], story: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"[]")))
    assert story in quorate.text(*words, code=2)


def _file(folder: Path, rows: list[dict[str, object]]) -> str:
    path = folder / "rows.json"
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def registered(zookeeper: KazooClient) -> list[int]:
    return [int(each) for each in zookeeper.get_children("/brokers/ids")]
