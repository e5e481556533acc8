"""What the core raises.

Decides which failures are the caller's, which are a peer's and which mean that promises are broken. Knows
nothing of the shell's error hierarchy, which maps these once at its edge. After an `InvariantError` the
instance must not be used: the node stops with the story in the message.
"""


class RaftError(Exception):
    """Base of everything that the core raises on purpose."""


class InvariantError(RaftError):
    """Something that the algorithm rules out has happened: data would be lost. Fatal for the node."""


class TransitionError(InvariantError):
    """A move between roles or progress states that the tables do not allow. Fatal for the node."""


class MessageError(RaftError):
    """A peer's message contradicts itself; it was ignored and nothing changed. The peer's fault."""


class NotLeaderError(RaftError):
    """This node cannot take the proposal. Definite: nothing was appended."""

    def __init__(self, reason: str, leader_id: int) -> None:
        """Keep the reason and where to go.

        Args:
            reason: why the proposal was not taken.
            leader_id: the leader as far as known, 0 if unknown.
        """
        super().__init__(f"{reason} (leader: {leader_id or 'unknown'})")
        self.leader_id = leader_id


class ProposalError(RaftError):
    """The proposal itself is refused, for its size or kind. Definite: nothing was appended."""


class BacklogError(RaftError):
    """Too many bytes wait for commit. Definite, retriable: nothing was appended."""


class TransferError(RaftError):
    """Leadership cannot go to the node that was named. Nothing changed."""


class TransferBusyError(TransferError):
    """The node that was named has not been heard yet by a leader that is new. Retriable: nothing changed."""


class MembershipError(RaftError):
    """The membership cannot change like this; names the node, the reason and the remedy. Definite: nothing
    changed."""


class MembershipBusyError(MembershipError):
    """Something has to end before the membership can change. Definite, retriable: nothing changed."""


class ConfigurationError(RaftError):
    """A configuration payload or a set of options is not well-formed; names the field and the value."""
