"""Fetch: followers read to the end of the log, consumers to the high watermark; both may wait for more.

A follower's fetch is also its report: its position is its log end offset, which moves the high watermark and
may bring it into the ISR. Only a position of the leader's own epoch counts, and only if the follower's log
does not part from the leader's. Consumers may read from followers.
Source: docs/concepts/guarantees.md, "Leaders and in-sync replicas", "Consumers"; KIP-74, KIP-101, KIP-320,
KIP-392, KIP-903.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from typing import Final, NamedTuple

from broker.core import reading
from broker.core.fetch_sessions import FetchSession, FetchSessions
from broker.core.fetched import FetchOutcome, FetchPosition
from broker.core.read_replica import NO_PREFERENCE
from broker.core.replica_effects import Diverge, RefuseWith
from broker.core.replica_inputs import FollowerFetch
from broker.log.errors import LogStorageError, OffsetOutOfRangeError
from broker.log.files import NotCachedError
from broker.log.results import Read
from broker.replication.clock import monotonic_ms
from broker.replication.isr_writer import IsrWriter
from broker.replication.outcomes import Counters
from broker.replication.registry import Registry
from broker.replication.replica import Replica
from broker.replication.waiting import WAITING_MAX, WaitingFetch
from controller.wire.codes import ErrorCode
from quorum.errors import QuorateError
from quorum.metadata.numbers import BrokerGeneration
from quorum.metadata.paths import PartitionKey


class Reader(NamedTuple):
    """Who fetches."""

    #: Broker id of a follower, or -1: a consumer.
    replica_id: int = -1
    #: Of the follower.
    generation: BrokerGeneration = BrokerGeneration(-1)
    #: Of the consumer; "" for none.
    rack: str = ""
    #: Of a consumer: aborted records are none to it, and those of open transactions not yet.
    read_committed: bool = False

    @property
    def is_follower(self) -> bool:
        """Whether a broker fetches."""
        return self.replica_id >= 0


#: Records that all fetches hold while they wait for the disk; above it one that has some reads no more.
HELD_BYTES_MAX: Final = 64 * 1024 * 1024


class RoomLeft(NamedTuple):
    """What an answer has room for."""

    bytes_left: int
    #: Nothing has been read yet: the first batch is given whatever its size.
    is_first: bool


class _ColdError(Exception):
    """What a fetch reads is not in memory."""

    def __init__(self, replica: Replica, read: Callable[[], Awaitable[Read]]) -> None:
        super().__init__(replica.key)
        self.replica = replica
        #: reads it all the same, in a thread
        self.read = read


class Fetching:
    """Reads for followers and consumers."""

    def __init__(
        self,
        registry: Registry,
        isr_writer: IsrWriter,
        counters: Counters,
        on_failure: Callable[[QuorateError], ErrorCode],
        *,
        session_slots: int = 0,
    ) -> None:
        """Read from the replicas of a registry.

        Args:
            on_failure: returns the answer where the disk fails.
            session_slots: how many fetch sessions there may be.
        """
        self._registry = registry
        self._counters = counters
        self._isr_writer = isr_writer
        self._on_failure = on_failure
        #: Requests that wait now.
        self.waiting = 0
        #: Records of fetches that wait for the disk.
        self._held_bytes = 0
        ids = iter(lambda: 1 + secrets.randbelow(2**31 - 1), 0)
        self.sessions: FetchSessions = FetchSessions(
            session_slots, ids, on_due=self._kept_up, on_end=self._leave
        )

    async def fetch(
        self,
        positions: Mapping[PartitionKey, FetchPosition],
        reader: Reader,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        session: FetchSession | None = None,
    ) -> dict[PartitionKey, FetchOutcome]:
        """Read partitions in the given order; wait up to max_wait_ms while there are less than min_bytes.

        Args:
            positions: where to read; of a session, what is due.
            reader: who reads.
            session: whose partitions to wait for; those that change meanwhile are read, too.
            max_wait_ms: 0: answer at once.
            min_bytes: of records in all.
            max_bytes: of records in all; the first batch found is given whatever its size.
        """
        waiting = WaitingFetch(is_follower=reader.is_follower)
        if session is not None:
            session.end()
            session.waiting = waiting
        try:
            outcomes = await self._fetch(
                positions,
                reader,
                waiting,
                max_wait_ms=max_wait_ms,
                min_bytes=min_bytes,
                max_bytes=max_bytes,
                session=session,
            )
        finally:
            if session is not None and session.waiting is waiting:
                session.waiting = None
        size = 0
        for key, outcome in outcomes.items():
            if outcome.records:
                size += len(outcome.records)
                if self._is_throttled(key, reader):
                    self._registry.leader_throttle.spend(len(outcome.records), monotonic_ms())
        if reader.is_follower:
            self._counters.bytes_replicated += size
        else:
            self._counters.bytes_consumed += size
        return outcomes

    async def _fetch(
        self,
        positions: Mapping[PartitionKey, FetchPosition],
        reader: Reader,
        waiting: WaitingFetch,
        *,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        session: FetchSession | None,
    ) -> dict[PartitionKey, FetchOutcome]:
        deadline_s = asyncio.get_running_loop().time() + max_wait_ms / 1000
        outcomes: dict[PartitionKey, FetchOutcome] = {}
        size, has_waited = 0, False
        for key, asked in positions.items():
            room = RoomLeft(max_bytes - size, is_first=size == 0)
            try:
                outcome = self._look(key, asked, reader, room)
            except _ColdError as cold:
                outcome, has_waited = await self._read_disk(cold, size), True
            outcomes[key] = outcome
            size += len(outcome.records)
            if session is not None:
                self._note(session, key, asked, outcome, reader)
        # While the disk was read, what was looked at before may have changed without a word.
        if max_wait_ms <= 0 or has_waited or self._is_enough(outcomes, size, min_bytes):
            return outcomes
        if self.waiting >= WAITING_MAX:
            return outcomes
        if session is None:
            waiting.join(self._registry.replicas[key].waiters for key in positions)
        self.waiting += 1
        try:
            while changed := await waiting.changes(deadline_s):
                for key in changed:
                    # A session gets answers also of partitions that were not due.
                    known = positions if session is None else session.partitions
                    if (position := known.get(key)) is None:
                        continue
                    size -= len(outcomes[key].records) if key in outcomes else 0
                    room = RoomLeft(max_bytes - size, is_first=size == 0)
                    try:
                        outcomes[key] = self._read(key, position, reader, room)
                    except _ColdError as cold:
                        outcomes[key] = await self._read_disk(cold, size)
                    size += len(outcomes[key].records)
                    if session is not None:
                        self._note(session, key, position, outcomes[key], reader)
                looked = {key: outcomes[key] for key in changed if key in outcomes}
                if waiting.has_news or self._is_enough(looked, size, min_bytes):
                    break
        finally:
            self.waiting -= 1
            waiting.close()
        return outcomes

    def _note(
        self,
        session: FetchSession,
        key: PartitionKey,
        position: FetchPosition,
        outcome: FetchOutcome,
        reader: Reader,
    ) -> None:
        """Stand among those that wait for a partition, and note whether it has to be read again."""
        replica = self._registry.replicas.get(key)
        is_settled = False
        if replica is not None and session.partitions.get(key) is position:
            replica.waiters.fetches[session] = None
            # A follower that is not in sync may join with any fetch.
            is_settled = position.offset >= reading.read_limit(
                replica.role, session.is_follower, replica.log, read_committed=reader.read_committed
            ) and (not session.is_follower or replica.machine.is_in_sync(session.owner[0]))
        session.looked(key, outcome, is_settled=is_settled)

    def _kept_up(self, session: FetchSession, key: PartitionKey) -> None:
        """Count what a follower's fetches have said without a word about a partition that changes now."""
        replica = self._registry.replicas.get(key)
        if session.is_follower and replica is not None:
            replica_id, generation = session.owner
            replica.machine.kept_up(replica_id, BrokerGeneration(generation), session.used_ms)

    def _leave(self, session: FetchSession, keys: Collection[PartitionKey]) -> None:
        """Let a session wait for partitions no longer."""
        for key in keys:
            if (replica := self._registry.replicas.get(key)) is not None:
                replica.waiters.fetches.pop(session, None)

    @staticmethod
    def _is_enough(outcomes: Mapping[PartitionKey, FetchOutcome], size: int, min_bytes: int) -> bool:
        return size >= min_bytes or any(
            outcome.error_code is not ErrorCode.NONE
            or outcome.diverging_epoch is not None
            or outcome.preferred_read_replica != NO_PREFERENCE
            for outcome in outcomes.values()
        )

    def _look(
        self, key: PartitionKey, position: FetchPosition, reader: Reader, room: RoomLeft
    ) -> FetchOutcome:
        """Read for the first time: a follower's position counts, a consumer may be sent elsewhere."""
        replica = self._registry.replicas.get(key)
        if replica is not None and replica.leader is not None:
            if reader.is_follower:
                self._note_progress(replica, position, reader)
            elif reader.rack:
                nearer = self._nearer(replica, position, reader)
                if nearer is not None:
                    return nearer
        return self._read(key, position, reader, room)

    def _note_progress(self, replica: Replica, position: FetchPosition, reader: Reader) -> None:
        machine = replica.machine
        if not machine.is_in_sync(reader.replica_id):
            # It may join the ISR.
            fetch = FollowerFetch(reader.replica_id, reader.generation, position)
            self._isr_writer.carry_out(replica, replica.step(fetch))
            return
        if machine.note_fetch(reader.replica_id, reader.generation, position, replica.log, monotonic_ms()):
            replica.high_watermark_rose()
        replica.waiters.wake_deletions()

    def _nearer(self, replica: Replica, position: FetchPosition, reader: Reader) -> FetchOutcome | None:
        racks = {broker.id: broker.rack or "" for broker in self._registry.view.brokers.values()}
        preferred = reading.nearer_replica(replica.role, racks, reader.rack, position, replica.log)
        if preferred == NO_PREFERENCE:
            return None
        return FetchOutcome(
            ErrorCode.NONE,
            replica.high_watermark,
            replica.log.log_start_offset,
            preferred_read_replica=preferred,
        )

    def _read(
        self, key: PartitionKey, position: FetchPosition, reader: Reader, room: RoomLeft
    ) -> FetchOutcome:
        replica = self._registry.replicas.get(key)
        if replica is None:
            return self._refusal(key, self._registry.why_missing(key))
        log = replica.log
        found = reading.end_for(
            replica.role, reader.replica_id, position, log, read_committed=reader.read_committed
        )
        if isinstance(found, RefuseWith):
            return self._refused(replica, found.error_code)
        if isinstance(found, Diverge):
            return FetchOutcome(
                ErrorCode.NONE, replica.high_watermark, log.log_start_offset, diverging_epoch=found
            )
        if self._is_throttled(key, reader):
            allowance = self._registry.leader_throttle.allowance(monotonic_ms())
            room = room._replace(bytes_left=min(room.bytes_left, allowance))
        return self._read_log(replica, position, found, room, reader)

    def _is_throttled(self, key: PartitionKey, reader: Reader) -> bool:
        """Whether a follower has to wait for its bytes; one in the ISR never does: producers wait for it."""
        if not reader.is_follower or not self._registry.leader_throttle.limits(key):
            return False
        replica = self._registry.replicas.get(key)
        return replica is not None and reading.may_throttle(replica.role, reader.replica_id)

    def _read_log(
        self, replica: Replica, position: FetchPosition, below: int, room: RoomLeft, reader: Reader
    ) -> FetchOutcome:
        log, with_aborted = replica.log, reader.read_committed
        if position.offset >= below or room.bytes_left <= 0:
            return _found(replica, Read(b"", position.offset, () if with_aborted else None))
        max_bytes = min(position.max_bytes, room.bytes_left)
        try:
            read = log.segments.read(
                position.offset,
                max_bytes,
                below=below,
                at_least_one=room.is_first,
                wait=False,
                with_aborted=with_aborted,
            )
        except NotCachedError:
            raise _ColdError(
                replica,
                partial(
                    log.segments.read_patiently,
                    position.offset,
                    max_bytes,
                    below=below,
                    at_least_one=room.is_first,
                    with_aborted=with_aborted,
                ),
            ) from None
        except (OffsetOutOfRangeError, LogStorageError) as error:
            return self._unread(replica, error)
        return _found(replica, read)

    async def _read_disk(self, cold: _ColdError, size: int) -> FetchOutcome:
        """Read what is not in memory; it was there when it was asked for, also if the leader changes.

        Args:
            cold: what is to be read.
            size: bytes of records that the fetch holds already.
        """
        replica = cold.replica
        if size and self._held_bytes + size > HELD_BYTES_MAX:
            return _found(replica, Read(b"", -1))
        found: Read | OffsetOutOfRangeError | LogStorageError
        self._held_bytes += size
        try:
            found = await cold.read()
        except (OffsetOutOfRangeError, LogStorageError) as error:
            found = error
        finally:
            self._held_bytes -= size
        if self._registry.replicas.get(replica.key) is not replica:
            # The log was deleted while a thread read it, and another one may have its files' names.
            return self._refusal(replica.key, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if not isinstance(found, Read):
            return self._unread(replica, found)
        return _found(replica, found)

    def _unread(self, replica: Replica, error: OffsetOutOfRangeError | LogStorageError) -> FetchOutcome:
        if isinstance(error, LogStorageError):
            return FetchOutcome(self._on_failure(error))
        return self._refused(replica, reading.code_out_of_range(replica.role))

    def _refused(self, replica: Replica, error_code: ErrorCode) -> FetchOutcome:
        if error_code is ErrorCode.OFFSET_OUT_OF_RANGE:
            return FetchOutcome(error_code, replica.high_watermark, replica.log.log_start_offset)
        if error_code is ErrorCode.INCONSISTENT_TOPIC_ID:
            return FetchOutcome(error_code)
        return self._refusal(replica.key, error_code)

    def _refusal(self, key: PartitionKey, error_code: ErrorCode) -> FetchOutcome:
        return FetchOutcome(error_code, current_leader=self._registry.current_leader(key))


def _found(replica: Replica, read: Read) -> FetchOutcome:
    """Return what was read of a replica."""
    return FetchOutcome(
        ErrorCode.NONE,
        replica.high_watermark,
        replica.log.log_start_offset,
        read.records,
        last_stable_offset=replica.last_stable_offset,
        aborted=None if read.aborted is None else [each[:2] for each in read.aborted],
    )
