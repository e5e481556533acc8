"""The two ends of a snapshot transfer.

Decides what either end remembers; `sending.py` and `receiving.py` decide the moves. One piece per peer is
outstanding, so each end is one small record. Soft state: a transfer that is lost begins again.
"""

from typing import NamedTuple


class Outgoing(NamedTuple):
    """A snapshot on its way to a peer."""

    transfer: int  #: unique within this leader's term
    snapshot_index: int  #: 0 until the first piece was read
    snapshot_term: int
    offset: int  #: what the peer has
    reading: bool  #: the piece is being read; else it was sent and the reply is awaited
    asked_ms: float  #: when the piece was asked for or sent
    patience_ms: float  #: after this much silence the piece is sent again; doubles with each time


class Incoming(NamedTuple):
    """A snapshot that is being received."""

    install: int  #: own number of it
    term: int  #: with ``transfer``: the leader's name of it
    transfer: int
    sender: int
    snapshot_index: int
    snapshot_term: int
    total_bytes: int
    offset: int  #: written so far
    writing: bool  #: a piece is being written
