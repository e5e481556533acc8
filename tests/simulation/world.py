"""A world: nodes, network, clients and faults under one seed, from the founding to the final checks.

Decides the phases: the founding, load under faults, healing, settling. Who starts dead nodes again, and what
excuses a node that stops, is in operators.py; what is done to the world is in faults.py; what must hold is in
invariants.py and checkers/.
"""

from __future__ import annotations

import dataclasses
import gc
import logging
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.clients import ClientFleet
from tests.simulation.faults import FAULTS, PROFILES, SELDOM
from tests.simulation.invariants import InvariantBroken, Invariants
from tests.simulation.nemesis import Script
from tests.simulation.nemesis import World as Site
from tests.simulation.network import Network, Weather
from tests.simulation.openings import OPENINGS
from tests.simulation.operators import Operators
from tests.simulation.scheduler import Scheduler
from tests.simulation.settings import build_config, draw_sizes
from tests.simulation.sim_node import DiskSpeed, SimNode
from tests.simulation.timeline import LogTap, Timeline
from tests.simulation.upgrades import level_problem

FOUNDED_MS = 2_000.0
#: after everything was healed and started
LEADER_WITHIN_MS = 10_000.0
SETTLED_WITHIN_MS = 30_000.0
LOOK_EVERY_MS = 50.0
FAULTS_AT_ONCE = 2
#: {profile: least and most of a chunk's delay, one of these}: a vote takes longer than the short delays of
#: elections, and less than their timeouts
DISTANCES = {"distant": ((38.0, 42.0), (60.0, 90.0))}
TIMELINE_LINES = 100


class Span(NamedTuple):
    """How long a seed is, and what must have happened in it.

    Attributes:
        load_until_ms: faults and load end then.
        load_until_ms_max: how long they go on where too little has happened.
        run_ms_min: a run is at least this long.
        faults_bit_min, operations_min: what is too little.
    """

    load_until_ms: float
    load_until_ms_max: float
    run_ms_min: float
    faults_bit_min: int
    operations_min: int


FULL = Span(52_000.0, 200_000.0, 60_000.0, 10, 2_000)
#: for many seeds on every change
SHORT = Span(18_000.0, 100_000.0, 22_000.0, 3, 600)


@dataclass(slots=True)
class Outcome:
    """What came of a seed.

    Attributes:
        story: what broke, "" if nothing did.
        bit, tried: {fault: how often it bit, how often it was tried}.
        trace: equal for equal seeds.
    """

    seed: int
    profile: str
    nodes: int
    story: str = ""
    events: int = 0
    sim_ms: float = 0.0
    operations: int = 0
    bit: dict[str, int] = field(default_factory=dict)
    tried: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    trace: int = 0
    timeline: list[str] = field(default_factory=list)
    span: Span = FULL

    @property
    def ok(self) -> bool:
        """Whether everything held."""
        return not self.story

    @property
    def command(self) -> str:
        """The one command that repeats it."""
        return (
            f"python -m tests.simulation --seed {self.seed} --profile {self.profile} --nodes {self.nodes}"
            f"{' --short' if self.span == SHORT else ''} --timeline"
        )


class World:
    """One seed."""

    def __init__(self, seed: int, profile: str = "mix", nodes: int = 3, span: Span = FULL) -> None:
        self.seed = seed
        self.profile = profile
        self._span = span
        self.scheduler = scheduler = Scheduler(seed)
        self.rng = rng = scheduler.rng("world")
        self.timeline = Timeline(scheduler)
        self.network = Network(scheduler, self._weather())
        self._founders = tuple(range(1, nodes + 1))
        self._sizes = draw_sizes(rng)
        self.nodes: dict[int, SimNode] = {}
        self.operators = Operators(self)
        for node_id in self._founders:
            self._set_up(node_id)
        self.bit: Counter[str] = Counter()
        self.tried: Counter[str] = Counter()
        self._faults_rng = scheduler.rng("faults")
        self._under_way: dict[str, Script] = {}
        self._healing = False
        self._problem: BaseException | None = None
        self.invariants = Invariants(self.nodes, scheduler)
        self.fleet = ClientFleet(scheduler, self.nodes, rng.choice([8, 8, 8, 20]))
        scheduler.after_event.append(self.invariants.after_event)

    def _set_up(self, node_id: int) -> SimNode:
        members = sorted({*self._founders, node_id})
        node = SimNode(
            self.scheduler,
            self.network,
            self.timeline,
            build_config(node_id, members, self.rng),
            sizes=self._sizes,
            speed=self._disk_speed(),
        )
        self.operators.look_after(node)
        self.nodes[node_id] = node
        return node

    def new_node(self, node_id: int) -> SimNode:
        """Set up one more machine."""
        node = self._set_up(node_id)
        self.invariants.watch(node)
        return node

    def _weather(self) -> Weather:
        rng = self.rng
        weather = Weather()
        weather.delay_ms = rng.choice([(0.05, 0.3), (0.1, 0.8), (0.5, 5.0), (5.0, 20.0)])
        if self.profile in DISTANCES:
            weather.delay_ms = rng.choice(DISTANCES[self.profile])
        if self.profile != "calm" and rng.random() < 0.5:
            weather.late_chance = rng.choice([0.0, 0.02, 0.1])
            weather.twice_chance = rng.choice([0.0, 0.01, 0.05])
            weather.stale_chance = rng.choice([0.0, 0.3])
            weather.break_chance = rng.choice([0.0, 0.0, 0.0005])
        return weather

    def _disk_speed(self) -> DiskSpeed:
        quick, slow = DiskSpeed(0.05, 0.3, 0.005, 5.0), DiskSpeed(1.0, 8.0, 0.05, 40.0)
        return self.rng.choice([DiskSpeed(), quick, slow])

    # --- the run ----------------------------------------------------------------------------------

    def run(self) -> None:
        """Run everything.

        Raises:
            InvariantBroken: with its story. Whatever else is raised is a failure of the world, or of the
                product.
        """
        try:
            self._play()
        finally:
            # Lanes may have halted within a work: their threads must not stay.
            for node in self.nodes.values():
                if node.runtime is not None:
                    node.runtime.end()

    def idle(self, sim_s: float) -> float:
        """Let the cluster form, leave it alone for `sim_s` seconds of its time, and return how many real ones
        that took."""
        for node in self.nodes.values():
            self.operators.start(node)
        self._until(self._is_led, LEADER_WITHIN_MS, "no leader")
        self._run(FOUNDED_MS)
        begun_s = time.perf_counter()
        self._run(self.scheduler.now_ms + 1000.0 * sim_s)
        return time.perf_counter() - begun_s

    def _play(self) -> None:
        scheduler, rng = self.scheduler, self.rng
        for node_id in sorted(self.nodes, key=lambda _: rng.random()):
            scheduler.at(rng.uniform(0.0, 300.0), self.operators.start, self.nodes[node_id])
        opening = OPENINGS.get(self.profile)
        if opening is not None:
            self._begin(opening.__name__, opening)
        self.fleet.start()
        self._run(FOUNDED_MS)
        if PROFILES[self.profile]:
            scheduler.at(0.0, self._next_fault)
        if self.profile == "mix":
            self._draw_seldom_faults()
        until_ms = self._span.load_until_ms
        self._run(until_ms)
        while self.too_little() and until_ms < self._span.load_until_ms_max:
            until_ms += 2_000.0
            self._run(until_ms)
        self._heal()
        self._settle()
        self.invariants.at_end(self.fleet.history())

    def _run(self, until_ms: float) -> None:
        self.scheduler.run(until_ms)
        if self._problem is not None:
            raise self._problem

    def break_off(self, invariant: str, story: str, error: BaseException | None = None) -> None:
        """End the run behind this event: a promise was broken."""
        if self._problem is None:
            trace = "" if error is None else "\n" + "".join(traceback.format_exception(error))
            self._problem = InvariantBroken(invariant, story + trace)
            self.scheduler.stop()

    def _heal(self) -> None:
        """Undo everything, and start everything."""
        self._healing = self.operators.hurries = True
        self.timeline.note(0, "healing")
        for script in self._under_way.values():
            script.close()
        self._under_way.clear()
        self.operators.held_back.clear()
        network = self.network
        network.heal_all()
        delay_ms = network.weather.delay_ms
        network.weather = Weather()
        if self.profile in DISTANCES:
            network.weather.delay_ms = delay_ms
        for node in self.nodes.values():
            node.disk.capacity_bytes = None
            node.disk.forgive()
            node.speed = DiskSpeed()
            node.resume()
            self.operators.start(node)

    def _settle(self) -> None:
        """Wait for a leader, for the clients to end, and for all nodes to have applied the same."""
        self._until(self._is_led, LEADER_WITHIN_MS, "no leader")
        self._until(self._is_manned, SETTLED_WITHIN_MS, "a change of members hangs")
        # Under some faults next to nothing is possible; what a seed lacks must be possible now.
        enough = self._span.operations_min
        self._until(lambda: self.fleet.operations >= enough, SETTLED_WITHIN_MS, "clients make no progress")
        self.fleet.stop()
        self._until(lambda: self.fleet.quiet, SETTLED_WITHIN_MS, "the clients do not come to an end")
        self._until(self._is_level, SETTLED_WITHIN_MS, "the nodes do not converge")
        self._until(self._are_expired, SETTLED_WITHIN_MS, "sessions that nobody keeps do not end")
        self._run(max(self._span.run_ms_min, self.scheduler.now_ms + 1000.0))
        self._until(self._is_level, SETTLED_WITHIN_MS, "the nodes do not stay level")
        if problem := level_problem(self.members()):
            raise InvariantBroken("feature level", problem)
        self.operators.gone = True

    def _until(self, holds: Callable[[], bool], within_ms: float, problem: str) -> None:
        deadline_ms = self.scheduler.now_ms + within_ms
        while not holds():
            if self.scheduler.now_ms >= deadline_ms:
                raise InvariantBroken("liveness", f"{problem} {within_ms / 1000:g} s after: {self._states()}")
            self._run(self.scheduler.now_ms + LOOK_EVERY_MS)

    def _states(self) -> str:
        states = []
        for node in self.nodes.values():
            if node.member is None:
                states.append(f"node {node.node_id} down")
            else:
                engine = node.member.engine
                states.append(
                    f"node {node.node_id} {engine.soft_state} commit {engine.status().commit_index} "
                    f"applied {engine.applied_index}"
                )
        return "; ".join(states)

    def members(self) -> list[SimNode]:
        """Return the nodes that belong to the cluster, ascending."""
        removed = self.operators.removed
        return [self.nodes[node_id] for node_id in sorted(self.nodes) if node_id not in removed]

    def _is_led(self) -> bool:
        change = self.operators.change
        waits = None if change is None or change.made else change.node
        waiting = [waits, *self.operators.outcasts]
        return self.leader() is not None and all(node.running or node in waiting for node in self.members())

    def _is_manned(self) -> bool:
        return self.operators.change is None and not self.operators.outcasts

    def _is_level(self) -> bool:
        leader = self.leader()
        if leader is None or leader.member is None:
            return False
        last_index = leader.member.core.status().last_index
        return all(
            node.member is not None and node.member.engine.applied_index == last_index
            for node in self.members()
        )

    def _are_expired(self) -> bool:
        leader = self.leader()
        if leader is None or leader.member is None:
            return False
        return self.fleet.sessions.issuperset(leader.member.replica.machine.sessions)

    # --- what the scripts touch -------------------------------------------------------------------

    def leader(self) -> SimNode | None:
        """Return the running leader of the highest term."""
        found = None
        highest = -1
        for node in self.running():
            assert node.member is not None
            engine = node.member.engine
            if engine.leads and engine.term > highest:
                found, highest = node, engine.term
        return found

    def whole(self) -> list[SimNode]:
        """Return the members whose disks hold everything that was ever committed, ascending."""
        holders = self.invariants.holders()
        return [node for node in self.members() if node.node_id in holders]

    def running(self) -> list[SimNode]:
        """Return the nodes that run and are not stopped, ascending."""
        return [node for node in self.nodes.values() if node.running and not node.paused]

    # --- faults -----------------------------------------------------------------------------------

    def _next_fault(self) -> None:
        if self._healing:
            return
        rng = self._faults_rng
        self.scheduler.at(rng.expovariate(1 / 1200.0), self._next_fault)
        weights = PROFILES[self.profile]
        free = [name for name in weights if name not in self._under_way]
        if len(self._under_way) >= FAULTS_AT_ONCE or not free:
            return
        name = rng.choices(free, [weights[each] for each in free])[0]
        self._begin(name, FAULTS[name])

    def _draw_seldom_faults(self) -> None:
        rng = self.scheduler.rng("seldom")
        for name, chance in SELDOM.items():
            if rng.random() < chance:
                delay_ms = rng.uniform(0.0, 0.8 * (self._span.load_until_ms - FOUNDED_MS))
                self.scheduler.at(delay_ms, self._begin, name, FAULTS[name])

    def _begin(self, name: str, fault: Callable[[Site, random.Random], Script]) -> None:
        if self._healing:
            return
        script = fault(self, self.scheduler.rng(f"fault-{name}"))
        self.tried[name] += 1
        self._under_way[name] = script
        self._step(name, script)

    def _step(self, name: str, script: Script) -> None:
        if self._under_way.get(name) is not script:
            return
        try:
            delay_ms = next(script)
        except StopIteration as end:
            del self._under_way[name]
            self.bit[name] += bool(end.value)
            return
        self.scheduler.at(delay_ms, self._step, name, script)

    def too_little(self) -> str:
        """Return what this run lacks to count, "" if nothing."""
        bit, bit_min = sum(self.bit.values()), self._span.faults_bit_min
        if PROFILES[self.profile] and bit < bit_min:
            return f"only {bit} faults bit, {bit_min} must: {dict(self.bit)}"
        operations, operations_min = self.fleet.operations, self._span.operations_min
        if operations < operations_min:
            return f"only {operations} operations, {operations_min} must be"
        return ""

    def counts(self) -> dict[str, int]:
        """Return what was counted, for the summary."""
        nodes = self.nodes.values()
        return {
            **dataclasses.asdict(self.network.counters),
            "changes_of_members": self.operators.changes_made,
            "loop_stalls": sum(node.loop_stalls for node in nodes),
            "lives": sum(node.lives for node in nodes),
            "refused_starts": sum(len(node.refusals) for node in nodes),
            "stopped_themselves": sum(len(node.failures) for node in nodes),
            "crashes_in_disk_calls": sum(node.crashes for node in nodes),
        }


def prepare_process() -> None:
    """Make a new process one that runs seeds: nothing is logged, what was imported is never collected."""
    logging.disable(logging.CRITICAL)
    gc.freeze()


def run_repeatably(seed: int, profile: str = "mix", nodes: int = 3, span: Span = FULL) -> Outcome:
    """Run a seed; if it fails, run it again for its timeline, and see that it fails in the same way."""
    outcome = run_seed(seed, profile, nodes, span)
    if outcome.ok:
        return outcome
    again = run_seed(seed, profile, nodes, span, verbose=True)
    if (again.trace, again.story) != (outcome.trace, outcome.story):
        again.story = f"NOT REPEATABLE: {outcome.story}\nthe second time: {again.story or 'nothing broke'}"
    return again


def run_seed(
    seed: int,
    profile: str = "mix",
    nodes: int = 3,
    span: Span = FULL,
    *,
    verbose: bool = False,
    lines: int = TIMELINE_LINES,
) -> Outcome:
    """Run a seed.

    Args:
        seed: which.
        profile: which faults (faults.py).
        nodes: how many.
        span: how long.
        verbose: take what the nodes log into the timeline.
        lines: how many lines of it the outcome has.
    """
    world = World(seed, profile, nodes, span)
    outcome = Outcome(seed, profile, nodes, span=span)
    collects = gc.isenabled()
    gc.disable()
    try:
        with LogTap(world.scheduler, world.timeline) if verbose else nullcontext():
            world.run()
        outcome.story = world.too_little()
    except InvariantBroken as broken:
        outcome.story = str(broken)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is the outcome of this seed
        outcome.story = "".join(traceback.format_exception(error))
    finally:
        if collects:
            gc.enable()
    outcome.events = world.scheduler.events
    outcome.sim_ms = world.scheduler.now_ms
    outcome.operations = world.fleet.operations
    outcome.bit, outcome.tried = dict(world.bit), dict(world.tried)
    outcome.counts = world.counts()
    outcome.trace = world.scheduler.trace
    outcome.timeline = world.timeline.lines(lines)
    del world
    gc.collect()
    return outcome
