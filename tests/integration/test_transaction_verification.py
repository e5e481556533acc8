"""Late batches of transactions that have ended: nothing hangs (KIP-890). Requests by hand, real brokers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet, reading
from tests.support.broker_wire import ask, record_batch
from tests.support.nodes import eventually

TRANSACTIONAL = 0x10
WAIT_S = 40.0
LATEST = -1
COMMITTED, UNCOMMITTED = 1, 0


class Who(NamedTuple):
    """A producer by hand."""

    name: str
    id: int
    epoch: int


class World(NamedTuple):
    """The cluster, with producers by hand."""

    cluster: BrokerCluster

    def create(self, topic: str, leader: int = 1) -> None:
        replicas = [leader, leader % 3 + 1, (leader + 1) % 3 + 1]
        made = NewTopic(topic, 2, replica_assignment=[replicas] * 2)
        admin = AdminClient(quiet(self.cluster.bootstrap))
        admin.create_topics([made])[topic].result()
        self.cluster.wait_in_sync(topic)

    def coordinator(self) -> int:
        found = self.cluster.read(paths.COORDINATOR)
        assert found is not None
        return int(found["brokerid"])

    def ask(self, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        return ask(self.cluster.address(self.coordinator()), api_key, version, values)

    def begin(self, name: str, timeout_ms: int = 60_000) -> Who:
        values = {"transactional_id": name, "transaction_timeout": timeout_ms}
        found = self.ask(ApiKey.INIT_PRODUCER_ID, 4, values)
        assert found.error_code == 0
        return Who(name, found.producer_id, found.producer_epoch)

    def add(self, who: Who, topic: str, partition: int = 0) -> int:
        values = {
            "v3_and_below_transactional_id": who.name,
            "v3_and_below_producer_id": who.id,
            "v3_and_below_producer_epoch": who.epoch,
            "v3_and_below_topics": [{"name": topic, "partitions": (partition,)}],
        }
        (row,) = self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, values).results_by_topic_v3_and_below
        return int(row.results_by_partition[0].partition_error_code)

    def end(self, who: Who, *, commits: bool) -> int:
        values = {
            "transactional_id": who.name,
            "producer_id": who.id,
            "producer_epoch": who.epoch,
            "committed": commits,
        }
        return int(self.ask(ApiKey.END_TXN, 3, values).error_code)

    def send(
        self, who: Who, topic: str, partition: int, sequence: int, value: bytes = b"x", leader: int = 1
    ) -> int:
        producer = (who.id, who.epoch, sequence)
        batch = record_batch([value], attributes=TRANSACTIONAL, producer=producer)
        data = [{"name": topic, "partition_data": [{"index": partition, "records": batch}]}]
        values = {"transactional_id": who.name, "acks": -1, "timeout": 20_000, "topic_data": data}
        found = ask(self.cluster.address(leader), ApiKey.PRODUCE, 9, values)
        return int(found.responses[0].partition_responses[0].error_code)

    def is_stable(self, topic: str, partition: int, leader: int = 1) -> bool:
        """Whether no transaction is open in a partition."""

        def end(isolation: int) -> int:
            asked = {"partition_index": partition, "current_leader_epoch": -1, "timestamp": LATEST}
            topics = [{"name": topic, "partitions": [asked]}]
            values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
            found = ask(self.cluster.address(leader), ApiKey.LIST_OFFSETS, 4, values)
            return int(found.topics[0].partitions[0].offset)

        return end(COMMITTED) == end(UNCOMMITTED)

    def has_state(self, who: Who, state: str) -> bool:
        found = self.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, {"transactional_ids": [who.name]})
        return bool(found.transaction_states[0].transaction_state == state)


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = BrokerCluster(session_timeout_ms=6000)
    with made, made.shown():
        made.wait_controller_known()
        eventually(lambda: made.read(paths.COORDINATOR) is not None, WAIT_S, "a coordinator is elected")
        yield World(made)


@pytest.mark.parametrize("commits", [True, False])
def test_a_batch_after_the_end_opens_nothing(world: World, commits: bool) -> None:
    topic = f"late-{commits}"
    world.create(topic)
    who = world.begin(topic)
    # Nothing before it is in the transaction.
    assert world.send(who, topic, 0, 0) == ErrorCode.INVALID_TXN_STATE
    assert world.add(who, topic) == 0
    assert world.send(who, topic, 0, 0) == 0
    # A partition that was not added.
    assert world.send(who, topic, 1, 0) == ErrorCode.INVALID_TXN_STATE
    assert not world.is_stable(topic, 0)
    assert world.end(who, commits=commits) == 0
    complete = "CompleteCommit" if commits else "CompleteAbort"
    eventually(lambda: world.has_state(who, complete), WAIT_S, complete)
    for partition, sequence in ((0, 1), (1, 0)):
        assert world.send(who, topic, partition, sequence) == ErrorCode.INVALID_TXN_STATE
        assert world.is_stable(topic, partition)
    # The next transaction takes it.
    assert world.add(who, topic) == 0
    assert world.send(who, topic, 0, 1) == 0
    assert world.end(who, commits=True) == 0
    eventually(lambda: world.is_stable(topic, 0), WAIT_S, "the marker is there")


def test_a_zombie_after_the_time_out_opens_nothing(world: World) -> None:
    world.create("zombie")
    who = world.begin("zombie", timeout_ms=1_000)
    assert world.add(who, "zombie") == 0
    assert world.send(who, "zombie", 0, 0) == 0
    aborted = "the transaction is aborted"
    eventually(lambda: world.has_state(who, "CompleteAbort"), WAIT_S, aborted)
    for partition, sequence in ((0, 1), (1, 0)):
        assert world.send(who, "zombie", partition, sequence) == ErrorCode.INVALID_PRODUCER_EPOCH
        assert world.is_stable("zombie", partition)


def test_a_batch_waits_for_the_next_coordinator(world: World) -> None:
    victim = world.coordinator()
    leader = victim % 3 + 1
    world.create("killed", leader)
    who = world.begin("killed")
    assert world.add(who, "killed") == 0
    world.cluster.kill(victim)
    codes = [world.send(who, "killed", 0, 0, leader=leader)]
    assert codes == [ErrorCode.NOT_ENOUGH_REPLICAS]

    def is_taken() -> bool:
        codes.append(world.send(who, "killed", 0, 0, leader=leader))
        return codes[-1] == 0

    eventually(is_taken, WAIT_S, "the next coordinator knows the transaction")
    # While the dead one is in the ISR the answer may be that of a time-out; it is the same batch.
    assert set(codes) <= {0, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
    assert world.end(who, commits=True) == 0
    consumer = Consumer({**reading(world.cluster.bootstrap), "isolation.level": "read_committed"})
    consumer.assign([TopicPartition("killed", 0, 0)])
    (record,) = consumer.consume(1, WAIT_S)
    assert (record.error(), record.value()) == (None, b"x")
    consumer.close()
    world.cluster.start_broker(victim)
    world.cluster.wait_ready(victim)
