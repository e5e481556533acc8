"""How admin ports are asked: what their answers say, how long they may take, and who learns the token."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from quorum.admin.client import use_token
from quorum.doctor.asking import Metrics, RefusedError, asking
from quorum.errors import UnreachableError

PAGE = """\
# TYPE quorate_build info
quorate_build_info{version="0.1.0"} 1.0
# TYPE process_open_fds gauge
process_open_fds 12.0
# TYPE quorate_journal_write_seconds histogram
quorate_journal_write_seconds_bucket{le="0.1"} 3.0
quorate_journal_write_seconds_bucket{le="+Inf"} 4.0
quorate_journal_write_seconds_count 4.0
quorate_journal_write_seconds_sum 1.0
# TYPE quorate_controller_partitions gauge
quorate_controller_partitions{state="offline"} 2.0
"""


@asynccontextmanager
async def serving(
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]], host: str = "127.0.0.1"
) -> AsyncIterator[str]:
    """Answer every request at a port of this host; yields its URL."""
    app = web.Application()
    app.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    assert site._server is not None
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
    try:
        yield f"http://{host}:{port}"
    finally:
        await runner.cleanup()


def test_samples_are_found_by_name_and_label() -> None:
    metrics = Metrics(PAGE)
    assert metrics.value("process_open_fds") == 12
    assert metrics.value("nothing") is None
    assert metrics.label("quorate_build_info", "version") == "0.1.0"
    assert metrics.by_label("quorate_controller_partitions", "state") == {"offline": 2.0}
    assert metrics.buckets("quorate_journal_write_seconds") == ((0.1, 3.0), (float("inf"), 4.0))


async def test_an_answer_tells_the_clock_of_its_sender() -> None:
    async def an_hour_ahead(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"live": True}, headers={"Date": "Fri, 31 Dec 2100 00:00:00 GMT"})

    async with serving(an_hour_ahead) as url, asking([url]) as asker:
        answer, page = await asker.get_object(url, "/livez")
    assert answer == {"live": True}
    assert page.clock_ahead_s is not None
    assert page.clock_ahead_s > 1e9


async def test_an_answer_without_a_date_tells_no_clock() -> None:
    async def undated(_request: web.Request) -> web.StreamResponse:
        return web.json_response({}, headers={"Date": "soon"})

    async with serving(undated) as url, asking([url]) as asker:
        _, page = await asker.get_object(url, "/livez")
    assert page.clock_ahead_s is None


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (200, "[]", "not of an admin port"),
        (200, "<html>", "not of an admin port"),
        (503, '{"error": "no leader", "remedy": "wait"}', "HTTP 503: no leader; wait"),
    ],
)
async def test_what_is_no_answer_of_a_node_is_unreachable(status: int, body: str, problem: str) -> None:
    async def other(_request: web.Request) -> web.StreamResponse:
        return web.Response(status=status, text=body)

    async with serving(other) as url, asking([url]) as asker:
        with pytest.raises(UnreachableError, match=problem) as caught:
            await asker.get_object(url, "/v1/status")
    assert not isinstance(caught.value, RefusedError)


async def test_a_port_that_wants_a_token_refuses() -> None:
    async def wants(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": "no token", "remedy": "give one"}, status=401)

    async with serving(wants) as url, asking([url]) as asker:
        with pytest.raises(RefusedError, match="HTTP 401: no token; give one"):
            await asker.get_object(url, "/v1/status")


async def test_pages_follow_each_other() -> None:
    async def page(request: web.Request) -> web.StreamResponse:
        after = int(request.query.get("after", -1))
        return web.json_response(
            {"items": [{"id": after + 1}], "next_after": after + 1 if after < 1 else None}
        )

    async with serving(page) as url, asking([url]) as asker:
        assert [row["id"] async for row in asker.items(url, "/v1/brokers")] == [0, 1, 2]


async def test_an_answer_without_end_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(100):
            await response.write(b"x" * 1000)
        return response

    monkeypatch.setattr("quorum.doctor.asking.ANSWER_BYTES_MAX", 5000)
    async with serving(endless) as url, asking([url]) as asker:
        with pytest.raises(UnreachableError, match="more than 5000 bytes came"):
            await asker.get(url, "/metrics")


async def test_a_port_that_a_registration_names_does_not_learn_the_token(tmp_path: Path) -> None:
    seen: list[str | None] = []

    async def listen(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.json_response({})

    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    use_token(file)
    # 127.0.0.2 stands for a foreign machine: it is not among the names of this one.
    async with serving(listen, "127.0.0.2") as url:
        async with asking(["http://127.0.0.1:1"]) as asker:
            await asker.get_object(url, "/v1/status")
        async with asking([url]) as asker:
            await asker.get_object(url, "/v1/status")
    assert seen == [None, "Bearer 0123456789abcdef"]
