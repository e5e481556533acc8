"""The network between brokers, and between clients and brokers: messages that are lost, late, twice or cut.

A message is a call in another process. A cut of a direction swallows what is sent along it. Nothing keeps the
order of two messages but those of one controller to one broker, and even these may come long after those of
its successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from controller.wire.connection import BrokerConnectionLostError, BrokerUnreachableError
from tests.simulation.control_plane.process import Process
from tests.simulation.scheduler import Scheduler

#: the place of producers, consumers and tools
OUTSIDE = 0


@dataclass
class Weather:
    """How bad it is."""

    delay_ms: tuple[float, float] = (0.2, 3.0)
    lost_chance: float = 0.0
    late_chance: float = 0.0
    late_ms: tuple[float, float] = (20.0, 1500.0)
    twice_chance: float = 0.0
    #: whether a control request of a connection that was given up may come behind one of the next
    mixes_requests: bool = False


class Network:
    """All links between places; a place is a broker's id, or OUTSIDE."""

    def __init__(self, scheduler: Scheduler) -> None:
        """Begin with fair weather."""
        self._scheduler = scheduler
        self._rng = scheduler.rng("network")
        self.weather = Weather()
        #: how many control connections were made
        self.connections = 0
        #: (from, to) directions that are cut
        self._cuts: dict[tuple[int, int], None] = {}
        #: {(stream, target): when its last message arrives}
        self._streams: dict[tuple[Hashable, int], float] = {}
        #: {place: process that lives there now}
        self.processes: dict[int, Process] = {}

    def cut(self, source: int, target: int) -> None:
        """Swallow what is sent in one direction."""
        self._cuts[source, target] = None

    def heal(self) -> None:
        """End all cuts."""
        self._cuts.clear()

    def is_cut(self, source: int, target: int) -> bool:
        """Whether a direction is cut."""
        return (source, target) in self._cuts

    def send(self, source: int, target: int, call: Callable[[], object]) -> None:
        """Send a message: a call that happens at the target, if somebody lives there when it comes."""
        weather, rng = self.weather, self._rng
        copies = 1 + (rng.random() < weather.twice_chance)
        for _ in range(copies):
            if (source, target) in self._cuts or rng.random() < weather.lost_chance:
                continue
            low, high = weather.late_ms if rng.random() < weather.late_chance else weather.delay_ms
            self._scheduler.at(rng.uniform(low, high), self._arrive, source, target, call)

    def send_in_order(self, stream: Hashable, source: int, target: int, call: Callable[[], object]) -> None:
        """Send a message that comes once, and behind all that this stream has sent there before.

        As TCP does; nothing orders it among those of another stream, which may be a former controller's.
        """
        weather, rng = self.weather, self._rng
        if (source, target) in self._cuts or rng.random() < weather.lost_chance:
            return
        low, high = weather.late_ms if rng.random() < weather.late_chance else weather.delay_ms
        due_ms = max(
            self._scheduler.now_ms + rng.uniform(low, high), self._streams.get((stream, target), 0.0)
        )
        self._streams[stream, target] = due_ms
        self._scheduler.when(due_ms, self._arrive, source, target, call)

    def _arrive(self, source: int, target: int, call: Callable[[], object]) -> None:
        if (source, target) in self._cuts:
            return
        process = self.processes.get(target)
        if process is None:
            call()
        elif process.is_alive:
            process.post(0, call)


#: (number of the connection, request's api key, body, where the answer goes)
Serve = Callable[[int, int, bytes, Callable[[bytes], object]], object]


class ControlConnection:
    """The controller's connection to a broker: a request, its answer, or nothing for a while."""

    def __init__(
        self, network: Network, process: Process, target: int, serve: Callable[[], Serve | None]
    ) -> None:
        """Lead to a broker.

        Args:
            network: carries the messages.
            process: of the controller.
            target: the broker's id.
            serve: returns what serves requests there, when one arrives.
        """
        self._network = network
        self._process = process
        self._target = target
        self._serve = serve
        self.closed = False
        self._number = network.connections = network.connections + 1

    async def request(
        self,
        api_key: int,
        api_version: int,  # noqa: ARG002 - as the real one
        body: bytes,
        *,
        flexible: bool,  # noqa: ARG002
        timeout_ms: int,
    ) -> bytes:
        """Send one request and return the body of its answer.

        Raises:
            BrokerConnectionLostError: no answer came in time.
            BrokerUnreachableError: it is closed.
        """
        if self.closed or not self._process.is_alive:
            raise BrokerUnreachableError("the connection is closed", "open another one")
        answered: asyncio.Future[bytes] = self._process.loop.create_future()
        here = self._process

        def take(answer: bytes) -> None:
            if not answered.done() and not self.closed:
                answered.set_result(answer)

        def reply(answer: bytes) -> None:
            self._network.send(self._target, here.actor, lambda: here.post(0, take, answer))

        def arrive() -> None:
            serve = self._serve()
            if serve is not None:
                serve(self._number, api_key, body, reply)

        self._network.send_in_order(self._stream(), here.actor, self._target, arrive)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await answered
        except TimeoutError:
            raise BrokerConnectionLostError("no answer came", "ask again") from None

    def _stream(self) -> Hashable:
        """Return whose order its requests keep."""
        return self if self._network.weather.mixes_requests else self._process

    def close(self) -> None:
        """Take no answer any more."""
        self.closed = True
