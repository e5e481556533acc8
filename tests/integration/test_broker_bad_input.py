"""Bad input to real brokers: the protocol's own error or a message with a remedy; others notice nothing.

Each test ends with a check that a connection from before still works and that what was acknowledged is there.
Source: Kafka protocol guide (error codes).
"""

from __future__ import annotations

import re
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from crc32c import crc32c

from tests.support.broker_cluster import BrokerCluster
from tests.support.broker_records import quiet
from tests.support.broker_wire import BrokerLink, ask, produce, record_batch
from tests.support.nodes import eventually

DEADLINE_S = 60.0
FRAME_BYTES_MAX = 1 << 20
TOPIC = "good"
FETCH, LIST_OFFSETS, FIND_COORDINATOR, DESCRIBE_ACLS = 1, 2, 10, 29
CORRUPT_MESSAGE, UNKNOWN_TOPIC_OR_PARTITION, MESSAGE_TOO_LARGE, SECURITY_DISABLED = 2, 3, 10, 54
UNSUPPORTED_FOR_MESSAGE_FORMAT, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, INVALID_RECORD = 43, 74, 75, 87


@pytest.fixture(scope="module")
def cluster() -> Iterator[BrokerCluster]:
    settings = {"limits": {"frame_bytes_max": FRAME_BYTES_MAX}}
    with BrokerCluster(brokers=1, settings=settings, session_timeout_ms=2000) as running, running.shown():
        admin = AdminClient(quiet(running.bootstrap))
        admin.create_topics([NewTopic(TOPIC, 1, 1)], operation_timeout=20)[TOPIC].result(30)
        yield running


@pytest.fixture
def unharmed(cluster: BrokerCluster) -> Iterator[BrokerLink]:
    """A connection from before; afterwards it still works, and all acknowledged records are there."""
    with BrokerLink(cluster.address(1)) as link:
        before = end_offset(link)
        yield link
        assert end_offset(link) == before
        row = produce(cluster.address(1), TOPIC, 0, record_batch([b"good"]))
        assert (row.error_code, row.base_offset) == (0, before)


def end_offset(link: BrokerLink) -> int:
    topics = [{"name": TOPIC, "partitions": [{"partition_index": 0, "timestamp": -1}]}]
    answer = link.ask(LIST_OFFSETS, 4, {"replica_id": -1, "isolation_level": 0, "topics": topics})
    return int(answer.topics[0].partitions[0].offset)


def spoil(batch: bytes, position: int) -> bytes:
    return batch[:position] + bytes([batch[position] ^ 1]) + batch[position + 1 :]


def with_records(content: bytes, *, count: int, codec: int = 0) -> bytes:
    """A batch with a right checksum over any bytes as its records."""
    header = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count)
    checksum = crc32c(header + content)
    return struct.pack(">qiibI", 0, 9 + len(header) + len(content), -1, 2, checksum) + header + content


GOOD = record_batch([b"one", b"two"])
#: of its records
GOOD_MS = 1_700_000_000_000
YEAR_3000_MS = 32_503_680_000_000
#: 256 MiB of zeros in 8 KiB
BOMB = bytes(cramjam.zstd.compress(bytes(256 << 20)))


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (spoil(GOOD, len(GOOD) - 1), CORRUPT_MESSAGE),
        (spoil(GOOD, 17), CORRUPT_MESSAGE),
        (GOOD[:-3], CORRUPT_MESSAGE),
        (GOOD[:16] + b"\1" + GOOD[17:], UNSUPPORTED_FOR_MESSAGE_FORMAT),
        (record_batch([b"x"], attributes=0x20), INVALID_RECORD),
        (record_batch([b"x"], attributes=0x10), INVALID_RECORD),
        (record_batch([bytes(500_000)] * 2), MESSAGE_TOO_LARGE),
        (GOOD + GOOD, INVALID_RECORD),
        (with_records(bytes(range(100)), count=3), INVALID_RECORD),
        (with_records(b"", count=2**31 - 1), INVALID_RECORD),
        (with_records(bytes(range(100)), count=3, codec=3), INVALID_RECORD),
        (with_records(BOMB, count=1, codec=4), INVALID_RECORD),
    ],
    ids=[
        *("record", "checksum", "torn", "old format", "control", "transaction", "too large"),
        *("two batches", "garbage", "a count of 2 to the 31st", "compressed garbage", "bomb"),
    ],
)
def test_a_batch_that_must_not_be_stored_gets_kafkas_error(
    cluster: BrokerCluster, unharmed: BrokerLink, records: bytes, code: int
) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    name = "small"
    if name not in admin.list_topics(timeout=20).topics:
        small = NewTopic(name, 1, 1, config={"max.message.bytes": "900000"})
        admin.create_topics([small], operation_timeout=20)[name].result(30)
    assert produce(cluster.address(1), name, 0, records).error_code == code


def with_max_timestamp(batch: bytes, timestamp_ms: int) -> bytes:
    """The same batch, whose header says another largest timestamp; with a right checksum."""
    checked = bytearray(batch[21:])
    struct.pack_into(">q", checked, 14, timestamp_ms)
    return batch[:17] + struct.pack(">I", crc32c(checked)) + checked


def listed(cluster: BrokerCluster, topic: str, timestamp_ms: int) -> tuple[int, int]:
    """(offset, timestamp) of the first record at or after a time; -3: of the newest."""
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp_ms}]}]
    values = {"replica_id": -1, "isolation_level": 0, "topics": topics}
    row = ask(cluster.address(1), LIST_OFFSETS, 7, values).topics[0].partitions[0]
    return row.offset, row.timestamp


@pytest.mark.parametrize("claimed_ms", [-1, YEAR_3000_MS], ids=["too little", "too much"])
def test_the_records_say_their_largest_time_whatever_the_header_says(
    cluster: BrokerCluster, unharmed: BrokerLink, claimed_ms: int
) -> None:
    """The one hid records from look-ups by time, the other kept a segment for ever."""
    topic = f"claims{claimed_ms}"
    admin = AdminClient(quiet(cluster.bootstrap))
    admin.create_topics([NewTopic(topic, 1, 1)], operation_timeout=20)[topic].result(30)
    batch = with_max_timestamp(GOOD, claimed_ms)
    assert produce(cluster.address(1), topic, 0, batch).error_code == 0
    assert [listed(cluster, topic, time_ms) for time_ms in (GOOD_MS, GOOD_MS + 1, -3)] == [
        *((0, GOOD_MS), (-1, -1), (0, GOOD_MS)),
    ]
    stored = bytes(fetched(cluster, topic, -1).records)
    assert stored[17:] == GOOD[17:]


@pytest.mark.parametrize(("topic", "partition"), [("never", 0), (TOPIC, 7)])
def test_an_unknown_partition_is_named_so(
    cluster: BrokerCluster, unharmed: BrokerLink, topic: str, partition: int
) -> None:
    assert produce(cluster.address(1), topic, partition, GOOD).error_code == UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize(("epoch", "code"), [(99, UNKNOWN_LEADER_EPOCH), (-1, 0)])
def test_a_fetch_of_another_leader_epoch_is_fenced(
    cluster: BrokerCluster, unharmed: BrokerLink, epoch: int, code: int
) -> None:
    assert fetch(cluster, epoch) == code


def fetch(cluster: BrokerCluster, leader_epoch: int) -> int:
    return int(fetched(cluster, TOPIC, leader_epoch).error_code)


def fetched(cluster: BrokerCluster, topic: str, leader_epoch: int) -> Any:
    partition = {
        "partition": 0,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": 0,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    values = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "topics": [{"topic": topic, "partitions": [partition]}],
    }
    return ask(cluster.address(1), FETCH, 9, values).responses[0].partitions[0]


def test_a_fetch_of_a_former_leader_epoch_is_fenced(cluster: BrokerCluster) -> None:
    epoch = cluster.state(TOPIC, 0)["leader_epoch"]
    cluster.kill(1)
    eventually(lambda: cluster.generation(1) == 0, DEADLINE_S, "its session has ended")
    cluster.start_broker(1)
    cluster.wait_ready()
    eventually(
        lambda: cluster.state(TOPIC, 0)["leader"] == 1 and cluster.state(TOPIC, 0)["leader_epoch"] > epoch,
        DEADLINE_S,
        "it leads in another epoch",
    )
    eventually(lambda: fetch(cluster, -1) == 0, DEADLINE_S, "it serves")
    assert fetch(cluster, epoch) == FENCED_LEADER_EPOCH


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">i", FRAME_BYTES_MAX + 1) + b"x",
        struct.pack(">i", -5),
        struct.pack(">i", 0),
        b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        struct.pack(">ihhi", 8, 9999, 0, 1),
        struct.pack(">ihhih", 10, 3, 9, 1, -1) + b"",
        struct.pack(">ihhihi", 14, 3, 1, 1, -1, 2**31 - 1),
    ],
    ids=["oversized", "negative", "empty", "http", "tls", "unknown key", "cut short", "huge array"],
)
def test_a_frame_that_is_no_request_ends_its_own_connection_only(
    cluster: BrokerCluster, unharmed: BrokerLink, sent: bytes
) -> None:
    with BrokerLink(cluster.address(1)) as link:
        link.socket.sendall(sent)
        link.socket.shutdown(socket.SHUT_WR)
        assert link.closed_by_broker()


@pytest.mark.parametrize("api_key", [4, 5, 6, 7])
def test_control_requests_are_not_for_clients(
    cluster: BrokerCluster, unharmed: BrokerLink, api_key: int
) -> None:
    with BrokerLink(cluster.address(1)) as link:
        link.send(api_key, {4: 6, 5: 3, 6: 7, 7: 3}[api_key], bytes(40))
        assert link.closed_by_broker()
    with BrokerLink(cluster.address(1)) as link:
        keys = {row.api_key for row in link.ask(18, 0, {}).api_keys}
    assert keys.isdisjoint({4, 5, 6, 7})


def test_nobody_is_served_on_the_broker_listener_without_a_proof(
    cluster: BrokerCluster, unharmed: BrokerLink
) -> None:
    address = f"127.0.0.1:{cluster.brokers[1].broker_port}"
    with BrokerLink(address) as link:
        link.send(6, 7, bytes(40))
        assert link.closed_by_broker()


def test_acl_requests_say_that_security_is_disabled(cluster: BrokerCluster, unharmed: BrokerLink) -> None:
    everything = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    assert ask(cluster.address(1), DESCRIBE_ACLS, 1, everything).error_code == SECURITY_DISABLED


@pytest.mark.parametrize(
    "settings",
    [
        {"cleanup.policy": "compacted"},
        {"compression.type": "brotli"},
        {"remote.storage.enable": "true"},
        {"no.such.setting": "1"},
        {"retention.ms": "x"},
        {"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"},
    ],
)
def test_a_topic_setting_that_is_not_offered_is_refused_by_name(
    cluster: BrokerCluster, unharmed: BrokerLink, settings: dict[str, str]
) -> None:
    admin = AdminClient(quiet(cluster.bootstrap))
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic("bad", 1, 1, config=settings)], operation_timeout=20)["bad"].result(30)
    error: Any = refused.value.args[0]
    assert error.code() == KafkaError.INVALID_CONFIG
    assert next(iter(settings)) in error.str()


# -- starts that are refused ---------------------------------------------------------------------------------


def refused_start(cluster: BrokerCluster, broker_id: int) -> str:
    code, output = cluster.run_to_end(broker_id)
    assert code != 0
    assert "remedy:" in output, output
    assert "Traceback" not in output, output
    return output


def hold_a_log(data_dir: Path) -> None:
    """Make a directory one with something to protect: without a log it may change its owner."""
    (data_dir / "orders-0").mkdir()


def test_a_data_directory_of_another_broker_is_refused(cluster: BrokerCluster, unharmed: BrokerLink) -> None:
    other = cluster.add_broker(41)
    other.settings["broker"] = {"id": 42}
    broker = cluster.add_broker(43)
    cluster.start_broker(41)
    cluster.wait_ready(41)
    cluster.stop(41)
    hold_a_log(other.data_dir)
    broker.settings["broker"] = {"data_dir": str(other.data_dir)}
    assert re.search(r"broker (id )?42", refused_start(cluster, 43))
    cluster.remove_broker(41)
    cluster.remove_broker(43)


def test_a_data_directory_in_use_is_refused(cluster: BrokerCluster, unharmed: BrokerLink) -> None:
    broker = cluster.add_broker(44)
    broker.settings["broker"] = {"data_dir": str(cluster.brokers[1].data_dir), "id": 1}
    assert "in use" in refused_start(cluster, 44)
    cluster.remove_broker(44)


def test_a_data_directory_of_another_cluster_is_refused(cluster: BrokerCluster, unharmed: BrokerLink) -> None:
    with BrokerCluster(brokers=1) as another:
        another.stop(1)
        hold_a_log(another.brokers[1].data_dir)
        broker = cluster.add_broker(45)
        broker.settings["broker"] = {"data_dir": str(another.brokers[1].data_dir), "id": 1}
        assert "cluster" in refused_start(cluster, 45)
        cluster.remove_broker(45)


def test_an_id_in_use_is_refused(cluster: BrokerCluster, unharmed: BrokerLink) -> None:
    broker = cluster.add_broker(46)
    broker.settings["broker"] = {"id": 1}
    assert "broker id 1 is taken" in refused_start(cluster, 46)
    cluster.remove_broker(46)


def test_an_unknown_key_of_the_configuration_is_refused_by_name(cluster: BrokerCluster) -> None:
    broker = cluster.add_broker(47)
    broker.settings["broker"] = {"log_dirs": "/tmp"}
    assert "broker.log_dirs" in refused_start(cluster, 47)
    cluster.remove_broker(47)
