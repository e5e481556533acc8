"""What the controller's machine wants done: effects, which a shell carries out.

Values only. An effect with an id is answered by one input with the same id; the others need no answer. The
shell carries effects out in their order, as far as it begins them; writes are pipelined on one session.
Source: ARCHITECTURE.md, "Life of a controller".
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from controller.core.model import LiveBroker
from controller.core.outbox import Batch
from quorum.metadata.numbers import BrokerGeneration


class Check(NamedTuple):
    """The node exists and has this version."""

    path: str
    version: int


class CreateNode(NamedTuple):
    """A new persistent node."""

    path: str
    value: bytes


class SetData(NamedTuple):
    """A new value of a node that has this version."""

    path: str
    value: bytes
    version: int


class DeleteNode(NamedTuple):
    """The end of a node that has this version; -1: any."""

    path: str
    version: int = -1


Operation = Check | CreateNode | SetData | DeleteNode


class ReadNodes(NamedTuple):
    """Read nodes; answered by NodesRead."""

    id: int
    paths: tuple[str, ...]


class ReadChildren(NamedTuple):
    """Read the names below a node; answered by ChildrenRead."""

    id: int
    path: str


class Write(NamedTuple):
    """One multi, fenced by its first operation; answered by MultiDone."""

    id: int
    operations: tuple[Operation, ...]


class OpenChannel(NamedTuple):
    """Be ready to send to a life of a broker."""

    broker_id: int
    broker: LiveBroker


class CloseChannel(NamedTuple):
    """Send nothing more to that life of a broker; an answer that is still to come is dropped."""

    broker_id: int
    generation: BrokerGeneration


class Send(NamedTuple):
    """Send one control request, made from the model when it leaves; answered by Answered or NoAnswer.

    At most one is under way to a broker.
    """

    broker_id: int
    generation: BrokerGeneration
    batch: Batch


class Answer(NamedTuple):
    """The outcome of a request of a client."""

    id: int
    outcome: object


class Resign(NamedTuple):
    """The term is over; nothing of it acts any more."""

    reason: str
    #: Another controller has been elected, or the session is over: /controller is not this one's to delete.
    is_fenced: bool = False
    #: The work cannot go on: the next election waits.
    is_broken: bool = False


class GiveWay(NamedTuple):
    """Let others have their turn, then step with Continued."""


class Level(Enum):
    """How loud a trace is."""

    INFO = "info"
    WARNING = "warning"


class Trace(NamedTuple):
    """A line for the log."""

    level: Level
    text: str


Effect = (
    ReadNodes | ReadChildren | Write | OpenChannel | CloseChannel | Send | Answer | Resign | GiveWay | Trace
)
