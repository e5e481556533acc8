"""Operations of a recorded history: what a client asked, when, and what it learned.

A history is lines of JSON, two for each operation: its invocation, and its completion as `ok`, `fail` (it had
no effect, for certain) or `unknown`. An operation whose completion is missing is unknown. A process may have
several operations under way; a completion belongs to the oldest open invocation with the same operation, key
and argument. Times are of one monotonic clock. Decides nothing about what is allowed.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import SEEK_END
from pathlib import Path
from typing import Any, Final

OK: Final = "ok"
FAIL: Final = "fail"
UNKNOWN: Final = "unknown"
INVOKE: Final = "invoke"
#: When an operation with an unknown outcome ends: it may take effect at any later time.
NEVER_NS: Final = 2**63 - 1

Line = Mapping[str, Any]


class HistoryError(ValueError):
    """A line that no history can have; says which process and operation."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of one process."""

    process: str
    operation: str
    key: str
    argument: Any
    #: OK, FAIL or UNKNOWN
    outcome: str
    result: Any
    #: of the transaction that wrote, or that was read; 0 where nothing is known
    zxid: int
    #: which node answered; "" where nothing is known
    node: str
    invoked_ns: int
    #: NEVER_NS while the outcome is unknown
    completed_ns: int

    def __str__(self) -> str:
        """Return one line for a counter-example."""
        end = "…" if self.completed_ns == NEVER_NS else f"{self.completed_ns / 1e6:.1f}"
        what = f"{self.operation} {self.key} {json.dumps(self.argument)}"
        return f"[{self.invoked_ns / 1e6:.1f} {end}] {self.process}: {what} -> {self.outcome} {self.result}"


def pair(lines: Iterable[Line]) -> list[Operation]:
    """Put invocations and completions together; by rising time of invocation.

    Args:
        lines: of any number of processes; those of one process in the order in which they were written.
    """
    open_ones: dict[tuple[str, str, str, str], list[Line]] = {}
    operations: list[Operation] = []
    for line in lines:
        name = (line["process"], line["operation"], line["key"], json.dumps(line["argument"]))
        if line["type"] == INVOKE:
            open_ones.setdefault(name, []).append(line)
            continue
        if line["type"] not in (OK, FAIL, UNKNOWN):
            raise HistoryError(f"{line['process']}: the type {line['type']!r} is none of a history's")
        waiting = open_ones.get(name)
        if not waiting:
            raise HistoryError(f"{line['process']}: a completion of {name[1:]} that was never invoked")
        operations.append(_operation(waiting.pop(0), line))
    operations += [_operation(line, None) for waiting in open_ones.values() for line in waiting]
    operations.sort(key=lambda each: (each.invoked_ns, each.process))
    return operations


def _operation(invoked: Line, completed: Line | None) -> Operation:
    outcome = UNKNOWN if completed is None else completed["type"]
    known: Line = (
        completed if completed is not None else {"result": None, "zxid": 0, "node": "", "time_ns": 0}
    )
    return Operation(
        process=invoked["process"],
        operation=invoked["operation"],
        key=invoked["key"],
        argument=invoked["argument"],
        outcome=outcome,
        result=known["result"],
        zxid=known["zxid"],
        node=known["node"],
        invoked_ns=invoked["time_ns"],
        completed_ns=NEVER_NS if outcome == UNKNOWN else known["time_ns"],
    )


def read_lines(path: Path) -> Iterator[Line]:
    """Read a file of JSON lines."""
    with path.open(encoding="utf-8") as file:
        for number, text in enumerate(file, 1):
            try:
                yield json.loads(text)
            except ValueError as error:
                raise HistoryError(f"{path.name}:{number}: {error}") from error


def check_whole(run: Path, files: Iterable[str]) -> None:
    """See that a recorded run has the files that its writer wrote, and that none ends inside a line.

    Args:
        run: its folder.
        files: below the folder.
    """
    for name in files:
        if not (run / name).exists():
            raise HistoryError(f"{name} is missing, which the run wrote")
    for path in (*run.glob("history/*.jsonl"), *run.glob("final.jsonl")):
        if not path.stat().st_size:
            continue
        with path.open("rb") as file:
            file.seek(-1, SEEK_END)
            if file.read(1) != b"\n":
                raise HistoryError(f"{path.name} ends inside a line: it is not JSON")


def read_history(folder: Path) -> list[Operation]:
    """Read all processes of a run."""
    return pair(line for path in sorted(folder.glob("*.jsonl")) for line in read_lines(path))


def by_key(operations: Iterable[Operation]) -> dict[str, list[Operation]]:
    """Sort operations by their key, each list in the given order."""
    found: dict[str, list[Operation]] = {}
    for each in operations:
        found.setdefault(each.key, []).append(each)
    return found
