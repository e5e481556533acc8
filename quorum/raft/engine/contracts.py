"""What the engine expects of the parts around it: what stands on the log, where it is made durable, who
moves snapshots.

Seams only, without state. The engine calls them from the event loop and never from two places at once; an
exception in any of them stops the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import Message, Ready, SoftState
from quorum.raft.journal.format import Record
from quorum.raft.peers.peers import PeerNode
from quorum.raft.requests.origins import (
    DigestDifference,
    DigestNotice,
    Forward,
    ForwardExpected,
    ForwardRefused,
    RegisterOrigin,
    SessionTouches,
)

#: messages between nodes that are not the core's
ShellMessage = (
    Forward
    | ForwardExpected
    | ForwardRefused
    | RegisterOrigin
    | SessionTouches
    | DigestDifference
    | DigestNotice
)


class Application(Protocol):
    """What stands on top of the log."""

    def apply(self, entry: Entry) -> None:
        """Apply a committed entry; entries come in order, each once."""

    def turn_ended(self) -> None:
        """Everything committed in this turn was applied: answer the clients."""

    def leadership_changed(self, soft_state: SoftState) -> None:
        """Role, term, leader, transfer or halt changed."""

    def peer_connected(self, node_id: int) -> None:
        """A link to a peer is (again) ready for messages."""

    def receive(self, message: ShellMessage) -> None:
        """A message of the current term that is not the core's."""

    def tick(self, now_ms: float, stall_ms: float) -> None:
        """Time passed; `stall_ms` is by how much this tick came too late (0: in time)."""


class MemberTransport(Protocol):
    """What carries messages between members: pysyncobj's transport contract as far as the engine uses it.

    No callback is called from within any of these methods.
    """

    def addNode(self, node: PeerNode) -> None:  # noqa: N802
        """Begin to keep a connection with a member; a known one keeps its connection."""

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802
        """Close the connections with a member; no disconnection is reported."""

    def send(self, node: PeerNode, message: Message | ShellMessage) -> bool:
        """Queue a message, best effort; tell whether there is a connection to put it on."""

    def flush(self) -> None:
        """Let everything that was sent in this turn leave."""

    def destroy(self) -> None:
        """Close everything; nothing is sent or received any more."""

    def recheck_identities(self) -> None:
        """This member's identity became known better: close connections that it refuses now."""

    def setOnUtilityMessageCallback(self, message: str, callback: object) -> None:  # noqa: N802
        """Set what SyncObj's utility messages call."""

    def setOnMessageReceivedCallback(  # noqa: N802
        self, callback: Callable[[PeerNode, Message | ShellMessage], None] | None
    ) -> None:
        """Set who gets messages, with their sender as its connection proved it."""

    def setOnChunkReceivedCallback(self, callback: Callable[[], None] | None) -> None:  # noqa: N802
        """Set who is told after all messages that arrived together were handed on."""

    def setOnNodeConnectedCallback(self, callback: Callable[[PeerNode], None] | None) -> None:  # noqa: N802
        """Set who is told that a member's connection is ready."""

    def setOnNodeDisconnectedCallback(self, callback: Callable[[PeerNode], None] | None) -> None:  # noqa: N802
        """Set who is told that a member's connection closed."""

    def setOnReadonlyNodeConnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Set what SyncObj's read-only nodes call; there are none."""

    def setOnReadonlyNodeDisconnectedCallback(self, callback: object) -> None:  # noqa: N802
        """Set what SyncObj's read-only nodes call; there are none."""


class JournalSink(Protocol):
    """Where persists go; the journal writer behind it groups what arrives during an fsync."""

    def submit(self, records: Sequence[Record], on_durable: Callable[[], object]) -> None:
        """Write records behind all earlier ones and call back when they and all earlier ones are durable."""

    def flush_turn(self) -> None:
        """Begin to write what was submitted in this turn; everything that was sent is with the sockets."""


class SnapshotExchange(Protocol):
    """Carries out snapshot reads and writes of a Ready, and answers with stimuli."""

    def carry_out(self, ready: Ready) -> None:
        """Start the work; every answer comes through `Engine.step` in a later turn."""
