"""What goes wrong, each for a while: processes, disks, the network, and the way to the quorum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from quorum.core.codes import OP_SET_DATA
from quorum.metadata import paths
from quorum.metadata.group_records import ClassicGroupRecord, GroupRecord
from quorum.metadata.numbers import GenerationId
from tests.simulation.control_plane.network import OUTSIDE, Weather
from tests.simulation.control_plane.stories import Stories

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.world import World

PAUSE_MS = (200.0, 1500.0)


class Nemeses:
    """Chooses what goes wrong and when."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.scheduler.rng("nemeses")
        self.bit: Counter[str] = Counter()
        self.is_active = True
        stories = Stories(world, self, self._rng)
        works: list[Callable[[], bool]] = [
            self._kill,
            self._bounce,
            self._bounce_unseen,
            self._empty_disk,
            self._lose_power,
            self._damage,
            self._pause,
            self._pause_controller,
            self._kill_controller,
            self._cut,
            self._cut_one_way,
            self._break_link,
            self._cut_from_quorum,
            self._leave,
            self._stall_quorum,
            self._kill_coordinator,
            self._pause_coordinator,
            self._write_group,
        ]
        told = [
            stories.depose,
            stories.depose_coordinator,
            stories.miss_recreation,
            stories.lose_while_joining,
            stories.join_late,
        ]
        # A seed has a taste, so that some things happen often enough together.
        if self._rng.random() < 0.4:
            self._works = [*self._rng.sample(told, 2), *self._rng.sample(works, 1)]
        else:
            works += told
            self._works = self._rng.sample(works, self._rng.randint(3, len(works)))

    def start(self) -> None:
        """Begin."""
        rng, weather = self._rng, self._world.network.weather
        if rng.random() < 0.7:
            weather.lost_chance = rng.choice([0.0, 0.01, 0.05])
            weather.late_chance = rng.choice([0.0, 0.02, 0.1])
            weather.twice_chance = rng.choice([0.0, 0.02, 0.1])
        if rng.random() < 0.15:
            weather.mixes_requests, weather.late_chance = True, 0.2
        self._world.scheduler.at(2500, self._again)

    def stop(self) -> None:
        """End what is going on, and begin nothing."""
        self.is_active = False
        world = self._world
        world.network.weather = Weather()
        world.network.heal()
        world.mend_quorum()
        for broker in list(world.brokers.values()):
            self._go_on(broker)
        for broker_id in world.broker_ids:
            world.start(broker_id)

    def _again(self) -> None:
        if not self.is_active:
            return
        work = self._rng.choice(self._works)
        if work():
            self.bit[work.__name__.lstrip("_")] += 1
        self._world.scheduler.at(self._rng.uniform(*PAUSE_MS), self._again)

    def _any(self) -> SimBroker | None:
        ids = sorted(self._world.brokers)
        return self._world.brokers[self._rng.choice(ids)] if ids else None

    def controller(self) -> SimBroker | None:
        """Return a broker that believes to be the controller."""
        for broker_id in sorted(self._world.brokers):
            broker = self._world.brokers[broker_id]
            if broker.controller is not None and broker.controller.active:
                return broker
        return None

    def _restart_later(self, broker_id: int, low: float = 20.0, high: float = 4000.0) -> None:
        self._world.scheduler.at(self._rng.uniform(low, high), self._world.start, broker_id)

    def _kill(self) -> bool:
        broker = self._any()
        return broker is not None and self.kill_one(broker)

    def kill_one(self, broker: SimBroker, low: float = 20.0, high: float = 4000.0) -> bool:
        """Kill a broker, and start it after a while."""
        self._world.kill(broker)
        self._restart_later(broker.broker_id, low, high)
        return True

    def _bounce(self) -> bool:
        broker = self._any()
        return broker is not None and self.kill_one(broker, 1.0, 30.0)

    def _bounce_unseen(self) -> bool:
        """Bounce a broker, often a leader, while no controller is there."""
        controller = self.controller()
        if controller is None:
            return False
        others = [each for each in self._world.brokers.values() if each is not controller]
        self.kill_one(controller, 500, 3000)
        if others:
            self.kill_one(self._rng.choice(others), 1.0, 100.0)
        return True

    def _empty_disk(self) -> bool:
        broker = self._any()
        if broker is None or self._world.disks_lost >= 2:
            return False
        self._world.disks_lost += 1
        self.kill_one(broker)
        self._world.new_disk(broker.broker_id)
        return True

    def _lose_power(self) -> bool:
        broker = self._any()
        if broker is None:
            return False
        self.kill_one(broker, 1.0, 3000.0)
        lost = broker.disk.lose_power(self._rng)
        self._world.note(broker.broker_id, f"lost power, and {lost} records")
        return True

    def _damage(self) -> bool:
        broker = self._any()
        if broker is None or not broker.disk.logs:
            return False
        key = self._rng.choice(sorted(broker.disk.logs))
        self.kill_one(broker)
        kept = self._rng.randint(0, broker.disk.logs[key].log_end_offset)
        broker.disk.damage(key, kept)
        self._world.note(broker.broker_id, f"its log of {key.topic}-{key.partition} ends at {kept} now")
        return True

    def _pause(self) -> bool:
        broker = self._any()
        return broker is not None and self.pause_one(broker)

    def _pause_controller(self) -> bool:
        broker = self.controller()
        return broker is not None and self.pause_one(broker)

    def pause_one(self, broker: SimBroker, low: float = 100.0, high: float = 4500.0) -> bool:
        """Pause a broker for a while."""
        if broker.process.is_paused or not broker.process.is_alive:
            return False
        self._world.note(broker.broker_id, "is paused")
        broker.process.pause()
        if broker.client is not None:
            self._world.quorum.silent(broker.client.session_id)
        self._world.scheduler.at(self._rng.uniform(low, high), self._go_on, broker)
        return True

    def _go_on(self, broker: SimBroker) -> None:
        if broker.process.is_alive and broker.process.is_paused:
            self._world.note(broker.broker_id, "goes on")
            client = broker.client
            if client is not None and client.link is not None and client.link.is_open:
                self._world.quorum.heard(client.session_id)
            broker.process.go_on()

    def coordinator(self) -> SimBroker | None:
        """Return a broker that believes to be the coordinator of groups."""
        brokers = [self._world.brokers[each] for each in sorted(self._world.brokers)]
        found = (each for each in brokers if each.coordinator is not None and each.coordinator.mandate)
        return next(found, None)

    def _kill_coordinator(self) -> bool:
        broker = self.coordinator()
        return broker is not None and self.kill_one(broker)

    def _pause_coordinator(self) -> bool:
        broker = self.coordinator()
        return broker is not None and self.pause_one(broker)

    def _write_group(self) -> bool:
        """Write a group's znode, as an operator may: a generation that no member has heard of."""
        groups = self._world.groups.records
        if not groups:
            return False
        group = self._rng.choice(sorted(groups))
        record, ahead = groups[group], self._rng.randint(1, 20)
        if isinstance(record, ClassicGroupRecord):
            written: GroupRecord = replace(record, generation_id=GenerationId(record.generation_id + ahead))
        else:
            epoch = record.group_epoch + ahead
            written = replace(record, group_epoch=epoch, assignment_epoch=epoch)
        self._world.note(0, f"group {group} is written by an operator")
        self._world.quorum.write(OP_SET_DATA, paths.group_path(group), written.encode(), -1)
        return True

    def _kill_controller(self) -> bool:
        broker = self.controller()
        return broker is not None and self.kill_one(broker)

    def _cut(self) -> bool:
        """Cut a broker from some of the others, both ways."""
        ids = list(self._world.broker_ids)
        one = self._rng.choice(ids)
        for other in self._rng.sample([OUTSIDE, *ids], self._rng.randint(1, len(ids))):
            if other != one:
                self._world.network.cut(one, other)
                self._world.network.cut(other, one)
        self._world.note(one, "is cut from others")
        self._world.scheduler.at(self._rng.uniform(200, 4000), self._world.network.heal)
        return True

    def _cut_one_way(self) -> bool:
        one, other = self._rng.sample(list(self._world.broker_ids), 2)
        self._world.network.cut(one, other)
        self._world.note(one, f"cannot reach {other}")
        self._world.scheduler.at(self._rng.uniform(200, 4000), self._world.network.heal)
        return True

    def _break_link(self) -> bool:
        broker = self._any()
        if broker is None or broker.client is None or broker.client.link is None:
            return False
        self._world.note(broker.broker_id, "loses its connection to the quorum")
        broker.client.link.end()
        return True

    def _cut_from_quorum(self) -> bool:
        broker = self._any()
        if broker is None:
            return False
        self._world.cut_from_quorum(broker.broker_id)
        self._world.scheduler.at(self._rng.uniform(200, 3000), self._world.reach_quorum, broker.broker_id)
        return True

    def _stall_quorum(self) -> bool:
        """Let what is sent by way of one node of the quorum take long."""
        node = self._rng.choice(self._world.quorum.nodes)
        node.stalled_until_ms = self._world.now_ms + self._rng.uniform(100, 2500)
        self._world.note(0, f"node {node.number} of the quorum is slow")
        return True

    def _leave(self) -> bool:
        broker = self._any()
        if broker is None or broker.is_leaving or broker.process.is_paused or not broker.is_registered:
            return False
        self._world.note(broker.broker_id, "shuts down")
        broker.process.spawn(broker.leave())
        return True
