"""Histories written by hand, as clients would have recorded them: the boring parts of checkers' tests.

A story is a list of requests and replies with the zxids and Stats that the test chooses, so also impossible
ones. Times pass by themselves. Source: docs/internals/simulation.md, "What is checked".
"""

from __future__ import annotations

from typing import Any

from tests.simulation.checkers.verdict import judge
from tests.simulation.history import (
    Final,
    FinalNode,
    History,
    Operation,
    Outcome,
    Recorder,
    SessionEvent,
    SessionStep,
    Stat,
    WatchEvent,
)

NO_NODE, BAD_VERSION, NODE_EXISTS, SESSION_EXPIRED = -101, -103, -110, -112
CREATED, DELETED, CHANGED, CHILDREN = 1, 2, 3, 4
TIMEOUT_MS = 4000


def stat(
    czxid: int,
    mzxid: int | None = None,
    version: int = 0,
    *,
    owner: int = 0,
    cversion: int = 0,
    children: int = 0,
    pzxid: int | None = None,
) -> Stat:
    mzxid = czxid if mzxid is None else mzxid
    pzxid = czxid if pzxid is None else pzxid
    return Stat(czxid, mzxid, 0, 0, version, cversion, 0, owner, 1, children, pzxid)


class Client:
    """One process with one session; each call is a request 10 ms after the last thing in the story."""

    def __init__(self, story: Story, process: int) -> None:
        self.recorder = Recorder(process)
        self.story = story
        self.session_id = process
        self.connection = 0

    def step(self, step: SessionStep, *, asked_ms: float | None = None, right: bool = True) -> None:
        now_ms = self.story.pass_time()
        if step in (SessionStep.OPENED, SessionStep.RESUMED) and right:
            self.connection += 1
        asked = now_ms - 5.0 if asked_ms is None else asked_ms
        self.recorder.session(
            SessionEvent(now_ms, step, self.session_id, self.connection, 1, TIMEOUT_MS, asked, right)
        )

    def ask(self, kind: str, path: str = "", argument: Any = None) -> Operation:
        """Invoke only: unknown until it is answered."""
        now_ms = self.story.pass_time()
        return self.recorder.invoke(now_ms, self.session_id, self.connection, 1, kind, path, argument)

    def answer(self, operation: Operation, zxid: int, result: Any = None, err: int = 0) -> None:
        outcome = Outcome.ERROR if err else Outcome.OK
        self.recorder.complete(operation, self.story.pass_time(), outcome, err, zxid, result)

    def do(
        self, kind: str, path: str, argument: Any, zxid: int, result: Any = None, err: int = 0
    ) -> Operation:
        operation = self.ask(kind, path, argument)
        self.answer(operation, zxid, result, err)
        return operation

    def create(self, path: str, value: str, zxid: int, *, flags: int = 0, err: int = 0) -> None:
        owner = self.session_id if flags & 1 else 0
        result = None if err else (path, stat(zxid, owner=owner))
        self.do("create", path, (value, flags), zxid, result, err)

    def put(
        self, path: str, value: str, zxid: int, shown: Stat | None, *, expected: int = -1, err: int = 0
    ) -> None:
        self.do("set", path, (value, expected), zxid, shown, err)

    def get(self, path: str, zxid: int, value: str, shown: Stat, *, watch: bool = False) -> None:
        self.do("get", path, watch, zxid, (value, shown))

    def gone(self, path: str, zxid: int, *, kind: str = "get", watch: bool = False) -> None:
        self.do(kind, path, watch, zxid, None, NO_NODE)

    def event(self, event_type: int, path: str, zxid: int) -> None:
        now_ms = self.story.pass_time()
        self.recorder.watch(WatchEvent(now_ms, self.session_id, self.connection, event_type, path, zxid))


class Story:
    """A run; sessions cost the zxids 1, 2, …"""

    def __init__(self, clients: int = 2) -> None:
        self.now_ms = 0.0
        self.clients = [Client(self, process) for process in range(1, clients + 1)]
        for client in self.clients:
            client.step(SessionStep.OPENED)
        self.finals: list[Final] = []

    def pass_time(self, ms: float = 10.0) -> float:
        self.now_ms += ms
        return self.now_ms

    def end(self, zxid: int, nodes: dict[str, tuple[str, Stat]], *sessions: int) -> None:
        shown = {path: FinalNode(*node) for path, node in nodes.items()}
        final = Final(1, zxid, shown, dict.fromkeys(sessions, TIMEOUT_MS))
        self.finals = [final, final._replace(node_id=2)]

    def history(self) -> History:
        return History(client.recorder.history for client in self.clients)

    def verdict(self) -> list[str]:
        return sorted({violation.invariant for violation in judge(self.history(), self.finals)})
