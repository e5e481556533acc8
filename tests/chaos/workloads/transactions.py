"""Transactions: workers consume, process and produce, with their group's offsets in the transaction.

Some workers have a partition each, by assignment; the others are members of a group. Each is a client with a
transactional id and processes of its own: tests.chaos.transacting. They write into two topics, one of which
is compacted. Judged by `pipeline.checks.transactions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.chaos.clients import Client
from tests.chaos.replicas import held
from tests.chaos.secured import quiet, reading
from tests.chaos.transacting import (
    ASSIGNED,
    CALL_S,
    INPUTS,
    KEY,
    LATEST,
    OUTPUT,
    PARTITIONS,
    SHARED,
    WIDTH,
)
from tests.chaos.workloads.base import COMPACTED, Topics, TopicWorkload, in_threads
from tests.support.nodes import eventually

MEMBERS: Final = 2
PAUSE_S: Final = 0.02
FINAL_DEADLINE_S: Final = 90.0
#: Those of the topics that are written in transactions.
OUTPUTS: Final = (OUTPUT, LATEST)


class Transactions(TopicWorkload):
    """Three workers by assignment, two by subscription, a producer of inputs, a reader of outputs."""

    name: ClassVar[str] = "transactions"
    description: ClassVar[str] = "consume, process, produce with offsets in transactions; zombies come back"
    topics: ClassVar[Topics] = {ASSIGNED: {}, SHARED: {}, OUTPUT: {}, LATEST: COMPACTED}
    partitions: ClassVar[int] = PARTITIONS
    has_clients: ClassVar[bool] = True

    async def run(self, stop: asyncio.Event) -> None:
        """Run all clients until stop is set."""
        clients = self.cluster.clients
        for number in range(PARTITIONS + MEMBERS):
            own = str(number) if number < PARTITIONS else ""
            words = ("-m", "tests.chaos.transacting", self.cluster.bootstrap, own)
            name = f"worker-{number}"
            output, seed = self.cluster.folder / f"{name}.log", self.rng.randrange(2**31)
            clients.append(Client(name, words, self.recorder, output, seed))
        await in_threads(stop, [*(each.run for each in clients), self._produce, self._read])

    def _produce(self, stopping: threading.Event) -> None:
        producer = Producer({**quiet(self.cluster.bootstrap), "acks": "all"})
        number = 0
        while not stopping.wait(PAUSE_S):
            with contextlib.suppress(BufferError):
                partition = number // len(INPUTS) % PARTITIONS
                producer.produce(INPUTS[number % len(INPUTS)], str(number), partition=partition)
            producer.poll(0)
            number += 1
        producer.flush(CALL_S)

    def _read(self, stopping: threading.Event) -> None:
        process = self.recorder.process("committed-reader")
        consumer = Consumer({**reading(self.cluster.bootstrap), "isolation.level": "read_committed"})
        consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in range(PARTITIONS)])
        while not stopping.is_set():
            message = consumer.poll(0.2)
            if message is not None and message.error() is None:
                process.invoke("see", KEY, [message.partition(), message.offset()]).ok(_record(message))
        consumer.close()

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Both views of the output, and the group's offsets, when no transaction is open any more."""
        return await asyncio.to_thread(self._read_all)

    def _read_all(self) -> list[dict[str, Any]]:
        self.wait_in_sync()
        bootstrap = self.cluster.bootstrap
        places = [TopicPartition(topic, partition) for topic in OUTPUTS for partition in range(PARTITIONS)]
        stable: dict[str, list[int]] = {}

        def all_ended() -> bool:
            for place in places:
                stable[_name(place)] = [_end(bootstrap, level, place) for level in LEVELS]
            return all(low == high for low, high in stable.values())

        with contextlib.suppress(AssertionError):  # the checker says so
            eventually(all_ended, FINAL_DEADLINE_S, "every transaction has ended")
        lines: list[dict[str, Any]] = [{"key": KEY, "stable": stable}]
        for number, level in enumerate(LEVELS):
            wanted = [place for place in places if place.topic == OUTPUT and stable[_name(place)][number] > 0]
            for message in _all_records(bootstrap, level, wanted):
                found = {"partition": message.partition(), "offset": message.offset()}
                lines.append({"key": KEY, "isolation": level, **found, "record": _record(message)})
        lines.append({"key": KEY, "committed": _committed(bootstrap)})
        self.wait_clean()
        for (broker_id, partition), records in held(self.cluster.brokers, (LATEST,), WIDTH).items():
            inputs = list(range(partition.partition, len(INPUTS) * PARTITIONS, PARTITIONS))
            latest = [[each.key, each.number] for each in records]
            lines.append({"key": KEY, "replica": broker_id, "inputs": inputs, "latest": latest})
        return lines


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


#: The first shows the last stable offset as the end, the second the high watermark.
LEVELS: Final = ("read_committed", "read_uncommitted")


def _end(bootstrap: str, level: str, place: TopicPartition) -> int:
    consumer = Consumer({**reading(bootstrap), "isolation.level": level})
    try:
        _, end = consumer.get_watermark_offsets(place, timeout=CALL_S)
    except KafkaException:
        return -1 if level == LEVELS[0] else -2
    finally:
        consumer.close()
    return end


def _all_records(bootstrap: str, level: str, places: list[TopicPartition]) -> Iterator[Message]:
    """Each record of some partitions that are not empty, up to their ends."""
    settings = {"isolation.level": level, "enable.partition.eof": True}
    consumer = Consumer({**reading(bootstrap), **settings})
    consumer.assign([TopicPartition(each.topic, each.partition, 0) for each in places])
    missing = {each.partition for each in places}
    deadline = time.monotonic() + FINAL_DEADLINE_S
    while missing:
        assert time.monotonic() < deadline, f"{level}: the ends of {places} are not reached: {missing}"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error = message.error()
        if error is None:
            yield message
        elif error.code() == KafkaError._PARTITION_EOF:
            missing.discard(message.partition())
    consumer.close()


def _committed(bootstrap: str) -> dict[str, int]:
    """{number of an input partition: what its group has committed}; -1: nothing."""
    found: dict[str, int] = {}
    for place, topic in enumerate(INPUTS):
        consumer = Consumer({**quiet(bootstrap), "group.id": topic})
        wanted = [TopicPartition(topic, partition) for partition in range(PARTITIONS)]

        def look(
            consumer: Consumer = consumer, wanted: list[TopicPartition] = wanted
        ) -> list[TopicPartition]:
            with contextlib.suppress(KafkaException):
                answers = consumer.committed(wanted, timeout=CALL_S)
                if all(each.error is None for each in answers):
                    return answers
            return []

        for each in eventually(look, FINAL_DEADLINE_S, f"{topic} says its offsets"):
            found[str(place * PARTITIONS + each.partition)] = max(each.offset, -1)
        consumer.close()
    return found


def _record(message: Message) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(message.value() or b"{}")
    return found
