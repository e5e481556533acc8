"""DeleteRecords: the leader moves the start of a log, and answers once every live replica has moved its own.

The followers learn the start from the answers to their fetches, make it durable and report it with the next
fetch. A replica whose broker is not live does not count: it learns the start when it comes back. What was
begun stays, also where the answer is that the time was over.
Source: KIP-107; Kafka's ReplicaManager.deleteRecords and DelayedDeleteRecords (3.9).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from broker.core import reading
from broker.core.replica_inputs import LogStartMoved
from broker.log.errors import LogStorageError
from broker.replication.outcomes import DeleteOutcome
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from broker.replication.waiting import WAITING_MAX, WaitingDeletion
from controller.wire.codes import ErrorCode
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey
from quorum.platform.pace import Pace

#: As an offset: all that is committed.
HIGH_WATERMARK: Final = -1


class Deleting:
    """Deletes records at the starts of logs."""

    def __init__(self, registry: Registry, on_failure: Callable[[QuorateError], ErrorCode]) -> None:
        """Delete from the replicas of a registry; on_failure returns the answer where the disk fails."""
        self._registry = registry
        self._on_failure = on_failure
        #: Requests that wait now.
        self.waiting = 0

    async def delete_records(
        self, offsets: Mapping[PartitionKey, int], *, timeout_ms: int
    ) -> dict[PartitionKey, DeleteOutcome]:
        """Delete the records below an offset of each partition.

        Args:
            offsets: exclusive, at most the high watermark; or HIGH_WATERMARK.
            timeout_ms: how long to wait for the replicas; then REQUEST_TIMED_OUT.
        """
        if self.waiting >= WAITING_MAX:
            return dict.fromkeys(offsets, DeleteOutcome(ErrorCode.REQUEST_TIMED_OUT))
        outcomes: dict[PartitionKey, DeleteOutcome] = {}
        #: {partition: (its replica, what the low watermark must reach)}
        required: dict[PartitionKey, tuple[Replica, int]] = {}
        pace, waiting = Pace(), WaitingDeletion()
        self.waiting += 1
        try:
            # However short the time is, all are begun.
            for key, offset in offsets.items():
                begun = self._begin(key, offset)
                if isinstance(begun, ErrorCode):
                    outcomes[key] = DeleteOutcome(begun)
                else:
                    required[key] = (self._registry.replicas[key], begun)
                await pace.rest()
            async with asyncio.timeout(timeout_ms / 1000):
                for replica, _ in list(required.values()):
                    await replica.log.settled()
                    waiting.wait_for(replica.waiters)
                while required:
                    for key in await waiting.changes():
                        self._look_again(key, required, outcomes)
                        await pace.rest()
        except TimeoutError:
            for key in list(required):
                self._look_again(key, required, outcomes)
        except LogStorageError as error:
            error_code = self._on_failure(error)
            outcomes.update((key, DeleteOutcome(error_code)) for key in required)
            required.clear()
        finally:
            self.waiting -= 1
            waiting.close()
        for key, (replica, _) in required.items():
            outcomes[key] = DeleteOutcome(ErrorCode.REQUEST_TIMED_OUT, self._low_watermark(replica))
        return outcomes

    def _begin(self, key: PartitionKey, offset: int) -> int | ErrorCode:
        """Move the start of the leader's log; returns the offset that the low watermark must reach."""
        replica = self._registry.replicas.get(key)
        if replica is None:
            return self._registry.why_missing(key)
        if offset == HIGH_WATERMARK:
            offset = replica.high_watermark
        refused = reading.judge_deletion(replica.role, offset)
        if refused is not ErrorCode.NONE:
            return refused
        try:
            replica.log.advance_start(offset)
        except LogStorageError as error:
            return self._on_failure(error)
        replica.step(LogStartMoved())
        return offset

    def _look_again(
        self,
        key: PartitionKey,
        required: dict[PartitionKey, tuple[Replica, int]],
        outcomes: dict[PartitionKey, DeleteOutcome],
    ) -> None:
        """Give the outcome of a partition, if it need not wait any more."""
        if key not in required:
            return
        replica, start_offset = required[key]
        low_watermark = self._low_watermark(replica)
        error_code = reading.judge_deleted(replica.role, low_watermark, start_offset)
        if error_code is ErrorCode.NONE:
            outcomes[key] = DeleteOutcome(ErrorCode.NONE, low_watermark)
        elif error_code is not None:
            outcomes[key] = DeleteOutcome(error_code)
        else:
            return
        del required[key]

    def _low_watermark(self, replica: Replica) -> int:
        live, start_offset = self._registry.view.brokers, replica.log.durable_start_offset
        return reading.low_watermark(replica.role, live, start_offset)
