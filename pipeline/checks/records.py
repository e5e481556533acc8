"""Records with acks=all from idempotent producers: none lost, none twice, in order, and no reader was misled.

A key is a partition. `produce` has the argument "producer/number", numbers rising in the order in which a
producer sent to that partition, and the offset as result (null: the client does not know it); `consume` has
an offset as argument and the value as result. Final state: one line a record, `{key, argument: offset,
value}`. A produce that was not acknowledged may be there, once, or not.
Source: docs/internals/simulation.md, "What is checked"; KIP-98 (idempotent producer).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import FAIL, OK, Line, Operation
from pipeline.checks.verdicts import Verdict, judge

CHECK_ONCE: Final = "records exactly once"
CHECK_ORDER: Final = "order per partition"
CHECK_READERS: Final = "readers and the final log"

#: {partition: {offset: value}}
Logs = dict[str, dict[int, str]]


def check_records(operations: Sequence[Operation], final: Iterable[Line]) -> list[Verdict]:
    """Compare what producers and readers learned with what the partitions hold."""
    logs: Logs = {}
    for line in final:
        logs.setdefault(line["key"], {})[line["argument"]] = line["value"]
    produced = [each for each in operations if each.operation == "produce"]
    consumed = [each for each in operations if each.operation == "consume" and each.outcome == OK]
    records = sum(len(log) for log in logs.values())
    return [
        judge(CHECK_ONCE, len(produced), _once(produced, logs)),
        judge(CHECK_ORDER, records, _order(logs)),
        judge(CHECK_READERS, len(consumed), _readers(consumed, logs)),
    ]


def _once(produced: Sequence[Operation], logs: Logs) -> Iterator[str]:
    places: dict[tuple[str, str], list[int]] = {}
    for key, log in logs.items():
        for offset, value in log.items():
            places.setdefault((key, value), []).append(offset)
    asked = {(each.key, each.argument) for each in produced}
    for each in produced:
        offsets = places.get((each.key, each.argument), [])
        name = f"{each.key}: {each.argument}"
        if each.outcome == OK and not offsets:
            yield f"{name} was acknowledged at offset {each.result} and is lost"
        elif len(offsets) > 1:
            yield f"{name} is there {len(offsets)} times, at {offsets}"
        elif each.outcome == OK and each.result not in (None, *offsets):
            yield f"{name} was acknowledged at offset {each.result} and is at {offsets[0]}"
        elif each.outcome == FAIL and offsets:
            yield f"{name} failed for certain and is at {offsets[0]}"
    for key, value in places:
        if (key, value) not in asked:
            yield f"{key}: {value} is there and nobody produced it"


def _order(logs: Logs) -> Iterator[str]:
    for key, log in logs.items():
        last: dict[str, int] = {}
        for offset in sorted(log):
            producer, _, number = log[offset].rpartition("/")
            if int(number) <= last.get(producer, -1):
                yield f"{key}: {log[offset]} at offset {offset} comes after {producer}/{last[producer]}"
            last[producer] = int(number)


def _readers(consumed: Sequence[Operation], logs: Logs) -> Iterator[str]:
    for each in consumed:
        found = logs.get(each.key, {}).get(each.argument)
        if found != each.result:
            yield f"{each.key}: {each.process} read {each.result} at {each.argument}, where {found} is"
