"""The cleaner's process: it does one job after the other, as its broker says by a pipe, and ends with it.

Frames of msgpack with an int32 length go both ways: a job in, with how many bytes a second it may read and
write; out come the segments that it made, now and then a sign of life, and at the end how far it came or why
it could not, and where it met damage. It writes only `.cleaned` files.
Source: ARCHITECTURE.md, "Life of a compacted record".
"""

from __future__ import annotations

import asyncio
import os
import select
import sys
import time
from struct import Struct
from typing import Any, BinaryIO, Final

import msgpack

from broker.log.cleaning.swapping import CLEANED
from broker.log.cleaning.work import Job, clean
from broker.log.errors import DamagedSegmentError, LogError
from broker.log.files import names_in, remove_file

LENGTH: Final = Struct(">i")
SEGMENT: Final = "segment"
ALIVE: Final = "alive"
END: Final = "end"
FAILED: Final = "failed"
_ALIVE_EVERY_S: Final = 1.0
#: bytes between two looks at the clock and at the pipe
_LOOK_BYTES: Final = 64 * 1024


def packed(frame: object) -> bytes:
    """Return a frame with its length."""
    content: bytes = msgpack.packb(frame)
    return LENGTH.pack(len(content)) + content


async def read_frame(source: asyncio.StreamReader) -> list[Any]:
    """Return the next frame that the process writes; raises IncompleteReadError at its end."""
    (size,) = LENGTH.unpack(await source.readexactly(LENGTH.size))
    frame: list[Any] = msgpack.unpackb(await source.readexactly(size))
    return frame


class _Spending:
    """Waits where more than a rate was read and written, and gives signs of life meanwhile."""

    def __init__(self, bytes_per_second: float, output: BinaryIO) -> None:
        self._rate = bytes_per_second
        self._output = output
        self._pipe = select.poll()
        # Only whether the other end is there: a hang-up is always reported.
        self._pipe.register(0, 0)
        self._begun_s = self._said_s = time.monotonic()
        self._spent = self._seen = 0

    def __call__(self, size: int) -> None:
        self._spent += size
        if self._spent - self._seen < min(_LOOK_BYTES, self._rate):
            return
        self._seen = self._spent
        while True:
            if self._pipe.poll(0):
                # The broker is gone: what it left is another's.
                os._exit(0)
            now_s = time.monotonic()
            if now_s - self._said_s > _ALIVE_EVERY_S:
                self._said_s = now_s
                self._output.write(packed([ALIVE]))
                self._output.flush()
            ahead_s = self._spent / self._rate - (now_s - self._begun_s)
            if ahead_s <= 0:
                return
            time.sleep(min(ahead_s, _ALIVE_EVERY_S))


def _do(job: Job, spend: _Spending, output: BinaryIO) -> None:
    for name in names_in(job.folder):
        if name.endswith(CLEANED):
            # Of a job that was given up.
            remove_file(f"{job.folder}/{name}")
    for found in clean(job, spend):
        frame = [END, found] if isinstance(found, int) else [SEGMENT, *found]
        output.write(packed(frame))
        output.flush()


def serve(source: BinaryIO, output: BinaryIO) -> None:
    """Do jobs until the other end is closed."""
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        fields: list[Any]
        fields, bytes_per_second = msgpack.unpackb(source.read(*LENGTH.unpack(head)))
        try:
            _do(Job(*fields), _Spending(bytes_per_second, output), output)
        except (LogError, OSError, ValueError, AssertionError) as error:
            where = [error.stem, error.position] if isinstance(error, DamagedSegmentError) else None
            output.write(packed([FAILED, str(error) or repr(error), where]))
            output.flush()


if __name__ == "__main__":
    # What somebody prints must not be taken for a frame.
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    os.nice(5)
    try:
        serve(sys.stdin.buffer, out)
    except BrokenPipeError:
        # The broker is gone.
        os._exit(0)
