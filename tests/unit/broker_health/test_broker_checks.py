"""Each check of brokers, topics and groups: what it finds, and what it leaves alone."""

from __future__ import annotations

from typing import Any, Final

import pytest

from broker.health.checks import CHECKS
from broker.health.seen import BrokerSeen, BrokersSeen, ControllerSeen, CoordinatorSeen, PartitionSeen
from quorum.health.findings import Finding, examine
from tests.support.commands import is_command

CONTROLLER: Final = ControllerSeen({}, 0.0, 10.0, 1000.0)
COORDINATOR: Final = CoordinatorSeen({}, 1.0, 1000.0)


def broker(broker_id: int, **more: Any) -> BrokerSeen:
    given: dict[str, Any] = {
        "connections": 1.0,
        "connections_max": 100.0,
        "shortened_logs": 0.0,
        "uncleanable": 0.0,
        "late_transactions": 0.0,
    }
    return BrokerSeen(broker_id, f"http://h:{broker_id}", **(given | more))


def orders(
    leader: int | None = 1, isr: tuple[int, ...] = (1, 2), replicas: tuple[int, ...] = (1, 2)
) -> PartitionSeen:
    return PartitionSeen("orders", 0, replicas, leader, isr)


def brokers(*seen: BrokerSeen, **more: Any) -> BrokersSeen:
    given: dict[str, Any] = {
        "controller_id": 1,
        "has_coordinator": True,
        "controller": CONTROLLER,
        "coordinator": COORDINATOR,
        "partitions": (orders(),),
        "malformed": {},
        "min_isr": {"orders": 1},
        "throttled": (),
        "lags": {"billing": 5},
        "lag_max": 5,
    }
    return BrokersSeen(seen or (broker(1), broker(2)), **(given | more))


#: (what was seen, check that finds it, subject)
FOUND: Final[list[tuple[BrokersSeen, str, str]]] = [
    (brokers(controller_id=None), "no-controller", "cluster"),
    (brokers(has_coordinator=False), "no-coordinator", "cluster"),
    (brokers(partitions=(orders(-1, (1,)),)), "partition-offline", "orders-0"),
    (brokers(partitions=(orders(None, ()),)), "partition-offline", "orders-0"),
    (brokers(partitions=(orders(1, (1,)),), min_isr={"orders": 2}), "partition-under-min-isr", "orders-0"),
    (brokers(broker(1), partitions=(orders(1, (1,)),)), "broker-down", "broker 2"),
    (brokers(controller=CONTROLLER._replace(strangers={3: "no MAC"})), "broker-stranger", "broker 3"),
    (brokers(broker(1), broker(2, silence="nothing came")), "broker-silent", "broker 2"),
    (brokers(broker(1), broker(2, refusal="HTTP 401")), "broker-hidden", "broker 2"),
    (brokers(broker(1), broker(2, problem="no session")), "broker-not-ready", "broker 2"),
    (brokers(partitions=(orders(1, (1,)),)), "partition-under-replicated", "orders-0"),
    (brokers(malformed={"bad": "is not JSON"}), "topic-malformed", "bad"),
    (brokers(throttled=(2,)), "throttle-stale", "broker 2"),
    (brokers(lag_max=4), "group-lag", "group billing"),
    (
        brokers(coordinator=COORDINATOR._replace(unwritten={"billing": "no rights"})),
        "group-unwritten",
        "group billing",
    ),
    (brokers(broker(1), broker(2, shortened_logs=1.0)), "logs-shortened", "broker 2"),
    (brokers(broker(1), broker(2, late_transactions=1.0)), "transactions-late", "broker 2"),
    (brokers(broker(1), broker(2, uncleanable=1.0)), "logs-uncleanable", "broker 2"),
    (brokers(broker(1), broker(2, connections=91.0)), "connections-full", "broker 2"),
    (brokers(coordinator=COORDINATOR._replace(groups_bytes=901.0)), "groups-full", "groups"),
    (brokers(controller=CONTROLLER._replace(partitions=901.0)), "partitions-full", "cluster"),
    (brokers(partitions=(orders(2),)), "leaders-skewed", "broker 1"),
    (brokers(partitions=(orders(1, (1,), (1,)),)), "replica-lone", "orders"),
]
SOUND: Final[list[BrokersSeen]] = [
    brokers(),
    # A throttle holds back what moves.
    brokers(throttled=(1, 2), controller=CONTROLLER._replace(moving=1.0)),
    # One broker can keep no second replica.
    brokers(broker(1), partitions=(orders(1, (1,), (1,)),)),
    # A registration of Kafka's own names no admin port.
    brokers(broker(1), BrokerSeen(2, None)),
]


def findings(seen: BrokersSeen) -> tuple[Finding, ...]:
    return examine(CHECKS, seen).findings


@pytest.mark.parametrize(("seen", "check", "subject"), FOUND, ids=[row[1] for row in FOUND])
def test_what_is_wrong_is_found_and_says_what_helps(seen: BrokersSeen, check: str, subject: str) -> None:
    found = [each for each in findings(seen) if each.check == check]
    assert [each.subject for each in found] == [subject]
    assert found[0].what and found[0].why and found[0].remedy
    assert found[0].command is None or is_command(found[0].command)


@pytest.mark.parametrize("seen", SOUND)
def test_what_is_sound_is_left_alone(seen: BrokersSeen) -> None:
    assert findings(seen) == ()


def test_every_check_has_a_case() -> None:
    assert {row[1] for row in FOUND} == {check.name for check in CHECKS}


def test_an_offline_partition_is_found_once() -> None:
    seen = brokers(broker(1), partitions=(orders(-1, (2,)),), min_isr={"orders": 2})
    assert [each.check for each in findings(seen)] == ["partition-offline", "broker-down"]


def test_the_group_that_is_furthest_behind_comes_first() -> None:
    seen = brokers(lags={"near": 6, "far": 60})
    assert [each.subject for each in findings(seen)] == ["group far", "group near"]


def test_what_is_not_known_is_skipped_with_a_reason() -> None:
    seen = brokers(
        BrokerSeen(1, None),
        controller=None,
        coordinator=None,
        partitions="too slow",
        min_isr="no listener",
        throttled="no znode",
        lags="no listener",
    )
    reasons = {each.check: each.reason for each in examine(CHECKS, seen).checks if each.outcome == "skipped"}
    assert reasons["partition-offline"] == reasons["broker-down"] == "too slow"
    assert reasons["partition-under-min-isr"] == reasons["group-lag"] == "no listener"
    assert reasons["throttle-stale"] == "no znode"
    assert reasons["broker-stranger"] == reasons["partitions-full"] == "the controller does not answer"
    assert reasons["group-unwritten"] == "the coordinator of groups does not answer"
    assert reasons["logs-shortened"] == "no broker shows metrics"


def test_whether_a_throttle_is_stale_the_controller_knows() -> None:
    checks = examine(CHECKS, brokers(throttled=(1,), controller=None)).checks
    assert [each.outcome for each in checks if each.check == "throttle-stale"] == ["skipped"]


def test_a_name_is_quoted_in_the_command_to_copy() -> None:
    (found,) = findings(brokers(lags={"a; rm -r *": 60}))
    assert found.command == "quorate groups describe 'a; rm -r *'"
