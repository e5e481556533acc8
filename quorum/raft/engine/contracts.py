"""What the engine expects of the parts around it: what applies the log, what carries messages and snapshots.

Seams only, without state. The engine calls them from the event loop and never from two places at once; an
exception in any of them stops the node.
"""

from __future__ import annotations

from typing import Protocol

from quorum.raft.core.entry import Entry
from quorum.raft.core.messages import Message, Ready, SoftState
from quorum.raft.peers.peers import PeerNode
from quorum.raft.requests.origins import (
    DigestDifference,
    DigestNotice,
    Forward,
    ForwardExpected,
    LogIsLong,
    RegisterOrigin,
    SessionTouches,
)

#: messages between nodes that are not the core's
ShellMessage = (
    Forward | ForwardExpected | RegisterOrigin | SessionTouches | LogIsLong | DigestDifference | DigestNotice
)


class Application(Protocol):
    """What applies the log."""

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
    """What carries messages between members, with the names of pysyncobj's transport contract.

    Its callbacks go to the engine's methods (syncobj.py), none of them from within one of these.
    """

    def addNode(self, node: PeerNode) -> None:  # noqa: N802
        """Begin to keep a connection with a member; a known one keeps its connection."""

    def dropNode(self, node: PeerNode) -> None:  # noqa: N802
        """Close the connections with a member; no disconnection is reported."""

    def send(self, node: PeerNode, message: Message | ShellMessage) -> bool:
        """Queue a message, best effort; return whether there is a connection to put it on."""

    def flush(self) -> None:
        """Let everything that was sent in this turn leave."""

    def destroy(self) -> None:
        """Close everything; nothing is sent or received any more."""

    def recheck_identities(self) -> None:
        """This member's identity became known better: close connections that it refuses now."""


class SnapshotExchange(Protocol):
    """Carries out snapshot reads and writes of a Ready, and answers with stimuli."""

    def carry_out(self, ready: Ready) -> None:
        """Start the work; every answer comes through `Engine.step` in a later turn."""
