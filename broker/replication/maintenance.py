"""What happens by the clock: ISRs shrink, logs are fsynced and compacted, high watermarks are checkpointed,
segments go.

Each is a task of its own, so that ISRs shrink also while the disk does not answer. The checkpoint names every
log, also one that no request has named yet or that is not open (KAFKA-7235): a start knows by it which logs
there must be.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas"; ARCHITECTURE.md, "Life of a record";
docs/internals/requirements.md, [1.6].
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from broker.core.replica_inputs import LagTick
from broker.datadir.directory import DISK_CHECK_S
from broker.log.errors import DamagedSegmentError, LogStorageError
from broker.replication.clock import monotonic_ms
from broker.replication.compaction import Compaction
from broker.replication.isr_writer import IsrWriter
from broker.replication.outcomes import ReplicationOptions
from broker.replication.registry import Registry
from controller.wire.codes import ErrorCode
from quorum.errors import NodeStoppedError, QuorateError
from quorum.platform.pace import Pace
from quorum.platform.wall_clock import CLOCK

#: between two looks at which logs flush.ms has fsynced
FLUSH_CHECK_MS: Final = 1000
_log = logging.getLogger(__name__)


class Maintenance:
    """The tasks."""

    def __init__(
        self,
        registry: Registry,
        isr_writer: IsrWriter,
        options: ReplicationOptions,
        on_failure: Callable[[QuorateError], None],
        on_damage: Callable[[DamagedSegmentError], ErrorCode],
    ) -> None:
        """Do nothing before run()."""
        self.compaction = Compaction(registry, options, on_damage)
        self._registry = registry
        self._isr_writer = isr_writer
        self._options = options
        self._on_failure = on_failure

    async def run(self) -> None:
        """Work until cancelled; a failure stops the broker, and none of the others waits for it."""
        options = self._options
        await asyncio.gather(
            self._watch(),
            self._repeat(self.shrink_isrs, max(options.replica_lag_time_max_ms // 2, 1)),
            self._repeat(self.flush_by_age, FLUSH_CHECK_MS),
            self._repeat(self._registry.write_high_watermarks, options.high_watermark_checkpoint_interval_ms),
            self._repeat(self.delete_expired, options.retention_check_interval_ms),
            self._repeat(self.compaction.check, options.log_cleaner_backoff_ms),
        )

    async def _repeat(self, job: Callable[[], Awaitable[None]], interval_ms: int) -> None:
        try:
            while True:
                await asyncio.sleep(interval_ms / 1000)
                await job()
        except LogStorageError as error:
            self._on_failure(error)
        except Exception as error:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._on_failure(NodeStoppedError.during("the upkeep of replicas", error))

    async def _watch(self) -> None:
        self._on_failure(await self.disk_failure())

    async def disk_failure(self) -> LogStorageError:
        """Return when the disk has refused something, or does not answer, with the reason."""
        flusher = self._registry.log_directory.flusher
        seen_ms = monotonic_ms()
        while True:
            await asyncio.sleep(DISK_CHECK_S)
            now_ms = monotonic_ms()
            # A process that was stopped for a while has not waited for its disk meanwhile.
            elapsed_ms = min(now_ms - seen_ms, 2 * DISK_CHECK_S * 1000)
            failure = flusher.check(elapsed_ms, self._options.disk_hang_ms)
            if failure is not None:
                return failure
            seen_ms = now_ms

    async def shrink_isrs(self) -> None:
        """Propose that followers leave which have not caught up in time."""
        tick = LagTick(self._options.replica_lag_time_max_ms)
        for replica in self._registry.replicas.values():
            if replica.leader is not None:
                self._isr_writer.carry_out(replica, replica.step(tick))

    async def flush_by_age(self) -> None:
        """Begin the fsyncs that flush.ms asks for."""
        now_ms = monotonic_ms()
        for replica in self._registry.replicas.values():
            replica.log.flush_by_age(now_ms)

    async def write_last_high_watermarks(self) -> None:
        """Checkpoint them at the end, unless the disk does not answer."""
        failing = asyncio.ensure_future(self.disk_failure())
        writing = asyncio.ensure_future(self._registry.write_high_watermarks())
        try:
            await asyncio.wait([failing, writing], return_when=asyncio.FIRST_COMPLETED)
            if not writing.done():
                raise failing.result()
            writing.result()
        finally:
            failing.cancel()
            writing.cancel()

    async def delete_expired(self) -> None:
        """Close segments for their age, and delete those that retention no longer keeps."""
        by_age = CLOCK.is_believed()
        if not by_age:
            _log.warning(
                "nothing is closed or deleted for its age: since the start the time of day was set by more "
                "than an hour; start this broker again once it is right"
            )
        pace = Pace()
        for key, replica in list(self._registry.replicas.items()):
            # A segment that is closed for its age goes once it is durable.
            for _ in range(2):
                await replica.log.settled()
                if self._registry.replicas.get(key) is not replica:
                    break
                replica.delete_expired(by_age=by_age)
            await pace.rest()
