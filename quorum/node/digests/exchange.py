"""Both halves of the comparison on one node: reports and answers on a follower, judgement on the leader.

Decides when digests are sent: what a follower applied since its last report, once per heartbeat interval,
and everything again to a new leader or over a new connection; an idle cluster sends nothing. It stops this
node by raising the verdict's error. Who is the odd one is decided in judge.py. Soft state only: a message
that is lost is made up for by the next report.

Source: raft, "Snapshots" (Digests).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from quorum.core.machine import StateMachine
from quorum.node.digests.history import DigestHistory, Digests
from quorum.node.digests.judge import DigestJudge, Question, Ruling, StopVerdict
from quorum.raft.core.configuration import Configuration
from quorum.raft.requests.origins import DigestQuestion, DigestReport, DigestVerdict

log = logging.getLogger("quorate.digests")

DigestMessage = DigestReport | DigestQuestion | DigestVerdict


class DigestHost(Protocol):
    """What the exchange asks of the node around it."""

    node_id: int

    @property
    def configuration(self) -> Configuration | None:
        """The members; None while this node knows none but those of its settings."""

    @property
    def term(self) -> int:
        """The current term."""

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term as far as this node knows; None while there is none."""

    @property
    def leads(self) -> bool:
        """True while this node is the leader."""

    def peer_ids(self) -> list[int]:
        """The other members."""

    def send(self, message: DigestMessage) -> None:
        """Send to `message.receiver`, best effort."""


class DigestExchange:
    """What one node knows of its own digests and, while it leads, of the others'."""

    def __init__(self, host: DigestHost, machine: StateMachine) -> None:
        """Begin with a restored state.

        Args:
            host: the engine.
            machine: the state.
        """
        self._host = host
        self.history = DigestHistory(_digests_of(machine))
        #: what this leader knows of the others, and the term that it leads in
        self._judge: DigestJudge | None = None
        self._term = 0
        #: the last index that the current leader was told; -1: none
        self._reported_index = -1
        #: an index that the leader asked for and that is not applied yet; 0: none
        self._asked_index = 0
        #: nodes whose conviction was logged in this term
        self._convicted: set[int] = set()
        #: reports that judges of earlier terms compared
        self._compared_before = 0

    @property
    def compared_count(self) -> int:
        """Reports that this node compared with its own digests while it led; never falls."""
        return self._compared_before + (0 if self._judge is None else self._judge.compared_count)

    def installed(self, machine: StateMachine) -> None:
        """A snapshot replaced the state."""
        self.history.restart(_digests_of(machine))

    def leadership_changed(self) -> None:
        """Begin anew in a new term, or towards a new leader."""
        host = self._host
        if self._term != host.term or (self._judge is None) is host.leads:
            self._term = host.term
            self._compared_before = self.compared_count
            self._judge = DigestJudge(host.node_id, self.history) if host.leads else None
            self._convicted.clear()
        self.leader_reconnected()

    def leader_reconnected(self) -> None:
        """What was on its way to the leader may be lost: report again."""
        self._reported_index = -1
        self._asked_index = 0

    def report(self, leader: int) -> None:
        """Tell the leader what is new; called once per heartbeat interval on a follower."""
        newest_index = self.history.newest_index
        if newest_index != self._reported_index:
            self._reported_index = newest_index
            self._send(leader, self.history.newest())
        if 0 < self._asked_index <= newest_index:
            self._answer(leader, self._asked_index)
            self._asked_index = 0

    def receive(self, message: DigestMessage, now_ms: float) -> None:
        """Take a message of the current term.

        Raises:
            NodeStoppedError: this node's state is the odd one.
        """
        match message:
            case DigestReport():
                if self._judge is not None:
                    theirs = Digests(message.log_index, message.state_digest, message.apply_digest)
                    self._carry_out(self._judge.report(message.sender, theirs, self._voters(), now_ms))
            case DigestQuestion():
                if message.sender == self._host.leader_id:
                    if message.log_index > self.history.newest_index:
                        self._asked_index = message.log_index
                    else:
                        self._answer(message.sender, message.log_index)
            case DigestVerdict():
                self._take_verdict(message)

    def tick(self, now_ms: float) -> None:
        """Let a leader judge what time has ripened.

        Raises:
            NodeStoppedError: this node's state is the odd one.
        """
        if self._judge is not None:
            self._carry_out(self._judge.tick(self._voters(), now_ms))

    def _voters(self) -> Iterable[int]:
        host = self._host
        if host.configuration is None:
            return (host.node_id, *host.peer_ids())
        return host.configuration.voters

    def _carry_out(self, rulings: list[Ruling]) -> None:
        host = self._host
        for ruling in rulings:
            if isinstance(ruling, Question):
                host.send(DigestQuestion(host.term, host.node_id, ruling.node_id, ruling.log_index))
            elif ruling.node_id == host.node_id:
                raise ruling.error()
            else:
                self._convict(ruling)

    def _convict(self, verdict: StopVerdict) -> None:
        host = self._host
        if verdict.node_id not in self._convicted:
            self._convicted.add(verdict.node_id)
            log.error(
                "told node %d to stop, its state differs at log index %d: state_digest %s there, %s here; "
                "apply_digest %s there, %s here; with this leader: node %s of %d voters",
                verdict.node_id,
                verdict.own.log_index,
                verdict.own.state_digest.hex(),
                verdict.other.state_digest.hex(),
                verdict.own.apply_digest.hex(),
                verdict.other.apply_digest.hex(),
                ", ".join(map(str, verdict.supporters)),
                verdict.voters,
            )
        host.send(
            DigestVerdict(
                host.term, host.node_id, verdict.node_id, *verdict.other, verdict.supporters, verdict.voters
            )
        )

    def _take_verdict(self, message: DigestVerdict) -> None:
        if message.sender != self._host.leader_id:
            return
        own = self.history.at(message.log_index)
        other = Digests(message.log_index, message.state_digest, message.apply_digest)
        if own is None or own == other:
            # Meant for an earlier life of this node; its next report is judged by itself.
            log.warning("ignored a verdict of node %d on log index %d", message.sender, message.log_index)
            return
        raise StopVerdict(self._host.node_id, own, other, message.supporters, message.voters).error()

    def _answer(self, leader: int, log_index: int) -> None:
        digests = self.history.at(log_index)
        if digests is not None:
            self._send(leader, digests)

    def _send(self, leader: int, digests: Digests) -> None:
        self._host.send(DigestReport(self._host.term, self._host.node_id, leader, *digests))


def _digests_of(machine: StateMachine) -> Digests:
    return Digests(machine.applied_index, machine.state_digest, machine.apply_digest)
