"""Unchanged Kafka clients make the tours of their READMEs: those that need no tool chain of their own.

The others run by `make clients` (tests/clients/test_tours.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tours import KAFKA, QUICK, check
from tests.support.broker_cluster import BrokerCluster, running_brokers


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers(settings={"groups": {"group_initial_rebalance_delay_ms": 0}}) as running:
        yield running


@pytest.mark.parametrize("name", ["aiokafka", pytest.param("java-1.0", marks=pytest.mark.long)])
def test_a_kafka_client_makes_its_tour(cluster: BrokerCluster, tmp_path: Path, name: str) -> None:
    check(QUICK[name], KAFKA, cluster.bootstrap, f"tour-{name}", tmp_path)


def test_the_newest_java_client_makes_its_tour_and_asks_nothing_that_is_not_known(
    cluster: BrokerCluster, tmp_path: Path
) -> None:
    said = check(QUICK["java-4.1"], KAFKA, cluster.bootstrap, "tour-java-4.1", tmp_path)
    signs = (" WARN ", " ERROR ", "downgrade", "UnsupportedVersionException")
    assert [line for line in said.splitlines() if any(sign in line for sign in signs)] == []
    assert "Kafka admin client initialized" in said, "its log would show them"
