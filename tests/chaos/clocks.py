"""Wall clocks of processes that jump while they run, by libfaketime; monotonic clocks go on as they are.

A process reads how far its wall clock is off from a file in its working folder, each time that it asks for
the time. The library is loaded only where a run wants it.
Source: libfaketime 0.9.10, README ("Using the library with a file").
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

FILE: Final = "clock"
LIBRARIES: Final = Path("/usr/lib")
PATTERN: Final = "*/faketime/libfaketimeMT.so.1"


class FaketimeMissingError(RuntimeError):
    """There is no libfaketime."""

    def __init__(self) -> None:
        super().__init__(f"{LIBRARIES / PATTERN} is missing: run deploy/ensure-faketime.sh")


def environment() -> dict[str, str]:
    """What a process needs in its environment so that its clock can be set.

    Raises:
        FaketimeMissingError: there is no libfaketime.
    """
    found = sorted(LIBRARIES.glob(PATTERN))
    if not found:
        raise FaketimeMissingError
    return {
        "LD_PRELOAD": str(found[0]),
        "FAKETIME_TIMESTAMP_FILE": FILE,
        "FAKETIME_NO_CACHE": "1",
        "NO_FAKE_STAT": "1",
        # The default is for an old glibc: with a newer one, waits for the interpreter's lock end at once.
        "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }


def put_off(folder: Path, seconds: int) -> None:
    """Let the clock of the process of a working folder be so far ahead, or behind if negative."""
    aside = folder / f"{FILE}.aside"
    aside.write_text(f"{seconds:+d}\n")
    aside.rename(folder / FILE)
