"""What the peer transport keeps of one member: its address, its connections, and the pace of dialling.

Decides how long to wait before the next attempt, when a node that is not a member is given up, and which of
its connections the present rules refuse. Opens and closes nothing itself; soft state only.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from quorum.platform.runtime import TimerHandle
from quorum.raft.peers.admission import Admission
from quorum.raft.peers.hello import HelloRefusedError, PeerIdentity, conflict
from quorum.raft.peers.links import InboundLink, OutboundLink
from quorum.raft.peers.peers import PeerLinks, PeerNode, TransportOptions

#: A connection that lived this long was good: the next one is dialled without waiting long.
_STABLE_MS: Final = 1000
#: A stranger that nobody made a member is dialled for so long after its last connection ended.
STRANGER_MS: Final = 30_000


@dataclass(slots=True, eq=False)
class Peer:
    """One member, or a stranger that was let in."""

    node_id: int
    address: str
    backoff_ms: float
    #: the connection that is being dialled or greeted; at most one, and none while `outbound` is set
    dialling: asyncio.Task[None] | None = None
    greeting: OutboundLink | None = None
    redial: TimerHandle | None = None
    outbound: OutboundLink | None = None
    inbound: InboundLink | None = None
    #: for a node that was let in and is not known as a member: when it is given up; monotonic
    stranger_until_ms: float | None = None
    #: the node that sends on `inbound`
    inbound_node: PeerNode = field(default_factory=lambda: PeerNode(0))

    def links(self) -> PeerLinks:
        """Return the state of its connections."""
        queued_bytes = 0 if self.outbound is None else self.outbound.queue.size_bytes
        heard_ms = -math.inf if self.inbound is None else self.inbound.heard_ms
        connected = self.outbound is not None, self.inbound is not None
        return PeerLinks(self.address, *connected, queued_bytes, heard_ms)

    def is_given_up(self, now_ms: float) -> bool:
        """Tell whether it is a stranger that was not heard for long enough."""
        return self.stranger_until_ms is not None and now_ms >= self.stranger_until_ms

    def next_delay_ms(self, options: TransportOptions, rng: random.Random) -> float:
        """Return how long to wait before it is dialled again; longer each time."""
        delay_ms = self.backoff_ms * (1 + rng.random() / 2)
        self.backoff_ms = min(2 * self.backoff_ms, options.backoff_max_ms)
        return delay_ms

    def link_lost(self, opened_at_ms: float, now_ms: float, options: TransportOptions) -> None:
        """Note that a connection which was open since `opened_at_ms` ended."""
        if now_ms - opened_at_ms >= _STABLE_MS:
            self.backoff_ms = options.backoff_min_ms
        if self.stranger_until_ms is not None:
            self.stranger_until_ms = now_ms + STRANGER_MS

    def unfit_links(
        self, mine: PeerIdentity, admission: Admission
    ) -> Iterator[tuple[InboundLink | OutboundLink, str]]:
        """Yield its connections with a process that is refused by now, each with the reason."""
        for link in (self.outbound, self.inbound):
            if link is not None and (reason := unfit(link, mine, admission)):
                yield link, reason


def unfit(link: InboundLink | OutboundLink, mine: PeerIdentity, admission: Admission) -> str:
    """Return why the process at the other end of a link is refused by now, "" if it is not."""
    assert link.identity is not None
    refusal = conflict(mine, link.identity) or admission.refusal(link.identity)
    return "" if refusal is None else str(HelloRefusedError(refusal, by_peer=False))
