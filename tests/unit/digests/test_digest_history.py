"""The digests of the last applied entries, by log index."""

from __future__ import annotations

import pytest

from quorum.node.digests.history import DigestHistory, Digests


def digests(log_index: int) -> Digests:
    return Digests(log_index, log_index.to_bytes(16, "big"), (log_index + 7).to_bytes(16, "little"))


def test_it_begins_with_the_restored_state() -> None:
    history = DigestHistory(digests(40))
    assert history.newest() == digests(40)
    assert history.at(40) == digests(40)
    assert history.at(39) is None
    assert history.at(41) is None


def test_an_empty_state_has_digests_at_index_0() -> None:
    history = DigestHistory(Digests(0, bytes(16), bytes(16)))
    assert history.at(0) == Digests(0, bytes(16), bytes(16))
    assert history.at(-1) is None


@pytest.mark.parametrize("begin", [0, 5, 8, 1000])
def test_it_holds_exactly_the_newest_entries(begin: int) -> None:
    history = DigestHistory(digests(begin), entries_max=8)
    for log_index in range(begin + 1, begin + 30):
        history.note(*digests(log_index))
        held = range(max(begin, log_index - 7), log_index + 1)
        for asked in range(max(0, begin - 10), log_index + 10):
            assert history.at(asked) == (digests(asked) if asked in held else None)


def test_a_replaced_state_forgets_what_was_before() -> None:
    history = DigestHistory(digests(1), entries_max=8)
    for log_index in range(2, 6):
        history.note(*digests(log_index))
    history.restart(digests(7))
    assert history.newest() == digests(7)
    assert [history.at(log_index) for log_index in range(7)] == [None] * 7
