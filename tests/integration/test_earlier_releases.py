"""Every later build reads the data that an earlier release wrote: state, history, records, groups.

Source: docs/operate/upgrade.md, "Data of earlier releases".
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.nodes import eventually
from tests.support.release_data import EPHEMERAL, FIXTURES, ROOT, history, look, started

RELEASES = sorted(path.name for path in FIXTURES.glob("release-*"))
DEADLINE_S = 60.0


@pytest.fixture(scope="module", params=RELEASES)
def release(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Run the present build on a copy; yields (the cluster, what the release itself read)."""
    folder: Path = FIXTURES / request.param
    with started(folder, tmp_path_factory.mktemp(request.param)) as cluster, cluster.shown():
        yield cluster, json.loads((folder / "seen.json").read_text())


def test_there_are_data_of_the_first_release() -> None:
    assert "release-0.1" in RELEASES


def test_all_that_a_release_wrote_is_read_as_it_read_it(
    release: tuple[BrokerCluster, dict[str, Any]],
) -> None:
    cluster, seen = release
    wanted = seen["history"]
    found = look(cluster)
    for what, value in found.items():
        assert value == seen[what], what
    for node_id in cluster.nodes.node_ids:
        assert history(cluster, node_id, len(wanted) - 1) == wanted, f"the change log of node {node_id}"
    cluster.nodes.one_digest()


def test_work_goes_on_where_the_release_ended(release: tuple[BrokerCluster, dict[str, Any]]) -> None:
    cluster, seen = release
    client = cluster.zookeeper
    eventually(lambda: client.exists(EPHEMERAL) is None, DEADLINE_S, "the session that was open has ended")
    newest = max(path for path in seen["znodes"] if path.startswith(f"{ROOT}/many/node-"))
    path = client.create(f"{ROOT}/many/node-", b"", sequence=True)
    assert int(path[-10:]) > int(newest[-10:])
    assert client.exists(path).czxid > len(seen["history"])
    ends = seen["offsets"]["transactions-0"]
    producer = Producer({**quiet(cluster.bootstrap), "transactional.id": "release"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    offsets: list[int | None] = []
    producer.produce(
        "transactions", b"more", partition=0, on_delivery=lambda _, told: offsets.append(told.offset())
    )
    producer.commit_transaction(DEADLINE_S)
    assert offsets == [ends[2]]
