"""Nothing that a client sends, and no slow disk, holds a broker's event loop for half a second.

Each row is an input that once did, or could. The broker counts its own turns (quorate_broker_turn_seconds). A
pause of the machine makes every loop late, so a second loop, in this process, is measured at the same time:
as many long turns as that one had are the machine's.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import cramjam
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from crc32c import crc32c

from broker.wire.codec import encode_request
from quorum.platform.loop_watch import LoopWatch
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, ask, partitions_as_seen_by, record_batch
from tests.support.hanging_broker import SLOW_FSYNC, HangingBrokers
from tests.support.nodes import eventually

pytestmark = pytest.mark.alone

BROKER, OTHER = 1, 2
#: Partitions that are truncated together.
TRUNCATED = 200
DEADLINE_S = 60.0
TURN_S_MAX = 0.5
#: Longer than a turn may be: an fsync in the event loop is found.
SLOW_FSYNC_S = "0.7"
PRODUCE, FETCH, LIST_OFFSETS, METADATA, CREATE_TOPICS, DESCRIBE_CONFIGS = 0, 1, 2, 3, 19, 32
INVALID_CONFIG = 40
CORRUPT_MESSAGE = 2
#: As many of one thing as a request may name.
REPEATS = 19_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[HangingBrokers]:
    settings = {"limits": {"segment_bytes_min": 4096}}
    with HangingBrokers(brokers=1, settings=settings) as running:
        store_a_bomb(running)
        yield running


def store_a_bomb(cluster: HangingBrokers) -> None:
    """Put 256 MiB of zeros in 8 KiB into a log, as an earlier version took them from a producer."""
    topic = a_bomb_looked_up_by_time.__name__
    create(cluster, topic)
    cluster.kill(BROKER)
    content = bytes(cramjam.zstd.compress(bytes(256 << 20)))
    header = struct.pack(">hiqqqhii", 4, 0, 0, 10**15, -1, -1, -1, 1) + content
    batch = struct.pack(">qiibI", 0, 9 + len(header), 0, 2, crc32c(header)) + header
    (cluster.brokers[BROKER].data_dir / f"{topic}-0" / "00000000000000000000.log").write_bytes(batch)
    cluster.start_broker(BROKER)
    cluster.wait_ready()
    address = cluster.address(BROKER)
    eventually(
        lambda: partitions_as_seen_by(address, topic)[0].leader_id == BROKER, DEADLINE_S, "it leads again"
    )


class SecondLoop:
    """An event loop of this process with nothing to do."""

    def __init__(self) -> None:
        self.watch = LoopWatch()
        self._loop = asyncio.new_event_loop()
        self._task = self._loop.create_task(self.watch.run())
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._task)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join()
        self._loop.close()


def long_turns(cluster: HangingBrokers) -> int:
    """How many turns of the broker were too long since its start."""
    _, body = cluster.get(BROKER, "/metrics")
    found = dict(re.findall(r'quorate_broker_turn_seconds_bucket\{le="([^"]+)"\} (\S+)', body.decode()))
    return int(float(found["+Inf"]) - float(found[str(TURN_S_MAX)]))


def create(cluster: HangingBrokers, topic: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic whose partitions the broker leads."""
    named = {name.replace("_", "."): value for name, value in settings.items()}
    admin = AdminClient(quiet(cluster.bootstrap))

    def created() -> bool:
        new = NewTopic(topic, partitions, 1, config=named)
        admin.create_topics([new], request_timeout=30)[topic].result()
        return True

    eventually(created, DEADLINE_S, f"topic {topic} is created")
    address = cluster.address(BROKER)
    eventually(
        lambda: (
            [each.error_code for each in partitions_as_seen_by(address, topic).values()] == [0] * partitions
        ),
        DEADLINE_S,
        f"the broker leads {topic}",
    )


def produce_body(topic: str, records: bytes, partition: int = 0) -> bytes:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return encode_request(
        PRODUCE, 9, {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": data}
    )


def pipeline(cluster: HangingBrokers, topic: str, batch: bytes, count: int) -> None:
    """Send batches one behind the other, without waiting for answers, then read those."""
    with BrokerLink(cluster.address(BROKER), timeout_s=DEADLINE_S) as link:
        body = produce_body(topic, batch)
        for _ in range(count):
            link.send(PRODUCE, 9, body)
        for _ in range(count - 1):
            link.frame()
        row = link.answer(PRODUCE, 9).responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (0, count - 1)


# -- the inputs ----------------------------------------------------------------------------------------------


def tiny_batches(cluster: HangingBrokers, topic: str) -> None:
    """Three requests of 89 KiB of batches that each claim as many records as a segment can have."""
    create(cluster, topic)
    with BrokerLink(cluster.address(BROKER), timeout_s=DEADLINE_S) as link:
        for _ in range(3):
            link.send(PRODUCE, 9, produce_body(topic, record_batch([b""]) * 1300))
            link.frame()


def rolls_on_a_slow_disk(cluster: HangingBrokers, topic: str) -> None:
    """Every second batch begins a segment, and waits for the fsync of the one before."""
    create(cluster, topic, segment_bytes="4096")
    cluster.ask(BROKER, SLOW_FSYNC, SLOW_FSYNC_S)
    pipeline(cluster, topic, record_batch([b"x" * 3000]), 6)
    assert cluster.has_met(BROKER, SLOW_FSYNC)


def a_checkpoint_on_a_slow_disk(cluster: HangingBrokers, topic: str) -> None:
    """High watermarks are written every five seconds."""
    create(cluster, topic)
    cluster.ask(BROKER, SLOW_FSYNC, SLOW_FSYNC_S)
    eventually(lambda: cluster.has_met(BROKER, SLOW_FSYNC), DEADLINE_S, "a checkpoint has met the slow disk")


def many_partitions_come_and_go(cluster: HangingBrokers, topic: str) -> None:
    """A thousand logs are made and deleted on a slow disk."""
    create(cluster, topic, 1000)
    cluster.ask(BROKER, SLOW_FSYNC, SLOW_FSYNC_S)
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.delete_topics([topic])[topic].result(DEADLINE_S)
    folder = cluster.brokers[BROKER].data_dir
    eventually(lambda: not [*folder.glob(f"{topic}-*")], DEADLINE_S, "their folders are gone")


def cold_reads(cluster: HangingBrokers, topic: str) -> None:
    """A consumer reads what is not in the page cache."""
    create(cluster, topic)
    pipeline(cluster, topic, record_batch([b"x" * 500_000]), 40)
    evict(cluster.brokers[BROKER].data_dir / f"{topic}-0")
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 25}
    values = {
        "replica_id": -1,
        "max_wait": 1000,
        "min_bytes": 1,
        "max_bytes": 1 << 25,
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    found = ask(cluster.address(BROKER), FETCH, 4, values)
    assert len(found.responses[0].partitions[0].records) > 19_000_000


def a_bomb_looked_up_by_time(cluster: HangingBrokers, topic: str) -> None:
    """ListOffsets by time unfolds the batch that may hold the time."""
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 10**12}
    values = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [partition]}],
    }
    found = ask(cluster.address(BROKER), LIST_OFFSETS, 5, values)
    assert found.topics[0].partitions[0].error_code == CORRUPT_MESSAGE


def one_name_repeated(cluster: HangingBrokers, topic: str) -> None:
    """Metadata with 23 KiB of one name, of a topic with many partitions."""
    create(cluster, topic, 300)
    names = [{"name": topic}] * (23 * 1024 // (len(topic) + 2))
    found = ask(cluster.address(BROKER), METADATA, 7, {"topics": names, "allow_auto_topic_creation": False})
    assert [len(each.partitions) for each in found.topics] == [300]


def one_partition_fetched_many_times(cluster: HangingBrokers, topic: str) -> None:
    """A Fetch that repeats a partition with records."""
    create(cluster, topic)
    pipeline(cluster, topic, record_batch([b"x" * 10_000]), 1)
    partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
    values = {
        "replica_id": -1,
        "max_wait": 1000,
        "min_bytes": 1,
        "max_bytes": 1 << 26,
        "topics": [{"topic": topic, "partitions": [partition] * REPEATS}],
    }
    with BrokerLink(cluster.address(BROKER), timeout_s=DEADLINE_S) as link:
        link.send(FETCH, 4, encode_request(FETCH, 4, values))
        assert len(link.frame()) < 2_000_000


def one_topics_settings_described_many_times(cluster: HangingBrokers, topic: str) -> None:
    """A DescribeConfigs that repeats a topic."""
    create(cluster, topic)
    resource = {"resource_type": 2, "resource_name": topic, "configuration_keys": None}
    values = {"resources": [resource] * REPEATS, "include_synonyms": True}
    assert len(ask(cluster.address(BROKER), DESCRIBE_CONFIGS, 2, values).results) == 1


def a_setting_that_the_quorum_cannot_take(cluster: HangingBrokers, topic: str) -> None:
    """CreateTopics with a setting of 1.1 MB."""
    setting = {"name": "follower.replication.throttled.replicas", "value": "0:1," * 275_000}
    new = {
        "name": topic,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": [],
        "configs": [setting],
    }
    values = {"topics": [new], "timeout": 30_000, "validate_only": False}
    found = ask(cluster.address(BROKER), CREATE_TOPICS, 5, values)
    assert found.topics[0].error_code == INVALID_CONFIG


def a_truncation_of_many(cluster: HangingBrokers, topic: str) -> int:
    """The broker wakes up as a follower of 200 partitions, and has a record of each that its leader lacks."""
    cluster.add_broker(OTHER)
    cluster.start_broker(OTHER)
    cluster.wait_ready(OTHER)
    admin = AdminClient(quiet(cluster.bootstrap))
    new = NewTopic(topic, TRUNCATED, replica_assignment=[[BROKER, OTHER]] * TRUNCATED)
    admin.create_topics([new], request_timeout=30)[topic].result(DEADLINE_S)
    for broker_id in (BROKER, OTHER):
        wait_until_led(cluster, topic, BROKER, broker_id)
    cluster.pause(OTHER)
    # A fetch that waits takes the first ones along.
    for _ in range(2):
        produce_to_all(cluster, BROKER, topic)
    cluster.pause(BROKER)
    cluster.resume(OTHER)
    wait_until_led(cluster, topic, OTHER, OTHER)
    produce_to_all(cluster, OTHER, topic)
    cluster.ask(BROKER, SLOW_FSYNC, SLOW_FSYNC_S)
    cluster.resume(BROKER)
    eventually(
        lambda: BROKER in {each for row in states(cluster, topic) for each in row["isr"]},
        DEADLINE_S,
        "the first ones are in sync",
    )
    assert cluster.has_met(BROKER, SLOW_FSYNC)
    cluster.mend(BROKER, SLOW_FSYNC)
    cluster.wait_in_sync(topic)
    assert cluster.metric(BROKER, "quorate_broker_truncations_total") == TRUNCATED
    cluster.stop(OTHER)
    cluster.remove_broker(OTHER)
    # The sleep.
    return 1


def wait_until_led(cluster: HangingBrokers, topic: str, leader: int, broker_id: int) -> None:
    """Wait until a broker knows that all partitions of a topic have this leader."""
    eventually(
        lambda: (
            [each.leader_id for each in partitions_as_seen_by(cluster.address(broker_id), topic).values()]
            == [leader] * TRUNCATED
        ),
        DEADLINE_S,
        f"broker {leader} leads {topic}",
    )


def produce_to_all(cluster: HangingBrokers, broker_id: int, topic: str) -> None:
    rows = [{"index": each, "records": record_batch([b"x"])} for each in range(TRUNCATED)]
    data = [{"name": topic, "partition_data": rows}]
    values = {"transactional_id": None, "acks": 1, "timeout": 30_000, "topic_data": data}
    found = ask(cluster.address(broker_id), PRODUCE, 9, values).responses[0].partition_responses
    assert [row.error_code for row in found] == [0] * TRUNCATED


def states(cluster: HangingBrokers, topic: str) -> list[dict[str, Any]]:
    return [cluster.state(topic, each) for each in range(TRUNCATED)]


def evict(folder: Path) -> None:
    """Have the page cache forget a log's records."""
    os.sync()
    for path in folder.glob("*.log"):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


INPUTS: list[Callable[[HangingBrokers, str], int | None]] = [
    tiny_batches,
    rolls_on_a_slow_disk,
    a_checkpoint_on_a_slow_disk,
    many_partitions_come_and_go,
    cold_reads,
    a_bomb_looked_up_by_time,
    one_name_repeated,
    one_partition_fetched_many_times,
    one_topics_settings_described_many_times,
    a_setting_that_the_quorum_cannot_take,
    a_truncation_of_many,
]


@pytest.mark.parametrize("send", INPUTS, ids=lambda send: send.__name__)
def test_no_input_holds_the_event_loop(
    cluster: HangingBrokers, send: Callable[[HangingBrokers, str], int | None]
) -> None:
    cluster.wait_ready()
    before = long_turns(cluster)
    try:
        with SecondLoop() as second:
            slept = send(cluster, send.__name__) or 0
            paused = late(second.watch)
    finally:
        cluster.mend(BROKER, SLOW_FSYNC)
    assert long_turns(cluster) - before <= paused + slept
    assert cluster.get(BROKER, "/readyz")[0] == 200


def late(watch: LoopWatch) -> int:
    """How many turns of a loop in this process were too long."""
    found = dict(watch.turns.buckets())
    return int(found["+Inf"] - found[str(TURN_S_MAX)])
