"""The pause of acknowledged writes when the leader is killed or hangs, for every system alike.

Two synchronous clients write on the two servers that do not lead; a client whose write fails tries again at
once on the same server, over a new connection with its old session if need be. The gap of a round is the
longest time between two acknowledgements around the strike, the worse of the two clients. Unlike in
tests/bench/failover.py, errors are no fault here: ZooKeeper and etcd answer with them.
"""

from __future__ import annotations

import itertools
import threading
import time
from typing import Self

from tests.bench.cases import Case, Measured, Row, Subject
from tests.bench.clients import Writer
from tests.support.nodes import eventually
from tests.support.wire_load import LoadError

DEADLINE_S = 120.0
#: between a failed write and the next attempt
RETRY_S = 0.005

KILLED = Row("leader killed (−9): gap between acknowledged writes", "s", "≤ 0.15 s")
STOPPED = Row("leader hangs (SIGSTOP): gap", "s", "≤ 0.6 s")


class PersistentClient:
    """A client that writes in a thread of its own, whatever happens, until it is stopped."""

    def __init__(self, writer: Writer) -> None:
        """Begin to write."""
        self._writer = writer
        self._stopping = threading.Event()
        #: monotonic seconds of every acknowledgement
        self.acknowledged_s: list[float] = []
        self.failures = 0
        self._thread = threading.Thread(target=self._run, name="persistent client", daemon=True)
        self._thread.start()

    def gap_s(self, since_s: float) -> float:
        """Longest time between two acknowledgements, the second of which came after `since_s`."""
        return longest_gap_s(list(self.acknowledged_s), since_s)

    def wait_for(self, count: int) -> None:
        """Wait until so many more writes are acknowledged."""
        target = len(self.acknowledged_s) + count
        eventually(lambda: len(self.acknowledged_s) >= target, DEADLINE_S, "a client's writes go on")

    def _run(self) -> None:
        for number in itertools.count(1):
            try:
                self._writer.write(number)
                self.acknowledged_s.append(time.monotonic())
            except (OSError, LoadError):
                self.failures += 1
                self._stopping.wait(RETRY_S)
            if self._stopping.is_set():
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stopping.set()
        self._thread.join(DEADLINE_S)
        self._writer.close()


def longest_gap_s(times_s: list[float], since_s: float) -> float:
    """Longest time between two neighbours the second of which is after `since_s`; 0.0 if there is none."""
    pairs = itertools.pairwise(times_s)
    return max((later - earlier for earlier, later in pairs if later > since_s), default=0.0)


def _gap_s(subject: Subject, *, killed: bool) -> float:
    servers, around = subject.servers, subject.sizes.acknowledged_around
    servers.settle()
    leader = servers.leader()
    first, second = (
        servers.clients.writer(host, f"/gap-{subject.next_seed()}") for host in subject.other_hosts
    )
    try:
        with PersistentClient(first) as one, PersistentClient(second) as two:
            for client in (one, two):
                client.wait_for(around)
            struck_s = time.monotonic()
            (servers.kill if killed else servers.pause)(leader)
            for client in (one, two):
                client.wait_for(around)
            gap_s = max(client.gap_s(struck_s) for client in (one, two))
    finally:
        (servers.revive if killed else servers.resume)(leader)
    servers.settle()
    return gap_s


def killed(subject: Subject) -> Measured:
    """The leader's process ends by SIGKILL."""
    return {KILLED.name: _gap_s(subject, killed=True)}


def stopped(subject: Subject) -> Measured:
    """The leader's process is frozen by SIGSTOP."""
    return {STOPPED.name: _gap_s(subject, killed=False)}


GAPS = [Case((KILLED,), killed, warmed=False), Case((STOPPED,), stopped, warmed=False)]
