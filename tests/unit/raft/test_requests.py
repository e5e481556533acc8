"""Requests of operators: what is answered when, by whom, and when the honest answer is that nobody knows.

Three nodes whose links, logs and leadership the test moves by hand; what the core decides stands in for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from quorum.admin import members as admin_members
from quorum.config import node as config
from quorum.errors import (
    ChangeBusyError,
    ChangeRefusedError,
    NoLeaderError,
    OutcomeUnknownError,
    ProtocolError,
    QuorateError,
    StaleConfigurationError,
    UnknownMemberError,
)
from quorum.raft.core import membership
from quorum.raft.core.configuration import Configuration, Member
from quorum.raft.core.errors import (
    MembershipBusyError,
    MembershipError,
    NotLeaderError,
    RefusedError,
    TransferBusyError,
    TransferError,
)
from quorum.raft.core.membership import AddMember, MembershipChange, RemoveMember, ReplaceMember
from quorum.raft.peers.codec import LENGTH_BYTES, RAFT_MESSAGE_TYPES, Codec
from quorum.raft.requests.administration import ANSWERS_MAX, PENDING_MAX, Administration
from quorum.raft.requests.origins import FORWARDING_MESSAGE_TYPES
from quorum.raft.requests.requests import (
    REQUEST_MESSAGE_TYPES,
    Action,
    ChangeReply,
    ChangeRequest,
    LeaderRequest,
    Outcome,
)
from quorum.server import reconfig

FOUNDED = Configuration("c" * 32, {n: Member(f"h:{n}", str(n) * 32) for n in (1, 2, 3)}, {}, ())
DEADLINE_MS = 5000.0
ADD = LeaderRequest(Action.ADD, 4, "h:4")


class Host:
    """One node; the test says what it knows."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.term = 1
        self.leader_id: int | None = 1
        self.configuration: Configuration | None = FOUNDED
        self.configuration_index = 1
        self.applied: Configuration | None = FOUNDED
        self.applied_index = 1
        self.version = 16
        self.connected = {1, 2, 3}
        self.refusal: Exception | None = None
        self.changes: list[MembershipChange | int | None] = []
        self.no_ops = 0
        self.waiting: list[tuple[int, int, Callable[[bool], None]]] = []
        self.administration = Administration(
            self,
            lambda: self.applied,
            lambda: self.version,
            first_request_id=node_id << 32,
            deadline_ms=DEADLINE_MS,
        )

    @property
    def leads(self) -> bool:
        return self.leader_id == self.node_id

    def is_connected(self, node_id: int) -> bool:
        return node_id in self.connected

    def change_members(self, change: MembershipChange) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(change)
        self.configuration_index = self.configuration_index + 1
        return self.configuration_index

    def begin_transfer(self, node_id: int | None) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.changes.append(node_id)

    def confirm(self) -> int:
        if self.refusal is not None:
            raise self.refusal
        self.no_ops += 1
        return self.configuration_index + self.no_ops

    def when_applied(self, index: int, term: int, callback: Callable[[bool], None]) -> None:
        self.waiting.append((index, term, callback))

    def send(self, message: ChangeRequest | ChangeReply) -> None:
        self.world.network.append(message)

    def apply(self, index: int, term: int, configuration: Configuration) -> None:
        """Apply an entry with a configuration, as the engine and the replica do it."""
        self.applied_index = index
        self.applied = configuration
        due = [each for each in self.waiting if each[0] == index]
        self.waiting = [each for each in self.waiting if each[0] != index]
        for _, wanted, callback in due:
            callback(wanted == term)

    def install(self, index: int, term: int, configuration: Configuration) -> None:
        """Take the state of a snapshot; what waits for entries up to its index is not called back."""
        self.applied_index = index
        self.applied = configuration
        self.waiting = [each for each in self.waiting if each[0] > index]
        self.administration.state_installed(term)

    def hand_over(self, target: int) -> None:
        """Begin to hand over to a node, or give it up (0)."""
        self.administration.leadership_changed(target)

    def follow(self, leader_id: int | None, term: int) -> None:
        self.leader_id, self.term = leader_id, term
        self.administration.leadership_changed()


class World:
    def __init__(self) -> None:
        self.network: deque[ChangeRequest | ChangeReply] = deque()
        self.now_ms = 0.0
        self.hosts = {node_id: Host(self, node_id) for node_id in (1, 2, 3)}
        self.told: list[int | QuorateError] = []

    def ask(self, asked: int, request: LeaderRequest, *, deliver: bool = True) -> None:
        self.hosts[asked].administration.submit(request, self.told.append, self.now_ms)
        if deliver:
            self.deliver()

    def deliver(self) -> None:
        """Hand over what is on the way; a message of another term is dropped, as the engine does."""
        while self.network:
            message = self.network.popleft()
            receiver = self.hosts[message.receiver]
            if message.term == receiver.term:
                receiver.administration.receive(message)

    def lead(self, leader_id: int, term: int) -> None:
        for host in self.hosts.values():
            host.follow(leader_id, term)

    def pass_time(self, by_ms: float) -> None:
        self.now_ms += by_ms
        for host in self.hosts.values():
            host.administration.tick(self.now_ms)

    def outcome(self) -> int | QuorateError:
        assert len(self.told) == 1, self.told
        return self.told[0]


@pytest.fixture
def world() -> World:
    return World()


GROWN = FOUNDED.with_learner(4, "h:4")


@pytest.mark.parametrize("asked", [1, 2])
def test_a_change_is_answered_when_the_asked_node_has_applied_it(world: World, asked: int) -> None:
    world.ask(asked, ADD)
    assert world.hosts[1].changes == [AddMember(4, "h:4")]
    assert world.told == [], "it may still be lost"
    other = world.hosts[3 - asked]
    other.apply(2, 1, GROWN)
    assert world.told == [], "the asked node does not show it yet"
    world.hosts[asked].apply(2, 1, GROWN)
    assert world.outcome() == 2
    assert world.hosts[asked].administration.pending_count == 0


@pytest.mark.parametrize(
    ("request_", "change"),
    [
        (LeaderRequest(Action.REPLACE, 3), ReplaceMember(3)),
        (LeaderRequest(Action.REPLACE, 3, incarnation="d" * 32), ReplaceMember(3, "d" * 32)),
        (LeaderRequest(Action.REMOVE, 3), RemoveMember(3)),
        (LeaderRequest(Action.REMOVE, 1), RemoveMember(1)),
        (LeaderRequest(Action.TRANSFER, 2), 2),
    ],
)
def test_every_action_reaches_the_core(
    world: World, request_: LeaderRequest, change: MembershipChange | int
) -> None:
    world.ask(2, request_)
    assert world.hosts[1].changes == [change]


def test_an_entry_that_another_took_the_place_of_changed_nothing(world: World) -> None:
    world.ask(2, ADD)
    world.lead(3, 2)
    assert world.told == [], "a leader change by itself tells nothing of an accepted change"
    world.hosts[2].apply(2, 2, FOUNDED)
    error = world.outcome()
    assert isinstance(error, ChangeBusyError)
    assert error.definite
    assert error.retriable


def test_an_accepted_change_survives_its_leader(world: World) -> None:
    world.ask(2, ADD)
    world.lead(3, 2)
    world.hosts[2].apply(2, 1, GROWN)
    assert world.outcome() == 2


def test_what_never_ends_is_unknown_after_the_deadline(world: World) -> None:
    world.ask(2, ADD)
    world.pass_time(DEADLINE_MS - 1)
    assert world.told == []
    world.pass_time(1)
    error = world.outcome()
    assert isinstance(error, OutcomeUnknownError)
    assert not error.definite
    assert "accepted by the leader" in error.message
    world.hosts[2].apply(2, 1, GROWN)
    assert len(world.told) == 1, "a request is answered once"


def test_a_request_that_nobody_answered_is_unknown_too(world: World) -> None:
    world.ask(2, ADD, deliver=False)
    world.network.clear()
    world.pass_time(DEADLINE_MS)
    assert "sent to the leader" in str(world.outcome())


LOST = FOUNDED.voters[3].incarnation


@pytest.mark.parametrize(
    ("request_", "shown"),
    [
        (ADD, GROWN),
        (LeaderRequest(Action.REMOVE, 3), FOUNDED.without(3)),
        (LeaderRequest(Action.REPLACE, 3), FOUNDED.replaced(3)),
    ],
)
@pytest.mark.parametrize("by_snapshot", [False, True])
def test_what_a_node_that_lags_comes_to_see_is_no_answer(
    world: World, request_: LeaderRequest, shown: Configuration, by_snapshot: bool
) -> None:
    """It may have been so, and not so any more, before anybody asked."""
    world.ask(2, request_, deliver=False)
    world.network.clear()
    world.lead(3, 2)
    host = world.hosts[2]
    if by_snapshot:
        host.install(3, 2, shown)
    else:
        host.apply(3, 2, shown)
    world.pass_time(DEADLINE_MS - 1)
    assert world.told == []
    world.pass_time(1)
    assert isinstance(world.outcome(), OutcomeUnknownError)


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_a_lost_answer_is_made_up_for_by_what_stays_true(world: World, by_snapshot: bool) -> None:
    named = LeaderRequest(Action.REPLACE, 3, incarnation=LOST)
    world.ask(2, named, deliver=False)
    world.hosts[1].administration.receive(_request_of(world.network.popleft()))
    world.network.clear()
    host = world.hosts[2]
    host.applied, host.applied_index = FOUNDED.replaced(3), 2
    world.pass_time(1)
    assert world.told == [], "its leader may still answer"
    world.lead(3, 2)
    host.applied = FOUNDED.without(3).with_learner(3, "h:3")
    world.pass_time(1)
    assert world.told == []
    if by_snapshot:
        host.install(3, 2, FOUNDED.replaced(3))
    else:
        host.apply(3, 2, FOUNDED.replaced(3))
        world.pass_time(1)
    assert world.outcome() == 3


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


def _request_of(message: ChangeRequest | ChangeReply) -> ChangeRequest:
    assert isinstance(message, ChangeRequest)
    return message


@pytest.mark.parametrize(
    ("refusal", "kind", "retriable"),
    [
        (MembershipError("only_voter", node_id=3, done="removed"), ChangeRefusedError, False),
        (MembershipBusyError("change_uncommitted", index=7), ChangeBusyError, True),
        (NotLeaderError("node 1 is a follower", 0), NoLeaderError, True),
    ],
)
@pytest.mark.parametrize("asked", [1, 2])
def test_a_refusal_of_the_core_is_definite_and_comes_with_its_remedy(
    world: World, refusal: Exception, kind: type[QuorateError], retriable: bool, asked: int
) -> None:
    world.hosts[1].refusal = refusal
    world.ask(asked, LeaderRequest(Action.REMOVE, 3))
    error = world.outcome()
    assert type(error) is kind
    assert isinstance(error, QuorateError)
    assert (error.definite, error.retriable) == (True, retriable)
    remedy = refusal.remedy if isinstance(refusal, RefusedError) else "try again"
    problem = refusal.problem if isinstance(refusal, RefusedError) else str(refusal)
    assert (error.message, error.remedy) == (problem, remedy)


def test_only_members_can_be_asked_for(world: World) -> None:
    for action in (Action.REPLACE, Action.TRANSFER):
        world.told.clear()
        world.ask(2, LeaderRequest(action, 9))
        error = world.outcome()
        assert isinstance(error, UnknownMemberError)
        assert "members are 1, 2, 3" in error.message
    assert world.hosts[1].changes == []


@pytest.mark.parametrize("asked", [1, 2])
@pytest.mark.parametrize("by_snapshot", [False, True])
def test_who_is_told_that_a_node_is_gone_may_rely_on_it(world: World, asked: int, by_snapshot: bool) -> None:
    """A removal whose outcome was unknown is repeated: another leader may have let that node join again."""
    world.ask(asked, LeaderRequest(Action.REMOVE, 9))
    host = world.hosts[asked]
    assert (world.hosts[1].changes, world.hosts[1].no_ops) == ([], 1)
    assert world.told == [], "a no-op has to show it"
    if by_snapshot:
        host.install(2, 1, FOUNDED)
    else:
        host.apply(2, 1, FOUNDED)
    error = world.outcome()
    assert isinstance(error, UnknownMemberError)
    assert error.definite
    assert "node 9 is no member; members are 1, 2, 3" in error.message


def test_a_refusal_that_is_applied_before_it_is_heard_is_no_success(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REMOVE, 9), deliver=False)
    world.hosts[1].administration.receive(_request_of(world.network.popleft()))
    world.hosts[2].apply(2, 1, FOUNDED)
    assert world.told == []
    world.deliver()
    assert isinstance(world.outcome(), UnknownMemberError)


def test_what_was_refused_is_not_called_accepted(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REMOVE, 9))
    world.pass_time(DEADLINE_MS)
    assert "remove of node 9 was answered by the leader" in str(world.outcome())


def test_a_deposed_leader_tells_of_nobody_that_he_is_gone(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REMOVE, 9))
    world.lead(3, 2)
    world.hosts[2].apply(2, 2, GROWN)
    error = world.outcome()
    assert type(error) is ChangeBusyError
    assert "another leader's entry" in error.message
    world.told.clear()
    world.hosts[3].refusal = MembershipBusyError("handing_over", node_id=2)
    world.ask(2, LeaderRequest(Action.REMOVE, 9))
    assert type(world.outcome()) is ChangeBusyError


def test_without_a_leader_nothing_is_begun(world: World) -> None:
    host = world.hosts[2]
    host.leader_id = None
    world.ask(2, ADD)
    host.leader_id = 1
    host.connected = {3}
    world.ask(2, ADD)
    assert [type(error) for error in world.told] == [NoLeaderError, NoLeaderError]
    assert not world.network


def test_a_node_that_does_not_lead_any_more_takes_nothing(world: World) -> None:
    world.ask(2, ADD, deliver=False)
    world.hosts[1].leader_id = None
    world.deliver()
    assert isinstance(world.outcome(), NoLeaderError)
    assert world.hosts[1].changes == []


def test_a_repeated_message_is_judged_once(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REMOVE, 3), deliver=False)
    world.network.append(world.network[0])
    world.hosts[2].administration.submit(ADD, world.told.append, 0.0)
    world.deliver()
    assert world.hosts[1].changes == [RemoveMember(3), AddMember(4, "h:4")]
    assert world.told == [], "a repetition is not refused for what it did itself"


def test_a_request_of_an_older_term_is_not_judged(world: World) -> None:
    world.ask(2, ADD, deliver=False)
    world.lead(1, 2)
    world.deliver()
    assert world.hosts[1].changes == []


def test_memory_is_bounded(world: World) -> None:
    for _ in range(PENDING_MAX):
        world.ask(2, ADD)
    assert world.told == []
    world.ask(2, ADD)
    assert isinstance(world.outcome(), ChangeBusyError)
    leader = world.hosts[1].administration
    for number in range(ANSWERS_MAX + 10):
        leader.receive(ChangeRequest(1, 3, 1, number, Action.TRANSFER, 9, "", None, "", False))
    assert len(leader._answers) == ANSWERS_MAX


def test_a_hand_over_is_done_when_the_asked_node_follows_the_new_leader(world: World) -> None:
    world.ask(3, LeaderRequest(Action.TRANSFER, 2))
    assert world.told == []
    world.hosts[3].follow(None, 2)
    assert world.told == []
    world.hosts[3].follow(2, 2)
    assert world.outcome() == 0


@pytest.mark.parametrize("asked", [1, 3])
def test_whoever_leads_already_needs_no_hand_over(world: World, asked: int) -> None:
    world.ask(asked, LeaderRequest(Action.TRANSFER, 1))
    world.hosts[asked].follow(1, 1)
    assert world.told == [], "it may have been deposed without knowing"
    world.hosts[asked].apply(2, 1, FOUNDED)
    assert world.outcome() == 2
    assert world.hosts[1].changes == []


def test_whoever_led_until_a_moment_ago_does_not_lead(world: World) -> None:
    world.ask(1, LeaderRequest(Action.TRANSFER, 1))
    world.hosts[1].follow(2, 2)
    error = world.outcome()
    assert isinstance(error, ChangeRefusedError)
    assert "node 2 leads term 2 instead of node 1" in error.message


def test_a_snapshot_ends_no_hand_over(world: World) -> None:
    world.ask(2, LeaderRequest(Action.TRANSFER, 2))
    world.hosts[2].install(9, 1, GROWN)
    assert world.told == []
    world.lead(2, 2)
    assert world.outcome() == 0


def test_a_hand_over_that_somebody_else_won_is_over(world: World) -> None:
    world.ask(1, LeaderRequest(Action.TRANSFER, 2))
    world.hosts[1].follow(3, 2)
    error = world.outcome()
    assert type(error) is ChangeRefusedError
    assert "node 3 leads term 2 instead of node 2" in error.message


def test_a_hand_over_that_was_given_up_may_still_happen(world: World) -> None:
    world.ask(1, LeaderRequest(Action.TRANSFER, 2))
    world.hosts[1].follow(1, 1)
    assert world.told == []
    world.pass_time(DEADLINE_MS)
    assert isinstance(world.outcome(), OutcomeUnknownError)


def test_a_hand_over_that_cannot_be_is_refused(world: World) -> None:
    world.hosts[1].refusal = TransferError(
        "unfit_successor", node_id=2, obstacle="it is no other voter", fit=[3]
    )
    world.ask(3, LeaderRequest(Action.TRANSFER, 2))
    assert type(world.outcome()) is ChangeRefusedError
    world.told.clear()
    world.hosts[1].refusal = TransferBusyError(
        "unfit_successor", node_id=2, obstacle="it was not heard", fit=[]
    )
    world.ask(3, LeaderRequest(Action.TRANSFER, 2))
    assert type(world.outcome()) is ChangeBusyError


def test_a_change_of_another_configuration_is_refused(world: World) -> None:
    world.ask(2, ADD._replace(config_version=15))
    error = world.outcome()
    assert isinstance(error, StaleConfigurationError)
    assert "version 10, not f" in error.message
    world.told.clear()
    world.hosts[1].configuration_index = 5
    world.ask(2, ADD._replace(config_version=16))
    assert isinstance(world.outcome(), ChangeBusyError), "a newer one is in the log and not applied"
    world.hosts[1].applied_index = 5
    world.ask(2, ADD._replace(config_version=16))
    assert world.hosts[1].changes == [AddMember(4, "h:4")]


@pytest.mark.parametrize(
    ("term", "done"), [(1, True), (2, False)], ids=["of its leader's term", "of a later one"]
)
@pytest.mark.parametrize("index", [2, 9])
def test_what_a_snapshot_covers_is_told_by_its_term(world: World, term: int, done: bool, index: int) -> None:
    world.ask(2, ADD)
    world.hosts[2].install(1, 1, GROWN)
    assert world.told == [], "it reaches less far"
    world.hosts[2].install(index, term, GROWN)
    if done:
        assert world.outcome() == 2
    else:
        error = world.outcome()
        assert isinstance(error, OutcomeUnknownError)
        assert "a snapshot hides it" in error.message


def test_a_named_disk_that_a_snapshot_shows_as_retired_is_replaced(world: World) -> None:
    world.ask(2, LeaderRequest(Action.REPLACE, 3, incarnation=LOST))
    world.hosts[2].install(9, 2, FOUNDED.replaced(3))
    assert world.outcome() == 9


def test_a_change_that_the_asked_node_applied_before_it_heard_of_it_is_done(world: World) -> None:
    world.ask(2, ADD, deliver=False)
    world.hosts[2].apply(2, 1, GROWN)
    assert world.told == []
    world.deliver()
    assert world.outcome() == 2


def test_a_node_that_stops_knows_nothing_of_what_waits(world: World) -> None:
    world.ask(2, ADD)
    world.hosts[2].administration.stop()
    assert isinstance(world.outcome(), OutcomeUnknownError)
    world.told.clear()
    world.ask(2, ADD)
    assert isinstance(world.outcome(), NoLeaderError)


MESSAGES: list[ChangeRequest | ChangeReply] = [
    ChangeRequest(3, 1, 2, 1 << 40, Action.ADD, 4, "h:4", None, "", False),
    ChangeRequest(3, 1, 2, 7, Action.REMOVE, 4, "", 1 << 50, "", False),
    ChangeRequest(3, 1, 2, 8, Action.REPLACE, 4, "", None, "d" * 32, True),
    ChangeReply(3, 2, 1, 7, Outcome.REFUSED, 0, 0, "no", "do this"),
]


@pytest.mark.parametrize("message", MESSAGES)
def test_messages_survive_the_codec(message: ChangeRequest | ChangeReply) -> None:
    codec = Codec(REQUEST_MESSAGE_TYPES)
    frame = b"".join(codec.encode(message))[LENGTH_BYTES:]
    decoded = codec.decode(frame)
    assert decoded == message
    assert isinstance(decoded, tuple)
    assert [type(field) for field in decoded] == [type(field) for field in message]


def test_an_action_that_does_not_exist_is_refused_at_the_door() -> None:
    codec = Codec(REQUEST_MESSAGE_TYPES)
    bad = ChangeRequest(3, 1, 2, 7, 9, 4, "h:4", None, "", False)  # type: ignore[arg-type]  # a later release's
    with pytest.raises(ProtocolError, match="action"):
        codec.decode(b"".join(codec.encode(bad))[LENGTH_BYTES:])


def test_no_tag_is_used_twice() -> None:
    tables = (RAFT_MESSAGE_TYPES, FORWARDING_MESSAGE_TYPES, REQUEST_MESSAGE_TYPES)
    assert len({tag for table in tables for tag in table}) == sum(map(len, tables))


def test_every_door_has_the_bounds_of_the_core() -> None:
    """They cannot be imported there: the core knows no shell, and admin and client port know no core."""
    doors = (config.NODE_ID_MAX, admin_members.NODE_ID_MAX, reconfig.NODE_ID_MAX)
    assert doors == (membership.NODE_ID_MAX,) * 3
    lengths = (admin_members.ADDRESS_CHARS_MAX, reconfig.ADDRESS_CHARS_MAX)
    assert lengths == (membership.ADDRESS_CHARS_MAX,) * 2


@pytest.mark.parametrize("asked", [1, 2])
def test_a_hand_over_that_was_given_up_is_told_at_once_and_not_as_a_failure(world: World, asked: int) -> None:
    world.ask(asked, LeaderRequest(Action.TRANSFER, 3))
    leader = world.hosts[1]
    leader.hand_over(0)
    world.deliver()
    assert world.told == [], "it has not begun yet"
    leader.hand_over(3)
    world.deliver()
    assert world.told == []
    leader.hand_over(0)
    world.deliver()
    error = world.outcome()
    assert isinstance(error, OutcomeUnknownError)
    assert "node 3 did not take over in time, and node 1 leads term 1 on" in error.message
    assert "may still take over" in error.remedy
    assert world.hosts[asked].administration.pending_count == 0
    leader.hand_over(0)
    world.pass_time(2 * DEADLINE_MS)
    assert len(world.told) == 1


@pytest.mark.parametrize("leads", [2, 3])
def test_of_two_hand_overs_at_once_each_is_told_who_leads(world: World, leads: int) -> None:
    """The later one takes the place of the first, whose node was told to campaign and may still win."""
    leader = world.hosts[1]
    for target in (3, 2):
        world.ask(1, LeaderRequest(Action.TRANSFER, target))
        leader.hand_over(target)
        world.deliver()
    assert world.told == []
    world.lead(leads, 2)
    world.deliver()
    assert 0 in world.told
    (refusal,) = [told for told in world.told if isinstance(told, ChangeRefusedError)]
    assert len(world.told) == 2
    assert f"node {leads} leads term 2 instead of node {5 - leads}" in refusal.message


def test_of_two_hand_overs_that_both_come_to_nothing_each_is_told_so(world: World) -> None:
    for target in (3, 2, 0):
        if target:
            world.ask(1, LeaderRequest(Action.TRANSFER, target))
        world.hosts[1].hand_over(target)
        world.deliver()
    texts = [told.message for told in world.told if isinstance(told, OutcomeUnknownError)]
    assert len(texts) == 2
    assert all(f"node {target} did not take over in time" in " ".join(texts) for target in (2, 3))


def test_a_hand_over_that_succeeds_is_not_told_as_given_up(world: World) -> None:
    world.ask(1, LeaderRequest(Action.TRANSFER, 3))
    world.hosts[1].hand_over(3)
    world.lead(3, 2)
    world.deliver()
    assert world.outcome() == 0
