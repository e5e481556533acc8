"""Damage that a reader or the cleaner meets: bytes of a log that no broker wrote.

Where another replica is in sync, this one steps down at once, and its log is cut as a start would cut it:
noted as shortened before, whole segments behind the damage set aside. Then the broker registers again, which
names the log: the controller takes the broker out of that ISR, and it copies what it lacks. Where no other
replica is in sync the log stays as it is, and readers get what is around the damage.
Soft state.
Source: docs/concepts/guarantees.md, "What kills, disks and power cost"; ARCHITECTURE.md, "Life of a record".
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from broker.core.replica_inputs import DamageFound
from broker.log.errors import DamagedSegmentError, LogStorageError
from broker.replication.control import Control
from broker.replication.outcomes import ReplicationOptions
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.errors import NodeStoppedError, QuorateError
from quorum.metadata.paths import PartitionKey

_log = logging.getLogger(__name__)


class Mending:
    """Takes damaged replicas out of service and has them copied anew."""

    def __init__(
        self,
        registry: Registry,
        control: Control,
        register_again: Callable[[], None],
        on_failure: Callable[[QuorateError], None],
        options: ReplicationOptions,
    ) -> None:
        """Mend nothing yet.

        Args:
            registry: the replicas.
            control: cuts a log while no request gives it a role.
            register_again: ends the session and begins another one.
            on_failure: called when the disk refuses.
            options: when a disk counts as one that does not answer.
        """
        self._registry = registry
        self._control = control
        self._register_again = register_again
        self._on_failure = on_failure
        self._patience_s = options.disk_hang_ms / 1000
        #: Partitions with damaged records that only this broker has, as they were logged.
        self._complained: dict[PartitionKey, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def meet(self, error: DamagedSegmentError) -> ErrorCode:
        """Take note of damage; returns what the reader is answered."""
        replica = self._replica_of(error)
        if replica is None:
            # Another reader has reported it before, or the log is closed.
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        refused = self._control.carry_out(replica, replica.step(DamageFound()))
        if refused is ErrorCode.CORRUPT_MESSAGE:
            if replica.key not in self._complained:
                self._complained[replica.key] = None
                _log.error(
                    "%s; no other replica of %s-%d is in sync, so it is not cut: readers get "
                    "CORRUPT_MESSAGE there, and the records around it",
                    error.message,
                    *replica.key,
                )
            return refused
        _log.error("%s; %s-%d is cut there, and copied from another replica", error.message, *replica.key)
        task = asyncio.create_task(self._mend(replica, error), name=f"mending {replica.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return refused

    def _replica_of(self, error: DamagedSegmentError) -> Replica | None:
        replicas = self._registry.replicas.values()
        return next((each for each in replicas if each.log.folder == error.folder), None)

    async def _mend(self, replica: Replica, error: DamagedSegmentError) -> None:
        try:
            if await self._control.reopen(replica.log, error):
                self._register_again()
        except LogStorageError as failure:
            self._on_failure(failure)
        except Exception as failure:  # noqa: BLE001 - the top of a task: the broker stops with the story
            self._on_failure(NodeStoppedError.during(f"mending {replica.key}", failure))

    async def stop(self) -> None:
        """Wait for the logs that are being mended, unless the disk does not answer."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=self._patience_s)
        for task in self._tasks:
            task.cancel()
