"""One run of `quorate import`: copy, follow, cut over.

Decides when a source counts as quiet, what a lost connection to it means, and what is reported. A source that
goes away for a while is waited for; all of it is read again then. Soft state only.

Source: docs/operate/migrate.md.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from quorum.client import ClientError, ConnectionLossError, NoServerError, SessionExpiredError
from quorum.client.sasl import Login
from quorum.importing.errors import ImportFailedError
from quorum.importing.files import FileSource, read_lifetimes
from quorum.importing.rounds import ImportRounds, ReadTotals, digest_of
from quorum.importing.source import PATIENCE_S, Lifetimes, LiveSource
from quorum.importing.target import ImportTarget
from quorum.platform.tls import MakeContext

#: how often progress is reported
REPORT_EVERY_S: Final = 1.0
_AGAIN_AFTER_S: Final = 0.2
#: what a connection that was lost shows as
_LOST: Final = (ConnectionLossError, SessionExpiredError, NoServerError)

#: takes one line of the report
Report = Callable[[Mapping[str, object]], None]


class Wanted(NamedTuple):
    """What one run is to do.

    Attributes:
        hosts: of a live source; "": none.
        files: dataDir of a server of the source, if it is named.
        credentials: (scheme, credential) that prove a super user of the source.
        admin_urls: of the target.
        quiet_s, timeout_s: how long the source must not change, and how long that is waited for.
        logs: dataLogDir of that server, where it is another folder.
        tls, sasl: how a live source is dialled, and what is proved to it on every connection.
    """

    hosts: str
    files: Path | None
    credentials: Sequence[tuple[str, bytes]]
    admin_urls: Sequence[str]
    cutover: bool
    quiet_s: float
    timeout_s: float
    tls: MakeContext | None = None
    sasl: Login | None = None
    logs: Path | None = None


async def run_import(wanted: Wanted, report: Report, stop: asyncio.Event) -> None:
    """Carry out one run; without a cutover until `stop` is set.

    Raises:
        QuorateError: it cannot go on, and says why; it can be run again.
    """
    if not wanted.hosts:
        await _import_files(wanted, report)
        return
    name = ",".join(sorted({part.strip() for part in wanted.hosts.split(",")}))
    target = ImportTarget(wanted.admin_urls, name)
    source = LiveSource(wanted.hosts, wanted.credentials, wanted.tls, wanted.sasl)
    try:
        await source.start()
        await _LiveImport(wanted, source, target, report).run(stop)
    finally:
        await source.close()


async def _import_files(wanted: Wanted, report: Report) -> None:
    """Import the files of a stopped server, and cut over."""
    assert wanted.files is not None
    begun_s = asyncio.get_running_loop().time()
    source = await asyncio.to_thread(FileSource, wanted.files, wanted.logs)
    digests = {each.node.path: each.node.digest().hex() async for each in source.walk() if not each.owner}
    # The name is kept in the target, and shown. A copy of the files has the same one.
    name = f"files that end at zxid 0x{source.zxid:x} with digest {digest_of(digests)}"
    target = ImportTarget(wanted.admin_urls, name)
    rounds = ImportRounds(source, target)
    await rounds.begin()
    totals = await rounds.copy_all()
    report(await _open(rounds, totals, begun_s, lifetimes_known=True))


async def _open(
    rounds: ImportRounds, totals: ReadTotals, begun_s: float, *, lifetimes_known: bool
) -> Mapping[str, object]:
    """Compare both trees and open the target; return the last line of the report."""
    compared = await rounds.compare(totals)
    source_zxid, next_zxid = await rounds.open()
    lifetimes = {
        "containers": totals.containers if lifetimes_known else None,
        "ttl_nodes": totals.ttl_nodes if lifetimes_known else None,
    }
    seconds = round(asyncio.get_running_loop().time() - begun_s, 3)
    zxids = {"source_zxid": source_zxid, "next_zxid": next_zxid}
    return {"phase": "done", **compared, **lifetimes, **zxids, "seconds": seconds}


class _LiveImport:
    """An import from a live source."""

    def __init__(self, wanted: Wanted, source: LiveSource, target: ImportTarget, report: Report) -> None:
        self._wanted = wanted
        self._source = source
        self._rounds = ImportRounds(source, target)
        self._report = report
        self._phase = "copying"
        self._loop = asyncio.get_running_loop()

    async def run(self, stop: asyncio.Event) -> None:
        """Copy, then follow until `stop` is set, or cut over."""
        begun_s = self._loop.time()
        await self._rounds.begin()
        reporting = asyncio.ensure_future(self._keep_reporting())
        work = asyncio.ensure_future(self._cut_over(begun_s) if self._wanted.cutover else self._follow())
        stopping = asyncio.ensure_future(stop.wait())
        tasks = (work, stopping, reporting)
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                if not task.done():
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
        if not work.cancelled():
            self._report(work.result())
        elif not reporting.cancelled():
            # Its output cannot be written.
            reporting.result()
        elif self._rounds.opening:
            problem = "the cutover was interrupted while it opened the target: whether it is open is unknown"
            remedy = "if `import_source` of GET /v1/status is null, clients may write; else run it again"
            raise ImportFailedError(problem, remedy)
        elif self._wanted.cutover:
            remedy = "run it again: it goes on where it was, and the target stays closed until then"
            raise ImportFailedError("the cutover was interrupted", remedy)

    async def _keep_reporting(self) -> None:
        while True:
            self._tell()
            await asyncio.sleep(REPORT_EVERY_S)

    def _tell(self) -> None:
        source = self._source
        behind, zxid = source.behind, source.zxid
        self._report(
            {"phase": self._phase, "nodes": self._rounds.nodes, "behind": behind, "source_zxid": zxid}
        )

    async def _copy(self) -> ReadTotals:
        """Read everything and write what differs, however often the source goes away meanwhile."""
        while True:
            try:
                self._source.missed = False
                if self._wanted.files is not None:
                    self._source.lifetimes = await asyncio.to_thread(_lifetimes, self._wanted)
                return await self._rounds.copy_all()
            except _LOST:
                await self._wait_for_source()

    async def _wait_for_source(self) -> None:
        """Have a session at the source again.

        Raises:
            ClientError: it did not come back in time.
        """
        give_up_s = self._loop.time() + PATIENCE_S
        while True:
            try:
                await self._source.refresh()
                await self._source.catch_up()
            except _LOST:
                if self._loop.time() > give_up_s:
                    raise
                await asyncio.sleep(_AGAIN_AFTER_S)
            else:
                return

    async def _take_changes(self) -> None:
        """Write what has changed until now."""
        if self._source.missed:
            self._phase = "copying"
            await self._copy()
            self._phase = "following"
        paths = self._source.take_changes()
        try:
            await self._rounds.sync(self._source, paths)
        except _LOST:
            self._source.missed = True
            await self._wait_for_source()

    async def _follow(self) -> NoReturn:
        await self._copy()
        self._phase = "following"
        while True:
            await self._take_changes()
            await self._source.news.wait()

    async def _cut_over(self, begun_s: float) -> Mapping[str, object]:
        await self._copy()
        self._phase = "following"
        give_up_s = self._loop.time() + self._wanted.timeout_s
        while True:
            await self._until_quiet(give_up_s)
            zxid = self._source.zxid
            # What no watch tells of, and what the files say of nodes that came since.
            totals = await self._copy()
            # An access list that was set meanwhile shows in the zxid alone.
            if await self._is_quiet() and self._source.zxid == zxid:
                break
            if self._loop.time() >= give_up_s:
                raise self._still_changes()
        known = self._wanted.files is not None
        return await _open(self._rounds, totals, begun_s, lifetimes_known=known)

    async def _is_quiet(self) -> bool:
        """Tell whether nothing has changed until now that was not taken."""
        try:
            await self._source.catch_up()
        except ClientError:
            await self._wait_for_source()
        return not self._source.behind and not self._source.missed

    async def _until_quiet(self, give_up_s: float) -> None:
        """Follow until the source has not changed for a while."""
        source = self._source
        while True:
            await self._take_changes()
            now_s = self._loop.time()
            quiet_since_s = now_s - source.changed_s
            if quiet_since_s >= self._wanted.quiet_s and await self._is_quiet():
                return
            if now_s >= give_up_s:
                raise self._still_changes()
            wait_s = min(max(self._wanted.quiet_s - quiet_since_s, 0.01), give_up_s - now_s)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    await source.news.wait()

    def _still_changes(self) -> ImportFailedError:
        where = f", last at {self._source.last_change}" if self._source.last_change else ""
        problem = f"the source still changes after {self._wanted.timeout_s:g} s{where}"
        remedy = "stop what writes there and run the cutover again, or let it wait with --timeout"
        return ImportFailedError(problem, remedy)


def _lifetimes(wanted: Wanted) -> Lifetimes:
    assert wanted.files is not None
    return Lifetimes(read_lifetimes(wanted.files, wanted.logs))
