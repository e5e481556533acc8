"""One connection of a client to a node of the quorum: ordered both ways, until it breaks.

A break loses what was on its way to the client; of what was on its way to the node a part may still arrive,
also after the client has noticed: the outcome of those writes is unknown to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from tests.simulation.scheduler import Scheduler

if TYPE_CHECKING:
    from tests.simulation.control_plane.client import SimClient
    from tests.simulation.control_plane.quorum import Quorum


class Link:
    """A connection, from its handshake to its end."""

    def __init__(self, client: SimClient, quorum: Quorum, scheduler: Scheduler, number: int) -> None:
        """Belong to a client and lead to the node of this number."""
        self.client = client
        self.number = number
        self.nonce = quorum.next_nonce()
        self.session_id = 0
        self.is_open = True
        self._quorum = quorum
        self._scheduler = scheduler
        self._rng = scheduler.rng("links")
        self._up_ms = self._down_ms = 0.0
        self._sent = self._arrived = 0
        #: how many of the requests that were sent still arrive, once it is broken
        self._arriving = 0
        #: writes that the node has yet to apply, and what waits for them: reads see the session's own writes
        self._unapplied = 0
        self._behind: deque[tuple[bool, Callable[[], object]]] = deque()

    def send(self, call: Callable[[], object]) -> None:
        """Have something happen at the node, after all that was sent before."""
        self._sent += 1
        stalled_ms = self._quorum.nodes[self.number - 1].stalled_until_ms
        self._up_ms = max(self._up_ms, stalled_ms, self._scheduler.now_ms + self._delay_ms())
        self._scheduler.when(self._up_ms, self._arrive, self._sent, call)

    def stall(self, for_ms: float) -> None:
        """Let nothing that is sent from now on arrive before that time has passed."""
        self._up_ms = max(self._up_ms, self._scheduler.now_ms + for_ms)

    def _arrive(self, number: int, call: Callable[[], object]) -> None:
        self._arrived = number
        if self.is_open or number <= self._arriving:
            call()

    def at_node(self, run: Callable[[], object], *, writes: bool) -> None:
        """Carry out a request at the node in its turn; a write is over with `applied`."""
        self._behind.append((writes, run))
        self._work()

    def applied(self) -> None:
        """The node has applied the oldest write."""
        self._unapplied -= 1
        self._work()

    def _work(self) -> None:
        while self._behind and (self._behind[0][0] or not self._unapplied):
            writes, run = self._behind.popleft()
            self._unapplied += writes
            run()

    def reply(self, call: Callable[[], object]) -> None:
        """Have something happen at the client, after all that was sent to it before."""
        if self.is_open:
            self._down_ms = max(self._down_ms, self._scheduler.now_ms + self._delay_ms())
            self._scheduler.when(self._down_ms, self._deliver, call)

    def _deliver(self, call: Callable[[], object]) -> None:
        if self.is_open:
            self.client.process.post(0, self._take, call)

    def _take(self, call: Callable[[], object]) -> None:
        if self.client.link is self:
            call()

    def tell(self, event_type: int, path: str, zxid: int) -> None:
        """Send an event of a watch."""
        self.reply(lambda: self.client.take_event(event_type, path, zxid))

    def accepted(self, session_id: int) -> None:
        """End the handshake: 0: the session is over."""
        self.session_id = session_id
        if session_id and not self.is_open:
            self._quorum.close_link(self)
        self.reply(lambda: self.client.take_session(session_id))

    def end(self) -> None:
        """Break it; the client notices later."""
        if not self.is_open:
            return
        self.is_open = False
        self._arriving = self._rng.randint(self._arrived, self._sent)
        self._quorum.close_link(self)
        notice_ms = self._rng.uniform(0, self.client.timeout_ms / 2)
        self.client.process.post(notice_ms, self.client.lose, self)

    def _delay_ms(self) -> float:
        low, high = self.client.delay_ms
        return self._rng.uniform(low, high)
