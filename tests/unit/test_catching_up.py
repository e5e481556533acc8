"""When a node counts as having caught up: by what its leader had committed, and by nobody's question."""

from __future__ import annotations

from quorum.node.catching_up import LAG_MAX, CatchingUp


def test_nobody_has_caught_up_without_a_leader() -> None:
    state = CatchingUp()
    assert not state.look(None, 0)
    assert not state.look(None, 10)
    assert state.look(0, 0)


def test_what_was_committed_when_the_leader_came_must_be_applied_though_it_is_little() -> None:
    state = CatchingUp()
    assert not state.look(5, 0)
    assert not state.look(7, 4)
    assert state.look(9, 5), "more is committed meanwhile: that is a busy node's lag"
    assert state.look(9 + LAG_MAX, 9)


def test_a_long_lag_is_to_be_caught_up_again() -> None:
    state = CatchingUp()
    assert state.look(5, 5)
    assert not state.look(6 + LAG_MAX, 5)
    assert not state.look(6 + LAG_MAX, 5 + LAG_MAX)
    assert state.look(6 + LAG_MAX, 6 + LAG_MAX)


def test_a_snapshot_or_the_loss_of_the_leader_begins_anew() -> None:
    state = CatchingUp()
    assert state.look(5, 5)
    assert not state.look(None, 5)
    assert not state.look(8, 5)
    assert state.look(9, 8)


def test_how_often_it_is_looked_at_does_not_matter() -> None:
    often, seldom = CatchingUp(), CatchingUp()
    for known, applied in ((100, 0), (100, 50), (120, 100), (130, 120)):
        often.look(known, applied)
    seldom.look(100, 0)
    assert seldom.look(130, 120) == often.done
