"""What a transactional id answers to a request, and what it becomes by it.

Pure functions of its record; moves.py says which state follows. Producer epochs rise with InitProducerId and
with a fence, so that the log refuses the producer that had the id before.
Source: TransactionCoordinator, TransactionMetadata (Kafka 3.9); KIP-98, KIP-360, KIP-447, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from broker.core.transactions import inputs, transaction_fences
from broker.core.transactions.inputs import NEEDS_PRODUCER_ID, Outcome, Producer, StoredTransaction
from broker.core.transactions.moves import MOVES, Event
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import OffsetRecord
from quorum.metadata.paths import PartitionKey, group_path
from quorum.metadata.transaction_records import (
    EPOCH_EXHAUSTED,
    NO_PRODUCER,
    NOTHING,
    TransactionRecord,
    TransactionState,
)

#: Of one transaction's offsets, with what the multi of its commit says besides.
OFFSETS_BYTES_MAX: Final = 512 * 1024
#: Of one record: what is left of a multi.
RECORD_BYTES_MAX: Final = 256 * 1024
_NOBODY: Final = Producer(NO_PRODUCER, NO_PRODUCER)


@dataclass(frozen=True, slots=True)
class TransactionOptions:
    """Options of one coordinator, under Kafka's names."""

    transaction_max_timeout_ms: int = 900_000
    transactional_id_expiration_ms: int = 7 * 86_400_000
    #: How often a write is repeated whose outcome is unknown.
    retries_max: int = 7


class Change(NamedTuple):
    """What is written, and answered when it is durable."""

    record: TransactionRecord
    event: Event
    outcome: Outcome
    #: The offsets of one group, with those before.
    offsets: tuple[str, Mapping[PartitionKey, OffsetRecord]] | None = None


def decide(
    stored: StoredTransaction, request: inputs.TransactionRequest, options: TransactionOptions, wall_ms: int
) -> Change | Outcome:
    """Return what a request changes, or its outcome where it changes nothing.

    Args:
        stored: the id as it is.
        request: about it.
        options: of the coordinator.
        wall_ms: milliseconds since 1970.
    """
    if isinstance(request, inputs.InitProducer):
        return _init(stored.record, request, options, wall_ms)
    record = stored.record
    if record is None or record.producer_id != request.producer.id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    if record.producer_epoch != request.producer.epoch:
        return ErrorCode.PRODUCER_FENCED
    match request:
        case inputs.AddPartitions():
            return _add(record, request.partitions, NOTHING, wall_ms)
        case inputs.AddGroup():
            return _add(record, NOTHING, frozenset((request.group_id,)), wall_ms)
        case inputs.VerifyPartitions():
            return _verify(record, request.partitions)
        case inputs.StoreOffsets():
            return _store(stored, record, request, wall_ms)
        case inputs.EndTransaction():
            return _move(record, Event.COMMIT if request.commits else Event.ABORT, wall_ms)


def fence(record: TransactionRecord, wall_ms: int, outcome: Outcome = ErrorCode.NONE) -> Change:
    """Return the abort of an open transaction whose producer may do nothing more."""
    # The last epoch of all is for this; the next producer gets another producer id.
    raised = min(transaction_fences.raised_epoch(record.producer_epoch), EPOCH_EXHAUSTED + 1)
    record = replace(
        record,
        producer_epoch=raised,
        last_producer_id=NO_PRODUCER,
        last_producer_epoch=NO_PRODUCER,
        state=TransactionState.PREPARE_ABORT,
        update_timestamp_ms=wall_ms,
    )
    return Change(record, Event.FENCE, outcome)


def completed(record: TransactionRecord, wall_ms: int) -> Change:
    """Return the end of a transaction whose partitions have their markers."""
    change = _move(record, Event.MARKED, wall_ms)
    assert isinstance(change, Change), "markers are sent for a transaction that is decided"
    empty = replace(change.record, partitions=NOTHING, groups=NOTHING)
    return change._replace(record=empty)


def offset_bytes(group_id: str, key: PartitionKey, offset: OffsetRecord) -> int:
    """Return the bytes that an offset takes of a transaction's room."""
    # In the commit, the first offset of a topic has a parent to be made.
    return 2 * (len(group_path(group_id)) + len(key.topic)) + offset.stored_bytes


def _move(record: TransactionRecord, event: Event, wall_ms: int) -> Change | ErrorCode:
    after = MOVES[record.state, event]
    if isinstance(after, ErrorCode):
        return after
    return Change(replace(record, state=after, update_timestamp_ms=wall_ms), event, ErrorCode.NONE)


def _init(
    record: TransactionRecord | None,
    request: inputs.InitProducer,
    options: TransactionOptions,
    wall_ms: int,
) -> Change | Outcome:
    if not 0 < request.timeout_ms <= options.transaction_max_timeout_ms:
        return ErrorCode.INVALID_TRANSACTION_TIMEOUT
    if record is None:
        if request.new_producer_id is None:
            return NEEDS_PRODUCER_ID
        return _taken(Producer(request.new_producer_id, 0), _NOBODY, request, wall_ms)
    expected = request.expected
    present = Producer(record.producer_id, record.producer_epoch)
    if expected is not None and not _may_continue(record, expected):
        return ErrorCode.PRODUCER_FENCED
    if record.state is TransactionState.ONGOING:
        if expected is not None and expected != present:
            # Kafka lets it abort first what its successor has begun.
            return ErrorCode.PRODUCER_FENCED
        return fence(record, wall_ms, ErrorCode.CONCURRENT_TRANSACTIONS)
    after = MOVES[record.state, Event.INIT]
    if isinstance(after, ErrorCode):
        return after
    if expected is not None and expected == Producer(record.last_producer_id, record.last_producer_epoch):
        # The answer was lost; nobody else has come since, or the last producer would not be known.
        return present
    if expected is not None and expected != present:
        return ErrorCode.PRODUCER_FENCED
    last = _NOBODY if expected is None else present
    if record.producer_epoch < EPOCH_EXHAUSTED:
        return _taken(Producer(present.id, present.epoch + 1), last, request, wall_ms)
    if request.new_producer_id is None:
        return NEEDS_PRODUCER_ID
    return _taken(Producer(request.new_producer_id, 0), last, request, wall_ms)


def _may_continue(record: TransactionRecord, expected: Producer) -> bool:
    """Whether a producer speaks of the present one, or of the one before, whose last epoch it had."""
    is_last = expected.id == record.last_producer_id and expected.epoch >= EPOCH_EXHAUSTED
    return expected.id == record.producer_id or is_last


def _taken(producer: Producer, last: Producer, request: inputs.InitProducer, wall_ms: int) -> Change:
    empty = TransactionState.EMPTY
    record = TransactionRecord(*producer, *last, request.timeout_ms, empty, -1, wall_ms)
    return Change(record, Event.INIT, producer)


def _add(
    record: TransactionRecord, partitions: frozenset[PartitionKey], groups: frozenset[str], wall_ms: int
) -> Change | ErrorCode:
    is_open = record.state is TransactionState.ONGOING
    if is_open and partitions <= record.partitions and groups <= record.groups:
        return ErrorCode.NONE
    change = _move(record, Event.ADD, wall_ms)
    if isinstance(change, ErrorCode):
        return change
    grown = replace(
        change.record,
        start_timestamp_ms=record.start_timestamp_ms if is_open else wall_ms,
        partitions=record.partitions | partitions,
        groups=record.groups | groups,
    )
    if len(grown.encode()) > RECORD_BYTES_MAX:
        return ErrorCode.POLICY_VIOLATION
    return change._replace(record=grown)


def _verify(record: TransactionRecord, partitions: frozenset[PartitionKey]) -> Outcome:
    after = MOVES[record.state, Event.ADD]
    if isinstance(after, ErrorCode):
        return after
    is_open = record.state is TransactionState.ONGOING
    missing = ErrorCode.TRANSACTION_ABORTABLE
    return {key: ErrorCode.NONE if is_open and key in record.partitions else missing for key in partitions}


def _store(
    stored: StoredTransaction, record: TransactionRecord, request: inputs.StoreOffsets, wall_ms: int
) -> Change | ErrorCode:
    if record.state is not TransactionState.ONGOING or request.group_id not in record.groups:
        return ErrorCode.INVALID_TXN_STATE
    offsets = {**stored.offsets.get(request.group_id, {}), **request.offsets}
    held = {**stored.offsets, request.group_id: offsets}
    size = sum(offset_bytes(group_id, *each) for group_id, rows in held.items() for each in rows.items())
    if size > OFFSETS_BYTES_MAX:
        return ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    change = _move(record, Event.ADD, wall_ms)
    assert isinstance(change, Change), "a transaction that is open"
    return change._replace(offsets=(request.group_id, offsets))
