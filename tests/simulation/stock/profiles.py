"""What is drawn in the worlds that look for one defect: nodes, configuration, load and faults.

A profile says which kinds of faults there are and how often; when, where and how long is drawn from the seed.
None of them is a script, and none of the faults knows a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any, Protocol

from tests.simulation.scheduler import Scheduler
from tests.simulation.stock.stock_node import StockNode
from tests.simulation.stock.wires import StockNetwork


class Stage(Protocol):
    """What faults act upon."""

    scheduler: Scheduler
    network: StockNetwork
    nodes: list[StockNode]

    def for_a_while(
        self, ms: float, begin: Callable[[], object], end: Callable[[], object], what: str
    ) -> None:
        """Begin a fault and end it later, at the latest when the world is healed."""

    def bit(self, what: str) -> None:
        """Note that a fault happened."""


Fault = Callable[[Stage, Random], None]


@dataclass(frozen=True)
class Profile:
    """A kind of world.

    Attributes:
        defect: what it is for.
        title: its faults in words.
        faults: (weight, fault).
        gap_ms: mean time from one fault to the next.
        nodes: how many.
        seconds, settle_seconds: of load with faults, and healed with neither.
        files: journal and snapshots on disk, else in memory.
        burst_gap_ms, burst_commands: mean time from one burst of commands to the next, and the largest.
        raising_share: of commands whose apply raises.
        library: options of SyncObjConf that differ from their defaults.
        patience_max: the election timeouts of a node are up to so many times the configured ones.
        retry_ms, timeout_ms: the transport's connectionRetryTime and connectionTimeout.
    """

    defect: str
    title: str
    faults: tuple[tuple[float, Fault], ...]
    gap_ms: float
    nodes: int = 3
    seconds: float = 20.0
    settle_seconds: float = 8.0
    files: bool = False
    burst_gap_ms: float = 250.0
    burst_commands: int = 20
    raising_share: float = 0.0
    library: dict[str, Any] = field(default_factory=dict)
    patience_max: float = 1.0
    retry_ms: float = 1000.0
    timeout_ms: float = 3500.0


# --- faults


def _some_node(stage: Stage, rng: Random) -> StockNode:
    """Draw a node, a leader half of the time."""
    leaders = [node for node in stage.nodes if node.is_leader]
    return rng.choice(leaders if leaders and rng.random() < 0.5 else stage.nodes)


def _cut(stage: Stage, source: int, target: int, ms: float) -> None:
    network = stage.network
    stage.for_a_while(ms, partial(network.cut, source, target), partial(network.heal, source, target), "cut")


def _cut_between(stage: Stage, ms: float, some: list[StockNode]) -> None:
    for one in some:
        for other in stage.nodes:
            if other not in some:
                _cut(stage, one.id, other.id, ms)
                _cut(stage, other.id, one.id, ms)


def isolate(least_ms: float, most_ms: float) -> Fault:
    """Cut a node off from all others."""

    def fault(stage: Stage, rng: Random) -> None:
        _cut_between(stage, rng.uniform(least_ms, most_ms), [_some_node(stage, rng)])

    return fault


def split(least_ms: float, most_ms: float) -> Fault:
    """Cut the nodes into a majority and a minority."""

    def fault(stage: Stage, rng: Random) -> None:
        first = _some_node(stage, rng)
        others = [node for node in stage.nodes if node is not first]
        some = [first, *rng.sample(others, (len(stage.nodes) - 1) // 2 - 1)]
        _cut_between(stage, rng.uniform(least_ms, most_ms), some)

    return fault


def cut_one_way(stage: Stage, rng: Random) -> None:
    """Cut one direction between two nodes."""
    source, target = rng.sample(stage.nodes, 2)
    _cut(stage, source.id, target.id, rng.uniform(500.0, 0.95 * stage.network.timeout_ms))


def slow_link(stage: Stage, rng: Random) -> None:
    """Delay one direction between two nodes."""
    source, target = rng.sample(stage.nodes, 2)
    _slow(stage, rng, [(source.id, target.id)])


def slow_node(stage: Stage, rng: Random) -> None:
    """Delay everything to and from a node."""
    node = _some_node(stage, rng)
    others = [other.id for other in stage.nodes if other is not node]
    _slow(stage, rng, [pair for other in others for pair in ((node.id, other), (other, node.id))])


def _slow(stage: Stage, rng: Random, pairs: list[tuple[int, int]]) -> None:
    least_ms = rng.uniform(10.0, 400.0)
    delay_ms = (least_ms, least_ms * rng.uniform(1.0, 5.0))

    def begin() -> None:
        stage.network.slow.update(dict.fromkeys(pairs, delay_ms))

    def end() -> None:
        for pair in pairs:
            stage.network.slow.pop(pair, None)

    stage.for_a_while(rng.uniform(500.0, 4000.0), begin, end, "slowed")


def reconnect(stage: Stage, rng: Random) -> None:
    """Break a connection at one side."""
    source, target = rng.sample(stage.nodes, 2)
    stage.network.break_wire(source.id, target.id)
    stage.bit("connection broken")


def stall(stage: Stage, rng: Random) -> None:
    """Have what a node sends on a connection arrive late; one that can connect anew gives it up before."""
    source, target = (node.id for node in rng.sample(stage.nodes, 2))
    ms = rng.uniform(0.1, 0.95) * stage.network.timeout_ms
    wire = stage.network.stall(source, target, ms)

    def give_up() -> None:
        if source > target and wire is not None and stage.network.wire(source, target) is wire:
            stage.network.break_wire(source, target)

    stage.scheduler.at(rng.uniform(0.0, 0.5) * ms, give_up)


def kill_one(stage: Stage, rng: Random) -> None:
    """Kill a node, now or within one of its next disk calls; it comes again."""
    _kill(stage, rng, rng.choice(stage.nodes))


def kill_all(stage: Stage, rng: Random) -> None:
    """Kill all nodes, each now or within one of its next disk calls."""
    for node in stage.nodes:
        _kill(stage, rng, node)


def _kill(stage: Stage, rng: Random, node: StockNode) -> None:
    life = node.life
    if rng.random() < 0.5:
        node.disk.stop_after(rng.randrange(200))
    else:
        node.kill()

    def again() -> None:
        if node.life == life:
            stage.bit("killed")
            node.kill()
            node.start()

    stage.scheduler.at(rng.uniform(1000.0, 3000.0), again)


def damage_dump(stage: Stage, rng: Random) -> None:
    """Have the next read of a node's snapshot come back with one bit turned around."""
    _some_node(stage, rng).disk.damage_reads_of = "dump"
    stage.bit("read to be damaged")


# --- profiles

#: small enough that logs are compacted within seconds
_COMPACTING = {"logCompactionMinEntries": 40, "logCompactionBatchSize": 400}
_PARTITIONS = ((3.0, isolate(500.0, 5000.0)), (1.0, cut_one_way))


def _kills(defect: str) -> Profile:
    return Profile(
        defect,
        "kills, the disk loses nothing",
        ((3.0, kill_one), (1.0, kill_all)),
        gap_ms=2000.0,
        files=True,
        library=_COMPACTING,
    )


PROFILES = {
    profile.defect: profile
    for profile in (
        Profile("D1", "partitions", _PARTITIONS, gap_ms=2500.0, library=_COMPACTING),
        Profile(
            "D2",
            "delay and reconnect",
            ((2.0, slow_link), (1.0, slow_node), (1.0, reconnect)),
            gap_ms=700.0,
        ),
        # long tails and frequent changes of the leader: late answers are many, wrong ones few
        Profile(
            "D3",
            "delay and reconnect, splits",
            ((3.0, stall), (0.8, split(400.0, 1200.0)), (0.3, isolate(400.0, 800.0))),
            gap_ms=240.0,
            nodes=7,
            burst_gap_ms=1500.0,
            burst_commands=120,
            library={"raftMinTimeout": 0.16, "raftMaxTimeout": 0.4, "appendEntriesPeriod": 0.05},
            patience_max=5.0,
            retry_ms=200.0,
            timeout_ms=6000.0,
        ),
        _kills("D5"),
        Profile(
            "D6",
            "an apply that raises",
            ((1.0, reconnect),),
            gap_ms=5000.0,
            seconds=10.0,
            settle_seconds=3.0,
            raising_share=0.02,
        ),
        Profile(
            "D14",
            "partitions, damaged chunks",
            (*_PARTITIONS, (3.0, damage_dump)),
            gap_ms=1500.0,
            files=True,
            library=_COMPACTING,
        ),
        _kills("D15"),
    )
}
