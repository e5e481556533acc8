"""What the machine tells while something is measured: CPU time, memory, its disk, and when a wait was over.

Reads clocks and /proc, and times a probe file; knows nothing of the systems or of what is measured.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from quorum.platform.interpreter import interpreter
from tests.support.nodes import eventually

READY_DEADLINE_S = 300.0
#: CPUCLOCK_SCHED of the kernel: what the scheduler has counted, precisely
_CLOCK_OF_PROCESS = 2


def machine(folder: Path) -> list[str]:
    """Lines that say when, where and on what disk a benchmark ran."""
    disk = measure_disk(folder)
    now = dt.datetime.now(dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
    runs = interpreter()
    return [
        f"{now} · {os.cpu_count()} cores · {platform.platform()}",
        (
            f"{runs['implementation']} {runs['python']} with uvloop {runs['uvloop']}, built with "
            f"profile-guided optimisation: {runs['pgo']}, with link-time optimisation: {runs['lto']}"
        ),
        f"load average at the start: {', '.join(f'{load:.1f}' for load in os.getloadavg())}",
        f"fdatasync of a 4 KB append in {folder}: p50 {disk.p50_ms:.3f} ms, p99 {disk.p99_ms:.3f} ms",
    ]


def seconds_until(conditions: Sequence[Callable[[], bool]]) -> list[float]:
    """Wait for all conditions at once; returns how many seconds each took to come true."""
    started = time.monotonic()
    seconds: dict[int, float] = {}

    def look() -> bool:
        for number, condition in enumerate(conditions):
            if number not in seconds and condition():
                seconds[number] = time.monotonic() - started
        return len(seconds) == len(conditions)

    eventually(look, READY_DEADLINE_S, "all servers serve")
    return [seconds[number] for number in range(len(conditions))]


def cpu_seconds(pids: Sequence[int]) -> float:
    """User and system CPU time that running processes have used so far, all their threads together.

    By the clock that Linux keeps of each process, in nanoseconds: /proc/PID/stat counts in ticks of 10 ms, of
    which a short measurement may see none.

    Raises:
        OSError: a process is not there.

    Source: clock_getcpuclockid(3), whose clock ids are made of the process id as here.
    """
    return sum(time.clock_gettime((~pid << 3) | _CLOCK_OF_PROCESS) for pid in pids)


def memory_bytes(pid: int) -> tuple[int, int]:
    """(VmHWM, VmRSS) of a process: the most it ever held, and what it holds now."""
    text = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmHWM|VmRSS):\s+(\d+) kB$", text, re.MULTILINE))
    return int(found["VmHWM"]) * 1024, int(found["VmRSS"]) * 1024


@dataclass(frozen=True)
class Disk:
    """What one fdatasync of a small append costs on a disk."""

    p50_ms: float
    p99_ms: float


def measure_disk(folder: Path, rounds: int = 200, append_bytes: int = 4096) -> Disk:
    """Time fdatasync after small appends to a file in folder."""
    path = folder / "fdatasync-probe"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    times: list[float] = []
    try:
        for _ in range(rounds):
            os.write(descriptor, os.urandom(append_bytes))
            started = time.perf_counter()
            os.fdatasync(descriptor)
            times.append((time.perf_counter() - started) * 1000.0)
    finally:
        os.close(descriptor)
        path.unlink()
    ordered = sorted(times)
    return Disk(ordered[rounds // 2], ordered[rounds * 99 // 100])
