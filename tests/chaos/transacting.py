"""A worker of the workload `transactions`: it consumes, processes and produces, in transactions with offsets.

python -m tests.chaos.transacting BOOTSTRAP PARTITION NAME NUMBER SEED

PARTITION is the one that it reads, or "" for those that its group gives it. It has one life after the other,
each with a consumer and a transactional producer. A life may abort, kill the process within a transaction, or
stop it there, and goes on when it is woken. A record of the output names its transaction, how many records
that has, and its input; one of the compacted output is the offset after the last input, by input partition.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any, Final, NamedTuple

from confluent_kafka import OFFSET_INVALID, Consumer, KafkaException, Producer, TopicPartition

from pipeline.checks.history import FAIL, OK, UNKNOWN
from tests.chaos.clients import HUNG
from tests.chaos.recorder import Call, Process, Recorder
from tests.chaos.secured import quiet

KEY: Final = "transactions"
#: What workers with a partition each read, and what members of a group share.
ASSIGNED: Final = "chaos-assigned"
SHARED: Final = "chaos-shared"
INPUTS: Final = (ASSIGNED, SHARED)
OUTPUT: Final = "chaos-output"
#: Compacted: the offset after the last input, of each partition.
LATEST: Final = "chaos-latest"
#: Digits of it.
WIDTH: Final = 20
#: Of each topic.
PARTITIONS: Final = 3
SESSION_MS: Final = 6_000
TRANSACTION_MS: Final = 10_000
#: One call of a client; it is asked again until GIVE_UP_S.
CALL_S: Final = 5.0
GIVE_UP_S: Final = 25.0
#: A call that lasts longer hangs.
HANGS_S: Final = 4 * CALL_S
#: Records of the input that a transaction takes at most, and how long it waits for them.
INPUTS_MAX: Final = 10
GATHER_S: Final = 0.3
#: A life that finds no input for so long ends: there always is some. librdkafka 2.16 never asks again for a
#: committed offset where a broker answered that it is not the coordinator.
#: Source: https://github.com/confluentinc/librdkafka/issues/5586.
STARVED_S: Final = 20.0
COMMIT, ABORT, VANISH, SILENT = "commit", "abort", "vanish", "silent"
#: What becomes of a transaction, and how often.
FATES: Final = {COMMIT: 80, ABORT: 12, VANISH: 4, SILENT: 4}
#: Lives of one process have this times its number, and more.
LIVES: Final = 10_000


class _Batch(NamedTuple):
    """What a transaction takes from the input."""

    #: (partition, offset)
    inputs: list[tuple[int, int]]
    #: of the consumer when it was assigned the partitions: a later generation makes the commit fail
    group: Any


class _Life:
    """A consumer and a producer, from their begin until they close or vanish."""

    def __init__(
        self, process: Process, name: str, number: int, own: int | None, bootstrap: str, rng: random.Random
    ) -> None:
        """Connect nothing yet.

        Args:
            process: its history.
            name: its transactional id.
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
        self._name = name
        self._number = number
        self._rng = rng
        self._inputs: list[tuple[int, int]] = []
        self._group: Any = None
        #: Numbers of the records of a transaction, and how many it has.
        self._numbers = itertools.count()
        self._count = 0
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
            }
        )

    def run(self, stopping: threading.Event) -> None:
        """Do transactions until the run or this life ends."""
        call = self._process.invoke("init", KEY, [self._name, self._number])
        if self._ended(call, self._producer.init_transactions) != OK:
            return
        self._begin_reading()
        serial, fed_s = 0, time.monotonic()
        while not stopping.is_set() and time.monotonic() - fed_s < STARVED_S:
            batch = self._gathered()
            if batch is None:
                continue
            fed_s = time.monotonic()
            serial += 1
            tag = f"{self._name}.{self._number}.{serial}"
            fate = self._rng.choices(list(FATES), list(FATES.values()))[0]
            if not self._sent(tag, batch):
                fate = ABORT
            if fate == VANISH:
                os.kill(os.getpid(), signal.SIGKILL)
            if fate == SILENT:
                os.kill(os.getpid(), signal.SIGSTOP)
                # Another life has the transactional id by now.
                self._count += 1
                self._produce(tag, 0, None)
            if not self._over(tag, fate):
                return
            if fate == ABORT:
                self._go_back(batch)

    def leave(self) -> None:
        """Leave the group; what the producer has open stays open."""
        with _watched():
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
        offsets: dict[int, int] = {}
        for partition, offset in batch.inputs:
            offsets[partition] = max(offset + 1, offsets.get(partition, OFFSET_INVALID))
        self._numbers, self._count = itertools.count(), len(batch.inputs) + PARTITIONS
        try:
            self._producer.begin_transaction()
            for partition, offset in batch.inputs:
                self._produce(tag, partition, [self._base + partition, offset])
            for partition in range(PARTITIONS):
                self._produce(tag, partition, None)
            for partition, offset in offsets.items():
                self._producer.produce(
                    LATEST, f"{offset:0{WIDTH}}", str(self._base + partition), partition=partition
                )
            wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in offsets.items()]
            send = partial(self._producer.send_offsets_to_transaction, wanted, batch.group)
            if self._rng.random() < 0.5:
                self._producer.flush(CALL_S)  # so that aborted records, too, are often in the log
            return _asked(send)[0] == OK
        except (KafkaException, BufferError):
            return False

    def _produce(self, tag: str, partition: int, source: list[int] | None) -> None:
        value = {"tag": tag, "number": next(self._numbers), "of": self._count, "input": source}
        with contextlib.suppress(KafkaException, BufferError):  # the end of the transaction tells
            self._producer.produce(OUTPUT, json.dumps(value), partition=partition)

    def _over(self, tag: str, fate: str) -> bool:
        """Commit or abort; whether this life can go on."""
        operation, asked = COMMIT, self._producer.commit_transaction
        if fate == ABORT:
            operation, asked = ABORT, self._producer.abort_transaction
        call = self._process.invoke(operation, KEY, [self._name, self._number, tag])
        return self._ended(call, asked) == OK

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
        try:
            with _watched():
                asked(CALL_S)
        except KafkaException as error:
            problem, text = error.args[0], str(error)
            if problem.txn_requires_abort():
                return FAIL, text
            if not problem.retriable():
                break
        else:
            return OK, ""
    return UNKNOWN, text


@contextlib.contextmanager
def _watched() -> Iterator[None]:
    """End the process if a call lasts much longer than it may.

    send_offsets_to_transaction of librdkafka 2.16 may return never, or long after its timeout, without any
    request under way: it waits for a coordinator of the group that left the metadata, whose thread has ended.
    Source: https://github.com/confluentinc/librdkafka/issues/5511 and /5456.
    """
    watch = threading.Timer(HANGS_S, os._exit, [HUNG])
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def main() -> None:
    """Live until the input ends or has a line, and the present life or transaction is over."""
    bootstrap, own, name, number, seed = sys.argv[1:]
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    rng, stopping, last = random.Random(int(seed)), threading.Event(), threading.Event()

    def listen() -> None:
        for _ in sys.stdin:
            last.set()
        stopping.set()

    threading.Thread(target=listen, daemon=True).start()
    process = Recorder(None).process(f"{name}-{number}")
    serial = int(number) * LIVES
    while not stopping.is_set() and not last.is_set():
        serial += 1
        life = _Life(process, name, serial, int(own) if own else None, bootstrap, rng)
        life.run(stopping)
        life.leave()
    # What the last producer has open stays open.
    os._exit(0)


if __name__ == "__main__":
    main()
