"""An update under load: each process stops and starts again as the next build, and no client loses anything.

Source: docs/operate/upgrade.md.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from quorum.core.feature_levels import FEATURE_LEVEL
from tests.support.broker_cluster import BrokerCluster, BrokerProcess
from tests.support.broker_records import quiet
from tests.support.newer_build import LEVEL
from tests.support.nodes import QuorateNodes, eventually
from tests.support.paced_clients import PacedProducer, PacedSetter

pytestmark = pytest.mark.alone

TOPIC = "updated"
PARTITIONS = 3
DEADLINE_S = 30.0
#: how long a client may stand still because of one update
PAUSE_S_MAX = 1.0
NEWER = "tests.support.newer_build"


class Nodes(QuorateNodes):
    """Nodes of which some have the next build."""

    updated: frozenset[int] = frozenset()

    def command(self, node_id: int, *options: str) -> list[str]:
        command = super().command(node_id, *options)
        return [NEWER if each == "quorum" and node_id in self.updated else each for each in command]

    def update(self, node_id: int, *, back: bool = False) -> None:
        """Stop a node and start it with the next build, or with the present one again."""
        self.stop(node_id)
        self.updated = self.updated - {node_id} if back else self.updated | {node_id}
        self.start_node(node_id)
        self.wait_ready(node_id)

    def levels(self) -> set[int]:
        """The cluster's level, as each node that runs has it."""
        return {int(self.status(each)["feature_level"]) for each in self.node_ids if self.running(each)}


class Brokers(BrokerCluster):
    """Brokers of which some have the next build."""

    updated: frozenset[int] = frozenset()

    def command(self, broker: BrokerProcess) -> list[str]:
        command = super().command(broker)
        return [NEWER if each == "quorum" and broker.broker_id in self.updated else each for each in command]

    def update(self, broker_id: int) -> None:
        """Stop a broker and start it with the next build."""
        self.stop(broker_id)
        self.updated |= {broker_id}
        self.start_broker(broker_id)
        self.wait_ready(broker_id)
        self.wait_in_sync(TOPIC)


@contextlib.contextmanager
def load(cluster: Brokers) -> Iterator[tuple[list[PacedSetter], PacedProducer]]:
    """A kazoo client at each node, and a producer."""
    admin = AdminClient(quiet(cluster.bootstrap))
    wanted = NewTopic(TOPIC, PARTITIONS, 3, config={"min.insync.replicas": "2"})
    admin.create_topics([wanted])[TOPIC].result(DEADLINE_S)
    cluster.wait_in_sync(TOPIC)
    nodes = cluster.nodes
    setters = [PacedSetter(f"setter-{each}", nodes.hosts_from(each)) for each in nodes.node_ids]
    producer = PacedProducer(TOPIC, PARTITIONS, cluster.bootstrap)
    try:
        yield setters, producer
    finally:
        for setter in setters:
            setter.close()


def doctor(cluster: Brokers) -> list[str]:
    """What `quorate doctor` says of versions."""
    urls = ",".join(cluster.nodes.admin_url(each) for each in cluster.nodes.node_ids)
    done = subprocess.run(
        [sys.executable, "-P", "-m", "quorum", "doctor", "--admin", urls, "--json"],
        stdout=subprocess.PIPE,
        env=cluster.environment,
        check=False,
    )
    found = json.loads(done.stdout)["findings"]
    return [each["what"] for each in found if each["check"] == "versions-differ"]


def update_nodes(cluster: Brokers, nodes: Nodes) -> None:
    """Update the followers, one of them with a way back, and the leader last."""
    leader = nodes.leader()
    first, second = [each for each in nodes.node_ids if each != leader]
    nodes.update(first)
    # It is ready before it has said to the leader what it supports.
    held = f"cannot rise above {FEATURE_LEVEL}: node"
    eventually(lambda: any(held in each for each in doctor(cluster)), DEADLINE_S, "doctor names who holds it")
    nodes.update(first, back=True)
    nodes.update(first)
    nodes.update(second)
    assert nodes.levels() == {FEATURE_LEVEL}
    nodes.update(leader)
    eventually(lambda: nodes.levels() == {LEVEL}, DEADLINE_S, "every node has the new level")


def test_a_rolling_update_under_load_loses_nothing_and_costs_each_client_little() -> None:
    nodes = Nodes(nodes=3)
    with Brokers(brokers=3, quorum=nodes) as cluster, cluster.shown(), load(cluster) as (setters, producer):
        update_nodes(cluster, nodes)
        for broker_id in cluster.brokers:
            cluster.update(broker_id)
        back = nodes.leader() % 3 + 1
        nodes.stop(back)
        nodes.updated -= {back}
        code, said = nodes.run_to_end(back)
        assert code != 0
        assert f"cluster of feature level {LEVEL}, and this build supports up to {FEATURE_LEVEL}" in said
        assert "remedy: start the build that ran here before, or a newer one" in said
        nodes.updated |= {back}
        nodes.start_node(back)
        nodes.wait_ready(back)
        for setter in setters:
            setter.finish()
        producer.finish()
        pauses = {each.name: each.longest_s for each in setters} | {"producer": producer.longest_s}
        assert max(pauses.values()) < PAUSE_S_MAX, pauses
