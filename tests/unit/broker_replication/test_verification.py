"""A leader asks the coordinator before it appends the first record of a transaction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
import pytest_asyncio

from broker.log.batches import TRANSACTIONAL
from broker.replication import verifying
from broker.replication.outcomes import ProduceOutcome
from broker.replication.settings import apply_broker_settings
from broker.wire.codec import decode_request, encode_response
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from controller.wire.connection import BrokerConnectionLostError
from quorum.metadata.broker_settings import BrokerSettings
from quorum.metadata.paths import PartitionKey
from tests.unit.broker_log.samples import batch
from tests.unit.broker_replication.cluster import KEY, QUICK, Brokers, TestBroker, brokers, until

ID = 7
VERIFIED = replace(QUICK, verifies_transactions=True)
#: As the coordinator's broker knows a claim.
Row = tuple[str, int, int, PartitionKey]


class Coordinator:
    """Answers as the test says; holds its answers back while it is shut."""

    def __init__(self, broker: TestBroker) -> None:
        verifier = broker.parts.verifier
        verifier._connect = self.connect  # type: ignore[assignment]
        verifier.attach(lambda: 9)
        self.requests: list[list[Row]] = []
        self.code: Callable[[Row], ErrorCode] = lambda _: ErrorCode.NONE
        self.open = asyncio.Event()
        self.open.set()
        self.closed = False

    async def connect(self, broker_id: int) -> Coordinator:
        assert broker_id == 9
        self.closed = False
        return self

    def close(self) -> None:
        self.closed = True

    async def request(
        self, api_key: int, version: int, body: bytes, *, flexible: bool, timeout_ms: int
    ) -> memoryview:
        assert (api_key, flexible, timeout_ms > 0) == (ApiKey.ADD_PARTITIONS_TO_TXN, True, True)
        assert not self.closed
        asked = decode_request(api_key, version, body)
        rows = [
            (each.transactional_id, each.producer_id, each.producer_epoch, PartitionKey(topic.name, index))
            for each in asked.transactions
            for topic in each.topics
            for index in topic.partitions
            if each.verify_only
        ]
        self.requests.append(rows)
        await self.open.wait()
        results = [
            {
                "transactional_id": row[0],
                "topic_results": [
                    {
                        "name": row[3].topic,
                        "results_by_partition": [
                            {"partition_index": row[3].partition, "partition_error_code": self.code(row)}
                        ],
                    }
                ],
            }
            for row in rows
        ]
        return memoryview(
            encode_response(api_key, version, {"error_code": 0, "results_by_transaction": results})
        )

    def all(self) -> list[Row]:
        return [row for rows in self.requests for row in rows]


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, 1, options=VERIFIED) as running:
        await running.elect(1, [1])
        yield running


def sending(
    broker: TestBroker, sequence: int, epoch: int = 0, *, producer_id: int = ID, timeout_ms: int = 10_000
) -> asyncio.Task[ProduceOutcome]:
    records = batch(producer=(producer_id, epoch, sequence), attributes=TRANSACTIONAL)

    async def send() -> ProduceOutcome:
        found = await broker.parts.producing.produce(
            {KEY: records}, acks=-1, timeout_ms=timeout_ms, transactional_id=f"t{producer_id}"
        )
        return found[KEY]

    return asyncio.create_task(send())


async def mark(broker: TestBroker, epoch: int = 0) -> ErrorCode:
    outcomes = await broker.parts.producing.write_markers(
        *([KEY], ID, epoch), is_commit=False, coordinator_epoch=1, timeout_ms=10_000
    )
    return outcomes[KEY].error_code


async def codes(tasks: Iterable[asyncio.Task[ProduceOutcome]]) -> list[ErrorCode]:
    return [(await each).error_code for each in tasks]


async def test_the_first_batch_of_a_transaction_is_asked_for(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    for _ in range(2):
        sequence = 2 * len(coordinator.requests)
        assert (await sending(leader, sequence)).error_code is ErrorCode.NONE
        assert (await sending(leader, sequence + 1)).error_code is ErrorCode.NONE
        assert await mark(leader) is ErrorCode.NONE
    assert (await leader.produce(b"plain")).error_code is ErrorCode.NONE
    assert coordinator.requests == [[("t7", ID, 0, KEY)]] * 2
    # Another epoch has its own.
    assert (await sending(leader, 0, 1)).error_code is ErrorCode.NONE
    assert coordinator.requests[2:] == [[("t7", ID, 1, KEY)]]


@pytest.mark.parametrize(
    ("answered", "expected"),
    [
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
async def test_a_refused_batch_is_not_appended(
    cluster: Brokers, answered: ErrorCode, expected: ErrorCode
) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.code = lambda _: answered
    assert await codes([sending(leader, 0), sending(leader, 1)]) == [expected] * 2
    assert leader.log.log_end_offset == 0
    coordinator.code = lambda _: ErrorCode.NONE
    assert (await sending(leader, 0)).base_offset == 0


async def test_what_waits_is_asked_in_one_request(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    first = sending(leader, 0)
    await until(lambda: coordinator.requests)
    others = [sending(leader, 0, producer_id=each) for each in (8, 9, 10)]
    others += [sending(leader, 1, producer_id=8)]
    await asyncio.sleep(0)
    coordinator.open.set()
    assert await codes([first, *others]) == [ErrorCode.NONE] * 5
    assert [len(rows) for rows in coordinator.requests] == [1, 3]


async def test_others_do_not_wait_for_the_coordinator(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    waiting = [sending(leader, each) for each in range(3)]
    await until(lambda: coordinator.requests)
    assert (await leader.produce(b"other")).base_offset == 0
    coordinator.open.set()
    assert [(await each).base_offset for each in waiting] == [1, 2, 3]


async def test_a_marker_in_between_voids_the_answer(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    waiting = [sending(leader, each) for each in range(2)]
    await until(lambda: coordinator.requests)
    assert await mark(leader) is ErrorCode.NONE
    assert await codes(waiting) == [ErrorCode.INVALID_TXN_STATE] * 2
    coordinator.open.set()
    assert (await sending(leader, 0)).base_offset == 1
    assert len(coordinator.requests) == 2


async def test_a_marker_of_a_later_epoch_fences_what_waits(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    waiting = sending(leader, 0)
    await until(lambda: coordinator.requests)
    assert await mark(leader, epoch=1) is ErrorCode.NONE
    problem = "producer 7 with epoch 0: a newer producer has taken the id, with epoch 1"
    expected = ErrorCode.INVALID_PRODUCER_EPOCH, problem
    assert (await waiting)[::4] == expected
    coordinator.open.set()
    # What comes later is refused by the log.
    assert (await sending(leader, 0))[::4] == expected
    assert len(coordinator.requests) == 1


async def test_a_producer_that_the_coordinator_fences_reads_why(cluster: Brokers) -> None:
    coordinator = Coordinator(cluster[1])
    coordinator.code = lambda _: ErrorCode.PRODUCER_FENCED
    refused = await sending(cluster[1], 0)
    assert refused.message == "'t7', producer 7 with epoch 0: a newer producer has taken the transactional id"


async def test_a_step_down_voids_the_answer(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    waiting = sending(leader, 0)
    await until(lambda: coordinator.requests)
    leader.parts.registry.step_down()
    assert (await waiting).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    await cluster.elect(1, [1])
    again = sending(leader, 0)
    await until(lambda: leader.parts.producing._appends == 2)
    # The first answer may be older than a marker of another leader.
    coordinator.code = lambda _: (
        ErrorCode.NONE if len(coordinator.requests) == 1 else ErrorCode.INVALID_TXN_STATE
    )
    coordinator.open.set()
    assert (await again).error_code is ErrorCode.INVALID_TXN_STATE
    assert (leader.parts.producing._appends, leader.log.log_end_offset) == (0, 0)


async def test_a_later_batch_does_not_pass_a_refused_one(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.code = lambda _: ErrorCode.CONCURRENT_TRANSACTIONS
    assert (await sending(leader, 3)).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    coordinator.code = lambda _: ErrorCode.NONE
    assert (await sending(leader, 4)).error_code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert await codes([sending(leader, 3), sending(leader, 4)]) == [ErrorCode.NONE] * 2


@pytest.mark.parametrize(
    ("epoch", "code"), [(0, ErrorCode.INVALID_TXN_STATE), (1, ErrorCode.INVALID_PRODUCER_EPOCH)]
)
async def test_a_batch_behind_a_marker_begins_nothing(cluster: Brokers, epoch: int, code: ErrorCode) -> None:
    leader = cluster[1]
    Coordinator(leader)
    assert (await sending(leader, 0)).error_code is ErrorCode.NONE
    disk = asyncio.Event()
    log = leader.log

    async def before_append(_size_bytes: int, _records_count: int) -> None:
        await disk.wait()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "must_wait", lambda *_: True)
        patch.setattr(log, "before_append", before_append)
        marking = asyncio.create_task(mark(leader, epoch))
        await asyncio.sleep(0)
        late = sending(leader, 1)
        await asyncio.sleep(0)
        disk.set()
        assert await marking is ErrorCode.NONE
        assert (await late).error_code is code
    assert (leader.log.log_end_offset, leader.replica.last_stable_offset) == (2, 2)


async def test_an_older_epoch_does_not_wait_with_a_newer(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    first = sending(leader, 0, 1)
    await until(lambda: coordinator.requests)
    assert (await sending(leader, 0, 0)).error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    newest = sending(leader, 0, 2)
    assert (await first).error_code is ErrorCode.INVALID_PRODUCER_EPOCH
    coordinator.open.set()
    assert (await newest).base_offset == 0


@pytest.mark.parametrize(
    ("timeout_ms", "bounds_ms"),
    [(60_000, (1, 50)), (1, (50, 60_000))],
    ids=["a producer waits for long", "it waits no more"],
)
async def test_a_silent_coordinator_costs_a_bounded_time(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch, timeout_ms: int, bounds_ms: tuple[int, int]
) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    monkeypatch.setattr(verifying, "_TIMEOUT_MIN_MS", bounds_ms[0])
    monkeypatch.setattr(verifying, "_TIMEOUT_MAX_MS", bounds_ms[1])
    coordinator.open.clear()
    late = sending(leader, 0, timeout_ms=timeout_ms)
    assert (await late).error_code in (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT)
    await until(lambda: coordinator.closed)
    coordinator.open.set()
    assert (await sending(leader, 0)).error_code is ErrorCode.NONE


async def test_a_coordinator_that_is_replaced_is_not_waited_for(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    monkeypatch.setattr(verifying, "_TIMEOUT_MAX_MS", 3_600_000)
    holders: list[int | None] = [9]
    leader.parts.verifier.attach(lambda: holders[-1])
    coordinator.open.clear()
    asked = sending(leader, 0, timeout_ms=3_600_000)
    await until(lambda: bool(coordinator.requests))
    holders.append(None)
    assert (await asked).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert coordinator.closed


async def test_a_lost_connection_is_opened_again(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])

    def lose(_: Row) -> ErrorCode:
        raise BrokerConnectionLostError("gone", "unknown")

    coordinator.code = lose
    assert (await sending(leader, 0)).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert coordinator.closed
    coordinator.code = lambda _: ErrorCode.NONE
    assert (await sending(leader, 0)).error_code is ErrorCode.NONE


async def test_without_a_coordinator_the_producer_tries_again(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    leader.parts.verifier.attach(lambda: None)
    assert (await sending(leader, 0)).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert coordinator.all() == []


async def test_verification_is_switched_while_the_broker_runs(cluster: Brokers) -> None:
    leader, coordinator = cluster[1], Coordinator(cluster[1])
    coordinator.open.clear()
    asked = sending(leader, 0)
    await until(lambda: bool(coordinator.requests))
    apply_broker_settings(leader.parts, BrokerSettings(verifies_transactions=False))
    # A batch of the producer that is asked about keeps its place behind that.
    behind = sending(leader, 1)
    assert (await sending(leader, 0, producer_id=ID + 1)).error_code is ErrorCode.NONE
    assert not behind.done()
    coordinator.open.set()
    assert await codes([asked, behind]) == [ErrorCode.NONE] * 2
    apply_broker_settings(leader.parts, BrokerSettings())
    coordinator.code = lambda _: ErrorCode.INVALID_TXN_STATE
    assert (await sending(leader, 0, producer_id=ID + 2)).error_code is ErrorCode.INVALID_TXN_STATE
