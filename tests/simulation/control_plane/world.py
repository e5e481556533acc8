"""One seed of the control plane: brokers with their controllers, over a quorum, under nemeses.

The shipped controller and the replicas' machines run in simulated processes; every seed is the same run, byte
for byte. After the nemeses all is healed, and the brokers must come to what the quorum says.
"""

from __future__ import annotations

import asyncio
import logging
import random
import traceback
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from quorum.metadata.records import NO_LEADER
from tests.simulation.control_plane.broker import SimBroker
from tests.simulation.control_plane.clock import virtual_time
from tests.simulation.control_plane.fences_off import FENCES
from tests.simulation.control_plane.group_invariants import GroupInvariants
from tests.simulation.control_plane.invariants import InvariantBrokenError, Invariants
from tests.simulation.control_plane.log import Disk
from tests.simulation.control_plane.members import Members
from tests.simulation.control_plane.nemeses import Nemeses
from tests.simulation.control_plane.network import OUTSIDE, Network
from tests.simulation.control_plane.process import Process
from tests.simulation.control_plane.quorum import Quorum
from tests.simulation.control_plane.transaction_invariants import TransactionInvariants
from tests.simulation.control_plane.transactions import PARTITIONS, TOPIC, Transactions
from tests.simulation.control_plane.variations import Variations
from tests.simulation.control_plane.workload import TopicPlan, Workload
from tests.simulation.control_plane.znode_requests import ZnodeRequests
from tests.simulation.scheduler import Scheduler
from tests.simulation.timeline import LogTap, Timeline

if TYPE_CHECKING:
    from quorum.platform.recording import Recordings
    from tests.simulation.control_plane.replica import SimReplica

TROUBLE_MS = 14_000
HEALING_MS = 9_000
TIMELINE_LINES = 80


@dataclass
class Outcome:
    """What became of a seed."""

    seed: int
    story: str = ""
    timeline: list[str] = field(default_factory=list)
    trace: int = 0
    events: int = 0
    sim_ms: float = 0.0
    bit: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether every promise held."""
        return not self.story

    @property
    def command(self) -> str:
        """The one command that repeats it."""
        return f"python -m tests.simulation.control_plane --seed {self.seed} --timeline"


class World:
    """One seed."""

    def __init__(self, seed: int, recordings: Recordings | None = None) -> None:
        """Be as the seed says; recordings: of what the machines decide, None: none are wanted."""
        self.recordings = recordings
        self.scheduler = scheduler = Scheduler(seed)
        self.timeline = Timeline(scheduler)
        rng = scheduler.rng("world")
        self.invariants = Invariants(self)
        self.quorum = Quorum(scheduler)
        self.groups = GroupInvariants(self)
        self.transaction_judge = TransactionInvariants(self)
        self.znode_requests = ZnodeRequests(self)
        self.quorum.listeners += [
            self.invariants.committed_command,
            self.groups.committed_command,
            self.transaction_judge.committed_command,
            self.znode_requests.committed_command,
        ]
        self.network = Network(scheduler)
        self.quorum_delay_ms = rng.choice([(0.1, 0.5), (0.1, 2.0), (0.5, 12.0)])
        self.quorum.lag_ms = rng.choice([(0.05, 0.5), (0.1, 3.0), (0.5, 20.0)])
        self.broker_ids = tuple(range(1, rng.choice([3, 3, 4, 5]) + 1))
        self.variations = Variations(scheduler.rng("variations"), self.broker_ids)
        self.plans = self._plan(rng)
        if self.variations.has_transactions:
            self.plans[TOPIC] = TopicPlan(PARTITIONS, 3, 1, is_unclean=False, is_kept=True)
        self._disks = 0
        self.disks_lost = 0
        self.disks = {broker_id: self._disk() for broker_id in self.broker_ids}
        self.brokers: dict[int, SimBroker] = {}
        self._unreachable: dict[int, None] = {}
        self._touched: dict[SimReplica, None] = {}
        self._problem: BaseException | None = None
        self.workload = Workload(self)
        self.members = Members(self, Process(scheduler, OUTSIDE, self._broke))
        self.transactions = Transactions(self, Process(scheduler, OUTSIDE, self._broke))
        self.nemeses = Nemeses(self)
        scheduler.after_event.append(self._after_event)

    def _plan(self, rng: random.Random) -> dict[str, TopicPlan]:
        plans = {}
        for name in ("a", "b", "c")[: rng.randint(1, 3)]:
            factor = rng.choice([2, 3, 3])
            plans[name] = TopicPlan(rng.randint(1, 2), factor, rng.choice([1, 2]), rng.random() < 0.2)
        return plans

    # -- what parts ask for ----------------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        """Monotonic, whole milliseconds, as machines take it."""
        return int(self.scheduler.now_ms)

    def note(self, broker_id: int, what: str) -> None:
        """Add a line to the story."""
        self.timeline.note(broker_id, what)

    def min_insync(self, topic: str) -> int:
        """Return min.insync.replicas."""
        return self.plans[topic].min_insync

    def is_unclean(self, topic: str) -> bool:
        """Whether a topic allows unclean elections."""
        return self.plans[topic].is_unclean

    def touched(self, replica: SimReplica) -> None:
        """A replica's machine was stepped: look at it after this event."""
        self._touched[replica] = None

    def _after_event(self, _actor: int) -> None:
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem
        if self._touched:
            touched, self._touched = self._touched, {}
            for replica in touched:
                if replica.broker.process.is_alive:
                    self.invariants.check_replica(replica)

    def _broke(self, problem: BaseException) -> None:
        if not isinstance(problem, asyncio.CancelledError):
            self._problem = self._problem or problem

    # -- processes -------------------------------------------------------------------------------------------

    def _disk(self) -> Disk:
        self._disks += 1
        return Disk(self._disks)

    def new_disk(self, broker_id: int) -> None:
        """Empty a disk."""
        self.note(broker_id, "has an empty disk")
        self.disks[broker_id] = self._disk()

    def start(self, broker_id: int) -> None:
        """Start a broker, unless it runs."""
        if broker_id in self.brokers:
            return
        self.note(broker_id, "starts")
        process = Process(self.scheduler, broker_id, self._broke)
        broker = self.brokers[broker_id] = SimBroker(self, broker_id, self.disks[broker_id], process)
        self.network.processes[broker_id] = process
        broker.start()

    def kill(self, broker: SimBroker) -> None:
        """End a broker as SIGKILL does."""
        if self.brokers.get(broker.broker_id) is not broker:
            return
        self.note(broker.broker_id, "is killed")
        del self.brokers[broker.broker_id]
        broker.process.kill()
        if broker.client is not None and broker.client.link is not None:
            broker.client.link.end()

    def ended(self, broker: SimBroker) -> None:
        """A broker has stopped by itself."""
        if self.brokers.get(broker.broker_id) is broker:
            self.kill(broker)
            self.scheduler.at(self.scheduler.rng("world").uniform(100, 2000), self.start, broker.broker_id)

    async def ask_to_shut_down(self, broker: SimBroker) -> None:
        """Ask the controller to let others lead what a broker leads."""
        for _ in range(3):
            for other in [self.brokers[each] for each in sorted(self.brokers)]:
                controller = other.controller
                if controller is not None and controller.active and not other.process.is_paused:
                    answered: asyncio.Future[ErrorCode] = broker.process.loop.create_future()
                    other.process.post(2, other.process.spawn, self._shut_down(other, broker, answered))
                    try:
                        async with asyncio.timeout(1):
                            if await answered is ErrorCode.NONE:
                                return
                    except TimeoutError:
                        pass
            await broker.process.rest(300)

    async def _shut_down(
        self, other: SimBroker, broker: SimBroker, answered: asyncio.Future[ErrorCode]
    ) -> None:
        controller = other.controller
        code = ErrorCode.NOT_CONTROLLER
        if controller is not None:
            code = (await controller.shut_down(broker.broker_id, broker.generation)).error_code
        broker.process.post(2, _settle, answered, code)

    # -- the way to the quorum -------------------------------------------------------------------------------

    def is_quorum_cut(self, broker_id: int) -> bool:
        """Whether a broker cannot reach the quorum."""
        return broker_id in self._unreachable

    def cut_from_quorum(self, broker_id: int) -> None:
        """Keep a broker from the quorum."""
        self.note(broker_id, "cannot reach the quorum")
        self._unreachable[broker_id] = None
        broker = self.brokers.get(broker_id)
        if broker is not None and broker.client is not None:
            broker.client.is_cut = True
            if broker.client.link is not None:
                broker.client.link.end()

    def reach_quorum(self, broker_id: int) -> None:
        """Let a broker reach the quorum again."""
        self._unreachable.pop(broker_id, None)
        broker = self.brokers.get(broker_id)
        if broker is not None and broker.client is not None:
            broker.client.is_cut = False

    def mend_quorum(self) -> None:
        """Let all brokers reach the quorum quickly."""
        for broker_id in list(self._unreachable):
            self.reach_quorum(broker_id)
        for node in self.quorum.nodes:
            node.stalled_until_ms = 0.0

    # -- the run ---------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Run everything.

        Raises:
            InvariantBrokenError: with its story.
        """
        self.note(0, f"variations: {self.variations}")
        rng = self.scheduler.rng("world")
        for broker_id in self.broker_ids:
            self.scheduler.at(rng.uniform(0, 100), self.start, broker_id)
        self.workload.start()
        self.members.start()
        if self.variations.has_transactions:
            self.transactions.start()
        self.nemeses.start()
        if self.variations.by_znode:
            self.znode_requests.start()
        self.scheduler.run(TROUBLE_MS)
        self.note(0, "all is healed")
        self.nemeses.stop()
        self.workload.is_administered = False
        self.workload.keeps_topics = True
        self.members.is_changing = False
        if self.variations.has_transactions:
            self.transactions.calm_down()
        self.znode_requests.is_asking = False
        self.scheduler.run(TROUBLE_MS + HEALING_MS)
        self._check_healed()

    def _check_healed(self) -> None:
        """I23: brokers have come to the committed state, and everything that can be led is led."""
        judge = self.invariants
        if set(judge.registered) != set(self.broker_ids):
            judge.fail(f"I23: registered are {sorted(judge.registered)}")
        for key, (state, version) in judge.states.items():
            place = f"{key.topic}-{key.partition} {state}"
            if state.leader == NO_LEADER:
                if state.isr and all(each in judge.registered for each in state.isr):
                    judge.fail(f"I23: {place}: nobody leads, and all of its ISR lives")
                continue
            role = self.brokers[state.leader].leading(key)
            if role is None or (role.leader_epoch, role.partition_version) != (state.leader_epoch, version):
                judge.fail(f"I23: {place}: its leader is {role}")
            for broker_id in judge.topics[key.topic].partitions[key.partition]:
                replica = self.brokers[broker_id].replicas.get(key)
                if replica is None or replica.machine.leader_epoch != state.leader_epoch:
                    judge.fail(f"I23: {place}: broker {broker_id} has {replica and replica.machine.role}")
                if broker_id not in state.isr:
                    judge.fail(f"I23: {place}: broker {broker_id} has not joined the ISR")
            for broker in self.brokers.values():
                view = broker.view.partition(key.topic, key.partition)
                if view is None or (view.leader, view.leader_epoch) != (state.leader, state.leader_epoch):
                    judge.fail(f"I23: {place}: broker {broker.broker_id} tells clients {view}")
        for name, record in judge.topics.items():
            for partition in (*record.adding_replicas, *record.removing_replicas):
                # One without a leader waits for an operator.
                if judge.states[PartitionKey(name, partition)][0].leader != NO_LEADER:
                    judge.fail(f"I23: the reassignment of {name}-{partition} has not ended")
        self.members.check_healed()
        self.transaction_judge.check_healed()
        self.znode_requests.check_healed()
        self._check_produces()

    def _check_produces(self) -> None:
        """Every produce that can be answered is answered."""
        answers: dict[PartitionKey, ErrorCode] = {}
        led = [key for key, (state, _) in self.invariants.states.items() if state.leader != NO_LEADER]
        for key in led:
            self._ask_until_answered(key, answers, 20)
        self.scheduler.run(self.scheduler.now_ms + 1500)
        for key in led:
            if answers.get(key) is not ErrorCode.NONE:
                self.invariants.fail(f"I23: a produce to {key.topic}-{key.partition}: {answers.get(key)}")

    def _ask_until_answered(
        self, key: PartitionKey, answers: dict[PartitionKey, ErrorCode], left: int
    ) -> None:
        if answers.get(key) is ErrorCode.NONE or not left or key not in self.invariants.states:
            return

        def done(code: ErrorCode) -> None:
            answers[key] = code

        self.workload.produce(key, acks_all=True, done=done)
        self.scheduler.at(50, self._ask_until_answered, key, answers, left - 1)


def run_seed(
    seed: int,
    *,
    verbose: bool = False,
    lines: int = TIMELINE_LINES,
    without: str | None = None,
    recordings: Recordings | None = None,
) -> Outcome:
    """Run a seed.

    Args:
        seed: which.
        verbose: let the timeline have what the product logs.
        lines: of the timeline.
        without: a fence that is switched off, by its name in FENCES.
        recordings: of what the machines of controllers and replicas decide; None: none are wanted.
    """
    silenced = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    world = World(seed, recordings)
    outcome = Outcome(seed)
    try:
        tap = LogTap(world.scheduler, world.timeline) if verbose else nullcontext()
        with virtual_time(world.scheduler) as patch, tap:
            for off in FENCES[without] if without is not None else ():
                patch.setattr(off.module, off.name, off.replacement)
            world.run()
    except InvariantBrokenError as error:
        outcome.story = str(error)
    except Exception as error:  # noqa: BLE001 - a bug of the product or of the world is a failing seed
        where = "".join(traceback.format_exception(error)[-4:])
        outcome.story = f"{type(error).__name__}: {error}\n{where}"
    finally:
        world.scheduler.after_event.clear()
        for process in (
            *(each.process for each in world.brokers.values()),
            *(world.members.process, world.transactions.process),
        ):
            process.kill()
        logging.disable(silenced)
    outcome.timeline = world.timeline.lines(lines)
    outcome.trace = world.scheduler.trace
    outcome.events = world.scheduler.events
    outcome.sim_ms = world.scheduler.now_ms
    outcome.bit = world.nemeses.bit
    outcome.counts = world.workload.counts
    outcome.counts["brokers by queue"] = len(world.variations.by_queue)
    outcome.counts["requests by znode"] = world.znode_requests.written
    outcome.counts["begun by znode"] = world.znode_requests.begun
    outcome.counts["unclean"] = world.invariants.unclean
    outcome.counts["terms"] = world.invariants.epoch
    outcome.counts["coordinators"] = world.groups.epoch
    return outcome


def _settle(answered: asyncio.Future[ErrorCode], code: ErrorCode) -> None:
    if not answered.done():
        answered.set_result(code)
