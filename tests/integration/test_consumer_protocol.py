"""Groups whose coordinator assigns (KIP-848), with librdkafka and by hand; brokers in this process."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from broker.local import BlockingBrokers, brokers_in_thread
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from tests.support.broker_wire import BrokerLink
from tests.support.embedded_brokers import zookeeper
from tests.support.group_members import ConfluentMember, Member, create_topic, overlaps, owned_by_all
from tests.support.nodes import eventually

__all__ = ["zookeeper"]

WAIT_S = 30.0
PARTITIONS = 12
TOPIC_ID = "cm91bmRzYWJvdXQtMTIzNA"
SETTINGS = {
    "groups": {
        "group_initial_rebalance_delay_ms": 0,
        "group_consumer_heartbeat_interval_ms": 200,
        "group_consumer_session_timeout_ms": 5_000,
        "group_consumer_assignment_interval_ms": 300,
    }
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    with brokers_in_thread(3, settings=SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: BlockingBrokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0})


def create(admin: AdminClient, topic: str, partitions: int = PARTITIONS) -> None:
    create_topic(admin, topic, partitions)


def start(cluster: BlockingBrokers, group: str, count: int, *topics: str) -> list[Member]:
    settings = {"group.protocol": "consumer"}
    return [
        ConfluentMember(f"{group}-{number}", cluster.bootstrap, group, topics, settings).start()
        for number in range(count)
    ]


def produce(cluster: BlockingBrokers, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "log_level": 0})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
    assert producer.flush(WAIT_S) == 0


def group_record(zookeeper: KazooClient, group: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zookeeper.retry(zookeeper.get, paths.group_path(group))[0])
    return found


def coordinator_id(zookeeper: KazooClient) -> int | None:
    """Return who coordinates; None while nobody does."""
    try:
        return int(json.loads(zookeeper.retry(zookeeper.get, paths.COORDINATOR)[0])["brokerid"])
    except NoNodeError:
        return None


def test_members_follow_topics_that_come_grow_and_go(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "live-a")
    members = start(cluster, "live", 3, "^live-.*")
    try:
        eventually(lambda: all(len(each.owned) == 4 for each in members), WAIT_S, "four partitions each")
        create(admin, "live-b", 6)
        eventually(lambda: owned_by_all(members, 18), WAIT_S, "a topic that matches is assigned")
        admin.create_partitions([NewPartitions("live-b", 9)])["live-b"].result(WAIT_S)
        eventually(lambda: all(len(each.owned) == 7 for each in members), WAIT_S, "new partitions as well")
        admin.delete_topics(["live-a"])["live-a"].result(WAIT_S)
        eventually(lambda: owned_by_all(members, 9), WAIT_S, "a deleted topic is given up")
        described = admin.describe_consumer_groups(["live"])["live"].result(WAIT_S)
        assert described.type.name == "CONSUMER"
        assert len(described.members) == 3
        members[0].leave()
        eventually(lambda: owned_by_all(members[1:], 9), WAIT_S, "the others take over")
    finally:
        for member in members:
            member.leave()
    assert overlaps(members) == []


def test_topics_that_change_while_nobody_coordinates_are_noticed(
    cluster: BlockingBrokers, admin: AdminClient, zookeeper: KazooClient
) -> None:
    create(admin, "idle-a")
    create(admin, "idle-c", 3)
    members = start(cluster, "idle", 3, "^idle-.*")
    broker_ids = sorted(map(int, zookeeper.get_children(paths.BROKER_IDS)))
    try:
        eventually(lambda: owned_by_all(members, 15), WAIT_S, "both topics are assigned")
        for broker_id in broker_ids:
            cluster.kill(broker_id)
        topic = json.loads(zookeeper.get(paths.topic_path("idle-a"))[0])
        replicas = topic["partitions"]["0"]
        came = {**topic, "topic_id": TOPIC_ID, "partitions": {str(index): replicas for index in range(6)}}
        zookeeper.create(paths.topic_path("idle-b"), json.dumps(came).encode())
        topic["partitions"] |= {"12": replicas, "13": replicas}
        zookeeper.set(paths.topic_path("idle-a"), json.dumps(topic).encode())
        zookeeper.delete(paths.topic_path("idle-c"), recursive=True)
        for broker_id in broker_ids:
            cluster.start(broker_id)
        eventually(lambda: owned_by_all(members, 20), WAIT_S, "what there is now is assigned")
        assert {topic for each in members for topic, _ in each.owned} == {"idle-a", "idle-b"}
    finally:
        for member in members:
            member.leave()
    assert overlaps(members) == []


def test_a_coordinator_that_dies_costs_a_pause_only(
    cluster: BlockingBrokers, admin: AdminClient, zookeeper: KazooClient
) -> None:
    create(admin, "steady")
    members = start(cluster, "steady", 3, "steady")
    try:
        eventually(lambda: all(len(each.owned) == 4 for each in members), WAIT_S, "four partitions each")
        produce(cluster, "steady", 120)
        eventually(lambda: sum(sum(each.committed.values()) for each in members) == 120, WAIT_S, "read")
        admin.describe_consumer_groups(["steady"])["steady"].result(WAIT_S)
        before = group_record(zookeeper, "steady")
        assignments = [each.assignments for each in members]
        dead = coordinator_id(zookeeper)
        assert dead is not None
        cluster.kill(dead)
        killed = time.monotonic()
        eventually(lambda: coordinator_id(zookeeper) not in (None, dead), WAIT_S, "another is elected")
        produce(cluster, "steady", 120)
        eventually(lambda: sum(sum(each.committed.values()) for each in members) == 240, WAIT_S, "read")
        assert group_record(zookeeper, "steady") == before
        assert [each.assignments for each in members] == assignments
        assert min(at for each in members for at in each.commit_times if at > killed) - killed < WAIT_S
    finally:
        for member in members:
            member.leave()
    assert overlaps(members) == []
    cluster.start(dead)


# -- by hand -------------------------------------------------------------------------------------------------


class Hand:
    """Members of one group that a test moves one heartbeat at a time."""

    def __init__(self, cluster: BlockingBrokers, group: str) -> None:
        self.group = group
        self.link = BrokerLink(cluster.bootstrap.split(",")[0])
        found = eventually(self._coordinator, WAIT_S, "a coordinator")
        self.link = BrokerLink(found)

    def _coordinator(self) -> str:
        values = {"key": self.group, "key_type": 0, "coordinator_keys": (self.group,)}
        row = self.link.ask(ApiKey.FIND_COORDINATOR, 6, values).coordinators[0]
        assert row.error_code == 0
        return f"{row.host}:{row.port}"

    def beat(self, member_id: str, epoch: int, **changed: Any) -> Any:
        values = {"group_id": self.group, "member_id": member_id, "member_epoch": epoch, **changed}
        values.setdefault("topic_partitions", None)
        return self.link.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, values)

    def join(self, member_id: str, topic: str, rebalance_timeout_ms: int = 10_000, **changed: Any) -> Any:
        return self.beat(
            member_id,
            0,
            rebalance_timeout=rebalance_timeout_ms,
            subscribed_topic_names=(topic,),
            topic_partitions=(),
            **changed,
        )

    def describe(self) -> Any:
        values = {"group_ids": (self.group,), "include_authorized_operations": False}
        return self.link.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, values).groups[0]


def held(answer: Any) -> int:
    return sum(len(each.partitions) for each in answer.assignment.topic_partitions)


def test_fifty_joins_at_once_cost_few_rebalances(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "crowd")
    hand = Hand(cluster, "crowd")
    members = {str(uuid.uuid4()): 0 for _ in range(50)}
    for member_id in members:
        members[member_id] = hand.join(member_id, "crowd").member_epoch

    def settled() -> bool:
        for member_id, epoch in members.items():
            answer = hand.beat(member_id, epoch, topic_partitions=())
            assert answer.error_code == 0, answer
            members[member_id] = answer.member_epoch
        found = hand.describe()
        return bool(found.group_state == "Stable" and found.group_epoch == max(members.values()))

    eventually(settled, WAIT_S, "the group is stable")
    assert hand.describe().group_epoch <= 3


def test_a_member_that_gives_nothing_up_is_evicted(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "greedy")
    hand = Hand(cluster, "greedy")
    first = hand.join("first", "greedy", 1_000)
    assert held(first) == PARTITIONS
    second = hand.join("second", "greedy")
    assert held(second) == 0
    mine = [
        {"topic_id": each.topic_id, "partitions": each.partitions}
        for each in first.assignment.topic_partitions
    ]
    epoch = second.member_epoch

    def all_are_seconds() -> bool:
        nonlocal epoch
        hand.beat("first", first.member_epoch, topic_partitions=mine)
        answer = hand.beat("second", epoch, topic_partitions=())
        assert answer.error_code == 0
        epoch = answer.member_epoch
        return answer.assignment is not None and held(answer) == PARTITIONS

    eventually(all_are_seconds, WAIT_S, "the second member owns all")
    code = hand.beat("first", first.member_epoch, topic_partitions=mine).error_code
    assert code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"member_epoch": 7}, ErrorCode.FENCED_MEMBER_EPOCH),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_epoch": 0, "server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR),
        ({"member_epoch": 0, "subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
        ({"member_epoch": 0, "rebalance_timeout": -1}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
    ],
)
def test_who_may_not_go_on_is_told_why(cluster: BlockingBrokers, changed: dict[str, Any], code: int) -> None:
    hand = Hand(cluster, "refused")
    joined = hand.join("m", "nothing")
    assert joined.error_code == ErrorCode.NONE
    given = {"member_id": "m", "member_epoch": joined.member_epoch, "topic_partitions": None}
    if changed.get("member_epoch") == 0:
        given |= {"subscribed_topic_names": ("t",), "rebalance_timeout": 1_000, "topic_partitions": ()}
    answer = hand.link.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, {"group_id": "refused", **given, **changed})
    assert answer.error_code == code


def test_offsets_are_fenced_by_the_member_epoch(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "fenced")
    hand = Hand(cluster, "fenced")
    epoch = hand.join("m", "fenced").member_epoch

    def commit(member_id: str, member_epoch: int) -> int:
        row = {"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}
        values = {
            "group_id": "fenced",
            "member_id": member_id,
            "generation_id_or_member_epoch": member_epoch,
            "topics": [{"name": "fenced", "partitions": [row]}],
        }
        answer = hand.link.ask(ApiKey.OFFSET_COMMIT, 9, values)
        return int(answer.topics[0].partitions[0].error_code)

    assert commit("m", epoch) == ErrorCode.NONE
    assert commit("m", epoch - 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit("stranger", epoch) == ErrorCode.UNKNOWN_MEMBER_ID
    assert commit("", -1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_offsets_of_topics_by_their_ids(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "by-id", 2)
    hand = Hand(cluster, "by-id")
    joined = hand.join("m", "by-id")
    topic_id = joined.assignment.topic_partitions[0].topic_id
    stranger = uuid.uuid4()

    def commit(committed: int, *topic_ids: uuid.UUID) -> dict[Any, int]:
        row = {"partition_index": 1, "committed_offset": committed, "committed_metadata": "by id"}
        values = {
            "group_id": "by-id",
            "member_id": "m",
            "generation_id_or_member_epoch": joined.member_epoch,
            "topics": [{"topic_id": each, "partitions": [row]} for each in topic_ids],
        }
        answer = hand.link.ask(ApiKey.OFFSET_COMMIT, 10, values)
        return {each.topic_id: each.partitions[0].error_code for each in answer.topics}

    def fetch(version: int, topics: Any) -> dict[Any, list[tuple[int, int, int]]]:
        values = {"groups": [{"group_id": "by-id", "topics": topics}]}
        (group,) = hand.link.ask(ApiKey.OFFSET_FETCH, version, values).groups
        return {
            each.name if version < 10 else each.topic_id: [
                (row.partition_index, row.committed_offset, row.error_code) for row in each.partitions
            ]
            for each in group.topics
        }

    unknown = ErrorCode.UNKNOWN_TOPIC_ID
    assert commit(7, topic_id, stranger) == {topic_id: ErrorCode.NONE, stranger: unknown}
    asked = [{"topic_id": each, "partition_indexes": (0, 1)} for each in (topic_id, stranger)]
    assert fetch(10, asked) == {
        topic_id: [(0, -1, ErrorCode.NONE), (1, 7, ErrorCode.NONE)],
        stranger: [(0, -1, unknown), (1, -1, unknown)],
    }
    assert fetch(10, None) == {topic_id: [(1, 7, ErrorCode.NONE)]}
    assert fetch(9, None) == {"by-id": [(1, 7, ErrorCode.NONE)]}


def test_a_static_member_returns_to_what_it_had(cluster: BlockingBrokers, admin: AdminClient) -> None:
    create(admin, "static")
    hand = Hand(cluster, "static")
    first = hand.join("one", "static", instance_id="i")
    assert hand.join("two", "static", instance_id="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert hand.beat("one", -2, instance_id="i").member_epoch == -2
    again = hand.join("two", "static", instance_id="i")
    assert (again.error_code, held(again)) == (ErrorCode.NONE, PARTITIONS)
    assert again.member_epoch == first.member_epoch
    code = hand.beat("one", first.member_epoch, instance_id="i").error_code
    assert code == ErrorCode.FENCED_INSTANCE_ID


@pytest.mark.parametrize("strategy", [pytest.param("range", marks=pytest.mark.long), "cooperative-sticky"])
def test_members_go_over_one_by_one_and_back(
    cluster: BlockingBrokers, admin: AdminClient, zookeeper: KazooClient, strategy: str
) -> None:
    group = topic = f"over-{strategy}"
    create(admin, topic)
    kinds: dict[str, dict[str, Any]] = {
        "classic": {"partition.assignment.strategy": strategy},
        "consumer": {"group.protocol": "consumer"},
    }
    everybody: list[Member] = []

    def begin(kind: str) -> Member:
        member = ConfluentMember(f"{kind}-{len(everybody)}", cluster.bootstrap, group, [topic], kinds[kind])
        everybody.append(member.start())
        return member

    sent = 0

    def settle(members: list[Member], kind: str) -> None:
        nonlocal sent
        eventually(lambda: all(len(each.owned) == 4 for each in members), 60.0, "four partitions each")
        assert owned_by_all(members, PARTITIONS)
        produce(cluster, topic, 120)
        sent += 120
        eventually(lambda: committed(zookeeper, group, topic) == sent, 60.0, "all is committed")
        assert group_record(zookeeper, group)["type"] == kind

    members = [begin("classic") for _ in range(3)]
    try:
        settle(members, "classic")
        for kind in ("consumer", "classic"):
            for number in range(3):
                members[number].leave()
                members[number] = begin(kind)
                last = number == 2 and kind == "classic"
                settle(members, "classic" if last else "consumer")
                if not last:
                    # As KIP-1099 counts them: 0 for the classic protocol, 1 for KIP-848's.
                    types = sorted(each.member_type for each in Hand(cluster, group).describe().members)
                    new = number + 1 if kind == "consumer" else 2 - number
                    assert types == [0] * (3 - new) + [1] * new
    finally:
        for member in members:
            member.leave()
    assert overlaps(everybody) == []
    # Nothing was read twice: what a member had read was committed before another went on.
    read = [(key, offset) for each in everybody for key, offset, _ in each.records]
    assert len(read) == len(set(read)) == sent


def committed(zookeeper: KazooClient, group: str, topic: str) -> int:
    """Return the sum of a group's committed offsets."""
    total = 0
    for partition in range(PARTITIONS):
        try:
            path = paths.group_offset_path(group, PartitionKey(topic, partition))
            value, _ = zookeeper.retry(zookeeper.get, path)
        except NoNodeError:
            continue
        total += int(json.loads(value)["offset"])
    return total


def test_who_is_no_consumer_stays_out_of_the_other_protocol(
    cluster: BlockingBrokers, admin: AdminClient
) -> None:
    create(admin, "kind")
    hand = Hand(cluster, "kind")
    epoch = hand.join("m", "kind").member_epoch
    join = {
        "group_id": "kind",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"m"}],
    }
    refused = hand.link.ask(ApiKey.JOIN_GROUP, 3, join)
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert hand.beat("m", -1).error_code == ErrorCode.NONE
    assert epoch > 0
    eventually(
        lambda: hand.link.ask(ApiKey.JOIN_GROUP, 3, join).error_code == ErrorCode.NONE,
        WAIT_S,
        "a classic join",
    )
    assert hand.join("m", "kind").error_code == ErrorCode.GROUP_ID_NOT_FOUND
