"""Writes to a journal from a loop that gets little of its core: other processes compete for it.

    python -m tests.support.late_writer

Alone first, so that the disk is known as quick; then beside processes of a higher priority on the same core,
until a write was late, and once more; then the disk itself is as slow as that, once. Prints a line of JSON
for each of the two: how late that write came, what the disk is said to have taken, and whether it and the one
after it were written in the loop. The disk is memory, so that only the core decides how late a write is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from quorum.platform.os_runtime import AsyncioRuntime
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.journal.journal import Journal, JournalOptions, StagedGroup
from quorum.raft.journal.writer import STALL_MS, JournalWriter
from tests.support.memory_disk import MemoryDisk

COMPETITORS = 4
SPIN = "while :; do :; done"
NICENESS = 19
FOLDER = "/data/journal"
#: of the core, for a write
WRITE_S = 0.0003


@contextlib.contextmanager
def competitors() -> Iterator[None]:
    """Have other processes use this process's only core, and yield to them."""
    running = [subprocess.Popen(["/bin/sh", "-c", SPIN]) for _ in range(COMPETITORS)]
    os.nice(NICENESS)
    try:
        yield
    finally:
        for each in running:
            each.kill()
            each.wait()


class SlowJournal(Journal):
    """Says how late its last write came; stalls as a disk does if it is asked to."""

    late_ms = stall_s = 0.0

    def write(self, group: StagedGroup) -> None:
        """Write, and be on the core for long enough to lose it now and then."""
        begun_s, until_s = time.monotonic(), time.thread_time() + WRITE_S
        if self.stall_s:
            threading.Event().wait(self.stall_s)
        super().write(group)
        while time.thread_time() < until_s:
            pass
        self.late_ms = (time.monotonic() - begun_s) * 1000


class Writes:
    """One write after the other."""

    def __init__(self, journal: SlowJournal, writer: JournalWriter) -> None:
        self._journal = journal
        self._writer = writer

    async def one(self) -> tuple[float, float, bool]:
        """Write an entry; return its wall time and the disk's, in ms, and whether it was in the loop."""
        index, statistics = self._journal.last_index + 1, self._writer.statistics
        inline, disk_ms, durable = statistics.inline_fsyncs, statistics.durations.sum_ms, asyncio.Event()
        self._writer.submit([Entry(index, 1, EntryKind.BATCH, index, b"x" * 100)], durable.set)
        self._writer.flush_turn()
        await durable.wait()
        took_ms = statistics.durations.sum_ms - disk_ms
        return self._journal.late_ms, took_ms, statistics.inline_fsyncs > inline

    async def until_late(self) -> None:
        """Write until a write took as long as a stall; then once more."""
        while (found := await self.one())[0] < STALL_MS:
            pass
        after = await self.one()
        sys.stdout.write(json.dumps([*found, after[2]]) + "\n")


async def write() -> None:
    """Write alone, beside others, and to a slow disk."""
    runtime = AsyncioRuntime(asyncio.get_running_loop())
    disk = MemoryDisk(random.Random(0))
    SlowJournal.create(disk, FOLDER)
    journal, _ = SlowJournal.open(disk, FOLDER, JournalOptions(), print)
    assert isinstance(journal, SlowJournal)
    writes = Writes(journal, JournalWriter(journal, runtime, print, print))
    while not (await writes.one())[2]:
        pass
    with competitors():
        await writes.until_late()
        journal.stall_s = STALL_MS / 1000
        await writes.until_late()
    runtime.close()


if __name__ == "__main__":
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    asyncio.run(write())
