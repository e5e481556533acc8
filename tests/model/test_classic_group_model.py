"""Classic groups under members that come, go, die and return, and coordinators that die: who owns what (I24).

Each member of the model behaves as a client does: it joins, brings or fetches its assignment, beats, and
joins again when an answer says so. The coordinator dies at any time; the next one has only the last record.
"""

from __future__ import annotations

import itertools

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from broker.core.groups.classic import ClassicGroup
from broker.core.groups.model import (
    GroupLimits,
    GroupState,
    Joined,
    JoinRequest,
    SyncAnswer,
    SyncRequest,
    Ticket,
)
from controller.wire.codes import ErrorCode
from quorum.metadata.group_records import ClassicGroupRecord, decode_group
from quorum.metadata.numbers import GenerationId

SESSION_MS = 10_000
REBALANCE_MS = 20_000
PARTITIONS = 5
CLIENTS = 5


class Client:
    """One consumer: what it knows, and the request that it waits for."""

    def __init__(self, instance_id: str | None) -> None:
        self.instance_id = instance_id
        self.member_id = ""
        self.generation_id = GenerationId(-1)
        self.owns: set[int] = set()
        self.to_assign: tuple[str, ...] = ()
        self.waits_for: Ticket | None = None
        self.needs_join = True
        self.needs_sync = False

    def forget(self) -> None:
        self.owns = set()
        self.waits_for = None
        self.needs_join, self.needs_sync = True, False


class ClassicGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000
        self.limits = GroupLimits(initial_rebalance_delay_ms=0)
        self.group = ClassicGroup("g", self.limits)
        self.record: ClassicGroupRecord | None = None
        self.clients = [Client(None if number else "static") for number in range(CLIENTS)]
        self.tickets = itertools.count()
        self.names = itertools.count()
        #: {ticket: who asked}
        self.asked: dict[Ticket, Client] = {}
        #: {generation: {instance or member id: partitions}}, as the members were answered
        self.answered: dict[int, dict[str, set[int]]] = {}

    def settle(self) -> None:
        """Do what the shell does: write the record, then let the answers leave."""
        if self.group.unsaved:
            self.group.unsaved = False
            found = decode_group("g", self.group.record().encode())
            assert isinstance(found, ClassicGroupRecord)
            assert self.record is None or found.generation_id >= self.record.generation_id
            self.record = found
        self.group.take_timers()
        for ticket, answer in self.group.take_answers():
            client = self.asked.pop(ticket)
            if client.waits_for == ticket:
                client.waits_for = None
                self.take(client, answer)

    def take(self, client: Client, answer: Joined | SyncAnswer) -> None:
        code = answer.error_code
        if isinstance(answer, Joined) and code is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
            client.forget()
        elif code is not ErrorCode.NONE:
            client.forget()
        elif isinstance(answer, Joined):
            assert answer.generation_id >= client.generation_id
            client.member_id, client.generation_id = answer.member_id, answer.generation_id
            client.to_assign = tuple(each.member_id for each in answer.members)
            client.needs_join, client.needs_sync = False, True
            if answer.skip_assignment:
                client.to_assign = ()
        else:
            assert client.generation_id == self.group.generation_id
            client.needs_sync = False
            client.owns = {int(each) for each in answer.assignment.split()}
            held = self.answered.setdefault(client.generation_id, {})
            # A static member that comes back goes on with what was its own, under another member id.
            assert held.setdefault(client.instance_id or client.member_id, client.owns) == client.owns

    def ticket(self, client: Client) -> Ticket:
        ticket = Ticket(next(self.tickets))
        self.asked[ticket] = client
        client.waits_for = ticket
        return ticket

    # -- members -----------------------------------------------------------------------------------------

    @rule(number=st.integers(0, CLIENTS - 1), changed=st.booleans())
    def join(self, number: int, changed: bool) -> None:
        client = self.clients[number]
        if not client.needs_join or client.waits_for is not None:
            return
        protocols = (("range", b"new" if changed else b"old"),)
        request = JoinRequest(
            client.member_id, client.instance_id, "c", "/h", SESSION_MS, REBALANCE_MS, "consumer", protocols
        )
        client.owns = set()
        self.group.join(self.ticket(client), request, f"m{next(self.names)}", self.now_ms)
        self.settle()

    @rule(number=st.integers(0, CLIENTS - 1))
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if not client.needs_sync or client.waits_for is not None:
            return
        given = {
            member_id: b" ".join(b"%d" % each for each in range(index, PARTITIONS, len(client.to_assign)))
            for index, member_id in enumerate(client.to_assign)
        }
        request = SyncRequest(
            client.member_id, client.instance_id, client.generation_id, "consumer", "range", given
        )
        self.group.sync(self.ticket(client), request, self.now_ms)
        self.settle()

    @rule(number=st.integers(0, CLIENTS - 1))
    def beat(self, number: int) -> None:
        client = self.clients[number]
        if client.needs_join or client.waits_for is not None:
            return
        code = self.group.heartbeat(client.member_id, client.instance_id, client.generation_id, self.now_ms)
        if code is not ErrorCode.NONE:
            if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
                client.member_id = ""
            client.forget()

    @rule(number=st.integers(0, CLIENTS - 1))
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.waits_for is None and client.member_id:
            self.group.leave(client.member_id, client.instance_id, self.now_ms)
            client.member_id = ""
            client.forget()
            self.settle()

    @rule(number=st.integers(0, CLIENTS - 1))
    def die_and_return(self, number: int) -> None:
        """Lose a client without a word; one with the same instance id comes in its place."""
        self.clients[number] = Client(self.clients[number].instance_id)

    @rule(passed_ms=st.sampled_from([100, SESSION_MS, REBALANCE_MS]))
    def wait(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        keys = [each.member_id for each in self.group.members] + [each.member_id for each in self.clients]
        for key in ["", *keys]:
            deadline_ms = self.group.deadline_ms(key)
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self.group.expire(key, self.now_ms)
                self.settle()

    # -- coordinators ------------------------------------------------------------------------------------

    @precondition(lambda self: self.record is not None)
    @rule()
    def fail_over(self) -> None:
        """Go on from the last record; requests that waited are asked again."""
        assert self.record is not None
        stable = self.group.state is GroupState.STABLE
        before = self.group
        self.group = ClassicGroup("g", self.limits, self.record)
        self.group.resume(self.now_ms)
        if stable:
            # No generation changes and nobody has to join again.
            assert self.group.state is GroupState.STABLE
            assert self.group.generation_id == before.generation_id
            for member in before.members:
                code = self.group.heartbeat(
                    member.member_id, member.instance_id, before.generation_id, self.now_ms
                )
                assert code is ErrorCode.NONE
        self.asked.clear()
        for client in self.clients:
            client.waits_for = None

    # -- what holds --------------------------------------------------------------------------------------

    @invariant()
    def the_group_is_consistent(self) -> None:
        self.group.check_invariants()
        # What counts for the limits is what is written: never less, but for numbers of the whole.
        written = len(self.group.record().encode())
        assert written <= self.group.size <= written + 256

    @invariant()
    def a_partition_has_one_owner_in_a_generation(self) -> None:
        for held in self.answered.values():
            owned = [each for partitions in held.values() for each in partitions]
            assert len(owned) == len(set(owned))


TestClassicGroups = ClassicGroups.TestCase
TestClassicGroups.settings = settings(max_examples=150, stateful_step_count=60, deadline=None)
