"""Nodes of the target that break off, before or after they have carried out what they were asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from quorum.errors import StaleStepError
from quorum.importing.errors import ImportFailedError
from quorum.importing.target import ImportTarget

ROWS: list[Any] = [["/", "d0"], ["/a", "d1"]]
DONE = {"zxid": 12, "floor": 10}
REFUSED = (409, {"error": "no import is under way", "remedy": "begin"})
STALE = (412, {"error": "a later step was carried out", "remedy": "again"})


class Node:
    """The admin port of a node: gives its answers one by one; at None, and after the last, it breaks off."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.method == "POST" else {}
        self.asked.append(body.get("step") or request.path)
        answer: Any = self._answers.pop(0) if self._answers else None
        if isinstance(answer, list):
            response = web.StreamResponse()
            await response.prepare(request)
            for row in answer:
                if row is not None:
                    await response.write(json.dumps(row).encode() + b"\n")
            if answer[-1] is not None:
                return response
            answer = None
        if answer is None:
            assert request.transport is not None
            request.transport.close()
            return web.Response()
        status, fields = answer if isinstance(answer, tuple) else (200, answer)
        return web.json_response(fields, status=status)


@asynccontextmanager
async def target_of(*nodes: Node) -> AsyncIterator[ImportTarget]:
    """A target that knows the admin ports of these nodes, in this order."""
    async with AsyncExitStack() as stack:
        urls = []
        for node in nodes:
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", node.answer)
            server = await stack.enter_async_context(TestServer(app))
            urls.append(str(server.make_url("")).rstrip("/"))
        yield ImportTarget(urls, "zk:2181")


async def test_an_opening_whose_answer_was_lost_tells_the_zxid_of_the_node() -> None:
    first, second = Node(None), Node(REFUSED, {"source": None, "zxid": 77, "znodes": 2})
    async with target_of(first, second) as target:
        assert await target.open(10) == 77
    assert (first.asked, second.asked) == (["open"], ["open", "/v1/import"])


async def test_a_node_that_breaks_off_when_it_is_asked_whether_it_is_open_is_left() -> None:
    open_now = {"source": None, "zxid": 77, "znodes": 2}
    first, second = Node(None, REFUSED, open_now), Node(REFUSED, None)
    async with target_of(first, second) as target:
        assert await target.open(10) == 77
    assert first.asked == ["open", "open", "/v1/import"]


@pytest.mark.parametrize("answers", [(REFUSED, {"source": "other:2181", "zxid": 77, "znodes": 2}), (STALE,)])
async def test_an_opening_that_others_came_before_is_refused(answers: tuple[object, ...]) -> None:
    async with target_of(Node(None), Node(*answers)) as target:
        with pytest.raises(ImportFailedError if len(answers) == 2 else StaleStepError):
            await target.open(10)


async def test_what_was_written_before_its_answer_was_lost_is_not_written_again() -> None:
    first, second = Node(None), Node(STALE, {"zxid": 13, "floor": 11})
    async with target_of(first, second) as target:
        assert await target.write(10, []) == 10
        assert await target.write(0, []) == 13


@pytest.mark.parametrize(
    "broken", [None, [*ROWS, None], ROWS, [*ROWS, {"znodes": 9}], (503, {"error": "not ready"})]
)
async def test_a_listing_that_breaks_off_is_asked_of_the_next_node_which_has_all_steps(
    broken: object,
) -> None:
    first, second = Node(DONE, broken), Node(DONE, [*ROWS, {"znodes": 2, "zxid": 12}])
    async with target_of(first, second) as target:
        assert await target.listing() == {"/": "d0", "/a": "d1"}
    assert second.asked == ["begin", "/v1/import/znodes"]


async def test_a_listing_that_is_refused_ends_the_import() -> None:
    async with target_of(Node(DONE, (403, {"error": "no"}))) as target:
        with pytest.raises(ImportFailedError, match=r"does not list its znodes \(HTTP 403\)"):
            await target.listing()
