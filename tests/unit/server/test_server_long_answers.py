"""Answers that take long: one connection after the other, others between them, each in its order."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorum.server.stream import Turn
from quorum.wire.lookups import encode_looked_at, encode_multi_read
from quorum.wire.protocol import OpCode
from quorum.wire.requests import PING_FRAME, encode_command
from tests.unit.server.frames import EXISTS, GET_CHILDREN, GET_CHILDREN2, create, read, runs_of, xids
from tests.unit.server.memory import MemoryNode

CHILDREN = 16_000
COUNT = int(OpCode.GET_ALL_CHILDREN_NUMBER)
EPHEMERALS = int(OpCode.GET_EPHEMERALS)


@pytest.fixture(scope="module")
def node() -> MemoryNode:
    """A node with a large znode, whose children one session has made."""
    node = MemoryNode(frame_bytes_max=8 << 20)
    owner = node.greeted()
    owner.send(create(1, "/few"), create(2, "/many"))
    for start in range(0, CHILDREN, 8000):
        children = [[1, f"/many/{number}", b"", None, 1] for number in range(start, start + 8000)]
        owner.send(encode_command(3, [14, children]))
    owner.received()
    return node


def test_one_connection_after_the_other_has_a_long_answer(node: MemoryNode) -> None:
    eager, modest = node.greeted(), node.greeted()
    eager.send(*(read(number, GET_CHILDREN, "/many") for number in range(1, 4)), turn=False)
    modest.send(read(1, GET_CHILDREN2, "/many"), turn=False)
    answered: list[str] = []
    while node.step():
        answered += ["eager"] * len(eager.replies()) + ["modest"] * len(modest.replies())
    assert answered == ["eager", "modest", "eager", "eager"]


@pytest.mark.parametrize(
    "long",
    [
        read(1, GET_CHILDREN, "/many"),
        encode_looked_at(1, COUNT, "/many"),
        encode_multi_read(1, [(GET_CHILDREN, "/few"), (GET_CHILDREN, "/many")]),
    ],
)
def test_others_are_answered_before_a_long_answer(node: MemoryNode, long: bytes) -> None:
    client, other = node.greeted(), node.greeted()
    client.send(long, turn=False)
    other.send(read(1, GET_CHILDREN, "/few"), encode_looked_at(2, COUNT, "/"), PING_FRAME, turn=False)
    assert len(other.replies()) == 3
    assert client.replies() == []
    node.turn()
    assert xids(client.replies()) == [1]


def test_the_ephemerals_of_one_who_has_many_wait() -> None:
    node = MemoryNode(frame_bytes_max=8 << 20)
    client = node.greeted()
    client.send(encode_looked_at(1, EPHEMERALS, "/"), turn=False)
    assert xids(client.replies()) == [1]
    for start in range(0, CHILDREN, 8000):
        made = [[1, f"/{number}", b"", None, 1] for number in range(start, start + 8000)]
        client.send(encode_command(2, [14, made]))
    client.received()
    client.send(encode_looked_at(3, EPHEMERALS, "/"), turn=False)
    assert client.replies() == []
    node.turn()
    assert xids(client.replies()) == [3]


def test_the_replies_of_a_connection_keep_their_order(node: MemoryNode) -> None:
    before = len(runs_of(node))
    client = node.greeted()
    client.send(
        read(1, EXISTS, "/few"),
        read(2, GET_CHILDREN, "/many"),
        read(3, EXISTS, "/few"),
        create(4, "/few/0"),
        read(5, GET_CHILDREN, "/many"),
        create(6, "/few/1"),
        turn=False,
    )
    assert len(runs_of(node)) == before, "a write behind it might be applied before it is answered"
    node.turn()
    assert xids(client.replies()) == [1, 2, 3, 4, 5, 6]
    assert not client.is_paused()
    assert client.connection.outstanding == 0


def test_others_have_the_loop_as_long_as_an_answer_took() -> None:
    clock_ms = 0.0
    soon: list[Callable[[], None]] = []
    later: list[tuple[float, Callable[[], None]]] = []
    turn = Turn(soon.append, lambda rest_ms, call: later.append((rest_ms, call)), lambda: clock_ms)

    def answer() -> None:
        nonlocal clock_ms
        clock_ms += 20.0

    owners = [MemoryNode().client().connection for _ in range(3)]
    for owner in owners[:2]:
        turn.answer_long(owner, answer)
    [first] = soon
    first()
    [(rest_ms, second)] = later
    assert (clock_ms, rest_ms) == (20.0, 20.0)
    clock_ms += rest_ms
    second()
    clock_ms += 5.0
    turn.answer_long(owners[2], answer)
    assert [rest_ms for rest_ms, _ in later] == [20.0, 15.0], "nobody waits, and yet the others are not done"


def test_who_does_not_read_keeps_nobody_waiting(node: MemoryNode) -> None:
    lazy, other = node.greeted(), node.greeted()
    lazy.send(read(1, GET_CHILDREN, "/many"), read(2, GET_CHILDREN, "/many"), turn=False)
    lazy.stream.pause_writing()
    other.send(read(1, GET_CHILDREN, "/many"), turn=False)
    node.turn()
    assert lazy.replies() == []
    assert xids(other.replies()) == [1]
    lazy.stream.resume_writing()
    node.turn()
    assert xids(lazy.replies()) == [1, 2]


def test_the_session_of_one_that_waits_is_not_silent(node: MemoryNode) -> None:
    client, sessions = node.greeted(), node.replica.sessions
    client.send(read(1, GET_CHILDREN, "/many"), turn=False)
    sessions.take_report(100, 0.0, 0.0)
    node.frontend.tick(node.time_ms)
    assert sessions.take_report(100, 0.0, 0.0) == [client.connection.session_id], "its pings are not read"
    node.turn()


def test_one_that_is_gone_gets_no_turn(node: MemoryNode) -> None:
    gone, other = node.greeted(), node.greeted()
    for client in (gone, other):
        client.send(read(1, GET_CHILDREN, "/many"), turn=False)
    gone.stream.connection_lost(None)
    node.turn()
    assert gone.replies() == []
    assert xids(other.replies()) == [1]
