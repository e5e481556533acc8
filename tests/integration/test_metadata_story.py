"""The metadata story: brokers, a controller and a thousand leaderAndISR records through every kind of
failure.

One test over three node processes and broker processes of their own; what each step proves is said beside
it. It also passes against a real ZooKeeper (TESTED_SYSTEM=zookeeper), where the stored tree stands for the
digest.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

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


def test_the_metadata_story(nodes: System, brokers: Brokers) -> None:
    generations: dict[int, list[int]] = {1: [], 2: [], 3: []}

    def register(broker: BrokerProcess) -> None:
        answer = broker.ask("register")
        assert answer["generation"] == answer["czxid"] == answer["kept_mzxid"]
        generations[broker.broker_id].append(answer["generation"])

    # Three brokers register, each at another node; one is elected, with epoch 1.
    one, two, three = (brokers.start(number, nodes.hosts_from(number)) for number in nodes.node_ids)
    for broker in (one, two, three):
        register(broker)
    assert one.ask("elect") == {"won": True, "epoch": 1}
    assert two.ask("elect") == {"won": False, "held_by": 1}

    # It writes 1,000 records, and the Raft leader is killed: nothing of it is lost, nobody's session ends.
    assert one.ask("found", brokers=[1, 2, 3], **SIZE) == 1000
    written = one.ask("states", **SIZE)
    killed = nodes.leader()
    nodes.kill(killed)
    survivor = nodes.leader()
    for broker in (one, two, three):
        assert broker.ask("states", **SIZE) == written
    for broker in (one, two, three):
        register(broker)
    assert {number: len(set(seen)) for number, seen in generations.items()} == {1: 1, 2: 1, 3: 1}
    nodes.start_node(killed)
    nodes.wait_ready()

    # A broker is killed; its ephemerals vanish under one zxid, as watches on another node see.
    observer = brokers.start(9, nodes.host(survivor), session_timeout_ms=20000)
    ephemerals = three.ask("hold", count=5)
    observer.ask("fingerprint")  # ends in a sync: the observer's node has the ephemerals
    observer.ask("watch_deletion", paths=ephemerals)
    three.kill()
    eventually(
        lambda: len(observer.ask("seen")) >= len(ephemerals) + 2,
        EXPIRY_DEADLINE_S,
        "broker 3's session expired",
    )
    events = observer.ask("seen")
    deleted = [event for event in events if event[0] == "NODE_DELETED"]
    assert sorted(path for _, path, _ in deleted) == sorted(ephemerals)
    assert sorted(path for kind, path, _ in events if kind == "NODE_CHILDREN_CHANGED") == [
        "/brokers/ids",
        "/held",
    ]
    zxids = {zxid for _, _, zxid in events}
    assert len(zxids) == 1
    assert zxids.pop() > max(max(seen) for seen in generations.values())

    # The controller moves its partitions in fenced multis.
    assert one.ask("fail_over", dead=3, **SIZE) == sum(3 in state[3] for state in written.values())
    moved = two.ask("states", **SIZE)
    for key, (leader, leader_epoch, controller_epoch, isr, version) in moved.items():
        old_leader, old_epoch, _, old_isr, old_version = written[key]
        assert 3 not in isr
        assert leader in isr
        assert controller_epoch == 1
        touched = 3 in old_isr
        assert (leader_epoch, version) == (old_epoch + touched, old_version + touched)
        assert old_leader in (leader, 3)

    # The controller stops beyond its session; another is elected; the old one wakes and is refused.
    two.send("elect_when_free")
    one.signal(signal.SIGSTOP)
    assert two.answer() == {"won": True, "epoch": 2}
    before = state_of(nodes, observer)
    one.send("stale_multi", topic="topic-0", partition=0)
    one.signal(signal.SIGCONT)
    # Written into a connection that the server has closed meanwhile, or after the client knew better.
    assert one.refusal() in ("ConnectionLossError", "SessionExpiredError")
    assert one.refused("stale_multi", topic="topic-0", partition=0) == "SessionExpiredError"
    assert one.refused("stale_multi_in_new_session", topic="topic-0", partition=0) == "ControllerFencedError"
    assert state_of(nodes, observer) == before

    # A compare-and-set at the present version succeeds, at an older one it is refused and changes nothing.
    version = moved["topic-0/0"][4]
    isr = moved["topic-0/0"][3]
    target = {"topic": "topic-0", "partition": 0, "isr": isr}
    assert two.ask("compare_and_set", version=version, **target) == version + 1
    before = state_of(nodes, observer)
    assert two.refused("compare_and_set", version=version, **target) == "BadVersionError"
    assert state_of(nodes, observer) == before

    # All nodes are killed and restarted: the records, the controller and its session are still there.
    last = two.ask("states", **SIZE)
    for node_id in nodes.node_ids:
        nodes.kill(node_id)
    for node_id in nodes.node_ids:
        nodes.start_node(node_id)
    nodes.wait_ready()
    assert two.ask("states", **SIZE) == last
    register(two)
    assert len(set(generations[2])) == 1
    assert two.ask("elect") == {"won": True, "epoch": 2}

    # Brokers that lost their session come back with higher generations; generations only rose.
    newest = max(max(seen) for seen in generations.values())
    for number in (1, 3):
        register(brokers.start(number, nodes.hosts_from(number)))
        assert generations[number][-1] > newest
        newest = generations[number][-1]
    for seen in generations.values():
        assert seen == sorted(seen)
    if isinstance(nodes, QuorateNodes):
        nodes.one_digest()
