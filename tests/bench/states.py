"""Versioned partition states: what a controller writes after a broker died.

Each state demands the version that it was last given, and each transaction checks the fence besides: one
state at a time, the serial way, and as many in one transaction as is usual (1,000; etcd ships to take 127
beside the fence), ten transactions in flight. Every pass over a folder raises all versions by one, so a lost
or repeated transaction fails the next pass. Source: ARCHITECTURE.md, "Life of a broker failure".
"""

from __future__ import annotations

from tests.bench.cases import Case, Measured, Row, Subject
from tests.support.wire_load import Job

IN_FLIGHT = 10

ONE_BY_ONE = Row("10,000 versioned states + epoch check, one by one", "s")
IN_MULTIS = Row("10,000 states in multis", "s", "≤ 0.5×")
MANY_IN_MULTIS = Row("100,000 states in multis", "s", "≤ 0.5×")


def _seconds(subject: Subject, name: str, count: int, batch: int) -> float:
    # After a pass that ended in its middle nobody knows the versions: the next one has a folder of its own.
    folder = f"{name}-{len(subject.broken)}"
    subject.fill(folder, count)
    job = Job(
        subject.leader_host,
        "states",
        folder,
        count,
        window=IN_FLIGHT if batch > 1 else 1,
        seed=subject.next_seed(),
        batch=batch,
        version=subject.passes[folder],
    )
    (outcome,) = subject.run([job])
    subject.passes[folder] += 1
    return outcome.elapsed_s


def one_by_one(subject: Subject) -> Measured:
    """Each state in a transaction of its own, after the answer to the last one."""
    return {ONE_BY_ONE.name: _seconds(subject, "/states-single", subject.sizes.states, 1)}


def in_multis(subject: Subject) -> Measured:
    """As many in a transaction as the server takes, first few states, then many."""
    batch, sizes = subject.servers.clients.states_per_request, subject.sizes
    return {
        IN_MULTIS.name: _seconds(subject, "/states-few", sizes.states, batch),
        MANY_IN_MULTIS.name: _seconds(subject, "/states-many", sizes.states_many, batch),
    }


STATES = [
    Case((ONE_BY_ONE,), one_by_one, warmed=False),
    Case((IN_MULTIS, MANY_IN_MULTIS), in_multis),
]
