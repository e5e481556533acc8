"""A candidate for coordinator in every broker: it competes, works its term, and competes again.

One session of the quorum, one candidate, as with the controller. Which broker is the coordinator, every
candidate knows from the node that it watches; so any broker can say it to a consumer.
Source: control-plane design, "Coordinator", "Election"; seed [4.x].
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from broker.core.cluster_view import ClusterView
from broker.core.groups.model import GroupOptions
from broker.core.groups.status import GroupStatus
from broker.groups.errors import NotCoordinatorError
from broker.groups.term import GroupsTerm
from controller.election.plans import COORDINATOR_OFFICE, HeldBy, Mandate, named_broker
from controller.election.store import elect, resign
from quorum.client import Client, ClientState, WatchEvent
from quorum.errors import QuorateError
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.metadata.reading import NodeView, read_node
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.broker.groups")

PAUSE_MIN_S: Final = 0.05
PAUSE_MAX_S: Final = 2.0
#: How long stop() waits for a quorum that does not answer.
STOP_TIMEOUT_S: Final = 3.0


class Coordinator:
    """One candidate in one broker, for one quorum session."""

    def __init__(
        self, client: Client, broker_id: int, options: GroupOptions, view: ClusterView, trust: Trust
    ) -> None:
        """Prepare; run() competes.

        Args:
            client: started; its session owns /consumers/coordinator after a victory.
            broker_id: the candidate.
            options: of the coordinator.
            view: tells when topics may have changed.
            trust: tells whose registrations count.
        """
        self._trust = trust
        self._client = client
        self._broker_id = broker_id
        self._options = options
        self._view = view
        self._term: GroupsTerm | None = None
        #: The broker that is the coordinator, as far as this one knows.
        self.coordinator_id: int | None = None
        self._stopping = False
        self._changed = asyncio.Event()
        self._stopped = asyncio.Event()
        self._task: asyncio.Task[object] | None = None

    @property
    def active(self) -> bool:
        """Whether this candidate is the coordinator."""
        return self._term is not None

    @property
    def coordinator_epoch(self) -> CoordinatorEpoch | None:
        """Epoch of the running term; None where this candidate is not the coordinator."""
        return None if self._term is None else CoordinatorEpoch(self._term.mandate.controller_epoch)

    def status(self) -> GroupStatus | None:
        """Say what the running term holds; None where this candidate is not the coordinator."""
        return None if self._term is None else self._term.machine.status()

    async def term(self) -> GroupsTerm:
        """Return the running term, once its groups are loaded.

        Raises:
            NotCoordinatorError: this broker is not the coordinator.
        """
        term = self._term
        if term is None:
            raise NotCoordinatorError
        await term.ready()
        return term

    # -- elections -------------------------------------------------------------------------------------------

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
                        log.warning("the election of a coordinator is tried again: %s", error)
                await self._wait_for_change(pause)
                pause = min(2 * pause, PAUSE_MAX_S)
        finally:
            self._client.remove_listener(self._on_state)
            self.coordinator_id = None
            self._task = None
            self._stopped.set()

    async def stop(self) -> None:
        """Resign if this candidate is the coordinator, and end run(), even if the quorum does not answer."""
        self._stopping = True
        self._changed.set()
        if self._term is not None:
            self._term.end("the broker stops")
        task = self._task
        if task is not None:
            await asyncio.wait([task], timeout=STOP_TIMEOUT_S)
            task.cancel()
            await asyncio.wait([task])

    async def _compete(self) -> None:
        """Take part in one election; returns when it is time for another."""
        self._changed.clear()
        await self._client.exists(COORDINATOR_OFFICE.path, self._on_change)
        now_ms = time.time_ns() // 1_000_000
        outcome = await elect(self._client, COORDINATOR_OFFICE, self._broker_id, now_ms, self._trust)
        if isinstance(outcome, HeldBy):
            self.coordinator_id = outcome.broker_id
            await self._changed.wait()
        else:
            await self._lead(outcome.mandate)

    async def _lead(self, mandate: Mandate) -> None:
        log.info(
            "broker %d is the coordinator of groups, epoch %d", self._broker_id, mandate.controller_epoch
        )
        term = self._term = GroupsTerm(self._client, mandate, self._options, self._view)
        self.coordinator_id = self._broker_id
        guard = asyncio.ensure_future(self._guard(term))
        reason = "its work was broken off"
        try:
            if self._stopping:
                term.end("the broker stops")
            try:
                reason = await term.run()
            except SESSION_OVER:
                raise
            except QuorateError as error:
                # Another one may have more luck, as with the loading of groups.
                reason = error.message
                await resign(self._client, COORDINATOR_OFFICE, mandate)
                raise
            # Nobody else is kept from being elected by what this term leaves behind.
            await resign(self._client, COORDINATOR_OFFICE, mandate)
        finally:
            guard.cancel()
            await asyncio.wait([guard])
            self._term = None
            self.coordinator_id = None
            log.info("broker %d is no longer the coordinator of groups: %s", self._broker_id, reason)

    async def _guard(self, term: GroupsTerm) -> None:
        """End the term when /consumers/coordinator is no longer what it wrote."""
        try:
            while True:
                self._changed.clear()
                await self._client.exists(COORDINATOR_OFFICE.path, self._on_change)
                node = await read_node(self._client, COORDINATOR_OFFICE.path)
                if not self._is_mine(node):
                    term.end(f"{COORDINATOR_OFFICE.path} has changed")
                    return
                await self._changed.wait()
        except SESSION_OVER:
            term.end("the session is over")
        except QuorateError as error:
            term.end(error.message)

    def _is_mine(self, node: NodeView | None) -> bool:
        return (
            node is not None
            and node.stat.ephemeral_owner == self._client.session_id
            and node.stat.version == 0
            and named_broker(node, COORDINATOR_OFFICE) == self._broker_id
        )

    def _on_change(self, _event: WatchEvent) -> None:
        self._changed.set()

    def _on_state(self, state: ClientState) -> None:
        if state in (ClientState.LOST, ClientState.CLOSED):
            if self._term is not None:
                self._term.end("the session is over")
            self._changed.set()

    async def _wait_for_change(self, timeout_s: float) -> None:
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return
