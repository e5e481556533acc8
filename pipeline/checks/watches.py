"""One-shot watches: none fires without a change or twice, none is lost, none is later than its change.

`arm` reads a node and leaves a watch, `peek` reads it without one; the zxid of both is the last change that
they showed. `event` is the watch firing, with the zxid of the change. `gone` says that the session ended, and
with it the watch. The operations of a process on a key come one after the other. Final state: one line a key,
`{key, zxid}`, the last change of all.
Source: docs/internals/simulation.md, "What is checked"; ZooKeeper programmer's guide (watches).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pipeline.checks.history import OK, Line, Operation
from pipeline.checks.verdicts import Verdict, judge

CHECK: Final = "watches"


def check_watches(operations: Sequence[Operation], final: Iterable[Line]) -> Verdict:
    """Judge every process and key on its own."""
    last = {line["key"]: line["zxid"] for line in final}
    groups: dict[tuple[str, str], list[Operation]] = {}
    for each in operations:
        groups.setdefault((each.process, each.key), []).append(each)
    problems: list[str] = []
    for (process, key), history in groups.items():
        known = [each for each in history if each.outcome == OK]
        known.sort(key=lambda each: each.completed_ns)
        problems += [f"{process} {key}: {problem}" for problem in _problems(known, last.get(key, 0))]
    return judge(CHECK, len(operations), problems)


def _problems(history: Sequence[Operation], last: int) -> Iterator[str]:
    #: zxid that the armed watch has shown; None while none is armed
    armed: int | None = None
    #: the last change that was read, and the last event
    read, event = 0, (0, 0)
    for each in history:
        if each.operation == "gone":
            armed, read, event = None, 0, (0, 0)
            continue
        if each.operation == "event":
            if armed is None:
                yield f"an event at zxid {each.zxid} without a watch"
            elif 0 < each.zxid <= armed:
                yield f"an event at zxid {each.zxid}, although the watch had shown {armed} already"
            armed, event = None, (each.completed_ns, each.zxid)
            continue
        # A reply that came before an event may reach its caller after it: only a later request must know.
        seen = max(read, event[1] if event[0] < each.invoked_ns else 0)
        if each.zxid < seen:
            yield f"{each.operation} showed zxid {each.zxid} after {seen}"
        if armed is not None and each.zxid > armed:
            yield f"{each.operation} showed zxid {each.zxid} before the event of the watch at {armed}"
        if each.operation == "arm":
            armed = each.zxid
        read = max(read, each.zxid)
    if armed is not None and last > armed:
        yield f"the watch at zxid {armed} never fired, and the last change was at {last}"
