"""WriteTxnMarkers: a transaction coordinator ends transactions in partitions that this broker leads.

A client that may alter the cluster may send it, too, for a transaction that no coordinator knows.
A partition is answered once its marker is committed; after any error but those that fence the coordinator
sends the marker again, and a second one ends nothing.
Source: KIP-98; KafkaApis.handleWriteTxnMarkersRequest (3.9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Protocol

from broker.server.api.partitions import partition_error
from broker.server.requests import Answer, Call
from broker.server.services import BrokerServices
from broker.wire.codec import Values
from quorum.metadata.paths import PartitionKey

#: Kafka's request.timeout.ms: how long a marker may take.
TIMEOUT_MS: Final = 30_000


class _AskedTopic(Protocol):
    name: str
    partition_indexes: Sequence[int]


class _AskedMarker(Protocol):
    producer_id: int
    producer_epoch: int
    #: whether it is committed
    transaction_result: bool
    coordinator_epoch: int
    topics: Sequence[_AskedTopic]


async def write_txn_markers(services: BrokerServices, call: Call) -> Answer:
    """Append markers, and answer when they are committed."""
    # All are begun in their order; each waits for itself.
    return {"markers": await asyncio.gather(*(_write(services, each) for each in call.body.markers))}


async def _write(services: BrokerServices, asked: _AskedMarker) -> Values:
    named: dict[str, dict[int, None]] = {}
    for topic in asked.topics:
        named.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    outcomes = await services.replicas.producing.write_markers(
        [PartitionKey(name, number) for name, numbers in named.items() for number in numbers],
        asked.producer_id,
        asked.producer_epoch,
        is_commit=asked.transaction_result,
        coordinator_epoch=asked.coordinator_epoch,
        timeout_ms=TIMEOUT_MS,
    )
    topics = [
        {
            "name": name,
            "partitions": [
                {
                    "partition_index": number,
                    "error_code": partition_error(
                        services.view, outcomes[PartitionKey(name, number)].error_code
                    ),
                }
                for number in numbers
            ],
        }
        for name, numbers in named.items()
    ]
    return {"producer_id": asked.producer_id, "topics": topics}
