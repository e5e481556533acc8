"""A candidate for an office in every broker: it competes, works its term, and competes again.

One session of the quorum, one candidate: when the session is over, run() returns and the broker makes a new
one. Being elected and resigning are decided by the znodes alone (plans.py). A term ends when its work ends,
when the holder's node is no longer as the election left it, and when the session is over.
Source: ARCHITECTURE.md, "Life of a consumer group", "Life of a controller"; docs/internals/requirements.md,
[0.D], [2.4], [3.1], [3.5], [4.x].
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final, Generic, Protocol, TypeVar

from controller.election.plans import E, HeldBy, Mandate, Office, named_broker
from controller.election.store import elect, resign
from quorum.client import Client, ClientState, ConnectionLossError, WatchEvent
from quorum.errors import QuorateError
from quorum.metadata.errors import SESSION_OVER, FencedError
from quorum.metadata.reading import NodeView, read_node
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.election")

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
#: How long stop() waits for a quorum that does not answer.
STOP_TIMEOUT_S: Final = 5.0


class TermOfOffice(Protocol):
    """What a holder does between its election and its resignation."""

    async def run(self) -> str:
        """Work until the term is over, and return why."""

    def end(self, reason: str) -> None:
        """End the term soon; the first reason counts."""


W = TypeVar("W", bound=TermOfOffice)


class Candidate(Generic[E, W]):
    """One candidate in one broker, for one quorum session."""

    def __init__(
        self,
        client: Client,
        broker_id: int,
        office: Office[E],
        trust: Trust,
        begin: Callable[[Mandate[E]], W],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Prepare; run() competes.

        Args:
            client: started; its session owns the holder's node after a victory.
            broker_id: the candidate.
            office: what it competes for.
            trust: knows whose registrations count.
            begin: makes the term of a mandate.
            prepare: called before each election.
        """
        self._client = client
        self._broker_id = broker_id
        self._office = office
        self._trust = trust
        self._begin = begin
        self._prepare = prepare
        #: The running term; None where this candidate does not hold the office.
        self.term: W | None = None
        #: The mandate of the running term.
        self.mandate: Mandate[E] | None = None
        #: The broker that holds the office, as far as this one knows.
        self.holder_id: int | None = None
        self._stopping = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[object] | None = None

    async def run(self) -> None:
        """Compete, work, resign, compete again; return after stop() or when the session is over."""
        self._task = asyncio.current_task()
        pause = PAUSE_MIN_S
        complaint = ""
        self._client.add_listener(self._on_state)
        try:
            while not self._stopping:
                try:
                    await self._compete()
                    pause = PAUSE_MIN_S
                    continue
                except SESSION_OVER:
                    return
                except QuorateError as error:
                    if str(error) != complaint:
                        complaint = str(error)
                        log.warning("the election of a %s is tried again: %s", self._office.title, error)
                await self._wait_for_change(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
        finally:
            self._client.remove_listener(self._on_state)
            self.holder_id = None
            self._task = None

    async def stop(self) -> None:
        """Resign if this candidate holds the office, and end run(), even if the quorum does not answer."""
        self._stopping = True
        self._changed.set()
        if self.term is not None:
            self.term.end("the broker stops")
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
            task.cancel()
            await asyncio.wait([task])

    async def _compete(self) -> None:
        """Take part in one election; returns when it is time for another."""
        self._changed.clear()
        if self._prepare is not None:
            await self._prepare()
        await self._client.exists(self._office.path, self._on_change)
        now_ms = time.time_ns() // 1_000_000
        outcome = await elect(self._client, self._office, self._broker_id, now_ms, self._trust)
        if isinstance(outcome, HeldBy):
            self.holder_id = outcome.broker_id
            await self._changed.wait()
        else:
            await self._hold(outcome.mandate)

    async def _hold(self, mandate: Mandate[E]) -> None:
        title = self._office.title
        log.info("broker %d is the %s, epoch %d", self._broker_id, title, mandate.epoch)
        term = self.term = self._begin(mandate)
        self.mandate, self.holder_id = mandate, self._broker_id
        guard = asyncio.ensure_future(self._guard(term))
        reason = "its work was broken off"
        try:
            if self._stopping:
                term.end("the broker stops")
            try:
                reason = await term.run()
            except SESSION_OVER:
                raise
            except FencedError as error:
                # The successor has taken the holder's node away.
                reason = error.message
                return
            except QuorateError as error:
                # Another one may have more luck.
                reason = error.message
                await resign(self._client, self._office, mandate)
                raise
            # Nobody else is kept from being elected by what this term leaves.
            await resign(self._client, self._office, mandate)
        finally:
            guard.cancel()
            await asyncio.wait([guard])
            self.term = self.mandate = self.holder_id = None
            log.info("broker %d is no longer the %s: %s", self._broker_id, title, reason)

    async def _guard(self, term: W) -> None:
        """End the term when the holder's node is no longer what the election wrote."""
        try:
            while True:
                self._changed.clear()
                try:
                    await self._client.exists(self._office.path, self._on_change)
                    is_mine = self._is_mine(await read_node(self._client, self._office.path))
                except ConnectionLossError:
                    continue
                if not is_mine:
                    term.end(f"{self._office.path} was deleted or overwritten")
                    return
                await self._changed.wait()
        except QuorateError as error:
            term.end(error.message)

    def _is_mine(self, node: NodeView | None) -> bool:
        return (
            node is not None
            and node.stat.ephemeral_owner == self._client.session_id
            and node.stat.version == 0
            and named_broker(node, self._office) == self._broker_id
        )

    def _on_change(self, _event: WatchEvent) -> None:
        self._changed.set()

    def _on_state(self, state: ClientState) -> None:
        if state in (ClientState.LOST, ClientState.CLOSED):
            if self.term is not None:
                self.term.end("the session is over")
            self._changed.set()

    async def _wait_for_change(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
