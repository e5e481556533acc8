"""The records of one range as Arrow batches, fetched from the partition's leader.

A task reads exactly [start, end). librdkafka finds new leaders by itself; when nothing comes for the poll
timeout the task fails, and Spark tries it again. Records that retention has removed are data loss, and so is
a log that diverged from what was read, which librdkafka notices by leader epochs.
Consumers are kept for the next task of this process: soft state.
Source: Python data source API of Spark 4; KIP-320; KIP-207 (a new leader may show less for a moment).
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from pipeline.errors import InputError
from pipeline.topics.cluster import LOG_LEVEL, RETRY_INTERVAL_S
from pipeline.topics.options import TopicOptions
from pipeline.topics.ranges import OffsetRange

#: A batch is handed over when it has this many rows or bytes: smaller ones cost Spark more than they carry.
BATCH_ROWS_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 << 20
#: How much is fetched at once: first so many messages, then what their size allows.
FIRST_MESSAGES_MAX: Final = 100
RUN_MESSAGES_MAX: Final = 5_000
RUN_BYTES_MAX: Final = 4 << 20
POLL_S: Final = 0.5
CONSUMERS_MAX: Final = 4
#: What options may change: a full queue is looked at again soon, not after a second; and brokers with
#: transactions give all their records, as Spark's connector has it.
_DEFAULTS: Final[Mapping[str, str]] = {
    "fetch.queue.backoff.ms": "5",
    "isolation.level": "read_uncommitted",
}
#: What a consumer is, whatever the options say. No group exists: librdkafka only wants a name.
_OWN_SETTINGS: Final[Mapping[str, object]] = {
    "group.id": "quorate-spark",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "log_level": LOG_LEVEL,
}
_GONE: Final = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC, KafkaError._UNKNOWN_PARTITION}
)
#: In place of auto.offset.reset, librdkafka names the reason in words.
_TRUNCATED: Final = KafkaError(KafkaError._LOG_TRUNCATION).str()
_log = logging.getLogger(__name__)
#: {settings: an idle consumer}, the oldest first
_idle: dict[tuple[tuple[str, str], ...], Consumer] = {}


class DataLossError(InputError):
    """Records that a query was about to read are gone."""


def report_loss(problem: str, *, fail: bool) -> None:
    """Raise an error, or write a warning, as failOnDataLoss says."""
    if fail:
        raise DataLossError(problem, "set failOnDataLoss to false to read what is left")
    _log.warning("%s; reading what is left", problem)


@dataclass
class RangeReader:
    """Reads one range; iterating connects.

    Attributes:
        options: the brokers, how long to wait, and whether lost records are an error.
        offsets: the range.
        columns: of the rows, as Spark expects them.
    """

    options: TopicOptions
    offsets: OffsetRange
    columns: pa.Schema

    def __post_init__(self) -> None:
        """Begin at the start."""
        self._next = self.offsets.start
        self._name = f"{self.offsets.topic}-{self.offsets.partition}"
        self._partition = TopicPartition(self.offsets.topic, self.offsets.partition)
        #: the leader epoch of what is before `_next`; -1: unknown, or kept by librdkafka
        self._epoch = self.offsets.start_epoch
        self._last_problem = "no record"

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the range in order."""
        waiting: list[Message] = []
        waiting_bytes = 0
        for messages in self._messages():
            waiting += messages
            waiting_bytes += sum(map(len, messages))
            if len(waiting) >= BATCH_ROWS_MAX or waiting_bytes >= BATCH_BYTES_MAX:
                yield to_batch(waiting, self.columns)
                waiting, waiting_bytes = [], 0
        if waiting:
            yield to_batch(waiting, self.columns)

    def _messages(self) -> Iterator[list[Message]]:
        """Yield runs of messages, each far below BATCH_BYTES_MAX unless single ones are large."""
        if self._next >= self.offsets.end:
            return
        messages_max = FIRST_MESSAGES_MAX
        with _consumer(self.options.client) as consumer:
            self._seek(consumer)
            deadline = time.monotonic() + self.options.poll_timeout_ms / 1000
            while self._next < self.offsets.end:
                if time.monotonic() > deadline:
                    raise self._stalled()
                polled = consumer.consume(min(messages_max, self.offsets.end - self._next), POLL_S)
                messages = [message for message in polled if message.error() is None]
                if messages:
                    self._next, self._epoch = 1 + (messages[-1].offset() or 0), -1
                    run_bytes = sum(map(len, messages))
                    messages_max = min(RUN_MESSAGES_MAX, 1 + RUN_BYTES_MAX * len(messages) // (1 + run_bytes))
                    if self._next > self.offsets.end:
                        # A log with gaps has fewer records than offsets.
                        messages = [each for each in messages if (each.offset() or 0) < self.offsets.end]
                    yield messages
                    # Taking them may have lasted.
                    deadline = time.monotonic() + self.options.poll_timeout_ms / 1000
                if len(messages) < len(polled):
                    for message in polled:
                        if (error := message.error()) is not None:
                            self._handle(consumer, error, message.offset() or 0)

    def _seek(self, consumer: Consumer) -> None:
        start = TopicPartition(
            self.offsets.topic, self.offsets.partition, self._next, leader_epoch=self._epoch
        )
        consumer.assign([start])

    def _handle(self, consumer: Consumer, error: KafkaError, offset: int) -> None:
        """Decide what an error between messages means; one that may pass is waited for."""
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            if offset >= self.offsets.end:
                self._next = self.offsets.end
            self._last_problem = f"the log ends at offset {offset}"
        elif code in _GONE:
            report_loss(f"{self._name} does not exist any more", fail=self.options.fail_on_data_loss)
            self._next = self.offsets.end
        else:
            self._last_problem = error.str()
            if code == KafkaError._AUTO_OFFSET_RESET and _TRUNCATED in error.str():
                problem = f"{self._name}: the log diverged from what was read before offset {self._next}"
                report_loss(f"{problem}, by an unclean election", fail=self.options.fail_on_data_loss)
                self._epoch = -1
                self._seek(consumer)
            elif code == KafkaError._AUTO_OFFSET_RESET:
                self._skip_removed(consumer)

    def _skip_removed(self, consumer: Consumer) -> None:
        """Go on behind what retention removed, or where we were if a new leader was only not ready."""
        try:
            log_start_offset, _ = consumer.get_watermark_offsets(self._partition, timeout=POLL_S)
        except KafkaException as error:
            self._last_problem = error.args[0].str()
            log_start_offset = self._next
        if log_start_offset > self._next:
            problem = f"{self._name}: offsets {self._next} to {log_start_offset - 1} were removed"
            report_loss(problem, fail=self.options.fail_on_data_loss)
            self._next, self._epoch = min(log_start_offset, self.offsets.end), -1
        else:
            time.sleep(RETRY_INTERVAL_S)
        self._seek(consumer)

    def _stalled(self) -> InputError:
        waited = f"{self._name}: offset {self._next} did not come within {self.options.poll_timeout_ms} ms"
        return InputError(
            f"{waited}: {self._last_problem}",
            "see that the partition has a leader; kafkaConsumer.pollTimeoutMs is how long to wait",
        )


@contextlib.contextmanager
def _consumer(client: Mapping[str, str]) -> Iterator[Consumer]:
    """Borrow a consumer of this process; one that failed is closed."""
    key = tuple(sorted(client.items()))
    consumer = _idle.pop(key, None) or Consumer({**_DEFAULTS, **client, **_OWN_SETTINGS})
    done = False
    try:
        yield consumer
        done = True
    finally:
        if done:
            consumer.unassign()
            _idle[key] = consumer
            while len(_idle) > CONSUMERS_MAX:
                _idle.pop(next(iter(_idle))).close()
        else:
            consumer.close()


def to_batch(messages: Sequence[Message], columns: pa.Schema) -> pa.RecordBatch:
    """Make rows of messages of one partition.

    Args:
        messages: at least one.
        columns: those of the source, with headers or without.
    """
    count = len(messages)
    stamps = [message.timestamp() for message in messages]
    milliseconds = np.array([stamp for _, stamp in stamps], dtype=np.int64)
    found = {
        "key": [message.key() for message in messages],
        "value": [message.value() for message in messages],
        "topic": pa.repeat(pa.scalar(messages[0].topic(), pa.string()), count),
        "partition": pa.repeat(pa.scalar(messages[0].partition(), pa.int32()), count),
        "offset": [message.offset() for message in messages],
        "timestamp": pa.array(milliseconds * 1000).cast(pa.timestamp("us", tz="UTC")),
        # librdkafka counts from "none", Kafka from "create time".
        "timestampType": np.array([kind for kind, _ in stamps], dtype=np.int32) - 1,
        "leaderEpoch": [message.leader_epoch() for message in messages],
    }
    if "headers" in columns.names:
        found["headers"] = [message.headers() or None for message in messages]
    arrays = [
        values if isinstance(values, pa.Array) else pa.array(values, type=column.type)
        for column in columns
        for values in (found[column.name],)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)
