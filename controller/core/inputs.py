"""What happens to the controller's machine: inputs, each a value that can be recorded and replayed.

Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from controller.core.reassignment import Replicas
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey


class Znode(NamedTuple):
    """A znode as it was read."""

    data: bytes | None
    version: int
    czxid: int
    mzxid: int
    #: Session that owns the node, or 0.
    ephemeral_owner: int


class Unreadable(NamedTuple):
    """A node that cannot be read, or whose value is no record, and why."""

    problem: str


class Elected(NamedTuple):
    """A term begins; the standing watches are set already."""

    broker_id: int
    controller_epoch: ControllerEpoch
    #: Version of /controller_epoch, which fences every write.
    epoch_version: int
    #: Spreads replicas and draws topic ids.
    seed: int


class PathsChanged(NamedTuple):
    """Standing watches fired at these paths, or, of recursive ones, at paths below, in this order."""

    paths: list[str]


class Reconnected(NamedTuple):
    """The session was resumed: events of the time without a connection did not come."""


class NodesRead(NamedTuple):
    """Nodes in the order of the effect's paths; None for one that does not exist."""

    id: int
    nodes: tuple[Znode | Unreadable | None, ...]


class ChildrenRead(NamedTuple):
    """Names below a node, sorted; None where it does not exist."""

    id: int
    names: tuple[str, ...] | None


class ReadFailed(NamedTuple):
    """The connection was lost; a session that is over comes as Ended."""

    id: int
    problem: str


class Done(NamedTuple):
    """The multi was committed; what versions its nodes have follows from the operations."""


class Why(Enum):
    """Why the quorum took nothing of a multi."""

    BAD_VERSION = "bad version"
    NO_NODE = "no node"
    NODE_EXISTS = "node exists"
    NOT_EMPTY = "not empty"
    #: As a whole, or for a reason that is none of the above.
    OTHER = "other"


class Rejected(NamedTuple):
    """Nothing of the multi was written."""

    #: Of the operation that failed, the fence counted; -1: none in particular.
    failed_index: int
    why: Why
    problem: str
    #: Kafka's code for it.
    error_code: ErrorCode
    #: What helps, "" where nothing is known.
    remedy: str = ""

    @property
    def is_lost_race(self) -> bool:
        """Whether the nodes are not as they were when the write was decided on."""
        return self.why is not Why.OTHER


class Unknown(NamedTuple):
    """Nobody knows whether the multi was committed."""

    problem: str


class MultiDone(NamedTuple):
    """What became of a write."""

    id: int
    outcome: Done | Rejected | Unknown


class Answered(NamedTuple):
    """A broker has answered the request under way."""

    broker_id: int
    generation: BrokerGeneration
    error_code: int
    #: {partition: error} of those that were refused.
    partition_errors: Mapping[PartitionKey, int]


class NoAnswer(NamedTuple):
    """Nobody knows whether a broker got the request under way."""

    broker_id: int
    generation: BrokerGeneration
    problem: str


class CreateTopics(NamedTuple):
    """Create topics with different names."""

    topics: tuple[NewTopic, ...]
    validate_only: bool


class ExtendTopics(NamedTuple):
    """Add partitions to topics."""

    counts: tuple[NewPartitions, ...]
    validate_only: bool


class DeleteTopics(NamedTuple):
    """Request the deletion of topics."""

    names: tuple[str, ...]


class ElectLeaders(NamedTuple):
    """Elect preferred leaders, or unclean ones."""

    #: None: all that need it.
    keys: Collection[PartitionKey] | None
    unclean: bool


class Reassign(NamedTuple):
    """Begin reassignments, or cancel those whose target is None."""

    targets: Mapping[PartitionKey, Replicas | None]


class ShutDown(NamedTuple):
    """Give the leaderships of a broker away."""

    broker_id: int
    generation: BrokerGeneration


Request = CreateTopics | ExtendTopics | DeleteTopics | ElectLeaders | Reassign | ShutDown


class Requested(NamedTuple):
    """A client, or a broker, asks for something; answered by Answer."""

    id: int
    request: Request


class Withdrawn(NamedTuple):
    """Nobody waits for a request any more; it is not carried out if it has not begun."""

    id: int


class Tick(NamedTuple):
    """The time has come that `wake_ms` named."""


class Continued(NamedTuple):
    """Others have had their turn."""


class Ended(NamedTuple):
    """The term must end: the broker stops, or the session is over."""

    reason: str
    is_fenced: bool


Input = (
    Elected
    | PathsChanged
    | Reconnected
    | NodesRead
    | ChildrenRead
    | ReadFailed
    | MultiDone
    | Answered
    | NoAnswer
    | Requested
    | Withdrawn
    | Tick
    | Continued
    | Ended
)
