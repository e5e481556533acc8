"""The two ends of a snapshot transfer.

Decides what either end remembers; `sending.py` and `receiving.py` decide the moves. One piece per peer is
outstanding, so each end is one small record. Soft state: a transfer that is lost begins again.
"""

from typing import NamedTuple

from quorum.raft.core.messages import SnapshotRead, SnapshotWrite


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


class Sending:
    """What the shell has to do for the snapshots that leave."""

    def __init__(self) -> None:
        """Have nothing to hand out yet."""
        self.transfers = 0  #: number of the last one
        self.reads: list[SnapshotRead] = []
        self.releases: list[int] = []

    def release(self, outgoing: Outgoing | None) -> None:
        """Let the shell unpin the snapshot that was on its way to a peer."""
        if outgoing is not None:
            # A read that was not handed out yet would pin the snapshot again, for ever.
            self.reads = [read for read in self.reads if read.transfer != outgoing.transfer]
            self.releases.append(outgoing.transfer)


class Receiving:
    """The snapshot that comes in, and what the shell has to do for it."""

    def __init__(self) -> None:
        """Begin without one."""
        self.incoming: Incoming | None = None
        self.installs = 0  #: number of the last one
        self.installing = False  #: its last piece is written: the shell verifies and loads it
        self.writes: list[SnapshotWrite] = []
        self.aborts: list[int] = []

    def drop(self) -> None:
        """Have the shell remove the part that has arrived: nothing will continue it."""
        if self.incoming is not None and not self.installing:
            install = self.incoming.install
            # A piece that was not handed out yet would begin the file again.
            self.writes = [write for write in self.writes if write.install != install]
            self.aborts.append(install)
            self.incoming = None

    def end(self) -> None:
        """Forget it: it is installed, or failed."""
        self.incoming = None
        self.installing = False
