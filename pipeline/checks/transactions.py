"""Transactions that consume, process and produce: each input once, all of a transaction or nothing, in order.

All operations have the key `transactions`. A record of the output says {tag: of its transaction, number, of:
how many records the transaction has, input: [partition, offset] or null}; inputs of one partition go to one
partition of the output. Operations:

    init      [transactional id, life]          ok: earlier lives of the id are fenced
    commit    [transactional id, life, tag]     ok: committed; fail: aborted for certain; else why
    abort     [transactional id, life, tag]     nobody ever asks to commit this tag
    see       [partition, offset]               a read_committed reader was given the record in the result

A transaction also writes the offset after its last input of a partition into a compacted topic, with the
input partition as key. Final state: `{isolation, partition, offset, record}` of every record of the output,
once for each isolation level; `{committed: {partition: the group's offset}}`; `{replica, inputs, latest:
[[input partition, offset], …]}` of every record that is not aborted, for each replica of a partition of the
compacted topic, which has the keys `inputs`; `{stable: {name of a partition: [last stable offset, high
watermark]}}` when no transaction may be open.
Source: KIP-98, KIP-447.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pipeline.checks.history import FAIL, NEVER_NS, OK, Line, Operation
from pipeline.checks.verdicts import Verdict, judge

CHECK_ONCE: Final = "inputs exactly once"
CHECK_ORDER: Final = "order per input partition"
CHECK_WHOLE: Final = "all of a transaction or nothing"
CHECK_READERS: Final = "read_committed sees what is committed"
CHECK_OFFSETS: Final = "offsets match the output"
CHECK_LATEST: Final = "compacted output"
CHECK_FENCED: Final = "fenced producers"
READ_COMMITTED: Final = "read_committed"
#: A fenced producer hears that it is fenced, not that its transaction is in a wrong state.
_OF_THE_PRESENT_ONE: Final = "INVALID_TXN_STATE"

Record = Mapping[str, Any]
#: (partition, offset)
Place = tuple[int, int]


@dataclass
class _Final:
    #: {isolation level: {place: record}}
    records: dict[str, dict[Place, Record]] = field(default_factory=dict)
    #: {input partition: offset}; empty: not recorded
    committed: dict[int, int] = field(default_factory=dict)
    #: (replica, its keys, (input partition, offset) of each record), of each partition of the compacted topic
    latest: list[tuple[int, list[int], list[tuple[int, int]]]] = field(default_factory=list)
    #: {output partition: (last stable offset, high watermark)}
    stable: dict[str, tuple[int, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, lines: Iterable[Line]) -> _Final:
        found = cls()
        for line in lines:
            if "isolation" in line:
                level = found.records.setdefault(line["isolation"], {})
                level[line["partition"], line["offset"]] = line["record"]
            elif "committed" in line:
                found.committed = {int(key): offset for key, offset in line["committed"].items()}
            elif "latest" in line:
                rows = [(partition, offset) for partition, offset in line["latest"]]
                found.latest.append((line["replica"], line["inputs"], rows))
            else:
                found.stable = {key: (low, high) for key, (low, high) in line["stable"].items()}
        return found

    @property
    def visible(self) -> dict[Place, Record]:
        """What read_committed shows, in the order of each partition."""
        return dict(sorted(self.records.get(READ_COMMITTED, {}).items()))


def check_transactions(operations: Sequence[Operation], lines: Iterable[Line]) -> list[Verdict]:
    """Compare what clients learned with what the output and the group's offsets are in the end."""
    final = _Final.of(lines)
    commits = [each for each in operations if each.operation == "commit"]
    inits = [each for each in operations if each.operation == "init" and each.outcome == OK]
    seen = [each for each in operations if each.operation == "see" and each.outcome == OK]
    inputs = _inputs(final.visible)
    # Each of them has written one record, and more where it had inputs of several partitions.
    wrote = sum(each.outcome == OK for each in commits)
    fewest: dict[tuple[int, ...], int] = {}
    for _, keys, records in final.latest:
        fewest[tuple(keys)] = min(len(records), fewest.get(tuple(keys), len(records)))
    gone = max(wrote - sum(fewest.values()), 0)
    return [
        judge(CHECK_ONCE, len(inputs), _once(inputs)),
        judge(CHECK_ORDER, len(inputs), _order(inputs)),
        judge(CHECK_WHOLE, len(commits), _whole(commits, final.visible)),
        judge(CHECK_READERS, len(seen), [*_final_levels(final), *_readers(commits, seen, final.visible)]),
        judge(CHECK_OFFSETS, len(final.committed), _offsets(inputs, final.committed)),
        judge(CHECK_LATEST, gone, _latest(final)),
        judge(CHECK_FENCED, len(inits), _fenced(commits, inits, final.visible)),
    ]


def _inputs(visible: Mapping[Place, Record]) -> list[tuple[Place, Place]]:
    """(place in the output, place of its input), in the order of the output."""
    return [
        (place, (record["input"][0], record["input"][1]))
        for place, record in visible.items()
        if record["input"] is not None
    ]


def _once(inputs: Sequence[tuple[Place, Place]]) -> Iterator[str]:
    places: dict[Place, list[Place]] = {}
    for place, asked in inputs:
        places.setdefault(asked, []).append(place)
    for asked, found in places.items():
        if len(found) > 1:
            yield f"input {asked} is in the committed output {len(found)} times, at {found}"


def _order(inputs: Sequence[tuple[Place, Place]]) -> Iterator[str]:
    last: dict[int, int] = {}
    for place, (partition, offset) in inputs:
        if offset <= last.get(partition, -1):
            yield f"input {(partition, offset)} at {place} comes after {(partition, last[partition])}"
        last[partition] = offset


def _whole(commits: Sequence[Operation], visible: Mapping[Place, Record]) -> Iterator[str]:
    asked = {each.argument[2]: each for each in commits}
    numbers: dict[str, list[int]] = {}
    sizes: dict[str, int] = {}
    for place, record in visible.items():
        tag = record["tag"]
        numbers.setdefault(tag, []).append(record["number"])
        sizes[tag] = max(record["of"], sizes.get(tag, 0))
        if tag not in asked:
            yield f"{tag}, which nobody asked to commit, is committed at {place}"
    for tag, found in numbers.items():
        if sorted(found) != list(range(sizes[tag])):
            yield f"{tag} has {sizes[tag]} records, and {sorted(found)} of them are committed"
    for tag, each in asked.items():
        if each.outcome == OK and tag not in numbers:
            yield f"{tag} was committed, and none of it is there"
        elif each.outcome == FAIL and tag in numbers:
            yield f"{tag} was aborted for certain, and {sorted(numbers[tag])} of it are committed"


def _final_levels(final: _Final) -> Iterator[str]:
    """Compare the two isolation levels, and find transactions that never ended."""
    everything = final.records.get("read_uncommitted", {})
    for place, record in final.visible.items():
        if everything.get(place) != record:
            yield f"{place}: read_committed gives {record}, read_uncommitted {everything.get(place)}"
    for partition, (stable, end) in final.stable.items():
        if stable != end:
            yield f"partition {partition}: the last stable offset stays at {stable} of {end}"


def _readers(
    commits: Sequence[Operation], seen: Sequence[Operation], visible: Mapping[Place, Record]
) -> Iterator[str]:
    asked_ns = {each.argument[2]: each.invoked_ns for each in commits}
    #: {(reader, partition): offsets in the order in which it got them}
    got: dict[tuple[str, int], list[int]] = {}
    for each in seen:
        place = (each.argument[0], each.argument[1])
        if visible.get(place) != each.result:
            yield f"{each.process} was given {each.result} at {place}, where {visible.get(place)} is"
        elif each.completed_ns < asked_ns.get(each.result["tag"], NEVER_NS):
            yield f"{each.process} was given {each.result} at {place} before anybody asked to commit it"
        got.setdefault((each.process, place[0]), []).append(place[1])
    for (reader, partition), offsets in got.items():
        if offsets != sorted(set(offsets)):
            yield f"{reader}: offsets of partition {partition} do not rise"
        passed = {
            offset for mine, offset in visible if mine == partition and min(offsets) < offset < max(offsets)
        }
        for offset in sorted(passed - set(offsets)):
            yield f"{reader} was not given {visible[partition, offset]} at {(partition, offset)}"


def _offsets(inputs: Sequence[tuple[Place, Place]], committed: Mapping[int, int]) -> Iterator[str]:
    processed: dict[int, set[int]] = {}
    for _, (partition, offset) in inputs:
        processed.setdefault(partition, set()).add(offset)
    for partition, offset in committed.items():
        mine, wanted = processed.get(partition, set()), set(range(max(offset, 0)))
        if missing := sorted(wanted - mine):
            yield f"input partition {partition}: {offset} is committed, {missing} are not in the output"
        if early := sorted(mine - wanted):
            yield f"input partition {partition}: {offset} is committed, {early} are in the output"


def _latest(final: _Final) -> Iterator[str]:
    """Compare the last record of each key with the offset that was committed together with it."""
    for replica, keys, records in final.latest:
        last: dict[int, int] = {}
        for partition, offset in records:
            if offset <= last.get(partition, -1):
                yield f"replica {replica}, input partition {partition}: {offset} follows {last[partition]}"
            last[partition] = offset
        for partition in keys:
            offset, found = final.committed.get(partition, -1), last.get(partition, -1)
            if found != offset:
                where = f"replica {replica}, input partition {partition}"
                yield f"{where}: {offset} is committed, {found} is last"


def _fenced(
    commits: Sequence[Operation], inits: Sequence[Operation], visible: Mapping[Place, Record]
) -> Iterator[str]:
    """Find what a life committed, though it asked only when a later life of its id had begun."""
    tags = {record["tag"] for record in visible.values()}
    began_ns = {(each.argument[0], each.argument[1]): each.completed_ns for each in inits}
    for each in commits:
        name, life, tag = each.argument
        later = [
            one.argument[1]
            for one in inits
            if one.argument[0] == name
            and one.invoked_ns > began_ns.get((name, life), NEVER_NS)
            and one.completed_ns < each.invoked_ns
        ]
        if later and (each.outcome == OK or tag in tags):
            yield f"{tag} was committed by life {life} of {name}, after life {later[0]} had begun"
        elif later and _OF_THE_PRESENT_ONE in str(each.result):
            yield f"{tag}: life {life} of {name} was taken for life {later[0]}, which had begun"
