"""A TCP relay in front of a broker's listener: it records control requests, holds them back, and cuts links.

A `RequestRelay` listens on a port of its own and passes frames on to one broker; `[dial]` of other brokers,
or `[advertised]` of that one, sends them through it. It can hold the next control request of a kind, with all
that follows it on that connection, and deliver it later to whichever process then has the broker's port, on a
connection with a proof of its own: so a request can meet the next life of a broker. `cut` lets bytes of both
directions vanish without an error, as a lost network does. All relays share one thread.
Source: docs/internals/requirements.md, [1.6]; docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from broker.wire.codec import is_flexible
from controller.messages.entities import CONTROL_VERSIONS, ControlRequest, decode_request, decode_response
from controller.wire.connection import BrokerConnection
from controller.wire.frames import parse_request_header
from tests.support.frames import pack_response

CALL_DEADLINE_S: Final = 30.0
CHUNK_BYTES: Final = 1 << 16
LEADER_AND_ISR: Final = 4
STOP_REPLICA: Final = 5
UPDATE_METADATA: Final = 6

T = TypeVar("T")


class _Loop:
    """The thread in which all relays run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, name="relays", daemon=True).start()

    def call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something there and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(CALL_DEADLINE_S)


_shared: list[_Loop] = []


def _thread() -> _Loop:
    if not _shared:
        _shared.append(_Loop())
    return _shared[0]


@dataclass(eq=False)
class _Link:
    """One connection through the relay."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    #: requests from here on are kept back
    held: bool = False
    #: bytes of both directions vanish
    cut: bool = False


@dataclass(frozen=True)
class ControlSeen:
    """A control request that somebody sent, whether it was passed on or held."""

    api_key: int
    request: ControlRequest

    @property
    def generation(self) -> int:
        """The life of the broker that it is meant for."""
        return int(self.request.broker_epoch)


class RequestRelay:
    """One relay before one broker."""

    def __init__(self, target_port: int, *, control: bool = True) -> None:
        """Listen at once; connections onwards are made as they come.

        Args:
            target_port: of a broker's listener, or of a node of the quorum, whose frames begin alike.
            control: look for control requests; only a broker's listener gets any.
        """
        self._target_port = target_port
        self._looks = control
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut = False
        #: what decides whether a control request is held, None: nothing is
        self._wanted: Callable[[ControlSeen], bool] | None = None
        #: [(its link, its frame)], the first one is what was wanted
        self._kept: list[tuple[_Link, bytes]] = []
        self.seen: list[ControlSeen] = []
        self._server = _thread().call(asyncio.start_server(self._connected, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        self.address = f"127.0.0.1:{self.port}"

    # -- what a test asks for --------------------------------------------------------------------------------

    def hold(self, wanted: Callable[[ControlSeen], bool]) -> None:
        """Hold the next control request that `wanted` picks, and what follows it on its connection."""
        self._wanted = wanted

    @property
    def held(self) -> list[ControlSeen]:
        """The control requests that are held now."""
        found = [self._control(frame) for _, frame in list(self._kept)]
        return [each for each in found if each is not None]

    def deliver(self, secret: str, cluster_id: str) -> list[Any]:
        """Pass on what is held, on a new connection; returns the broker's answers.

        An answer also goes to the sender, if it still waits for it.
        """
        return _thread().call(self._deliver(secret, cluster_id))

    def cut(self) -> None:
        """Let all bytes vanish from now on, also those of new connections."""
        _thread().call(self._set_cut(True))

    def mend(self) -> None:
        """Pass bytes on again; connections that lost some are ended."""
        _thread().call(self._set_cut(False))

    def close(self) -> None:
        """End all connections and listen no more."""
        _thread().call(self._close())

    # -- inside ----------------------------------------------------------------------------------------------

    async def _connected(self, reader: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        try:
            answers, broker = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            client.transport.abort()
            return
        link = _Link(client, broker, cut=self._cut)
        self._links.add(link)
        for work in (self._requests(link, reader), self._answers(link, answers)):
            task = asyncio.ensure_future(work)
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _requests(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                frame = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
                if not link.cut and not self._keep_back(link, frame):
                    link.broker.write(struct.pack(">i", len(frame)) + frame)
                    await link.broker.drain()
        self._end(link)

    async def _answers(self, link: _Link, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(OSError):
            while chunk := await reader.read(CHUNK_BYTES):
                if not link.cut:
                    link.client.write(chunk)
                    await link.client.drain()
        # A sender of what is held must go on waiting when the broker dies.
        if not link.held and not link.cut:
            self._end(link)

    def _keep_back(self, link: _Link, frame: bytes) -> bool:
        seen = self._control(frame) if self._looks else None
        if seen is not None:
            self.seen.append(seen)
            if self._wanted is not None and not link.held and self._wanted(seen):
                link.held, self._wanted = True, None
        if link.held:
            self._kept.append((link, frame))
        return link.held

    @staticmethod
    def _control(frame: bytes) -> ControlSeen | None:
        header = parse_request_header(frame, is_flexible)
        if CONTROL_VERSIONS.get(header.api_key) != header.api_version:
            return None
        return ControlSeen(
            header.api_key, decode_request(header.api_key, header.api_version, frame[header.body_offset :])
        )

    async def _deliver(self, secret: str, cluster_id: str) -> list[Any]:
        kept, self._kept = self._kept, []
        connection = await BrokerConnection.open(
            *("127.0.0.1", self._target_port),
            secrets=[secret],
            cluster_id=cluster_id,
            client_id="relay",
            timeout_ms=10_000,
        )
        answers = []
        for link, frame in kept:
            header = parse_request_header(frame, is_flexible)
            key, version = header.api_key, header.api_version
            body = await connection.request(
                key,
                version,
                frame[header.body_offset :],
                flexible=is_flexible(key, version),
                timeout_ms=10_000,
            )
            answers.append(decode_response(key, version, body))
            if not link.client.is_closing():
                link.client.write(pack_response(header.correlation_id, bytes(body), flexible=True))
                # What it sends from now on would need a broker's connection of its own.
                await link.client.drain()
        connection.close()
        return answers

    def _end(self, link: _Link) -> None:
        self._links.discard(link)
        link.client.transport.abort()
        link.broker.transport.abort()

    async def _set_cut(self, cut: bool) -> None:
        self._cut = cut
        for link in list(self._links):
            if cut:
                link.cut = True
            elif link.cut:
                self._end(link)

    async def _close(self) -> None:
        self._server.close()
        for link in list(self._links):
            self._end(link)
        for task in list(self._tasks):
            task.cancel()
