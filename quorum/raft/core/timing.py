"""When to campaign: after silence, soon for a fresh reason, later from attempt to attempt.

Decides delays only; what is done when one ends is decided by `elections.py`. Soft state.
"""

from typing import Protocol

from quorum.raft.core.options import Options
from quorum.raft.core.roles import NEVER

#: pre-votes in a row that are tried again at once; each one after them waits twice as long as the one before
QUICK_ATTEMPTS = 4


class Randomness(Protocol):
    """What the core draws its election delays from; `random.Random` fits."""

    def uniform(self, a: float, b: float, /) -> float:
        """Return a number between a and b."""


class ElectionTimer:
    """The contact with the leader, and the next campaign of a node that does not lead."""

    def __init__(self, options: Options, rng: Randomness, now_ms: float) -> None:
        """Begin with a short delay: a start is a fresh reason."""
        self._options = options
        self._rng = rng
        self._pause_forgiven = False  #: a late campaign was put off once already
        self._attempts = 0  #: pre-votes in a row since a leader was heard or a pre-vote won
        #: elections in a row that this node began, since a leader was heard or it was one
        self.elections = 0
        #: until when, by its own clock, this term's leader is known to have heard this node: only what comes
        #: back is contact, since a leader that is heard may hear nothing, and what is read late may be old
        self.echoed_ms = NEVER
        self._span_ms = self._draw_timeout()
        self.campaign_ms = now_ms + self._draw_prompt()  #: when to campaign unless a leader is heard

    def _draw_timeout(self) -> float:
        return self._rng.uniform(self._options.election_timeout_min_ms, self._options.election_timeout_max_ms)

    def _draw_prompt(self) -> float:
        return self._rng.uniform(self._options.prompt_delay_min_ms, self._options.prompt_delay_max_ms)

    def restart(self, now_ms: float) -> None:
        """Wait for an election timeout that is drawn now."""
        self._span_ms = self._draw_timeout()
        self.put_off(now_ms)

    def put_off(self, now_ms: float) -> None:
        """Wait for the whole election timeout that was drawn."""
        self.campaign_ms = now_ms + self._span_ms

    def begin_attempt(self, pre: bool, now_ms: float) -> None:
        """Note that this node campaigns."""
        self.restart(now_ms)
        self._pause_forgiven = False
        self._attempts = self._attempts + 1 if pre else 0
        self.elections += not pre

    def hear_leader(self, now_ms: float) -> None:
        """Note a message of the current leader."""
        self.campaign_ms = now_ms + self._span_ms
        self._pause_forgiven = False
        self._attempts = self.elections = 0

    def forgive_pause(self, now_ms: float) -> None:
        """Put a campaign off, once, because this node itself was paused: the leader's messages may wait in
        its buffers."""
        if self.campaign_ms <= now_ms and not self._pause_forgiven:
            self._pause_forgiven = True
            self.campaign_ms = now_ms + self._options.heartbeat_interval_ms

    def hurry(self, now_ms: float) -> None:
        """Campaign soon, because there is a fresh reason: a connection came or went."""
        self.campaign_ms = min(self.campaign_ms, now_ms + self._draw_prompt() * self._patience())

    def retry_soon(self, now_ms: float) -> None:
        """Try again at once, because a voter that refused may hear of the leader's end any moment."""
        delay_ms = self._rng.uniform(self._options.retry_delay_min_ms, self._options.retry_delay_max_ms)
        self.campaign_ms = min(self.campaign_ms, now_ms + delay_ms * self._patience())

    def _patience(self) -> int:
        """Return how many times longer than a first one this attempt waits; election timeouts bound it.

        A node that goes on being refused, as one that was removed without hearing of it, comes to their pace.
        And from the second election in a row on each doubles it: where a vote takes longer than the delays,
        rivals would give up their elections before the votes arrive, for ever.
        """
        doublings = max(0, self._attempts - QUICK_ATTEMPTS) + max(0, self.elections - 2)
        return 1 << min(doublings, 10)
