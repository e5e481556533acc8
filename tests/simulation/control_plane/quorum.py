"""The quorum: one log of entries, applied by the real state machine of several nodes, each at its own pace.

Raft is another world's matter: here an entry is committed at once and in one order. What is real is all that
a client can see: sessions with expiry on the virtual clock, attachments (a write of a connection that was
replaced is refused), versions and zxids, multis, ephemerals, watches, and reads of a node that lags.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from quorum.core.codes import OP_ATTACH, OP_CREATE_SESSION
from quorum.core.machine import StateMachine
from quorum.core.rearm import rearm
from quorum.core.results import Result
from quorum.core.watches import WatchTable
from quorum.metadata.paths import BASE_PATHS, CONTROLLER_EPOCH, COORDINATOR_EPOCH
from tests.simulation.control_plane.link import Link
from tests.simulation.scheduler import Handle, Scheduler

#: of the world's own session, which makes the first nodes
FOUNDER_NONCE = 1
CONFIGURATION = b'{"cluster":"simulated","voters":[],"learners":[]}'
START_MS = 1_700_000_000_000

Listener = Callable[[Result, list[Any], int], object]


class Node:
    """One member: a state machine that applies the log, and the watches of those who are connected to it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.machine = StateMachine()
        self.watches: WatchTable[Link] = WatchTable()
        self.applied = 0
        #: until when what is sent to it does not arrive
        self.stalled_until_ms = 0.0
        #: when the next entry can be applied at the earliest
        self.free_ms = 0.0
        #: {index: what to answer}: requests that came by this node
        self.answers: dict[int, Callable[[Result], object]] = {}


class Quorum:
    """The members and their log."""

    def __init__(self, scheduler: Scheduler, size: int = 3) -> None:
        self._scheduler = scheduler
        self._rng = scheduler.rng("quorum")
        self.nodes = [Node(number) for number in range(1, size + 1)]
        self._log: list[tuple[Any, ...]] = []
        self._numbers = dict.fromkeys(range(1, size + 1), 0)
        self._nonces = FOUNDER_NONCE
        #: {session: its expiry, while nothing is heard of it}
        self._silent: dict[int, Handle] = {}
        #: {session: the link by which it is served}
        self.links: dict[int, Link] = {}
        #: how long a node may lag behind, in ms
        self.lag_ms = (0.1, 1.0)
        #: called with (result, command, session) of everything that was committed, in order
        self.listeners: list[Listener] = []
        self._found()

    @property
    def machine(self) -> StateMachine:
        """The state that is committed."""
        return self.nodes[0].machine

    def _found(self) -> None:
        self._append("found", "simulated", b"key", CONFIGURATION)
        for node in self.nodes:
            self._append("register", node.number, 1)
        for node in self.nodes:
            self._catch_up(node, len(self._log))
        created = self.commit(1, 0, FOUNDER_NONCE, [OP_CREATE_SESSION, 2**30])
        assert isinstance(created.value, tuple)
        self.founder = int(created.value[0])
        for path in BASE_PATHS:
            self.write(1, path, b"", None, 0)
        for path in (CONTROLLER_EPOCH, COORDINATOR_EPOCH):
            self.write(1, path, b"0", None, 0)

    def write(self, *command: object) -> Result:
        """Commit a command as an administrator, at once."""
        return self.commit(1, self.founder, FOUNDER_NONCE, list(command))

    def next_nonce(self) -> int:
        """Return the number of another connection."""
        self._nonces += 1
        return self._nonces

    # -- the log -------------------------------------------------------------------------------------------

    def commit(
        self,
        number: int,
        session_id: int,
        nonce: int,
        command: list[Any],
        answer: Callable[[Result], object] | None = None,
    ) -> Result:
        """Commit a command that came by a node; answer is called once that node has applied it."""
        self._numbers[number] += 1
        runs = [[session_id, nonce, None, [command]]]
        index = self._append("batch", number, 1, self._numbers[number], runs)
        if answer is not None:
            self.nodes[number - 1].answers[index] = answer
        return self._lead(command, session_id)

    def _expire(self, session_id: int) -> None:
        self._silent.pop(session_id, None)
        session = self.machine.sessions.get(session_id)
        if session is None:
            return
        proposal = ["expire", session_id, session.nonce, session.last_index]
        self._append("control", [proposal])
        self._lead(proposal, session_id)
        link = self.links.pop(session_id, None)
        if link is not None:
            link.end()

    def _append(self, kind: str, *arguments: object) -> int:
        stamp_ms = START_MS + int(self._scheduler.now_ms)
        self._log.append((kind, stamp_ms, *arguments))
        return len(self._log)

    def _lead(self, command: list[Any], session_id: int) -> Result:
        """Apply what is committed at the first node, and let the others follow."""
        result = self._catch_up(self.nodes[0], len(self._log))
        assert result is not None
        for listener in self.listeners:
            listener(result, command, session_id)
        for node in self.nodes[1:]:
            node.free_ms = max(node.free_ms, self._scheduler.now_ms + self._rng.uniform(*self.lag_ms))
            self._scheduler.when(node.free_ms, self._catch_up, node, len(self._log))
        return result

    def _catch_up(self, node: Node, index: int) -> Result | None:
        """Apply entries up to an index; returns the result of the last command."""
        result: Result | None = None
        while node.applied < index:
            node.applied += 1
            result = self._apply(node, node.applied, *self._log[node.applied - 1])
        return result

    def _apply(self, node: Node, index: int, kind: str, stamp_ms: int, *arguments: Any) -> Result | None:
        machine = node.machine
        results: list[Result] = []
        if kind == "batch":
            for outcome in machine.apply_batch(index, 1, stamp_ms, *arguments):
                results += outcome.results
        elif kind == "control":
            results = machine.apply_control(index, 1, stamp_ms, *arguments)
        elif kind == "found":
            machine.apply_found(index, 1, stamp_ms, *arguments)
        else:
            machine.apply_register(index, 1, stamp_ms, *arguments)
        result = results[0] if results else None
        if result is not None and result.events:
            for event in result.events:
                if event[0] > 0:
                    for link in node.watches.trigger(event[0], str(event[1])):
                        link.tell(event[0], str(event[1]), result.zxid)
        answer = node.answers.pop(index, None)
        if answer is not None and result is not None:
            answer(result)
        return result

    # -- sessions ------------------------------------------------------------------------------------------

    def open_link(self, link: Link, session_id: int, timeout_ms: int) -> None:
        """Serve a client by a link: with a new session, or with its session if that lives."""

        def answer(result: Result) -> None:
            if result.err:
                link.accepted(0)
                return
            found = result.value[0] if isinstance(result.value, tuple) else session_id
            assert isinstance(found, int)
            self.links[found] = link
            self.heard(found)
            link.accepted(found)

        command = [OP_ATTACH] if session_id else [OP_CREATE_SESSION, timeout_ms]
        if session_id and session_id not in self.machine.sessions:
            link.accepted(0)
            return
        self.commit(link.number, session_id, link.nonce, command, answer)

    def close_link(self, link: Link) -> None:
        """Forget the watches of a link that is over; its session has so long to come back."""
        self.nodes[link.number - 1].watches.remove_watcher(link)
        if self.links.get(link.session_id) is link:
            del self.links[link.session_id]
            self.silent(link.session_id)

    def silent(self, session_id: int) -> None:
        """Nothing is heard of a session from now on."""
        session = self.machine.sessions.get(session_id)
        if session is not None and session_id not in self._silent:
            self._silent[session_id] = self._scheduler.at(session.timeout_ms, self._expire, session_id)

    def heard(self, session_id: int) -> None:
        """A session talks again."""
        handle = self._silent.pop(session_id, None)
        if handle is not None:
            handle.cancel()

    def rearm(self, link: Link, seen_zxid: int, *armed: list[str]) -> None:
        """Leave the watches of a client that came back, and tell what its one-shot ones have missed."""
        node = self.nodes[link.number - 1]
        for event_type, path in rearm(node.machine, node.watches, link, seen_zxid, *armed):
            link.tell(event_type, path, node.machine.zxid)
