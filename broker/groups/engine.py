"""What an elected coordinator works with: all groups in memory, one loop, one timer wheel.

Carries the records of the machines to the quorum, and their answers back when those are durable. A term that
was fenced, or that has not been heard by the quorum for a session, answers nothing more: its successor gives
every member a full session, so a member that still talks to the old coordinator must not be kept alive here.
Hard state is in the quorum; the answers that wait are soft state.
Source: control-plane design, "Coordinator"; seed [4.x].
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import Counter
from collections.abc import Coroutine
from typing import Any, Final, TypeVar

from broker.core.cluster_view import ClusterView
from broker.core.groups import bridge
from broker.core.groups.classic import ClassicGroup
from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import GroupState, Ticket
from broker.core.groups.timers import TICK_MS, TimerWheel
from broker.groups.errors import (
    CoordinatorFencedError,
    GroupRefusedError,
    GroupTooLargeError,
    NotCoordinatorError,
)
from broker.groups.options import GroupOptions
from broker.groups.room import Room
from broker.groups.slot import Batch, GroupSlot, Machine
from broker.groups.status import GroupCounters, GroupStatus
from broker.groups.store import GroupStore, StoredGroup
from broker.groups.topics import GroupTopics
from controller.election.plans import Mandate
from controller.wire.codes import ErrorCode
from quorum.client import Client, ClientError, ClientState
from quorum.errors import QuorateError
from quorum.metadata import paths
from quorum.metadata.errors import SESSION_OVER
from quorum.metadata.group_records import ConsumerGroupRecord, GroupRecord
from quorum.metadata.numbers import CoordinatorEpoch
from quorum.platform.wall_clock import CLOCK

log = logging.getLogger("quorate.broker.groups")

#: How often empty groups are looked at for offsets that nobody needs any more.
SWEEP_MS: Final = 60_000
#: Groups that are remembered whose last write was given up.
UNWRITTEN_MAX: Final = 1_000

T = TypeVar("T")


class GroupEngine:
    """All groups of one term, but for the requests about them; `run` returns its reason when it is over."""

    def __init__(
        self, client: Client, mandate: Mandate[CoordinatorEpoch], options: GroupOptions, view: ClusterView
    ) -> None:
        """Know nothing yet; `run` loads."""
        self.mandate = mandate
        self._client = client
        self._options = options
        self._store = GroupStore(client, mandate, retries_max=options.rebalance_retries_max)
        self._topics = GroupTopics(client, view)
        self._room = Room(options.groups_bytes_max)
        #: {group: its slot}
        self._slots: dict[str, GroupSlot] = {}
        #: {group: why its record is left alone}
        self._problems: dict[str, str] = {}
        #: Groups that are being read again or deleted.
        self._busy: set[str] = set()
        #: {group: why its last write was given up}; the latest ones
        self._unwritten: dict[str, str] = {}
        self._wheel: TimerWheel[tuple[str, str]] = TimerWheel(clock_ms())
        self._tickets = (Ticket(number) for number in itertools.count())
        #: {ticket: what waits for its answer}
        self._waiting: dict[Ticket, asyncio.Future[Any]] = {}
        self.counters = GroupCounters()
        self._loaded = asyncio.Event()
        self._over = asyncio.Event()
        #: Set for a moment at the end of each tick.
        self._ticked = asyncio.Event()
        self._reason = ""
        self._tasks: set[asyncio.Task[None]] = set()
        self._follower: asyncio.Task[None] | None = None
        #: When the loop last saw a connection to the quorum; monotonic.
        self._heard_ms = clock_ms()

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> str:
        """Load every group, then serve; returns why the term is over.

        Raises:
            ClientError: the session is over, or the quorum refused.
        """
        try:
            await self._load()
            self._loaded.set()
            self._heard_ms = clock_ms()
            swept_ms = self._heard_ms
            while not self._over.is_set():
                await self._tick()
                self._ticked.set()
                self._ticked.clear()
                if self._heard_ms - swept_ms >= SWEEP_MS:
                    swept_ms = self._heard_ms
                    self._sweep()
            return self._reason
        finally:
            self.end(self._reason or "its work was broken off")
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def end(self, reason: str) -> None:
        """End the term; whoever waits is answered that this broker is not the coordinator."""
        if self._over.is_set():
            return
        self._reason = reason
        self._over.set()
        self._loaded.set()
        self._ticked.set()
        error = NotCoordinatorError(f"this broker is no longer the coordinator of groups: {reason}")
        for slot in self._slots.values():
            slot.fail(error)
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)
        self._waiting.clear()

    async def _load(self) -> None:
        started = time.monotonic()
        loaded = await self._store.load()
        for group_id, problem in loaded.problems.items():
            log.warning("group %r is left alone: %s", group_id, problem)
        self._problems = dict(loaded.problems)
        now_ms = clock_ms()
        for stored in loaded.groups.values():
            self._adopt(stored, now_ms)
        await self.read_topics()
        log.info(
            "coordinator epoch %d: loaded %d groups in %d ms",
            self.mandate.epoch,
            len(self._slots),
            (time.monotonic() - started) * 1000,
        )

    def _adopt(self, stored: StoredGroup, now_ms: int, *, put_off: bool = False) -> GroupSlot:
        machine: Machine
        record, limits = stored.record, self._options.limits
        if isinstance(record, ConsumerGroupRecord):
            machine = ConsumerGroup.load(stored.group_id, limits, record)
            if put_off:
                machine.put_off_assignment(now_ms)
        else:
            machine = ClassicGroup(stored.group_id, limits, record)
        slot = self._slots[stored.group_id] = GroupSlot(machine, stored)
        self._room.held_bytes += slot.offset_bytes
        self._room.count(slot)
        if record is not None:
            slot.written_bytes = machine.size
            machine.resume(now_ms)
            self._settle(slot)
        return slot

    async def _tick(self) -> None:
        """Wait for a tick, then act on what is due."""
        try:
            async with asyncio.timeout(TICK_MS / 1000):
                await self._over.wait()
        except TimeoutError:
            pass
        else:
            return
        now_ms = clock_ms()
        if self._client.state is ClientState.CONNECTED:
            if self._is_doubtful(now_ms):
                # The process was stopped for a while: somebody else may have been elected meanwhile.
                await self._client.sync(paths.COORDINATOR_EPOCH)
                stat = await self._client.exists(paths.COORDINATOR_EPOCH)
                if stat is None or stat.version != self.mandate.epoch_version:
                    self.end("another coordinator was elected")
                    return
                now_ms = clock_ms()
            self._heard_ms = now_ms
        elif self._is_doubtful(now_ms):
            self.end("the quorum was not heard for a session")
            return
        if self._topics.are_due(now_ms) and self._follower is None:
            self._follower = self._spawn(self._follow_topics())
        for group_id, key in self._wheel.expired(now_ms):
            slot = self._slots.get(group_id)
            deadline_ms = None if slot is None else slot.machine.deadline_ms(key)
            if slot is None or deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._wheel.schedule((group_id, key), deadline_ms)
                continue
            generation_id = slot.machine.generation_id
            slot.machine.expire(key, now_ms)
            self.counters.deadlines += 1
            log.info(
                "group %r, generation %d: deadline of %r passed", group_id, generation_id, key or "group"
            )
            self._settle(slot)

    def _is_doubtful(self, now_ms: int) -> bool:
        # A silent connection is given up after two thirds of a session; this is the last third.
        return now_ms - self._heard_ms >= self._client.session_timeout_ms // 3

    # -- requests --------------------------------------------------------------------------------------------

    async def ready(self) -> None:
        """Return when requests are served.

        Raises:
            NotCoordinatorError: the term is over.
        """
        await self._loaded.wait()
        while self._is_doubtful(clock_ms()) and not self._over.is_set():
            await self._ticked.wait()
        if self._over.is_set():
            raise NotCoordinatorError

    def group(self, group_id: str) -> GroupSlot | None:
        """Return a group, or None.

        Raises:
            GroupRefusedError: no group can have this name, or its record is left alone.
        """
        if not group_id or len(group_id.encode("utf-8", "surrogatepass")) > paths.GROUP_BYTES_MAX:
            remedy = f"give a name of 1 to {paths.GROUP_BYTES_MAX} bytes"
            raise GroupRefusedError(
                ErrorCode.INVALID_GROUP_ID, f"group {group_id[:64]!r} has no name", remedy
            )
        if group_id in self._problems:
            problem = f"the record of group {group_id!r} is malformed: {self._problems[group_id]}"
            raise GroupRefusedError(ErrorCode.UNKNOWN_SERVER_ERROR, problem, "correct or delete its znode")
        if group_id in self._busy:
            problem = f"group {group_id!r} is being read again or deleted"
            raise GroupRefusedError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, problem)
        return self._slots.get(group_id)

    def _group_or_new(self, group_id: str) -> GroupSlot:
        slot = self.group(group_id)
        if slot is not None:
            return slot
        if len(self._slots) >= self._options.groups_max:
            problem = f"there are {len(self._slots)} groups, as many as groups.groups_max allows"
            raise GroupRefusedError(ErrorCode.POLICY_VIOLATION, problem, "delete groups, or raise the limit")
        return self._adopt(StoredGroup(group_id), clock_ms())

    async def read_topics(self) -> None:
        """Look up topics: ask of every group whether it needs a rebalance, drop offsets of deleted topics.

        Raises:
            ClientError: the quorum cannot be asked.
        """
        machines = [slot.machine for slot in self.slots() if isinstance(slot.machine, ConsumerGroup)]
        # A topic that comes while we read, with the offsets that are committed for it, is not deleted.
        before = {slot.group_id: set(slot.stored.nodes) for slot in self.slots()}
        await self._topics.read(machines)
        for slot in self.slots():
            known = before.get(slot.group_id, set())
            gone = known - self._topics.existing
            removed = [key for key in slot.stored.offsets if key.topic in gone] if gone else []
            if removed:
                self._room.put(slot, dict.fromkeys(removed))
            if isinstance(slot.machine, ConsumerGroup):
                slot.machine.update_catalog(self._topics.catalog, clock_ms())
            self._settle(slot)

    async def _follow_topics(self) -> None:
        try:
            await self.read_topics()
        except ClientError as error:
            # The next change, or the end of the session, is noticed anyway.
            log.info("topics were not read: %s", error.message)
            self._topics.forget()
        finally:
            self._follower = None

    def slots(self) -> list[GroupSlot]:
        """Return every group."""
        return list(self._slots.values())

    async def delete(self, group_id: str) -> ErrorCode:
        """Remove a group without members, and its offsets.

        Raises:
            GroupRefusedError: no answer of the group's.
        """
        slot = self.group(group_id)
        if slot is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        if not slot.machine.is_empty:
            return ErrorCode.NON_EMPTY_GROUP
        if slot.writer is not None:
            await asyncio.wait([slot.writer])
            return await self.delete(group_id)
        # A member that comes meanwhile finds no group, and begins a new one when this is gone.
        self._drop(slot)
        self._busy.add(group_id)
        try:
            await self._store.delete(slot.stored)
        except (CoordinatorFencedError, *SESSION_OVER) as error:
            self.end(error.message)
            raise NotCoordinatorError from error
        except QuorateError as error:
            await self._reload(slot, error)
            raise NotCoordinatorError(error.message) from error
        finally:
            self._busy.discard(group_id)
        self._unwritten.pop(group_id, None)
        log.info("group %r deleted", group_id)
        return ErrorCode.NONE

    # -- inside ----------------------------------------------------------------------------------------------

    def _ticket(self) -> tuple[Ticket, asyncio.Future[Any]]:
        ticket = next(self._tickets)
        future = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        return ticket, future

    async def _after_records(self, slot: GroupSlot, value: T) -> T:
        """Return a value once every record that was decided before is durable."""
        if not slot.holds_back:
            return value
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        slot.answer(future, value)
        return await future

    def _settle(self, slot: GroupSlot) -> None:
        """Carry out what the last call to a machine has led to."""
        machine = slot.machine
        if isinstance(machine, ConsumerGroup) and machine.is_all_classic and self._options.may_downgrade:
            machine = slot.machine = bridge.downgraded(machine, clock_ms()) or machine
        if machine.unsaved or isinstance(machine, ClassicGroup):
            self._room.count(slot)
        if machine.unsaved:
            machine.unsaved = False
            before = slot.stored.record
            if before is None or (machine.member_count > 0) != bool(before.members):
                machine.state_timestamp_ms = _wall_ms()
            batch = slot.next_batch()
            batch.saves = True
            # Who has come for the next generation of a classic group is no part of this one.
            batch.record = machine.record() if isinstance(machine, ClassicGroup) else None
            if machine.generation_id != slot.generation_id:
                slot.generation_id = machine.generation_id
                self.counters.rebalances += 1
        for key, deadline_ms in machine.take_timers():
            self._wheel.schedule((slot.group_id, key), deadline_ms)
        for ticket, answer in machine.take_answers() if isinstance(machine, ClassicGroup) else ():
            future = self._waiting.pop(ticket, None)
            if future is not None:
                slot.answer(future, answer)
        if slot.pending is not None and slot.writer is None:
            slot.writer = self._spawn(self._write(slot))
        elif slot.is_idle:
            self._drop(slot)

    def _drop(self, slot: GroupSlot) -> None:
        if self._slots.pop(slot.group_id, None) is not None:
            self._room.leave(slot)

    async def _write(self, slot: GroupSlot) -> None:
        """Write what is pending of a group, one multi at a time, until nothing is."""
        try:
            while slot.pending is not None and not self._over.is_set():
                batch, slot.pending = slot.pending, None
                slot.flying = batch
                if not batch.is_empty:
                    record = self._record(slot, batch) if batch.saves else None
                    await self._store.write(slot.stored, record, batch.offsets)
                    self._unwritten.pop(slot.group_id, None)
                slot.flying = None
                for future, value in batch.answers:
                    if not future.done():
                        future.set_result(value)
        except (CoordinatorFencedError, *SESSION_OVER) as error:
            self.end(error.message)
        except QuorateError as error:
            # Others are unharmed: this group goes on from what the quorum has.
            self.counters.writes_failed += 1
            self._unwritten[slot.group_id] = error.message
            if len(self._unwritten) > UNWRITTEN_MAX:
                del self._unwritten[next(iter(self._unwritten))]
            await self._reload(slot, error)
        finally:
            slot.writer = None

    def _record(self, slot: GroupSlot, batch: Batch) -> GroupRecord:
        """Return what is written of a group.

        Raises:
            GroupTooLargeError: its targets make it larger than it may be, and than it was.
        """
        machine = slot.machine
        size, bytes_max = machine.size, self._options.limits.group_bytes_max
        # The leader of a classic group was refused when it assigned.
        if batch.record is None and size > max(bytes_max, slot.written_bytes):
            raise GroupTooLargeError(slot.group_id, size, bytes_max)
        slot.written_bytes = size
        log.info(
            "group %r: %s, generation %d, %d members, protocol %s (%s)",
            *(slot.group_id, machine.state.value, machine.generation_id),
            *(machine.member_count, machine.protocol, machine.reason),
        )
        return batch.record or machine.record()

    async def _reload(self, slot: GroupSlot, error: QuorateError) -> None:
        """Leave a group as the quorum has it: it could not be written, or somebody else has written it."""
        log.warning("group %r is left as it was: %s", slot.group_id, error)
        refusal = NotCoordinatorError(error.message)
        refusal.__cause__ = error
        slot.fail(refusal)
        self._drop(slot)
        self._busy.add(slot.group_id)
        try:
            stored = await self._store.load_group(slot.group_id)
        except QuorateError as failure:
            self.end(failure.message)
            return
        finally:
            self._busy.discard(slot.group_id)
        if stored is not None and not self._over.is_set():
            self._adopt(stored, clock_ms(), put_off=True)

    def _sweep(self) -> None:
        """Remove the offsets of groups that have been empty for long, and groups that have nothing left."""
        if not CLOCK.is_believed():
            return
        too_old_ms = _wall_ms() - self._options.offsets_retention_ms
        for slot in self.slots():
            if slot.machine.state is not GroupState.EMPTY or slot.machine.state_timestamp_ms > too_old_ms:
                continue
            old = [key for key, each in slot.stored.offsets.items() if each.commit_timestamp_ms <= too_old_ms]
            if len(old) == len(slot.stored.offsets):
                self._spawn(self._forget(slot.group_id))
            elif old:
                self._room.put(slot, dict.fromkeys(old))
                self._settle(slot)

    def status(self) -> GroupStatus:
        """Say what this term holds."""
        slots = self._slots.values()
        states = Counter(slot.machine.state.value for slot in slots)
        members = sum(slot.machine.member_count for slot in slots)
        left_alone = tuple(sorted(self._problems))
        room = self._room
        return GroupStatus(
            *(dict(states), members, left_alone, dict(self._unwritten), self.counters),
            *(room.held_bytes, room.refused),
        )

    def problem(self, group_id: str) -> str | None:
        """Return why the last write of a group was given up; None if it was not."""
        return self._unwritten.get(group_id)

    async def _forget(self, group_id: str) -> None:
        try:
            await self.delete(group_id)
        except NotCoordinatorError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("the coordinator's work failed", exc_info=error)
            self.end(f"a bug: {error!r}")


def clock_ms() -> int:
    """Return the monotonic clock, in milliseconds."""
    return time.monotonic_ns() // 1_000_000


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
