"""How nodes treat each other in a term: what no log shows when it is broken, or only much later.

- Nobody begins a term unasked: a campaign follows grants of its pre-vote by a majority, or a leader's call.
- Nobody leads a term in which it was not elected: a majority has told it so in that term, each by the
  incarnation that votes.
- Nobody is counted for more than it has said itself in the term.
- Nobody votes while it hears a leader, unless that leader asked for the election.
- Nobody goes on leading unheard: without a word of a majority a leader stops within an election timeout.

Judged by the messages that reach a node and leave it; every doubt about times is in favour of
the node. Source: docs/internals/consensus.md, D8, "Rules of the core"; dissertation §3.10, §4.2.3, §6.2,
§9.6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from quorum.raft.core.configuration import Member, quorum_size
from quorum.raft.core.entry import CONFIGURATION_KINDS
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Role,
    SnapshotChunk,
    SnapshotChunkReply,
    TimeoutNow,
    Vote,
    VoteReply,
)
from quorum.raft.core.node import Node
from quorum.raft.core.roles import Leader
from quorum.raft.peers.peers import PeerNode

#: shorter than the shortest election timeout: a leader that was heard so recently is heard
HEARD_MS = 240.0
#: longer than the shortest election timeout, and than what keeps a node from looking at its clock
UNHEARD_MS = 700.0
#: rounds of heartbeats that a leader may send behind that: if it stood still it asks anew, for as long as the
#: shortest election timeout, which is six of them
ROUNDS_MAX = 8
INVARIANT = "elections"

_NOBODY = Member("", "nobody")
_OF_LEADERS = (Append, Heartbeat, SnapshotChunk)


class Subject(Protocol):
    """A life that is watched."""

    raft: Node


class Manners:
    """What one life heard, and whether what it says fits."""

    def __init__(
        self, life: Subject, now_ms: Callable[[], float], break_: Callable[[str, str], None]
    ) -> None:
        """Begin with nothing heard.

        Args:
            life: whose.
            now_ms: virtual time.
            break_: told (invariant, story).
        """
        self._life = life
        self._now_ms = now_ms
        self._break = break_
        #: (term, leader, when) of the last message of a leader; term -1 where there is none
        self._heard = (-1, 0, 0.0)
        #: {(term, pre): who granted a vote for it: (member, its incarnation)}
        self._granted: dict[tuple[int, bool], set[tuple[int, str]]] = {}
        #: the term of `_matches`
        self._matches_term = -1
        #: {(member, its incarnation): up to where it said that its log is the leader's}
        self._matches: dict[tuple[int, str], int] = {}
        #: terms whose leaders asked this node to campaign
        self._called: set[int] = set()
        #: {(who asked, term, pre): whether it must be refused, each time that it asked}
        self._deaf: dict[tuple[int, int, bool], bool] = {}
        #: {member: when it was heard last}
        self._contacts: dict[int, float] = {}
        #: (term, when it was won) of the leadership under way
        self._won = (-1, 0.0)
        self._unheard_rounds = 0
        self._round_ms = 0.0
        #: (index, term) of the configurations that were last found in the log
        self._counts_by: list[tuple[int, int | None]] = []

    def received(self, node: PeerNode, message: Any) -> None:
        """A message is about to be handed to the node."""
        now_ms = self._now_ms()
        raft = self._life.raft
        self._contacts[node.node_id] = now_ms
        if isinstance(raft.role, Leader):
            self._counts(raft.role)
        match message:
            case AppendReply() | HeartbeatReply() | SnapshotChunkReply():
                self._says(node, message)
            case Append() | Heartbeat() | SnapshotChunk() if message.term >= raft.term:
                if raft.halted and message.term > raft.term:
                    # Without room on its disk it cannot take the term, and does not follow who leads it.
                    return
                self._heard = (message.term, message.sender, now_ms)
            case VoteReply(granted=True):
                voter = node.node_id, node.incarnation
                self._granted.setdefault((message.asked_term, message.pre), set()).add(voter)
            case TimeoutNow():
                self._called.add(message.term)
            case Vote():
                self._asked(message, node.incarnation, now_ms)

    def lost(self, node: PeerNode) -> None:
        """The connection with a member is gone."""
        if self._heard[1] == node.node_id:
            self._heard = (-1, 0, 0.0)

    def sent(self, message: Any) -> None:
        """A message leaves the node."""
        if isinstance(message, AppendReply | Vote | VoteReply | Heartbeat):
            self._counts_by_its_log()
        match message:
            case Vote(pre=False):
                self._campaigns(message)
            case VoteReply(granted=True):
                if self._deaf.get((message.receiver, message.asked_term, message.pre)):
                    story = (
                        f"{self._life} heard {self._heard} (term, leader, ms), or was asked by a retired disk"
                    )
                    self._break(INVARIANT, f"{story}, and sent {message}")
            case Heartbeat():
                self._leads(message)

    def _counts_by_its_log(self) -> None:
        """What a node knows of the members is said by entries of its log, or by the snapshot before them."""
        raft = self._life.raft
        log = raft.log
        # The first item may be a snapshot's. A look at the disk would change the run.
        known = [
            (index, log.term_at(index)) for index, _ in raft.history._items[1:] if index >= log._cache_first
        ]
        if known == self._counts_by:
            return
        self._counts_by = known
        for index, _ in known:
            said_by = log.slice(index, index, 1) if index <= log.last_index else ()
            if not said_by or said_by[0].kind not in CONFIGURATION_KINDS:
                story = (
                    f"{self._life} counts by a configuration of index {index}, where its log has {said_by}"
                )
                self._break(INVARIANT, story)

    def _asked(self, vote: Vote, incarnation: str, now_ms: float) -> None:
        term, _, heard_ms = self._heard
        raft = self._life.raft
        hears = raft.role.kind is Role.LEADER or (term == raft.term and now_ms - heard_ms < HEARD_MS)
        key = (vote.sender, vote.term, vote.pre)
        retired = raft.history.latest is not None and incarnation in raft.history.latest.retired
        self._deaf[key] = (retired or (hears and not vote.transfer)) and self._deaf.get(key, True)

    def _campaigns(self, vote: Vote) -> None:
        if vote.transfer:
            if vote.term - 1 not in self._called:
                self._break(INVARIANT, f"{self._life} sent {vote}, and no leader had called it")
            return
        self._check_grants(vote, pre=True)

    def _check_grants(self, message: Vote | Heartbeat, *, pre: bool) -> None:
        """A majority must have been for what begins with this message."""
        raft = self._life.raft
        latest = raft.history.latest
        voters = len(raft.identity.founders if latest is None else latest.voters)
        granted = {
            node_id
            for node_id, incarnation in self._granted.get((message.term, pre), ())
            if latest is None or latest.voters.get(node_id, _NOBODY).incarnation == incarnation
        }
        # Its own vote; and while it founds or changes the cluster one member more may be a voter by now.
        if len(granted) + 1 < quorum_size(voters):
            self._break(
                INVARIANT, f"{self._life} sent {message}; of {voters} only {sorted(granted)} had been for it"
            )

    def _says(self, node: PeerNode, reply: AppendReply | HeartbeatReply | SnapshotChunkReply) -> None:
        """A member says up to where its log is the leader's."""
        term = self._life.raft.term
        if term != self._matches_term:
            self._matches_term = term
            self._matches.clear()
        if reply.term == term:
            key = node.node_id, node.incarnation
            self._matches[key] = max(self._matches.get(key, 0), reply.match_index)

    def _counts(self, leader: Leader) -> None:
        """Compare what is counted with what was said."""
        raft = self._life.raft
        said = self._matches if raft.term == self._matches_term else {}
        for node_id, peer in leader.progress.items():
            up_to = said.get((node_id, peer.incarnation), 0)
            if peer.match_index > up_to:
                self._break(
                    INVARIANT,
                    f"{self._life} counts node {node_id} up to {peer.match_index} in term {raft.term}; "
                    f"it has said {up_to}",
                )

    def _leads(self, heartbeat: Heartbeat) -> None:
        now_ms = self._now_ms()
        if heartbeat.term != self._won[0]:
            self._won = (heartbeat.term, now_ms)
            self._unheard_rounds = 0
            self._check_grants(heartbeat, pre=False)
        latest = self._life.raft.history.latest
        if latest is None or now_ms == self._round_ms:
            return
        self._round_ms = now_ms
        own = self._life.raft.identity.node_id
        since_ms = now_ms - UNHEARD_MS
        heard = [
            node_id
            for node_id in latest.voters
            if node_id == own or max(self._contacts.get(node_id, 0.0), self._won[1]) >= since_ms
        ]
        if len(heard) >= quorum_size(len(latest.voters)):
            self._unheard_rounds = 0
            return
        self._unheard_rounds += 1
        if self._unheard_rounds > ROUNDS_MAX:
            self._break(
                INVARIANT,
                f"{self._life} goes on leading term {heartbeat.term}; of {sorted(latest.voters)} it has "
                f"heard only {heard} within {UNHEARD_MS:.0f} ms",
            )
