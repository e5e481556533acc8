"""What idle transactional ids cost: the memory of nodes and of the coordinator, and its fail-over.

Three nodes and three brokers with the settings that are shipped. The coordinator is killed, and the next one
answers InitProducerId and AddPartitionsToTxn of a new id, with few ids and with many; that time has the
session of the killed broker in it. Many are written as an old coordinator leaves them. Knows no peers; times
are never asserted.
Source: ARCHITECTURE.md, "Life of a transaction".
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka.admin import AdminClient

from controller.wire.apis import ApiKey
from quorum.metadata import paths
from quorum.metadata.transaction_records import TransactionRecord, TransactionState
from tests.bench.cases import Row
from tests.bench.group_systems import QuorateBrokers
from tests.bench.idle import MB
from tests.bench.lone import create_in_sync
from tests.bench.machine import memory_bytes
from tests.bench.report import table
from tests.support.broker_wire import ask
from tests.support.nodes import eventually
from tests.support.wire_load import CREATE, GET_DATA, Connection, create_body, frame, read_body

DEADLINE_S: Final = 120.0
IN_FLIGHT: Final = 256
TIMEOUT_MS: Final = 900_000
MINUTE_S: Final = 60.0
TOPIC: Final = "ids"


class Sizes(NamedTuple):
    """How much is done."""

    ids: int = 100_000

    def rows(self) -> list[Row]:
        """Everything that is measured."""
        many = f"{self.ids:,} idle ids"
        fail_over = [
            Row(f"the coordinator is killed, {count}: {what}", "s")
            for count in ("few ids", many)
            for what in ("InitProducerId is answered", "and AddPartitionsToTxn", "the longest turn since")
        ]
        memory = [
            Row(f"memory of {what}, {count}", "MB")
            for what in ("a node", "the coordinator")
            for count in ("few ids", many)
        ]
        return [*fail_over, *memory, Row(f"{many}: bytes that they count", "MB")]


FULL: Final = Sizes()
TINY: Final = Sizes(20)


def fill(host: str, count: int) -> None:
    """Write so many ids whose last transaction was committed a minute ago, as a Flink job leaves them."""
    committed_ms = int((time.time() - MINUTE_S) * 1000)
    state = TransactionState.COMPLETE_COMMIT
    with Connection(host) as client:
        frames = []
        for number in range(count):
            record = TransactionRecord(
                *(10**6 + number, 0, -1, -1, TIMEOUT_MS, state, committed_ms, committed_ms + 1)
            )
            path = paths.transaction_path(f"flink-sink-0-{number}")
            frames.append(frame(number + 1, CREATE, create_body(path, record.encode())))
        client.pipelined(frames, IN_FLIGHT)


class Ids:
    """What was measured."""

    def __init__(self, brokers: QuorateBrokers, sizes: Sizes) -> None:
        """Measure running brokers."""
        self._brokers = brokers
        self._sizes = sizes
        self._hosts = brokers.metadata_hosts.split(",")
        self.samples: dict[tuple[str, str], list[float]] = {}

    def run(self) -> None:
        """Measure everything."""
        create_in_sync(AdminClient({"bootstrap.servers": ",".join(self._brokers.addresses)}), TOPIC, 1)
        self._measure("few ids")
        fill(self._hosts[0], self._sizes.ids)
        self._measure(many := f"{self._sizes.ids:,} idle ids")
        self._note(f"{many}: bytes that they count", self._brokers.metric("quorate_groups_bytes") / MB)

    def _note(self, name: str, value: float) -> None:
        self.samples[name, "Quorate"] = [value]

    def _coordinator(self) -> int:
        """Return who coordinates; 0: nobody."""
        with Connection(self._hosts[0]) as client:
            client.sync()
            error, _, body = client.call(GET_DATA, read_body(paths.COORDINATOR))
            if error:
                return 0
            length = int.from_bytes(body[:4])
            return int(json.loads(body[4 : 4 + length])["brokerid"])

    def _measure(self, count: str) -> None:
        victim = self._coordinator()
        address = dict(zip(self._brokers.broker_ids, self._brokers.addresses, strict=True))
        self._brokers.kill(address[victim])
        killed_s = time.monotonic()

        def until(what: Callable[[int], Any]) -> Any:
            found: list[Any] = []

            def look() -> bool:
                coordinator = self._coordinator()
                found.append(what(coordinator) if coordinator not in (0, victim) else None)
                return found[-1] is not None

            eventually(look, DEADLINE_S, "the next coordinator answers")
            return found[-1]

        name = f"after-{len(self.samples)}"

        def init(coordinator: int) -> tuple[int, int] | None:
            values = {"transactional_id": name, "transaction_timeout": TIMEOUT_MS}
            answer = ask(address[coordinator], ApiKey.INIT_PRODUCER_ID, 4, values)
            return None if answer.error_code else (int(answer.producer_id), int(answer.producer_epoch))

        prefix = f"the coordinator is killed, {count}: "
        producer_id, epoch = until(init)
        self._note(f"{prefix}InitProducerId is answered", time.monotonic() - killed_s)

        def add(coordinator: int) -> bool | None:
            values = {
                "v3_and_below_transactional_id": name,
                "v3_and_below_producer_id": producer_id,
                "v3_and_below_producer_epoch": epoch,
                "v3_and_below_topics": [{"name": TOPIC, "partitions": (0,)}],
            }
            answer = ask(address[coordinator], ApiKey.ADD_PARTITIONS_TO_TXN, 3, values)
            (row,) = answer.results_by_topic_v3_and_below
            return None if row.results_by_partition[0].partition_error_code else True

        until(add)
        self._note(f"{prefix}and AddPartitionsToTxn", time.monotonic() - killed_s)
        coordinator = self._coordinator()
        self._note(f"{prefix}the longest turn since", self._brokers.longest_turn_s(coordinator))
        pid = self._brokers.pid(coordinator)
        self._note(f"memory of the coordinator, {count}", memory_bytes(pid)[1] / MB)
        nodes = max(memory_bytes(each)[1] for each in self._brokers.node_pids) / MB
        self._note(f"memory of a node, {count}", nodes)
        self._brokers.revive()


def run(folder: Path, sizes: Sizes = FULL) -> list[str]:
    """Measure everything; returns the lines of the report."""
    brokers = QuorateBrokers(folder)
    try:
        found = Ids(brokers, sizes)
        found.run()
    finally:
        brokers.close()
    return ["", *table(sizes.rows(), ["Quorate"], found.samples)]
