"""What a case of the comparison is: rows of the table, and how one system is measured for them once.

`Subject` is a system with what the cases have laid out on it so far, so that a case prepares its paths once
and not in every round. `Sizes` says how much is done: `FULL` for a table, `TINY` to see that a case works.
Source: docs/internals/benchmarks.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tests.bench.servers import Servers
from tests.support.wire_load import Job, Outcome, run_jobs


@dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
        name: what is measured.
        unit: "/s", "ms", "s" or "MB".
        goal: in words, as a ratio to the better peer or as a value.
        compared: whether the systems do the same thing, so that a ratio says something.
    """

    name: str
    unit: str
    goal: str = ""
    compared: bool = True

    @property
    def more_is_better(self) -> bool:
        """A rate shall be high, everything else low."""
        return self.unit == "/s"


@dataclass(frozen=True)
class Sizes:
    """How much each case does."""

    sync_writes: int = 1000
    sync_reads: int = 2000
    pipelined: int = 20_000
    by_each_of_eight: int = 5000
    multis: int = 5000
    states: int = 10_000
    states_many: int = 100_000
    watchers: int = 1000
    notifications: int = 3
    expiring: int = 5
    session_timeout_s: int = 4
    acknowledged_around: int = 100
    nodes: int = 1_000_000


FULL: Final = Sizes()
TINY: Final = Sizes(
    sync_writes=5,
    sync_reads=5,
    pipelined=200,
    by_each_of_eight=20,
    multis=30,
    states=300,
    states_many=1200,
    watchers=6,
    notifications=1,
    expiring=1,
    acknowledged_around=5,
    nodes=2000,
)


@dataclass
class Subject:
    """A system and what the cases have done to it."""

    servers: Servers
    sizes: Sizes
    #: {folder: nodes in it}
    filled: dict[str, int] = field(default_factory=dict)
    #: {folder: how often all of its states were set}
    passes: Counter[str] = field(default_factory=Counter)
    #: every load writes other values
    seed: int = 0
    #: measurements that a server ended, "case: error"
    broken: list[str] = field(default_factory=list)

    def fill(self, folder: str, count: int) -> None:
        """Make a folder with so many nodes, once."""
        if self.filled.get(folder, -1) < count:
            self.servers.clients.fill(self.leader_host, folder, count)
            self.filled[folder] = count

    def next_seed(self) -> int:
        """A seed that no load of this system had."""
        self.seed += 1
        return self.seed

    def run(self, jobs: Sequence[Job]) -> list[Outcome]:
        """Run jobs with the load program of the system's protocol."""
        return run_jobs(jobs, self.servers.clients.program)

    @property
    def leader_host(self) -> str:
        """Address of the server that leads now."""
        return self.servers.hosts[self.servers.leader()]

    @property
    def other_hosts(self) -> list[str]:
        """Addresses of the servers that do not lead now."""
        leader = self.servers.leader()
        return [host for position, host in enumerate(self.servers.hosts) if position != leader]


#: {name of a row: what was measured}
Measured = Mapping[str, float]


@dataclass(frozen=True)
class Case:
    """Something that is done to one system at a time.

    Attributes:
        rows: what it measures; a row that a system has no value for is left out of its result.
        measure: does it once.
        warmed: whether a first, unmeasured time makes the later ones alike.
    """

    rows: tuple[Row, ...]
    measure: Callable[[Subject], Measured]
    warmed: bool = True
