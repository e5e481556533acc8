"""Looks at the cluster again and again while somebody watches, and tells all who do what is new.

The looks are those of `quorate doctor`, and so are findings and verdict. Nodes are asked twice a second;
what runs on top, which reads long lists, every few seconds and when its records changed, and never for more
than a third of the time. Decides when to look, and what a slow listener gets: the newest state, not every
one. Soft state only.

Source: docs/operate/console.md.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from quorum.console.extension import Extension, Rows
from quorum.console.history import PATHS_MAX, History
from quorum.console.upstream import Upstream
from quorum.doctor.doctor import REST_TIMEOUT_S, Examiner, Looked, Scope, examiners
from quorum.doctor.quorum_look import look_at_quorum
from quorum.health.findings import Report, as_fields, examine, report, skip_all
from quorum.health.process_checks import PROCESS_CHECKS
from quorum.health.quorum_checks import QUORUM_CHECKS
from quorum.health.seen import NodeSeen, ProcessesSeen, QuorumSeen

#: browsers that watch at once
LISTENERS_MAX: Final = 64
#: between two looks at the nodes, and at what runs on top
LOOK_EVERY_S: Final = 0.5
EXAMINE_EVERY_S: Final = 3.0
#: a look that is older is not answered with
FRESH_S: Final = 1.5
#: after the last listener has gone
LINGER_S: Final = 10.0


@dataclass(slots=True, eq=False)
class BrowserListener:
    """What one browser has not been sent yet."""

    news: asyncio.Event = field(default_factory=asyncio.Event)
    #: paths that changed; None: anything may have
    paths: set[str] | None = field(default_factory=set)

    def take(self) -> list[str] | None:
        """Return the paths, and begin anew."""
        found, self.paths = self.paths, set()
        self.news.clear()
        return None if found is None else sorted(found)

    def add(self, paths: Sequence[str] | None) -> None:
        """Note what changed."""
        if self.paths is not None:
            self.paths = None if paths is None else self.paths.union(paths)
            if self.paths is not None and len(self.paths) > PATHS_MAX:
                self.paths = None
        self.news.set()


@dataclass(frozen=True, slots=True)
class Overview:
    """The result of one look.

    Attributes:
        number: rises with each one that differs from the one before.
        at_s: monotonic time of its end.
        source: ok, no-quorum (nodes answer, none leads) or gone (none answers).
    """

    number: int
    at_s: float
    source: str
    found: Report
    nodes: tuple[Mapping[str, object], ...]
    rows: Rows


class Watcher:
    """Looks, and tells."""

    def __init__(
        self, upstream: Upstream, scope: Scope, extensions: Sequence[Extension], *, named: bool
    ) -> None:
        self._upstream = upstream
        self._scope = scope
        self._extensions = extensions
        self._named = named
        self.history = History([each.meaning for each in extensions], self._noticed)
        self._examiners: list[Examiner] = examiners()
        self._listeners: set[BrowserListener] = set()
        self._looked: Sequence[Looked] = ()
        self._rows = Rows()
        self._examined_at_s = float("-inf")
        self._examined_for_s = 0.0
        self._dirty = True
        #: {admin URL: the node that answered there last}
        self._known: dict[str, NodeSeen] = {}
        self._wanted = asyncio.Event()
        self._watched_at_s = float("-inf")
        self._done = asyncio.Condition()
        self.overview: Overview | None = None
        self.closed = False

    async def run(self, from_zxid: int = 0) -> None:
        """Look while somebody watches, and follow the change log from a transaction on, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.history.follow(self._upstream, from_zxid))
            group.create_task(self._look_again_and_again())

    @property
    def watching(self) -> int:
        """How many browsers watch: each has one event stream."""
        return len(self._listeners)

    async def fresh(self) -> Overview:
        """Return a look of now."""
        self._watched_at_s = asked_s = time.monotonic()
        self._wanted.set()
        async with self._done:
            await self._done.wait_for(
                lambda: self.overview is not None and self.overview.at_s > asked_s - FRESH_S
            )
        assert self.overview is not None
        return self.overview

    @contextlib.contextmanager
    def listening(self) -> Iterator[BrowserListener | None]:
        """Yield what a browser is to be told; None: too many watch."""
        if len(self._listeners) >= LISTENERS_MAX:
            yield None
            return
        listener = BrowserListener()
        listener.add(None)
        self._listeners.add(listener)
        self._wanted.set()
        try:
            yield listener
        finally:
            self._listeners.discard(listener)
            self._watched_at_s = time.monotonic()

    def close(self) -> None:
        """Let all listeners end."""
        self.closed = True
        self._tell([])

    def _noticed(self, _zxid: int, paths: Sequence[str] | None) -> None:
        if paths is None or any(each.concerns(path) for path in paths for each in self._extensions):
            self._dirty = True
            if self._listeners:
                self._wanted.set()
        self._tell(paths)

    def _tell(self, paths: Sequence[str] | None) -> None:
        for listener in self._listeners:
            listener.add(paths)

    async def _look_again_and_again(self) -> None:
        while True:
            begun_s = time.monotonic()
            if not self._listeners and begun_s - self._watched_at_s > LINGER_S:
                self._wanted.clear()
                if self.overview is not None and self._watched_at_s <= self.overview.at_s:
                    await self._wanted.wait()
            await self.look()
            took_s = time.monotonic() - begun_s
            self._wanted.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(LOOK_EVERY_S - took_s, 0.05)):
                    await self._wanted.wait()
            # A cluster whose records change all the time is not looked at all the time.
            await asyncio.sleep(min(0.1, took_s))

    async def look(self) -> Overview:
        """Look once; `run` does it again and again."""
        begun_s = time.monotonic()
        quorum = await look_at_quorum(self._upstream.asker, self._upstream.urls, named=self._named)
        self._known |= {node.process.url: node for node in quorum.nodes}
        since_s = begun_s - self._examined_at_s
        due = since_s > EXAMINE_EVERY_S or (self._dirty and since_s > 0.2)
        if due and since_s > 3 * self._examined_for_s:
            self._dirty = False
            self._looked = await asyncio.gather(*(self._examine(each, quorum) for each in self._examiners))
            for each in self._extensions:
                self._rows = await each.rows(self._upstream, quorum)
            self._examined_at_s = time.monotonic()
            self._examined_for_s = self._examined_at_s - begun_s
        seen = [node.process for node in quorum.nodes]
        seen += [process for looked in self._looked for process in looked.processes]
        processes = examine(PROCESS_CHECKS, ProcessesSeen(tuple(seen), time.time()))
        cluster_id = next((node.cluster_id for node in self._known.values() if node.cluster_id), None)
        looked = (each.examined for each in self._looked)
        terms = self.history.term_rise(int(time.time() * 1000))
        found = report(cluster_id, examine(QUORUM_CHECKS, quorum._replace(terms=terms)), *looked, processes)
        return await self._publish(quorum, found)

    async def _examine(self, examiner: Examiner, quorum: QuorumSeen) -> Looked:
        try:
            async with asyncio.timeout(REST_TIMEOUT_S):
                return await examiner.look(self._upstream.asker, quorum, self._scope)
        except TimeoutError:
            return Looked(skip_all(examiner.CHECKS, f"it took longer than {REST_TIMEOUT_S:g} s"))

    async def _publish(self, quorum: QuorumSeen, found: Report) -> Overview:
        leads = any(node.leader_id is not None for node in quorum.nodes)
        newest = max((node for node in quorum.nodes if node.leader_id is not None), key=_term, default=None)
        if newest is not None and newest.leader_id is not None:
            self.history.note_term(_term(newest), newest.leader_id, int(time.time() * 1000))
        source = "ok" if leads else "no-quorum" if quorum.nodes else "gone"
        nodes = tuple(_node_rows(quorum, self._known))
        before = self.overview
        number = before.number if before is not None else 0
        new = (source, found, nodes, self._rows)
        if before is None or (before.source, before.found, before.nodes, before.rows) != new:
            number += 1
        self.overview = Overview(number, time.monotonic(), source, found, nodes, self._rows)
        if before is None or number != before.number:
            self._tell([])
        async with self._done:
            self._done.notify_all()
        return self.overview


def _term(node: NodeSeen) -> int:
    return node.term or 0


def _node_rows(quorum: QuorumSeen, known: Mapping[str, NodeSeen]) -> Iterator[Mapping[str, object]]:
    """Yield one row a node: those that answer, those that were known, and those that others name."""
    answering = {node.node_id: node for node in quorum.nodes}
    gone = {node.node_id: node for node in known.values() if node.node_id not in answering}
    members = {each.node_id: each for node in quorum.nodes for each in node.members}
    for node in quorum.nodes:
        # The leader knows all of them.
        if node.role == "leader":
            members |= {each.node_id: each for each in node.members}
    most = max((node.commit_index or 0 for node in quorum.nodes), default=0)
    for node_id in sorted({*answering, *gone, *members}):
        seen = answering.get(node_id) or gone.get(node_id)
        alive = node_id in answering
        member = members.get(node_id)
        if not alive and node_id in gone and members and member is None:
            # It was removed.
            continue
        role = answering[node_id].role if alive else "unreachable"
        commit = seen.commit_index if seen is not None else None
        yield {
            "id": node_id,
            "role": role if role in _ROLES else "unreachable",
            "voter": member.voter if member is not None else True,
            "url": seen.process.url if seen is not None else None,
            "term": _exact(seen.term if seen is not None else None),
            "commit_index": _exact(commit),
            "zxid": _exact(seen.zxid if seen is not None else None),
            "lag": None if commit is None or not alive else max(0, most - commit),
            "problem": seen.problem if seen is not None and alive else None,
            "version": seen.process.version if seen is not None else None,
        }


_ROLES: Final = ("leader", "follower", "learner", "candidate")


def _exact(number: int | None) -> str | None:
    return None if number is None else str(number)


def overview_fields(overview: Overview, zxid: int) -> dict[str, Any]:
    """Return what GET /api/overview answers."""
    worst = overview.found.findings[0] if overview.found.verdict != "healthy" else None
    fields = as_fields(overview.found)
    return {
        "verdict": overview.found.verdict,
        "check": worst.check if worst is not None else "",
        "sentence": overview.found.sentence,
        "findings": fields["findings"],
        "nodes": [*overview.nodes],
        **overview.rows._asdict(),
        "zxid": str(zxid),
        "source": overview.source,
        "number": overview.number,
        "cluster_id": overview.found.cluster_id,
    }
