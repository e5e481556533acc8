"""What transactions cost a producer, and what Kafka Streams makes of them: beside Kafka 3.9.1.

Three brokers each, one after the other. One producer of librdkafka writes transactions of 1 and of 100
records of 100 bytes, one after the other; a commit is timed alone, from its call to its answer. Then a word
count of Kafka Streams reads what lies in its topic already, at least once and exactly once, and is done when
every word has its last count. Times are never asserted.
Source: ARCHITECTURE.md, "Life of a transaction"; KIP-98, KIP-447.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.bench.cases import Row
from tests.bench.group_systems import BROKERS, GroupSystem, measured
from tests.bench.report import rounds_table, table
from tests.ecosystem.committed import CommittedTopic
from tests.ecosystem.programs import java_program

DEADLINE_S: Final = 600.0
PARTITIONS: Final = 2
WORDS_PER_LINE: Final = 5
VOCABULARY: Final = 100
#: Transactions for which the clients look up what they do not know yet.
UNCOUNTED: Final = 5
#: {guarantee: in words}
GUARANTEES: Final = {"at_least_once": "at least once", "exactly_once_v2": "exactly once"}


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    #: {records of a transaction: how many transactions}
    transactions: tuple[tuple[int, int], ...] = ((1, 500), (100, 200))
    #: lines of the word count; 0: none
    lines: int = 100_000
    rounds: int = 3

    def rate(self, records: int) -> Row:
        """Transactions in a second."""
        return Row(f"transactions of {records} records, one after the other", "/s")

    def commit(self, records: int, quantile: str) -> Row:
        """How long a commit takes."""
        return Row(f"transactions of {records} records: a commit, {quantile}", "ms")

    def words(self, guarantee: str) -> Row:
        """Records that Kafka Streams counts in a second."""
        return Row(f"Kafka Streams counts words, {GUARANTEES[guarantee]}: lines", "/s")

    def rows(self) -> list[Row]:
        """Every row, in the order of the table."""
        rows: list[Row] = []
        for records, _ in self.transactions:
            rows += (self.rate(records), self.commit(records, "p50"), self.commit(records, "p99"))
        return [*rows, *map(self.words, GUARANTEES if self.lines else ())]


FULL: Final = Sizes()
TINY: Final = Sizes(((1, 3), (100, 3)), 20, 1)


class Measurement:
    """One round of one system."""

    def __init__(self, system: GroupSystem, sizes: Sizes, folder: Path) -> None:
        """Measure a running system.

        Args:
            system: runs.
            sizes: how much is done.
            folder: empty, for what Streams keeps.
        """
        self._servers = ",".join(system.addresses)
        self._sizes = sizes
        self._folder = folder
        self._admin = AdminClient({"bootstrap.servers": self._servers})

    def run(self) -> Iterator[tuple[str, float]]:
        """Yield (name of a row, value)."""
        self._create("transactions", "words", "left", "right", "counts", "joined")
        for records, count in self._sizes.transactions:
            yield from self._transactions(records, count)
        if self._sizes.lines:
            producer = Producer({"bootstrap.servers": self._servers, "acks": "all"})
            for number in range(self._sizes.lines):
                numbers = range(number * WORDS_PER_LINE, (number + 1) * WORDS_PER_LINE)
                producer.produce("words", " ".join(f"word{each % VOCABULARY}" for each in numbers))
                producer.poll(0)
            assert producer.flush(DEADLINE_S) == 0
            for guarantee in GUARANTEES:
                yield self._sizes.words(guarantee).name, self._lines_per_s(guarantee)

    def _create(self, *topics: str) -> None:
        wanted = [NewTopic(each, PARTITIONS, BROKERS) for each in topics]
        for future in self._admin.create_topics(wanted).values():
            future.result(DEADLINE_S)

    def _transactions(self, records: int, count: int) -> Iterator[tuple[str, float]]:
        own = {"transactional.id": f"bench-{records}", "linger.ms": 0}
        producer = Producer({"bootstrap.servers": self._servers, **own})
        producer.init_transactions(DEADLINE_S)
        commits_ms: list[float] = []
        begun = time.monotonic()
        for number in range(UNCOUNTED + count):
            if number == UNCOUNTED:
                begun = time.monotonic()
                commits_ms.clear()
            producer.begin_transaction()
            for _ in range(records):
                producer.produce("transactions", b"x" * 100, partition=number % PARTITIONS)
            assert producer.flush(DEADLINE_S) == 0
            commit_begun = time.monotonic()
            producer.commit_transaction(DEADLINE_S)
            commits_ms.append((time.monotonic() - commit_begun) * 1000)
        sizes = self._sizes
        yield sizes.rate(records).name, count / (time.monotonic() - begun)
        yield sizes.commit(records, "p50").name, statistics.median(commits_ms)
        p99_ms = statistics.quantiles(commits_ms, n=100, method="inclusive")[98]
        yield sizes.commit(records, "p99").name, p99_ms

    def _lines_per_s(self, guarantee: str) -> float:
        folder = self._folder / guarantee
        total = self._sizes.lines * WORDS_PER_LINE
        counts = CommittedTopic(self._servers, f"counts-{guarantee}", PARTITIONS)
        self._create(f"counts-{guarantee}")
        arguments = (self._servers, str(folder / "state"), guarantee, f"counts-{guarantee}")
        with java_program("streams", "StreamsCounts.java", folder, *arguments) as program:
            program.wait_for("running", DEADLINE_S)
            begun = time.monotonic()
            newest: dict[str | None, int] = {}
            while sum(newest.values()) < total:
                assert time.monotonic() < begun + DEADLINE_S, f"{sum(newest.values())} of {total} words"
                assert not program.all("failed"), program.lines
                counts.records.clear()
                for word, count in counts.read():
                    newest[word] = max(newest.get(word, 0), int(count or 0))
            took_s = time.monotonic() - begun
        counts.close()
        return self._sizes.lines / took_s


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    rows = sizes.rows()
    numbers = iter(range(1_000_000))

    def measure(system: GroupSystem) -> list[tuple[str, float]]:
        place = folder / f"streams-{next(numbers)}"
        place.mkdir()
        return list(Measurement(system, sizes, place).run())

    samples, names = measured(folder, ("quorate", *peers), sizes.rounds, measure)
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(rows, names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(rows, names, samples)]
