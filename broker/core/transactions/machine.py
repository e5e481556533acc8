"""The machine of transactions of one elected coordinator: all transactional ids of its term.

`step` takes what has happened and the time, and returns what to do. One write of an id is under way; requests
that come meanwhile wait for it. What a decided transaction has still to do (markers, then the word that it is
complete) follows from its record alone, so the next coordinator goes on from there. A commit with offsets
borrows the groups first: the decision and their offsets are one multi.
Hard state is in the quorum; the requests that wait are soft state.
Source: ARCHITECTURE.md, "Life of a transaction"; KIP-98.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from broker.core.groups.bytes_held import GroupBytes
from broker.core.groups.inputs import BorrowGroup, ClockTick, GroupLent, ReturnGroup
from broker.core.term_machine import TermMachine
from broker.core.transactions import inputs, transaction_fences
from broker.core.transactions.deciding import Change, TransactionOptions, completed, decide, fence
from broker.core.transactions.inputs import Outcome, Producer, StoredTransaction
from broker.core.transactions.moves import MOVES, Event
from broker.core.transactions.slot import Flight, TransactionSlot, size_bytes
from controller.core.effects import Answer, Check, Level, Write
from controller.core.inputs import Done, Ended, MultiDone, ReadFailed, Rejected, Unknown, Why
from controller.wire.codes import ErrorCode
from quorum.metadata.paths import COORDINATOR_EPOCH, GROUP_BYTES_MAX, PartitionKey
from quorum.metadata.transaction_records import TransactionState

#: How often open transactions are looked at for their time, and some idle ids for their age.
LOOK_MS: Final = 1_000
#: So many idle ids, that their removal does not flood the quorum.
_LOOKED_AT_MAX: Final = 100
#: Requests of one id that wait for its write, or for its markers.
_WAITING_MAX: Final = 16
#: How long requests wait for markers; then CONCURRENT_TRANSACTIONS makes their producers ask again.
MARKERS_WAITED_MS: Final = 1_000
_PREPARED: Final = (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class TransactionsStatus(NamedTuple):
    """What a term holds."""

    #: {state: number of ids}
    states: Mapping[str, int]
    #: How long the oldest transaction is open.
    oldest_open_ms: int
    left_alone: tuple[str, ...]


class TransactionsMachine(TermMachine[inputs.TransactionInput, inputs.TransactionEffect]):
    """All transactional ids of one term; after Resign it does nothing more.

    A request is answered by one Answer with its id.
    """

    def __init__(self, epoch_version: int, options: TransactionOptions, room: GroupBytes) -> None:
        """Know nothing yet; TransactionsLoaded brings what there is.

        Args:
            epoch_version: of /consumers/coordinator_epoch, as the election has left it.
            options: of the coordinator.
            room: what groups hold; transactions count there, too.
        """
        super().__init__()
        self._epoch_version = epoch_version
        self._options = options
        self._room = room
        self._slots: dict[str, TransactionSlot] = {}
        self._problems: dict[str, str] = {}
        #: Ids with an open transaction, and those with none, in the order in which they are looked at.
        self._open: dict[str, TransactionSlot] = {}
        self._idle: dict[str, TransactionSlot] = {}
        #: {group: {partition: how many open transactions have offsets of it}}
        self._unstable: dict[str, Counter[PartitionKey]] = {}
        #: {multi, reading, loan or markers under way: whose}
        self._under_way: dict[int, TransactionSlot] = {}
        self._looked_ms = 0

    # -- what others see -------------------------------------------------------------------------------------

    def find(self, transactional_id: str) -> StoredTransaction | None:
        """Return an id as the quorum holds it; None where there is none."""
        slot = self._slots.get(transactional_id)
        return None if slot is None or slot.stored.record is None else slot.stored

    def all(self) -> list[StoredTransaction]:
        """Return every id that the quorum holds."""
        return [each.stored for each in self._slots.values() if each.stored.record is not None]

    def unstable(self, group_id: str) -> Collection[PartitionKey]:
        """Return partitions of a group with offsets that take effect when a transaction commits."""
        return self._unstable.get(group_id, ())

    def status(self, now_ms: int) -> TransactionsStatus:
        """Say what this term holds."""
        states = Counter(each.state.value for each in self._slots.values())
        oldest_ms = max((now_ms - each.opened_ms for each in self._open.values()), default=0)
        return TransactionsStatus(dict(states), oldest_ms, tuple(sorted(self._problems)))

    # -- inputs ----------------------------------------------------------------------------------------------

    def _take(self, happened: inputs.TransactionInput, now_ms: int) -> None:
        match happened:
            case inputs.TransactionAsked():
                self._ask(happened.id, happened.request, now_ms)
            case MultiDone():
                self._multi_done(happened, now_ms)
            case inputs.TransactionRead():
                self._read(happened, now_ms)
            case ReadFailed():
                self._read_failed(happened)
            case GroupLent():
                self._lent(happened, now_ms)
            case inputs.MarkersWritten():
                self._marked(happened, now_ms)
            case ClockTick():
                self._tick(happened, now_ms)
            case inputs.TransactionsLoaded():
                self._load(happened, now_ms)
            case Ended():
                self._resign(happened.reason, happened.is_fenced)

    def _load(self, loaded: inputs.TransactionsLoaded, now_ms: int) -> None:
        for name, problem in loaded.problems.items():
            self._problems[name] = problem
            self._trace(f"transactional id {name!r} is left alone: {problem}", Level.WARNING)
        for stored in loaded.transactions:
            slot = self._slots[stored.transactional_id] = TransactionSlot(stored)
            self._count_offsets(stored, 1)
            self._settle(slot, now_ms)

    def _tick(self, clock: ClockTick, now_ms: int) -> None:
        self._clock = clock
        if now_ms - self._looked_ms >= LOOK_MS:
            self._looked_ms = now_ms
            for slot in list(self._open.values()):
                record = slot.stored.record
                if record is None or slot.flight is not None or now_ms - slot.opened_ms < record.timeout_ms:
                    continue
                self._trace(f"transactional id {slot.name!r}: its transaction is open for too long")
                self._fly(slot, Flight(fence(record, self._wall_ms(now_ms))))
            self._give_up_waiting(now_ms)
            if clock.is_believed:
                self._sweep(now_ms)

    def _give_up_waiting(self, now_ms: int) -> None:
        """Answer what has waited too long for markers; a broker that must write one may be away."""
        for slot in self._under_way.values():
            if slot.flight is None and now_ms - slot.awaited_ms >= MARKERS_WAITED_MS:
                answers = (Answer(each, ErrorCode.CONCURRENT_TRANSACTIONS) for each, _ in slot.waiting)
                self._effects.extend(answers)
                slot.waiting.clear()

    def _sweep(self, now_ms: int) -> None:
        """Remove ids that nobody has used for long, among those that were not looked at for longest."""
        options = self._options
        idle_ms = max(
            int(options.transactional_id_expiration_ms * min(2 * self._room.free_share, 1.0)),
            min(options.transaction_max_timeout_ms, options.transactional_id_expiration_ms),
        )
        for slot in list(itertools.islice(self._idle.values(), _LOOKED_AT_MAX)):
            record = slot.stored.record
            assert record is not None, "an id that is idle"
            is_old = record.update_timestamp_ms <= self._wall_ms(now_ms) - idle_ms
            if is_old and MOVES[record.state, Event.EXPIRE] is TransactionState.DEAD:
                self._fly(slot, Flight(None))
            else:
                self._idle[slot.name] = self._idle.pop(slot.name)

    # -- requests --------------------------------------------------------------------------------------------

    def _ask(self, number: int, request: inputs.TransactionRequest, now_ms: int) -> None:
        name = request.transactional_id
        slot = self._slots.get(name)
        outcome: Outcome | None = None
        if not name or len(name.encode("utf-8", "surrogatepass")) > GROUP_BYTES_MAX:
            outcome = ErrorCode.INVALID_REQUEST
        elif name in self._problems:
            outcome = ErrorCode.UNKNOWN_SERVER_ERROR
        elif slot is not None and slot.flight is not None:
            if isinstance(request, inputs.VerifyPartitions) and not slot.flight.ends:
                # What is added now was not answered yet: nobody sends records of it.
                pass
            elif isinstance(request, inputs.StoreOffsets):
                # Its member may be none any more after the write.
                outcome = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            elif len(slot.waiting) < _WAITING_MAX:
                slot.waiting.append((number, request))
                return
            else:
                outcome = ErrorCode.CONCURRENT_TRANSACTIONS
        if outcome is not None:
            self._effects.append(Answer(number, outcome))
            return
        self._decide(slot or TransactionSlot(StoredTransaction(name)), number, request, now_ms)

    def _decide(
        self, slot: TransactionSlot, number: int, request: inputs.TransactionRequest, now_ms: int
    ) -> None:
        decided = decide(slot.stored, request, self._options, self._wall_ms(now_ms))
        if not isinstance(decided, Change):
            waits = decided is ErrorCode.CONCURRENT_TRANSACTIONS and len(slot.waiting) < _WAITING_MAX
            if waits and not isinstance(request, inputs.VerifyPartitions):
                self._await_markers(slot, number, request, now_ms)
            else:
                self._effects.append(Answer(number, decided))
            return
        flight = Flight(decided, number)
        growth = size_bytes(slot.after(flight)) - slot.counted_bytes
        # An end makes it smaller; there is always room for that.
        if (refusal := self._room.refusal(slot.name, growth, "transactional id")) is not None:
            if (text := self._room.news(refusal, now_ms)) is not None:
                self._trace(text, Level.WARNING)
            self._effects.append(Answer(number, refusal.error_code))
            return
        self._slots[slot.name] = slot
        if decided.event is Event.COMMIT:
            flight.groups = sorted(slot.stored.offsets)
        self._fly(slot, flight)

    def _await_markers(
        self, slot: TransactionSlot, number: int, request: inputs.TransactionRequest, now_ms: int
    ) -> None:
        """Let a request wait until the transaction before is complete: a client would ask after a pause."""
        if not slot.waiting:
            slot.awaited_ms = now_ms
        slot.waiting.append((number, request))

    # -- writing ---------------------------------------------------------------------------------------------

    def _fly(self, slot: TransactionSlot, flight: Flight) -> None:
        """Begin a write."""
        slot.flight = flight
        self._idle.pop(slot.name, None)
        after = slot.after(flight)
        self._count(slot, max(size_bytes(after) - slot.counted_bytes, 0))
        # From the decision on: the member that takes over the partitions has to wait.
        self._count_offsets(after, 1)
        self._go_on(slot, flight)

    def _go_on(self, slot: TransactionSlot, flight: Flight) -> None:
        """Borrow the next group of a commit, in the order of their names, or write."""
        if flight.groups:
            group_id = flight.groups[0]
            number = flight.loans[group_id] = self._number(slot)
            self._effects.append(BorrowGroup(number, group_id, slot.stored.offsets[group_id]))
            return
        fence_check = Check(COORDINATOR_EPOCH, transaction_fences.coordinator_epoch(self._epoch_version))
        version = transaction_fences.transaction_version(slot.stored.version)
        operations = fence_check, *slot.operations(flight, version)
        self._effects.append(Write(self._number(slot), operations))

    def _lent(self, lent: GroupLent, now_ms: int) -> None:
        slot = self._under_way.pop(lent.id)
        flight = slot.flight
        assert flight is not None, "a group is lent to a write"
        group_id = flight.groups.pop(0)
        if lent.operations is None:
            del flight.loans[group_id]
            self._count_offsets(slot.after(flight), -1)
            self._refuse(slot, flight, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, now_ms)
            return
        flight.operations += lent.operations
        self._go_on(slot, flight)

    def _multi_done(self, done: MultiDone, now_ms: int) -> None:
        slot = self._under_way.pop(done.id)
        flight, outcome = slot.flight, done.outcome
        assert flight is not None, "a multi is part of a write"
        if isinstance(outcome, Rejected) and outcome.failed_index == 0:
            self._resign(f"another coordinator was elected: {COORDINATOR_EPOCH} has changed", is_fenced=True)
        elif isinstance(outcome, Done):
            self._take_effect(slot, flight, now_ms)
        else:
            flight.rounds += 1
            if isinstance(outcome, Unknown):
                flight.is_doubtful = True
            elif outcome.why is Why.OTHER:
                flight.problem = outcome.problem
            self._effects.append(inputs.ReadTransaction(self._number(slot), slot.name))

    def _read_failed(self, failed: ReadFailed) -> None:
        slot = self._under_way.pop(failed.id)
        flight = slot.flight
        assert flight is not None, "an id is read within a write"
        flight.rounds += 1
        if flight.rounds > self._options.retries_max:
            self._resign(failed.problem, is_fenced=False)
        else:
            self._effects.append(inputs.ReadTransaction(self._number(slot), slot.name))

    def _read(self, happened: inputs.TransactionRead, now_ms: int) -> None:
        """Go on from what was read: the write took effect, it did not, or a foreign hand was there."""
        slot = self._under_way.pop(happened.id)
        flight, found = slot.flight, happened.stored
        assert flight is not None, "an id is read within a write"
        before, after = slot.stored, slot.after(flight)
        version = -1 if found is None else found.version
        record = None if found is None else found.record
        if version == after.version and version != before.version and record == after.record:
            self._take_effect(slot, flight, now_ms)
        elif version != before.version:
            self._trace(f"transactional id {slot.name!r}: its znode has changed", Level.WARNING)
            slot.stored = found or StoredTransaction(slot.name)
            self._count_offsets(before, -1)
            self._count_offsets(slot.stored, 1)
            self._count_offsets(after, -1)
            self._refuse(slot, flight, ErrorCode.NOT_COORDINATOR, now_ms)
        elif not flight.problem and flight.rounds <= self._options.retries_max:
            self._go_on(slot, flight)
        elif flight.is_doubtful:
            # It may still come, after another decision.
            self._resign(f"transactional id {slot.name!r}: no outcome of its write", is_fenced=False)
        else:
            problem = flight.problem or "the quorum does not take it"
            text = f"transactional id {slot.name!r} is left as it was: {problem}"
            self._trace(text, Level.WARNING)
            self._count_offsets(after, -1)
            self._refuse(slot, flight, ErrorCode.COORDINATOR_NOT_AVAILABLE, now_ms)

    def _take_effect(self, slot: TransactionSlot, flight: Flight, now_ms: int) -> None:
        before, slot.stored = slot.stored, slot.after(flight)
        self._count_offsets(before, -1)
        self._give_back(flight, is_written=True)
        if flight.request is not None and flight.change is not None:
            self._effects.append(Answer(flight.request, flight.change.outcome))
        self._end_flight(slot, now_ms)

    def _refuse(self, slot: TransactionSlot, flight: Flight, code: ErrorCode, now_ms: int) -> None:
        """End a write that did not take effect."""
        self._give_back(flight, is_written=False)
        if flight.request is not None:
            self._effects.append(Answer(flight.request, code))
        self._end_flight(slot, now_ms)

    def _give_back(self, flight: Flight, *, is_written: bool) -> None:
        for group_id, number in flight.loans.items():
            self._under_way.pop(number, None)
            self._effects.append(ReturnGroup(number, group_id, is_written))

    def _end_flight(self, slot: TransactionSlot, now_ms: int) -> None:
        slot.flight = None
        self._settle(slot, now_ms)
        waiting, slot.waiting = slot.waiting, []
        for number, request in waiting:
            # The first that writes lets the others wait again.
            self._ask(number, request, now_ms)

    # -- what a record asks for ------------------------------------------------------------------------------

    def _settle(self, slot: TransactionSlot, now_ms: int) -> None:
        """Act on an id as the quorum holds it now."""
        record, name = slot.stored.record, slot.name
        self._count(slot, size_bytes(slot.stored) - slot.counted_bytes)
        self._idle.pop(name, None)
        if slot.state is not TransactionState.ONGOING:
            self._open.pop(name, None)
        if record is None:
            if self._slots.get(name) is slot:
                del self._slots[name]
        elif record.state is TransactionState.ONGOING:
            if name not in self._open:
                open_ms = self._wall_ms(now_ms) - record.start_timestamp_ms if self._clock.is_believed else 0
                slot.opened_ms = now_ms - min(max(open_ms, 0), record.timeout_ms)
                self._open[name] = slot
        elif record.state not in _PREPARED:
            self._idle[name] = slot
        elif not record.partitions:
            self._fly(slot, Flight(completed(record, self._wall_ms(now_ms))))
        else:
            number = self._number(slot)
            producer = Producer(record.producer_id, record.producer_epoch)
            commits = record.state is TransactionState.PREPARE_COMMIT
            self._effects.append(inputs.SendMarkers(number, producer, commits, record.partitions))

    def _marked(self, marked: inputs.MarkersWritten, now_ms: int) -> None:
        slot = self._under_way.pop(marked.id)
        record = slot.stored.record
        if record is not None and record.state in _PREPARED and slot.flight is None:
            self._fly(slot, Flight(completed(record, self._wall_ms(now_ms))))

    def _count(self, slot: TransactionSlot, growth: int) -> None:
        slot.counted_bytes += growth
        self._room.held_bytes += growth

    def _count_offsets(self, stored: StoredTransaction, by: int) -> None:
        for group_id, rows in stored.offsets.items():
            held = self._unstable.setdefault(group_id, Counter())
            for key in rows:
                held[key] += by
                if not held[key]:
                    del held[key]
            if not held:
                del self._unstable[group_id]

    def _number(self, slot: TransactionSlot) -> int:
        number = next(self._numbers)
        self._under_way[number] = slot
        return number
