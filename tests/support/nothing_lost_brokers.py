"""Strikes a cluster of brokers while producers produce, and looks for every record that was acknowledged.

    python -m tests.support.nothing_lost_brokers --strikes 16 [--seed N] [--session-ms 6000]

Three nodes, three brokers, one topic of 12 partitions with three replicas and min.insync.replicas 2; two
idempotent producers with acks=all and many records in flight. Each strike takes away a leader, the
controller, the quorum's leader, or two brokers at once, or cuts a follower off from the other brokers, and
ends when all replicas are in sync again. At the end every acknowledged record is read back exactly once and
in its producer's order, and the replicas' files are equal byte for byte. A run counts only if a strike hit a
leader with records in flight, a log was truncated, and an ISR shrank and grew.

The seed repeats the choices, not the instants. Source: docs/internals/reliability.md, "Nemeses".
"""

from __future__ import annotations

import argparse
import contextlib
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_links import BrokerLinks
from tests.support.broker_records import log_files, quiet, reading
from tests.support.nodes import eventually

TOPIC: Final = "story"
PARTITIONS: Final = 12
REPLICAS: Final = 3
PRODUCERS: Final = 2
DEADLINE_S: Final = 120.0
#: Records of one producer that wait for their acknowledgement.
IN_FLIGHT_MAX: Final = 5_000
#: Acknowledged records between two strikes.
RECORDS_BETWEEN: Final = 2_000
#: of leaders, where the others truncated no log
MORE_STRIKES_MAX: Final = 6
STRIKES: Final = "leader", "controller", "paused leader", "quorum leader", "two brokers", "cut-off follower"


@dataclass
class Report:
    """What a run did and found."""

    strikes: Counter[str] = field(default_factory=Counter)
    #: strikes that hit a leader with records in flight
    bit: int = 0
    acknowledged: int = 0
    #: records whose producer got an error
    failed: int = 0
    truncations: int = 0
    isr_shrinks: int = 0
    isr_expansions: int = 0
    violations: list[str] = field(default_factory=list)

    def missing(self) -> list[str]:
        """What a run must have had to count, and did not have."""
        had = {
            "a strike on a leader with records in flight": self.bit,
            "a truncation": self.truncations,
            "a shrink of an ISR": self.isr_shrinks,
            "an expansion of an ISR": self.isr_expansions,
        }
        return [what for what, count in had.items() if not count]

    def table(self) -> str:
        """The run as text."""
        kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(self.strikes.items()))
        return "\n".join(
            [
                f"strikes {self.strikes.total()}: {kinds}",
                f"strikes on a leader with records in flight: {self.bit}",
                f"acknowledged records {self.acknowledged}, failed {self.failed}",
                f"truncations {self.truncations}",
                f"ISR shrinks {self.isr_shrinks}, expansions {self.isr_expansions}",
                *self.violations[:20],
                f"violations {len(self.violations)}",
            ]
        )


class SteadyProducer:
    """One idempotent producer in a thread of its own: numbers 0, 1, 2, … to each partition in turn."""

    def __init__(self, name: str, bootstrap: str) -> None:
        """Begin at once."""
        self.name = name
        self.sent = [0] * PARTITIONS
        #: {(partition, number): offset}; None where librdkafka knows it only by the answer to a later batch
        self.acknowledged: dict[tuple[int, int], int | None] = {}
        self.failures: list[str] = []
        self.in_flight = [0] * PARTITIONS
        self._stopping = threading.Event()
        self._producer = Producer(
            {
                **quiet(bootstrap),
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 2,
                "batch.num.messages": 50,
                "message.timeout.ms": 300_000,
                "reconnect.backoff.max.ms": 500,
                "compression.type": "lz4",
            }
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.is_set():
            if sum(self.in_flight) >= IN_FLIGHT_MAX:
                self._producer.poll(0.01)
                continue
            partition = turn % PARTITIONS
            turn += 1
            number = self.sent[partition]
            self.sent[partition] += 1
            self.in_flight[partition] += 1
            value = f"{self.name} {number} ".encode().ljust(60, b".")
            self._producer.produce(
                TOPIC, value, partition=partition, on_delivery=self._outcome(partition, number)
            )
            self._producer.poll(0)

    def _outcome(self, partition: int, number: int) -> Callable[[Any, Any], None]:
        def delivered(error: Any, message: Any) -> None:
            self.in_flight[partition] -= 1
            if error is None:
                self.acknowledged[partition, number] = message.offset()
            else:
                self.failures.append(f"{self.name}: {partition}/{number}: {error}")

        return delivered

    def finish(self) -> None:
        """Send nothing more, and wait for the outcome of all records."""
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        left = self._producer.flush(DEADLINE_S)
        assert left == 0, f"{self.name}: {left} records have no outcome"


def wait_for_records(producers: Sequence[SteadyProducer], count: int = RECORDS_BETWEEN) -> None:
    """Wait until every producer got acknowledgements for so many more records."""
    goals = [len(producer.acknowledged) + count for producer in producers]
    eventually(
        lambda: all(len(one.acknowledged) >= goal for one, goal in zip(producers, goals, strict=True)),
        DEADLINE_S,
        f"{count} more records of each producer are acknowledged",
    )


class Story:
    """A running cluster under strikes."""

    def __init__(self, cluster: BrokerCluster, links: BrokerLinks, seed: int) -> None:
        """Create the topic and start the producers."""
        self.cluster = cluster
        self._links = links
        self.report = Report()
        self._random = random.Random(seed)
        admin = AdminClient(quiet(cluster.bootstrap))
        settings = {"min.insync.replicas": "2"}
        topic = NewTopic(TOPIC, PARTITIONS, REPLICAS, config=settings)
        admin.create_topics([topic], operation_timeout=20)[TOPIC].result(30)
        cluster.wait_in_sync(TOPIC)
        self.producers = [SteadyProducer(f"p{number}", cluster.bootstrap) for number in range(PRODUCERS)]

    def strike(self, kind: str) -> None:
        """Strike once, and wait until the cluster got over it."""
        wait_for_records(self.producers)
        cluster = self.cluster
        self.report.strikes[kind] += 1
        match kind:
            case "leader":
                self._kill(self._a_leader())
            case "controller":
                self._kill(cluster.controller_id())
            case "paused leader":
                self._pause(self._a_leader())
            case "quorum leader":
                self._kill_quorum_leader()
            case "two brokers":
                self._kill(*self._random.sample(sorted(cluster.brokers), 2))
            case "cut-off follower":
                self._cut_off()
        cluster.wait_ready()
        cluster.wait_in_sync(TOPIC)

    def _a_leader(self) -> int:
        return self.cluster.leader_of(TOPIC, self._random.randrange(PARTITIONS))

    def _note(self, *struck: int) -> None:
        """Count the strike if one of these brokers leads a partition with records in flight."""
        states = [self.cluster.state(TOPIC, partition) for partition in range(PARTITIONS)]
        self.report.bit += any(
            state.get("leader") in struck and any(one.in_flight[partition] for one in self.producers)
            for partition, state in enumerate(states)
        )

    def _kill(self, *broker_ids: int) -> None:
        self._note(*broker_ids)
        self.cluster.kill(*broker_ids)
        if len(broker_ids) == 1:
            self._wait_out_of_isr(*broker_ids)
            wait_for_records(self.producers, 200)
        for broker_id in broker_ids:
            self.cluster.start_broker(broker_id)

    def _pause(self, broker_id: int) -> None:
        self._note(broker_id)
        self.cluster.pause(broker_id)
        self._wait_out_of_isr(broker_id)
        wait_for_records(self.producers, 200)
        self.cluster.resume(broker_id)

    def _kill_quorum_leader(self) -> None:
        nodes = self.cluster.nodes
        leader = nodes.leader()
        nodes.kill(leader)
        wait_for_records(self.producers, 200)
        nodes.start_node(leader)
        nodes.wait_ready()

    def _cut_off(self) -> None:
        """Cut a broker off until the leaders of its partitions have taken it out of their ISRs."""
        controller = self.cluster.controller_id()
        follower = self._random.choice([each for each in self.cluster.brokers if each != controller])
        self._links.cut_off(follower)

        def left() -> bool:
            states = [self.cluster.state(TOPIC, partition) for partition in range(PARTITIONS)]
            return all(
                state and (state["leader"] == follower or follower not in state["isr"]) for state in states
            )

        eventually(left, DEADLINE_S, f"broker {follower} left the ISRs of other leaders")
        wait_for_records(self.producers, 200)
        self._links.mend(follower)

    def _wait_out_of_isr(self, *broker_ids: int) -> None:
        """Wait until no published state names these brokers as leader or in sync."""

        def gone() -> bool:
            states = [self.cluster.state(TOPIC, partition) for partition in range(PARTITIONS)]
            return all(
                state and state["leader"] not in broker_ids and not set(broker_ids) & set(state["isr"])
                for state in states
            )

        eventually(gone, DEADLINE_S, f"brokers {broker_ids} are in no ISR")

    def finish(self) -> Report:
        """End the producers, compare what was acknowledged with what is there, and return the report."""
        wait_for_records(self.producers)
        for producer in self.producers:
            producer.finish()
            self.report.acknowledged += len(producer.acknowledged)
            self.report.failed += len(producer.failures)
            self.report.violations += producer.failures
        self.cluster.wait_in_sync(TOPIC)
        self.report.violations += check(self.producers, read_all(self.cluster.bootstrap))
        counts = self.cluster.counts()
        self.report.truncations = counts["quorate_broker_truncations_total"]
        self.report.isr_shrinks = counts["quorate_broker_isr_shrinks_total"]
        self.report.isr_expansions = counts["quorate_broker_isr_expands_total"]
        self.cluster.stop(*self.cluster.brokers)
        self.report.violations += differences(self.cluster)
        return self.report


def read_all(bootstrap: str) -> dict[int, list[tuple[int, bytes]]]:
    """Read the whole topic: {partition: [(offset, value)]}."""
    consumer = Consumer(reading(bootstrap))
    ends = {
        partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=20)[1]
        for partition in range(PARTITIONS)
    }
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in ends])
    found: dict[int, list[tuple[int, bytes]]] = defaultdict(list)

    def poll() -> bool:
        messages: list[Any] = consumer.consume(10_000, timeout=0.2)
        for message in messages:
            assert message.error() is None, str(message.error())
            found[message.partition()].append((message.offset(), message.value()))
        return all(not end or (found[each] and found[each][-1][0] >= end - 1) for each, end in ends.items())

    eventually(poll, DEADLINE_S, "the whole topic is read")
    consumer.close()
    return found


def check(producers: Sequence[SteadyProducer], found: dict[int, list[tuple[int, bytes]]]) -> list[str]:
    """Compare what producers know with what a consumer read; returns every violation in words."""
    wrong: list[str] = []
    for producer in producers:
        for partition in range(PARTITIONS):
            rows = [
                (offset, int(value.split()[1]))
                for offset, value in found.get(partition, [])
                if value.split()[0] == producer.name.encode()
            ]
            where = f"{producer.name} in partition {partition}"
            offsets: dict[int, list[int]] = defaultdict(list)
            for place, number in rows:
                offsets[number].append(place)
            repeated = [number for number, places in offsets.items() if len(places) > 1]
            if repeated:
                wrong.append(f"{where}: {len(repeated)} records are there twice, as {repeated[:5]}")
            if list(offsets) != sorted(offsets):
                wrong.append(f"{where}: records are out of order")
            for (of, number), offset in producer.acknowledged.items():
                if of == partition and number not in offsets:
                    wrong.append(f"{where}: record {number} was acknowledged at {offset} and is lost")
                elif of == partition and offset is not None and offset not in offsets[number]:
                    wrong.append(f"{where}: record {number} is at {offsets[number][0]}, not at {offset}")
    return wrong


def differences(cluster: BrokerCluster) -> list[str]:
    """Compare the replicas' log files of brokers that are stopped; returns the partitions that differ."""
    wrong = []
    for partition in range(PARTITIONS):
        logs = {
            broker_id: b"".join(path.read_bytes() for path in log_files(broker.data_dir, TOPIC, partition))
            for broker_id, broker in cluster.brokers.items()
        }
        if len(set(logs.values())) != 1 or not all(logs.values()):
            sizes = {broker_id: len(log) for broker_id, log in logs.items()}
            wrong.append(f"the replicas of partition {partition} differ; their bytes: {sizes}")
    return wrong


def run(
    kinds: Sequence[str],
    *,
    seed: int,
    session_timeout_ms: int,
    replica_lag_ms: int | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Report:
    """Run a cluster, strike it with these kinds in turn, then leaders until a log is cut; return what was."""
    lag = {} if replica_lag_ms is None else {"replica_lag_time_max_ms": replica_lag_ms}
    cluster = BrokerCluster(nodes=3, session_timeout_ms=session_timeout_ms, settings={"broker": lag})
    links = BrokerLinks(cluster)
    with contextlib.closing(links), cluster, cluster.shown():
        story = Story(cluster, links, seed)
        for number, kind in enumerate(kinds, start=1):
            story.strike(kind)
            say(f"strike {number}, {kind}: {sum(len(one.acknowledged) for one in story.producers)} records")
        # On a quick machine followers may have had all that a leader had: then it is struck again.
        for _ in range(MORE_STRIKES_MAX):
            if cluster.counts()["quorate_broker_truncations_total"]:
                break
            story.strike("leader")
        return story.finish()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run by command; returns the exit code."""
    parser = argparse.ArgumentParser(
        description="Strike brokers, and check that no acknowledged record is lost."
    )
    parser.add_argument("--strikes", type=int, default=16)
    parser.add_argument("--seed", type=int, default=random.randrange(2**32))
    parser.add_argument("--session-ms", type=int, default=6000)
    options = parser.parse_args(arguments)

    def say(text: str) -> None:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()

    say(f"seed {options.seed}")
    kinds = [STRIKES[number % len(STRIKES)] for number in range(options.strikes)]
    random.Random(options.seed).shuffle(kinds)
    report = run(kinds, seed=options.seed, session_timeout_ms=options.session_ms, say=say)
    say(report.table())
    for what in report.missing():
        say(f"this run does not count: it had not {what}")
    return 1 if report.violations or report.missing() else 0


if __name__ == "__main__":
    sys.exit(main())
