"""The rarer operations of the client against real servers, ZooKeeper's and Quorate's alike."""

from __future__ import annotations

import pytest

from quorum.client import (
    BadVersionError,
    Client,
    CreateMode,
    InvalidAclError,
    MultiFailedError,
    NoAuthError,
    NoNodeError,
    Transaction,
)
from quorum.client.errors import BadArgumentsError
from quorum.client.lookups import AccessEntry
from tests.support.clients import SESSION_TIMEOUT_MS, hosts, root, system

__all__ = ["hosts", "root", "system"]

OPEN = AccessEntry(31, "world", "anyone")
CHANGE_ACL_ONLY = AccessEntry(16, "world", "anyone")
SOMEBODY = AccessEntry(1, "digest", "bob:ikIaKsbtGweaHnb/jKn7OHqbunM=")


def connect(hosts: str) -> Client:
    return Client(hosts, session_timeout_ms=SESSION_TIMEOUT_MS)


async def test_an_access_list_is_read_replaced_and_obeyed(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root, b"x")
        acl, stat = await client.get_acl(root)
        assert (acl, stat.aversion) == ([OPEN], 0)
        stat = await client.set_acl(root, [CHANGE_ACL_ONLY, SOMEBODY], 0)
        assert (stat.aversion, stat.version) == (1, 0)
        assert (await client.get_acl(root))[0] == [CHANGE_ACL_ONLY, SOMEBODY]
        with pytest.raises(NoAuthError):
            await client.get(root)
        with pytest.raises(BadVersionError):
            await client.set_acl(root, [OPEN], 0)
        with pytest.raises(InvalidAclError):
            await client.set_acl(root, [])
        with pytest.raises(NoNodeError):
            await client.set_acl(f"{root}-none", [OPEN])
        await client.set_acl(root, [AccessEntry(1, "world", "anyone"), SOMEBODY], 1)
        shown, _ = await client.get_acl(root)
        assert shown[1] == AccessEntry(1, "digest", "bob:x")
        with pytest.raises(NoAuthError):
            await client.set_acl(root, [OPEN])


async def test_containers_and_ttl_nodes_are_made_alone_and_in_a_multi(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        path, stat = await client.create_container(root)
        assert (path, stat.ephemeral_owner, stat.version) == (root, 0, 0)
        path, stat = await client.create_ttl(f"{root}/t", b"x", 3_600_000)
        assert (path, stat.ephemeral_owner, stat.data_length) == (f"{root}/t", 0, 1)
        path, _ = await client.create_ttl(f"{root}/s-", b"", 3_600_000, sequential=True)
        assert path == f"{root}/s-0000000001"
        for ttl_ms in (0, -1, 2**40):
            with pytest.raises(BadArgumentsError):
                await client.create_ttl(f"{root}/bad", b"", ttl_ms)
        results = await client.multi(
            Transaction().create_container(f"{root}/c").create_ttl(f"{root}/c/t", None, 3_600_000)
        )
        assert [result.path for result in results] == [f"{root}/c", f"{root}/c/t"]
        assert results[1].written_stat.czxid == results[0].written_stat.czxid
        with pytest.raises(MultiFailedError) as failed:
            await client.multi(Transaction().create_ttl(f"{root}/u", b"", 0))
        assert isinstance(failed.value.cause, BadArgumentsError)


async def test_ephemerals_descendants_and_identities(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root)
        for name in ("e", "x"):
            await client.create(f"{root}/{name}", b"", CreateMode.EPHEMERAL)
        await client.create(f"{root}/d")
        await client.create(f"{root}/d/d")
        assert sorted(await client.get_ephemerals()) == [f"{root}/e", f"{root}/x"]
        assert await client.get_ephemerals(f"{root}/x") == [f"{root}/x"]
        assert await client.count_descendants(root) == 4
        with pytest.raises(NoNodeError):
            await client.count_descendants(f"{root}/none")
        assert await client.who_am_i() == [("ip", "127.0.0.1")]


async def test_several_nodes_are_read_in_one_request_each_on_its_own(hosts: str, root: str) -> None:
    async with connect(hosts) as client:
        await client.create(root, b"one")
        await client.create(f"{root}/null", None)
        await client.create(f"{root}/closed")
        await client.set_acl(f"{root}/closed", [CHANGE_ACL_ONLY])
        found = await client.read_all([root, f"{root}/none", f"{root}/closed", f"{root}/null"])
        first, missing, closed, null = found
        assert isinstance(first, tuple)
        assert (first[0], first[1].children_count) == (b"one", 2)
        assert isinstance(missing, NoNodeError)
        assert isinstance(closed, NoAuthError)
        assert isinstance(null, tuple)
        assert null[0] is None
        assert await client.read_all([]) == []
