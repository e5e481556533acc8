"""One pass: the work of a term, as one tuple of named steps.

A pass brings the cache up to date, takes the changes of brokers, decides, writes, and owes the brokers what
was acknowledged. A new controller does the same with everything due: it reads all, owes every broker every
published decision, changes leaders and gives first ones. A burst of changes is one pass. An error of a
client's request is that request's outcome; what concerns the term breaks the pass off or ends the term.
Source: ARCHITECTURE.md, "Life of a controller"; docs/internals/requirements.md, [0.A], [0.C], [0.D], [2.4],
[3.5].
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from controller.core import inputs
from controller.core.agenda import Agenda, Duty
from controller.core.cache import Cache
from controller.core.channels import Channels
from controller.core.creating import TopicAdmin
from controller.core.deciding import Decider
from controller.core.deleting import Deletions
from controller.core.electing import Elections
from controller.core.elections import ElectionKind
from controller.core.io import DeclinedError, Io, Steps, TermOverError, UnsureError
from controller.core.membership import Membership, Standing
from controller.core.model import ClusterModel
from controller.core.outcomes import Outcome, RequestFailed, ShutdownOutcome
from controller.core.reassigning import Reassignments
from controller.wire.codes import ErrorCode
from quorum.metadata import paths
from quorum.metadata.paths import PartitionKey

#: Settings live below it.
CONFIG: Final = "/config"


class Watched(NamedTuple):
    """A standing watch and the step that it makes due."""

    duty: Duty
    #: Whether what is below the path counts, too.
    is_recursive: bool = False


#: {path: what a change there makes due}
WATCHED: Final[Mapping[str, Watched]] = {
    paths.BROKER_TOPICS: Watched(Duty.CACHE, is_recursive=True),
    paths.BROKER_IDS: Watched(Duty.BROKERS),
    paths.DELETE_TOPICS: Watched(Duty.DELETIONS),
    paths.REASSIGN_PARTITIONS: Watched(Duty.REASSIGNMENTS),
    paths.PREFERRED_REPLICA_ELECTION: Watched(Duty.ELECTIONS),
    CONFIG: Watched(Duty.SETTINGS, is_recursive=True),
}


@dataclass(frozen=True, slots=True)
class TermParts:
    """What a term works with."""

    io: Io
    model: ClusterModel
    channels: Channels
    cache: Cache
    decider: Decider
    membership: Membership
    deletions: Deletions
    reassignments: Reassignments
    elections: Elections
    topics: TopicAdmin


class Passes:
    """The passes of one term, one at a time."""

    def __init__(
        self,
        parts: TermParts,
        agenda: Agenda,
        answer: Callable[[int, Outcome], None],
        *,
        imbalance_percentage: int,
    ) -> None:
        """Do nothing before run().

        Args:
            parts: what it works with.
            agenda: what is due.
            answer: takes the outcome of a request.
            imbalance_percentage: leaderships that a broker may lack, of those that are preferably its.
        """
        self.parts = parts
        self.agenda = agenda
        self._answer = answer
        self._imbalance_percentage = imbalance_percentage
        self.requests: deque[inputs.Requested] = deque()
        #: The step that runs; None between passes.
        self.under_way: Duty | None = None
        #: Partitions that the cache has found changed, which are still to be decided about.
        self.touched: list[PartitionKey] = []

    def run(self) -> Steps[bool]:
        """Do what is due, in the order of STEPS; returns whether nothing is left to another pass."""
        for step in STEPS:
            if step.is_due(self):
                self.under_way = step.duty
                self.agenda.take(step.duty)
                yield from step.work(self)
        return not self.parts.deletions.refused and not self.parts.model.reopened()

    # -- the steps -----------------------------------------------------------------------------------------

    def refresh(self) -> Steps[None]:
        """Read what is dirty."""
        self.touched = yield from self.parts.cache.refresh()

    def update_brokers(self) -> Steps[None]:
        """Take brokers that came, went or bounced."""
        if not (yield from self.parts.membership.update()):
            self.agenda.leave(Duty.BROKERS)

    def decide_touched(self) -> Steps[None]:
        """Decide about the partitions that the cache has found changed."""
        touched, self.touched = self.touched, []
        yield from self._settle(touched)

    def decide_offline(self) -> Steps[None]:
        """Decide about partitions without a leader: their topic may allow an unclean election now."""
        yield from self._settle(self.parts.model.offline())

    def carry_out_requests(self) -> Steps[None]:
        """Carry out what clients ask for, one at a time, each on what the one before has left."""
        while self.requests:
            asked = self.requests.popleft()
            try:
                outcome = yield from self._carry_out(asked.request)
                for topic in _topics_of(outcome):
                    self.parts.cache.dirty.mark_topic(topic)
                yield from self._settle((yield from self.parts.cache.refresh()))
            except (UnsureError, DeclinedError) as error:
                code = error.error_code if isinstance(error, DeclinedError) else ErrorCode.REQUEST_TIMED_OUT
                self._answer(asked.id, RequestFailed(code, str(error)))
                raise
            except (TermOverError, GeneratorExit) as error:
                self._answer(asked.id, RequestFailed(ErrorCode.NOT_CONTROLLER, str(error)))
                raise
            self._answer(asked.id, outcome)

    def _carry_out(self, request: inputs.Request) -> Steps[Outcome]:
        parts = self.parts
        try:
            match request:
                case inputs.CreateTopics(topics, validate_only):
                    return (yield from parts.topics.create(topics, validate_only=validate_only))
                case inputs.ExtendTopics(counts, validate_only):
                    return (yield from parts.topics.extend(counts, validate_only=validate_only))
                case inputs.DeleteTopics(names):
                    return (yield from parts.topics.request_deletions(names))
                case inputs.ElectLeaders(keys, unclean):
                    kind = ElectionKind.UNCLEAN if unclean else ElectionKind.PREFERRED
                    return (yield from parts.elections.elect(keys, kind))
                case inputs.Reassign(targets):
                    return (yield from parts.reassignments.begin(targets))
                case inputs.ShutDown(broker_id, generation):
                    # It may have bounced while this waited for its turn.
                    if parts.membership.standing(broker_id, generation) is not Standing.CURRENT:
                        return ShutdownOutcome(ErrorCode.STALE_BROKER_EPOCH)
                    remaining = yield from parts.membership.retire(broker_id)
                    return ShutdownOutcome(ErrorCode.NONE, tuple(remaining))
        except DeclinedError as error:
            parts.io.warn(f"a request was not carried out: {error}")
            return RequestFailed(error.error_code, str(error))

    def _settle(self, keys: list[PartitionKey]) -> Steps[None]:
        if keys and not (yield from self.parts.decider.settle(keys)):
            self.agenda.leave(Duty.CACHE)

    def balance(self) -> Steps[None]:
        """Give leaderships back to the brokers that lack too many."""
        yield from self.parts.elections.balance(self._imbalance_percentage)

    def remove_topics(self) -> Steps[None]:
        """Remove topics that no live broker holds, and what was asked for them: it is not for later ones."""
        if (yield from self.parts.deletions.finish()):
            yield from self.parts.reassignments.take_request()


class PassStep(NamedTuple):
    """One step of a pass."""

    duty: Duty
    work: Callable[[Passes], Steps[None]]
    #: What makes it due without a mark of the agenda.
    is_needed: Callable[[Passes], object] = lambda _passes: False

    def is_due(self, passes: Passes) -> bool:
        """Say whether it has something to do."""
        return passes.agenda.is_marked(self.duty) or bool(self.is_needed(passes))


#: The order of a pass. Deletions are begun before anything is decided, and again right after the requests.
STEPS: Final = (
    PassStep(Duty.CACHE, Passes.refresh, lambda passes: passes.parts.cache.dirty),
    PassStep(Duty.DELETIONS, lambda passes: passes.parts.deletions.begin()),
    PassStep(Duty.BROKERS, Passes.update_brokers, lambda passes: passes.parts.model.reopened()),
    PassStep(Duty.STATES, Passes.decide_touched, lambda passes: passes.touched),
    PassStep(Duty.SETTINGS, Passes.decide_offline),
    PassStep(Duty.REASSIGNMENTS, lambda passes: passes.parts.reassignments.take_request()),
    PassStep(Duty.ELECTIONS, lambda passes: passes.parts.elections.take_request()),
    PassStep(Duty.BALANCE, Passes.balance),
    PassStep(Duty.COMMANDS, Passes.carry_out_requests, lambda passes: passes.requests),
    PassStep(Duty.DELETIONS, lambda passes: passes.parts.deletions.begin()),
    PassStep(
        Duty.MOVES,
        lambda passes: passes.parts.reassignments.finish(),
        lambda passes: passes.parts.model.announced,
    ),
    PassStep(
        Duty.REMOVALS,
        Passes.remove_topics,
        lambda passes: passes.parts.model.deleting,
    ),
)


def _topics_of(outcome: Outcome) -> list[str]:
    """Return the topics that a request has changed; what it refused may not even be a name."""
    return [
        name
        for name, each in (outcome.items() if isinstance(outcome, Mapping) else ())
        if isinstance(name, str) and each.error_code is ErrorCode.NONE
    ]
