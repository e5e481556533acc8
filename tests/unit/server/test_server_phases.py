"""The table of phases is what connections do: each of its rows is made by bytes and events, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quorum.server.phases import MOVES, Move, Phase
from quorum.wire.requests import Reconfig, encode_command, encode_connect
from tests.support.zookeeper_frames import encode_reconfig
from tests.unit.server.memory import GREETING, MemoryClient, MemoryNode

WORD = b"dirs"
HANDSHAKE = encode_connect(GREETING)
CHANGE = encode_reconfig(7, Reconfig("server.4=h:4:4:participant;2181", None, None, -1))
CLOSE = encode_command(8, [-11])


def after(*chunks: bytes, session: bool = False) -> Callable[[MemoryNode], MemoryClient]:
    """Return what makes a client that has sent this, of which no outcome is known yet."""

    def make(node: MemoryNode) -> MemoryClient:
        client = node.greeted() if session else node.client()
        node.replica.holding = True
        for chunk in chunks:
            client.send(chunk, turn=False)
        return client

    return make


def given_up(node: MemoryNode) -> MemoryClient:
    client = after(session=True)(node)
    node.frontend.lost(client.connection)
    return client


def vanished(node: MemoryNode) -> MemoryClient:
    client = after(session=True)(node)
    client.vanish()
    return client


#: {phase: what makes a client in it}
IN_PHASE: dict[Phase, Callable[[MemoryNode], MemoryClient]] = {
    Phase.GREETING: after(),
    Phase.SPEAKING: after(WORD),
    Phase.BINDING: after(HANDSHAKE),
    Phase.OPEN: after(session=True),
    Phase.CHANGING: after(encode_command(1, [5, "/a", b"", -1]), CHANGE, session=True),
    Phase.LEAVING: after(CLOSE, session=True),
    Phase.FINISHED: given_up,
    Phase.CLOSED: vanished,
}


def refuse_change(node: MemoryNode, client: MemoryClient) -> None:
    """Let the write before the change have its outcome: the change is refused then, for it is not allowed."""
    assert client.connection.phase is Phase.CHANGING
    node.replica.release()


def grant(node: MemoryNode, client: MemoryClient) -> None:
    if client.connection.phase is Phase.BINDING:
        node.replica.release()
    else:
        node.replica.silence_ms = float("inf")
        node.advance(0)
        node.time_ms += 2000
        client.send(encode_connect(GREETING._replace(read_only=True)))


#: {move: what makes it happen}
ACTS: dict[Move, Callable[[MemoryNode, MemoryClient], None]] = {
    Move.WORD_ASKED: lambda _, client: client.send(WORD, turn=False),
    Move.HANDSHAKE_SUBMITTED: lambda _, client: client.send(HANDSHAKE, turn=False),
    Move.SESSION_GRANTED: grant,
    Move.CHANGE_ASKED: lambda _, client: client.send(
        encode_command(1, [5, "/a", b"", -1]), CHANGE, turn=False
    ),
    Move.CHANGE_ANSWERED: refuse_change,
    Move.LAST_READ: lambda _, client: client.send(CLOSE, turn=False),
    Move.ENDED: lambda node, client: node.frontend.lost(client.connection),
    Move.LOST: lambda _, client: client.vanish(),
}


@pytest.fixture
def node() -> MemoryNode:
    node = MemoryNode(four_letter_words=("dirs",), read_only_mode=True)
    node.slow_disk = True
    return node


@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_every_phase_is_reached(node: MemoryNode, phase: Phase) -> None:
    assert IN_PHASE[phase](node).connection.phase is phase


@pytest.mark.parametrize(("phase", "move"), MOVES, ids=lambda each: each.name)
def test_every_row_is_made(node: MemoryNode, phase: Phase, move: Move) -> None:
    client = IN_PHASE[phase](node)
    ACTS[move](node, client)
    assert client.connection.phase is MOVES[phase, move]


def reachable(phase: Phase) -> set[Phase]:
    found = {phase}
    while True:
        more = {after for (before, _), after in MOVES.items() if before in found} - found
        if not more:
            return found
        found |= more


@pytest.mark.parametrize("chunk", [WORD, HANDSHAKE, CHANGE, CLOSE])
@pytest.mark.parametrize("phase", Phase, ids=lambda phase: phase.name)
def test_no_bytes_lead_back(node: MemoryNode, phase: Phase, chunk: bytes) -> None:
    client = IN_PHASE[phase](node)
    if not client.has_ended() and phase is not Phase.CLOSED:
        client.send(chunk)
    node.replica.release()
    node.turn()
    assert client.connection.phase in reachable(phase)
