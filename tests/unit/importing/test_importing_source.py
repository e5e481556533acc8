"""A source that is too old, and what an ephemeralOwner and a Stat of ZooKeeper's mean."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from quorum.client import ConnectionLossError, SessionExpiredError, Stat
from quorum.core.acl import CONTAINER, UNLIMITED
from quorum.importing.errors import ImportFailedError
from quorum.importing.running import Wanted, run_import
from quorum.importing.source import LiveSource, lifetime_of_owner, numbers_of
from quorum.wire import replies
from quorum.wire.protocol import OpCode
from tests.support.scripted_server import Peer, server


async def test_a_zookeeper_before_3_6_is_refused_and_nothing_is_asked_of_the_target() -> None:
    async def know_no_watches(peer: Peer) -> None:
        await peer.handshake()
        xid, op, _ = await peer.request()
        assert op == OpCode.ADD_WATCH
        peer.writer.write(replies.encode_header(xid, 1, -6))
        await peer.answer_closing()

    async with server(know_no_watches) as hosts:
        wanted = Wanted(hosts, None, (), ["http://nobody:1"], cutover=False, quiet_s=3.0, timeout_s=60.0)
        with pytest.raises(ImportFailedError, match=r"is older than ZooKeeper 3\.6") as caught:
            await run_import(wanted, lambda _: None, asyncio.Event())
    assert "--from-files" in caught.value.remedy


async def arm_watch(peer: Peer, zxid: int) -> None:
    """Serve a session whose watch is armed."""
    xid, op, _ = await peer.request()
    assert op == OpCode.ADD_WATCH
    peer.writer.write(replies.encode_header(xid, zxid, 0))


async def test_a_session_that_breaks_before_its_watch_is_armed_does_not_serve() -> None:
    async def break_off(peer: Peer) -> None:
        await peer.handshake()
        await peer.request()
        peer.writer.close()

    async def serve(peer: Peer) -> None:
        assert (await peer.handshake()).session_id == 0
        await arm_watch(peer, 50)
        await peer.answer_closing()

    async with server(break_off, serve) as hosts:
        source = LiveSource(hosts, ())
        with pytest.raises(ConnectionLossError):
            await source.start()
        await source.refresh()
        await source.close()


async def test_a_new_session_never_begins_at_a_server_that_is_behind_the_last_one() -> None:
    async def serve(peer: Peer) -> None:
        await peer.handshake()
        await arm_watch(peer, 50)
        peer.writer.close()

    async def expire(peer: Peer) -> None:
        await peer.handshake(session_id=0, timeout_ms=0)
        await peer.gone()

    async def serve_on(peer: Peer) -> None:
        asked = await peer.handshake(session_id=7)
        # ZooKeeper refuses a session to who has seen more than the server.
        assert (asked.session_id, asked.last_zxid_seen) == (0, 50)
        await arm_watch(peer, 51)
        await peer.answer_closing()

    async with server(serve, expire, serve_on) as hosts:
        source = LiveSource(hosts, ())
        await source.start()
        # The first one may be sent before the connection is known to be lost.
        with contextlib.suppress(ConnectionLossError, SessionExpiredError):
            await source.catch_up()
        with pytest.raises(SessionExpiredError):
            await source.catch_up()
        assert source.missed
        await source.refresh()
        assert source.zxid == 51
        await source.close()


@pytest.mark.parametrize(
    ("owner", "lifetime"),
    [(0, UNLIMITED), (-(1 << 63), CONTAINER), (-(1 << 56) + 5_000, 5_000), (0x1000_0000_0000_0001, None)],
)
def test_an_owner_is_a_session_or_a_lifetime(owner: int, lifetime: int | None) -> None:
    assert lifetime_of_owner(owner) == lifetime


@pytest.mark.parametrize(
    ("cversion", "children", "creates"), [(0, 0, 0), (-1, 1, 0), (9, 5, 7), (6, 0, 3), (-2, 2, 0)]
)
def test_creations_follow_from_a_stat(cversion: int, children: int, creates: int) -> None:
    stat = Stat(3, 4, 5, 6, 7, cversion, 8, 0, 0, children, 9)
    assert numbers_of(stat).creates == creates
    assert numbers_of(stat).pzxid == (9 if creates else 3)
