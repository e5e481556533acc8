"""How long a thread waited for a core, as the kernel counts it.

A thread that is woken late, or preempted, stands in the run queue; one that waits for a disk, a lock or the
interpreter does not. Where the kernel does not count, nobody waited. Soft state.
Source: proc(5), schedstat; docs/internals/consensus.md, "A node that stood still".
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import Final

#: nanoseconds on a core, nanoseconds in the run queue, and how often it was on a core
SCHEDSTAT: Final = "/proc/thread-self/schedstat"
_BYTES_MAX: Final = 64


class _Count:
    """The kernel's count of one thread."""

    def __init__(self) -> None:
        self.descriptor: int | None = None
        with contextlib.suppress(OSError):
            self.descriptor = os.open(SCHEDSTAT, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.descriptor is not None:
            os.close(self.descriptor)


class _Counts(threading.local):
    """Those of all threads; one that ends takes its own along."""

    def __init__(self) -> None:
        self.count = _Count()


_COUNTS: Final = _Counts()


def counted() -> bytes:
    """Return what the kernel has counted of the calling thread; b"" where it does not count."""
    descriptor = _COUNTS.count.descriptor
    return b"" if descriptor is None else os.pread(descriptor, _BYTES_MAX, 0)


def waited_ms(since: bytes) -> float:
    """Return how many milliseconds the calling thread waited for a core since it was `counted`."""
    before, after = since.split(), counted().split()
    return (int(after[1]) - int(before[1])) / 1e6 if before else 0.0
