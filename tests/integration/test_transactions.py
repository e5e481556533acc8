"""Transactional producers of librdkafka against brokers in processes: ends, fences, offsets, kills."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.cli.main import main
from quorum.metadata import paths
from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_wire import ask
from tests.support.group_members import create_topic
from tests.support.group_requests import error_code_of
from tests.support.nodes import eventually

WAIT_S = 40.0
#: After which nobody has given up a silent broker: a marker may take 30 s.
SOON_S = 10.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    settings: dict[str, dict[str, object]] = {"groups": {"group_initial_rebalance_delay_ms": 0}}
    with BrokerCluster(settings=settings) as running:
        yield running


def create(cluster: BrokerCluster, topic: str, partitions: int = 1) -> None:
    create_topic(AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0}), topic, partitions)


def producer_of(cluster: BrokerCluster, name: str, timeout_ms: int = 60_000) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": timeout_ms,
            "log_level": 0,
        }
    )


def consumer_of(cluster: BrokerCluster, group: str, isolation: str = "read_committed") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )


def read(cluster: BrokerCluster, topic: str, count: int, isolation: str = "read_committed") -> list[bytes]:
    """Read so many records of partition 0 from its begin."""
    consumer = consumer_of(cluster, f"reads-{topic}", isolation)
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[bytes] = []

    def look() -> bool:
        found.extend(each.value() or b"" for each in consumer.consume(100, 0.2) if each.error() is None)
        return len(found) >= count

    eventually(look, WAIT_S, f"{count} records of {topic} are read")
    consumer.close()
    return found


def state_of(cluster: BrokerCluster, name: str) -> str:
    value, _ = cluster.zookeeper.get(paths.transaction_path(name))
    state: str = json.loads(value)["state"]
    return state


def send(producer: Producer, topic: str, *values: bytes) -> None:
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(WAIT_S) == 0


def test_what_is_committed_is_read_alone(cluster: BrokerCluster) -> None:
    create(cluster, "ends")
    producer = producer_of(cluster, "ends")
    producer.init_transactions(WAIT_S)
    send(producer, "ends", b"a1", b"a2")
    producer.commit_transaction(WAIT_S)
    send(producer, "ends", b"no")
    producer.abort_transaction(WAIT_S)
    send(producer, "ends", b"b1")
    producer.commit_transaction(WAIT_S)
    assert read(cluster, "ends", 3) == [b"a1", b"a2", b"b1"]
    assert read(cluster, "ends", 4, "read_uncommitted") == [b"a1", b"a2", b"no", b"b1"]
    complete = "the transaction is complete"
    eventually(lambda: state_of(cluster, "ends") == "CompleteCommit", WAIT_S, complete)


def test_a_zombie_is_fenced(cluster: BrokerCluster) -> None:
    create(cluster, "zombies")
    zombie, producer = producer_of(cluster, "zombies"), producer_of(cluster, "zombies")
    zombie.init_transactions(WAIT_S)
    send(zombie, "zombies", b"no")
    producer.init_transactions(WAIT_S)
    with pytest.raises(KafkaException) as caught:
        zombie.commit_transaction(WAIT_S)
    assert caught.value.args[0].fatal()
    send(producer, "zombies", b"yes")
    producer.commit_transaction(WAIT_S)
    assert read(cluster, "zombies", 1) == [b"yes"]


def test_a_transaction_that_is_left_open_is_aborted(cluster: BrokerCluster) -> None:
    create(cluster, "left")
    left, other = producer_of(cluster, "left", timeout_ms=1_000), producer_of(cluster, "others")
    left.init_transactions(WAIT_S)
    send(left, "left", b"no")
    other.init_transactions(WAIT_S)
    send(other, "left", b"yes")
    other.commit_transaction(WAIT_S)
    assert read(cluster, "left", 1) == [b"yes"]
    assert state_of(cluster, "left") in ("PrepareAbort", "CompleteAbort")


def test_offsets_come_with_the_commit(cluster: BrokerCluster) -> None:
    create(cluster, "inputs")
    create(cluster, "outputs")
    plain = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(3):
        plain.produce("inputs", b"%d" % number, partition=0)
    assert plain.flush(WAIT_S) == 0
    consumer = consumer_of(cluster, "moves")
    consumer.subscribe(["inputs"])
    records = consumer.consume(3, WAIT_S)
    assert len(records) == 3
    producer = producer_of(cluster, "moves")
    producer.init_transactions(WAIT_S)
    position, key = consumer.position(consumer.assignment()), TopicPartition("inputs", 0)
    for ends in ("abort", "commit"):
        send(producer, "outputs", *(each.value() or b"" for each in records))
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), WAIT_S)
        if ends == "abort":
            producer.abort_transaction(WAIT_S)
            assert consumer.committed([key], WAIT_S)[0].offset < 0
        else:
            producer.commit_transaction(WAIT_S)
            assert consumer.committed([key], WAIT_S)[0].offset == 3
    consumer.close()
    assert read(cluster, "outputs", 3) == [b"0", b"1", b"2"]


def coordinated(cluster: BrokerCluster, api_key: ApiKey, version: int, values: dict[str, Any]) -> Any:
    """Ask the coordinator by hand."""
    found = cluster.read(paths.COORDINATOR)
    assert found is not None
    return ask(cluster.address(int(found["brokerid"])), api_key, version, values)


def taken(cluster: BrokerCluster, name: str) -> dict[str, Any]:
    """Take a transactional id by hand; returns how requests name the producer."""
    values = {"transactional_id": name, "transaction_timeout": 60_000}
    found = coordinated(cluster, ApiKey.INIT_PRODUCER_ID, 4, values)
    assert found.error_code == 0
    who = {"transactional_id": name, "producer_id": found.producer_id, "producer_epoch": found.producer_epoch}
    return {**who, **{f"v3_and_below_{field}": value for field, value in who.items()}}


_ROW = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
#: {request: (what it needs besides its producer, its last version, the first that knows PRODUCER_FENCED)}
FENCED: dict[ApiKey, tuple[dict[str, Any], int, int]] = {
    ApiKey.INIT_PRODUCER_ID: ({"transaction_timeout": 60_000}, 5, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ({"v3_and_below_topics": [{"name": "fences", "partitions": (0,)}]}, 3, 2),
    ApiKey.ADD_OFFSETS_TO_TXN: ({"group_id": "fences"}, 4, 2),
    ApiKey.END_TXN: ({"committed": True}, 4, 2),
    ApiKey.TXN_OFFSET_COMMIT: (
        {"group_id": "fences", "topics": [{"name": "fences", "partitions": [_ROW]}]},
        *(4, 5),
    ),
}


@pytest.mark.parametrize("api_key", FENCED)
def test_a_fenced_producer_gets_its_versions_code(cluster: BrokerCluster, api_key: ApiKey) -> None:
    if "fences" not in AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics().topics:
        create(cluster, "fences")
    old, new = taken(cluster, "fences"), taken(cluster, "fences")
    assert old["producer_id"] == new["producer_id"]
    fields, last, fenced = FENCED[api_key]
    first = 3 if api_key is ApiKey.INIT_PRODUCER_ID else 0
    codes = {
        version: error_code_of(api_key, version, coordinated(cluster, api_key, version, {**old, **fields}))
        for version in range(first, last + 1)
    }
    before, since = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
    assert codes == {each: since if each >= fenced else before for each in codes}


def test_offsets_of_an_open_transaction_are_unstable(cluster: BrokerCluster) -> None:
    create(cluster, "unstable")
    who, group = taken(cluster, "unstable"), {"group_id": "unstable"}
    assert coordinated(cluster, ApiKey.ADD_OFFSETS_TO_TXN, 3, {**who, **group}).error_code == 0
    topics = [{"name": "unstable", "partitions": [_ROW]}]

    def committed(**member: object) -> int:
        values = {**who, **group, "topics": topics, **member}
        found = coordinated(cluster, ApiKey.TXN_OFFSET_COMMIT, 3, values)
        return int(found.topics[0].partitions[0].error_code)

    def fetched(*, stable: bool) -> tuple[int, int]:
        asked = {**group, "topics": [{"name": "unstable", "partition_indexes": (0,)}]}
        values = {"groups": [asked], "require_stable": stable}
        (found,) = coordinated(cluster, ApiKey.OFFSET_FETCH, 8, values).groups
        row = found.topics[0].partitions[0]
        return int(row.error_code or found.error_code), int(row.committed_offset)

    # One that has left.
    assert committed(member_id="gone", generation_id=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert fetched(stable=True) == (0, -1)
    assert committed() == 0
    assert fetched(stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert fetched(stable=False) == (0, -1)
    assert coordinated(cluster, ApiKey.END_TXN, 3, {**who, "committed": True}).error_code == 0
    eventually(lambda: fetched(stable=True) == (0, 3), WAIT_S, "the offset is committed")
    assert fetched(stable=False) == (0, 3)


def command(cluster: BrokerCluster, output: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    output.readouterr()
    assert main(["transactions", words[0], "--bootstrap", cluster.bootstrap, *words[1:]]) == code
    captured = output.readouterr()
    return captured.err if code else captured.out


def test_an_open_transaction_is_listed_and_aborted(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    create(cluster, "hangs")
    producer = producer_of(cluster, "hangs")
    producer.init_transactions(WAIT_S)
    send(producer, "hangs", b"no")

    def listed(*words: str) -> dict[str, Any] | None:
        rows = json.loads(command(cluster, capsys, "list", "--json", *words))
        found: dict[str, dict[str, Any]] = {each["transactional_id"]: each for each in rows}
        return found.get("hangs")

    (row,) = json.loads(command(cluster, capsys, "describe", "hangs", "--json"))
    assert (row["partitions"], row["timeout_ms"], row["epoch"]) == (["hangs-0"], 60_000, 0)
    assert row["started"]
    brief = listed()
    assert brief is not None
    assert (brief["state"], brief["started"]) == ("Ongoing", row["started"])
    # Seconds pass; the limits are far from each other.
    assert 0 <= brief["open_s"] < 600
    assert listed("--state", "CompleteCommit") is None
    assert listed("--state", "CompleteCommit", "--state", "Ongoing") is not None
    assert listed("--longer-than", "3600") is None
    eventually(lambda: listed("--longer-than", "0") is not None, WAIT_S, "it is open for a while")
    aborted_row = {"transactional_id": "hangs", "aborted": True}
    assert json.loads(command(cluster, capsys, "abort", "hangs", "--json")) == aborted_row
    with pytest.raises(KafkaException):
        producer.commit_transaction(WAIT_S)
    aborted = "the transaction is aborted"
    eventually(lambda: state_of(cluster, "hangs") == "CompleteAbort", WAIT_S, aborted)
    assert "no open transaction" in command(cluster, capsys, "abort", "hangs", code=2)
    (row,) = json.loads(command(cluster, capsys, "describe", "hangs", "--json"))
    assert row["started"] == ""
    # It is over, however long ago it began.
    assert listed("--longer-than", "0") is None


def test_an_idle_id_is_described(cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]) -> None:
    who = taken(cluster, "idle")
    (row,) = json.loads(command(cluster, capsys, "describe", "idle", "--json"))
    assert row == {
        "transactional_id": "idle",
        "producer": who["producer_id"],
        "epoch": 0,
        "state": "Empty",
        "timeout_ms": 60_000,
        "started": "",
        "partitions": [],
    }
    assert "its state is Empty" in command(cluster, capsys, "abort", "idle", code=2)
    unknown = command(cluster, capsys, "describe", "nobody", code=1)
    assert "transactional id nobody: TRANSACTIONAL_ID_NOT_FOUND" in unknown
    assert "TRANSACTIONAL_ID_NOT_FOUND" in command(cluster, capsys, "abort", "nobody", code=1)


def test_known_ids_are_described_beside_unknown_ones(
    cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    taken(cluster, "first")
    taken(cluster, "last")
    words = "describe", "--json", "--bootstrap", cluster.bootstrap, "first", "nobody", "last", "none"
    assert main(["transactions", *words]) == 1
    captured = capsys.readouterr()
    assert [each["transactional_id"] for each in json.loads(captured.out)] == ["first", "last"]
    assert "id nobody: TRANSACTIONAL_ID_NOT_FOUND; transactional id none: TRANSACTION" in captured.err
    assert "remedy: see `quorate transactions list`" in captured.err


_ALL_OF = ("only ID", "--producer-id, --producer-epoch and --peer-secret")
#: {words: what the error and its remedy say}
REFUSED: dict[tuple[str, ...], tuple[str, ...]] = {
    ("abort",): _ALL_OF,
    ("abort", "--producer-id", "6"): _ALL_OF,
    ("abort", "--producer-id", "6", "--producer-epoch", "0"): _ALL_OF,
    ("abort", "--producer-id", "6", "--peer-secret", "f"): _ALL_OF,
    ("abort", "a", "--producer-epoch", "0"): _ALL_OF,
    ("abort", "a", "--peer-secret", "f"): _ALL_OF,
    ("abort", "--producer-id", "-3"): ("--producer-id: '-3'", "from 0 to 9223372036854775807"),
    ("abort", "--producer-epoch", "70000"): ("--producer-epoch: '70000'", "from 0 to 32767"),
    ("abort", ""): ("''", "quorate transactions list"),
    ("describe", "a", ""): ("''", "quorate transactions list"),
    ("list", "--state", "ongoing"): ("--state: 'ongoing'", "give one of Empty, Ongoing"),
    ("list", "--longer-than", "soon"): ("--longer-than: 'soon'", "whole number from 0"),
}


@pytest.mark.parametrize("words", REFUSED)
def test_unclear_words_are_refused_with_a_remedy(
    words: tuple[str, ...], cluster: BrokerCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    told = command(cluster, capsys, *words, code=2)
    assert "remedy: " in told
    assert all(each in told for each in REFUSED[words]), told


def test_a_member_with_epochs_commits_with_its_own(cluster: BrokerCluster) -> None:
    create(cluster, "epochs")
    who, group = taken(cluster, "epochs"), {"group_id": "epochs"}
    joining = {
        **group,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout": 10_000,
        "subscribed_topic_names": ("epochs",),
        "topic_partitions": (),
    }
    joined = coordinated(cluster, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, joining)
    assert joined.error_code == 0
    assert coordinated(cluster, ApiKey.ADD_OFFSETS_TO_TXN, 3, {**who, **group}).error_code == 0

    def committed(**member: object) -> int:
        topics = [{"name": "epochs", "partitions": [_ROW]}]
        values = {**who, **group, "topics": topics, **member}
        found = coordinated(cluster, ApiKey.TXN_OFFSET_COMMIT, 3, values)
        return int(found.topics[0].partitions[0].error_code)

    epoch = joined.member_epoch
    assert committed(member_id="m", generation_id=epoch + 1) == ErrorCode.ILLEGAL_GENERATION
    assert committed(member_id="gone", generation_id=epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert committed(member_id="m", generation_id=epoch) == 0
    leaving = {**joining, "member_epoch": -1, "topic_partitions": None}
    assert coordinated(cluster, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, leaving).error_code == 0
    assert committed(member_id="m", generation_id=epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    # Older producers do not say who commits.
    assert committed() == 0


@pytest.mark.parametrize("comes_again", [False, True])
def test_a_partition_that_is_deleted_drops_out(cluster: BrokerCluster, comes_again: bool) -> None:
    stays, goes = f"stays-{comes_again}", f"goes-{comes_again}"
    create(cluster, stays)
    create(cluster, goes, 2)
    producer = producer_of(cluster, goes)
    producer.init_transactions(WAIT_S)
    send(producer, stays, b"yes")
    producer.produce(goes, b"no", partition=1)
    assert producer.flush(WAIT_S) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    admin.delete_topics([goes])[goes].result(WAIT_S)
    eventually(lambda: cluster.read(paths.topic_path(goes)) is None, WAIT_S, "the topic is gone")
    if comes_again:
        create(cluster, goes)
    producer.commit_transaction(WAIT_S)
    assert read(cluster, stays, 1) == [b"yes"]
    complete = "the transaction is complete"
    eventually(lambda: state_of(cluster, goes) == "CompleteCommit", WAIT_S, complete)


def test_markers_follow_the_leader(cluster: BrokerCluster) -> None:
    found = cluster.read(paths.COORDINATOR)
    assert found is not None
    coordinator = int(found["brokerid"])
    leader, other = (each for each in cluster.brokers if each != coordinator)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    topic = NewTopic("follows", 1, replica_assignment=[[leader, other, coordinator]])
    admin.create_topics([topic])["follows"].result(WAIT_S)
    cluster.wait_in_sync("follows")
    producer = producer_of(cluster, "follows")
    producer.init_transactions(WAIT_S)
    send(producer, "follows", b"yes")
    cluster.pause(leader)
    producer.commit_transaction(WAIT_S)
    assert state_of(cluster, "follows") == "PrepareCommit", "the leader cannot write its marker"
    eventually(lambda: cluster.state("follows", 0)["leader"] != leader, WAIT_S, "another broker leads")
    # The request to the stopped one has most of its time left, and its connection stays open.
    complete = "the other leader has written it"
    eventually(lambda: state_of(cluster, "follows") == "CompleteCommit", SOON_S, complete)
    cluster.resume(leader)
    cluster.wait_in_sync("follows")
    assert read(cluster, "follows", 1) == [b"yes"]


def test_a_dead_coordinator_changes_nothing(cluster: BrokerCluster) -> None:
    create(cluster, "kills")
    producer = producer_of(cluster, "kills")
    producer.init_transactions(WAIT_S)
    send(producer, "kills", b"yes")
    found = cluster.read(paths.COORDINATOR)
    assert found is not None
    victim = int(found["brokerid"])
    cluster.kill(victim)
    producer.commit_transaction(WAIT_S)
    assert read(cluster, "kills", 1) == [b"yes"]
    cluster.start_broker(victim)
    cluster.wait_ready(victim)
    send(producer, "kills", b"again")
    producer.commit_transaction(WAIT_S)
    assert read(cluster, "kills", 2) == [b"yes", b"again"]
