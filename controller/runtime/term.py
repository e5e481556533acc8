"""One term of office: from the election of a controller until it resigns.

One loop. Watches and clients only say that something is due (flags and sets, which coalesce); the loop then
brings the cache up to date, takes the changes of brokers, decides, writes, and owes the brokers what was
acknowledged. A new controller does the same with everything due: it watches first, then reads all, owes
every broker every published decision, changes leaders and gives first ones. A burst of changes is one pass.

Order of a change of brokers: failures first (bounced brokers count as failed), and the memberships of
replaced disks go; then the incarnations are recorded; only then a broker is admitted, gets a channel, and
may be elected. So no broker learns of a role that rests on a disk which is gone.
Source: control-plane design, "Controller"; seeds [0.A], [0.C], [0.D], [0.E], [1.5], [2.4].
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from controller.core.brokers import diff_brokers, find_outcasts, find_unjudged
from controller.core.dirty import Concern
from controller.core.elections import Situation, decide
from controller.core.model import ClusterModel, LiveBroker
from controller.runtime.cache import Cache
from controller.runtime.channel import Channels, Connect, Office
from controller.runtime.options import ControllerOptions, Counters
from controller.runtime.reader import read_children, read_incarnations, read_registrations, read_settings
from controller.runtime.store import ROUNDS_MAX, Store
from controller.runtime.topics import TopicAdmin
from quorum.client import (
    Client,
    ClientError,
    ClientState,
    ConnectionLossError,
    EventType,
    MultiFailedError,
    NoWatchError,
    WatchCallback,
    WatchEvent,
    WatchType,
)
from quorum.errors import Fault, QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import ContendedError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.metadata.plans import Mandate, named_broker
from quorum.metadata.store import read_node
from quorum.metadata.topic_settings import TopicSettings, effective

log = logging.getLogger("quorate.controller")

#: Requests of clients that wait for the loop.
COMMANDS_MAX: Final = 1_000
#: Pause before a pass that a lost connection broke off is repeated.
REPEAT_PAUSE_S: Final = 0.05
#: How long a former controller tries to remove its watches.
LEAVE_TIMEOUT_S: Final = 5.0
#: Settings live below it. The broker of this process watches /config/topics with the same client.
CONFIG: Final = "/config"

T = TypeVar("T")


class DeposedError(QuorateError):
    """This broker is no longer the controller; the request was not carried out."""

    fault = Fault.CLIENT
    retriable = True


class _Command(NamedTuple):
    work: Callable[[], Awaitable[object]]
    #: Topics to read again afterwards.
    topics: Collection[str]
    done: asyncio.Future[object]


class Term:
    """The work of one mandate."""

    def __init__(
        self,
        client: Client,
        mandate: Mandate,
        *,
        options: ControllerOptions,
        default_settings: TopicSettings,
        connect: Connect,
        counters: Counters,
        rng: random.Random,
    ) -> None:
        """Take office; run() works."""
        self.mandate = mandate
        self.model = ClusterModel()
        self._client = client
        self._options = options
        self._default_settings = default_settings
        self._counters = counters
        self._store = Store(client, mandate)
        self.channels = Channels(
            Office(
                mandate=mandate,
                model=self.model,
                connect=connect,
                control_request_timeout_ms=options.control_request_timeout_ms,
                counters=counters,
                on_progress=self._on_progress,
                on_deposed=lambda: self.end("a broker knows a later controller"),
                on_failure=self._on_failure,
            )
        )
        self._cache = Cache(client, self.model, self.channels)
        self.topics = TopicAdmin(self.model, self._store, options, rng)
        self._wake = asyncio.Event()
        self._wake.set()
        self._progress = asyncio.Event()
        self._commands: deque[_Command] = deque()
        #: What is due beside dirty records.
        self._office_due = False
        self._brokers_due = True
        self._deletions_due = True
        self._settings_due = False
        self._coalescing: asyncio.TimerHandle | None = None
        #: Brokers whose failure is not settled yet.
        self._failed: dict[int, None] = {}
        #: Whether brokers may have bounced while nobody watched; until the first decision about all.
        self._taking_office = True
        self._over = ""
        self._failure: BaseException | None = None
        #: {broker id: why its registration cannot be read, as it was logged}
        self._unreadable: dict[str, str] = {}
        self._watches: tuple[tuple[str, WatchCallback, bool], ...] = (
            (paths.BROKER_TOPICS, self._on_topics, True),
            (paths.BROKER_IDS, self._on_brokers, False),
            (paths.DELETE_TOPICS, self._on_deletions, False),
            (CONFIG, self._on_settings, True),
            (paths.CONTROLLER, self._on_office, False),
        )

    # -- what others call ----------------------------------------------------------------------------------

    async def run(self) -> str:
        """Work until the term is over, and return why.

        Raises:
            ControllerFencedError: another controller has been elected.
            SessionExpiredError: the session, and with it the office, is over.
        """
        self._client.add_listener(self._on_client_state)
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

    async def wait_until_settled(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until every live broker has answered what concerns these topics, or for that long."""
        try:
            async with asyncio.timeout(timeout_s):
                while not self.channels.settled(topics) and not self._over:
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

    def _on_settings(self, event: WatchEvent) -> None:
        if _tells(event):
            self._settings_due = True
            self._wake.set()

    def _on_office(self, event: WatchEvent) -> None:
        if _tells(event):
            self._office_due = True
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
        if self.model.deleting:
            self._wake.set()

    def _on_failure(self, error: BaseException) -> None:
        self._failure = error
        self.end("a channel failed")

    def _mark_all_due(self) -> None:
        self._cache.dirty.mark_everything()
        self._office_due = self._brokers_due = self._deletions_due = self._settings_due = True
        self._wake.set()

    # -- the loop ------------------------------------------------------------------------------------------

    async def _pass_or_repeat(self) -> None:
        try:
            await self._pass()
        except (ConnectionLossError, ContendedError) as error:
            log.info("the controller reads everything again: %s", error.message)
            self._mark_all_due()
            await asyncio.sleep(REPEAT_PAUSE_S)

    async def _pass(self) -> None:
        if self._coalescing is not None:
            self._coalescing.cancel()
            self._coalescing = None
        if self._office_due:
            self._office_due = False
            await self._check_office()
        touched = await self._cache.refresh()
        if self._deletions_due:
            self._deletions_due = False
            await self._start_deletions()
        if self._brokers_due:
            self._brokers_due = False
            await self._take_brokers()
        await self._settle(touched)
        if self._settings_due:
            self._settings_due = False
            await self._settle(self.model.offline())
        if self._commands:
            await self._run_commands()
        if self._deletions_due:
            self._deletions_due = False
            await self._start_deletions()
        await self._finish_deletions()

    async def _check_office(self) -> None:
        """Resign if /controller is no longer as this term's election left it."""
        node = await read_node(self._client, paths.CONTROLLER)
        mine = node is not None and node.stat.ephemeral_owner == self._client.session_id
        if node is None or not mine or node.stat.version != 0 or named_broker(node) != self.mandate.broker_id:
            self.end("/controller was deleted or overwritten")

    async def _run_commands(self) -> None:
        # One at a time, each on what the one before has left.
        while self._commands:
            command = self._commands.popleft()
            if command.done.done():
                continue
            try:
                result = await command.work()
                for topic in command.topics:
                    self._cache.dirty.mark_topic(topic)
                await self._settle(await self._cache.refresh())
            except QuorateError as error:
                if not command.done.done():
                    command.done.set_exception(error)
                raise
            if not command.done.done():
                command.done.set_result(result)

    # -- brokers -------------------------------------------------------------------------------------------

    async def _take_brokers(self) -> None:
        registrations = await read_registrations(self._client)
        self._complain_once(registrations.unreadable)
        current = registrations.brokers
        diff = diff_brokers(self.model.brokers, current)
        if not diff and not self._taking_office:
            return
        arrived = {each: current[each] for each in (*diff.new, *diff.bounced)}
        judged = await read_incarnations(self._client, arrived)
        incarnations = {each: row.incarnation for each, row in judged.items()}
        outcasts = find_outcasts(arrived, incarnations)
        for each in (*diff.dead, *diff.bounced):
            log.info("broker %d %s", each, "bounced" if each in diff.bounced else "is gone")
            del self.model.brokers[each]
            self._failed[each] = None
        await self.channels.close((*diff.dead, *diff.bounced))
        gone = (*self._failed, *outcasts)
        live = [each for each in current if each not in gone]
        if not await self._settle(self._naming(gone), live=live, outcasts=outcasts):
            # Nobody is admitted before its failure is settled.
            self._brokers_due = True
            self._wake.set()
            return
        self._failed.clear()
        await self._judge(arrived, outcasts)
        self._admit(arrived)
        self.channels.owe_brokers()
        self.channels.owe_metadata(self._with_replica_on((*gone, *arrived)))
        generations = (
            {each: broker.generation for each, broker in current.items()} if self._taking_office else {}
        )
        self._taking_office = not await self._settle(None, generations=generations) and self._taking_office

    async def _judge(self, arrived: Mapping[int, LiveBroker], outcasts: Collection[int]) -> None:
        """Record by which incarnations memberships are judged, now that the replaced disks have none."""
        judged = await read_incarnations(self._client, arrived)
        unjudged = find_unjudged(arrived, {each: row.incarnation for each, row in judged.items()})
        if not unjudged:
            return
        try:
            await self._store.record_incarnations(unjudged, judged)
        except MultiFailedError as error:
            raise ContendedError("the record of incarnations", 1) from error
        for each in outcasts:
            self._counters.disks_replaced += 1
            log.warning("broker %d came with another disk: it was taken out of every ISR", each)

    def _admit(self, arrived: Mapping[int, LiveBroker]) -> None:
        self.model.brokers.update(arrived)
        for each, broker in arrived.items():
            log.info("broker %d is here, generation %d", each, broker.generation)
            self.channels.open(each, broker)

    def _naming(self, broker_ids: Collection[int]) -> list[PartitionKey]:
        return [
            key
            for key, known in self.model.states.items()
            if any(each in known.state.isr for each in broker_ids)
        ]

    def _with_replica_on(self, broker_ids: Collection[int]) -> list[PartitionKey]:
        return [
            key for key in self.model.states if any(each in self.model.replicas(key) for each in broker_ids)
        ]

    def _complain_once(self, unreadable: Mapping[str, str]) -> None:
        for broker_id, problem in unreadable.items():
            if self._unreadable.get(broker_id) != problem:
                log.warning("broker %s counts as dead: %s", broker_id, problem)
        self._unreadable = dict(unreadable)

    # -- decisions -----------------------------------------------------------------------------------------

    async def _settle(
        self,
        keys: Iterable[PartitionKey] | None,
        *,
        live: Collection[int] | None = None,
        outcasts: Collection[int] = (),
        generations: Mapping[int, BrokerGeneration] | None = None,
    ) -> bool:
        """Decide about partitions, all if keys is None, and write until nothing is left to decide.

        Returns:
            False if others changed some of them in every round: those are dirty again, and the loop goes on.
        """
        keys = None if keys is None else list(keys)
        for number in range(ROUNDS_MAX + 1):
            if keys is not None and not keys:
                return True
            situation = Situation(
                controller_epoch=self.mandate.controller_epoch,
                live=frozenset(self.model.brokers if live is None else live),
                outcasts=outcasts,
                generations=generations or {},
            )
            decisions = decide(self.model, situation, keys)
            if decisions.undecided_topics:
                unclean = await self._allow_unclean(decisions.undecided_topics)
                decisions = decide(self.model, situation.allowing(unclean), keys) if unclean else decisions
            if not decisions:
                return True
            written = await self._store.write(decisions, one_by_one=number == ROUNDS_MAX)
            self._cache.take_written(written.states, decisions.creations)
            self._counters.states_written += len(written.states)
            self._count_unclean([key for key in decisions.unclean if key in written.states])
            if not written.unsettled:
                return True
            self._counters.rounds_repeated += 1
            self._cache.dirty.mark_states(written.unsettled)
            for topic in dict.fromkeys(key.topic for key in written.unsettled):
                self._cache.dirty.mark_topic(topic)
            await self._cache.refresh()
            keys = written.unsettled
        self._cache.dirty.mark_states(keys or ())
        self._wake.set()
        return False

    async def _allow_unclean(self, topics: Collection[str]) -> list[str]:
        settings = await read_settings(self._client, topics)
        return [
            topic
            for topic, overrides in settings.items()
            if effective(self._default_settings, overrides).unclean_leader_election_enable
        ]

    def _count_unclean(self, keys: Collection[PartitionKey]) -> None:
        self._counters.unclean_elections += len(keys)
        for key in keys:
            leader = self.model.states[key].state.leader
            log.warning("unclean election of %s-%d: broker %d leads, records may be lost", *key, leader)

    # -- deletion ------------------------------------------------------------------------------------------

    async def _start_deletions(self) -> None:
        for topic in await read_children(self._client, paths.DELETE_TOPICS):
            if topic in self.model.deleting:
                continue
            if topic not in self.model.topics:
                # It may have come since the cache was read.
                self._cache.dirty.mark_topic(topic)
                await self._cache.refresh()
            log.info("deleting topic %s", topic)
            keys = self.model.keys_of(topic)
            self.model.deleting[topic] = None
            self.channels.owe_stops(keys)
            self.channels.owe_metadata(keys)

    async def _finish_deletions(self) -> None:
        for topic in [each for each in self.model.deleting if self.channels.settled((each,))]:
            try:
                await self._store.remove_topic(topic)
            except ContendedError as error:
                log.warning("topic %s cannot be removed yet: %s", topic, error.message)
                continue
            self._cache.drop_topic(topic)
            log.info("topic %s is deleted", topic)
            self._on_progress()

    # -- the end -------------------------------------------------------------------------------------------

    async def _leave(self) -> None:
        """Stop everything; nothing of this term acts any more."""
        self.end("the term is over")
        self._client.remove_listener(self._on_client_state)
        if self._coalescing is not None:
            self._coalescing.cancel()
        self._progress.set()
        for command in self._commands:
            if not command.done.done():
                command.done.set_exception(DeposedError(self._over))
        self._commands.clear()
        await self.channels.close_all()
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
