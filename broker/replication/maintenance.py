"""What happens by the clock: ISRs shrink, high watermarks are checkpointed, old segments go.

One task with three intervals. The checkpoint names every log, also one that no request has named yet or that
is not open (KAFKA-7235): a start knows by it which logs there must be.
Source: control-plane design, "ISR", "Log"; seed [1.6].
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.log.errors import LogStorageError
from broker.replication.clock import monotonic_ms, wall_ms
from broker.replication.isr_writer import IsrWriter
from broker.replication.outcomes import ReplicationOptions
from broker.replication.registry import Registry
from quorum.errors import NodeStoppedError, QuorateError

_log = logging.getLogger(__name__)


class Maintenance:
    """The task."""

    def __init__(
        self,
        registry: Registry,
        isr_writer: IsrWriter,
        options: ReplicationOptions,
        on_failure: Callable[[QuorateError], None],
    ) -> None:
        """Do nothing before run()."""
        self._registry = registry
        self._isr_writer = isr_writer
        self._options = options
        self._on_failure = on_failure

    async def run(self) -> None:
        """Work until cancelled; a failure stops the broker."""
        options = self._options
        jobs = (
            (self.shrink_isrs, max(options.replica_lag_time_max_ms // 2, 1)),
            (self.write_high_watermarks, options.high_watermark_checkpoint_interval_ms),
            (self.delete_expired, options.retention_check_interval_ms),
        )
        due_ms = [monotonic_ms() + interval_ms for _, interval_ms in jobs]
        try:
            while True:
                await asyncio.sleep(max(min(due_ms) - monotonic_ms(), 1) / 1000)
                now_ms = monotonic_ms()
                for index, (job, interval_ms) in enumerate(jobs):
                    if due_ms[index] <= now_ms:
                        await job()
                        due_ms[index] = now_ms + interval_ms
        except LogStorageError as error:
            self._on_failure(error)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._on_failure(NodeStoppedError.during("the upkeep of replicas", error))

    async def shrink_isrs(self) -> None:
        """Propose that followers leave which have not caught up in time."""
        now_ms = monotonic_ms()
        for replica in self._registry.replicas.values():
            leader = replica.leader
            if leader is None:
                continue
            change = leader.maybe_shrink(
                replica.log.log_end_offset, now_ms, self._options.replica_lag_time_max_ms
            )
            if change is not None:
                self._isr_writer.write(replica, leader, change)

    async def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all replicas, in another thread: it waits for the disk.

        Raises:
            LogStorageError: the disk refused.
        """
        directory = self._registry.log_directory
        known = {key: directory.high_watermarks.get(key, 0) for key in directory.logs}
        known.update((key, replica.high_watermark) for key, replica in self._registry.replicas.items())
        writing = asyncio.create_task(asyncio.to_thread(directory.write_high_watermarks, known))
        try:
            await asyncio.shield(writing)
        finally:
            # Also when cancelled: the directory takes one checkpoint at a time.
            await writing

    async def delete_expired(self) -> None:
        """Delete the segments that retention no longer keeps.

        Raises:
            LogStorageError: the disk refused.
        """
        now_ms = wall_ms()
        for replica in self._registry.replicas.values():
            before = replica.log.log_start_offset
            after = replica.log.delete_expired(high_watermark=replica.high_watermark, now_ms=now_ms)
            if after != before:
                _log.info("retention: %s-%d starts at %d now, not at %d", *replica.key, after, before)
