"""Open files: the limit that a command raises, the share of connections, and a port that has none left."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Any, Self, cast

import pytest
import uvloop

from quorum.platform import accepting
from quorum.platform.accepting import SHED_CONNECTIONS, Acceptor, Room
from quorum.platform.open_files import RESERVED_FILES, connections_within

RAISE = """
import logging, resource
logging.basicConfig(format="%(message)s")
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
from quorum.platform.open_files import raise_open_files
print(raise_open_files(), resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.parametrize(("soft", "hard", "warned"), [(256, 9000, False), (256, 512, True), (512, 512, True)])
def test_the_soft_limit_becomes_the_hard_one(soft: int, hard: int, warned: bool) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", RAISE.format(soft=soft, hard=hard)], capture_output=True, text=True, check=True
    )
    assert ended.stdout == f"{hard} ({hard}, {hard})\n"
    assert ("8192 are wanted" in ended.stderr) is warned


@pytest.mark.parametrize(
    ("files", "connections"), [(20_000, 20_000 - RESERVED_FILES), (1024, 512), (100, 50), (1, 1)]
)
def test_connections_leave_files_for_everything_else(files: int, connections: int) -> None:
    assert connections_within(files) == connections


def test_a_full_port_is_told_of_once_and_fewer_come_after_a_lack_of_files() -> None:
    now_s = [0.0]
    room = Room("client", 100, lambda: now_s[0])
    assert room.is_left(99)
    assert not room.is_left(100)
    assert room.ran_out(80) == SHED_CONNECTIONS
    assert room.limit() == 80 - SHED_CONNECTIONS
    assert not room.is_left(80 - SHED_CONNECTIONS)
    now_s[0] = accepting.FEWER_S
    assert room.limit() == 100
    assert Room("client", 0, lambda: 0.0).is_left(10**6)
    assert room.ran_out(1) == 0


class Port:
    """A port of this process whose connections send back what they get."""

    def __init__(self, bound: socket.socket, connections_max: int = 10) -> None:
        bound.bind(("127.0.0.1", 0))
        bound.setblocking(False)
        self.connections_max = connections_max
        self.open: list[asyncio.Transport] = []
        self.lacks = 0
        self._acceptor = Acceptor(bound, self._connection, self._has_room, self._lacked)
        self.address = self._acceptor.address

    async def __aenter__(self) -> Self:
        self._acceptor.start()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        self._acceptor.stop()
        self._acceptor.stop()
        for transport in self.open:
            transport.abort()
        while self.open:  # noqa: ASYNC110 - only lets the loop close what was aborted
            await asyncio.sleep(0)

    def _has_room(self, coming: int) -> bool:
        return len(self.open) + coming < self.connections_max

    def _lacked(self) -> None:
        self.lacks += 1

    def _connection(self) -> asyncio.Protocol:
        return Echo(self.open)


class Echo(asyncio.Protocol):
    """One of its connections."""

    def __init__(self, opened: list[asyncio.Transport]) -> None:
        self._opened = opened
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._opened.append(self._transport)

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._transport.write(data)

    def connection_lost(self, _error: Exception | None) -> None:
        assert self._transport is not None
        self._opened.remove(self._transport)


def caller(port: Port) -> socket.socket:
    """A client that has said a byte; the system connects it, whether it is accepted or not."""
    made = socket.create_connection(port.address, timeout=10.0)
    made.sendall(b"x")
    made.setblocking(False)
    return made


async def answer(client: socket.socket, within_s: float = 10.0) -> bytes:
    async with asyncio.timeout(within_s):
        return await asyncio.get_running_loop().sock_recv(client, 1)


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_a_port_without_room_lets_others_wait_and_takes_them_later(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def scene() -> None:
        async with Port(socket.socket(), connections_max=1) as port:
            with caller(port) as first, caller(port) as second:
                assert await answer(first) == b"x"
                with pytest.raises(TimeoutError):
                    await answer(second, 0.2)
                assert len(port.open) == 1
                first.close()
                assert await answer(second) == b"x"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(port.address)

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scene())


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_port_without_files_pauses_sheds_and_goes_on(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(accepting, "NO_FILES_PAUSE_S", 0.05)

    class Starving(socket.socket):
        lacks = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if self.lacks:
                self.lacks -= 1
                raise OSError(number, os.strerror(number))
            return super().accept()

    async def scene() -> None:
        async with Port(Starving()) as port:
            with caller(port) as client:
                assert await answer(client) == b"x"
            assert port.lacks == 2

    asyncio.run(scene())


async def test_a_stop_closes_a_connection_that_was_accepted_just_before() -> None:
    loop = asyncio.get_running_loop()
    bound = socket.create_server(("127.0.0.1", 0))
    bound.setblocking(False)

    def has_room(making: int) -> bool:
        if not making:
            # Before the connection is made.
            loop.call_soon(acceptor.stop)
        return not making

    acceptor = Acceptor(bound, asyncio.Protocol, has_room)
    acceptor.start()
    with socket.create_connection(acceptor.address) as client:
        client.setblocking(False)
        assert await loop.sock_recv(client, 1) == b""
