"""Mistakes in a broker, switched on by `python -m tests.chaos --plant NAME`: what the checkers must find.

Each function changes shipped code in this process. `install` belongs to the broker's process.
Source: docs/internals/reliability.md, "Are mistakes found?".
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, Final

from broker.core.transactions import deciding, transaction_fences
from broker.core.transactions.machine import TransactionsMachine
from broker.core.transactions.moves import Event
from broker.groups.markers import MarkerSender
from broker.log.cleaning.work import Job
from broker.log.partition_log import PartitionLog
from broker.replication.compaction import Compaction

#: In the environment of the broker: the name of the mistake.
VARIABLE: Final = "CHAOS_PLANTED"


def stable_one_too_high() -> None:
    """The last stable offset is one record too high."""
    shipped = PartitionLog.last_stable_offset

    def last_stable_offset(self: PartitionLog, high_watermark: int) -> int:
        return min(shipped(self, high_watermark) + 1, high_watermark)

    PartitionLog.last_stable_offset = last_stable_offset  # type: ignore[method-assign]


def marker_lost() -> None:
    """A marker that its leader did not write is not sent to the next leader."""

    async def again(self: MarkerSender, sending: Any, keys: Any) -> None:
        for key in keys:
            sending.written(key)

    MarkerSender._again = again  # type: ignore[method-assign]


def offsets_without_marker() -> None:
    """The offsets of a transaction take effect when it is aborted, too."""
    shipped = TransactionsMachine._fly

    def fly(self: TransactionsMachine, slot: Any, flight: Any) -> None:
        if flight.change.event in (Event.ABORT, Event.FENCE):
            flight.groups = sorted(slot.stored.offsets)
        shipped(self, slot, flight)

    TransactionsMachine._fly = fly  # type: ignore[method-assign]


def epoch_not_raised() -> None:
    """A producer that takes a transactional id gets the epoch of the one before."""
    shipped = deciding._taken

    def taken(producer: Any, *rest: Any) -> Any:
        return shipped(producer._replace(epoch=max(producer.epoch - 1, 0)), *rest)

    deciding._taken = taken  # type: ignore[assignment]  # its arguments have names
    transaction_fences.raised_epoch = lambda epoch: epoch


def tombstones_go_early() -> None:
    """A tombstone goes in the round after the one that saw it first, whatever delete.retention.ms says."""
    shipped = Compaction._job

    async def job(self: Compaction, due: Any) -> Job:
        return (await shipped(self, due))._replace(delete_retention_ms=0)

    Compaction._job = job  # type: ignore[method-assign]


#: {name on the command line: what it does}
PLANTS: Final[dict[str, Callable[[], None]]] = {
    "stable-one-too-high": stable_one_too_high,
    "marker-lost": marker_lost,
    "offsets-without-marker": offsets_without_marker,
    "epoch-not-raised": epoch_not_raised,
    "tombstones-go-early": tombstones_go_early,
}


def install() -> None:
    """Plant what the environment names."""
    if name := os.environ.get(VARIABLE):
        PLANTS[name]()
