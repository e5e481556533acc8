"""Whether a connection's requests are taken: the moves agree with what they stand for."""

from __future__ import annotations

from itertools import product

import pytest

from broker.server.flow import MOVES, Flow, FlowInput


@pytest.mark.parametrize(("flow", "happened"), list(product(Flow, FlowInput)))
def test_every_move_is_one_that_can_happen(flow: Flow, happened: FlowInput) -> None:
    can_happen = {
        # frames are taken until there is no room, also by a turn in which the peer stopped to read
        FlowInput.NO_ROOM: flow is not Flow.FULL,
        FlowInput.ROOM: flow is Flow.FULL,
        FlowInput.NOT_READ: flow is not Flow.UNREAD,
        FlowInput.READ: flow is Flow.UNREAD,
    }
    assert ((flow, happened) in MOVES) == can_happen[happened]


def test_a_peer_that_does_not_read_is_not_read_whatever_room_there_is() -> None:
    assert {MOVES[flow, FlowInput.NOT_READ] for flow in (Flow.READING, Flow.FULL)} == {Flow.UNREAD}
    assert MOVES[Flow.UNREAD, FlowInput.NO_ROOM] is Flow.UNREAD


def test_a_peer_that_reads_again_is_read_once_there_is_room() -> None:
    assert MOVES[MOVES[Flow.UNREAD, FlowInput.READ], FlowInput.ROOM] is Flow.READING
