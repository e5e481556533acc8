"""Fsyncs in a thread of their own, in order, so that the event loop never waits for one.

A job makes the records of one segment durable and then writes the files that vouch for them: the epochs,
the producers' snapshot, the time index, and the offset index last. Whatever a crash leaves, the records
before the last entry of an offset index are whole, and everything that a start needs to know about them
is in the files.
Source: control-plane design, "Durability"; Kafka's flush at a roll.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.files import replace_file, sync_file

log = logging.getLogger("quorate.broker.log")

#: threads that close many logs at once: a journaling file system commits their fsyncs together
_CLOSING_THREADS: Final = 8


class FlushJob(NamedTuple):
    """What makes one segment durable up to now."""

    log_path: str
    #: (path, content), written in this order once the records are durable
    files: tuple[tuple[str, bytes], ...]

    def run(self) -> None:
        """Do it, in any thread; raises LogStorageError."""
        sync_file(self.log_path)
        for path, content in self.files:
            replace_file(path, content)


class Flusher:
    """One thread that works through jobs in order; each log bounds how many it has pending."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="quorate-log-flush")

    def submit(self, work: Callable[[], None]) -> Future[None]:
        """Run a piece of work after those that were submitted before."""
        return self._executor.submit(work)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove files that nothing uses any more; a name that stays is removed by the next start."""
        self._executor.submit(_remove, tuple(map(Path, paths)))

    def remove_folder(self, folder: str) -> None:
        """Remove the folder of a log that is closed; a start removes what is left of it."""
        self._executor.submit(_remove_folder, Path(folder))

    def run_all(self, jobs: Sequence[FlushJob]) -> None:
        """Run jobs of different logs at once and wait for them; raises LogStorageError."""
        with ThreadPoolExecutor(_CLOSING_THREADS, thread_name_prefix="quorate-log-close") as threads:
            for done in [threads.submit(job.run) for job in jobs]:
                done.result()

    def close(self) -> None:
        """Wait for what was submitted and end the thread."""
        self._executor.shutdown()


def _remove_folder(folder: Path) -> None:
    """Remove a log's folder; it holds no folders."""
    try:
        _remove([*folder.iterdir()])
        folder.rmdir()
    except OSError as error:
        log.warning("%s stays until the next start: %s", folder, error)


def _remove(paths: Sequence[Path]) -> None:
    for path in paths:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            log.warning("%s stays until the next start: %s", path, error)
