"""The shell around forwarding: registration, refusals and repeats, over a host that is told what to say."""

from __future__ import annotations

from collections.abc import Callable

from quorum.errors import NotLeaderError, ProposalRefusedError
from quorum.raft.core.entry import EntryKind
from quorum.raft.requests.origin_shell import RESEND_AFTER_MS, Forwarder, ForwardingMessage
from quorum.raft.requests.origins import Batch, Forward, ForwardExpected, RegisterOrigin


class Host:
    """Node 1 of three; its leadership and what `propose` does are set by the test."""

    def __init__(self) -> None:
        self.node_id = 1
        self.term = 5
        self.leader_id: int | None = 1
        self.accepts_proposals = True
        self.deposed = False
        self.payload_bytes_max = 1000
        self.proposed: list[tuple[EntryKind, bytes]] = []
        self.sent: list[ForwardingMessage] = []
        self.durable: list[int] = []

    def peer_ids(self) -> list[int]:
        return [2, 3]

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        if self.deposed:
            raise NotLeaderError(None)
        if len(payload) > self.payload_bytes_max:
            raise ProposalRefusedError(f"the payload has {len(payload)} bytes", "give all the same limits")
        self.proposed.append((kind, payload))
        return len(self.proposed)

    def send(self, message: ForwardingMessage) -> None:
        self.sent.append(message)

    def draw_incarnation_above(self, known: int) -> int:
        return known + 100

    def make_incarnation_durable(self, incarnation: int, then: Callable[[], None]) -> None:
        self.durable.append(incarnation)
        then()


class Bench:
    def __init__(self, origins: dict[int, tuple[int, int]] | None = None) -> None:
        self.host = Host()
        self.origins = {1: (1, 0)} if origins is None else origins
        self.unknown: list[Batch[str]] = []
        self.forwarder: Forwarder[str] = Forwarder(
            self.host, lambda: self.origins, self.unknown.extend, incarnation=1, deadline_ms=5000.0
        )

    def follow(self, leader_id: int) -> None:
        self.host.leader_id = leader_id
        self.host.accepts_proposals = False
        self.forwarder.registered(1, 1)
        self.host.sent.clear()


def test_a_registration_that_leadership_outran_is_taken_by_whoever_leads_then() -> None:
    bench = Bench(origins={})
    bench.host.deposed = True
    bench.forwarder.receive(RegisterOrigin(5, 2, 1, 7))
    assert bench.host.proposed == []
    bench.host.deposed = False
    bench.forwarder.receive(RegisterOrigin(5, 2, 1, 7))
    assert [kind for kind, _ in bench.host.proposed] == [EntryKind.REGISTER]
    bench.forwarder.receive(RegisterOrigin(5, 2, 1, 7))
    assert len(bench.host.proposed) == 1, "it is in the log already"


def test_a_batch_that_leadership_outran_is_offered_again() -> None:
    bench = Bench()
    bench.forwarder.registered(1, 1)
    bench.host.deposed = True
    bench.forwarder.submit(b"one", ("a",), 0.0)
    assert bench.host.proposed == []
    bench.host.deposed = False
    bench.forwarder.leader_ready()
    assert bench.host.proposed == [(EntryKind.BATCH, b"one")]


def test_repeats_come_less_often_while_nothing_is_applied() -> None:
    bench = Bench()
    bench.follow(2)
    bench.forwarder.submit(b"one", ("a",), 0.0)
    at = []
    for now_ms in range(0, 4900, 10):
        before = len(bench.host.sent)
        bench.forwarder.tick(float(now_ms))
        at += [now_ms] * (len(bench.host.sent) - before)
    assert at == [RESEND_AFTER_MS, 3 * RESEND_AFTER_MS, 7 * RESEND_AFTER_MS]


def test_only_the_deadline_makes_an_outcome_unknown_and_a_durable_incarnation_follows() -> None:
    bench = Bench()
    bench.follow(2)
    bench.forwarder.submit(b"one", ("a",), 0.0)
    for now_ms in (1000.0, 2000.0, 4999.0):
        bench.forwarder.tick(now_ms)
        bench.forwarder.leader_changed()
    assert bench.unknown == []
    bench.forwarder.tick(5000.0)
    assert [batch.tokens for batch in bench.unknown] == [("a",)]
    assert bench.host.durable == [2]
    assert bench.host.sent[-1] == RegisterOrigin(5, 1, 2, 2)
    assert (bench.forwarder.incarnation, bench.forwarder.next_number) == (2, 1)


def test_a_new_leader_names_where_every_origin_goes_on() -> None:
    bench = Bench(origins={1: (1, 0), 2: (4, 9)})
    bench.forwarder.leader_ready()
    assert bench.host.sent == [ForwardExpected(5, 1, 2, 4, 10), ForwardExpected(5, 1, 3, 0, 1)]


def test_a_tail_that_is_applied_after_a_given_up_hand_over_counts() -> None:
    bench = Bench(origins={1: (1, 0), 2: (1, 4)})
    for number in (5, 6, 7):
        bench.forwarder.receive(Forward(5, 2, 1, 1, number, b"x"))
    bench.forwarder.leader_ready()
    bench.forwarder.receive(Forward(5, 2, 1, 1, 5, b"x"))
    bench.origins[2] = (1, 7)
    before = len(bench.host.proposed)
    bench.forwarder.receive(Forward(5, 2, 1, 1, 8, b"x"))
    assert len(bench.host.proposed) == before + 1
    bench.forwarder.receive(Forward(5, 2, 1, 1, 7, b"x"))
    assert len(bench.host.proposed) == before + 1, "it is applied already"


def test_a_gap_is_answered_once() -> None:
    bench = Bench(origins={2: (4, 9)})
    for number in (12, 13, 14):
        bench.forwarder.receive(Forward(5, 2, 1, 4, number, b"late"))
    assert bench.host.sent == [ForwardExpected(5, 1, 2, 4, 10)]
    assert bench.host.proposed == []


def test_a_disk_that_joins_is_told_of_the_incarnations_that_the_old_one_used() -> None:
    leader, bench = Bench(origins={2: (7, 50)}), Bench(origins={})
    leader.forwarder.leader_ready()
    leader.host.sent.clear()
    leader.host.proposed.clear()
    bench.host.node_id = 2
    bench.follow(1)
    bench.forwarder._outbox.registered = False
    bench.forwarder.submit(b"x", ("client",), 0.0)
    leader.forwarder.receive(RegisterOrigin(5, 2, 1, 1))
    assert leader.host.proposed == [], "a lower incarnation is never registered"
    (told,) = leader.host.sent
    assert told == ForwardExpected(5, 1, 2, 7, 51)
    bench.forwarder.receive(told)
    assert bench.forwarder.incarnation == 107
    assert bench.host.durable == [107]
    assert [batch.tokens for batch in bench.unknown] == [("client",)]
    assert bench.host.sent == [RegisterOrigin(5, 2, 1, 107)]
    leader.forwarder.receive(RegisterOrigin(5, 2, 1, 107))
    assert len(leader.host.proposed) == 1


def test_a_leader_on_a_new_disk_raises_its_own_incarnation() -> None:
    bench = Bench(origins={1: (7, 50)})
    bench.forwarder.leader_ready()
    assert bench.forwarder.incarnation == 107
    assert [kind for kind, _ in bench.host.proposed] == [EntryKind.REGISTER]


def test_a_batch_too_large_for_this_leader_waits_for_its_deadline() -> None:
    """The limits differ from node to node: nothing may be raised through the leader's loop."""
    bench = Bench()
    bench.forwarder.registered(1, 1)
    bench.forwarder.submit(b"one", ("a",), 0.0)
    bench.forwarder.submit(bytes(1001), ("b",), 0.0)
    assert bench.host.proposed == [(EntryKind.BATCH, b"one")]
    assert bench.unknown == []
    bench.forwarder.tick(10_000.0)
    assert [batch.tokens for batch in bench.unknown] == [("a",), ("b",)]
    assert bench.host.durable == [2]
    assert bench.host.proposed[-1][0] is EntryKind.REGISTER
    bench.origins[1] = (2, 0)
    bench.forwarder.registered(1, 2)
    bench.forwarder.submit(b"two", ("c",), 0.0)
    assert bench.host.proposed[-1] == (EntryKind.BATCH, b"two")


def test_a_refused_batch_is_asked_for_once_and_stays_the_next() -> None:
    leader = Bench(origins={2: (7, 3)})
    for _ in range(3):
        leader.forwarder.receive(Forward(5, 2, 1, 7, 4, bytes(1001)))
        leader.forwarder.receive(Forward(5, 2, 1, 7, 5, b"behind"))
    assert leader.host.sent == [ForwardExpected(5, 1, 2, 7, 4)]
    leader.forwarder.receive(Forward(5, 2, 1, 7, 4, b"small"))
    assert leader.host.proposed == [(EntryKind.BATCH, b"small")]
