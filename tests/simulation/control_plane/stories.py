"""Nemeses that take several steps: what a fence prevents seldom happens by chance alone.

Each begins with a partition and brokers as they are, and does its next step some time later, if it still can.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from quorum.core.codes import OP_DELETE
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.nemeses import Nemeses
    from tests.simulation.control_plane.world import World

#: how long a follower is away so that it leaves the ISR
AWAY_MS = (2300.0, 2800.0)
#: how often a step looks, once a millisecond, whether its time has come
POLLS = 1200


class Stories:
    """The ones of a world."""

    def __init__(self, world: World, nemeses: Nemeses, rng: random.Random) -> None:
        self._world = world
        self._nemeses = nemeses
        self._rng = rng

    def depose(self) -> bool:
        """Delete /controller, as an operator may; the controller may be slow to notice."""
        controller = self._nemeses.controller()
        if controller is None:
            return False
        self._world.note(0, "/controller is deleted")
        if self._rng.random() < 0.5:
            self._nemeses.pause_one(controller, 50, 1200)
        self._world.quorum.write(OP_DELETE, paths.CONTROLLER, -1)
        return True

    def depose_coordinator(self) -> bool:
        """Delete /consumers/coordinator; the coordinator may be too slow to notice before it writes."""
        coordinator = self._nemeses.coordinator()
        if coordinator is None:
            return False
        self._world.note(0, "/consumers/coordinator is deleted")
        if self._rng.random() < 0.7:
            self._nemeses.pause_one(coordinator, 50, 450)
        self._world.quorum.write(OP_DELETE, paths.COORDINATOR, -1)
        return True

    def depose_late_coordinator(self) -> bool:
        """Delete /consumers/coordinator while what the coordinator writes is on its way for long."""
        coordinator = self._nemeses.coordinator()
        if coordinator is None:
            return False
        self.stall(coordinator, self._rng.uniform(100, 500))
        self._world.scheduler.at(self._rng.uniform(30, 200), self._delete_coordinator)
        return True

    def _delete_coordinator(self) -> None:
        self._world.note(0, "/consumers/coordinator is deleted")
        self._world.quorum.write(OP_DELETE, paths.COORDINATOR, -1)

    def miss_recreation(self) -> bool:
        """Keep a broker from the quorum while a topic of its replicas goes and comes."""
        found = self._leader_and_follower()
        if found is None:
            return False
        key, _, follower = found
        scheduler = self._world.scheduler
        self._world.cut_from_quorum(follower.broker_id)
        scheduler.at(1900, self._world.workload.delete, key.topic)
        for later_ms in (2300, 2700, 3200):
            scheduler.at(later_ms, self._world.workload.create, key.topic)
        scheduler.at(4000, self._world.reach_quorum, follower.broker_id)
        return True

    def lose_while_joining(self) -> bool:
        """Let a follower lose what its last fetches said it had, before it joins the ISR by them."""
        found = self._leader_and_follower()
        if found is None:
            return False
        key, leader, follower = found
        scheduler = self._world.scheduler
        away_ms = self._rng.uniform(*AWAY_MS)
        self._keep_away(leader, follower, away_ms)
        scheduler.at(away_ms, self.stall, leader, 1600)
        scheduler.at(away_ms, self._lose_once_proposed, key, leader, follower, POLLS)
        return True

    def join_late(self) -> bool:
        """Let a leader bounce, unseen, while its write that lets a follower join is on its way."""
        found = self._leader_and_follower()
        if found is None:
            return False
        _, leader, follower = found
        scheduler = self._world.scheduler
        away_ms = self._rng.uniform(*AWAY_MS)
        self._keep_away(leader, follower, away_ms)
        scheduler.at(away_ms, self._slow_next_write, leader)
        scheduler.at(away_ms + 1, self._bounce_once_written, leader, follower, POLLS)
        return True

    # -- steps -----------------------------------------------------------------------------------------------

    def _leader_and_follower(
        self, leader: SimBroker | None = None
    ) -> tuple[PartitionKey, SimBroker, SimBroker] | None:
        world = self._world
        found = [
            (key, world.brokers[state.leader], world.brokers[each])
            for key, (state, _) in sorted(world.invariants.states.items())
            for each in state.isr
            if each != state.leader and each in world.brokers and state.leader in world.brokers
            if leader is None or world.brokers[state.leader] is leader
        ]
        return self._rng.choice(found) if found else None

    def _keep_away(self, leader: SimBroker, follower: SimBroker, for_ms: float) -> None:
        """Cut a follower from its leader until the leader has it leave the ISR."""
        network = self._world.network
        self._world.note(follower.broker_id, f"is cut from its leader {leader.broker_id}")
        for source, target in ((leader, follower), (follower, leader)):
            network.cut(source.broker_id, target.broker_id)
        self._world.scheduler.at(for_ms, network.heal)

    def stall(self, broker: SimBroker, for_ms: float) -> None:
        """Let what a broker sends to the quorum from now on arrive late."""
        if broker.process.is_alive and broker.client is not None and broker.client.link is not None:
            self._world.note(broker.broker_id, "is heard late by the quorum")
            broker.client.link.stall(for_ms)

    def _lose_once_proposed(
        self, key: PartitionKey, leader: SimBroker, follower: SimBroker, polls: int
    ) -> None:
        role = leader.leading(key)
        if not polls or role is None or not follower.process.is_alive:
            return
        if role.pending is None or follower.broker_id not in role.pending.joining:
            self._world.scheduler.at(1, self._lose_once_proposed, key, leader, follower, polls - 1)
            return
        self._nemeses.kill_one(follower, 1.0, 5.0)
        lost = follower.disk.lose_power(self._rng, all_of_it=True)
        self._world.note(follower.broker_id, f"lost power, and {lost} records")
        # It hears of its role, and copies nothing yet.
        self._world.network.cut(follower.broker_id, leader.broker_id)
        self._world.scheduler.at(2500, self._world.network.heal)

    def _slow_next_write(self, leader: SimBroker) -> None:
        leader.slow_write_ms = self._rng.uniform(300, 900)

    def _bounce_once_written(self, leader: SimBroker, follower: SimBroker, polls: int) -> None:
        if not polls or not leader.process.is_alive:
            leader.slow_write_ms = 0.0
            return
        if leader.slow_write_ms:
            self._world.scheduler.at(1, self._bounce_once_written, leader, follower, polls - 1)
            return
        self._nemeses.pause_one(follower, 1000, 1400)
        controller = self._nemeses.controller()
        self._nemeses.kill_one(leader, 1.0, 5.0)
        if controller is not None and controller is not follower:
            self._nemeses.kill_one(controller, 5.0, 40.0)
