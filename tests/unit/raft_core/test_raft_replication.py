"""Appending, acknowledging, committing and flow control: what a follower takes and what a leader counts."""

from __future__ import annotations

import pytest

from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import BacklogError, InvariantError, MessageError, NotLeaderError, ProposalError
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    Compacted,
    Halt,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerDown,
    PeerUp,
    Persisted,
    Receive,
    Resume,
    Role,
    Tick,
    Vote,
    VoteReply,
)
from quorum.raft.core.options import Options
from quorum.raft.core.progress import Flow
from tests.unit.raft_core.disk import incarnation_of
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo


def entry(index: int, term: int, payload: bytes = b"x") -> Entry:
    return Entry(index, term, EntryKind.BATCH, index, payload)


def append(
    term: int, prev_index: int, prev_term: int, *entries: Entry, commit: int = 0, probe: bool = False
) -> Append:
    return Append(term, 2, 1, prev_index, prev_term, commit, probe, entries)


def replies(messages: list[Message]) -> list[AppendReply]:
    return [message for message in messages if isinstance(message, AppendReply)]


def appends(messages: list[Message], receiver: int) -> list[Append]:
    return [message for message in messages if isinstance(message, Append) and message.receiver == receiver]


def leader(size: int = 0, options: Options | None = None) -> Solo:
    """A leader of term 2 with entries 1 and 2 (its no-op) committed, both followers replicating."""
    solo = Solo([1], options=options, size=size)
    solo.lead()
    solo.sync()
    for peer in (2, 3):
        solo.hear(AppendReply(2, peer, 1, False, 0, 2, 0, 0))
    assert solo.raft.status().commit_index == 2
    return solo


# --- followers: durable before acknowledged


def test_an_append_is_acknowledged_when_it_is_durable_and_once_for_many() -> None:
    solo = Solo([1])
    assert [reply.match_index for reply in replies(solo.hear(append(1, 1, 1, entry(2, 1))))] == [1]
    assert solo.hear(append(1, 2, 1, entry(3, 1))) == []
    assert [persist.entries for persist in solo.unsynced] == [(entry(2, 1),), (entry(3, 1),)]
    assert [reply.match_index for reply in replies(solo.sync(1))] == [2]
    assert [reply.match_index for reply in replies(solo.sync(1))] == [3]
    solo.hear(append(1, 3, 1, entry(4, 1)))
    solo.hear(append(1, 4, 1, entry(5, 1)))
    assert [reply.match_index for reply in replies(solo.sync())] == [5]


def test_the_first_append_of_a_new_term_waits_for_the_term_too() -> None:
    solo = Solo([1])
    assert solo.hear(append(3, 1, 1, probe=True)) == []
    assert solo.unsynced[0].hard_state == HardState(3, 0)
    assert [reply.match_index for reply in replies(solo.sync())] == [1]


def test_a_persist_of_a_removed_tail_proves_nothing_about_what_took_its_place() -> None:
    solo = Solo([1])
    solo.hear(append(2, 1, 1, entry(2, 2), entry(3, 2), entry(4, 2)))
    solo.hear(append(3, 2, 2, entry(3, 3), entry(4, 3)))
    assert solo.sync(1) == []
    assert solo.raft.status().durable_index == 2
    assert [(reply.term, reply.match_index) for reply in replies(solo.sync())] == [(3, 4)]


def test_an_unknown_persist_is_not_believed() -> None:
    with pytest.raises(InvariantError, match="before it was handed out"):
        Solo([1]).step(Persisted(1))


# --- followers: commit and conflicts (D1, D2)


def test_a_follower_commits_only_what_the_append_proves() -> None:
    solo = Solo([1, 2, 2, 2], hard_state=HardState(3, 0))
    solo.hear(append(3, 1, 1, entry(2, 2, b"2"), commit=4))
    assert solo.raft.status().commit_index == 2
    solo.hear(append(3, 2, 2, commit=4))
    assert solo.raft.status().commit_index == 2


def test_a_heartbeat_commits_only_what_this_leader_proved() -> None:
    solo = Solo([1, 2, 2, 2])
    solo.hear(Heartbeat(3, 2, 1, 4, 0.0))
    assert solo.raft.status().commit_index == 0
    solo.hear(append(3, 3, 2))
    solo.hear(Heartbeat(3, 2, 1, 4, 0.0))
    assert solo.raft.status().commit_index == 3
    solo.hear(Heartbeat(4, 3, 1, 4, 0.0))
    assert solo.raft.status().commit_index == 3


def test_an_older_append_removes_nothing() -> None:
    solo = Solo([1, 1, 1, 1])
    log = solo.log()
    solo.hear(append(1, 1, 1, entry(2, 1), probe=True))
    solo.hear(append(1, 1, 1))
    assert solo.log() == log
    assert solo.unsynced == []


def test_only_the_tail_from_the_first_conflict_is_replaced() -> None:
    solo = Solo([1, 1, 2, 2, 2])
    solo.hear(append(3, 1, 1, entry(2, 1, b"2"), entry(3, 2, b"3"), entry(4, 3)))
    assert solo.log() == [(1, 1), (2, 1), (3, 2), (4, 3)]
    assert [written.index for written in solo.unsynced[0].entries] == [4]


@pytest.mark.parametrize(
    "conflicting",
    [append(3, 1, 1, entry(2, 3)), append(3, 2, 3, entry(3, 3))],
    ids=["entry", "previous entry"],
)
def test_a_conflict_with_what_is_committed_stops_the_node(conflicting: Append) -> None:
    solo = Solo([1, 1, 1])
    solo.hear(append(1, 3, 1, commit=2))
    with pytest.raises(InvariantError, match="is committed there"):
        solo.hear(conflicting)


def test_a_leader_that_takes_its_own_entry_back_stops_the_node() -> None:
    solo = Solo([1])
    solo.hear(append(2, 1, 1, entry(2, 1)))
    with pytest.raises(InvariantError, match="takes entry 2 back"):
        solo.hear(append(2, 1, 1, entry(2, 2)))


@pytest.mark.parametrize(
    ("terms", "prev_index", "prev_term", "hint_index", "hint_term"),
    [
        ([1, 1], 5, 1, 2, 1),  # too short
        ([1, 2, 2, 2], 4, 3, 4, 2),  # an older tail: it may be shared further back
        ([1, 1, 4, 4, 4], 5, 3, 2, 1),  # a tail that the leader cannot have
    ],
)
def test_a_refusal_says_where_the_logs_can_be_equal(
    terms: list[int], prev_index: int, prev_term: int, hint_index: int, hint_term: int
) -> None:
    solo = Solo(terms, hard_state=HardState(9, 0))
    (reply,) = replies(solo.hear(append(9, prev_index, prev_term)))
    assert (reply.rejected, reply.prev_index, reply.match_index) == (True, prev_index, 0)
    assert (reply.hint_index, reply.hint_term) == (hint_index, hint_term)


@pytest.mark.parametrize(
    "broken",
    [
        append(1, 1, 1, entry(3, 1)),
        append(1, 1, 1, entry(2, 1), entry(2, 1)),
        append(1, 1, 1, entry(2, 2)),
        append(1, -1, 0, entry(0, 1)),
        append(1, 0, 1, entry(1, 1)),
        append(1, 1, 0, entry(2, 1)),
        append(2, 1, 2, entry(2, 1)),
        append(1, 1, 1, Entry(2, 1, EntryKind.FOUND, 0, b"{}")),
        append(1, 1, 1, Entry(2, 1, EntryKind.MEMBERS, 0, b"{}")),
        append(1, 0, 0, entry(1, 1)),
    ],
)
def test_an_append_that_contradicts_itself_changes_nothing(broken: Append) -> None:
    empty = broken.prev_index == 0
    solo = Solo([] if empty else [1])
    log = solo.log()
    with pytest.raises(MessageError):
        solo.hear(broken)
    assert solo.log() == log


def test_a_probe_is_always_answered_and_a_commit_is_not() -> None:
    solo = Solo([1, 1])
    assert len(replies(solo.hear(append(1, 2, 1)))) == 1  # the match is news to this leader
    assert replies(solo.hear(append(1, 2, 1, commit=2))) == []
    assert [reply.match_index for reply in replies(solo.hear(append(1, 2, 1, probe=True)))] == [2]
    solo.hear(append(1, 2, 1, entry(3, 1)))
    assert replies(solo.hear(append(1, 2, 1, entry(3, 1), probe=True))) == []
    assert [reply.match_index for reply in replies(solo.sync())] == [3]


def test_what_was_answered_before_there_was_a_connection_is_answered_on_it() -> None:
    """The leader's own connection may be older: it would wait an election timeout for the lost answer."""
    solo = Solo([1, 1])
    solo.hear(append(1, 2, 1, probe=True))
    assert replies(solo.step(PeerUp(3))) == []
    assert [reply.match_index for reply in replies(solo.step(PeerUp(2)))] == [2]
    assert replies(solo.step(Tick(), after_ms=10)) == []


def test_a_heartbeat_says_how_far_the_leader_is_and_commits_only_what_is_proven() -> None:
    solo = Solo([1, 1])
    solo.hear(Heartbeat(1, 2, 1, 0, 0.0, known_index=40))
    status = solo.raft.status()
    assert (status.commit_index, status.known_index, solo.raft.known_index) == (0, 40, 40)
    solo.hear(Heartbeat(1, 2, 1, 0, 1.0, known_index=30))
    assert solo.raft.known_index == 40, "what was committed stays so"
    leader = Solo([1])
    leader.lead()
    leader.sync()
    sent = leader.step(Tick(0))
    leader.now_ms += 1000.0
    sent = [*sent, *leader.step(Tick(0))]
    beats = [message for message in sent if isinstance(message, Heartbeat)]
    assert beats
    assert {beat.known_index for beat in beats} == {leader.raft.status().commit_index}


def test_heartbeats_are_answered_with_the_durable_match() -> None:
    solo = Solo([1])
    solo.hear(append(1, 1, 1, entry(2, 1)))
    assert solo.hear(Heartbeat(1, 2, 1, 0, 77.0)) == [HeartbeatReply(1, 1, 2, 77.0, 1, solo.now_ms)]
    solo.sync()
    assert solo.hear(Heartbeat(1, 2, 1, 0, 78.0)) == [HeartbeatReply(1, 1, 2, 78.0, 2, solo.now_ms)]


def test_a_leader_echoes_the_clock_of_the_last_answer_on_the_connection() -> None:
    solo = Solo([1])
    solo.lead()

    def echoed() -> list[float]:
        sent = solo.step(Tick(), after_ms=60)
        return [each.heard_ms for each in sent if isinstance(each, Heartbeat) and each.receiver == 2]

    assert echoed() == [-1.0]
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 0, 1234.5))
    assert echoed() == [1234.5]
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 0, 1300.0))
    assert echoed() == [1300.0]
    solo.step(PeerUp(2))
    assert echoed() == [-1.0]  # what was sent on the old connection may be lost


# --- leaders: commit (D4, Raft §5.4.2)


def test_a_new_leader_appends_a_no_op_and_sends_it_before_it_is_durable() -> None:
    solo = Solo([1, 1])
    sent = solo.lead()
    assert [(m.prev_index, m.probe, [e.kind for e in m.entries]) for m in appends(sent, 2)] == [
        (2, True, [EntryKind.NOOP])
    ]
    assert appends(sent, 3)
    assert len(solo.unsynced) == 1


def test_a_leader_counts_itself_only_when_durable() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0))
    assert solo.raft.status().commit_index == 2
    solo.sync()
    assert solo.raft.status().commit_index == 3


def test_two_durable_followers_commit_without_the_leaders_disk() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    for peer in (2, 3):
        solo.hear(AppendReply(2, peer, 1, False, 0, 3, 0, 0))
    assert solo.raft.status().commit_index == 3
    assert len(solo.committed) == 2
    solo.sync()
    assert len(solo.committed) == 3


def test_entries_of_older_terms_commit_only_with_one_of_the_own() -> None:
    solo = Solo([1, 2, 2])
    solo.lead()
    solo.sync()
    solo.hear(AppendReply(3, 2, 1, False, 0, 3, 0, 0))
    assert solo.raft.status().commit_index == 0
    solo.hear(AppendReply(3, 2, 1, False, 0, 4, 0, 0))
    assert solo.raft.status().commit_index == 4


def test_many_proposals_leave_in_one_append_and_commits_are_told_at_once() -> None:
    solo = leader()
    for number in range(5):
        solo.raft.propose(EntryKind.BATCH, b"%d" % number, 0)
    sent = solo.drain()
    (to_two,), (to_three,) = appends(sent, 2), appends(sent, 3)
    assert [e.payload for e in to_two.entries] == [b"0", b"1", b"2", b"3", b"4"]
    assert to_two.entries is to_three.entries
    assert len(solo.unsynced) == 1
    solo.sync()
    sent = solo.hear(AppendReply(2, 2, 1, False, 0, 7, 0, 0))
    assert [(m.commit_index, m.entries) for m in sent if isinstance(m, Append)] == [(7, ()), (7, ())]
    assert [e.payload for e in solo.committed[-5:]] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_commit_rides_on_new_entries() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    solo.sync()
    solo.raft.propose(EntryKind.BATCH, b"b", 0)
    sent = solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0))
    assert [(m.commit_index, len(m.entries)) for m in appends(sent, 2)] == [(3, 1)]


def test_a_claim_beyond_the_log_is_refused() -> None:
    solo = leader()
    with pytest.raises(MessageError, match="claims to match up to 9"):
        solo.hear(AppendReply(2, 2, 1, False, 0, 9, 0, 0))
    with pytest.raises(MessageError, match="claims to match up to 9"):
        solo.hear(HeartbeatReply(2, 2, 1, 0.0, 9))
    assert solo.raft.status().commit_index == 2


def test_a_stamp_never_falls_along_the_log() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 5000)
    solo.raft.propose(EntryKind.BATCH, b"b", 4000)
    solo.drain()
    assert [written.stamp_ms for written in solo.unsynced[-1].entries] == [5000, 5000]


# --- leaders: next index, refusals, flow


def peer(solo: Solo, node_id: int) -> tuple[Flow, int, int]:
    (status,) = [status for status in solo.raft.status().peers if status.node_id == node_id]
    return status.flow, status.match_index, status.next_index


def test_a_late_refusal_moves_nothing() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    assert peer(solo, 2) == (Flow.REPLICATE, 2, 4)
    solo.hear(AppendReply(2, 2, 1, True, 1, 0, 0, 0))
    solo.hear(AppendReply(2, 2, 1, True, 2, 0, 0, 0))
    solo.hear(AppendReply(2, 2, 1, True, 9, 0, 0, 0))
    assert peer(solo, 2) == (Flow.REPLICATE, 2, 4)


def test_next_never_falls_to_the_match_whatever_a_refusal_hints() -> None:
    solo = leader()
    for number in range(3):
        solo.raft.propose(EntryKind.BATCH, b"%d" % number, 0)
        solo.drain()
    (again,) = appends(solo.hear(AppendReply(2, 2, 1, True, 4, 0, 0, 0)), 2)
    assert (again.prev_index, again.probe) == (2, True)
    assert peer(solo, 2) == (Flow.PROBE, 2, 3)


def test_an_acknowledgement_moves_next_forward_only() -> None:
    solo = leader()
    for number in range(3):
        solo.raft.propose(EntryKind.BATCH, b"%d" % number, 0)
        solo.drain()
    solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0))
    solo.hear(AppendReply(2, 2, 1, False, 0, 1, 0, 0))
    assert peer(solo, 2) == (Flow.REPLICATE, 3, 6)


def test_a_refusal_with_a_hint_skips_whole_terms() -> None:
    solo = Solo([1, 1, 1, 3, 3, 3, 5, 5])
    solo.lead()
    assert peer(solo, 2)[2] == 9
    # The follower has 1 1 1 4 4 4 4 4 4: nothing of term 3 or 5 can match.
    (probe,) = appends(solo.hear(AppendReply(6, 2, 1, True, 8, 0, 8, 4)), 2)
    assert probe.prev_index == 6
    (probe,) = appends(solo.hear(AppendReply(6, 2, 1, True, 6, 0, 3, 1)), 2)
    assert (probe.prev_index, probe.prev_term) == (3, 1)
    assert appends(solo.hear(AppendReply(6, 2, 1, True, 6, 0, 3, 1)), 2) == []


def test_the_flight_to_a_peer_is_bounded_in_bytes() -> None:
    options = Options(append_bytes_max=300, inflight_bytes_max=1000)
    solo = leader(options=options)
    for _ in range(40):
        solo.raft.propose(EntryKind.BATCH, bytes(86), 0)
    sent = appends(solo.drain(), 2)
    assert [len(message.entries) for message in sent] == [2, 2, 2, 2]
    assert appends(solo.drain(), 2) == []
    (more,) = appends(solo.hear(AppendReply(2, 2, 1, False, 0, 4, 0, 0)), 2)
    assert (more.prev_index, len(more.entries)) == (10, 2)


def test_a_commit_reaches_a_peer_whose_flight_is_full() -> None:
    solo = leader(options=Options(inflight_bytes_max=100))
    solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
    solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
    solo.drain()
    solo.sync()
    sent = solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0))
    assert [(m.prev_index, m.commit_index, len(m.entries)) for m in appends(sent, 3)] == [(4, 3, 0)]


def test_a_lost_connection_goes_back_to_one_probe() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    solo.step(PeerDown(2))
    assert peer(solo, 2) == (Flow.PROBE, 2, 3)
    solo.raft.propose(EntryKind.BATCH, b"b", 0)
    assert appends(solo.drain(), 2) == []
    (probe,) = appends(solo.step(PeerUp(2)), 2)
    assert (probe.prev_index, probe.probe, len(probe.entries)) == (2, True, 2)
    solo.hear(AppendReply(2, 2, 1, False, 0, 4, 0, 0))
    assert peer(solo, 2) == (Flow.REPLICATE, 4, 5)


def test_a_new_leader_asks_a_peer_that_comes_back_what_it_has_and_sends_no_snapshot_unasked() -> None:
    # Simulation: whoever was the leader and restarted got a snapshot of what it had.
    solo = Solo([1, 1, 1])
    solo.lead()
    solo.sync()
    solo.hear(AppendReply(2, 3, 1, False, 0, 4, 0, 0))
    assert solo.raft.status().commit_index == 4
    solo.step(Compacted(4))
    solo.step(PeerDown(2))
    (probe,) = appends(solo.step(PeerUp(2)), 2)
    assert (probe.prev_index, probe.probe, len(probe.entries)) == (3, True, 1)
    assert peer(solo, 2) == (Flow.PROBE, 0, 4)
    solo.hear(AppendReply(2, 2, 1, False, 0, 4, 0, 0))
    assert peer(solo, 2) == (Flow.REPLICATE, 4, 5)


def test_a_new_connection_learns_at_once_who_leads() -> None:
    solo = leader()
    assert 2 in [message.receiver for message in solo.step(PeerUp(2)) if isinstance(message, Heartbeat)]


def test_appends_without_any_progress_are_probed_again() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    sent: list[Message] = []
    for _ in range(20):
        sent += solo.tick(50)
        for node_id in (2, 3):
            sent += solo.hear(HeartbeatReply(2, node_id, 1, solo.now_ms, 2))
    assert 1 <= len(appends(sent, 2)) <= 3
    assert appends(sent, 2)[0].probe


def test_a_lost_acknowledgement_is_healed_by_the_next_heartbeat() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    solo.sync()
    solo.hear(HeartbeatReply(2, 2, 1, solo.now_ms, 3))
    assert solo.raft.status().commit_index == 3


def test_heartbeats_carry_no_commit_beyond_the_peers_match() -> None:
    solo = leader()
    solo.raft.propose(EntryKind.BATCH, b"a", 0)
    solo.drain()
    solo.sync()
    solo.hear(AppendReply(2, 2, 1, False, 0, 3, 0, 0))
    heartbeats = [message for message in solo.tick(60) if isinstance(message, Heartbeat)]
    assert {message.receiver: message.commit_index for message in heartbeats} == {2: 3, 3: 2}


def test_entries_that_left_memory_are_read_from_the_journal() -> None:
    solo = Solo([1, 1, 1, 1, 1, 1], tail=1)
    sent = solo.lead()
    assert appends(sent, 2)[0].prev_index == 6
    (probe,) = appends(solo.hear(AppendReply(2, 2, 1, True, 6, 0, 2, 1)), 2)
    assert [(e.index, e.payload) for e in probe.entries] == [(3, b"3"), (4, b"4"), (5, b"5")]
    solo.sync()
    solo.hear(AppendReply(2, 2, 1, False, 0, 7, 0, 0))
    assert [e.index for e in solo.committed] == [1, 2, 3, 4, 5, 6, 7]


def test_memory_keeps_what_is_not_durable_and_is_bounded_otherwise() -> None:
    options = Options(log_cache_bytes_max=2000)
    solo = leader(options=options)
    for _ in range(50):
        solo.raft.propose(EntryKind.BATCH, bytes(136), 0)
    solo.drain()
    for node_id in (2, 3):
        solo.hear(AppendReply(2, node_id, 1, False, 0, 52, 0, 0))
    assert (solo.raft.status().commit_index, len(solo.committed)) == (52, 2)
    assert solo.raft.status().cache_bytes >= 50 * 200
    solo.sync()
    assert len(solo.committed) == 52
    solo.raft.propose(EntryKind.BATCH, b"", 0)
    solo.drain()
    solo.sync()
    solo.hear(AppendReply(2, 2, 1, False, 0, 53, 0, 0))
    assert solo.raft.status().cache_bytes <= 2000


def test_committed_entries_come_in_bounded_portions() -> None:
    solo = leader(options=Options(committed_bytes_max=150))
    for _ in range(7):
        solo.raft.propose(EntryKind.BATCH, b"", 0)
    solo.drain()
    solo.sync()
    solo.raft.step(Receive(AppendReply(2, 2, 1, False, 0, 9, 0, 0), incarnation_of(2)), solo.now_ms)
    portions = []
    while (ready := solo.raft.ready()) is not None:
        portions.append([e.index for e in ready.committed])
    assert portions == [[3, 4], [5, 6], [7, 8], [9]]


# --- proposals


def test_proposals_are_refused_with_the_reason() -> None:
    solo = leader(options=Options(entry_bytes_max=100, backlog_bytes_max=300))
    with pytest.raises(ProposalError, match="101 bytes; entry_bytes_max is 100"):
        solo.raft.propose(EntryKind.BATCH, bytes(101), 0)
    for kind in (EntryKind.NOOP, EntryKind.FOUND, EntryKind.MEMBERS):
        with pytest.raises(ProposalError, match=kind.name):
            solo.raft.propose(kind, b"", 0)
    for _ in range(2):
        solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
    with pytest.raises(BacklogError, match="328 bytes wait"):
        solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
    with pytest.raises(NotLeaderError, match="leader: unknown"):
        Solo([1]).raft.propose(EntryKind.BATCH, b"", 0)
    follower = Solo([1])
    follower.hear(Heartbeat(1, 2, 1, 0, 0.0))
    with pytest.raises(NotLeaderError) as refused:
        follower.raft.propose(EntryKind.BATCH, b"", 0)
    assert refused.value.leader_id == 2


def test_a_leader_whose_own_disk_stalls_takes_no_more_than_its_bound_and_leaves_the_lead() -> None:
    solo = leader(options=Options(backlog_bytes_max=300))
    for _ in range(2):
        solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
        solo.drain()
        for peer in (2, 3):
            solo.hear(AppendReply(2, peer, 1, False, 0, solo.raft.status().last_index, 0, 0))
    status = solo.raft.status()
    assert status.commit_index == status.last_index, "the others commit without it"
    assert status.durable_index < status.last_index
    with pytest.raises(NotLeaderError, match="stepped down: 328 bytes wait for its own disk"):
        solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
    assert solo.role() is Role.FOLLOWER


def test_what_became_durable_here_makes_room_for_proposals() -> None:
    solo = leader(options=Options(backlog_bytes_max=300))
    for _ in range(20):
        solo.raft.propose(EntryKind.BATCH, bytes(100), 0)
        solo.sync()
        solo.hear(AppendReply(2, 2, 1, False, 0, solo.raft.status().last_index, 0, 0))
    assert solo.role() is Role.LEADER


# --- a full disk


def test_a_full_disk_ends_leadership_and_stops_campaigns() -> None:
    solo = leader()
    solo.step(Halt("no space left"))
    assert solo.role() is Role.FOLLOWER
    assert solo.raft.status().halted == "no space left"
    assert solo.tick(3000) == []
    solo.step(Resume())
    assert [message for message in solo.tick(700) if isinstance(message, Vote)]


def test_a_full_disk_acknowledges_nothing_and_takes_nothing() -> None:
    solo = Solo([1])
    solo.hear(append(1, 1, 1, entry(2, 1)))
    solo.step(Halt("no space left"))
    assert solo.hear(append(1, 2, 1, entry(3, 1), commit=1)) == []
    assert solo.hear(Heartbeat(1, 2, 1, 1, 0.0)) == []
    assert solo.sync() == []
    assert solo.hear(Heartbeat(9, 3, 1, 0, 0.0)) == []
    assert solo.hear(AppendReply(9, 3, 1, False, 0, 1, 0, 0)) == []
    (refusal,) = solo.hear(Vote(9, 3, 1, False, True, 9, 8))
    assert refusal[:6] == VoteReply(1, 1, 3, False, False, 9)[:6]
    status = solo.raft.status()
    assert (status.term, status.last_index) == (1, 2)
    assert [reply.match_index for reply in replies(solo.step(Resume()))] == [2]


def test_a_full_disk_on_one_node_stops_nobody_else() -> None:
    world = World(5)
    world.await_(world.stable)
    leader_id = world.leader()
    assert leader_id is not None
    world.halt(leader_id, 3000)
    world.await_(
        lambda: (world.leader() or leader_id) != leader_id and world.propose(world.leader() or 0), 2000
    )
    world.run_for(3500)
    world.await_(world.stable)


# --- the whole


def test_a_restarted_node_learns_the_commit_index_from_the_leader() -> None:
    world = World(8)
    world.await_(world.stable)
    for _ in range(10):
        assert world.propose(world.leader() or 0, 3)
        world.run_for(5)
    world.await_(world.stable)
    follower = next(node_id for node_id in world.ids if node_id != world.leader())
    world.crash(follower)
    process = world.start(follower)
    assert process.raft.status().commit_index == 0
    world.await_(world.stable, within_ms=200)
    assert len(process.applied) == len(world.committed)


def test_everything_acknowledged_survives_a_kill_of_all() -> None:
    world = World(9)
    world.await_(world.stable)
    world.propose(world.leader() or 0, 20)
    world.await_(world.stable)
    before = dict(world.committed)
    for node_id in world.ids:
        world.crash(node_id)
    for node_id in world.ids:
        world.start(node_id)
    world.settle()
    assert {index: world.committed[index] for index in before} == before
