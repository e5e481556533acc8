"""The term of an elected coordinator: the shell of the machine of groups.

Reads the clock, waits, reads and writes, and hands each request to the machine. A term that was fenced, or
that has not been heard by the quorum for a session, answers nothing more: its successor gives every member a
full session, so a member that still talks to the old coordinator must not be kept alive here.
Source: ARCHITECTURE.md, "Life of a consumer group"; docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
import uuid
from collections.abc import Iterable
from typing import Any, Final, TypeVar, cast

from broker.core.cluster_view import ClusterView
from broker.core.groups import inputs
from broker.core.groups.machine import GroupsMachine
from broker.core.groups.model import GroupOptions, GroupRefusal
from broker.core.groups.slot import GroupSlot
from broker.core.groups.timers import TICK_MS
from broker.core.transactions.inputs import Outcome, StoreOffsets
from broker.groups.errors import GroupRefusedError, NotCoordinatorError
from broker.groups.store import GroupStore
from broker.groups.topics import GroupTopics
from broker.groups.transactions import TransactionGround, TransactionsOfTerm
from controller.core.effects import Answer, Level, Resign, Trace, Write
from controller.core.inputs import Ended, ReadFailed
from controller.election.plans import Mandate
from controller.runtime import carrying
from controller.wire.codes import ErrorCode
from quorum.client import Client, ClientError, ClientState
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.platform.tasks import TaskSet
from quorum.platform.wall_clock import CLOCK

log = logging.getLogger("quorate.broker.groups")

T = TypeVar("T")
_LEVELS: Final = {Level.INFO: logging.INFO, Level.WARNING: logging.WARNING}


class GroupsTerm:
    """One term; `run` returns its reason when it is over, `ready` when requests are served."""

    def __init__(
        self,
        client: Client,
        mandate: Mandate[CoordinatorEpoch],
        options: GroupOptions,
        view: ClusterView,
        ground: TransactionGround,
    ) -> None:
        """Know nothing yet; `run` loads."""
        self.mandate = mandate
        self._client = client
        self._store = GroupStore(client)
        self._topics = GroupTopics(client, view)
        self.machine = GroupsMachine(mandate.epoch_version, uuid.uuid4().hex, options, clock_ms())
        self._ids = itertools.count()
        #: {request: what waits for its answer}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._loaded = asyncio.Event()
        #: Why the term is over, once it is.
        self._over: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        #: Set for a moment at the end of each tick.
        self._ticked = asyncio.Event()
        self._tasks = TaskSet(self._failed)
        #: The other machine of the term.
        self.transactions = TransactionsOfTerm(
            *(client, mandate, view, ground, self.machine.room, self._tasks, self.end, self._step, clock_ms)
        )
        self._follower: asyncio.Task[None] | None = None
        #: When the loop last saw a connection to the quorum; monotonic.
        self._heard_ms = clock_ms()

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Load every group, then serve; returns why the term is over."""
        try:
            self._pass_time()
            self._step(await self._store.load())
            await self.transactions.load()
            for effect in self.machine.step(inputs.TopicsChanged(), clock_ms()):
                if isinstance(effect, inputs.ReadTopics):
                    await self._read_topics(effect)
            self._loaded.set()
            self._heard_ms = clock_ms()
            while not self._over.done():
                await self._tick()
                self._ticked.set()
                self._ticked.clear()
            return self._over.result()
        finally:
            self.end("its work was broken off")
            await self._tasks.stop()

    def end(self, reason: str) -> None:
        """End the term; waiting requests are answered that this broker is not the coordinator."""
        self._step(Ended(reason, is_fenced=False))

    def _end(self, reason: str) -> None:
        self._over.set_result(reason)
        self._loaded.set()
        self._ticked.set()
        error = NotCoordinatorError(f"this broker is no longer the coordinator of groups: {reason}")
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()
        self.transactions.end(error)

    async def _tick(self) -> None:
        """Wait for a tick, then act on what is due."""
        await asyncio.wait({self._over}, timeout=TICK_MS / 1000)
        if self._over.done():
            return
        now_ms = clock_ms()
        if self._client.state is ClientState.CONNECTED:
            if self._is_doubtful(now_ms):
                # The process was stopped for a while: somebody else may have been elected meanwhile.
                await self._client.sync(paths.COORDINATOR_EPOCH)
                stat = await self._client.exists(paths.COORDINATOR_EPOCH)
                if stat is None or stat.version != self.mandate.epoch_version:
                    self.end("another coordinator was elected")
                    return
                now_ms = clock_ms()
            self._heard_ms = now_ms
        elif self._is_doubtful(now_ms):
            self.end("the quorum was not heard for a session")
            return
        if self._topics.are_due(now_ms) and self._follower is None:
            self._step(inputs.TopicsChanged())
        self._pass_time()

    def _is_doubtful(self, now_ms: int) -> bool:
        # A silent connection is given up after two thirds of a session; this is the last third.
        return now_ms - self._heard_ms >= self._client.session_timeout_ms // 3

    def _pass_time(self) -> None:
        clock = inputs.ClockTick(time.time_ns() // 1_000_000 - clock_ms(), CLOCK.is_believed())
        self._step(clock)
        self.transactions.step(clock)

    # -- the machine -----------------------------------------------------------------------------------------

    def _step(self, happened: inputs.GroupInput) -> None:
        self._carry_out(self.machine.step(happened, clock_ms()))

    def _carry_out(self, effects: Iterable[inputs.GroupEffect]) -> None:
        for effect in effects:
            match effect:
                case Answer():
                    future = self._waiting.pop(effect.id, None)
                    if future is not None and not future.done():
                        future.set_result(effect.outcome)
                case Write():
                    self._tasks.spawn(self._write(effect))
                case inputs.GroupLent():
                    self.transactions.step(effect)
                case inputs.ReadGroup():
                    self._tasks.spawn(self._read(effect))
                case inputs.ReadTopics():
                    self._follower = self._tasks.spawn(self._follow_topics(effect))
                case Trace():
                    log.log(_LEVELS[effect.level], "%s", effect.text)
                case Resign():
                    self._end(effect.reason)

    async def _write(self, effect: Write) -> None:
        try:
            self._step(await carrying.write(self._client, effect))
        except SESSION_OVER as error:
            self.end(error.message)

    async def _read(self, effect: inputs.ReadGroup) -> None:
        try:
            found = await self._store.read(effect.group_id)
        except SESSION_OVER as error:
            self.end(error.message)
        except QuorateError as error:
            self._step(ReadFailed(effect.id, error.message))
        else:
            self._step(inputs.GroupRead(effect.id, *(found or (None, None))))

    async def _read_topics(self, wanted: inputs.ReadTopics) -> None:
        await self._topics.read(wanted.names, wanted.patterns)
        self._step(inputs.TopicsRead(self._topics.catalog, self._topics.existing))

    async def _follow_topics(self, wanted: inputs.ReadTopics) -> None:
        try:
            await self._read_topics(wanted)
        except ClientError as error:
            # The next change, or the end of the session, is noticed anyway.
            log.info("topics were not read: %s", error.message)
            self._topics.forget()
        finally:
            self._follower = None

    def _failed(self, error: BaseException) -> None:
        log.error("the coordinator's work failed", exc_info=error)
        self.end(f"a bug: {error!r}")

    # -- requests --------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return when requests are served."""
        await self._loaded.wait()
        while self._is_doubtful(clock_ms()) and not self._over.done():
            await self._ticked.wait()
        if self._over.done():
            raise NotCoordinatorError

    def group(self, group_id: str) -> GroupSlot | None:
        """Return a group, or None."""
        found = self.machine.find(group_id)
        if isinstance(found, GroupRefusal):
            raise GroupRefusedError(*found)
        return found

    async def ask(self, request: inputs.GroupRequest, kind: type[T]) -> T:
        """Return the outcome of a request, as soon as it may leave.

        Args:
            request: of a member or an administrator.
            kind: of its outcome.
        """
        if isinstance(request, inputs.JoinGroup | inputs.ConsumerHeartbeat):
            await self._learn_topics(request)
        if self._over.done():
            raise NotCoordinatorError
        number = next(self._ids)
        effects = self.machine.step(inputs.GroupAsked(number, request), clock_ms())
        first = effects[0] if len(effects) == 1 else None
        if isinstance(first, Answer) and first.id == number:
            # As with heartbeats.
            outcome = first.outcome
        else:
            future = self._waiting[number] = asyncio.get_running_loop().create_future()
            self._carry_out(effects)
            outcome = await future
        if isinstance(outcome, GroupRefusal):
            if outcome.error_code is ErrorCode.NOT_COORDINATOR:
                raise NotCoordinatorError(outcome.problem)
            raise GroupRefusedError(*outcome)
        assert isinstance(outcome, kind), outcome
        return outcome

    async def store_offsets(self, check: inputs.CheckCommit | None, request: StoreOffsets) -> Outcome:
        """Keep offsets until a transaction ends, if the member is of the group now; None: nobody says who."""
        if self._over.done():
            raise NotCoordinatorError
        if check is not None:
            # In the same turn: the member that takes over the partitions finds them unstable.
            effects = self.machine.step(inputs.GroupAsked(next(self._ids), check), clock_ms())
            codes = [each.outcome for each in effects if isinstance(each, Answer)]
            self._carry_out(each for each in effects if not isinstance(each, Answer))
            if isinstance(codes[0], GroupRefusal):
                return codes[0].error_code
            if codes[0] is not ErrorCode.NONE:
                return cast("ErrorCode", codes[0])
        return await self.transactions.ask(request)

    async def _learn_topics(self, request: inputs.GroupRequest) -> None:
        names, pattern = self.machine.topics_of(request)
        while (names or pattern) and self._topics.lacks(names, pattern):
            try:
                await self._topics.look_up(names, pattern)
            except ClientError as error:
                self._topics.forget()
                problem = f"topics could not be looked up: {error.message}"
                raise GroupRefusedError(ErrorCode.COORDINATOR_NOT_AVAILABLE, problem) from error
            self._step(inputs.TopicsLookedUp(self._topics.catalog))
            # The group may be another one by now.
            names, pattern = self.machine.topics_of(request)


def clock_ms() -> int:
    """Return the monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000
