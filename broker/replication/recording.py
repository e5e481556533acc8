"""A replica's machine whose steps are recorded; tests/support/replaying.py plays them again.

What a step saw of the log is recorded with it, so that a replay needs no log.
"""

from __future__ import annotations

from collections.abc import Hashable

from broker.core.fetched import FetchPosition
from broker.core.replica import ReplicaMachine
from broker.core.replica_effects import ReplicaEffect
from broker.core.replica_inputs import LogView, ReplicaInput
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from quorum.platform.recording import Recordings


class SeenLog:
    """A view of a log that remembers what was seen."""

    def __init__(self, log: LogView) -> None:
        """Look at a log."""
        self._log = log
        #: {epoch: (largest epoch not above it, its end)}
        self._ends: dict[int, tuple[int, int]] = {}

    @property
    def topic_id(self) -> Hashable | None:
        """As the log's."""
        return self._log.topic_id

    @property
    def log_start_offset(self) -> int:
        """As the log's."""
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        """As the log's."""
        return self._log.log_end_offset

    @property
    def latest_epoch(self) -> int:
        """As the log's."""
        return self._log.latest_epoch

    def last_stable_offset(self, high_watermark: int, /) -> int:
        """As the log's; no step asks for it."""
        return self._log.last_stable_offset(high_watermark)

    def end_offset_for_epoch(self, leader_epoch: int, /) -> tuple[int, int]:
        """As the log's."""
        self._ends[leader_epoch] = self._log.end_offset_for_epoch(leader_epoch)
        return self._ends[leader_epoch]

    def seen(self) -> tuple[object, ...]:
        """Return topic id, start, end, latest epoch, and the epochs' ends that were asked for."""
        log = self._log
        return (log.topic_id, log.log_start_offset, log.log_end_offset, log.latest_epoch, self._ends)


class RecordedReplicaMachine(ReplicaMachine):
    """One replica, with its recording."""

    __slots__ = ("_is_stepping", "_recorder")

    def __init__(
        self, recordings: Recordings, key: PartitionKey, broker_id: int, min_insync_replicas: int
    ) -> None:
        """Begin a file for this replica; its first step has what the machine is made of."""
        super().__init__(broker_id, min_insync_replicas)
        #: A step may note by the methods below, which is a part of it.
        self._is_stepping = False
        self._recorder = recordings.begin(f"replica-{key.topic}-{key.partition}")
        self._recorder.note(0, (key, broker_id, min_insync_replicas))

    def step(self, happened: ReplicaInput, log: LogView, now_ms: int) -> list[ReplicaEffect]:
        """Step and record it."""
        seen = SeenLog(log)
        self._is_stepping = True
        effects = None
        try:
            effects = super().step(happened, seen, now_ms)
        finally:
            # Also one that raises: a report is about that.
            self._is_stepping = False
            self._recorder.note(now_ms, ("step", happened, seen.seen()), effects)
        return effects

    def appended(self, log_end_offset: int) -> bool:
        """Note and record it."""
        risen = super().appended(log_end_offset)
        if not self._is_stepping:
            self._recorder.note(0, ("appended", log_end_offset), risen)
        return risen

    def note_fetch(
        self,
        replica_id: int,
        generation: BrokerGeneration,
        position: FetchPosition,
        log: LogView,
        now_ms: int,
    ) -> bool:
        """Note and record it."""
        seen = SeenLog(log)
        risen = super().note_fetch(replica_id, generation, position, seen, now_ms)
        self._recorder.note(now_ms, ("note_fetch", replica_id, generation, position, seen.seen()), risen)
        return risen

    def kept_up(self, replica_id: int, generation: BrokerGeneration, until_ms: int) -> None:
        """Note and record it."""
        super().kept_up(replica_id, generation, until_ms)
        self._recorder.note(0, ("kept_up", replica_id, generation, until_ms))

    def copied(self, high_watermark: int, log_end_offset: int) -> bool:
        """Note and record it."""
        risen = super().copied(high_watermark, log_end_offset)
        if not self._is_stepping:
            self._recorder.note(0, ("copied", high_watermark, log_end_offset), risen)
        return risen
