"""What every replica of some topics holds, read from the disks of stopped brokers."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

from broker.datadir.directory import LogDirectory
from broker.log.batches import CONTROL, TRANSACTIONAL, checked_batches
from broker.log.opened import opened
from broker.log.partition_log import PartitionLog
from quorum.metadata.paths import PartitionKey
from quorum.metadata.topic_settings import TopicSettings
from tests.support.broker_cluster import BrokerCluster


class Held(NamedTuple):
    """One record that is not aborted."""

    offset: int
    key: int
    #: None: a tombstone
    number: int | None


#: {(broker, partition): its records}; those replicas that there are
Replicas = dict[tuple[int, PartitionKey], list[Held]]


def held(brokers: BrokerCluster, topics: Collection[str], width: int) -> Replicas:
    """Stop every broker, read what it holds in the order of each log, and start it again.

    Args:
        brokers: with replicas that are in sync.
        topics: compacted ones, whose records have numbers as keys and as values, and no headers.
        width: digits of a value.
    """
    brokers.stop(*brokers.brokers)
    found = {
        (broker_id, key): records
        for broker_id, broker in brokers.brokers.items()
        for key, records in _read_directory(broker_id, broker.data_dir, topics, width)
    }
    for broker_id in brokers.brokers:
        brokers.start_broker(broker_id)
    brokers.wait_ready()
    return found


def _read_directory(
    broker_id: int, data_dir: Path, topics: Collection[str], width: int
) -> Iterator[tuple[PartitionKey, list[Held]]]:
    text = (data_dir / "meta.properties").read_text()
    properties = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    directory = LogDirectory.open(
        data_dir,
        broker_id=broker_id,
        cluster_id=properties["cluster.id"],
        settings_of=lambda _topic: TopicSettings(cleanup_policy="compact"),
    )
    try:
        for key, log in sorted(directory.logs.items()):
            if key.topic in topics:
                yield key, list(_read_log(key, log, width))
    finally:
        directory.abandon()


def _read_log(key: PartitionKey, log: PartitionLog, width: int) -> Iterator[Held]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        read = log.segments.read(offset, 1 << 20, below=1 << 60, at_least_one=True, with_aborted=True)
        position = 0
        for header in checked_batches(memoryview(read.records)):
            batch = read.records[position : position + header.size]
            position, offset = position + header.size, header.last_offset + 1
            is_aborted = header.attributes & TRANSACTIONAL and any(
                each.producer_id == header.producer_id
                and each.first_offset <= header.base_offset <= each.last_offset
                for each in read.aborted or ()
            )
            if not header.records_count or header.attributes & CONTROL or is_aborted:
                continue
            for record in opened(header, batch):
                assert record.key is not None, f"{key}: a record without a key is at {header.base_offset}"
                # The value comes before one byte: there are no headers.
                number = int(record.whole[-width - 1 : -1]) if record.has_value else None
                yield Held(header.base_offset + record.offset_delta, int(record.key), number)
