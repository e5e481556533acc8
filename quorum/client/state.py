"""The life of a client: one client holds one session, from its first handshake to its loss or close.

Pure. The table is the whole machine; anything else is a programming error and says so. LOST and CLOSED are
final: a new session needs a new client, because everything that hung on the old one
(ephemerals, watches, epochs) is gone.
Source: ZooKeeper programmer's guide (session states); Curator's connection states (the names).
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class ClientState(Enum):
    """Where a client is in its life."""

    #: No session yet.
    CONNECTING = "connecting"
    #: The session is served by a server.
    CONNECTED = "connected"
    #: The connection is gone; the session may or may not live. A leader by this session must stop acting.
    SUSPENDED = "suspended"
    #: A server said that the session is over, with all its ephemerals. Final.
    LOST = "lost"
    #: close() was called. Final.
    CLOSED = "closed"


_NEXT: Final = {
    ClientState.CONNECTING: (ClientState.CONNECTED, ClientState.LOST, ClientState.CLOSED),
    ClientState.CONNECTED: (ClientState.SUSPENDED, ClientState.CLOSED),
    ClientState.SUSPENDED: (ClientState.CONNECTED, ClientState.LOST, ClientState.CLOSED),
    ClientState.LOST: (ClientState.CLOSED,),
    ClientState.CLOSED: (),
}


def check_transition(before: ClientState, after: ClientState) -> None:
    """Refuse a step that the table does not have.

    Raises:
        RuntimeError: the client is broken.
    """
    if after not in _NEXT[before]:
        raise RuntimeError(f"client: {before.value} -> {after.value} is no legal step")
