"""Makes two transcripts comparable, and finds where they differ.

Session ids become names, times what can be said of them in one system, passwords whether they are the
session's own. Zxids become their distance from the stream's first transaction if nobody else wrote meanwhile
(`dense`); else their rank among the stream's own transactions, and what a read's header says is left out.
Lists whose order is nobody's promise are sorted: children, ephemerals, users, events of a closed session.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import groupby, zip_longest
from typing import Any, Final, NamedTuple

from tests.conformance.differential.player import WRITES, Note, Transcript
from tests.conformance.differential.wire import Connected, Event, Op, Reply, Stat, Zxid

_DAY_MS: Final = 86_400_000
MARSHALLING_ERROR: Final = -5
_SORTED: Final = frozenset({Op.GET_CHILDREN, Op.GET_CHILDREN2, Op.GET_EPHEMERALS, Op.WHO_AM_I})


class Difference(NamedTuple):
    """The first place of a step at which two transcripts part."""

    #: index of the step; the number of steps means the end of the stream
    step: int
    #: what came back as far as both agree, and then on either side
    agreed: tuple[Any, ...]
    theirs: Any
    ours: Any


class Mapping:
    """What the numbers of one transcript mean."""

    def __init__(self, script: Transcript, *, dense: bool) -> None:
        self._script = script
        self._dense = dense
        own = sorted(set(_own_zxids(script)))
        self._ranks = {zxid: rank for rank, zxid in enumerate(own, 1)}
        self._now_ms = time.time() * 1000

    def notes(self, notes: list[Note]) -> list[Any]:
        """Return what came back in one step, comparable."""
        comparable: list[Any] = []
        closing = self._script.closing_zxids
        for zxid, group in groupby(notes, _closing_zxid(closing)):
            shown = [self._note(note) for note in group]
            comparable += sorted(shown) if zxid else shown
        return comparable

    def _note(self, note: Note) -> tuple[Any, ...]:
        what = note.what
        if isinstance(what, Reply):
            header = self._header(note.op, what)
            body = self._value(what.body)
            if note.op in _SORTED and what.err == 0:
                body = _sorted_first(body, whole=note.op in (Op.GET_CHILDREN, Op.GET_EPHEMERALS, Op.WHO_AM_I))
            if note.op == Op.MULTI_READ and isinstance(body, tuple):
                body = tuple(_sorted_result(item) for item in body)
            return (note.session, "reply", _name(note.op), what.xid, header, what.err, body)
        if isinstance(what, Event):
            return (note.session, "event", what.type, what.path, self.zxid(what.zxid), what.err, what.state)
        if isinstance(what, Connected):
            return (note.session, "connected", *self._connected(what))
        return (note.session, what, _name(note.op))

    def _header(self, op: int, reply: Reply) -> Any:
        if not self._dense and reply.zxid > 0 and not is_transaction(op, reply):
            return "any"
        return self.zxid(reply.zxid)

    def _connected(self, what: Connected) -> tuple[Any, ...]:
        name = self._script.names.get(what.session_id, what.session_id)
        password = self._script.passwords.get(what.session_id)
        own = what.password == password if password else len(what.password) if any(what.password) else "zeros"
        return (what.protocol, what.timeout_ms, name, own, what.rest.hex())

    def zxid(self, zxid: int) -> Any:
        """Return what a zxid means."""
        if zxid <= 0:
            return int(zxid)
        if self._dense:
            return f"+{zxid - self._script.first_zxid}"
        return f"#{self._ranks.get(zxid, 'unknown')}"

    def _value(self, value: Any) -> Any:
        if isinstance(value, Stat):
            return self._stat(value)
        if isinstance(value, Zxid):
            return self.zxid(value)
        if isinstance(value, tuple):
            return tuple(map(self._value, value))
        return value

    def _stat(self, stat: Stat) -> tuple[Any, ...]:
        unchanged = stat.czxid == stat.mzxid
        if stat.mtime < stat.ctime or (unchanged and stat.mtime != stat.ctime):
            times = "times that cannot be"
        elif abs(stat.ctime - self._now_ms) > _DAY_MS or abs(stat.mtime - self._now_ms) > _DAY_MS:
            times = "other times"
        else:
            times = "times"
        zxids = tuple(map(self.zxid, (stat.czxid, stat.mzxid, stat.pzxid)))
        owner = self._script.names.get(stat.owner, hex(stat.owner)) if stat.owner else 0
        counters = (stat.version, stat.cversion, stat.aversion)
        return ("stat", zxids, times, counters, owner, stat.size, stat.children)


def _closing_zxid(closing: set[int]) -> Any:
    def key(note: Note) -> int:
        return note.what.zxid if isinstance(note.what, Event) and note.what.zxid in closing else 0

    return key


def _name(op: int) -> str:
    try:
        return Op(op).name.lower() if op else ""
    except ValueError:
        return f"op{op}"


def _sorted_first(body: Any, *, whole: bool) -> Any:
    if not isinstance(body, tuple):
        return body
    if whole:
        return tuple(sorted(body))
    return (tuple(sorted(body[0])), *body[1:])


def _sorted_result(item: Any) -> Any:
    if item[0] == Op.GET_CHILDREN and isinstance(item[2], tuple):
        return (*item[:2], tuple(sorted(item[2])))
    return item


def _own_zxids(script: Transcript) -> Iterator[int]:
    """Every zxid that must be one of the stream's own transactions."""
    yield script.first_zxid
    for notes in script.notes:
        for note in notes:
            what = note.what
            if isinstance(what, Event) and what.zxid > 0:
                yield what.zxid
            elif isinstance(what, Reply):
                if what.zxid > 0 and is_transaction(note.op, what):
                    yield what.zxid
                yield from _zxids_in(what.body)


def is_transaction(op: int, reply: Reply) -> bool:
    """Whether a reply's zxid is that of its own transaction."""
    return op in WRITES and reply.err != MARSHALLING_ERROR


def _zxids_in(value: Any) -> Iterator[int]:
    if isinstance(value, Zxid):
        if value > 0:
            yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from _zxids_in(part)


def differences(theirs: Transcript, ours: Transcript, *, dense: bool) -> Iterator[Difference]:
    """Yield the first difference of every step, in order."""
    left, right = Mapping(theirs, dense=dense), Mapping(ours, dense=dense)
    for index, (their_notes, our_notes) in enumerate(zip(theirs.notes, ours.notes, strict=True)):
        agreed: list[Any] = []
        for one, other in zip_longest(left.notes(their_notes), right.notes(our_notes)):
            if one == other:
                agreed.append(one)
            else:
                yield Difference(index, tuple(agreed), one, other)
                break
