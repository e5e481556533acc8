"""The machine of one elected coordinator: all groups of its term, one timer wheel, what is written of them.

`step` takes what has happened and the time, and returns what to do. Carries the records of the groups'
machines to the quorum, one multi of a group at a time, and their answers back when those are durable. Groups
decide first and write afterwards: a group whose write is given up goes on from what the quorum has.
Hard state is in the quorum; the answers that wait are soft state.
Source: ARCHITECTURE.md, "Life of a consumer group"; docs/internals/requirements.md, [4.x].
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Final

from broker.core.groups import asking, bridge, group_fences, inputs
from broker.core.groups.bytes_held import GroupBytes
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import (
    JOIN_EPOCH,
    Catalog,
    GroupCounters,
    GroupOptions,
    GroupRefusal,
    GroupState,
    GroupStatus,
    Ticket,
)
from broker.core.groups.slot import GroupSlot, Machine
from broker.core.groups.timers import TimerWheel
from broker.core.groups.writing import GroupWrite, StoredGroup
from broker.core.term_machine import TermMachine
from controller.core.effects import Answer, Check, Level, Write
from controller.core.inputs import Done, Ended, MultiDone, ReadFailed, Unknown
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import ConsumerGroupRecord
from quorum.metadata.paths import COORDINATOR_EPOCH, GROUP_CHUNK

#: How often empty groups are looked at for offsets that nobody needs any more.
SWEEP_MS: Final = 60_000
#: In the timer wheel, in place of a group and a member.
_SWEEP: Final = ("", "")
#: Groups that are remembered whose last write was given up.
UNWRITTEN_MAX: Final = 1_000


class GroupsMachine(TermMachine[inputs.GroupInput, inputs.GroupEffect]):
    """All groups of one term; after Resign it does nothing more and leaves the waiting requests unanswered.

    A request is answered by one Answer with its id. At most one multi or reading of a group is under way.
    """

    def __init__(self, epoch_version: int, nonce: str, options: GroupOptions, now_ms: int) -> None:
        """Know nothing yet; GroupsLoaded begins.

        Args:
            epoch_version: of /consumers/coordinator_epoch, as the election has left it.
            nonce: begins the names of chunks; no other term has it.
            options: of the coordinator.
            now_ms: monotonic.
        """
        super().__init__()
        self._epoch_version = epoch_version
        self._nonce = nonce
        #: {group: its slot}
        self._slots: dict[str, GroupSlot] = {}
        #: {group: why its record is left alone}
        self._problems: dict[str, str] = {}
        #: Groups that are being deleted.
        self._ending: set[str] = set()
        #: {group: why its last write was given up}; the latest ones
        self._unwritten: dict[str, str] = {}
        self._wheel: TimerWheel[tuple[str, str]] = TimerWheel(now_ms)
        #: {multi or reading under way: whose}
        self._under_way: dict[int, GroupSlot] = {}
        self._counters = GroupCounters()
        #: What transactions hold counts there, too.
        self.room = GroupBytes(options.groups_bytes_max)
        self._ground = asking.GroupGround(options, Catalog(), self.room)

    # -- what others see -------------------------------------------------------------------------------------

    def find(self, group_id: str) -> GroupSlot | GroupRefusal | None:
        """Return a group, None where there is none, or why there can be none at present."""
        slot = self._slots.get(group_id)
        if slot is not None:
            return slot
        return asking.why_none(group_id, self._problems.get(group_id), group_id in self._ending)

    def slots(self) -> list[GroupSlot]:
        """Return every group."""
        return list(self._slots.values())

    def topics_of(self, request: inputs.GroupRequest) -> tuple[Collection[str], str | None]:
        """Return the topics, and the pattern, that the catalog has to know before a request is answered."""
        return asking.topics_of(self._slots.get(request.group_id), request)

    def problem(self, group_id: str) -> str | None:
        """Return why the last write of a group was given up; None if it was not."""
        return self._unwritten.get(group_id)

    def status(self) -> GroupStatus:
        """Say what this term holds."""
        slots = self._slots.values()
        states = Counter(slot.machine.state.value for slot in slots)
        members = sum(slot.machine.member_count for slot in slots)
        return GroupStatus(
            *(dict(states), members, tuple(sorted(self._problems)), dict(self._unwritten), self._counters),
            *(self._ground.bytes.held_bytes, self._ground.bytes.refused),
        )

    # -- inputs ----------------------------------------------------------------------------------------------

    def _take(self, happened: inputs.GroupInput, now_ms: int) -> None:
        match happened:
            case inputs.GroupAsked():
                self._ask(happened.id, happened.request, now_ms)
            case MultiDone():
                self._multi_done(happened, now_ms)
            case inputs.GroupRead() | ReadFailed():
                self._read(happened, now_ms)
            case inputs.ClockTick():
                self._tick(happened, now_ms)
            case inputs.BorrowGroup():
                self._lend(happened, now_ms)
            case inputs.ReturnGroup():
                self._take_back(happened, now_ms)
            case inputs.TopicsChanged():
                self._want_topics()
            case inputs.TopicsLookedUp():
                self._ground.catalog = happened.catalog
            case inputs.TopicsRead():
                self._take_topics(happened, now_ms)
            case inputs.GroupsLoaded():
                self._load(happened, now_ms)
            case Ended():
                self._resign(happened.reason, happened.is_fenced)

    def _load(self, loaded: inputs.GroupsLoaded, now_ms: int) -> None:
        for group_id, problem in loaded.problems.items():
            self._trace(f"group {group_id!r} is left alone: {problem}", Level.WARNING)
        self._problems = dict(loaded.problems)
        for stored in loaded.groups:
            self._adopt(stored, now_ms)
        self._wheel.schedule(_SWEEP, now_ms + SWEEP_MS)
        self._trace(f"loaded {len(self._slots)} groups")

    def _adopt(self, stored: StoredGroup, now_ms: int, *, put_off: bool = False) -> GroupSlot:
        machine: Machine
        record, limits = stored.record, self._ground.options.limits
        if isinstance(record, ConsumerGroupRecord):
            machine = ConsumerGroup.load(stored.group_id, limits, record)
            if put_off:
                machine.put_off_assignment(now_ms)
        else:
            machine = ClassicGroup(stored.group_id, limits, record)
        slot = self._slots[stored.group_id] = GroupSlot(machine, stored)
        self._ground.bytes.held_bytes += slot.offset_bytes
        self._ground.bytes.count(slot)
        if record is not None:
            slot.written_bytes = machine.size
            machine.resume(now_ms)
            if stored.strays:
                slot.next_write()
            self._settle(slot, now_ms)
        return slot

    def _tick(self, clock: inputs.ClockTick, now_ms: int) -> None:
        self._clock = clock
        for group_id, key in self._wheel.expired(now_ms):
            if (group_id, key) == _SWEEP:
                self._wheel.schedule(_SWEEP, now_ms + SWEEP_MS)
                self._sweep(now_ms)
                continue
            slot = self._slots.get(group_id)
            deadline_ms = None if slot is None else slot.machine.deadline_ms(key)
            if slot is None or deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._wheel.schedule((group_id, key), deadline_ms)
                continue
            generation_id = slot.machine.generation_id
            slot.machine.expire(key, now_ms)
            self._counters.deadlines += 1
            text = f"group {group_id!r}, generation {generation_id}: deadline of {key or 'group'!r} passed"
            self._trace(text)
            self._settle(slot, now_ms)

    def _sweep(self, now_ms: int) -> None:
        """Remove the offsets of groups that have been empty for long, and groups that have nothing left."""
        if not self._clock.is_believed:
            return
        too_old_ms = self._wall_ms(now_ms) - self._ground.options.offsets_retention_ms
        for slot in self.slots():
            if slot.machine.state is not GroupState.EMPTY or slot.machine.state_timestamp_ms > too_old_ms:
                continue
            old = [key for key, each in slot.stored.offsets.items() if each.commit_timestamp_ms <= too_old_ms]
            if len(old) == len(slot.stored.offsets):
                self._delete(None, slot.group_id, now_ms)
            elif old:
                self._ground.bytes.remove(slot, old)
                self._settle(slot, now_ms)

    def _want_topics(self) -> None:
        groups = [slot.machine for slot in self._slots.values() if isinstance(slot.machine, ConsumerGroup)]
        for slot in self._slots.values():
            # A topic that comes while it is read, with the offsets that are committed for it, is not deleted.
            slot.known_topics = frozenset(slot.stored.nodes)
        names = frozenset[str]().union(*(each.topic_names for each in groups))
        patterns = frozenset[str]().union(*(each.patterns for each in groups))
        self._effects.append(inputs.ReadTopics(names, patterns))

    def _take_topics(self, found: inputs.TopicsRead, now_ms: int) -> None:
        """Ask of every group whether it needs a rebalance, and drop the offsets of deleted topics."""
        self._ground.catalog = found.catalog
        for slot in self.slots():
            gone, slot.known_topics = slot.known_topics - found.existing, frozenset()
            removed = [key for key in slot.stored.offsets if key.topic in gone] if gone else []
            if removed:
                self._ground.bytes.remove(slot, removed)
            if isinstance(slot.machine, ConsumerGroup):
                slot.machine.update_catalog(found.catalog, now_ms)
            self._settle(slot, now_ms)

    # -- requests --------------------------------------------------------------------------------------------

    def _ask(self, number: int, request: inputs.GroupRequest, now_ms: int) -> None:
        if isinstance(request, inputs.DeleteGroup):
            self._delete(number, request.group_id, now_ms)
            return
        slot = self.find(request.group_id)
        outcome: object | None = None
        if slot is None and (outcome := asking.answer_of_nobody(request)) is None:
            slot = self._new_group(request.group_id, now_ms)
        if not isinstance(slot, GroupSlot):
            self._effects.append(Answer(number, outcome if slot is None else slot))
            return
        outcome = asking.answer(slot, Ticket(number), request, self._ground, now_ms)
        if isinstance(request, inputs.ClassicHeartbeat) and isinstance(slot.machine, ClassicGroup):
            # Nothing but a deadline has changed.
            self._answer(slot, number, outcome)
            return
        if isinstance(request, inputs.CheckCommit):
            # Who was answered that it is a member, is one.
            self._effects.append(Answer(number, outcome))
            return
        self._decide(slot, now_ms)
        if isinstance(outcome, GroupRefusal):
            self._refuse(number, outcome, now_ms)
        elif outcome is not None:
            writes = isinstance(request, inputs.CommitOffsets | inputs.RemoveOffsets) and not outcome
            write = self._answer(slot, number, outcome, slot.pending if writes else None)
            if write is not None and isinstance(request, inputs.ConsumerHeartbeat):
                write.joins.update((number,) if request.request.member_epoch == JOIN_EPOCH else ())
        self._carry_on(slot, now_ms)

    def _new_group(self, group_id: str, now_ms: int) -> GroupSlot | GroupRefusal:
        if len(self._slots) >= self._ground.options.groups_max:
            return asking.too_many(len(self._slots))
        return self._adopt(StoredGroup(group_id), now_ms)

    def _delete(self, number: int | None, group_id: str, now_ms: int) -> None:
        """Remove a group without members, and its offsets; number: of the request, None: nobody asked."""
        slot = self.find(group_id)
        if not isinstance(slot, GroupSlot) or not slot.machine.is_empty:
            missing = slot or ErrorCode.GROUP_ID_NOT_FOUND
            outcome = ErrorCode.NON_EMPTY_GROUP if isinstance(slot, GroupSlot) else missing
            self._effects += () if number is None else (Answer(number, outcome),)
        elif slot.flying is not None:
            slot.deletions.append(number)
        else:
            # A member that comes meanwhile finds no group, and begins a new one when this is gone.
            self._drop(slot)
            self._ending.add(group_id)
            answers: list[tuple[int, object]] = [] if number is None else [(number, ErrorCode.NONE)]
            slot.pending = GroupWrite(is_deletion=True, answers=answers)
            self._write(slot, now_ms)

    def _refuse(self, number: int, refusal: GroupRefusal, now_ms: int) -> None:
        self._effects.append(Answer(number, refusal))
        if refusal.error_code is ErrorCode.POLICY_VIOLATION:
            text = self._ground.bytes.news(refusal, now_ms)
            if text is not None:
                self._trace(text, Level.WARNING)

    def _answer(
        self, slot: GroupSlot, number: int, outcome: object, write: GroupWrite | None = None
    ) -> GroupWrite | None:
        """Answer now, or behind the write that holds what the answer says; returns that."""
        write = write or slot.last_saving()
        if write is None or group_fences.may_answer(is_written=False):
            self._effects.append(Answer(number, outcome))
            return None
        write.answers.append((number, outcome))
        return write

    # -- what has been decided -------------------------------------------------------------------------------

    def _settle(self, slot: GroupSlot, now_ms: int) -> None:
        """Carry out what the last call to a group's machine has led to."""
        self._decide(slot, now_ms)
        self._carry_on(slot, now_ms)

    def _decide(self, slot: GroupSlot, now_ms: int) -> None:
        """Take the record, the deadlines and the answers that the last call to a machine has led to."""
        machine, options = slot.machine, self._ground.options
        if isinstance(machine, ConsumerGroup) and machine.is_all_classic and options.may_downgrade:
            machine = slot.machine = bridge.downgraded(machine, now_ms) or machine
        if machine.unsaved or isinstance(machine, ClassicGroup):
            self._ground.bytes.count(slot)
        if machine.unsaved:
            machine.unsaved = False
            before = slot.stored.record
            if before is None or (machine.member_count > 0) != bool(before.members):
                machine.state_timestamp_ms = self._wall_ms(now_ms)
            write = slot.next_write()
            # Members that have joined the next generation of a classic group do not belong to this one.
            write.record = machine.record() if isinstance(machine, ClassicGroup) else machine
            if machine.generation_id != slot.generation_id:
                slot.generation_id = machine.generation_id
                self._counters.rebalances += 1
        for key, deadline_ms in machine.take_timers():
            self._wheel.schedule((slot.group_id, key), deadline_ms)
        for ticket, answer in machine.take_answers() if isinstance(machine, ClassicGroup) else ():
            self._answer(slot, ticket, answer)

    def _carry_on(self, slot: GroupSlot, now_ms: int) -> None:
        if slot.flying is None and (slot.queued or slot.pending is not None):
            self._write(slot, now_ms)
        elif slot.is_idle:
            self._drop(slot)

    def _drop(self, slot: GroupSlot) -> None:
        if self._slots.get(slot.group_id) is slot:
            del self._slots[slot.group_id]
            self._ground.bytes.leave(slot)

    # -- writing ---------------------------------------------------------------------------------------------

    def _write(self, slot: GroupSlot, now_ms: int) -> None:
        """Send the next multi of a group; after a write its answers leave, and the next one begins."""
        while True:
            write = slot.flying
            if write is None:
                write = slot.take_next()
                if write is None:
                    break
                if write.loan is not None and slot.stored.record is None:
                    write.record = slot.machine.record()
                slot.flying = write
                if not write.is_deletion and not self._begin(slot, write, now_ms):
                    return
            multi = write.next_multi(slot.stored)
            if multi is not None and write.loan is not None:
                self._effects.append(inputs.GroupLent(write.loan, multi.operations))
                return
            if multi is not None:
                fence = Check(COORDINATOR_EPOCH, group_fences.coordinator_epoch(self._epoch_version))
                self._effects.append(Write(self._number(slot), (fence, *multi.operations)))
                return
            slot.flying = None
            self._unwritten.pop(slot.group_id, None)
            self._effects += (Answer(*each) for each in write.answers)
            if write.is_deletion:
                self._ending.discard(slot.group_id)
                self._trace(f"group {slot.group_id!r} deleted")
                return
        self._end_writes(slot, now_ms)

    def _begin(self, slot: GroupSlot, write: GroupWrite, now_ms: int) -> bool:
        """Take the record that a write carries; False: it is larger than it may be, so it is given up."""
        machine = slot.machine
        if write.record is None:
            return True
        size, bytes_max = machine.size, self._ground.options.limits.group_bytes_max
        # The leader of a classic group was refused when it assigned.
        if isinstance(write.record, ConsumerGroup) and size > max(bytes_max, slot.written_bytes):
            # With a member that joins there is more to assign than a group may hold; the others go on.
            self._give_up(slot, slot.stored, asking.too_large(slot.group_id, size, bytes_max), now_ms)
            return False
        slot.written_bytes = size
        self._trace(slot.summary())
        write.begin(f"{GROUP_CHUNK}{self._nonce}-{number}" for number in self._numbers)
        return True

    def _lend(self, asked: inputs.BorrowGroup, now_ms: int) -> None:
        slot = self.find(asked.group_id) or self._new_group(asked.group_id, now_ms)
        if isinstance(slot, GroupRefusal):
            self._effects.append(inputs.GroupLent(asked.id, None))
            return
        self._ground.bytes.lend(slot, GroupWrite(offsets=dict(asked.offsets), loan=asked.id))
        self._carry_on(slot, now_ms)

    def _take_back(self, returned: inputs.ReturnGroup, now_ms: int) -> None:
        slot = self._slots[returned.group_id]
        write = slot.flying
        assert write is not None and write.loan == returned.id, "what is lent is written by nobody else"
        if returned.is_written:
            write.take_outcome(Done(), slot.stored)
            self._write(slot, now_ms)
            return
        # Nothing of it shall come; what is there tells the next multi.
        write.offsets, write.record = {}, None
        self._ground.bytes.recount(slot)
        self._effects.append(inputs.ReadGroup(self._number(slot), slot.group_id))

    def _number(self, slot: GroupSlot) -> int:
        number = next(self._numbers)
        self._under_way[number] = slot
        return number

    def _multi_done(self, done: MultiDone, now_ms: int) -> None:
        slot = self._under_way.pop(done.id)
        write, outcome = slot.flying, done.outcome
        assert write is not None and write.multi is not None, "a multi is part of a write"
        if not isinstance(outcome, Done | Unknown) and outcome.failed_index == 0:
            problem = f"another coordinator was elected: {COORDINATOR_EPOCH} has changed"
            self._resign(problem, is_fenced=True)
        elif write.take_outcome(outcome, slot.stored):
            self._write(slot, now_ms)
        else:
            self._effects.append(inputs.ReadGroup(self._number(slot), slot.group_id))

    def _read(self, happened: inputs.GroupRead | ReadFailed, now_ms: int) -> None:
        slot = self._under_way.pop(happened.id)
        write, rounds_max = slot.flying, 1 + self._ground.options.rebalance_retries_max
        assert write is not None, "a group is read within a write"
        if isinstance(happened, ReadFailed):
            if write.rounds >= rounds_max:
                self._resign(happened.problem, is_fenced=False)
                return
            write.rounds += 1
            self._effects.append(inputs.ReadGroup(self._number(slot), slot.group_id))
            return
        problem = write.judge(slot.stored, happened.stored, happened.value, rounds_max)
        if problem:
            refusal = GroupRefusal(ErrorCode.NOT_COORDINATOR, problem)
            self._give_up(slot, happened.stored, refusal, now_ms)
            return
        slot.stored = happened.stored or StoredGroup(slot.group_id)
        self._write(slot, now_ms)

    def _give_up(
        self, slot: GroupSlot, found: StoredGroup | None, to_joins: GroupRefusal, now_ms: int
    ) -> None:
        """Leave a group as the quorum has it: it could not be written, or somebody else has written it."""
        self._counters.writes_failed += 1
        self._unwritten[slot.group_id] = problem = to_joins.problem
        if len(self._unwritten) > UNWRITTEN_MAX:
            del self._unwritten[next(iter(self._unwritten))]
        self._trace(f"group {slot.group_id!r} is left as it was: {problem}", Level.WARNING)
        refusal = GroupRefusal(ErrorCode.NOT_COORDINATOR, problem)
        for write in (each for each in (slot.flying, *slot.queued, slot.pending) if each is not None):
            if write.loan is not None and write is not slot.flying:
                self._effects.append(inputs.GroupLent(write.loan, None))
            for number, _ in write.answers:
                self._effects.append(Answer(number, to_joins if number in write.joins else refusal))
        if isinstance(slot.machine, ClassicGroup):
            self._effects += (Answer(ticket, refusal) for ticket in slot.machine.waiting())
        slot.flying = slot.pending = None
        slot.queued.clear()
        self._drop(slot)
        self._ending.discard(slot.group_id)
        if found is not None and found.record is not None:
            self._adopt(found, now_ms, put_off=True)
        self._end_writes(slot, now_ms)

    def _end_writes(self, slot: GroupSlot, now_ms: int) -> None:
        """Act on what has waited for the last write of a group."""
        if slot.is_idle:
            self._drop(slot)
        deletions, slot.deletions = slot.deletions, []
        for number in deletions:
            self._delete(number, slot.group_id, now_ms)
