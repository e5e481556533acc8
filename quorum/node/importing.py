"""Steps of an import on any node: batches of their own, answered once this node has applied them.

A step is named as every batch is, so it is in the log once, whatever happens on its way. Only the deadline
makes its outcome unknown. What a step does, quorum.core.importing says. Soft state only.

Source: ARCHITECTURE.md, "Life of a write".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

import msgpack

from quorum.core.results import Result, RunOutcome
from quorum.errors import (
    ChangeBusyError,
    NoLeaderError,
    OutcomeUnknownError,
    ProposalRefusedError,
    QuorateError,
)
from quorum.raft.requests.administration import Asked
from quorum.raft.requests.origin_shell import Forwarder
from quorum.raft.requests.payloads import IMPORT_FORMAT

log = logging.getLogger("quorate.import")

#: steps of this node that wait for their outcome
PENDING_MAX: Final = 64
#: of a batch, besides its steps
_HEAD_BYTES_MAX: Final = 64
_REMEDY: Final = "run `quorate import` again: it goes on where it was"

#: takes what a step gave, or why that is not known
OnStep = Callable[[Result | QuorateError], None]


class _Pending(NamedTuple):
    on_step: OnStep
    deadline_ms: float


class ImportSteps:
    """The steps that this node was asked for and has not applied."""

    def __init__(
        self, node_id: int, forwarder: Forwarder[Any], *, deadline_ms: float, bytes_max: int
    ) -> None:
        """Begin with nothing.

        Args:
            node_id: of this node.
            forwarder: takes this node's batches to the leader.
            deadline_ms: how long a step waits before its outcome counts as unknown.
            bytes_max: what an entry of the log takes.
        """
        self._node_id = node_id
        self._forwarder = forwarder
        self._deadline_ms = deadline_ms
        self._bytes_max = bytes_max
        #: oldest first
        self._pending: dict[Asked, _Pending] = {}
        self._stopped = False

    def submit(self, step: list[Any], on_step: OnStep, now_ms: float) -> None:
        """Take a step; `on_step` is called once, perhaps before this returns."""
        forwarder = self._forwarder
        asked = Asked(self._node_id, forwarder.incarnation, forwarder.next_number)
        payload = msgpack.packb([IMPORT_FORMAT, *asked, [step]])
        if self._stopped:
            on_step(NoLeaderError(f"node {self._node_id} stops", "ask another member"))
        elif len(self._pending) >= PENDING_MAX:
            on_step(ChangeBusyError(f"{PENDING_MAX} steps wait for their outcome", "try again later"))
        elif len(payload) + _HEAD_BYTES_MAX > self._bytes_max:
            problem = f"a step of {len(payload)} bytes fits into no entry of {self._bytes_max}"
            on_step(ProposalRefusedError(problem, "raise raft.batch_bytes_max on every node of the target"))
        else:
            self._pending[asked] = _Pending(on_step, now_ms + self._deadline_ms)
            forwarder.submit(payload, (), now_ms)

    def applied(self, asked: Asked, outcomes: Iterable[RunOutcome], before: str, source: str) -> None:
        """Take what the steps of a batch gave, of whatever node; of a void batch nothing.

        Args:
            asked: the batch.
            outcomes: one per step.
            before, source: what was being imported before it, and now; "": nothing.
        """
        if source != before:
            if source:
                log.warning("an import of %s has begun: clients' writes are refused", source)
            else:
                log.info("the import of %s is cut over: clients write", before)
        results = [result for outcome in outcomes for result in outcome.results]
        pending = self._pending.pop(asked, None) if results else None
        if pending is not None:
            pending.on_step(results[0])

    def tick(self, now_ms: float) -> None:
        """Give up what is overdue."""
        for asked, pending in list(self._pending.items()):
            if pending.deadline_ms <= now_ms:
                self._give_up(asked, f"not known within {self._deadline_ms:.0f} ms")

    def stop(self) -> None:
        """This node stops: what becomes of the steps that wait is not known."""
        self._stopped = True
        for asked in list(self._pending):
            self._give_up(asked, f"node {self._node_id} stops")

    def _give_up(self, asked: Asked, reason: str) -> None:
        problem = f"outcome unknown: a step of an import was sent to the leader, and its end is {reason}"
        self._pending.pop(asked).on_step(OutcomeUnknownError(problem, _REMEDY))
