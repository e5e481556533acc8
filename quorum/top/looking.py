"""Reads what `quorate top` shows: the readings of the console, in this process and without its server.

Decides the object that `--json` prints, and how often a terminal gets a new one. Findings, rows and lists are
the console's own (`Watcher`, `Extension`); nothing is computed here. Soft state: theirs.

Source: docs/operate/console.md, "In a terminal".
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from quorum.config.dialling import DEFAULT_ADMIN_URLS
from quorum.console.extension import Extension, Lists, extensions
from quorum.console.upstream import NodeRefusalError, Upstream, upstream
from quorum.console.watching import Overview, Watcher, overview_fields
from quorum.doctor.doctor import Scope
from quorum.errors import QuorateError, UnreachableError

#: how long brokers have for the first answer of all
PATIENCE_S: Final = 10.0
#: how long a live frame waits for a new one of theirs
LIVE_PATIENCE_S: Final = 0.5
#: between two frames: at least, and at most
PACE_S: Final = 0.2
REFRESH_S: Final = 2.0
#: what the console sends as text, because JavaScript rounds large numbers
_EXACT: Final = frozenset(("term", "commit_index", "zxid", "lag", "records"))


class _Cluster(NamedTuple):
    """What is asked."""

    nodes: Upstream
    added: Sequence[Extension]
    watcher: Watcher

    async def fields(self, overview: Overview, patience_s: float) -> dict[str, Any]:
        """Return the object of a frame."""
        zxid = max((int(str(each["zxid"] or 0)) for each in overview.nodes), default=0)
        fields = overview_fields(overview, zxid)
        lists = Lists()
        if overview.source != "gone":
            for each in self.added:
                try:
                    lists = await each.lists(self.nodes, patience_s)
                except (QuorateError, NodeRefusalError) as error:
                    lists = Lists(problem=str(error))
        del fields["number"]
        return {name: _plain(name, value) for name, value in {**fields, **lists._asdict()}.items()}


@contextlib.asynccontextmanager
async def _asking(scope: Scope) -> AsyncIterator[_Cluster]:
    added = extensions(scope.bootstrap, records=False)
    async with upstream(scope.admin or DEFAULT_ADMIN_URLS) as nodes:
        try:
            yield _Cluster(nodes, added, Watcher(nodes, scope, added, named=bool(scope.admin)))
        finally:
            for each in added:
                await each.close()


async def look_once(scope: Scope) -> dict[str, Any]:
    """Read the cluster once.

    Returns:
        The fields of the console's overview, and `topics`, `groups` and `problem` as Lists has them.

    Raises:
        UnreachableError: no node answers.
    """
    async with _asking(scope) as cluster:
        overview = await cluster.watcher.look()
        if overview.source == "gone":
            worst = overview.found.findings[0]
            raise UnreachableError(worst.what, worst.remedy)
        return await cluster.fields(overview, PATIENCE_S)


async def look_again(scope: Scope, draw: Callable[[Mapping[str, Any]], None]) -> None:
    """Read the cluster and draw it, at each change and every few seconds, until cancelled.

    Args:
        scope: which cluster.
        draw: takes the object of `look_once`.
    """
    async with _asking(scope) as cluster:
        overview = await cluster.watcher.look()
        draw(await cluster.fields(overview, LIVE_PATIENCE_S))
        newest = max((int(str(each["zxid"] or 0)) for each in overview.nodes), default=0)
        watching = asyncio.create_task(cluster.watcher.run(newest + 1))
        try:
            with cluster.watcher.listening() as listener:
                while listener is not None and not watching.done():
                    begun_s = time.monotonic()
                    fresh = asyncio.create_task(cluster.watcher.fresh())
                    await asyncio.wait({fresh, watching}, return_when=asyncio.FIRST_COMPLETED)
                    if not fresh.done():
                        fresh.cancel()
                        break
                    draw(await cluster.fields(fresh.result(), LIVE_PATIENCE_S))
                    took_s = time.monotonic() - begun_s
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(max(REFRESH_S, 2 * took_s)):
                            await listener.news.wait()
                    listener.take()
                    await asyncio.sleep(max(PACE_S, took_s))
            await watching
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)


def _plain(name: str, value: object) -> object:
    """Turn exact numbers into numbers, wherever they stand."""
    if isinstance(value, Mapping):
        return {key: _plain(key, each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain("", each) for each in value]
    return int(value) if name in _EXACT and isinstance(value, str) else value
