"""Clients in processes of their own, which nemeses kill and stop.

A client is a process after the other. One that ends has a successor at once, and one that is stopped, too: it
goes on some time later as a zombie, and ends with the life that it is in. A line to its standard input says
that, the end of its input that the run is over. Its standard output is its history.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.chaos.recorder import Recorder
from tests.support.nodes import clean_environment

LOOK_S: Final = 0.05
#: How long a client that is stopped is silent.
SILENT_S: Final = (0.5, 9.0)
#: How long a client may take to end what it has begun.
END_S: Final = 75.0
#: How much of what a client said is shown if it ended by a mistake.
SAID_MAX: Final = 2000
#: The exit code of a client whose library does not return.
HUNG: Final = 75
#: How a client may end before the run does.
_ENDS: Final = (HUNG, -signal.SIGKILL)


class ClientProcess:
    """One process of a client."""

    def __init__(self, command: Sequence[str], name: str, recorder: Recorder, output: Path) -> None:
        """Start it; its history is recorded under its name."""
        with output.open("a") as errors:
            self.process = subprocess.Popen(
                [sys.executable, *command],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=clean_environment(),
                text=True,
            )
        self._history = threading.Thread(target=recorder.take, args=(name, self.process.stdout), name=name)
        self._history.start()
        #: When it goes on; None: it was never stopped.
        self.until: float | None = None

    @property
    def ended(self) -> bool:
        """Whether it is no more."""
        return self.process.poll() is not None

    def is_stopped(self) -> bool:
        """Whether it was stopped since the last time that somebody asked."""
        return not self.ended and os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOHANG) is not None

    def wake(self, *, over: bool) -> None:
        """Let it go on until its life ends, or until what it has begun is over."""
        if over:
            self._end_input()
        else:
            with contextlib.suppress(BrokenPipeError):
                print("last", file=self.process.stdin, flush=True)
        self.process.send_signal(signal.SIGCONT)

    def _end_input(self) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def join(self, deadline: float) -> int:
        """Return its exit code, after its history is complete; it is killed at the deadline."""
        try:
            return self.process.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            self.process.kill()
            return self.process.wait()
        finally:
            self._history.join()
            self._end_input()
            assert self.process.stdout is not None
            self.process.stdout.close()


class Client:
    """The processes of one client."""

    def __init__(
        self, name: str, command: Sequence[str], recorder: Recorder, output: Path, seed: int
    ) -> None:
        """Start nothing yet.

        Args:
            name: of the client; its processes are NAME-1, NAME-2, ….
            command: arguments of Python; its name, the number of the process and a seed come on top.
            recorder: of the run.
            output: where its standard error goes.
            seed: decides what its processes do, and how long they are silent.
        """
        self.name = name
        self.output_path = output
        self._command = command
        self._recorder = recorder
        self._rng = random.Random(seed)
        self.number = 0
        self._zombies: list[ClientProcess] = []

    def _start(self) -> None:
        self.number += 1
        words = (*self._command, self.name, str(self.number), str(self._rng.randrange(2**31)))
        self.present = ClientProcess(words, f"{self.name}-{self.number}", self._recorder, self.output_path)

    def run(self, stopping: threading.Event) -> None:
        """Keep a process running until the run ends."""
        self._start()
        try:
            while not stopping.wait(LOOK_S):
                self._look()
        finally:
            every = [*self._zombies, self.present]
            for each in every:
                each.wake(over=True)
            deadline = time.monotonic() + END_S
            codes = [each.join(deadline) for each in every]
        self._check(*codes)

    def _look(self) -> None:
        now = time.monotonic()
        if self.present.ended:
            self._check(self.present.join(now))
            self._start()
        elif self.present.is_stopped():
            self.present.until = now + self._rng.uniform(*SILENT_S)
            self._zombies.append(self.present)
            self._start()
        for each in list(self._zombies):
            if each.ended:
                self._zombies.remove(each)
                self._check(each.join(now))
            elif each.until is not None and each.until <= now:
                each.until = None
                each.wake(over=False)

    def _check(self, *codes: int) -> None:
        for code in codes:
            assert code in (0, *_ENDS), (
                f"{self.name} ended with {code}: {self.output_path.read_text()[-2000:]}"
            )
