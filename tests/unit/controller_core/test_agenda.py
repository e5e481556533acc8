"""What is due, and when the next pass begins."""

from __future__ import annotations

from controller.core.agenda import REPEAT_PAUSE_MAX_MS, REPEAT_PAUSE_MS, Agenda, Duty
from controller.core.draws import Draws


def agenda(balance_interval_ms: int | None = None) -> Agenda:
    return Agenda(isr_coalesce_ms=100, balance_interval_ms=balance_interval_ms)


def test_without_marks_nothing_is_due() -> None:
    assert not agenda().is_time(10**9)
    assert agenda().wake_ms is None


def test_a_mark_is_due_once_however_often_it_was_set() -> None:
    one = agenda()
    one.mark(Duty.BROKERS)
    one.mark(Duty.BROKERS)
    assert one.is_time(0)
    one.take(Duty.BROKERS)
    assert not one.is_time(0)


def test_changes_of_states_are_due_after_the_first_has_waited() -> None:
    one = agenda()
    one.mark_later(1_000)
    one.mark_later(1_090)
    assert (one.wake_ms, one.is_time(1_099)) == (1_100, False)
    assert one.is_time(1_100)
    assert one.is_marked(Duty.CACHE)


def test_pauses_of_broken_passes_double_up_to_a_limit_and_end_with_a_good_one() -> None:
    one = agenda()
    now_ms, pauses = 0, []
    for _ in range(8):
        one.begin_pass()
        one.break_off(now_ms)
        assert one.wake_ms is not None
        pauses.append(one.wake_ms - now_ms)
        assert not one.is_time(one.wake_ms - 1)
        now_ms = one.wake_ms
        assert one.is_time(now_ms)
    assert pauses == [50, 100, 200, 400, 800, 1_600, REPEAT_PAUSE_MAX_MS, REPEAT_PAUSE_MAX_MS]
    one.begin_pass()
    one.end_pass(now_ms, is_settled=True, is_dirty=False)
    one.break_off(now_ms)
    assert one.wake_ms == now_ms + REPEAT_PAUSE_MS


def test_what_a_pass_leaves_is_due_in_the_next_which_is_repeated_after_a_pause() -> None:
    one = agenda()
    one.begin_pass()
    one.leave(Duty.BROKERS)
    one.end_pass(0, is_settled=True, is_dirty=False)
    assert not one.is_time(REPEAT_PAUSE_MS - 1)
    assert one.is_time(REPEAT_PAUSE_MS)
    assert not one.is_marked(Duty.BROKERS)
    one.begin_pass()
    assert one.is_marked(Duty.BROKERS)
    assert one.wake_ms is None


def test_the_balance_comes_again_and_again() -> None:
    one = agenda(500)
    one.begin_term(0)
    for each in (500, 1_000, 1_700):
        assert one.is_time(each)
        assert one.is_marked(Duty.BALANCE)
        one.take(Duty.BALANCE)
        assert one.wake_ms == each + 500


def test_draws_follow_from_their_seed() -> None:
    one, same, other = Draws(7), Draws(7), Draws(8)
    assert [one.bits() for _ in range(3)] == [same.bits() for _ in range(3)]
    assert one.bits() != other.bits()
    assert {one.below(3) for _ in range(100)} == {0, 1, 2}
