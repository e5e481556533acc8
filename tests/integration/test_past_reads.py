"""Reads of the tree as it was: equal to copies that were made at the time, over random writes."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from quorum.changelog import past
from quorum.client import Client, ClientError, CreateMode, Transaction
from quorum.local.embedded import Ensemble, ensemble_in_thread
from tests.support.nodes import eventually

DEADLINE_S = 30.0
WRITES = 400
PATHS = [f"/{name}" for name in ("a", "b", "c", "a/x", "a/y", "b/x", "b/x/1", "b/x/2", "a b", "ä")]
KNOWN = (
    *("czxid", "mzxid", "ctime_ms", "mtime_ms", "version", "aversion", "ephemeral_owner", "data_length"),
    "children_count",
)

#: {path: (data, the known part of its Stat, children)}
Copy = dict[str, tuple[str | None, dict[str, int], list[str]]]


class Recorded:
    """A quorum, and copies of its tree, each behind another zxid."""

    def __init__(self, url: str, copies: dict[int, Copy]) -> None:
        self.url = url
        self.copies = copies


def ask(url: str, path: str) -> tuple[int, dict[str, Any]]:
    try:
        with urlopen(url + path, timeout=DEADLINE_S) as response:
            # A page of the change log is empty while its first record is on its way.
            return response.status, json.loads(response.read() or b"{}")
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


async def copy_of(client: Client) -> Copy:
    copied: Copy = {}
    ahead = ["/"]
    while ahead:
        path = ahead.pop()
        data, stat = await client.get(path)
        children = sorted(await client.get_children(path))
        ahead += [f"{path.rstrip('/')}/{name}" for name in children]
        encoded = None if data is None else base64.b64encode(data).decode()
        copied[path] = (encoded, {name: getattr(stat, name) for name in KNOWN}, children)
    return copied


async def write(client: Client, rng: random.Random) -> None:
    """One random write; it may fail, which is a transaction as well."""
    path = rng.choice(PATHS)
    data = rng.choice((None, b"", rng.randbytes(rng.randint(1, 20))))
    mode = rng.choice((CreateMode.PERSISTENT, CreateMode.PERSISTENT, CreateMode.EPHEMERAL))
    try:
        match rng.randrange(6):
            case 0 | 1:
                await client.create(path, data, mode)
            case 2:
                await client.set(path, data)
            case 3 | 4:
                await client.delete(path)
            case _:
                other = rng.choice(PATHS)
                transaction = Transaction()
                transaction.create(path, data)
                transaction.set(path, b"again")
                transaction.delete(path)
                transaction.create(path, b"once more")
                transaction.create(other, data)
                await client.multi(transaction)
    except ClientError:
        pass


async def record(hosts: str, url: str) -> dict[int, Copy]:
    rng, copies = random.Random(4), {}
    async with Client(hosts) as client:
        for _ in range(WRITES):
            await write(client, rng)
            _, shown = ask(url, "/v1/znodes?path=/&linearizable=true")
            copies[shown["zxid"]] = await copy_of(client)
    return copies


@pytest.fixture(scope="module")
def recorded() -> Iterator[Recorded]:
    with ensemble_in_thread(1) as running:
        url = running.admin_urls[0]
        yield Recorded(url, asyncio.run(record(running.hosts, url)))


def tree_at(url: str, zxid: int, limit: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []
    after: str | None = ""
    while after is not None:
        query = f"as_of_zxid={zxid}&after={quote(after)}&limit={limit}"
        status, page = ask(url, f"/v1/changelog/tree?{query}")
        assert status == 200, page
        items += page["items"]
        after = page["next_after"]
    return items


def items_of(copied: Copy) -> list[dict[str, Any]]:
    """What the pages of a tree must have, in the order of a walk."""
    return [
        {
            "path": path,
            "data": copied[path][0],
            "version": copied[path][1]["version"],
            "ephemeral_owner": copied[path][1]["ephemeral_owner"],
        }
        for path in sorted(copied, key=lambda path: [name for name in path.split("/") if name])
    ]


def test_pages_of_any_size_are_the_tree_of_that_time(recorded: Recorded) -> None:
    assert len(recorded.copies) > WRITES / 2
    for number, (zxid, copied) in enumerate(sorted(recorded.copies.items())):
        assert tree_at(recorded.url, zxid, 1 + number % 12) == items_of(copied), zxid


def test_pages_that_shrink_are_the_tree_of_that_time(
    recorded: Recorded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "IMAGE_BYTES_MAX", 600)
    for zxid in sorted(recorded.copies)[:: WRITES // 10]:
        assert tree_at(recorded.url, zxid, 100) == items_of(recorded.copies[zxid]), zxid


def test_a_znode_is_read_as_it_was(recorded: Recorded) -> None:
    for zxid, copied in sorted(recorded.copies.items())[::20]:
        for path in (*PATHS, "/", "/zookeeper"):
            status, found = ask(recorded.url, f"/v1/znodes?path={quote(path)}&as_of_zxid={zxid}")
            if path not in copied:
                assert status == 404, (zxid, path)
                continue
            data, stat, children = copied[path]
            assert status == 200
            assert found == {"path": path, "data": data, "stat": stat, "children": children, "zxid": zxid}


def test_children_come_by_pages_or_not_at_all(recorded: Recorded) -> None:
    zxid, copied = next(
        (zxid, copied) for zxid, copied in recorded.copies.items() if len(copied["/"][2]) >= 4
    )
    names = copied["/"][2]
    _, page = ask(recorded.url, f"/v1/znodes?path=/&as_of_zxid={zxid}&limit=2&after={quote(names[0])}")
    assert page["children"] == names[1:3]
    _, none = ask(recorded.url, f"/v1/znodes?path=/&as_of_zxid={zxid}&children=false")
    assert none["children"] == []
    assert none["stat"]["children_count"] == len(names)


def test_the_past_knows_no_states_of_transactions() -> None:
    async def write(hosts: str) -> int:
        async with Client(hosts) as client:
            await client.create("/transactions", b"x")
            await client.create("/transactions/id", b"Ongoing")
            _, stat = await client.create2("/z")
            return stat.czxid

    with ensemble_in_thread(1) as running:
        url, zxid = running.admin_urls[0], asyncio.run(write(running.hosts))
        shown = [each["path"] for each in tree_at(url, zxid, 2)]
        assert {"/transactions", "/z"} <= set(shown)
        assert "/transactions/id" not in shown
        status, found = ask(url, f"/v1/znodes?path=/transactions&as_of_zxid={zxid}")
        assert (status, found["children"]) == (200, [])
        status, problem = ask(url, f"/v1/znodes?path=/transactions/id&as_of_zxid={zxid}")
        assert (status, problem["retriable"]) == (404, False)


def test_a_time_that_has_not_come_is_refused_for_now(recorded: Recorded) -> None:
    status, problem = ask(recorded.url, "/v1/changelog/tree?as_of_zxid=1000000")
    assert (status, problem["retriable"]) == (404, True)
    assert "as_of_zxid = 1000000" in problem["detail"]


def test_a_time_whose_changes_are_gone_is_answered_with_where_history_begins() -> None:
    with ensemble_in_thread(1, {"changelog": {"retention_bytes_max": 1 << 20}}) as running:
        first = asyncio.run(fill(running))
        url = running.admin_urls[0]
        for query in ("/v1/changelog/tree?", "/v1/znodes?path=/&"):
            status, problem = ask(url, f"{query}as_of_zxid={first - 2}")
            assert status == 410, problem
            assert problem["first_retained_zxid"] >= first
        # The history of the last writes may still be on its way to the disk, and take more with it.
        found = eventually(lambda: oldest(url), DEADLINE_S, "the oldest state that is left")
        assert found["stat"]["version"] == found["zxid"] - 2


def oldest(url: str) -> dict[str, Any]:
    """The znode /n behind the zxid before the first that is retained."""
    retained = ask(url, "/v1/changelog?from_zxid=0")[1]["first_retained_zxid"]
    status, found = ask(url, f"/v1/znodes?path=/n&as_of_zxid={retained - 1}")
    assert status == 200, found
    return found


async def fill(running: Ensemble) -> int:
    """Write until history was dropped; returns where it begins."""
    async with Client(running.hosts) as client:
        await client.create("/n", b"")
        while True:
            for _ in range(20):
                await client.set("/n", bytes(20_000))
            status, problem = ask(running.admin_urls[0], "/v1/changelog?from_zxid=0&bytes_max=1")
            if status == 410:
                first: int = problem["first_retained_zxid"]
                return first
