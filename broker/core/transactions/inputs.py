"""What happens to the machine of transactions, and what it wants done: values, to be recorded and replayed.

Multis, what became of them, answers and lines for the log are those of the controller's machine.
Source: ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from broker.core.groups.inputs import BorrowGroup, ClockTick, GroupLent, ReturnGroup
from controller.core.effects import Answer, Resign, Trace, Write
from controller.core.inputs import Ended, MultiDone, ReadFailed
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import NO_PRODUCER, TransactionRecord


class Producer(NamedTuple):
    """Who asks."""

    id: int
    epoch: int


@dataclass(slots=True)
class StoredTransaction:
    """A transactional id as the quorum holds it."""

    transactional_id: str
    #: None: there is no znode.
    record: TransactionRecord | None = None
    version: int = -1
    #: {group: what takes effect with the commit}
    offsets: dict[str, dict[PartitionKey, OffsetRecord]] = field(default_factory=dict)


# -- what producers and brokers ask --------------------------------------------------------------------------


class InitProducer(NamedTuple):
    """Take an id for a producer; the outcome is a Producer, NEEDS_PRODUCER_ID or a code."""

    transactional_id: str
    timeout_ms: int
    #: Whom the producer continues (KIP-360).
    expected: Producer | None = None
    #: That nobody has, should one be needed.
    new_producer_id: int | None = None


class AddPartitions(NamedTuple):
    """Let partitions belong to the transaction, which begins with the first; the outcome is a code."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[PartitionKey]


class VerifyPartitions(NamedTuple):
    """Say which partitions belong to the open transaction; the outcome is a code or {partition: code}."""

    transactional_id: str
    producer: Producer
    partitions: frozenset[PartitionKey]


class AddGroup(NamedTuple):
    """Let offsets of a group belong to the transaction; the outcome is a code."""

    transactional_id: str
    producer: Producer
    group_id: str


class StoreOffsets(NamedTuple):
    """Keep offsets of a group until the transaction ends; the outcome is a code."""

    transactional_id: str
    producer: Producer
    group_id: str
    offsets: Mapping[PartitionKey, OffsetRecord]


class EndTransaction(NamedTuple):
    """Commit or abort; the outcome is a code."""

    transactional_id: str
    producer: Producer
    commits: bool


ProducerRequest = AddPartitions | VerifyPartitions | AddGroup | StoreOffsets | EndTransaction
TransactionRequest = InitProducer | ProducerRequest
#: In place of the outcome of InitProducer: it is asked again, with a new producer id.
NEEDS_PRODUCER_ID = Producer(NO_PRODUCER, NO_PRODUCER)
Outcome = ErrorCode | Producer | Mapping[PartitionKey, ErrorCode]

# -- inputs --------------------------------------------------------------------------------------------------


class TransactionAsked(NamedTuple):
    """A request, answered by one Answer."""

    id: int
    request: TransactionRequest


class TransactionsLoaded(NamedTuple):
    """A term begins with what the quorum holds: a page of it."""

    transactions: Sequence[StoredTransaction]
    #: {transactional id: what is wrong with its record}
    problems: Mapping[str, str]


class TransactionRead(NamedTuple):
    """A transactional id as it was read; None: there is none."""

    id: int
    stored: StoredTransaction | None


class MarkersWritten(NamedTuple):
    """Every partition of SendMarkers has its marker, or is gone."""

    id: int


TransactionInput = (
    TransactionAsked
    | TransactionsLoaded
    | TransactionRead
    | GroupLent
    | MarkersWritten
    | ClockTick
    | MultiDone
    | ReadFailed
    | Ended
)

# -- effects -------------------------------------------------------------------------------------------------


class ReadTransaction(NamedTuple):
    """Read an id, behind all writes that this session has sent; answered by TransactionRead or ReadFailed."""

    id: int
    transactional_id: str


class SendMarkers(NamedTuple):
    """Let every partition have a marker, however often it has to be sent; answered by MarkersWritten."""

    id: int
    producer: Producer
    commits: bool
    partitions: frozenset[PartitionKey]


TransactionEffect = (
    Answer | Write | ReadTransaction | SendMarkers | BorrowGroup | ReturnGroup | Trace | Resign
)
