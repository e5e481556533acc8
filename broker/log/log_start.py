"""Where a log begins, where records at the start of its first segment were deleted (DeleteRecords).

Mostly a log begins with its first segment, and there is no file. A flipped bit must not hide records, so the
file has a checksum; one that is damaged counts for nothing, and a leader's answer or the next deletion names
the start again.
Source: KIP-107. Kafka keeps all starts of a directory in one file, written every minute.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import Final

from crc32c import crc32c

from broker.log.files import read_file, replace_file, sync_folder
from broker.log.pending import PendingJobs

log = logging.getLogger("quorate.broker.log")

LOG_START_NAME: Final = "log-start-offset"
_FORMAT: Final = "0"


class LogStart:
    """What was noted for one open log; its first segment may begin behind it."""

    def __init__(self, folder: str, offset: int) -> None:
        self._folder = folder
        self.offset = offset
        #: as the file has it
        self.durable_offset = offset

    def advance(self, offset: int, pending: PendingJobs) -> None:
        """Note a larger offset; durable when the jobs of the log have settled."""
        self.offset = offset
        pending.add(partial(self._write, offset))

    def _write(self, offset: int) -> None:
        write_log_start(self._folder, offset)
        # In the thread: a reader of it does not look at the jobs.
        self.durable_offset = offset

    def clear(self) -> None:
        """Note nothing: the log goes on with a segment that begins where it does."""
        self.offset = self.durable_offset = 0


def write_log_start(folder: str, offset: int) -> None:
    """Note where the log of a folder begins; durable on return, in any thread."""
    body = f"{_FORMAT}\n{offset}\n".encode()
    replace_file(f"{folder}/{LOG_START_NAME}", body + f"{crc32c(body):08x}\n".encode())
    sync_folder(folder)


def read_log_start(folder: str) -> int:
    """Return what was noted; 0: nothing."""
    path = f"{folder}/{LOG_START_NAME}"
    content = read_file(path)
    if content is None:
        return 0
    body, checksum = content[:-9], content[-9:]
    if checksum != f"{crc32c(body):08x}\n".encode() or not body.startswith(f"{_FORMAT}\n".encode()):
        log.error("%s is damaged and counts for nothing: records that were deleted may be there again", path)
        return 0
    return int(body.splitlines()[1])
