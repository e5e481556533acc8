"""Runs `quorate broker` as it is shipped, on a disk that a test makes slow, broken or silent.

    python -m tests.support.hanging_broker broker …

While a file lies in the working folder: `silent-fsync`: no fsync of this process comes back; `silent-write`:
no write of the event loop does; `broken-fsync`: the next fsync fails, once; `slow-fsync`: each takes so many
seconds more. Everything else is shipped code.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quorum.cli.main import main as quorate
from tests.support.broker_cluster import BrokerCluster, BrokerProcess

SILENT_FSYNC, SILENT_WRITE = "silent-fsync", "silent-write"
BROKEN_FSYNC, SLOW_FSYNC = "broken-fsync", "slow-fsync"
#: written by the process once it has met the fault
MET = ".met"
#: how often it is looked whether a silent disk answers again
_LOOK_S = 0.05


class HangingBrokers(BrokerCluster):
    """Brokers on such disks."""

    def command(self, broker: BrokerProcess) -> list[str]:
        """Run the broker by this module."""
        return [
            each if each != "quorum" else "tests.support.hanging_broker" for each in super().command(broker)
        ]

    def ask(self, broker_id: int, fault: str, content: str = "") -> None:
        """Let a broker's disk have a fault from now on."""
        folder = self.brokers[broker_id].folder
        (folder / (fault + MET)).unlink(missing_ok=True)
        aside = folder / f"{fault}.aside"
        aside.write_text(content)
        aside.rename(folder / fault)

    def mend(self, broker_id: int, fault: str) -> None:
        """Let it be as good as before."""
        (self.brokers[broker_id].folder / fault).unlink(missing_ok=True)

    def has_met(self, broker_id: int, fault: str) -> bool:
        """Whether the broker has met the fault."""
        return (self.brokers[broker_id].folder / (fault + MET)).exists()


def _met(fault: str) -> None:
    Path(fault + MET).touch()


def _stay_silent(fault: str) -> None:
    while Path(fault).exists():
        _met(fault)
        # The fault itself: nothing ever sets it.
        threading.Event().wait(_LOOK_S)


def install() -> None:
    """Let this process meet the faults that it is asked for."""
    fsync, pwritev = os.fsync, os.pwritev

    def faulty_fsync(descriptor: int) -> None:
        _stay_silent(SILENT_FSYNC)
        if Path(SLOW_FSYNC).exists():
            _met(SLOW_FSYNC)
            threading.Event().wait(float(Path(SLOW_FSYNC).read_text()))
        if Path(BROKEN_FSYNC).exists():
            Path(BROKEN_FSYNC).unlink()
            _met(BROKEN_FSYNC)
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    def faulty_pwritev(descriptor: int, buffers: Sequence[Any], offset: int, flags: int = 0) -> int:
        if threading.current_thread() is threading.main_thread():
            _stay_silent(SILENT_WRITE)
        return pwritev(descriptor, buffers, offset, flags)

    os.fsync = faulty_fsync  # type: ignore[assignment]
    os.pwritev = faulty_pwritev  # type: ignore[assignment]


def main() -> int:
    """Run the broker of the command line."""
    install()
    return quorate(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
