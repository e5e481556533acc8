"""What a consumer with `read_committed` finds in a topic."""

from __future__ import annotations

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.support.nodes import eventually

#: (key, value), both as text
Record = tuple[str | None, str | None]


def text(content: bytes | str | None) -> str | None:
    """Return bytes as text."""
    return content.decode() if isinstance(content, bytes) else content


class CommittedTopic:
    """Reads on in a topic, from its begin, in the order of each partition."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        """Begin to read.

        Args:
            bootstrap: of the brokers.
            topic: exists.
            partitions: how many it has.
        """
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "nobody",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._consumer.assign([TopicPartition(topic, each, OFFSET_BEGINNING) for each in range(partitions)])
        self._topic = topic
        #: what was read so far
        self.records: list[Record] = []

    def read(self) -> list[Record]:
        """Take in what has come; returns all that was read so far."""
        for message in self._consumer.consume(1000, 0.5):
            if message.error() is None:
                self.records.append((text(message.key()), text(message.value())))
        return self.records

    def wait_for(self, count: int, deadline_s: float) -> list[Record]:
        """Return all records once there are at least so many."""
        what = f"{count} committed records in {self._topic}"
        eventually(lambda: len(self.read()) >= count, deadline_s, what)
        return self.records

    def close(self) -> None:
        """End the reading."""
        self._consumer.close()
