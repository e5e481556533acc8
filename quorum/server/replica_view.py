"""What the client port needs of the node below it.

The only seam between client connections and replication: commands go down through `submit`, outcomes come
back through the `Frontend`. A view, so that the client port can be run over anything that applies commands
to a state machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quorum.core.machine import StateMachine
from quorum.core.session_tracker import SessionTracker
from quorum.core.watches import WatchTable
from quorum.errors import QuorateError


class ReplicaView(Protocol):
    """One node's copy of the state, seen from its client port."""

    #: the applied state; replaced as a whole when a snapshot is installed
    machine: StateMachine
    #: the watches of this node's connections
    watches: WatchTable[Any]

    @property
    def sessions(self) -> SessionTracker:
        """Deadlines of sessions, on the leader, and those that this node is to report."""

    @property
    def node_id(self) -> int:
        """The node's id."""

    def submit(
        self,
        connection: Any,
        session_id: int,
        nonce: int,
        identities: list[list[str]] | None,
        commands: list[list[Any]],
    ) -> bool:
        """Take a run: consecutive writes of one connection with no read between them.

        The outcome comes to `Frontend.applied`, never before this call returned, or to `Frontend.lost`.

        Returns:
            False if it is refused, because no entry of the log could hold it; nothing happened then.
        """

    def change_member(
        self,
        node_id: int,
        address: str | None,
        config_version: int | None,
        on_outcome: Callable[[QuorateError | None], None],
    ) -> None:
        """Let a node join (at its peer address), or go (None), and say when that is applied here.

        Args:
            node_id: the node.
            address: host:port of a node that joins.
            config_version: the version of /zookeeper/config that it is meant for; None: any.
            on_outcome: called once, perhaps before this returns, with None or the error, which says
                whether it is definite.
        """

    def next_nonce(self) -> int:
        """Return an id that no connection of this node ever had."""

    def saturated(self) -> bool:
        """Tell whether so much waits for its outcome that connections must not be read for now."""

    def contact_age_ms(self) -> float:
        """Milliseconds since this node can last have known what is committed.

        That is, since a current leader was heard (on the leader: a majority; inf if there is none), or since
        the oldest group went to the journal that is not durable, whichever is longer.
        """

    def mode(self) -> str:
        """This node's part, as the four-letter words say it: leader, follower, standalone or looking."""

    def followers(self) -> tuple[int, int] | None:
        """Return (connected members, those of them that have all that is committed); None: no leader."""
