"""The count of one election.

Decides when an election is won or lost. Does not know whose vote counts (`elections.py` asks the
configuration first) nor what is asked (the same count serves pre-votes). Soft state of one attempt.

Source: Raft §5.2.
"""

from quorum.raft.core.configuration import quorum_size


class Tally:
    """Answers of one attempt, one per voter; the first one of a voter stays."""

    __slots__ = ("_quorum_size", "_voters", "granted", "refused")

    def __init__(self, voters: int) -> None:
        """Begin an attempt among this many voters."""
        self._voters = voters
        self._quorum_size = quorum_size(voters)
        self.granted: set[int] = set()  #: node ids
        self.refused: set[int] = set()  #: node ids

    def grant(self, node_id: int) -> None:
        """Count a vote for us."""
        if node_id not in self.refused:
            self.granted.add(node_id)

    def refuse(self, node_id: int) -> None:
        """Count a refusal."""
        if node_id not in self.granted:
            self.refused.add(node_id)

    @property
    def won(self) -> bool:
        """Return whether a majority granted."""
        return len(self.granted) >= self._quorum_size

    @property
    def lost(self) -> bool:
        """Return whether a majority can no longer be reached."""
        return len(self.refused) > self._voters - self._quorum_size
