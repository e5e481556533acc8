"""The writes of this node's clients on their way down: the runs of one turn of the event loop become a batch.

Packs runs, numbers batches and hands them to the leader through the forwarder. What is applied, and which
caller waits for which outcome, is the replica's. Soft state only.

Source: docs/concepts/guarantees.md, "Writes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgpack

from quorum.node.importing import ImportSteps
from quorum.platform.runtime import Runtime
from quorum.raft.engine.engine import Engine
from quorum.raft.requests.origin_shell import Forwarder
from quorum.raft.requests.origins import Batch
from quorum.raft.requests.payloads import BATCH_FORMAT, ENFORCING_BATCH_FORMAT

#: unapplied payload bytes of this node above which client connections are no longer read
BACKLOG_BYTES_MAX = 64 * 1024 * 1024
#: of an encoded batch, besides its runs
BATCH_HEAD_BYTES_MAX = 64


class Batches:
    """Runs of connections, packed into batches; a connection is only handed back."""

    def __init__(
        self,
        engine: Engine,
        runtime: Runtime,
        applied_origins: Callable[[], Mapping[int, tuple[int, int]]],
        lost: Callable[[Any], object],
        *,
        incarnation: int,
        deadline_ms: float,
        batch_bytes_max: int,
        entry_bytes_max: int,
        enforce_quota: bool,
    ) -> None:
        """Begin with nothing; the numbers are those of `NodeReplica`.

        Args:
            engine: the Raft log. runtime: clock and loop. applied_origins: as `Forwarder` asks for them.
            lost: gets each connection of a batch whose outcome will not be known.
            enforce_quota: whether hard limits of quotas count for the writes of this node's clients.
        """
        self._engine = engine
        self._runtime = runtime
        self._lost = lost
        self.forwarder: Forwarder[Any] = Forwarder(
            engine, applied_origins, self._outcome_unknown, incarnation=incarnation, deadline_ms=deadline_ms
        )
        #: steps of an import, as operators ask this node for them
        self.imports = ImportSteps(
            engine.node_id, self.forwarder, deadline_ms=deadline_ms, bytes_max=entry_bytes_max
        )
        self._nonce = incarnation << 32
        self._batch_bytes_max = batch_bytes_max
        self._format = ENFORCING_BATCH_FORMAT if enforce_quota else BATCH_FORMAT
        self._run_bytes_max = entry_bytes_max - BATCH_HEAD_BYTES_MAX
        self._pack = msgpack.Packer(use_bin_type=True, autoreset=True).pack
        self._runs: list[bytes] = []
        self._tokens: list[Any] = []
        self._bytes = 0
        #: whether clients must not write until a snapshot covers more of the log
        self.log_is_long = False
        #: until when they must not because the leader's log is long; None: that is not known
        self.leader_holds_until_ms: float | None = None
        self._close_scheduled = False
        self._close_soon = engine.collected("closing a batch", self._close)

    def next_nonce(self) -> int:
        """Return a connection id that this node never used before, in any of its lives."""
        self._nonce += 1
        return self._nonce

    @property
    def backlog_bytes(self) -> int:
        """Payload bytes of this node's clients that wait for their outcome."""
        return self.forwarder.backlog_bytes + self._bytes

    def submit(self, token: Any, run: list[Any]) -> bool:
        """Take a run (session id, nonce, identities, commands) of a connection; false: no entry holds it."""
        packed = self._pack(run)
        if len(packed) > self._run_bytes_max:
            return False
        if self._bytes and self._bytes + len(packed) > self._batch_bytes_max:
            # Without a pump: what it applies would be answered to connections that are being read.
            self._hand_over()
        self._runs.append(packed)
        self._tokens.append(token)
        self._bytes += len(packed)
        if not self._close_scheduled:
            self._close_scheduled = True
            self._runtime.call_soon(self._close_soon)
        return True

    def _close(self) -> None:
        """Hand what was submitted in this turn to the leader; what follows is carried out at once."""
        self._close_scheduled = False
        if self._runs:
            self._hand_over()

    def _hand_over(self) -> None:
        """Give the open runs a number, as one batch, and hand it to the leader."""
        runs = self._runs
        forwarder = self.forwarder
        head = self._pack([self._format, self._engine.node_id, forwarder.incarnation, forwarder.next_number])
        # An array of five: the four of `head` (without its own header byte), then the array of runs.
        payload = b"".join((b"\x95", head[1:], _array_header(len(runs)), *runs))
        tokens = tuple(self._tokens)
        self._runs = []
        self._tokens = []
        self._bytes = 0
        forwarder.submit(payload, tokens, self._runtime.monotonic_ms())

    def _outcome_unknown(self, batches: list[Batch[Any]]) -> None:
        lost = {token for batch in batches for token in batch.tokens}
        kept = [
            (run, token) for run, token in zip(self._runs, self._tokens, strict=True) if token not in lost
        ]
        self._runs = [run for run, _ in kept]
        self._tokens = [token for _, token in kept]
        self._bytes = sum(map(len, self._runs))
        for batch in batches:
            for token in batch.tokens:
                self._lost(token)


def _array_header(length: int) -> bytes:
    """Return msgpack's header of an array."""
    if length < 16:
        return bytes((0x90 | length,))
    if length < 1 << 16:
        return b"\xdc" + length.to_bytes(2, "big")
    return b"\xdd" + length.to_bytes(4, "big")
