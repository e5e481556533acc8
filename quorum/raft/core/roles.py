"""The moves between roles.

Decides which role may follow which. Knows nothing of what a role does (`elections.py`, `following.py`,
`leading.py`). The role is soft state: every node starts as a follower.

Source: Raft §5.1, figure 4; the pre-candidate is §9.6 of the dissertation.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from quorum.raft.core.errors import TransitionError
from quorum.raft.core.messages import Role

#: {role: roles that may follow it}. A follower skips the pre-vote only when its leader hands over.
ROLE_MOVES: Final[Mapping[Role, tuple[Role, ...]]] = MappingProxyType(
    {
        Role.FOLLOWER: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE),
        Role.PRE_CANDIDATE: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.CANDIDATE),
        Role.CANDIDATE: (Role.FOLLOWER, Role.PRE_CANDIDATE, Role.LEADER),
        Role.LEADER: (Role.FOLLOWER,),
    }
)


def check_role_move(old: Role, new: Role, story: str) -> None:
    """Refuse a move that the table does not have.

    Args:
        old: the role before.
        new: the role after.
        story: who wanted it and why, for the message.
    """
    if new not in ROLE_MOVES[old]:
        raise TransitionError(f"a {old.value} cannot become a {new.value}: {story}")
