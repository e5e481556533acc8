"""What the core raises.

Decides which failures are the caller's, which are a peer's and which mean that promises are broken. Knows
nothing of the shell's error hierarchy, which maps these once at its edge. After an `InvariantError` the
instance must not be used: the node stops with the story in the message. What an operator's request is refused
for is one table, REFUSALS: the error has its key, and the table what is wrong and what to do.
"""

from typing import Final

#: {key: (what is wrong, what to do)}, of a change of members or leadership that was asked for
REFUSALS: Final = {
    "handing_over": ("leadership is being handed over to node {node_id}", "ask the new leader"),
    "term_uncommitted": (
        "the first entry of term {term} (index {index}) is not committed yet",
        "try again soon",
    ),
    "change_uncommitted": ("the change of index {index} is not committed yet", "try again once it is"),
    "id_out_of_range": ("node id {node_id} is out of range", "use one from 1 to {id_max}"),
    "other_address": (
        "node {node_id} is a member with the address {present}, not {address}",
        "remove it first",
    ),
    "no_address": (
        "node {node_id} cannot be added with the address {address!r} of {chars} characters",
        "give host:port, at most {chars_max} characters",
    ),
    "address_taken": (
        "node {node_id} cannot be added with the address {address}: node {other_id} has it",
        "remove or replace node {other_id} instead",
    ),
    "too_many_members": (
        "node {node_id} cannot be added: there are {members_max} members, the most there may be",
        "remove one first",
    ),
    "no_member": ("node {node_id} cannot be {done}: it is not a member", "members are {members}"),
    "only_voter": (
        "node {node_id} cannot be {done}: it is the only voter",
        "add another one first, and wait until that one votes",
    ),
    "leads": (
        "node {node_id} cannot be replaced: it leads",
        "hand leadership over first (POST /v1/leader)",
    ),
    "last_good_disk": (
        (
            "node {node_id} cannot be replaced: of the voters {voters} a single one would be left, with the "
            "only disk that counts"
        ),
        "add a node first, or force it (--force)",
    ),
    "other_incarnation": (
        "node {node_id} cannot be replaced: its disk has the incarnation {present}, not {incarnation}",
        "nothing was retired: look at the members and name the one that is lost",
    ),
    "disk_of_other": (
        "node {node_id} cannot be replaced: {incarnation} is the disk of node {other_id}",
        "nothing was retired: look at the members and name the one that is lost",
    ),
    "disk_in_use": (
        "node {node_id} cannot be replaced: its disk is in use and was heard {silent_ms:.0f} ms ago",
        (
            "stop the node first if that disk is lost, or force it (--force) and name the incarnation that "
            "shall be retired: {incarnation}"
        ),
    ),
    "majority_unheard": (
        (
            "cannot {what} yet: of the voters {voters} that would be left, node {node_id} has heard only "
            "{present} since it leads"
        ),
        "try again soon",
    ),
    "majority_lost": (
        (
            "cannot {what}: of the voters {voters} that would be left, only {present} are in contact and "
            "{needed} are needed"
        ),
        "bring {absent} back first, or {otherwise}",
    ),
    "not_leading": ("node {node_id} does not lead (leader: {leader})", "ask the leader"),
    "no_successor": (
        "leadership cannot be handed over: no other voter is in contact and up to date",
        "bring one back first",
    ),
    "unfit_successor": (
        "leadership cannot go to node {node_id}: {obstacle}",
        "name a voter that could lead now: {able}",
    ),
}


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


class RefusedError(RaftError):
    """A change of members or leadership that cannot be made as asked. Definite: nothing changed."""

    def __init__(self, key: str, **facts: object) -> None:
        """Look the refusal up.

        Args:
            key: of REFUSALS.
            facts: what its sentences name.
        """
        self.key = key
        self.problem, self.remedy = (text.format(**facts) for text in REFUSALS[key])
        super().__init__(f"{self.problem}; {self.remedy}")


class TransferError(RefusedError):
    """Leadership cannot go to the node that was named. Nothing changed."""


class TransferBusyError(TransferError):
    """The node that was named has not been heard yet by a leader that is new. Retriable: nothing changed."""


class MembershipError(RefusedError):
    """The membership cannot change like this."""


class MembershipBusyError(MembershipError):
    """Something has to end before the membership can change. Definite, retriable: nothing changed."""


class ConfigurationError(RaftError):
    """A configuration payload or a set of options is not well-formed; names the field and the value."""
