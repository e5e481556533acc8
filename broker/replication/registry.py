"""All replicas of the broker, and the numbers that fence: generation and controller epoch.

Finds the replica for a request, or the error that says why not. Knows the log directory and creates, deletes
and sets aside logs there. The replicas' logs are hard state, the rest is soft.
Source: control-plane design, "Leader and follower", "Start-up", "init_leaders / topics".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable

from broker.core.cluster_view import ClusterView
from broker.core.throttle import Throttle
from broker.datadir.directory import LogDirectory
from broker.log.partition_log import PartitionLog
from broker.replication.replica import Replica
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration, ControllerEpoch
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings

NO_GENERATION = BrokerGeneration(-1)


class Registry:
    """The replicas by partition."""

    def __init__(
        self,
        broker_id: int,
        log_directory: LogDirectory,
        view: ClusterView,
        settings_of: Callable[[str], TopicSettings],
    ) -> None:
        """Know no replica yet."""
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
        self.generation = NO_GENERATION
        self.controller_epoch = ControllerEpoch(0)
        self.controller_id = -1
        #: {partition: replica}
        self.replicas: dict[PartitionKey, Replica] = {}

    def fence(
        self, broker_epoch: BrokerGeneration, controller_id: int, controller_epoch: ControllerEpoch
    ) -> ErrorCode:
        """Judge a control request by whom it is for and who sent it; a newer controller is remembered.

        A generation above the own one begins here: the controller has read the registration whose reply is
        still on its way to this broker.
        """
        if broker_epoch < self.generation:
            return ErrorCode.STALE_BROKER_EPOCH
        if controller_epoch < self.controller_epoch:
            return ErrorCode.STALE_CONTROLLER_EPOCH
        if broker_epoch > self.generation:
            self.begin_generation(broker_epoch)
        self.controller_epoch = controller_epoch
        self.controller_id = controller_id
        return ErrorCode.NONE

    def begin_generation(self, generation: BrokerGeneration) -> None:
        """Lead nothing any more, and apply the next decision about each partition whatever its epoch."""
        self.generation = generation
        self.step_down()
        for replica in self.replicas.values():
            replica.applied = False

    def leave_generation(self) -> None:
        """Obey no request for the present registration any more: another one is to follow."""
        self.begin_generation(BrokerGeneration(self.generation + 1))

    def step_down(self) -> None:
        """Lead nothing any more."""
        for replica in self.replicas.values():
            if replica.leader is not None:
                replica.step_down()

    def open_replica(self, key: PartitionKey) -> Replica:
        """Make a replica of a log that the directory holds, with its checkpointed high watermark."""
        log = self.log_directory.logs[key]
        settings = self.settings_of(key.topic)
        # The log was opened before the settings of topics were read, and their changes reach replicas alone.
        log.configure(settings)
        high_watermark = self.log_directory.high_watermarks.get(key, 0)
        replica = Replica(key, log, high_watermark, settings.min_insync_replicas)
        self.replicas[key] = replica
        return replica

    def create_replica(self, key: PartitionKey, topic_id: uuid.UUID | None) -> Replica:
        """Open or create the log of a partition; a log of another topic with that name is set aside.

        Raises:
            LogStorageError: the disk refused.
        """
        existing = self.log_directory.logs.get(key)
        if existing is not None and existing.topic_id is None and topic_id is not None:
            self.log_directory.adopt(key, topic_id)
        if existing is not None and not is_log_of(existing, topic_id):
            self.log_directory.set_aside(key)
            existing = None
        if existing is None:
            log = self.log_directory.create(key, topic_id, self.settings_of(key.topic))
            replica = Replica(key, log, 0, self.settings_of(key.topic).min_insync_replicas)
            self.replicas[key] = replica
            return replica
        return self.open_replica(key)

    def forget(self, replica: Replica) -> None:
        """Let a replica go; its log stays until somebody deletes it or sets it aside."""
        del self.replicas[replica.key]

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


def is_log_of(log: PartitionLog, topic_id: uuid.UUID | None) -> bool:
    """Whether a log belongs to a topic, not to an older one of the same name."""
    return topic_id is None or log.topic_id == topic_id


def check_leader_epoch(replica: Replica, current_leader_epoch: int) -> ErrorCode:
    """Judge the leader epoch that a reader believes in; -1: it does not say."""
    if current_leader_epoch < 0 or current_leader_epoch == replica.leader_epoch:
        return ErrorCode.NONE
    if current_leader_epoch < replica.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
