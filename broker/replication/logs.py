"""What clients, tools and operators ask about the logs here: roles, sizes, the disk, producers, offsets.

Reads only. What the disk refuses becomes a code here.
Source: KIP-79, KIP-113, KIP-664, KIP-827.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from broker.core.listed_offsets import ListedOffset
from broker.log.disk_threads import finished
from broker.log.errors import LogStorageError, UnreadableBatchError
from broker.log.files import disk_space
from broker.log.producers import ActiveProducer
from broker.replication import offsets
from broker.replication.outcomes import EpochEnd
from broker.replication.registry import Registry
from controller.wire.codes import ErrorCode
from quorum.errors import QuorateError
from quorum.metadata.paths import PartitionKey


class Logs:
    """Looks at the logs of one broker."""

    def __init__(self, registry: Registry, on_failure: Callable[[QuorateError], ErrorCode]) -> None:
        """Look at the logs of a registry; on_failure returns the answer where the disk fails."""
        self._registry = registry
        self._on_failure = on_failure

    def counts(self) -> dict[str, int]:
        """Count the partitions of this broker by role; "offline": it neither leads nor follows."""
        replicas = self._registry.replicas
        leaders = [replica.leader for replica in replicas.values() if replica.leader is not None]
        followed = sum(replica.follower is not None for replica in replicas.values())
        return {
            "led": len(leaders),
            "followed": followed,
            "offline": len(replicas) - len(leaders) - followed,
            "under_replicated": sum(leader.is_under_replicated() for leader in leaders),
        }

    def keys(self) -> list[PartitionKey]:
        """Return the partitions whose logs are here."""
        return list(self._registry.log_directory.logs)

    def size(self, key: PartitionKey) -> tuple[int, int] | None:
        """Return (bytes, how far the end is below the high watermark, -1: unknown); None: no log is here."""
        log = self._registry.log_directory.logs.get(key)
        if log is None:
            return None
        replica = self._registry.replicas.get(key)
        lag = -1 if replica is None else max(replica.high_watermark - log.log_end_offset, 0)
        return log.size_bytes, lag

    async def disk_space(self) -> tuple[int, int] | ErrorCode:
        """Return (total, usable) bytes of the log directory's disk."""
        directory = self._registry.log_directory
        found = directory.flusher.readers.run(partial(disk_space, directory.path))
        await finished(found)
        try:
            return found.result()
        except LogStorageError as error:
            return error.error_code

    def active_producers(self, key: PartitionKey) -> list[ActiveProducer] | ErrorCode:
        """Return a partition's producers; a code says why they are not known here."""
        replica = self._registry.replicas.get(key)
        return self._registry.why_missing(key) if replica is None else replica.log.active_producers()

    def late_transactions(self, before_ms: int) -> int:
        """Count the partitions led here whose oldest open transaction was last appended to before a time."""
        led = (each.log.oldest_open_ms() for each in self._registry.replicas.values() if each.leader)
        return sum(open_ms is not None and open_ms < before_ms for open_ms in led)

    async def list_offset(
        self,
        key: PartitionKey,
        timestamp: int,
        current_leader_epoch: int = -1,
        *,
        is_follower: bool = False,
        read_committed: bool = False,
    ) -> ListedOffset:
        """Return the offset for a timestamp; see offsets.list_offset."""
        try:
            return await offsets.list_offset(
                self._registry,
                key,
                timestamp,
                current_leader_epoch,
                is_follower=is_follower,
                read_committed=read_committed,
            )
        except UnreadableBatchError as error:
            return ListedOffset(error.error_code)
        except LogStorageError as error:
            return ListedOffset(self._on_failure(error))

    def epoch_end_offset(self, key: PartitionKey, leader_epoch: int, current_leader_epoch: int) -> EpochEnd:
        """Return where a leader epoch ended."""
        return offsets.epoch_end_offset(self._registry, key, leader_epoch, current_leader_epoch)
