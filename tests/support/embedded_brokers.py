"""What the tests of brokers inside this process share: a session with their quorum.

A module that imports the fixture has a fixture `cluster` of its own, with its number of brokers and settings.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kazoo.client import KazooClient

from broker.local import BlockingBrokers

DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def zookeeper(cluster: BlockingBrokers) -> Iterator[KazooClient]:
    """A session with the brokers' quorum."""
    client = KazooClient(cluster.hosts)
    client.start(DEADLINE_S)
    yield client
    client.stop()
    client.close()
