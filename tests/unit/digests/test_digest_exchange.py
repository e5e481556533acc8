"""What a node sends about its digests and when, over a host whose role the test sets."""

from __future__ import annotations

import pytest

from quorum.core.machine import StateMachine
from quorum.errors import NodeStoppedError
from quorum.node.digests.exchange import DigestExchange, DigestMessage
from quorum.node.digests.judge import ANSWER_WAIT_MS
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.peers.codec import Codec
from quorum.raft.requests.origins import (
    FORWARDING_MESSAGE_TYPES,
    DigestQuestion,
    DigestReport,
    DigestVerdict,
)

TERM = 5
MEMBERS = {node_id: Member(f"127.0.0.1:{2280 + node_id}", "") for node_id in (1, 2, 3)}


class Host:
    """A node whose leader is set by the test."""

    def __init__(self, node_id: int, leader_id: int | None) -> None:
        self.node_id = node_id
        self.term = TERM
        self.leader_id = leader_id
        self.configuration: Configuration | None = Configuration("c" * 32, MEMBERS, {}, ())
        self.sent: list[DigestMessage] = []

    @property
    def leads(self) -> bool:
        return self.leader_id == self.node_id

    def peer_ids(self) -> list[int]:
        return [node_id for node_id in MEMBERS if node_id != self.node_id]

    def send(self, message: DigestMessage) -> None:
        self.sent.append(message)

    def take(self) -> list[DigestMessage]:
        sent, self.sent = self.sent, []
        return sent


class Bench:
    """A node that applied `applied` entries; `twisted` makes its state differ from there on."""

    def __init__(self, node_id: int = 2, *, leader_id: int | None = 1, applied: int = 10) -> None:
        self.host = Host(node_id, leader_id)
        self.machine = StateMachine()
        self.exchange = DigestExchange(self.host, self.machine)
        self.apply(applied)
        self.exchange.leadership_changed()

    def apply(self, count: int = 1) -> None:
        for _ in range(count):
            self.machine.apply_noop(self.machine.applied_index + 1, 1, 1000)
            self.exchange.history.note(
                self.machine.applied_index, self.machine.state_digest, self.machine.apply_digest
            )

    def twist(self) -> None:
        self.machine.apply_digest = bytes(16)
        self.apply()

    def report(self) -> DigestReport:
        digests = self.exchange.history.newest()
        return DigestReport(TERM, self.host.node_id, 1, *digests)


def test_a_follower_reports_what_is_new_once() -> None:
    bench = Bench()
    bench.exchange.report(1)
    assert bench.host.take() == [bench.report()]
    bench.exchange.report(1)
    assert bench.host.take() == [], "an idle cluster sends nothing"
    bench.apply(3)
    bench.exchange.report(1)
    assert bench.host.take() == [bench.report()]


@pytest.mark.parametrize("event", ["leadership_changed", "leader_reconnected"])
def test_what_may_be_lost_is_reported_again(event: str) -> None:
    bench = Bench()
    bench.exchange.report(1)
    bench.host.take()
    getattr(bench.exchange, event)()
    bench.exchange.report(1)
    assert bench.host.take() == [bench.report()]


def test_a_question_is_answered_for_its_index_now_or_when_it_is_applied() -> None:
    bench = Bench()
    bench.exchange.report(1)
    bench.host.take()
    wanted = bench.exchange.history.at(7)
    assert wanted is not None
    bench.exchange.receive(DigestQuestion(TERM, 1, 2, 7), 0.0)
    assert bench.host.take() == [DigestReport(TERM, 2, 1, *wanted)]
    bench.exchange.receive(DigestQuestion(TERM, 1, 2, 12), 0.0)
    bench.exchange.report(1)
    assert bench.host.take() == []
    bench.apply(5)
    bench.exchange.report(1)
    wanted = bench.exchange.history.at(12)
    assert wanted is not None
    assert bench.host.take() == [bench.report(), DigestReport(TERM, 2, 1, *wanted)]
    bench.exchange.receive(DigestQuestion(TERM, 3, 2, 7), 0.0)
    assert bench.host.take() == [], "only the leader is answered"


def test_an_installed_state_is_reported_and_nothing_from_before() -> None:
    bench = Bench()
    installed = StateMachine()
    for log_index in range(1, 31):
        installed.apply_noop(log_index, 1, 1000)
    bench.exchange.installed(installed)
    bench.exchange.report(1)
    assert bench.host.take() == [DigestReport(TERM, 2, 1, 30, installed.state_digest, installed.apply_digest)]
    bench.exchange.receive(DigestQuestion(TERM, 1, 2, 7), 0.0)
    assert bench.host.take() == []


def test_a_leader_finds_the_odd_one_and_the_odd_one_stops_with_the_story() -> None:
    leader, good, odd = Bench(1), Bench(3), Bench(2)
    for bench in (leader, good):
        bench.apply()
    odd.twist()
    leader.exchange.receive(odd.report(), 0.0)
    (question,) = leader.host.take()
    assert question == DigestQuestion(TERM, 1, 3, 11)
    good.exchange.receive(question, 0.0)
    (answer,) = good.host.take()
    leader.exchange.receive(answer, 0.0)
    (verdict,) = leader.host.take()
    assert isinstance(verdict, DigestVerdict)
    assert (verdict.receiver, verdict.supporters, verdict.voters) == (2, (1, 3), 3)
    with pytest.raises(NodeStoppedError) as caught:
        odd.exchange.receive(verdict, 0.0)
    own, other = odd.exchange.history.at(11), leader.exchange.history.at(11)
    assert own is not None
    assert other is not None
    for digest in (own.apply_digest, other.apply_digest):
        assert digest.hex() in caught.value.message
    good.exchange.receive(verdict._replace(receiver=3), 0.0)  # its digests are those: it goes on


def test_a_leader_that_is_the_odd_one_stops_with_the_story() -> None:
    leader, followers = Bench(1), [Bench(2), Bench(3)]
    leader.twist()
    for bench in followers:
        bench.apply()
    leader.exchange.receive(followers[0].report(), 0.0)
    with pytest.raises(NodeStoppedError) as caught:
        leader.exchange.receive(followers[1].report(), 0.0)
    assert "differs from that of nodes 2, 3 (2 of 3 voters)" in caught.value.message
    assert "members replace 1" in caught.value.remedy


def test_time_closes_a_case_in_a_tick() -> None:
    leader, odd = Bench(1), Bench(2)
    leader.apply()
    odd.twist()
    leader.exchange.receive(odd.report(), 1000.0)
    leader.host.take()
    leader.exchange.tick(1000.0 + ANSWER_WAIT_MS - 1)
    assert leader.host.take() == []
    leader.exchange.tick(1000.0 + ANSWER_WAIT_MS)
    (verdict,) = leader.host.take()
    with pytest.raises(NodeStoppedError, match="no majority says who is right"):
        odd.exchange.receive(verdict, 0.0)


def test_a_verdict_counts_only_from_the_leader_and_only_on_what_is_known() -> None:
    bench = Bench()
    digests = (b"x" * 16, b"y" * 16)
    bench.exchange.receive(DigestVerdict(TERM, 3, 2, 7, *digests, (1, 3), 3), 0.0)
    bench.exchange.receive(DigestVerdict(TERM, 1, 2, 99, *digests, (1, 3), 3), 0.0)
    with pytest.raises(NodeStoppedError):
        bench.exchange.receive(DigestVerdict(TERM, 1, 2, 7, *digests, (1, 3), 3), 0.0)


def test_only_a_leader_judges_and_a_new_term_begins_anew() -> None:
    bench, odd = Bench(1), Bench(2)
    bench.apply()
    odd.twist()
    bench.exchange.receive(odd.report(), 0.0)
    assert len(bench.host.take()) == 1
    bench.host.leader_id = 3
    bench.exchange.leadership_changed()
    bench.exchange.receive(odd.report(), 0.0)
    bench.exchange.tick(2 * ANSWER_WAIT_MS)
    assert bench.host.take() == []
    assert bench.exchange.compared_count == 1, "it is a total"
    bench.host.leader_id, bench.host.term = 1, TERM + 1
    bench.exchange.leadership_changed()
    bench.exchange.tick(3 * ANSWER_WAIT_MS)
    assert bench.host.take() == [], "the case of the old term is forgotten"


def test_before_the_members_are_known_those_of_the_settings_count() -> None:
    leader, odd = Bench(1), Bench(2)
    leader.host.configuration = None
    leader.apply()
    odd.twist()
    leader.exchange.receive(odd.report(), 0.0)
    assert leader.host.take() == [DigestQuestion(TERM, 1, 3, 11)]


def test_the_messages_survive_the_wire() -> None:
    codec = Codec(FORWARDING_MESSAGE_TYPES)
    for message in (
        DigestReport(TERM, 2, 1, 7, b"x" * 16, b"y" * 16),
        DigestQuestion(TERM, 1, 2, 7),
        DigestVerdict(TERM, 1, 2, 7, b"x" * 16, b"y" * 16, (1, 3), 3),
    ):
        assert codec.decode(b"".join(codec.encode(message))[4:]) == message
