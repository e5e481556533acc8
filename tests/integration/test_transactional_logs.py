"""Transactions in the logs of a cluster: markers, readers of committed records, kills and another leader.

Requests go over the wire by hand, as a coordinator and a producer would send them; librdkafka and our client
read.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.client.client import BrokerClient
from broker.client.partitions import Isolation
from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnection
from quorum.cli.main import main
from quorum.errors import UsageError
from quorum.metadata.paths import PartitionKey
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet, reading
from tests.support.broker_wire import ask, record_batch
from tests.support.nodes import eventually

TRANSACTIONAL = 0x10
DEADLINE_S = 60.0
TOPIC = "paid"
LATEST = -1


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    # Producers and markers come without a coordinator.
    settings: dict[str, dict[str, object]] = {
        "transactions": {"transaction_partition_verification_enable": False}
    }
    made = BrokerCluster(session_timeout_ms=6000, settings=settings)
    with made, made.shown():
        made.wait_controller_known()
        topic = NewTopic(TOPIC, 1, replica_assignment=[[2, 3, 1]], config={"min.insync.replicas": "2"})
        admin = AdminClient(quiet(made.bootstrap))
        admin.create_topics([topic])[TOPIC].result()
        made.wait_in_sync(TOPIC)
        yield made


def new_id(cluster: BrokerCluster) -> int:
    values = {"transactional_id": None, "transaction_timeout": 0}
    return int(ask(cluster.address(1), ApiKey.INIT_PRODUCER_ID, 1, values).producer_id)


def produce(cluster: BrokerCluster, leader: int, producer_id: int, sequence: int, *values: bytes) -> int:
    """Send one transactional batch; returns its first offset."""
    batch = record_batch(values, attributes=TRANSACTIONAL, producer=(producer_id, 0, sequence))
    rows = [{"index": 0, "records": batch}]
    data = [{"name": TOPIC, "partition_data": rows}]
    values_ = {"transactional_id": "t", "acks": -1, "timeout": 20_000, "topic_data": data}
    row = ask(cluster.address(leader), ApiKey.PRODUCE, 9, values_).responses[0].partition_responses[0]
    assert row.error_code == 0, row
    return int(row.base_offset)


def end(cluster: BrokerCluster, leader: int, producer_id: int, *, is_commit: bool) -> int:
    """Send a marker as a coordinator does; returns the error code."""
    marker = {
        "producer_id": producer_id,
        "producer_epoch": 0,
        "transaction_result": is_commit,
        "topics": [{"name": TOPIC, "partition_indexes": [0]}],
        "coordinator_epoch": 1,
    }

    async def send() -> int:
        connection = await BrokerConnection.open(
            *("127.0.0.1", cluster.brokers[leader].broker_port),
            secrets=[cluster.secret],
            cluster_id=str((cluster.read("/cluster/id") or {})["id"]),
            client_id="test",
            timeout_ms=10_000,
        )
        body = encode_request(ApiKey.WRITE_TXN_MARKERS, 1, {"markers": [marker]})
        try:
            answer = await connection.request(
                ApiKey.WRITE_TXN_MARKERS, 1, body, flexible=True, timeout_ms=40_000
            )
            found = decode_response(ApiKey.WRITE_TXN_MARKERS, 1, answer)
            return int(found.markers[0].topics[0].partitions[0].error_code)
        finally:
            connection.close()

    return asyncio.run(send())


def consume(cluster: BrokerCluster, isolation: str, count: int) -> list[bytes]:
    """Read from the start until there are so many records."""
    consumer = Consumer({**reading(cluster.bootstrap), "isolation.level": isolation})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []

    def look() -> bool:
        found.extend(each.value() or b"" for each in consumer.consume(100, 0.2) if each.error() is None)
        return len(found) >= count

    try:
        eventually(look, DEADLINE_S, f"{count} records")
        return found
    finally:
        consumer.close()


def end_offset(cluster: BrokerCluster, leader: int, isolation: int) -> int:
    asked = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": LATEST}
    topics = [{"name": TOPIC, "partitions": [asked]}]
    values = {"replica_id": -1, "isolation_level": isolation, "topics": topics}
    found = ask(cluster.address(leader), ApiKey.LIST_OFFSETS, 4, values)
    return int(found.topics[0].partitions[0].offset)


def fetched(cluster: BrokerCluster, isolation: Isolation) -> tuple[bytes, int]:
    """All that our client reads, and what comes next."""
    key = PartitionKey(TOPIC, 0)

    async def read() -> tuple[bytes, int]:
        async with BrokerClient(cluster.bootstrap) as client:
            offset, records = 0, b""
            while True:
                found = (await client.fetch({key: offset}, isolation=isolation, max_wait_ms=0))[key]
                assert found.error_code == 0
                if found.next_offset < 0:
                    return records, offset
                records, offset = records + found.records, found.next_offset

    return asyncio.run(read())


def test_committed_records_alone_are_read(cluster: BrokerCluster) -> None:
    first, second, third = (new_id(cluster) for _ in range(3))
    # One is committed, one aborted, one stays open until a leader was killed.
    assert produce(cluster, 2, first, 0, b"a0", b"a1") == 0
    assert produce(cluster, 2, second, 0, b"b0") == 2
    assert end(cluster, 2, first, is_commit=True) == 0
    assert produce(cluster, 2, third, 0, b"c0") == 4
    assert end(cluster, 2, second, is_commit=False) == 0
    assert produce(cluster, 2, first, 2, b"d0") == 6
    assert (end_offset(cluster, 2, 1), end_offset(cluster, 2, 0)) == (4, 7)
    assert consume(cluster, "read_committed", 2) == [b"a0", b"a1"]
    assert consume(cluster, "read_uncommitted", 5) == [b"a0", b"a1", b"b0", b"c0", b"d0"]
    assert end(cluster, 1, third, is_commit=True) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    asked = {"topics": [{"name": TOPIC, "partition_indexes": [0]}]}
    rows = ask(cluster.address(2), ApiKey.DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0]
    assert {
        each.producer_id: (each.coordinator_epoch, each.current_txn_start_offset)
        for each in rows.active_producers
    } == {first: (1, 6), second: (1, -1), third: (-1, 4)}
    cluster.kill(2)
    eventually(lambda: cluster.state(TOPIC, 0)["leader"] == 3, DEADLINE_S, "broker 3 leads")
    eventually(lambda: end_offset(cluster, 3, 1) == 4, DEADLINE_S, "the new leader knows what is open")
    assert end(cluster, 3, third, is_commit=True) == 0
    assert end(cluster, 3, first, is_commit=False) == 0
    assert consume(cluster, "read_committed", 3) == [b"a0", b"a1", b"c0"]
    cluster.start_broker(2)
    cluster.wait_ready(2)
    cluster.wait_in_sync(TOPIC)
    cluster.kill(1, 3)
    cluster.start_broker(1)
    cluster.start_broker(3)
    cluster.wait_ready(1, 3)
    cluster.wait_in_sync(TOPIC)
    assert consume(cluster, "read_committed", 3) == [b"a0", b"a1", b"c0"]
    records, offset = fetched(cluster, "read_committed")
    assert offset == 9
    assert [value for value in (b"a0", b"a1", b"b0", b"c0", b"d0") if value in records] == [
        b"a0",
        b"a1",
        b"c0",
    ]
    records, offset = fetched(cluster, "read_uncommitted")
    assert offset == 9
    assert all(value in records for value in (b"a0", b"a1", b"b0", b"c0", b"d0"))


def command(cluster: BrokerCluster, output: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    output.readouterr()
    assert main(["transactions", words[0], "--bootstrap", cluster.bootstrap, *words[1:]]) == code
    captured = output.readouterr()
    return captured.err if code else captured.out


def hanging(cluster: BrokerCluster, output: pytest.CaptureFixture[str]) -> dict[int, tuple[str, int, int]]:
    rows = json.loads(command(cluster, output, "hanging", "--json"))
    return {each["producer"]: (each["partition"], each["epoch"], each["first_offset"]) for each in rows}


def test_a_transaction_that_only_a_log_knows_is_aborted(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    cluster.wait_in_sync(TOPIC)
    leader = cluster.state(TOPIC, 0)["leader"]
    known = Producer({**quiet(cluster.bootstrap), "transactional.id": "known"})
    known.init_transactions(DEADLINE_S)
    known.begin_transaction()
    known.produce(TOPIC, b"k0", partition=0)
    assert known.flush(DEADLINE_S) == 0
    producer_id = new_id(cluster)
    offset = produce(cluster, leader, producer_id, 0, b"h0")
    assert hanging(cluster, capsys) == {producer_id: (f"{TOPIC}-0", 0, offset)}
    secret = "--peer-secret", str(cluster.secret_path)
    who = "--producer-id", str(producer_id), "--producer-epoch", "0"
    wrong = *who[:3], "7"
    assert "with epoch 7 has no hanging" in command(cluster, capsys, "abort", *wrong, *secret, code=2)
    (row,) = json.loads(command(cluster, capsys, "describe", "known", "--json"))
    open_one = "--producer-id", str(row["producer"]), "--producer-epoch", str(row["epoch"])
    assert "has no hanging" in command(cluster, capsys, "abort", *open_one, *secret, code=2)
    guess = tmp_path / "guess"
    guess.write_text("0" * 64)
    guess.chmod(0o600)
    refused = command(cluster, capsys, "abort", *who, "--peer-secret", str(guess), code=1)
    assert "does not know the peer secret" in refused
    assert "remedy: prove the peer secret" in refused
    assert command(cluster, capsys, "abort", *who, *secret) == "aborted in 1 of 1 partitions\n"
    assert hanging(cluster, capsys) == {}
    known.commit_transaction(DEADLINE_S)
    # Its own marker comes after the answer.
    eventually(
        lambda: end_offset(cluster, leader, 1) == end_offset(cluster, leader, 0), DEADLINE_S, "all is stable"
    )
    assert consume(cluster, "read_committed", 4)[-1] == b"k0"


def test_a_hanging_abort_spares_its_producers_open_transaction(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic("spared", 1, 3)])["spared"].result()
    healthy = Producer({**quiet(cluster.bootstrap), "transactional.id": "healthy"})
    healthy.init_transactions(DEADLINE_S)
    healthy.begin_transaction()
    healthy.produce("spared", b"yes", partition=0)
    assert healthy.flush(DEADLINE_S) == 0
    (row,) = json.loads(command(cluster, capsys, "describe", "healthy", "--json"))
    offset = produce(cluster, cluster.state(TOPIC, 0)["leader"], row["producer"], 0, b"no")
    # The id and the epoch are those of the open transaction.
    assert hanging(cluster, capsys) == {row["producer"]: (f"{TOPIC}-0", row["epoch"], offset)}
    who = "--producer-id", str(row["producer"]), "--producer-epoch", str(row["epoch"])
    assert "not clear" in command(cluster, capsys, "abort", *who, code=2)
    secret = "--peer-secret", str(cluster.secret_path)
    (ended,) = json.loads(command(cluster, capsys, "abort", *who, *secret, "--json"))
    assert (ended["topic"], ended["partition"], ended["error"]) == (TOPIC, 0, None)
    assert json.loads(command(cluster, capsys, "describe", "healthy", "--json")) == [row]
    healthy.commit_transaction(DEADLINE_S)


def test_an_unknown_isolation_is_refused_by_name(cluster: BrokerCluster) -> None:
    with pytest.raises(UsageError, match=r"'committed'.*read_uncommitted or read_committed"):
        fetched(cluster, cast("Isolation", "committed"))
