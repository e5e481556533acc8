"""Which brokers came, went or bounced, and whose disk is another one."""

from __future__ import annotations

import pytest

from controller.core.brokers import (
    BrokerDiff,
    broker_endpoint,
    diff_brokers,
    endpoints_of,
    find_outcasts,
    find_unjudged,
)
from controller.core.model import LiveBroker
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.records import BrokerRecord


def broker(generation: int, incarnation: str | None = None, endpoints: tuple[str, ...] = ()) -> LiveBroker:
    record = BrokerRecord(None, -1, endpoints, {}, timestamp_ms=0, incarnation=incarnation)
    return LiveBroker(BrokerGeneration(generation), record)


def test_new_dead_and_bounced_brokers_are_told_apart() -> None:
    known = {1: broker(10), 2: broker(11), 3: broker(12)}
    current = {1: broker(10), 3: broker(20), 4: broker(21)}
    assert diff_brokers(known, current) == BrokerDiff(new=(4,), dead=(2,), bounced=(3,))


def test_the_same_generations_are_no_change_and_a_lower_one_is_an_old_look() -> None:
    assert not diff_brokers({1: broker(10)}, {1: broker(10)})
    assert not diff_brokers({1: broker(10)}, {1: broker(9)})


def test_another_incarnation_than_the_judged_one_makes_an_outcast() -> None:
    current = {1: broker(1, "a"), 2: broker(1, "b"), 3: broker(1, "c"), 4: broker(1)}
    judged = {1: "a", 2: "a", 4: "d"}
    assert find_outcasts(current, judged) == (2,)
    assert find_unjudged(current, judged) == {2: "b", 3: "c"}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("BROKER://127.0.0.1:9192", ("BROKER", "127.0.0.1", 9192)),
        ("BROKER://[::1]:9192", ("BROKER", "::1", 9192)),
        ("BROKER://host", None),
        ("BROKER://host:70000", None),
        ("host:9192", None),
    ],
)
def test_endpoints_are_read_and_malformed_ones_left_out(
    text: str, found: tuple[str, str, int] | None
) -> None:
    record = broker(1, endpoints=("CLIENT://h:1", text)).record
    assert endpoints_of(record)[1:] == ([] if found is None else [found])
    assert broker_endpoint(record) == found
