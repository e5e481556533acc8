"""Fsyncs in threads, so that the event loop never waits for one.

A job makes the records of one segment durable and then writes the files that vouch for them: the epochs,
the producers' snapshot, the time index, and the offset index last. Whatever a crash leaves, the records
before the last entry of an offset index are whole, and everything that a start needs to know about them
is in the files. The jobs of one log follow each other; those of different logs run at once, since a
journaling file system commits their fsyncs together.

The first failure is final: a later success must not vouch for what an earlier failure lost. A disk that does
not answer for long counts as one that failed.
Source: docs/concepts/guarantees.md, "Producers: what an acknowledgement means"; Kafka's flush at a roll.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.disk_threads import DiskThreads
from broker.log.errors import LogStorageError
from broker.log.files import replace_file, sync_file, write_back

log = logging.getLogger("quorate.broker.log")

_WRITERS_MAX: Final = 8
_READERS_MAX: Final = 4
#: how long the end waits for a job that makes no progress
CLOSE_PATIENCE_S: Final = 10.0

#: Does something on the disk; one that yields does so after each part that is done.
Work = Callable[[], Iterator[None] | None]


class FlushJob(NamedTuple):
    """What makes one segment durable up to now."""

    log_path: str
    #: (path, content), written in this order once the records are durable
    files: tuple[tuple[str, bytes], ...]

    def steps(self) -> Iterator[None]:
        """Do it, in any thread; raises LogStorageError."""
        yield from write_back(self.log_path)
        sync_file(self.log_path)
        yield
        for path, content in self.files:
            replace_file(path, content)
            yield

    def run(self) -> None:
        """Do it at once."""
        for _ in self.steps():
            pass


class Flusher:
    """The threads of one log directory; each log bounds how many jobs it has pending."""

    def __init__(self, on_failure: Callable[[], None]) -> None:
        """Start no thread yet; on_failure is called in a thread when a job fails, before anybody knows."""
        self._on_failure = on_failure
        #: Final: nothing is written any more.
        self.failure: LogStorageError | None = None
        #: Reads what is not in the page cache.
        self.readers = DiskThreads(_READERS_MAX, "quorate-log-read")
        self._writers = DiskThreads(_WRITERS_MAX, "quorate-log-flush")

    def submit(self, work: Work, after: Future[None] | None = None, *, is_slow: bool = False) -> Future[None]:
        """Do a piece of work once another one has ended; refused after any failure.

        One that `is_slow` may take its time, also on a disk that answers: it removes large files.
        """

        def steps() -> None:
            if after is not None and not after.done():
                self._writers.rest()
                after.exception()
                self._writers.step()
            if self.failure is not None:
                raise self.failure
            if is_slow:
                self._writers.rest()
            try:
                for _ in work() or ():
                    self._writers.step()
            except LogStorageError as error:
                self._fail(error)
                raise
            except Exception as error:
                self._fail(LogStorageError(f"a flush: {error!r}", "report this with the broker's log"))
                raise

        return self._writers.run(steps)

    def _fail(self, error: LogStorageError) -> None:
        self._on_failure()
        self.failure = self.failure or error

    def remove_folder(self, folder: str) -> None:
        """Remove the folder of a log that is closed; a start removes what is left of it."""

        def remove() -> None:
            self._writers.rest()
            _remove_folder(Path(folder))

        self._writers.run(remove)

    def check(self, elapsed_ms: float, hang_ms: float) -> LogStorageError | None:
        """Return why nothing is written any more; None: the disk works.

        Args:
            elapsed_ms: since the last call, at most.
            hang_ms: a part of a job that takes longer is a failure.
        """
        # A reader may ask for a hundred megabytes; that a disk hangs, the checkpoints find out.
        oldest_ms = self._writers.oldest_ms(elapsed_ms)
        if self.failure is None and oldest_ms > hang_ms:
            self.failure = LogStorageError(
                f"the disk has not answered for {oldest_ms:.0f} ms, {hang_ms:.0f} ms are allowed",
                "repair or replace the disk, then start the broker again",
            )
        return self.failure

    def close(self) -> bool:
        """Finish what was submitted and end the threads; False if the disk does not answer."""
        patience_s = CLOSE_PATIENCE_S if self.failure is None else 0.1
        return all([self._writers.close(patience_s), self.readers.close(patience_s)])


def _remove_folder(folder: Path) -> None:
    """Remove a log's folder; it holds no folders."""
    try:
        for path in folder.iterdir():
            path.unlink(missing_ok=True)
        folder.rmdir()
    except OSError as error:
        log.warning("%s stays until the next start: %s", folder, error)
