"""What compaction takes, and what it does to producers meanwhile: beside Kafka 3.9.1.

Three brokers each, one after the other. A topic of one partition and one replica is filled while its policy
is `delete`; then it becomes `compact`. Who cleans is watched from outside: a process of Quorate, a thread of
Kafka. Its work begins and ends with its CPU time. Before and meanwhile a producer sends lone records,
acks=all, to a partition of three replicas whose leader is the broker that cleans. Times are never asserted.
Source: ARCHITECTURE.md, "Life of a compacted record".
"""

from __future__ import annotations

import contextlib
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Message, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its types lack some
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from tests.bench.cases import Row
from tests.bench.group_systems import GroupSystem, measured
from tests.bench.report import rounds_table, table

DEADLINE_S: Final = 300.0
TOPIC: Final = "cleaned"
PROBED: Final = "probed"
VALUE_BYTES: Final = 100
MB: Final = 1e6
#: Between two records of the probe.
PAUSE_S: Final = 0.004
#: Who has used no CPU time for so long has nothing left to clean.
QUIET_S: Final = 2.0
#: Of one look; less is a thread that looks whether there is something to do.
WORKS_NS: Final = 500_000
#: {codec: in words}
CODECS: Final = {"none": "plain", "lz4": "lz4"}
#: How the cleaner is named: a part of a command line, and a thread as far as Linux keeps its name.
PROCESS: Final = b"broker.log.cleaning.process"
THREAD: Final = "kafka-log-clean"


@dataclass(frozen=True)
class Sizes:
    """How much is done."""

    records: int = 1_000_000
    keys: int = 200_000
    segment_bytes: int = 16 * 1024 * 1024
    #: Without cleaning, the producer is watched for so long.
    quiet_s: float = 10.0
    rounds: int = 1

    def rows(self) -> list[Row]:
        """Every row, in the order of the table."""
        rows: list[Row] = []
        for codec in CODECS.values():
            rows += (rate(codec), cpu(codec), left(codec))
        return [*rows, *(produced(when, each) for each in ("p50", "p99") for when in ("before", "meanwhile"))]


def rate(codec: str) -> Row:
    """Of what the log had before."""
    return Row(f"{codec}: a log is compacted, MB", "/s")


def cpu(codec: str) -> Row:
    """CPU time of who cleans."""
    return Row(f"{codec}: CPU time for 1 GB of log", "s")


def left(codec: str) -> Row:
    """What is left, the active segment included."""
    return Row(f"{codec}: what is left", "MB", compared=False)


def produced(when: str, quantile: str) -> Row:
    """How long a lone record takes."""
    return Row(f"a lone record, acks=all, {when}: {quantile}", "ms")


FULL: Final = Sizes()
TINY: Final = Sizes(20_000, 100, 1024 * 1024, 0.2)


class Cleaner:
    """Who cleans, in the process of a broker or beside it."""

    def __init__(self, pid: int) -> None:
        """Watch a broker."""
        self._pid = pid

    def _tasks(self) -> Iterator[Path]:
        for task in Path(f"/proc/{self._pid}/task").iterdir():
            if (task / "comm").read_text().startswith(THREAD):
                yield task
            for child in (task / "children").read_text().split():
                if PROCESS in (Path("/proc") / child / "cmdline").read_bytes():
                    yield Path("/proc") / child

    def used_ns(self) -> int:
        """CPU time that it has used; 0: there is none."""
        try:
            return sum(int((task / "schedstat").read_text().split()[0]) for task in self._tasks())
        except (FileNotFoundError, ProcessLookupError):
            return 0


def work_in(looks: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return when the last work in (when, CPU time) began and ended."""
    # Work that a look finds began after the look before.
    busy = [(before[0], at_s) for before, (at_s, used) in pairwise(looks) if used > WORKS_NS]
    began_s, ended_s = busy[-1]
    for before_s, at_s in reversed(busy):
        if began_s - at_s > QUIET_S:
            break
        began_s = before_s
    return began_s, ended_s


class Measurement:
    """One round of one system."""

    def __init__(self, system: GroupSystem, sizes: Sizes, folder: Path, number: int) -> None:
        """Measure a running system whose files, and those of others, are below a folder.

        Args:
            system: runs.
            sizes: how much is done.
            folder: of all systems.
            number: that no other measurement has.
        """
        self._sizes = sizes
        self._number = number
        self._folder = folder
        self._broker_ids = system.broker_ids
        self._servers = ",".join(system.addresses)
        self._admin = AdminClient({"bootstrap.servers": self._servers})
        # The first broker leads all, and cleans.
        self._cleaner = Cleaner(system.pids[0])
        self._seen_ns = 0
        self._worked_s = 0.0

    def run(self) -> Iterator[tuple[str, float]]:
        """Yield (name of a row, value)."""
        first, *others = self._broker_ids
        self._create(PROBED, [first, *others])
        meanwhile_ms: list[float] = []
        ends_s = time.monotonic() + self._sizes.quiet_s
        self._probe(lambda: time.monotonic() >= ends_s)
        before_ms = self._probe(lambda: time.monotonic() >= ends_s + self._sizes.quiet_s)
        for codec, words in CODECS.items():
            topic = f"{TOPIC}-{self._number}-{codec}"
            self._create(topic, [first], {"segment.bytes": self._sizes.segment_bytes})
            self._fill(topic, codec)
            before = self._size(topic)
            self._compact(topic)
            looks: list[tuple[float, int]] = []
            waited_ms = self._probe(lambda: self._is_done(looks, topic, before))  # noqa: B023 - called at once
            began_s, ended_s = work_in(looks)
            took_s = ended_s - began_s
            used_s = sum(used for at_s, used in looks if began_s < at_s <= ended_s) / 1e9
            # What the producer met while somebody cleaned.
            meanwhile_ms += [ms for at_s, ms in waited_ms if began_s <= at_s <= ended_s]
            yield rate(words).name, before / MB / took_s
            yield cpu(words).name, used_s / before * 1e9
            yield left(words).name, self._size(topic) / MB
        for when, found_ms in (("before", [ms for _, ms in before_ms]), ("meanwhile", meanwhile_ms)):
            yield produced(when, "p50").name, statistics.median(found_ms)
            yield (
                produced(when, "p99").name,
                statistics.quantiles(found_ms, n=100, method="inclusive")[98],
            )

    def _create(self, topic: str, replicas: list[int], config: dict[str, Any] | None = None) -> None:
        new = NewTopic(topic, 1, replica_assignment=[replicas], config=config or {})
        self._admin.create_topics([new])[topic].result(DEADLINE_S)

    def _fill(self, topic: str, codec: str) -> None:
        chosen = random.Random(41)
        values = [chosen.randbytes(VALUE_BYTES // 2).hex() for _ in range(1000)]
        producer = Producer(
            {"bootstrap.servers": self._servers, "acks": "all", "compression.type": codec, "linger.ms": 20}
        )
        for _ in range(self._sizes.records):
            key = f"key-{chosen.randrange(self._sizes.keys):012d}"
            while True:
                try:
                    producer.produce(topic, values[chosen.randrange(1000)], key, 0)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(DEADLINE_S) == 0

    def _compact(self, topic: str) -> None:
        wanted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in wanted.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(DEADLINE_S)

    def _size(self, topic: str) -> int:
        size = 0
        for each in self._folder.rglob(f"{topic}-0/*.log"):
            # Segments go meanwhile.
            with contextlib.suppress(FileNotFoundError):
                size += each.stat().st_size
        return size

    def _is_done(self, looks: list[tuple[float, int]], topic: str, before: int) -> bool:
        """Look at the cleaner; returns whether it has cleaned and has nothing left to do.

        Args:
            looks: (when, CPU time since the look before), one more after each call.
            topic: to be cleaned.
            before: bytes of its log.
        """
        now_s = time.monotonic()
        used_ns = self._cleaner.used_ns()
        since_ns = used_ns - self._seen_ns if used_ns >= self._seen_ns else used_ns
        looks.append((now_s, since_ns if looks else 0))
        self._seen_ns = used_ns
        self._worked_s = now_s if looks[-1][1] > WORKS_NS else self._worked_s
        return now_s - self._worked_s > QUIET_S and self._size(topic) < before

    def _probe(self, is_over: Callable[[], bool]) -> list[tuple[float, float]]:
        """Send lone records until something is over; returns (when, ms until each was acknowledged)."""
        producer = Producer({"bootstrap.servers": self._servers, "acks": "all", "linger.ms": 0})
        found: list[tuple[float, float]] = []

        def noted(sent_s: float, error: object, _message: Message) -> None:
            assert error is None, error
            found.append((sent_s, (time.monotonic() - sent_s) * 1000))

        deadline_s = time.monotonic() + DEADLINE_S
        while not is_over():
            assert time.monotonic() < deadline_s, "nobody cleans"
            next_s = time.monotonic() + PAUSE_S
            producer.produce(PROBED, b"x" * VALUE_BYTES, on_delivery=partial(noted, time.monotonic()))
            while (left_s := next_s - time.monotonic()) > 0:
                producer.poll(left_s)
        assert producer.flush(DEADLINE_S) == 0
        return found


def run(folder: Path, peers: Sequence[str], sizes: Sizes = FULL) -> list[str]:
    """Measure Quorate and the peers; returns the lines of the report."""
    numbers = iter(range(1_000_000))
    samples, names = measured(
        folder,
        ("quorate", *peers),
        sizes.rounds,
        lambda system: list(Measurement(system, sizes, folder, next(numbers)).run()),
    )
    lines = ["", f"Medians of {sizes.rounds} rounds.", "", *table(sizes.rows(), names, samples)]
    return [*lines, "", "Every round:", "", *rounds_table(sizes.rows(), names, samples)]
