"""What a broker does with its cleaner: a process that works, dies, hangs, or meets damage."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import pytest

from broker.log.batches import parse_header
from broker.replication import compaction
from broker.replication.compaction import CLEANER_NAME, Compaction
from controller.wire.codes import ErrorCode
from quorum.metadata.topic_settings import TopicSettings
from tests.unit.broker_log.samples import keyed
from tests.unit.broker_replication.cluster import KEY, TestBroker, brokers

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


async def test_a_dirty_log_is_compacted_and_noted(broker: TestBroker) -> None:
    before = broker.log.size_bytes
    await cleaner(broker).check()
    assert broker.log.size_bytes < before / 2
    status = cleaner(broker).status
    assert (status.failures, status.uncleanable) == (0, {})
    content = (Path(broker.log.folder).parent / CLEANER_NAME).read_text()
    active = broker.log.cleanable().segments[-1].next_offset
    assert content == f"0\n1\n{KEY.topic} {KEY.partition} {active}\n"
    await append(broker, 40)
    written = status.bytes_written
    await cleaner(broker).check()
    assert status.bytes_written == written, "what is clean is left alone"


@pytest.mark.parametrize("program", ["exit 1", "exec sleep 100"])
async def test_a_cleaner_that_does_not_work_holds_nothing(
    broker: TestBroker, tmp_path: Path, program: str
) -> None:
    script = tmp_path / "cleaner"
    script.write_text(f"#!/bin/sh\n{program}\n")
    script.chmod(0o700)
    status = cleaner(broker).status
    with mock.patch.object(sys, "executable", str(script)), mock.patch.object(compaction, "SILENCE_S", 0.2):
        for failures in (1, 2):
            await cleaner(broker).check()
            assert (status.failures, status.uncleanable) == (failures, {})
            await append(broker, 39 + failures)
    before = broker.log.size_bytes
    await cleaner(broker).check()
    assert status.failures == 2
    assert broker.log.size_bytes < before


async def test_a_log_that_cannot_be_compacted_is_left_alone(broker: TestBroker) -> None:
    path = Path(broker.log.folder) / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[parse_header(bytes(content), 0).size - 1] ^= 1
    path.write_bytes(content)
    status = cleaner(broker).status
    await cleaner(broker).check()
    assert list(status.uncleanable) == [KEY]
    assert "whole record batch" in status.last_error
    await cleaner(broker).check()
    assert status.failures == 1
    await append(broker, 40)
