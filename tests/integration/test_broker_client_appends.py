"""Appends whose producer id, epoch and sequence numbers the caller chose: repeated, resumed, fenced."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from broker.client import BrokerClient, BrokerRequestError
from broker.client.partitions import batch_headers
from broker.client.producing import (
    Appending,
    Chunk,
    ProducerFencedError,
    ProducerLife,
    appended,
)
from broker.local import EmbeddedBrokers, brokers
from controller.core.requests import NewTopic
from quorum.metadata.paths import PartitionKey

KEYS = (PartitionKey("appends", 0), PartitionKey("appends", 1))
SINCE = dict.fromkeys(KEYS, 0)
TIMESTAMP_MS = 4_102_444_800_000
#: One record without key and headers: length, attributes, timestamp, offset, key, value "x", headers.
RECORD = b"\x0e\0\0\0\1\2x\0"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedBrokers]:
    async with brokers() as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedBrokers) -> AsyncIterator[BrokerClient]:
    async with BrokerClient(cluster.bootstrap) as found:
        await found.create_topics([NewTopic("appends", 2, 1, None, {})])
        yield found


def chunks(count: int) -> list[Chunk]:
    """Chunks of one record, for both partitions in turn."""
    return [Chunk(KEYS[number % 2], 1, RECORD) for number in range(count)]


async def append(
    client: BrokerClient, life: ProducerLife, count: int, known: dict[PartitionKey, int] | None = None
) -> None:
    await Appending(
        client, life, chunks(count), since=SINCE, counts=known or {}, timestamp_ms=TIMESTAMP_MS
    ).run()


async def test_repeated_append_adds_only_what_is_missing(client: BrokerClient) -> None:
    life = ProducerLife(await client.init_producer_id(), 0)
    # More batches than the five that a broker answers as the first time.
    await append(client, life, 20)
    await append(client, life, 20)
    assert await client.offsets(KEYS) == dict.fromkeys(KEYS, 10)
    await append(client, life, 30)
    assert await client.offsets(KEYS) == dict.fromkeys(KEYS, 15)


async def test_count_of_what_is_there_leaves_others_out(client: BrokerClient) -> None:
    first, second = [ProducerLife(await client.init_producer_id(), epoch) for epoch in (0, 3)]
    assert first.producer_id != second.producer_id
    await append(client, first, 5)
    await append(client, second, 3)
    await append(client, first, 15)
    assert await appended(client, first, SINCE) == {KEYS[0]: 8, KEYS[1]: 7}
    assert await appended(client, second, SINCE) == {KEYS[0]: 2, KEYS[1]: 1}
    assert await appended(client, first._replace(producer_epoch=1), SINCE) == dict.fromkeys(KEYS, 0)
    assert await appended(client, first, dict.fromkeys(KEYS, 100)) == dict.fromkeys(KEYS, 0)


async def test_chunks_that_are_there_are_not_sent(client: BrokerClient) -> None:
    life = ProducerLife(await client.init_producer_id(), 0)
    # The broker knows nothing of this producer, and would take any of its numbers.
    await append(client, life, 20, {KEYS[0]: 4, KEYS[1]: 10})
    assert await client.offsets(KEYS) == {KEYS[0]: 6, KEYS[1]: 0}
    fetched = (await client.fetch({KEYS[0]: 0}))[KEYS[0]]
    headers = list(batch_headers(fetched.records))
    assert [header.base_sequence for header in headers] == [4, 5, 6, 7, 8, 9]
    assert {header.max_timestamp for header in headers} == {TIMESTAMP_MS}


async def test_later_epoch_fences_the_earlier(client: BrokerClient) -> None:
    life = ProducerLife(await client.init_producer_id(), 0)
    await append(client, life, 4)
    await append(client, life._replace(producer_epoch=1), 2)
    with pytest.raises(ProducerFencedError, match="has a later epoch than 0"):
        await append(client, life, 10)
    assert await client.offsets(KEYS) == dict.fromkeys(KEYS, 3)


async def test_topic_that_is_not_there_is_named(cluster: EmbeddedBrokers) -> None:
    async with BrokerClient(cluster.bootstrap, timeout_ms=500) as client:
        with pytest.raises(BrokerRequestError, match="nowhere-0: UNKNOWN_TOPIC_OR_PARTITION"):
            await client.offsets([PartitionKey("nowhere", 0)])


async def test_broker_says_which_quorum_it_uses(cluster: EmbeddedBrokers, client: BrokerClient) -> None:
    assert (await client.describe_broker_configs())["zookeeper.connect"] == cluster.hosts
