"""What transactions leave in the quorum's change log, and whether that stays within its bounds meanwhile.

First a producer of librdkafka ends transactions, one after the other, on three brokers: how many bytes each
leaves in a node's change log, and how many of them are states of transactional ids. Then values as large are
written to three nodes as fast as one connection can, where the change log may hold little: the largest that
its folder ever is. From both follows how long the history reaches back. Knows no peers; nothing is asserted.
Source: docs/reference/http.md, "The change log".
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgpack
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from quorum.changelog.blocks import body_of, scan
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from quorum.metadata.transaction_records import TransactionRecord, TransactionState
from tests.bench.cases import Row
from tests.bench.group_systems import QuorateBrokers
from tests.bench.idle import MB
from tests.bench.lone import create_in_sync
from tests.bench.machine import READY_DEADLINE_S
from tests.bench.report import table
from tests.support.nodes import QuorateNodes
from tests.support.wire_load import (
    CHECK,
    MULTI,
    SET_DATA,
    Connection,
    check_body,
    frame,
    multi_body,
    node_path,
    set_body,
)

DEADLINE_S: Final = 120.0
IN_FLIGHT: Final = 64
#: Writes between two looks at the folder.
LOOKED_AT: Final = 200
SMALL_BYTES: Final = 8 * 1024 * 1024
#: Of a state's writes a transaction has three: open, decided, complete.
WRITES: Final = 3
TOPIC: Final = "history"
FOLDER: Final = "/states"
#: The default of changelog.retention_bytes_max.
SHIPPED_BYTES: Final = 256 * 1024 * 1024

LEFT: Final = Row("a transaction leaves in the change log, KB", "")
SHARE: Final = Row("of that states of transactional ids, %", "")
RATE: Final = Row("values as large written by one connection", "/s")
BOUND: Final = Row("the change log may hold, the newest file included", "MB")
LARGEST: Final = Row("the largest that its folder was", "MB")
BACK: Final = Row("256 MiB reach back at 1,000 transactions a second", "s")
ROWS: Final = (LEFT, SHARE, RATE, BOUND, LARGEST, BACK)


class Sizes(NamedTuple):
    """How much is done."""

    transactions: int = 300
    writes: int = 50_000
    ids: int = 1000


FULL: Final = Sizes()
TINY: Final = Sizes(3, 400, 10)


class _Readable(NamedTuple):
    """A file of a change log, as `scan` reads it."""

    content: bytes

    def pread(self, size: int, offset: int) -> bytes:
        return self.content[offset : offset + size]


def traced(folder: Path) -> Iterator[tuple[int, int]]:
    """Yield (bytes of a block, of which are changes of transactional ids), of all blocks of a change log."""
    for path in sorted(folder.glob("*.changes")):
        content = path.read_bytes()
        for _, block in scan(_Readable(content), 0, len(content)):
            states = [
                each
                for each in body_of(block).trace
                if len(each) == 4 and each[1].startswith(paths.TRANSACTIONS + "/")
            ]
            yield block.size, len(msgpack.packb(states)) - 1 if states else 0


def transact(brokers: QuorateBrokers, count: int) -> dict[str, float]:
    """End transactions of one record; returns {name of a row: value}."""
    servers = ",".join(brokers.addresses)
    create_in_sync(AdminClient({"bootstrap.servers": servers}), TOPIC, 1)
    producer = Producer({"bootstrap.servers": servers, "transactional.id": "bench", "linger.ms": 0})
    producer.init_transactions(DEADLINE_S)
    folder = brokers.changelog
    brokers.take_snapshot()
    before = sum(size for size, _ in traced(folder)), sum(states for _, states in traced(folder))
    for _ in range(count):
        producer.begin_transaction()
        producer.produce(TOPIC, b"x" * 100)
        producer.commit_transaction(DEADLINE_S)
    # A snapshot comes behind all that was recorded before.
    brokers.take_snapshot()
    found = list(traced(folder))
    left = sum(size for size, _ in found) - before[0]
    states = sum(each for _, each in found) - before[1]
    back_s = SHIPPED_BYTES / (1000 * left / count)
    return {LEFT.name: left / count / 1000, SHARE.name: 100 * states / left, BACK.name: back_s}


def flood(nodes: QuorateNodes, sizes: Sizes) -> dict[str, float]:
    """Write states as fast as may be; returns {name of a row: value}."""
    folder = nodes.nodes[nodes.leader()].data_dir / "changelog"
    largest = 0

    def look(index: int, _zxid: int, _body: bytes) -> None:
        nonlocal largest
        if index % LOOKED_AT == 0:
            largest = max(largest, sum(each.stat().st_size for each in there(folder)))

    now_ms = int(time.time() * 1000)
    record = TransactionRecord(
        *(10**6, 0, -1, -1, 60_000, TransactionState.ONGOING, now_ms, now_ms),
        frozenset((PartitionKey(TOPIC, 0),)),
    ).encode()
    with Connection(nodes.host(nodes.leader()), timeout_s=DEADLINE_S) as client:
        client.ensure(FOLDER)
        for number in range(sizes.ids):
            client.ensure(node_path(FOLDER, number))
        frames = [
            frame(
                xid, MULTI, multi_body([(CHECK, check_body(FOLDER, 0)), (SET_DATA, set_body(path, record))])
            )
            for xid in range(1, sizes.writes + 1)
            for path in [node_path(FOLDER, xid % sizes.ids)]
        ]
        took_s = client.pipelined(frames, IN_FLIGHT, look)
    bound = SMALL_BYTES + SMALL_BYTES / 16
    return {RATE.name: sizes.writes / took_s, BOUND.name: bound / MB, LARGEST.name: largest / MB}


def there(folder: Path) -> Iterator[Any]:
    """Yield what is in a folder, but for what goes meanwhile."""
    for each in list(folder.iterdir()):
        if each.exists():
            yield each


def run(folder: Path, sizes: Sizes = FULL) -> list[str]:
    """Measure everything; returns the lines of the report."""
    (folder / "brokers").mkdir()
    (folder / "nodes").mkdir()
    brokers = QuorateBrokers(folder / "brokers")
    try:
        found = transact(brokers, sizes.transactions)
    finally:
        brokers.close()
    small = {"changelog": {"retention_bytes_max": SMALL_BYTES}}
    with QuorateNodes(folder=folder / "nodes", cluster="bench", settings=small) as nodes:
        nodes.wait_ready(deadline_s=READY_DEADLINE_S)
        found |= flood(nodes, sizes)
    samples = {(name, "Quorate"): [value] for name, value in found.items()}
    return ["", *table(ROWS, ["Quorate"], samples)]
