"""The metadata story: brokers, a controller and a thousand leaderAndISR records through every kind of
failure.

One test over three node processes and broker processes of their own; what each step proves is said beside
it. It also passes against a real ZooKeeper (TESTED_SYSTEM=zookeeper), where the stored tree stands for the
digest.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.nodes import QuorateNodes, System, eventually
from tests.support.story_broker import BrokerProcess

BROKER_SESSION_MS = 3000
TOPICS, PARTITIONS = 4, 250
SIZE = {"topics": TOPICS, "partitions": PARTITIONS}
EXPIRY_DEADLINE_S = 30.0


class Brokers:
    """The broker processes of the story."""

    def __init__(self, nodes: System) -> None:
        self._nodes = nodes
        self._all: list[BrokerProcess] = []

    def start(self, broker_id: int, hosts: str, session_timeout_ms: int = BROKER_SESSION_MS) -> BrokerProcess:
        """Start a broker and its session."""
        broker = BrokerProcess(hosts, broker_id, session_timeout_ms)
        self._all.append(broker)
        broker.ask("start")
        return broker

    def close(self) -> None:
        """End all processes."""
        for broker in self._all:
            broker.close()


@pytest.fixture
def brokers(nodes: System) -> Iterator[Brokers]:
    started = Brokers(nodes)
    try:
        yield started
    finally:
        started.close()


def state_of(nodes: System, observer: BrokerProcess) -> object:
    """What must not change when a write is refused: the nodes' common state digest, or the whole tree."""
    return nodes.one_digest() if isinstance(nodes, QuorateNodes) else observer.ask("fingerprint")


class Story:
    """The cluster of the story, and what the chapters leave for those behind them."""

    def __init__(self, nodes: System, brokers: Brokers) -> None:
        self.nodes = nodes
        self.brokers = brokers
        #: {broker id: every generation that it got, in order}
        self.generations: dict[int, list[int]] = {1: [], 2: [], 3: []}
        self.one, self.two, self.three = (
            brokers.start(number, nodes.hosts_from(number)) for number in nodes.node_ids
        )
        #: {topic/partition: (leader, leader epoch, controller epoch, isr, znode version)}
        self.written: dict[str, list[Any]] = {}
        self.moved: dict[str, list[Any]] = {}

    def register(self, broker: BrokerProcess) -> None:
        answer = broker.ask("register")
        assert answer["generation"] == answer["czxid"] == answer["kept_mzxid"]
        self.generations[broker.broker_id].append(answer["generation"])

    def three_brokers_register_and_one_is_elected(self) -> None:
        for broker in (self.one, self.two, self.three):
            self.register(broker)
        assert self.one.ask("elect") == {"won": True, "epoch": 1}
        assert self.two.ask("elect") == {"won": False, "held_by": 1}

    def it_writes_a_thousand_records_and_the_raft_leader_is_killed(self) -> None:
        """Nothing of it is lost, and nobody's session ends."""
        assert self.one.ask("found", brokers=[1, 2, 3], **SIZE) == 1000
        self.written = self.one.ask("states", **SIZE)
        killed = self.nodes.leader()
        self.nodes.kill(killed)
        survivor = self.nodes.leader()
        self.observer = self.brokers.start(9, self.nodes.host(survivor), session_timeout_ms=20000)
        for broker in (self.one, self.two, self.three):
            assert broker.ask("states", **SIZE) == self.written
        for broker in (self.one, self.two, self.three):
            self.register(broker)
        assert {number: len(set(seen)) for number, seen in self.generations.items()} == {1: 1, 2: 1, 3: 1}
        self.nodes.start_node(killed)
        self.nodes.wait_ready()

    def a_broker_is_killed_and_its_ephemerals_vanish_under_one_zxid(self) -> None:
        """As watches on another node see."""
        observer = self.observer
        ephemerals = self.three.ask("hold", count=5)
        observer.ask("fingerprint")  # ends in a sync: the observer's node has the ephemerals
        observer.ask("watch_deletion", paths=ephemerals)
        self.three.kill()
        eventually(
            lambda: len(observer.ask("seen")) >= len(ephemerals) + 2,
            EXPIRY_DEADLINE_S,
            "broker 3's session expired",
        )
        events = observer.ask("seen")
        deleted = [event for event in events if event[0] == "NODE_DELETED"]
        assert sorted(path for _, path, _ in deleted) == sorted(ephemerals)
        parents = sorted(path for kind, path, _ in events if kind == "NODE_CHILDREN_CHANGED")
        assert parents == ["/brokers/ids", "/held"]
        zxids = {zxid for _, _, zxid in events}
        assert len(zxids) == 1
        assert zxids.pop() > max(max(seen) for seen in self.generations.values())

    def the_controller_moves_its_partitions_in_fenced_multis(self) -> None:
        affected = sum(3 in state[3] for state in self.written.values())
        assert self.one.ask("fail_over", dead=3, **SIZE) == affected
        self.moved = self.two.ask("states", **SIZE)
        for key, (leader, leader_epoch, controller_epoch, isr, version) in self.moved.items():
            old_leader, old_epoch, _, old_isr, old_version = self.written[key]
            assert 3 not in isr
            assert leader in isr
            assert controller_epoch == 1
            touched = 3 in old_isr
            assert (leader_epoch, version) == (old_epoch + touched, old_version + touched)
            assert old_leader in (leader, 3)

    def the_controller_stops_beyond_its_session_and_its_late_multi_is_refused(self) -> None:
        one, two = self.one, self.two
        two.send("elect_when_free")
        one.signal(signal.SIGSTOP)
        assert two.answer() == {"won": True, "epoch": 2}
        before = state_of(self.nodes, self.observer)
        where = {"topic": "topic-0", "partition": 0}
        one.send("stale_multi", **where)
        one.signal(signal.SIGCONT)
        # Written into a connection that the server has closed meanwhile, or after the client knew better.
        assert one.refusal() in ("ConnectionLossError", "SessionExpiredError")
        assert one.refused("stale_multi", **where) == "SessionExpiredError"
        assert one.refused("stale_multi_in_new_session", **where) == "ControllerFencedError"
        assert state_of(self.nodes, self.observer) == before

    def a_compare_and_set_of_an_older_version_changes_nothing(self) -> None:
        _, _, _, isr, version = self.moved["topic-0/0"]
        target = {"topic": "topic-0", "partition": 0, "isr": isr}
        assert self.two.ask("compare_and_set", version=version, **target) == version + 1
        before = state_of(self.nodes, self.observer)
        assert self.two.refused("compare_and_set", version=version, **target) == "BadVersionError"
        assert state_of(self.nodes, self.observer) == before

    def all_nodes_are_killed_and_restarted(self) -> None:
        """The records, the controller and its session are still there."""
        last = self.two.ask("states", **SIZE)
        for node_id in self.nodes.node_ids:
            self.nodes.kill(node_id)
        for node_id in self.nodes.node_ids:
            self.nodes.start_node(node_id)
        self.nodes.wait_ready()
        assert self.two.ask("states", **SIZE) == last
        self.register(self.two)
        assert len(set(self.generations[2])) == 1
        assert self.two.ask("elect") == {"won": True, "epoch": 2}

    def brokers_that_lost_their_session_come_back_with_higher_generations(self) -> None:
        newest = max(max(seen) for seen in self.generations.values())
        for number in (1, 3):
            self.register(self.brokers.start(number, self.nodes.hosts_from(number)))
            assert self.generations[number][-1] > newest
            newest = self.generations[number][-1]
        for seen in self.generations.values():
            assert seen == sorted(seen)


def test_the_metadata_story(nodes: System, brokers: Brokers) -> None:
    story = Story(nodes, brokers)
    story.three_brokers_register_and_one_is_elected()
    story.it_writes_a_thousand_records_and_the_raft_leader_is_killed()
    story.a_broker_is_killed_and_its_ephemerals_vanish_under_one_zxid()
    story.the_controller_moves_its_partitions_in_fenced_multis()
    story.the_controller_stops_beyond_its_session_and_its_late_multi_is_refused()
    story.a_compare_and_set_of_an_older_version_changes_nothing()
    story.all_nodes_are_killed_and_restarted()
    story.brokers_that_lost_their_session_come_back_with_higher_generations()
    if isinstance(nodes, QuorateNodes):
        nodes.one_digest()
