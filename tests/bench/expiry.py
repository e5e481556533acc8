"""How long beyond its timeout a session lives on that says nothing more, as another client sees it.

A few sessions with a path each are left behind a fraction of a second apart, so that they meet different
moments of the servers' own clocks; a client on another server watches the paths. Counted from the last
request of a session and its timeout to the arrival of the event, the median of the sessions. What ends a key
of etcd is a lease.
"""

from __future__ import annotations

import statistics
import time

from tests.bench.cases import Case, Measured, Row, Subject
from tests.support.nodes import eventually

DEADLINE_S = 60.0
#: not a part of any round number of milliseconds that a server may count in
APART_S = 0.37

EXPIRY = Row("session expiry beyond its timeout", "s", "≤ 0.1 s")


def expiry(subject: Subject) -> Measured:
    """Leave sessions behind and wait for their ends."""
    sizes, clients = subject.sizes, subject.servers.clients
    folder = "/expiring"
    subject.fill(folder, 0)
    paths = [f"{folder}/session-{subject.next_seed()}" for _ in range(sizes.expiring)]
    left_s: dict[str, float] = {}
    begun_s = time.monotonic()
    for number, path in enumerate(paths):
        eventually(
            lambda due_s=begun_s + number * APART_S: time.monotonic() >= due_s,  # type: ignore[misc]
            DEADLINE_S,
            "the next session is due",
        )
        left_s[path] = clients.leave_behind(subject.leader_host, path, sizes.session_timeout_s)
    with clients.watching_ends(subject.other_hosts[0], paths) as ended:
        beyond_s = [time.monotonic() - left_s[path] - sizes.session_timeout_s for path in ended]
    return {EXPIRY.name: statistics.median(beyond_s)}


EXPIRIES = [Case((EXPIRY,), expiry, warmed=False)]
