"""Transactions: workers consume, process and produce, with their group's offsets in the transaction.

Some workers have a partition each, by assignment; the others are members of a group. Each has a transactional
id, and lives one after the other: a life may abort, vanish with an open transaction, or fall silent and come
back as a zombie within a transaction of the next life. A record of the output names its transaction, how many
records that has, and its input. Judged by `pipeline.checks.transactions`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from pipeline.checks.history import FAIL, OK, UNKNOWN
from tests.chaos.recorder import Call, Process
from tests.chaos.workloads.base import Topics, TopicWorkload, in_threads
from tests.support.broker_records import quiet, reading
from tests.support.nodes import eventually

KEY: Final = "transactions"
#: What workers with a partition each read, and what members of a group share.
ASSIGNED: Final = "chaos-assigned"
SHARED: Final = "chaos-shared"
INPUTS: Final = (ASSIGNED, SHARED)
OUTPUT: Final = "chaos-output"
PARTITIONS: Final = 3
MEMBERS: Final = 2
PAUSE_S: Final = 0.02
SESSION_MS: Final = 6_000
TRANSACTION_MS: Final = 10_000
#: One call of a client; it is asked again until GIVE_UP_S; three in a row are less than a drain.
CALL_S: Final = 5.0
GIVE_UP_S: Final = 25.0
#: Records of the input that a transaction takes at most, and how long it waits for them.
INPUTS_MAX: Final = 10
GATHER_S: Final = 0.3
#: How long a zombie is silent.
SILENT_S: Final = (0.5, 8.0)
ZOMBIES_MAX: Final = 3
FINAL_DEADLINE_S: Final = 90.0
COMMIT, ABORT, VANISH, SILENT = "commit", "abort", "vanish", "silent"
#: What becomes of a transaction, and how often.
FATES: Final = {COMMIT: 80, ABORT: 12, VANISH: 4, SILENT: 4}
#: A fenced producer says so on the standard error, whatever its log_level.
SILENT_LOGGER: Final = logging.getLogger("chaos.fenced")
SILENT_LOGGER.disabled = True


class Transactions(TopicWorkload):
    """Three workers by assignment, two by subscription, a producer of inputs, a reader of outputs."""

    name: ClassVar[str] = "transactions"
    description: ClassVar[str] = "consume, process, produce with offsets in transactions; zombies come back"
    topics: ClassVar[Topics] = {ASSIGNED: {}, SHARED: {}, OUTPUT: {}}
    partitions: ClassVar[int] = PARTITIONS

    async def run(self, stop: asyncio.Event) -> None:
        """Run all clients in threads until stop is set."""
        works = [
            partial(self._work, number, random.Random(self.rng.random()))
            for number in range(PARTITIONS + MEMBERS)
        ]
        await in_threads(stop, [*works, self._produce, self._read])

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

    def _work(self, worker: int, rng: random.Random, stopping: threading.Event) -> None:
        process, number = self.recorder.process(f"worker-{worker}"), 0
        own = worker if worker < PARTITIONS else None
        zombies: list[tuple[float, _Life, str]] = []
        while not stopping.is_set():
            number += 1
            life = _Life(process, number, own, self.cluster.bootstrap, rng)
            silent_tag = life.run(stopping, partial(_rise, zombies))
            life.leave()
            if silent_tag and len(zombies) < ZOMBIES_MAX:
                zombies.append((time.monotonic() + rng.uniform(*SILENT_S), life, silent_tag))

    async def final_state(self) -> Iterable[dict[str, Any]]:
        """Both views of the output, and the group's offsets, when no transaction is open any more."""
        return await asyncio.to_thread(self._read_all)

    def _read_all(self) -> list[dict[str, Any]]:
        self.wait_in_sync()
        stable: dict[str, list[int]] = {}

        def all_ended() -> bool:
            for partition in range(PARTITIONS):
                ends = [_end(self.cluster.bootstrap, level, partition) for level in LEVELS]
                stable[str(partition)] = ends
            return all(low == high for low, high in stable.values())

        with contextlib.suppress(AssertionError):  # the checker says so
            eventually(all_ended, FINAL_DEADLINE_S, "every transaction has ended")
        lines: list[dict[str, Any]] = [{"key": KEY, "stable": stable}]
        for level, place in zip(LEVELS, (0, 1), strict=True):
            ends = {partition: stable[str(partition)][place] for partition in range(PARTITIONS)}
            lines += _all_records(self.cluster.bootstrap, level, ends)
        return [*lines, {"key": KEY, "committed": _committed(self.cluster.bootstrap)}]


def _rise(zombies: list[tuple[float, _Life, str]]) -> None:
    """Let zombies whose time has come try to commit."""
    for each in [each for each in zombies if each[0] <= time.monotonic()]:
        zombies.remove(each)
        _, life, tag = each
        life.haunt(tag)


#: The first shows the last stable offset as the end, the second the high watermark.
LEVELS: Final = ("read_committed", "read_uncommitted")


def _end(bootstrap: str, level: str, partition: int) -> int:
    consumer = Consumer({**reading(bootstrap), "isolation.level": level})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(OUTPUT, partition), timeout=CALL_S)
    except KafkaException:
        return -1 if level == LEVELS[0] else -2
    finally:
        consumer.close()
    return end


def _all_records(bootstrap: str, level: str, ends: dict[int, int]) -> list[dict[str, Any]]:
    settings = {"isolation.level": level, "enable.partition.eof": True}
    consumer = Consumer({**reading(bootstrap), **settings})
    consumer.assign([TopicPartition(OUTPUT, partition, 0) for partition in ends])
    lines: list[dict[str, Any]] = []
    missing = {partition for partition, end in ends.items() if end > 0}
    deadline = time.monotonic() + FINAL_DEADLINE_S
    while missing:
        assert time.monotonic() < deadline, f"{level}: the ends of {missing} of {OUTPUT} are not reached"
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, partition, offset = message.error(), message.partition(), message.offset()
        if error is None:
            found = {"partition": partition, "offset": offset, "record": _record(message)}
            lines.append({"key": KEY, "isolation": level, **found})
        elif error.code() == KafkaError._PARTITION_EOF and partition is not None:
            missing.discard(partition)
    consumer.close()
    return lines


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


class _Batch(NamedTuple):
    """What a transaction takes from the input."""

    #: (partition, offset)
    inputs: list[tuple[int, int]]
    #: of the consumer when it was assigned the partitions: a later generation makes the commit fail
    group: Any


class _Life:
    """A consumer and a producer, from their begin until they close or vanish."""

    def __init__(
        self, process: Process, number: int, own: int | None, bootstrap: str, rng: random.Random
    ) -> None:
        """Connect nothing yet.

        Args:
            process: its history.
            number: of this life.
            own: the partition that it reads; None: what its group gives it.
            bootstrap: where the brokers are.
            rng: decides what becomes of its transactions.
        """
        self._process = process
        self._own = own
        self._topic = SHARED if own is None else ASSIGNED
        #: What comes on top of a partition's number: inputs are numbered across topics.
        self._base = INPUTS.index(self._topic) * PARTITIONS
        self._name = process.name
        self._number = number
        self._rng = rng
        self._inputs: list[tuple[int, int]] = []
        self._group: Any = None
        common = quiet(bootstrap)
        self._consumer = Consumer(
            {
                **common,
                "group.id": self._topic,
                "client.id": f"{self._name}.{number}",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_MS,
                "max.poll.interval.ms": SESSION_MS,
                "heartbeat.interval.ms": 500,
            }
        )
        self._producer = Producer(
            {
                **common,
                "transactional.id": self._name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 2,
                "reconnect.backoff.max.ms": 500,
            },
            logger=SILENT_LOGGER,
        )

    def run(self, stopping: threading.Event, during: Callable[[], None]) -> str:
        """Do transactions until the run or this life ends.

        Args:
            stopping: the run ends.
            during: called within each transaction.

        Returns:
            The tag of the transaction in which it fell silent, or "".
        """
        call = self._process.invoke("init", KEY, [self._name, self._number])
        if self._ended(call, self._producer.init_transactions) != OK:
            return ""
        self._begin_reading()
        serial = 0
        while not stopping.is_set():
            batch = self._gathered()
            if batch is None:
                continue
            serial += 1
            tag = f"{self._name}.{self._number}.{serial}"
            fate = self._rng.choices(list(FATES), list(FATES.values()))[0]
            if not self._sent(tag, batch):
                fate = ABORT if fate == COMMIT else fate
            during()
            if fate == SILENT:
                return tag
            if fate == VANISH or not self._over(tag, fate):
                return ""
            if fate == ABORT:
                self._go_back(batch)
        return ""

    def haunt(self, tag: str) -> None:
        """Send one more record in the transaction of long ago, and try to commit it."""
        self._produce(tag, 99, 0, 0, None)
        call = self._process.invoke("commit", KEY, [self._name, self._number, tag])
        self._ended(call, self._producer.commit_transaction)

    def leave(self) -> None:
        """Leave the group; what the producer has open stays open."""
        self._consumer.close()

    # -- the consumer ----------------------------------------------------------------------------------------

    def _begin_reading(self) -> None:
        if self._own is None:
            self._consumer.subscribe(
                [self._topic], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
        else:
            # From the committed offset on, once no transaction has one that may still take effect.
            self._consumer.assign([TopicPartition(self._topic, self._own)])
            self._group = self._consumer.consumer_group_metadata()

    def _assigned(self, consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._inputs.clear()
        self._group = consumer.consumer_group_metadata()

    def _revoked(self, _consumer: Consumer, _partitions: list[TopicPartition]) -> None:
        self._inputs.clear()
        self._group = None

    def _gathered(self) -> _Batch | None:
        """Poll records one by one: what was gathered before a rebalance is dropped."""
        self._inputs.clear()
        until = time.monotonic() + GATHER_S
        while len(self._inputs) < INPUTS_MAX and time.monotonic() < until:
            message = self._consumer.poll(GATHER_S / 5)
            if message is None or message.error() is not None:
                continue
            partition, offset = message.partition(), message.offset()
            assert partition is not None
            assert offset is not None
            self._inputs.append((partition, offset))
        return _Batch(list(self._inputs), self._group) if self._inputs and self._group else None

    def _go_back(self, batch: _Batch) -> None:
        firsts: dict[int, int] = {}
        for partition, offset in batch.inputs:
            firsts[partition] = min(offset, firsts.get(partition, offset))
        for partition, offset in firsts.items():
            # Another member may have the partition by now; it begins at the committed offset.
            with contextlib.suppress(KafkaException):
                self._consumer.seek(TopicPartition(self._topic, partition, offset))

    # -- the producer ----------------------------------------------------------------------------------------

    def _sent(self, tag: str, batch: _Batch) -> bool:
        """Send the records of a transaction and its offsets; whether that is so."""
        count = len(batch.inputs) + PARTITIONS
        offsets: dict[int, int] = {}
        try:
            self._producer.begin_transaction()
            for number, (partition, offset) in enumerate(batch.inputs):
                self._produce(tag, number, count, partition, [self._base + partition, offset])
                offsets[partition] = max(offset + 1, offsets.get(partition, OFFSET_INVALID))
            for partition in range(PARTITIONS):
                self._produce(tag, len(batch.inputs) + partition, count, partition, None)
            wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
            send = partial(self._producer.send_offsets_to_transaction, wanted, batch.group)
            if self._rng.random() < 0.5:
                self._producer.flush(CALL_S)  # so that aborted records, too, are often in the log
            return _asked(send)[0] == OK
        except (KafkaException, BufferError):
            return False

    def _produce(self, tag: str, number: int, of: int, partition: int, source: list[int] | None) -> None:
        value = json.dumps({"tag": tag, "number": number, "of": of, "input": source})
        with contextlib.suppress(KafkaException, BufferError):  # the end of the transaction tells
            self._producer.produce(OUTPUT, value, partition=partition)

    def _over(self, tag: str, fate: str) -> bool:
        """Commit or abort; whether this life can go on."""
        call = self._process.invoke(fate, KEY, [self._name, self._number, tag])
        if fate == ABORT:
            return self._ended(call, self._producer.abort_transaction) == OK
        return self._ended(call, self._producer.commit_transaction) == OK

    def _ended(self, call: Call, asked: Any) -> str:
        outcome, text = _asked(asked)
        if outcome == FAIL:
            # The transaction can only be aborted; once it is, the commit has failed for certain.
            aborted, said = _asked(self._producer.abort_transaction)
            if aborted == OK:
                call.fail(text)
                return FAIL
            outcome, text = UNKNOWN, f"{text}; {said}"
        if outcome == OK:
            call.ok(None)
        else:
            call.unknown(text)
        return outcome


def _asked(asked: Any) -> tuple[str, str]:
    """Ask until there is an outcome: (OK, FAIL: the transaction must be aborted, or UNKNOWN; why)."""
    deadline, text = time.monotonic() + GIVE_UP_S, ""
    while time.monotonic() < deadline:
        found: list[KafkaException | None] = []
        thread = threading.Thread(target=_call, args=(asked, found), daemon=True)
        thread.start()
        thread.join(2 * CALL_S)
        if not found:
            return UNKNOWN, "the client does not return"
        error = found[0]
        if error is None:
            return OK, ""
        problem, text = error.args[0], str(error)
        if problem.txn_requires_abort():
            return FAIL, text
        if not problem.retriable():
            break
    return UNKNOWN, text


def _call(asked: Any, found: list[KafkaException | None]) -> None:
    """Call a client in a thread of its own.

    send_offsets_to_transaction of librdkafka 2.16 may return never, or long after its timeout, without any
    request under way: it waits for a coordinator of the group that left the metadata, whose thread has ended.
    Source: https://github.com/confluentinc/librdkafka/issues/5511 and /5456.
    """
    try:
        asked(CALL_S)
    except KafkaException as error:
        found.append(error)
    else:
        found.append(None)
