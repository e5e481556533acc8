"""Clients that write at a steady pace while a cluster is updated, and know how long they had to wait.

A client of each protocol: `PacedSetter` is kazoo's, which sets one znode to 1, 2, 3, …; `PacedProducer` is
librdkafka's, with acks=all and idempotence, numbers to each partition in turn. Both keep what was
acknowledged, and the longest that anything took from its sending to its acknowledgement, retries included:
that is how long the client stood still.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, ConnectionLoss, OperationTimeoutError, SessionExpiredError
from kazoo.retry import KazooRetry

from tests.support.broker_records import quiet, reading

PACE_S: Final = 0.02
DEADLINE_S: Final = 60.0


class PacedSetter:
    """A session that sets one znode, in a thread of its own."""

    def __init__(self, name: str, hosts: str) -> None:
        """Begin at once, at the first host."""
        self.name = name
        self.path = f"/{name}"
        self.acknowledged = 0
        self.longest_s = 0.0
        self.error = ""
        retry = KazooRetry(max_tries=-1, delay=0.02, backoff=1, max_jitter=0)
        self._client = KazooClient(hosts, timeout=10, randomize_hosts=False, connection_retry=retry)
        self._client.start(DEADLINE_S)
        self._client.create(self.path, b"0")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.wait(PACE_S):
                began_s = time.monotonic()
                self._set(self.acknowledged + 1)
                self.acknowledged += 1
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
        except Exception as error:  # noqa: BLE001 - `finish` raises it
            self.error = f"{self.name}: write {self.acknowledged + 1}: {error!r}"

    def _set(self, number: int) -> None:
        """Set the znode once, whatever happens on the way: its version says whether that is done."""
        deadline_s = time.monotonic() + DEADLINE_S
        while True:
            try:
                self._client.set(self.path, b"%d" % number, version=number - 1)
                return
            except (ConnectionLoss, OperationTimeoutError):
                if time.monotonic() >= deadline_s:
                    raise
            except BadVersionError:
                value, stat = self._client.get(self.path)
                if (value, stat.version) != (b"%d" % number, number):
                    raise
                return
            except SessionExpiredError:
                raise AssertionError("the session was lost") from None

    def finish(self) -> None:
        """Write no more; an error if it could not, or if the znode is not as it was acknowledged."""
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        try:
            assert not self.error, self.error
            value, stat = self._client.retry(self._client.get, self.path)
            assert (int(value), stat.version) == (self.acknowledged, self.acknowledged)
        finally:
            self.close()

    def close(self) -> None:
        """End the session."""
        self._stopping.set()
        self._client.stop()
        with contextlib.suppress(Exception):
            self._client.close()


class PacedProducer:
    """An idempotent producer in a thread of its own."""

    def __init__(self, topic: str, partitions: int, bootstrap: str) -> None:
        """Begin at once."""
        self.topic = topic
        self.longest_s = 0.0
        self.failures: list[str] = []
        #: {(partition, number): offset}
        self.acknowledged: dict[tuple[int, int], int] = {}
        self._partitions = partitions
        self._bootstrap = bootstrap
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 0,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
                "topic.metadata.refresh.fast.interval.ms": 20,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"producer of {topic}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stopping.wait(PACE_S):
            for partition in range(self._partitions):
                told = self._outcome(partition, number, time.monotonic())
                self._producer.produce(self.topic, b"%d" % number, partition=partition, on_delivery=told)
            number += 1
            self._producer.poll(0)

    def _outcome(self, partition: int, number: int, began_s: float) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged[partition, number] = message.offset()
                self.longest_s = max(self.longest_s, time.monotonic() - began_s)
            else:
                self.failures.append(f"{self.topic}-{partition} {number}: {error}")

        return delivered

    def finish(self) -> None:
        """Send no more; an error unless every record was acknowledged and is there once, in order."""
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        assert self._producer.flush(DEADLINE_S) == 0
        assert not self.failures, self.failures[:5]
        sent = dict.fromkeys(range(self._partitions), 0)
        for partition, number in self.acknowledged:
            sent[partition] = max(sent[partition], number + 1)
        found = self._read()
        assert {each: len(rows) for each, rows in found.items()} == sent
        assert all(rows == list(range(len(rows))) for rows in found.values())

    def _read(self) -> dict[int, list[int]]:
        consumer = Consumer({**reading(self._bootstrap), "enable.partition.eof": True})
        found: dict[int, list[int]] = defaultdict(list)
        ends = 0
        try:
            consumer.assign([TopicPartition(self.topic, each, 0) for each in range(self._partitions)])
            while ends < self._partitions:
                message: Any = consumer.poll(DEADLINE_S)
                assert message is not None, f"{self.topic} does not end"
                if message.error():
                    ends += 1
                else:
                    found[message.partition()].append(int(message.value()))
        finally:
            consumer.close()
        return found
