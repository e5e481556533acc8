"""Asking the coordinator whether transactions have partitions, before their first records are appended.

All that waits goes in one request, one request after the other; so the partitions of one Produce request
cost one round trip.
Source: KIP-890, "Verification"; AddPartitionsToTxnManager (Kafka 3.9).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from broker.log.errors import AppendError
from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode, code_name
from controller.wire.connection import BrokerConnection, while_current
from controller.wire.decoding import MalformedMessageError
from quorum.errors import QuorateError
from quorum.metadata.paths import GROUP_BYTES_MAX, PartitionKey
from quorum.metadata.transaction_records import partitions_by_topic

log = logging.getLogger("quorate.broker.transactions")

#: The last that knows no TRANSACTION_ABORTABLE, as the versions of Produce that are served.
_VERSION: Final = 4
#: Of one request: as long as its producers wait, within these bounds. A short one must not end the others'.
_TIMEOUT_MIN_MS: Final = 1_000
_TIMEOUT_MAX_MS: Final = 10_000
#: Of one request.
_PARTITIONS_MAX: Final = 1_000
#: Every producer takes NOT_ENOUGH_REPLICAS for one that passes, without asking for metadata.
_PASSING: Final = (
    *(ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NETWORK_EXCEPTION, ErrorCode.NOT_COORDINATOR),
    *(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
)


class Claim(NamedTuple):
    """What a batch says: its producer's open transaction has this partition."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    key: PartitionKey
    #: how long the producer waits for its answer
    timeout_ms: int


_Answer = asyncio.Future[ErrorCode]


class Verifier:
    """What one broker asks."""

    def __init__(self, connect: Callable[[int], Awaitable[BrokerConnection]], *, is_on: bool) -> None:
        """Know no coordinator yet; `connect` opens a connection to a broker's broker listener."""
        self._connect = connect
        #: False: from now on every transactional batch is taken unasked.
        self.is_on = is_on
        self._coordinator_id: Callable[[], int | None] = lambda: None
        self._waiting: list[tuple[Claim, _Answer]] = []
        self._asking: asyncio.Task[None] | None = None
        self._connection: BrokerConnection | None = None
        self._connected_to: int | None = None

    def attach(self, coordinator_id: Callable[[], int | None]) -> None:
        """Ask the broker that this names, from now on."""
        self._coordinator_id = coordinator_id

    async def stop(self) -> None:
        """Ask nothing more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._hang_up()

    async def refusal(self, claim: Claim) -> AppendError | None:
        """Return why a batch is not appended; None: its transaction has the partition."""
        if len(claim.transactional_id) > GROUP_BYTES_MAX:
            # The coordinator gives none of these; one request must not become too long.
            problem = f"a transactional id of {len(claim.transactional_id)} characters"
            return AppendError(ErrorCode.INVALID_REQUEST, problem)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._waiting.append((claim, answer))
        if self._asking is None:
            self._asking = asyncio.create_task(self._ask(), name="verification of transactions")
        code = await answer
        if code is ErrorCode.NONE:
            return None
        if code in _PASSING:
            code, found = ErrorCode.NOT_ENOUGH_REPLICAS, code_name(code)
            problem = f"whether the transaction has the partition is not known: {found}; try again"
            return AppendError(code, problem)
        problem = "no open transaction has the partition"
        if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
            code, problem = (
                ErrorCode.INVALID_PRODUCER_EPOCH,
                "a newer producer has taken the transactional id",
            )
        who = f"producer {claim.producer_id} with epoch {claim.producer_epoch}"
        return AppendError(code, f"{claim.transactional_id!r}, {who}: {problem}")

    async def _ask(self) -> None:
        """Ask for as long as something waits."""
        asked: list[tuple[Claim, _Answer]] = []
        try:
            while self._waiting:
                asked = self._next()
                codes = await self._codes([claim for claim, _ in asked])
                for (_, answer), code in zip(asked, codes, strict=True):
                    if not answer.done():
                        answer.set_result(code)
        except Exception as error:  # noqa: BLE001 - a defect; whoever waits stops the broker with the story
            for _, answer in asked + self._waiting:
                if not answer.done():
                    answer.set_exception(error)
            self._waiting.clear()
        finally:
            self._asking = None

    def _next(self) -> list[tuple[Claim, _Answer]]:
        """Take what one request can ask: of one transactional id, one producer."""
        taken: list[tuple[Claim, _Answer]] = []
        rest: list[tuple[Claim, _Answer]] = []
        producers: dict[str, tuple[int, int]] = {}
        for each in self._waiting:
            producer = each[0][1:3]
            fits = producers.setdefault(each[0].transactional_id, producer) == producer
            (taken if fits and len(taken) < _PARTITIONS_MAX else rest).append(each)
        self._waiting = rest
        return taken

    async def _codes(self, claims: Sequence[Claim]) -> list[ErrorCode]:
        """Return the coordinator's answer to each."""
        coordinator_id = self._coordinator_id()
        if coordinator_id is None:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(claims)
        longest_ms = max(claim.timeout_ms for claim in claims)
        timeout_ms = min(max(longest_ms, _TIMEOUT_MIN_MS), _TIMEOUT_MAX_MS)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await while_current(
                    self._request(coordinator_id, claims, timeout_ms),
                    lambda: self._coordinator_id() == coordinator_id,
                )
        except (QuorateError, TimeoutError, MalformedMessageError) as error:
            log.info("broker %d was not asked about transactions: %s", coordinator_id, error)
            self._hang_up()
            return [ErrorCode.NETWORK_EXCEPTION] * len(claims)

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _request(
        self, coordinator_id: int, claims: Sequence[Claim], timeout_ms: int
    ) -> list[ErrorCode]:
        connection = self._connection
        if connection is None or connection.closed or self._connected_to != coordinator_id:
            self._hang_up()
            connection = self._connection = await self._connect(coordinator_id)
            self._connected_to = coordinator_id
        transactions: dict[tuple[str, int, int], list[PartitionKey]] = {}
        for claim in claims:
            transactions.setdefault(claim[:3], []).append(claim.key)
        rows = [
            {
                "transactional_id": name,
                "producer_id": producer_id,
                "producer_epoch": producer_epoch,
                "verify_only": True,
                "topics": [
                    {"name": topic, "partitions": indexes}
                    for topic, indexes in partitions_by_topic(keys).items()
                ],
            }
            for (name, producer_id, producer_epoch), keys in transactions.items()
        ]
        body = encode_request(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, {"transactions": rows})
        answered = await connection.request(
            ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, body, flexible=True, timeout_ms=timeout_ms
        )
        response = decode_response(ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, answered)
        codes = {
            (row.transactional_id, PartitionKey(topic.name, each.partition_index)): ErrorCode(
                each.partition_error_code
            )
            for row in response.results_by_transaction
            for topic in row.topic_results
            for each in topic.results_by_partition
        }
        missing = ErrorCode(response.error_code) or ErrorCode.UNKNOWN_SERVER_ERROR
        return [codes.get((claim.transactional_id, claim.key), missing) for claim in claims]
