"""Keys of compacted topics: each has its newest acknowledged value or a newer one; no dead one comes back.

A key is a key of a topic; one producer at a time writes it. `write` and `delete` (a tombstone) have a number
as argument that no other has, and the offset as result. `scan` reads the topic from its begin to the end that
it has then; its argument is how long tombstones stay, milliseconds, null for ever, and its result the last
[offset, number] of the key, where the number of a tombstone is null, or null where there is none. Final
state: one line a replica, `{key, replica, retention_ms, records: [[offset, number], …]}`.

A write with an unknown outcome may be the newest one at any time. A scan that takes longer than tombstones
stay may see a value and not its end.
Source: KIP-534; Kafka's documentation, "Log Compaction".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import OK, UNKNOWN, Line, Operation, by_key
from pipeline.checks.verdicts import Verdict, judge

CHECK_NEWEST: Final = "newest value of each key"
CHECK_SCANS: Final = "no value comes back"
CHECK_AGREE: Final = "replicas agree by state"
#: judged are the records that are gone: without one, nothing was compacted
CHECK_REMOVED: Final = "records that are left"

#: (offset, number; None: a tombstone)
Stored = tuple[int, int | None]


class _Key:
    """What is known of the writes of one key."""

    def __init__(self, name: str, operations: Sequence[Operation]) -> None:
        self.name = name
        self.scans = [each for each in operations if each.operation == "scan" and each.outcome == OK]
        wrote = [each for each in operations if each.operation in ("write", "delete")]
        self._acknowledged = sorted(
            (each for each in wrote if each.outcome == OK), key=lambda each: each.completed_ns
        )
        self._unknown = [each for each in wrote if each.outcome == UNKNOWN]
        self._ends_ns = [each.completed_ns for each in self._acknowledged]
        #: the newest of the first one, two, … that were acknowledged
        self._newest: list[Operation] = []
        for each in self._acknowledged:
            newest = self._newest[-1] if self._newest else each
            self._newest.append(max(newest, each, key=lambda one: int(one.result)))
        self.at = {int(each.result): each for each in self._acknowledged}

    def newest(self, before_ns: int | None = None) -> Operation | None:
        """The newest write that was acknowledged before a time."""
        count = len(self._ends_ns) if before_ns is None else bisect_left(self._ends_ns, before_ns)
        return self._newest[count - 1] if count else None

    def wrong(self, found: Stored | None, before: Operation | None, *, may_be_gone: bool) -> str:
        """Say why this cannot be the last record, if `before` was acknowledged before; "" if it can."""
        if found is None:
            if before is None or (may_be_gone and self._may_be_deleted(before)):
                return ""
            return (
                f"{before.operation} {before.argument} was acknowledged at {before.result}, nothing is there"
            )
        offset, number = found
        if before is not None and offset < before.result:
            what = f"{before.operation} {before.argument} was acknowledged at {before.result}"
            return f"{what}, {number} at {offset} is the last one"
        return self.strange(found)

    def _may_be_deleted(self, before: Operation) -> bool:
        """Whether the end of the key may be the last that happened, as of `before` or later."""
        later = [each for each in self._acknowledged if each.result > before.result]
        return any(each.operation == "delete" for each in (before, *later, *self._unknown))

    def strange(self, found: Stored) -> str:
        """Say why nobody can have written this record; "" if somebody may have."""
        offset, number = found
        known = self.at.get(offset)
        candidates = self._unknown if known is None else [known]
        if any(number == (each.argument if each.operation == "write" else None) for each in candidates):
            return ""
        if known is not None:
            return f"{known.operation} {known.argument} was acknowledged at {offset}, where {number} is"
        return f"{number} is at {offset}, and nobody can have written it there"

    @property
    def count(self) -> int:
        """How many writes were acknowledged."""
        return len(self._acknowledged)


def check_compacted(operations: Sequence[Operation], final: Iterable[Line]) -> list[Verdict]:
    """Compare what was acknowledged with what scans saw, and with what each replica has in the end."""
    keys = {name: _Key(name, history) for name, history in by_key(operations).items()}
    lines = [line for line in final if str(line["key"]) in keys]
    gone = sum(max(keys[line["key"]].count - len(line["records"]), 0) for line in lines)
    scans = sum(len(each.scans) for each in keys.values())
    return [
        judge(CHECK_NEWEST, len(lines), _newest(keys, lines)),
        judge(CHECK_SCANS, scans, [text for each in keys.values() for text in _scans(each)]),
        judge(CHECK_AGREE, len(lines), _agree(lines)),
        judge(CHECK_REMOVED, gone, _left(keys, lines)),
    ]


def _last(line: Line) -> Stored | None:
    return tuple(line["records"][-1]) if line["records"] else None


def _newest(keys: dict[str, _Key], lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        key = keys[line["key"]]
        if text := key.wrong(_last(line), key.newest(), may_be_gone=line["retention_ms"] is not None):
            yield f"{key.name}, replica {line['replica']}: {text}"


def _scans(key: _Key) -> Iterator[str]:
    for each in key.scans:
        retention_ms = each.argument
        if retention_ms is not None and each.completed_ns - each.invoked_ns >= retention_ms * 1_000_000:
            continue
        found = None if each.result is None else (each.result[0], each.result[1])
        before = key.newest(each.invoked_ns)
        if text := key.wrong(found, before, may_be_gone=retention_ms is not None):
            yield f"{key.name}: {each.process}, a scan from {each.invoked_ns / 1e6:.1f} ms on: {text}"


def _agree(lines: Sequence[Line]) -> Iterator[str]:
    states: dict[str, dict[int, Stored | None]] = {}
    for line in lines:
        last = _last(line)
        alive = last if last is not None and last[1] is not None else None
        states.setdefault(line["key"], {})[line["replica"]] = alive
    for key, replicas in states.items():
        if len(set(replicas.values())) > 1:
            yield f"{key}: replicas have {replicas}"


def _left(keys: dict[str, _Key], lines: Sequence[Line]) -> Iterator[str]:
    for line in lines:
        for record in line["records"]:
            if text := keys[line["key"]].strange(tuple(record)):
                yield f"{line['key']}, replica {line['replica']}: {text}"
