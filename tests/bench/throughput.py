"""Reads, writes and fenced writes of 100 bytes: one by one, many in flight, and from eight processes.

A single connection goes to the server that leads, where every system is quickest; eight processes spread over
all servers. Each load is one process per connection with requests encoded before the clock starts. After the
pipelined writes every value is read back from a server that does not lead.
"""

from __future__ import annotations

from tests.bench.cases import Case, Measured, Row, Subject
from tests.bench.machine import cpu_seconds
from tests.support.wire_load import Job

FOLDER = "/bench"
FENCED_NODES = 1000
PROCESSES = 8
IN_FLIGHT = 64
FENCED_IN_FLIGHT = 10

SYNC_WRITE = Row("write, 1 client, sync: p50", "ms", "≤ 1.0×, then 0.7×")
WRITE = Row("write, 64 in flight on one connection", "/s", "≥ 5×")
WRITE_CPU = Row("server CPU per 1,000 of these, three servers", "s", "≤ 0.015 s")
EIGHT_WRITE = Row("write, 8 processes × 64", "/s", "≥ 4×")
SYNC_READ = Row("read, 1 client, sync: p50", "ms", "≤ 0.7×")
READ = Row("read, 64 in flight", "/s", "≥ 3×")
EIGHT_READ = Row("read, 8 × 64", "/s", "≥ 3×")
SYNC_READ_LINEARIZABLE = Row("linearizable read, 1 client, sync: p50", "ms", compared=False)
READ_LINEARIZABLE = Row("linearizable read, 64 in flight", "/s", compared=False)
MULTI = Row("multi(check, setData), 10 in flight on one session", "/s", "≥ 4× ZooKeeper")


def _ground(subject: Subject) -> None:
    sizes = subject.sizes
    subject.fill(FOLDER, max(sizes.pipelined, PROCESSES * sizes.by_each_of_eight, FENCED_NODES))


def _one(subject: Subject, kind: str, count: int, window: int) -> Job:
    seed = subject.next_seed()
    return Job(subject.leader_host, kind, FOLDER, count, window, seed=seed, nodes=FENCED_NODES)


def _p50_ms(subject: Subject, kind: str, count: int) -> float:
    _ground(subject)
    return subject.run([_one(subject, kind, count, 1)])[0].p50_ms


def _rate(subject: Subject, kind: str, count: int, window: int = IN_FLIGHT) -> float:
    _ground(subject)
    return count / subject.run([_one(subject, kind, count, window)])[0].elapsed_s


def _rate_of_eight(subject: Subject, kind: str) -> float:
    _ground(subject)
    count, hosts = subject.sizes.by_each_of_eight, subject.servers.hosts
    jobs = [
        Job(
            hosts[number % len(hosts)],
            kind,
            FOLDER,
            count,
            IN_FLIGHT,
            seed=subject.next_seed(),
            first=number * count,
        )
        for number in range(PROCESSES)
    ]
    outcomes = subject.run(jobs)
    return PROCESSES * count / max(outcome.elapsed_s for outcome in outcomes)


def sync_writes(subject: Subject) -> Measured:
    """One client, each write after the answer to the last one."""
    return {SYNC_WRITE.name: _p50_ms(subject, "sync_write", subject.sizes.sync_writes)}


def writes(subject: Subject) -> Measured:
    """Writes of one connection, the CPU time that they cost the servers, and whether all are there."""
    _ground(subject)
    count = subject.sizes.pipelined
    job = _one(subject, "set", count, IN_FLIGHT)
    before = cpu_seconds(subject.servers.pids)
    (outcome,) = subject.run([job])
    used = cpu_seconds(subject.servers.pids) - before
    follower = subject.other_hosts[0]
    subject.servers.clients.sync(follower)
    subject.run([Job(follower, "read_verify", FOLDER, count, IN_FLIGHT, seed=job.seed)])
    return {WRITE.name: count / outcome.elapsed_s, WRITE_CPU.name: used * 1000.0 / count}


def writes_of_eight(subject: Subject) -> Measured:
    """Writes of eight processes over all servers."""
    return {EIGHT_WRITE.name: _rate_of_eight(subject, "set")}


def sync_reads(subject: Subject) -> Measured:
    """One client, each read after the answer to the last one."""
    measured = {SYNC_READ.name: _p50_ms(subject, "sync_read", subject.sizes.sync_reads)}
    if subject.servers.clients.linearizable_reads:
        count = subject.sizes.sync_reads
        measured[SYNC_READ_LINEARIZABLE.name] = _p50_ms(subject, "sync_read_linearizable", count)
    return measured


def reads(subject: Subject) -> Measured:
    """Reads of one connection."""
    count = subject.sizes.pipelined
    measured = {READ.name: _rate(subject, "read", count)}
    if subject.servers.clients.linearizable_reads:
        measured[READ_LINEARIZABLE.name] = _rate(subject, "read_linearizable", count)
    return measured


def reads_of_eight(subject: Subject) -> Measured:
    """Reads of eight processes over all servers."""
    return {EIGHT_READ.name: _rate_of_eight(subject, "read")}


def multis(subject: Subject) -> Measured:
    """A controller's own pattern: every write checks the fence in the same transaction."""
    return {MULTI.name: _rate(subject, "fenced", subject.sizes.multis, FENCED_IN_FLIGHT)}


WRITES = [
    Case((SYNC_WRITE,), sync_writes),
    Case((WRITE, WRITE_CPU), writes),
    Case((EIGHT_WRITE,), writes_of_eight),
]
READS = [
    Case((SYNC_READ, SYNC_READ_LINEARIZABLE), sync_reads),
    Case((READ, READ_LINEARIZABLE), reads),
    Case((EIGHT_READ,), reads_of_eight),
]
MULTIS = [Case((MULTI,), multis)]
