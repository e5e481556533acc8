"""What clients did and saw: invocations, completions, watch events and the lives of sessions, per process.

Decides the shape of a history, in memory and as JSON lines (one file per process, one array per line, written
as it happens: an operation whose completion is missing is unknown). It judges nothing; that is the checkers'
part. Times are milliseconds of one monotonic clock that all processes share. Values of nodes are text that
its writer never writes twice, so that a value names its write.

| line | fields behind the letter |
|---|---|
| i | number, ms, session, connection, node, kind, path, argument |
| c | number, ms, outcome, err, zxid, result |
| w | ms, session, connection, event type, path, zxid |
| s | ms, what, session, connection, node, timeout, asked, password right |

| kind | argument | result if ok |
|---|---|---|
| create | value, flags | path, Stat or null |
| delete, check (in a multi only) | version | null |
| set | value, version | Stat |
| get | watch | value, Stat |
| exists | watch | Stat |
| children | watch | names, Stat |
| multi | [kind, path, argument] … | [path or null, Stat or null] …; if it failed: the error codes |
| set_watches | relative zxid, data, exist and child paths | null |
| sync, ping, close | null | null |

Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from quorum.wire.jute import Stat

__all__ = [
    "Final",
    "FinalNode",
    "History",
    "Operation",
    "Outcome",
    "Process",
    "Recorder",
    "SessionEvent",
    "SessionStep",
    "Stat",
    "WatchEvent",
]

#: kinds of operations that are transactions of the log with a zxid of their own, also when they fail
WRITES = frozenset(("create", "delete", "set", "multi", "close"))


class Outcome(Enum):
    """What is known about an operation."""

    UNKNOWN = "unknown"  #: no reply came: it may have taken effect, or may still do so, once
    OK = "ok"
    ERROR = "error"  #: the reply carried an error code, which says whether it is definite


class Operation:
    """One request of a client, and its reply as soon as there is one."""

    __slots__ = (
        *("argument", "completed_ms", "connection", "err", "invoked_ms", "kind", "node_id", "number"),
        *("outcome", "path", "process", "result", "session_id", "zxid"),
    )

    def __init__(
        self,
        process: int,
        number: int,
        invoked_ms: float,
        session_id: int,
        connection: int,
        node_id: int,
        kind: str,
        path: str,
        argument: Any,
    ) -> None:
        self.process = process
        self.number = number
        self.invoked_ms = invoked_ms
        self.session_id = session_id
        self.connection = connection
        self.node_id = node_id
        self.kind = kind
        self.path = path
        self.argument = argument
        self.outcome = Outcome.UNKNOWN
        self.err = 0
        self.zxid = 0
        self.result: Any = None
        self.completed_ms = float("inf")

    @property
    def parts(self) -> list[tuple[str, str, Any]]:
        """(kind, path, argument) of each single write that it consists of."""
        if self.kind == "multi":
            return list(self.argument)
        return [(self.kind, self.path, self.argument)]

    def __repr__(self) -> str:
        """Tell the operation in one line, for stories of violations."""
        known = "" if self.outcome is Outcome.UNKNOWN else f", zxid {self.zxid}"
        err = f" {self.err}" if self.err else ""
        return (
            f"{self.process}.{self.number} {self.kind} {self.path} {self.argument} of session "
            f"{self.session_id:#x} on node {self.node_id} at {self.invoked_ms:.1f}.."
            f"{self.completed_ms:.1f} ms: {self.outcome.value}{err}{known} {self.result}"
        )


class WatchEvent(NamedTuple):
    """A watch fired."""

    ms: float
    session_id: int
    connection: int
    event_type: int
    path: str
    zxid: int


class SessionStep(Enum):
    """What happened to a session, as far as its client knows."""

    OPENED = "opened"
    RESUMED = "resumed"
    REFUSED = "refused"  #: the server said that the session is over, or that the password is wrong
    DROPPED = "dropped"  #: a handshake that was not answered: nothing is known
    LOST = "lost"  #: the connection ended


class SessionEvent(NamedTuple):
    """A step in a session's life."""

    ms: float
    step: SessionStep
    #: of a handshake for a new session that was not answered: 0
    session_id: int
    connection: int
    node_id: int
    timeout_ms: int
    #: when the handshake left
    asked_ms: float
    password_right: bool


Received = Operation | WatchEvent | SessionEvent


class Process:
    """The history of one client process."""

    def __init__(self, process: int) -> None:
        self.process = process
        #: by the order of their invocation
        self.operations: list[Operation] = []
        #: completed operations, events and session steps in the order in which the client learned of them
        self.received: list[Received] = []


class Recorder:
    """Writes the history of one process, in memory and, where a sink is given, as lines."""

    def __init__(self, process: int, sink: TextIO | None = None) -> None:
        """Begin an empty history.

        Args:
            process: number of the process, unique in the run.
            sink: gets each line as it happens; stays the caller's.
        """
        self.history = Process(process)
        self._sink = sink
        self._open: dict[int, Operation] = {}

    def invoke(
        self,
        ms: float,
        session_id: int,
        connection: int,
        node_id: int,
        kind: str,
        path: str,
        argument: Any,
    ) -> Operation:
        """Note that a request leaves; returns the operation, which counts as unknown from here."""
        history = self.history
        number = len(history.operations)
        operation = Operation(
            history.process, number, ms, session_id, connection, node_id, kind, path, argument
        )
        history.operations.append(operation)
        if self._sink is not None:
            self._line("i", number, ms, session_id, connection, node_id, kind, path, argument)
        return operation

    def complete(
        self, operation: Operation, ms: float, outcome: Outcome, err: int, zxid: int, result: Any
    ) -> None:
        """Note the reply to an operation."""
        operation.completed_ms = ms
        operation.outcome = outcome
        operation.err = err
        operation.zxid = zxid
        operation.result = result
        self.history.received.append(operation)
        if self._sink is not None:
            self._line("c", operation.number, ms, outcome.value, err, zxid, result)

    def watch(self, event: WatchEvent) -> None:
        """Note that a watch fired."""
        self.history.received.append(event)
        if self._sink is not None:
            self._line("w", *event)

    def session(self, event: SessionEvent) -> None:
        """Note a step in a session's life."""
        self.history.received.append(event)
        if self._sink is not None:
            self._line("s", event.ms, event.step.value, *event[2:])

    def _line(self, *fields: Any) -> None:
        assert self._sink is not None
        self._sink.write(json.dumps(fields, separators=(",", ":")) + "\n")


class FinalNode(NamedTuple):
    """A node in the end."""

    value: str
    stat: Stat


class Final(NamedTuple):
    """What one member holds after everything has settled."""

    node_id: int
    zxid: int
    #: {path: what is there}, without `/` and `/zookeeper`
    nodes: dict[str, FinalNode]
    #: {id of each living session: its timeout}
    sessions: dict[int, int]


class History:
    """The histories of all processes of a run."""

    def __init__(self, processes: Iterable[Process]) -> None:
        self.processes = list(processes)

    @property
    def operations(self) -> Iterator[Operation]:
        """All operations, process by process."""
        for process in self.processes:
            yield from process.operations

    @classmethod
    def read(cls, files: Iterable[Path]) -> History:
        """Read files of JSON lines, one per process; a torn last line is left out.

        Raises:
            ValueError: another line cannot be read, or completes an operation that was never invoked.
        """
        return cls(_read_process(number, file) for number, file in enumerate(files, start=1))


def _read_process(number: int, file: Path) -> Process:
    recorder = Recorder(number)
    text = file.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    for place, line in enumerate(whole.splitlines(), start=1):
        try:
            _replay(recorder, json.loads(line))
        except (ValueError, IndexError, TypeError) as error:
            raise ValueError(f"{file}:{place}: {line[:200]}: {error}") from error
    return recorder.history


def _replay(recorder: Recorder, fields: list[Any]) -> None:
    letter, *rest = fields
    match letter:
        case "i":
            ms, session_id, connection, node_id, kind, path, argument = rest[1:]
            recorder.invoke(ms, session_id, connection, node_id, kind, path, _tuples(argument))
        case "c":
            number, ms, outcome, err, zxid, result = rest
            operation = recorder.history.operations[number]
            recorder.complete(
                operation, ms, Outcome(outcome), err, zxid, _shaped(operation.kind, err, _tuples(result))
            )
        case "w":
            recorder.watch(WatchEvent(*rest))
        case "s":
            recorder.session(SessionEvent(rest[0], SessionStep(rest[1]), *rest[2:]))
        case _:
            raise ValueError(f"{letter!r} begins no line of a history")


def _tuples(value: Any) -> Any:
    """Return JSON's arrays as tuples, as they were written."""
    return tuple(_tuples(each) for each in value) if isinstance(value, list) else value


def _shaped(kind: str, err: int, result: Any) -> Any:
    """Name the fields of the Stats in a result."""
    if err or result is None:
        return result
    if kind in ("set", "exists"):
        return Stat(*result)
    if kind in ("create", "get", "children"):
        return result[0], None if result[1] is None else Stat(*result[1])
    if kind == "multi":
        return tuple((path, None if stat is None else Stat(*stat)) for path, stat in result)
    return result
