"""Damaged and shortened logs: what was acknowledged and is on one of the disks is there afterwards.

Brokers run in this process and are killed, so that many damages take little time. A power cut is what a kill
leaves, cut back to what was fsynced (here: to the last roll), under another boot id.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.cli.main import main
from tests.support.broker_records import log_files, quiet, reading
from tests.support.broker_sessions import generation_of
from tests.support.embedded_brokers import zookeeper
from tests.support.nodes import eventually

__all__ = ["zookeeper"]

WAIT_S = 60.0
RECORDS = 90
SEGMENT_BYTES = 4_096
BROKERS = (1, 2, 3)


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3, settings={"limits": {"segment_bytes_min": 4096}}) as running:
        yield running


class Topic:
    """One partition whose acknowledged records are known."""

    def __init__(
        self,
        cluster: BlockingBrokers,
        zookeeper: KazooClient,
        name: str,
        replicas: int = 3,
        segment_bytes: int = SEGMENT_BYTES,
        *,
        on: list[int] | None = None,
    ) -> None:
        """Create it; with `on`, on these brokers."""
        self.cluster = cluster
        self.zookeeper = zookeeper
        self.name = name
        self.wanted: list[bytes] = []
        admin = AdminClient(quiet(cluster.bootstrap))
        config = {"segment.bytes": str(segment_bytes), "min.insync.replicas": str(min(replicas, 2))}
        new = NewTopic(name, 1, replicas, config=config)
        if on is not None:
            new = NewTopic(name, 1, replica_assignment=[on])

        def created() -> bool:
            try:
                admin.create_topics([new])[name].result(WAIT_S)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.NOT_CONTROLLER:
                    raise
                return False
            return True

        eventually(created, WAIT_S, f"{name} is created")

    def produce(self, count: int = RECORDS) -> None:
        """Each record in a batch of its own, acknowledged by all."""
        failures: list[object] = []
        producer = Producer({**quiet(self.cluster.bootstrap), "acks": "all", "batch.num.messages": 1})
        for _ in range(count):
            value = b"%d:" % len(self.wanted) + b"x" * 300
            producer.produce(
                self.name, value, partition=0, on_delivery=lambda error, _: failures.append(error)
            )
            self.wanted.append(value)
        assert producer.flush(WAIT_S) == 0
        assert [each for each in failures if each is not None] == []

    def read(self, count: int | None = None, *, first: int = 0, wait_s: float = WAIT_S) -> list[bytes]:
        consumer = Consumer({**reading(self.cluster.bootstrap), "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(self.name, 0, first)])
        found: list[bytes] = []

        def more() -> bool:
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                found.append(message.value() or b"")
            return len(found) >= (len(self.wanted) if count is None else count)

        try:
            eventually(more, wait_s, f"{self.name} is read")
        finally:
            consumer.close()
        return found

    def state(self) -> dict[str, Any]:
        found, _ = self.zookeeper.get(f"/brokers/topics/{self.name}/partitions/0/state")
        state = json.loads(found)
        assert isinstance(state, dict)
        return state

    def in_sync(self) -> bool:
        state = self.state()
        return state["leader"] != -1 and set(state["isr"]) == set(self.replicas())

    def replicas(self) -> list[int]:
        found, _ = self.zookeeper.get(f"/brokers/topics/{self.name}")
        return list(json.loads(found)["partitions"]["0"])

    def folder(self, broker_id: int) -> Path:
        return data_dir(self.cluster, broker_id) / f"{self.name}-0"

    def segments(self, broker_id: int) -> list[Path]:
        return log_files(data_dir(self.cluster, broker_id), self.name, 0)


def data_dir(cluster: BlockingBrokers, broker_id: int) -> Path:
    return cluster._running._folder / f"broker-{broker_id}"


def kill_all(cluster: BlockingBrokers) -> None:
    for each in BROKERS:
        cluster.kill(each)


def start_all(cluster: BlockingBrokers, first: int) -> None:
    for each in (first, *(each for each in BROKERS if each != first)):
        cluster.start(each)


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


def unclean_elections(cluster: BlockingBrokers) -> int:
    registrations = [each.state.registration for each in cluster._running._running.values()]
    return sum(
        each.controller.status().counters.unclean_elections for each in registrations if each is not None
    )


def metric(cluster: BlockingBrokers, name: str) -> float:
    """The sum of a metric over all brokers, which run."""
    total = 0.0
    for url in cluster.admin_urls:
        with urllib.request.urlopen(f"{url}/metrics", timeout=WAIT_S) as answer:
            found = re.findall(rf"^{name} (\S+)$", answer.read().decode(), re.MULTILINE)
        total += sum(map(float, found))
    return total


def cut_power(topic: Topic, broker_id: int, segments: int) -> None:
    """Leave of a killed broker's log its first segments, and let its machine have booted again."""
    for path in topic.segments(broker_id)[segments:]:
        os.truncate(path, 0)
    (data_dir(topic.cluster, broker_id) / "boot-id").write_text("another boot\n")


def sweep(topic: Topic, numbers: Callable[[int], list[int]]) -> None:
    """Damage one segment of one replica after the other, while all are down, and start that broker first."""
    for broker_id in BROKERS:
        for number in numbers(len(topic.segments(broker_id))):
            eventually(topic.in_sync, WAIT_S, "all are in sync")
            kill_all(topic.cluster)
            # What was copied anew may be cut into other segments.
            path = topic.segments(broker_id)[: number + 1][-1]
            flip(path, path.stat().st_size - 50)
            start_all(topic.cluster, broker_id)
            assert topic.read() == topic.wanted, (broker_id, path)
            eventually(topic.in_sync, WAIT_S, "all are in sync")
            contents = {b"".join(each.read_bytes() for each in topic.segments(at)) for at in BROKERS}
            assert len(contents) == 1, (broker_id, path)


def test_a_damaged_segment_loses_nothing_though_its_broker_starts_first(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic = Topic(cluster, zookeeper, "flips")
    topic.produce()
    sweep(topic, lambda count: [count // 3, count - 1])
    assert unclean_elections(cluster) == 0
    # Whole segments were kept.
    assert [*data_dir(cluster, 1).glob("flips-0.*-stray")]


@pytest.mark.long
def test_every_segment_of_every_replica_damaged_in_turn_loses_nothing(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic = Topic(cluster, zookeeper, "sweep")
    topic.produce()
    sweep(topic, lambda count: list(range(count)))


def test_a_broker_with_a_damaged_segment_leaves_that_isr_alone_and_once(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic, other = Topic(cluster, zookeeper, "hurt"), Topic(cluster, zookeeper, "whole")
    for each in (topic, other):
        each.produce(20)
        eventually(each.in_sync, WAIT_S, "all are in sync")
    kill_all(cluster)
    flip(topic.segments(1)[1], 30)
    cluster.start(1)
    eventually(lambda: list(topic.state().get("shortened", ())) == ["1"], WAIT_S)
    eventually(lambda: topic.state()["leader"] == -1, WAIT_S)
    assert 1 not in topic.state()["isr"]
    eventually(lambda: other.state()["leader"] == 1, WAIT_S)
    # Killed again before anybody can help: it is still shortened.
    cluster.kill(1)
    cluster.start(1)
    eventually(lambda: other.state()["leader"] == 1, WAIT_S)
    assert (topic.state()["leader"], list(topic.state()["shortened"])) == (-1, ["1"])
    cluster.start(2)
    cluster.start(3)
    for each in (topic, other):
        assert each.read() == each.wanted
        eventually(each.in_sync, WAIT_S, "all are in sync")
    # Nothing takes it out again: neither a new controller nor another life of the broker itself.
    kill_all(cluster)
    cluster.start(1)
    for each in (topic, other):
        eventually(lambda each=each: each.state()["leader"] == 1, WAIT_S)  # type: ignore[misc]
    assert unclean_elections(cluster) == 0
    cluster.start(2)
    cluster.start(3)


def test_a_power_cut_of_all_brokers_needs_no_command(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic, single = Topic(cluster, zookeeper, "power"), Topic(cluster, zookeeper, "single", 1)
    for each in (topic, single):
        each.produce()
        eventually(each.in_sync, WAIT_S, "all are in sync")
    kill_all(cluster)
    kept = {1: 3, 2: 5, 3: 4}
    for broker_id, segments in kept.items():
        cut_power(topic, broker_id, segments)
    longest = int(topic.segments(2)[5].name.removesuffix(".log"))
    cluster.start(1)
    cluster.start(3)
    eventually(lambda: list(topic.state().get("shortened", ())) == ["1", "3"], WAIT_S)
    # Until its session is over, broker 2 counts as one that lives.
    eventually(lambda: topic.state()["leader"] == -1, WAIT_S)
    assert topic.state()["isr"] == [2]
    cluster.start(2)
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    assert topic.read(longest) == topic.wanted[:longest]
    assert single.read() == single.wanted
    assert unclean_elections(cluster) >= 2
    topic.wanted = topic.wanted[:longest]
    topic.produce(5)
    assert topic.read() == topic.wanted


def test_where_one_never_comes_back_the_best_of_the_others_is_elected_on_request(
    cluster: BlockingBrokers, zookeeper: KazooClient, capsys: pytest.CaptureFixture[str]
) -> None:
    topic = Topic(cluster, zookeeper, "gone")
    topic.produce()
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    kill_all(cluster)
    first, second, third = topic.replicas()
    for broker_id, segments in ((first, 3), (second, 5), (third, 6)):
        cut_power(topic, broker_id, segments)
    longest = int(topic.segments(second)[5].name.removesuffix(".log"))
    cluster.start(first)
    cluster.start(second)
    eventually(lambda: len(topic.state().get("shortened", ())) == 2, WAIT_S)
    eventually(lambda: topic.state()["leader"] == -1, WAIT_S)
    assert main(["topics", "elect", topic.name, "--unclean", "--bootstrap", cluster.bootstrap]) == 0
    capsys.readouterr()
    eventually(lambda: topic.state()["leader"] == second, WAIT_S)
    assert topic.state()["leader_recovery_state"] == 1
    cluster.start(third)
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    assert topic.read(longest) == topic.wanted[:longest]


@pytest.mark.parametrize(("disk", "controller"), [("shortened", "stays"), ("emptied", "goes")])
def test_a_topic_that_was_left_alone_meanwhile_counts_on_no_lost_record(
    cluster: BlockingBrokers, zookeeper: KazooClient, disk: str, controller: str
) -> None:
    active = json.loads(zookeeper.get("/controller")[0])["brokerid"]
    hurt, holder = (each for each in BROKERS if each != active)
    topic = Topic(cluster, zookeeper, f"apart-{disk}", 2, on=[hurt, holder])
    topic.produce()
    eventually(topic.in_sync, WAIT_S, "both are in sync")
    path = f"/brokers/topics/{topic.name}"
    whole, _ = zookeeper.get(path)
    zookeeper.set(path, b"[]")
    eventually(lambda: metric(cluster, "quorate_controller_topics_left_alone") == 1, WAIT_S, "it is seen")
    cluster.kill(hurt)
    eventually(lambda: not zookeeper.exists(f"/brokers/ids/{hurt}"), WAIT_S, "its session is over")
    if disk == "emptied":
        data_dir(cluster, hurt).rename(data_dir(cluster, hurt).with_name(f"former-{hurt}"))
    else:
        cut_power(topic, hurt, 3)
    _, judged = zookeeper.get(f"/brokers/incarnations/{hurt}")
    cluster.start(hurt)
    eventually(
        lambda: zookeeper.get(f"/brokers/incarnations/{hurt}")[1].version > judged.version,
        WAIT_S,
        "it is judged",
    )
    assert topic.state()["isr"] == [hurt, holder]
    cluster.kill(holder)
    eventually(lambda: not zookeeper.exists(f"/brokers/ids/{holder}"), WAIT_S, "its session is over")
    if controller == "goes":
        zookeeper.delete("/controller")
    zookeeper.set(path, whole)
    eventually(lambda: hurt not in topic.state()["isr"], WAIT_S, "the ISR counts on it no more")
    assert (topic.state()["leader"], topic.state()["isr"]) == (-1, [holder])
    cluster.start(holder)
    eventually(lambda: topic.state()["leader"] == holder, WAIT_S, "the one that has all leads")
    assert "leader_recovery_state" not in topic.state()
    assert topic.read() == topic.wanted
    eventually(topic.in_sync, WAIT_S, "both are in sync")
    eventually(lambda: metric(cluster, "quorate_broker_shortened_logs") == 0, WAIT_S, "none is shortened")


@pytest.mark.parametrize("replicas", [3, 1])
def test_damage_that_shows_when_it_is_read_costs_that_partition_alone(
    cluster: BlockingBrokers, zookeeper: KazooClient, replicas: int
) -> None:
    topic = Topic(cluster, zookeeper, f"read-{replicas}", replicas, segment_bytes=20_000)
    topic.produce()
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    owner = topic.replicas()[0]
    beside = Topic(cluster, zookeeper, f"beside-{replicas}", 1, on=[owner])
    kill_all(cluster)
    path = topic.segments(owner)[0]
    flip(path, 373 * 20 + 200)
    start_all(cluster, owner)
    eventually(lambda: topic.in_sync() and topic.state()["leader"] == owner, WAIT_S, "the damaged one leads")
    running = cluster._running._running[owner]
    generation = generation_of(running)
    beside.produce()
    if replicas == 1:
        # Nobody else has the record: what is around it can be read, and nothing else changes.
        with pytest.raises(AssertionError, match="is read"):
            topic.read(wait_s=2)
        assert topic.read(len(topic.wanted) - 21, first=21) == topic.wanted[21:]
        assert beside.read() == beside.wanted
        assert generation_of(running) == generation
        return
    assert topic.read() == topic.wanted
    eventually(lambda: generation_of(running) not in (None, generation), WAIT_S, "it has registered again")
    topic.produce(10)
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    assert topic.state()["leader"] != owner
    contents = {b"".join(each.read_bytes() for each in topic.segments(at)) for at in BROKERS}
    assert len(contents) == 1
    # Its other partition is as it was, and so is the broker.
    beside.produce(10)
    assert beside.read() == beside.wanted
    assert running.state.failure is None
    assert unclean_elections(cluster) == 0
    # The segment behind the damage was whole.
    assert [*data_dir(cluster, owner).glob("read-3-0.*-stray/*.log")]


def test_damage_that_a_look_up_by_time_meets_is_mended_too(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic = Topic(cluster, zookeeper, "times", 3, segment_bytes=20_000)
    topic.produce()
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    owner = topic.replicas()[0]
    kill_all(cluster)
    flip(topic.segments(owner)[0], 250)
    start_all(cluster, owner)
    eventually(lambda: topic.in_sync() and topic.state()["leader"] == owner, WAIT_S, "the damaged one leads")
    consumer = Consumer({**reading(cluster.bootstrap), "auto.offset.reset": "error"})

    def look_up() -> list[TopicPartition]:
        try:
            return consumer.offsets_for_times([TopicPartition(topic.name, 0, 1)], timeout=WAIT_S)
        except KafkaException as error:
            # librdkafka leaves it to its caller to ask the next leader, and to wait until that one knows what
            # is committed.
            if error.args[0].code() not in (
                KafkaError.NOT_LEADER_FOR_PARTITION,
                KafkaError.OFFSET_NOT_AVAILABLE,
            ):
                raise
            return []

    (found,) = eventually(look_up, WAIT_S, "another leader looks it up")
    consumer.close()
    assert (found.error, found.offset) == (None, 0)
    assert topic.state()["leader"] != owner
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    assert topic.read() == topic.wanted


@pytest.mark.parametrize("content", [b"", bytes(44), b"version: 0\ntopic_id: bw6b"])
def test_a_damaged_topic_id_is_written_again_and_costs_nothing(
    cluster: BlockingBrokers, zookeeper: KazooClient, content: bytes
) -> None:
    topic = Topic(cluster, zookeeper, f"id-{len(content)}", 1)
    topic.produce(10)
    (owner,) = topic.replicas()
    path = topic.folder(owner) / "partition.metadata"
    before = path.read_bytes()
    cluster.kill(owner)
    path.write_bytes(content)
    cluster.start(owner)
    assert topic.read() == topic.wanted
    assert path.read_bytes() == before
    assert not list(data_dir(cluster, owner).glob(f"{topic.name}-0*-stray"))


def test_more_shortened_logs_than_a_registration_names_count_as_another_disk(
    cluster: BlockingBrokers, zookeeper: KazooClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = Topic(cluster, zookeeper, "many", 1)
    topic.produce(20)
    (owner,) = topic.replicas()
    cluster.kill(owner)
    (data_dir(cluster, owner) / "boot-id").write_text("another boot\n")
    eventually(lambda: not zookeeper.exists(f"/brokers/ids/{owner}"), WAIT_S, "its session is over")
    with monkeypatch.context() as patched:
        patched.setattr("broker.lifecycle.session.SHORTENED_MAX", 0)
        cluster.start(owner)
    eventually(lambda: (topic.state()["leader"], topic.state()["isr"]) == (-1, []), WAIT_S)
    assert main(["topics", "elect", topic.name, "--unclean", "--bootstrap", cluster.bootstrap]) == 0
    assert topic.read() == topic.wanted


def test_a_log_that_was_removed_by_hand_comes_back_from_the_others(
    cluster: BlockingBrokers, zookeeper: KazooClient
) -> None:
    topic = Topic(cluster, zookeeper, "removed")
    topic.produce(20)
    eventually(topic.in_sync, WAIT_S, "all are in sync")
    for each in BROKERS:
        cluster.stop(each)
    topic.folder(1).rename(data_dir(cluster, 1).with_name("taken-away"))
    # The last one that stopped is alone in the ISR.
    assert topic.state()["isr"] == [3]
    path = f"/brokers/topics/{topic.name}/partitions/0/state"
    zookeeper.set(path, zookeeper.get(path)[0].replace(b'"isr":[3]', b'"isr":[1,2,3]'))
    start_all(cluster, 1)
    assert topic.read() == topic.wanted
