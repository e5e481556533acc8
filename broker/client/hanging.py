"""Hanging transactions: open in the log of a partition, but not at the coordinator, so nothing ends them.

Whoever has the brokers' secret may write their markers, through the broker listener, as a coordinator does.
Source: KIP-664.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.client.errors import BrokerRequestError
from broker.client.links import Link, parse_address
from broker.client.partition_admin import PartitionResult
from broker.client.partitions import FoundProducers
from broker.client.transactions import OPEN_STATES, describe_transactions, list_transactions
from broker.wire.codec import decode_response, encode_request
from controller.core.brokers import BROKER_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import (
    BrokerConnection,
    BrokerConnectionLostError,
    BrokerUnreachableError,
)
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import partitions_by_topic
from quorum.platform.tls import MakeContext

if TYPE_CHECKING:
    from broker.client.client import BrokerClient

_MARKERS_VERSION: Final = 1
_TIMEOUT_MS: Final = 30_000


class OpenInLog(NamedTuple):
    """A transaction that the log of a partition has open."""

    key: PartitionKey
    producer_id: int
    producer_epoch: int
    first_offset: int
    #: Of its last batch, in milliseconds since 1970.
    last_ms: int
    #: Of the last marker of its producer; -1: there is none.
    coordinator_epoch: int


async def hanging(
    client: BrokerClient, producer_id: int | None = None
) -> tuple[list[OpenInLog], dict[PartitionKey, int]]:
    """Return the hanging transactions, and {partition: error code} where there was no look.

    Args:
        client: of the cluster.
        producer_id: whose; None: all producers'.
    """
    topics = (await client.metadata()).topics
    keys = [PartitionKey(name, index) for name, topic in topics.items() for index in topic.partitions]
    opened, unknown = await _opened(client, keys)
    if producer_id is not None:
        opened = [each for each in opened if each.producer_id == producer_id]
    producers = {each.producer_id for each in opened}
    known: set[tuple[int, PartitionKey]] = set()
    listed = await list_transactions(client, OPEN_STATES)
    names = [each.transactional_id for each in listed if each.producer_id in producers]
    for found in (await describe_transactions(client, names)).values():
        if isinstance(found, BrokerRequestError):
            raise found
        known.update((found.producer_id, key) for key in found.partitions)
    suspects = [each for each in opened if (each.producer_id, each.key) not in known]
    # The others have ended, or gone on, since the first look.
    still, _ = await _opened(client, {each.key for each in suspects})
    return [each for each in suspects if each in still], unknown


async def _opened(
    client: BrokerClient, keys: Collection[PartitionKey]
) -> tuple[list[OpenInLog], dict[PartitionKey, int]]:
    async def send(link: Link, part: Mapping[PartitionKey, None]) -> dict[PartitionKey, FoundProducers]:
        rows = [
            {"name": topic, "partition_indexes": indexes}
            for topic, indexes in partitions_by_topic(part).items()
        ]
        response = await link.request(ApiKey.DESCRIBE_PRODUCERS, {"topics": rows}, timeout_ms=_TIMEOUT_MS)
        return {
            PartitionKey(topic.name, each.partition_index): FoundProducers(
                each.error_code, each.active_producers
            )
            for topic in response.topics
            for each in topic.partitions
        }

    found = await client.by_leader(dict.fromkeys(keys), send, FoundProducers, reads=True)
    opened = [
        OpenInLog(
            *(key, row.producer_id, row.producer_epoch, row.current_txn_start_offset),
            *(row.last_timestamp, row.coordinator_epoch),
        )
        for key, each in found.items()
        for row in each.producers
        if row.current_txn_start_offset >= 0
    ]
    return opened, {key: each.error_code for key, each in found.items() if each.error_code}


async def abort_in_logs(
    client: BrokerClient, found: Iterable[OpenInLog], secrets: Sequence[str], tls: MakeContext | None = None
) -> dict[PartitionKey, PartitionResult]:
    """Write a marker of abort for each of these; returns what became of it.

    Args:
        client: of the cluster.
        found: from hanging().
        secrets: the brokers'; the first one is proved.
        tls: makes the context of a connection with a broker listener that speaks TLS.
    """
    results: dict[PartitionKey, PartitionResult] = {}
    for each in found:
        try:
            results[each.key] = await _abort(client, each, secrets, tls)
        except (BrokerUnreachableError, BrokerConnectionLostError) as error:
            results[each.key] = PartitionResult(ErrorCode.NETWORK_EXCEPTION, error.message)
    return results


async def _abort(
    client: BrokerClient, found: OpenInLog, secrets: Sequence[str], tls: MakeContext | None
) -> PartitionResult:
    cluster = await client.metadata((found.key.topic,))
    leader = cluster.leader_of(found.key)
    if leader is None:
        return PartitionResult(cluster.error_of(found.key), None)
    configs = await client.describe_broker_configs(leader)
    addresses = dict(each.split("://", 1) for each in (configs["advertised.listeners"] or "").split(","))
    is_tls = f"{BROKER_LISTENER}:SASL_SSL" in (configs["listener.security.protocol.map"] or "").split(",")
    host, port = parse_address(addresses[BROKER_LISTENER])
    marker = {
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "transaction_result": False,
        "topics": [{"name": found.key.topic, "partition_indexes": (found.key.partition,)}],
        "coordinator_epoch": max(found.coordinator_epoch, 0),
    }
    connection = await BrokerConnection.open(
        *(host, port),
        secrets=secrets,
        cluster_id=cluster.cluster_id or "",
        client_id="quorate transactions",
        timeout_ms=_TIMEOUT_MS,
        tls=tls if is_tls else None,
    )
    try:
        body = encode_request(ApiKey.WRITE_TXN_MARKERS, _MARKERS_VERSION, {"markers": (marker,)})
        answer = await connection.request(
            ApiKey.WRITE_TXN_MARKERS, _MARKERS_VERSION, body, flexible=True, timeout_ms=_TIMEOUT_MS
        )
    finally:
        connection.close()
    response: Any = decode_response(ApiKey.WRITE_TXN_MARKERS, _MARKERS_VERSION, answer)
    return PartitionResult(response.markers[0].topics[0].partitions[0].error_code, None)
