"""All replicas of the broker, and the gate for control requests.

Finds the replica for a request, or the error that says why not. Knows the log directory and creates, deletes
and sets aside logs there. The replicas' logs are hard state, the rest is soft.
Source: ARCHITECTURE.md, "Life of a controller"; docs/concepts/guarantees.md, "Leaders and in-sync replicas".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from broker.core import fences
from broker.core.cluster_view import ClusterView
from broker.core.control_gate import ControlGate
from broker.core.partition import NO_GENERATION
from broker.core.replica import ReplicaMachine
from broker.core.replica_inputs import Opened, SessionLost
from broker.core.throttle import Throttle
from broker.datadir.directory import LogDirectory
from broker.log.disk_threads import finished
from broker.log.partition_log import PartitionLog
from broker.replication.recording import RecordedReplicaMachine
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch, LeaderEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.recording import Recordings

NO_LEADER_EPOCH = LeaderEpoch(-1)


class Registry:
    """The replicas by partition."""

    def __init__(
        self,
        broker_id: int,
        log_directory: LogDirectory,
        view: ClusterView,
        settings_of: Callable[[str], TopicSettings],
        recordings: Recordings | None = None,
    ) -> None:
        """Know no replica yet."""
        self._recordings = recordings
        self.broker_id = broker_id
        self.log_directory = log_directory
        self.view = view
        self.settings_of = settings_of
        #: What this broker sends to throttled followers, and what it fetches for throttled replicas.
        self.leader_throttle = Throttle(
            broker_id, lambda topic: settings_of(topic).leader_replication_throttled_replicas
        )
        self.follower_throttle = Throttle(
            broker_id, lambda topic: settings_of(topic).follower_replication_throttled_replicas
        )
        self.gate = ControlGate()
        #: {partition: replica}
        self.replicas: dict[PartitionKey, Replica] = {}

    def admit(
        self, broker_epoch: BrokerGeneration, controller_id: int, controller_epoch: ControllerEpoch
    ) -> ErrorCode:
        """Judge a control request; one that passes is remembered, and may begin a generation."""
        refused = self.gate.judge(broker_epoch, controller_epoch)
        if refused is ErrorCode.NONE and self.gate.take(broker_epoch, controller_id, controller_epoch):
            self.step_down(broker_epoch)
        return refused

    def begin_generation(self, generation: BrokerGeneration) -> None:
        """Lead nothing any more, and apply the next decision about each partition whatever its epoch."""
        if self.gate.begin(generation):
            self.step_down(generation)

    def leave_generation(self) -> None:
        """Obey no request for the present registration any more: another one is to follow."""
        self.gate.leave()
        self.step_down(self.gate.generation)

    def step_down(self, generation: BrokerGeneration = NO_GENERATION) -> None:
        """Lead nothing any more that was decided in another generation than this."""
        over = SessionLost(generation)
        for replica in self.replicas.values():
            if replica.leader is not None:
                replica.step(over)

    def open_replica(self, key: PartitionKey, leader_epoch: LeaderEpoch = NO_LEADER_EPOCH) -> Replica:
        """Make a replica of a log that the directory holds, with its checkpointed high watermark.

        Args:
            key: which partition.
            leader_epoch: as read from the quorum.
        """
        log = self.log_directory.logs[key]
        settings = self.settings_of(key.topic)
        # The log was opened before the settings of topics were read, and their changes reach replicas alone.
        log.configure(settings)
        return self._add(key, log, Opened(self.log_directory.high_watermarks.get(key, 0), leader_epoch))

    def create_replica(self, key: PartitionKey, topic_id: uuid.UUID | None) -> Replica:
        """Open or create the log of a partition; a log of another topic with that name is set aside."""
        existing = self.log_directory.logs.get(key)
        if existing is not None and existing.topic_id is None and topic_id is not None:
            self.log_directory.adopt(key, topic_id)
        if existing is not None and fences.is_of_another_topic(topic_id, existing.topic_id):
            self.log_directory.set_aside(key)
            existing = None
        if existing is None:
            log = self.log_directory.create(key, topic_id, self.settings_of(key.topic))
            return self._add(key, log, Opened(0))
        return self.open_replica(key)

    def _add(self, key: PartitionKey, log: PartitionLog, opened: Opened) -> Replica:
        min_insync = self.settings_of(key.topic).min_insync_replicas
        machine = (
            ReplicaMachine(self.broker_id, min_insync)
            if self._recordings is None
            else RecordedReplicaMachine(self._recordings, key, self.broker_id, min_insync)
        )
        replica = Replica(key, log, machine)
        replica.step(opened)
        self.replicas[key] = replica
        return replica

    def close(self, replica: Replica) -> None:
        """Let a replica go; its log stays until somebody deletes it or sets it aside."""
        self.log_directory.high_watermarks[replica.key] = replica.high_watermark
        del self.replicas[replica.key]

    async def write_high_watermarks(self) -> None:
        """Checkpoint the high watermarks of all logs; on return a start knows no higher ones."""
        directory = self.log_directory
        known = {key: directory.high_watermarks.get(key, 0) for key in directory.logs}
        known.update((key, replica.high_watermark) for key, replica in self.replicas.items())
        written = directory.begin_checkpoint(known)
        await finished(written)
        written.result()

    def is_cut(self, key: PartitionKey) -> bool:
        """Whether a log ends below its checkpointed high watermark: what comes there may be uncommitted."""
        directory = self.log_directory
        log = directory.logs.get(key)
        return log is not None and directory.high_watermarks.get(key, 0) > log.log_end_offset

    def why_missing(self, key: PartitionKey) -> ErrorCode:
        """Return the error for a partition without a replica here."""
        # Before the first UpdateMetadata nothing can be said to be unknown (librdkafka would drop its queue).
        if not self.view.received or self.view.partition(key.topic, key.partition) is not None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def current_leader(self, key: PartitionKey) -> tuple[int, int] | None:
        """Return (broker id, leader epoch) of who leads a partition as far as known here."""
        known = self.view.partition(key.topic, key.partition)
        return None if known is None or known.leader < 0 else (known.leader, known.leader_epoch)
