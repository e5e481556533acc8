"""Forwarding: exactly once and in order, whatever is lost or repeated between origin and leader."""

import random

import pytest

from quorum.raft.requests.origins import BatchVerdict, Inbox, OriginOutbox

WINDOW_BYTES_MAX = 1000


def outbox(incarnation: int = 1) -> OriginOutbox[str]:
    made: OriginOutbox[str] = OriginOutbox(incarnation, window_bytes_max=WINDOW_BYTES_MAX)
    made.registered = True
    return made


def numbers(box: OriginOutbox[str]) -> list[int]:
    return [batch.number for batch in box.take_sendable()]


def test_nothing_leaves_before_the_incarnation_is_registered() -> None:
    box: OriginOutbox[str] = OriginOutbox(1, window_bytes_max=WINDOW_BYTES_MAX)
    box.add(b"x", ("a",), 10.0)
    assert numbers(box) == []
    box.registered = True
    assert numbers(box) == [1]


def test_batches_leave_once_and_in_order() -> None:
    box = outbox()
    assert [box.add(b"x", (), 0.0) for _ in range(3)] == [1, 2, 3]
    assert numbers(box) == [1, 2, 3]
    assert numbers(box) == []


def test_a_new_leader_gets_everything_unapplied_again() -> None:
    box = outbox()
    for _ in range(4):
        box.add(b"x", (), 0.0)
    assert numbers(box) == [1, 2, 3, 4]
    assert box.applied(1) is not None
    box.rewind()
    assert numbers(box) == [2, 3, 4]


def test_a_gap_is_filled_from_the_expected_number_only() -> None:
    box = outbox()
    for _ in range(5):
        box.add(b"x", (), 0.0)
    numbers(box)
    box.rewind(4)
    assert numbers(box) == [4, 5]


def test_a_late_answer_about_applied_batches_sends_nothing_twice() -> None:
    box = outbox()
    for _ in range(3):
        box.add(b"x", (), 0.0)
    numbers(box)
    box.applied(1)
    box.applied(2)
    box.rewind(1)
    assert numbers(box) == [3]


def test_the_window_bounds_what_a_leader_holds_but_never_stops_a_large_batch() -> None:
    box = outbox()
    box.add(bytes(5 * WINDOW_BYTES_MAX), (), 0.0)
    box.add(bytes(600), (), 0.0)
    box.add(bytes(600), (), 0.0)
    assert numbers(box) == [1]
    box.applied(1)
    assert numbers(box) == [2]
    box.applied(2)
    assert numbers(box) == [3]
    assert box.bytes == 600


def test_a_batch_that_an_earlier_leader_had_appended_is_not_sent_again() -> None:
    box = outbox()
    box.add(b"x", ("a",), 0.0)
    box.add(b"y", ("b",), 0.0)
    numbers(box)
    box.rewind()
    applied = box.applied(1)
    assert applied is not None
    assert applied.tokens == ("a",)
    assert numbers(box) == [2]


def test_abandoned_batches_are_returned_and_their_numbers_belong_to_the_old_incarnation() -> None:
    box = outbox()
    box.add(b"x", ("a",), 5.0)
    box.add(b"y", ("b",), 9.0)
    assert not box.overdue(4.9)
    assert box.overdue(5.0)
    assert [batch.tokens for batch in box.abandon(2)] == [("a",), ("b",)]
    assert (box.incarnation, box.next_number, box.registered, box.bytes) == (2, 1, False, 0)
    with pytest.raises(ValueError, match="must rise"):
        box.abandon(2)


def test_a_snapshot_covers_batches_whose_outcomes_stay_unknown() -> None:
    box = outbox()
    for name in "abc":
        box.add(b"x", (name,), 0.0)
    numbers(box)
    assert [batch.number for batch in box.applied_through(2)] == [1, 2]
    box.rewind()
    assert numbers(box) == [3]


def test_the_leader_accepts_exactly_the_next_number() -> None:
    inbox = Inbox()
    applied = {1: (7, 4)}
    assert inbox.offer(1, 7, 4, applied) is BatchVerdict.DUPLICATE
    assert inbox.offer(1, 7, 6, applied) is BatchVerdict.GAP
    assert inbox.offer(1, 7, 5, applied) is BatchVerdict.ACCEPT
    assert inbox.offer(1, 7, 5, applied) is BatchVerdict.DUPLICATE, "5 is in the unapplied tail"
    assert inbox.offer(1, 7, 6, applied) is BatchVerdict.ACCEPT
    assert inbox.offer(1, 6, 7, applied) is BatchVerdict.UNREGISTERED
    assert inbox.offer(2, 1, 1, applied) is BatchVerdict.UNREGISTERED


def test_a_batch_that_could_not_be_appended_is_taken_back() -> None:
    inbox = Inbox()
    applied = {1: (1, 0)}
    assert inbox.offer(1, 1, 1, applied) is BatchVerdict.ACCEPT
    inbox.withdraw(1)
    assert inbox.expected(1, applied) == (1, 1)


def test_a_new_registration_starts_the_numbers_again() -> None:
    inbox = Inbox()
    applied = {1: (1, 0)}
    assert inbox.offer(1, 1, 1, applied) is BatchVerdict.ACCEPT
    applied[1] = (2, 0)
    assert inbox.expected(1, applied) == (2, 1)
    assert inbox.offer(1, 2, 1, applied) is BatchVerdict.ACCEPT


def test_a_new_leader_goes_on_where_the_log_that_it_applied_ends() -> None:
    inbox = Inbox()
    applied = {1: (1, 0)}
    for number in (1, 2, 3):
        inbox.offer(1, 1, number, applied)
    applied[1] = (1, 2)  # 3 was lost with the tail of the old term
    inbox.reset()
    assert inbox.offer(1, 1, 3, applied) is BatchVerdict.ACCEPT


@pytest.mark.parametrize("seed", range(50))
def test_every_batch_reaches_the_log_once_and_in_order(seed: int) -> None:
    """Leaders change and lose their tails, messages are lost and repeated; the log still counts up by one."""
    rng = random.Random(seed)
    box, inbox = outbox(), Inbox()
    applied = {1: (1, 0)}
    tail: list[int] = []
    wire: list[int] = []
    sent = 0
    for _ in range(2000):
        action = rng.random()
        if action < 0.3 and sent < 200:
            box.add(b"x", (), 0.0)
            sent += 1
        elif action < 0.6:
            wire += [number for number in numbers(box) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        elif action < 0.8 and wire:
            number = wire.pop(0)
            verdict = inbox.offer(1, 1, number, applied)
            if verdict is BatchVerdict.ACCEPT:
                tail.append(number)
            elif verdict is BatchVerdict.GAP:
                box.rewind(inbox.expected(1, applied)[1])
        elif action < 0.95 and tail:
            number = tail.pop(0)
            assert number == applied[1][1] + 1, "the log holds every batch once, in order"
            applied[1] = (1, number)
            assert box.applied(number) is not None
        elif action >= 0.99:
            survivors = rng.randint(0, len(tail))  # the new leader's log keeps a prefix of the tail
            for number in tail[:survivors]:
                applied[1] = (1, number)
                assert box.applied(number) is not None
            tail.clear()
            inbox.reset()
            box.rewind()
            if rng.random() < 0.5:
                wire.clear()
    while len(box):
        box.rewind()
        offered = numbers(box)
        tail += [number for number in offered if inbox.offer(1, 1, number, applied) is BatchVerdict.ACCEPT]
        for number in tail:
            applied[1] = (1, number)
            assert box.applied(number) is not None
        tail.clear()
    assert applied[1] == (1, sent)
