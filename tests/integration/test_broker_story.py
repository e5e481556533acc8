"""No acknowledged record is lost: one strike of each kind with sessions of one second.

The long run is `make nothing-lost`.
"""

from __future__ import annotations

import random

import pytest

from tests.support import nothing_lost_brokers
from tests.support.broker_cluster import SHORT_SESSION_MS
from tests.support.nothing_lost_brokers import PARTITIONS, STRIKES, Report, SteadyProducer, check


@pytest.mark.timeout(600)
def test_no_strike_loses_repeats_or_reorders_a_record() -> None:
    seed = random.randrange(2**32)
    report = nothing_lost_brokers.run(
        STRIKES, seed=seed, session_timeout_ms=SHORT_SESSION_MS, replica_lag_ms=2 * SHORT_SESSION_MS
    )
    told = f"seed {seed}\n{report.table()}"
    assert report.violations == [], told
    assert report.missing() == [], told


def producer(acknowledged: dict[tuple[int, int], int | None]) -> SteadyProducer:
    made = object.__new__(SteadyProducer)
    made.name = "p0"
    made.acknowledged = acknowledged
    return made


GOOD = {0: [(0, b"p0 0 ."), (1, b"p1 0 ."), (2, b"p0 1 .")]}


def test_checker_accepts_what_is_right() -> None:
    assert check([producer({(0, 0): 0, (0, 1): 2})], GOOD) == []
    assert check([producer({(0, 0): 0})], GOOD) == [], "a record without an outcome may be there"


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ([(0, b"p0 0 .")], "is lost"),
        ([(0, b"p0 0 ."), (1, b"p0 1 ."), (2, b"p0 1 .")], "twice"),
        ([(1, b"p0 1 ."), (2, b"p0 0 .")], "out of order"),
        ([(0, b"p0 0 ."), (3, b"p0 1 .")], "is at 3, not at 2"),
    ],
)
def test_checker_finds_a_planted_violation(found: list[tuple[int, bytes]], said: str) -> None:
    assert any(said in line for line in check([producer({(0, 0): 0, (0, 1): 2})], {0: found}))


def test_a_run_that_did_not_bite_does_not_count() -> None:
    assert len(Report().missing()) == 4
    assert Report(bit=1, truncations=1, isr_shrinks=1, isr_expansions=1).missing() == []
    assert PARTITIONS == 12
