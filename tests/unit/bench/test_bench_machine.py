"""What the benchmarks read off the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from tests.bench.machine import cpu_seconds


def test_the_cpu_time_of_a_process_is_read_more_finely_than_in_ticks() -> None:
    for _ in range(3):
        before = time.process_time()
        seen = cpu_seconds([os.getpid()])
        assert before < seen < time.process_time()


def test_the_cpu_time_of_several_processes_is_added_up() -> None:
    spent = time.process_time()
    assert cpu_seconds([os.getpid(), os.getpid()]) > 2 * spent


def test_the_cpu_time_of_a_process_that_is_gone_is_not_told() -> None:
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    with pytest.raises(OSError, match="Invalid argument"):
        cpu_seconds([os.getpid(), gone.pid])
