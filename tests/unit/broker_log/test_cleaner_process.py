"""The cleaner's process: it keeps to a rate of bytes, and ends with its broker."""

from __future__ import annotations

import io
import subprocess
import sys
import time

import pytest

from broker.log.cleaning import process
from broker.log.cleaning.work import Job
from tests.unit.broker_log.compacting import job_of
from tests.unit.broker_log.samples import EPOCH, NOW_MS, Broker, append_batch, keyed

DEADLINE_S = 60


def dirty_job(broker: Broker) -> Job:
    log = broker.create(segment_bytes=20_000, cleanup_policy="compact")
    for number in range(400):
        append_batch(log, keyed([(b"key%d" % number, b"x" * 900)]), EPOCH, NOW_MS)
    log.settle_flushes()
    return job_of(log, segment_bytes=20_000)[1]


def test_no_more_bytes_than_the_rate_allows(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    job = dirty_job(broker)
    clock = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    size_bytes = sum(row[2] for row in job.segments)
    output = io.BytesIO()
    process.serve(io.BytesIO(process.packed([job, 10_000])), output)
    # Read twice, written once; what was spent last may not be waited for.
    assert 0.7 * 3 * size_bytes < clock[0] * 10_000 <= 3 * size_bytes + 20_000
    assert output.getvalue().count(process.ALIVE.encode()) > 10


def test_an_orphaned_cleaner_ends_in_its_work(broker: Broker) -> None:
    job = dirty_job(broker)
    with subprocess.Popen(
        [sys.executable, "-P", "-m", process.__name__], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        # It would take hours.
        running.stdin.write(process.packed([job, 10]))
        running.stdin.flush()
        # A sign of life: it is at work.
        assert running.stdout.read(process.LENGTH.size)
        running.stdin.close()
        assert running.wait(DEADLINE_S) == 0
