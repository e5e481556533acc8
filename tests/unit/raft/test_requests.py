"""Requests of operators: what is answered when, by whom, and when the honest answer is that nobody knows.

Three replicas over one log whose links, commits and leadership the test moves by hand; what the core decides
stands in for it.
"""

from __future__ import annotations

import random
from collections import deque
from types import SimpleNamespace
from typing import Any, cast

import msgpack
import pytest

from quorum.admin import members as admin_members
from quorum.config import node as config
from quorum.core.machine import StateMachine
from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    OutcomeUnknownError,
    QuorateError,
    StaleConfigurationError,
    UnknownMemberError,
)
from quorum.errors import NotLeaderError as NotLeadingError
from quorum.node.replica import NodeReplica
from quorum.raft.core import membership
from quorum.raft.core.configuration import Configuration, Member, parse_configuration
from quorum.raft.core.entry import CONFIGURATION_KINDS, Entry, EntryKind
from quorum.raft.core.errors import (
    MembershipBusyError,
    MembershipError,
    NotLeaderError,
    TransferBusyError,
    TransferError,
)
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.core.messages import Role, SoftState
from quorum.raft.datadir.founding import founding_payload
from quorum.raft.peers.codec import RAFT_MESSAGE_TYPES
from quorum.raft.requests.administration import PENDING_MAX
from quorum.raft.requests.origin_shell import RESEND_AFTER_MS
from quorum.raft.requests.origins import FORWARDING_MESSAGE_TYPES, Forward
from quorum.raft.requests.payloads import REQUEST_FORMAT
from quorum.raft.requests.requests import Action, LeaderRequest, parse_request
from quorum.server import reconfig
from tests.support.manual_runtime import ManualRuntime

FOUNDED = Configuration("c" * 32, {n: Member(f"h:{n}", str(n) * 32) for n in (1, 2, 3)}, {}, ())
DEADLINE_MS = 5000.0
ADD = LeaderRequest(Action.ADD, 4, "h:4")
LOST = FOUNDED.voters[3].incarnation


class Engine:
    """One node's part of the log; the test says what it knows."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.term = 1
        self.leader_id: int | None = 1
        self.transfer_target = 0
        self.accepts_proposals = False
        self.connected = {1, 2, 3}
        self.refusal: Exception | None = None
        self.changes: list[MembershipChange | int | None] = []

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None

    @property
    def leads(self) -> bool:
        return self.leader_id == self.node_id

    @property
    def soft_state(self) -> SoftState:
        role = Role.LEADER if self.leads else Role.FOLLOWER
        return SoftState(role, self.term, self.leader_id or 0, self.transfer_target, "")

    @property
    def configuration_index(self) -> int:
        return max(entry.index for entry in self.world.log if entry.kind in CONFIGURATION_KINDS)

    @property
    def configuration(self) -> Configuration:
        return parse_configuration(self.world.log[self.configuration_index - 1].payload)

    def undurable_ms(self) -> float:
        return 0.0

    def guarded(self, _what: str, call: Any) -> Any:
        return call

    collected = guarded

    def peer_ids(self) -> list[int]:
        return [node_id for node_id in (1, 2, 3) if node_id != self.node_id]

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.connected

    def propose(self, kind: EntryKind, payload: bytes) -> int:
        if not self.leads or self.transfer_target:
            raise NotLeadingError(self.leader_id)
        return self.world.append(self.term, kind, payload)

    def change_members(self, change: MembershipChange) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(change)
        latest = self.configuration
        match change:
            case AddMember(node_id, address):
                wanted = latest.with_learner(node_id, address)
            case RemoveMember(node_id):
                wanted = latest.without(node_id)
            case ReplaceMember(node_id, incarnation, _):
                wanted = latest.replaced(node_id, incarnation)
        return self.world.append(self.term, EntryKind.MEMBERS, wanted.to_payload())

    def begin_transfer(self, node_id: int | None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(node_id)

    def send(self, message: Any) -> None:
        self.world.network.append(message)


class Frontend:
    """A front end without clients."""

    options = SimpleNamespace(contact_loss_ms_max=1e9)

    def __getattr__(self, _name: str) -> Any:
        return lambda *_arguments: None


class Node:
    """A replica, and how far it has come."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.engine = Engine(world, node_id)
        self.runtime = ManualRuntime()
        self.replica = NodeReplica(
            StateMachine(),
            cast("Any", self.engine),
            cast("Any", self.runtime),
            cast("Any", Frontend()),
            incarnation=7,
            forward_deadline_ms=DEADLINE_MS,
            heartbeat_interval_ms=50.0,
            batch_bytes_max=1000,
            entry_bytes_max=1000,
            container_check_interval_ms=60_000.0,
        )

    def apply(self, until: int = 1 << 60) -> None:
        """Apply what it lacks of the log, up to an index; what that appends as well."""
        while self.replica.machine.applied_index < min(until, len(self.world.log)):
            self.replica.apply(self.world.log[self.replica.machine.applied_index])

    def follow(self, leader_id: int | None, term: int, transfer_target: int = 0) -> None:
        engine = self.engine
        engine.leader_id, engine.term, engine.transfer_target = leader_id, term, transfer_target
        self.replica.leadership_changed(engine.soft_state)

    def hand_over(self, target: int) -> None:
        """Begin to hand over to a node, or give it up (0)."""
        self.follow(self.engine.leader_id, self.engine.term, target)


class World:
    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.network: deque[Any] = deque()
        self.told: list[int | QuorateError] = []
        self.append(1, EntryKind.FOUND, founding_payload(FOUNDED, random.Random(1)))
        self.nodes = {node_id: Node(self, node_id) for node_id in (1, 2, 3)}
        self.lead(1, 1)
        self.settle()

    def append(self, term: int, kind: EntryKind, payload: bytes = b"") -> int:
        self.log.append(Entry(len(self.log) + 1, term, kind, 1000, payload))
        return len(self.log)

    def lead(self, leader_id: int, term: int) -> None:
        self.append(term, EntryKind.NOOP)
        for node in self.nodes.values():
            node.follow(leader_id, term)

    def deliver(self) -> None:
        """Hand over what is on the way; a message of another term is dropped, as the engine does."""
        while self.network:
            message = self.network.popleft()
            receiver = self.nodes[message.receiver]
            if message.term == receiver.engine.term:
                receiver.replica.receive(message)

    def settle(self) -> None:
        """Let everything arrive and be applied everywhere, the leader first."""
        before = -1
        while before != len(self.log) or self.network:
            before = len(self.log)
            self.deliver()
            for node in self.nodes.values():
                node.apply()

    def ask(self, asked: int, request: LeaderRequest) -> None:
        """Have a request on its way; nothing is delivered."""
        self.nodes[asked].replica.ask(request, self.told.append)

    def logged(self, asked: int, request: LeaderRequest) -> None:
        """Have a request in the log, applied by nobody."""
        self.ask(asked, request)
        self.deliver()

    def pass_time(self, by_ms: float) -> None:
        for node in self.nodes.values():
            node.runtime.advance(by_ms)
            node.replica.tick(node.runtime.monotonic_ms(), 0.0)

    def outcome(self) -> int | QuorateError:
        assert len(self.told) == 1, self.told
        return self.told[0]

    def changes(self) -> list[MembershipChange | int | None]:
        return [change for node in self.nodes.values() for change in node.engine.changes]


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.parametrize("asked", [1, 2])
def test_a_change_is_answered_when_applied_at_the_asked(world: World, asked: int) -> None:
    world.logged(asked, ADD)
    assert world.changes() == [], "it is not committed yet"
    world.nodes[1].apply(len(world.log))
    assert world.changes() == [AddMember(4, "h:4")]
    changed, answered = len(world.log) - 1, len(world.log)
    world.nodes[3].apply()
    world.nodes[asked].apply(changed)
    assert world.told == [], "it may still be lost"
    world.nodes[asked].apply(answered)
    assert world.outcome() == changed
    assert world.nodes[asked].replica.administration._pending == {}
    assert len(world.log) == answered


@pytest.mark.parametrize(
    ("request_", "change"),
    [
        (LeaderRequest(Action.REPLACE, 3), ReplaceMember(3)),
        (LeaderRequest(Action.REPLACE, 3, incarnation=LOST, force=True), ReplaceMember(3, LOST, force=True)),
        (LeaderRequest(Action.REMOVE, 3), RemoveMember(3)),
        (LeaderRequest(Action.REMOVE, 1), RemoveMember(1)),
        (LeaderRequest(Action.TRANSFER, 2), 2),
    ],
)
def test_every_action_reaches_the_core(
    world: World, request_: LeaderRequest, change: MembershipChange | int
) -> None:
    world.ask(2, request_)
    world.settle()
    assert world.changes() == [change]


def test_only_the_leader_that_appended_a_request_judges_it(world: World) -> None:
    world.logged(2, ADD)
    world.lead(3, 2)
    world.settle()
    assert (world.changes(), world.told) == ([], [])
    world.pass_time(DEADLINE_MS)
    error = world.outcome()
    assert isinstance(error, OutcomeUnknownError)
    assert not error.definite
    assert "add of node 4 is in the log, and its end is not known within 5000 ms" in error.message


def test_an_answered_change_survives_its_leader(world: World) -> None:
    world.logged(2, ADD)
    world.nodes[1].apply()
    world.lead(3, 2)
    world.settle()
    assert world.outcome() == len(world.log) - 2


def test_an_answer_that_another_leader_discards_is_none(world: World) -> None:
    world.logged(2, LeaderRequest(Action.REMOVE, 9))
    world.nodes[1].apply(len(world.log))
    world.log.pop()
    world.lead(3, 2)
    world.nodes[2].apply()
    world.nodes[3].apply()
    assert world.told == []
    world.pass_time(DEADLINE_MS)
    assert isinstance(world.outcome(), OutcomeUnknownError)


def test_a_lost_request_goes_to_the_next_leader(world: World) -> None:
    world.ask(2, ADD)
    world.network.clear()
    world.lead(3, 2)
    world.settle()
    assert world.nodes[3].engine.changes == [AddMember(4, "h:4")]
    assert isinstance(world.outcome(), int)


def test_a_lost_request_is_sent_again(world: World) -> None:
    world.ask(2, ADD)
    world.network.clear()
    world.pass_time(RESEND_AFTER_MS)
    world.settle()
    assert isinstance(world.outcome(), int)


def test_a_request_that_reached_nobody_is_unknown(world: World) -> None:
    world.ask(2, ADD)
    world.network.clear()
    world.pass_time(DEADLINE_MS)
    assert "was sent to the leader" in str(world.outcome())
    world.settle()
    assert world.changes() == [], "who was told that it is unknown is not surprised later"


def test_a_repeated_message_is_judged_once(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REMOVE, 3))
    world.network.append(world.network[0])
    world.settle()
    assert world.changes() == [RemoveMember(3)]
    assert len(world.told) == 1


def test_a_request_twice_in_the_log_is_judged_once(world: World) -> None:
    world.logged(2, ADD)
    world.append(1, EntryKind.BATCH, world.log[-1].payload)
    world.settle()
    assert world.changes() == [AddMember(4, "h:4")]


def test_requests_wait_while_leadership_is_handed_over(world: World) -> None:
    world.nodes[1].hand_over(3)
    world.ask(2, ADD)
    world.settle()
    assert world.told == []
    world.lead(3, 2)
    world.settle()
    assert world.nodes[3].engine.changes == [AddMember(4, "h:4")]


def test_the_state_that_a_snapshot_brings_is_no_answer(world: World) -> None:
    world.logged(2, ADD)
    world.nodes[1].apply()
    world.nodes[2].replica.install(world.nodes[1].replica.machine)
    assert world.told == []
    world.pass_time(DEADLINE_MS)
    assert isinstance(world.outcome(), OutcomeUnknownError)


@pytest.mark.parametrize(
    ("named", "how"),
    [
        ("", "that names the incarnation of the lost disk (`quorate members list --json`) retires no other"),
        (LOST, "with the same incarnation retires no other disk"),
    ],
)
def test_an_unknown_replacement_says_how_to_repeat_it(world: World, named: str, how: str) -> None:
    world.ask(2, LeaderRequest(Action.REPLACE, 3, incarnation=named))
    world.pass_time(DEADLINE_MS)
    error = world.outcome()
    assert isinstance(error, OutcomeUnknownError)
    assert f"a repetition {how}" in error.remedy


@pytest.mark.parametrize(
    ("refusal", "kind", "retriable"),
    [
        (MembershipError("only_voter", node_id=3, done="removed"), ChangeRefusedError, False),
        (MembershipBusyError("change_uncommitted", index=7), ChangeBusyError, True),
    ],
)
@pytest.mark.parametrize("asked", [1, 2])
def test_a_refusal_of_the_core_is_definite(
    world: World, refusal: MembershipError, kind: type[QuorateError], retriable: bool, asked: int
) -> None:
    world.nodes[1].engine.refusal = refusal
    world.ask(asked, LeaderRequest(Action.REMOVE, 3))
    world.settle()
    error = world.outcome()
    assert type(error) is kind
    assert isinstance(error, QuorateError)
    assert (error.definite, error.retriable) == (True, retriable)
    assert (error.message, error.remedy) == (refusal.problem, refusal.remedy)


def test_a_leader_deposed_while_it_judges_answers_nothing(world: World) -> None:
    world.nodes[1].engine.refusal = NotLeaderError("node 1 is a follower", 0)
    world.ask(2, ADD)
    world.settle()
    assert world.told == []


@pytest.mark.parametrize("action", [Action.REPLACE, Action.REMOVE, Action.TRANSFER])
def test_only_members_can_be_asked_for(world: World, action: Action) -> None:
    """Whoever repeats a removal takes it for done: the log shows that no other leader let that node in."""
    world.logged(2, LeaderRequest(action, 9))
    world.nodes[1].apply()
    assert world.told == []
    world.nodes[2].apply()
    error = world.outcome()
    assert isinstance(error, UnknownMemberError)
    assert "node 9 is not a member; members are 1, 2, 3" in error.message
    assert "`quorate members add`" in error.remedy
    assert world.changes() == []


def test_a_change_of_another_configuration_is_refused(world: World) -> None:
    world.ask(2, ADD._replace(config_version=15))
    world.settle()
    error = world.outcome()
    assert isinstance(error, StaleConfigurationError)
    assert "version 0, not f" in error.message
    world.told.clear()
    world.logged(2, ADD._replace(config_version=0))
    world.append(1, EntryKind.MEMBERS, world.nodes[1].engine.configuration.without(3).to_payload())
    world.settle()
    assert isinstance(world.outcome(), ChangeBusyError), "a newer one is in the log and not applied"
    world.told.clear()
    world.ask(2, ADD._replace(config_version=1))
    world.settle()
    assert world.changes() == [AddMember(4, "h:4")]


def test_without_a_leader_nothing_is_begun(world: World) -> None:
    engine = world.nodes[2].engine
    engine.leader_id = None
    world.ask(2, ADD)
    engine.leader_id = 1
    engine.connected = {3}
    world.ask(2, ADD)
    assert [type(error) for error in world.told] == [NoLeaderError, NoLeaderError]
    assert not world.network


def test_what_waits_is_bounded(world: World) -> None:
    for _ in range(PENDING_MAX):
        world.ask(2, ADD)
    assert world.told == []
    world.ask(2, ADD)
    assert isinstance(world.outcome(), ChangeBusyError)


def test_a_node_that_stops_knows_nothing_of_what_waits(world: World) -> None:
    world.ask(2, ADD)
    world.nodes[2].replica.administration.stop()
    assert isinstance(world.outcome(), OutcomeUnknownError)
    world.told.clear()
    world.ask(2, ADD)
    assert isinstance(world.outcome(), NoLeaderError)


@pytest.mark.parametrize(
    "plain",
    [
        None,
        [],
        [9, 4, "h:4", None, "", False],
        [1, "4", "h:4", None, "", False],
        [1, 4, None, None, "", False],
        [1, 4, "h:4", "7", "", False],
        [1, 4, "h:4", None, b"", False],
        [1, 4, "h:4", None, "", 0],
        [1, 4, "h:4", None, "", False, 1],
    ],
)
def test_what_is_no_request_is_void_and_counted(world: World, plain: object) -> None:
    assert parse_request(plain) is None
    payload = msgpack.packb([REQUEST_FORMAT, 2, 7, 1, plain])
    world.nodes[1].replica.receive(Forward(1, 2, 1, 7, 1, payload))
    world.settle()
    assert world.changes() == []
    assert world.nodes[3].replica.machine.origins[2] == (7, 1)


@pytest.mark.parametrize(
    "request_",
    [
        ADD,
        LeaderRequest(Action.REMOVE, 4, config_version=1 << 50),
        LeaderRequest(Action.REPLACE, 4, incarnation="d" * 32, force=True),
    ],
)
def test_requests_survive_the_log(request_: LeaderRequest) -> None:
    assert parse_request(msgpack.unpackb(msgpack.packb(request_))) == request_


def test_no_tag_is_used_twice() -> None:
    tables = (RAFT_MESSAGE_TYPES, FORWARDING_MESSAGE_TYPES)
    assert len({tag for table in tables for tag in table}) == sum(map(len, tables))


def test_every_door_has_the_bounds_of_the_core() -> None:
    """They cannot be imported there: the core knows no shell, and admin and client port know no core."""
    doors = (config.NODE_ID_MAX, admin_members.NODE_ID_MAX, reconfig.NODE_ID_MAX)
    assert doors == (membership.NODE_ID_MAX,) * 3
    lengths = (admin_members.ADDRESS_CHARS_MAX, reconfig.ADDRESS_CHARS_MAX)
    assert lengths == (membership.ADDRESS_CHARS_MAX,) * 2


# --- hand-overs


def handing(world: World, asked: int, target: int) -> None:
    """Have a leader that begins to hand over because a node was asked for it."""
    world.ask(asked, LeaderRequest(Action.TRANSFER, target))
    world.settle()
    assert world.changes()[-1] == target
    world.nodes[1].hand_over(target)


@pytest.mark.parametrize("asked", [1, 2, 3])
def test_a_hand_over_is_done_when_the_node_leads(world: World, asked: int) -> None:
    handing(world, asked, 2)
    assert world.told == []
    world.nodes[asked].follow(None, 2)
    assert world.told == []
    world.nodes[asked].follow(2, 2)
    assert world.outcome() == 0


def test_a_hand_over_may_be_over_before_its_request_is_applied(world: World) -> None:
    world.logged(3, LeaderRequest(Action.TRANSFER, 2))
    world.nodes[1].apply()
    world.lead(2, 2)
    assert world.told == []
    world.settle()
    assert world.outcome() == 0


def test_a_request_nobody_took_is_no_hand_over(world: World) -> None:
    world.ask(2, LeaderRequest(Action.TRANSFER, 1))
    world.network.clear()
    world.lead(3, 2)
    assert world.told == [], "it may be carried out yet"
    world.settle()
    assert world.nodes[3].engine.changes == [1]


@pytest.mark.parametrize("asked", [1, 3])
def test_a_node_that_leads_already_needs_no_hand_over(world: World, asked: int) -> None:
    world.logged(asked, LeaderRequest(Action.TRANSFER, 1))
    assert world.told == [], "it may have been deposed without knowing"
    world.settle()
    assert world.outcome() == 0
    assert world.changes() == []


def test_a_hand_over_that_another_won_is_refused(world: World) -> None:
    handing(world, 1, 2)
    world.nodes[1].follow(3, 2)
    error = world.outcome()
    assert type(error) is ChangeRefusedError
    assert "node 3 leads term 2 instead of node 2" in error.message


@pytest.mark.parametrize("kind", [TransferError, TransferBusyError])
def test_a_hand_over_that_cannot_be_is_refused(world: World, kind: type[TransferError]) -> None:
    world.nodes[1].engine.refusal = kind("unfit_successor", node_id=2, obstacle="it is silent", able="3")
    world.ask(3, LeaderRequest(Action.TRANSFER, 2))
    world.settle()
    assert type(world.outcome()) is (ChangeRefusedError if kind is TransferError else ChangeBusyError)


@pytest.mark.parametrize("asked", [1, 2])
def test_a_hand_over_that_was_given_up_may_still_happen(world: World, asked: int) -> None:
    handing(world, asked, 3)
    world.settle()
    assert world.told == []
    world.nodes[1].hand_over(0)
    world.settle()
    error = world.outcome()
    assert isinstance(error, OutcomeUnknownError)
    assert "node 3 did not take over in time, and node 1 leads term 1 on" in error.message
    assert "may still take over" in error.remedy
    world.nodes[1].hand_over(0)
    world.pass_time(2 * DEADLINE_MS)
    assert len(world.told) == 1


@pytest.mark.parametrize("leads", [2, 3])
def test_of_two_hand_overs_each_hears_who_leads(world: World, leads: int) -> None:
    """The later one takes the place of the first, whose node may still win."""
    for target in (3, 2):
        world.ask(1, LeaderRequest(Action.TRANSFER, target))
    world.settle()
    for target in (3, 2):
        world.nodes[1].hand_over(target)
    assert world.told == []
    world.lead(leads, 2)
    world.settle()
    assert 0 in world.told
    (refusal,) = [told for told in world.told if isinstance(told, ChangeRefusedError)]
    assert len(world.told) == 2
    assert f"node {leads} leads term 2 instead of node {5 - leads}" in refusal.message


def test_of_two_lost_hand_overs_each_hears_it(world: World) -> None:
    for target in (3, 2):
        world.ask(1, LeaderRequest(Action.TRANSFER, target))
    world.settle()
    for target in (3, 2, 0):
        world.nodes[1].hand_over(target)
    world.settle()
    texts = [told.message for told in world.told if isinstance(told, OutcomeUnknownError)]
    assert len(texts) == 2
    assert all(f"node {target} did not take over in time" in " ".join(texts) for target in (2, 3))
