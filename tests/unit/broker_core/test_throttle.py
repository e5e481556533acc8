"""Throttled replicas: which ones count, and that the rate holds whatever the size of a fetch."""

from __future__ import annotations

import pytest

from broker.core.throttle import WAIT_MAX_MS, Throttle
from quorum.metadata.broker_settings import RATE_MAX
from quorum.metadata.paths import PartitionKey

LISTS = {"all": "*", "some": "0:1,1:2,11:1", "none": ""}


@pytest.fixture
def throttle() -> Throttle:
    return Throttle(1, LISTS.__getitem__)


def test_only_the_named_replicas_of_this_broker_count(throttle: Throttle) -> None:
    throttle.set_rate(1000)
    limited = [
        PartitionKey(topic, partition)
        for topic in LISTS
        for partition in (0, 1, 11)
        if throttle.limits(PartitionKey(topic, partition))
    ]
    assert limited == [("all", 0), ("all", 1), ("all", 11), ("some", 0), ("some", 11)]


def test_without_a_rate_nothing_counts(throttle: Throttle) -> None:
    assert not throttle.limits(PartitionKey("all", 0))
    throttle.set_rate(1000)
    throttle.set_rate(RATE_MAX)
    assert not throttle.limits(PartitionKey("all", 0))
    assert throttle.wait_ms(5) == 0


@pytest.mark.parametrize("size", [1, 100, 1_500, 30_000])
def test_the_rate_holds_over_time_for_any_size_of_fetch(throttle: Throttle, size: int) -> None:
    throttle.set_rate(1000)
    now_ms, passed, paid_ms = 0, 0, 120_000
    while now_ms < paid_ms:
        if wait_ms := throttle.wait_ms(now_ms):
            now_ms += wait_ms
            continue
        throttle.spend(size, now_ms)
        passed += size
    # The first second's worth is there at the beginning; the last fetch may be a debt.
    assert 119_000 <= passed <= 121_000 + size
    assert throttle.bytes_total == passed


def test_what_was_not_used_is_worth_one_second(throttle: Throttle) -> None:
    throttle.set_rate(1000)
    throttle.spend(1000, 60_000)
    assert throttle.wait_ms(60_000) == 1
    throttle.spend(600, 60_000)
    assert throttle.wait_ms(60_000) == 601
    assert throttle.wait_ms(60_601) == 0


def test_a_new_rate_takes_effect_within_the_longest_wait(throttle: Throttle) -> None:
    throttle.set_rate(10)
    throttle.spend(1_000_000, 0)
    assert throttle.wait_ms(0) == WAIT_MAX_MS
    throttle.set_rate(1_000)
    assert throttle.wait_ms(1) == 0


def test_a_rate_of_nothing_lets_nothing_pass(throttle: Throttle) -> None:
    throttle.set_rate(0)
    assert throttle.wait_ms(0) == throttle.wait_ms(10_000_000) == WAIT_MAX_MS
