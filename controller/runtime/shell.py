"""The shell of the controller's machine: it sets the watches, carries effects out and brings inputs in.

One loop takes inputs from one queue, in order. What is read or written comes back as an input of the same id;
writes are pipelined on one session. Decides nothing.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection
from typing import Any, Final

from controller.core import effects, inputs
from controller.core.machine import ControllerMachine
from controller.core.membership import Standing
from controller.core.outcomes import Outcome, RequestFailed
from controller.core.passes import WATCHED
from controller.runtime import carrying
from controller.runtime.senders import Senders
from controller.wire.codes import ErrorCode
from quorum.client import (
    Client,
    ClientError,
    ClientState,
    EventType,
    NoWatchError,
    WatchEvent,
    WatchType,
)
from quorum.errors import QuorateError
from quorum.metadata.errors import SESSION_OVER, ControllerFencedError
from quorum.metadata.numbers import BrokerGeneration
from quorum.platform.pace import Pace
from quorum.platform.tasks import TaskSet

log = logging.getLogger("quorate.controller")

#: How long a former controller tries to remove its watches.
LEAVE_TIMEOUT_S: Final = 5.0
#: Other events say that the watch itself is gone.
_CHANGES: Final = (
    EventType.NODE_CREATED,
    EventType.NODE_DELETED,
    EventType.NODE_DATA_CHANGED,
    EventType.NODE_CHILDREN_CHANGED,
)
_LEVELS: Final = {effects.Level.INFO: logging.INFO, effects.Level.WARNING: logging.WARNING}


class BrokenTermError(QuorateError):
    """The work of a term cannot go on; another term may have more luck."""


class Shell:
    """The runtime of one term."""

    def __init__(
        self,
        client: Client,
        elected: inputs.Elected,
        machine: ControllerMachine,
        make_senders: Callable[[Callable[[inputs.Input], None], Callable[[BaseException], None]], Senders],
    ) -> None:
        """Take office; run() works.

        Args:
            client: its session holds the office.
            elected: whose term it is.
            machine: made for it.
            make_senders: makes what carries control requests, from what takes their inputs and failures.
        """
        self.machine = machine
        self._client = client
        self._elected = elected
        self._senders = make_senders(self.put, self._fail)
        self._inputs: deque[inputs.Input] = deque([elected])
        self._wake = asyncio.Event()
        self._progress = asyncio.Event()
        #: {request: its outcome}
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0
        self._tasks = TaskSet(self._fail)
        self._timer: tuple[int, asyncio.TimerHandle] | None = None
        self._resign: effects.Resign | None = None
        self._failure: BaseException | None = None

    # -- what others call ----------------------------------------------------------------------------------

    async def run(self) -> str:
        """Work until the term is over, and return why."""
        self._client.add_listener(self._on_client_state)
        try:
            for path, watched in WATCHED.items():
                await self._client.add_watch(path, self._on_event, recursive=watched.is_recursive)
            pace = Pace()
            while self._resign is None:
                if not self._inputs:
                    self._wake.clear()
                    await self._wake.wait()
                if self._failure is not None:
                    raise self._failure
                event = self._inputs.popleft()
                while self._step(event):
                    await pace.rest()
                    event = inputs.Continued()
                await pace.rest()
            return self._reason(self._resign)
        finally:
            await self._leave()

    def end(self, reason: str) -> None:
        """End the term soon; the first reason counts."""
        is_lost = self._client.state in (ClientState.LOST, ClientState.CLOSED)
        self.put(inputs.Ended(reason, is_fenced=is_lost))

    def put(self, event: inputs.Input) -> None:
        """Let the machine step with an input, in its turn."""
        self._inputs.append(event)
        self._wake.set()

    async def ask(self, request: inputs.Request) -> Outcome:
        """Have a request carried out; one that nobody waits for any more is dropped from the queue."""
        if self._resign is not None:
            return RequestFailed(ErrorCode.NOT_CONTROLLER, self._resign.reason)
        self._last_id += 1
        number = self._last_id
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        self.put(inputs.Requested(number, request))
        try:
            outcome: Outcome = await asked
            return outcome
        except asyncio.CancelledError:
            self.put(inputs.Withdrawn(number))
            raise
        finally:
            del self._asked[number]

    async def wait_for_broker(self, broker_id: int, generation: BrokerGeneration, timeout_s: float) -> bool:
        """Wait until a generation of a broker is known, or for that long; returns whether it is."""
        standing = self.machine.parts.membership.standing
        try:
            async with asyncio.timeout(timeout_s):
                while standing(broker_id, generation) is Standing.UNKNOWN and self._resign is None:
                    await self._progress.wait()
        except TimeoutError:
            return False
        return True

    async def wait_until_settled(self, topics: Collection[str], timeout_s: float) -> None:
        """Wait until every live broker has answered what concerns these topics, or for that long."""
        channels = self.machine.parts.channels
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._resign is None and not channels.pending_topics().isdisjoint(topics):
                    await self._progress.wait()

    async def wait_until_deleted(self, topics: Collection[str]) -> RequestFailed | None:
        """Wait until these topics are gone; returns why not if the term ends first."""
        model = self.machine.model
        while any(topic in model.topics or topic in model.left_alone for topic in topics):
            if self._resign is not None:
                return RequestFailed(ErrorCode.NOT_CONTROLLER, self._resign.reason)
            await self._progress.wait()
        return None

    # -- inputs --------------------------------------------------------------------------------------------

    def _on_event(self, event: WatchEvent) -> None:
        if event.event_type not in _CHANGES:
            return
        last = self._inputs[-1] if self._inputs else None
        if isinstance(last, inputs.PathsChanged):
            # A burst is one step: each node that the machine writes causes an event.
            last.paths.append(event.path)
        else:
            self.put(inputs.PathsChanged([event.path]))

    def _on_client_state(self, state: ClientState) -> None:
        if state is ClientState.CONNECTED:
            self.put(inputs.Reconnected())

    def _on_timer(self) -> None:
        self._timer = None
        self.put(inputs.Tick())

    def _fail(self, error: BaseException) -> None:
        self._failure = self._failure or error
        self._wake.set()

    def _step(self, event: inputs.Input) -> bool:
        """Step with an input, and say whether the machine is to be continued once others had their turn."""
        machine = self.machine
        try:
            wanted = machine.step(event, _now_ms())
        except Exception as error:
            raise BrokenTermError(f"a bug in a step: {error!r}", "report it with the log") from error
        is_continued = False
        for effect in wanted:
            if isinstance(effect, effects.GiveWay):
                is_continued = True
            else:
                self._carry_out(effect)
        if machine.step_under_way is None or isinstance(event, inputs.Answered | inputs.NoAnswer):
            self._tell_waiters()
        if not is_continued:
            self._plan_tick(machine.wake_ms)
        return is_continued

    def _tell_waiters(self) -> None:
        progress, self._progress = self._progress, asyncio.Event()
        progress.set()

    def _plan_tick(self, wake_ms: int | None) -> None:
        if self._timer is not None:
            if self._timer[0] == wake_ms:
                return
            self._timer[1].cancel()
            self._timer = None
        if wake_ms is not None:
            delay_s = max(0, wake_ms - _now_ms()) / 1000
            self._timer = (wake_ms, asyncio.get_running_loop().call_later(delay_s, self._on_timer))

    # -- effects -------------------------------------------------------------------------------------------

    def _carry_out(self, effect: effects.Effect) -> None:
        match effect:
            case effects.ReadNodes() | effects.ReadChildren() | effects.Write():
                self._tasks.spawn(self._put_result(effect))
            case effects.Send():
                self._senders.send(effect)
            case effects.OpenChannel():
                self._senders.open(effect)
            case effects.CloseChannel():
                self._senders.close(effect)
            case effects.Answer(number, outcome):
                asked = self._asked.get(number)
                if asked is not None and not asked.done():
                    asked.set_result(outcome)
            case effects.Trace(level, text):
                log.log(_LEVELS[level], "%s", text)
            case effects.Resign():
                self._resign = effect
            case effects.GiveWay():
                pass

    async def _put_result(self, effect: effects.ReadNodes | effects.ReadChildren | effects.Write) -> None:
        try:
            self.put(await self._result(effect))
        except SESSION_OVER:
            self.put(inputs.Ended("the session is over", is_fenced=True))

    async def _result(self, effect: effects.ReadNodes | effects.ReadChildren | effects.Write) -> inputs.Input:
        match effect:
            case effects.ReadNodes():
                return await carrying.read_nodes(self._client, effect)
            case effects.ReadChildren():
                return await carrying.read_children(self._client, effect)
            case effects.Write():
                return await self.write(effect)

    async def write(self, effect: effects.Write) -> inputs.MultiDone:
        """Run a multi and say what became of it."""
        return await carrying.write(self._client, effect)

    # -- the end -------------------------------------------------------------------------------------------

    def _reason(self, resign: effects.Resign) -> str:
        if resign.is_broken:
            raise BrokenTermError(resign.reason)
        if resign.is_fenced and self._client.state in (ClientState.CONNECTED, ClientState.SUSPENDED):
            raise ControllerFencedError(self._elected.controller_epoch)
        return resign.reason

    async def _leave(self) -> None:
        """Stop everything; nothing of this term acts any more."""
        self._resign = self._resign or effects.Resign("the term is over")
        self._client.remove_listener(self._on_client_state)
        self._plan_tick(None)
        self._tell_waiters()
        for asked in self._asked.values():
            if not asked.done():
                asked.set_result(RequestFailed(ErrorCode.NOT_CONTROLLER, self._resign.reason))
        await self._tasks.stop()
        await self._senders.close_all()
        if self._client.state in (ClientState.CONNECTED, ClientState.SUSPENDED):
            await self._remove_watches()

    async def _remove_watches(self) -> None:
        try:
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                for path, watched in WATCHED.items():
                    kind = WatchType.RECURSIVE if watched.is_recursive else WatchType.PERSISTENT
                    with contextlib.suppress(NoWatchError):
                        await self._client.remove_watches(path, kind)
        except (ClientError, TimeoutError) as error:
            # They find nobody: the callbacks of a term that is over fill a queue that no loop reads.
            log.info("watches of the former controller were left behind: %s", error)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
