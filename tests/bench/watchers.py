"""From a write until everybody who watches the path knows: a thousand connections over all servers.

Each watcher has a connection (and a session) of its own, as brokers have. All of them are read by one loop,
whose few microseconds per event are a part of every system's time. Several notifications per round, of
which the median counts.
"""

from __future__ import annotations

import functools
import resource
import selectors
import statistics
import time
from collections.abc import Callable, Sequence

from tests.bench.cases import Case, Measured, Row, Subject
from tests.bench.clients import Watcher
from tests.support.wire_load import LoadError

FOLDER = "/watched"
PATH = f"{FOLDER}/n0000000"
DEADLINE_S = 60.0
SPARE_DESCRIPTORS = 200

NOTIFIED = Row("1,000 watchers on one node: all notified", "ms", "≤ 0.5×")


def allow_descriptors(count: int) -> None:
    """Raise the limit of open files of this process as far as needed and allowed.

    Raises:
        LoadError: the system allows fewer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        if hard != resource.RLIM_INFINITY and hard < count:
            raise LoadError(f"{count} open files are needed, {hard} allowed: raise `ulimit -Hn`")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def until_all_know_s(watchers: Sequence[Watcher], write: Callable[[], None]) -> float:
    """Write, and return the seconds until each watcher has its event.

    Raises:
        LoadError: somebody had none in time.
    """
    with selectors.DefaultSelector() as selector:
        for watcher in watchers:
            selector.register(watcher.socket, selectors.EVENT_READ, watcher)
        started_s = time.monotonic()
        write()
        while waiting := len(selector.get_map()):
            if time.monotonic() > started_s + DEADLINE_S:
                raise LoadError(f"{waiting} of {len(watchers)} watchers know nothing")
            for key, _events in selector.select(1.0):
                if key.data.take():
                    selector.unregister(key.fileobj)
        return time.monotonic() - started_s


def watchers(subject: Subject) -> Measured:
    """Let all watch, write, and wait for all events; several times."""
    servers, count = subject.servers, subject.sizes.watchers
    allow_descriptors(count + SPARE_DESCRIPTORS)
    subject.fill(FOLDER, 1)
    hosts = [servers.hosts[number % len(servers.hosts)] for number in range(count)]
    seconds = []
    with (
        servers.clients.watchers(hosts, PATH) as crowd,
        servers.clients.setter(subject.leader_host, PATH) as put,
    ):
        for _ in range(subject.sizes.notifications):
            for watcher in crowd:
                watcher.arm()
            value = b"%0100d" % subject.next_seed()
            seconds.append(until_all_know_s(crowd, functools.partial(put, value)))
    return {NOTIFIED.name: statistics.median(seconds) * 1000.0}


WATCHERS = [Case((NOTIFIED,), watchers)]
