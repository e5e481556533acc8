"""Two consumer groups, a classic one and one of KIP-848, whose members come and go while their topic grows.

The members are those of confluent-kafka, and one of kafka-python in the classic group. Each writes down what
it was assigned, gave up, read and committed. Judged for I24: one owner a partition, committed offsets that
never go back, nothing that is committed and unread.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError as PythonKafkaError

from tests.chaos.recorder import Call, Process
from tests.chaos.secured import kafka_python, quiet
from tests.chaos.workloads.base import Topics, TopicWorkload, in_threads
from tests.support.nodes import eventually

TOPIC: Final = "chaos-group"
PARTITIONS: Final = 4
PREFIX: Final = "group-"
CLASSIC, NEW = "classic", "consumer"
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 500
#: How long a member stays in its group, and how long it is away then, seconds.
LIFE_S: Final = (5.0, 25.0)
AWAY_S: Final = (0.0, 3.0)
PAUSE_S: Final = 0.02
LOOK_S: Final = 0.5
RECORDS_MAX: Final = 200
#: kafka-python 3.0 may forget a join that takes longer than the poll that began it, and falls silent.
PYTHON_POLL_MS: Final = 2_000
ANSWER_S: Final = 10.0
FINAL_DEADLINE_S: Final = 60.0


def key_of(group: str, partition: int) -> str:
    return f"{PREFIX}{group}-{partition}"


class Groups(TopicWorkload):
    """Three members of a classic group, two of a KIP-848 group, a producer and an observer of each group."""

    name: ClassVar[str] = "groups"
    description: ClassVar[str] = "consumer groups, classic and KIP-848, whose members come and go"
    topics: ClassVar[Topics] = {TOPIC: {}}
    partitions: ClassVar[int] = PARTITIONS

    async def run(self, stop: asyncio.Event) -> None:
        """Run producer, members and observers in threads until stop is set."""
        members: list[tuple[str, type[_Life]]] = [
            *((CLASSIC, _ConfluentLife), (CLASSIC, _ConfluentLife), (CLASSIC, _PythonLife)),
            *((NEW, _ConfluentLife), (NEW, _ConfluentLife)),
        ]
        works = [self._produce]
        works += [
            partial(self._belong, group, kind, self.recorder.process(f"{group}-{number}"))
            for number, (group, kind) in enumerate(members, 1)
        ]
        works += [
            partial(self._observe, group, self.recorder.process(f"{group}-observer"))
            for group in (CLASSIC, NEW)
        ]
        await in_threads(stop, works)

    def _produce(self, stopping: threading.Event) -> None:
        producer = Producer({**quiet(self.cluster.bootstrap), "acks": "all"})
        number = 0
        while not stopping.wait(PAUSE_S):
            with contextlib.suppress(BufferError):
                producer.produce(TOPIC, str(number), partition=number % PARTITIONS)
            producer.poll(0)
            number += 1
        producer.flush(ANSWER_S)

    def _belong(self, group: str, kind: type[_Life], process: Process, stopping: threading.Event) -> None:
        rng, serial = random.Random(process.name), 0
        while not stopping.is_set():
            serial += 1
            until = time.monotonic() + rng.uniform(*LIFE_S)

            def over(until: float = until) -> bool:
                return stopping.is_set() or time.monotonic() > until

            kind(group, process, serial, self.cluster.bootstrap).run(over)
            stopping.wait(rng.uniform(*AWAY_S))

    def _observe(self, group: str, process: Process, stopping: threading.Event) -> None:
        consumer = Consumer({**quiet(self.cluster.bootstrap), "group.id": group})
        while not stopping.wait(LOOK_S):
            calls = {
                partition: process.invoke("committed", key_of(group, partition), None)
                for partition in range(PARTITIONS)
            }
            found = _committed(consumer)
            for partition, call in calls.items():
                if partition in found:
                    call.ok(found[partition])
                else:
                    call.unknown("no answer")
        consumer.close()

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """What is committed in the end."""
        return await asyncio.to_thread(self._read_committed)

    def _read_committed(self) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = []
        for group in (CLASSIC, NEW):
            consumer = Consumer({**quiet(self.cluster.bootstrap), "group.id": group})

            def all_committed(consumer: Consumer = consumer) -> dict[int, int]:
                found = _committed(consumer)
                return found if len(found) == PARTITIONS else {}

            found = eventually(all_committed, FINAL_DEADLINE_S, f"{group}: committed offsets are told")
            lines += [{"key": key_of(group, each), "committed": offset} for each, offset in found.items()]
            consumer.close()
        return lines


def _committed(consumer: Consumer) -> dict[int, int]:
    """{partition: committed offset} as far as it is told; -1: nothing is committed."""
    wanted = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
    try:
        answers = consumer.committed(wanted, timeout=ANSWER_S)
    except KafkaException:
        return {}
    return {each.partition: max(each.offset, -1) for each in answers if each.error is None}


class _Life(abc.ABC):
    """One stay in a group: from the subscription until the consumer is closed."""

    def __init__(self, group: str, process: Process, serial: int, bootstrap: str) -> None:
        self._group = group
        self._process = process
        self._serial = serial
        self._bootstrap = bootstrap
        #: {partition: its open `own`}
        self._owned: dict[int, Call] = {}

    def run(self, over: Callable[[], bool]) -> None:
        """Read and commit until `over()`."""
        try:
            self._work(over)
        finally:
            self._gave_up(list(self._owned))

    @abc.abstractmethod
    def _work(self, over: Callable[[], bool]) -> None:
        """Subscribe, read and commit until `over()`, and leave."""

    def _got(self, partitions: Iterable[int]) -> None:
        for each in partitions:
            if each not in self._owned:
                self._owned[each] = self._process.invoke(
                    "own", key_of(self._group, each), self._serial, asks=False
                )

    def _gave_up(self, partitions: Iterable[int]) -> None:
        for each in partitions:
            call = self._owned.pop(each, None)
            if call is not None:
                call.ok(None)

    def _read(self, offsets: Mapping[int, Sequence[int]]) -> dict[int, int]:
        """Note runs of offsets that were read; return {partition: what to commit} of what is still owned."""
        wanted: dict[int, int] = {}
        for partition, found in offsets.items():
            first = last = found[0]
            for offset in [*found[1:], -1]:
                if offset != last + 1:
                    self._process.invoke("read", key_of(self._group, partition), [first, last]).ok(None)
                    first = offset
                last = offset
            if partition in self._owned:
                wanted[partition] = found[-1] + 1
        return wanted

    def _begin_commit(self, wanted: Mapping[int, int]) -> list[Call]:
        return [
            self._process.invoke("commit", key_of(self._group, partition), offset)
            for partition, offset in wanted.items()
        ]


class _ConfluentLife(_Life):
    """With confluent-kafka."""

    def _work(self, over: Callable[[], bool]) -> None:
        settings: dict[str, Any] = {
            **quiet(self._bootstrap),
            "group.id": self._group,
            "client.id": self._process.name,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if self._group == NEW:
            settings["group.protocol"] = "consumer"
        else:
            settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        consumer = Consumer(settings)
        consumer.subscribe(
            [TOPIC],
            on_assign=lambda _, found: self._got(each.partition for each in found),
            on_revoke=lambda _, found: self._gave_up(each.partition for each in found),
            on_lost=lambda _, found: self._gave_up(each.partition for each in found),
        )
        while not over():
            read: dict[int, list[int]] = {}
            for message in consumer.consume(RECORDS_MAX, timeout=0.2):
                error, partition, offset = message.error(), message.partition(), message.offset()
                if error is not None and error.fatal():
                    consumer.close()
                    return
                if error is None and partition is not None and offset is not None:
                    read.setdefault(partition, []).append(offset)
            wanted = self._read(read)
            if wanted:
                self._commit(consumer, wanted)
        consumer.close()

    def _commit(self, consumer: Consumer, wanted: Mapping[int, int]) -> None:
        calls = self._begin_commit(wanted)
        offsets = [TopicPartition(TOPIC, partition, offset) for partition, offset in wanted.items()]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            for call in calls:
                call.unknown(str(error))
            return
        errors = {each.partition: each.error for each in answers or ()}
        for partition, call in zip(wanted, calls, strict=True):
            if errors.get(partition) is None:
                call.ok(None)
            else:
                call.unknown(str(errors[partition]))


class _PythonLife(_Life):
    """With kafka-python."""

    def _work(self, over: Callable[[], bool]) -> None:
        life = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Any) -> None:
                life._gave_up(each.partition for each in revoked)

            def on_partitions_assigned(self, assigned: Any) -> None:
                life._got(each.partition for each in assigned)

        consumer = KafkaConsumer(
            **kafka_python(self._bootstrap),
            group_id=self._group,
            client_id=self._process.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
        )
        consumer.subscribe([TOPIC], listener=Listener())
        while not over():
            with contextlib.suppress(PythonKafkaError):
                read = {
                    key.partition: [record.offset for record in records]
                    for key, records in consumer.poll(
                        timeout_ms=PYTHON_POLL_MS, max_records=RECORDS_MAX
                    ).items()
                }
                if wanted := self._read(read):
                    self._commit(consumer, wanted)
        consumer.close()

    def _commit(self, consumer: Any, wanted: Mapping[int, int]) -> None:
        calls = self._begin_commit(wanted)
        try:
            consumer.commit(timeout_ms=ANSWER_S * 1000)
        except PythonKafkaError as error:
            for call in calls:
                call.unknown(str(error))
        else:
            for call in calls:
                call.ok(None)
