"""Control requests by the quorum: entries of the receiver's queue, which it deletes once they are applied.

A role goes into the multi of the state that it follows from, so both stand in the quorum or neither does;
what a state does not say (the metadata of others, stops, and all that a new life of a broker is owed) follows
as entries of their own. There is no timeout: an entry stands until its broker applies it, or is gone. Hard
state is the queue; it is empty at the start of every life of a broker under every controller.
Source: seeds [0.A] 5, [0.C] 3, [0.disc2] (ZKQueue); control-plane design, "Channel".
"""

from __future__ import annotations

import asyncio
from typing import Final

from controller.core.model import KnownState
from controller.core.options import Counters
from controller.core.outbox import Batch
from controller.messages.entities import (
    LEADER_AND_ISR,
    STOP_REPLICA,
    UPDATE_METADATA,
    ControlResponse,
    UpdateMetadataResponse,
)
from controller.runtime.bodies import Bodies, Body, Sender
from controller.runtime.store import Store
from quorum.client import Client, MultiFailedError
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from quorum.metadata.trust import Trust

#: Partitions of one entry.
ENTRY_PARTITIONS_MAX: Final = 1_000

_KINDS: Final = {
    LEADER_AND_ISR: ChangeKind.LEADER_AND_ISR,
    STOP_REPLICA: ChangeKind.STOP_REPLICA,
    UPDATE_METADATA: ChangeKind.UPDATE_METADATA,
}
#: Where an entry has gone, the broker has applied it; it says no more.
_APPLIED: Final = UpdateMetadataResponse(error_code=0)


class QueueGoneError(QuorateError):
    """A queue was removed by another hand; what stood in it is unknown."""


class QueueCarrier:
    """The way of requests through the queue of one life of one broker."""

    def __init__(
        self,
        client: Client,
        store: Store,
        bodies: Bodies,
        sender: Sender,
        broker_id: int,
        counters: Counters,
        trust: Trust,
    ) -> None:
        """Write nothing yet."""
        self._trust = trust
        self._client = client
        self._store = store
        self._bodies = bodies
        self._sender = sender
        self._broker_id = broker_id
        self._counters = counters
        #: Whether the queue is that of this life.
        self._is_open = False
        #: Entries written, and those of them after which everything had been applied.
        self._written = 0
        self._applied = 0

    @property
    def depth(self) -> int:
        """How many entries may stand in the queue."""
        return self._written - self._applied

    async def exchange(self, batch: Batch) -> ControlResponse:
        """Write an entry and wait until the broker has applied it.

        Raises:
            ControllerFencedError: another controller has been elected.
            QueueGoneError: somebody has removed the queue.
            ConnectionLossError: nobody knows whether the entry stands; one that comes twice does no harm.
        """
        if not self._is_open:
            await self._store.open_queue(self._broker_id)
            self._is_open = True
        value = self._entry(self._bodies.make(self._sender, batch))
        place = self._written
        try:
            path = await self._store.enqueue(self._broker_id, value)
        except MultiFailedError as error:
            raise QueueGoneError(f"the queue of broker {self._broker_id} was removed") from error
        gone = asyncio.Event()
        while await self._client.exists(path, lambda _event: gone.set()) is not None:
            await gone.wait()
            gone.clear()
        self._applied = max(self._applied, place)
        return _APPLIED

    def roles(self, states: dict[PartitionKey, KnownState], *, is_new: bool) -> tuple[str, bytes]:
        """Return the entry that goes with states which are about to be written: (path, value)."""
        body = self._bodies.make_roles(self._sender, states, is_new=is_new)
        return f"{paths.queue_path(self._broker_id)}/", self._entry(body)

    def _entry(self, body: Body) -> bytes:
        self._written += 1
        self._counters.requests_sent += 1
        record = QueueEntryRecord(
            _KINDS[body.api_key], self._sender.controller_epoch, self._sender.generation, body.body
        )
        return self._trust.sign(paths.queue_path(self._broker_id), record.encode())

    def close(self) -> None:
        """Nothing is open; the queue goes with its registration."""
