"""Who uses the brokers: producers, consumers, and administrators that create, delete, move and elect.

Producers send to whom they believe to lead, by what some broker has told them, right or wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from broker.core.fetched import FetchPosition
from controller.core.requests import NewPartitions, NewTopic
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.network import OUTSIDE
from tests.simulation.control_plane.replica import Outcome

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.hosting import HostedController
    from tests.simulation.control_plane.invariants import Committed
    from tests.simulation.control_plane.world import World

PRODUCE_MS = (5.0, 60.0)
CONSUME_MS = (20.0, 150.0)
ADMINISTER_MS = (150.0, 900.0)
ADMIN_TIMEOUT_MS = 3000


class TopicPlan(NamedTuple):
    """What a topic is created with, each time."""

    partitions: int
    replication_factor: int
    min_insync: int
    is_unclean: bool
    #: whether nobody deletes it
    is_kept: bool = False


class Workload:
    """All of it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._rng = world.scheduler.rng("workload")
        self.counts: Counter[str] = Counter()
        self._values = 0
        #: {partition: whom producers believe to lead}
        self._believed: dict[PartitionKey, int] = {}
        self.is_administered = True
        #: whether replicas stay where they are
        self.keeps_topics = False

    def start(self) -> None:
        """Begin."""
        scheduler = self._world.scheduler
        for topic in self._world.plans:
            scheduler.at(self._rng.uniform(300, 1500), self.create, topic)
        for _ in range(2):
            scheduler.at(self._rng.uniform(500, 800), self._produce_again)
        scheduler.at(700, self._consume_again)
        scheduler.at(2500, self._administer_again)

    # -- records ---------------------------------------------------------------------------------------------

    def partitions(self) -> list[PartitionKey]:
        """Return those of all topics that exist."""
        return [
            PartitionKey(name, partition)
            for name, record in sorted(self._world.invariants.topics.items())
            for partition in record.partitions
        ]

    def _produce_again(self) -> None:
        keys = self.partitions()
        if keys:
            self.produce(self._rng.choice(keys), acks_all=self._rng.random() < 0.75)
        self._world.scheduler.at(self._rng.uniform(*PRODUCE_MS), self._produce_again)

    def produce(
        self, key: PartitionKey, *, acks_all: bool, done: Callable[[ErrorCode], object] | None = None
    ) -> None:
        """Produce one record; done has what became of it, if the answer comes."""
        world = self._world
        leader = self._leader(key)
        if leader is None:
            return
        self._values += 1
        value = self._values
        self.counts["produced"] += 1

        def answer(code: ErrorCode, offset: int) -> None:
            if code is ErrorCode.NONE:
                replica = world.brokers[leader].replicas.get(key)
                if acks_all and replica is not None:
                    world.invariants.acknowledged(replica, offset, value)
            world.network.send(leader, OUTSIDE, lambda: taken(code))

        def taken(code: ErrorCode) -> None:
            kind = "acknowledged" if code is ErrorCode.NONE else "refused"
            self.counts[f"{kind} {'all' if acks_all else '1'}"] += 1
            if code is not ErrorCode.NONE:
                self._believed.pop(key, None)
            if done is not None:
                done(code)

        def arrive() -> None:
            broker = world.brokers.get(leader)
            replica = None if broker is None else broker.replicas.get(key)
            if replica is None:
                world.network.send(leader, OUTSIDE, lambda: taken(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                world.invariants.homes[value] = (replica.log.topic_id, key.partition)
                replica.produce(value, acks_all=acks_all, answer=answer)

        world.network.send(OUTSIDE, leader, arrive)

    def _leader(self, key: PartitionKey) -> int | None:
        if self._rng.random() < 0.1:
            self._believed.pop(key, None)
        if key not in self._believed:
            brokers = sorted(self._world.brokers)
            if not brokers:
                return None
            asked = self._world.brokers[self._rng.choice(brokers)]
            view = asked.view.partition(key.topic, key.partition)
            if view is None or view.leader < 0:
                return None
            self._believed[key] = view.leader
        return self._believed[key]

    def _consume_again(self) -> None:
        keys, brokers = self.partitions(), sorted(self._world.brokers)
        if keys and brokers:
            self._consume(self._rng.choice(keys), self._rng.choice(brokers))
        self._world.scheduler.at(self._rng.uniform(*CONSUME_MS), self._consume_again)

    def _consume(self, key: PartitionKey, broker_id: int) -> None:
        """Read near the end from any replica: what comes must be committed."""
        world = self._world

        def arrive() -> None:
            broker = world.brokers.get(broker_id)
            replica = None if broker is None else broker.replicas.get(key)
            if replica is None:
                return
            offset = max(0, replica.log.log_end_offset - self._rng.randint(1, 4))
            outcome = replica.consumer_fetched(FetchPosition(offset, 1))
            world.invariants.check_replica(replica)
            kept = world.invariants.committed.get((replica.log.topic_id, key.partition))
            if outcome.records and kept is not None and kept.counts(replica):
                self._check(kept, key, offset, outcome)

        world.network.send(OUTSIDE, broker_id, arrive)

    def _check(self, kept: Committed, key: PartitionKey, offset: int, outcome: Outcome) -> None:
        self.counts["consumed"] += len(outcome.records)
        if tuple(kept.records[offset : offset + len(outcome.records)]) != outcome.records:
            self._world.invariants.fail(
                f"I19: a consumer of {key.topic}-{key.partition} sees {outcome.records} at {offset}"
            )

    # -- administrators --------------------------------------------------------------------------------------

    def ask(self, work: Callable[[HostedController], Awaitable[object]]) -> bool:
        """Ask whoever believes to be the controller; False if nobody does."""
        for broker in self._active():
            controller = broker.controller
            assert controller is not None
            broker.process.spawn(self._carry_out(work, controller))
            return True
        return False

    def _active(self) -> list[SimBroker]:
        brokers = [self._world.brokers[each] for each in sorted(self._world.brokers)]
        return [
            each
            for each in brokers
            if each.controller is not None and each.controller.active and not each.process.is_paused
        ]

    @staticmethod
    async def _carry_out(
        work: Callable[[HostedController], Awaitable[object]], controller: HostedController
    ) -> None:
        await work(controller)

    def create(self, topic: str) -> None:
        """Create a topic, unless it exists; again until it does."""
        plan = self._world.plans[topic]
        settings: dict[str, str | None] = {"min.insync.replicas": str(plan.min_insync)}
        if plan.is_unclean:
            settings["unclean.leader.election.enable"] = "true"
        new = NewTopic(topic, plan.partitions, plan.replication_factor, None, settings)
        asked = topic not in self._world.invariants.topics and self.ask(
            lambda controller: controller.create_topics(
                [new], timeout_ms=ADMIN_TIMEOUT_MS, validate_only=False
            )
        )
        self.counts["creations"] += asked
        is_going = self._world.quorum.machine.tree.get(paths.delete_topic_path(topic)) is not None
        if is_going or topic not in self._world.invariants.topics:
            self._world.scheduler.at(self._rng.uniform(300, 1500), self.create, topic)

    def _administer_again(self) -> None:
        if self.is_administered:
            works = [self._extend, self._elect]
            if not self.keeps_topics:
                works += [self._move, self._move, self._cancel, self._delete]
            self._rng.choice(works)()
        self._world.scheduler.at(self._rng.uniform(*ADMINISTER_MS), self._administer_again)

    def _move(self) -> None:
        keys = self.partitions()
        if not keys:
            return
        key = self._rng.choice(keys)
        ids = list(self._world.broker_ids)
        target = tuple(self._rng.sample(ids, self._world.plans[key.topic].replication_factor))
        self.counts["moves"] += self._reassign(key, target)

    def _cancel(self) -> None:
        moving = [
            PartitionKey(name, partition)
            for name, record in sorted(self._world.invariants.topics.items())
            for partition in (*record.adding_replicas, *record.removing_replicas)
        ]
        if moving:
            self.counts["cancellations"] += self._reassign(self._rng.choice(moving), None)

    def _reassign(self, key: PartitionKey, target: tuple[int, ...] | None) -> bool:
        requests = self._world.znode_requests

        async def reassign(controller: HostedController) -> None:
            outcome = await controller.reassign({key: target}, timeout_ms=ADMIN_TIMEOUT_MS)
            # One that has timed out may have its effect yet, as one whose controller was killed.
            if outcome != ErrorCode.REQUEST_TIMED_OUT:
                requests.answered_by_api(key)

        is_asked = self.ask(reassign)
        if is_asked:
            requests.asked_by_api(key)
        return is_asked

    def _delete(self) -> None:
        plans = self._world.plans
        topics = [each for each in sorted(self._world.invariants.topics) if not plans[each].is_kept]
        if topics and self._rng.random() < 0.5:
            topic = self._rng.choice(topics)
            self.delete(topic)
            self._world.scheduler.at(self._rng.uniform(1, 800), self.create, topic)

    def delete(self, topic: str) -> None:
        """Delete a topic."""
        if self.keeps_topics or self._world.plans[topic].is_kept:
            return
        self.counts["deletions"] += self.ask(
            lambda controller: controller.delete_topics([topic], timeout_ms=ADMIN_TIMEOUT_MS)
        )

    def _extend(self) -> None:
        topics = sorted(self._world.invariants.topics)
        if topics:
            topic = self._rng.choice(topics)
            count = len(self._world.invariants.topics[topic].partitions) + 1
            if count <= 4:
                self.counts["extensions"] += self.ask(
                    lambda controller: controller.create_partitions(
                        [NewPartitions(topic, count)], timeout_ms=ADMIN_TIMEOUT_MS, validate_only=False
                    )
                )

    def _elect(self) -> None:
        keys = self.partitions()
        unclean = self._rng.random() < 0.15
        chosen = [self._rng.choice(keys)] if keys and unclean else None
        if chosen is not None:
            self._world.invariants.forced.update(dict.fromkeys(chosen))
        self.counts["elections"] += self.ask(
            lambda controller: controller.elect_leaders(
                chosen, unclean=chosen is not None, timeout_ms=ADMIN_TIMEOUT_MS
            )
        )
