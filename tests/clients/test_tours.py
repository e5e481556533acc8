"""Unchanged clients make the tours of their READMEs: those that need a tool chain or time (`make clients`).

Those that `make test` runs are in tests/conformance/test_client_tours.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.tours import KAFKA, QUORUM, SLOW, ZOOKEEPER, check
from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.nodes import QuorateNodes


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    with running_brokers(settings={"groups": {"group_initial_rebalance_delay_ms": 0}}) as running:
        yield running


@pytest.fixture(scope="module")
def quorum() -> Iterator[QuorateNodes]:
    with QuorateNodes(nodes=3) as running:
        yield running


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", list(SLOW))
def test_a_kafka_client_makes_its_tour(cluster: BrokerCluster, tmp_path: Path, name: str) -> None:
    check(SLOW[name], KAFKA, cluster.bootstrap, f"tour-{name}", tmp_path)


@pytest.mark.parametrize("name", list(QUORUM))
def test_a_zookeeper_client_makes_its_tour(quorum: QuorateNodes, tmp_path: Path, name: str) -> None:
    check(QUORUM[name], ZOOKEEPER, quorum.hosts, f"/tour-{name}", tmp_path)
