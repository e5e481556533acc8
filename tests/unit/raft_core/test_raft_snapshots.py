"""Snapshots: transfers at both ends, installs, compaction, and what a start makes of log and snapshot."""

from __future__ import annotations

import pytest

from quorum.raft.core.configuration import founding_configuration
from quorum.raft.core.entry import Entry, EntryKind
from quorum.raft.core.errors import InvariantError, MessageError
from quorum.raft.core.membership import AddMember
from quorum.raft.core.messages import (
    Append,
    AppendReply,
    ChunkRead,
    ChunkReadFailed,
    ChunkWritten,
    Compacted,
    Halt,
    HardState,
    Heartbeat,
    HeartbeatReply,
    Message,
    PeerUp,
    Receive,
    Resume,
    Role,
    SnapshotChunk,
    SnapshotChunkReply,
    SnapshotFailed,
    SnapshotInstalled,
    SnapshotMark,
    SnapshotRead,
    Stimulus,
)
from quorum.raft.core.options import Options
from quorum.raft.core.progress import Flow
from tests.unit.raft_core.disk import CLUSTER_ID, incarnation_of
from tests.unit.raft_core.harness import World
from tests.unit.raft_core.solo import Solo

CONFIGURATION = founding_configuration(
    {peer: f"127.0.0.1:{7000 + peer}" for peer in (1, 2, 3)},
    {peer: incarnation_of(peer) for peer in (1, 2, 3)},
)._replace(cluster_id=CLUSTER_ID)


LATER = CONFIGURATION._replace(retired=(incarnation_of(9),))


def mark(index: int, term: int) -> SnapshotMark:
    return SnapshotMark(index, term, 0, CONFIGURATION)


def batch(index: int, term: int) -> Entry:
    return Entry(index, term, EntryKind.BATCH, 0, b"x")


# --- the leader's end


def sender() -> Solo:
    """Leads term 3 over a log that begins at 6; node 2 has all, node 3 needs a snapshot."""
    solo = Solo([1, 1, 1, 2, 2, 2], snapshot=mark(5, 2), options=Options(snapshot_chunk_bytes_max=10))
    solo.lead()
    solo.sync()
    solo.hear(AppendReply(3, 2, 1, False, 0, 7, 0, 0))
    assert solo.reads == []
    solo.hear(AppendReply(3, 3, 1, True, 6, 0, 0, 0))
    assert solo.reads == [SnapshotRead(3, 1, 0, 10)]
    solo.reads.clear()
    return solo


def flow(solo: Solo, node_id: int = 3) -> Flow:
    return next(peer.flow for peer in solo.raft.status().peers if peer.node_id == node_id)


def read(offset: int, transfer: int = 1, data: bytes = bytes(10)) -> ChunkRead:
    return ChunkRead(3, transfer, 5, 2, offset, 25, data)


def chunk_reply(
    offset: int, transfer: int = 1, installed: bool = False, rejected: bool = False
) -> SnapshotChunkReply:
    return SnapshotChunkReply(3, 3, 1, transfer, offset, installed, rejected, 5 if installed else 0)


def chunks(messages: list[Message]) -> list[tuple[int, int, int]]:
    return [(m.transfer, m.offset, len(m.data)) for m in messages if isinstance(m, SnapshotChunk)]


def keep_alive(solo: Solo, duration_ms: float) -> list[Message]:
    sent: list[Message] = []
    for _ in range(int(duration_ms // 50)):
        sent += solo.tick(50)
        for peer in (2, 3):
            sent += solo.hear(HeartbeatReply(3, peer, 1, solo.now_ms, 0))
    return sent


def test_a_snapshot_goes_piece_by_piece_and_entries_follow() -> None:
    solo = sender()
    sent = solo.step(read(0))
    assert chunks(sent) == [(1, 0, 10)]
    (chunk,) = [message for message in sent if isinstance(message, SnapshotChunk)]
    assert (chunk.snapshot_index, chunk.snapshot_term, chunk.total_bytes) == (5, 2, 25)
    solo.hear(chunk_reply(10))
    assert chunks(solo.step(read(10))) == [(1, 10, 10)]
    solo.hear(chunk_reply(20))
    assert chunks(solo.step(read(20, data=bytes(5)))) == [(1, 20, 5)]
    assert [piece.offset for piece in solo.reads] == [10, 20]
    assert solo.released == []
    sent = solo.hear(chunk_reply(0, installed=True))
    assert solo.released == [1]
    (append,) = [message for message in sent if isinstance(message, Append) and message.receiver == 3]
    assert (append.prev_index, append.prev_term, append.probe) == (5, 2, True)


def test_repeated_and_foreign_replies_start_nothing() -> None:
    solo = sender()
    solo.step(read(0))
    solo.hear(chunk_reply(10))
    solo.step(read(10))
    solo.reads.clear()
    solo.hear(chunk_reply(10))
    solo.hear(chunk_reply(20, transfer=9))
    solo.hear(chunk_reply(0, transfer=9, installed=True))
    assert solo.reads == []
    assert chunks(solo.step(read(10))) == []
    assert chunks(solo.step(read(20, transfer=9))) == []
    assert flow(solo) is Flow.SNAPSHOT


def test_a_receiver_that_lost_its_pieces_gets_all_again() -> None:
    solo = sender()
    solo.step(read(0))
    solo.hear(chunk_reply(10))
    solo.step(read(10))
    solo.hear(chunk_reply(0))
    assert solo.reads[-1] == SnapshotRead(3, 1, 0, 10)


@pytest.mark.parametrize("how", ["rejected", "unreadable", "empty", "too long"])
def test_a_failed_transfer_is_released_and_begun_again_later(how: str) -> None:
    solo = sender()
    if how == "rejected":
        solo.step(read(0))
        solo.hear(chunk_reply(0, rejected=True))
    elif how == "unreadable":
        solo.step(ChunkReadFailed(3, 1))
    else:
        solo.step(read(0, data=b"" if how == "empty" else bytes(26)))
    assert solo.released == [1]
    assert solo.reads == []
    keep_alive(solo, 400)
    assert solo.reads == []
    keep_alive(solo, 400)
    assert solo.reads == [SnapshotRead(3, 2, 0, 10)]


def test_no_transfer_to_a_peer_that_is_not_there() -> None:
    solo = sender()
    for turn in range(40):
        solo.tick(50)
        solo.hear(HeartbeatReply(3, 2, 1, solo.now_ms, 7))
        if turn == 13:
            solo.step(ChunkReadFailed(3, 1))
    assert solo.reads == []


def test_a_lost_piece_is_sent_again_on_a_new_connection_or_after_long_silence() -> None:
    solo = sender()
    solo.step(read(0))
    solo.step(PeerUp(3))
    assert solo.reads == [SnapshotRead(3, 1, 0, 10)]
    solo.step(read(0))
    solo.reads.clear()
    keep_alive(solo, 4000)
    assert solo.reads == []
    keep_alive(solo, 1000)
    assert solo.reads == [SnapshotRead(3, 1, 0, 10)]


def test_a_transfer_to_a_dead_peer_is_released() -> None:
    solo = sender()
    solo.step(read(0))
    for _ in range(110):
        solo.tick(50)
        solo.hear(HeartbeatReply(3, 2, 1, solo.now_ms, 7))
    assert solo.released == [1]


def test_a_read_of_a_transfer_that_is_over_is_not_handed_out() -> None:
    solo = sender()
    solo.step(read(0))
    for message in (chunk_reply(10), HeartbeatReply(9, 2, 1, 0.0, 0)):
        solo.raft.step(Receive(message, incarnation_of(message.sender)), solo.now_ms)
    solo.drain()
    assert (solo.reads, solo.released) == ([], [1])


def test_transfers_end_with_the_leadership() -> None:
    solo = sender()
    solo.hear(HeartbeatReply(9, 2, 1, 0.0, 0))
    assert solo.role() is Role.FOLLOWER
    assert solo.released == [1]


def test_an_installed_snapshot_that_was_lost_on_the_way_back_shows_in_heartbeats() -> None:
    solo = sender()
    solo.step(read(0))
    solo.hear(HeartbeatReply(3, 3, 1, 0.0, 5))
    assert solo.released == [1]
    assert flow(solo) is Flow.PROBE


def test_an_install_beyond_the_log_is_not_believed() -> None:
    solo = sender()
    solo.step(read(0))
    with pytest.raises(MessageError, match="our log ends at 7"):
        solo.hear(chunk_reply(0, installed=True)._replace(match_index=99))
    assert flow(solo) is Flow.SNAPSHOT


# --- the follower's end


def chunk(
    offset: int,
    size: int,
    *,
    total: int = 25,
    index: int = 5,
    term: int = 3,
    transfer: int = 1,
    node_id: int = 2,
) -> SnapshotChunk:
    return SnapshotChunk(term, node_id, 1, transfer, index, 2, offset, total, bytes(size))


def answers(messages: list[Message]) -> list[tuple[int, bool, bool, int]]:
    return [
        (m.offset, m.installed, m.rejected, m.match_index)
        for m in messages
        if isinstance(m, SnapshotChunkReply)
    ]


def receiver(terms: list[int] | None = None) -> Solo:
    return Solo(terms or [1], hard_state=HardState(3, 0))


def installed(install: int = 1, index: int = 5) -> SnapshotInstalled:
    return SnapshotInstalled(install, index, 2, 50, LATER)


def receive_all(solo: Solo) -> None:
    for offset in (0, 10):
        assert solo.hear(chunk(offset, 10)) == []
        assert answers(solo.step(ChunkWritten(1, offset + 10))) == [(offset + 10, False, False, 0)]
    assert solo.hear(chunk(20, 5)) == []


def test_pieces_are_written_in_order_and_the_last_says_so() -> None:
    solo = receiver()
    receive_all(solo)
    assert [(w.install, w.offset, len(w.data), w.last) for w in solo.writes] == [
        (1, 0, 10, False),
        (1, 10, 10, False),
        (1, 20, 5, True),
    ]
    assert solo.raft.status().installing


def test_an_install_is_acknowledged_with_its_own_index_only_when_it_is_done() -> None:
    solo = receiver()
    receive_all(solo)
    assert answers(solo.step(installed())) == [(0, True, False, 5)]
    status = solo.raft.status()
    assert (status.first_index, status.last_index, status.durable_index, status.commit_index) == (6, 5, 5, 5)
    assert solo.raft.configuration_at(5) == LATER
    assert solo.committed == []
    solo.hear(Append(3, 2, 1, 5, 2, 6, False, (batch(6, 3),)))
    solo.sync()
    assert [entry.index for entry in solo.committed] == [6]


def test_a_failed_install_is_refused_and_counts_nothing() -> None:
    solo = receiver()
    receive_all(solo)
    assert answers(solo.step(SnapshotFailed(1))) == [(0, False, True, 0)]
    status = solo.raft.status()
    assert (status.last_index, status.commit_index, status.installing) == (1, 0, False)


def test_repeats_and_gaps_are_answered_with_what_is_wanted() -> None:
    solo = receiver()
    solo.hear(chunk(0, 10))
    assert solo.hear(chunk(0, 10)) == []  # it is being written: the answer comes when it is
    solo.step(ChunkWritten(1, 10))
    assert answers(solo.hear(chunk(0, 10))) == [(10, False, False, 0)]
    assert answers(solo.hear(chunk(20, 5))) == [(10, False, False, 0)]
    assert len(solo.writes) == 1


def test_the_middle_of_an_unknown_transfer_is_wanted_from_the_start() -> None:
    solo = receiver()
    assert answers(solo.hear(chunk(10, 10))) == [(0, False, False, 0)]
    solo.hear(chunk(0, 10))
    solo.step(ChunkWritten(1, 10))
    assert answers(solo.hear(chunk(10, 10, transfer=2))) == [(0, False, False, 0)]
    assert answers(solo.hear(chunk(10, 10, total=26))) == [(0, False, False, 0)]
    assert len(solo.writes) == 1


@pytest.mark.parametrize("written", [False, True])
@pytest.mark.parametrize("end", [Halt("no room"), Receive(Heartbeat(4, 3, 1, 0, 0.0), incarnation_of(3))])
def test_a_part_that_nothing_will_continue_is_given_up(end: Stimulus, written: bool) -> None:
    solo = receiver()
    solo.hear(chunk(0, 10))
    if written:
        solo.step(ChunkWritten(1, 10))
    assert solo.aborted == []
    solo.step(end)
    assert solo.aborted == [1]
    assert solo.step(ChunkWritten(1, 10)) == []
    solo.step(Resume())
    solo.hear(chunk(0, 10, term=4, node_id=3))
    solo.sync()
    assert [write.install for write in solo.writes] == [1, 2]


def test_no_piece_is_written_before_the_term_in_which_it_came_is_durable() -> None:
    """Else a crash could leave a snapshot of a term that the hard state has not seen, and no start works."""
    solo = receiver()
    solo.hear(chunk(0, 10, total=10, index=50, term=4, node_id=3))
    assert (solo.writes, solo.raft.status().installing) == ([], True)
    solo.sync()
    assert [(write.snapshot_index, write.last) for write in solo.writes] == [(50, True)]


def test_a_part_that_is_given_up_before_it_is_handed_out_is_never_written() -> None:
    solo = receiver()
    solo.raft.step(Receive(chunk(0, 10), incarnation_of(2)), solo.now_ms)
    solo.step(Halt("no room"))
    assert (solo.writes, solo.aborted) == ([], [1])


def test_a_whole_snapshot_is_installed_whoever_leads() -> None:
    solo = receiver()
    receive_all(solo)
    solo.step(Halt("no room"))
    solo.step(Resume())
    solo.hear(Heartbeat(4, 3, 1, 0, 0.0))
    assert solo.aborted == []
    solo.step(installed())
    assert solo.raft.status().commit_index == 5


def test_a_new_transfer_takes_the_place_of_the_old_one() -> None:
    solo = receiver()
    solo.hear(chunk(0, 10))
    solo.hear(chunk(0, 10, transfer=2))
    assert [write.install for write in solo.writes] == [1, 2]
    assert solo.step(ChunkWritten(1, 10)) == []
    assert answers(solo.step(ChunkWritten(2, 10))) == [(10, False, False, 0)]
    assert solo.step(SnapshotFailed(1)) == []


@pytest.mark.parametrize(
    "broken",
    [
        chunk(0, 0),
        chunk(20, 6),
        chunk(-1, 5),
        chunk(0, 10)._replace(snapshot_term=4),
        chunk(0, 10)._replace(snapshot_term=0),
    ],
)
def test_impossible_pieces_are_refused(broken: SnapshotChunk) -> None:
    solo = receiver()
    with pytest.raises(MessageError, match="snapshot piece of node 2"):
        solo.hear(broken)
    assert solo.writes == []


def test_a_snapshot_that_is_all_here_is_acknowledged_without_a_write() -> None:
    solo = receiver([1, 1, 1, 2, 2, 2])
    solo.hear(Append(3, 2, 1, 6, 2, 6, True, ()))
    assert answers(solo.hear(chunk(0, 10))) == [(0, True, False, 6)]
    assert solo.writes == []


def test_nothing_moves_while_a_snapshot_is_loaded() -> None:
    solo = receiver([1, 1])
    solo.hear(Append(3, 2, 1, 2, 1, 0, True, ()))
    receive_all(solo)
    assert [
        m for m in solo.hear(Append(3, 2, 1, 2, 1, 2, True, (batch(3, 3),))) if isinstance(m, AppendReply)
    ] == []
    solo.hear(Heartbeat(3, 2, 1, 2, 0.0))
    assert solo.committed == []
    assert (solo.raft.status().last_index, solo.raft.status().commit_index) == (2, 0)
    assert solo.hear(chunk(0, 10, transfer=2)) == []
    assert [message for message in solo.tick(2000) if not isinstance(message, AppendReply)] == []
    solo.step(installed())
    assert solo.raft.status().commit_index == 5


def test_what_was_not_handed_out_yet_is_left_to_the_snapshot() -> None:
    solo = receiver([1, 1])
    for message in (Append(3, 2, 1, 2, 1, 2, True, ()), chunk(0, 25)):
        solo.raft.step(Receive(message, incarnation_of(2)), solo.now_ms)
    solo.drain()
    assert (solo.committed, len(solo.writes)) == ([], 1)
    solo.step(installed())
    assert solo.committed == []


def test_the_log_beyond_a_snapshot_is_kept_only_if_it_continues_it() -> None:
    solo = receiver([1, 1, 1, 1, 2, 2, 2])
    receive_all(solo)
    solo.step(installed())
    assert solo.raft.status().last_index == 7
    other = receiver([1, 1, 1, 1, 1, 1, 1])
    receive_all(other)
    other.step(installed())
    status = other.raft.status()
    assert (status.last_index, status.durable_index, other.raft.term_at(5)) == (5, 5, 2)


def test_persists_of_a_log_that_a_snapshot_replaced_prove_nothing() -> None:
    solo = receiver()
    solo.hear(Append(3, 2, 1, 1, 1, 0, False, tuple(batch(index, 1) for index in range(2, 9))))
    solo.hear(chunk(0, 25, term=4, node_id=3))
    solo.step(installed())
    solo.hear(Append(4, 3, 1, 5, 2, 5, False, (batch(6, 4),)))
    solo.sync(1)
    assert solo.raft.status().durable_index == 5


def test_a_leader_whose_snapshot_contradicts_its_own_log_stops_the_node() -> None:
    solo = receiver()
    solo.hear(Append(3, 2, 1, 1, 1, 0, False, tuple(batch(index, 1) for index in range(2, 9))))
    solo.hear(chunk(0, 25))
    with pytest.raises(InvariantError, match="contradicts the log that its own leader sent"):
        solo.step(installed())


def test_an_install_of_another_leaders_time_is_not_acknowledged() -> None:
    solo = receiver()
    receive_all(solo)
    solo.hear(Heartbeat(4, 3, 1, 0, 0.0))
    solo.sync()
    assert answers(solo.step(installed())) == []
    assert solo.raft.status().commit_index == 5
    assert [
        m.match_index for m in solo.hear(Heartbeat(4, 3, 1, 5, 0.0)) if isinstance(m, HeartbeatReply)
    ] == [0]


@pytest.mark.parametrize("wrong", [installed(install=2), installed(index=4)])
def test_an_install_that_was_not_asked_for_stops_the_node(wrong: SnapshotInstalled) -> None:
    solo = receiver()
    receive_all(solo)
    with pytest.raises(InvariantError, match="installed"):
        solo.step(wrong)


# --- compaction and the start


def test_compaction_forgets_entries_and_keeps_the_term_before_them() -> None:
    solo = Solo([1, 1, 2, 2])
    solo.hear(Append(2, 2, 1, 4, 2, 4, True, ()))
    solo.step(Compacted(4))
    assert [solo.raft.term_at(index) for index in range(1, 6)] == [None, None, 2, 2, None]
    (reply,) = [m for m in solo.hear(Append(2, 2, 1, 4, 2, 4, True, ())) if isinstance(m, AppendReply)]
    assert reply.match_index == 4
    solo.hear(Append(2, 2, 1, 1, 1, 4, False, (batch(2, 1), batch(3, 2), batch(4, 2), batch(5, 2))))
    assert solo.raft.status().last_index == 5


def test_what_was_not_handed_out_cannot_be_compacted() -> None:
    solo = Solo([1, 1, 2, 2])
    with pytest.raises(InvariantError, match="only 0 was handed out"):
        solo.step(Compacted(2))


def test_a_snapshot_stores_the_configuration_of_its_own_index() -> None:
    world = World(6)
    world.await_(world.stable)
    world.change(world.leader() or 0, AddMember(4, "h:4"))
    world.join(4)
    world.await_(lambda: world.voters() == [1, 2, 3, 4])
    raft = world.processes[1].raft
    marks = [raft.configuration_at(index) for index in (1, 2, 3)]
    assert [sorted(each.voters) for each in marks if each is not None] == [[1, 2, 3], [1, 2, 3], [1, 2, 3, 4]]
    assert [sorted(each.learners) for each in marks if each is not None] == [[], [4], []]


@pytest.mark.parametrize(
    ("terms", "index", "term", "log"),
    [
        ([1, 1, 2, 2], 3, 2, [(4, 2)]),  # the log goes on behind the snapshot
        ([1, 1], 5, 2, []),  # the log ends before it
        ([1, 1, 1, 1, 1, 1], 5, 2, [(6, 1)]),  # compacted up to it: its term is known from the snapshot only
    ],
)
def test_a_start_keeps_what_lies_beyond_the_snapshot(
    terms: list[int], index: int, term: int, log: list[tuple[int, int]]
) -> None:
    if terms[-1] < term and len(terms) > index:
        with pytest.raises(InvariantError, match="cannot come before"):
            Solo(terms, snapshot=mark(index, term), hard_state=HardState(2, 0), anchored=False)
        return
    solo = Solo(terms, snapshot=mark(index, term), hard_state=HardState(2, 0), anchored=False)
    assert solo.log() == log
    status = solo.raft.status()
    assert (status.commit_index, status.handed_index) == (index, index)
    assert solo.raft.term_at(index) == term


def test_a_start_refuses_a_gap_between_snapshot_and_log() -> None:
    solo = Solo([1, 1, 2, 2], snapshot=mark(3, 2))
    with pytest.raises(InvariantError, match="begins at 4, the snapshot ends at 2"):
        solo.restart(snapshot=mark(2, 1))


def test_a_start_drops_a_log_that_contradicts_the_snapshot() -> None:
    solo = Solo([1, 1, 1, 1])
    again = solo.restart(snapshot=mark(3, 2), hard_state=HardState(2, 0))
    assert again.log() == []
    assert again.raft.term_at(3) == 2


def test_a_start_refuses_a_log_ahead_of_its_hard_state() -> None:
    with pytest.raises(InvariantError, match="hard state is of term 1"):
        Solo([1, 2], hard_state=HardState(1, 0))


# --- the whole


@pytest.mark.parametrize("seed", range(6))
def test_a_follower_that_fell_behind_catches_up_through_a_snapshot(seed: int) -> None:
    world = World(seed, options=Options(snapshot_chunk_bytes_max=300))
    world.await_(world.stable)
    world.run_for(100)
    lagging = next(node_id for node_id in world.ids if node_id != world.leader())
    world.crash(lagging)
    for _ in range(10):
        assert world.propose(world.leader() or 0, 5, 20)
        world.run_for(20)
    for node_id in sorted(world.processes):
        world.snapshot(node_id)
    assert world.propose(world.leader() or 0, 5)
    world.start(lagging)
    world.loss = 0.02
    world.repeat = 0.1
    world.run_for(2000)
    world.settle()
    assert world.installs >= 1
    assert len(world.processes[lagging].applied) == len(world.committed)
