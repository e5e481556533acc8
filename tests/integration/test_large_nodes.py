"""A broker starts, leads and coordinates whatever the nodes that it reads together weigh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.local import EmbeddedBrokers, brokers
from quorum.client import Client
from quorum.metadata import paths
from quorum.metadata.group_records import ClassicGroupRecord, OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import TopicConfigRecord, TopicRecord
from quorum.metadata.topic_setting_rows import FOLLOWER_THROTTLED_REPLICAS
from quorum.server import lookups as answers

WAIT_S = 20.0
COUNT = 36
GROUP = "g"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedBrokers]:
    # It shares its loop with a quorum that reads and writes much.
    async with brokers(1, settings={"broker": {"session_timeout_ms": 4_000}}) as running:
        yield running


@pytest.mark.parametrize(
    "node_bytes",
    [20_000, pytest.param(1_000_000, marks=pytest.mark.long)],
    ids=["bound lowered", "real bound"],
)
async def test_a_broker_starts_on_nodes_that_no_single_answer_can_hold(
    cluster: EmbeddedBrokers, monkeypatch: pytest.MonkeyPatch, node_bytes: int
) -> None:
    await cluster.stop(1)
    if node_bytes * COUNT < answers.MULTI_READ_BYTES_MAX:
        monkeypatch.setattr(answers, "MULTI_READ_BYTES_MAX", 5 * node_bytes)
    async with Client(cluster.hosts, request_bytes_max=2_000_000) as client:
        listed = ",".join(["0:1"] * (node_bytes // 4))
        await client.create(
            paths.group_path(GROUP),
            ClassicGroupRecord(GenerationId(1), "consumer", None, None, False, 0, ()).encode(),
        )
        await client.create(paths.group_offsets_path(GROUP))
        await client.create(paths.group_topic_path(GROUP, "t-0"))
        for number in range(COUNT):
            topic, padding = f"t-{number}", b" " * node_bytes
            await client.create(paths.topic_path(topic), TopicRecord(None, {0: (1,)}).encode() + padding)
            settings = TopicConfigRecord({FOLLOWER_THROTTLED_REPLICAS: listed, "retention.ms": "5"})
            await client.create(paths.config_topic_path(topic), settings.encode())
            offset = OffsetRecord(number, -1, "m" * node_bytes, 0)
            await client.create(paths.group_offset_path(GROUP, PartitionKey("t-0", number)), offset.encode())
    await cluster.start(1)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    await asyncio.to_thread(_check, admin)


def _check(admin: AdminClient) -> None:
    admin.create_topics([NewTopic("next", 1, 1)])["next"].result(WAIT_S)
    found = admin.list_topics(timeout=WAIT_S).topics
    assert {f"t-{number}" for number in range(COUNT)} <= found.keys()
    keys = [TopicPartition("t-0", 7), TopicPartition("t-0", COUNT - 1)]
    asked = ConsumerGroupTopicPartitions(GROUP, keys)
    offsets = admin.list_consumer_group_offsets([asked])[GROUP].result(WAIT_S)
    assert [each.offset for each in offsets.topic_partitions] == [7, COUNT - 1]
