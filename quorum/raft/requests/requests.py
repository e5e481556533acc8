"""What operators ask of a cluster, and the two messages between the node that was asked and the leader.

Decides the shapes only: who may ask is the admin port's and the client port's, what is refused is the
leader's (quorum/raft/core), who waits for what is administration.py's. No state.

A message counts only in the term that it names, so a request is judged at most once by each leader, and never
by a later one.

Source: docs/http.md; docs/consensus.md, "Membership".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple

from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorateError,
    StaleConfigurationError,
    UnknownMemberError,
)


class Action(IntEnum):
    """What is asked for. The numbers are on the wire: never reuse one."""

    ADD = 1  #: let a node join, as a learner that becomes a voter once it has caught up
    REPLACE = 2  #: retire a member's incarnation: its disk is lost
    REMOVE = 3  #: let a member go
    TRANSFER = 4  #: let a voter lead


class LeaderRequest(NamedTuple):
    """One thing that is asked of the leader."""

    action: Action
    node_id: int  #: whom it is about
    address: str = ""  #: of ADD: host:port of the node's peer listener
    #: the version of /zookeeper/config that it is meant for; None: any
    config_version: int | None = None
    incarnation: str = ""  #: of REPLACE: whose disk is lost; empty: the recorded one
    force: bool = False  #: of REPLACE: also a disk that is in use, or the last but one that votes


class Outcome(IntEnum):
    """What the leader says to a request. The numbers are on the wire: never reuse one."""

    ACCEPTED = 1  #: it is so once the entry at ``log_index`` is committed, or the hand-over was begun
    REFUSED = 2
    NOT_A_MEMBER = 3
    OTHER_VERSION = 4
    BUSY = 5
    NOT_LEADING = 6
    NOT_TAKEN = 7  #: the hand-over was begun and given up: the node did not take over in time


class ChangeRequest(NamedTuple):
    """A request on its way from the node that was asked to the leader."""

    term: int
    sender: int
    receiver: int
    request_id: int  #: never used twice by one node, also not in another life of it
    action: Action
    node_id: int
    address: str
    config_version: int | None
    incarnation: str
    force: bool


class ChangeReply(NamedTuple):
    """The leader's answer."""

    term: int
    sender: int
    receiver: int
    request_id: int  #: of the request that is answered
    outcome: Outcome
    log_index: int  #: of the entry whose commit makes the answer true; 0: none, as of a hand-over that began
    entry_term: int  #: term of the entry at ``log_index``; 0 if there is none
    problem: str  #: why not; empty if accepted
    remedy: str


#: Tags of these messages on the wire; never reuse one.
REQUEST_MESSAGE_TYPES: Final[Mapping[int, type[Any]]] = {40: ChangeRequest, 41: ChangeReply}

_ERRORS: Final[Mapping[Outcome, type[QuorateError]]] = {
    Outcome.REFUSED: ChangeRefusedError,
    Outcome.NOT_A_MEMBER: UnknownMemberError,
    Outcome.OTHER_VERSION: StaleConfigurationError,
    Outcome.BUSY: ChangeBusyError,
    Outcome.NOT_TAKEN: OutcomeUnknownError,
}


class LeaderDecision(NamedTuple):
    """What a leader decided about a request."""

    outcome: Outcome
    log_index: int = 0
    entry_term: int = 0
    problem: str = ""
    remedy: str = ""

    def result(self) -> int | QuorateError:
        """Return what is told once the entry at `log_index` is applied: that index, or why it is not done."""
        return self.log_index if self.outcome is Outcome.ACCEPTED else self.error()

    def error(self) -> QuorateError:
        """Return why it is not done as an error; definite, nothing changed, but for NOT_TAKEN."""
        kind = _ERRORS.get(self.outcome)
        if kind is None:
            return NoLeaderError(
                self.problem or "the node that was asked does not lead any more", self.remedy
            )
        return kind(self.problem, self.remedy)
