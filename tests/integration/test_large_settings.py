"""What is too large or too much for the quorum is refused with a clear message, and no broker ends by it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic as KafkaTopic

from broker.client import BrokerClient, BrokerRequestError
from broker.local import EmbeddedBrokers, brokers
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_setting_rows import FOLLOWER_THROTTLED_REPLICAS
from quorum.metadata.topic_settings import SETTING_BYTES_MAX
from tests.support.broker_records import quiet
from tests.support.nodes import clean_environment

WAIT_S = 20.0
PARTITIONS_MAX = 20
REFUSED = f"at most {SETTING_BYTES_MAX} bytes"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedBrokers]:
    async with brokers(3, settings={"limits": {"partitions_max": PARTITIONS_MAX}}) as running:
        yield running


def is_ready(url: str) -> bool:
    with urllib.request.urlopen(f"{url}/readyz", timeout=WAIT_S) as answer:
        return bool(answer.status == 200)


def alter_by_command(bootstrap: str, value: str) -> subprocess.CompletedProcess[str]:
    given = ["--bootstrap", bootstrap, "next", "--set", f"{FOLLOWER_THROTTLED_REPLICAS}={value}"]
    command = [sys.executable, "-m", "quorum", "topics", "alter", *given]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=clean_environment())


async def test_three_brokers_survive_topics_with_a_setting_of_a_megabyte(cluster: EmbeddedBrokers) -> None:
    large = ",".join(["0:1"] * 275_000)
    async with BrokerClient(cluster.bootstrap) as client:
        for number in range(4):
            wanted = NewTopic(f"large-{number}", 1, 3, settings={FOLLOWER_THROTTLED_REPLICAS: large})
            [result] = (await client.create_topics([wanted])).values()
            assert result.error_code == ErrorCode.INVALID_CONFIG
            assert REFUSED in str(result.message)
        [created] = (await client.create_topics([NewTopic("next", 1, 3)])).values()
        assert created.error_code == ErrorCode.NONE
        with pytest.raises(BrokerRequestError, match=REFUSED):
            await client.alter_topic_configs("next", {FOLLOWER_THROTTLED_REPLICAS: large}, [])
        for url in cluster.admin_urls:
            assert await asyncio.to_thread(is_ready, url)
        done = await asyncio.to_thread(alter_by_command, cluster.bootstrap, large[: SETTING_BYTES_MAX + 4])
        assert done.returncode == 1
        assert REFUSED in done.stderr
        assert len(done.stderr) < 1_000


async def test_no_client_makes_more_partitions_than_a_cluster_may_have(cluster: EmbeddedBrokers) -> None:
    async with BrokerClient(cluster.bootstrap) as client:
        asked = await client.create_topics([NewTopic("a", 10, 1), NewTopic("b", 9, 1), NewTopic("c", 2, 1)])
        assert [each.error_code for each in asked.values()] == [0, 0, ErrorCode.POLICY_VIOLATION]
        assert "2 partitions beside the 19 of all topics, at most 20 are allowed" in str(asked["c"].message)
        more = await client.create_partitions([NewPartitions("a", 11), NewPartitions("b", 10)])
        assert [each.error_code for each in more.values()] == [0, ErrorCode.POLICY_VIOLATION]
        assert "raise limits.partitions_max" in str(more["b"].message)
    # Clients of others see it as Kafka's own bound.
    admin = AdminClient(quiet(cluster.bootstrap))
    with pytest.raises(KafkaException, match=r"POLICY_VIOLATION.*at most 20 are allowed"):
        await asyncio.to_thread(admin.create_topics([KafkaTopic("d", 1, 1)])["d"].result, WAIT_S)
    # What goes makes room.
    await asyncio.to_thread(admin.delete_topics(["b"])["b"].result, WAIT_S)
    await asyncio.to_thread(admin.create_topics([KafkaTopic("d", 9, 1)])["d"].result, WAIT_S)
