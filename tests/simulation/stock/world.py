"""One world of stock nodes: a seed, a profile, a private copy; and what came of it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.simulation.scheduler import Scheduler
from tests.simulation.stock.findings import Finding
from tests.simulation.stock.ledger import Ledger
from tests.simulation.stock.loader import StockCopy
from tests.simulation.stock.profiles import Profile
from tests.simulation.stock.stock_node import Settings, StockNode
from tests.simulation.stock.wires import StockNetwork

BURST_MS = 300.0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a seed came to.

    Attributes:
        findings: the first of each kind.
        trace: hash of all events and of what was committed; equal for equal seeds, in every process.
        events: how many there were.
        committed: entries.
        bits: {fault or its effect: how often}.
    """

    findings: tuple[Finding, ...]
    trace: int
    events: int
    committed: int
    bits: dict[str, int]

    def of(self, defect: str) -> list[Finding]:
        """Return the findings that show a defect."""
        return [finding for finding in self.findings if finding.defect == defect]


class World:
    """Nodes, clients and faults."""

    def __init__(self, seed: int, profile: Profile, copy: StockCopy) -> None:
        self.profile = profile
        self.scheduler = Scheduler(seed)
        self.network = StockNetwork(self.scheduler, timeout_ms=profile.timeout_ms, retry_ms=profile.retry_ms)
        ids = range(1, profile.nodes + 1)
        self.ledger = Ledger(self.scheduler, ids)
        self.nodes = [
            StockNode(node_id, ids, copy, self.scheduler, self.network, self._settings(), self.ledger)
            for node_id in ids
        ]
        self._bits: Counter[str] = Counter()
        self._ends: dict[int, Callable[[], object]] = {}
        self._faults = 0
        self._numbers = 0
        self._until_ms = 1000 * profile.seconds
        self._load_rng = self.scheduler.rng("load")
        self._fault_rng = self.scheduler.rng("faults")

    def run(self) -> Outcome:
        """Run load and faults, heal, settle, and check."""
        profile = self.profile
        for node in self.nodes:
            self.scheduler.at(self.scheduler.rng("start").uniform(0.0, 300.0), node.start)
        self._next_burst()
        self._next_fault()
        self.scheduler.run(self._until_ms)
        self._heal()
        self.scheduler.run(self._until_ms + 1000 * profile.settle_seconds)
        self.ledger.close(self.nodes)
        for index, (command, term) in self.ledger.committed.items():
            self.scheduler.mix(hash((index, term, *command)))
        bits = dict(self._bits) | {what: times for what, times in self.network.bits.items() if times}
        damaged = sum(node.disk.damaged for node in self.nodes)
        return Outcome(
            tuple(sorted(self.ledger.findings.values(), key=lambda finding: finding.at_ms)),
            self.scheduler.trace,
            self.scheduler.events,
            len(self.ledger.committed),
            bits | ({"read damaged": damaged} if damaged else {}),
        )

    def _settings(self) -> Settings:
        """Return a node's configuration: some are slower to campaign than others."""
        library = dict(self.profile.library)
        factor = self.scheduler.rng("patience").uniform(1.0, self.profile.patience_max)
        for name, seconds in (("raftMinTimeout", 0.4), ("raftMaxTimeout", 1.4)):
            library[name] = factor * library.get(name, seconds)
        return Settings(files=self.profile.files, library=library)

    # --- for faults

    def for_a_while(
        self, ms: float, begin: Callable[[], object], end: Callable[[], object], what: str
    ) -> None:
        """See Stage."""
        begin()
        self.bit(what)
        self._faults += 1
        number = self._faults
        self._ends[number] = end
        self.scheduler.at(ms, self._end_fault, number)

    def bit(self, what: str) -> None:
        """See Stage."""
        self._bits[what] += 1

    # --- within

    def _end_fault(self, number: int) -> None:
        end = self._ends.pop(number, None)
        if end is not None:
            end()

    def _next_fault(self) -> None:
        rng = self._fault_rng
        weights = [weight for weight, _ in self.profile.faults]
        fault = rng.choices([fault for _, fault in self.profile.faults], weights)[0]

        def happen() -> None:
            if self.scheduler.now_ms < self._until_ms:
                fault(self, rng)
                self._next_fault()

        self.scheduler.at(rng.expovariate(1 / self.profile.gap_ms), happen)

    def _next_burst(self) -> None:
        """Have a client send some commands to one node, within a short while."""
        if self.scheduler.now_ms >= self._until_ms:
            return
        rng = self._load_rng
        self.scheduler.at(rng.expovariate(1 / self.profile.burst_gap_ms), self._next_burst)
        node = rng.choice(self.nodes)
        for _ in range(rng.randint(1, self.profile.burst_commands)):
            self.scheduler.at(rng.uniform(0.0, BURST_MS), self._propose, node)

    def _propose(self, node: StockNode) -> None:
        rng = self._load_rng
        raises, amount = rng.random() < self.profile.raising_share, rng.randint(1, 9)
        if node.machine is None:
            return
        self._numbers += 1
        number = self._numbers
        self.ledger.answers[number] = 0
        answered = partial(self._answered, node, node.life, number)
        if raises:
            node.propose("share", number, 0, callback=answered)
        else:
            node.propose("put", number, amount, callback=answered)

    def _answered(self, node: StockNode, life: int, number: int, result: Any, error: int) -> None:
        if node.life == life and not node.disk.stopped:
            self.ledger.answered(node, number, result, error)

    def _heal(self) -> None:
        for number in list(self._ends):
            self._end_fault(number)
        for node in self.nodes:
            node.disk.damage_reads_of = ""
            if node.machine is None:
                node.start()


def run_seed(seed: int, profile: Profile, copy: StockCopy) -> Outcome:
    """Run one world; the same arguments give the same outcome."""
    return World(seed, profile, copy).run()
