"""A single node without a log: what connections submit is applied to a real state machine once per turn.

It stands in for the node below the client port where a test must hold outcomes back, apply entries of other
nodes in between, or say how long no leader was heard. It decides nothing that a node decides by consensus,
and stores nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from quorum.core.machine import StateMachine
from quorum.core.results import RunOutcome
from quorum.core.session_tracker import SessionTracker
from quorum.core.watches import WatchTable
from quorum.errors import QuorateError
from quorum.server.client import ClientConnection
from quorum.server.frontend import Frontend

NODE_ID = 1
#: a node that no connection of the test belongs to
OTHER_NODE_ID = 2
STAMP_MS = 1_700_000_000_000

Batch = tuple[ClientConnection, list[Any]]


class SoloReplica:
    """A state machine that applies what it is given, once per turn."""

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self.machine = StateMachine()
        self.watches: WatchTable[ClientConnection] = WatchTable()
        self.sessions = SessionTracker()
        self.frontend: Frontend | None = None
        #: while true, what is submitted waits for `release`
        self.holding = False
        #: what saturated() says
        self.full = False
        #: whether every run is too large
        self.refuses_runs = False
        #: what contact_age_ms() says
        self.silence_ms = 0.0
        self.runs_submitted: list[list[Any]] = []
        #: (node id, address or None, configuration version or None, who is to be told) of changes of members
        self.changes: list[tuple[int, str | None, int | None, Callable[[QuorateError | None], None]]] = []
        self._call_soon = call_soon
        self._open: deque[Batch] = deque()
        self._scheduled = False
        self.node_id = NODE_ID
        self._nonce = 0
        self._numbers = {NODE_ID: 0, OTHER_NODE_ID: 0}
        self.machine.apply_found(1, 1, STAMP_MS, "c" * 32, bytes(range(32)), b'{"voters":{}}')
        self.machine.apply_register(2, 1, STAMP_MS, NODE_ID, 1)
        self.machine.apply_register(3, 1, STAMP_MS, OTHER_NODE_ID, 1)

    def submit(
        self,
        connection: ClientConnection,
        session_id: int,
        nonce: int,
        identities: list[list[str]] | None,
        commands: list[list[Any]],
    ) -> bool:
        run = [session_id, nonce, identities, commands]
        if self.refuses_runs:
            return False
        self.runs_submitted.append(run)
        self._open.append((connection, run))
        self._schedule()
        return True

    def next_nonce(self) -> int:
        self._nonce += 1
        return self._nonce

    def change_member(
        self,
        node_id: int,
        address: str | None,
        config_version: int | None,
        told: Callable[[QuorateError | None], None],
    ) -> None:
        self.changes.append((node_id, address, config_version, told))

    def apply_configuration(self, payload: bytes) -> None:
        """Apply a configuration, as a leader's entry brings it."""
        assert self.frontend is not None
        machine = self.machine
        result = machine.apply_configuration(machine.applied_index + 1, 1, STAMP_MS, payload)
        self.frontend.applied(None, RunOutcome(0, 0, [result]))
        self.frontend.end_of_turn()

    def saturated(self) -> bool:
        return self.full

    def contact_age_ms(self) -> float:
        return self.silence_ms

    def mode(self) -> str:
        return "standalone"

    def followers(self) -> tuple[int, int] | None:
        return None

    def release(self, runs: int | None = None) -> None:
        """Apply so many held runs as one entry, or all of them and what comes from now on."""
        if runs is None:
            self.holding = False
            runs = len(self._open)
        taken = [self._open.popleft() for _ in range(min(runs, len(self._open)))]
        self._apply(taken)

    def drop(self, runs: int) -> None:
        """Forget so many held runs: their outcome will never be known."""
        for _ in range(runs):
            self._open.popleft()

    def apply_elsewhere(self, runs: list[list[Any]]) -> list[Any]:
        """Apply a batch of another node; returns the outcomes."""
        assert self.frontend is not None
        self._numbers[OTHER_NODE_ID] += 1
        outcomes = []
        number = self._numbers[OTHER_NODE_ID]
        for outcome in self.machine.apply_batch(
            self.machine.applied_index + 1, 1, STAMP_MS, OTHER_NODE_ID, 1, number, runs
        ):
            outcomes.append(outcome)
            self.frontend.applied(None, outcome)
        self.frontend.end_of_turn()
        return outcomes

    def expire(self, session_id: int, *, ends_turn: bool = True) -> None:
        """Apply the leader's proposal to expire a session; further entries may follow in the same turn."""
        assert self.frontend is not None
        machine = self.machine
        proposal = ["expire", session_id, machine.sessions[session_id].nonce, machine.applied_index]
        results = machine.apply_control(machine.applied_index + 1, 1, STAMP_MS, [proposal])
        self.frontend.applied(None, RunOutcome(0, 0, results))
        if ends_turn:
            self.frontend.end_of_turn()

    def _schedule(self) -> None:
        if not self._scheduled and not self.holding:
            self._scheduled = True
            self._call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._scheduled = False
        if not self.holding:
            taken = list(self._open)
            self._open.clear()
            self._apply(taken)

    def _apply(self, taken: list[Batch]) -> None:
        assert self.frontend is not None
        if taken:
            self._numbers[NODE_ID] += 1
            runs = [run for _, run in taken]
            outcomes = self.machine.apply_batch(
                self.machine.applied_index + 1, 1, STAMP_MS, NODE_ID, 1, self._numbers[NODE_ID], runs
            )
            for (connection, _), outcome in zip(taken, outcomes, strict=True):
                self.frontend.applied(connection, outcome)
        self.frontend.end_of_turn()
