"""What operators ask of a cluster, and how it is answered, as the log holds both.

Decides the shapes only. The admin port and the client port decide which callers may ask, the leader
(quorum/raft/core) what is refused; administration.py keeps the callers that wait. No state.

Source: ARCHITECTURE.md, "Life of a change of members"; docs/internals/consensus.md, "Membership".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    OutcomeUnknownError,
    QuorateError,
    StaleConfigurationError,
    UnknownMemberError,
)


class Action(IntEnum):
    """What is asked for. The numbers are in the log: never reuse one."""

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


def parse_request(plain: object) -> LeaderRequest | None:
    """Return the request that a batch holds in place of runs; None if it is none."""
    match plain:
        case [
            1 | 2 | 3 | 4 as action,
            int(node_id),
            str(address),
            int() | None as config_version,
            str(incarnation),
            bool(force),
        ]:
            return LeaderRequest(Action(action), node_id, address, config_version, incarnation, force)
        case _:
            return None


class Outcome(IntEnum):
    """What the leader says to a request. The numbers are in the log: never reuse one."""

    ACCEPTED = 1
    REFUSED = 2
    NOT_A_MEMBER = 3
    OTHER_VERSION = 4
    BUSY = 5
    NOT_TAKEN = 6  #: the hand-over was begun and given up: the node did not take over in time


_ERRORS: Final[Mapping[int, type[QuorateError]]] = {
    Outcome.REFUSED: ChangeRefusedError,
    Outcome.NOT_A_MEMBER: UnknownMemberError,
    Outcome.OTHER_VERSION: StaleConfigurationError,
    Outcome.BUSY: ChangeBusyError,
    Outcome.NOT_TAKEN: OutcomeUnknownError,
}


class Answer(NamedTuple):
    """The end of a request: what its leader wrote into the log after the change, if it made one."""

    outcome: Outcome
    log_index: int = 0  #: of the entry that makes it so, below the answer's own
    problem: str = ""
    remedy: str = ""

    def result(self) -> int | QuorateError:
        """Return the index, or why it is not done: definite, nothing changed, but for NOT_TAKEN."""
        kind = _ERRORS.get(self.outcome)
        return self.log_index if kind is None else kind(self.problem, self.remedy)
