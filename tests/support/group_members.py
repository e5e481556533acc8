"""Consumers of a group, each in a thread: what they own by their own account, and what they have read.

A member polls, and commits synchronously what it has read. It notes when it got partitions and when it gave
them up; `overlaps` finds a partition that two members owned at an instant.
"""

from __future__ import annotations

import abc
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from kafka import KafkaConsumer
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import KafkaError as PythonKafkaError

from tests.support.nodes import eventually

SESSION_MS = 6_000
HEARTBEAT_MS = 300
POLL_S = 0.05
#: kafka-python 3.0 may forget a join that takes longer than the poll that began it, and falls silent.
PYTHON_POLL_MS = 2_000


class Owned(NamedTuple):
    """A partition that a member owned from a time to a time; monotonic seconds."""

    member: str
    partition: tuple[str, int]
    since: float
    until: float


@dataclass
class Member(abc.ABC):
    """One consumer; `start` runs it until `leave`."""

    name: str
    bootstrap: str
    group: str
    topics: Sequence[str]
    settings: dict[str, Any] = field(default_factory=dict)
    #: {partition: since when it is owned}
    owned: dict[tuple[str, int], float] = field(default_factory=dict)
    history: list[Owned] = field(default_factory=list)
    #: (partition, offset, value), in the order in which they were read
    records: list[tuple[tuple[str, int], int, bytes]] = field(default_factory=list)
    #: {partition: offset} of what was read and is not committed yet, of owned partitions alone
    unsaved: dict[tuple[str, int], int] = field(default_factory=dict)
    #: {partition: offset} as the last successful commits said
    committed: dict[tuple[str, int], int] = field(default_factory=dict)
    #: when commits succeeded; monotonic seconds
    commit_times: list[float] = field(default_factory=list)
    assignments: int = 0
    failure: Exception | None = None

    def start(self) -> Member:
        """Run in a thread."""
        self._leaving = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)
        self._thread.start()
        return self

    def leave(self) -> None:
        """Close the consumer, so that the group learns of it, and wait."""
        self._leaving.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"{self.name} does not end"
        if self.failure is not None:
            raise self.failure

    def _run(self) -> None:
        try:
            self._work()
        except Exception as error:  # noqa: BLE001 - raised by leave, in the test's thread
            self.failure = error
        finally:
            self._revoked(list(self.owned))

    @abc.abstractmethod
    def _work(self) -> None:
        """Poll and commit until it leaves."""

    def _assigned(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.assignments += 1
        for each in partitions:
            self.owned[each] = time.monotonic()

    def _revoked(self, partitions: Iterable[tuple[str, int]]) -> None:
        now = time.monotonic()
        for each in partitions:
            self.unsaved.pop(each, None)
            since = self.owned.pop(each, None)
            if since is not None:
                self.history.append(Owned(self.name, each, since, now))

    def _was_read(self, key: tuple[str, int], offset: int, value: bytes) -> None:
        self.records.append((key, offset, value))
        if key in self.owned:
            self.unsaved[key] = offset + 1

    def _was_committed(self, offsets: dict[tuple[str, int], int]) -> None:
        self.committed |= offsets
        for key, offset in offsets.items():
            if self.unsaved.get(key) == offset:
                del self.unsaved[key]
        self.commit_times.append(time.monotonic())


class ConfluentMember(Member):
    """A consumer of confluent-kafka."""

    def _work(self) -> None:
        classic = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": HEARTBEAT_MS}
        protocol = {} if self.settings.get("group.protocol") == "consumer" else classic
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": self.group,
                "client.id": self.name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.auto.offset.store": True,
                "topic.metadata.refresh.interval.ms": 1_000,
                "log_level": 0,
                **protocol,
                **self.settings,
            }
        )

        def tell(note: Callable[[Iterable[tuple[str, int]]], None]) -> Callable[..., None]:
            return lambda _consumer, partitions: note([(each.topic, each.partition) for each in partitions])

        consumer.subscribe(
            list(self.topics),
            on_assign=tell(self._assigned),
            on_revoke=tell(self._revoked),
            on_lost=tell(self._revoked),
        )
        while not self._leaving.is_set():
            message = consumer.poll(POLL_S)
            if message is not None and message.error() is None:
                topic, partition, offset = message.topic(), message.partition(), message.offset()
                assert topic is not None and partition is not None and offset is not None
                self._was_read((topic, partition), offset, message.value() or b"")
            elif message is not None and (error := message.error()) is not None and error.fatal():
                raise KafkaException(error)
            if self.unsaved:
                self._commit(consumer, dict(self.unsaved))
        consumer.close()

    def _commit(self, consumer: Consumer, offsets: dict[tuple[str, int], int]) -> None:
        wanted = [TopicPartition(topic, index, offset) for (topic, index), offset in offsets.items()]
        try:
            consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            # A rebalance came first. The member that owns the partition afterwards commits.
            code = error.args[0].code()
            if code not in (
                KafkaError.REBALANCE_IN_PROGRESS,
                KafkaError.ILLEGAL_GENERATION,
                KafkaError.UNKNOWN_MEMBER_ID,
                KafkaError.STALE_MEMBER_EPOCH,
                KafkaError._WAIT_COORD,
                KafkaError._TIMED_OUT,
                KafkaError._TRANSPORT,
                KafkaError.NOT_COORDINATOR,
                KafkaError._STATE,
            ):
                raise
        else:
            self._was_committed(offsets)


class PythonMember(Member):
    """A consumer of kafka-python."""

    def _work(self) -> None:
        consumer = KafkaConsumer(
            bootstrap_servers=self.bootstrap.split(","),
            group_id=self.group,
            client_id=self.name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_interval_ms=30_000,
            metadata_max_age_ms=1_000,
            **self.settings,
        )
        member = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # it has no types
            def on_partitions_revoked(self, revoked: Any) -> None:
                member._revoked([(each.topic, each.partition) for each in revoked])

            def on_partitions_assigned(self, assigned: Any) -> None:
                member._assigned([(each.topic, each.partition) for each in assigned])

        consumer.subscribe(list(self.topics), listener=Listener())
        while not self._leaving.is_set():
            for key, records in consumer.poll(timeout_ms=PYTHON_POLL_MS, max_records=50).items():
                for record in records:
                    self._was_read((key.topic, key.partition), record.offset, record.value)
            if read := dict(self.unsaved):
                try:
                    consumer.commit(timeout_ms=30_000)
                except PythonKafkaError as error:
                    if not (error.retriable or type(error).__name__ == "CommitFailedError"):
                        raise
                else:
                    self._was_committed(read)
        consumer.close()


def overlaps(members: Iterable[Member]) -> list[tuple[Owned, Owned]]:
    """Return pairs of times in which two members owned one partition, all members having left."""
    found: list[tuple[Owned, Owned]] = []
    spans: dict[tuple[str, int], list[Owned]] = {}
    for member in members:
        for each in member.history:
            spans.setdefault(each.partition, []).append(each)
    for held in spans.values():
        held.sort(key=lambda each: each.since)
        for first, second in pairwise(held):
            if first.member != second.member and second.since < first.until:
                found.append((first, second))
    return found


def owned_by_all(members: Iterable[Member], partitions: int) -> bool:
    """Say whether the members own so many partitions together, each of one member."""
    owned = [each for member in members for each in list(member.owned)]
    return len(owned) == partitions == len(set(owned))


def create_topic(admin: AdminClient, topic: str, partitions: int) -> None:
    """Create a topic with three replicas, also while another controller is being elected."""

    def created() -> bool:
        try:
            admin.create_topics([NewTopic(topic, partitions, 3)])[topic].result(30)
        except KafkaException as error:
            code = error.args[0].code()
            if code == KafkaError.TOPIC_ALREADY_EXISTS:
                return True
            raise AssertionError(error) from error
        return True

    eventually(created, 60.0, f"topic {topic} is created")
