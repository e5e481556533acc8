"""Requests about transactional ids, and what is answered.

Source: Kafka's ListTransactions, DescribeTransactions and InitProducerId requests; KIP-360, KIP-664.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.client.errors import BrokerRequestError
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey

if TYPE_CHECKING:
    from broker.client.client import BrokerClient

#: The first InitProducerId that says whom it continues.
_EXPECTED_VERSION: Final = 3
_MILLISECOND: Final = timedelta(milliseconds=1)


class TransactionListing(NamedTuple):
    """A transactional id, in short."""

    transactional_id: str
    producer_id: int
    state: str


class TransactionDescription(NamedTuple):
    """A transactional id, its producer and its transaction."""

    transactional_id: str
    state: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    #: Milliseconds since 1970; None: none has begun.
    started_ms: int | None
    partitions: tuple[PartitionKey, ...]


async def list_transactions(client: BrokerClient) -> list[TransactionListing]:
    """Return the transactional ids."""

    def read(response: Any) -> list[TransactionListing]:
        if response.error_code:
            raise BrokerRequestError("transactions", response.error_code)
        rows = response.transaction_states
        return [TransactionListing(e.transactional_id, e.producer_id, e.transaction_state) for e in rows]

    values = {"state_filters": (), "producer_id_filters": ()}
    return await client.coordinate("", ApiKey.LIST_TRANSACTIONS, values, read)


async def describe_transaction(client: BrokerClient, transactional_id: str) -> TransactionDescription:
    """Return a transactional id."""

    def read(response: Any) -> TransactionDescription:
        (row,) = response.transaction_states
        if row.error_code:
            raise BrokerRequestError(f"transactional id {transactional_id}", row.error_code)
        started = row.transaction_start_time
        return TransactionDescription(
            *(row.transactional_id, row.transaction_state, row.producer_id, row.producer_epoch),
            row.transaction_timeout // _MILLISECOND,
            None if started is None else int(started.timestamp() * 1000),
            tuple(PartitionKey(each.topic, index) for each in row.topics for index in each.partitions),
        )

    values = {"transactional_ids": (transactional_id,)}
    return await client.coordinate("", ApiKey.DESCRIBE_TRANSACTIONS, values, read)


async def abort_transaction(client: BrokerClient, found: TransactionDescription) -> None:
    """Abort an open transaction and fence its producer, if that is still as it was described."""

    def read(response: Any) -> None:
        # The next producer waits until the abort is complete; nobody waits here.
        if response.error_code not in (ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS):
            raise BrokerRequestError(f"transactional id {found.transactional_id}", response.error_code)

    values = {
        "transactional_id": found.transactional_id,
        "transaction_timeout": found.timeout_ms,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }
    await client.coordinate("", ApiKey.INIT_PRODUCER_ID, values, read, at_least=_EXPECTED_VERSION)
