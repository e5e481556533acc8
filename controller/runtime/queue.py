"""Control requests by the quorum: entries of the receiver's queue, which it deletes once they are applied.

There is no timeout: an entry stays until its broker applies it, or is gone. Hard state is the queue; it is
empty at the start of every life of a broker under every controller.
Source: docs/internals/requirements.md, [0.A], [0.C], [0.disc2]; ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from controller.core.inputs import Answered
from controller.core.options import Counters
from controller.core.outbox import Batch
from controller.messages.entities import LEADER_AND_ISR, STOP_REPLICA, UPDATE_METADATA
from controller.runtime.bodies import Bodies, Body, Sender
from controller.wire.codes import ErrorCode
from quorum.client import (
    Client,
    CreateMode,
    MultiFailedError,
    NodeExistsError,
    NoNodeError,
    OperationResult,
    Transaction,
)
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.queue_records import ChangeKind, QueueEntryRecord
from quorum.metadata.trust import Trust

_KINDS: Final = {
    LEADER_AND_ISR: ChangeKind.LEADER_AND_ISR,
    STOP_REPLICA: ChangeKind.STOP_REPLICA,
    UPDATE_METADATA: ChangeKind.UPDATE_METADATA,
}

#: Runs a transaction with the fence of a mandate; raises as FencedWriter.multi does.
FencedMulti = Callable[[Transaction], Awaitable[list[OperationResult]]]


class QueueGoneError(QuorateError):
    """A queue was removed by another hand; what stood in it is unknown."""


class QueueCarrier:
    """The way of requests through the queue of one life of one broker."""

    def __init__(
        self,
        client: Client,
        multi: FencedMulti,
        bodies: Bodies,
        sender: Sender,
        broker_id: int,
        counters: Counters,
        trust: Trust,
    ) -> None:
        """Write nothing yet."""
        self._client = client
        self._multi = multi
        self._bodies = bodies
        self._sender = sender
        self._broker_id = broker_id
        self._counters = counters
        self._trust = trust
        self._path = paths.queue_path(broker_id)
        #: Whether the queue is that of this life.
        self._is_open = False

    async def exchange(self, batch: Batch) -> Answered:
        """Write an entry and wait until the broker has applied it."""
        if not self._is_open:
            await self._open()
            self._is_open = True
        value = self._entry(self._bodies.make(self._sender, batch))
        try:
            path = await self._append(value)
        except MultiFailedError as error:
            raise QueueGoneError(f"the queue of broker {self._broker_id} was removed") from error
        gone = asyncio.Event()
        while await self._client.exists(path, lambda _event: gone.set()) is not None:
            await gone.wait()
            gone.clear()
        # An entry that is gone was applied; it says no more.
        return Answered(self._broker_id, self._sender.generation, ErrorCode.NONE, {})

    def close(self) -> None:
        """Nothing is open; the queue goes with its registration."""

    def _entry(self, body: Body) -> bytes:
        self._counters.requests_sent += 1
        record = QueueEntryRecord(
            _KINDS[body.api_key], self._sender.controller_epoch, self._sender.generation, body.body
        )
        return self._trust.sign(self._path, record.encode())

    async def _open(self) -> None:
        """Make an empty queue: what is in it is for former lives, or was owed by a former controller."""
        try:
            await self._multi(Transaction().create(self._path, b""))
        except MultiFailedError as error:
            if not isinstance(error.cause, NodeExistsError):
                raise
            with contextlib.suppress(NoNodeError):
                names = await self._client.get_children(self._path)
                await asyncio.gather(*(self._delete(f"{self._path}/{name}") for name in names))

    async def _delete(self, path: str) -> None:
        """Delete an entry; one that is gone already is as good."""
        try:
            await self._multi(Transaction().delete(path))
        except MultiFailedError as error:
            if not isinstance(error.cause, NoNodeError):
                raise

    async def _append(self, value: bytes) -> str:
        transaction = Transaction().create(f"{self._path}/", value, CreateMode.PERSISTENT_SEQUENTIAL)
        results = await self._multi(transaction)
        path = results[0].path
        assert path is not None
        return path
