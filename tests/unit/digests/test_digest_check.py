"""Comparison of states: several nodes whose messages the test hands over."""

from __future__ import annotations

import pytest

from quorum.core.machine import StateMachine
from quorum.errors import NodeStoppedError
from quorum.node.digests import DIFFERENCE_MS, REPORTED_MAX, DigestCheck
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.codec import Codec
from quorum.raft.requests.origins import FORWARDING_MESSAGE_TYPES, DigestDifference, DigestNotice

TERM = 5


class Node:
    """A node with a real state; its log consists of no-ops."""

    def __init__(self, node_id: int, configuration: Configuration) -> None:
        self.node_id = node_id
        self.term = TERM
        self.leader_id: int | None = 1
        self.configuration: Configuration | None = configuration
        self.machine = StateMachine()
        self.sent: list[DigestNotice | DigestDifference] = []
        self.check = DigestCheck(self, self.machine)
        self.check.leadership_changed()

    def peer_ids(self) -> list[int]:
        assert self.configuration is not None
        return list(self.configuration.peer_ids(self.node_id))

    def send(self, message: DigestNotice | DigestDifference) -> None:
        self.sent.append(message)

    def apply(self, now_ms: float = 0.0, *, twisted: bool = False) -> None:
        """Apply one more entry, as the replica does it."""
        machine = self.machine
        machine.apply_noop(machine.applied_index + 1, 1, 1000)
        if twisted:
            machine.apply_digest = b"x" * 16
        if machine.applied_index == self.check.wanted_index:
            self.check.compare(now_ms)

    def twist(self) -> None:
        """Let the state differ from here on; all that go wrong do so in the same way."""
        self.machine.apply_digest = b"x" * 16


class World:
    def __init__(self, voters: int = 3, learners: int = 0) -> None:
        member = {n: Member(f"h:{n}", "") for n in range(1, voters + learners + 1)}
        configuration = Configuration(
            "c" * 32,
            {n: each for n, each in member.items() if n <= voters},
            {n: each for n, each in member.items() if n > voters},
            (),
        )
        self.now_ms = 0.0
        self.nodes = {n: Node(n, configuration) for n in member}
        for node in self.nodes.values():
            node.apply()

    def deliver(self, *reached: int) -> None:
        """Hand over what is under way, of the leader's words those to these nodes only."""
        for node in self.nodes.values():
            sent, node.sent = node.sent, []
            for message in sent:
                if not reached or message.receiver in (1, *reached):
                    self.nodes[message.receiver].check.receive(message, self.now_ms)

    def interval(self, *reached: int) -> None:
        """Let a heartbeat interval go by: the leader speaks, who differs answers, the clock is looked at."""
        self.now_ms += 50.0
        self.nodes[1].check.say()
        self.deliver(*reached)
        self.deliver()
        for node in self.nodes.values():
            node.check.tick()

    def until_stopped(self, *reached: int) -> NodeStoppedError:
        for _ in range(1000):
            try:
                self.interval(*reached)
            except NodeStoppedError as story:
                return story
        raise AssertionError("nobody stopped")


def test_equal_states_are_compared_once_and_nothing_follows() -> None:
    world = World()
    for _ in range(100):
        world.interval()
    assert [node.check.compared_count for node in world.nodes.values()] == [0, 1, 1]
    assert not any(node.sent for node in world.nodes.values())


def test_an_idle_leader_says_its_digests_once() -> None:
    leader = World().nodes[1]
    leader.check.say()
    assert len(leader.sent) == 2
    leader.check.say()
    assert len(leader.sent) == 2
    leader.check.peer_connected()
    leader.check.say()
    assert len(leader.sent) == 4, "it may have been lost with the old link"
    leader.term += 1
    leader.check.leadership_changed()
    leader.check.say()
    assert len(leader.sent) == 6


def test_a_lagging_follower_compares_once_it_has_applied_the_entry() -> None:
    world = World()
    leader, follower = world.nodes[1], world.nodes[2]
    leader.apply()
    world.interval(2)
    for _ in range(3):
        leader.apply()
        world.interval(2)
    assert follower.check.compared_count == 0
    follower.apply()
    assert follower.check.compared_count == 1, "later words of the leader do not replace one that waits"


def test_a_follower_ahead_of_the_leader_waits_for_the_next_word() -> None:
    world = World()
    follower = world.nodes[2]
    follower.apply()
    world.interval(2)
    assert follower.check.compared_count == 0
    world.nodes[1].apply()
    world.interval(2)
    assert follower.check.compared_count == 1


@pytest.mark.parametrize("lags", [False, True])
def test_the_odd_follower_stops_and_names_index_and_digests(lags: bool) -> None:
    world = World()
    odd = world.nodes[2]
    if lags:
        world.nodes[1].apply()
        world.interval()
        world.nodes[3].apply()
        odd.apply(twisted=True)
        world.deliver()
    else:
        odd.twist()
    index, here = odd.machine.applied_index, odd.machine.apply_digest.hex()
    story = world.until_stopped()
    assert world.now_ms >= DIFFERENCE_MS
    there = world.nodes[1].machine.apply_digest.hex()
    assert f"at log index {index} the state of this node differs from that of node 1" in story.message
    assert f"apply_digest {here} here, {there} there" in story.message
    assert "no majority of the voters differs from it in the same way" in story.message
    assert "members replace 2" in story.remedy


@pytest.mark.parametrize(("voters", "good"), [(3, (2, 3)), (5, (2, 4, 5))])
def test_the_odd_leader_stops_before_any_follower(voters: int, good: tuple[int, ...]) -> None:
    world = World(voters)
    world.nodes[1].twist()
    story = world.until_stopped(*good)
    assert world.now_ms < DIFFERENCE_MS
    nodes = ", ".join(map(str, good))
    assert f"at log index 1 the state of this node differs from that of nodes {nodes}" in story.message
    assert f"({len(good)} of {voters} voters)" in story.message
    good_digest = world.nodes[2].machine.apply_digest.hex()
    assert f"apply_digest {b'x'.hex() * 16} here, {good_digest} there" in story.message
    assert "members replace 1" in story.remedy


def test_followers_that_differ_at_other_indexes_meet_at_a_later_one() -> None:
    world = World()
    leader, two, three = world.nodes.values()
    leader.twist()
    world.interval(2)
    for node in (leader, two):
        node.apply()
    world.interval(2)
    three.apply()
    story = world.until_stopped()
    assert "at log index 2" in story.message
    assert "members replace 1" in story.remedy
    assert world.now_ms < DIFFERENCE_MS


def test_those_that_differ_in_other_ways_are_no_majority() -> None:
    world = World()
    world.nodes[2].twist()
    world.nodes[3].machine.apply_digest = b"y" * 16
    story = world.until_stopped()
    assert "members replace 2" in story.remedy


def test_a_learner_stops_and_never_counts() -> None:
    world = World(voters=2, learners=2)
    for node_id in (3, 4):
        world.nodes[node_id].twist()
    assert "members replace 3" in world.until_stopped().remedy


def test_a_lone_follower_does_not_end_its_leader() -> None:
    world = World(voters=2)
    world.nodes[1].twist()
    assert "members replace 2" in world.until_stopped().remedy


@pytest.mark.parametrize("event", ["term", "leader", "install"])
def test_a_difference_ends_with_the_leadership_or_the_state(event: str) -> None:
    world = World()
    odd = world.nodes[2]
    odd.twist()
    for _ in range(int(DIFFERENCE_MS / 50) - 1):
        world.interval()
    if event == "install":
        odd.check.installed(odd.machine)
    else:
        odd.leader_id = None
        odd.check.leadership_changed()
        odd.leader_id = 1
        odd.check.leadership_changed()
    began_ms = world.now_ms
    world.until_stopped()
    assert world.now_ms - began_ms >= DIFFERENCE_MS


def test_a_silent_leader_is_not_judged() -> None:
    world = World()
    odd = world.nodes[2]
    odd.twist()
    world.interval()
    for _ in range(100):
        world.now_ms += DIFFERENCE_MS
        odd.check.tick()


def test_only_the_leader_is_believed() -> None:
    odd = World().nodes[2]
    odd.check.receive(DigestNotice(TERM, 3, 2, 1, b"x" * 16, b"x" * 16), 0.0)
    assert (odd.check.compared_count, odd.sent) == (0, [])


def test_what_is_reported_is_bounded() -> None:
    check = World().nodes[1].check
    wrong = DigestDifference(TERM, 2, 1, 0, b"x" * 16, b"x" * 16, b"y" * 16, b"y" * 16)
    for index in range(REPORTED_MAX + 1):
        check.receive(wrong._replace(log_index=index), 0.0)
    check.receive(wrong._replace(sender=3), 0.0)
    with pytest.raises(NodeStoppedError):
        check.receive(wrong._replace(sender=3, log_index=REPORTED_MAX), 0.0)


@pytest.mark.parametrize(
    "message",
    [
        DigestNotice(TERM, 1, 2, 7, b"a" * 16, b"b" * 16),
        DigestDifference(TERM, 2, 1, 7, b"a" * 16, b"b" * 16, b"c" * 16, b"d" * 16),
    ],
)
def test_messages_survive_the_wire(message: DigestNotice | DigestDifference) -> None:
    codec = Codec(FORWARDING_MESSAGE_TYPES)
    assert codec.decode(b"".join(codec.encode(message))[4:]) == message
