"""Requests and replies of connections: order, runs, limits, and what ends a connection."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from quorum.core.codes import SESSION_EXPIRED
from quorum.server.operations import ANSWERS
from quorum.wire.operations import OPERATIONS, Treatment
from quorum.wire.protocol import OpCode
from quorum.wire.replies import decode_multi, decode_path_stat
from quorum.wire.requests import PING_FRAME, encode_command, encode_connect
from tests.unit.server.frames import (
    EXISTS,
    GET_CHILDREN,
    GET_CHILDREN2,
    GET_DATA,
    create,
    read,
    runs_of,
    set_data,
    xids,
)
from tests.unit.server.memory import GREETING, MemoryNode

# -- replies --


def test_each_operation_is_answered_as_zookeeper_does() -> None:
    client = MemoryNode().greeted()
    client.send(
        create(1, "/a", b"one"),
        encode_command(2, [15, "/a/b", None, None, 0]),
        set_data(3, "/a", b"two!"),
        read(4, EXISTS, "/a"),
        read(5, GET_DATA, "/a"),
        read(6, GET_DATA, "/a/b"),
        read(7, GET_CHILDREN, "/a"),
        read(8, GET_CHILDREN2, "/a"),
        encode_command(9, [14, [[13, "/a", 1], [1, "/a/c", b"", None, 0], [2, "/a/b", 0]]]),
        encode_command(10, [9, "/a"]),
        PING_FRAME,
        encode_command(12, [2, "/a/c", -1]),
        encode_command(13, [-11]),
    )
    replies = client.replies()
    assert xids(replies) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, -2, 12, 13]
    assert {reply.err for reply in replies} == {0}
    assert replies[0].body == struct.pack(">i", 2) + b"/a"
    path, stat = decode_path_stat(bytes(16) + replies[1].body)
    assert (path, stat.czxid, stat.mzxid, stat.pzxid) == ("/a/b", 3, 3, 3)
    assert len(replies[2].body) == 68
    assert replies[3].body == replies[4].body[8:]
    assert replies[4].body[:8] == struct.pack(">i", 4) + b"two!"
    assert replies[5].body[:4] == struct.pack(">i", -1)
    assert replies[6].body == struct.pack(">ii", 1, 1) + b"b"
    assert replies[7].body == replies[6].body + replies[3].body
    results = decode_multi(bytes(16) + replies[8].body)
    assert [(result.op, result.err, result.path) for result in results] == [
        (13, 0, None),
        (1, 0, "/a/c"),
        (2, 0, None),
    ]
    assert replies[9].body == struct.pack(">i", 2) + b"/a"
    assert [replies[index].body for index in (10, 11, 12)] == [b"", b"", b""]
    assert client.has_ended()


def test_writes_have_dense_zxids_and_reads_the_last_one() -> None:
    client = MemoryNode().greeted()
    client.send(create(1, "/a"), create(2, "/a"), read(3, EXISTS, "/a"), set_data(4, "/a"), PING_FRAME)
    client.send(encode_command(5, [9, "/"]), read(6, EXISTS, "/none"))
    assert [reply.zxid for reply in client.replies()] == [2, 3, 3, 4, 4, 4, 4]


def test_errors_have_a_header_and_nothing_else() -> None:
    client = MemoryNode().greeted()
    client.send(
        read(1, GET_DATA, "/none"),
        set_data(2, "/none"),
        create(3, "relative"),
        create(4, "/none/b"),
        encode_command(5, [1, "/a", b"", [], 0]),
    )
    assert [(reply.err, reply.body) for reply in client.replies()] == [
        (code, b"") for code in (-101, -101, -8, -101, -114)
    ]


def test_a_failed_multi_has_no_error_in_its_header() -> None:
    client = MemoryNode().greeted()
    client.send(encode_command(1, [14, [[1, "/a", b"", None, 0], [13, "/none", -1], [2, "/a", -1]]]))
    reply = client.replies()[0]
    assert reply.err == 0
    assert [result.err for result in decode_multi(bytes(16) + reply.body)] == [0, -101, -2]


# -- runs and order --


def test_consecutive_writes_make_one_run_and_a_read_between_them_makes_two() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a"), create(2, "/b"), read(3, EXISTS, "/b"), create(4, "/c"))
    assert [[command[1] for command in run] for run in runs_of(node)] == [["/a", "/b"], ["/c"]]


def test_a_read_sees_the_writes_before_it_and_none_behind_it() -> None:
    client = MemoryNode().greeted()
    client.send(
        create(1, "/a", b"0"),
        *(
            frame
            for number in range(1, 6)
            for frame in (set_data(10 * number, "/a", b"%d" % number), read(10 * number + 1, GET_DATA, "/a"))
        ),
    )
    replies = client.replies()
    assert xids(replies) == [1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51]
    assert [reply.body[4:5] for reply in replies[2::2]] == [b"1", b"2", b"3", b"4", b"5"]


def test_a_read_behind_a_pending_write_waits_and_reads_of_others_do_not() -> None:
    node = MemoryNode()
    writer, reader = node.greeted(), node.greeted()
    node.replica.holding = True
    writer.send(create(1, "/a"))
    writer.send(read(2, EXISTS, "/a"), PING_FRAME)
    reader.send(read(1, EXISTS, "/a"))
    assert writer.replies() == []
    assert [reply.err for reply in reader.replies()] == [-101]
    node.replica.release()
    assert [(reply.xid, reply.err) for reply in writer.replies()] == [(1, 0), (2, 0), (-2, 0)]


def test_reads_between_runs_are_answered_between_them_even_if_all_is_applied_at_once() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/a", b"1"))
    client.send(read(2, GET_DATA, "/a"))
    client.send(set_data(3, "/a", b"2"), read(4, GET_DATA, "/a"))
    client.send(encode_command(5, [2, "/a", -1]), read(6, GET_DATA, "/a"))
    node.replica.release()
    assert [(reply.xid, reply.err, reply.body[4:5]) for reply in client.replies()] == [
        (1, 0, b"/"),
        (2, 0, b"1"),
        (3, 0, b"\0"),
        (4, 0, b"2"),
        (5, 0, b""),
        (6, -101, b""),
    ]


def test_everything_of_a_turn_leaves_in_one_write() -> None:
    node = MemoryNode()
    client, other = node.greeted(), node.greeted()
    other.send(*(read(number, EXISTS, "/") for number in range(50)))
    assert len(other.transport.writes) == 1
    other.received()
    other.send(read(1, GET_CHILDREN, "/", watch=True))
    other.received()
    client.send(*(create(number, f"/n{number}") for number in range(50)), read(50, GET_CHILDREN, "/"))
    assert len(client.transport.writes) == 1
    assert len(other.transport.writes) == 1


def test_frames_may_be_cut_anywhere() -> None:
    rng = random.Random(7)
    for _ in range(30):
        client = MemoryNode().greeted()
        data = b"".join(
            (
                create(1, "/a", b"x" * 50),
                read(2, GET_DATA, "/a"),
                PING_FRAME,
                encode_command(4, [14, [[5, "/a", b"y" * 90, 0], [13, "/a", 1]]]),
                encode_command(5, [9, "/"]),
                encode_command(6, [2, "/a", -1]),
            )
        )
        while data:
            size = rng.randint(1, 40)
            client.send(data[:size], turn=rng.random() < 0.5)
            data = data[size:]
        client.send(b"")
        assert xids(client.replies()) == [1, 2, -2, 4, 5, 6]


def test_nothing_behind_a_close_session_is_applied() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a", flags=1), encode_command(2, [-11]), create(3, "/b"), PING_FRAME)
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, 0), (2, 0)]
    assert client.has_ended()
    tree = node.replica.machine.tree
    assert tree.get("/a") is None
    assert tree.get("/b") is None
    assert not node.replica.machine.sessions


def test_requests_after_a_pending_close_session_are_ignored() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(encode_command(1, [-11]))
    client.send(create(2, "/b"))
    node.replica.release()
    assert xids(client.replies()) == [1]
    assert node.replica.machine.tree.get("/b") is None


# -- what is refused --


REFUSED = [op for op, row in OPERATIONS.items() if row.treatment is Treatment.REFUSED]


@pytest.mark.parametrize("op", [*REFUSED, 999, -7, 0])
def test_an_operation_that_is_not_served_is_unimplemented_and_ends_the_connection(op: int) -> None:
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a"), struct.pack(">iii", 8, 2, op), create(3, "/b"))
    assert [(reply.xid, reply.zxid, reply.err) for reply in client.replies()] == [(1, 2, 0), (2, -1, -6)]
    assert client.has_ended()
    assert node.replica.machine.tree.get("/b") is None


def test_every_read_of_the_table_has_an_answer() -> None:
    assert set(ANSWERS) == {op for op, row in OPERATIONS.items() if row.treatment is Treatment.READ}


def test_a_refusal_waits_for_its_turn() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/a"), struct.pack(">iii", 8, 2, OpCode.CHECK))
    assert not client.has_ended()
    node.replica.release()
    assert xids(client.replies()) == [1, 2]
    assert client.has_ended()


@pytest.mark.parametrize(
    ("bad", "told"),
    [
        (struct.pack(">i", 0), "frame.length = 0"),
        (struct.pack(">i", -1), "frame.length = -1"),
        (struct.pack(">i", 7) + bytes(7), "frame.length = 7"),
        (struct.pack(">i", 1025), "frame.length = 1025: from 8 to 1024 bytes"),
        (struct.pack(">iii", 1100, 1, 11) + bytes(1200), "frame.length = 1100"),
        (struct.pack(">iii", 8, -4, 100), "auth.type"),
    ],
)
def test_a_malformed_frame_ends_the_connection_at_once_with_one_line_that_names_it(
    bad: bytes, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quorate.server")
    node = MemoryNode(frame_bytes_max=1024)
    client = node.greeted()
    client.send(create(1, "/a"), bad, turn=False)
    assert client.has_ended()
    node.turn()
    assert node.replica.machine.tree.get("/a") is not None
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert told in lines[0]
    assert "10.0.0.1:50000" in lines[0]
    assert node.frontend.counters.malformed_frames == 1
    assert not node.greeted().has_ended()


@pytest.mark.parametrize(
    ("bad", "named"),
    [
        (struct.pack(">iiii", 12, 2, 1, 9), "create.path = 9"),
        (struct.pack(">iiii", 12, 2, 5, -2), "setData.path = -2"),
        (struct.pack(">iiii", 12, 2, 14, 1), "multi"),
        (struct.pack(">iiii", 12, 2, 4, 9), "read.path = 9"),
        (struct.pack(">iii", 8, 2, 9), "sync.path"),
        (struct.pack(">iii", 8, 2, 16), "reconfig.joiningServers"),
        (struct.pack(">iii", 8, 2, 101), "setWatches.relativeZxid"),
        (struct.pack(">iii", 8, 2, 105), "setWatches2.relativeZxid"),
    ],
)
@pytest.mark.parametrize("holding", [False, True])
def test_a_body_that_means_nothing_is_refused_in_its_turn_as_zookeeper_does(
    bad: bytes, named: str, holding: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "quorate.server")
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = holding
    client.send(create(1, "/a"), bad, create(3, "/b"), bad, PING_FRAME)
    if holding:
        assert client.replies() == []
        node.replica.release()
        node.turn()
    replies = client.replies()
    assert [(reply.xid, reply.err) for reply in replies] == [(1, 0), (2, -5), (3, 0), (2, -5), (-2, 0)]
    assert replies[2].zxid == replies[0].zxid + 1, "a refused write takes no zxid"
    assert not client.has_ended()
    node.advance(10.0)
    client.send(bad)
    node.advance(900.0)
    (line,) = [record.getMessage() for record in caplog.records]
    assert "refused 2 requests, the last one of 10.0.0.1:50000" in line
    assert named in line
    node.advance(200.0)
    assert "refused 1 requests" in caplog.records[-1].getMessage()
    assert node.frontend.counters.malformed_frames == 3
    assert node.replica.machine.tree.get("/b") is not None


@pytest.mark.parametrize(
    ("op", "rest", "err", "zxids", "body"),
    [
        (OpCode.SET_DATA, struct.pack(">iBi", 1, 120, -1), -8, 1, b""),
        (OpCode.SET_ACL, struct.pack(">ii", 0, -1), -8, 1, b""),
        (OpCode.SYNC, b"", 0, 0, b"\xff\xff\xff\xff"),
        (OpCode.ADD_WATCH, struct.pack(">i", 1), 0, 0, b"\0\0\0\0"),
        (OpCode.CHECK_WATCHES, struct.pack(">i", 1), -121, 0, b""),
        (OpCode.REMOVE_WATCHES, struct.pack(">i", 1), -121, 0, b""),
        (OpCode.DELETE, struct.pack(">i", -1), -5, 0, b""),
        (OpCode.GET_DATA, b"\0", -5, 0, b""),
    ],
)
def test_a_null_path_is_answered_as_zookeeper_does(
    op: int, rest: bytes, err: int, zxids: int, body: bytes
) -> None:
    client = MemoryNode().greeted()
    request = struct.pack(">iii", 2, op, -1) + rest
    client.send(create(1, "/a"), struct.pack(">i", len(request)) + request, create(3, "/b"))
    before, reply, after = client.replies()
    assert (reply.xid, reply.err, bytes(reply.body)) == (2, err, body)
    assert after.zxid - before.zxid == zxids + 1
    assert not client.has_ended()


def test_a_frame_of_exactly_the_limit_is_taken() -> None:
    node = MemoryNode(frame_bytes_max=1024)
    client = node.greeted()
    room = 1024 - len(set_data(1, "/zookeeper")) + 4
    client.send(set_data(1, "/zookeeper", b"x" * room))
    assert client.replies()[0].err == 0


# -- sessions that end or move, nodes that lose contact --


def test_an_expired_session_loses_its_connection_after_what_was_queued() -> None:
    node = MemoryNode()
    client = node.greeted()
    client.stream.queue(struct.pack(">iiqi", 16, 1, 2, 0))
    node.replica.expire(client.connection.session_id)
    assert xids(client.replies()) == [1]
    assert client.has_ended()


def test_a_request_ordered_after_the_expiry_is_told_so_or_not_answered_and_has_no_effect() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/late"))
    node.replica.expire(client.connection.session_id)
    node.replica.release()
    assert client.replies() == []
    assert client.has_ended()
    assert node.replica.machine.tree.get("/late") is None


def test_outcomes_of_a_connection_that_was_given_up_reach_nobody_but_the_watchers() -> None:
    node = MemoryNode()
    client, watcher = node.greeted(), node.greeted()
    watcher.send(read(1, EXISTS, "/a", watch=True))
    watcher.received()
    node.replica.holding = True
    client.send(create(1, "/a"))
    node.frontend.lost(client.connection)
    node.frontend.end_of_turn()
    assert client.has_ended()
    client.vanish()
    node.replica.release()
    assert client.received() == b""
    assert [reply.event for reply in watcher.replies()] == [(1, "/a")]


def test_a_later_run_of_a_connection_that_was_given_up_is_not_taken_for_the_lost_one() -> None:
    node = MemoryNode()
    client, watcher = node.greeted(), node.greeted()
    watcher.send(read(1, EXISTS, "/later", watch=True))
    watcher.received()
    node.replica.holding = True
    client.send(create(1, "/a"), create(2, "/b"))
    client.send(create(3, "/later"))
    node.frontend.lost(client.connection)
    node.replica.drop(1)
    node.replica.release()
    assert client.received() == b""
    assert client.has_ended()
    assert [reply.event for reply in watcher.replies()] == [(1, "/later")]


def test_behind_the_end_of_a_connection_no_reply_overtakes_a_read_that_is_not_answered() -> None:
    # Simulation, seed 127 of the ordinary mix: the node took the read for a run and stopped itself.
    node = MemoryNode()
    client = node.greeted()
    node.replica.holding = True
    client.send(create(1, "/a"), read(2, EXISTS, "/a"), create(3, "/b"))
    node.replica.expire(client.connection.session_id, ends_turn=False)
    node.replica.release()
    assert [(reply.xid, reply.err) for reply in client.replies()] == [(1, SESSION_EXPIRED)]
    assert client.has_ended()


def test_an_installed_snapshot_closes_every_connection() -> None:
    node = MemoryNode()
    clients = [node.greeted() for _ in range(3)]
    node.frontend.installed()
    node.frontend.end_of_turn()
    assert all(client.has_ended() for client in clients)


def test_behind_an_installed_snapshot_nothing_is_answered() -> None:
    # Simulation, seed 1 of the mix with five nodes: a reply came that was behind events that nobody told.
    node = MemoryNode()
    client = node.greeted()
    client.send(create(1, "/a"))
    client.replies()
    node.replica.holding = True
    client.send(create(2, "/b"), read(3, EXISTS, "/a"))
    node.frontend.installed()
    node.replica.release()
    assert client.replies() == []
    assert client.has_ended()
    assert node.replica.machine.tree.get("/b") is not None


@pytest.mark.parametrize(("pause_ms_min", "tick_ms"), [(100.0, 50), (300.0, 150)])
def test_each_connection_ends_by_its_own_timeout_when_no_leader_is_heard(
    pause_ms_min: float, tick_ms: int
) -> None:
    node = MemoryNode(contact_loss_ms_max=2000.0, pause_ms_min=pause_ms_min)
    short, long = node.client(), node.client()
    short.greet(short_timeout(4500))
    long.greet(short_timeout(9000))
    node.advance(0)
    node.replica.silence_ms = float("inf")
    for _ in range(1500 // tick_ms - 1):
        node.advance(tick_ms)
    assert not short.has_ended()
    node.advance(tick_ms)
    assert short.has_ended()
    for _ in range(1500 // tick_ms - 1):
        node.advance(tick_ms)
    assert not long.has_ended()
    node.advance(tick_ms)
    assert long.has_ended()


def short_timeout(timeout_ms: int) -> Any:
    return GREETING._replace(session_timeout_ms=timeout_ms)


def test_a_short_election_ends_nobody() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.advance(50)
    node.replica.silence_ms = float("inf")
    for _ in range(20):
        node.advance(50)
    node.replica.silence_ms = 0.0
    for _ in range(40):
        node.advance(50)
    client.send(PING_FRAME)
    assert xids(client.replies()) == [-2]


def test_requests_wait_unanswered_while_no_leader_is_heard_and_are_answered_when_one_is() -> None:
    node = MemoryNode(contact_loss_ms_max=1200.0)
    client, reader = node.greeted(), node.greeted()
    node.advance(50)
    node.replica.silence_ms = float("inf")
    for _ in range(24):
        node.advance(50)
    client.send(PING_FRAME, create(1, "/a"))
    reader.send(read(1, EXISTS, "/a"))
    assert client.is_paused()
    for _ in range(20):
        node.advance(50)
    assert client.received() == reader.received() == b""
    assert runs_of(node) == []
    # The silence took 2.2 s of the 3.3 s after which a session of 10 s loses its connection.
    node.replica.silence_ms = 0.0
    node.advance(50)
    assert xids(client.replies()) == [-2, 1]
    assert xids(reader.replies()) == [1]
    assert not client.is_paused()


def test_a_client_that_is_heard_while_no_leader_is_has_not_been_silent() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.advance(50)
    node.replica.sessions.take_report(10, node.time_ms, float("-inf"))
    node.replica.silence_ms = float("inf")
    for _ in range(30):
        node.advance(50)
    client.send(PING_FRAME)
    assert client.received() == b""
    session_id = client.connection.session_id
    assert node.replica.sessions.take_report(10, node.time_ms, float("-inf")) == [session_id]


def test_a_pause_of_the_node_itself_ends_nobody_if_a_leader_is_heard_then() -> None:
    node = MemoryNode()
    talking, silent = node.greeted(), node.greeted()
    node.advance(50)
    # The node stood still for half of a session of 10 s; what the leader sent meanwhile is not read yet.
    node.time_ms += 5000
    node.replica.silence_ms = 5050.0
    talking.send(PING_FRAME)
    node.advance(0)
    node.replica.silence_ms = 5070.0
    node.advance(20)
    assert talking.received() == b""
    node.replica.silence_ms = 0.0
    node.advance(20)
    assert xids(talking.replies()) == [-2]
    silent.send(PING_FRAME)
    assert xids(silent.replies()) == [-2]


def test_after_a_pause_of_the_node_itself_a_leader_must_be_heard_soon() -> None:
    node = MemoryNode(contact_loss_ms_max=1200.0)
    client = node.greeted()
    node.advance(50)
    node.replica.silence_ms = float("inf")
    node.advance(4000)
    for _ in range(23):
        node.advance(50)
    assert not client.has_ended()
    node.advance(50)
    assert client.has_ended()


def test_a_node_that_was_stopped_for_long_answers_nothing_when_it_wakes() -> None:
    node = MemoryNode()
    talking, silent = node.greeted(), node.greeted()
    node.advance(50)
    # Two thirds of 10 s: a client that was last heard a third before may have lost its session.
    node.time_ms += 6700
    talking.send(PING_FRAME)
    # A handshake looks for contact, too: what it finds may not hide the silence.
    node.client().send(encode_connect(GREETING))
    node.advance(0)
    assert talking.has_ended()
    assert talking.received() == b""
    assert silent.has_ended()


def test_a_closed_peer_that_does_not_take_its_last_bytes_is_dropped() -> None:
    node = MemoryNode(handshake_timeout_ms=500)
    client = node.greeted()
    client.send(struct.pack(">i", 0))
    assert client.transport.closed
    assert not client.was_dropped()
    node.advance(500)
    assert client.was_dropped()


# -- who is heard --


def test_whole_requests_touch_the_session_and_pieces_do_not() -> None:
    node = MemoryNode()
    client = node.greeted()
    node.replica.sessions.take_report(10, 0.0, 0.0)
    client.send(PING_FRAME[:8])
    assert node.replica.sessions.take_report(10, 0.0, 0.0) == []
    client.send(PING_FRAME[8:], PING_FRAME)
    assert node.replica.sessions.take_report(10, 0.0, 0.0) == [client.connection.session_id]


def test_a_leader_keeps_the_deadlines_of_sessions_of_all_nodes() -> None:
    node = MemoryNode()
    node.replica.sessions.become_leader([], node.time_ms)
    own = node.client()
    own_id = own.greet(short_timeout(5000)).session_id
    [outcome] = node.replica.apply_elsewhere([[0, 9, None, [[-10, 6000]]]])
    other_id = outcome.results[0].value[0]
    start_ms = node.time_ms
    tracker = node.replica.sessions
    tracker.take_report(10, 0.0, 0.0)
    assert tracker.due(start_ms + 4999, 10) == []
    node.time_ms += 4999
    node.replica.apply_elsewhere([[other_id, 9, None, [[1, "/a", b"", None, 0]]]])
    assert tracker.due(start_ms + 5000, 10) == [own_id]
    assert tracker.due(start_ms + 4999 + 5999, 10) == [own_id]
    node.replica.expire(own_id)
    assert tracker.due(start_ms + 4999 + 6000, 10) == [other_id]
