"""A state machine whose change log is recorded on a disk in memory, under the test's hand."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from quorum.changelog.files import ChangeFiles
from quorum.changelog.recorder import ChangeRecorder
from quorum.changelog.rows import ChangelogRow, rows_of
from quorum.core.machine import StateMachine
from tests.support.manual_runtime import ManualRuntime
from tests.support.memory_disk import MemoryDisk
from tests.unit.core.driver import CONFIGURATION, INCARNATION, SESSION_KEY, Client, Driver, replay

FOLDER = "data/changelog"
#: the least that the settings allow: segments of 16 KiB
RETENTION_BYTES_MAX = 65_536


def new_files(
    disk: MemoryDisk,
    *,
    retention_bytes_max: int = RETENTION_BYTES_MAX,
    retention_age_ms: int = 1 << 40,
    believes: Callable[[int], bool] = lambda _time_ms: True,
) -> ChangeFiles:
    return ChangeFiles(
        disk,
        FOLDER,
        retention_bytes_max=retention_bytes_max,
        retention_age_ms=retention_age_ms,
        believes=believes,
    )


def all_rows(files: ChangeFiles, from_zxid: int = 0) -> list[ChangelogRow]:
    return [row for block in files.blocks_from(from_zxid) for row in rows_of(block)]


class Recorded(Driver):
    """A machine, its change log, and what was applied, which can be applied again."""

    def __init__(self, disk: MemoryDisk | None = None, **settings: Any) -> None:
        """Found a cluster with one session."""
        self.disk = disk or MemoryDisk(random.Random(1))
        self.settings = settings
        super().__init__(StateMachine())
        self.open()
        self.apply("found", "c1", SESSION_KEY, CONFIGURATION)
        self.register(1, INCARNATION)
        self.client: Client = self.connect()

    def open(self) -> None:
        """Begin to record on what the disk holds."""
        self.runtime = ManualRuntime()
        self.files = new_files(self.disk, **self.settings)
        self.failures: list[BaseException] = []
        self.recorder = ChangeRecorder(self.files, self.runtime, self.machine, self.failures.append)

    def apply(self, kind: str, *arguments: Any) -> Any:
        result = super().apply(kind, *arguments)
        self.recorder.entry_applied()
        return result

    def settle(self) -> None:
        """Let the lane write what is queued."""
        for _ in range(3):
            self.runtime.advance(1000)
            self.runtime.settle()
        assert not self.failures

    def rows(self, from_zxid: int = 0) -> list[ChangelogRow]:
        self.settle()
        return all_rows(self.files, from_zxid)

    def restart(self, snapshot: StateMachine, applied: int) -> None:
        """Begin again with a state, and apply all entries behind it once more.

        Args:
            snapshot: the state.
            applied: how many entries it holds.
        """
        self.machine = snapshot
        self.open()
        for entry in self.entries[applied:]:
            replay(snapshot, entry)
            self.recorder.entry_applied()
        self.settle()
