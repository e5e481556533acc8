"""What a node knows only in one role: it lives and dies with the role.

Decides which role may follow which, and when an election is won or lost. Knows nothing of what a role does
(`elections.py`, `following.py`, `leading.py`) nor whose vote counts. All of it is soft state: every node
starts as a follower.

Source: Raft §5.1, §5.2, figure 4; the pre-candidate is §9.6 of the dissertation.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quorum.raft.core.backlog import Backlog
from quorum.raft.core.configuration import quorum_size
from quorum.raft.core.errors import TransitionError
from quorum.raft.core.messages import Role
from quorum.raft.core.progress import Leaver, Progress

NEVER: Final = float("-inf")

#: {role: roles that may follow it}. A follower skips the pre-vote only when its leader hands over.
ROLE_MOVES: Final[Mapping[Role, tuple[Role, ...]]] = MappingProxyType(
    {
        Role.FOLLOWER: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE),
        Role.PRE_CANDIDATE: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE),
        Role.CANDIDATE: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.LEADER),
        Role.LEADER: (Role.FOLLOWER,),
    }
)


class Follower:
    """Follows one leader on one connection, or waits for one."""

    kind = Role.FOLLOWER
    transfer_target = 0

    def __init__(self, leader_id: int = 0) -> None:
        """Begin with nothing heard and nothing answered."""
        self.leader_id = leader_id  #: of this term, 0: unknown
        self.heard_ms = NEVER  #: last message of that leader
        self.reported_index = 0  #: durable match that this leader was sent
        self.answer_at: int | None = None  #: owes an answer as soon as this index is durable


class Candidate:
    """One attempt: answers, one per voter, of which the first one stays."""

    leader_id = 0
    transfer_target = 0

    def __init__(self, kind: Role, voters: int) -> None:
        """Begin an attempt, PRE_CANDIDATE or CANDIDATE, among this many voters."""
        self.kind = kind
        self._voters = voters
        self._granted: set[int] = set()  #: node ids
        self._refused: set[int] = set()  #: node ids

    def count(self, node_id: int, granted: bool) -> None:
        """Count an answer."""
        if node_id not in self._granted | self._refused:
            (self._granted if granted else self._refused).add(node_id)

    @property
    def won(self) -> bool:
        """Return whether a majority granted."""
        return len(self._granted) >= quorum_size(self._voters)

    @property
    def lost(self) -> bool:
        """Return whether a majority can no longer be reached."""
        return len(self._refused) > self._voters - quorum_size(self._voters)


class Leader:
    """One leadership."""

    kind = Role.LEADER

    def __init__(self, leader_id: int, term_start_index: int, now_ms: float) -> None:
        """Begin with nothing appended and nobody followed."""
        self.leader_id = leader_id  #: this node
        self.term_start_index = term_start_index  #: its first entry; commits by counting begin here
        self.progress: dict[int, Progress] = {}  #: {peer id: progress}, ascending ids
        self.leaving: dict[int, Leaver] = {}  #: {id: the node that left, until it was sent word}
        self.heartbeat_ms = now_ms  #: next heartbeat
        self.heartbeat_due = False
        #: end of a pause of its own since which no majority answered; NEVER: there is none
        self.resumed_ms = NEVER
        self.uncommitted = Backlog()  #: what it appended and is not committed
        self.unsynced = Backlog()  #: what it appended and is not durable here
        self.transfer_target = 0
        self.transfer_until_ms = NEVER
        self.transfer_told = False

    def end_transfer(self) -> None:
        """Forget the hand-over under way; proposals are taken again."""
        self.transfer_target = 0
        self.transfer_told = False


def check_role_move(old: Role, new: Role, story: str) -> None:
    """Refuse a move that the table does not have.

    Args:
        old: the role before.
        new: the role after.
        story: why it moves, for the message.
    """
    if new not in ROLE_MOVES[old]:
        raise TransitionError(f"a {old.value} cannot become a {new.value}: {story}")
