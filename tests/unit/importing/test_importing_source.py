"""A source that is too old, and what an ephemeralOwner and a Stat of ZooKeeper's mean."""

from __future__ import annotations

import asyncio

import pytest

from quorum.client import Stat
from quorum.core.acl import CONTAINER, UNLIMITED
from quorum.importing.errors import ImportFailedError
from quorum.importing.running import Wanted, run_import
from quorum.importing.source import lifetime_of_owner, numbers_of
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
