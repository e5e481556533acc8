"""What a cluster holds: its topics, and where their logs begin and end; asked by the driver.

Answers that a change of leaders spoils are asked again until a deadline. A topic is never created by asking
for it. Nothing here is kept; each call is a fresh look.
Source: librdkafka's Metadata and ListOffsets.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from confluent_kafka import KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec

from pipeline.errors import OptionError
from pipeline.topics.options import (
    BOOTSTRAP,
    EARLIEST,
    LATEST,
    Assigned,
    Matching,
    Partition,
    Selection,
    Subscribed,
)
from pipeline.topics.ranges import SeenOffset

#: How long brokers may take to answer, elections included.
ANSWER_DEADLINE_S: Final = 30.0
#: How long a topic that was just created may be unknown.
CREATION_DEADLINE_S: Final = 3.0
REQUEST_TIMEOUT_S: Final = 10.0
RETRY_INTERVAL_S: Final = 0.2
#: librdkafka's own lines on stderr; errors come as exceptions as well.
LOG_LEVEL: Final = 2
#: What Kafka itself keeps in topics; a pattern does not mean these.
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state"})
T = TypeVar("T")


class Cluster:
    """A connection to brokers, opened when it is first used."""

    def __init__(self, client: Mapping[str, str]) -> None:
        """Keep settings for librdkafka."""
        self._servers = client["bootstrap.servers"]
        self._admin = AdminClient({"log_level": LOG_LEVEL, **client})

    def partitions(self, selection: Selection) -> list[Partition]:
        """Return the partitions that are selected and exist, in order."""
        deadline = time.monotonic() + CREATION_DEADLINE_S
        while True:
            metadata = self._answer(lambda: self._admin.list_topics(timeout=REQUEST_TIMEOUT_S))
            try:
                return sorted(_selected(selection, _existing(metadata)))
            except OptionError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_INTERVAL_S)

    def topic_ids(self, partitions: Iterable[Partition]) -> dict[str, str]:
        """Return the ids of the partitions' topics, if they exist; a recreated topic has another one."""
        topics = sorted({partition.topic for partition in partitions})
        return self._answer(lambda: self._describe(TopicCollection(topics))) if topics else {}

    def _describe(self, names: TopicCollection) -> dict[str, str]:
        found = {}
        asked = self._admin.describe_topics(names, request_timeout=REQUEST_TIMEOUT_S)
        for topic, future in asked.items():
            try:
                found[topic] = str(future.result().topic_id)
            except KafkaException as error:
                if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise
        return found

    def ends(self, partitions: Iterable[Partition]) -> dict[Partition, SeenOffset]:
        """Return where the logs end, exclusive, with the epochs of their leaders."""
        return self.at_times(dict.fromkeys(partitions, LATEST))

    def begins(self, partitions: Iterable[Partition]) -> dict[Partition, SeenOffset]:
        """Return the first offsets that the logs still have."""
        return self.at_times(dict.fromkeys(partitions, EARLIEST))

    def at_times(self, times: Mapping[Partition, int]) -> dict[Partition, SeenOffset]:
        """Return the first record of each log not older than a time in ms; offset -1: there is none."""
        return self._answer(lambda: self._list_offsets(times)) if times else {}

    def _list_offsets(self, times: Mapping[Partition, int]) -> dict[Partition, SeenOffset]:
        specs = {LATEST: OffsetSpec.latest(), EARLIEST: OffsetSpec.earliest()}  # type: ignore[no-untyped-call]
        wanted = {
            TopicPartition(*partition): specs.get(time_ms) or OffsetSpec.for_timestamp(time_ms)
            for partition, time_ms in times.items()
        }
        asked = self._admin.list_offsets(wanted, request_timeout=REQUEST_TIMEOUT_S)
        places = {}
        for partition, future in asked.items():
            found = future.result()
            epoch = -1 if found.leader_epoch is None else found.leader_epoch
            places[Partition(partition.topic, partition.partition)] = SeenOffset(found.offset, epoch)
        return places

    def _answer(self, ask: Callable[[], T]) -> T:
        deadline = time.monotonic() + ANSWER_DEADLINE_S
        while True:
            try:
                return ask()
            except KafkaException as error:
                if time.monotonic() > deadline:
                    problem = f"no answer within {ANSWER_DEADLINE_S:.0f} s: {error.args[0].str()}"
                    remedy = "see that these brokers run and that every partition has a leader"
                    raise OptionError(BOOTSTRAP, self._servers, problem, remedy) from error
            time.sleep(RETRY_INTERVAL_S)


def _existing(metadata: Any) -> dict[str, list[int]]:
    return {name: sorted(topic.partitions) for name, topic in metadata.topics.items() if topic.error is None}


def _selected(selection: Selection, existing: Mapping[str, list[int]]) -> Iterable[Partition]:
    match selection:
        case Matching(pattern):
            topics = [
                topic for topic in existing if pattern.fullmatch(topic) and topic not in INTERNAL_TOPICS
            ]
        case Subscribed(topics):
            for topic in topics:
                if topic not in existing:
                    raise OptionError(
                        "subscribe", topic, "there is no such topic", "create it, or correct the name"
                    )
        case Assigned(partitions):
            for partition in partitions:
                if partition.number not in existing.get(partition.topic, ()):
                    name = f"{partition.topic}-{partition.number}"
                    raise OptionError("assign", name, "there is no such partition", "correct it")
            return partitions
    return [Partition(topic, number) for topic in topics for number in existing[topic]]
