"""A broker's one log directory: whose it is, which logs are in it, and their checkpointed high watermarks.

Decides whether this broker may use the directory at all: it belongs to one broker id of one cluster, and
is held by one process. Its incarnation is drawn when it is formatted, so an emptied disk has another one; so
has one with more shortened logs than a registration can name. Logs that no topic claims any more are set
aside for a week, not removed. Knows nothing of assignments.

A log is shortened when it may end below what it had acknowledged: a start had to cut it, it ends below its
high watermark, or the machine went down with it, or the disk refused an fsync: nobody knows then what was not
written. A restart forgets none of them: the controller must have taken note first.

Hard state: meta.properties, the logs, the high watermarks and the shortened logs (each replaced as a whole),
the id of the machine's boot, the mark of a clean end.
Source: ARCHITECTURE.md, "Life of a broker failure", "Life of a record"; docs/concepts/guarantees.md, "What
kills, disks and power cost"; Kafka's LogManager and its file names (3.9).
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from functools import partial
from pathlib import Path
from typing import Final, Self

from broker.datadir.checkpoints import (
    CHECKPOINT_NAME,
    SHORTENED_NAME,
    checkpoint_bytes,
    read_checkpoint,
)
from broker.datadir.identity import claim, renew
from broker.datadir.partition_metadata import METADATA_NAME, metadata_bytes, read_metadata
from broker.log.disk_threads import DiskThreads, finished
from broker.log.errors import DamagedSegmentError, LogStorageError
from broker.log.files import (
    OPEN_FILES_MAX,
    STRAY,
    FilePool,
    disk_errors,
    name_beside,
    read_file,
    remove_file,
    replace_file,
    sync_folder,
)
from broker.log.flushing import Flusher
from broker.log.partition_log import PartitionLog
from broker.log.segment import distrust
from quorum.errors import refused_by_disk, told_by_os
from quorum.metadata.paths import PartitionKey, check_topic
from quorum.metadata.topic_settings import TopicSettings
from quorum.platform.os_runtime import OsDisk
from quorum.platform.runtime import DirectoryLock
from quorum.platform.wall_clock import CLOCK

log = logging.getLogger("quorate.broker.log")

CLEAN_END_NAME: Final = ".kafka_cleanshutdown"
_CLEAN_END: Final = b'{"version":0,"brokerEpoch":-1}'
#: how often it is looked whether the disk answers
DISK_CHECK_S: Final = 0.1
#: logs that are opened at a time
OPENING_THREADS: Final = 4
STRAY_KEPT_MS: Final = 7 * 86_400_000
BOOT_NAME: Final = "boot-id"
_BOOT_ID_PATH: Final = "/proc/sys/kernel/random/boot_id"
_DELETE: Final = "-delete"
_FOLDER: Final = re.compile(r"(.+)-(0|[1-9][0-9]{0,9})", re.ASCII)
_FOLDER_MODE: Final = 0o700


class LogDirectory:
    """An open log directory; made by `open`."""

    def __init__(self, path: str, lock: DirectoryLock, incarnation: str, open_files_max: int) -> None:
        self.path = path
        self.incarnation = incarnation
        self.logs: dict[PartitionKey, PartitionLog] = {}
        #: as checkpointed last; a log that is not named has 0
        self.high_watermarks: dict[PartitionKey, int] = {}
        #: whether the process that held it before closed it
        self.clean_start = False
        #: whether the machine went down while the directory was open, or the disk had refused an fsync
        self.lost_power = False
        #: {key: checkpointed high watermark} of the logs that may lack what they had acknowledged
        self.shortened: dict[PartitionKey, int] = {}
        self._lock = lock
        self.flusher = Flusher(self._vouch_for_nothing)
        self._files = FilePool(open_files_max)
        self._checkpoint: Future[None] | None = None
        self._shortened_written: Future[None] | None = None
        #: {partition: the write of the topic id that its log was given}
        self._adopted: dict[PartitionKey, Future[None]] = {}
        #: held by the one of the opening threads that has a shortened log
        self._noting = threading.Lock()

    @classmethod
    def open(
        cls,
        path: str | Path,
        *,
        broker_id: int,
        cluster_id: str,
        settings_of: Callable[[str], TopicSettings],
        open_files_max: int = OPEN_FILES_MAX,
    ) -> Self:
        """Lock a directory, format it if it is empty, and recover every log in it.

        Args:
            path: made if it is not there.
            broker_id: whose it must be.
            cluster_id: as in /cluster/id.
            settings_of: topic → its settings.
            open_files_max: descriptors that the logs may hold at a time.
        """
        path, disk = str(path), OsDisk()
        try:
            disk.make_dirs(path)
            lock = disk.lock(path)
        except OSError as error:
            raise refused_by_disk(
                f"log directory {path} cannot be used: {told_by_os(error, path)}",
                "correct broker.data_dir, or repair the disk",
                error,
            ) from error
        try:
            directory = cls(path, lock, claim(path, broker_id, cluster_id), open_files_max)
        except BaseException:
            lock.release()
            raise
        try:
            directory._load(settings_of)
        except BaseException:
            directory._release()
            raise
        return directory

    def _load(self, settings_of: Callable[[str], TopicSettings]) -> None:
        started_ns = time.monotonic_ns()
        self.clean_start = read_file(f"{self.path}/{CLEAN_END_NAME}") is not None
        # Before anything is written: from here on an end is unclean until close() says otherwise.
        remove_file(f"{self.path}/{CLEAN_END_NAME}")
        sync_folder(self.path)
        self.high_watermarks = read_checkpoint(f"{self.path}/{CHECKPOINT_NAME}") or {}
        self._remove_old_strays()
        with disk_errors(self.path):
            names = sorted(each.name for each in Path(self.path).iterdir() if each.is_dir())
        keys = [key for name in names if (key := _key_of(name)) is not None]
        self._read_shortened(keys)
        for name in names:
            if name.endswith(_DELETE):
                self.flusher.remove_folder(f"{self.path}/{name}")
        self._open_logs(keys, settings_of)
        log.info(
            "opened %d logs of %s after %s end in %d ms",
            len(self.logs),
            self.path,
            "a clean" if self.clean_start else "no clean",
            (time.monotonic_ns() - started_ns) // 1_000_000,
        )

    def _open_logs(self, keys: Sequence[PartitionKey], settings_of: Callable[[str], TopicSettings]) -> None:
        """Open logs, several at once, so that their waits for the disk overlap; all or none are left."""
        threads = DiskThreads(OPENING_THREADS, "quorate-log-open")
        opens = partial(self._open_log, is_clean=self.clean_start)
        opening = [threads.run(partial(opens, key, settings_of(key.topic))) for key in keys]
        threads.close(0)
        wait(opening, return_when=FIRST_EXCEPTION)
        for each in opening:
            each.cancel()
        wait(opening)
        self.logs.update((key, each.result()) for key, each in zip(keys, opening, strict=True))

    async def reopen(self, key: PartitionKey, settings: TopicSettings, damage: DamagedSegmentError) -> None:
        """Open a log as after a crash, in a thread: it ends where it is damaged, and is shortened before.

        Nothing uses the log meanwhile, and it has settled.
        """
        self.logs[key].abandon()
        self.shortened.setdefault(key, self.high_watermarks.get(key, 0))
        noted = self.begin_shortened()
        await finished(noted)
        noted.result()

        def cut() -> PartitionLog:
            distrust(damage)
            return self._open_log(key, settings, is_clean=False)

        opening = self.flusher.readers.run(cut)
        await finished(opening)
        self.logs[key] = opening.result()

    def _open_log(self, key: PartitionKey, settings: TopicSettings, *, is_clean: bool) -> PartitionLog:
        """Open a log, in any thread."""
        folder = self._folder(key)
        opened = PartitionLog(
            folder,
            key,
            read_metadata(folder),
            settings,
            self._files,
            self.flusher,
            _now_ms(),
            is_clean=is_clean,
            on_shortened=lambda: self.note_shortened([key]),
        )
        watermark = self.high_watermarks.get(key, 0)
        if opened.log_end_offset < watermark:
            log.error(
                "%s ends at %d, below its high watermark %d: the disk lost records that were acknowledged",
                folder,
                opened.log_end_offset,
                watermark,
            )
            self.note_shortened([key])
        return opened

    def _read_shortened(self, keys: Sequence[PartitionKey]) -> None:
        """Find which logs are shortened before any of them is opened, and note this machine's boot."""
        noted = read_checkpoint(f"{self.path}/{SHORTENED_NAME}")
        self.shortened = dict.fromkeys(keys, 0) if noted is None else noted
        boot_id = read_file(_BOOT_ID_PATH)
        same_boot = boot_id is not None and read_file(f"{self.path}/{BOOT_NAME}") == boot_id
        self.lost_power = not self.clean_start and not same_boot and bool(keys or self.high_watermarks)
        if self.lost_power:
            problem = "the machine went down, or its disk refused an fsync"
            log.warning("%s: what the %d logs lack of their ends is unknown", problem, len(keys))
            self.note_shortened(keys)
        if not same_boot:
            replace_file(f"{self.path}/{BOOT_NAME}", boot_id or b"")
            sync_folder(self.path)

    def note_shortened(self, keys: Iterable[PartitionKey]) -> None:
        """Note that logs may lack what they had acknowledged, in any thread; durable on return."""
        with self._noting:
            if new := [key for key in keys if key not in self.shortened]:
                self.shortened.update((key, self.high_watermarks.get(key, 0)) for key in new)
                self.begin_shortened().result()

    def adopt(self, key: PartitionKey, topic_id: uuid.UUID) -> None:
        """Let a log without its topic id be that of a topic; a start before it is durable finds none."""
        folder = self._folder(key)

        def replace() -> None:
            replace_file(f"{folder}/{METADATA_NAME}", metadata_bytes(topic_id))
            sync_folder(folder)

        self.logs[key].topic_id = topic_id
        self._adopted[key] = self.flusher.submit(replace)

    def forget_shortened(self, broker_id: int, cluster_id: str) -> None:
        """Go on under another incarnation, which no ISR knows, in place of naming shortened logs."""
        self.incarnation = renew(self.path, broker_id, cluster_id)
        self.shortened.clear()
        self.begin_shortened().result()

    def begin_shortened(self) -> Future[None]:
        """Replace the list of shortened logs as begin_checkpoint does the high watermarks."""
        content = checkpoint_bytes(self.shortened)

        def replace() -> None:
            replace_file(f"{self.path}/{SHORTENED_NAME}", content)
            sync_folder(self.path)

        self._shortened_written = self.flusher.submit(replace, self._shortened_written)
        return self._shortened_written

    def create(self, key: PartitionKey, topic_id: uuid.UUID | None, settings: TopicSettings) -> PartitionLog:
        """Make the log of a partition that has none here; durable with its first records."""
        folder = self._folder(key)
        with disk_errors(folder):
            Path(folder).mkdir(_FOLDER_MODE)
        unsynced: list[tuple[str, bytes]] = []
        if topic_id is not None:
            # A request may make thousands of logs: no fsync in the loop.
            path, content = f"{folder}/{METADATA_NAME}", metadata_bytes(topic_id)
            with disk_errors(path):
                Path(path).write_bytes(content)
            unsynced.append((path, content))
        files, flusher = self._files, self.flusher
        created = PartitionLog(folder, key, topic_id, settings, files, flusher, _now_ms(), unsynced)
        self.logs[key] = created
        return created

    def delete(self, key: PartitionKey) -> None:
        """Remove a log: its name at once, its files when there is time. It must have settled.

        After a power cut it may be there again; its topic id says then that nobody wants it.
        """
        self.flusher.remove_folder(self._rename(key, _DELETE))

    def set_aside(self, key: PartitionKey) -> None:
        """Take a log out that no topic claims, for a week, in case that is a mistake."""
        log.warning("%s-%d is set aside as %s", *key, self._rename(key, STRAY))
        self._remove_old_strays()

    def _rename(self, key: PartitionKey, suffix: str) -> str:
        self.logs[key].settle_flushes()
        if (adopted := self._adopted.pop(key, None)) is not None:
            adopted.result()
        self.logs.pop(key).abandon()
        self.high_watermarks.pop(key, None)
        self.shortened.pop(key, None)
        folder = Path(self._folder(key))
        target = Path(name_beside(str(folder), suffix))
        with disk_errors(str(folder)):
            folder.rename(target)
            # The time from which a stray is kept.
            target.touch()
        return str(target)

    def _remove_old_strays(self) -> None:
        """Remove logs that were set aside more than a week ago."""
        if not CLOCK.is_believed():
            return
        now_ms = _now_ms()
        with disk_errors(self.path):
            for each in sorted(Path(self.path).glob(f"*{STRAY}")):
                if now_ms - each.stat().st_mtime_ns // 1_000_000 > STRAY_KEPT_MS:
                    log.info("%s was set aside a week ago and is removed", each)
                    self.flusher.remove_folder(str(each))

    def begin_checkpoint(self, high_watermarks: Mapping[PartitionKey, int]) -> Future[None]:
        """Replace the checkpoint, in a thread and after the one before; durable when the future is done."""

        def replace() -> None:
            replace_file(f"{self.path}/{CHECKPOINT_NAME}", checkpoint_bytes(high_watermarks))

        self.high_watermarks = dict(high_watermarks)
        self._checkpoint = self.flusher.submit(replace, self._checkpoint)
        return self._checkpoint

    async def leave(self, *, clean: bool, hang_ms: float) -> None:
        """Close or abandon it in a thread, when nothing uses it any more.

        Args:
            clean: close; else abandon.
            hang_ms: a disk that does not answer for so long has failed.
        """
        threads = DiskThreads(1, "quorate-log-close")
        work = threads.run(self.close if clean else self.abandon)
        # The thread ends after this work.
        threads.close(0)
        ended = asyncio.ensure_future(finished(work))
        while not work.done():
            await asyncio.wait([ended], timeout=DISK_CHECK_S)
            failure = self.flusher.check(DISK_CHECK_S * 1000, hang_ms)
            if failure is not None and not work.done() and clean:
                ended.cancel()
                raise failure
        work.result()

    def close(self) -> None:
        """Make every log durable, note a clean end, and let go of the directory."""
        try:
            jobs = [job for each in self.logs.values() if (job := each.closing_job()) is not None]
            for done in [self.flusher.submit(job.steps) for job in jobs]:
                done.result()
            self.flusher.submit(self._note_clean_end).result()
        finally:
            self._release()

    def _note_clean_end(self) -> None:
        replace_file(f"{self.path}/{CLEAN_END_NAME}", _CLEAN_END)
        sync_folder(self.path)

    def abandon(self) -> None:
        """Let go of the directory as it is: the disk has failed. The next start recovers every log."""
        self._release()

    def _vouch_for_nothing(self) -> None:
        """Let the next start count every log as shortened, as after a power cut.

        After an fsync that failed, what is read back may not be what the disk has.
        """
        try:
            remove_file(f"{self.path}/{BOOT_NAME}")
        except LogStorageError as error:
            log.error("%s", error)

    def _release(self) -> None:
        is_idle = self.flusher.close()
        for each in self.logs.values():
            each.abandon()
        self._files.close()
        if is_idle:
            self._lock.release()
        else:
            log.error("%s stays locked until this process ends: its disk does not answer", self.path)

    def _folder(self, key: PartitionKey) -> str:
        return f"{self.path}/{key.topic}-{key.partition}"


async def open_in_thread(opens: Callable[[], LogDirectory]) -> LogDirectory:
    """Open a directory by LogDirectory.open while the event loop goes on.

    A wait that is cancelled lets go of the directory once it is open.
    """
    threads = DiskThreads(1, "quorate-log-open")
    opening = threads.run(opens)
    threads.close(0)
    try:
        await finished(opening)
    except asyncio.CancelledError:
        opening.add_done_callback(_abandon)
        raise
    return opening.result()


def _abandon(opening: Future[LogDirectory]) -> None:
    if opening.exception() is None:
        opening.result().abandon()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _key_of(name: str) -> PartitionKey | None:
    """Return the partition whose folder has this name; None: it is no log's."""
    match = _FOLDER.fullmatch(name)
    if match is None:
        return None
    try:
        return PartitionKey(check_topic(match[1]), int(match[2]))
    except ValueError:
        return None
