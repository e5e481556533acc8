"""Records: idempotent producers of librdkafka with acks=all, and readers that follow the log while it grows.

A key is a partition, an argument "producer/number". A producer that gives up on a record (its delivery
timeout) has an unknown outcome, and goes on as a new producer: librdkafka itself may not, once a sequence is
broken. Judged for I19: nothing acknowledged is lost, nothing comes twice or out of order, and what a reader
saw below the high watermark stays.
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
from tests.chaos.secured import quiet, reading
from tests.chaos.workloads.base import Topics, TopicWorkload, in_threads

TOPIC: Final = "chaos"
PARTITIONS: Final = 6
PRODUCERS: Final = 2
#: Records of a producer without an outcome; it waits there.
IN_FLIGHT_MAX: Final = 200
PAUSE_S: Final = 0.02
DELIVERY_TIMEOUT_MS: Final = 60_000
READ_DEADLINE_S: Final = 60.0


def key_of(partition: int | None) -> str:
    return f"{TOPIC}-{partition}"


class Records(TopicWorkload):
    """Two producers and one reader of a topic with three replicas and min.insync.replicas 2."""

    name: ClassVar[str] = "records"
    description: ClassVar[str] = "records with acks=all from idempotent producers, and a reader"
    topics: ClassVar[Topics] = {TOPIC: {}}
    partitions: ClassVar[int] = PARTITIONS

    async def run(self, stop: asyncio.Event) -> None:
        """Run producers and the reader in threads until stop is set."""
        works = [
            partial(self._produce, self.recorder.process(f"producer-{number}"))
            for number in range(1, PRODUCERS + 1)
        ]
        await in_threads(stop, [*works, partial(self._consume, self.recorder.process("reader-1"))])

    def _produce(self, process: Process, stopping: threading.Event) -> None:
        life = 0
        while not stopping.is_set():
            life += 1
            _Sender(f"{process.name}.{life}", process, self.cluster.bootstrap).run(stopping)

    def _consume(self, process: Process, stopping: threading.Event) -> None:
        consumer = Consumer(reading(self.cluster.bootstrap))
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        while not stopping.is_set():
            message = consumer.poll(0.2)
            if message is None or message.error() is not None:
                continue
            value = (message.value() or b"").decode()
            process.invoke("consume", key_of(message.partition()), message.offset()).ok(value)
        consumer.close()

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Every record of every partition."""
        return await asyncio.to_thread(self._read_all)

    def _read_all(self) -> list[dict[str, Any]]:
        self.wait_in_sync()
        consumer = Consumer(reading(self.cluster.bootstrap))
        lines: list[dict[str, Any]] = []
        for partition in range(PARTITIONS):
            _, end = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=READ_DEADLINE_S)
            consumer.assign([TopicPartition(TOPIC, partition, 0)])
            while end and (
                not lines or lines[-1]["key"] != key_of(partition) or lines[-1]["argument"] < end - 1
            ):
                message = consumer.poll(READ_DEADLINE_S)
                assert message is not None, (
                    f"partition {partition}: no record for {READ_DEADLINE_S} s below {end}"
                )
                if message.error() is None:
                    value = (message.value() or b"").decode()
                    lines.append({"key": key_of(partition), "argument": message.offset(), "value": value})
        consumer.close()
        return lines


class _Sender:
    """One life of a producer: until the run ends, or a record is given up."""

    def __init__(self, name: str, process: Process, bootstrap: str) -> None:
        self._name = name
        self._process = process
        self._broken = False
        self._calls: dict[int, Call] = {}
        self._rng = random.Random(name)
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_TIMEOUT_MS,
                "reconnect.backoff.max.ms": 500,
            }
        )

    def run(self, stopping: threading.Event) -> None:
        """Send numbers to random partitions, then wait for all outcomes."""
        number = 0
        while not self._broken and not stopping.is_set():
            if len(self._calls) < IN_FLIGHT_MAX:
                self._send(number)
                number += 1
            self._poll()
            stopping.wait(PAUSE_S)
        deadline = time.monotonic() + 2 * DELIVERY_TIMEOUT_MS / 1000
        while self._calls and time.monotonic() < deadline:
            self._poll(0.1)

    def _poll(self, timeout_s: float = 0) -> None:
        """Take outcomes; a fatal error of the producer is raised here, before those of its records."""
        try:
            self._producer.poll(timeout_s)
        except KafkaException:
            self._broken = True

    def _send(self, number: int) -> None:
        partition = self._rng.randrange(PARTITIONS)
        value = f"{self._name}/{number}"
        self._calls[number] = self._process.invoke("produce", key_of(partition), value)
        try:
            self._producer.produce(
                TOPIC,
                value.encode(),
                partition=partition,
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
