"""What a broker does with its cleaner: a process that works, dies, hangs, or meets damage."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from broker.log.batches import CONTROL, TRANSACTIONAL, BatchHeader, parse_header
from broker.log.partition_log import PartitionLog
from broker.replication import compaction
from broker.replication.clock import monotonic_ms
from broker.replication.compaction import CLEANER_NAME, Compaction
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import LeaderEpoch
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import NOW_MS, altered, append_batch, headers, keyed, read_all
from tests.unit.broker_log.transactions import end
from tests.unit.broker_replication.cluster import KEY, QUICK, TestBroker, brokers, until

SETTINGS = TopicSettings(cleanup_policy="compact", segment_bytes=1000)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[TestBroker]:
    """A broker that leads one compacted partition with 40 records of two keys."""
    async with brokers(tmp_path, 1, settings=SETTINGS) as cluster:
        await cluster.elect(1, [1])
        for number in range(40):
            await append(cluster[1], number)
        yield cluster[1]


async def append(broker: TestBroker, number: int) -> None:
    batch = keyed([(b"key%d" % (number % 2), b"%d" % number * 30)])
    outcome = (await broker.parts.producing.produce({KEY: batch}, acks=-1, timeout_ms=10_000))[KEY]
    assert (outcome.error_code, outcome.base_offset) == (ErrorCode.NONE, number)


def cleaner(broker: TestBroker) -> Compaction:
    return broker.parts.maintenance.compaction


async def test_a_dirty_log_is_compacted_and_noted(
    broker: TestBroker, caplog: pytest.LogCaptureFixture
) -> None:
    before = broker.log.size_bytes
    with caplog.at_level(logging.INFO):
        await cleaner(broker).check()
    assert broker.log.size_bytes < before / 2
    sizes = f"compacted orders-0 up to 40: {before} bytes became {broker.log.size_bytes}, in "
    assert [each for each in caplog.messages if each.startswith(sizes)]
    status = cleaner(broker).status
    assert (status.failures, status.uncleanable) == (0, {})
    content = (Path(broker.log.folder).parent / CLEANER_NAME).read_text()
    active = broker.log.cleanable().segments[-1].next_offset
    assert content == f"0\n1\n{KEY.topic} {KEY.partition} {active}\n"
    await append(broker, 40)
    written = status.bytes_written
    await cleaner(broker).check()
    assert status.bytes_written == written, "what is clean is left alone"


async def test_what_was_aborted_is_compacted_away(broker: TestBroker) -> None:
    log, epoch = broker.log, LeaderEpoch(broker.log.latest_epoch)
    records = keyed([(b"key0", b"x" * 30)], producer=(7, 0, 0))
    append_batch(log, altered(records, attributes=TRANSACTIONAL), epoch, NOW_MS)
    for number in range(41, 60):
        await append(broker, number)
    await cleaner(broker).check()
    assert log.cleanable().segments[-1].next_offset > 41, "what is open is not stable"
    assert transactional(log) == [40]
    marker = end(log, 7, is_commit=False, leader_epoch=epoch).base_offset
    for number in range(marker + 1, marker + 20):
        await append(broker, number)
    await cleaner(broker).check()
    status = cleaner(broker).status
    assert (status.failures, status.uncleanable) == (0, {})
    assert transactional(log) == []
    found = log.segments.aborted.between(0, 0, log.log_end_offset, wait=True)
    assert [(each.producer_id, each.first_offset, each.last_offset) for each in found] == [(7, 40, marker)]


def transactional(log: PartitionLog) -> list[int]:
    """Offsets of transactional batches that have records."""
    return [
        each.base_offset
        for each in headers(read_all(log))
        if each.attributes & (TRANSACTIONAL | CONTROL) == TRANSACTIONAL and each.records_count
    ]


@pytest.mark.parametrize("program", ["exit 1", "exec sleep 100"])
async def test_a_cleaner_that_does_not_work_holds_nothing(
    broker: TestBroker, tmp_path: Path, program: str
) -> None:
    script = tmp_path / "cleaner"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o700)
    status, begun_ms = cleaner(broker).status, 0
    with mock.patch.object(sys, "executable", str(script)), mock.patch.object(compaction, "SILENCE_S", 0.2):
        for failures in (1, 2):
            await cleaner(broker).check()
            assert (status.failures, status.uncleanable) == (failures, {})
            begun_ms = begun_ms or status.due_since_ms[KEY]
            assert status.waited_ms(begun_ms + 5) == 5, "since the first time that it was due"
            await append(broker, 39 + failures)
    before = broker.log.size_bytes
    await cleaner(broker).check()
    assert (status.failures, status.waited_ms(monotonic_ms())) == (2, 0)
    assert broker.log.size_bytes < before


def damage(broker: TestBroker) -> None:
    """Change a byte of the first record."""
    path = Path(broker.log.folder) / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[parse_header(bytes(content), 0).size - 1] ^= 1
    path.write_bytes(content)


async def test_a_log_that_cannot_be_compacted_is_left_alone(broker: TestBroker) -> None:
    damage(broker)
    status = cleaner(broker).status
    await cleaner(broker).check()
    assert list(status.uncleanable) == [KEY]
    assert "whole record batch" in status.last_error
    await cleaner(broker).check()
    assert status.failures == 1
    await append(broker, 40)


async def test_followers_learn_what_retention_took_before_compaction(tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, cleanup_policy="compact,delete", retention_bytes=1500, min_cleanable_dirty_ratio=1.0
    )
    # A follower does not look itself.
    options = replace(QUICK, retention_check_interval_ms=3_600_000, log_cleaner_backoff_ms=3_600_000)
    async with brokers(tmp_path, 1, 2, options=options, settings=settings) as cluster:
        await cluster.elect(1, [1, 2])
        for number in range(40):
            await append(cluster[1], number)
        await cleaner(cluster[1]).check()
        start = cluster[1].log.log_start_offset
        assert start > 0
        await until(lambda: cluster[2].log.log_start_offset == start)


@pytest.mark.parametrize("damaged", [1, 2])
async def test_damage_that_the_cleaner_meets_is_mended(tmp_path: Path, damaged: int) -> None:
    async with brokers(tmp_path, 1, 2, settings=SETTINGS) as cluster:
        await cluster.elect(1, [1, 2])
        for number in range(40):
            await append(cluster[1], number)
        broker, log = cluster[damaged], cluster[damaged].log
        await until(lambda: broker.replica.high_watermark == 40)
        damage(broker)
        status = cleaner(broker).status
        await cleaner(broker).check()
        await until(lambda: broker.unjudged)
        assert (broker.unjudged, broker.failures) == ([damaged], [])
        assert broker.log is not log
        assert broker.log.log_end_offset == 0, "it is cut where it is damaged"
        assert (status.failures, status.uncleanable) == (1, {})


async def test_records_are_deleted_up_to_an_offset_that_compaction_took(broker: TestBroker) -> None:
    await cleaner(broker).check()
    kept = [each.base_offset for each in headers(read_all(broker.log)) if each.records_count]
    gap = next(each for each in range(1, 40) if each not in kept)
    following = next(each for each in kept if each > gap)
    deleting, logs = broker.parts.deleting, broker.parts.logs
    outcomes = await deleting.delete_records({KEY: gap}, timeout_ms=10_000)
    assert outcomes[KEY] == (ErrorCode.NONE, gap)
    assert (await logs.list_offset(KEY, -2)).offset == gap
    assert (await broker.fetch(gap - 1)).error_code is ErrorCode.OFFSET_OUT_OF_RANGE
    found: list[BatchHeader] = []
    offset = gap
    while not found:
        read = headers(bytes((await broker.fetch(offset)).records))
        found, offset = [each for each in read if each.records_count], read[-1].last_offset + 1
    assert found[0].base_offset == following
    await cleaner(broker).check()
    assert cleaner(broker).status.failures == 0
    assert broker.log.log_start_offset == gap
