"""Small recorded runs for tests, written by the recorder of the chaos runs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.checks.history import read_history, read_lines
from pipeline.checks.suites import judge_workload
from pipeline.checks.verdicts import Verdict
from tests.chaos.recorder import Call, Recorder

#: process, operation, key, argument, result, zxid
Done = tuple[str, str, str, Any, Any, int]


#: What `sound` and `broken` hold something of.
SAMPLED = ("registers", "appends", "bank", "locks", "watches", "epochs", "records", "states")


class RecordedRun:
    """A run that is being written."""

    def __init__(self, folder: Path, workloads: Sequence[str]) -> None:
        self.folder = folder
        self.workloads = list(workloads)
        self.final: list[dict[str, Any]] = []
        self._recorder = Recorder(folder / "history")
        self._processes: dict[str, Any] = {}

    def invoke(self, process: str, operation: str, key: str, argument: Any) -> Call:
        if process not in self._processes:
            self._processes[process] = self._recorder.process(process)
        call: Call = self._processes[process].invoke(operation, key, argument)
        return call

    def done(self, *operations: Done) -> None:
        """Record operations one after the other, each of which succeeds."""
        for process, operation, key, argument, result, zxid in operations:
            self.invoke(process, operation, key, argument).ok(result, zxid=zxid)

    def close(self) -> None:
        self._recorder.close()
        files = [*(f"history/{name}" for name in self._recorder.files), "final.jsonl"]
        record = {"workloads": self.workloads, "began_ns": 0, "files": files}
        (self.folder / "run.json").write_text(json.dumps(record))
        (self.folder / "final.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.final))


def judged(folder: Path) -> list[tuple[str, Verdict]]:
    """Each workload with what a checker says of it, without Spark."""
    operations = read_history(folder / "history")
    final = list(read_lines(folder / "final.jsonl"))
    workloads = json.loads((folder / "run.json").read_text())["workloads"]
    return [(name, verdict) for name in workloads for verdict in judge_workload(name, operations, final)]


def sound(run: RecordedRun) -> None:
    """Record a little of each sampled workload, with nothing wrong."""
    run.done(("w", "create", "register-1", "a", 0, 1), ("w", "write", "register-1", "b", 1, 2))
    lost = run.invoke("u", "write", "register-1", "c")
    run.done(("r", "read", "register-1", None, [1, "b"], 2), ("r", "read", "register-1", None, [2, "c"], 3))
    lost.unknown("no answer")
    run.done(("w", "create", "register-2", "a", 0, 4), ("w", "cas", "register-2", [0, "b"], 1, 5))
    run.invoke("w", "cas", "register-2", [0, "z"]).fail("bad version")
    run.done(("p", "append", "append/p.1", 0, None, 6), ("p", "append", "append/p.1", 1, None, 7))
    run.final += [{"key": "append/p.1", "argument": number, "zxid": 6 + number} for number in (0, 1)]
    accounts = {f"account-{number}": [100, 0] for number in range(1, 6)}
    run.done(("b", "read", "bank", None, accounts, 8))
    run.final.append({"key": "bank", "accounts": accounts})
    run.done(("l", "acquire", "lock", "lease-1", 9, 9), ("l", "write", "lock", 9, None, 10))
    run.done(("a", "arm", "watched-1", None, None, 11), ("a", "event", "watched-1", None, None, 12))
    run.final.append({"key": "watched-1", "zxid": 12})
    run.done(("c", "elect", "controller", None, 1, 13))
    run.done(("c", "lead", "state-1", [0, [1, 2, 1, [1, 2]]], 1, 14))
    run.done(("q", "produce", "chaos-0", "q/1", 0, 0), ("q", "produce", "chaos-0", "q/2", 1, 0))
    run.done(("s", "consume", "chaos-0", 0, "q/1", 0))
    run.final += [{"key": "chaos-0", "argument": number - 1, "value": f"q/{number}"} for number in (1, 2)]
    run.done(("o", "state", "published-0", None, [0, [1, 1, 1, [1, 2]]], 15))


def broken(run: RecordedRun) -> None:
    """Record what every check of these must find."""
    run.done(("w", "create", "register-3", "a", 0, 21), ("w", "write", "register-3", "b", 1, 22))
    run.done(("r", "read", "register-3", None, [0, "a"], 21))
    run.done(("p", "append", "append/p.2", 0, None, 23), ("p", "append", "append/p.2", 1, None, 24))
    run.final.append({"key": "append/p.2", "argument": 1, "zxid": 24})
    accounts = {f"account-{number}": [90, 0] for number in range(1, 6)}
    run.done(("b", "read", "bank", None, accounts, 25))
    run.done(("l", "acquire", "lock", "lease-2", 29, 29), ("m", "acquire", "lock", "lease-3", 30, 30))
    run.done(("m", "write", "lock", 30, None, 31), ("l", "write", "lock", 29, None, 32))
    run.done(("a", "event", "watched-2", None, None, 33))
    run.done(("d", "elect", "controller", None, 1, 34))
    run.done(("c", "lead", "state-2", [0, [1, 2, 2, [1, 3]]], 1, 35))
    run.done(("c", "lead", "state-2", [5, [1, 3, 3, [1, 3]]], 3, 36))
    run.done(("q", "produce", "chaos-1", "q/3", 0, 0), ("q", "produce", "chaos-1", "q/4", 1, 0))
    run.done(("q", "produce", "chaos-1", "q/5", 2, 0), ("s", "consume", "chaos-1", 2, "q/5", 0))
    for offset, value in enumerate(("q/4", "q/4", "q/3")):
        run.final.append({"key": "chaos-1", "argument": offset, "value": value})
    run.done(("o", "state", "published-1", None, [0, [1, 3, 1, [1, 2]]], 37))
