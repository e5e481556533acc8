"""Dialling a member: a slow look-up of its name has its own time, and every address is tried."""

from __future__ import annotations

import asyncio
import socket
import threading
from typing import Any

import pytest

from quorum.raft.peers.dialling import dial
from quorum.raft.peers.peers import TransportOptions

OPTIONS = TransportOptions(connect_timeout_ms=2000)


def dialled(monkeypatch: pytest.MonkeyPatch, lookup: Any, options: TransportOptions = OPTIONS) -> int:
    """Dial a name that is looked up so; returns how many connections were made."""

    async def scene() -> int:
        made: list[asyncio.BaseTransport] = []

        class Protocol(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                made.append(transport)

        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            try:
                await dial(f"member.example:{port}", Protocol, options)
            finally:
                for transport in made:
                    transport.close()
        return len(made)

    real = socket.getaddrinfo

    def patched(host: str, port: int, *args: Any, **kwargs: Any) -> Any:
        return lookup(port) if host == "member.example" else real(host, port, *args, **kwargs)

    monkeypatch.setattr(socket, "getaddrinfo", patched)
    return asyncio.run(scene())


def places(*hosts: str, port: int) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]


def test_a_slow_look_up_takes_nothing_from_the_time_of_the_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def slow(port: int) -> list[Any]:
        threading.Event().wait(0.3)
        return places("127.0.0.1", port=port)

    assert dialled(monkeypatch, slow, TransportOptions(connect_timeout_ms=200)) == 1


def test_the_next_address_is_tried_where_one_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    assert dialled(monkeypatch, lambda port: places("127.0.0.2", "127.0.0.1", port=port)) == 1
    with pytest.raises(OSError, match=r"127\.0\.0\.3"):
        dialled(monkeypatch, lambda port: places("127.0.0.2", "127.0.0.3", port=port))


def test_a_look_up_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    given_up = threading.Event()

    def endless(_port: int) -> list[Any]:
        given_up.wait(10.0)
        return []

    options = TransportOptions(lookup_timeout_ms=50)

    async def scene() -> None:
        try:
            await dial("member.example:1", asyncio.Protocol, options)
        finally:
            given_up.set()

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_kwargs: endless(1))
    with pytest.raises(TimeoutError, match="not known after 50 ms"):
        asyncio.run(scene())
