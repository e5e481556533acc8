"""Every pair of a state and an event, as the table of moves has it."""

from __future__ import annotations

import pytest

from broker.core.transactions import deciding, inputs
from broker.core.transactions.deciding import Change, TransactionOptions
from broker.core.transactions.inputs import Producer, StoredTransaction
from broker.core.transactions.moves import MOVES, Event
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import TransactionRecord, TransactionState

PRODUCER = Producer(7, 3)
KEY = PartitionKey("t", 0)
STATES = [each for each in TransactionState if each is not TransactionState.DEAD]


def stored(state: TransactionState) -> StoredTransaction:
    record = TransactionRecord(*PRODUCER, -1, -1, 1_000, state, 1, 1)
    return StoredTransaction("x", record, 1)


def what_follows(state: TransactionState, event: Event) -> TransactionState | ErrorCode:
    """Ask for an event in a state; returns the state or the code that the shipped code gives."""
    before = stored(state)
    assert before.record is not None
    request: inputs.TransactionRequest
    if event is Event.INIT:
        request = inputs.InitProducer("x", 1_000)
    elif event is Event.ADD:
        request = inputs.AddPartitions("x", PRODUCER, frozenset((KEY,)))
    else:
        request = inputs.EndTransaction("x", PRODUCER, commits=event is Event.COMMIT)
    decided = deciding.decide(before, request, TransactionOptions(), 2)
    if isinstance(decided, Change):
        if decided.outcome is ErrorCode.CONCURRENT_TRANSACTIONS:
            # The open transaction is fenced first.
            assert decided.record.state is MOVES[state, Event.FENCE]
            return ErrorCode.CONCURRENT_TRANSACTIONS
        return decided.record.state
    assert isinstance(decided, ErrorCode)
    return decided


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("event", [Event.INIT, Event.ADD, Event.COMMIT, Event.ABORT])
def test_requests_follow_the_table(state: TransactionState, event: Event) -> None:
    assert what_follows(state, event) == MOVES[state, event]


@pytest.mark.parametrize("state", STATES)
def test_markers_complete_what_is_decided_alone(state: TransactionState) -> None:
    record, after = stored(state).record, MOVES[state, Event.MARKED]
    assert record is not None
    if isinstance(after, ErrorCode):
        with pytest.raises(AssertionError):
            deciding.completed(record, 2)
    else:
        assert deciding.completed(record, 2).record.state is after


def test_the_table_has_a_word_for_everything() -> None:
    assert MOVES.keys() == {(state, event) for state in STATES for event in Event}
