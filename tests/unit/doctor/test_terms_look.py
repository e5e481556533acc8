"""How the rise of the term is read from the change log, by few and short requests."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from quorum.doctor.asking import AdminAsker, asking
from quorum.doctor.terms_look import look_at_terms
from quorum.health.seen import NodeSeen, ProcessSeen, QuorumSeen, TermRise

FIRST, LAST = 1_000, 50_000
#: zxids of which there is none: a forced start jumped
JUMPED = range(20_000, 40_000)


class History:
    """Answers as the change log does; the record of a zxid is as many seconds old as zxids follow."""

    def __init__(self, ages_s: float = 1.0) -> None:
        self.ages_s = ages_s
        self.now_s = time.time()
        self.asked = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked += 1
        zxid = int(request.query["from_zxid"])
        if zxid < FIRST:
            return web.json_response({"error": "gone", "first_retained_zxid": FIRST}, status=410)
        zxid = JUMPED.stop if zxid in JUMPED else zxid
        if zxid > LAST:
            return web.Response(body=b"")
        row = {"zxid": zxid, "term": zxid // 1000, "ts": int((self.now_s - self.age_s(zxid)) * 1000)}
        return web.Response(body=json.dumps(row).encode() + b"\n")

    def age_s(self, zxid: int) -> float:
        return (LAST - zxid) * self.ages_s


@asynccontextmanager
async def asked(history: History) -> AsyncIterator[tuple[AdminAsker, str]]:
    app = web.Application()
    app.router.add_get("/v1/changelog", history.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        async with asking(()) as asker:
            yield asker, f"http://127.0.0.1:{port}"
    finally:
        await runner.cleanup()


def seen(url: str, term: int = 60) -> QuorumSeen:
    return QuorumSeen((NodeSeen(ProcessSeen("node 1", url), 1, "c0ffee", "leader", term, zxid=LAST),))


@pytest.mark.parametrize(
    ("ages_s", "term", "span_s"),
    [
        # The last one that is an hour old.
        (1.0, 46, 3600),
        # It lies behind the gap: the last one before it counts, however old.
        (0.2, 19, 30_001 * 0.2),
        # All of it is younger: the first one that is retained.
        (0.01, 1, 490),
    ],
)
async def test_the_last_term_of_an_hour_ago_is_found(ages_s: float, term: int, span_s: float) -> None:
    history = History(ages_s)
    async with asked(history) as (asker, url):
        found = await look_at_terms(asker, seen(url))
    assert isinstance(found, TermRise)
    assert (found.before, found.now) == (term, 60)
    assert found.span_s == pytest.approx(span_s, abs=5)
    assert history.asked < 25


class Refusing(History):
    """Wants another token."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        return web.json_response({"path": request.path}, status=403)


async def test_what_is_not_known_has_its_reason() -> None:
    async with asked(Refusing()) as (asker, url):
        assert await look_at_terms(asker, seen(url)) == "the change log cannot be read: HTTP 403"
        assert await look_at_terms(asker, QuorumSeen()) == "no node says its term"
    async with asking(()) as asker:
        found = await look_at_terms(asker, seen("http://127.0.0.1:9"))
    assert isinstance(found, str)
    assert found.startswith("the change log cannot be read: ")
