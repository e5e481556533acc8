"""Batches of one partition keep their order, whatever one of them waits for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from broker.core.replica_inputs import SettingsChanged
from broker.log.errors import LogStorageError
from broker.replication import producing
from broker.replication.outcomes import ProduceOutcome
from broker.server.handlers import ApiHandlers
from broker.server.listener import Listener
from broker.wire.codec import decode_response, encode_request
from controller.wire.apis import ApiKey
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.platform.listening import bind
from tests.support.broker_services import services
from tests.support.broker_wire import record_batch
from tests.support.frames import pack_request
from tests.unit.broker_log.samples import (
    GZIP,
    LZ4,
    NONE,
    NOW_MS,
    SNAPPY,
    ZSTD,
    altered,
    batch,
    headers,
    varint,
)
from tests.unit.broker_replication.cluster import KEY, Brokers, TestBroker, brokers, until


class Gate:
    """Holds the appends of a log back, each until the test lets it go."""

    def __init__(self, log: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.closed = True
        self.held: list[asyncio.Future[None]] = []
        monkeypatch.setattr(log, "before_append", self.before_append)
        monkeypatch.setattr(log, "must_wait", self.must_wait)

    def must_wait(self, _size_bytes: int, _records_count: int) -> bool:
        return self.closed

    async def before_append(self, _size_bytes: int, _records_count: int) -> None:
        while self.closed:
            self.held.append(asyncio.get_running_loop().create_future())
            await self.held[-1]

    def open(self) -> None:
        self.closed = False
        self.let_go()

    def let_go(self) -> None:
        for each in self.held:
            each.set_result(None)
        self.held.clear()


@pytest_asyncio.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Brokers]:
    async with brokers(tmp_path, 1) as running:
        await running.elect(1, [1])
        yield running


async def produces(broker: TestBroker, *values: bytes, acks: int = -1) -> list[asyncio.Task[ProduceOutcome]]:
    """Begin a produce for each value, one after the other."""
    tasks = [asyncio.create_task(broker.produce(value, acks=acks)) for value in values]
    await asyncio.sleep(0)
    # The first of them is at its turn.
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("acks", [-1, 0, 1])
async def test_batches_wait_behind_one_that_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch, acks: int
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"first", acks=acks)
    gate.closed = False
    tasks += await produces(cluster[1], b"second", b"third", acks=acks)
    assert cluster[1].log.log_end_offset == 0
    gate.open()
    assert [(await each).base_offset for each in tasks] == [0, 1, 2]
    values = cluster[1].values()
    assert values.index(b"first") < values.index(b"second") < values.index(b"third")
    # With nothing that waits, a batch is in the log before its request gives way.
    await produces(cluster[1], b"fourth", acks=acks)
    assert cluster[1].log.log_end_offset == 4


async def test_one_partition_does_not_wait_for_another(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    missing = PartitionKey("orders", 9)
    batches = {missing: record_batch([b"x"]), KEY: record_batch([b"y"])}
    parts = cluster[1].parts
    task = asyncio.create_task(parts.producing.produce(batches, acks=-1, timeout_ms=10_000))
    await until(lambda: gate.held)
    assert not task.done()
    gate.open()
    outcomes = await task
    assert outcomes[missing].error_code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert outcomes[KEY].error_code is ErrorCode.NONE


async def test_an_idempotent_producers_sequence_is_judged_in_its_turn(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    parts = cluster[1].parts
    tasks = [
        asyncio.create_task(
            parts.producing.produce(
                {KEY: record_batch([b"v"], producer=(9, 0, sequence))}, acks=-1, timeout_ms=9000
            )
        )
        for sequence in (*range(5), 4)
    ]
    await asyncio.sleep(0)
    gate.open()
    assert [(await each)[KEY].base_offset for each in tasks] == [0, 1, 2, 3, 4, 4]


async def test_leader_that_steps_down_answers_what_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    cluster[1].parts.control.detach()
    for each in tasks:
        assert (await each).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # In its next leadership the log goes on without them.
    gate.closed = False
    cluster[1].parts.control.attach(cluster[1].client, cluster[1].generation)
    await cluster.elect(1, [1])
    later = await produces(cluster[1], b"c")
    gate.open()
    assert (await later[0]).base_offset == 0
    assert cluster[1].log.log_end_offset == 1


async def test_replica_that_is_removed_answers_what_waits(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a")
    control = cluster[1].parts.control
    control.close(cluster[1].replica)
    assert (await tasks[0]).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    gate.open()


async def test_isr_is_judged_in_the_turn_of_the_append(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a")
    tasks += await produces(cluster[1], b"b", acks=1)
    cluster[1].replica.step(SettingsChanged(2))
    gate.open()
    assert (await tasks[0]).error_code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert (await tasks[1]).base_offset == 0


async def test_request_that_ended_in_time_changes_nothing_later(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    assert (await cluster[1].produce(b"a", timeout_ms=0)).error_code is ErrorCode.REQUEST_TIMED_OUT
    left = (await produces(cluster[1], b"b"))[0]
    left.cancel()
    gate.open()
    # Both have their places all the same.
    assert (await cluster[1].produce(b"c")).base_offset == 2
    assert cluster[1].replica.waiters.produces == {}
    assert cluster[1].parts.producing.waiting == 0


async def test_what_waits_holds_no_frame_of_its_request(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    for whole in (batch(), batch([NOW_MS] * 1_000, value=b"x" * 1_000, codec=LZ4)):
        frame = bytearray(whole + bytes(1000))
        view = memoryview(frame)[: len(whole)]
        found = await cluster[1].parts.producing.produce({KEY: view}, acks=-1, timeout_ms=0)
        assert found[KEY].error_code is ErrorCode.REQUEST_TIMED_OUT
        del view
        # Refused while anything looks at it.
        frame.clear()
    gate.open()
    assert (await cluster[1].produce(b"c")).base_offset == 1001


async def test_what_waits_is_bounded(cluster: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    monkeypatch.setattr(producing, "APPENDS_BYTES_MAX", 250)
    tasks = await produces(cluster[1], b"x" * 100, b"y" * 100, b"z")
    refused = await tasks[1]
    assert refused.error_code is ErrorCode.REQUEST_TIMED_OUT
    assert "nothing was appended" in (refused.message or "")
    gate.open()
    assert ((await tasks[0]).base_offset, (await tasks[2]).base_offset) == (0, 1)
    assert (await cluster[1].produce(b"y" * 100)).base_offset == 2


async def test_a_disk_that_fails_while_batches_wait_is_reported(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    gate.held[0].set_exception(LogStorageError("the disk is full"))
    for each in tasks:
        assert (await each).error_code is ErrorCode.KAFKA_STORAGE_ERROR
    assert [str(each) for each in cluster[1].failures] == ["the disk is full"]
    cluster[1].failures.clear()


async def test_a_broker_that_stops_waits_for_no_batch(
    cluster: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    Gate(cluster[1].log, monkeypatch)
    tasks = await produces(cluster[1], b"a", b"b")
    await cluster.stop(1)
    for each in tasks:
        assert (await each).error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- what a batch waits for itself ---------------------------------------------------------------------------


def whole_of(records: bytes, count: int) -> bytes:
    """A batch with these records."""
    return altered(
        batch()[:61] + records,
        batch_length=49 + len(records),
        records_count=count,
        last_offset_delta=count - 1,
    )


async def send(cluster: Brokers, records: bytes) -> ProduceOutcome:
    return (await cluster[1].parts.producing.produce({KEY: records}, acks=-1, timeout_ms=10_000))[KEY]


async def test_slow_and_quick_batches_of_one_producer_keep_their_order(cluster: Brokers) -> None:
    """Five in flight: large compressed ones, which are opened in a thread, and small ones."""
    cluster.producer_ids.given_end = 1000
    sent = []
    for number in range(40):
        codec, size = [(ZSTD, 400_000), (NONE, 10), (LZ4, 3), (NONE, 300_000), (GZIP, 100_000)][number % 5]
        value = b"%04d" % number + b"x" * size
        sent.append(batch([NOW_MS, NOW_MS], value=value, codec=codec, producer=(9, 0, 2 * number)))
    running: list[asyncio.Task[ProduceOutcome]] = []
    for each in sent:
        running.append(asyncio.create_task(send(cluster, each)))
        if len(running) >= 5:
            await running[-5]
    assert [(await each)[:2] for each in running] == [(ErrorCode.NONE, 2 * number) for number in range(40)]
    stored = headers(cluster[1].values())
    assert [each.crc for each in stored] == [headers(each)[0].crc for each in sent]


HEADERS = b"\0\0\0\1\1" + varint(100_000) + bytes(200_000)


@pytest.mark.parametrize(
    ("whole", "at_once"),
    [
        (batch([NOW_MS] * 8_000, value=b"x" * 100), True),
        (batch([NOW_MS] * 1_000, value=b"x" * 1_000, codec=LZ4), False),
        (batch([NOW_MS] * 60_000, value=b""), False),
        (whole_of(varint(len(HEADERS)) + HEADERS, 1), False),
    ],
    ids=["many", "compressed", "very many", "headers"],
)
async def test_records_that_take_long_are_looked_at_in_a_thread(
    cluster: Brokers, whole: bytes, at_once: bool
) -> None:
    """A record of headers of two bytes costs the most: half a microsecond a byte."""
    task = asyncio.create_task(send(cluster, whole))
    await asyncio.sleep(0)
    assert (cluster[1].log.log_end_offset > 0) is at_once
    assert (await task).error_code is ErrorCode.NONE


async def test_records_that_do_not_fit_hold_nothing_up(cluster: Brokers) -> None:
    broken = altered((whole := batch([1, 2], codec=ZSTD))[:66] + b"?" * (len(whole) - 66))
    tasks = [asyncio.create_task(send(cluster, each)) for each in (whole, broken, batch(), broken, whole)]
    outcomes = [await each for each in tasks]
    assert [each.base_offset for each in outcomes] == [0, -1, 2, -1, 3]
    assert outcomes[1].error_code is ErrorCode.INVALID_RECORD
    assert "cannot be opened: compression type 4" in (outcomes[1].message or "")


async def test_a_producer_id_that_was_never_given_out_is_refused(cluster: Brokers) -> None:
    ids = cluster.producer_ids
    tasks = [
        asyncio.create_task(send(cluster, batch(producer=(producer_id, 0, 0)))) for producer_id in (1000, 7)
    ]
    refused = await tasks[0]
    assert refused.error_code is ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert "1000 was never given out" in (refused.message or "")
    assert (await tasks[1]).base_offset == 0
    asked = ids.questions
    assert (await send(cluster, batch(producer=(999, 0, 0)))).base_offset == 1
    assert ids.questions == asked
    ids.fails = True
    assert (await send(cluster, batch(producer=(2000, 0, 0)))).error_code is ErrorCode.REQUEST_TIMED_OUT
    assert cluster[1].log.log_end_offset == 2


async def test_requests_of_one_connection_keep_their_order(cluster: Brokers) -> None:
    broker = cluster[1]
    api = ApiHandlers(services(broker.parts.registry.view, replicas=broker.parts), for_brokers=False)
    listener = Listener(bind("client", ("127.0.0.1", 0)), name="client", api=api)
    reader, writer = await asyncio.open_connection(*listener.address)
    sent = []
    for number in range(60):
        codec, size = [(GZIP, 90_000), (NONE, 0), (ZSTD, 9), (NONE, 300_000), (SNAPPY, 20_000)][number % 5]
        sent.append(batch([NOW_MS, NOW_MS], value=b"%04d" % number + b"x" * size, codec=codec))
    for number, records in enumerate(sent):
        data = [{"name": KEY.topic, "partition_data": [{"index": KEY.partition, "records": records}]}]
        values = {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data}
        body = encode_request(ApiKey.PRODUCE, 9, values)
        writer.write(pack_request(ApiKey.PRODUCE, 9, number, "c", body, flexible=True))
    for number in range(60):
        answer = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
        assert int.from_bytes(answer[:4], "big") == number
        found = decode_response(ApiKey.PRODUCE, 9, answer[5:])
        row = found.responses[0].partition_responses[0]
        assert (row.error_code, row.base_offset) == (ErrorCode.NONE, 2 * number)
    assert [each.crc for each in headers(broker.values())] == [headers(each)[0].crc for each in sent]
    writer.close()
    await listener.stop()
