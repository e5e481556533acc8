"""Whether a connection's requests are taken: the moves agree with what they stand for."""

from __future__ import annotations

from itertools import product

import pytest

from broker.server.flow import MOVES, FlowInput, RequestFlow


@pytest.mark.parametrize(("flow", "happened"), list(product(RequestFlow, FlowInput)))
def test_every_move_is_one_that_can_happen(flow: RequestFlow, happened: FlowInput) -> None:
    can_happen = {
        # frames are taken until there is no room, also by a turn in which the peer stopped to read
        FlowInput.NO_ROOM: flow is not RequestFlow.FULL,
        FlowInput.ROOM: flow is RequestFlow.FULL,
        FlowInput.NOT_READ: flow not in (RequestFlow.UNREAD, RequestFlow.MUTED_UNREAD),
        FlowInput.READ: flow in (RequestFlow.UNREAD, RequestFlow.MUTED_UNREAD),
        # requests that began before go over the quota, too
        FlowInput.THROTTLED: True,
        FlowInput.RELEASED: flow in (RequestFlow.MUTED, RequestFlow.MUTED_UNREAD),
    }
    assert ((flow, happened) in MOVES) == can_happen[happened]


def test_a_peer_that_does_not_read_is_not_read_whatever_room_there_is() -> None:
    assert {MOVES[flow, FlowInput.NOT_READ] for flow in (RequestFlow.READING, RequestFlow.FULL)} == {
        RequestFlow.UNREAD
    }
    assert MOVES[RequestFlow.UNREAD, FlowInput.NO_ROOM] is RequestFlow.UNREAD


def test_a_peer_that_reads_again_is_read_once_there_is_room() -> None:
    assert MOVES[MOVES[RequestFlow.UNREAD, FlowInput.READ], FlowInput.ROOM] is RequestFlow.READING


def test_a_throttled_peer_is_read_once_it_is_released_and_reads() -> None:
    for first, second in ((FlowInput.READ, FlowInput.RELEASED), (FlowInput.RELEASED, FlowInput.READ)):
        flow = MOVES[MOVES[RequestFlow.READING, FlowInput.NOT_READ], FlowInput.THROTTLED]
        assert MOVES[flow, first] is not RequestFlow.READING
        assert MOVES[MOVES[flow, first], second] is RequestFlow.FULL
