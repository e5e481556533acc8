"""Compacted topics: rising numbers and tombstones for some keys, and scans from the begin, again and again.

In one topic tombstones go soon, in the other they stay. Each key has one writer; after a tombstone it often
rests for a while, so that cleaners meet keys that are dead. In the end brokers stop, and what each replica
holds is read from its disk. Judged by `pipeline.checks.compacted`.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.recorder import Call, Process
from tests.chaos.replicas import held
from tests.chaos.secured import quiet, reading
from tests.chaos.workloads.base import COMPACTED, Topics, TopicWorkload, in_threads

PREFIX: Final = "compacted-"
#: {topic: how long its tombstones stay, milliseconds; None: for longer than any run}
TOPICS: Final = {f"{PREFIX}kept": None, f"{PREFIX}quick": 3_000}
PARTITIONS: Final = 2
WRITERS: Final = 2
#: Of each writer in each topic.
KEYS: Final = 6
IN_FLIGHT_MAX: Final = 100
PAUSE_S: Final = 0.02
SCAN_PAUSE_S: Final = 0.5
#: A scan that takes longer counts as none.
SCAN_DEADLINE_S: Final = 20.0
CALL_S: Final = 5.0
DELIVERY_TIMEOUT_MS: Final = 60_000
#: How often a write is a tombstone, and how often and how long a key rests then.
DELETES: Final = 0.1
RESTS: Final = 0.5
REST_S: Final = (5.0, 40.0)
#: Digits of a value.
WIDTH: Final = 20
#: A last record in each partition: what came before it is in all replicas, and can be cleaned.
LAST_KEY: Final = WRITERS * KEYS

#: (topic, key)
Key = tuple[str, int]


class Compacted(TopicWorkload):
    """Two writers and a scanner of two compacted topics with three replicas."""

    name: ClassVar[str] = "compacted"
    description: ClassVar[str] = "keys of compacted topics: rising numbers, tombstones, scans"
    topics: ClassVar[Topics] = {
        topic: COMPACTED | ({} if retention_ms is None else {"delete.retention.ms": str(retention_ms)})
        for topic, retention_ms in TOPICS.items()
    }
    partitions: ClassVar[int] = PARTITIONS

    async def run(self, stop: asyncio.Event) -> None:
        """Run writers and the scanner in threads until stop is set."""
        works = [
            partial(
                self._write,
                number,
                self.recorder.process(f"writer-{number}"),
                random.Random(self.rng.random()),
            )
            for number in range(WRITERS)
        ]
        await in_threads(stop, [*works, partial(self._scan, self.recorder.process("scanner"))])

    def _write(self, writer: int, process: Process, rng: random.Random, stopping: threading.Event) -> None:
        keys = [(topic, writer * KEYS + number) for topic in TOPICS for number in range(KEYS)]
        number = 0
        while not stopping.is_set():
            number = _Writer(process, keys, rng, self.cluster.bootstrap).run(number, stopping)

    def _scan(self, process: Process, stopping: threading.Event) -> None:
        consumer = Consumer({**reading(self.cluster.bootstrap), "enable.partition.eof": True})
        while not stopping.wait(SCAN_PAUSE_S):
            for topic, retention_ms in TOPICS.items():
                calls = {
                    key: process.invoke("scan", _name(topic, key), retention_ms)
                    for key in range(WRITERS * KEYS)
                }
                found = _scanned(consumer, topic)
                for key, call in calls.items():
                    if found is None:
                        call.unknown("no end was reached")
                    else:
                        call.ok(found.get(key))
        consumer.close()

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Every record that each replica holds."""
        return await asyncio.to_thread(self._read_replicas)

    def _read_replicas(self) -> list[dict[str, Any]]:
        self.wait_in_sync()
        self._write_last()
        self.wait_clean()
        lines = []
        for (broker_id, partition), records in held(self.cluster.brokers, TOPICS, WIDTH).items():
            common = {"replica": broker_id, "retention_ms": TOPICS[partition.topic]}
            for key in range(partition.partition, WRITERS * KEYS, PARTITIONS):
                mine = [[each.offset, each.number] for each in records if each.key == key]
                lines.append({"key": _name(partition.topic, key), **common, "records": mine})
        return lines

    def _write_last(self) -> None:
        failed: list[str] = []
        producer = Producer({**quiet(self.cluster.bootstrap), "acks": "all"})
        for topic in TOPICS:
            for partition in range(PARTITIONS):
                producer.produce(
                    *(topic, b"0" * WIDTH, str(LAST_KEY)),
                    partition=partition,
                    on_delivery=lambda error, _: failed.append(str(error)) if error is not None else None,
                )
        assert producer.flush(DELIVERY_TIMEOUT_MS / 1000) == 0, "the last records have no outcome"
        assert not failed, failed


def _name(topic: str, key: int) -> str:
    return f"{topic}-{key}"


def _scanned(consumer: Consumer, topic: str) -> dict[int, list[int | None]] | None:
    """{key: last [offset, number]} up to the ends as they are now; None if these are not reached."""
    try:
        ends = {
            partition: consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=CALL_S)[1]
            for partition in range(PARTITIONS)
        }
    except KafkaException:
        return None
    consumer.assign([TopicPartition(topic, partition, 0) for partition in ends])
    missing = {partition for partition, end in ends.items() if end > 0}
    found: dict[int, list[int | None]] = {}
    deadline = time.monotonic() + SCAN_DEADLINE_S
    while missing:
        if time.monotonic() > deadline:
            return None
        message = consumer.poll(0.2)
        if message is None:
            continue
        error, partition, offset = message.error(), message.partition(), message.offset()
        if partition is None or offset is None:
            continue
        if error is None:
            key, value = int(message.key() or b""), message.value()
            if key != LAST_KEY:
                found[key] = [offset, None if value is None else int(value)]
        elif error.code() != KafkaError._PARTITION_EOF:
            continue
        if offset + (error is None) >= ends[partition]:
            missing.discard(partition)
    return found


class _Writer:
    """One life of a producer: until the run ends, or a record is given up."""

    def __init__(self, process: Process, keys: list[Key], rng: random.Random, bootstrap: str) -> None:
        self._process = process
        self._keys = keys
        self._rng = rng
        self._broken = False
        self._calls: dict[int, Call] = {}
        #: {key: until when it is left alone}
        self._rests: dict[Key, float] = {}
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def run(self, number: int, stopping: threading.Event) -> int:
        """Write rising numbers, then wait for all outcomes; returns the next number."""
        while not self._broken and not stopping.is_set():
            if len(self._calls) < IN_FLIGHT_MAX:
                self._send(number)
                number += 1
            self._poll()
            stopping.wait(PAUSE_S)
        deadline = time.monotonic() + 1.5 * DELIVERY_TIMEOUT_MS / 1000
        while self._calls and time.monotonic() < deadline:
            self._poll(0.1)
        return number

    def _poll(self, timeout_s: float = 0) -> None:
        try:
            self._producer.poll(timeout_s)
        except KafkaException:
            self._broken = True

    def _send(self, number: int) -> None:
        now = time.monotonic()
        awake = [key for key in self._keys if self._rests.get(key, 0) <= now]
        if not awake:
            return
        topic, key = chosen = self._rng.choice(awake)
        value: str | None = f"{number:0{WIDTH}}"
        if self._rng.random() < DELETES:
            value = None
            if self._rng.random() < RESTS:
                self._rests[chosen] = now + self._rng.uniform(*REST_S)
        operation = "delete" if value is None else "write"
        self._calls[number] = self._process.invoke(operation, _name(topic, key), number)
        try:
            self._producer.produce(
                *(topic, value, str(key)),
                partition=key % PARTITIONS,
                on_delivery=lambda error, message: self._delivered(number, error, message),
            )
        except (KafkaException, BufferError) as error:
            self._calls.pop(number).fail(f"not sent: {error}")
            self._broken = True

    def _delivered(self, number: int, error: KafkaError | None, message: Message) -> None:
        call = self._calls.pop(number)
        if error is None:
            call.ok(message.offset())
        else:
            call.unknown(str(error))
            self._broken = True
