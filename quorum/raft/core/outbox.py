"""What waits to leave: messages, and the numbers of the persists that they wait for.

Decides when a message may leave: once the hard state that it speaks for is durable. Knows no journal.
"""

from collections import deque

from quorum.raft.core.log import Log
from quorum.raft.core.messages import HardState, Message, Persist


class Outbox:
    """Messages and persists of one node."""

    def __init__(self, messages_max: int) -> None:
        """Have nothing to hand out yet; beyond so many messages the oldest are dropped."""
        self.next_seq = 1
        self.persisted_seq = 0
        self.hard_seq = 0  #: persist that holds the latest hard state
        self.hard_dirty = False
        self.messages: deque[Message] = deque(maxlen=messages_max)

    @property
    def hard_state_is_durable(self) -> bool:
        """Return whether term and vote as they are now would survive a crash."""
        return not self.hard_dirty and self.persisted_seq >= self.hard_seq

    def take_persist(self, term: int, voted_for: int, log: Log) -> Persist:
        """Return the next group for the journal; something changed."""
        seq = self.next_seq
        self.next_seq += 1
        hard_state = None
        if self.hard_dirty:
            hard_state = HardState(term, voted_for)
            self.hard_dirty = False
            self.hard_seq = seq
        return Persist(seq, hard_state, log.take_unpersisted(seq))

    def take_messages(self) -> tuple[Message, ...]:
        """Return what may leave now."""
        if not self.messages or not self.hard_state_is_durable:
            return ()
        messages = tuple(self.messages)
        self.messages.clear()
        return messages
