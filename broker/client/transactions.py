"""Requests about transactional ids, and what is answered.

Source: Kafka's ListTransactions, DescribeTransactions and InitProducerId requests; KIP-360, KIP-664.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from broker.client.errors import BrokerRequestError
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import TransactionState

if TYPE_CHECKING:
    from broker.client.client import BrokerClient

#: The first InitProducerId that says whom it continues.
_EXPECTED_VERSION: Final = 3
#: The first ListTransactions that asks how long one is open.
_DURATION_VERSION: Final = 1
#: A coordinator has still to write the markers of these.
OPEN_STATES: Final = (
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
)
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
    #: Milliseconds since 1970; None: none is open.
    started_ms: int | None
    partitions: tuple[PartitionKey, ...]


async def list_transactions(
    client: BrokerClient, states: Collection[str] = (), longer_than_ms: int = -1
) -> list[TransactionListing]:
    """Return the transactional ids.

    Args:
        client: of the cluster.
        states: of which; (): of all.
        longer_than_ms: leaves out what began later; -1: nothing is left out.
    """

    def read(response: Any) -> list[TransactionListing]:
        if response.error_code:
            raise BrokerRequestError("transactions", response.error_code)
        rows = response.transaction_states
        return [TransactionListing(e.transactional_id, e.producer_id, e.transaction_state) for e in rows]

    values = {
        "state_filters": tuple(states),
        "producer_id_filters": (),
        "duration_filter": longer_than_ms,
    }
    at_least = 0 if longer_than_ms < 0 else _DURATION_VERSION
    return await client.coordinate("", ApiKey.LIST_TRANSACTIONS, values, read, at_least=at_least)


async def describe_transactions(
    client: BrokerClient, transactional_ids: Collection[str]
) -> dict[str, TransactionDescription | BrokerRequestError]:
    """Return each transactional id as it is, or why it is not shown."""

    def read(response: Any) -> dict[str, TransactionDescription | BrokerRequestError]:
        return {each.transactional_id: _read_description(each) for each in response.transaction_states}

    values = {"transactional_ids": tuple(transactional_ids)}
    return await client.coordinate("", ApiKey.DESCRIBE_TRANSACTIONS, values, read)


def _read_description(row: Any) -> TransactionDescription | BrokerRequestError:
    if row.error_code:
        error = BrokerRequestError(f"transactional id {row.transactional_id}", row.error_code)
        if error.retriable:
            # No coordinator answered: this concerns every id.
            raise error
        return error
    started = row.transaction_start_time if row.transaction_state in OPEN_STATES else None
    return TransactionDescription(
        *(row.transactional_id, row.transaction_state, row.producer_id, row.producer_epoch),
        row.transaction_timeout // _MILLISECOND,
        None if started is None else int(started.timestamp() * 1000),
        tuple(PartitionKey(each.topic, index) for each in row.topics for index in each.partitions),
    )


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
