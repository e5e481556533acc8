"""What the connections of a listener may hold together, and which of them goes."""

from __future__ import annotations

import pytest

from broker.server.shedding import ANSWER_BYTES_MIN, SILENT_S_MIN, ListenerLimits, Shedder

KIB = 1024
LIMITS = ListenerLimits(
    connections_max_idle_ms=60_000, received_bytes_total_max=100 * KIB, unread_bytes_total_max=100 * KIB
)


class FakeConnection:
    """A connection whose state a test sets."""

    def __init__(self, name: str) -> None:
        self.peer = name
        self.idle = True
        self.unsent = 0
        self.dropped = False

    def is_idle(self) -> bool:
        return self.idle

    def unsent_bytes(self) -> int:
        return self.unsent

    def drop(self) -> None:
        self.dropped = True


class Port:
    """A shedder, its connections, and its clock."""

    def __init__(self, connections_max: int = 4, *, proofs: bool = False) -> None:
        self.now_s = 1000.0
        self.shedder: Shedder[FakeConnection] = Shedder(
            "client", LIMITS, connections_max, proofs=proofs, now_s=lambda: self.now_s
        )

    def open(self, count: int) -> list[FakeConnection]:
        """Let so many in, a second apart."""
        made = []
        for number in range(count):
            self.now_s += 1
            made.append(FakeConnection(f"peer {number}"))
            self.shedder.opened(made[-1])
        return made


@pytest.fixture
async def port() -> Port:
    return Port()


async def test_at_the_limit_the_one_goes_that_was_silent_the_longest(port: Port) -> None:
    first, second, third, fourth = port.open(4)
    second.idle = False
    port.shedder.touched(first)
    assert port.shedder.has_room(coming=3)
    (fifth,) = port.open(1)
    assert [each.dropped for each in (first, second, third, fourth, fifth)] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert len(port.shedder.connections) == 4
    assert port.shedder.gone.count == 1


async def test_a_peer_that_waits_goes_only_when_all_do_and_it_was_silent_for_long(port: Port) -> None:
    crowd = port.open(4)
    for each in crowd:
        each.idle = False
    assert not port.shedder.has_room(coming=0)
    port.now_s += SILENT_S_MIN
    assert port.shedder.has_room(coming=0)
    port.open(1)
    assert [each.dropped for each in crowd] == [True, False, False, False]


async def test_strangers_hold_half_and_the_proven_never_go() -> None:
    port = Port(connections_max=4, proofs=True)
    brokers = port.open(1)
    port.shedder.proved(brokers[0])
    brokers += port.open(1)
    port.shedder.proved(brokers[1])
    strangers = port.open(10)
    assert sum(not each.dropped for each in strangers) == 2
    third = strangers[-1]
    port.shedder.proved(third)
    port.shedder.proved(strangers[-2])
    assert not port.shedder.has_room(coming=0)
    port.now_s += 10_000
    port.shedder.tick()
    assert not any(each.dropped for each in (*brokers, third))
    port.shedder.closed(third)
    assert port.shedder.has_room(coming=0)


async def test_the_silent_go_after_their_time_and_slow_readers_stay(port: Port) -> None:
    silent, busy, slow, stuck = port.open(4)
    busy.idle = False
    for each in (slow, stuck):
        each.unsent = 50 * KIB
        port.shedder.unread.note(each, each.unsent)
    for _ in range(70):
        port.now_s += 1
        slow.unsent -= 100
        port.shedder.tick()
    assert [each.dropped for each in (silent, busy, slow, stuck)] == [True, False, False, True]


async def test_the_fattest_goes_when_a_budget_is_exceeded(port: Port) -> None:
    small, fat, last = port.open(3)
    port.shedder.received.note(small, 20 * KIB)
    port.shedder.received.note(fat, 50 * KIB)
    port.shedder.received.note(last, 31 * KIB)
    port.shedder.settle()
    assert [each.dropped for each in (small, fat, last)] == [False, True, False]


async def test_an_answer_begins_with_a_share_of_the_room(port: Port) -> None:
    shedder: Shedder[FakeConnection] = Shedder("client", ListenerLimits(), 10, proofs=False)
    assert shedder.answer_bytes_max() == 32 * KIB * KIB
    (holder,) = port.open(1)
    shedder.unread.note(holder, 255 * KIB * KIB)
    assert shedder.answer_bytes_max() == ANSWER_BYTES_MIN
