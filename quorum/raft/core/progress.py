"""What the leader knows of one peer, and how much it may send it.

Decides next and match index, the flow-control state and its moves. Does not build messages (`leading.py`,
`sending.py`). Soft state of one leadership; it belongs to (node id, incarnation): another incarnation starts
at match 0.

PROBE sends one append and waits, because the match is unknown or something was lost. REPLICATE sends ahead,
bounded in bytes. SNAPSHOT sends chunks, because the log no longer holds what the peer needs.

Source: etcd-io/raft, tracker; Raft §5.3.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from quorum.raft.core.errors import TransitionError
from quorum.raft.core.transfers import Outgoing


class Flow(Enum):
    """Flow-control state of a peer."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


#: {state: states that may follow it}
FLOW_MOVES: Final[Mapping[Flow, tuple[Flow, ...]]] = MappingProxyType(
    {
        Flow.PROBE: (Flow.PROBE, Flow.REPLICATE, Flow.SNAPSHOT),
        Flow.REPLICATE: (Flow.PROBE, Flow.SNAPSHOT),
        Flow.SNAPSHOT: (Flow.PROBE,),
    }
)


#: Beyond every log: no heartbeat was answered yet.
_UNREACHED: Final = 1 << 62


class Progress:
    """One peer. ``match_index < next_index`` always holds."""

    __slots__ = (
        "caught_up",
        "clock_ms",
        "commit_sent",
        "confirmed_ms",
        "connected",
        "contact_ms",
        "flow",
        "goal_index",
        "heard",
        "incarnation",
        "inflight",
        "inflight_bytes",
        "match_index",
        "next_index",
        "outgoing",
        "probe_sent",
        "progressed_ms",
        "retry_snapshot_ms",
        "sent_ms",
    )

    def __init__(self, incarnation: str, next_index: int, now_ms: float) -> None:
        """Begin with an unknown match.

        Args:
            incarnation: as recorded in the configuration; empty if not recorded and nobody was heard yet.
            next_index: optimistic first entry to send.
            now_ms: counts as contact, so that a new leader has a whole election timeout to be heard.
        """
        self.incarnation = incarnation
        self.match_index = 0  #: durable at the peer and equal to our log
        self.next_index = next_index
        self.flow = Flow.PROBE
        self.probe_sent = False  #: the one append of PROBE is out
        self.sent_ms = now_ms  #: when that was, or when the oldest unanswered append left
        self.inflight: deque[tuple[int, int]] = (
            deque()
        )  #: (last index, bytes) of appends under way, REPLICATE only
        self.inflight_bytes = 0
        self.commit_sent = 0  #: highest commit index that an append carried
        self.contact_ms = now_ms  #: last message of this incarnation
        self.connected = True  #: as far as known: its connection has not closed since it was heard
        self.clock_ms = -1.0  #: of its last heartbeat's answer on this connection, by its own clock
        self.heard = False  #: there was a message in this leadership and since its connection last closed
        self.goal_index = _UNREACHED  #: the leader's commit index at the last heartbeat's answer
        self.caught_up = False  #: at the last answer it held what was the goal then
        #: when the newest answered heartbeat was sent: until then it is known to have heard this leader
        self.confirmed_ms = now_ms
        self.progressed_ms = now_ms  #: last rise of the match, or first append into an empty flight
        self.outgoing: Outgoing | None = None  #: SNAPSHOT only
        self.retry_snapshot_ms = float("-inf")  #: no new transfer before

    def become_probe(self) -> None:
        """Go back to the proven match and send one append at a time; a peer that is probed already goes on
        where it was."""
        probing = self.flow is Flow.PROBE
        self._move(Flow.PROBE)
        self._clear()
        if not probing:
            # To a new leader nothing is proven: from 1 on it would send a snapshot to peers that lack little.
            self.next_index = self.match_index + 1

    def become_replicate(self, now_ms: float) -> None:
        """Send ahead what follows the match."""
        self._move(Flow.REPLICATE)
        self._clear()
        self.next_index = self.match_index + 1
        self.progressed_ms = now_ms

    def become_snapshot(self, outgoing: Outgoing) -> None:
        """Send a snapshot instead of entries."""
        self._move(Flow.SNAPSHOT)
        self._clear()
        self.outgoing = outgoing

    def _move(self, flow: Flow) -> None:
        if flow not in FLOW_MOVES[self.flow]:
            raise TransitionError(
                f"a peer in {self.flow.value} cannot move to {flow.value} (match {self.match_index}, next "
                f"{self.next_index})"
            )
        self.flow = flow

    def _clear(self) -> None:
        self.probe_sent = False
        self.inflight.clear()
        self.inflight_bytes = 0
        self.outgoing = None

    def sent(self, last_index: int, sent_bytes: int, now_ms: float) -> None:
        """Note an append that leaves now and ends at ``last_index``."""
        if self.flow is Flow.PROBE:
            self.probe_sent = True
            self.sent_ms = now_ms
            return
        if last_index >= self.next_index:
            if not self.inflight:
                self.progressed_ms = now_ms
            self.inflight.append((last_index, sent_bytes))
            self.inflight_bytes += sent_bytes
            self.next_index = last_index + 1

    def matched(self, match_index: int, now_ms: float) -> None:
        """Take over a proven match; next never falls below match + 1, whatever comes late (defect D2 of
        pysyncobj)."""
        while self.inflight and self.inflight[0][0] <= match_index:
            self.inflight_bytes -= self.inflight.popleft()[1]
        if match_index > self.match_index:
            self.match_index = match_index
            self.next_index = max(self.next_index, match_index + 1)
            self.progressed_ms = now_ms

    def hear(self, now_ms: float) -> None:
        """Note a message of it."""
        self.contact_ms = now_ms
        self.heard = True
        self.connected = True

    def disconnected(self) -> None:
        """Note that its connection closed: it is not there until it is heard again."""
        self.heard = False
        self.connected = False
        self.caught_up = False
        self.goal_index = _UNREACHED

    def answered_heartbeat(self, commit_index: int) -> None:
        """Note whether it kept up since its last answer, and what it has to hold at the next one."""
        self.caught_up = self.match_index >= self.goal_index
        self.goal_index = commit_index

    def is_stalled(self, now_ms: float, timeout_ms: float) -> bool:
        """Return whether appends are under way and nothing was acknowledged for that long."""
        return (
            self.flow is Flow.REPLICATE and bool(self.inflight) and now_ms - self.progressed_ms > timeout_ms
        )


class Leaver:
    """A member that is none any more, as long as the leader has a last word for it."""

    __slots__ = ("left_index", "progress", "sent_ms")

    def __init__(self, progress: Progress, left_index: int) -> None:
        """Keep what is known of it.

        Args:
            progress: as it was; nothing is sent to it until the entry is committed.
            left_index: the entry by which it left.
        """
        self.progress = progress
        self.left_index = left_index
        self.sent_ms: float | None = None  #: when that entry was sent to it
