"""Requests of operators on any node: they go to the leader as batches do, and are answered through the log.

A request is a batch of its own, named (asked node, its origin incarnation, number), so it is in the log once,
whatever happens on its way. The leader of the term in which it was appended judges it when it applies it, and
writes its answer after the change; no later leader judges it. The asked node answers when it applies that,
so what it says was true, and committed, at that place of the log. What a configuration shows does not
answer a request, because this node may lag. A hand-over has no entry but its refusal, or that it was given
up; it is done once the node leads a later term. Only the deadline makes an outcome unknown: the leader was
lost between request and answer, or a snapshot hides them. Soft state only.

Source: ARCHITECTURE.md, "Life of a change of members"; docs/internals/consensus.md, "Membership".
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import msgpack

from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    NotLeaderError,
    OutcomeUnknownError,
    ProposalRefusedError,
    QuorateError,
)
from quorum.raft.core import errors as core_errors
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.entry import EntryKind
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.requests.origin_shell import Forwarder
from quorum.raft.requests.payloads import CONTROL_FORMAT, REQUEST_FORMAT
from quorum.raft.requests.requests import Action, Answer, LeaderRequest, Outcome, parse_request

log = logging.getLogger("quorate.administration")

#: requests of this node that wait for their outcome
PENDING_MAX: Final = 64
#: what one text of an answer carries
TEXT_CHARS_MAX: Final = 1000

#: takes the outcome: the log index of the change (0 of a leadership that moved), or why not
OnOutcome = Callable[[int | QuorateError], None]


class Asked(NamedTuple):
    """The name of a request: that of its batch."""

    origin: int
    incarnation: int
    number: int


class AdministrationHost(Protocol):
    """What is asked of the node around it."""

    node_id: int

    @property
    def term(self) -> int:
        """The current term."""

    @property
    def leader_id(self) -> int | None:
        """The leader of the current term as far as this node knows; None while there is none."""

    @property
    def leads(self) -> bool:
        """True while this node is the leader."""

    @property
    def configuration(self) -> Configuration | None:
        """The latest configuration in the log, committed or not."""

    @property
    def configuration_index(self) -> int:
        """Log index of the latest configuration."""

    def is_connected(self, node_id: int) -> bool:
        """Tell whether the link to a member is up."""

    def change_members(self, change: MembershipChange) -> int:
        """Append a change of members; see the core's `Raft.change_members`."""

    def begin_transfer(self, node_id: int | None) -> None:
        """Begin to hand leadership over."""

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        """Append an entry to the leader's log."""


@dataclass(slots=True, eq=False)
class _Pending:
    """A request of this node that is not answered."""

    request: LeaderRequest
    on_outcome: OnOutcome
    deadline_ms: float
    #: term in which it was appended, once it is applied here; 0 before
    term: int = 0


class Administration:
    """The requests that this node was asked, and those that it judges while it leads."""

    def __init__(
        self,
        host: AdministrationHost,
        forwarder: Forwarder[Any],
        config_version: Callable[[], int],
        *,
        deadline_ms: float,
    ) -> None:
        """Begin with nothing.

        Args:
            host: the engine.
            forwarder: takes this node's batches to the leader.
            config_version: the applied version of /zookeeper/config.
            deadline_ms: how long a request waits before its outcome counts as unknown.
        """
        self._host = host
        self._forwarder = forwarder
        self._config_version = config_version
        self._deadline_ms = deadline_ms
        #: oldest first
        self._pending: dict[Asked, _Pending] = {}
        #: hand-overs that this leader began, and to which node
        self._hand_overs: dict[Asked, int] = {}
        self._stopped = False

    # --- the node that was asked --------------------------------------------------------------------------

    def submit(self, request: LeaderRequest, on_outcome: OnOutcome, now_ms: float) -> None:
        """Take a request; `on_outcome` is called once, perhaps before this returns.

        Args:
            request: checked for its form.
            on_outcome: gets the log index of the change, or the error: definite, or OutcomeUnknownError.
            now_ms: monotonic clock.
        """
        refusal = self._refusal_at_once()
        if refusal is not None:
            on_outcome(refusal)
            return
        forwarder = self._forwarder
        asked = Asked(self._host.node_id, forwarder.incarnation, forwarder.next_number)
        self._pending[asked] = _Pending(request, on_outcome, now_ms + self._deadline_ms)
        forwarder.submit(msgpack.packb([REQUEST_FORMAT, *asked, request]), (), now_ms)

    def _refusal_at_once(self) -> QuorateError | None:
        host = self._host
        leader_id = host.leader_id
        if self._stopped:
            return NoLeaderError(f"node {host.node_id} stops", "ask another member")
        if leader_id is None:
            return NoLeaderError(
                f"no leader is known in term {host.term}", "try again, or bring a majority back"
            )
        if leader_id != host.node_id and not host.is_connected(leader_id):
            return NoLeaderError(
                f"node {leader_id} leads and is not connected", "try again, or ask that node"
            )
        if len(self._pending) >= PENDING_MAX:
            return ChangeBusyError(f"{PENDING_MAX} requests wait for their outcome", "try again later")
        return None

    def _look_for_leader(self, asked: Asked, pending: _Pending) -> None:
        """Answer a hand-over once a later term has a leader: no node can begin to lead an older term."""
        leader_id, wanted = self._host.leader_id, pending.request.node_id
        if leader_id is None or not 0 < pending.term < self._host.term:
            return
        if leader_id == wanted:
            self._tell(asked, 0)
        else:
            problem = f"node {leader_id} leads term {self._host.term} instead of node {wanted}"
            self._tell(asked, ChangeRefusedError(problem, "ask again if that node is connected"))

    def tick(self, now_ms: float) -> None:
        """Give up what is overdue."""
        for asked, pending in list(self._pending.items()):
            if pending.deadline_ms <= now_ms:
                self._tell_unknown(asked, f"not known within {self._deadline_ms:.0f} ms")

    def stop(self) -> None:
        """This node stops: whatever waits is answered with what is known, which is nothing."""
        self._stopped = True
        for asked in list(self._pending):
            self._tell_unknown(asked, f"node {self._host.node_id} stops")

    def _tell_unknown(self, asked: Asked, reason: str) -> None:
        pending = self._pending[asked]
        action, node_id = pending.request.action.name.lower(), pending.request.node_id
        stage = "is in the log" if pending.term else "was sent to the leader"
        problem = f"outcome unknown: {action} of node {node_id} {stage}, and its end is {reason}"
        self._tell(asked, OutcomeUnknownError(problem, _how_to_repeat(pending.request)))

    def _tell(self, asked: Asked, result: int | QuorateError) -> None:
        pending = self._pending.pop(asked)
        action, node_id = pending.request.action.name.lower(), pending.request.node_id
        if isinstance(result, QuorateError):
            log.warning("%s of node %d: %s", action, node_id, result)
        else:
            log.info("%s of node %d is done", action, node_id)
        pending.on_outcome(result)

    # --- what this node applies ---------------------------------------------------------------------------

    def applied(self, asked: Asked, plain: object, index: int, term: int) -> None:
        """Take a request that became part of the log; the leader that appended it judges it.

        Args:
            asked: its name.
            plain: the fields of a LeaderRequest; anything else is void.
            index: of its entry.
            term: of its entry.
        """
        request, host = parse_request(plain), self._host
        if request is None:
            return
        pending = self._pending.get(asked)
        if pending is not None:
            pending.term = term
        if host.leads and host.term == term:
            answer = self._judge(asked, request, index)
            if answer is not None:
                self._answer(asked, answer)
        if pending is not None and request.action is Action.TRANSFER:
            self._look_for_leader(asked, pending)

    def answers_applied(self, proposals: object) -> None:
        """Take the answers among a leader's proposals that became part of the log."""
        for proposal in proposals if isinstance(proposals, list) else ():
            match proposal:
                case ["answer", int(origin), int(incarnation), int(number), int(), int(), str(), str()]:
                    asked = Asked(origin, incarnation, number)
                    if asked in self._pending:
                        self._tell(asked, Answer(*proposal[4:]).result())

    def leadership_changed(self, transfer_target: int = 0) -> None:
        """Role, term, leader or hand-over changed.

        Args:
            transfer_target: the voter to which this leader hands over now, 0 for none.
        """
        host = self._host
        if not transfer_target:
            # Of those that this leader gave up; while it goes to another node the first one may take over.
            hand_overs, self._hand_overs = self._hand_overs, {}
            for asked, target in hand_overs.items() if host.leads else ():
                self._answer(asked, _not_taken(target, f"node {host.node_id} leads term {host.term} on"))
        for asked, pending in list(self._pending.items()):
            if pending.request.action is Action.TRANSFER:
                self._look_for_leader(asked, pending)

    # --- the leader ---------------------------------------------------------------------------------------

    def _judge(self, asked: Asked, request: LeaderRequest, index: int) -> Answer | None:
        """Let the core decide; None without an answer, now or for ever."""
        try:
            return self._decide(asked, request, index)
        except (core_errors.MembershipBusyError, core_errors.TransferBusyError) as error:
            return _refused(Outcome.BUSY, error.problem, error.remedy)
        except core_errors.RefusedError as error:
            return _refused(Outcome.REFUSED, error.problem, error.remedy)
        except core_errors.NotLeaderError as error:
            log.info("%s of node %d is not judged: %s", request.action.name.lower(), request.node_id, error)
            return None

    def _decide(self, asked: Asked, request: LeaderRequest, index: int) -> Answer | None:
        host, node_id, action = self._host, request.node_id, request.action
        configuration = host.configuration
        assert configuration is not None
        if action is not Action.ADD and configuration.member(node_id) is None:
            members = ", ".join(map(str, sorted((*configuration.voters, *configuration.learners))))
            problem = f"node {node_id} is not a member; members are {members}"
            remedy = "name one of them; `quorate members add` lets another node in"
            return _refused(Outcome.NOT_A_MEMBER, problem, remedy)
        log.info("was asked to %s node %d %s", action.name.lower(), node_id, request.address)
        stale = self._stale(request, index)
        if stale is not None:
            return stale
        change: MembershipChange
        match action:
            case Action.TRANSFER:
                if node_id == host.node_id:
                    return Answer(Outcome.ACCEPTED)
                host.begin_transfer(node_id)
                self._hand_overs[asked] = node_id
                return None
            case Action.ADD:
                change = AddMember(node_id, request.address)
            case Action.REPLACE:
                change = ReplaceMember(node_id, request.incarnation, request.force)
            case Action.REMOVE:
                change = RemoveMember(node_id)
        return Answer(Outcome.ACCEPTED, host.change_members(change))

    def _stale(self, request: LeaderRequest, index: int) -> Answer | None:
        """Refuse a request that was meant for another configuration than the present one."""
        if request.config_version is None:
            return None
        if self._host.configuration_index > index:
            return _refused(Outcome.BUSY, "another change of members is under way", "try again in a moment")
        present = self._config_version()
        if request.config_version == present:
            return None
        problem = f"the configuration has version {present:x}, not {request.config_version:x}"
        return _refused(Outcome.OTHER_VERSION, problem, "read /zookeeper/config again")

    def _answer(self, asked: Asked, answer: Answer) -> None:
        """Write the end of a request into the log, after what made it so."""
        try:
            payload = msgpack.packb([CONTROL_FORMAT, [["answer", *asked, *answer]]])
            self._host.propose(EntryKind.CONTROL, payload)
        except (NotLeaderError, ProposalRefusedError) as error:
            log.warning("the outcome of a request of node %d stays unknown there: %s", asked.origin, error)


def _refused(outcome: Outcome, problem: str, remedy: str) -> Answer:
    return Answer(outcome, 0, problem[:TEXT_CHARS_MAX], remedy[:TEXT_CHARS_MAX])


def _not_taken(target: int, leads_on: str) -> Answer:
    """Return the answer to a hand-over that was given up; its node may take over when it goes on."""
    problem = f"node {target} did not take over in time, and {leads_on}"
    remedy = f"see whether node {target} answers and ask again; it may still take over when it goes on"
    return Answer(Outcome.NOT_TAKEN, 0, problem, remedy)


def _how_to_repeat(request: LeaderRequest) -> str:
    look = "look at the members and the leader (`quorate status`) before asking again"
    if request.action is not Action.REPLACE:
        return look
    if request.incarnation:
        return f"{look}; a repetition with the same incarnation retires no other disk"
    return (
        f"{look}; a repetition that names the incarnation of the lost disk (`quorate members list --json`) "
        "retires no other"
    )
