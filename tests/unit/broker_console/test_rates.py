"""Rates of topics, from what brokers said at two looks."""

from __future__ import annotations

from broker.console.rates import GAP_MAX_S, LogsMoved, Rate, RateMeter, shown, total
from quorum.metadata.paths import PartitionKey

ORDERS, BILLS = PartitionKey("orders", 0), PartitionKey("bills", 0)


def look(orders: int, bills: int = 0, size: int = 0, committed: int = 0) -> LogsMoved:
    return LogsMoved({ORDERS: orders, BILLS: bills}, {ORDERS: size}, {"readers": {ORDERS: committed}})


def test_a_rate_is_what_moved_between_two_looks() -> None:
    meter = RateMeter()
    assert meter.take(0.0, look(10)) is None
    assert meter.take(2.0, look(30, size=400, committed=6)) == {"orders": Rate(10.0, 200.0, 3.0)}
    assert meter.take(4.0, look(30, bills=8, size=400, committed=6)) == {
        "orders": Rate(5.0, 100.0, 1.5),
        "bills": Rate(2.0, 0.0, 0.0),
    }


def test_what_goes_back_or_was_away_moved_nothing() -> None:
    meter = RateMeter()
    meter.take(0.0, look(10, size=900, committed=9))
    assert meter.take(1.0, look(4, size=100, committed=0)) == {}
    away = LogsMoved({}, {}, {})
    assert meter.take(2.0, away) == {}
    assert meter.take(3.0, look(50)) == {}


def test_after_a_long_pause_a_rate_is_unknown() -> None:
    meter = RateMeter()
    meter.take(0.0, look(0))
    assert meter.take(GAP_MAX_S + 1, look(10)) is None
    assert meter.take(GAP_MAX_S + 2, look(12)) == {"orders": Rate(2.0, 0.0, 0.0)}


def test_rates_add_up_and_are_shown_in_three_digits() -> None:
    assert total({}) == Rate()
    assert total({"a": Rate(1.0, 2.0, 3.0), "b": Rate(4.0, 5.0, 6.0)}) == Rate(5.0, 7.0, 9.0)
    assert [shown(each) for each in (0.0, 1234.5, 0.012345)] == [0.0, 1230.0, 0.0123]
