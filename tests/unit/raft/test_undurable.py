"""The age of the oldest group that a journal owes."""

from __future__ import annotations

from quorum.raft.engine.undurable import Undurable


def test_the_oldest_persist_that_is_not_durable_has_the_age() -> None:
    waiting = Undurable()
    assert (waiting.idle, waiting.age_ms(50.0)) == (True, 0.0)
    waiting.handed_over(1, 100.0)
    waiting.handed_over(2, 150.0)
    waiting.handed_over(3, 160.0)
    assert (waiting.idle, waiting.age_ms(200.0)) == (False, 100.0)
    waiting.became_durable(2)
    assert waiting.age_ms(200.0) == 40.0
    waiting.became_durable(2)
    assert waiting.age_ms(200.0) == 40.0, "a repetition says nothing new"
    waiting.became_durable(3)
    assert waiting.idle
