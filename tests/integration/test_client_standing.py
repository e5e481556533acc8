"""What a client keeps over its connections, on servers of both systems: persistent watches, credentials."""

from __future__ import annotations

import asyncio

import pytest

from quorum.client import (
    AccessEntry,
    AuthFailedError,
    Client,
    ClientState,
    EventType,
    NoAuthError,
    NoWatchError,
    WatchStream,
    WatchType,
)
from tests.support.clients import (
    DEADLINE_S,
    SESSION_TIMEOUT_MS,
    CuttingProxy,
    States,
    first_of,
    hosts,
    root,
    system,
)

__all__ = ["hosts", "root", "system"]

OWN = [AccessEntry(31, "auth", "")]


def connect(hosts: str) -> Client:
    return Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)


async def take(stream: WatchStream, count: int) -> list[tuple[str, str]]:
    """The next events, as (name, path)."""
    async with asyncio.timeout(DEADLINE_S):
        events = [await anext(stream) for _ in range(count)]
    return [(event.event_type.name, event.path) for event in events]


async def cut(client: Client, proxy: CuttingProxy) -> None:
    """Let the client lose its connection and come back."""
    states = States(client)
    proxy.block()
    await states.wait_for(ClientState.SUSPENDED)
    proxy.unblock()
    await states.wait_for(ClientState.CONNECTED)


async def test_a_persistent_watch_tells_of_its_node_until_it_is_removed(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        stream = WatchStream()
        await client.add_watch(root, stream)
        await client.create(root)
        await client.set(root, b"1")
        await client.create(f"{root}/a")
        await client.set(f"{root}/a", b"not told")
        await client.delete(f"{root}/a")
        await client.delete(root)
        assert await take(stream, 5) == [
            ("NODE_CREATED", root),
            ("NODE_DATA_CHANGED", root),
            ("NODE_CHILDREN_CHANGED", root),
            ("NODE_CHILDREN_CHANGED", root),
            ("NODE_DELETED", root),
        ]
        with pytest.raises(NoWatchError):
            await client.remove_watches(root, WatchType.RECURSIVE)
        await client.remove_watches(root)
        await client.create(root)
        stream.close()
        assert await take(stream, 1) == [("PERSISTENT_WATCH_REMOVED", root)]
        assert [event async for event in stream] == []
        with pytest.raises(NoWatchError):
            await client.remove_watches(root)


async def test_a_recursive_watch_tells_of_everything_below(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        stream, once = WatchStream(), WatchStream()
        await client.create(root)
        await client.create(f"{root}-beside")
        await client.add_watch(root, stream, recursive=True)
        await client.create(f"{root}/a")
        await client.get(f"{root}/a", watch=once)
        await client.create(f"{root}/a/b")
        await client.set(f"{root}-beside", b"not told")
        await client.set(f"{root}/a", b"1")
        await client.set(f"{root}/a", b"2")
        await client.delete(f"{root}/a/b")
        assert await take(stream, 5) == [
            ("NODE_CREATED", f"{root}/a"),
            ("NODE_CREATED", f"{root}/a/b"),
            ("NODE_DATA_CHANGED", f"{root}/a"),
            ("NODE_DATA_CHANGED", f"{root}/a"),
            ("NODE_DELETED", f"{root}/a/b"),
        ]
        once.close()
        assert await take(once, 1) == [("NODE_DATA_CHANGED", f"{root}/a")]
        assert [event async for event in once] == []


async def test_one_shot_watches_of_one_type_are_removed_alone(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        data, children = WatchStream(), WatchStream()
        await client.create(root)
        await client.get(root, watch=data)
        await client.get_children(root, watch=children)
        await client.remove_watches(root, WatchType.DATA)
        await client.set(root, b"not told")
        await client.create(f"{root}/a")
        data.close()
        assert await take(data, 1) == [("DATA_WATCH_REMOVED", root)]
        assert [event async for event in data] == []
        assert await take(children, 1) == [("NODE_CHILDREN_CHANGED", root)]


async def test_persistent_watches_live_on_after_a_reconnect(hosts: str, root: str) -> None:
    async with CuttingProxy(first_of(hosts)) as proxy, connect(proxy.hosts) as client:
        persistent, recursive, once = WatchStream(), WatchStream(), WatchStream()
        await client.create(root)
        await client.create(f"{root}/a")
        await client.add_watch(root, persistent)
        await client.add_watch(root, recursive, recursive=True)
        await client.get(root, watch=once)
        for number in range(2):
            await cut(client, proxy)
            await client.create(f"{root}/a/{number}")
            await client.create(f"{root}/{number}")
        await client.set(root, b"1")
        assert await take(persistent, 3) == [
            ("NODE_CHILDREN_CHANGED", root),
            ("NODE_CHILDREN_CHANGED", root),
            ("NODE_DATA_CHANGED", root),
        ]
        assert await take(recursive, 5) == [
            *(("NODE_CREATED", f"{root}/{name}") for name in ("a/0", "0", "a/1", "1")),
            ("NODE_DATA_CHANGED", root),
        ]
        assert await take(once, 1) == [("NODE_DATA_CHANGED", root)]


async def test_a_lost_session_ends_persistent_watches(hosts: str, root: str) -> None:
    stream = WatchStream()
    async with connect(hosts) as client:
        await client.add_watch(root, stream)
    assert await take(stream, 1) == [(EventType.NONE.name, root)]


async def test_credentials_count_on_this_and_every_later_connection(hosts: str, root: str) -> None:
    async with CuttingProxy(first_of(hosts)) as proxy, connect(proxy.hosts) as client:
        await client.create(root)
        await asyncio.gather(
            client.add_auth("digest", b"bob:secret"),
            client.add_auth("digest", b"eve:other"),
            client.set_acl(root, OWN),
        )
        await client.add_auth("digest", b"bob:secret")
        users = [("digest", "bob"), ("digest", "eve"), ("ip", "127.0.0.1")]
        assert sorted(await client.who_am_i()) == users
        for _ in range(2):
            await cut(client, proxy)
            assert (await client.get(root))[0] == b""
            assert sorted(await client.who_am_i()) == users
        async with connect(hosts) as stranger:
            with pytest.raises(NoAuthError):
                await stranger.get(root)
            waiting = asyncio.create_task(stranger.add_auth("digest", b"bob:secret"))
            await waiting
            assert (await stranger.get(root))[0] == b""


async def test_refused_credentials_are_an_error_and_are_not_tried_again(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        states = States(client)
        await client.create(root)
        with pytest.raises(AuthFailedError):
            await client.add_auth("nobody-knows", b"x")
        await states.wait_for(ClientState.SUSPENDED, ClientState.CONNECTED)
        await client.set(root, b"1")
        await client.add_auth("digest", b"bob:secret")
        assert states.seen == [ClientState.SUSPENDED, ClientState.CONNECTED]
