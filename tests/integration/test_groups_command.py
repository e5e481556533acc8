"""`quorate groups` against brokers inside this process."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kazoo.client import KazooClient
from kazoo.security import ACL, ANYONE_ID_UNSAFE, Permissions

from broker.local import BlockingBrokers, brokers_in_thread
from quorum.cli.main import main
from quorum.metadata import paths
from tests.support.group_members import ConfluentMember
from tests.support.nodes import eventually

WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[BlockingBrokers]:
    settings = {"groups": {"group_initial_rebalance_delay_ms": 0}}
    with brokers_in_thread(2, settings=settings) as running:
        admin = AdminClient({"bootstrap.servers": running.bootstrap})
        admin.create_topics([NewTopic("orders", 2, 2)])["orders"].result(WAIT_S)
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(20):
            producer.produce("orders", b"%d" % number, partition=number % 2, timestamp=1_000 + number)
        assert producer.flush(WAIT_S) == 0
        yield running


def commit(cluster: BlockingBrokers, group: str, *offsets: int) -> None:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
    wanted = [TopicPartition("orders", index, offset) for index, offset in enumerate(offsets)]
    consumer.commit(offsets=wanted, asynchronous=False)
    consumer.close()


class Quorate:
    """Runs the command line and reads what it prints."""

    def __init__(self, cluster: BlockingBrokers, output: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = cluster.bootstrap
        self._output = output

    def text(self, *words: str, code: int = 0) -> str:
        self._output.readouterr()
        found = main(["groups", words[0], "--bootstrap", self.bootstrap, *words[1:]])
        captured = self._output.readouterr()
        assert found == code, captured.err
        return captured.err if code else captured.out

    def json(self, *words: str) -> Any:
        return json.loads(self.text(*words, "--json"))


@pytest.fixture
def quorate(cluster: BlockingBrokers, capsys: pytest.CaptureFixture[str]) -> Quorate:
    return Quorate(cluster, capsys)


def test_offsets_and_lag_of_a_group_are_shown(cluster: BlockingBrokers, quorate: Quorate) -> None:
    commit(cluster, "shown", 4, 10)
    listed = {each["group"]: each for each in quorate.json("list")}
    assert listed["shown"]["state"] == "Empty"
    (found,) = quorate.json("describe", "shown")
    columns = ("partition", "current_offset", "log_end_offset", "lag", "consumer_id")
    assert [[each[name] for name in columns] for each in found["offsets"]] == [
        [0, 4, 10, 6, None],
        [1, 10, 10, 0, None],
    ]
    head, columns_line, first, _ = quorate.text("describe", "shown").splitlines()
    assert head == "shown  Empty"
    assert columns_line.split()[:5] == ["TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"]
    assert first.split() == ["orders", "0", "4", "10", "6", "-", "-", "-"]


def test_members_are_shown_and_keep_a_group_from_being_changed(
    cluster: BlockingBrokers, quorate: Quorate
) -> None:
    member = ConfluentMember("reader", cluster.bootstrap, "used", ["orders"]).start()
    try:
        eventually(lambda: len(member.committed) == 2, WAIT_S, "both partitions are read")
        (found,) = quorate.json("describe", "used")
        assert found["state"] == "Stable"
        assert [each["client_id"] for each in found["offsets"]] == ["reader", "reader"]
        assert [each["host"] for each in found["members"]] == ["/127.0.0.1"]
        assert "reader" in quorate.text("describe", "used", "--members")
        assert "has 1 members" in quorate.text("reset-offsets", "used", "--to-latest", "--execute", code=1)
        assert "NON_EMPTY_GROUP" in quorate.text("delete", "used", code=1)
    finally:
        member.leave()
    assert quorate.text("delete", "used") == "deleted used\n"
    assert "does not exist" in quorate.text("describe", "used", code=1)


@pytest.mark.parametrize(
    ("goal", "offsets"),
    [
        (["--to-earliest"], [0, 0]),
        (["--to-latest"], [10, 10]),
        (["--to-offset", "3"], [3, 3]),
        (["--to-offset", "99"], [10, 10]),
        (["--shift-by", "-2"], [2, 6]),
        (["--to-datetime", "1970-01-01T00:00:01.010"], [5, 5]),
        (["--to-datetime", "2999-01-01T00:00"], [10, 10]),
        (["--to-latest", "--topic", "orders:1"], [4, 10]),
    ],
)
def test_offsets_are_reset(
    cluster: BlockingBrokers, quorate: Quorate, goal: list[str], offsets: list[int]
) -> None:
    commit(cluster, "reset", 4, 8)
    assert "nothing was changed" in quorate.text("reset-offsets", "reset", *goal)
    (found,) = quorate.json("describe", "reset")
    assert [each["current_offset"] for each in found["offsets"]] == [4, 8]
    quorate.text("reset-offsets", "reset", *goal, "--execute")
    (found,) = quorate.json("describe", "reset")
    assert [each["current_offset"] for each in found["offsets"]] == offsets


@pytest.mark.parametrize(
    ("words", "problem", "code"),
    [
        (["reset-offsets", "nobody", "--to-latest"], "has committed nothing", 1),
        (["reset-offsets", "nobody", "--to-latest", "--topic", "nothing"], "does not exist", 1),
        (["reset-offsets", "nobody", "--to-latest", "--topic", "orders:7"], "is no partition", 1),
        (["reset-offsets", "nobody", "--shift-by", "1", "--topic", "orders"], "nothing is committed", 1),
        (["reset-offsets", "nobody", "--to-datetime", "soon", "--topic", "orders"], "is no time", 2),
    ],
)
def test_what_cannot_be_reset_is_refused(quorate: Quorate, words: list[str], problem: str, code: int) -> None:
    assert problem in quorate.text(*words, code=code)


def test_dead_brokers_are_named(capsys: pytest.CaptureFixture[str], nobody_listens: str) -> None:
    assert main(["groups", "list", "--bootstrap", nobody_listens]) == 1
    assert nobody_listens in capsys.readouterr().err


@pytest.fixture
def nobody_listens(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("broker.commands.actions.TIMEOUT_MS", 500)
    return "127.0.0.1:1"


def test_a_group_that_cannot_be_written_says_so(cluster: BlockingBrokers, quorate: Quorate) -> None:
    commit(cluster, "locked", 4, 10)
    path = paths.group_path("locked")
    zookeeper = KazooClient(cluster.hosts)
    zookeeper.start(WAIT_S)
    member = ConfluentMember("locked-1", cluster.bootstrap, "locked", ["orders"])
    try:
        zookeeper.set_acls(path, [ACL(Permissions.READ | Permissions.ADMIN, ANYONE_ID_UNSAFE)])
        member.start()
        said = eventually(
            lambda: problem_of(quorate, "locked"), WAIT_S, "the group says why it is not written"
        )
        assert said is not None and "locked" in said
        assert "\nnot written: " in quorate.text("describe", "locked")
        assert any(
            "quorate_groups_unwritten 1.0" in urlopen(f"{url}/metrics", timeout=WAIT_S).read().decode()
            for url in cluster.admin_urls
        )
        zookeeper.set_acls(path, [ACL(Permissions.ALL, ANYONE_ID_UNSAFE)])
        eventually(lambda: len(member.owned) == 2, WAIT_S, "the member gets its partitions")
        eventually(lambda: problem_of(quorate, "locked") is None, WAIT_S, "the group is written again")
    finally:
        member.leave()
        zookeeper.stop()
        zookeeper.close()


def problem_of(quorate: Quorate, group: str) -> str | None:
    (found,) = quorate.json("describe", group)
    told: str | None = found["problem"]
    return told
