"""One term of office: from the election of a controller until it resigns.

One loop. Watches and clients only say that something is due (flags and sets, which coalesce); the loop then
brings the cache up to date, takes the changes of brokers, decides, writes, and owes the brokers what was
acknowledged. A new controller does the same with everything due: it watches first, then reads all, owes
every broker every published decision, changes leaders and gives first ones. A burst of changes is one pass.
An error of a client's request is that request's outcome. Only what concerns the term (concerns_term) repeats
the pass or ends the term, as does any other error of the term's own work.
Source: control-plane design, "Controller"; seeds [0.A], [0.C], [0.D], [2.4], [3.5].
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final, NamedTuple, TypeVar

from controller.core.dirty import Concern
from controller.core.model import ClusterModel
from controller.core.options import ControllerOptions, Counters
from controller.election.plans import Mandate
from controller.runtime.bodies import Bodies
from controller.runtime.cache import Cache
from controller.runtime.carrying import Carrying
from controller.runtime.deciding import Decider
from controller.runtime.electing import Elections
from controller.runtime.membership import Membership, Standing
from controller.runtime.reassigning import Reassignments
from controller.runtime.senders import Connect, TermShare
from controller.runtime.store import Store
from controller.runtime.topics import Deletions, TopicAdmin
from quorum.client import (
    Client,
    ClientError,
    ClientState,
    ConnectionLossError,
    EventType,
    NoWatchError,
    WatchCallback,
    WatchEvent,
    WatchType,
)
from quorum.errors import Fault, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError, concerns_term
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from quorum.metadata.trust import Trust

log = logging.getLogger("quorate.controller")

#: Requests of clients that wait for the loop.
COMMANDS_MAX: Final = 1_000
#: Pause before a pass that was broken off, or left something unsettled, is repeated; it doubles each time.
REPEAT_PAUSE_S: Final = 0.05
REPEAT_PAUSE_MAX_S: Final = 2.0
#: How long a former controller tries to remove its watches.
LEAVE_TIMEOUT_S: Final = 5.0
#: Settings live below it. The broker of this process watches /config/topics with the same client.
CONFIG: Final = "/config"

T = TypeVar("T")


class DeposedError(QuorateError):
    """This broker is no longer the controller; the request was not carried out."""

    fault = Fault.CLIENT
    retriable = True


class BrokenTermError(QuorateError):
    """A bug met a client's request half-way: what this term holds may not fit together any more."""


class _Command(NamedTuple):
    work: Callable[[], Awaitable[object]]
    #: Topics to read again afterwards.
    topics: Collection[str]
    done: asyncio.Future[object]

    def fail(self, error: BaseException) -> None:
        """Let an error be the outcome, unless there is one, or nobody waits any more."""
        if not self.done.done():
            self.done.set_exception(error)


class Term:
    """The work of one mandate."""

    def __init__(
        self,
        client: Client,
        mandate: Mandate[ControllerEpoch],
        *,
        options: ControllerOptions,
        default_settings: TopicSettings,
        connect: Connect,
        counters: Counters,
        rng: random.Random,
        trust: Trust,
    ) -> None:
        """Take office; run() works."""
        self.mandate = mandate
        self.model = ClusterModel()
        self._client = client
        self._options = options
        self._counters = counters
        store = Store(client, mandate)
        number, epoch, bodies = mandate.broker_id, mandate.epoch, Bodies(self.model)
        share = partial(
            TermShare, client, store.multi, number, epoch, bodies, connect, options, counters, trust
        )
        share = partial(share, on_failure=self._on_failure)
        self._carrying = Carrying(share, self.model, self._on_progress, self.end, self._on_overrun)
        self.channels = self._carrying.channels
        self._cache = Cache(client, self.model, store, self.channels, rng)
        self._decider = Decider(
            client,
            self.model,
            store,
            self._cache,
            controller_epoch=mandate.epoch,
            default_settings=default_settings,
            counters=counters,
            carrying=self._carrying,
        )
        self.membership = Membership(
            client,
            self.model,
            store,
            self._decider,
            self.channels,
            counters,
            trust,
            by_queue=self._carrying.by_queue,
        )
        self.elections = Elections(client, self.model, store, self._decider, counters)
        self.reassignments = Reassignments(client, self.model, store, self._decider, self.channels)
        self._deletions = Deletions(client, self.model, store, self._cache, self.channels)
        self.topics = TopicAdmin(self.model, store, options, rng)
        self._wake = asyncio.Event()
        self._wake.set()
        self._progress = asyncio.Event()
        self._commands: deque[_Command] = deque()
        #: What is due beside dirty records.
        self._settings_due = self._balance_due = False
        self._brokers_due = self._deletions_due = True
        self._reassignments_due = self._elections_due = True
        self._balancing: asyncio.TimerHandle | None = None
        self._coalescing: asyncio.TimerHandle | None = None
        self._repeating: asyncio.TimerHandle | None = None
        #: Whether this pass left something to another one.
        self._unsettled = False
        self._pause_s = REPEAT_PAUSE_S
        self._over = ""
        self._ended = asyncio.Event()
        self._failure: BaseException | None = None
        self._watches = self._standing_watches()

    def _standing_watches(self) -> tuple[tuple[str, WatchCallback, bool], ...]:
        """Return what this term watches: (path, callback, whether what is below counts too)."""
        return (
            (paths.BROKER_TOPICS, self._on_topics, True),
            (paths.BROKER_IDS, self._on_brokers, False),
            (paths.DELETE_TOPICS, self._on_deletions, False),
            (paths.REASSIGN_PARTITIONS, self._on_reassignments, False),
            (paths.PREFERRED_REPLICA_ELECTION, self._on_elections, False),
            (CONFIG, self._on_settings, True),
        )

    # -- what others call ----------------------------------------------------------------------------------

    async def run(self) -> str:
        """Work until the term is over, and return why.

        Raises:
            ControllerFencedError: another controller has been elected.
            SessionExpiredError: the session, and with it the office, is over.
            QuorateError: an unforeseen one; another term may have more luck.
        """
        self._client.add_listener(self._on_client_state)
        self._plan_balance()
        try:
            for path, callback, recursive in self._watches:
                await self._client.add_watch(path, callback, recursive=recursive)
            while True:
                await self._wake.wait()
                self._wake.clear()
                if self._failure is not None:
                    raise self._failure
                if self._over:
                    return self._over
                await self._pass_or_repeat()
        finally:
            await self._leave()

    def end(self, reason: str) -> None:
        """End the term."""
        self._over = self._over or reason
        self._ended.set()
        self._wake.set()

    async def submit(self, work: Callable[[], Awaitable[T]], topics: Collection[str]) -> T:
        """Run something inside the loop, on a cache that is up to date, and decide afterwards.

        Raises:
            DeposedError: the term ended first.
            ContendedError: COMMANDS_MAX others wait.
        """
        if self._over:
            raise DeposedError(self._over)
        if len(self._commands) >= COMMANDS_MAX:
            raise ContendedError("the controller's queue of requests", COMMANDS_MAX)
        done: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._commands.append(_Command(work, topics, done))
        self._wake.set()
        return await done  # type: ignore[return-value]  # what work returned

    async def wait_for_broker(self, broker_id: int, generation: BrokerGeneration, timeout_s: float) -> bool:
        """Wait until a generation of a broker is known, or for that long; returns whether it is."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.membership.standing(broker_id, generation) is Standing.UNKNOWN and not self._over:
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def wait_until_settled(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until every live broker has answered what concerns these topics, or for that long."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self._over and not self.channels.pending_topics().isdisjoint(topics):
                    await self._progress.wait()
        except TimeoutError:
            return

    async def wait_until_deleted(self, topics: Collection[str]) -> None:
        """Wait until these topics are gone; raises DeposedError if the term ends first."""
        while any(topic in self.model.topics or topic in self.model.left_alone for topic in topics):
            if self._over:
                raise DeposedError(self._over)
            await self._progress.wait()

    # -- events, which only say that something is due ------------------------------------------------------

    def _on_topics(self, event: WatchEvent) -> None:
        match self._cache.dirty.note(event.path) if _tells(event) else Concern.NOTHING:
            case Concern.TOPIC:
                self._wake.set()
            case Concern.STATE if self._coalescing is None:
                self._coalescing = asyncio.get_running_loop().call_later(
                    self._options.isr_coalesce_ms / 1000, self._wake.set
                )
            case _:
                pass

    def _on_brokers(self, event: WatchEvent) -> None:
        if _tells(event):
            self._brokers_due = True
            self._wake.set()

    def _on_deletions(self, event: WatchEvent) -> None:
        if _tells(event):
            self._deletions_due = True
            self._wake.set()

    def _on_reassignments(self, event: WatchEvent) -> None:
        if _tells(event):
            self._reassignments_due = True
            self._wake.set()

    def _on_elections(self, event: WatchEvent) -> None:
        if _tells(event):
            self._elections_due = True
            self._wake.set()

    def _on_balance(self) -> None:
        self._balance_due = True
        self._wake.set()
        self._plan_balance()

    def _plan_balance(self) -> None:
        interval_ms = self._options.leader_imbalance_check_interval_ms
        if interval_ms is not None:
            self._balancing = asyncio.get_running_loop().call_later(interval_ms / 1000, self._on_balance)

    def _on_settings(self, event: WatchEvent) -> None:
        if _tells(event):
            self._settings_due = True
            self._wake.set()

    def _on_client_state(self, state: ClientState) -> None:
        match state:
            case ClientState.CONNECTED:
                # Persistent watches do not tell what happened in between.
                self._mark_all_due()
            case ClientState.LOST | ClientState.CLOSED:
                self.end("the session is over")
            case _:
                pass

    def _on_progress(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()
        if self.model.deleting or self.model.announced:
            self._wake.set()

    def _on_overrun(self, broker_id: int) -> None:
        if self.membership.give_up(broker_id):
            self._brokers_due = True
            self._wake.set()

    def _on_failure(self, error: BaseException) -> None:
        self._failure = error
        self.end("a channel failed")

    def _mark_all_due(self) -> None:
        self._cache.dirty.mark_everything()
        self._brokers_due = self._deletions_due = self._settings_due = True
        self._reassignments_due = self._elections_due = True
        self._wake.set()

    # -- the loop ------------------------------------------------------------------------------------------

    async def _pass_or_repeat(self) -> None:
        self._unsettled = False
        pause_s, self._pause_s = self._pause_s, min(2 * self._pause_s, REPEAT_PAUSE_MAX_S)
        try:
            await self._pass()
        except (ConnectionLossError, ContendedError) as error:
            log.info("the controller reads everything again: %s", error.message)
            self._mark_all_due()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._ended.wait()
        else:
            if self._unsettled:
                self._repeating = asyncio.get_running_loop().call_later(pause_s, self._wake.set)
            else:
                self._pause_s = REPEAT_PAUSE_S

    async def _pass(self) -> None:
        if self._coalescing is not None:
            self._coalescing.cancel()
            self._coalescing = None
        touched = await self._cache.refresh()
        await self._begin_deletions()
        if self._brokers_due or self.model.reopened():
            self._brokers_due = False
            if not await self.membership.update():
                self._brokers_due = self._unsettled = True
            self._on_progress()
        await self._settle(touched)
        if self._settings_due:
            self._settings_due = False
            await self._settle(self.model.offline())
        await self._take_requests()
        await self._run_commands()
        await self._begin_deletions()
        if self.model.announced and await self.reassignments.finish():
            await self.reassignments.trim()
            self._on_progress()
        if await self._deletions.finish():
            self._on_progress()
        self._unsettled = self._unsettled or bool(self._deletions.refused) or self.model.reopened()
        self._carrying.flush()

    async def _begin_deletions(self) -> None:
        if self._deletions_due:
            self._deletions_due = False
            await self._deletions.begin()

    async def _take_requests(self) -> None:
        if self._reassignments_due:
            self._reassignments_due = False
            await self.reassignments.take_request()
        if self._elections_due:
            self._elections_due = False
            await self.elections.take_request()
        if self._balance_due:
            self._balance_due = False
            await self.elections.balance(self._options.leader_imbalance_per_broker_percentage)

    async def _settle(self, keys: Collection[PartitionKey]) -> None:
        if keys and not await self._decider.settle(keys):
            self._unsettled = True

    async def _run_commands(self) -> None:
        # One at a time, each on what the one before has left.
        while self._commands:
            command = self._commands.popleft()
            if command.done.done():
                continue
            try:
                await self._run_command(command)
            except Exception as error:
                command.fail(error)
                raise

    async def _run_command(self, command: _Command) -> None:
        result: object = None
        try:
            result = await command.work()
        except QuorateError as error:
            if concerns_term(error):
                raise
            log.warning("a request was not carried out: %s", error)
            command.fail(error)
        except Exception as error:
            raise BrokenTermError(f"a bug in a request: {error!r}", "report it with the log") from error
        for topic in command.topics:
            self._cache.dirty.mark_topic(topic)
        await self._settle(await self._cache.refresh())
        if not command.done.done():
            command.done.set_result(result)

    # -- the end -------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Stop everything; nothing of this term acts any more."""
        self._counters.resignations += 1
        self.end("the term is over")
        self._client.remove_listener(self._on_client_state)
        for timer in (self._coalescing, self._balancing, self._repeating):
            if timer is not None:
                timer.cancel()
        self._progress.set()
        for command in self._commands:
            command.fail(DeposedError(self._over))
        self._commands.clear()
        await self._carrying.close_all()
        if self._client.state in (ClientState.CONNECTED, ClientState.SUSPENDED):
            await self._remove_watches()

    async def _remove_watches(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                for path, _, recursive in self._watches:
                    kind = WatchType.RECURSIVE if recursive else WatchType.PERSISTENT
                    with contextlib.suppress(NoWatchError):
                        await self._client.remove_watches(path, kind)
        except (ClientError, TimeoutError) as error:
            # They find nobody: the callbacks of a term that is over set flags that no loop reads.
            log.info("watches of the former controller were left behind: %s", error)


def _tells(event: WatchEvent) -> bool:
    """Say whether an event tells of a change; others tell that the watch itself is gone."""
    return event.event_type in (
        EventType.NODE_CREATED,
        EventType.NODE_DELETED,
        EventType.NODE_DATA_CHANGED,
        EventType.NODE_CHILDREN_CHANGED,
    )
