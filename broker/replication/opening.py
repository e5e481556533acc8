"""Opens the replicas that are assigned to this broker, before it registers.

A log that an ISR counts on and that was, or may have been, in the directory is made again, empty and
shortened. Nothing is led or followed yet; what the states say is remembered, but does not count as applied.
Source: docs/requirements.md, [0.E].
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping

from broker.core import fences
from broker.replication.registry import NO_LEADER_EPOCH, Registry
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import PartitionStateRecord, TopicRecord

_log = logging.getLogger(__name__)


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
    """
    directory = registry.log_directory
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
