"""Writes histories while they happen: two lines an operation, one file a process.

A client in a process of its own prints its lines, and the recorder of the run takes them from there.
Also keeps what nemeses ask: how many operations are under way, how many were answered, and how long the last
ones took. Times are of the monotonic clock, which all processes of a machine share.
Source: docs/internals/reliability.md, "Workloads and what judges them".
"""

from __future__ import annotations

import json
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import IO, Any, Final

from pipeline.checks.history import FAIL, INVOKE, OK, UNKNOWN

#: Answers whose latencies are remembered.
LATENCIES_MAX: Final = 5000
#: What takes less was only noted, as a record that a reader received; nobody was asked.
NOTED_NS: Final = 100_000
#: Fewer latencies than this say nothing.
FEW: Final = 4


class Call:
    """One operation under way; exactly one of its methods ends it."""

    def __init__(self, recorder: Recorder, file: IO[str], line: dict[str, Any], *, asks: bool) -> None:
        self._recorder = recorder
        self._file = file
        self._line = line
        self._asks = asks

    def ok(self, result: Any, *, zxid: int = 0, node: str = "") -> None:
        """It had its effect, and this is its result."""
        self._end(OK, result, zxid, node)

    def fail(self, result: Any = None, *, zxid: int = 0, node: str = "") -> None:
        """It had no effect, for certain."""
        self._end(FAIL, result, zxid, node)

    def unknown(self, result: Any = None) -> None:
        """Nobody knows whether it had its effect, or will have it."""
        self._end(UNKNOWN, result, 0, "")

    def _end(self, outcome: str, result: Any, zxid: int, node: str) -> None:
        now_ns = time.monotonic_ns()
        line = {
            **self._line,
            "type": outcome,
            "result": result,
            "zxid": zxid,
            "node": node,
            "time_ns": now_ns,
        }
        self._recorder.ended(id(self), outcome, self._line["time_ns"] if self._asks else now_ns, now_ns)
        self._recorder.write(self._file, line)


class Process:
    """The history of one client."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.name = name
        self._recorder = recorder
        self._file = recorder.open(name)

    def invoke(self, operation: str, key: str, argument: Any, *, asks: bool = True) -> Call:
        """Record that an operation begins.

        Args:
            operation: its name.
            key: what it is about.
            argument: what it is given.
            asks: a server shall answer; otherwise it lasts as long as it lasts, and its time says nothing.
        """
        line = {
            "process": self.name,
            "operation": operation,
            "key": key,
            "argument": argument,
            "type": INVOKE,
            "result": None,
            "zxid": 0,
            "node": "",
            "time_ns": time.monotonic_ns(),
        }
        call = Call(self._recorder, self._file, line, asks=asks)
        if asks:
            self._recorder.began(id(call), line["time_ns"])
        self._recorder.write(self._file, line)
        return call


class Recorder:
    """All histories of a run; its processes may live in several threads."""

    def __init__(self, folder: Path | None) -> None:
        """Write into a folder, which is made; None: to the standard output, for `take`."""
        self.folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._files: list[IO[str]] = []
        #: their names
        self.files: list[str] = []
        #: {operations under way: when they began}
        self._began: dict[Hashable, int] = {}
        #: {outcome: how many operations}
        self.counts = {OK: 0, FAIL: 0, UNKNOWN: 0}
        #: (time of the answer, latency) of the last operations that were asked and succeeded
        self._latencies: deque[tuple[int, int]] = deque(maxlen=LATENCIES_MAX)

    def process(self, name: str) -> Process:
        """Begin the history of a client with a name of its own."""
        return Process(self, name)

    def open(self, name: str) -> IO[str]:
        """Open the file of a process."""
        if self.folder is None:
            return sys.stdout
        file = (self.folder / f"{name}.jsonl").open("x", encoding="utf-8")
        self._files.append(file)
        self.files.append(f"{name}.jsonl")
        return file

    def write(self, file: IO[str], line: dict[str, Any]) -> None:
        """Append a line."""
        with self._lock:
            if not file.closed:
                file.write(json.dumps(line) + "\n")

    def take(self, name: str, lines: Iterable[str]) -> None:
        """Write the history of a client that prints it, line by line, until it ends."""
        file = self.open(name)
        began: dict[Hashable, int] = {}
        try:
            for text in lines:
                line = json.loads(text)
                call: Hashable = (name, line["operation"], json.dumps(line["argument"]))
                if line["type"] == INVOKE:
                    began[call] = line["time_ns"]
                    self.began(call, line["time_ns"])
                else:
                    self.ended(call, line["type"], began.pop(call), line["time_ns"])
                self.write(file, line)
        finally:
            for left in began:
                self.forget(left)

    @property
    def under_way(self) -> int:
        """How many operations have no outcome yet."""
        return len(self._began)

    def oldest_s(self) -> float:
        """How long the oldest operation under way has been waiting, seconds."""
        with self._lock:
            return (time.monotonic_ns() - min(self._began.values(), default=time.monotonic_ns())) / 1e9

    def began(self, call: Hashable, began_ns: int) -> None:
        """Count an operation."""
        with self._lock:
            self._began[call] = began_ns

    def ended(self, call: Hashable, outcome: str, began_ns: int, ended_ns: int) -> None:
        """Count its end."""
        with self._lock:
            self._began.pop(call, None)
            self.counts[outcome] += 1
            if outcome == OK and ended_ns - began_ns > NOTED_NS:
                self._latencies.append((ended_ns, ended_ns - began_ns))

    def forget(self, call: Hashable) -> None:
        """Count an operation no more: its client is gone."""
        with self._lock:
            self._began.pop(call, None)

    def latency_ms(self, since_ns: int, until_ns: int) -> float | None:
        """What a quarter of the operations that succeeded in a time exceeded; None if there were too few."""
        with self._lock:
            found = [took for ended, took in self._latencies if since_ns <= ended <= until_ns]
        return statistics.quantiles(found, n=4)[-1] / 1e6 if len(found) >= FEW else None

    def close(self) -> None:
        """Close all files; what is still under way stays without completion, which means unknown."""
        with self._lock:
            for file in self._files:
                file.close()
