"""Produce: records are appended by the leader; acks=all waits until they are committed.

min.insync.replicas is checked before the append (19) and when the high watermark has passed (20). A leader
that steps down answers 6 for what it has not committed; such records may be lost or may survive, so the
producer repeats them. Knows no connection.
Source: control-plane design, "Produce"; Kafka's ReplicaManager.appendRecords.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from broker.log.errors import AppendError, LogStorageError
from broker.replication.clock import wall_ms
from broker.replication.outcomes import Counters, ProduceOutcome
from broker.replication.registry import Registry
from broker.replication.waiting import WAITING_MAX, WaitingProduce
from controller.messages.codes import ErrorCode
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey

ACKS_NONE: Final = 0
ACKS_LEADER: Final = 1
ACKS_ALL: Final = -1


class Producing:
    """Appends for producers."""

    def __init__(
        self, registry: Registry, counters: Counters, on_storage_error: Callable[[QuorateError], None]
    ) -> None:
        """Append to the replicas of a registry."""
        self._registry = registry
        self._counters = counters
        self._on_storage_error = on_storage_error
        #: Requests with acks=all that wait now.
        self.waiting = 0

    async def produce(
        self, batches: Mapping[PartitionKey, bytes | memoryview], *, acks: int, timeout_ms: int
    ) -> dict[PartitionKey, ProduceOutcome]:
        """Append batches and wait as far as acks says.

        Args:
            batches: {partition: one or more record batches}.
            acks: ACKS_NONE, ACKS_LEADER or ACKS_ALL.
            timeout_ms: how long acks=all may take; then 7, though the records are in the log.
        """
        if acks not in (ACKS_NONE, ACKS_LEADER, ACKS_ALL):
            return dict.fromkeys(batches, ProduceOutcome(ErrorCode.INVALID_REQUIRED_ACKS))
        if acks == ACKS_ALL and self.waiting >= WAITING_MAX:
            text = f"{WAITING_MAX} requests wait already; nothing was appended"
            return dict.fromkeys(batches, ProduceOutcome(ErrorCode.REQUEST_TIMED_OUT, message=text))
        outcomes: dict[PartitionKey, ProduceOutcome] = {}
        waiting = WaitingProduce()
        for key, records in batches.items():
            outcomes[key] = self._append(key, records, waiting if acks == ACKS_ALL else None)
        self.waiting += 1
        try:
            await waiting.answered(timeout_ms)
        finally:
            self.waiting -= 1
        for key, error_code in waiting.answers.items():
            if error_code is not ErrorCode.NONE:
                outcomes[key] = ProduceOutcome(error_code)
        return outcomes

    def _append(
        self, key: PartitionKey, records: bytes | memoryview, waiting: WaitingProduce | None
    ) -> ProduceOutcome:
        replica = self._registry.replicas.get(key)
        if replica is None:
            return ProduceOutcome(self._registry.why_missing(key))
        leader = replica.leader
        if leader is None:
            return ProduceOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if waiting is not None and not leader.has_enough_in_sync(replica.min_insync_replicas):
            return ProduceOutcome(ErrorCode.NOT_ENOUGH_REPLICAS)
        try:
            appended = replica.log.append_as_leader(records, leader.leader_epoch, wall_ms())
        except AppendError as error:
            return ProduceOutcome(ErrorCode(error.error_code), message=str(error))
        except LogStorageError as error:
            self._on_storage_error(error)
            return ProduceOutcome(ErrorCode.KAFKA_STORAGE_ERROR, message=str(error))
        replica.log_grew()
        if not appended.duplicate:
            self._counters.records_produced += appended.last_offset + 1 - appended.base_offset
            self._counters.bytes_produced += len(records)
        if waiting is not None and replica.high_watermark <= appended.last_offset:
            waiting.wait_for(replica, appended.last_offset + 1)
        return ProduceOutcome(
            ErrorCode.NONE, appended.base_offset, log_start_offset=replica.log.log_start_offset
        )
