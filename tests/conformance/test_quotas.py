"""Quotas are set, shown, enforced and removed as a real ZooKeeper 3.9.5 with `enforceQuota=true` does it.

Once by ZooKeeper's own shell, and once request by request. What differs on purpose is in DIVERGENCES.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from quorum.client import Client, MultiFailedError, ServerError, Stat, Transaction
from tests.conformance.test_java_shell import printed_by
from tests.support.nodes import QuorateNodes
from tests.support.zookeeper import ZooKeeper

COMMANDS = """
create /app data
create /app/one 12
create /other
listquota /app
setquota -n 5 /app
listquota /app
setquota -b 100 /app
setquota -N 3 /app
setquota -B 10 /app
listquota /app
get -s /zookeeper/quota/app/zookeeper_stats
create /app/two 34
get -s /zookeeper/quota/app/zookeeper_stats
create /app/three 56
set /app/two 345
set /app/two 3456
set /app/two 34567
create -e /app/four 5
create -s /app/five 5
create /other/three 56
listquota /app
delete /app/two
listquota /app
create -e /app/four 5
listquota /app
setquota -n 1 /app/one
setquota -n 1 /zookeeper/quota/app
setquota -n -3 /app
setquota -n many /app
setquota -n 4 /nowhere
setquota -N 1 -B 1 -n 1 -b 1 /other
delquota -n /app
delquota -b /app
listquota /app
delquota -N /app
delquota -B /app
listquota /app
create /app/six 0123456789
create /app/seven 0123456789
listquota /app
setquota -N 1 /app
delete /app/seven
set /app shorter
listquota /app
delquota /app
listquota /app
delquota /app
ls /zookeeper/quota
delquota /other
ls /zookeeper/quota
quit
"""
QUOTA = "/zookeeper/quota"
LIMITS = f"{QUOTA}/a/zookeeper_limits"
STATS = f"{QUOTA}/a/zookeeper_stats"


@pytest.fixture(scope="module")
def theirs() -> Iterator[str]:
    with ZooKeeper(config={"enforceQuota": "true"}, fsync=False) as servers:
        yield servers.hosts


@pytest.fixture(scope="module")
def ours() -> Iterator[str]:
    with QuorateNodes(nodes=1, settings={"limits": {"enforce_quota": True}}) as nodes:
        yield nodes.host(1)


def test_zookeepers_shell_prints_the_same_about_quotas(theirs: str, ours: str) -> None:
    expected = printed_by(theirs, COMMANDS)
    printed = printed_by(ours, COMMANDS)
    text = "\n".join(expected.lines)
    assert text.count("Quota has exceeded") == 4, text
    assert printed.lines == expected.lines


class Told:
    """What a server answers: values and codes in order."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.answers: list[Any] = []

    async def ask(self, what: str, *arguments: Any) -> None:
        try:
            value = await getattr(self.client, what)(*arguments)
        except ServerError as error:
            value = error.server_code
        if isinstance(value, Stat):
            value = value.version, value.data_length
        self.answers.append((what, *arguments, value))

    async def show(self) -> None:
        """Note the stats of the quota, and what its Stat says besides zxids and times."""
        data, stat = await self.client.get(STATS)
        assert stat.mzxid == stat.czxid, "counting is no change of the node"
        self.answers.append((data, stat.version, stat.data_length))


async def story(hosts: str) -> list[Any]:
    """Set a quota, go to its limits, and change it."""
    async with Client(hosts) as client:
        told = Told(client)
        for path, data in (("/a", b"12"), ("/a/b", b"345"), (f"{QUOTA}/a", b"")):
            await told.ask("create", path, data)
        await told.ask("create", LIMITS, b"count=-1,bytes=-1=;byteHardLimit=9;countHardLimit=4")
        await told.ask("create", STATS, b"count=0,bytes=0")
        await told.show()
        for what, *arguments in (
            ("create", "/a/c", b"67"),
            ("create", "/a/d", b"89a"),
            ("create", "/a/d", b"89"),
            ("create", "/a/e", b""),
            ("set", "/a/b", b"3456"),
            ("set", "/a/b", b"3456", 9),
            ("set", "/a/b", b"678"),
            ("set", "/a/b", b"678", 9),
            ("set", "/a/b", b""),
            ("set", LIMITS, b"count=2,bytes=3"),
            ("create", "/a/e", b"0123456789"),
            ("set", LIMITS, b"count=-1,bytes=-1=;byteHardLimit=0;countHardLimit=0"),
            ("set", "/a/e", b"01234"),
            ("set", "/a/e", b"9876543210"),
            ("create", "/a/f", b""),
            ("delete", "/a/e"),
            ("set", LIMITS, b"count=7,bytes=-1"),
            ("create", "/a/f", b""),
            ("delete", LIMITS),
            ("create", "/a/g", b"1"),
        ):
            await told.ask(what, *arguments)
            await told.show()
        await told.ask("create", LIMITS, b"count=7,bytes=-1")
        await told.ask("delete", STATS)
        await told.ask("create", STATS, b"count=0,bytes=0")
        await told.show()
        return told.answers


def test_quotas_count_and_refuse_request_by_request_as_zookeepers(theirs: str, ours: str) -> None:
    expected = asyncio.run(story(theirs))
    assert [answer[-1] for answer in expected].count(-125) == 6
    assert asyncio.run(story(ours)) == expected


def test_a_multi_above_a_limit_is_refused_in_its_results(theirs: str, ours: str) -> None:
    """ZooKeeper looks at the state before all operations, so there all five pass."""

    async def five(hosts: str) -> list[Any]:
        async with Client(hosts) as client:
            for path in ("/m", f"{QUOTA}/m"):
                await client.create(path)
            await client.create(f"{QUOTA}/m/zookeeper_limits", b"count=-1,bytes=-1=;countHardLimit=3")
            await client.create(f"{QUOTA}/m/zookeeper_stats", b"count=0,bytes=0")
            transaction = Transaction()
            for name in "abcde":
                transaction.create(f"/m/{name}")
            try:
                return await client.multi(transaction)
            except MultiFailedError as error:
                return [error.index, error.cause.server_code]

    assert asyncio.run(five(theirs))[-1].path == "/m/e"
    assert asyncio.run(five(ours)) == [2, -125]
