"""One replica on a simulated broker: the shipped machine, a simulated log, and who waits for either.

Carries the machine's effects out at once, since the simulated disk never lets anybody wait; only writes to
the quorum and what goes over the network takes time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from broker.core import reading
from broker.core import replica_effects as effects
from broker.core import replica_inputs as inputs
from broker.core.fetch_sessions import FetchSession
from broker.core.fetched import FetchPosition
from broker.core.replica import ReplicaMachine
from broker.replication.recording import RecordedReplicaMachine
from broker.replication.waiting import Waiters
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.log import Record, SimLog

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.serving import SimFetch

BACKOFF_MS = (20, 200)
#: records of one answer
FETCH_RECORDS_MAX = 4


class Outcome(NamedTuple):
    """What a reader gets."""

    error_code: ErrorCode
    high_watermark: int = -1
    log_start_offset: int = -1
    records: tuple[Record, ...] = ()
    diverging_epoch: tuple[int, int] | None = None
    preferred_read_replica: int = -1
    #: from where the records were read
    offset: int = -1


class SimReplica:
    """A partition's replica."""

    def __init__(self, broker: SimBroker, key: PartitionKey, log: SimLog) -> None:
        self.broker = broker
        self.key = key
        self.log = log
        broker_id, min_insync = broker.broker_id, broker.world.min_insync(key.topic)
        recordings = broker.world.recordings
        self.machine = (
            ReplicaMachine(broker_id, min_insync)
            if recordings is None
            else RecordedReplicaMachine(recordings, key, broker_id, min_insync)
        )
        #: [(end of the record, what takes the answer)] of produces with acks=all
        self.produces: list[tuple[int, Callable[[ErrorCode], object]]] = []
        #: those of transactional producers, and markers
        self.waiters = Waiters(key)
        #: sessions and fetches that read it; a dict, for its order
        self.fetches: dict[FetchSession | SimFetch, None] = {}
        #: whom it follows; None: nobody
        self.followed: tuple[int, int] | None = None
        self.not_before_ms = 0.0
        self._backoff_ms = 0.0
        #: what the invariants have seen of it: its high watermark and its leadership
        self.checked = 0
        self.role_checked: object = None
        #: the role in which a reader of committed records was here last, and the last stable offset then
        self.stable_checked: tuple[object, int] = (None, 0)
        #: generation and leader epoch of the last decision that it has taken
        self.decided = (-1, -1)
        self._taken: tuple[inputs.LeaderAnswer, tuple[Record, ...]] | None = None

    @property
    def is_closed(self) -> bool:
        """Whether it was let go."""
        return self.broker.replicas.get(self.key) is not self

    def step(self, happened: inputs.ReplicaInput) -> list[effects.ReplicaEffect]:
        """Step the machine and carry out what it wants; returns that, too."""
        broker = self.broker
        wanted = self.machine.step(happened, self.log, broker.world.now_ms)
        for effect in wanted:
            self._carry_out(effect)
        broker.world.touched(self)
        return wanted

    def _carry_out(self, effect: effects.ReplicaEffect) -> None:
        broker = self.broker
        match effect:
            case effects.AnswerProduces(up_to, error_code):
                self._answer_produces(up_to, error_code)
            case effects.WakeFetches(of_followers):
                self.wake_fetches(of_followers=of_followers)
            case effects.WriteIsr(number, proposal):
                broker.write_isr(self, number, proposal)
            case effects.Follow(leader, leader_epoch):
                self.followed = (leader, leader_epoch)
                self.not_before_ms = self._backoff_ms = 0.0
                broker.fetch_from(leader)
            case effects.Unfollow():
                self.followed = None
            case effects.TakeRecords():
                self._take_records()
            case effects.TruncateTo(offset):
                if self.machine.awaits_cut(effect):
                    broker.disk.cut(self.key, offset)
                    self.step(inputs.Truncated())
            case effects.StartAt(offset):
                if self.machine.awaits_cut(effect):
                    assert offset == 0, "no simulated log begins elsewhere"
                    broker.disk.cut(self.key, 0)
                    self.step(inputs.Truncated())
            case effects.BackOff():
                low, high = BACKOFF_MS
                self._backoff_ms = min(max(2 * self._backoff_ms, low), high)
                self.not_before_ms = broker.world.now_ms + self._backoff_ms
            case effects.Close():
                broker.close(self)
            case _:
                # What the caller of step answers, or what no simulated log has.
                pass

    def _answer_produces(self, up_to: int | None, error_code: ErrorCode) -> None:
        if up_to is None:
            self.waiters.fail_produces(error_code)
        else:
            self.waiters.answer_produces(up_to, error_code)
        waiting, self.produces = self.produces, []
        for end, answer in waiting:
            if up_to is None or end <= up_to:
                answer(error_code)
            else:
                self.produces.append((end, answer))

    def wake_fetches(self, *, of_followers: bool) -> None:
        """Let followers' fetches read it again; those that need not look at it with their next one."""
        for fetch in list(self.fetches):
            if of_followers:
                fetch.wake(self.key)
            else:
                fetch.mark(self.key)

    # -- the leader ------------------------------------------------------------------------------------------

    def produce(self, value: int, *, acks_all: bool, answer: Callable[[ErrorCode, int], object]) -> None:
        """Append a record; the answer has its offset, or -1."""
        code = self.machine.may_append(acks_all)
        leader = self.machine.leader
        if code is not ErrorCode.NONE or leader is None:
            answer(code, -1)
            return
        offset = self.log.log_end_offset
        self.log.append([Record(leader.leader_epoch, value)])
        if acks_all:
            self.produces.append((offset + 1, lambda code: answer(code, offset)))
        else:
            answer(ErrorCode.NONE, offset)
        self.step(inputs.LogGrew())

    @property
    def high_watermark(self) -> int:
        """As the shipped replica names it."""
        return self.machine.high_watermark

    def log_grew(self) -> None:
        """A batch of a transactional producer, or a marker, was appended."""
        self.step(inputs.LogGrew())

    def follower_fetched(self, replica_id: int, generation: int, position: FetchPosition) -> Outcome:
        """Note what a follower has, and answer it."""
        wanted = self.step(inputs.FollowerFetch(replica_id, generation, position))  # type: ignore[arg-type]
        return self._outcome(wanted[-1], position.offset)

    def consumer_fetched(self, position: FetchPosition) -> Outcome:
        """Answer a consumer."""
        wanted = self.step(inputs.ConsumerFetch(position))
        return self._outcome(wanted[-1], position.offset)

    def look_again(self, replica_id: int, position: FetchPosition) -> Outcome:
        """Answer a fetch that has waited."""
        answer = reading.answer(self.machine.role, replica_id, position, self.log)
        return self._outcome(answer, position.offset)

    def _outcome(self, answer: effects.ReplicaEffect, offset: int) -> Outcome:
        high_watermark = self.machine.high_watermark
        match answer:
            case effects.RefuseWith(error_code):
                return Outcome(error_code, high_watermark, 0)
            case effects.Diverge(leader_epoch, end_offset):
                diverging = (leader_epoch, end_offset)
                return Outcome(ErrorCode.NONE, high_watermark, 0, diverging_epoch=diverging)
            case effects.ReadUpTo(end):
                records = tuple(self.log.records[offset : min(end, offset + FETCH_RECORDS_MAX)])
                return Outcome(ErrorCode.NONE, high_watermark, 0, records, offset=offset)
            case _:
                raise AssertionError(f"{answer} is no answer to a fetch")

    # -- the follower ----------------------------------------------------------------------------------------

    def position(self, leader_epoch: int) -> FetchPosition:
        """Return what to ask the leader for."""
        log = self.log
        return FetchPosition(log.log_end_offset, 1, leader_epoch, log.latest_epoch, 0, log.topic_id)

    def answered(self, asked: FetchPosition, outcome: Outcome) -> None:
        """Take a leader's answer."""
        if outcome.error_code is ErrorCode.NONE:
            self._backoff_ms = 0.0
        answer = inputs.LeaderAnswer(
            asked.current_leader_epoch,
            asked.offset,
            outcome.error_code,
            outcome.high_watermark,
            outcome.log_start_offset,
            outcome.diverging_epoch,
            bool(outcome.records),
        )
        self._taken = (answer, outcome.records)
        self.step(answer)
        self._taken = None

    def _take_records(self) -> None:
        assert self._taken is not None
        answer, records = self._taken
        if not _follows(self.log, records):
            self.step(inputs.WriteFailed())
            return
        self.log.append(records)
        self.step(inputs.Copied(answer.high_watermark, answer.log_start_offset))


def _follows(log: SimLog, records: Sequence[Record]) -> bool:
    """Whether the shipped log would take these records: their epochs do not fall."""
    return records[0].leader_epoch >= log.latest_epoch
