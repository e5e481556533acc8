"""Followers at work on a simulated broker: one request per leader under way, held while there is no news.

An answer that comes late, or twice, or to a request that was given up, is taken like any other: the machine
must see that it no longer counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from broker.core.asked_session import AskedSession
from broker.core.fetched import FetchPosition
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.replica import SimReplica
from tests.simulation.control_plane.serving import FetchAnswer, FetchRequest
from tests.simulation.scheduler import Handle

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker

WAIT_MS = (10, 320)
TIMEOUT_MS = 400.0
AGAIN_MS = (20.0, 600.0)


class _Fetcher:
    """From one leader."""

    def __init__(self) -> None:
        #: the request under way, by its number; None: there is none
        self.under_way: int | None = None
        self.requests = 0
        self.wait_ms = float(WAIT_MS[0])
        self.begun_ms = 0.0
        self.wake: Handle | None = None
        self.session: AskedSession[PartitionKey, tuple[SimReplica, FetchPosition]] = AskedSession()


class Fetchers:
    """Of one broker."""

    def __init__(self, broker: SimBroker) -> None:
        self._broker = broker
        self._fetchers: dict[int, _Fetcher] = {}
        self._rng = broker.world.scheduler.rng("fetch sessions")

    def wake(self, leader: int) -> None:
        """Look whether there is something to ask."""
        fetcher = self._fetchers.setdefault(leader, _Fetcher())
        if fetcher.under_way is None and fetcher.wake is None:
            fetcher.wake = self._broker.process.post(0, self._ask, leader, fetcher)

    def _ask(self, leader: int, fetcher: _Fetcher) -> None:
        fetcher.wake = None
        broker = self._broker
        world, now_ms = broker.world, broker.world.now_ms
        followed = [
            replica
            for replica in broker.replicas.values()
            if replica.followed is not None and replica.followed[0] == leader
        ]
        if not followed or fetcher.under_way is not None:
            return
        wanted = {
            replica.key: (replica, replica.position(replica.followed[1]))
            for replica in followed
            if replica.followed is not None and replica.not_before_ms <= now_ms
        }
        if not wanted:
            fetcher.session.begin()
            soonest_ms = min(replica.not_before_ms for replica in followed)
            fetcher.wake = broker.process.post(max(1.0, soonest_ms - now_ms), self._ask, leader, fetcher)
            return
        fetcher.requests += 1
        number = fetcher.under_way = fetcher.requests
        fetcher.begun_ms = now_ms
        here, wait_ms = broker.broker_id, fetcher.wait_ms
        for key in fetcher.session.names():
            if key not in wanted:
                fetcher.session.leave(key)
        for key, asked in wanted.items():
            fetcher.session.want(key, asked)
        session_id, epoch, changed, forgotten = fetcher.session.request()
        named = {key: position for key, (_, position) in changed.items()}
        request = FetchRequest(here, broker.generation, session_id, epoch, named, forgotten, wait_ms)

        def take(answer: FetchAnswer) -> None:
            broker.process.post(0, self._answered, leader, fetcher, number, wanted, answer)

        def arrive() -> None:
            other = world.brokers.get(leader)
            if other is not None:
                other.serving.take(
                    request, lambda answer: world.network.send(leader, here, lambda: take(answer))
                )

        world.network.send(here, leader, arrive)
        if epoch and named and self._rng.random() < 3 * world.network.weather.twice_chance:
            # It comes again when the session has gone on.
            broker.process.post(self._rng.uniform(*AGAIN_MS), world.network.send, here, leader, arrive)
        broker.process.post(TIMEOUT_MS + wait_ms, self._give_up, leader, fetcher, number)

    def _give_up(self, leader: int, fetcher: _Fetcher, number: int) -> None:
        if fetcher.under_way == number:
            # As when a connection is lost: nobody knows what the leader has seen.
            fetcher.under_way = None
            fetcher.session.begin()
            self._ask(leader, fetcher)

    def _answered(
        self,
        leader: int,
        fetcher: _Fetcher,
        number: int,
        asked: Mapping[PartitionKey, tuple[SimReplica, FetchPosition]],
        answer: FetchAnswer,
    ) -> None:
        for key, outcome in answer.outcomes.items():
            if key not in asked or (outcome.records and outcome.offset != asked[key][1].offset):
                here, found = self._broker.broker_id, f"{key.topic}-{key.partition} from {outcome.offset}"
                self._broker.world.invariants.fail(
                    f"I26: broker {leader} sends broker {here} what it did not ask for: {found}"
                )
            _, position = asked[key]
            replica = self._broker.replicas.get(key)
            # Over a connection no answer comes twice, or after it was given up. The machine may see it all
            # the same, unless it would cut a log that has come to the same end by other records since.
            is_taken = fetcher.under_way == number or outcome.diverging_epoch is None
            if is_taken and replica is not None and replica.log.topic_id == position.topic_id:
                replica.answered(position, outcome)
        if fetcher.under_way == number:
            is_early = self._broker.world.now_ms - fetcher.begun_ms < fetcher.wait_ms
            fetcher.wait_ms = WAIT_MS[0] if is_early else min(2 * fetcher.wait_ms, WAIT_MS[1])
            fetcher.under_way = None
            if not fetcher.session.is_refused(answer.error_code):
                fetcher.session.advance(answer.session_id)
            self.wake(leader)
