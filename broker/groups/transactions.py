"""The shell of the machine of transactions, within the term of the groups' coordinator.

Waits, reads and writes; the machine decides. Loans of groups go to the other machine of the
term and back at once.
Source: ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple, cast

from broker.core.cluster_view import ClusterView
from broker.core.groups.bytes_held import GroupBytes
from broker.core.groups.inputs import BorrowGroup, Loan, ReturnGroup
from broker.core.transactions import inputs
from broker.core.transactions.deciding import TransactionOptions
from broker.core.transactions.inputs import NEEDS_PRODUCER_ID, Outcome
from broker.core.transactions.machine import TransactionsMachine
from broker.groups.errors import NotCoordinatorError
from broker.groups.markers import MarkerSender
from broker.groups.transaction_store import TransactionStore
from controller.core.effects import Answer, Level, Resign, Trace, Write
from controller.core.inputs import ReadFailed
from controller.election.plans import Mandate
from controller.runtime import carrying
from controller.wire.connection import BrokerConnection
from quorum.client import Client
from quorum.errors import QuorateError
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.platform.tasks import TaskSet

log = logging.getLogger("quorate.broker.transactions")

_LEVELS: Final = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING}


class TransactionGround(NamedTuple):
    """What a term needs for transactions besides the quorum."""

    options: TransactionOptions
    #: Returns a producer id that nobody has.
    next_producer_id: Callable[[], Awaitable[int]]
    #: Opens a connection to a broker's broker listener.
    connect: Callable[[int], Awaitable[BrokerConnection]]


class TransactionsOfTerm:
    """The transactions of one term."""

    def __init__(
        self,
        client: Client,
        mandate: Mandate[CoordinatorEpoch],
        view: ClusterView,
        ground: TransactionGround,
        room: GroupBytes,
        tasks: TaskSet,
        end_term: Callable[[str], None],
        step_groups: Callable[[Loan], None],
        clock_ms: Callable[[], int],
    ) -> None:
        """Know nothing yet; `load` reads all of it.

        Args:
            client: of the session.
            mandate: of the term.
            view: knows leaders and topics.
            ground: of the broker.
            room: that groups and transactions have together.
            tasks: of the term.
            end_term: called with the reason when the term is over.
            step_groups: gives the machine of groups a loan.
            clock_ms: monotonic.
        """
        self._client = client
        self._ground = ground
        self._tasks = tasks
        self._end_term = end_term
        self._step_groups = step_groups
        self._clock_ms = clock_ms
        self._store = TransactionStore(client)
        self.machine = TransactionsMachine(mandate.epoch_version, ground.options, room)
        self._markers = MarkerSender(client, view, mandate.epoch, ground.connect, tasks)
        self._ids = itertools.count()
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._over: NotCoordinatorError | None = None

    async def load(self) -> None:
        """Read every id, page by page, and go on with what is decided."""
        async for page in self._store.load():
            self.step(page)

    def end(self, error: NotCoordinatorError) -> None:
        """Fail the requests that wait: the term is over."""
        self._over = error
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    async def ask(self, request: inputs.TransactionRequest) -> Outcome:
        """Return the outcome of a request, as soon as it may leave."""
        outcome = await self._asked(request)
        while outcome == NEEDS_PRODUCER_ID and isinstance(request, inputs.InitProducer):
            request = request._replace(new_producer_id=await self._ground.next_producer_id())
            outcome = await self._asked(request)
        return outcome

    async def _asked(self, request: inputs.TransactionRequest) -> Outcome:
        if self._over is not None:
            raise self._over
        number = next(self._ids)
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        self.step(inputs.TransactionAsked(number, request))
        return await future

    def step(self, happened: inputs.TransactionInput) -> None:
        """Let something happen."""
        if self._over is None:
            self._carry_out(self.machine.step(happened, self._clock_ms()))

    def _carry_out(self, effects: Iterable[inputs.TransactionEffect]) -> None:
        for effect in effects:
            match effect:
                case Answer():
                    future = self._waiting.pop(effect.id, None)
                    if future is not None and not future.done():
                        future.set_result(cast("Outcome", effect.outcome))
                case Write():
                    self._tasks.spawn(self._write(effect))
                case inputs.ReadTransaction():
                    self._tasks.spawn(self._read(effect))
                case inputs.SendMarkers():
                    self._tasks.spawn(self._send(effect))
                case BorrowGroup() | ReturnGroup():
                    self._step_groups(effect)
                case Trace():
                    log.log(_LEVELS[effect.level], "%s", effect.text)
                case Resign():
                    self._end_term(effect.reason)

    async def _write(self, effect: Write) -> None:
        try:
            self.step(await carrying.write(self._client, effect))
        except SESSION_OVER as error:
            self._end_term(error.message)

    async def _read(self, effect: inputs.ReadTransaction) -> None:
        try:
            found = await self._store.read(effect.transactional_id)
        except SESSION_OVER as error:
            self._end_term(error.message)
        except QuorateError as error:
            self.step(ReadFailed(effect.id, error.message))
        else:
            self.step(inputs.TransactionRead(effect.id, found))

    async def _send(self, effect: inputs.SendMarkers) -> None:
        try:
            await self._markers.send(effect)
        except SESSION_OVER as error:
            self._end_term(error.message)
        else:
            self.step(inputs.MarkersWritten(effect.id))
