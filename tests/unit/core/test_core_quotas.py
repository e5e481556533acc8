"""Quotas: what counts in them, what their stats say, and what a hard limit refuses."""

from __future__ import annotations

import pytest

from tests.unit.core.driver import Client, Driver, data_at

QUOTA = "/zookeeper/quota"


def limit(client: Client, path: str, text: str) -> None:
    """Set a quota as zkCli does: limits first, then empty stats."""
    above = ""
    for segment in path.split("/")[1:]:
        above += f"/{segment}"
        client.one(1, QUOTA + above, None, None, 0)
    client.make(f"{QUOTA}{path}/zookeeper_limits", text.encode())
    client.make(f"{QUOTA}{path}/zookeeper_stats", b"count=0,bytes=0")


def stats(driver: Driver, path: str) -> bytes | None:
    return data_at(driver.machine, f"{QUOTA}{path}/zookeeper_stats")


@pytest.fixture
def driver() -> Driver:
    return Driver()


@pytest.fixture
def client(driver: Driver) -> Client:
    return driver.connect()


def test_what_is_there_already_counts_with_the_node_itself(driver: Driver, client: Client) -> None:
    client.make("/a", b"123")
    client.make("/a/b", b"45")
    client.make("/a/b/c", None)
    client.make("/ab", b"6789")
    limit(client, "/a", "count=5,bytes=100")
    assert stats(driver, "/a") == b"count=3,bytes=5"
    driver.machine.check_invariants()
