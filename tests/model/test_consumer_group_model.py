"""Groups whose coordinator assigns, under members that come, go, fall silent and miss answers (I24).

Each client owns what it was told and gives up before it says so, as Kafka's clients do. Answers get lost,
topics grow, coordinators die: the next one has only the last record. No partition is ever owned by two
clients that are alive, and when all is quiet every partition is owned.
"""

from __future__ import annotations

import itertools
import uuid

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.core.groups.consumer import ConsumerGroup
from broker.core.groups.model import Catalog, GroupLimits, HeartbeatAnswer, HeartbeatRequest
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import Assignment, ConsumerGroupRecord, decode_group

REBALANCE_MS = 20_000
CLIENTS = 4
TOPICS = ("a", "b")
IDS = {name: uuid.UUID(int=number + 1) for number, name in enumerate(TOPICS)}
LIMITS = GroupLimits(assignment_interval_ms=1_000)
Owned = set[tuple[uuid.UUID, int]]


def owned_by(assignment: Assignment) -> Owned:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


def assignment_of(owned: Owned) -> Assignment:
    return {topic_id: tuple(sorted(p for each, p in owned if each == topic_id)) for topic_id, _ in owned}


class Client:
    """One consumer: what it owns, and what it shall own."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.member_epoch = 0
        self.owned: Owned = set()
        self.wanted: Owned = set()
        self.topics: tuple[str, ...] = TOPICS
        #: When it gives its partitions up by itself, as a client does that cannot reach its coordinator.
        self.alive_until_ms = 0


class ConsumerGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.counts = dict.fromkeys(TOPICS, 3)
        self.group = ConsumerGroup("g", LIMITS)
        self.group.update_catalog(self.catalog(), self.now_ms)
        self.record: ConsumerGroupRecord | None = None
        self.names = itertools.count()
        self.clients = [Client(f"m{next(self.names)}", None if each else "i") for each in range(CLIENTS)]

    def catalog(self) -> Catalog:
        return Catalog({name: (IDS[name], count) for name, count in self.counts.items()})

    def settle(self) -> None:
        if self.group.unsaved:
            self.group.unsaved = False
            found = decode_group("g", self.group.record().encode())
            assert isinstance(found, ConsumerGroupRecord)
            assert self.record is None or found.group_epoch >= self.record.group_epoch
            self.record = found
        self.group.take_timers()

    def beat(self, client: Client, *, lost: bool) -> None:
        joins = client.member_epoch == 0
        request = HeartbeatRequest(
            client.member_id,
            client.member_epoch,
            client.instance_id,
            rebalance_timeout_ms=REBALANCE_MS,
            topics=client.topics,
            owned={} if joins else assignment_of(client.owned),
        )
        answer = self.group.heartbeat(request, self.now_ms)
        self.settle()
        if not lost:
            self.take(client, answer)

    def take(self, client: Client, answer: HeartbeatAnswer) -> None:
        if answer.error_code is not ErrorCode.NONE:
            client.owned, client.wanted, client.member_epoch = set(), set(), 0
            return
        assert answer.member_epoch >= client.member_epoch
        client.member_epoch = answer.member_epoch
        client.alive_until_ms = self.now_ms + LIMITS.consumer_session_timeout_ms
        if answer.assignment is not None:
            client.wanted = owned_by(answer.assignment)
            # It gives up at once, and takes what it got only then.
            client.owned &= client.wanted
            client.owned = set(client.wanted)

    # -- what happens ------------------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), lost=st.booleans())
    def heartbeat(self, number: int, lost: bool) -> None:
        self.beat(self.clients[number], lost=lost and self.clients[number].member_epoch > 0)

    @rule(number=st.integers(0, CLIENTS - 1), topics=st.sampled_from([("a",), ("b",), TOPICS]))
    def subscribe(self, number: int, topics: tuple[str, ...]) -> None:
        self.clients[number].topics = topics

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_epoch > 0:
            client.owned, client.wanted = set(), set()
            self.group.heartbeat(HeartbeatRequest(client.member_id, -1, client.instance_id), self.now_ms)
            self.settle()
            self.clients[number] = Client(f"m{next(self.names)}", client.instance_id)

    @rule()
    def return_static(self) -> None:
        client = self.clients[0]
        if client.member_epoch > 0:
            client.owned, client.wanted = set(), set()
            self.group.heartbeat(HeartbeatRequest(client.member_id, -2, client.instance_id), self.now_ms)
            self.settle()
            self.clients[0] = Client(f"m{next(self.names)}", client.instance_id)
            self.clients[0].topics = client.topics

    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.counts[topic] = min(6, self.counts[topic] + 1)
        self.group.update_catalog(self.catalog(), self.now_ms)
        self.settle()

    @rule(passed_ms=st.sampled_from([100, 1_000, REBALANCE_MS, 45_000]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        for client in self.clients:
            if client.alive_until_ms <= self.now_ms:
                client.owned = set()
        for key in ["", *(each.member_id for each in self.group.members)]:
            deadline_ms = self.group.deadline_ms(key)
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                if key:
                    # A client that is evicted learns of it before its session ends, or gives up by itself.
                    for client in self.clients:
                        if client.member_id == key:
                            client.owned = set()
                self.group.expire(key, self.now_ms)
                self.settle()

    @rule()
    def fail_over(self) -> None:
        if self.record is not None:
            before, record = self.group.group_epoch, self.record
            settled = self.group.deadline_ms("") is None
            self.group = ConsumerGroup.load("g", LIMITS, self.record)
            self.group.resume(self.now_ms)
            self.group.update_catalog(self.catalog(), self.now_ms)
            self.settle()
            assert self.group.group_epoch >= before
            if settled:
                assert self.record is record, "a stable group goes on as it was"

    @rule()
    def all_is_quiet(self) -> None:
        """Let everybody beat until nothing changes: every subscribed partition has its owner."""
        for _ in range(8):
            self.now_ms += 1_000
            deadline_ms = self.group.deadline_ms("")
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self.group.expire("", self.now_ms)
                self.settle()
            for client in self.clients:
                self.beat(client, lost=False)
        subscribed = {topic for client in self.clients for topic in client.topics}
        owned = [each for client in self.clients for each in client.owned]
        assert sorted(owned) == sorted((IDS[t], p) for t in subscribed for p in range(self.counts[t]))
        if len({client.topics for client in self.clients}) == 1:
            shares = [len(client.owned) for client in self.clients]
            assert max(shares) - min(shares) <= 1
        record = self.record
        for client in self.clients:
            self.beat(client, lost=False)
        assert self.record is record, "a group at rest writes nothing"

    # -- what holds --------------------------------------------------------------------------------------

    @invariant()
    def the_group_is_consistent(self) -> None:
        self.group.check_invariants()
        # What counts for the limits is what is written: never less, but for numbers of the whole.
        written = len(self.group.record().encode())
        assert written <= self.group.size <= written + 256

    @invariant()
    def a_partition_has_one_owner(self) -> None:
        owned = [each for client in self.clients for each in client.owned]
        assert len(owned) == len(set(owned))


TestConsumerGroups = ConsumerGroups.TestCase
TestConsumerGroups.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)
