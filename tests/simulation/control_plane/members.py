"""Members of groups: some of a classic group, which assign among themselves, some of one of KIP-848.

Each lives for a while, falls silent or leaves, and another one comes. A request goes to whom some broker
believes to be the coordinator; one that is not answered in time may still arrive.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, TypeVar

from broker.core.groups import inputs
from broker.core.groups.model import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    GroupLimits,
    GroupOptions,
    HeartbeatAnswer,
    HeartbeatRequest,
    Joined,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
)
from broker.groups.errors import GroupRefusedError
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import Assignment, OffsetRecord
from quorum.metadata.numbers import GenerationId
from quorum.metadata.paths import PartitionKey
from tests.simulation.control_plane.group_invariants import Mark, bytes_of
from tests.simulation.control_plane.invariants import InvariantBrokenError
from tests.simulation.control_plane.network import OUTSIDE
from tests.simulation.control_plane.process import Process

if TYPE_CHECKING:
    from tests.simulation.control_plane.broker import SimBroker
    from tests.simulation.control_plane.world import World

T = TypeVar("T")
CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
SESSION_MS: Final = 1000
REBALANCE_MS: Final = 1200
ANSWER_MS: Final = 700
JOIN_MS: Final = 2500
LIFE_MS: Final = (2000.0, 9000.0)
BEAT_MS: Final = (150.0, 350.0)
OPTIONS: Final = GroupOptions(
    GroupLimits(
        session_timeout_min_ms=500,
        initial_rebalance_delay_ms=100,
        consumer_session_timeout_ms=SESSION_MS,
        assignment_interval_ms=150,
    ),
    rebalance_retries_max=3,
)


class Member:
    """One life of one."""

    def __init__(self, members: Members, name: str) -> None:
        self._members = members
        self._world = members.world
        self._rng = members.rng
        self.member_id = name
        self.generation_id = GenerationId(-1)
        self.owned: Collection[PartitionKey] = ()
        #: {topic: its id}, as far as it knows them
        self.topic_ids: dict[str, str] = {}
        self.is_over = False
        #: When a commit was acknowledged last.
        self.acknowledged_ms = -1
        self._coordinator: int | None = None
        self._numbers = 0

    async def live(self) -> None:
        """Join, heartbeat and commit, until its end."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Say that it goes; nobody waits for the answer."""
        raise NotImplementedError

    @property
    def group(self) -> str:
        """Its group."""
        raise NotImplementedError

    async def _ask(
        self, request: inputs.GroupRequest, kind: type[T], timeout_ms: int = ANSWER_MS
    ) -> T | ErrorCode | None:
        """Ask the coordinator; a code is an error in place of an answer, None: no answer came."""
        world, outside = self._world, self._members.process
        if self._coordinator is None:
            self._coordinator = self._members.find_coordinator()
        target = self._coordinator
        if target is None:
            await outside.rest(100)
            return None
        answered: asyncio.Future[T | ErrorCode] = outside.loop.create_future()

        def take(outcome: T | ErrorCode) -> None:
            if not answered.done():
                answered.set_result(outcome)

        def reply(outcome: T | ErrorCode) -> None:
            world.network.send(target, OUTSIDE, lambda: outside.post(0, take, outcome))

        def arrive() -> None:
            broker = world.brokers.get(target)
            if broker is not None:
                broker.process.spawn(self._members.serve(broker, request, kind, reply))

        world.network.send_in_order(self, OUTSIDE, target, arrive)
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                outcome = await answered
        except TimeoutError:
            self._coordinator = None
            return None
        if outcome is ErrorCode.NOT_COORDINATOR:
            self._coordinator = None
            await outside.rest(50)
        return outcome

    async def _commit(self, generation_id: GenerationId, keys: Collection[PartitionKey]) -> None:
        """Commit offsets of some partitions."""
        if not keys:
            return
        self._numbers += 1
        self._coordinator = self._coordinator or self._members.find_coordinator()
        chosen = self._rng.sample(sorted(keys), self._rng.randint(1, len(keys)))
        offsets = {}
        for key in chosen:
            topic_id = self.topic_ids.get(key.topic, "")
            mark = Mark(generation_id, self.member_id, self._numbers, self._coordinator, topic_id)
            offsets[key] = OffsetRecord(self._numbers, -1, mark.encode(), self._world.now_ms)
        request = inputs.CommitOffsets(self.group, self.member_id, None, generation_id, offsets)
        outcome = await self._ask(request, ErrorCode)
        self._members.counts["commits" if outcome is ErrorCode.NONE else "commits refused"] += 1
        if outcome is ErrorCode.NONE:
            self.acknowledged_ms = self._world.now_ms

    async def _pause(self) -> None:
        await self._members.process.rest(self._rng.uniform(*BEAT_MS))


class ClassicMember(Member):
    """A member that is assigned to by the leader of its group."""

    @property
    def group(self) -> str:
        return CLASSIC

    async def live(self) -> None:
        name, self.member_id = self.member_id, ""
        while not self.is_over:
            new_id = self._members.new_id(name)
            metadata = ((f"{CLASSIC} rule", name.encode()),)
            asked = JoinRequest(
                self.member_id, None, name, "host", SESSION_MS, REBALANCE_MS, "simulated", metadata
            )
            joined = await self._ask(inputs.JoinGroup(CLASSIC, asked, new_id), Joined, JOIN_MS)
            if not isinstance(joined, Joined):
                await self._pause()
            elif joined.error_code is ErrorCode.NONE:
                self.member_id = joined.member_id
                await self._take_part(joined)
            elif joined.error_code is ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            else:
                self.member_id = ""
                await self._pause()

    async def _take_part(self, joined: Joined) -> None:
        """Live through one generation."""
        assignments: dict[str, bytes] = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            keys, ids = self._members.partitions(), [each.member_id for each in joined.members]
            assignments = {each: bytes_of(keys[index :: len(ids)]) for index, each in enumerate(ids)}
        asked = SyncRequest(
            self.member_id, None, joined.generation_id, "simulated", joined.protocol, assignments
        )
        synced = await self._ask(inputs.SyncGroup(CLASSIC, asked), SyncAnswer, JOIN_MS)
        if not isinstance(synced, SyncAnswer) or synced.error_code is not ErrorCode.NONE:
            return
        before, former = self.generation_id, self.owned
        self.generation_id = joined.generation_id
        self.owned = [PartitionKey(*each) for each in json.loads(synced.assignment or b"[]")]
        if before >= 0 and self._rng.random() < 0.3:
            # As of a thread that has missed the rebalance.
            await self._commit(before, former)
        while not self.is_over:
            await self._pause()
            beat = inputs.ClassicHeartbeat(CLASSIC, self.member_id, None, self.generation_id)
            code = await self._ask(beat, ErrorCode)
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                return
            if code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
                return
            await self._commit(self.generation_id, self.owned)

    async def leave(self) -> None:
        await self._ask(inputs.LeaveGroup(CLASSIC, [(self.member_id, None)]), list)


class ConsumerMember(Member):
    """A member that is assigned to by the coordinator."""

    @property
    def group(self) -> str:
        return CONSUMER

    async def live(self) -> None:
        self.generation_id = GenerationId(JOIN_EPOCH)
        says_all = True
        owned: Assignment = {}
        #: the epoch before, and what it owned then
        former: tuple[GenerationId, Collection[PartitionKey]] | None = None
        while not self.is_over:
            request = HeartbeatRequest(
                self.member_id,
                self.generation_id,
                rebalance_timeout_ms=REBALANCE_MS if says_all else -1,
                topics=tuple(self._world.plans) if says_all else None,
                owned=owned,
            )
            answer = await self._ask(inputs.ConsumerHeartbeat(CONSUMER, request), HeartbeatAnswer)
            if not isinstance(answer, HeartbeatAnswer):
                says_all = True
                await self._pause()
                continue
            if answer.error_code is not ErrorCode.NONE:
                self.generation_id, owned, says_all = GenerationId(JOIN_EPOCH), {}, True
                self.owned = ()
                await self._pause()
                continue
            if 0 < self.generation_id < answer.member_epoch:
                former = self.generation_id, self.owned
            self.generation_id, says_all = GenerationId(answer.member_epoch), False
            if answer.assignment is not None:
                owned = answer.assignment
                self.owned = self._members.names_of(owned)
                self.topic_ids = {each.topic: self._members.id_of(each.topic) for each in self.owned}
            if answer.assignment is None:
                if former is not None and self._rng.random() < 0.2:
                    # As of a thread that has missed the rebalance.
                    await self._commit(*former)
                await self._commit(self.generation_id, self.owned)
                await self._pause()

    async def leave(self) -> None:
        request = HeartbeatRequest(self.member_id, LEAVE_EPOCH)
        await self._ask(inputs.ConsumerHeartbeat(CONSUMER, request), HeartbeatAnswer)


class Members:
    """All of them, outside of the brokers."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.rng: random.Random = world.scheduler.rng("members")
        self.counts: Counter[str] = world.workload.counts
        self.living: list[Member] = []
        #: whether members come and go
        self.is_changing = True
        self._ids = 0

    def start(self) -> None:
        """Begin."""
        for kind in (ClassicMember, ConsumerMember):
            for _ in range(self.rng.randint(1, 3)):
                self.world.scheduler.at(self.rng.uniform(600, 2500), self._begin, kind)

    def _begin(self, kind: Callable[[Members, str], Member]) -> None:
        member = kind(self, self.new_id("member"))
        self.living.append(member)
        self.process.post(0, self.process.spawn, member.live())
        self.world.scheduler.at(self.rng.uniform(*LIFE_MS), self._end, kind, member)

    def _end(self, kind: Callable[[Members, str], Member], member: Member) -> None:
        if not self.is_changing:
            return
        member.is_over = True
        self.living.remove(member)
        if self.rng.random() < 0.5:
            self.process.post(0, self.process.spawn, member.leave())
        self.counts["members ended"] += 1
        self.world.scheduler.at(self.rng.uniform(50, 2000), self._begin, kind)

    def new_id(self, name: str) -> str:
        """Return an id that no member has had."""
        self._ids += 1
        return f"{name}-{self._ids}"

    def find_coordinator(self) -> int | None:
        """Return whom a broker that is asked believes to be the coordinator."""
        brokers = sorted(self.world.brokers)
        if not brokers:
            return None
        candidate = self.world.brokers[self.rng.choice(brokers)].coordinator
        return None if candidate is None else candidate.holder_id

    def partitions(self) -> list[PartitionKey]:
        """Return all partitions, as the leader of a group finds them."""
        topics = sorted(self.world.invariants.topics.items())
        return [PartitionKey(name, each) for name, record in topics for each in sorted(record.partitions)]

    def id_of(self, topic: str) -> str:
        """Return the id of a topic that exists."""
        return str(self.world.invariants.topics[topic].topic_id)

    def names_of(self, owned: Assignment) -> list[PartitionKey]:
        """Return the partitions of topics that exist."""
        names = {record.topic_id: name for name, record in self.world.invariants.topics.items()}
        return [PartitionKey(names[each], index) for each in owned if each in names for index in owned[each]]

    async def serve(
        self,
        broker: SimBroker,
        request: inputs.GroupRequest,
        kind: type[T],
        reply: Callable[[T | ErrorCode], object],
    ) -> None:
        """Answer a request at a broker, as its connection does."""
        candidate = broker.coordinator
        term = None if candidate is None else candidate.term
        outcome: T | ErrorCode = ErrorCode.NOT_COORDINATOR
        if term is not None:
            try:
                await term.ready()
                outcome = await term.ask(request, kind)
            except GroupRefusedError as error:
                outcome = error.error_code
        self.world.groups.answered(request, outcome)
        reply(outcome)

    def check_healed(self) -> None:
        """Every member that lives takes part, all partitions are owned once, and commits are acknowledged."""
        for group in (CLASSIC, CONSUMER):
            members = [each for each in self.living if each.group == group]
            owned = [key for each in members for key in each.owned]
            story = f"I23: group {group}: {[(m.member_id, m.generation_id, m.owned) for m in members]}"
            if len({each.generation_id for each in members}) > 1 or len(set(owned)) != len(owned):
                raise InvariantBrokenError(story)
            is_settled = self.world.groups.topics_changed_ms < self.world.now_ms - 4000
            if group == CONSUMER and members and is_settled and sorted(owned) != self.partitions():
                raise InvariantBrokenError(f"{story} own not all of {self.partitions()}")
            for member in members:
                if member.owned and member.acknowledged_ms < self.world.now_ms - 3000:
                    late = f"{member.member_id} committed at {member.acknowledged_ms} ms last"
                    raise InvariantBrokenError(f"{story}: {late}")
