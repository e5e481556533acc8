"""Which state of a transactional id follows which, by what happens; what is answered where none follows.

The table is total: every state has a word for every event. NONE where nothing follows: it has happened.
Source: TransactionCoordinator, TransactionMetadata (Kafka 3.9); KIP-98.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from controller.wire.codes import ErrorCode
from quorum.metadata.transaction_records import TransactionState


class Event(StrEnum):
    """What happens to a transactional id."""

    #: A producer takes it; one that meets an open transaction fences that first.
    INIT = "InitProducerId"
    #: Partitions, or the offsets of a group.
    ADD = "AddPartitionsToTxn"
    COMMIT = "EndTxn commit"
    ABORT = "EndTxn abort"
    #: The time is over, or another producer comes: the epoch rises with the abort.
    FENCE = "fence"
    #: Every partition has its marker.
    MARKED = "markers written"
    EXPIRE = "expire"


_STATES: Final = (
    TransactionState.EMPTY,
    TransactionState.ONGOING,
    TransactionState.PREPARE_COMMIT,
    TransactionState.PREPARE_ABORT,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
_E, _O, _PC, _PA, _CC, _CA = _STATES
_DEAD: Final = TransactionState.DEAD
_NOT: Final = ErrorCode.INVALID_TXN_STATE
_WAIT: Final = ErrorCode.CONCURRENT_TRANSACTIONS
_SO: Final = ErrorCode.NONE

#: {event: what follows on each state, in their order}
_ROWS: Final[Mapping[Event, tuple[TransactionState | ErrorCode, ...]]] = {
    Event.INIT: (_E, _WAIT, _WAIT, _WAIT, _E, _E),
    Event.ADD: (_O, _O, _WAIT, _WAIT, _O, _O),
    Event.COMMIT: (_NOT, _PC, _WAIT, _NOT, _SO, _NOT),
    Event.ABORT: (_NOT, _PA, _NOT, _WAIT, _NOT, _SO),
    Event.FENCE: (_NOT, _PA, _NOT, _NOT, _NOT, _NOT),
    Event.MARKED: (_NOT, _NOT, _CC, _CA, _NOT, _NOT),
    Event.EXPIRE: (_DEAD, _NOT, _NOT, _NOT, _DEAD, _DEAD),
}
#: {(state, event): the state that follows, or what is answered}
MOVES: Final[Mapping[tuple[TransactionState, Event], TransactionState | ErrorCode]] = {
    (state, event): after for event, row in _ROWS.items() for state, after in zip(_STATES, row, strict=True)
}
