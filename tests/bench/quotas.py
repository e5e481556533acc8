"""How well the rates of quotas hold, and what a throttled client leaves to another. One broker, one node.

A producer and a consumer of librdkafka that would go as fast as they can, each with a quota; what passes at
once at first does not count. Then another producer without a quota: alone, and beside a noisy one that is
throttled, in turns. Times are never asserted.
Source: KIP-13; docs/reference/security.md, "Quotas of Kafka clients".
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from broker.core.quotas.rates import WINDOWS
from controller.wire.codes import ErrorCode
from tests.bench.cases import Row
from tests.bench.report import rounds_table, table
from tests.support.broker_cluster import BrokerCluster, running_brokers
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink
from tests.support.client_quotas import alter, entity
from tests.support.nodes import eventually

MIB: Final = 1024 * 1024
RECORD: Final = b"x" * 10_000
WAIT_S: Final = 60.0


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    #: bytes a second
    rate: int = MIB
    #: windows of quotas that are let pass, then measured
    windows: int = 2
    #: seconds of each of the two ways
    seconds: float = 5.0
    rounds: int = 3


FULL: Final = Sizes()
TINY: Final = Sizes(rate=MIB, windows=0, seconds=0.2, rounds=1)
PRODUCED: Final = Row("produced with a quota, of what is set", "%")
FETCHED: Final = Row("fetched with a quota, of what is set", "%")
ALONE: Final = Row("another producer alone", "/s")
BESIDE: Final = Row("beside a throttled one", "/s")
LEFT: Final = Row("that is of its rate alone", "%")
ROWS: Final = (PRODUCED, FETCHED, ALONE, BESIDE, LEFT)


class _Sending:
    """A producer that sends as fast as it may, in a thread."""

    def __init__(self, bootstrap: str, client_id: str) -> None:
        self._topic = f"of-{client_id}"
        self.acked_bytes = 0
        self.ends = threading.Event()
        settings: dict[str, str | int | float | bool] = {
            **quiet(bootstrap),
            "client.id": client_id,
            "acks": 1,
            "batch.size": 100_000,
            "linger.ms": 5,
            "queue.buffering.max.kbytes": 2048,
        }
        self._producer = Producer(settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def end(self) -> None:
        self.ends.set()
        self._thread.join()
        self._producer.purge()
        self._producer.flush(WAIT_S)
        # Its delivery report keeps it, and a connection.
        del self._producer

    def _run(self) -> None:
        while not self.ends.is_set():
            try:
                self._producer.produce(self._topic, RECORD, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(0.005)
            else:
                self._producer.poll(0)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self.acked_bytes += len(message.value() or b"")


@contextmanager
def _sending(cluster: BrokerCluster, client_id: str) -> Iterator[_Sending]:
    found = _Sending(cluster.bootstrap, client_id)
    try:
        yield found
    finally:
        found.end()


def _limit(cluster: BrokerCluster, client_id: str, quotas: Mapping[str, float]) -> None:
    with BrokerLink(cluster.bootstrap) as link:
        assert alter(link, entity(client_id=client_id), quotas).error_code == ErrorCode.NONE


def _rate(sending: _Sending, seconds: float) -> float:
    before, started_s = sending.acked_bytes, time.monotonic()
    sending.ends.wait(seconds)
    return (sending.acked_bytes - before) / (time.monotonic() - started_s)


def _produced(cluster: BrokerCluster, sizes: Sizes) -> float:
    with _sending(cluster, "producer") as sending:
        sending.ends.wait(min(sizes.windows, 1) * WINDOWS)
        return _rate(sending, sizes.windows * WINDOWS or 1.0)


def _fetched(cluster: BrokerCluster, sizes: Sizes) -> float:
    windows = sizes.windows + min(sizes.windows, 1)
    wanted_bytes = (windows + 1) * WINDOWS * sizes.rate
    settings = quiet(cluster.bootstrap)
    filler = Producer({**settings, "queue.buffering.max.messages": 1_000_000, "batch.size": 100_000})
    for _ in range(wanted_bytes // len(RECORD)):
        filler.produce("read", RECORD)
        filler.poll(0)
    assert filler.flush(WAIT_S) == 0
    consumer = Consumer({**settings, "client.id": "consumer", "group.id": "unused", "fetch.max.bytes": MIB})
    consumer.assign([TopicPartition("read", 0, 0)])
    started_s = time.monotonic()
    first_s, last_s = (min(sizes.windows, 1) * WINDOWS, windows * WINDOWS or 1.0)
    got = 0
    while (passed_s := time.monotonic() - started_s) < last_s:
        for message in consumer.consume(100, timeout=0.1):
            got += len(message.value() or b"") if passed_s >= first_s else 0
    consumer.close()
    return got / (last_s - first_s)


def send_noise(bootstrap: str) -> None:
    """Send as fast as it is let, until the process ends."""
    _Sending(bootstrap, "noisy").join()


def _throttled_s(cluster: BrokerCluster) -> float:
    return cluster.metric(1, "quorate_broker_throttled_seconds_total", "producer_byte_rate")


@contextmanager
def _noise(cluster: BrokerCluster) -> Iterator[None]:
    """A noisy producer in a process of its own, which does not take the other one's interpreter."""
    process = get_context("spawn").Process(target=send_noise, args=(cluster.bootstrap,))
    before = _throttled_s(cluster)
    process.start()
    try:
        eventually(lambda: _throttled_s(cluster) > before, WAIT_S, "what may be sent at once is over")
        yield
    finally:
        process.kill()
        process.join()


def run(sizes: Sizes = FULL) -> list[str]:
    """Measure; returns the lines of the report."""
    samples: dict[tuple[str, str], list[float]] = defaultdict(list)
    with running_brokers(brokers=1, session_timeout_ms=18_000) as cluster:
        admin = AdminClient(quiet(cluster.bootstrap))
        topics = [NewTopic(name, 1, 1) for name in ("of-producer", "of-noisy", "of-other", "read")]
        for future in admin.create_topics(topics).values():
            future.result(WAIT_S)
        for client in ("producer", "noisy"):
            _limit(cluster, client, {"producer_byte_rate": sizes.rate})
        _limit(cluster, "consumer", {"consumer_byte_rate": sizes.rate})
        samples[PRODUCED.name, "Quorate"].append(100 * _produced(cluster, sizes) / sizes.rate)
        samples[FETCHED.name, "Quorate"].append(100 * _fetched(cluster, sizes) / sizes.rate)
        for number in range(sizes.rounds):
            found = {}
            for row in (ALONE, BESIDE) if number % 2 else (BESIDE, ALONE):
                noise = _noise(cluster) if row is BESIDE else nullcontext()
                with noise, _sending(cluster, "other") as sending:
                    found[row] = _rate(sending, sizes.seconds)
            for row, value in found.items():
                samples[row.name, "Quorate"].append(value / len(RECORD))
            samples[LEFT.name, "Quorate"].append(100 * found[BESIDE] / found[ALONE])
    names = ["Quorate"]
    told = (
        f"{sizes.rate / MIB:g} MiB/s are set; records of {len(RECORD)} bytes; "
        f"rates over {sizes.windows * WINDOWS} s, others: medians of {sizes.rounds} rounds."
    )
    assert statistics.median(samples[ALONE.name, "Quorate"]) > 0
    lines = ["", told, "", *table(ROWS, names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(ROWS, names, samples)]
