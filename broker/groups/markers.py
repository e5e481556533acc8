"""Sending the markers of transactions to the leaders of their partitions, until each has its own.

What waits for a broker goes in one request. A partition whose leader changes goes to the next one: a request
is given up when its broker leads none of its partitions any more. One that is gone drops out: the quorum says
so, not the view alone, which may be behind.

A request that was given up may still be carried out. A former leader's marker is never committed, and is cut
off. A leader that comes back has it before the next one, which then ends nothing.
Source: TransactionMarkerChannelManager (Kafka 3.9); ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from broker.core.cluster_view import ClusterView
from broker.core.transactions.inputs import SendMarkers
from broker.wire.codec import decode_response, encode_request
from controller.core.brokers import BROKER_LISTENER
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode, code_name
from controller.wire.connection import BrokerConnection, while_current
from controller.wire.decoding import MalformedMessageError
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import partitions_by_topic
from quorum.platform.tasks import TaskSet

log = logging.getLogger("quorate.broker.transactions")

_VERSION: Final = 1
_TIMEOUT_MS: Final = 30_000
_PAUSE_S: Final = 0.1
_MARKERS_MAX: Final = 500
#: The log knows a later producer, or a later coordinator: the marker is not wanted any more.
_FINAL: Final = (
    *(ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED),
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
)


class _Sending:
    """The markers of one transaction that are still to be written."""

    def __init__(self, marker: SendMarkers) -> None:
        self.marker = marker
        self.rest = set(marker.partitions)
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def written(self, key: PartitionKey) -> None:
        """Take a partition out."""
        self.rest.discard(key)
        if not self.rest and not self.done.done():
            self.done.set_result(None)


#: A marker for some partitions that one broker leads.
_Part = tuple[_Sending, list[PartitionKey]]


class MarkerSender:
    """What one coordinator sends."""

    def __init__(
        self,
        client: Client,
        view: ClusterView,
        epoch: CoordinatorEpoch,
        connect: Callable[[int], Awaitable[BrokerConnection]],
        tasks: TaskSet,
    ) -> None:
        """Send nothing yet.

        Args:
            client: of the session.
            view: knows leaders.
            epoch: of the coordinator, which markers carry.
            connect: opens a connection to a broker's broker listener.
            tasks: of the term.
        """
        self._client = client
        self._view = view
        self._epoch = epoch
        self._connect = connect
        self._tasks = tasks
        #: {broker: what waits for it}; a broker is there while it is sent to.
        self._queues: dict[int, list[_Part]] = {}

    async def send(self, marker: SendMarkers) -> None:
        """Return when every partition has its marker, or is gone."""
        sending = _Sending(marker)
        await self._sort(sending, sorted(sending.rest))
        await sending.done

    async def _sort(self, sending: _Sending, keys: list[PartitionKey]) -> None:
        """Give partitions to the queues of their leaders; those without one wait."""
        while keys:
            parts: dict[int, list[PartitionKey]] = {}
            homeless: list[PartitionKey] = []
            for key in keys:
                found = self._view.partition(*key)
                if found is not None and self._view.endpoint(found.leader, BROKER_LISTENER):
                    parts.setdefault(found.leader, []).append(key)
                elif found is not None or await self._exists(key):
                    homeless.append(key)
                else:
                    sending.written(key)
            for broker_id, rows in parts.items():
                if broker_id not in self._queues:
                    self._queues[broker_id] = []
                    self._tasks.spawn(self._serve(broker_id))
                self._queues[broker_id].append((sending, rows))
            keys = homeless
            if keys:
                await asyncio.sleep(_PAUSE_S)

    async def _exists(self, key: PartitionKey) -> bool:
        try:
            await self._client.sync(paths.BROKER_TOPICS)
            return await self._client.exists(paths.partition_state_path(key)) is not None
        except SESSION_OVER:
            raise
        except QuorateError:
            return True

    async def _serve(self, broker_id: int) -> None:
        """Send to a broker for as long as something waits for it."""
        connection: BrokerConnection | None = None
        try:
            while queue := self._queues[broker_id]:
                parts, self._queues[broker_id] = queue[:_MARKERS_MAX], queue[_MARKERS_MAX:]
                rest = parts
                try:
                    leads = partial(self._leads_some, broker_id, parts)
                    if connection is None:
                        opened = await while_current(self._connect(broker_id), leads)
                        connection = opened
                    rest = await while_current(self._request(connection, parts), leads)
                except (QuorateError, MalformedMessageError) as error:
                    log.info("markers were not written by broker %d: %s", broker_id, error.message)
                    if connection is not None:
                        connection.close()
                        connection = None
                for sending, keys in rest:
                    # To the leader of that time.
                    self._tasks.spawn(self._again(sending, keys))
        finally:
            del self._queues[broker_id]
            if connection is not None:
                connection.close()

    def _leads_some(self, broker_id: int, parts: list[_Part]) -> bool:
        found = (self._view.partition(*key) for _, keys in parts for key in keys)
        return any(each is not None and each.leader == broker_id for each in found)

    async def _again(self, sending: _Sending, keys: list[PartitionKey]) -> None:
        await asyncio.sleep(_PAUSE_S)
        try:
            await self._sort(sending, keys)
        except SESSION_OVER as error:
            if not sending.done.done():
                sending.done.set_exception(error)

    async def _request(self, connection: BrokerConnection, parts: list[_Part]) -> list[_Part]:
        """Send markers; returns those that have to be sent again."""
        markers = [
            {
                "producer_id": sending.marker.producer.id,
                "producer_epoch": sending.marker.producer.epoch,
                "transaction_result": sending.marker.commits,
                "topics": [
                    {"name": topic, "partition_indexes": indexes}
                    for topic, indexes in partitions_by_topic(keys).items()
                ],
                "coordinator_epoch": self._epoch,
            }
            for sending, keys in parts
        ]
        body = encode_request(ApiKey.WRITE_TXN_MARKERS, _VERSION, {"markers": markers})
        answered = await connection.request(
            ApiKey.WRITE_TXN_MARKERS, _VERSION, body, flexible=True, timeout_ms=_TIMEOUT_MS
        )
        response = decode_response(ApiKey.WRITE_TXN_MARKERS, _VERSION, answered)
        # One producer has one decided transaction at a time.
        codes = {
            (row.producer_id, PartitionKey(topic.name, each.partition_index)): int(each.error_code)
            for row in response.markers
            for topic in row.topics
            for each in topic.partitions
        }
        again: list[_Part] = []
        for sending, keys in parts:
            rest = []
            for key in keys:
                code = codes.get((sending.marker.producer.id, key), ErrorCode.UNKNOWN_SERVER_ERROR)
                if code in _FINAL:
                    sending.written(key)
                else:
                    log.info("marker of %s-%d: %s", *key, code_name(code))
                    rest.append(key)
            if rest:
                again.append((sending, rest))
        return again
