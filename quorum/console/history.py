"""Follows the change log of the quorum and keeps an index of it: which znode changed when, what happened.

One reader for the whole console, however many pages are open: it tells everybody who watches that something
was committed, remembers the changes of each znode without its values (a node reads those of any time), and
asks whoever knows what a change means for the events of the timeline. Decides how much is kept. Soft state
only: what is dropped, or was before the node's history begins, is not shown.

Source: docs/clients/spark.md, "Change log".
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgpack

from quorum.changelog.rows import MSGPACK
from quorum.console.upstream import Upstream
from quorum.errors import UnreachableError
from quorum.health.seen import TermRise

#: of all znodes together
CHANGES_MAX: Final = 300_000
EVENTS_MAX: Final = 20_000
DELETED_MAX: Final = 50_000
#: of the times that are kept; older ones stand further apart
MOMENTS_MAX: Final = 50_000
MOMENT_MS: Final = 1_000
#: beginnings of terms, and sessions with a name
TERMS_MAX: Final = 1_000
NAMED_MAX: Final = 10_000
#: over which the rise of the term is counted
TERM_SPAN_MS: Final = 3_600_000
#: paths that one notice names; more of them are "anything"
PATHS_MAX: Final = 200
_PAGE_BYTES: Final = 1 << 20
_WAIT_MS: Final = 10_000
_PAUSE_S: Final = 0.5


class ZnodeChange(NamedTuple):
    """One change of a znode.

    Attributes:
        op: c, u or d.
        version: of its data, as the change log has it.
        size: of its data in bytes.
        session_id: whose request it was; 0: the cluster's own.
    """

    zxid: int
    ts_ms: int
    op: str
    version: int
    size: int
    session_id: int


class TimelineEvent(NamedTuple):
    """Something that happened.

    Attributes:
        kind: as in the timeline: election, controller, broker-up, leader, …
        subject: what it is about, as "broker 2" or "orders-0".
        text: what happened, a few words.
        by: whose request it was, as "broker 1" or "session 0x2"; "": the cluster's own, or the subject's.
    """

    zxid: int
    ts_ms: int
    kind: str
    subject: str
    text: str
    by: str = ""


#: (op, path, data before, data after) → (kind, subject, text) of what a change means
Meaning = Callable[[str, str, bytes | None, bytes | None], Iterable[tuple[str, str, str]]]
#: told (last zxid, paths that changed; None: anything may have)
Notice = Callable[[int, Sequence[str] | None], None]


def session_text(session_id: int) -> str | None:
    """Return how a session is written; None: it is the cluster's own."""
    return f"session 0x{session_id & (2**64 - 1):x}" if session_id else None


class History:
    """What is known of the past."""

    def __init__(self, meanings: Sequence[Meaning], notice: Notice) -> None:
        self._meanings = meanings
        self._notice = notice
        self._changes: dict[str, deque[ZnodeChange]] = {}
        #: paths in the order of their changes, to drop the oldest
        self._order: deque[str] = deque()
        #: {path: zxid} of znodes that are gone, the oldest first, and {parent: the same of its children}
        self._gone: dict[str, int] = {}
        self._gone_below: dict[str, dict[str, int]] = {}
        self.events: deque[TimelineEvent] = deque(maxlen=EVENTS_MAX)
        #: the first transaction that is known, and the last one
        self.first_zxid = 0
        self.last_zxid = -1
        self.first_ts_ms = 0
        self.last_ts_ms = 0
        self._term = 0
        #: (time, term) of the first transaction of each term, rising
        self._terms: deque[tuple[int, int]] = deque(maxlen=TERMS_MAX)
        #: {session id: what registered itself in it}
        self._names: dict[int, str] = {}
        #: (zxid, time) of about one transaction a second, rising
        self._moments: list[tuple[int, int]] = []
        #: whether all that a node has was read once
        self.caught_up = asyncio.Event()

    def changes(self, path: str) -> list[ZnodeChange]:
        """Return the changes of a znode, the newest first."""
        return list(reversed(self._changes.get(path, ())))

    def deleted_at(self, path: str, as_of_zxid: int | None) -> int | None:
        """Return the transaction that deleted a znode which is not there (then), None if it never was."""
        for change in self.changes(path):
            if as_of_zxid is None or change.zxid <= as_of_zxid:
                return change.zxid if change.op == "d" else None
        return None

    def deleted_below(self, path: str, as_of_zxid: int | None) -> dict[str, int]:
        """Return {path: zxid} of the children that were deleted."""
        found = self._gone_below.get(path, {})
        return {
            child: zxid for child, zxid in sorted(found.items()) if as_of_zxid is None or zxid <= as_of_zxid
        }

    def add(self, rows: Iterable[Mapping[str, Any]]) -> list[str]:
        """Take transactions in their order; returns the paths that changed."""
        paths: list[str] = []
        for row in rows:
            zxid, ts_ms = row["zxid"], row["ts"]
            if self.last_zxid < 0 or not self.last_ts_ms:
                self.first_zxid, self.first_ts_ms = zxid, ts_ms
            self.last_zxid, self.last_ts_ms = zxid, ts_ms
            self._add_moment(zxid, ts_ms)
            if row["term"] > self._term:
                if self._term:
                    self.events.append(
                        TimelineEvent(zxid, ts_ms, "election", "quorum", f"term {row['term']} began")
                    )
                self._term = row["term"]
            self._note_when(ts_ms)
            for change in row["changes"]:
                paths.append(change["path"])
                self._add(zxid, ts_ms, row["session_id"], change)
        return paths

    def note_term(self, term: int, leader_id: int, ts_ms: int) -> None:
        """Note who leads, as nodes say it: a term without a transaction is in no record.

        Args:
            term: of the leader.
            leader_id: the leader.
            ts_ms: now, in milliseconds since 1970.
        """
        if not self.caught_up.is_set() or term <= self._term:
            return
        text = f"node {leader_id} leads, term {term} began"
        self.events.append(TimelineEvent(max(self.last_zxid, 0), ts_ms, "election", "quorum", text))
        self._term = term
        self._note_when(ts_ms)

    def term_rise(self, now_ms: int) -> TermRise | str:
        """Return how the term rose in the last hour, or in all that is known if that is less."""
        if not self.caught_up.is_set() or not self._terms:
            return "the change log is not read yet"
        first_ms, before = self._terms[0]
        since_ms = max(now_ms - TERM_SPAN_MS, first_ms)
        for ts_ms, term in self._terms:
            if ts_ms <= since_ms:
                before = term
        return TermRise(before, self._term, max(0, now_ms - since_ms) / 1000)

    def _note_when(self, ts_ms: int) -> None:
        # The founding has no time.
        if ts_ms and (not self._terms or self._terms[-1][1] != self._term):
            self._terms.append((ts_ms, self._term))

    def moment(self, zxid: int) -> int | None:
        """Return about when a transaction was, in milliseconds since 1970."""
        index = bisect_right(self._moments, (zxid, 1 << 63))
        return self._moments[index - 1][1] if index else None

    def _add_moment(self, zxid: int, ts_ms: int) -> None:
        if self._moments and ts_ms < self._moments[-1][1] + MOMENT_MS:
            return
        self._moments.append((zxid, ts_ms))
        if len(self._moments) > MOMENTS_MAX:
            del self._moments[: MOMENTS_MAX // 2 : 2]

    def _add(self, zxid: int, ts_ms: int, session_id: int, change: Mapping[str, Any]) -> None:
        op, path, before, after = change["op"], change["path"], change["before"], change["after"]
        size = len(after or b"")
        self._changes.setdefault(path, deque()).append(
            ZnodeChange(zxid, ts_ms, op, change["version"], size, session_id)
        )
        self._order.append(path)
        if len(self._order) > CHANGES_MAX:
            oldest = self._order.popleft()
            kept = self._changes[oldest]
            kept.popleft()
            if not kept:
                del self._changes[oldest]
        self._note_deleted(op, path, zxid)
        for meaning in self._meanings:
            for kind, subject, text in meaning(op, path, before, after):
                if kind == "broker-up":
                    self._name(session_id, subject)
                by = self._names.get(session_id) or (session_text(session_id) or "")
                by = "" if by == subject else by
                self.events.append(TimelineEvent(zxid, ts_ms, kind, subject, text, by))

    def _name(self, session_id: int, subject: str) -> None:
        self._names[session_id] = subject
        if len(self._names) > NAMED_MAX:
            del self._names[next(iter(self._names))]

    def _note_deleted(self, op: str, path: str, zxid: int) -> None:
        self._forget_gone(path)
        if op == "d":
            self._gone[path] = zxid
            self._gone_below.setdefault(_parent(path), {})[path] = zxid
            if len(self._gone) > DELETED_MAX:
                self._forget_gone(next(iter(self._gone)))

    def _forget_gone(self, path: str) -> None:
        if self._gone.pop(path, None) is not None:
            below = self._gone_below[_parent(path)]
            del below[path]
            if not below:
                del self._gone_below[_parent(path)]

    async def follow(self, upstream: Upstream, from_zxid: int = 0) -> None:
        """Read the change log from a transaction to its end, and then as it grows, until cancelled."""
        while True:
            try:
                answer = await upstream.ask(
                    "/v1/changelog",
                    {
                        "from_zxid": from_zxid,
                        "bytes_max": _PAGE_BYTES,
                        "wait_ms": _WAIT_MS if self.caught_up.is_set() else 0,
                    },
                    accept=MSGPACK,
                    timeout_s=_WAIT_MS / 1000 + 5,
                )
            except UnreachableError:
                await asyncio.sleep(_PAUSE_S)
                continue
            if answer.status == 410:
                first = answer.fields.get("first_retained_zxid")
                from_zxid = first if isinstance(first, int) and first > from_zxid else from_zxid + 1
                continue
            if answer.status != 200:
                await asyncio.sleep(_PAUSE_S)
                continue
            paths = self.add(_unpacked(answer.body))
            if not answer.body:
                self.caught_up.set()
            else:
                from_zxid = self.last_zxid + 1
                self._notice(self.last_zxid, paths if len(paths) <= PATHS_MAX else None)
                # Everybody else has a turn between two pages.
                await asyncio.sleep(0)


def _unpacked(body: bytes) -> Iterator[Mapping[str, Any]]:
    unpacker = msgpack.Unpacker(raw=False, strict_map_key=False, max_buffer_size=len(body) + 1)
    unpacker.feed(body)
    yield from unpacker


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
