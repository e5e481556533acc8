"""Touches and deadlines."""

from __future__ import annotations

import pytest

from quorum.core.session_tracker import REPEAT_AFTER_MS, SessionTracker


def leader(*timeouts_ms: tuple[int, int], now_ms: float = 0.0) -> SessionTracker:
    tracker = SessionTracker()
    tracker.become_leader(timeouts_ms, now_ms)
    return tracker


def test_a_report_names_each_session_once_in_the_order_of_the_first_touch() -> None:
    tracker = SessionTracker()
    for session_id in (7, 5, 7, 9, 5):
        tracker.touch(session_id)
    assert tracker.take_report(10, 0.0, 0.0) == [7, 5, 9]
    assert tracker.take_report(10, 0.0, 0.0) == []


def test_a_report_is_bounded_and_the_others_come_next() -> None:
    tracker = SessionTracker()
    for session_id in range(5):
        tracker.touch(session_id)
    assert tracker.take_report(2, 0.0, 0.0) == [0, 1]
    tracker.touch(0)
    assert tracker.take_report(3, 0.0, 0.0) == [2, 3, 4]
    assert tracker.take_report(3, 0.0, 0.0) == [0]


def test_a_session_is_due_at_its_deadline_and_not_before() -> None:
    tracker = leader((1, 1000), (2, 500))
    assert tracker.due(499.0, 10) == []
    assert tracker.due(500.0, 10) == [2]
    tracker.closed(2)
    assert tracker.due(999.0, 10) == []
    assert tracker.due(1000.0, 10) == [1]


def test_a_new_leader_grants_everyone_a_full_timeout() -> None:
    tracker = leader((1, 1000))
    tracker.touch(1)
    tracker.become_leader([(1, 1000), (2, 400)], 5000.0)
    assert tracker.due(5399.0, 10) == []
    assert tracker.due(5400.0, 10) == [2]
    tracker.closed(2)
    assert tracker.due(5999.0, 10) == []
    assert tracker.due(6000.0, 10) == [1]


def test_a_touch_of_an_own_client_counts_from_the_next_look() -> None:
    tracker = leader((1, 1000))
    tracker.touch(1)
    assert tracker.due(900.0, 10) == []
    assert tracker.due(1899.0, 10) == []
    assert tracker.due(1900.0, 10) == [1]


def test_a_touch_that_was_reported_moves_the_deadline_as_often_as_it_comes() -> None:
    tracker = leader((1, 1000))
    for now_ms in range(0, 20_000, 900):
        tracker.touched(1, float(now_ms))
        assert tracker.due(now_ms + 899.0, 10) == []
    assert tracker.due(19_800.0 + 999.0, 10) == []
    assert tracker.due(19_800.0 + 1000.0, 10) == [1]


def test_a_stall_moves_every_deadline_and_later_touches_are_not_moved_twice() -> None:
    tracker = leader((1, 1000), (2, 1000))
    tracker.add_stall(300.0)
    tracker.touched(2, 600.0)
    assert tracker.due(1299.0, 10) == []
    assert tracker.due(1300.0, 10) == [1]
    assert tracker.due(1599.0, 10) == []
    assert tracker.due(1600.0, 10) == [2]


def test_a_session_whose_expiry_took_no_effect_is_named_again_later_and_not_at_every_look() -> None:
    tracker = leader((1, 1000))
    assert tracker.due(1000.0, 10) == [1]
    assert tracker.due(1050.0, 10) == []
    assert tracker.due(1000.0 + REPEAT_AFTER_MS, 10) == [1]


def test_a_touch_after_the_session_was_named_gives_it_a_full_timeout_again() -> None:
    tracker = leader((1, 5000))
    assert tracker.due(5000.0, 10) == [1]
    tracker.touched(1, 5010.0)
    assert tracker.due(10_009.0, 10) == []
    assert tracker.due(10_010.0, 10) == [1]


def test_a_short_timeout_is_kept_to_after_the_session_was_named() -> None:
    tracker = leader((1, 400))
    assert tracker.due(400.0, 10) == [1]
    tracker.touched(1, 410.0)
    assert tracker.due(809.0, 10) == []
    assert tracker.due(810.0, 10) == [1]


def test_due_sessions_are_bounded_per_look_and_come_in_the_order_of_their_deadlines() -> None:
    tracker = leader(*((session_id, 1000 - session_id) for session_id in range(10)))
    assert tracker.due(2000.0, 4) == [9, 8, 7, 6]
    assert tracker.due(2000.0, 4) == [5, 4, 3, 2]
    assert tracker.due(2000.0, 4) == [1, 0]


def test_a_session_that_was_opened_while_leading_has_a_deadline() -> None:
    tracker = leader()
    tracker.add_stall(100.0)
    tracker.opened(8, 400, 1000.0)
    assert tracker.due(1399.0, 10) == []
    assert tracker.due(1400.0, 10) == [8]


def test_a_closed_session_is_never_due_nor_reported() -> None:
    tracker = leader((1, 1000), (2, 1000))
    tracker.touch(2)
    tracker.closed(1)
    tracker.closed(2)
    tracker.touched(1, 900.0)
    assert tracker.take_report(10, 0.0, 0.0) == []
    assert tracker.due(5000.0, 10) == []


@pytest.mark.parametrize("was_leader", [True, False])
def test_a_follower_keeps_no_deadlines(was_leader: bool) -> None:
    tracker = leader((1, 1000)) if was_leader else SessionTracker()
    tracker.step_down()
    assert not tracker.leading
    tracker.opened(2, 1000, 0.0)
    tracker.touched(1, 0.0)
    assert tracker.due(10_000.0, 10) == []
    tracker.touch(1)
    assert tracker.take_report(10, 0.0, 0.0) == [1]


def test_reports_that_the_leader_may_not_have_heard_are_made_again() -> None:
    tracker = SessionTracker()
    tracker.touch(1)
    assert tracker.take_report(10, 100.0, 0.0) == [1]
    tracker.touch(2)
    assert tracker.take_report(10, 150.0, 100.0) == [2]  # what left at 100 was not heard before 100
    tracker.touch(3)
    assert tracker.take_report(10, 200.0, 120.0) == [3]  # the first report was heard
    tracker.report_again()
    assert sorted(tracker.take_report(10, 250.0, 120.0)) == [2, 3]
    assert tracker.take_report(10, 300.0, 260.0) == []
    tracker.report_again()
    assert tracker.take_report(10, 350.0, 260.0) == []


def test_reports_that_nobody_hears_are_bounded_and_lose_no_session() -> None:
    tracker = SessionTracker()
    for number in range(1000):
        tracker.touch(number)
        tracker.take_report(10, float(number), -1.0)
    tracker.report_again()
    assert sorted(tracker.take_report(2000, 2000.0, -1.0)) == list(range(1000))
