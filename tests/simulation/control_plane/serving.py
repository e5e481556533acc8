"""What a simulated leader does with followers' fetches: the shipped sessions, and fetches that wait for news.

A session may end at any request, as when another one takes its place; the follower begins again then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.core import reading
from broker.core.fetch_sessions import INITIAL_EPOCH, NO_SESSION, FetchSession, FetchSessions
from broker.core.fetched import FetchPosition
from controller.wire.codes import ErrorCode
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.replica import Outcome

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker

#: of one request, that its session has been evicted before
EVICTED_CHANCE = 0.01


class FetchRequest(NamedTuple):
    """What a follower asks."""

    follower: int
    generation: int
    session_id: int
    session_epoch: int
    #: what the session does not know yet; of a first request all
    named: Mapping[PartitionKey, FetchPosition]
    forgotten: Collection[PartitionKey]
    wait_ms: float


class FetchAnswer(NamedTuple):
    """What it gets."""

    error_code: ErrorCode
    session_id: int = NO_SESSION
    outcomes: Mapping[PartitionKey, Outcome] = {}


class SimFetch:
    """One fetch, from its request to its answer."""

    def __init__(
        self,
        serving: Serving,
        request: FetchRequest,
        session: FetchSession | None,
        answer: Callable[[FetchAnswer], object],
    ) -> None:
        self.request = request
        self._serving = serving
        self._session = session
        self._answer = answer
        self._outcomes: dict[PartitionKey, Outcome] = {}
        #: to be read again; a dict, for its order
        self._changed: dict[PartitionKey, None] = {}
        self._is_over = False

    def begin(self) -> None:
        """Read what is due; answer if that is news, and wait otherwise."""
        serving, session = self._serving, self._session
        process, request = serving.broker.process, self.request
        if session is not None:
            session.end()
            session.waiting = self
        for key, position in (request.named if session is None else session.positions()).items():
            self._look(key, position, is_first=True)
        if request.wait_ms <= 0 or any(_is_news(each) for each in self._outcomes.values()):
            self._finish()
            return
        serving.waiting[self] = None
        if session is None:
            for key in request.named:
                if (replica := serving.broker.replicas.get(key)) is not None:
                    replica.fetches[self] = None
        process.post(request.wait_ms, self._finish)

    def wake(self, key: PartitionKey, *, is_news: bool = False) -> None:  # noqa: ARG002 - as the real one
        """Read a partition again, and answer."""
        self._changed[key] = None
        self._serving.broker.process.post(0, self._finish)

    def mark(self, key: PartitionKey) -> None:
        """Leave out what changes without need to read."""

    def end(self) -> None:
        """Answer with what there is."""
        self._serving.broker.process.post(0, self._finish)

    def _look(self, key: PartitionKey, position: FetchPosition, *, is_first: bool) -> None:
        request, session = self.request, self._session
        replica = self._serving.broker.replicas.get(key)
        if replica is None:
            outcome = Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif is_first:
            outcome = replica.follower_fetched(request.follower, request.generation, position)
        else:
            outcome = replica.look_again(request.follower, position)
        self._outcomes[key] = outcome
        if session is None:
            return
        is_settled = False
        if replica is not None and session.partitions.get(key) is position:
            replica.fetches[session] = None
            machine = replica.machine
            is_settled = position.offset >= reading.read_limit(
                machine.role, True, replica.log
            ) and machine.is_in_sync(request.follower)
        session.looked(key, outcome, is_settled=is_settled)  # type: ignore[arg-type]

    def _finish(self) -> None:
        if self._is_over:
            return
        self._is_over = True
        serving, session, request = self._serving, self._session, self.request
        is_waiting = self in serving.waiting
        serving.waiting.pop(self, None)
        if session is None:
            for replica in serving.broker.replicas.values():
                replica.fetches.pop(self, None)
        if session is None:
            if is_waiting:
                for key, position in request.named.items():
                    self._look(key, position, is_first=False)
            self._answer(FetchAnswer(ErrorCode.NONE, NO_SESSION, self._outcomes))
            return
        if session.waiting is self:
            session.waiting = None
            for key in self._changed:
                if key in session.partitions:
                    self._look(key, session.partitions[key], is_first=False)
        is_full = request.session_epoch == INITIAL_EPOCH
        # Records are not bytes in the simulation.
        outcomes: Any = self._outcomes
        answered: Any = session.answer(outcomes, is_full=is_full)
        self._answer(FetchAnswer(ErrorCode.NONE, session.session_id, answered))


class Serving:
    """Of one broker."""

    def __init__(self, broker: SimBroker) -> None:
        """Hold no session yet."""
        self.broker = broker
        world = broker.world
        self._rng = rng = world.scheduler.rng("fetch sessions")
        ids = iter(lambda: rng.randint(1, 2**31 - 1), 0)
        self._sessions: FetchSessions = FetchSessions(
            world.variations.session_slots, ids, on_due=self._kept_up, on_end=self._leave
        )
        #: a dict, for its order
        self.waiting: dict[SimFetch, None] = {}

    def take(self, request: FetchRequest, answer: Callable[[FetchAnswer], object]) -> None:
        """Answer a follower's fetch, now or when there is news."""
        session = self._session(request)
        if isinstance(session, ErrorCode):
            answer(FetchAnswer(session))
        else:
            SimFetch(self, request, session, answer).begin()

    def _session(self, request: FetchRequest) -> FetchSession | ErrorCode | None:
        sessions, counts = self._sessions, self.broker.world.workload.counts
        owner, now_ms = (request.follower, request.generation), self.broker.world.now_ms
        if self._rng.random() < EVICTED_CHANCE:
            sessions.end_of(request.session_id, owner)
        if request.session_epoch == INITIAL_EPOCH:
            sessions.end_of(request.session_id, owner)
            session = sessions.begin(owner, now_ms, size=len(request.named), by_id=True)
            counts["fetch sessions"] += session is not None
        else:
            found = sessions.take(request.session_id, request.session_epoch, owner, now_ms, by_id=True)
            if isinstance(found, ErrorCode):
                counts[f"fetches refused: {found.name}"] += 1
                return found
            session = found
        if session is None:
            return None
        session.name(request.named)
        sessions.forget(session, request.forgotten)
        if not len(session):
            sessions.end(session)
            return None
        return session

    def _kept_up(self, session: FetchSession, key: PartitionKey) -> None:
        if (replica := self.broker.replicas.get(key)) is not None:
            follower, generation = session.owner
            replica.machine.kept_up(follower, BrokerGeneration(generation), session.used_ms)

    def _leave(self, session: FetchSession, keys: Collection[PartitionKey]) -> None:
        for key in keys:
            if (replica := self.broker.replicas.get(key)) is not None:
                replica.fetches.pop(session, None)


def _is_news(outcome: Outcome) -> bool:
    return (
        outcome.error_code is not ErrorCode.NONE
        or bool(outcome.records)
        or outcome.diverging_epoch is not None
    )
