"""A stream's offsets in a consumer group, for those who watch its lag; Spark itself never reads them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from confluent_kafka import Consumer, KafkaException, TopicPartition

from pipeline.errors import OptionError
from pipeline.topics.cluster import LOG_LEVEL
from pipeline.topics.options import Partition

ATTEMPTS_MAX: Final = 5
_log = logging.getLogger(__name__)


def commit_offsets(client: Mapping[str, str], group: str, offsets: Mapping[Partition, int]) -> None:
    """Commit the next offsets of a stream; if no coordinator takes them, the next micro-batch repeats it.

    Args:
        client: settings for librdkafka.
        group: a group without members.
        offsets: {partition: the next offset to read}
    """
    places = [TopicPartition(*partition, offset) for partition, offset in offsets.items()]
    if not places:
        return
    consumer = Consumer({**client, "group.id": group, "enable.auto.commit": False, "log_level": LOG_LEVEL})
    try:
        for attempt in range(ATTEMPTS_MAX):
            try:
                consumer.commit(offsets=places, asynchronous=False)
            except KafkaException as error:
                cause = error.args[0]
                if not cause.retriable():
                    raise OptionError("commitGroup", group, cause.str(), "name a group of its own") from error
                if attempt + 1 == ATTEMPTS_MAX:
                    _log.warning("offsets were not committed to group %s: %s", group, cause.str())
            else:
                return
    finally:
        consumer.close()
