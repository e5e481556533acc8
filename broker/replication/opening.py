"""Opens the replicas that are assigned to this broker, before it registers.

A log that an ISR counts on and that was, or may have been, in the directory is made again, empty and
shortened. Nothing is led or followed yet; what the states say is remembered, but does not count as applied.
Source: docs/internals/requirements.md, [0.E].
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping, Sequence

from broker.core import fences
from broker.replication.registry import NO_LEADER_EPOCH, Registry
from quorum.errors import Fault, QuorateError
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

_log = logging.getLogger(__name__)


class NewerLogError(QuorateError):
    """Logs of later leader epochs than the quorum knows: it was restored, or forced, to an earlier state."""

    fault = Fault.OPERATOR

    def __init__(self, broker_id: int, newer: Sequence[tuple[PartitionKey, int, int]]) -> None:
        """`newer`: (partition, leader epoch of the log, that of the quorum), at least one."""
        (topic, partition), in_log, in_quorum = newer[0]
        more = f" (and {len(newer) - 1} more partitions are so: the log names each)" if len(newer) > 1 else ""
        known = f"epoch {in_log}, and the quorum's state has leader epoch {in_quorum}{more}"
        super().__init__(
            f"broker {broker_id} cannot serve: its log of {topic}-{partition} has records of leader {known}: "
            "it was restored to an earlier point, or forced",
            "restore the quorum to a later point, keep the records by `quorate raise-epochs`, or move this "
            'log away and lose them: docs/operate/backup.md, "Brokers", says how',
        )


def refuse_newer_logs(
    registry: Registry, topics: Mapping[str, TopicRecord], states: Mapping[PartitionKey, PartitionStateRecord]
) -> None:
    """Refuse a quorum that has forgotten leader epochs which logs of this broker hold; nothing is changed.

    In such an epoch it would let somebody lead again, and two batches would have the same offset and epoch.

    Args:
        registry: of the broker.
        topics, states: as the quorum has them, read behind everything that was committed.

    Raises:
        NewerLogError: there are such logs.
    """
    newer = [
        (key, log.latest_epoch, states[key].leader_epoch)
        for key, log in sorted(registry.log_directory.logs.items())
        if key in states
        and key.topic in topics
        and not fences.is_of_another_topic(topics[key.topic].topic_id, log.topic_id)
        and log.latest_epoch > states[key].leader_epoch
    ]
    for key, in_log, in_quorum in newer:
        # The error names one of them, and whoever repairs the quorum needs all.
        _log.error(
            "%s-%d: the log has leader epoch %d, the quorum's state %d",
            key.topic,
            key.partition,
            in_log,
            in_quorum,
        )
    if newer:
        raise NewerLogError(registry.broker_id, newer)


def open_replicas(
    registry: Registry,
    topics: Mapping[str, TopicRecord],
    states: Mapping[PartitionKey, PartitionStateRecord],
    *,
    unreadable: Collection[str] = (),
) -> None:
    """Open the logs of replicas that are assigned to this broker; the others are set aside as strays.

    A log whose topic id was lost belongs to the topic of its name.

    Args:
        registry: gets the replicas.
        topics: every topic whose record could be read.
        states: the partitions' states, as far as they exist.
        unreadable: topics with a malformed record; their logs are left alone.

    Raises:
        NewerLogError: a log has a later leader epoch than the state; nothing was changed.
    """
    directory = registry.log_directory
    refuse_newer_logs(registry, topics, states)
    counted_on = list(_counted_on(registry, topics, states))
    for key, log in list(directory.logs.items()):
        if key.topic in unreadable:
            continue
        topic = topics.get(key.topic)
        is_ours = topic is not None and registry.broker_id in topic.partitions.get(key.partition, ())
        if is_ours and topic is not None and topic.topic_id is not None and log.topic_id is None:
            directory.adopt(key, topic.topic_id)
        if topic is None or not is_ours or fences.is_of_another_topic(topic.topic_id, log.topic_id):
            _log.warning("%s-%d is not assigned to this broker: its log is set aside as a stray", *key)
            directory.set_aside(key)
            continue
        state = states.get(key)
        registry.open_replica(key, NO_LEADER_EPOCH if state is None else state.leader_epoch)

    missing = [key for key in counted_on if key not in directory.logs]
    directory.note_shortened(missing)
    for key in missing:
        _log.error("%s-%d has lost its log: an empty one takes its place", *key)
        registry.create_replica(key, topics[key.topic].topic_id)


def _counted_on(
    registry: Registry, topics: Mapping[str, TopicRecord], states: Mapping[PartitionKey, PartitionStateRecord]
) -> Iterator[PartitionKey]:
    """Yield the partitions whose ISR names this broker and that had, or may have had, a log here."""
    directory, broker_id = registry.log_directory, registry.broker_id
    for key, state in states.items():
        had_log = directory.lost_power or key in directory.high_watermarks or key in directory.logs
        replicas = topics[key.topic].partitions.get(key.partition, ()) if key.topic in topics else ()
        if had_log and broker_id in state.isr and broker_id in replicas:
            yield key
