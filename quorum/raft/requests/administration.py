"""Requests of operators on any node: handed to the leader, and answered once their fate is known here.

Both halves of it. As the leader it judges requests through the core, each at most once in its term. As the
node that was asked it waits: for the leader's word, and then until the change is applied here or the
leadership has moved. Each request is answered once: done, a definite refusal, or "outcome unknown" after the
deadline. A leader change by itself answers nothing: what was accepted may still commit. What a configuration
shows is no answer, because this node may lag behind: it may show what was done, and undone, long before
somebody asked for it. Only that an incarnation is retired stays true for good. What is so already, and that a
node to be removed is no member, holds once a no-op of the leader is committed. Soft state only.

Source: docs/http.md.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorateError,
)
from quorum.raft.core import errors as core_errors
from quorum.raft.core.configuration import Configuration
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.requests.requests import (
    Action,
    ChangeReply,
    ChangeRequest,
    LeaderDecision,
    LeaderRequest,
    Outcome,
)

log = logging.getLogger("quorate.administration")

#: requests of this node that wait for their outcome
PENDING_MAX: Final = 64
#: answers that a leader remembers, so that a repeated message is not judged again
ANSWERS_MAX: Final = 1024
#: what one text of a reply carries
TEXT_CHARS_MAX: Final = 1000

#: what is told to whoever asked: the log index of the change (0 of a leadership that moved), or why not
Told = Callable[[int | QuorateError], None]


class AdministrationHost(Protocol):
    """What is asked of the node around it."""

    node_id: int
    applied_index: int

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

    def confirm(self) -> int:
        """Append a no-op; see the core's `Raft.confirm`."""

    def begin_transfer(self, node_id: int | None) -> None:
        """Begin to hand leadership over."""

    def when_applied(self, index: int, term: int, callback: Callable[[bool], None]) -> None:
        """Call back once, when an entry was applied at `index`: whether it was that of `term`."""

    def send(self, message: ChangeRequest | ChangeReply) -> None:
        """Send to `message.receiver`, best effort."""


@dataclass(slots=True, eq=False)
class _HandOver:
    """A hand-over that this node began as the leader for somebody who waits for its end."""

    target: int
    #: whether it was seen under way, so that it is over once it is not
    seen: bool = False


@dataclass(slots=True, eq=False)
class _Pending:
    """A request of this node that is not answered."""

    request: LeaderRequest
    told: Told
    deadline_ms: float
    #: term of the leader that it was handed to
    term: int
    #: the leader's word, once it has come: it holds once its entry is applied here
    answer: LeaderDecision | None = None


class Administration:
    """The requests that this node was asked, and those that it judges while it leads."""

    def __init__(
        self,
        host: AdministrationHost,
        applied_configuration: Callable[[], Configuration | None],
        config_version: Callable[[], int],
        *,
        first_request_id: int,
        deadline_ms: float,
    ) -> None:
        """Begin with nothing.

        Args:
            host: the engine.
            applied_configuration: the state machine's latest configuration, None before the founding.
            config_version: the applied version of /zookeeper/config.
            first_request_id: above every id that this node used in earlier lives.
            deadline_ms: how long a request waits before its outcome counts as unknown.
        """
        self._host = host
        self._applied_configuration = applied_configuration
        self._config_version = config_version
        self._deadline_ms = deadline_ms
        self._next_id = first_request_id
        #: {request id: request}, oldest first
        self._pending: dict[int, _Pending] = {}
        #: {(asking node, request id): the answer that it got in `_answers_term`}, oldest first
        self._answers: OrderedDict[tuple[int, int], LeaderDecision] = OrderedDict()
        self._answers_term = 0
        #: {(asking node, request id): hand-over}, of the present leadership
        self._hand_overs: dict[tuple[int, int], _HandOver] = {}
        self._stopped = False

    @property
    def pending_count(self) -> int:
        """Requests that are not answered."""
        return len(self._pending)

    # --- the node that was asked --------------------------------------------------------------------------

    def submit(self, request: LeaderRequest, told: Told, now_ms: float) -> None:
        """Take a request; `told` is called once, perhaps before this returns.

        Args:
            request: checked for its form.
            told: gets the log index of the change, or the error: definite, or OutcomeUnknownError.
            now_ms: monotonic clock.
        """
        host = self._host
        refusal = self._refusal_at_once()
        if refusal is not None:
            told(refusal)
            return
        request_id = self._next_id
        self._next_id += 1
        pending = _Pending(request, told, now_ms + self._deadline_ms, host.term)
        self._pending[request_id] = pending
        if host.leads:
            self._take_answer(request_id, pending, self._judge(request, (host.node_id, request_id)))
            return
        leader_id = host.leader_id
        assert leader_id is not None
        host.send(ChangeRequest(host.term, host.node_id, leader_id, request_id, *request))

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

    def _take_answer(self, request_id: int, pending: _Pending, answer: LeaderDecision) -> None:
        """Act on the leader's first word; a later one is a repetition, or the end of a hand-over."""
        if pending.answer is not None and answer.outcome is not Outcome.NOT_TAKEN:
            return
        if answer.outcome is not Outcome.ACCEPTED and not answer.log_index:
            self._tell(request_id, answer.error())
            return
        pending.answer = answer
        if not answer.log_index:
            self._look_for_leader(request_id, pending)
        elif answer.log_index <= self._host.applied_index:
            # What a leader of this term has in its log and this node has applied is one and the same.
            self._tell(request_id, answer.result())
        else:
            self._host.when_applied(
                answer.log_index, answer.entry_term, lambda same: self._entry_applied(request_id, same=same)
            )

    def _entry_applied(self, request_id: int, *, same: bool) -> None:
        pending = self._pending.get(request_id)
        if pending is None or pending.answer is None:
            return
        if same:
            self._tell(request_id, pending.answer.result())
            return
        action, node_id = pending.request.action.name.lower(), pending.request.node_id
        problem = f"another leader's entry took the place of the one for the {action} of node {node_id}"
        self._tell(request_id, ChangeBusyError(problem, "nothing changed: try again"))

    def leadership_changed(self, transfer_target: int = 0) -> None:
        """Role, term, leader or hand-over changed.

        Args:
            transfer_target: the voter to which this leader hands over now, 0 for none.
        """
        self._end_hand_overs(transfer_target)
        for request_id, pending in list(self._pending.items()):
            if pending.request.action is Action.TRANSFER:
                self._look_for_leader(request_id, pending)

    def _end_hand_overs(self, transfer_target: int) -> None:
        """Tell whoever asked for a hand-over that this leader has given up: the node did not take over.

        It was told to campaign, perhaps, and may yet do so when it goes on: the outcome is not known.
        """
        host = self._host
        if not host.leads:
            self._hand_overs.clear()
        for key, hand_over in list(self._hand_overs.items()):
            if hand_over.target == transfer_target:
                hand_over.seen = True
            elif hand_over.seen and not transfer_target:
                # While it goes to another node this one may still take over: who leads then is the answer.
                del self._hand_overs[key]
                target = hand_over.target
                leads_on = f"node {host.node_id} leads term {host.term} on"
                problem = f"node {target} did not take over in time, and {leads_on}"
                remedy = (
                    f"see whether node {target} answers and ask again; it may still take over when it goes on"
                )
                self._answer(key, LeaderDecision(Outcome.NOT_TAKEN, problem=problem, remedy=remedy))

    def _answer(self, key: tuple[int, int], answer: LeaderDecision) -> None:
        """Tell the end of a hand-over to the node that was asked."""
        asking, request_id = key
        if asking != self._host.node_id:
            if key in self._answers:
                self._answers[key] = answer
            self._host.send(ChangeReply(self._host.term, self._host.node_id, asking, request_id, *answer))
        elif request_id in self._pending:
            self._take_answer(request_id, self._pending[request_id], answer)

    def _look_for_leader(self, request_id: int, pending: _Pending) -> None:
        """Answer a hand-over once somebody else leads; nobody who was told to lead in an older term can."""
        leader_id, wanted = self._host.leader_id, pending.request.node_id
        if leader_id is None or self._host.term == pending.term:
            return
        if leader_id == wanted:
            self._tell(request_id, 0)
        else:
            problem = f"node {leader_id} leads term {self._host.term} instead of node {wanted}"
            self._tell(request_id, ChangeRefusedError(problem, "ask again if that node is connected"))

    def state_installed(self, term: int) -> None:
        """A snapshot replaced the state: the entries that are waited for will not be applied one by one.

        Args:
            term: of the last entry that the snapshot covers.
        """
        for request_id, pending in list(self._pending.items()):
            answer = pending.answer
            if self._tell_if_retired(request_id, pending) or answer is None:
                continue
            if 0 < answer.log_index <= self._host.applied_index:
                # Whoever has an entry of a term has all that this term's leader wrote before it.
                covered = answer.entry_term == term
                hidden = self._unknown(pending, "a snapshot hides it")
                self._tell(request_id, answer.result() if covered else hidden)

    def _tell_if_retired(self, request_id: int, pending: _Pending) -> bool:
        """Answer a replacement whose disk is retired in the applied state; tell whether it was answered."""
        incarnation = pending.request.incarnation
        if not incarnation or (pending.answer is None and pending.term == self._host.term):
            # The leader that it was handed to may still judge it.
            return False
        configuration = self._applied_configuration()
        retired = configuration is not None and incarnation in configuration.retired
        if retired:
            self._tell(request_id, self._host.applied_index)
        return retired

    def tick(self, now_ms: float) -> None:
        """Answer what got no answer from its leader and is so for good; give up what is overdue."""
        for request_id, pending in list(self._pending.items()):
            if not self._tell_if_retired(request_id, pending) and pending.deadline_ms <= now_ms:
                self._tell(request_id, self._unknown(pending, f"not known within {self._deadline_ms:.0f} ms"))

    def stop(self) -> None:
        """This node stops: whatever waits is answered with what is known, which is nothing."""
        self._stopped = True
        for request_id, pending in list(self._pending.items()):
            self._tell(request_id, self._unknown(pending, f"node {self._host.node_id} stops"))

    def _unknown(self, pending: _Pending, reason: str) -> OutcomeUnknownError:
        action, node_id = pending.request.action.name.lower(), pending.request.node_id
        stage = "sent to" if pending.answer is None else "answered by"
        if pending.answer is not None and pending.answer.outcome is Outcome.ACCEPTED:
            stage = "accepted by"
        return OutcomeUnknownError(
            f"outcome unknown: {action} of node {node_id} was {stage} the leader, and its end is {reason}",
            _how_to_repeat(pending),
        )

    def _tell(self, request_id: int, result: int | QuorateError) -> None:
        pending = self._pending.pop(request_id)
        action, node_id = pending.request.action.name.lower(), pending.request.node_id
        if isinstance(result, QuorateError):
            log.warning("%s of node %d: %s", action, node_id, result)
        else:
            log.info("%s of node %d is done", action, node_id)
        pending.told(result)

    # --- messages -----------------------------------------------------------------------------------------

    def receive(self, message: ChangeRequest | ChangeReply) -> None:
        """Handle a message of the host's current term; others are the host's to drop."""
        host = self._host
        if isinstance(message, ChangeReply):
            pending = self._pending.get(message.request_id)
            if pending is not None and message.sender == host.leader_id and message.term == pending.term:
                answer = LeaderDecision(*message[4:])
                self._take_answer(message.request_id, pending, answer)
            return
        if self._answers_term != host.term:
            self._answers_term = host.term
            self._answers.clear()
        key = message.sender, message.request_id
        known = self._answers.get(key)
        if known is None:
            known = self._judge(LeaderRequest(*message[4:]), key)
            self._answers[key] = known
            if len(self._answers) > ANSWERS_MAX:
                self._answers.popitem(last=False)
        host.send(ChangeReply(host.term, host.node_id, message.sender, message.request_id, *known))

    # --- the leader ---------------------------------------------------------------------------------------

    def _judge(self, request: LeaderRequest, key: tuple[int, int]) -> LeaderDecision:
        """Let the core decide; as the leader. `key` says who waits for the end of a hand-over."""
        host = self._host
        configuration = host.configuration
        if not host.leads or configuration is None:
            problem = f"node {host.node_id} does not lead any more"
            return LeaderDecision(Outcome.NOT_LEADING, problem=problem, remedy="try again")
        try:
            answer = self._decide(request, configuration)
        except (core_errors.MembershipBusyError, core_errors.TransferBusyError) as error:
            return _refused(Outcome.BUSY, error.problem, error.remedy)
        except core_errors.RefusedError as error:
            return _refused(Outcome.REFUSED, error.problem, error.remedy)
        except core_errors.NotLeaderError as error:
            return _refused(Outcome.NOT_LEADING, str(error), "try again")
        hands_over = request.action is Action.TRANSFER and request.node_id != host.node_id
        if hands_over and answer.outcome is Outcome.ACCEPTED and len(self._hand_overs) < ANSWERS_MAX:
            self._hand_overs[key] = _HandOver(request.node_id)
        return answer

    def _decide(self, request: LeaderRequest, configuration: Configuration) -> LeaderDecision:
        host, node_id, action = self._host, request.node_id, request.action
        if action is not Action.ADD and configuration.member(node_id) is None:
            members = ", ".join(map(str, sorted((*configuration.voters, *configuration.learners))))
            problem = f"node {node_id} is no member; members are {members}"
            absent = LeaderDecision(Outcome.NOT_A_MEMBER, problem=problem, remedy="name one of them")
            # Whoever is told so of a removal that he repeats takes it for done.
            return self._once_confirmed(absent) if action is Action.REMOVE else absent
        log.info("was asked to %s node %d %s", action.name.lower(), node_id, request.address)
        stale = self._stale(request)
        if stale is not None:
            return stale
        change: MembershipChange
        match action:
            case Action.TRANSFER if node_id == host.node_id:
                return self._once_confirmed(LeaderDecision(Outcome.ACCEPTED))
            case Action.TRANSFER:
                host.begin_transfer(node_id)
                return LeaderDecision(Outcome.ACCEPTED)
            case Action.ADD:
                change = AddMember(node_id, request.address)
            case Action.REPLACE:
                change = ReplaceMember(node_id, request.incarnation, request.force)
            case Action.REMOVE:
                change = RemoveMember(node_id)
        return LeaderDecision(Outcome.ACCEPTED, host.change_members(change), host.term)

    def _once_confirmed(self, answer: LeaderDecision) -> LeaderDecision:
        """Return what is to be told once a no-op shows that no other leader has changed it."""
        return answer._replace(log_index=self._host.confirm(), entry_term=self._host.term)

    def _stale(self, request: LeaderRequest) -> LeaderDecision | None:
        """Refuse a request that was meant for another configuration than the present one."""
        if request.config_version is None:
            return None
        host = self._host
        if host.configuration_index > host.applied_index:
            problem = "another change of members is under way"
            return LeaderDecision(Outcome.BUSY, problem=problem, remedy="try again in a moment")
        present = self._config_version()
        if request.config_version == present:
            return None
        problem = f"the configuration has version {present:x}, not {request.config_version:x}"
        return LeaderDecision(Outcome.OTHER_VERSION, problem=problem, remedy="read /zookeeper/config again")


def _refused(outcome: Outcome, problem: str, remedy: str) -> LeaderDecision:
    return LeaderDecision(outcome, problem=problem[:TEXT_CHARS_MAX], remedy=remedy[:TEXT_CHARS_MAX])


def _how_to_repeat(pending: _Pending) -> str:
    look = "look at the members and the leader (`quorate status`) before asking again"
    if pending.request.action is not Action.REPLACE:
        return look
    if pending.request.incarnation:
        return f"{look}; a repetition with the same incarnation retires no other disk"
    return (
        f"{look}; a repetition that names the incarnation of the lost disk (`quorate members list --json`) "
        "retires no other"
    )
