"""Comparison of the state between members: digests of applied entries at equal log indexes.

What it builds on: digests are chains, so nodes that agree at one log index agreed at all before it, and nodes
that differ never agree again. The leader says its newest digests once per heartbeat interval, if they are
new. A follower compares them with its own when it has applied that entry, and reports a difference. Then

- if a majority of the voters differs from the leader in the same way, the leader stops;
- if the leader still leads and says its digests after DIFFERENCE_MS, the follower stops.

So one wrong leader does not end two good followers, and without a majority the follower goes. A learner
compares, too, and never counts. Soft state only: a message that is lost is made up for by the next one, and a
new leader begins anew. How digests are computed is the state machine's business.

Source: ARCHITECTURE.md, "Life of a divergence".
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple, Protocol

from quorum.core.machine import StateMachine
from quorum.errors import NodeStoppedError
from quorum.raft.core.configuration import Configuration, quorum_size
from quorum.raft.requests.origins import DigestDifference, DigestNotice

log = logging.getLogger("quorate.digests")

#: how long a follower that differs leaves its leader the time to find a majority that does
DIFFERENCE_MS: Final = 2000.0
#: reported digests that a leader remembers; the nodes that report them stop soon
REPORTED_MAX: Final = 1000


class Digests(NamedTuple):
    """The two digest chains of a state as of one applied entry."""

    log_index: int  #: of the entry
    state_digest: bytes  #: 16 bytes; the znodes
    apply_digest: bytes  #: 16 bytes; results, counters, sessions, origins


class DigestHost(Protocol):
    """What the comparison asks of the node around it."""

    node_id: int

    @property
    def configuration(self) -> Configuration | None:
        """The members, None while this node knows none but those of its settings."""

    @property
    def term(self) -> int:
        """The current term."""

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term as far as this node knows; None while there is none."""

    def peer_ids(self) -> list[int]:
        """The other members."""

    def send(self, message: DigestNotice | DigestDifference) -> None:
        """Send to `message.receiver`, best effort."""


class DigestCheck:
    """One node's part in the comparison, as the leader and as a follower."""

    def __init__(self, host: DigestHost, machine: StateMachine) -> None:
        self._host = host
        self._machine = machine
        #: comparisons with a leader's digests; never falls
        self.compared_count = 0
        #: the log index at which this follower compares next; 0: none
        self.wanted_index = 0
        self._leaders: Digests | None = None
        #: own and leader's digests of the newest comparison if they differ
        self._difference: tuple[Digests, Digests] | None = None
        #: when they differed first and last under this leader, monotonic
        self._first_ms = self._last_ms = 0.0
        #: {digests unlike this leader's: nodes that reported them}
        self._reported: dict[Digests, set[int]] = {}
        #: the last index that this leader said; -1: again
        self._said_index = -1
        self._under: tuple[int, int | None] = 0, None

    def installed(self, machine: StateMachine) -> None:
        """A snapshot replaced the state."""
        self._machine = machine
        self._forget()

    def leadership_changed(self) -> None:
        """Begin anew in a new term, or under a new leader."""
        under = self._host.term, self._host.leader_id
        if under != self._under:
            self._under = under
            self._reported.clear()
            self._said_index = -1
            self._forget()

    def peer_connected(self) -> None:
        """What was said on the old link may be lost: say it again."""
        self._said_index = -1

    def _forget(self) -> None:
        self.wanted_index = 0
        self._leaders = self._difference = None

    def say(self) -> None:
        """Let the others compare; called once per heartbeat interval on the leader."""
        host, own = self._host, self._own()
        if own.log_index != self._said_index:
            self._said_index = own.log_index
            for node_id in host.peer_ids():
                host.send(DigestNotice(host.term, host.node_id, node_id, *own))

    def receive(self, message: DigestNotice | DigestDifference, now_ms: float) -> None:
        """Take a message of the current term."""
        if isinstance(message, DigestDifference):
            self._count(message)
        elif message.sender == self._host.leader_id and not self.wanted_index:
            # One that waits stays: a follower that always lags would never come to compare otherwise.
            self._leaders = Digests(*message[3:])
            self.wanted_index = message.log_index
            if message.log_index <= self._machine.applied_index:
                self.compare(now_ms)

    def compare(self, now_ms: float) -> None:
        """Compare with the leader at the applied entry; called once `wanted_index` is applied."""
        leaders, own, self.wanted_index = self._leaders, self._own(), 0
        if leaders is None or leaders.log_index != own.log_index:
            # This node is ahead of what the leader said: the next one comes.
            return
        self.compared_count += 1
        if leaders == own:
            return
        host = self._host
        if self._difference is None:
            self._first_ms = now_ms
            log.error("the state differs from that of node %s, which leads: %s", host.leader_id, own)
        self._difference, self._last_ms = (own, leaders), now_ms
        if host.leader_id is not None:
            host.send(DigestDifference(host.term, host.node_id, host.leader_id, *own, *leaders[1:]))

    def tick(self) -> None:
        """Stop a follower whose leader goes on."""
        if self._difference is not None and self._last_ms - self._first_ms >= DIFFERENCE_MS:
            raise self._story(
                *self._difference,
                f"node {self._host.leader_id}, which leads term {self._host.term}; no majority of the voters "
                "differs from it in the same way, so the follower stops",
            )

    def _count(self, message: DigestDifference) -> None:
        host, reported = self._host, self._reported
        theirs = Digests(*message[3:6])
        own = theirs._replace(
            state_digest=message.leaders_state_digest, apply_digest=message.leaders_apply_digest
        )
        log.error(
            "the state of node %d differs from this leader's: %s there, %s here", message.sender, theirs, own
        )
        # At the next interval again, so that all nodes that differ report the same index sooner or later.
        self._said_index = -1
        reporters = reported.setdefault(theirs, set())
        reporters.add(message.sender)
        if len(reported) > REPORTED_MAX:
            del reported[next(iter(reported))]
        voters = () if host.configuration is None else host.configuration.voters
        odd_to = sorted(reporters.intersection(voters))
        if odd_to and len(odd_to) >= quorum_size(len(voters)):
            nodes = ", ".join(map(str, odd_to))
            raise self._story(own, theirs, f"nodes {nodes} ({len(odd_to)} of {len(voters)} voters)")

    def _own(self) -> Digests:
        machine = self._machine
        return Digests(machine.applied_index, machine.state_digest, machine.apply_digest)

    def _story(self, own: Digests, other: Digests, whose: str) -> NodeStoppedError:
        return NodeStoppedError(
            f"at log index {own.log_index} the state of this node differs from that of {whose}: "
            f"state_digest {own.state_digest.hex()} here, {other.state_digest.hex()} there; "
            f"apply_digest {own.apply_digest.hex()} here, {other.apply_digest.hex()} there",
            "keep a copy of its data directory for a report; a start replays snapshot and log, which helps "
            "where its memory was at fault; if it stops again, run `quorate members replace "
            f"{self._host.node_id}` and start it with --join on an empty data directory",
        )
