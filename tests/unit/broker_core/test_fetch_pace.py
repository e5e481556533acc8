"""When a follower asks again: growing pauses, and throttling only where it lags."""

from __future__ import annotations

from broker.core.fetch_pace import FetchPace
from broker.core.throttle import Throttle
from quorum.metadata.paths import PartitionKey


def test_pauses_grow_and_end_with_an_answer() -> None:
    pace, free = FetchPace(PartitionKey("orders", 0)), Throttle(1, lambda _: "")
    pauses = []
    for _ in range(4):
        pace.back_off(1000, 50, 300)
        pauses.append(pace.not_before_ms - 1000)
    assert pauses == [50, 100, 200, 300]
    assert not pace.is_due(1299, free)
    assert pace.is_due(1300, free)
    pace.answered()
    pace.back_off(2000, 50, 300)
    assert pace.not_before_ms == 2050


def test_only_a_replica_that_lags_waits_for_the_throttle() -> None:
    pace, throttle = FetchPace(PartitionKey("orders", 0)), Throttle(1, lambda _: "*")
    throttle.set_rate(1000)
    throttle.spend(1500, 0)
    assert pace.max_bytes(4096, throttle, 0) == 0
    assert pace.is_due(0, throttle)  # nobody knows yet whether it lags
    pace.copied(5, 5)
    assert pace.max_bytes(4096, throttle, 0) == 4096
    pace.copied(6, 5)
    assert not pace.is_due(0, throttle)
    assert pace.is_due(600, throttle)


def test_partition_with_an_answer_under_way_is_left_out() -> None:
    pace = FetchPace(PartitionKey("orders", 0), is_busy=True)
    assert not pace.is_due(0, Throttle(1, lambda _: ""))
